//! Code of every operator of the table, in every data type that it accepts.

use super::{Arg, Case, check_all};
use crate::codegen::testing::runnable_levels;
use crate::graph::FunctionBuilder;
use crate::ir::{Attrs, BufferSpec, DType, TensorType, Type};
use crate::ops::samples::{Shapes, sample, tensor, types};
use crate::ops::{Op, OpDef, all};

/// Operators of which programs make no kernel: a view, whose extent a run computes.
const WITHOUT_CODE: &[&str] = &["truncate"];

/// The sample call of an operator with a data type, if that is well-typed.
fn case(op: &'static OpDef, call: &(Attrs, Shapes), dtype: DType) -> Option<Case> {
    let (args, result) = types(op, call, dtype)?;
    let mut b = FunctionBuilder::new();
    let params = args.iter().map(|ty| ty.clone().map(|ty| b.param("x", ty))).collect();
    let result_id = b.call_optional(Op::new(op), params, call.0.clone()).unwrap();
    let layout = |ty: &TensorType| {
        let extents = ty.shape.as_consts().unwrap();
        BufferSpec::dense(&extents.iter().map(|&d| d as i64).collect::<Vec<_>>())
    };
    let fields = match result.as_tuple() {
        Some(fields) => fields.to_vec(),
        None => vec![result],
    };
    Some(Case {
        name: format!("`{}` of {dtype}", op.name),
        function: b.finish(result_id),
        tensors: args.iter().flatten().map(tensor).collect(),
        args: args.iter().flatten().map(|ty| Arg::Input(layout(ty))).collect(),
        results: fields.iter().filter_map(Type::as_tensor).map(layout).collect(),
    })
}

/// The sample calls of all operators that have code, with a data type.
fn cases(dtype: DType) -> Vec<Case> {
    (all().iter().filter(|op| !WITHOUT_CODE.contains(&op.name)))
        .filter_map(|op| case(op, &sample(op.name).unwrap(), dtype))
        .collect()
}

#[test]
fn every_operator_of_float32_does_what_its_evaluation_does() {
    check_all(&cases(DType::F32), &runnable_levels());
}

#[test]
fn every_operator_of_every_other_type_does_what_its_evaluation_does() {
    // One level: what differs from level to level is tested with more calls elsewhere.
    let level = runnable_levels().pop().unwrap();
    // Elements narrower than a byte come to no kernel as they are.
    let dtypes = DType::all().filter(|dtype| dtype.bits() >= 8 && *dtype != DType::F32);
    let cases: Vec<Case> = dtypes.flat_map(cases).collect();
    check_all(&cases, &[level]);
}
