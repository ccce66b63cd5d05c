//! Options that decide what code is made, as arguments of several commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};

use super::Failure;
use crate::diagnostics::Problem;
use crate::executor::aot::KernelCache;
use crate::onnx::InputValue;
use crate::options::{
    Backend, CompileOptions, DEFAULT_OPT_LEVEL, Denormals, DimSize, Executor, MAX_OPT_LEVEL,
    Numerics, PORTABLE, Threads, UnknownBackend,
};
use crate::target::{Target, TargetError};
use crate::tuned::Tuned;

/// The CPU that commands compile for unless they are told: the one they run on.
pub(super) const NATIVE: &str = "native";

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

/// Optimisation, target, threads, and what is fixed of the inputs.
#[derive(Args, Clone, Debug)]
pub(super) struct CodeArgs {
    /// Optimisation level, 0 to 4
    #[arg(short = 'O', value_name = "N", default_value_t = DEFAULT_OPT_LEVEL,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_OPT_LEVEL)))]
    pub(super) opt_level: u8,
    /// Most threads that share an inference; `auto` for as many as the machine has processors that
    /// runs it, up to 16
    #[arg(long, value_name = "N", default_value_t = Threads::Most(1))]
    threads: Threads,
    /// Size of a symbolic dimension, or its bounds, as batch=1..=32 or batch=1.., where each run has a
    /// size of its own, or sizes up to the last that have code of their own, as seq=32,128; may be
    /// given more than once
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim, action = ArgAction::Append)]
    dims: Vec<Named<DimSize>>,
    /// Whole shape of an input, where its dimensions have no names; may be given more than once
    #[arg(long = "input-shape", value_name = "NAME=N,N..", value_parser = parse_shape,
          action = ArgAction::Append)]
    input_shapes: Vec<Named<Vec<u64>>>,
    /// Value of an input, which is compiled in and is an input no more: one number for each element,
    /// or one for all; may be given more than once
    #[arg(long = "input-value", value_name = "NAME=V,V..", value_parser = parse_value,
          action = ArgAction::Append)]
    input_values: Vec<Named<InputValue>>,
    /// Folder that links to external data may lead to, outside of the model's folder; may be given
    /// more than once
    #[arg(long = "external-data-folder", value_name = "DIR", action = ArgAction::Append)]
    external_folders: Vec<PathBuf>,
    /// CPU to compile for, such as x86-64-v3; `portable` makes code for every CPU level, of which
    /// the program chooses when it runs, `baseline` for the narrowest alone [default: native, but
    /// portable with `--target` and in `niello test`, which runs each level]
    #[arg(long, value_name = "CPU")]
    pub(super) target_cpu: Option<String>,
    /// What calls the kernels
    #[arg(long, value_enum, default_value_t = Executor::default())]
    pub(super) executor: Executor,
    /// What happens to denormal numbers during a run
    #[arg(long, value_enum, default_value_t = Denormals::default())]
    pub(super) denormals: Denormals,
    /// Whether passes and functions may change how results are rounded
    #[arg(long, value_enum, default_value_t = Numerics::default())]
    pub(super) numerics: Numerics,
    /// Pass that must not run; may be given more than once
    #[arg(long = "disable-pass", value_name = "PASS", action = ArgAction::Append)]
    pub(super) disabled_passes: Vec<String>,
    /// Code generator of another crate that is given what it takes of the model; may be given more
    /// than once
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub(super) external: Vec<String>,
    /// File of choices that `niello tune` measured, which stand where a cost model would decide
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
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

/// What is fixed of a thing of the model, which has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named<T> {
    /// The argument as it was given, for a child process.
    pub(super) text: String,
    pub(super) name: String,
    pub(super) value: T,
}

