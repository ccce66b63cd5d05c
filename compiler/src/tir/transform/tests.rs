//! What passes have in common: they keep the meaning of random functions.

use proptest::prelude::*;

use super::*;
use crate::tir::testing::programs::{check_same_results, random_program};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn passes_keep_the_meaning_of_random_programs(
        numbers in prop::collection::vec(any::<u32>(), 1..400),
    ) {
        let func = random_program(&numbers);
        let flat = flatten_buffer(func.clone()).unwrap();
        let unrolled = unroll_loop(flat.clone()).unwrap();
        let ssa = convert_ssa(unrolled.clone()).unwrap();
        prop_assert!(convert_ssa::is_ssa(&ssa));
        check_same_results(&func, &ssa);
        check_same_results(&func, &hoist_if_then_else(func.clone()).unwrap());
        check_same_results(&func, &hoist_if_then_else(unrolled).unwrap());
        check_same_results(&func, &rewrite_unsafe_select(func.clone()).unwrap());
        check_same_results(&func, &instrument_bound_checkers(func.clone()).unwrap());
        check_same_results(&func, &instrument_bound_checkers(flat.clone()).unwrap());
        check_same_results(&func, &storage_rewrite(flat).unwrap());
    }
}
