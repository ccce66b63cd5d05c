//! What an object asks of the linker, and how much code it holds.

use std::collections::BTreeSet;

use object::{Architecture, Object, ObjectSection, SectionKind};

use super::{is_wasm, machine, parse, parse_wasm, symbols};
use crate::diagnostics::{Problem, Report};
use crate::executor::ObjectFile;

/// Functions that a C compiler calls even in freestanding code; every Rust program has them.
pub const MEMORY_FUNCTIONS: [&str; 3] = ["memcpy", "memmove", "memset"];

/// Names that the linker itself defines: the second for POWER.
const LINKER_DEFINED: [&str; 2] = ["_GLOBAL_OFFSET_TABLE_", ".TOC."];

/// Checks that objects linked together need nothing but [`MEMORY_FUNCTIONS`] and `allowed`.
///
/// This is what makes a model stand alone: a symbol that is missing here would otherwise be missing
/// at the end of the user's own build, or be found in a library that the user never chose.
///
/// # Errors
///
/// One problem for each other undefined symbol of each object, naming both; or an object cannot be
/// read.
pub fn check_undefined(objects: &[ObjectFile], allowed: &[&str]) -> Result<(), Report> {
    let mut defined = BTreeSet::new();
    let mut undefined = Vec::new();
    for object in objects {
        let (architecture, underscore) = machine(object)?;
        for symbol in symbols(object)? {
            let name = String::from_utf8_lossy(&symbol.name);
            let name = name.strip_prefix(underscore).unwrap_or(&name).to_owned();
            if symbol.is_undefined {
                undefined.push((name, object, architecture));
            } else if symbol.is_global {
                defined.insert(name);
            }
        }
    }
    let mut report = Report::new();
    for (name, object, architecture) in undefined {
        let known = defined.contains(&name)
            || is_runtime_function(architecture, &name)
            || [&MEMORY_FUNCTIONS[..], &LINKER_DEFINED, allowed].concat().contains(&name.as_str());
        if !known {
            report.push(
                Problem::new(format!(
                    "the object `{}` needs the symbol `{name}`, which generated code must not need",
                    object.name
                ))
                .help(
                    "if another crate's code generator made it, its `needs` must name the symbol; else this \
                     is a defect of niello, or of a C compiler option such as -pg or -fsanitize",
                ),
            );
        }
    }
    report.into_result(())
}

/// Whether a name is that of a function which a compiler calls for arithmetic that a processor has
/// no instructions for, by the rules of libgcc and of Arm's run-time ABI. rustc's
/// `compiler_builtins` has them in every program.
fn is_runtime_function(architecture: Architecture, name: &str) -> bool {
    // Operation, operands of 16 to 64 bits, their number; or the two types of a conversion.
    const ENDINGS: [&str; 19] = [
        "hf2", "sf2", "sf3", "df2", "df3", "si2", "si3", "si4", "di2", "di3", "di4", "sfsi",
        "sfdi", "dfsi", "dfdi", "sisf", "sidf", "disf", "didf",
    ];
    let ends = |rest: &str| ENDINGS.iter().any(|end| rest.ends_with(end));
    match architecture {
        // These have instructions for all of it.
        Architecture::X86_64 | Architecture::Aarch64 => false,
        Architecture::Arm if name.starts_with("__aeabi_") => true,
        _ => name.strip_prefix("__").is_some_and(ends),
    }
}

/// Bytes of machine code in an object.
///
/// # Errors
///
/// The object cannot be read.
pub fn text_bytes(object: &ObjectFile) -> Result<u64, Problem> {
    if is_wasm(&object.bytes) {
        return Ok(parse_wasm(object)?.code_bytes);
    }
    let file = parse(object)?;
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    Ok(code.map(|section| section.size()).sum())
}

#[cfg(test)]
mod tests {
    use object::BinaryFormat::{Coff, Elf, MachO};

    use super::super::testing::object;
    use super::*;

    #[test]
    fn only_memory_functions_siblings_and_listed_symbols_may_be_missing() {
        let has = is_runtime_function;
        assert!(has(Architecture::Arm, "__aeabi_fmul") && has(Architecture::I386, "__divdi3"));
        assert!(!has(Architecture::X86_64, "__divdi3") && !has(Architecture::Riscv32, "sqrtf"));
        for format in [Elf, MachO, Coff] {
            let main =
                object(format, "main.o", &["run"], &["kernel", "memcpy", "_GLOBAL_OFFSET_TABLE_"]);
            let kernel = object(format, "kernel.o", &["kernel"], &["memset", "expf"]);
            let both = [main.clone(), kernel];
            assert_eq!(check_undefined(&both, &["expf"]), Ok(()), "{format:?}");

            let report = check_undefined(&both, &[]).unwrap_err();
            let lines: Vec<_> = report.problems.iter().map(|problem| &problem.message).collect();
            assert_eq!(
                lines,
                [
                    "the object `kernel.o` needs the symbol `expf`, which generated code must not need"
                ]
            );
            let report = check_undefined(&[main], &["expf"]).unwrap_err();
            assert!(report.to_string().contains("`main.o` needs the symbol `kernel`"), "{report}");
        }
    }

    #[test]
    fn text_is_counted_and_other_files_are_refused() {
        assert_eq!(text_bytes(&object(Elf, "a.o", &["one", "two"], &["three"])), Ok(8));
        let text = ObjectFile { name: "a.o".to_owned(), bytes: b"int main;".to_vec() };
        assert!(
            text_bytes(&text).unwrap_err().message.starts_with("the object `a.o` cannot be read")
        );
        assert!(check_undefined(&[text], &[]).is_err());
    }
}
