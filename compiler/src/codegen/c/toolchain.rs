//! Finding and driving the C compiler.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::folder::TempFolder;
use super::machine;
use crate::codegen::features::x86_feature;
use crate::executor::ObjectFile;
use crate::parallel;
use crate::target::Target;

/// One C file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// Its name without folder and ending: letters, digits, `_` and `-`. The object is called the
    /// same.
    pub name: String,
    /// Its contents.
    pub text: String,
    /// Place among the targets of the one whose instructions the code may use.
    pub level: usize,
}

/// Why C files could not be compiled.
#[derive(Debug)]
pub enum CompileError {
    /// There is no usable C compiler; what was tried and how to get one.
    NoCompiler(String),
    /// A file's name is not one that can be given to a compiler.
    BadName(String),
    /// A temporary file could not be written or read: what was done, and the system's answer.
    Io(String, io::Error),
    /// The compiler refused a file.
    Failed {
        /// The file's name.
        file: String,
        /// The command.
        command: String,
        /// What the compiler said.
        stderr: String,
        /// The folder in which the file and the others of its model were left.
        kept: Option<PathBuf>,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::NoCompiler(message) => f.write_str(message),
            CompileError::BadName(name) => {
                write!(f, "`{name}` cannot be the name of a generated C file")
            }
            CompileError::Io(what, error) => write!(f, "{what}: {error}"),
            CompileError::Failed { file, command, stderr, kept } => {
                write!(f, "the C compiler failed on `{file}`")?;
                if let Some(folder) = kept {
                    write!(f, ", which is left in {}", folder.display())?;
                }
                write!(f, "\ncommand: {command}\n{stderr}")
            }
        }
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CompileError::Io(_, error) => Some(error),
            CompileError::NoCompiler(_)
            | CompileError::BadName(_)
            | CompileError::Failed { .. } => None,
        }
    }
}

/// Flags that results depend on: see the module's documentation for the numerics.
pub(super) const NUMERIC_FLAGS: &[&str] = &[
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
];

/// A flag of gcc for a target; clang does as it says in any case.
///
/// On AArch64, gcc would move instructions apart before it has given out registers, and keep the sums
/// of register tiles in memory.
pub(super) fn order_flag(target: &Target) -> Option<&'static str> {
    (target.arch == "aarch64").then_some("-fno-schedule-insns")
}

/// Flags that hold for every file beside [`NUMERIC_FLAGS`].
///
/// `-O2` whatever the user's profile: more does not help these kernels and costs time. The code
/// links nothing but memcpy and its kin, so no stack protector, unwind tables or errno.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    // Assembly goes through a pipe: a compiler that is killed would leave its file.
    "-pipe",
    "-w",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-ident",
    "-fvisibility=hidden",
    // The loop IR says what is a vector; only a target's own vectors are fast.
    "-fno-tree-vectorize",
];

/// Compiles files with up to `jobs` processes at a time, as many as the jobserver allows; objects
/// come back in the files' order.
///
/// The compiler is the one that Cargo's build scripts use for the target (`CC_<target>`, `CC`, or
/// the system's); flags in `CFLAGS` are left aside, as they could change results. Objects depend
/// on nothing but the texts, the target and the compiler.
///
/// `targets` differ in their features alone; each file is compiled for the one at its level.
///
/// The files stand in `folder`, or in one of the system's temporary folder. It is deleted at the
/// end unless the compiler failed; what an earlier process left in `folder` is removed.
pub fn compile_c(
    files: &[SourceFile],
    targets: &[Target],
    jobs: usize,
    folder: Option<&Path>,
) -> Result<Vec<ObjectFile>, CompileError> {
    if let Some(file) = files.iter().find(|file| !is_plain_name(&file.name)) {
        return Err(CompileError::BadName(file.name.clone()));
    }
    let (Some(target), false) = (targets.first(), files.is_empty()) else {
        return Ok(Vec::new());
    };
    let compiler = Compiler::find(target)?;
    let compilers: Vec<Compiler> =
        targets.iter().map(|level| compiler.with_features(level)).collect();
    let folder = folder.map_or_else(TempFolder::new, TempFolder::at)?;
    let objects = parallel::map(files, jobs, |file| {
        // A level that does not exist has no wider registers than the last.
        let level = file.level.min(compilers.len() - 1);
        compilers[level].compile(file, folder.path())
    });
    objects.into_iter().collect::<Result<_, _>>().map_err(|error| match error {
        CompileError::Failed { file, command, stderr, kept: _ } => {
            CompileError::Failed { file, command, stderr, kept: Some(folder.keep()) }
        }
        other => other,
    })
}

