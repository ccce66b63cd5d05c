//! Runs generated code in tests: kernels that are compiled, linked and called in this process.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::FpCategory;
use std::rc::Rc;
use std::sync::Mutex;

use super::c::{SourceFile, compile_c, declarations, denormals_around, generate, translation_unit};
use super::{CodegenError, scratch_bytes};
use crate::executor::ObjectFile;
use crate::ir::DType;
use crate::options::{Backend, Denormals};
use crate::target::Target;
use crate::tir::PrimFunc;

/// How many workers the test's `parallel_for` pretends to have.
const WORKERS: usize = 3;

type Entry = unsafe extern "C" fn(buffers: *const *mut c_void, dims: *const i64, scratch: *mut u8);

/// A kernel in memory, ready to be called.
pub(crate) struct LoadedKernel {
    /// Holds the code.
    _code: Rc<LoadedCode>,
    entry: Entry,
    scratch_bytes: usize,
}

impl LoadedKernel {
    /// Compiles a lowered kernel with a backend and loads it.
    pub(crate) fn new(kernel: &PrimFunc, target: &Target, backend: Backend) -> Self {
        let mut loaded = LoadedKernel::all(&[kernel], target, backend).unwrap();
        loaded.pop().expect("as many as were given")
    }

    /// Compiles lowered kernels into one library and loads them.
    pub(crate) fn all(
        kernels: &[&PrimFunc],
        target: &Target,
        backend: Backend,
    ) -> Result<Vec<Self>, CodegenError> {
        let mut memory = Vec::new();
        let mut objects = match backend {
            Backend::C => c_objects(kernels, target, &mut memory)?,
            #[cfg(feature = "llvm")]
            Backend::Llvm => llvm_objects(kernels, target, &mut memory)?,
        };
        objects.push(entries_object(entries(kernels, &memory), target));
        let code = Rc::new(LoadedCode::new(&objects, target));
        let loaded = |(position, scratch_bytes): (usize, &u64)| {
            let address = code.address(&format!("entry{position}"));
            // SAFETY: the text of `entries` defines the entry with this signature.
            let entry = unsafe { std::mem::transmute::<*const c_void, Entry>(address) };
            let scratch_bytes = *scratch_bytes as usize * WORKERS;
            LoadedKernel { _code: code.clone(), entry, scratch_bytes }
        };
        Ok(memory.iter().enumerate().map(loaded).collect())
    }

    /// Runs the kernel on buffers with the sizes of the function's parameters.
    pub(crate) fn run(&self, buffers: &mut [Vec<u8>], dims: &[i64]) {
        self.run_in_place(buffers, dims, &[]);
    }

    /// The same, with the parameters of each pair (output, input) in the input's memory.
    pub(crate) fn run_in_place(
        &self,
        buffers: &mut [Vec<u8>],
        dims: &[i64],
        pairs: &[(usize, usize)],
    ) {
        // Room around each, so that what is handed over is aligned to 64.
        let mut copies: Vec<Vec<u8>> =
            buffers.iter().map(|buffer| vec![0xa5; buffer.len() + 128]).collect();
        let mut scratch = vec![0xa5u8; self.scratch_bytes + 128];
        let mut pointers: Vec<*mut c_void> = Vec::new();
        for (copy, buffer) in copies.iter_mut().zip(buffers.iter()) {
            let start = copy.as_ptr().align_offset(64);
            copy[start..start + buffer.len()].copy_from_slice(buffer);
            pointers.push(copy[start..].as_mut_ptr().cast());
        }
        for &(output, input) in pairs {
            assert_eq!(buffers[output].len(), buffers[input].len(), "one memory has one size");
            pointers[output] = pointers[input];
        }
        let scratch_start = scratch.as_ptr().align_offset(64);
        // SAFETY: the pointers stand at buffers of the sizes the kernel was generated for, and the
        // scratch area has room for every worker.
        unsafe {
            (self.entry)(pointers.as_ptr(), dims.as_ptr(), scratch[scratch_start..].as_mut_ptr());
        }
        for (position, buffer) in buffers.iter_mut().enumerate() {
            let memory =
                pairs.iter().find(|pair| pair.0 == position).map_or(position, |pair| pair.1);
            let copy = &copies[memory];
            let start = copy.as_ptr().align_offset(64);
            let end = start + buffer.len();
            buffer.copy_from_slice(&copy[start..end]);
            let after = &copy[end..];
            assert!(after.iter().all(|byte| *byte == 0xa5), "the kernel wrote after a buffer");
        }
    }
}

