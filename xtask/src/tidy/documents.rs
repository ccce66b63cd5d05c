//! Checks on Markdown documents: what they name has to exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{File, Tree};

/// Extensions by which a word in backquotes is taken for a file's name.
const FILE_EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "py", "txt", "json", "sh", "relay", "onnx"];

/// Of those, the ones that make even a single name, without a folder, one of this tree's.
const OWN_EXTENSIONS: [&str; 4] = ["rs", "md", "toml", "py"];

pub(super) fn check(tree: &Tree, problems: &mut Vec<String>) {
    let names: BTreeSet<&str> = tree.files.iter().map(File::name).collect();
    let bases = bases(tree);
    for (file, text) in tree.texts().filter(|(file, _)| file.extension() == "md") {
        let folder = tree.root.join(&file.path).parent().map(Path::to_owned).unwrap_or_default();
        let places: Vec<&Path> =
            std::iter::once(folder.as_path()).chain(bases.iter().map(PathBuf::as_path)).collect();
        for (number, line) in prose(text) {
            for target in link_targets(line) {
                if !folder.join(target).exists() {
                    problems.push(format!("{}:{number}: no file {target}", file.path));
                }
            }
            for word in code_spans(line).flat_map(str::split_whitespace) {
                if names_nothing(word, &places, &names) {
                    problems.push(format!("{}:{number}: no file {word}", file.path));
                }
            }
        }
    }
}

/// Folders that a path in a document may start from: the workspace, the compiler's rooms, a member or an example.
fn bases(tree: &Tree) -> Vec<PathBuf> {
    let mut bases = vec![tree.root.clone(), tree.root.join("compiler/src")];
    for file in tree.files.iter().filter(|file| file.name() == "Cargo.toml") {
        if let Some(folder) = tree.root.join(&file.path).parent() {
            bases.push(folder.to_owned());
        }
    }
    bases
}

/// The lines outside code blocks, with their numbers: a block is somebody's terminal or somebody's crate.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Targets of `[text](target)` that are files, without `#…`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| {
        let rest = &line[at + open.len()..];
        let target = rest[..rest.find(')')?].split('#').next()?;
        let is_file =
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        is_file.then_some(target)
    })
}

/// What stands between single backquotes.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether `word` looks like a path of this tree and is none.
fn names_nothing(word: &str, places: &[&Path], names: &BTreeSet<&str>) -> bool {
    let word = word.trim_end_matches([',', ';', ':', '.']);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if word.is_empty() || !word.chars().all(plain) || word.starts_with(['/', '-']) {
        return false;
    }
    let path = Path::new(word);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    if !word.contains('/') {
        return OWN_EXTENSIONS.contains(&extension)
            && path.file_stem().is_some()
            && !word.starts_with('.')
            && !names.contains(word);
    }
    let Some(Component::Normal(first)) = path.components().next() else { return false };
    if first == "target" || places.iter().any(|place| place.join(path).exists()) {
        return false;
    }
    // `f32/f64` is no path; `compiler/src/gone` and `src/gone.rs` were meant to be.
    let begins_here = places.iter().any(|place| place.join(first).is_dir());
    begins_here || FILE_EXTENSIONS.contains(&extension)
}

#[cfg(test)]
mod tests {
    use super::super::tests::problems;

    /// The problems of a tree with a module, an example and this README.
    fn readme(text: &str) -> Vec<String> {
        problems(&[
            ("compiler/Cargo.toml", ""),
            ("compiler/src/onnx/mod.rs", "//! ONNX.\n"),
            ("examples/digits/Cargo.toml", ""),
            ("examples/digits/models/digits.onnx", ""),
            ("docs/guide.md", "See [the readme](../README.md).\n"),
            ("README.md", text),
        ])
    }

    #[test]
    fn paths_that_exist_are_fine_from_every_base() {
        let text = "`compiler/src/onnx/mod.rs`, `onnx/`, `models/digits.onnx`, `docs/guide.md`, `mod.rs`,\n\
                    [guide](docs/guide.md#top), `f32/f64`, `cargo test -p x`, `target/release/niello`, `$OUT_DIR/x.rs`,\n\
                    `a.b`, [site](https://example.org/x.md)\n";
        assert_eq!(readme(text), [""; 0]);
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        assert_eq!(readme("a\n`compiler/src/gone`\n"), ["README.md:2: no file compiler/src/gone"]);
        assert_eq!(readme("`onnx/gone.rs`,"), ["README.md:1: no file onnx/gone.rs"]);
        assert_eq!(readme("`elsewhere/x.rs`"), ["README.md:1: no file elsewhere/x.rs"]);
        assert_eq!(readme("`gone.rs`"), ["README.md:1: no file gone.rs"]);
        assert_eq!(readme("[x](docs/gone.md#a)"), ["README.md:1: no file docs/gone.md"]);
        assert_eq!(readme("`cp models/gone.onnx .`"), ["README.md:1: no file models/gone.onnx"]);
    }

    #[test]
    fn code_blocks_are_not_looked_at() {
        assert_eq!(readme("```sh\ncat `src/yours.rs`\n```\n"), [""; 0]);
        assert_eq!(readme("```sh\n```\n`gone.rs`\n"), ["README.md:3: no file gone.rs"]);
    }
}
