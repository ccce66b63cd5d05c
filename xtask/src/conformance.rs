//! `cargo xtask conformance`: the ONNX node tests, and cases of what exporters write besides ONNX's own operators, backend
//! by backend.
//!
//! The cases are generated from the pinned package `onnx`. `tests/conformance/<backend>.txt` names those that pass, one a
//! line; the list may only grow, and holds for the code of every CPU level. `tests/conformance/missing.txt` says why the
//! others do not. The table in docs/operators.md follows from the lists. What the other cases should compute is what ONNX Runtime does; they must all pass.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{self, Backend};
use crate::machines::{self, Emulated};
use crate::setup::{self, Environment};
use crate::{Result, operators, process, workspace};

/// How many cases onnx 1.23.2 has; each must be accounted for.
const CASES: usize = 1884;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Backend to run; may be given more than once [default: all]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// CPU to compile for, such as x86-64-v2 [default: by LLVM every level that a build script makes, by C x86-64-v3]
    #[arg(long, value_name = "CPU")]
    target_cpu: Option<String>,
    /// Run the models in a folder instead of the node tests, each with inputs and outputs like these; all must pass
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "../shared/models")]
    models: Option<PathBuf>,
    /// Run on a machine of another kind, by its emulator and by C: a target of `cargo xtask machines` that has Linux
    #[arg(long, value_name = "TRIPLE")]
    machine: Option<String>,
    /// Add the cases that pass now to the committed lists
    #[arg(long)]
    bless: bool,
    /// Only check docs/operators.md, or write it with `--bless`
    #[arg(long)]
    operators: bool,
    /// Only generate the cases
    #[arg(long)]
    generate_only: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Generates the cases if need be, runs them on each backend and holds the results against the committed lists.
pub(crate) fn run(options: &Options) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let cpu = options.target_cpu.as_deref();
    let emulated = |triple| machines::emulated(triple, cpu);
    let machine = options.machine.as_deref().map(emulated).transpose()?;
    let asked = if machine.is_some() { &[Backend::C][..] } else { &options.backend };
    let suite = |backend, cases, name| match &machine {
        Some(machine) => Suite::on(machine, cpu, cases, name),
        None => Suite::of(backend, cpu, cases, name),
    };
    if let Some(models) = &options.models {
        let Some(models) = folder_of_models(models) else { return Ok(()) };
        let backends = command::backends(asked, &environment)?;
        let niello = command::build(&environment)?;
        let mut failed = 0;
        for &backend in &backends {
            failed += suite(backend, &models, "models").run(&niello)?.told_failures();
        }
        return match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} models do not pass").into()),
        };
    }
    let python = environment.python()?;
    let cases = generate(python)?;
    let exports = generate_exports(python)?;
    if options.generate_only {
        return Ok(());
    }

    let backends = command::backends(asked, &environment)?;
    let niello = command::build(&environment)?;
    let mut lost = 0;
    for &backend in backends.iter().filter(|_| !options.operators) {
        let results = suite(backend, &cases, "node").in_batches().run(&niello)?;
        lost += check(backend, &results, options.bless)?;
        lost += suite(backend, &exports, "exports").in_batches().run(&niello)?.told_failures();
    }
    if lost > 0 {
        return Err(format!("{lost} cases that should pass do not").into());
    }
    operators::check(&niello, python, &cases, options.bless)
}

/// The node tests, for machines of other kinds.
pub(crate) struct NodeTests {
    niello: PathBuf,
    cases: PathBuf,
    are_all: bool,
}

impl NodeTests {
    /// Generates the cases if need be, of which one of so many runs.
    ///
    /// # Errors
    ///
    /// The set-up lacks Python, or the command does not build.
    pub(crate) fn new(environment: &Environment, every: usize) -> Result<Self> {
        let all = generate(environment.python()?)?;
        let cases = match every {
            1 => all,
            _ => some_of(&all, every, &workspace::target().join("machines"))?,
        };
        Ok(NodeTests { niello: command::build(environment)?, cases, are_all: every == 1 })
    }

    /// Runs them on a machine, and returns how many went which way.
    ///
    /// # Errors
    ///
    /// A case does not pass that the list of the C backend has.
    pub(crate) fn on(&self, machine: &Emulated, cpu: Option<&str>) -> Result<String> {
        let suite = Suite::on(machine, cpu, &self.cases, "node").in_batches();
        let results = suite.run(&self.niello)?;
        let lost = match self.are_all {
            true => check(Backend::C, &results, false)?,
            false => results.told_failures_among(Backend::C, &self.cases),
        };
        match lost {
            0 => Ok(results.counts()),
            lost => Err(format!("{}; {lost} that should pass do not", results.counts()).into()),
        }
    }
}