/// What decides the code that the C compiler for a target makes of a text: its version, its
/// arguments, and the flags that niello gives it for every level.
///
/// # Errors
///
/// There is no compiler.
pub fn compiler_identity(target: &Target) -> Result<String, CompileError> {
    let Compiler { program, leading, env, machine, flags, feature_flags: _, version } =
        Compiler::find(target)?;
    // The name tells a cross compiler from the system's, whose version is the same.
    let name = Path::new(&program).file_name().unwrap_or(&program);
    Ok(format!("{name:?} {leading:?} {env:?} {machine:?} {flags:?}\n{version}"))
}

/// The assembly that the compiler makes of a file; see [`compile_c`].
pub fn assembly(file: &SourceFile, targets: &[Target]) -> Result<String, CompileError> {
    if !is_plain_name(&file.name) {
        return Err(CompileError::BadName(file.name.clone()));
    }
    let Some(target) = targets.get(file.level).or(targets.last()) else {
        return Ok(String::new());
    };
    let folder = TempFolder::new()?;
    let name = format!("{}.s", file.name);
    Compiler::find(target)?.run(file, folder.path(), "-S", &name)?;
    let path = folder.path().join(&name);
    std::fs::read_to_string(&path)
        .map_err(|error| CompileError::Io(format!("cannot read {}", path.display()), error))
}

/// The variable that names the C compiler for a target, if one does.
fn named_by(target: &Target, is_set: impl Fn(&str) -> bool) -> Option<String> {
    compiler_variables(target).into_iter().find(|name| is_set(name))
}

