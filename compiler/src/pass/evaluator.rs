//! Computing calls of operators while compiling.

use crate::graph::interp::Tensor;
use crate::ir::{
    AttrValue, Attrs, Constant, ConstantData, SharedBytes, TensorType, normalize_axis,
};
use crate::ops::{EvalError, Op, OpPattern};

/// Most elements that a call which goes element by element computes at a time.
///
/// Numbers take 8 or 16 bytes while they are computed with, and weights as a whole would take that
/// many times what they take in the model.
const ROW_ELEMENTS: u64 = 1 << 18;

/// Computes calls of operators whose arguments are constants.
///
/// A context has [`ReferenceEvaluator`] unless its builder is given another one.
pub trait Evaluator: Send + Sync {
    /// The results of a call: one, or as many as the operator's result tuple has fields.
    ///
    /// # Errors
    ///
    /// If the operator cannot be computed on these arguments.
    fn eval_call(
        &self,
        op: Op,
        attrs: &Attrs,
        args: &[Option<Constant>],
    ) -> Result<Vec<Constant>, EvalError>;
}

/// Computes with the operators' reference definitions: exact, never fast.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReferenceEvaluator;

impl Evaluator for ReferenceEvaluator {
    fn eval_call(
        &self,
        op: Op,
        attrs: &Attrs,
        args: &[Option<Constant>],
    ) -> Result<Vec<Constant>, EvalError> {
        match in_rows(op, attrs, args, ROW_ELEMENTS) {
            Some(result) => Ok(vec![result]),
            None => at_once(op, attrs, args),
        }
    }
}

fn at_once(op: Op, attrs: &Attrs, args: &[Option<Constant>]) -> Result<Vec<Constant>, EvalError> {
    let failed = |error: &dyn std::error::Error| EvalError::new(error.to_string());
    let tensors: Vec<Option<Tensor>> = args
        .iter()
        .map(|arg| arg.as_ref().map(Tensor::from_constant).transpose())
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))?;
    let tensors: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_ref).collect();
    let results = op.definition().evaluate(attrs, &tensors)?;
    results.iter().map(|tensor| tensor.to_constant().map_err(|error| failed(&error))).collect()
}

/// The result of a call that goes element by element, computed some rows of the first axis at a
/// time. `None` if it is no such call or has at most `most` elements, and if it cannot be computed
/// so: then it is computed at once, and that tells what is wrong.
fn in_rows(op: Op, attrs: &Attrs, args: &[Option<Constant>], most: u64) -> Option<Constant> {
    if !matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast) {
        return None;
    }
    let shapes: Vec<Vec<i64>> =
        args.iter().flatten().map(|arg| extents(arg.ty())).collect::<Option<_>>()?;
    let rank = shapes.iter().map(Vec::len).max().filter(|&rank| rank > 0)?;
    let widest = shapes.iter().filter(|shape| shape.len() == rank);
    let extent = widest.clone().map(|shape| shape[0]).max()?;
    let elements = args.iter().flatten().filter_map(|arg| arg.ty().num_elements()).max()?;
    if elements <= most || extent < 2 {
        return None;
    }
    // Multiples of 8 rows end with whole bytes, however narrow the elements are.
    let rows = most.saturating_mul(extent.unsigned_abs()) / elements / 8 * 8;
    let rows = i64::try_from(rows.max(8)).ok()?;
    // Where an attribute says which axis a vector lies along, it may be the first one.
    let along_first = match attrs.get("axis") {
        Some(AttrValue::Int(axis)) => normalize_axis(*axis, rank) == Some(0),
        _ => false,
    };
    let mut bytes: Vec<u8> = Vec::new();
    let mut ty: Option<TensorType> = None;
    let mut start = 0;
    while start < extent {
        let count = rows.min(extent - start);
        let part = |arg: &Constant| {
            let shape = extents(arg.ty())?;
            let has_rows = shape.len() == rank || (along_first && shape.len() == 1);
            match has_rows && shape[0] == extent {
                true => rows_of(arg, &shape, start, count),
                false => Some(arg.clone()),
            }
        };
        let parts: Vec<Option<Constant>> = args
            .iter()
            .map(|arg| match arg {
                None => Some(None),
                Some(arg) => part(arg).map(Some),
            })
            .collect::<Option<_>>()?;
        let [result] = <[Constant; 1]>::try_from(at_once(op, attrs, &parts).ok()?).ok()?;
        let mut shape = extents(result.ty())?;
        if shape.len() != rank || shape[0] != count {
            return None;
        }
        shape[0] = extent;
        let whole = TensorType::from_consts(&shape, result.ty().dtype);
        if ty.is_none() {
            bytes.try_reserve_exact(usize::try_from(whole.bytes()?).ok()?).ok()?;
        }
        bytes.extend_from_slice(&result.to_bytes()?);
        ty = Some(whole);
        start += count;
    }
    Constant::new(ty?, SharedBytes::new(bytes)).ok()
}

