//! Operators that find elements through indices, ranks or sums, against values computed by hand.

use super::{check, floats};
use crate::graph::interp::Tensor;
use crate::graph::{FunctionBuilder, TypeError};
use crate::ir::{Attrs, Constant, DType, Type};
use crate::ops::tensor::{
    CUMPROD, CUMSUM, CumulativeAttrs, GATHER, GATHER_ND, GatherAttrs, GatherNdAttrs,
    SCATTER_ELEMENTS, SCATTER_ND, ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction, TAKE,
    TOPK, TakeAttrs, TakeMode, TopkAttrs,
};
use crate::ops::{Op, OpDef};

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
fn the_extreme_of_an_update_and_a_nan_is_a_nan() {
    let (x, updates) = (floats(&[2], &[f64::NAN, 1.0]), floats(&[2], &[1.0, f64::NAN]));
    for reduction in [ScatterReduction::Min, ScatterReduction::Max] {
        let attrs = ScatterElementsAttrs { axis: 0, reduction };
        let args = [x.clone(), ints(&[2], &[0, 1]), updates.clone()];
        check(&SCATTER_ELEMENTS, &attrs, &args, &[2], &[f64::NAN, f64::NAN]);
    }
}

/// The type of a call with constant indices into a tensor of these extents.
fn typed<A: serde::Serialize>(
    op: &'static OpDef,
    attrs: &A,
    extents: &[i64],
    indices: &Constant,
    updates: Option<&[i64]>,
) -> Result<Type, TypeError> {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", Type::tensor(extents, DType::F32));
    let mut args = vec![x, b.constant(indices.clone())];
    args.extend(updates.map(|dims| b.param("updates", Type::tensor(dims, DType::F32))));
    let call = b.call(Op::new(op), &args, Attrs::from_struct(attrs).unwrap())?;
    Ok(b.ty(call).clone())
}

#[test]
fn an_index_that_is_known_lies_within_its_axis() {
    let index = |dims: &[i64], values: &[i64]| Constant::from_i64(dims, values).unwrap();
    let fast = TakeAttrs { axis: 0, mode: TakeMode::Fast };
    let message = "index 3 in input `indices` is out of range for axis 0 of input `x`, which is \
                   Tensor[(3, 2), float32]: it must be from -3 to 2";
    let error = |result: Result<Type, TypeError>| result.unwrap_err().to_string();
    assert_eq!(error(typed(&TAKE, &fast, &[3, 2], &index(&[2], &[-3, 3]), None)), message);
    assert!(typed(&TAKE, &fast, &[3, 2], &index(&[2], &[-3, 2]), None).is_ok());
    let clip = TakeAttrs { axis: 0, mode: TakeMode::Clip };
    assert!(typed(&TAKE, &clip, &[3, 2], &index(&[2], &[-9, 9]), None).is_ok());
    let axis = GatherAttrs { axis: 0 };
    assert_eq!(error(typed(&GATHER, &axis, &[3, 2], &index(&[1, 1], &[3]), None)), message);
    let nd = GatherNdAttrs { batch_dims: 0 };
    assert_eq!(error(typed(&GATHER_ND, &nd, &[3, 2], &index(&[1, 2], &[3, 1]), None)), message);
    assert!(typed(&GATHER_ND, &nd, &[3, 2], &index(&[2, 2], &[2, 1, -3, -2]), None).is_ok());
    let reduction = ScatterReduction::Update;
    let scatter = ScatterElementsAttrs { axis: 0, reduction };
    let result = typed(&SCATTER_ELEMENTS, &scatter, &[3, 2], &index(&[1, 1], &[3]), Some(&[1, 1]));
    assert_eq!(error(result), message);
    let scatter = ScatterNdAttrs { reduction };
    let result = typed(&SCATTER_ND, &scatter, &[3, 2], &index(&[1, 1], &[3]), Some(&[1, 2]));
    assert_eq!(error(result), message);
}

#[test]
fn nothing_is_found_in_an_empty_axis() {
    let two = Constant::from_i64(&[2], &[0, 0]).unwrap();
    let none = Constant::from_i64(&[0], &[]).unwrap();
    for mode in [TakeMode::Fast, TakeMode::Clip, TakeMode::Wrap] {
        let attrs = TakeAttrs { axis: 0, mode };
        let error = typed(&TAKE, &attrs, &[0, 4], &two, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "axis 0 of input `x`, which is Tensor[(0, 4), float32], is empty, but input `indices` \
             is Tensor[(2), int64]"
        );
        assert!(typed(&TAKE, &attrs, &[0, 4], &none, None).is_ok());
    }
    let two = Constant::from_i64(&[2, 1], &[0, 0]).unwrap();
    assert!(typed(&GATHER, &GatherAttrs { axis: 0 }, &[0, 4], &two, None).is_err());
    assert!(typed(&GATHER_ND, &GatherNdAttrs { batch_dims: 0 }, &[0, 4], &two, None).is_err());
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
        let attrs = Attrs::from_struct(&TopkAttrs { k: 3.into(), axis: 0, largest }).unwrap();
        let results = TOPK.evaluate(&attrs, &[Some(&x)]).unwrap();
        assert_eq!(results[1].ints().unwrap(), places);
        let values: Vec<f64> = places.iter().map(|&at| x.floats().unwrap()[at as usize]).collect();
        let found = results[0].floats().unwrap();
        assert!(found.iter().zip(&values).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
    }
}