/// The objects of the kernels by way of C; `memory` gets the scratch memory of each.
fn c_objects(
    kernels: &[&PrimFunc],
    target: &Target,
    memory: &mut Vec<u64>,
) -> Result<Vec<ObjectFile>, CodegenError> {
    let mut sources = Vec::new();
    for (number, kernel) in kernels.iter().enumerate() {
        let source = generate(kernel, &format!("kernel{number}"), target)?;
        memory.push(scratch_bytes(kernel)?.serial);
        sources.push(source);
    }
    Ok(c_object("kernels", translation_unit(&sources, &[]), target))
}

/// The object of a file of C.
fn c_object(name: &str, text: String, target: &Target) -> Vec<ObjectFile> {
    let file = SourceFile { name: name.to_owned(), text, level: 0 };
    compile_c(std::slice::from_ref(&file), std::slice::from_ref(target), 1, None)
        .unwrap_or_else(|error| panic!("{error}\n{}", file.text))
}

/// The object of entries. Kernels with as many parameters have the same, which is compiled once.
fn entries_object(text: String, target: &Target) -> ObjectFile {
    static COMPILED: Mutex<BTreeMap<(String, String), ObjectFile>> = Mutex::new(BTreeMap::new());
    let key = (format!("{target:?}"), text);
    if let Some(object) = COMPILED.lock().unwrap().get(&key) {
        return object.clone();
    }
    let object = c_object("entries", key.1.clone(), target).remove(0);
    COMPILED.lock().unwrap().insert(key, object.clone());
    object
}

/// The objects of the kernels by way of LLVM; `memory` gets the scratch memory of each.
#[cfg(feature = "llvm")]
fn llvm_objects(
    kernels: &[&PrimFunc],
    target: &Target,
    memory: &mut Vec<u64>,
) -> Result<Vec<ObjectFile>, CodegenError> {
    use super::llvm::{Kernel, Source, compile};
    use std::slice::from_ref;

    let named = |(number, func): (usize, &&PrimFunc)| Kernel {
        func: (*func).clone(),
        symbol: format!("kernel{number}"),
    };
    let source = Source {
        name: "kernels".to_owned(),
        kernels: kernels.iter().enumerate().map(named).collect(),
        wrappers: vec![],
        entry: None,
        level: 0,
    };
    for kernel in kernels {
        memory.push(scratch_bytes(kernel)?.serial);
    }
    let compiled =
        compile(&[source], from_ref(target), 1, false).map_err(|mut errors| errors.remove(0))?;
    Ok(compiled.into_iter().map(|one| one.object).collect())
}

/// C text of one function for each kernel that calls it with pointers and dimensions from arrays.
fn entries(kernels: &[&PrimFunc], memory: &[u64]) -> String {
    let mut text = format!(
        "static void split(void *pool, niello_body *body, void *argument, i64 count) {{\n\
         \x20   for (usize w = {WORKERS}; w-- > 0;)\n\
         \x20       body(argument, count * w / {WORKERS}, count * (w + 1) / {WORKERS}, w);\n\
         }}\n"
    );
    for (number, (kernel, stride)) in kernels.iter().zip(memory).enumerate() {
        let (params, dims) = (kernel.params.len(), kernel.dims.len());
        let mut types = vec!["const struct niello_context *".to_owned()];
        types.extend(vec!["void *".to_owned(); params]);
        types.extend(vec!["i64".to_owned(); dims]);
        let mut args = vec!["&ctx".to_owned()];
        args.extend((0..params).map(|i| format!("buffers[{i}]")));
        args.extend((0..dims).map(|i| format!("dims[{i}]")));
        let [before, after] = denormals_around(kernel.flushes_denormals());
        text.push_str(&format!(
            "void kernel{number}({});\n\
             __attribute__((visibility(\"default\")))\n\
             void entry{number}(void *const *buffers, const i64 *dims, u8 *scratch) {{\n\
             \x20   const struct niello_context ctx = {{0, 0, scratch, {stride}, split, 0, {WORKERS}, 0}};\n\
             {before}\x20   kernel{number}({});\n{after}\
             }}\n",
            types.join(", "),
            args.join(", ")
        ));
    }
    format!("{}{text}", declarations(&text, true))
}

/// A function of a file of C that takes nothing.
pub(crate) struct LoadedFunction;

impl LoadedFunction {
    /// What `unsigned <name>(void)` of a freestanding text returns.
    pub(crate) fn call(text: &str, name: &str) -> u32 {
        let text = format!(
            "{text}\n__attribute__((visibility(\"default\")))\nunsigned entry(void) {{\n    return {name}();\n}}\n"
        );
        let target = Target::host();
        let code = LoadedCode::new(&c_object("function", text, &target), &target);
        // SAFETY: the text above defines the entry with this signature.
        let entry = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> u32>(
                code.address("entry"),
            )
        };
        // SAFETY: the function takes nothing.
        unsafe { entry() }
    }
}

