//! LLVM's description of the target, its passes and its output.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::sync::{Mutex, Once};

use inkwell::OptimizationLevel;
use inkwell::context::{AsContextRef, Context};
use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::error_handling::LLVMInstallFatalErrorHandler;
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine,
    TargetTriple,
};

use crate::codegen::features::{aarch64_feature, x86_feature};
use crate::target::Target;

/// The passes between generation and instruction selection, in order.
///
/// Loops arrive with their test at the end and vectors as the loop IR wants them; so nothing here
/// vectorises, unrolls or changes the order of floating-point operations. The passes make
/// registers of what is memory, compute equal addresses once, and move what does not change out of
/// loops.
///
/// Whatever is done here, instruction selection and register allocation take most of the time, and
/// the inner loops come out the same; so there is nothing in the list that does not pay.
const PASSES: &str = "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,\
                      loop-mssa(licm),early-cse<memssa>,simplifycfg)";

/// The CPU whose instructions code may use; features are given one by one.
pub(super) fn cpu(target: &Target) -> &'static str {
    match target.arch.as_str() {
        "x86_64" => "x86-64",
        "x86" => "i686",
        _ => "generic",
    }
}

/// The CPU whose timing decides between equivalent instructions.
pub(super) fn tune_cpu(target: &Target) -> &'static str {
    match (target.arch.as_str(), target.vector_bits()) {
        ("x86_64", 512) => "x86-64-v4",
        ("x86_64", 256) => "x86-64-v3",
        _ => cpu(target),
    }
}

/// The target's features as LLVM takes them: `+avx,+avx2`.
pub(super) fn features(target: &Target) -> String {
    let name = |feature: &String| match target.arch.as_str() {
        "x86" | "x86_64" => x86_feature(feature).map(str::to_owned),
        "aarch64" => aarch64_feature(feature).map(str::to_owned),
        _ => None,
    };
    let mut names: Vec<String> =
        target.features.iter().filter_map(name).map(|name| format!("+{name}")).collect();
    if target.vector_bits() == 512 {
        names.push("+evex512".to_owned());
    }
    names.join(",")
}

/// Checks that there is a code generator for the architecture.
///
/// # Errors
///
/// There is none; the C backend is what remains.
pub fn check_target(target: &Target) -> Result<(), String> {
    let known = ["x86_64", "x86", "aarch64"];
    if known.contains(&target.arch.as_str()) {
        return Ok(());
    }
    Err(format!(
        "the LLVM backend generates no code for {}, only for {}; use the C backend",
        target.arch,
        known.join(", ")
    ))
}

/// What emits code for one target.
pub(super) struct Machine {
    machine: TargetMachine,
    triple: TargetTriple,
}

impl Machine {
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        initialize();
        check_target(target)?;
        let triple = TargetTriple::create(&target.triple);
        let llvm_target = LlvmTarget::from_triple(&triple)
            .map_err(|error| format!("LLVM does not know the target {}: {error}", target.triple))?;
        let machine = llvm_target
            .create_target_machine(
                &triple,
                cpu(target),
                &features(target),
                OptimizationLevel::Default,
                RelocMode::PIC,
                CodeModel::Default,
            )
            .ok_or_else(|| format!("LLVM has no code generator for {}", target.triple))?;
        machine.set_asm_verbosity(true);
        Ok(Machine { machine, triple })
    }

    /// Tells a module what it is for.
    pub(super) fn prepare(&self, module: &Module<'_>) {
        module.set_triple(&self.triple);
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
    }

    /// Runs LLVM's passes.
    pub(super) fn optimize(&self, module: &Module<'_>) -> Result<(), String> {
        let options = PassBuilderOptions::create();
        module.run_passes(PASSES, &self.machine, options).map_err(|error| error.to_string())
    }

    pub(super) fn object(&self, module: &Module<'_>) -> Result<Vec<u8>, String> {
        let buffer = self.machine.write_to_memory_buffer(module, FileType::Object);
        Ok(buffer.map_err(|error| error.to_string())?.as_slice().to_vec())
    }

    pub(super) fn assembly(&self, module: &Module<'_>) -> Result<String, String> {
        let buffer = self.machine.write_to_memory_buffer(module, FileType::Assembly);
        let buffer = buffer.map_err(|error| error.to_string())?;
        // The buffer's terminating NUL is no text.
        Ok(String::from_utf8_lossy(buffer.as_slice()).trim_end_matches('\0').to_owned())
    }
}

/// Makes LLVM's targets known, once for the process.
pub(super) fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config =
            InitializationConfig { disassembler: false, ..InitializationConfig::default() };
        LlvmTarget::initialize_x86(&config);
        LlvmTarget::initialize_aarch64(&config);
    });
}

/// Collects the errors that LLVM reports in a context; by default it would end the process.
pub(super) struct Errors(Box<Mutex<Vec<String>>>);

impl Errors {
    /// Collects from now on. Must live as long as the context is used.
    pub(super) fn of(context: &Context) -> Self {
        let errors = Errors(Box::default());
        let place: *const Mutex<Vec<String>> = &*errors.0;
        // SAFETY: the context is alive, and the box does not move while its owner lives.
        unsafe {
            LLVMContextSetDiagnosticHandler(
                context.as_ctx_ref(),
                Some(collect),
                place.cast_mut().cast(),
            );
        }
        errors
    }

    /// What was reported, as one text; `None` if nothing was.
    pub(super) fn take(&self) -> Option<String> {
        let mut messages = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = std::mem::take(&mut *messages).join("; ");
        (!text.is_empty()).then_some(text)
    }
}

/// Makes a fatal error of LLVM end the process at once, without what is registered for its end: for
/// a child process that shares that with its parent.
#[cfg(unix)]
pub(super) fn end_on_fatal_errors() {
    // SAFETY: the handler may be called at any time and never returns.
    unsafe { LLVMInstallFatalErrorHandler(Some(end)) };
}

/// Exit status after a fatal error, as `EX_SOFTWARE` of Unix systems.
#[cfg(unix)]
const FATAL: c_int = 70;

#[cfg(unix)]
extern "C" fn end(reason: *const c_char) {
    unsafe extern "C" {
        fn _exit(status: c_int) -> !;
    }
    // SAFETY: LLVM hands over a NUL-terminated text.
    let reason = unsafe { CStr::from_ptr(reason) };
    // There is nobody left to be told that this fails.
    let _ = writeln!(std::io::stderr(), "LLVM ERROR: {}", reason.to_string_lossy());
    // SAFETY: ends the process.
    unsafe { _exit(FATAL) }
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM hands over a diagnostic that lives during this call.
    if unsafe { LLVMGetDiagInfoSeverity(info) } != LLVMDiagnosticSeverity::LLVMDSError {
        return;
    }
    // SAFETY: as above; the text is NUL-terminated and disposed of once.
    let message = unsafe {
        let text = LLVMGetDiagInfoDescription(info);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        message
    };
    // SAFETY: `Errors::of` set this pointer, and its owner outlives the context's use.
    let errors = unsafe { &*errors.cast::<Mutex<Vec<String>>>() };
    errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(message);
}
