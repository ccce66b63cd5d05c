//! What has to be run so that nothing is missing.

use std::process::Command;

use super::machine::{Machine, OLDEST_PYTHON, folder, requirements};
use crate::workspace;

/// A part that tests need and that a fresh machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Llvm,
    Python,
    Environment,
}

impl Part {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Llvm => "LLVM 19",
            Self::Python => "Python with venv",
            Self::Environment => "the Python environment",
        }
    }

    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Llvm => "the LLVM backend links to its shared library (the C backend does not)",
            Self::Python => "the reference results come from Python packages",
            Self::Environment => {
                "onnx, ONNX Runtime and scikit-learn, which niello's results are compared with; \
                 about 400 MB under the target folder, nothing outside it"
            }
        }
    }

    /// What does not happen without it.
    pub(super) fn consequence(self) -> &'static str {
        match self {
            Self::Llvm => "whatever needs the LLVM backend is not built and not tested",
            Self::Python | Self::Environment => {
                "comparisons with ONNX Runtime and scikit-learn and the ONNX node tests are skipped"
            }
        }
    }

    fn apt_packages(self) -> &'static [&'static str] {
        match self {
            Self::Llvm => &["llvm-19-dev"],
            Self::Python => &["python3", "python3-venv"],
            Self::Environment => &[],
        }
    }
}

/// A command to run, kept as words so that plans can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) words: Vec<String>,
    /// Its failure does not stop the step.
    pub(super) may_fail: bool,
}

impl Invocation {
    fn new<const N: usize>(words: [&str; N]) -> Self {
        Self { words: words.map(str::to_owned).to_vec(), may_fail: false }
    }

    pub(super) fn to_command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(workspace::root());
        command
    }
}

/// How one part is brought in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) part: Part,
    /// In order. Empty if there is nothing that could be run.
    pub(super) commands: Vec<Invocation>,
    /// Why it cannot be installed from here, or what to do instead.
    pub(super) obstacle: Option<String>,
}

/// The steps that make `machine` complete, in the order in which they have to run; empty if it is.
pub(super) fn plan(machine: &Machine) -> Vec<Step> {
    let mut steps = Vec::new();
    if machine.llvm.is_none() {
        steps.push(system_step(machine, Part::Llvm));
    }
    if !machine.environment_is_current {
        if machine.python.is_none() {
            steps.push(system_step(machine, Part::Python));
        }
        // Once Debian's packages are there, Debian's Python can make environments.
        let packaged = machine.has_apt.then_some("/usr/bin/python3");
        steps.push(environment_step(machine, machine.python.as_deref().or(packaged)));
    }
    steps
}

fn system_step(machine: &Machine, part: Part) -> Step {
    let packages = part.apt_packages();
    if !machine.has_apt {
        let (major, minor) = OLDEST_PYTHON;
        let obstacle = match part {
            Part::Llvm => {
                "this system has no apt; install LLVM 19 with its shared library and put \
                 llvm-config-19 into PATH or the folder of the installation into LLVM_SYS_191_PREFIX"
                    .to_owned()
            }
            Part::Python | Part::Environment => {
                format!("this system has no apt; install Python {major}.{minor} or newer with venv")
            }
        };
        return Step { part, commands: Vec::new(), obstacle: Some(obstacle) };
    }
    let mut update = Invocation::new(["apt-get", "update"]);
    // One unreachable source fails it, though another may have the packages; installing tells.
    update.may_fail = true;
    let mut install = Invocation::new([
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
    ]);
    install.words.extend(packages.iter().map(|&package| package.to_owned()));
    let mut commands = vec![update, install];
    if !machine.is_root {
        if !machine.has_sudo {
            let names = packages.join(" ");
            let obstacle = format!("it takes root and there is no sudo; have {names} installed");
            return Step { part, commands: Vec::new(), obstacle: Some(obstacle) };
        }
        for command in &mut commands {
            command.words.insert(0, "sudo".to_owned());
        }
    }
    Step { part, commands, obstacle: None }
}