/// An argument `name=value`.
pub(super) fn parse_named<T, E: Display>(
    text: &str,
    form: &str,
    value: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Named<T>, String> {
    // A name may contain any character, a value no equals sign.
    let (name, after) = text.rsplit_once('=').ok_or_else(|| format!("the form is {form}"))?;
    let value = value(after).map_err(|error| error.to_string())?;
    Ok(Named { text: text.to_owned(), name: name.to_owned(), value })
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a size"))
}

fn parse_dim(text: &str) -> Result<Named<DimSize>, String> {
    let Some((before, max)) = text.rsplit_once("..=") else {
        return parse_named(text, "name=size", DimSize::from_str);
    };
    // The second sign of equality belongs to the range.
    let sizes = |min: &str| format!("{min}..={max}").parse::<DimSize>();
    let mut dim = parse_named(before, "name=size..=size", sizes)?;
    dim.text = text.to_owned();
    Ok(dim)
}

fn parse_shape(text: &str) -> Result<Named<Vec<u64>>, String> {
    parse_named(text, "name=size,size", |sizes| match sizes {
        "" => Ok(Vec::new()),
        sizes => sizes.split(',').map(parse_size).collect(),
    })
}

fn parse_value(text: &str) -> Result<Named<InputValue>, String> {
    parse_named(text, "name=number,number", InputValue::from_str)
}

/// The values by name. Nothing has two.
fn by_name<T: Clone + PartialEq + Debug>(
    what: &str,
    named: &[Named<T>],
) -> Result<BTreeMap<String, T>, Problem> {
    let mut map: BTreeMap<String, &Named<T>> = BTreeMap::new();
    for new in named {
        let former = map.insert(new.name.clone(), new);
        if let Some(former) = former.filter(|former| former.value != new.value) {
            let (name, former, new) = (&new.name, &former.text, &new.text);
            return Err(Problem::new(format!(
                "{what} `{name}` is given twice: {former} and {new}"
            )));
        }
    }
    Ok(map.into_iter().map(|(name, named)| (name, named.value.clone())).collect())
}

impl CodeArgs {
    /// The options of a compilation for this machine.
    ///
    /// # Errors
    ///
    /// The CPU is not known.
    pub(super) fn options(&self) -> Result<CompileOptions, Failure> {
        self.options_for(None)
    }

    /// The options of a compilation for the machine that a triple names; without one, for this
    /// machine.
    ///
    /// # Errors
    ///
    /// The triple or the CPU is not known, or the CPU is this machine's and the triple is not.
    pub(super) fn options_for(&self, triple: Option<&str>) -> Result<CompileOptions, Failure> {
        let problem = |error: TargetError| Problem::new(error.to_string());
        let (target, cpu) = match triple {
            Some(triple) => (Target::from_triple(triple).map_err(problem)?, PORTABLE),
            None => (Target::host(), NATIVE),
        };
        let mut options = CompileOptions::new(target);
        options.set_target_cpu(self.target_cpu.as_deref().unwrap_or(cpu)).map_err(problem)?;
        options.opt_level = self.opt_level;
        options.threads = self.threads.most();
        options.dims = by_name("dimension", &self.dims)?;
        options.input_shapes = by_name("the shape of input", &self.input_shapes)?;
        options.input_values = by_name("the value of input", &self.input_values)?;
        options.external_folders = self.external_folders.clone();
        options.executor = self.executor;
        options.denormals = self.denormals;
        options.numerics = self.numerics;
        options.disabled_passes = self.disabled_passes.clone();
        options.external = self.external.clone();
        options.config = self.config.iter().cloned().collect();
        if let Some(path) = &self.tuned {
            options.tuned = Tuned::read(path)?;
        }
        options.jobs = jobs();
        options.kernel_cache = KernelCache::from_environment()?;
        Ok(options)
    }

    /// How many threads share an inference in this process: as many as given, or as it may use
    /// processors.
    pub(super) fn workers(&self) -> usize {
        match self.threads {
            Threads::Most(threads) => threads,
            Threads::Auto => self.threads.most().min(jobs()),
        }
    }

    /// The same arguments, for a child process.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args = vec![
            format!("-O{}", self.opt_level),
            format!("--threads={}", self.threads),
            format!("--executor={}", self.executor.name()),
            format!("--denormals={}", self.denormals.name()),
            format!("--numerics={}", self.numerics.name()),
        ];
        args.extend(self.target_cpu.iter().map(|cpu| format!("--target-cpu={cpu}")));
        args.extend(self.dims.iter().map(|dim| format!("--dim={}", dim.text)));
        args.extend(self.input_shapes.iter().map(|shape| format!("--input-shape={}", shape.text)));
        args.extend(self.input_values.iter().map(|value| format!("--input-value={}", value.text)));
        args.extend(self.disabled_passes.iter().map(|name| format!("--disable-pass={name}")));
        args.extend(self.external.iter().map(|name| format!("--external={name}")));
        args.extend(self.config.iter().map(|(name, value)| format!("--config={name}={value}")));
        let mut args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        for folder in &self.external_folders {
            args.push(OsString::from("--external-data-folder"));
            args.push(folder.clone().into_os_string());
        }
        if let Some(path) = &self.tuned {
            args.push(OsString::from("--tuned"));
            args.push(path.clone().into_os_string());
        }
        args
    }
}