/// A folder of models that is given relative to the workspace; says so if there is none.
pub(crate) fn folder_of_models(folder: &Path) -> Option<PathBuf> {
    let folder = workspace::root().join(folder);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: models: there is no folder {}", workspace::shown(&folder));
    None
}

/// The CPU that a backend compiles for unless another one is named. LLVM is fast enough for every level that a build
/// script makes; the other levels' C is run by the tests of schedules and by the random networks.
fn default_cpu(backend: Backend) -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if backend == Backend::C
        && std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
    {
        return "x86-64-v3";
    }
    match backend {
        Backend::C => "native",
        Backend::Llvm | Backend::Interp => "portable",
    }
}

/// A folder of cases that `niello test` runs.
pub(crate) struct Suite<'a> {
    backend: Backend,
    cpu: &'a str,
    cases: &'a Path,
    /// Names the files of the results, with backend and CPU.
    name: String,
    /// Arguments besides.
    pub(crate) args: Vec<&'a str>,
    /// Variables of its environment.
    pub(crate) environment: Vec<(&'a str, &'a OsStr)>,
}

impl<'a> Suite<'a> {
    pub(crate) fn of(backend: Backend, cpu: Option<&'a str>, cases: &'a Path, name: &str) -> Self {
        let cpu = cpu.unwrap_or_else(|| default_cpu(backend));
        Suite {
            backend,
            cpu,
            cases,
            name: name.to_owned(),
            args: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The cases on a machine of another kind, by C.
    pub(crate) fn on(
        machine: &'a Emulated,
        cpu: Option<&'a str>,
        cases: &'a Path,
        name: &str,
    ) -> Self {
        let Emulated { triple, command, compiler: (variable, compiler) } = machine;
        Suite {
            backend: Backend::C,
            cpu: cpu.unwrap_or("portable"),
            cases,
            name: format!("{name}-{triple}"),
            args: vec!["--by", command],
            environment: vec![(variable, OsStr::new(compiler))],
        }
    }

    /// Small cases share a process, which takes longer to start than they do.
    fn in_batches(mut self) -> Self {
        self.args.extend(["--batch", "10"]);
        self
    }

    /// Runs all cases; says how many went which way and where the reasons are.
    pub(crate) fn run(&self, niello: &Path) -> Result<Results> {
        let backend = self.backend.name();
        let name = match self.backend {
            Backend::Interp => format!("{}-{backend}", self.name),
            Backend::C | Backend::Llvm => format!("{}-{backend}-{}", self.name, self.cpu),
        };
        let folder = workspace::target().join("conformance");
        fs::create_dir_all(&folder)?;
        let json = folder.join(format!("{name}.json"));
        let mut test = Command::new(niello);
        test.arg("test").arg(self.cases).args(["--backend", backend, "--target-cpu", self.cpu]);
        test.args(&self.args).arg("--json").arg(&json).envs(self.environment.iter().copied());
        // One line for each case that does not pass would bury the summary; the JSON has them all.
        let log = json.with_extension("log");
        test.stdout(fs::File::create(&log)?).stderr(fs::File::create(log.with_extension("err"))?);
        if json.exists() {
            fs::remove_file(&json)?;
        }
        let status =
            test.status().map_err(|error| format!("{}: {error}", process::shown(&test)))?;
        let text = fs::read_to_string(&json).map_err(|error| {
            let said = fs::read_to_string(log.with_extension("err")).unwrap_or_default();
            format!(
                "{} ended with {status} and left no result: {error}\n{said}",
                process::shown(&test)
            )
        })?;
        let outcomes = outcomes(&serde_json::from_str(&text)?)?;
        let results = Results { name, outcomes };
        println!("{}: every case's reason is in {}", results.name, workspace::shown(&json));
        println!("{}: {}", results.name, results.counts());
        Ok(results)
    }
}

/// How the cases of a suite went.
pub(crate) struct Results {
    name: String,
    outcomes: BTreeMap<String, Outcome>,
}

impl Results {
    /// The names of the cases that passed.
    pub(crate) fn passed(&self) -> BTreeSet<&str> {
        names(&self.outcomes, "pass")
    }

    /// How many went which way.
    fn counts(&self) -> String {
        let count = |result| names(&self.outcomes, result).len();
        let [passed, failed, skipped] = ["pass", "fail", "skip"].map(count);
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// Prints each case that failed, and returns how many there are.
    pub(crate) fn told_failures(&self) -> usize {
        let failed = names(&self.outcomes, "fail");
        self.tell(failed.iter());
        failed.len()
    }

    /// Prints each case of a list that did not pass, and returns how many there are.
    pub(crate) fn told_losses(&self, listed: &BTreeSet<&str>) -> usize {
        let passed = self.passed();
        let lost: Vec<_> = listed.difference(&passed).collect();
        self.tell(lost.iter().copied());
        lost.len()
    }

    /// The same where there are some cases of the backend's list; of others, such as models, all should
    /// pass.
    pub(crate) fn told_failures_among(&self, backend: Backend, cases: &Path) -> usize {
        let listed = backend.listed();
        let there = |case: &&str| cases.join(case).is_dir();
        let listed: BTreeSet<&str> = listed.lines().filter(there).collect();
        if listed.is_empty() { self.told_failures() } else { self.told_losses(&listed) }
    }

    fn tell<'s>(&self, cases: impl Iterator<Item = &'s &'s str>) {
        for case in cases {
            let (result, reason) = self
                .outcomes
                .get(*case)
                .map_or(("missing", "no such case"), |outcome| (&outcome.result, &outcome.reason));
            println!("{}: {case}: {result}: {reason}", self.name);
        }
    }
}

/// A folder `node` in another one, made anew, with one of so many cases.
pub(crate) fn some_of(all: &Path, every: usize, folder: &Path) -> Result<PathBuf> {
    let some = folder.join("node");
    if some.exists() {
        fs::remove_dir_all(&some)?;
    }
    let mut cases: Vec<PathBuf> =
        fs::read_dir(all)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    cases.sort();
    for case in cases.iter().step_by(every) {
        let Some(name) = case.file_name() else { continue };
        copy(case, &some.join(name))?;
    }
    Ok(some)
}

fn copy(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Makes the folder of ONNX's node cases unless it is there already, and returns it.
pub(crate) fn generate(python: &Path) -> Result<PathBuf> {
    generate_by(python, "node", &["tests/conformance/generate.py"])
}

/// The same for the cases of what exporters write besides.
pub(crate) fn generate_exports(python: &Path) -> Result<PathBuf> {
    let scripts = ["exports.py", "microsoft.py", "ml.py", "sizes.py"];
    generate_by(python, "exports", &scripts.map(|script| format!("tests/conformance/{script}")))
}

/// Makes a folder of cases by the first of the sources, a script; the others are what it reads. All are paths in the
/// workspace.
pub(crate) fn generate_by(
    python: &Path,
    name: &str,
    sources: &[impl AsRef<Path>],
) -> Result<PathBuf> {
    let sources: Vec<PathBuf> =
        sources.iter().map(|source| workspace::root().join(source)).collect();
    let folder = workspace::target().join("conformance");
    let cases = folder.join(name);
    let stamp = folder.join(format!("{name}.stamp"));
    // The files follow from the sources and the packages and from nothing else.
    let mut wanted = fs::read_to_string(workspace::root().join("xtask/requirements.txt"))?;
    for source in &sources {
        wanted += &format!("\n{}", fs::read_to_string(source)?);
    }
    if cases.is_dir() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(cases);
    }
    // Written aside and moved, so that an interrupted run leaves nothing that looks complete.
    let partial = folder.join(format!("{name}.partial"));
    for stale in [&partial, &cases] {
        if stale.exists() {
            fs::remove_dir_all(stale)?;
        }
    }
    process::run(Command::new(python).arg("-B").arg(&sources[0]).arg(&partial))?;
    fs::rename(&partial, &cases)?;
    fs::write(&stamp, wanted)?;
    Ok(cases)
}

/// Holds results against the list of a backend; returns how many of the list do not pass any more.
fn check(backend: Backend, results: &Results, bless: bool) -> Result<usize> {
    let name = backend.name();
    let known = results.outcomes.len();
    if known != CASES {
        return Err(format!("{name}: {known} cases have a result, not {CASES}").into());
    }
    let listed = backend.listed();
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.is_empty()).collect();
    let lost = results.told_losses(&listed);
    let unexplained = unexplained(results, &missing("tests/conformance/missing.txt")?);
    for line in &unexplained {
        println!("{name}: {line}");
    }
    let passed = results.passed();
    let gained = passed.difference(&listed).count();
    if bless && lost == 0 {
        let lines: String = passed.iter().map(|case| format!("{case}\n")).collect();
        fs::write(backend.list(), lines)?;
    } else if bless {
        println!("{name}: the list is left as it is: it may only grow");
    } else if gained > 0 {
        println!("{name}: {gained} more cases pass than are listed; `--bless` adds them");
    }
    Ok(lost + unexplained.len())
}

/// Why cases do not pass, by what their names begin with: a file of the workspace.
pub(crate) fn missing(file: &str) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(workspace::root().join(file))?;
    let reason = |line: &str| {
        let (cases, reason) = line.split_once(": ").ok_or(format!("`{line}` has no reason"))?;
        Ok((cases.to_owned(), reason.to_owned()))
    };
    text.lines().map(reason).collect()
}