fn environment_step(machine: &Machine, python: Option<&str>) -> Step {
    let part = Part::Environment;
    let Some(python) = python else {
        let obstacle = Some("it needs the Python above".to_owned());
        return Step { part, commands: Vec::new(), obstacle };
    };
    let folder = workspace::shown(folder(&machine.environment));
    if machine.environment_is_link {
        let obstacle = format!(
            "{folder} is a link, and making it anew would empty the folder that it leads to; remove \
             the link"
        );
        return Step { part, commands: Vec::new(), obstacle: Some(obstacle) };
    }
    let interpreter = workspace::shown(&machine.environment);
    let requirements = workspace::shown(&requirements());
    let make = Invocation::new([python, "-m", "venv", "--clear", &folder]);
    let fill = Invocation::new([
        &interpreter,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--requirement",
        &requirements,
    ]);
    Step { part, commands: vec![make, fill], obstacle: None }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Llvm;
    use super::*;

    /// Debian as root with nothing installed.
    fn bare() -> Machine {
        Machine {
            llvm: None,
            python: None,
            environment: workspace::root().join("target/python/bin/python"),
            environment_is_current: false,
            environment_is_link: false,
            has_apt: true,
            is_root: true,
            has_sudo: false,
        }
    }

    fn lines(steps: &[Step]) -> Vec<String> {
        steps
            .iter()
            .flat_map(|step| &step.commands)
            .map(|command| command.words.join(" "))
            .collect()
    }

    #[test]
    fn a_complete_machine_needs_nothing() {
        let machine = Machine { llvm: Some(Llvm::Known), environment_is_current: true, ..bare() };
        assert_eq!(plan(&machine), []);
    }

    #[test]
    fn a_bare_debian_gets_packages_first_and_then_the_environment() {
        let install =
            "env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends";
        let expected = [
            "apt-get update".to_owned(),
            format!("{install} llvm-19-dev"),
            "apt-get update".to_owned(),
            format!("{install} python3 python3-venv"),
            "/usr/bin/python3 -m venv --clear target/python".to_owned(),
            "target/python/bin/python -m pip install --quiet --disable-pip-version-check \
             --only-binary=:all: --requirement xtask/requirements.txt"
                .to_owned(),
        ];
        assert_eq!(lines(&plan(&bare())), expected);
    }

    #[test]
    fn a_usable_python_is_taken_as_it_is() {
        let machine =
            Machine { llvm: Some(Llvm::Known), python: Some("python3.12".into()), ..bare() };
        let lines = lines(&plan(&machine));
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "python3.12 -m venv --clear target/python");
    }

    #[test]
    fn what_a_link_leads_to_is_left_alone() {
        let machine = Machine {
            llvm: Some(Llvm::Known),
            python: Some("python3.12".into()),
            environment_is_link: true,
            ..bare()
        };
        let steps = plan(&machine);
        assert_eq!(lines(&steps), Vec::<String>::new());
        let obstacle = steps[0].obstacle.as_ref().unwrap();
        assert!(obstacle.starts_with("target/python is a link"), "{obstacle}");
    }

    #[test]
    fn without_root_the_packages_go_through_sudo() {
        let machine = Machine { is_root: false, has_sudo: true, ..bare() };
        let system: Vec<_> =
            lines(&plan(&machine)).into_iter().filter(|line| line.contains("apt-get")).collect();
        assert_eq!(system.len(), 4);
        assert!(system.iter().all(|line| line.starts_with("sudo ")), "{system:?}");
    }

    #[test]
    fn where_nothing_can_be_installed_the_plan_says_why() {
        let no_apt = plan(&Machine { has_apt: false, ..bare() });
        assert_eq!(no_apt.len(), 3);
        assert_eq!(lines(&no_apt), Vec::<String>::new());
        assert!(no_apt.iter().all(|step| step.obstacle.is_some()));

        let no_root = plan(&Machine { is_root: false, ..bare() });
        assert!(no_root[0].obstacle.as_ref().unwrap().contains("llvm-19-dev"));
        assert!(no_root[1].obstacle.as_ref().unwrap().contains("python3-venv"));
    }
}