/// The environment variables that can name the C compiler for a target, the strongest first, as the
/// crate `cc` has it.
pub fn compiler_variables(target: &Target) -> [String; 4] {
    let triple = &target.triple;
    let role = if host_triple(target) == *triple { "HOST_CC" } else { "TARGET_CC" };
    [format!("CC_{triple}"), format!("CC_{}", triple.replace('-', "_")), role.into(), "CC".into()]
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A C compiler with the flags for one target.
#[derive(Clone)]
pub(super) struct Compiler {
    program: OsString,
    /// Arguments that belong to the program: the compiler behind a cache, those of `CC`.
    leading: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    /// What names the machine: for the linker, too.
    machine: Vec<String>,
    /// What else holds whatever features the target has.
    flags: Vec<String>,
    /// What allows the target's features.
    feature_flags: Vec<String>,
    /// What it says when it is asked for its version.
    version: String,
}

impl Compiler {
    /// The compiler for a target, as the crate `cc` finds it, checked to run. What it answers is
    /// asked once by a process for the same target and environment.
    pub(super) fn find(target: &Target) -> Result<Self, CompileError> {
        static FOUND: Mutex<BTreeMap<Vec<Option<OsString>>, Compiler>> =
            Mutex::new(BTreeMap::new());
        let variables = compiler_variables(target);
        let values = variables.iter().map(String::as_str).chain(["PATH", "CFLAGS"]);
        let mut key: Vec<Option<OsString>> = values.map(std::env::var_os).collect();
        key.push(Some(target.triple.clone().into()));
        key.push(needs_clang(target).then(OsString::new));
        let lock = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return Ok(known.with_features(target));
        }
        let found = Self::look_for(target)?;
        lock().insert(key, found.clone());
        Ok(found)
    }

    fn look_for(target: &Target) -> Result<Self, CompileError> {
        let mut tried = Vec::new();
        match Self::from_cc(target, None) {
            Ok(compiler) => {
                let name = compiler.name();
                match compiler.checked_for(target) {
                    Ok(compiler) => return Ok(compiler),
                    Err(why) => tried.push(format!("{name} ({why})")),
                }
            }
            Err(why) => tried.push(why),
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(variable) = named_by(target, is_set) {
            // Another compiler than the one that was asked for would come as a surprise.
            return Err(CompileError::NoCompiler(format!(
                "the C compiler that the environment variable {variable} names cannot be used: \
                 {}. Set it to one that is installed, or unset it",
                tried.join(", ")
            )));
        }
        // Another system's compiler does for the same architecture: the code needs no headers and
        // no library. clang compiles for any.
        for (program, is_clang) in [("cc", false), ("clang", true)] {
            let host = Target::host();
            let is_own_format = host.arch == target.arch && host.os == target.os;
            if !is_clang && !is_own_format {
                continue;
            }
            let compiler = Self::from_cc(target, Some(program));
            match compiler.and_then(|compiler| compiler.checked_for(target)) {
                Ok(compiler) => return Ok(compiler),
                Err(why) => tried.push(format!("{program} ({why})")),
            }
        }
        Err(CompileError::NoCompiler(format!(
            "no C compiler for {} was found; tried: {}. Install gcc or clang (Debian and Ubuntu: \
             `apt install {}`; macOS: `xcode-select --install`; Windows: LLVM, for clang-cl), or \
             name one in the environment variable CC_{}",
            target.triple,
            tried.join(", "),
            machine::package(target),
            target.triple.replace('-', "_")
        )))
    }

    /// The compiler that the crate `cc` finds, or that program, with its options for the target.
    fn from_cc(target: &Target, program: Option<&str>) -> Result<Self, String> {
        let host = host_triple(target);
        let find = |default_flags: bool| {
            let mut build = cc::Build::new();
            build.target(&target.triple).host(&host).opt_level(2);
            build.no_default_flags(!default_flags).inherit_rustflags(false);
            build.cargo_metadata(false).cargo_warnings(false).cargo_debug(false);
            build.emit_rerun_if_env_changed(false);
            if let Some(program) = program {
                build.compiler(program);
            }
            build.try_get_compiler().map_err(|error| error.to_string())
        };
        let tool = find(false)?;
        let (program, leading) = words(&tool);
        if tool.is_like_msvc() && !tool.is_like_clang_cl() {
            let name = tool.path().display();
            // The crate takes whatever accepts an option like `-?` for Microsoft's.
            return Err(match says_microsoft(&program, &leading) {
                true => format!(
                    "{name} is Microsoft's compiler, which has no vector types; use clang-cl from \
                     LLVM"
                ),
                false => format!("{name} does not behave like a C compiler"),
            });
        }
        let is_clang = tool.is_like_clang() || tool.is_like_clang_cl();
        let mut machine = Vec::new();
        if tool.is_like_clang_cl() {
            machine.push("--driver-mode=gcc".to_owned());
        }
        if target.triple != host {
            let strings = |tool: &cc::Tool| -> Vec<String> {
                tool.args().iter().map(|flag| flag.to_string_lossy().into_owned()).collect()
            };
            let (all, given) = (strings(&find(true)?), strings(&tool));
            machine.extend(machine::machine_flags(target, &all, &given));
        }
        let flags = common_flags(target, is_clang);
        let env = tool.get_envs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let feature_flags = feature_flags(target);
        let version = String::new();
        Ok(Compiler { program, leading, env, machine, flags, feature_flags, version })
    }

    /// The same compiler for a target that differs in its features alone.
    fn with_features(&self, target: &Target) -> Compiler {
        Compiler { feature_flags: feature_flags(target), ..self.clone() }
    }

    pub(super) fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// The program with what belongs to it and what names the machine, without other flags.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.leading).args(&self.machine);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }

    /// The compiler if it runs, with what it says of its version; else why it does not.
    fn checked(mut self) -> Result<Self, String> {
        let output = self.command().arg("--version").stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => {
                self.version = String::from_utf8_lossy(&output.stdout).into_owned();
                Ok(self)
            }
            Ok(output) => Err(output.status.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("not installed".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The same if what it makes is for the target, which `CC` may not be.
    fn checked_for(self, target: &Target) -> Result<Self, String> {
        let compiler = self.checked()?;
        if target.triple == host_triple(target) && !needs_clang(target) {
            return Ok(compiler);
        }
        let mut text = "int niello_probe;\n".to_owned();
        if needs_clang(target) {
            text += "#if !defined(__clang__) || __clang_major__ < 16\n\
                     #error these vectors need clang 16 or later\n#endif\n";
        }
        let file = SourceFile { name: "probe".to_owned(), text, level: 0 };
        let object = TempFolder::new().and_then(|folder| compiler.compile(&file, folder.path()));
        let object = match object {
            Ok(object) => object,
            Err(CompileError::Failed { stderr, .. }) => {
                let first = stderr.lines().next().unwrap_or_default();
                return Err(format!("it cannot compile for {}: {first}", target.triple));
            }
            Err(error) => return Err(error.to_string()),
        };
        match machine::other_machine(&object.bytes, target) {
            None => Ok(compiler),
            Some(found) => Err(format!(
                "it makes objects for {found}, not for {}; Debian and Ubuntu have `apt install {}`",
                target.triple,
                machine::package(target)
            )),
        }
    }

    /// Compiles one file in `folder`, by relative names, so that no path gets into the object.
    fn compile(&self, file: &SourceFile, folder: &Path) -> Result<ObjectFile, CompileError> {
        let object_name = format!("{}.o", file.name);
        self.run(file, folder, "-c", &object_name)?;
        let path = folder.join(&object_name);
        let bytes = std::fs::read(&path)
            .map_err(|error| CompileError::Io(format!("cannot read {}", path.display()), error))?;
        Ok(ObjectFile { name: object_name, bytes })
    }

    /// Runs the compiler on one file; `mode` is `-c` or `-S`.
    fn run(
        &self,
        file: &SourceFile,
        folder: &Path,
        mode: &str,
        output: &str,
    ) -> Result<(), CompileError> {
        let source_name = format!("{}.c", file.name);
        let source = folder.join(&source_name);
        std::fs::write(&source, &file.text).map_err(|error| {
            CompileError::Io(format!("cannot write {}", source.display()), error)
        })?;
        let mut command = self.command();
        command
            .args(&self.flags)
            .args(&self.feature_flags)
            // gcc derives symbol suffixes from it; by default it is random.
            .arg(format!("-frandom-seed={}", file.name))
            .arg(mode)
            .args([OsStr::new("-o"), OsStr::new(output), OsStr::new(&source_name)])
            .current_dir(folder)
            .stdin(Stdio::null());
        self.finish(command, &format!("{}.c", file.name), &folder.join(output))
    }

    /// Runs a command to its end; `file` is what it works on, `output` what it writes.
    pub(super) fn finish(
        &self,
        mut command: Command,
        file: &str,
        output: &Path,
    ) -> Result<(), CompileError> {
        let result = command.output().map_err(|error| {
            CompileError::Io(format!("cannot run the C compiler {}", self.name()), error)
        })?;
        if result.status.success() && output.is_file() {
            return Ok(());
        }
        let mut stderr = String::from_utf8_lossy(&result.stderr).into_owned();
        stderr += &match (result.status.success(), output.file_name()) {
            (true, Some(name)) => {
                format!("(it reports success, but wrote no {})", name.to_string_lossy())
            }
            (true, None) | (false, _) => format!("({})", result.status),
        };
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Err(CompileError::Failed {
            file: file.to_owned(),
            command: words.join(" "),
            stderr,
            kept: None,
        })
    }
}

/// The program of a tool and the arguments that belong to it, without flags.
fn words(tool: &cc::Tool) -> (OsString, Vec<OsString>) {
    let command = tool.to_command();
    let mut arguments: Vec<OsString> = command.get_args().map(OsStr::to_owned).collect();
    // Flags come last; those of `CFLAGS` are among them.
    arguments.truncate(arguments.len().saturating_sub(tool.args().len()));
    (command.get_program().to_owned(), arguments)
}

/// Whether a program names Microsoft when it is run without a file.
fn says_microsoft(program: &OsStr, leading: &[OsString]) -> bool {
    let output = Command::new(program).args(leading).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).contains("Microsoft")
    })
}

/// The triple of this machine, as `cc` compares it with the target's.
fn host_triple(target: &Target) -> String {
    // A build script is told; elsewhere the spelling that the target uses is as good as any.
    match std::env::var("HOST") {
        Ok(host) => host,
        Err(_) if target.is_host_kind() => target.triple.clone(),
        Err(_) => Target::host().triple,
    }
}

fn common_flags(target: &Target, is_clang: bool) -> Vec<String> {
    let flags = FLAGS.iter().chain(NUMERIC_FLAGS);
    let mut flags: Vec<String> = flags.map(|flag| (*flag).to_owned()).collect();
    match (target.os.as_str(), target.arch.as_str()) {
        // Windows has no such code model as others, and would call a function to touch the pages of
        // a frame larger than one; two pages, the most a kernel has, are within the guard.
        ("windows", _) => flags.push("-mno-stack-arg-probe".to_owned()),
        // A program has one memory, and addresses in it are the linker's.
        (_, "wasm32") => {}
        _ => flags.push("-fPIC".to_owned()),
    }
    match is_clang {
        true => flags.push("-fno-slp-vectorize".to_owned()),
        false => flags.extend(order_flag(target).map(str::to_owned)),
    }
    flags
}

/// Whether vectors of the target are registers for clang alone. gcc computes with floats of NEON on
/// 32-bit processors only where it may compute inexactly, and before version 14 has no vectors of RISC-V.
fn needs_clang(target: &Target) -> bool {
    target.vector_bits() > 0 && ["arm", "riscv64"].contains(&target.arch.as_str())
}

/// The option for a microcontroller's CPU; the names are those that compilers have.
fn arm_tuning(cpu: &str) -> Option<String> {
    cpu.starts_with("cortex-m").then(|| format!("-mtune={cpu}"))
}

/// The target's features as compiler flags. A CPU's name is not used: compilers differ in which
/// they know, and a name would allow features that the target does not list.
pub(super) fn feature_flags(target: &Target) -> Vec<String> {
    match target.arch.as_str() {
        "x86" | "x86_64" => {
            // Its one instruction is in assembly, and older compilers do not know the flag.
            let flags = target.features.iter().filter(|feature| *feature != "avxvnni");
            let names = flags.filter_map(|feature| x86_feature(feature));
            let mut flags: Vec<_> = names.map(|name| format!("-m{name}")).collect();
            if target.vector_bits() == 512 {
                flags.push("-mprefer-vector-width=512".to_owned());
            }
            // The older registers would round results of 32 and 64 bits twice.
            if target.arch == "x86" && target.has_feature("sse2") {
                flags.push("-mfpmath=sse".to_owned());
            }
            flags
        }
        "aarch64" => {
            let extensions: Vec<_> = ["dotprod", "i8mm", "fp16", "bf16"]
                .into_iter()
                .filter(|feature| target.has_feature(feature))
                .collect();
            // Armv8.2 is the least that has any of them.
            if extensions.is_empty() {
                Vec::new()
            } else {
                vec![format!("-march=armv8.2-a+{}", extensions.join("+"))]
            }
        }
        "arm" if target.has_feature("neon") => {
            let unit = if target.has_feature("vfp4") { "neon-vfpv4" } else { "neon" };
            vec![format!("-mfpu={unit}")]
        }
        // What the microcontroller has is in the triple; its name decides the order of instructions.
        "arm" => target.cpu.iter().filter_map(|cpu| arm_tuning(cpu)).collect(),
        "riscv64" if target.has_feature("v") => vec!["-march=rv64gcv".to_owned()],
        "wasm32" if target.has_feature("simd128") => vec!["-msimd128".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_deterministic_and_errors_quote_the_compiler() {
        let target = Target::host();
        let file =
            |name: &str, text: &str| SourceFile { name: name.into(), text: text.into(), level: 0 };
        let files = [
            file("one", "int one(void) { return 1; }\n"),
            file("two", "static int n; int *two(void) { return &n; }\n"),
        ];
        let targets = std::slice::from_ref(&target);
        let first = compile_c(&files, targets, 2, None).unwrap();
        assert_eq!(first, compile_c(&files, targets, 1, None).unwrap());
        assert_eq!(first[1].name, "two.o");
        assert!(!first[0].bytes.is_empty());

        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("m.niello-c");
        let compile =
            |name: &str, text: &str| compile_c(&[file(name, text)], targets, 1, Some(&folder));
        let error = compile("bad", "int f( {\n").unwrap_err();
        let message = error.to_string();
        let CompileError::Failed { file: name, command, stderr, kept } = error else {
            panic!("{error}");
        };
        // What the compiler failed on can be looked at until the next compilation.
        assert_eq!(kept.as_ref(), Some(&folder));
        assert!(message.contains(&format!("which is left in {}\n", folder.display())), "{message}");
        assert_eq!(std::fs::read_to_string(folder.join("bad.c")).unwrap(), "int f( {\n");
        compile("good", "int f;\n").unwrap();
        assert!(!folder.exists());
        assert_eq!(name, "bad.c");
        assert!(command.contains("-ffp-contract=off") && stderr.contains("error"), "{stderr}");

        let error = compile_c(&[file("../x", "")], targets, 1, None).unwrap_err();
        assert!(matches!(error, CompileError::BadName(_)), "{error}");
    }

    #[test]
    fn the_variable_that_names_the_compiler_is_the_one_nearest_to_the_target() {
        let target = Target {
            triple: "mips-unknown-none".to_owned(),
            arch: "mips".to_owned(),
            os: "none".to_owned(),
            ..Target::host()
        };
        let named = |set: &[&str]| named_by(&target, |name| set.contains(&name));
        assert_eq!(named(&["CC", "HOST_CC", "TARGET_CC"]).as_deref(), Some("TARGET_CC"));
        let own = ["CC", "CC_mips_unknown_none"];
        assert_eq!(named(&own).as_deref(), Some("CC_mips_unknown_none"));
        assert_eq!(named(&["CC_x86_64", "CFLAGS"]), None);
    }

    #[test]
    fn vectors_that_gcc_does_not_keep_in_registers_need_clang_and_an_option() {
        for (triple, cpu, clang, options) in [
            ("armv7-unknown-linux-gnueabihf", "generic", false, &[][..]),
            ("armv7-unknown-linux-gnueabihf", "cortex-a9", true, &["-mfpu=neon"]),
            ("armv7-unknown-linux-gnueabihf", "cortex-a7", true, &["-mfpu=neon-vfpv4"]),
            ("thumbv7em-none-eabihf", "cortex-m7", false, &["-mtune=cortex-m7"]),
            ("riscv64gc-unknown-linux-gnu", "generic", false, &[]),
            ("riscv64gc-unknown-linux-gnu", "rv64gcv", true, &["-march=rv64gcv"]),
            ("aarch64-unknown-linux-gnu", "generic", false, &[]),
        ] {
            let target = Target::from_triple(triple).unwrap().with_cpu(cpu).unwrap();
            assert_eq!(
                (needs_clang(&target), &feature_flags(&target)[..]),
                (clang, &owned(options)[..]),
                "{cpu}"
            );
        }
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_target_without_a_compiler_is_explained() {
        let target = Target {
            triple: "sparc64-unknown-plan9".to_owned(),
            arch: "sparc64".to_owned(),
            os: "plan9".to_owned(),
            ..Target::host()
        };
        if let Err(error) = Compiler::find(&target) {
            let message = error.to_string();
            assert!(message.contains("CC_sparc64_unknown_plan9"), "{message}");
            assert!(message.contains("sparc64-unknown-plan9"), "{message}");
        }
    }
}