/// Cases that do not pass and have no reason, and reasons that no such case has.
pub(crate) fn unexplained(results: &Results, missing: &[(String, String)]) -> Vec<String> {
    let passed = results.passed();
    let others = || results.outcomes.keys().filter(|case| !passed.contains(case.as_str()));
    let cases = others()
        .filter(|case| !missing.iter().any(|(prefix, _)| case.starts_with(prefix)))
        .map(|case| format!("{case} does not pass, and missing.txt does not say why"));
    let reasons = missing
        .iter()
        .filter(|(prefix, _)| !others().any(|case| case.starts_with(prefix)))
        .map(|(prefix, _)| format!("missing.txt has a reason for {prefix}, but all of these pass"));
    cases.chain(reasons).collect()
}

/// How one case went.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    result: String,
    reason: String,
}

/// Reads what `niello test --json` writes: an object with an array `cases`.
fn outcomes(report: &Value) -> Result<BTreeMap<String, Outcome>> {
    let cases = report["cases"].as_array().ok_or("the report has no array `cases`")?;
    let mut outcomes = BTreeMap::new();
    for case in cases {
        let text = |key: &str| case[key].as_str().map(str::to_owned);
        let (Some(name), Some(result)) = (text("name"), text("result")) else {
            return Err(format!("a case without name or result: {case}").into());
        };
        if !["pass", "fail", "skip"].contains(&result.as_str()) {
            return Err(format!("{name}: unknown result {result}").into());
        }
        let outcome = Outcome { result, reason: text("reason").unwrap_or_default() };
        if outcomes.insert(name.clone(), outcome).is_some() {
            return Err(format!("{name} is reported twice").into());
        }
    }
    Ok(outcomes)
}

