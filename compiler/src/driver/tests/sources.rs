//! The source text of built functions, and the effect of target options on it.

use super::{PACKED_PRODUCT, WINDOWS, WITH_SCRATCH, target};
use crate::driver::{Module, SourceKind, build};
use crate::options::Backend;
use crate::tir::parse;

const X86: &str = "-mtriple=x86_64-unknown-linux-gnu";

fn module(text: &str, target: &str) -> Module {
    build([parse(text).unwrap()], &target.parse().unwrap()).unwrap()
}

#[test]
fn every_kind_of_module_has_its_source_text() {
    let c = build([parse(WINDOWS).unwrap()], &target(Backend::C)).unwrap();
    assert!(c.source(SourceKind::Tir).unwrap().starts_with("prim_func @windows(x: input"));
    let text = c.source(SourceKind::C).unwrap();
    assert!(text.contains("void windows(const struct niello_context *ctx"), "{text}");
    assert!(!text.contains("windows_call"), "{text}");
    assert!(c.source(SourceKind::Asm).unwrap().contains("windows:"));
    let error = c.source(SourceKind::LlvmIr).unwrap_err().to_string();
    assert_eq!(error, "a module for the target kind `c` is not made of LLVM IR; one for `llvm` is");
    #[cfg(feature = "llvm")]
    {
        let llvm = build([parse(WINDOWS).unwrap()], &target(Backend::Llvm)).unwrap();
        assert_eq!(llvm.source(SourceKind::Tir).unwrap(), c.source(SourceKind::Tir).unwrap());
        let text = llvm.source(SourceKind::LlvmIr).unwrap();
        assert!(text.contains("define weak_odr hidden void @windows(ptr"), "{text}");
        assert!(!text.contains("windows_call"), "{text}");
        assert!(llvm.source(SourceKind::Asm).unwrap().contains("windows:"));
        let error = llvm.source(SourceKind::C).unwrap_err().to_string();
        assert!(error.ends_with("not made of C; one for `c` is"), "{error}");
    }
}

/// The names of registers in assembly show their width.
#[test]
fn cpu_features_and_vector_width_reach_the_code() {
    for &kind in Backend::ALL {
        for (options, register) in [
            ("-mcpu=x86-64", "%xmm"),
            ("-mcpu=x86-64-v3", "%ymm"),
            ("-mcpu=x86-64-v4", "%zmm"),
            ("-mattr=+avx2", "%ymm"),
            ("-mcpu=x86-64-v3 -mattr=-avx2", "%xmm"),
            ("-mcpu=x86-64-v4 -vector-width=256", "%ymm"),
            ("-mcpu=x86-64-v4 -vector-width=128", "%xmm"),
        ] {
            if kind == Backend::C && !cfg!(target_arch = "x86_64") {
                continue;
            }
            let target = format!("{kind} {X86} {options}");
            let asm = module(WITH_SCRATCH, &target).source(SourceKind::Asm).unwrap();
            let widest = ["%zmm", "%ymm", "%xmm"].into_iter().find(|name| asm.contains(name));
            assert_eq!(widest, Some(register), "{target}\n{asm}");
        }
    }
}

#[cfg(feature = "llvm")]
#[test]
fn llvm_writes_code_for_other_architectures() {
    let module = module(PACKED_PRODUCT, "llvm -mtriple=aarch64-unknown-linux-gnu");
    let asm = module.source(SourceKind::Asm).unwrap();
    assert!(asm.contains("fmadd") || asm.contains("fmla"), "{asm}");
    assert_eq!(module.objects().len(), 1);
}

#[test]
fn the_same_functions_give_the_same_objects() {
    for &kind in Backend::ALL {
        let of = || build([parse(PACKED_PRODUCT).unwrap()], &target(kind)).unwrap();
        assert_eq!(of().objects(), of().objects(), "{kind}");
    }
}
