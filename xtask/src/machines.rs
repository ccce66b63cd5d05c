//! `cargo xtask machines`: the examples that classify on machines of other kinds, by an emulator.

mod libraries;
mod loops;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::conformance::NodeTests;
use crate::test::{DIGITS, Example, KEYWORDS};
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
#[group(id = "machines")]
pub(crate) struct Options {
    /// Targets to run [default: all]
    #[arg(value_name = "TRIPLE")]
    triples: Vec<String>,
    /// Installs what is missing: packages of Debian and Ubuntu, and Rust's libraries for the target
    #[arg(long)]
    install: bool,
    /// Runs the ONNX node tests on those that have Linux, too, some ten minutes each; with a number, one of so many
    #[arg(
        long,
        value_name = "EVERY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    nodes: Option<u64>,
    #[command(flatten)]
    setup: setup::Options,
}

/// A kind of machine, and what runs its programs here.
struct Machine {
    triple: &'static str,
    /// The CPU that code is for where it is not the least of the target.
    cpu: Option<Cpu>,
    /// What Debian and Ubuntu call what is needed beside Rust.
    packages: &'static [&'static str],
    /// Programs that have to be there: the C compiler, what runs the machine's programs, and what that starts.
    programs: &'static [&'static str],
    system: System,
}

/// A CPU that has more than the least of a target.
#[derive(Clone, Copy)]
struct Cpu {
    /// What niello calls it.
    name: &'static str,
    /// What the emulator calls it.
    emulated: &'static str,
    /// The first version of the emulator that runs more than the digits.
    emulator: u32,
}

/// What programs of a machine find there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// Linux. What its libraries' folder and the compiler that links are called begins so.
    Linux(&'static str),
    /// Windows, by Wine. The C compiler links.
    Windows,
    /// macOS, for which programs are linked with libraries that have no contents, and not run.
    MacOs,
    /// WASI, by an interpreter, with vectors. rustc has a linker for it.
    Wasi,
    /// A browser, in which Node.js draws digits: the example is the one that is a web page.
    Browser,
    /// None: examples are those that are firmware.
    None,
}

/// The crate that runs a program for WASI, from the workspace's folder.
const WASI_RUNNER: &str = "xtask/wasi/Cargo.toml";

/// What draws digits on the web page in Node.js, from the workspace's folder.
const PAGE_PROGRAM: &str = "xtask/src/page.mjs";

/// What starts programs of 32-bit x86, which processors of 64 bits run as they are.
const LOADER: &str = "/usr/i686-linux-gnu/lib/ld-linux.so.2";

/// A machine that has room for the keywords alone.
const SMALL: &str = "thumbv6m-none-eabi";

/// A microcontroller by Arm.
const fn cortex_m(triple: &'static str) -> Machine {
    Machine {
        triple,
        cpu: None,
        packages: &["gcc-arm-none-eabi", "qemu-system-arm"],
        programs: &["arm-none-eabi-gcc", "qemu-system-arm"],
        system: System::None,
    }
}

/// A microcontroller with RISC-V of 32 bits.
const fn riscv32(triple: &'static str) -> Machine {
    Machine {
        triple,
        cpu: None,
        packages: &["gcc-riscv64-unknown-elf", "qemu-system-misc"],
        programs: &["riscv64-unknown-elf-gcc", "qemu-system-riscv32"],
        system: System::None,
    }
}

