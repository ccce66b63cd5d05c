//! `cargo xtask setup`: what the tests need beyond Rust and a C compiler.
//!
//! First the machine is looked at ([`Machine`]), then a plan is made from what was seen ([`plan()`]), and only then is
//! anything run. The plan holds the very commands, so what `--no-install` tells a person to type is what would have
//! been run.

mod machine;
mod plan;

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use machine::Llvm;
use machine::Machine;
use plan::{Step, plan};

use crate::{Result, process, workspace};

#[derive(clap::Args)]
#[group(id = "setup")]
pub(crate) struct Options {
    /// Install nothing; if something is missing, print the commands to run by hand and fail
    #[arg(long)]
    no_install: bool,
    /// Do not ask before installing
    #[arg(long, short)]
    yes: bool,
}

/// What a task can rely on after set-up.
pub(crate) struct Environment {
    /// The interpreter of the Python environment, if there is one.
    pub(crate) python: Option<PathBuf>,
    /// LLVM 19, if it is there.
    pub(crate) llvm: Option<Llvm>,
    /// A line for each part that is still missing and what that means.
    pub(crate) missing: Vec<String>,
}

impl Environment {
    /// The interpreter of the Python environment.
    ///
    /// # Errors
    ///
    /// There is no such environment.
    pub(crate) fn python(&self) -> Result<&Path> {
        let python = self.python.as_deref();
        python.ok_or_else(|| "Python is needed; run `cargo xtask setup` first".into())
    }

    /// The features of the workspace's packages that can be built here, for Cargo's `--features`.
    pub(crate) fn features(&self) -> &'static str {
        match self.llvm {
            Some(_) => "niello/cli,niello/llvm,niello-build/llvm",
            None => "niello/cli",
        }
    }

    /// Lets a Cargo command find LLVM where it does not look by itself.
    pub(crate) fn tell_prefix(&self, command: &mut Command) {
        if let Some(Llvm::Prefix(prefix)) = &self.llvm {
            command.env("LLVM_SYS_191_PREFIX", prefix);
        }
    }
}

/// Installs what is missing; fails if anything still is afterwards.
pub(crate) fn run(options: &Options) -> Result {
    let environment = prepare(options)?;
    if environment.missing.is_empty() {
        println!("setup: everything is there");
        Ok(())
    } else {
        Err(environment.missing.join("\nerror: ").into())
    }
}

/// Adds packages that only one task needs to the Python environment: those of a list in `xtask`, which has all that they
/// need and that is not there. Does nothing if they are there.
pub(crate) fn add_packages(python: &Path, list: &str) -> Result {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--requirement"]);
    process::run(pip.arg(workspace::root().join("xtask").join(list)))
}

/// Installs what is missing as far as this system, and the person at the terminal, allow.
///
/// # Errors
///
/// Fails only under `--no-install` with something missing. An installation that goes wrong is reported and shows up in
/// [`Environment::missing`]: the tests that do without it are still worth running.
pub(crate) fn prepare(options: &Options) -> Result<Environment> {
    let machine = Machine::look();
    let steps = plan(&machine);
    if !steps.is_empty() {
        eprintln!("setup: missing on this machine");
        for step in &steps {
            eprintln!("{}", described(step));
        }
        if options.no_install {
            return Err(by_hand(&steps).into());
        }
        let possible = steps.iter().any(|step| !step.commands.is_empty());
        if possible && (options.yes || !at_a_terminal() || agreed()?) {
            for step in &steps {
                install(step);
            }
        }
    }
    let machine = Machine::look();
    Ok(Environment {
        missing: plan(&machine).iter().map(consequence).collect(),
        python: machine.environment_is_current.then_some(machine.environment),
        llvm: machine.llvm,
    })
}

fn described(step: &Step) -> String {
    let mut text = format!("  {}: {}", step.part.title(), step.part.reason());
    for command in &step.commands {
        text += &format!("\n    {}", process::shown(&command.to_command()));
    }
    if let Some(obstacle) = &step.obstacle {
        text += &format!("\n    cannot be installed from here: {obstacle}");
    }
    text
}

fn by_hand(steps: &[Step]) -> String {
    let mut text = "--no-install is given and something is missing; run by hand:".to_owned();
    for step in steps {
        for command in &step.commands {
            text += &format!("\n  {}", process::shown(&command.to_command()));
        }
        if let Some(obstacle) = &step.obstacle {
            text += &format!("\n  # {}: {obstacle}", step.part.title());
        }
    }
    text
}

fn consequence(step: &Step) -> String {
    format!("{} is missing: {}", step.part.title(), step.part.consequence())
}

/// Whether somebody is there to be asked. Cargo's own convention, `CI`, says that nobody is.
fn at_a_terminal() -> bool {
    io::stdin().is_terminal() && env::var_os("CI").is_none()
}

fn agreed() -> Result<bool> {
    eprint!("run these commands now? [Y/n] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    // An empty line is yes, the end of input is not: nobody answered.
    Ok(answer == "\n" || answer.trim().to_lowercase().starts_with('y'))
}

fn install(step: &Step) {
    for command in &step.commands {
        let mut process = command.to_command();
        eprintln!("setup: {}", process::shown(&process));
        if let Err(error) = process::run(&mut process) {
            eprintln!("setup: {error}");
            if !command.may_fail {
                eprintln!("setup: {} could not be installed", step.part.title());
                return;
            }
        }
    }
}
