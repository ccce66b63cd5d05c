//! Linking objects into a shared library by way of the C compiler.

use std::path::Path;
use std::process::Stdio;

use super::folder::TempFolder;
use super::toolchain::{CompileError, Compiler};
use crate::executor::Contents;
use crate::target::Target;

/// Links `objects` into the shared library `output`, which is replaced if it exists.
///
/// # Errors
///
/// There is no compiler, it fails, or a file cannot be written.
pub fn link_shared<'a>(
    objects: impl IntoIterator<Item = impl Into<Contents<'a>>>,
    target: &Target,
    output: &Path,
) -> Result<(), CompileError> {
    let compiler = Compiler::find(target)?;
    let folder = TempFolder::new()?;
    let mut command = compiler.command();
    command.args(["-shared", "-o", "library"]).current_dir(folder.path()).stdin(Stdio::null());
    // Members of the same name would overwrite each other; the linker does not care for names.
    for (number, object) in objects.into_iter().enumerate() {
        let name = format!("{number}.o");
        let path = folder.path().join(&name);
        let object: Contents<'_> = object.into();
        object
            .write_file(&path)
            .map_err(|error| CompileError::Io(format!("cannot write {}", path.display()), error))?;
        command.arg(name);
    }
    if target.os != "windows" {
        command.args(["-lm", "-pthread"]);
    }
    let name = output.file_name().map(|name| name.to_string_lossy().into_owned());
    compiler.finish(command, &name.unwrap_or_default(), &folder.path().join("library"))?;
    // A copy, as the temporary folder may be on another file system; aside and renamed, as the old
    // library may be in use.
    let aside = output.with_extension("new");
    let failed = |error| CompileError::Io(format!("cannot write {}", output.display()), error);
    std::fs::copy(folder.path().join("library"), &aside).map_err(failed)?;
    std::fs::rename(&aside, output).map_err(failed)
}
