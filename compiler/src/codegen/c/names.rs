//! Unique C identifiers.

use std::collections::BTreeSet;

/// Words that a generated identifier must not be: C's keywords and the names of the preamble.
const RESERVED: &[&str] = &[
    "asm", "auto", "begin", "body", "bool", "break", "case", "char", "const", "continue", "ctx",
    "default", "do", "double", "else", "end", "enum", "extern", "f32", "f64", "float", "for",
    "goto", "i16", "i32", "i64", "i8", "if", "inline", "int", "long", "register", "restrict",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "typeof",
    "u16", "u32", "u64", "u8", "union", "unsigned", "usize", "void", "volatile", "while", "worker",
];

/// Hands out identifiers, each once in a scope and those around it.
#[derive(Default)]
pub(crate) struct Names {
    used: BTreeSet<String>,
    /// In the order in which they were handed out.
    order: Vec<String>,
}

impl Names {
    /// Begins a scope; [`leave`](Self::leave) ends it.
    pub(super) fn enter(&self) -> usize {
        self.order.len()
    }

    /// Ends a scope: its names are free again.
    pub(super) fn leave(&mut self, scope: usize) {
        for name in self.order.drain(scope..) {
            self.used.remove(&name);
        }
    }

    fn take(&mut self, name: &str) -> bool {
        let is_new = self.used.insert(name.to_owned());
        if is_new {
            self.order.push(name.to_owned());
        }
        is_new
    }

    /// An identifier close to `wanted`.
    pub(crate) fn unique(&mut self, wanted: &str) -> String {
        let base = sanitize(wanted);
        if !RESERVED.contains(&base.as_str()) && self.take(&base) {
            return base;
        }
        // A name that ends in a digit gets an underscore, so that x1 and x11 stay apart.
        let separator = if base.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
        let mut number = 1;
        loop {
            let name = format!("{base}{separator}{number}");
            // `u` and a number may be the name of a type.
            if !RESERVED.contains(&name.as_str()) && self.take(&name) {
                return name;
            }
            number += 1;
        }
    }
}

/// Replaces what C does not allow in an identifier. Vector types and helpers end in the name of a
/// type, so a trailing underscore keeps other names apart from them.
fn sanitize(wanted: &str) -> String {
    let mut name: String = wanted
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .collect();
    let leading_ok = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !leading_ok {
        name.insert(0, 'v');
    }
    if is_type_like(&name) {
        name.push('_');
    }
    name
}

/// Whether a name could be a vector type or a helper of the preamble: it ends in something like
/// `f32` or `f32x16`.
fn is_type_like(name: &str) -> bool {
    let word = name.rsplit('_').next().unwrap_or(name);
    let Some(rest) = word.strip_prefix(['f', 'i', 'u']) else { return false };
    let (bits, lanes) = rest.split_once('x').unwrap_or((rest, ""));
    ["8", "16", "32", "64"].contains(&bits) && lanes.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_never_repeat() {
        let mut names = Names::default();
        assert_eq!(names.unique("x:0"), "x_0");
        assert_eq!(names.unique("x.0"), "x_0_1");
        assert_eq!(names.unique("12"), "v12");
        assert_eq!(names.unique("float"), "float1");
        assert_eq!(names.unique("f32x16"), "f32x16_");
        assert_eq!(names.unique("max_f32"), "max_f32_");
        assert_eq!(names.unique(""), "v");
        assert_eq!(names.unique(""), "v1");
        assert_eq!(names.unique("i1"), "i1");
        let scope = names.enter();
        assert_eq!(names.unique("i1"), "i1_1");
        names.leave(scope);
        assert_eq!(names.unique("i1"), "i1_1");
        let numbered: Vec<String> = (0..100).map(|_| names.unique("u")).collect();
        assert!(!numbered.iter().any(|name| RESERVED.contains(&name.as_str())), "{numbered:?}");
    }
}
