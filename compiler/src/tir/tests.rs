//! A test common to all passes: they keep the results of random functions.

use proptest::prelude::*;

use super::transform::*;
use crate::pass::{Pass, PassContext};
use crate::tir::PrimFunc;
use crate::tir::testing::programs::{check_same_results, random_program};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn passes_keep_the_results_of_random_programs(
        numbers in prop::collection::vec(any::<u32>(), 1..400),
    ) {
        let cx = PassContext::builder().config(&INSTRUMENT_BOUND_CHECKERS, true).build().unwrap();
        let run = |pass: &dyn Pass, func: &PrimFunc| {
            pass.run_on_prim_func(func.clone(), &cx).unwrap()
        };
        let func = random_program(&numbers);
        let flat = run(&FlattenBuffer, &func);
        let unrolled = run(&UnrollLoop, &flat);
        let ssa = run(&ConvertSsa, &unrolled);
        prop_assert!(is_ssa(&ssa));
        check_same_results(&func, &ssa);
        check_same_results(&func, &run(&HoistIfThenElse, &func));
        check_same_results(&func, &run(&HoistIfThenElse, &unrolled));
        check_same_results(&func, &run(&RewriteUnsafeSelect, &func));
        check_same_results(&func, &run(&InstrumentBoundCheckers, &func));
        check_same_results(&func, &run(&InstrumentBoundCheckers, &flat));
        check_same_results(&func, &run(&StorageRewrite, &flat));
        check_same_results(&func, &run(&CommonSubexprElimTir, &func));
        check_same_results(&func, &run(&CommonSubexprElimTir, &unrolled));
        run(&VerifyMemory, &func);
        run(&VerifyMemory, &unrolled);
    }
}