/// Which CPU levels of what is compiled this machine cannot run, in words.
///
/// # Errors
///
/// It cannot run the least of them.
pub(super) fn beyond_machine(
    engine: Engine,
    options: &CompileOptions,
) -> Result<Vec<String>, Problem> {
    if engine == Engine::Interp {
        return Ok(Vec::new());
    }
    let native = Target::host().with_cpu(NATIVE).map_err(|e| Problem::new(e.to_string()))?;
    let targets = options.targets();
    let mut beyond = (targets.iter().enumerate())
        .filter(|(_, target)| !target.features.is_subset(&native.features))
        .map(|(place, target)| {
            let level = target.cpu.clone().unwrap_or_else(|| target.cpu_level().to_string());
            (place, format!("this machine cannot run {level}"))
        })
        .peekable();
    if let Some((_, what)) = beyond.next_if(|(place, _)| *place == 0) {
        return Err(Problem::new(what).help("leave out --target-cpu for what it can run"));
    }
    Ok(beyond.map(|(_, what)| what).collect())
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
            "--executor=graph",
            "--denormals=keep",
            "--numerics=strict",
            "--dim",
            "a=b=3",
            "--dim=batch=1",
            "--dim=n=m=1..=32",
            "--disable-pass",
            "FuseOps",
            "--external=dsp",
            "--config",
            "a={\"b\":1}",
            "--config=text=as it is",
            "--input-shape=x=1,3,224,224",
            "--input-shape",
            "scalar=",
            "--input-value=a=b=-1,0.5",
            "--input-value=sr=16000",
            "--external-data-folder=a b",
        ];
        let code = Command::try_parse_from(given).unwrap().code;
        let options = code.options().unwrap();
        let dims =
            [("a=b", DimSize::from(3)), ("batch", DimSize::from(1)), ("n=m", (1..=32).into())];
        assert_eq!(options.dims, dims.map(|(name, size)| (name.to_owned(), size)).into());
        let shapes = [("x".to_owned(), vec![1, 3, 224, 224]), ("scalar".to_owned(), vec![])];
        assert_eq!(options.input_shapes, shapes.into());
        let values = [
            ("a=b".to_owned(), "-1,0.5".parse::<InputValue>()),
            ("sr".to_owned(), Ok(16000.into())),
        ];
        let values = values.map(|(name, value)| (name, value.unwrap()));
        assert_eq!(options.input_values, values.into());
        let again = [vec!["niello".into()], code.to_args()].concat();
        let again = Command::try_parse_from(again).unwrap().code;
        assert_eq!(again.to_args(), code.to_args());
        assert_eq!(again.options().unwrap(), code.options().unwrap());
        let json = serde_json::json!({ "a": { "b": 1 }, "text": "as it is" });
        assert_eq!(serde_json::to_value(&code.options().unwrap().config).unwrap(), json);
    }

    #[test]
    fn threads_are_a_number_or_as_many_as_there_are() {
        let parse = |threads: &str| {
            let argument = format!("--threads={threads}");
            Command::try_parse_from(["niello", argument.as_str()])
        };
        for (text, planned, here) in
            [("1", 1, 1), ("7", 7, 7), ("65535", 65535, 65535), ("auto", 16, jobs().min(16))]
        {
            let code = parse(text).unwrap().code;
            assert_eq!((code.options().unwrap().threads, code.workers()), (planned, here));
            assert!(code.to_args().contains(&format!("--threads={text}").into()), "{text}");
        }
        for bad in ["0", "65536", "-1", "two", "AUTO", "1.5", ""] {
            let expected = format!(
                "invalid value '{bad}' for '--threads <N>': `{bad}` is neither a number from 1 to \
                 65535 nor `auto`"
            );
            let said = parse(bad).err().unwrap().to_string();
            assert!(said.contains(&expected), "{said}");
        }
    }

    #[test]
    fn nothing_is_fixed_to_two_values() {
        let options = |args: [&str; 2]| {
            let args = [&["niello"], &args[..]].concat();
            Command::try_parse_from(args).unwrap().code.options()
        };
        assert_eq!(options(["--dim=n=1"; 2]).unwrap().dims, [("n".to_owned(), 1.into())].into());
        for (args, what) in [
            (["--dim=n=1", "--dim=n=2"], "dimension `n` is given twice: n=1 and n=2"),
            (["--input-shape=x=1", "--input-shape=x=1,1"], "the shape of input `x` is given twice"),
            (["--input-value=x=1", "--input-value=x=2"], "the value of input `x` is given twice"),
        ] {
            let Err(Failure::Report(report)) = options(args) else { panic!("{args:?}") };
            assert!(report.to_string().starts_with(what), "{report}");
        }
    }

    #[test]
    fn levels_and_dimensions_are_checked() {
        for bad in [
            "-O5",
            "--dim=batch",
            "--dim=batch=x",
            "--dim=batch=1..=",
            "--dim=1..=2",
            "--input-shape=x=1,",
            "--input-shape=x=-1",
            "--input-value=x=",
            "--input-value=x=one",
        ] {
            assert!(Command::try_parse_from(["niello", bad]).is_err(), "{bad}");
        }
    }
}