const MACHINES: &[Machine] = &[
    Machine {
        triple: "aarch64-unknown-linux-gnu",
        cpu: None,
        packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"],
        programs: &["aarch64-linux-gnu-gcc", "qemu-aarch64"],
        system: System::Linux("aarch64-linux-gnu"),
    },
    Machine {
        triple: "armv7-unknown-linux-gnueabihf",
        cpu: None,
        packages: &["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross", "qemu-user"],
        programs: &["arm-linux-gnueabihf-gcc", "qemu-arm"],
        system: System::Linux("arm-linux-gnueabihf"),
    },
    Machine {
        triple: "armv7-unknown-linux-gnueabihf",
        cpu: Some(Cpu { name: "cortex-a7", emulated: "cortex-a7", emulator: 0 }),
        packages: &["clang-19", "gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross", "qemu-user"],
        programs: &["clang-19", "qemu-arm", "arm-linux-gnueabihf-gcc"],
        system: System::Linux("arm-linux-gnueabihf"),
    },
    Machine {
        triple: "i686-unknown-linux-gnu",
        cpu: None,
        packages: &["gcc-i686-linux-gnu", "libc6-dev-i386-cross"],
        programs: &["i686-linux-gnu-gcc", LOADER],
        system: System::Linux("i686-linux-gnu"),
    },
    Machine {
        triple: "powerpc64le-unknown-linux-gnu",
        cpu: None,
        packages: &["gcc-powerpc64le-linux-gnu", "libc6-dev-ppc64el-cross", "qemu-user"],
        programs: &["powerpc64le-linux-gnu-gcc", "qemu-ppc64le"],
        system: System::Linux("powerpc64le-linux-gnu"),
    },
    Machine {
        triple: "riscv64gc-unknown-linux-gnu",
        cpu: None,
        packages: &["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user"],
        programs: &["riscv64-linux-gnu-gcc", "qemu-riscv64"],
        system: System::Linux("riscv64-linux-gnu"),
    },
    Machine {
        triple: "riscv64gc-unknown-linux-gnu",
        cpu: Some(Cpu { name: "rv64gcv", emulated: "rv64,v=true,vext_spec=v1.0", emulator: 10 }),
        packages: &["clang-19", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user"],
        programs: &["clang-19", "qemu-riscv64", "riscv64-linux-gnu-gcc"],
        system: System::Linux("riscv64-linux-gnu"),
    },
    Machine {
        triple: "s390x-unknown-linux-gnu",
        cpu: None,
        packages: &["gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "qemu-user"],
        programs: &["s390x-linux-gnu-gcc", "qemu-s390x"],
        system: System::Linux("s390x-linux-gnu"),
    },
    cortex_m("thumbv7em-none-eabihf"),
    cortex_m("thumbv7em-none-eabi"),
    cortex_m("thumbv7m-none-eabi"),
    cortex_m(SMALL),
    riscv32("riscv32imac-unknown-none-elf"),
    riscv32("riscv32imafc-unknown-none-elf"),
    Machine {
        triple: "wasm32-unknown-unknown",
        cpu: None,
        packages: &["clang", "chromium", "chromium-driver", "nodejs"],
        programs: &["clang", "node", "chromedriver", "chromium"],
        system: System::Browser,
    },
    Machine {
        triple: "wasm32-wasip1",
        cpu: None,
        packages: &["clang"],
        programs: &["clang", "cargo"],
        system: System::Wasi,
    },
    Machine {
        triple: "x86_64-pc-windows-gnu",
        cpu: None,
        packages: &["gcc-mingw-w64-x86-64", "wine", "wine64"],
        programs: &["x86_64-w64-mingw32-gcc", "wine"],
        system: System::Windows,
    },
    Machine {
        triple: "aarch64-apple-darwin",
        cpu: None,
        packages: &["clang-19", "lld-19", "llvm-19"],
        programs: &["clang-19", "llvm-nm-19", "ld64.lld-19"],
        system: System::MacOs,
    },
];

/// Runs the examples on each machine that is asked for, and prints a table.
///
/// # Errors
///
/// A target is not in the table; an example does not build, run or classify well on one. A
/// machine whose compiler or emulator is not installed is skipped, which is said.
pub(crate) fn run(options: &Options) -> Result {
    for triple in &options.triples {
        find(triple, None)?;
    }
    let is_wanted = |machine: &&Machine| {
        options.triples.is_empty() || options.triples.iter().any(|triple| triple == machine.triple)
    };
    let wanted: Vec<&Machine> = MACHINES.iter().filter(is_wanted).collect();
    if options.install {
        install(&wanted);
    }
    let nodes = |every: u64| NodeTests::new(&setup::prepare(&options.setup)?, every as usize);
    let nodes = options.nodes.map(nodes).transpose()?;
    let mut outcomes = Vec::new();
    for machine in wanted {
        let mut add = |task, needs_more, done: &dyn Fn() -> Result<Vec<String>>| {
            outcomes.push((machine.name(), task, outcome(machine, task, needs_more, done)));
        };
        for example in machine.examples() {
            add(example.name, *example != DIGITS, &|| built_and_run(machine, example));
        }
        if let (Some(nodes), System::Linux(_)) = (&nodes, machine.system) {
            let cpu = machine.cpu.map(|cpu| cpu.name);
            add("nodes", true, &|| Ok(vec![nodes.on(&machine.emulated()?, cpu)?]));
        }
    }
    println!("\n{:<40} {:<8} printed", "target", "example");
    let mut failed = 0;
    for (name, example, outcome) in &outcomes {
        let text = match outcome {
            Outcome::Ran(lines) => lines.join(", "),
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
            Outcome::Failed(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        println!("{name:<40} {example:<8} {text}");
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {} runs fail", outcomes.len()).into()),
    }
}

impl Machine {
    /// The target, with the CPU if it is not the least one.
    fn name(&self) -> String {
        match self.cpu {
            Some(cpu) => format!("{} {}", self.triple, cpu.name),
            None => self.triple.to_owned(),
        }
    }

    /// What runs on it.
    fn examples(&self) -> &'static [Example] {
        match self.system {
            _ if self.triple == SMALL => &[KEYWORDS],
            System::Browser => &[DIGITS],
            _ => &[DIGITS, KEYWORDS],
        }
    }

    /// Builds niello's command for it.
    fn emulated(&self) -> Result<Emulated> {
        let System::Linux(tools) = self.system else {
            return Err(format!("niello's command does not run on `{}`", self.triple).into());
        };
        let mut build = process::cargo();
        build.args(["build", "--release", "--package", "niello", "--features", "cli", "--target"]);
        build.arg(self.triple);
        let name = self.triple.replace('-', "_");
        build.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), format!("{tools}-gcc"));
        process::run(&mut build)?;
        let program = workspace::target().join(self.triple).join("release/niello");
        let program = program.to_string_lossy();
        if program.contains(char::is_whitespace) {
            return Err(format!("`--by` takes words, and there is a space in {program}").into());
        }
        let command = format!("{} {program}", emulator(self, tools));
        let target = match self.programs[0] {
            "clang-19" => format!(" --target={tools}"),
            _ => String::new(),
        };
        let compiler = (format!("CC_{name}"), format!("{}{target}", self.programs[0]));
        Ok(Emulated { triple: self.triple, command, compiler })
    }
}

/// The machine of a target that has a CPU of that name; the first of the target's if it has none.
fn find(triple: &str, cpu: Option<&str>) -> Result<&'static Machine> {
    let mut of_target = MACHINES.iter().filter(|machine| machine.triple == triple);
    let Some(first) = of_target.next() else {
        let known: Vec<&str> = MACHINES.iter().map(|machine| machine.triple).collect();
        return Err(format!("no machine `{triple}`; known are {}", known.join(", ")).into());
    };
    Ok(of_target.find(|machine| machine.cpu.map(|cpu| cpu.name) == cpu).unwrap_or(first))
}