fn names<'a>(outcomes: &'a BTreeMap<String, Outcome>, result: &str) -> BTreeSet<&'a str> {
    let with = outcomes.iter().filter(|(_, outcome)| outcome.result == result);
    with.map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_read_case_by_case() {
        let report = json!({"passed": 1, "failed": 1, "skipped": 1, "cases": [
            {"name": "test_add", "result": "pass", "reason": "", "kernels": 1},
            {"name": "test_if", "result": "fail", "reason": "no such operator", "kernels": 0},
            {"name": "test_str", "result": "skip", "reason": null, "kernels": 0},
        ]});
        let outcomes = outcomes(&report).unwrap();
        assert_eq!(names(&outcomes, "pass"), BTreeSet::from(["test_add"]));
        assert_eq!(names(&outcomes, "skip"), BTreeSet::from(["test_str"]));
        assert_eq!(outcomes["test_if"].reason, "no such operator");
    }

    #[test]
    fn cases_that_do_not_pass_have_a_reason() {
        let case = |name: &str, result: &str| json!({"name": name, "result": result});
        let cases = [case("test_add", "pass"), case("test_odd", "fail"), case("test_str", "skip")];
        let outcomes = outcomes(&json!({"cases": cases})).unwrap();
        let results = Results { name: "node".to_owned(), outcomes };
        let reason = |prefix: &str| (prefix.to_owned(), "no strings".to_owned());
        assert_eq!(unexplained(&results, &[reason("test_s"), reason("test_o")]), [""; 0]);
        assert_eq!(
            unexplained(&results, &[reason("test_s"), reason("test_a")]),
            [
                "test_odd does not pass, and missing.txt does not say why",
                "missing.txt has a reason for test_a, but all of these pass"
            ]
        );
    }

    #[test]
    fn a_report_that_cannot_be_trusted_is_refused() {
        let case = json!({"name": "test_add", "result": "pass"});
        for (report, expected) in [
            (json!({}), "no array"),
            (json!({"cases": [case, case]}), "twice"),
            (json!({"cases": [{"name": "test_add"}]}), "without name or result"),
            (json!({"cases": [{"name": "test_add", "result": "ok"}]}), "unknown result"),
        ] {
            let error = outcomes(&report).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
