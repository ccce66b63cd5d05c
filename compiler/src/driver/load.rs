//! Code of a module in this process.

use std::ffi::c_void;

use niello_runtime::abi::Context;

use super::error::LoadError;
use super::target::BuildTarget;
use crate::codegen::ArrayWrapper;
use crate::codegen::c::{TempFolder, link_shared};
use crate::executor::ObjectFile;
use crate::executor::dynamic::DynamicLibrary;
use crate::options::Backend;
use crate::target::Target;

/// The function of an [`ArrayWrapper`].
pub(super) type Entry =
    unsafe extern "C" fn(ctx: *const Context, buffers: *const *mut c_void, dims: *const i64);

/// A module's code in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Of each function.
    pub(super) entries: Vec<Entry>,
    _code: Code,
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are held until nobody calls the code any more")]
enum Code {
    Library(DynamicLibrary),
    #[cfg(feature = "llvm")]
    Jit(crate::codegen::llvm::Jit),
}

impl Loaded {
    /// Links objects into this process: those of C by the C compiler, as a shared library whose file
    /// is gone afterwards, those of LLVM by LLVM's own linker.
    pub(super) fn new(
        objects: &[ObjectFile],
        wrappers: &[&ArrayWrapper],
        target: &BuildTarget,
    ) -> Result<Loaded, LoadError> {
        check_machine(&target.machine)?;
        match target.kind {
            Backend::C => {
                let folder = TempFolder::new().map_err(LoadError::Link)?;
                let path = folder.path().join("module.so");
                link_shared(objects, &target.machine, &path).map_err(LoadError::Link)?;
                let library = DynamicLibrary::open(&path).map_err(LoadError::Load)?;
                let entries = entries(wrappers, |symbol| library.symbol(symbol))?;
                Ok(Loaded { entries, _code: Code::Library(library) })
            }
            #[cfg(feature = "llvm")]
            Backend::Llvm => {
                let jit = crate::codegen::llvm::Jit::link(objects).map_err(LoadError::Load)?;
                let address = |symbol: &str| jit.address(symbol).map(<*const c_void>::cast_mut);
                let entries = entries(wrappers, address)?;
                Ok(Loaded { entries, _code: Code::Jit(jit) })
            }
        }
    }
}

fn entries(
    wrappers: &[&ArrayWrapper],
    address: impl Fn(&str) -> Result<*mut c_void, String>,
) -> Result<Vec<Entry>, LoadError> {
    let entry = |wrapper: &&ArrayWrapper| {
        let address = address(&wrapper.symbol).map_err(LoadError::Load)?;
        // SAFETY: the code generators write the wrapper with this signature.
        Ok(unsafe { std::mem::transmute::<*mut c_void, Entry>(address) })
    };
    wrappers.iter().map(entry).collect()
}

/// Checks that this machine can run code for a target.
fn check_machine(machine: &Target) -> Result<(), LoadError> {
    if !machine.is_host_kind() {
        return Err(LoadError::OtherMachine(machine.triple.clone()));
    }
    // Features that no name stands for come from this machine itself.
    let Ok(native) = Target::host().with_cpu("native") else { return Ok(()) };
    let missing: Vec<String> = machine.features.difference(&native.features).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(LoadError::MissingFeatures(missing)) }
}
