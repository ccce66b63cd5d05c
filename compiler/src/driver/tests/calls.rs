//! Calls of built functions, compared with the interpreter.

use niello_runtime::ThreadPool;
use proptest::prelude::*;

use super::{
    HALVES, PACKED_PRODUCT, WINDOWS, WITH_SCRATCH, args, arrays, check, interpreted, target,
};
use crate::driver::{Arg, ArrayView, ArrayViewMut, BuildTarget, NdArray, build};
use crate::ir::{Definition, GlobalVar, IRModule};
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
        let mut call = call.with_workers(&active);
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
