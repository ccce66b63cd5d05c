//! Passes keep the results of random loops.

use proptest::prelude::*;

use super::{
    ConvertSsa, INSTRUMENT_BOUND_CHECKERS, InstrumentBoundCheckers, LOOP_PARTITION, LoopPartition,
    LoopPartitionConfig, NarrowDataType, RemoveNoOp, RenormalizeSplitPattern, Simplify, UnrollLoop,
    VectorizeLoop,
};
use crate::pass::{Pass, PassContext};
use crate::tir::testing::loops::{ELEMENTS, random_loops};
use crate::tir::{PrimFunc, interpret, verify};

fn outputs(func: &PrimFunc, n: i64) -> Vec<u8> {
    let input = (0..ELEMENTS).flat_map(|i| (i * i % 23 - 5).to_le_bytes()).collect();
    let mut args = [input, vec![0; ELEMENTS as usize * 8]];
    interpret(func, &mut args, &[n]).unwrap_or_else(|error| panic!("{error}\n{func}"));
    let [_, output] = args;
    output
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn passes_keep_the_results(numbers in proptest::collection::vec(any::<u32>(), 100)) {
        let func = random_loops(&numbers);
        verify(&func).unwrap();
        let all = LoopPartitionConfig { partition_const_loop: true, ..Default::default() };
        let cx = PassContext::builder().config(&LOOP_PARTITION, all);
        let cx = cx.config(&INSTRUMENT_BOUND_CHECKERS, true).build().unwrap();
        let passes: [&dyn Pass; 5] =
            [&Simplify, &LoopPartition, &RenormalizeSplitPattern, &NarrowDataType, &RemoveNoOp];
        let sizes = [0, 3, 17];
        let expected = sizes.map(|n| outputs(&func, n));
        for pass in passes {
            let changed = pass.run_on_prim_func(func.clone(), &cx).unwrap();
            prop_assert!(verify(&changed).is_ok(), "{func}\n{changed}");
            for (n, expected) in sizes.iter().zip(&expected) {
                prop_assert!(outputs(&changed, *n) == *expected, "n = {n}\n{func}\n{changed}");
            }
        }
        let narrow: [&dyn Pass; 9] = [
            &NarrowDataType,
            &Simplify,
            &LoopPartition,
            &RenormalizeSplitPattern,
            &ConvertSsa,
            &VectorizeLoop,
            &UnrollLoop,
            &Simplify,
            &InstrumentBoundCheckers,
        ];
        for list in [&passes[..], &narrow] {
            let mut all = func.clone();
            for pass in list {
                all = pass.run_on_prim_func(all, &cx).unwrap();
                prop_assert!(verify(&all).is_ok(), "{func}\n{all}");
            }
            for (n, expected) in sizes.iter().zip(&expected) {
                prop_assert!(outputs(&all, *n) == *expected, "n = {n}\n{func}\n{all}");
            }
        }
    }
}
