//! Refused modules and arguments, with their messages.

use super::{PACKED_PRODUCT, WINDOWS, target};
use crate::driver::{BuildTarget, Function, InterfaceApi, IntoFunctions, NdArray, build};
use crate::graph;
use crate::ir::{DType, IRModule};
use crate::options::Backend;
use crate::tir::parse;

fn refused(functions: impl IntoFunctions, target: &BuildTarget) -> String {
    build(functions, target).unwrap_err().to_string()
}

#[test]
fn functions_that_cannot_be_built_are_refused_with_the_reason() {
    for &kind in Backend::ALL {
        let target = target(kind);
        assert_eq!(refused([], &target), "there is no function to be built");
        let windows = parse(WINDOWS).unwrap();
        let error = refused([windows.clone(), windows.clone()], &target);
        assert!(error.starts_with("two functions are called `windows`"), "{error}");

        let mut invalid = windows.clone();
        invalid.make_mut().params.pop();
        let error = refused([invalid], &target);
        assert!(
            error.contains("not well-formed") && error.contains("prim_func @windows"),
            "{error}"
        );

        let text = "prim_func @wide(x: input float32[8], y: output float32[8]) {
            y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)] * 2.0
        }";
        let narrow = BuildTarget { machine: target.machine.clone(), ..target.clone() };
        // Vectors of 256 bits, which lowering does not split, for registers of 128.
        if narrow.machine.vector_bits() == 128 && kind == Backend::C {
            let func = parse(&text.replace("* 2.0", "* broadcast(2.0, 8)")).unwrap();
            let error = refused([func], &narrow);
            assert!(error.contains("`wide`") && error.contains("at most 128"), "{error}");
        }
    }
}

#[test]
fn graph_functions_are_refused_by_name() {
    let text = "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] { add(%x, %x) }";
    let module: IRModule = graph::parse_module(text).unwrap();
    let error = refused(&module, &target(Backend::C));
    assert!(error.starts_with("@main is no loop function"), "{error}");
}

#[test]
fn functions_are_looked_up_by_name_and_machine() {
    let windows = || [parse(WINDOWS).unwrap()];
    for &kind in Backend::ALL {
        let module = build(windows(), &target(kind)).unwrap();
        let error = module.function("window").unwrap_err().to_string();
        assert!(error.contains("it has windows; did you mean `windows`?"), "{error}");
    }
    #[cfg(feature = "llvm")]
    {
        let foreign = "llvm -mtriple=riscv64gc-unknown-linux-gnu".parse().unwrap();
        assert!(refused(windows(), &foreign).contains("generates no code for riscv64"));
        let arch = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
        let foreign = format!("llvm -mtriple={arch}-unknown-linux-gnu").parse().unwrap();
        let module = build(windows(), &foreign).unwrap();
        let error = module.function("windows").unwrap_err().to_string();
        assert!(error.contains(&format!("is for {arch}-unknown-linux-gnu")), "{error}");
    }
}

#[test]
fn code_for_features_that_the_machine_lacks_is_not_loaded() {
    let mut target = target(Backend::C);
    // A feature that no compiler flag corresponds to, so that the compiler works on every machine.
    target.machine.features.insert("none-has-it".to_owned());
    let module = build([parse(WINDOWS).unwrap()], &target).unwrap();
    let error = module.function("windows").unwrap_err().to_string();
    assert!(error.contains("lacks none-has-it") && error.contains("-mcpu=native"), "{error}");
}

#[test]
fn arguments_are_checked_one_by_one() {
    let function = |text: &str| -> Function {
        let func = parse(text).unwrap();
        build([func.clone()], &target(Backend::C)).unwrap().function(&func.name).unwrap()
    };
    let zeros = |dtype, shape: &[i64]| NdArray::zeros(dtype, shape).unwrap();
    let windows = function(WINDOWS);
    let (x, mut y) = (zeros(DType::F32, &[40]), zeros(DType::F32, &[40]));
    let (short, ints) = (zeros(DType::F32, &[4, 10]), zeros(DType::I32, &[40]));

    let error = windows.call((&x, &mut y)).unwrap_err().to_string();
    assert_eq!(error, "call of `windows`: 3 arguments are needed (x, y, n), 2 were given");
    let error = windows.call((&short, &mut y, 40i64)).unwrap_err().to_string();
    assert_eq!(
        error,
        "call of `windows`: argument 0 (`x`): float32[40] is needed, float32[4, 10] was given"
    );
    let error = windows.call((&ints, &mut y, 40i64)).unwrap_err().to_string();
    assert!(error.ends_with("float32[40] is needed, int32[40] was given"), "{error}");
    let error = windows.call((&x, &x, 40i64)).unwrap_err().to_string();
    assert!(error.contains("argument 1 (`y`): the function writes to it"), "{error}");
    let error = windows.call((&x, 40i64, &mut y)).unwrap_err().to_string();
    assert!(error.contains("argument 1 (`y`): an array is needed"), "{error}");
    let error = windows.call((&x, &mut y, &short)).unwrap_err().to_string();
    assert!(error.contains("argument 2 (`n`): an integer is needed"), "{error}");
    // The shape of an array is the logical one, whatever the layout.
    let product = function(PACKED_PRODUCT);
    let (a, b) = (zeros(DType::F32, &[6, 5]), zeros(DType::F32, &[3, 5, 8]));
    let error = product.call((&a, &b, &mut zeros(DType::F32, &[6, 20]))).unwrap_err().to_string();
    assert!(error.contains("argument 1 (`b`): float32[5, 20] is needed"), "{error}");
}

#[test]
fn packed_functions_take_tensors_that_begin_at_their_memory() {
    let target = BuildTarget { interface_api: InterfaceApi::Packed, ..target(Backend::C) };
    let text = WINDOWS.replace("{halo=0:1:1}", "{offset=4}").replace("x[i - 1] + ", "");
    let error = refused([parse(&text.replace(" + x[i + 1]", "")).unwrap()], &target);
    assert!(error.contains("`windows` cannot be a packed function: parameter `x`"), "{error}");
}
