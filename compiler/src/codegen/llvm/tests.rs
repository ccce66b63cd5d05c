//! Tests of the text and code that LLVM gets and makes. Results are tested in `codegen/tests`, for
//! every backend alike.

use object::{Architecture, BinaryFormat, Object};

use super::{Kernel, Source, compile};
use crate::codegen::CodegenError;
use crate::ir::{BufferSpec, DType};
use crate::target::{Endian, Target};
use crate::tir::{ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, lower};

/// `y = scale * x + y` on rows of 64, with the sums in registers and rows in parallel.
fn axpy() -> PrimFunc {
    let mut func = PrimFuncData::new("axpy");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[8, 64]));
    let scale = func.constant("scale", DType::F32, BufferSpec::dense(&[64]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[8, 64]));
    let acc = func.register("acc", DType::F32, &[64]);
    func.body = func.for_("row", 8, ForKind::Parallel, |f, row| {
        let sum = f.for_("lane", 64, ForKind::Vectorized, |f, lane| {
            let (a, b) = (f.load(scale, [lane.clone()]), f.load(x, [row.clone(), lane.clone()]));
            let value = PrimExpr::mul_add(a, b, PrimExpr::f32(1.0));
            f.store(acc, [lane], value)
        });
        let write = f.for_("lane", 64, ForKind::Vectorized, |f, lane| {
            let value = f.load(acc, [lane.clone()]);
            f.store(y, [row, lane], value)
        });
        Stmt::allocate(acc, Stmt::seq([sum, write]))
    });
    PrimFunc::new(func)
}

fn source(func: PrimFunc, symbol: &str) -> Source {
    let kernels = vec![Kernel { func, symbol: symbol.to_owned() }];
    Source { name: "module".to_owned(), kernels, wrappers: vec![], entry: None, level: 0 }
}

fn compiled(target: &Target) -> Result<super::Compiled, Vec<CodegenError>> {
    let func = lower(axpy(), target).unwrap();
    let targets = std::slice::from_ref(target);
    compile(&[source(func, "axpy")], targets, 1, true).map(|mut all| all.remove(0))
}

fn x86(cpu: &str) -> Target {
    let target = foreign("x86_64-unknown-linux-gnu", "x86_64", "linux");
    target.with_cpu(cpu).unwrap()
}

fn foreign(triple: &str, arch: &str, os: &str) -> Target {
    Target {
        triple: triple.to_owned(),
        arch: arch.to_owned(),
        os: os.to_owned(),
        features: Default::default(),
        cpu: None,
        vector_width: None,
        pointer_width: 64,
        endian: Endian::Little,
    }
}

#[test]
fn registers_are_as_wide_as_the_level_has_them() {
    for (cpu, register, fused) in [
        ("x86-64", "%xmm", false),
        ("x86-64-v2", "%xmm", false),
        ("x86-64-v3", "%ymm", true),
        ("x86-64-v4", "%zmm", true),
    ] {
        let text = compiled(&x86(cpu)).unwrap().text.unwrap();
        let wider = ["%xmm", "%ymm", "%zmm"].into_iter().skip_while(|r| *r != register).skip(1);
        assert!(text.assembly.contains(register), "{cpu}\n{}", text.assembly);
        for register in wider {
            assert!(!text.assembly.contains(register), "{cpu}\n{}", text.assembly);
        }
        assert_eq!(text.assembly.contains("vfmadd"), fused, "{cpu}\n{}", text.assembly);
        assert_eq!(text.ir.contains("@llvm.fma."), fused, "{cpu}\n{}", text.ir);
    }
}

#[test]
fn the_ir_is_readable_and_leaves_llvm_no_freedom_with_floats() {
    let ir = compiled(&x86("x86-64-v4")).unwrap().text.unwrap().ir;
    // Names of parameters and loops are those of the loop IR.
    assert!(ir.contains("ptr noalias nocapture readonly %x"), "{ir}");
    assert!(ir.contains("define weak_odr hidden void @axpy("), "{ir}");
    assert!(ir.contains("row.next"), "{ir}");
    // Alignment: constants are aligned, the caller's tensors are not.
    assert!(ir.contains("load <16 x float>, ptr %scale, align 64"), "{ir}");
    let flags = ["fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"];
    let flagged = |line: &&str| {
        let is_float_operation = ["fadd", "fmul", "@llvm.fma"].iter().any(|op| line.contains(op));
        is_float_operation && flags.iter().any(|flag| line.contains(&format!(" {flag} ")))
    };
    assert_eq!(ir.lines().find(flagged), None);
    // The accumulators are values.
    assert!(!ir.contains("%acc"), "{ir}");
}

#[test]
fn objects_are_of_the_targets_format() {
    let arm =
        |triple: &str, os: &str| foreign(triple, "aarch64", os).with_cpu("neoverse-n1").unwrap();
    let mut windows = x86("x86-64-v3");
    windows.triple = "x86_64-pc-windows-msvc".to_owned();
    windows.os = "windows".to_owned();
    for (target, format, architecture) in [
        (x86("x86-64"), BinaryFormat::Elf, Architecture::X86_64),
        (windows, BinaryFormat::Coff, Architecture::X86_64),
        (arm("aarch64-unknown-linux-gnu", "linux"), BinaryFormat::Elf, Architecture::Aarch64),
        (arm("aarch64-apple-darwin", "macos"), BinaryFormat::MachO, Architecture::Aarch64),
    ] {
        let object = compiled(&target).unwrap().object;
        let file = object::File::parse(object.bytes.as_slice()).unwrap();
        assert_eq!((file.format(), file.architecture()), (format, architecture));
    }
}

#[test]
fn a_target_without_a_code_generator_is_an_error() {
    let errors = compiled(&foreign("sparc64-unknown-linux-gnu", "sparc64", "linux")).unwrap_err();
    let message = errors[0].to_string();
    assert!(message.contains("no code for sparc64") && message.contains("C backend"), "{message}");
}

#[test]
fn kernels_that_llvm_cannot_express_are_errors_that_name_the_kernel() {
    let target = x86("x86-64-v3");
    let compile = |func: PrimFuncData| {
        let sources = [source(PrimFunc::new(func), "f")];
        compile(&sources, std::slice::from_ref(&target), 1, false).unwrap_err()
    };
    let mut func = PrimFuncData::new("f");
    let y = func.output("y", DType::F16, BufferSpec::dense(&[4]));
    let errors = compile(func.clone());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().starts_with("kernel `f`: buffer `y`"), "{}", errors[0]);

    func.buffers[y].dtype = DType::F32;
    let acc = func.register("acc", DType::F32, &[4]);
    func.body =
        func.serial("i", 4, |f, i| Stmt::allocate(acc, f.store(acc, [i], PrimExpr::f32(0.0))));
    assert!(compile(func.clone())[0].message.contains("unroll"));

    func.body = func.for_("i", 4, ForKind::Vectorized, |f, i| f.store(y, [i], PrimExpr::f32(0.0)));
    assert!(compile(func)[0].message.contains("a vectorized loop must be lowered"));
}

#[test]
fn objects_do_not_depend_on_the_number_of_threads() {
    let target = x86("x86-64-v3");
    let func = lower(axpy(), &target).unwrap();
    let sources: Vec<Source> =
        (0..6).map(|i| source(func.clone(), &format!("kernel{i}"))).collect();
    let with = |jobs| compile(&sources, std::slice::from_ref(&target), jobs, true).unwrap();
    assert_eq!(with(1), with(4));
}
