//! What programs for Windows and macOS need of these systems in order to be linked here, or to run.

use std::fs;
use std::process::Command;

use super::Machine;
use crate::{Result, process, workspace};

/// A library of Windows that Rust's own asks for random bytes, and that Wine has from version 9 on. What it exports
/// hands on to the older function.
const RANDOM_BYTES: &str = "\
__declspec(dllimport) unsigned char __stdcall SystemFunction036(void *bytes, unsigned long count);
__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *bytes, unsigned long long count)
{
    return SystemFunction036(bytes, (unsigned long)count);
}
";

/// Compiles that library to where Cargo puts the program.
pub(super) fn make_for_wine(machine: &Machine) -> Result {
    let folder = workspace::target().join(machine.triple).join("release");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("bcryptprimitives.c"), RANDOM_BYTES)?;
    let mut compile = Command::new(machine.programs[0]);
    compile.args([
        "-O2",
        "-shared",
        "-o",
        "bcryptprimitives.dll",
        "bcryptprimitives.c",
        "-ladvapi32",
    ]);
    process::run(compile.current_dir(folder))
}

/// Libraries that Rust's programs for macOS name to the linker. They are descriptions without symbols: a program finds
/// those when it starts, and its linker is told so.
pub(super) fn make_for_macos() -> Result {
    let folder = workspace::target().join("macos-sdk/usr/lib");
    fs::create_dir_all(&folder)?;
    for name in ["System", "c", "iconv", "m", "resolv"] {
        let text = format!(
            "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\n\
             install-name: '/usr/lib/lib{name}.dylib'\n...\n"
        );
        fs::write(folder.join(format!("lib{name}.tbd")), text)?;
    }
    Ok(())
}

/// Looks at a program that nothing runs here: all symbols of the model are in it. `list` prints those that are not.
pub(super) fn linked(list: &mut Command) -> Result<Vec<String>> {
    let missing = process::output(list).ok_or_else(|| format!("{} fails", process::shown(list)))?;
    // Whatever the program takes of the system is among them.
    if !missing.contains("_write") {
        return Err(format!("no symbol of the system is asked for: {missing}").into());
    }
    match missing.lines().find(|symbol| symbol.contains("niello")) {
        None => Ok(vec!["linked, and not run".to_owned()]),
        Some(symbol) => Err(format!("the program lacks {}", symbol.trim()).into()),
    }
}
