//! `niello passes`: what passes and options there are.

use std::fmt::Write as _;

use super::Failure;
use super::output::Output;
use crate::pass::{
    ConfigEntry, PassEntry, PassInfo, PassKind, Preserves, Property, Registry, Requirement,
    list_configs, options_of, struct_option_of,
};

/// List the passes, or show one.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The pass to show
    #[arg(conflicts_with = "configs")]
    name: Option<String>,
    /// List the options of passes, which `niello opt --config` sets
    #[arg(long)]
    configs: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let registry = Registry::global();
    let text = match &args.name {
        Some(name) => description(registry.entry(name)?),
        None if args.configs => configs(),
        None => list(&registry),
    };
    Output::stdout().text(&text);
    // What is wrong with one pass hides no other.
    Ok(registry.verify()?)
}

/// One line a pass: name, kind, level, summary.
fn list(registry: &Registry) -> String {
    let rows: Vec<[String; 4]> = registry
        .entries()
        .filter_map(|entry| {
            let pass = entry.pass()?;
            let info = pass.info();
            let summary = entry.doc().trim().lines().next().unwrap_or_default().to_owned();
            let (kind, level) = (info.kind().to_string(), info.opt_level().to_string());
            Some([entry.name().to_owned(), kind, level, summary])
        })
        .collect();
    table(&rows)
}

/// Columns, wide enough for what is in them.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Everything that is known of a pass.
fn description(entry: &PassEntry) -> String {
    let mut text = format!("{}\n", entry.name());
    if let Some(pass) = entry.pass() {
        text += &facts(pass.info());
    }
    let _ = writeln!(text, "defined in {}", entry.origin());
    let doc = entry.doc().trim();
    if !doc.is_empty() {
        let lines: Vec<&str> = doc.lines().map(str::trim).collect();
        let _ = write!(text, "\n{}\n", lines.join("\n"));
    }
    let whole = struct_option_of(entry.name());
    let options: Vec<[String; 3]> = options_of(entry.name())
        .into_iter()
        .chain(whole.map(|option| (option.name, option)))
        .map(|(key, option)| option_row(key, option))
        .collect();
    let fields: Vec<[String; 1]> = whole
        .into_iter()
        .flat_map(ConfigEntry::default_fields)
        .map(|(field, value)| [format!("{field}={value}")])
        .collect();
    for (what, rows) in [
        ("options", table(&options)),
        ("fields of it, each an option in a textual pipeline", table(&fields)),
    ] {
        if !rows.is_empty() {
            let _ = write!(text, "\n{what}\n");
            rows.lines().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
    }
    text
}

fn facts(info: &PassInfo) -> String {
    let mut text = format!("{} pass, level {}\n", info.kind(), info.opt_level());
    let _ = writeln!(text, "also known as {}", aliases(info).join(", "));
    let passes = |list: &[Requirement]| list.iter().map(Requirement::name).collect::<Vec<_>>();
    let properties = |list: &[Property]| list.iter().map(Property::name).collect::<Vec<_>>();
    let preserved = match info.preserves() {
        Preserves::All => vec!["everything"],
        Preserves::Only(kept) => kept.to_vec(),
    };
    for (what, names) in [
        ("requires", passes(info.required())),
        ("needs the property", properties(info.requires())),
        ("sets the property", properties(info.sets())),
        ("clears the property", properties(info.clears())),
        ("goes before", passes(info.before())),
        ("goes after", passes(info.after())),
        ("conflicts with", passes(info.conflicts())),
        ("preserves", preserved),
    ] {
        if !names.is_empty() {
            let _ = writeln!(text, "{what} {}", names.join(", "));
        }
    }
    text
}

/// Other names under which a pass is found: as textual pipelines spell them, and TVM's.
fn aliases(info: &PassInfo) -> Vec<String> {
    let mut kebab = String::new();
    let mut after_lower = false;
    for c in info.name().chars() {
        if c.is_uppercase() && after_lower {
            kebab.push('-');
        }
        after_lower = c.is_lowercase() || c.is_ascii_digit();
        kebab.extend(c.to_lowercase());
    }
    let upstream = match (info.name().strip_prefix("tir."), info.kind()) {
        (Some(name), _) => format!("tir.transform.{name}"),
        (None, PassKind::Function) => format!("relay._transform.{}", info.name()),
        (None, _) => format!("transform.{}", info.name()),
    };
    vec![kebab, upstream]
}

/// An option: its key with the value it has unless it is set, its type, and what it is for.
fn option_row(key: &str, option: &ConfigEntry) -> [String; 3] {
    let summary = option.doc.trim().lines().next().unwrap_or_default().trim().to_owned();
    [format!("{key}={}", option.default_json()), option.type_name(), summary]
}

/// One line an option: key with its default, type, package, summary.
fn configs() -> String {
    let rows: Vec<[String; 4]> = list_configs()
        .into_iter()
        .map(|option| {
            let [key, ty, summary] = option_row(option.name, option);
            [key, ty, option.origin.package.to_owned(), summary]
        })
        .collect();
    table(&rows)
}