/// The extents of a type, if all are numbers.
fn extents(ty: &TensorType) -> Option<Vec<i64>> {
    ty.shape.iter().map(|dim| dim.as_const()).collect()
}

/// Rows of a constant, which share its bytes.
fn rows_of(constant: &Constant, shape: &[i64], start: i64, count: i64) -> Option<Constant> {
    let dtype = constant.ty().dtype;
    let of_rows = |rows: i64| {
        let mut shape = shape.to_vec();
        shape[0] = rows;
        TensorType::from_consts(&shape, dtype)
    };
    match constant.data() {
        ConstantData::Splat(element) => Constant::splat(of_rows(count), element).ok(),
        ConstantData::Bytes(bytes) => {
            let size = |rows: i64| usize::try_from(of_rows(rows).bytes()?).ok();
            let part = bytes.slice(size(start)?, size(count)?)?;
            Constant::new(of_rows(count), part).ok()
        }
        ConstantData::Opaque => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use crate::ops::elementwise::{ADD, CAST, CastAttrs, MULTIPLY};
    use crate::ops::qnn::{DEQUANTIZE, DequantizeAttrs};
    use crate::ops::tensor::{BROADCAST_TO, BroadcastToAttrs};

    fn constant(dims: &[i64], dtype: DType) -> Constant {
        let elements = dims.iter().product::<i64>();
        let values = (0..elements).map(|at| i128::from(at * 37 % 23 - 11)).collect();
        let shape: Vec<usize> = dims.iter().map(|&extent| extent as usize).collect();
        let elements = crate::graph::interp::Elements::Int(values);
        Tensor::from_elements(dtype, &shape, elements).unwrap().to_constant().unwrap()
    }

    #[test]
    fn rows_make_what_the_whole_makes() {
        let dequantize = |axis, block_size| {
            Attrs::from_struct(&DequantizeAttrs { axis, block_size, dtype: DType::F32 }).unwrap()
        };
        let cast = |dtype| Attrs::from_struct(&CastAttrs::to(dtype)).unwrap();
        let splat = Constant::splat(TensorType::from_consts(&[19, 5], DType::F32), &[0, 0, 0, 64]);
        let cases: Vec<(Op, Attrs, Vec<Constant>, bool)> = vec![
            (
                Op::new(&ADD),
                Attrs::new(),
                vec![constant(&[19, 5], DType::F32), constant(&[5], DType::F32)],
                true,
            ),
            // A vector as long as there are rows lies along the last axis all the same.
            (
                Op::new(&MULTIPLY),
                Attrs::new(),
                vec![constant(&[19, 19], DType::I8), constant(&[19], DType::I8)],
                true,
            ),
            (
                Op::new(&ADD),
                Attrs::new(),
                vec![constant(&[19, 1], DType::F16), constant(&[1, 7], DType::F16)],
                true,
            ),
            (
                Op::new(&MULTIPLY),
                Attrs::new(),
                vec![splat.unwrap(), constant(&[1, 1], DType::F32)],
                true,
            ),
            (Op::new(&CAST), cast(DType::F32), vec![constant(&[19, 5], DType::I4)], true),
            (Op::new(&CAST), cast(DType::U4), vec![constant(&[19, 3], DType::I64)], true),
            (
                Op::new(&DEQUANTIZE),
                dequantize(0, 0),
                vec![
                    constant(&[19, 5], DType::I8),
                    constant(&[19], DType::F32),
                    constant(&[19], DType::I8),
                ],
                true,
            ),
            (
                Op::new(&DEQUANTIZE),
                dequantize(-1, 0),
                vec![constant(&[19, 5], DType::U4), constant(&[5], DType::F32)],
                true,
            ),
            // The rows of a block have one scale, which is in no row of its own.
            (
                Op::new(&DEQUANTIZE),
                dequantize(0, 2),
                vec![constant(&[20, 5], DType::I8), constant(&[10, 5], DType::F32)],
                false,
            ),
            (
                Op::new(&BROADCAST_TO),
                Attrs::from_struct(&BroadcastToAttrs { shape: vec![19.into(), 5.into()] }).unwrap(),
                vec![constant(&[19, 1], DType::F32)],
                false,
            ),
        ];
        for (op, attrs, args, can) in cases {
            let args: Vec<Option<Constant>> = args.into_iter().map(Some).collect();
            let whole = at_once(op, &attrs, &args).unwrap();
            let rows = in_rows(op, &attrs, &args, 4);
            assert_eq!(rows.is_some(), can, "{op}");
            if let Some(rows) = rows {
                assert_eq!((rows.ty(), rows.digest()), (whole[0].ty(), whole[0].digest()), "{op}");
            }
            assert_eq!(in_rows(op, &attrs, &args, 1000), None);
        }
    }
}
