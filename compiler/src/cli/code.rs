//! Options that decide what code is made, as arguments of several commands.

use std::collections::BTreeMap;

use clap::{ArgAction, Args, ValueEnum};

use super::Failure;
use crate::diagnostics::Problem;
use crate::options::{
    Backend, CompileOptions, DEFAULT_OPT_LEVEL, Denormals, MAX_OPT_LEVEL, Numerics, UnknownBackend,
};
use crate::target::Target;

/// What runs or is made of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Engine {
    /// Native code by way of C
    C,
    /// Native code by way of LLVM, in builds that have it
    Llvm,
    /// The reference interpreter
    Interp,
}

impl Engine {
    /// The code generator; the interpreter has none.
    ///
    /// # Errors
    ///
    /// This build has no such code generator.
    pub(super) fn backend(self) -> Result<Option<Backend>, Problem> {
        if self == Engine::Interp {
            return Ok(None);
        }
        let unknown = |error: UnknownBackend| Problem::new(error.to_string());
        self.name().parse().map(Some).map_err(unknown)
    }

    /// The name as an argument.
    pub(super) fn name(self) -> &'static str {
        match self {
            Engine::C => "c",
            Engine::Llvm => "llvm",
            Engine::Interp => "interp",
        }
    }
}

/// Optimisation, target, threads and dimensions.
#[derive(Args, Clone, Debug)]
pub(super) struct CodeArgs {
    /// Optimisation level, 0 to 4
    #[arg(short = 'O', value_name = "N", default_value_t = DEFAULT_OPT_LEVEL,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_OPT_LEVEL)))]
    pub(super) opt_level: u8,
    /// Worker threads of one inference
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: u16,
    /// Size of a symbolic dimension; may be given more than once
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim, action = ArgAction::Append)]
    pub(super) dims: Vec<(String, u64)>,
    /// CPU to compile for, such as x86-64-v3; `portable` makes code for every CPU level, of which
    /// the program chooses when it runs
    #[arg(long, value_name = "CPU", default_value = "native")]
    pub(super) target_cpu: String,
    /// What happens to denormal numbers during a run
    #[arg(long, value_enum, default_value_t = Denormals::default())]
    pub(super) denormals: Denormals,
    /// Whether passes and functions may change how results are rounded
    #[arg(long, value_enum, default_value_t = Numerics::default())]
    pub(super) numerics: Numerics,
    /// Pass that must not run; may be given more than once
    #[arg(long = "disable-pass", value_name = "PASS", action = ArgAction::Append)]
    pub(super) disabled_passes: Vec<String>,
    /// Option of the passes, see `niello passes --configs`; may be given more than once
    #[arg(long, value_name = "KEY=JSON", value_parser = parse_config, action = ArgAction::Append)]
    pub(super) config: Vec<(String, serde_json::Value)>,
}

/// An option of passes. What is not JSON is a string.
fn parse_config(text: &str) -> Result<(String, serde_json::Value), String> {
    let (key, value) = text.split_once('=').ok_or("an option is given as key=json")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.to_owned(), value))
}

fn parse_dim(text: &str) -> Result<(String, u64), String> {
    // A name may contain any character, a size none but digits.
    let (name, size) = text.rsplit_once('=').ok_or("a dimension is given as name=size")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a size"))?;
    Ok((name.to_owned(), size))
}

impl CodeArgs {
    /// The options of a compilation for this machine.
    ///
    /// # Errors
    ///
    /// The CPU is not known.
    pub(super) fn options(&self) -> Result<CompileOptions, Failure> {
        let mut options = CompileOptions::new(Target::host());
        options
            .set_target_cpu(&self.target_cpu)
            .map_err(|error| Problem::new(error.to_string()))?;
        options.opt_level = self.opt_level;
        options.threads = usize::from(self.threads);
        options.dims = self.pinned()?;
        options.denormals = self.denormals;
        options.numerics = self.numerics;
        options.disabled_passes = self.disabled_passes.clone();
        options.config = self.config.iter().cloned().collect();
        options.jobs = jobs();
        Ok(options)
    }

    /// The dimensions' sizes by name.
    fn pinned(&self) -> Result<BTreeMap<String, u64>, Problem> {
        let mut dims = BTreeMap::new();
        for (name, size) in &self.dims {
            if let Some(former) = dims.insert(name.clone(), *size).filter(|former| former != size) {
                return Err(Problem::new(format!(
                    "dimension `{name}` is given two sizes, {former} and {size}"
                )));
            }
        }
        Ok(dims)
    }

    /// The same arguments, for a child process.
    pub(super) fn to_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("-O{}", self.opt_level),
            format!("--threads={}", self.threads),
            format!("--target-cpu={}", self.target_cpu),
            format!("--denormals={}", self.denormals.name()),
            format!("--numerics={}", self.numerics.name()),
        ];
        args.extend(self.dims.iter().map(|(name, size)| format!("--dim={name}={size}")));
        args.extend(self.disabled_passes.iter().map(|name| format!("--disable-pass={name}")));
        args.extend(self.config.iter().map(|(name, value)| format!("--config={name}={value}")));
        args
    }
}

/// Number of processors that this process may use.
pub(super) fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        code: CodeArgs,
    }

    #[test]
    fn arguments_survive_the_way_to_a_child() {
        let given = [
            "niello",
            "-O1",
            "--denormals=keep",
            "--numerics=strict",
            "--dim",
            "a=b=3",
            "--dim=batch=1",
            "--disable-pass",
            "FuseOps",
            "--config",
            "a={\"b\":1}",
            "--config=text=as it is",
        ];
        let code = Command::try_parse_from(given).unwrap().code;
        assert_eq!(code.dims, [("a=b".to_owned(), 3), ("batch".to_owned(), 1)]);
        let again = [vec!["niello".to_owned()], code.to_args()].concat();
        let again = Command::try_parse_from(again).unwrap().code;
        assert_eq!(again.to_args(), code.to_args());
        assert_eq!(again.options().unwrap(), code.options().unwrap());
        let json = serde_json::json!({ "a": { "b": 1 }, "text": "as it is" });
        assert_eq!(serde_json::to_value(&code.options().unwrap().config).unwrap(), json);
    }

    #[test]
    fn a_dimension_has_one_size() {
        let options = |second| {
            let args = ["niello", "--dim=n=1", second];
            Command::try_parse_from(args).unwrap().code.options()
        };
        assert_eq!(options("--dim=n=1").unwrap().dims, [("n".to_owned(), 1)].into());
        assert!(options("--dim=n=2").is_err());
    }

    #[test]
    fn levels_and_dimensions_are_checked() {
        for bad in [["niello", "-O5"], ["niello", "--dim=batch"], ["niello", "--dim=batch=x"]] {
            assert!(Command::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
