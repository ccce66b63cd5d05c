//! `cargo xtask tidy`: what the compiler and clippy do not check about the source tree.
//!
//! Each check takes the tree and adds a line to the problems for each thing it finds; all are reported at once.

mod code;
mod documents;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, workspace};

/// Checks the workspace; fails if there is any problem.
pub(crate) fn run() -> Result {
    let tree = Tree::read(workspace::root())?;
    let problems = check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {} files, {} problems", tree.files.len(), problems.len());
    if problems.is_empty() { Ok(()) } else { Err("the tree is not tidy".into()) }
}

fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    sources::check(tree, &mut problems);
    documents::check(tree, &mut problems);
    problems.sort();
    problems
}

/// A file of the tree.
struct File {
    /// Relative to the tree's root, with `/` between names on every system.
    path: String,
    /// None if it is not UTF-8.
    text: Option<String>,
}

impl File {
    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// The files that somebody wrote.
struct Tree {
    root: PathBuf,
    /// By path.
    files: Vec<File>,
}

/// Folders that hold what tools wrote, at any depth.
const GENERATED: [&str; 3] = [".git", "target", "__pycache__"];

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path =
                    if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    if !GENERATED.contains(&name.as_str()) {
                        folders.push(path);
                    }
                // In a git worktree `.git` is a file that names a folder of this machine.
                } else if kind.is_file() && name != ".git" {
                    let text = String::from_utf8(fs::read(entry.path())?).ok();
                    files.push(File { path, text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), files })
    }

    fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| Some((file, file.text.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a tree with these files.
    pub(super) fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check(&Tree::read(folder.path()).unwrap())
    }

    #[test]
    fn generated_folders_are_not_looked_at() {
        assert_eq!(problems(&[("target/debug/out.rs", "fn x() {}"), (".git/x.rs", "")]), [""; 0]);
        assert_eq!(problems(&[("src/out.rs", "fn x() {}")]).len(), 1);
    }

    #[test]
    fn this_tree_is_tidy() {
        let problems = check(&Tree::read(workspace::root()).unwrap());
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
