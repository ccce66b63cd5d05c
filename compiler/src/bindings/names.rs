//! Identifiers and symbols made from names that may be any string.

use std::collections::BTreeSet;

/// Words that cannot be an identifier as they are, in any edition from 2018 on.
#[rustfmt::skip]
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

/// Keywords that cannot be raw identifiers either.
const PATH_KEYWORDS: &[&str] = &["crate", "self", "super"];

/// Rust identifiers for `names`, in the same order, all different.
///
/// A name becomes snake case of ASCII letters and digits: `pixelValues` → `pixel_values`, `x:0` →
/// `x_0`, `12` → `tensor_12`; keywords become raw identifiers, and `self`, `super` and `crate` get
/// an underscore. Where two names become the same, the one that was an identifier keeps it and the
/// others are numbered from 2.
pub fn identifiers<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.into_iter().collect();
    let wanted: Vec<String> = names.iter().map(|name| snake_case(name)).collect();
    let mut taken = BTreeSet::new();
    let mut given: Vec<Option<String>> = vec![None; names.len()];
    for (index, name) in names.iter().enumerate() {
        if wanted[index] == *name && taken.insert(wanted[index].clone()) {
            given[index] = Some(escape(&wanted[index]));
        }
    }
    let finish = |(given, wanted): (Option<String>, String)| {
        given.unwrap_or_else(|| {
            let mut unique = wanted.clone();
            let mut number = 2;
            while !taken.insert(unique.clone()) {
                unique = format!("{wanted}_{number}");
                number += 1;
            }
            escape(&unique)
        })
    };
    given.into_iter().zip(wanted).map(finish).collect()
}

/// `name` in snake case, of ASCII letters and digits, beginning with a letter.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('_') {
            out.push('_');
        }
        before = c;
    }
    let trimmed = out.trim_matches('_');
    match trimmed.chars().next() {
        None => "tensor".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("tensor_{trimmed}"),
        Some(_) => trimmed.to_owned(),
    }
}

/// Makes a keyword usable.
fn escape(ident: &str) -> String {
    if PATH_KEYWORDS.contains(&ident) {
        format!("{ident}_")
    } else if KEYWORDS.contains(&ident) {
        format!("r#{ident}")
    } else {
        ident.to_owned()
    }
}

/// The prefix of a model's symbols and the stem of its archive:
/// `niello_<package>_<version>_<model>_<hash>`.
///
/// `digest` covers everything that decides the code: two archives with one symbol link without a
/// message, and the wrong model runs.
pub fn symbol_name(package: &str, version: &str, model: &str, digest: &[u8; 32]) -> String {
    let mut symbol = String::from("niello");
    for part in [package, version, model] {
        let part = word(part);
        if !part.is_empty() {
            symbol.push('_');
            symbol += &part;
        }
    }
    if word(model) != model {
        // `a-b` and `a_b` are two models, which one build script may compile.
        symbol.push('_');
        for byte in &crate::ir::digest(model.as_bytes())[..4] {
            symbol += &format!("{byte:02x}");
        }
    }
    symbol.push('_');
    for byte in &digest[..8] {
        symbol += &format!("{byte:02x}");
    }
    symbol
}

/// `text` with everything but ASCII letters and digits as underscores.
pub(super) fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        let names =
            ["12", "input.1", "type", "self", "pixelValues", "Input3", "a//b", "_x_", "é", ""];
        assert_eq!(
            identifiers(names),
            [
                "tensor_12",
                "input_1",
                "r#type",
                "self_",
                "pixel_values",
                "input3",
                "a_b",
                "x",
                "tensor",
                "tensor_2"
            ]
        );
    }

    #[test]
    fn names_that_become_the_same_are_kept_apart() {
        assert_eq!(identifiers(["x:0", "x_0", "x.0", "x_0_2"]), ["x_0_3", "x_0", "x_0_4", "x_0_2"]);
        assert_eq!(identifiers(["type", "Type", "type"]), ["r#type", "type_2", "type_3"]);
        assert_eq!(identifiers(["self", "Self"]), ["self_", "self_2"]);
    }

    #[test]
    fn symbols_are_c_identifiers() {
        let mut digest = [0xab; 32];
        digest[0] = 1;
        assert_eq!(
            symbol_name("my-app", "1.0.0-rc.1", "squeezenet1.1", &digest),
            "niello_my_app_1_0_0_rc_1_squeezenet1_1_46f81c67_01ababababababab"
        );
        assert_eq!(symbol_name("", "", "m", &digest), "niello_m_01ababababababab");
        // Models of one program, with the same contents at that.
        let names = ["a_b", "a-b", "a.b", "日本", "中国"];
        let symbols = names.map(|name| symbol_name("", "", name, &digest));
        let kept_apart: std::collections::BTreeSet<_> = symbols.iter().collect();
        assert_eq!(kept_apart.len(), names.len(), "{symbols:?}");
    }
}