/// What runs programs of a machine that has Linux, in words.
fn emulator(machine: &Machine, tools: &str) -> String {
    let cpu = machine.cpu.map_or(String::new(), |cpu| format!(" -cpu {}", cpu.emulated));
    match machine.programs[1] {
        LOADER => format!("{LOADER} --library-path /usr/{tools}/lib"),
        emulator => format!("{emulator}{cpu} -L /usr/{tools}"),
    }
}

/// niello's command for a machine of another kind.
pub(crate) struct Emulated {
    pub(crate) triple: &'static str,
    /// What starts it here, in words, for `niello test --by`.
    pub(crate) command: String,
    /// The variable that names the C compiler of the machine, and its value: a program of this machine, which
    /// emulators of programs run as it is, and the target for one that compiles for any.
    pub(crate) compiler: (String, String),
}

/// Builds niello's command for a machine that has Linux, and the CPU of that name if the table has it.
///
/// # Errors
///
/// There is no such machine, or it has no Linux; something that is needed is not installed, or the command does not
/// build.
pub(crate) fn emulated(triple: &str, cpu: Option<&str>) -> Result<Emulated> {
    let machine = find(triple, cpu)?;
    match missing(machine).or_else(|| too_old(machine)) {
        Some(missing) => Err(missing.into()),
        None => machine.emulated(),
    }
}

