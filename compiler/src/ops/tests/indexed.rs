//! Operators that find elements through indices, ranks or sums, against values computed by hand.

use super::{check, floats};
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, DType};
use crate::ops::tensor::{
    CUMPROD, CUMSUM, CumulativeAttrs, GATHER, GATHER_ND, GatherAttrs, GatherNdAttrs,
    SCATTER_ELEMENTS, SCATTER_ND, ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction, TOPK,
    TopkAttrs,
};

fn ints(shape: &[usize], values: &[i128]) -> Tensor {
    Tensor::from_ints(DType::I64, shape, values.to_vec()).unwrap()
}

#[test]
fn scattering_takes_the_last_of_several_updates_or_combines_them() {
    let x = floats(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let updates = floats(&[3], &[10.0, 20.0, 30.0]);
    let at = ints(&[3], &[1, -1, 1]);
    for (reduction, expected) in [
        (ScatterReduction::Update, [1.0, 30.0, 3.0, 20.0]),
        (ScatterReduction::Add, [1.0, 42.0, 3.0, 24.0]),
        (ScatterReduction::Mul, [1.0, 600.0, 3.0, 80.0]),
        (ScatterReduction::Min, [1.0, 2.0, 3.0, 4.0]),
        (ScatterReduction::Max, [1.0, 30.0, 3.0, 20.0]),
    ] {
        let attrs = ScatterElementsAttrs { axis: 0, reduction };
        let args = [x.clone(), at.clone(), updates.clone()];
        check(&SCATTER_ELEMENTS, &attrs, &args, &[4], &expected);
        let args = [x.clone(), ints(&[3, 1], &[1, -1, 1]), updates.clone()];
        check(&SCATTER_ND, &ScatterNdAttrs { reduction }, &args, &[4], &expected);
    }
}

#[test]
fn gathering_counts_negative_indices_from_the_end() {
    let x = floats(&[2, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
    let args = [x.clone(), ints(&[1, 2], &[-1, 0])];
    check(&GATHER, &GatherAttrs { axis: 1 }, &args, &[1, 2], &[2.0, 0.0]);
    let args = [x.clone(), ints(&[2, 1, 1], &[-1, 1])];
    check(&GATHER_ND, &GatherNdAttrs { batch_dims: 1 }, &args, &[2, 1], &[2.0, 11.0]);
    let args = [x, ints(&[1, 2], &[1, -3])];
    check(&GATHER_ND, &GatherNdAttrs { batch_dims: 0 }, &args, &[1], &[10.0]);
}

#[test]
fn sums_up_to_each_element_leave_it_out_and_run_backwards() {
    let x = floats(&[4], &[1.0, 2.0, 3.0, 4.0]);
    for (exclusive, reverse, sums, products) in [
        (false, false, [1.0, 3.0, 6.0, 10.0], [1.0, 2.0, 6.0, 24.0]),
        (true, false, [0.0, 1.0, 3.0, 6.0], [1.0, 1.0, 2.0, 6.0]),
        (false, true, [10.0, 9.0, 7.0, 4.0], [24.0, 24.0, 12.0, 4.0]),
        (true, true, [9.0, 7.0, 4.0, 0.0], [24.0, 12.0, 4.0, 1.0]),
    ] {
        let attrs = CumulativeAttrs { axis: 0, exclusive, reverse };
        check(&CUMSUM, &attrs, std::slice::from_ref(&x), &[4], &sums);
        check(&CUMPROD, &attrs, std::slice::from_ref(&x), &[4], &products);
    }
}

#[test]
fn the_best_come_first_and_of_equals_the_first() {
    let x = floats(&[5], &[2.0, f64::NAN, 7.0, 2.0, -1.0]);
    for (largest, places) in [(true, [1, 2, 0]), (false, [4, 0, 3])] {
        let attrs = Attrs::from_struct(&TopkAttrs { k: 3, axis: 0, largest }).unwrap();
        let results = TOPK.evaluate(&attrs, &[Some(&x)]).unwrap();
        assert_eq!(results[1].ints().unwrap(), places);
        let values: Vec<f64> = places.iter().map(|&at| x.floats().unwrap()[at as usize]).collect();
        let found = results[0].floats().unwrap();
        assert!(found.iter().zip(&values).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
    }
}
