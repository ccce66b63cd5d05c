//! Names of passes: comparison, checks and suggestions.

use super::upstream::ALIASES;

/// Whether a pass may have that name: a textual pipeline must be able to spell it.
pub(super) fn is_valid(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || ",(){}=".contains(c))
        && name.contains(char::is_alphabetic)
}

/// The form in which names are compared: without case, `-` and `_`, without the prefixes of TVM's
/// registry, and the name here for TVM's other names.
pub(super) fn canonical(name: &str) -> String {
    let name = plain(name);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, name)| (*name).to_owned())
}

/// A name without case, `-` and `_`, and without the prefixes of TVM's registry.
pub(super) fn plain(name: &str) -> String {
    let name: String =
        name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    if let Some(rest) = name.strip_prefix("tir.") {
        return format!("tir.{}", rest.strip_prefix("transform.").unwrap_or(rest));
    }
    ["relay.transform.", "transform."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .map_or_else(|| name.clone(), str::to_owned)
}

/// Whether both name the same pass: case, `-`, `_` and TVM's prefixes do not matter.
pub fn same(a: &str, b: &str) -> bool {
    a == b || canonical(a) == canonical(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_without_case_and_separators_and_with_upstreams_prefixes() {
        for name in ["fold-constant", "fold_constant", "FoldConstant", "transform.FoldConstant"] {
            assert!(same(name, "FoldConstant"), "{name}");
        }
        assert!(same("relay._transform.FoldConstant", "FoldConstant"));
        assert!(same("tir.transform.UnrollLoop", "tir.UnrollLoop"));
        assert!(same("tir.transform.StorageFlatten", "tir.FlattenBuffer"));
        assert!(!same("tir.UnrollLoop", "UnrollLoop"));
    }
}