enum Outcome {
    /// What the program has printed.
    Ran(Vec<String>),
    Skipped(String),
    Failed(String),
}

/// What would install what is missing for a machine, if something is.
fn missing(machine: &Machine) -> Option<String> {
    let programs: Vec<&str> =
        machine.programs.iter().copied().filter(|program| !is_program(program)).collect();
    if !programs.is_empty() {
        let packages = machine.packages.join(" ");
        return Some(format!("no {}: apt install {packages}", programs.join(", ")));
    }
    (!has_library(machine.triple)).then(|| format!("rustup target add {}", machine.triple))
}

/// What version would run a machine's programs, if the one that is there runs the digits alone.
fn too_old(machine: &Machine) -> Option<String> {
    let (cpu, emulator) = (machine.cpu?, machine.programs[1]);
    let text = process::output(Command::new(emulator).arg("--version"))?;
    let version = text.split_once("version ")?.1.split('.').next()?.parse::<u32>().ok()?;
    let is_old = version < cpu.emulator;
    is_old.then(|| format!("{emulator} is of version {version}: needs {}", cpu.emulator))
}

/// How a machine gets on with a task that needs more than what runs the digits, or does not.
fn outcome(
    machine: &Machine,
    task: &str,
    needs_more: bool,
    done: &dyn Fn() -> Result<Vec<String>>,
) -> Outcome {
    let old = || if needs_more { too_old(machine) } else { None };
    if let Some(missing) = missing(machine).or_else(old) {
        return Outcome::Skipped(missing);
    }
    println!("machines: {task} on {}", machine.name());
    match done() {
        Ok(lines) => Outcome::Ran(lines),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// What the machine's example prints, and what there is to say of its code.
fn built_and_run(machine: &Machine, example: &Example) -> Result<Vec<String>> {
    match machine.system {
        System::Windows => libraries::make_for_wine(machine)?,
        System::MacOs => libraries::make_for_macos()?,
        System::Linux(_) | System::Wasi | System::Browser | System::None => {}
    }
    let (build, mut run) = commands(machine, example);
    build.map_or(Ok(()), |mut build| process::run(&mut build))?;
    let mut lines = match machine.system {
        System::MacOs => libraries::linked(&mut run)?,
        _ => example.judge(&mut run)?,
    };
    lines.extend(code(machine, example));
    Ok(lines)
}

/// What there is to say of the model's code: its bytes for all CPU levels, and its loop with most multiplications.
fn code(machine: &Machine, example: &Example) -> Option<String> {
    let builds =
        fs::read_dir(workspace::target().join(machine.triple).join("release/build")).ok()?;
    let log = format!("out/{}.log", example.name);
    let logs = builds.flatten().map(|build| build.path().join(&log));
    // The build script that has run last wrote for this CPU.
    let written = |log: &PathBuf| log.metadata().and_then(|file| file.modified()).ok();
    let log = fs::read_to_string(logs.filter(|log| log.is_file()).max_by_key(written)?).ok()?;
    let lines = |key: &str| {
        let lines =
            log.lines().filter_map(move |line| line.split_once(' ').filter(|(k, _)| *k == key));
        lines.map(|(_, value)| value.trim()).collect::<Vec<_>>()
    };
    let sizes = lines("code").into_iter().map(|code| code.split(' ').next()?.parse::<u64>().ok());
    let mut text = format!("code: {} bytes", sizes.sum::<Option<u64>>()?);
    // Sums of the keywords are of integers.
    if *example != DIGITS {
        return Some(text);
    }
    let gcc = machine.programs.iter().find_map(|program| program.strip_suffix("gcc"));
    let archives = lines("file").into_iter().filter(|file| file.ends_with(".a"));
    let disassembly = gcc.and_then(|prefix| {
        process::output(Command::new(format!("{prefix}objdump")).arg("-d").args(archives))
    });
    let found = disassembly.and_then(|text| loops::of_disassembly(&text));
    if let Some((instructions, multiplications)) = found {
        text += &format!(", {instructions} instructions for {multiplications} multiply-adds");
    }
    Some(text)
}

/// What builds the machine's example, if that which runs it does not, and what runs it.
fn commands(machine: &Machine, example: &Example) -> (Option<Command>, Command) {
    let (compiler, runner) = (machine.programs[0], machine.programs[1]);
    let mut command = process::cargo();
    let runs = !matches!(machine.system, System::Browser | System::MacOs);
    command.arg(if runs { "run" } else { "build" });
    command.args(["--quiet", "--release", "--target", machine.triple]);
    // What is set for this machine holds for no other one.
    for name in ["CC", "CFLAGS", "TARGET_CC", "NIELLO_TARGET_CPU"] {
        command.env_remove(name);
    }
    if let Some(cpu) = machine.cpu {
        command.env("NIELLO_TARGET_CPU", cpu.name);
    }
    command.env(format!("CC_{}", machine.triple.replace('-', "_")), compiler);
    let name = machine.triple.to_uppercase().replace('-', "_");
    // How an example outside the workspace is linked and run stands in its own configuration; its build script needs
    // what those of the others need.
    let folder = match machine.system {
        System::None => Some("examples/firmware"),
        System::Browser => Some("examples/page"),
        System::Linux(_) | System::Wasi | System::Windows | System::MacOs => None,
    };
    match folder {
        Some(folder) => {
            command.current_dir(workspace::root().join(folder));
            command.env("CARGO_TARGET_DIR", workspace::target());
        }
        None => {
            command.args(["--package", example.name]);
        }
    }
    match machine.system {
        System::None => {
            command.args(["--bin", example.name]);
        }
        System::Browser => {
            let mut draw = Command::new(runner);
            draw.arg(PAGE_PROGRAM).arg(workspace::target()).current_dir(workspace::root());
            return (Some(command), draw);
        }
        System::Linux(tools) => {
            command.env(format!("CARGO_TARGET_{name}_LINKER"), format!("{tools}-gcc"));
            command.env(format!("CARGO_TARGET_{name}_RUNNER"), emulator(machine, tools));
        }
        System::Windows => {
            command.env(format!("CARGO_TARGET_{name}_LINKER"), compiler);
            command.env(format!("CARGO_TARGET_{name}_RUNNER"), runner);
            // Its folder for the user's files, and no words about what programs with windows would lack.
            command.env("WINEPREFIX", workspace::target().join("wine")).env("WINEDEBUG", "-all");
        }
        System::MacOs => {
            command.env(format!("CARGO_TARGET_{name}_LINKER"), machine.programs[2]);
            let flags =
                "-C linker-flavor=ld64.lld -C link-arg=-undefined -C link-arg=dynamic_lookup";
            command.env(format!("CARGO_TARGET_{name}_RUSTFLAGS"), flags);
            command.env("SDKROOT", workspace::target().join("macos-sdk"));
            let mut list = Command::new(runner);
            list.arg("--undefined-only");
            list.arg(workspace::target().join(machine.triple).join("release").join(example.name));
            return (Some(command), list);
        }
        System::Wasi => {
            command.env(format!("CARGO_TARGET_{name}_RUSTFLAGS"), "-C target-feature=+simd128");
            // Cargo runs it in the workspace's folder, whose name may have spaces: a runner has none.
            let runner = format!("{runner} run --quiet --release --manifest-path {WASI_RUNNER} --");
            command.env(format!("CARGO_TARGET_{name}_RUNNER"), runner);
            command.env("CARGO_TARGET_DIR", workspace::target());
        }
    }
    (None, command)
}

/// Whether a program of that name is in a folder of `PATH`, and may be run.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).any(|folder| is_executable(&folder.join(&file)))
}

/// Whether a path is a file that may be run.
#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Whether a path is a file that may be run.
#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Whether Rust's own libraries for a target are installed.
fn has_library(triple: &str) -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(workspace::root());
    process::output(&mut rustc).is_some_and(|folder| Path::new(folder.trim()).is_dir())
}

