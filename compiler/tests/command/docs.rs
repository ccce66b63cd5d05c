//! docs/command.md describes every subcommand and option.

use std::fs;

use super::succeeds;

/// Names of the subcommands, from the command's own help.
fn subcommands() -> Vec<String> {
    let help = succeeds(&["help"]);
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let names = rest.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|&name| name != "help").map(str::to_owned).collect()
}

/// The options of a subcommand, as `--name`; options with only a short name as `-O`.
fn options(subcommand: &str) -> Vec<String> {
    let help = succeeds(&[subcommand, "--help"]);
    let mut options = Vec::new();
    for line in help.lines().map(str::trim).filter(|line| line.starts_with('-')) {
        let words: Vec<&str> =
            line.split([' ', ',', '[', '=']).filter(|word| !word.is_empty()).collect();
        let long = words.iter().take(2).find(|word| word.starts_with("--"));
        options.extend(long.or(words.first()).map(|word| (*word).to_owned()));
    }
    options.retain(|option| option != "--help");
    options
}

#[test]
fn every_subcommand_and_option_is_described() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command.md");
    let text = fs::read_to_string(file).unwrap();
    let subcommands = subcommands();
    assert!(subcommands.len() >= 7, "{subcommands:?}");
    let shared = text.split("\n## ").find(|part| part.starts_with("Options of several")).unwrap();
    for name in &subcommands {
        let heading = format!("`niello {name}`\n");
        let section = text
            .split("\n## ")
            .find(|part| part.starts_with(&heading))
            .unwrap_or_else(|| panic!("docs/command.md has no section {heading}"));
        for option in options(name) {
            let is_there = [section, shared].iter().any(|part| {
                part.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|w| w == option)
            });
            assert!(is_there, "docs/command.md: niello {name} has an option {option}");
        }
    }
    let headings = text.lines().filter_map(|line| line.strip_prefix("## `niello "));
    for heading in headings {
        let name = heading.trim_end_matches('`');
        assert!(subcommands.iter().any(|known| known == name), "there is no niello {name}");
    }
}
