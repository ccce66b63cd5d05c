//! `niello opt`: passes run on a model, and the module printed.

use std::path::PathBuf;

use super::Failure;
use super::code::CodeArgs;
use super::output::Output;
use crate::compile::{self, Model, Passes};
use crate::diagnostics::Problem;
use crate::graph::{PrintOptions, print_with_sidecar};
use crate::pass::{Pass, PassRef, Registry, Sequential};

/// Run passes on a model and print the module.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The model: ONNX, or the text of a module
    model: PathBuf,
    /// Passes to run, such as "FoldConstant,FuseOps" [default: the pipeline of the level]
    #[arg(long, value_name = "PASSES")]
    passes: Option<String>,
    #[command(flatten)]
    code: CodeArgs,
    /// Write the text to a file, and large constants to a sidecar beside it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the type of each value
    #[arg(long)]
    types: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let options = args.code.options()?;
    let model = Model::read(&args.model)?;
    let imported = model.import(&options)?;
    let passes = Passes::new(&options)?;
    let module = match &args.passes {
        None => passes.run(imported.module)?,
        Some(text) => {
            let listed = pipeline(text)?;
            let result = passes.context.scope(|cx| listed.run(imported.module, cx));
            result.map_err(|error| compile::report_of(&error))?
        }
    };
    let print = PrintOptions { types: args.types, ..PrintOptions::default() };
    let (text, sidecar) = print_with_sidecar(&module, &print);
    let Some(path) = &args.output else {
        Output::stdout().text(&text);
        return Ok(());
    };
    let failed = |error: std::io::Error| {
        Problem::new(format!("{}: cannot write the file: {error}", path.display()))
    };
    std::fs::write(path, text).map_err(failed)?;
    if !sidecar.is_empty() {
        let mut bytes = Vec::new();
        sidecar.write_to(&mut bytes).map_err(failed)?;
        std::fs::write(compile::sidecar_path(path), bytes).map_err(failed)?;
    }
    Ok(())
}

/// The passes of a text such as `module(function(fold-constant),FuseOps)`.
///
/// `module(…)` and `function(…)` only group: each pass knows what it works on.
fn pipeline(text: &str) -> Result<Sequential, Problem> {
    let registry = Registry::global();
    let mut passes: Vec<PassRef> = Vec::new();
    let mut rest = text;
    let mut depth = 0usize;
    let malformed = |what: &str, rest: &str| {
        let at = text.len() - rest.len();
        Problem::new(format!("--passes {text:?}: {what} at byte {at}"))
            .help("write names with commas between them, such as \"FoldConstant,FuseOps\"")
    };
    loop {
        rest = rest.trim_start();
        let end = rest.find([',', '(', ')', '{']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let name = name.trim_end();
        match after.chars().next() {
            Some('(') if name == "module" || name == "function" => {
                depth += 1;
                rest = &after[1..];
                continue;
            }
            Some('(') => return Err(malformed("only `module` and `function` group passes", rest)),
            Some('{') => {
                return Err(malformed("passes take no options here", after)
                    .help("options of passes are set in a build script"));
            }
            _ if name.is_empty() => return Err(malformed("a pass is missing", rest)),
            _ => {}
        }
        passes.push(registry.get(name).map_err(|error| Problem::new(error.to_string()))?);
        rest = after.trim_start();
        while let Some(after) = rest.strip_prefix(')') {
            depth = depth.checked_sub(1).ok_or_else(|| malformed("a `)` too many", rest))?;
            rest = after.trim_start();
        }
        rest = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.is_empty() && depth == 0 => return Ok(Sequential::new(passes)),
            None if rest.is_empty() => return Err(malformed("a `)` is missing", rest)),
            None => return Err(malformed("a `,` is missing", rest)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let pipeline = pipeline(text).unwrap();
        pipeline.passes().iter().map(|pass| pass.info().name().to_owned()).collect()
    }

    #[test]
    fn groups_and_spellings_make_the_same_list() {
        let plain = names("FoldConstant,FuseOps,FoldConstant");
        assert_eq!(plain, ["FoldConstant", "FuseOps", "FoldConstant"]);
        assert_eq!(names("module(function(fold-constant), fuse-ops, FoldConstant)"), plain);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, what) in [
            ("FoldConstant,", "a pass is missing at byte 13"),
            ("", "a pass is missing at byte 0"),
            ("function(FoldConstant", "a `)` is missing at byte 21"),
            ("FoldConstant)", "a `)` too many at byte 12"),
            ("loop(FoldConstant)", "only `module` and `function` group passes"),
            ("FuseOps{max_depth=10}", "passes take no options here at byte 7"),
            ("function(FoldConstant)FuseOps", "a `,` is missing"),
            ("FoldConstnat", "FoldConstnat"),
        ] {
            let problem = pipeline(text).unwrap_err();
            assert!(problem.message.contains(what), "{text}: {problem}");
        }
    }
}
