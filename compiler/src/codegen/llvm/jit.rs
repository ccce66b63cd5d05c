//! Objects linked in memory and run in this process.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use inkwell::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use inkwell::llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddObjectFile,
    LLVMOrcLLJITGetGlobalPrefix, LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITLookup, LLVMOrcLLJITRef,
};
use inkwell::llvm_sys::orc2::{
    LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess, LLVMOrcJITDylibAddGenerator,
};

use crate::executor::ObjectFile;

/// Linked code, alive as long as this is.
#[derive(Debug)]
pub struct Jit {
    jit: LLVMOrcLLJITRef,
}

// SAFETY: LLJIT may be used and disposed of on any thread.
unsafe impl Send for Jit {}
// SAFETY: its session has locks of its own; looking up an address is all that happens by reference.
unsafe impl Sync for Jit {}

impl Jit {
    /// Links objects for this machine with each other, and with `memcpy`, the mathematical library
    /// and whatever else this process has.
    ///
    /// # Errors
    ///
    /// LLVM's linker refuses an object.
    pub fn link(objects: &[ObjectFile]) -> Result<Jit, String> {
        super::machine::initialize();
        let mut jit = ptr::null_mut();
        // SAFETY: a null builder stands for the defaults; the reference is set if there is no error.
        check(unsafe { LLVMOrcCreateLLJIT(&raw mut jit, ptr::null_mut()) })?;
        let linked = Jit { jit };
        // SAFETY: the linker is alive, and takes over the generator.
        let library = unsafe { LLVMOrcLLJITGetMainJITDylib(jit) };
        let mut generator = ptr::null_mut();
        // SAFETY: no filter is given; the generator is set if there is no error.
        check(unsafe {
            LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
                &raw mut generator,
                LLVMOrcLLJITGetGlobalPrefix(jit),
                None,
                ptr::null_mut(),
            )
        })?;
        // SAFETY: as above.
        unsafe { LLVMOrcJITDylibAddGenerator(library, generator) };
        for object in objects {
            let name = CString::new(object.name.as_str()).map_err(|error| error.to_string())?;
            // SAFETY: the bytes are copied into a buffer that the linker takes over.
            check(unsafe {
                let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
                    object.bytes.as_ptr().cast::<c_char>(),
                    object.bytes.len(),
                    name.as_ptr(),
                );
                LLVMOrcLLJITAddObjectFile(jit, library, buffer)
            })?;
        }
        Ok(linked)
    }

    /// The address of a function.
    ///
    /// # Errors
    ///
    /// No object defines it, or something that it needs is missing.
    pub fn address(&self, symbol: &str) -> Result<*const c_void, String> {
        let name = CString::new(symbol).map_err(|error| error.to_string())?;
        let mut address = 0;
        // SAFETY: the linker is alive and the name NUL-terminated.
        check(unsafe { LLVMOrcLLJITLookup(self.jit, &raw mut address, name.as_ptr()) })?;
        let address = usize::try_from(address).map_err(|error| error.to_string())?;
        Ok(ptr::with_exposed_provenance(address))
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // SAFETY: `link` made it; its owner holds the only pointers into the code.
        let error = unsafe { LLVMOrcDisposeLLJIT(self.jit) };
        // Nobody is left to be told.
        let _ = check(error);
    }
}

/// An error of LLVM as its text.
fn check(error: LLVMErrorRef) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: taking the message consumes the error; the text is NUL-terminated and disposed of once.
    Err(unsafe {
        let text = LLVMGetErrorMessage(error);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(text);
        message
    })
}