/// Installs what is missing as far as this system lets it; what is not there afterwards is skipped.
fn install(machines: &[&Machine]) {
    let mut packages: Vec<&str> = Vec::new();
    let mut triples = Vec::new();
    for machine in machines {
        if machine.programs.iter().any(|program| !is_program(program)) {
            packages.extend(machine.packages);
        }
        if !has_library(machine.triple) {
            triples.push(machine.triple);
        }
    }
    packages.sort_unstable();
    packages.dedup();
    let mut commands = Vec::new();
    if !packages.is_empty() {
        let as_root = if is_program("sudo") { &["sudo"][..] } else { &["env"] };
        for words in [&["update"][..], &["install", "--yes", "--no-install-recommends"]] {
            let mut command = Command::new(as_root[0]);
            command.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(words);
            commands.push(command);
        }
        if let Some(command) = commands.last_mut() {
            command.args(&packages);
        }
    }
    if !triples.is_empty() {
        let mut command = Command::new("rustup");
        command.args(["target", "add"]).args(&triples).current_dir(workspace::root());
        commands.push(command);
    }
    for mut command in commands {
        println!("machines: {}", process::shown(&command));
        if let Err(error) = process::run(&mut command) {
            println!("machines: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn an_example_is_built_where_its_configuration_is() {
        for machine in MACHINES {
            let (build, run) = commands(machine, &KEYWORDS);
            let cargo = build.unwrap_or(run);
            let expected = match machine.triple {
                "wasm32-unknown-unknown" => "examples/page",
                triple if triple.contains("-none-") => "examples/firmware",
                _ => "",
            };
            let expected = workspace::root().join(expected);
            assert_eq!(cargo.get_current_dir(), Some(&*expected), "{}", machine.triple);
        }
        for program in [WASI_RUNNER, PAGE_PROGRAM] {
            assert!(workspace::root().join(program).is_file(), "{program}");
        }
    }

    #[test]
    fn the_page_is_built_by_cargo_and_run_by_node() {
        let (build, draw) = commands(find("wasm32-unknown-unknown", None).unwrap(), &DIGITS);
        assert_eq!(build.unwrap().get_args().next().unwrap(), "build");
        assert_eq!(draw.get_program(), "node");
        assert!(draw.get_args().eq([OsStr::new(PAGE_PROGRAM), workspace::target().as_os_str()]));
    }

    #[cfg(unix)]
    #[test]
    fn only_files_that_may_be_run_are_programs() {
        assert!(is_program("sh") && !is_program("no-such-program"));
        // A file, but none to be run; and a folder, which has the same bit.
        let root = workspace::root();
        assert!(!is_executable(&root.join("Cargo.toml")) && !is_executable(root));
    }

    #[test]
    fn a_target_that_is_not_in_the_table_is_named() {
        let bare = emulated("thumbv7em-none-eabihf", None).err().unwrap().to_string();
        assert!(bare.contains("`thumbv7em-none-eabihf`"), "{bare}");
        let line = Line::parse_from(["machines", "vax-dec-vms"]);
        let error = run(&line.options).unwrap_err().to_string();
        assert!(
            error.contains("`vax-dec-vms`") && error.contains("thumbv7em-none-eabihf"),
            "{error}"
        );
    }
}