/// Linked objects: in memory where LLVM is there, which takes least time, and else a library.
#[cfg(feature = "llvm")]
struct LoadedCode(super::llvm::Jit);

#[cfg(feature = "llvm")]
impl LoadedCode {
    fn new(objects: &[ObjectFile], _: &Target) -> LoadedCode {
        LoadedCode(super::llvm::Jit::link(objects).unwrap())
    }

    fn address(&self, symbol: &str) -> *const c_void {
        self.0.address(symbol).unwrap()
    }
}

#[cfg(not(feature = "llvm"))]
struct LoadedCode(crate::executor::dynamic::DynamicLibrary);

#[cfg(not(feature = "llvm"))]
impl LoadedCode {
    fn new(objects: &[ObjectFile], target: &Target) -> LoadedCode {
        let folder = super::c::TempFolder::new().expect("a temporary folder");
        let path = folder.path().join("library.so");
        super::c::link_shared(objects, target, &path).unwrap_or_else(|error| panic!("{error}"));
        let library = crate::executor::dynamic::DynamicLibrary::open(&path);
        LoadedCode(library.expect("the library can be loaded"))
    }

    fn address(&self, symbol: &str) -> *const c_void {
        self.0.symbol(symbol).unwrap().cast_const()
    }
}

/// The CPU levels that this machine can run, narrowest first. Those it cannot are named on stderr.
pub(crate) fn runnable_levels() -> Vec<Target> {
    runnable(&["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
}

/// The same, with those that differ in instructions for bytes alone.
pub(crate) fn runnable_levels_for_bytes() -> Vec<Target> {
    let mut levels = runnable_levels();
    levels.extend(runnable(&["x86-64-v4-vnni", "x86-64-v4-amx"]));
    levels.dedup();
    levels
}

/// The CPUs of these that this machine is, or this machine if it is of another architecture.
fn runnable(cpus: &[&str]) -> Vec<Target> {
    let host = Target::host();
    if host.arch != "x86_64" {
        return vec![host];
    }
    let native = host.clone().with_cpu("native").expect("the host's own CPU");
    let levels = cpus.iter().map(|cpu| host.clone().with_cpu(cpu).expect("a CPU of the table"));
    let (runnable, missing): (Vec<_>, Vec<_>) =
        levels.partition(|level| level.features.is_subset(&native.features));
    for level in missing {
        eprintln!("skipped: this machine cannot run {}", level.cpu.unwrap_or_default());
    }
    runnable
}

/// Compares what two runs left in a function's parameters, bit for bit. Runs that flush denormal
/// numbers may each store such a number or the zero of its sign that it stands for: `a < b ? a : b`
/// is an instruction that flushes, or a comparison and a move, as the compiler likes.
pub(crate) fn compare(
    func: &PrimFunc,
    denormals: Denormals,
    interpreted: &[Vec<u8>],
    compiled: &[Vec<u8>],
    what: &str,
) {
    for (position, param) in func.params.iter().enumerate() {
        let buffer = &func.buffers[param.buffer];
        let width = buffer.dtype.bytes().unwrap();
        let pairs = interpreted[position].chunks(width).zip(compiled[position].chunks(width));
        for (element, (a, b)) in pairs.enumerate() {
            let classes = [a, b].map(|bytes| class(bytes, buffer.dtype));
            let same = match classes {
                // Which NaN an operation gives is the processor's choice.
                [FpCategory::Nan, FpCategory::Nan] => true,
                [
                    FpCategory::Subnormal | FpCategory::Zero,
                    FpCategory::Subnormal | FpCategory::Zero,
                ] if denormals == Denormals::Flush => {
                    // The sign is in the last byte.
                    (a[width - 1] ^ b[width - 1]) & 0x80 == 0
                }
                _ => a == b,
            };
            assert!(
                same,
                "{what}: element {element} of `{}` is {a:02x?} interpreted and {b:02x?} compiled",
                buffer.name,
            );
        }
    }
}

/// What kind of number an element is; integers are normal.
fn class(bytes: &[u8], dtype: DType) -> FpCategory {
    match dtype {
        DType::F32 => bytes.try_into().map(|b| f32::from_le_bytes(b).classify()),
        DType::F64 => bytes.try_into().map(|b| f64::from_le_bytes(b).classify()),
        _ => Ok(FpCategory::Normal),
    }
    .expect("elements have the width of their type")
}
