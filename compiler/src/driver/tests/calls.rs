//! Calls of built functions, compared with the interpreter.

use niello_runtime::ThreadPool;
use proptest::prelude::*;

use super::{
    HALVES, PACKED_PRODUCT, WINDOWS, WITH_SCRATCH, are_proved, args, arrays, check, interpreted,
    target,
};
use crate::driver::{Arg, ArrayView, ArrayViewMut, BuildTarget, NdArray, SourceKind, build};
use crate::ir::{DType, Definition, GlobalVar, IRModule};
use crate::options::Backend;
use crate::tir::parse;
use crate::tir::testing::random_function;

#[test]
fn layouts_are_packed_and_unpacked() {
    check(&parse(PACKED_PRODUCT).unwrap(), &[]);
}

#[test]
fn dimensions_come_after_the_buffers() {
    for n in [0, 7, 40] {
        check(&parse(WINDOWS).unwrap(), &[n]);
    }
}

#[test]
fn kernels_get_scratch_memory_and_unconverted_narrow_floats() {
    check(&parse(WITH_SCRATCH).unwrap(), &[]);
    check(&parse(HALVES).unwrap(), &[]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    fn random_functions_equal_the_interpreter(
        numbers in prop::collection::vec(any::<u32>(), 600)
    ) {
        check(&random_function(&numbers, 128), &[]);
    }
}

#[test]
fn a_bound_call_runs_again_and_on_several_threads() {
    let pool = ThreadPool::new(3);
    let active = pool.activate(3);
    for &kind in Backend::ALL {
        let module = build([parse(PACKED_PRODUCT).unwrap()], &target(kind)).unwrap();
        let function = module.function("product").unwrap();
        let mut arrays = arrays(&function);
        let expected = interpreted(&module, &function, &arrays, &[]);
        let call = function.bind(args(&function, &mut arrays, &[])).unwrap();
        // SAFETY: each iteration stores a row of its own.
        let mut call = unsafe { call.with_workers(&active) };
        for _ in 0..100 {
            call.run();
        }
        call.finish().unwrap();
        assert_eq!(arrays[2].bytes(), expected[2], "{kind}");
    }
}

#[test]
fn slices_of_the_caller_are_arguments_too() {
    let func = parse(WINDOWS).unwrap();
    for &kind in Backend::ALL {
        let module = build([func.clone()], &target(kind)).unwrap();
        let function = module.function("windows").unwrap();
        let x: Vec<f32> = (0..40).map(|i| i as f32).collect();
        let mut y = [0.0f32; 40];
        let args =
            (ArrayView::new(&[40], &x).unwrap(), ArrayViewMut::new(&[40], &mut y).unwrap(), 40i64);
        function.call(args).unwrap();
        assert_eq!(y[..3], [1.0, 3.0, 6.0], "{kind}");
        assert_eq!(y[39], 38.0 + 39.0, "{kind}");
    }
}

#[test]
fn functions_of_a_module_are_found_by_their_globals() {
    let mut module = IRModule::new();
    // Names that generated code calls, and names that its wrappers declare, cannot be kernels'
    // names.
    for name in ["memset", "buffers", "float", "exp"] {
        let func = parse(WITH_SCRATCH).unwrap();
        module.insert(GlobalVar::new(name), Definition::Prim(func));
    }
    for &kind in Backend::ALL {
        let built = build(&module, &BuildTarget::native(kind)).unwrap();
        let names: Vec<_> = built.functions().collect();
        assert_eq!(names, ["memset", "buffers", "float", "exp"]);
        for name in names {
            let function = built.function(name).unwrap();
            let x = super::filled(crate::ir::DType::I32, &[1024], 1);
            let mut y = NdArray::zeros(x.dtype(), x.shape()).unwrap();
            function.call(vec![Arg::from(&x), Arg::from(&mut y)]).unwrap();
            let last = x.as_slice::<i32>().unwrap()[1023];
            assert_eq!(y.as_slice::<i32>().unwrap()[0], last.wrapping_mul(2), "{kind}: {name}");
        }
    }
}

/// Reads a parameter at indices that another one holds.
const GATHER: &str = "
prim_func @gather(x: input float32[8], k: input int64[4], y: output float32[4]) {
  for i in serial(4) {
    y[i] = x[k[i]]
  }
}";

#[test]
fn indices_that_are_proved_cost_nothing_and_others_are_checked() {
    let shifted = GATHER.replace("x[k[i]]", "x[i + 1000]");
    for (text, proved) in [
        (PACKED_PRODUCT, true),
        (WITH_SCRATCH, true),
        (GATHER, false),
        (WINDOWS, false),
        (&shifted, false),
    ] {
        let func = parse(text).unwrap();
        assert_eq!(are_proved(&func).unwrap(), proved, "{text}");
        let target = target(Backend::C);
        let lowered = build([func.clone()], &target).unwrap().source(SourceKind::Tir).unwrap();
        assert_eq!(lowered.contains("assert"), !proved, "{lowered}");
        if proved {
            let plain = crate::tir::lower(func, &target.machine).unwrap();
            assert_eq!(lowered, plain.to_string());
        }
    }
}

#[test]
fn a_call_that_would_read_outside_traps() {
    let call = |offset: i64| {
        for &kind in Backend::ALL {
            let module = build([parse(GATHER).unwrap()], &target(kind)).unwrap();
            let x =
                NdArray::from_slice(&[8], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
            let k = NdArray::from_slice(&[4], &[7i64, 0, 3, offset]).unwrap();
            let mut y = NdArray::zeros(DType::F32, &[4]).unwrap();
            module.function("gather").unwrap().call((&x, &k, &mut y)).unwrap();
            assert_eq!(y.as_slice::<f32>().unwrap(), [7.0, 0.0, 3.0, offset as f32], "{kind}");
        }
    };
    // The trap ends the process, so this test is run once more, in another one.
    if std::env::var_os("NIELLO_TEST_OUTSIDE").is_some() {
        return call(1000);
    }
    call(5);
    let test = "driver::tests::calls::a_call_that_would_read_outside_traps";
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("NIELLO_TEST_OUTSIDE", "1")
        .output()
        .unwrap()
        .status;
    // A failed test ends with a code; a trap with none.
    assert!(!status.success() && status.code() != Some(101), "{status}");
}

#[test]
fn a_dimension_that_no_array_has_is_refused() {
    let module = build([parse(WINDOWS).unwrap()], &target(Backend::C)).unwrap();
    let x = NdArray::zeros(DType::F32, &[40]).unwrap();
    for value in [-1, i64::MAX] {
        let mut y = NdArray::zeros(DType::F32, &[40]).unwrap();
        let function = module.function("windows").unwrap();
        let error = function.call((&x, &mut y, value)).unwrap_err().to_string();
        assert!(error.contains("a dimension from 0 to") && error.contains("`n`"), "{error}");
    }
}
