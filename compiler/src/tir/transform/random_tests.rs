//! Passes over random loops: what is computed stays the same.

use proptest::prelude::*;

use super::{
    LOOP_PARTITION, LoopPartition, LoopPartitionConfig, RemoveNoOp, RenormalizeSplitPattern,
    Simplify,
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
        let cx = PassContext::builder().config(&LOOP_PARTITION, all).build().unwrap();
        let passes: [&dyn Pass; 4] =
            [&Simplify, &LoopPartition, &RenormalizeSplitPattern, &RemoveNoOp];
        let sizes = [0, 3, 17];
        let expected = sizes.map(|n| outputs(&func, n));
        for pass in passes {
            let changed = pass.run_on_prim_func(func.clone(), &cx).unwrap();
            prop_assert!(verify(&changed).is_ok(), "{func}\n{changed}");
            for (n, expected) in sizes.iter().zip(&expected) {
                prop_assert!(outputs(&changed, *n) == *expected, "n = {n}\n{func}\n{changed}");
            }
        }
        let mut all = func.clone();
        for pass in passes {
            all = pass.run_on_prim_func(all, &cx).unwrap();
        }
        for (n, expected) in sizes.iter().zip(&expected) {
            prop_assert!(outputs(&all, *n) == *expected, "n = {n}\n{func}\n{all}");
        }
    }
}
