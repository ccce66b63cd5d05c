//! `nn.matmul`: numpy's matrix product (ONNX `MatMul`).

use serde::{Deserialize, Serialize};

use super::conv::sum_dtype;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, TensorType, Type};
use crate::ops::compute::{Compute, Stages, broadcast};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::Anchor;
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `nn.matmul`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatmulAttrs {
    /// Whether the two innermost axes of `a` are exchanged first.
    pub transpose_a: bool,
    /// Whether the two innermost axes of `b` are exchanged first.
    pub transpose_b: bool,
    /// The data type of the sums: `int32` for operands of 8-bit integers, which may differ in sign;
    /// `float32` for a left operand of `float32` and a right one of fewer bits, whose elements are
    /// widened where they are read; that of the operands if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_dtype: Option<DType>,
}

/// `(…, M, K)` times `(…, K, N)`; the outer axes broadcast.
///
/// As in numpy, a vector is a row on the left and a column on the right, and the axis that makes it
/// one is not in the result.
pub static MATMUL: OpDef = OpDef::new(
    "nn.matmul",
    "matrix product",
    &[Input::required("a"), Input::required("b")],
    infer,
    eval,
    compute,
)
.attributes::<MatmulAttrs>()
.defaults(|| Attrs::new().with("transpose_a", false).with("transpose_b", false))
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: MatmulAttrs = cx.attrs()?;
    let (a, b) = (cx.tensor_of(0, DTypes::Numeric)?, cx.tensor_of(1, DTypes::Numeric)?);
    let dtype = sum_dtype(cx, attrs.out_dtype)?;
    let transposes = [attrs.transpose_a, attrs.transpose_b];
    for (index, (ty, transpose)) in [a, b].into_iter().zip(transposes).enumerate() {
        let name = cx.input_name(index);
        ensure!(ty.shape.rank() >= 1, "input `{name}` must not be a scalar, but it is {ty}");
        ensure!(
            ty.shape.rank() >= 2 || !transpose,
            "attribute `transpose_{name}` has no meaning for a vector: input `{name}` is {ty}"
        );
    }
    // The extents of the two innermost axes; the one that a vector lacks is absent.
    let matrix = |ty: &TensorType, transpose: bool| {
        let rank = ty.shape.rank();
        let outer = (rank >= 2).then(|| ty.shape[rank - 2].clone());
        let inner = ty.shape[rank - 1].clone();
        match outer {
            Some(outer) if transpose => (Some(inner), outer),
            outer => (outer, inner),
        }
    };
    let (m, k) = matrix(a, attrs.transpose_a);
    let (n, k_of_b) = match matrix(b, attrs.transpose_b) {
        (None, k) => (None, k),
        (Some(k), n) => (Some(n), k),
    };
    ensure!(
        cx.same(&k, &k_of_b),
        "inputs `a`, {a}, and `b`, {b}, cannot be multiplied: \
         the inner extents {k} and {k_of_b} {}",
        cx.differ(&k, &k_of_b)
    );
    let outer = |ty: &TensorType| ty.shape[..ty.shape.rank().saturating_sub(2)].to_vec();
    let batch = cx.broadcast(&outer(a), &outer(b))?;
    cx.result(batch.into_iter().chain(m).chain(n), dtype)
}

/// Extents of the stacked matrices of an argument, and the strides of the axes in memory.
struct Matrices {
    batch: Vec<usize>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl Matrices {
    fn new(shape: &[usize], transpose: bool, vector_is_row: bool) -> Matrices {
        let (batch, inner) = shape.split_at(shape.len().saturating_sub(2));
        let (rows, columns) = match *inner {
            [rows, columns] => (rows, columns),
            [len] if vector_is_row => (1, len),
            [len] => (len, 1),
            _ => (1, 1),
        };
        let matrices = Matrices {
            batch: batch.to_vec(),
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
        };
        if !transpose {
            return matrices;
        }
        Matrices { rows: columns, columns: rows, row_stride: 1, column_stride: columns, ..matrices }
    }

    /// Where each matrix of the result finds its own, when the outer axes broadcast to `batch`.
    fn starts(&self, batch: &[usize]) -> Vec<usize> {
        let len = (self.rows * self.columns) as isize;
        let strides = broadcast_strides(&self.batch, batch);
        let strides: Vec<isize> = strides.iter().map(|stride| stride.wrapping_mul(len)).collect();
        offsets(batch, &strides, 0).collect()
    }
}

/// Multiplies matrices whose places are given; each row of the result is a sum of rows of `b`, so
/// that the innermost loop runs along both.
fn multiply<T: Copy>(
    (m, k, n): (usize, usize, usize),
    zero: T,
    a: impl Fn(usize, usize) -> T,
    b: &[T],
    multiply_add: impl Fn(T, T, T) -> T,
    result: &mut Vec<T>,
) {
    for row in 0..m {
        let start = result.len();
        result.resize(start + n, zero);
        let out = &mut result[start..];
        for inner in 0..k {
            let factor = a(row, inner);
            for (out, &b) in out.iter_mut().zip(&b[inner * n..][..n]) {
                *out = multiply_add(*out, factor, b);
            }
        }
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: MatmulAttrs = cx.attrs()?;
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let left = Matrices::new(a.shape(), attrs.transpose_a, true);
    let right = Matrices::new(b.shape(), attrs.transpose_b, false);
    if cx.len() == 0 {
        return cx.result(Elements::Int(Vec::new()));
    }
    let vectors = [a, b].iter().filter(|t| t.shape().len() == 1).count();
    let batch = &cx.shape()[..(cx.shape().len() + vectors).saturating_sub(2)];
    let starts: Vec<(usize, usize)> =
        left.starts(batch).into_iter().zip(right.starts(batch)).collect();
    let sizes = (left.rows, left.columns, right.columns);

    /// The products of all pairs of matrices.
    fn products<T: Copy>(
        (left, a): (&Matrices, &[T]),
        (right, b): (&Matrices, &[T]),
        starts: &[(usize, usize)],
        sizes: (usize, usize, usize),
        zero: T,
        multiply_add: impl Fn(T, T, T) -> T,
    ) -> Vec<T> {
        let mut result = Vec::with_capacity(starts.len() * sizes.0 * sizes.2);
        let mut packed = Vec::new();
        let mut packed_from = None;
        for &(a_start, b_start) in starts {
            if packed_from != Some(b_start) {
                packed.clear();
                for row in 0..right.rows {
                    packed.extend((0..right.columns).map(|column| {
                        b[b_start + row * right.row_stride + column * right.column_stride]
                    }));
                }
                packed_from = Some(b_start);
            }
            let at = |row, inner| a[a_start + row * left.row_stride + inner * left.column_stride];
            multiply(sizes, zero, at, &packed, &multiply_add, &mut result);
        }
        result
    }
    let multiply_add = |sum, x: f64, y| sum + x * y;
    let floats = |a: &[f64], b: &[f64]| {
        Elements::Float(products((&left, a), (&right, b), &starts, sizes, 0.0, multiply_add))
    };
    cx.result(match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => floats(a, b),
        (Elements::Float(a), Elements::Int(b)) => {
            floats(a, &b.iter().map(|&b| b as f64).collect::<Vec<_>>())
        }
        _ => {
            let (a, b) = (cx.ints(0)?, cx.ints(1)?);
            let f = |sum: i128, x: i128, y| sum.wrapping_add(x.wrapping_mul(y));
            Elements::Int(products((&left, a), (&right, b), &starts, sizes, 0, f))
        }
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: MatmulAttrs = cx.attrs()?;
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (left, right) = (cx.dag.shape(a).to_vec(), cx.dag.shape(b).to_vec());
    // A vector is a row on the left and a column on the right, and its axis is not in the result.
    let (row_vector, column_vector) = (left.len() == 1, right.len() == 1);
    let k =
        if attrs.transpose_a && !row_vector { left[left.len() - 2] } else { left[left.len() - 1] };
    let batch = shape.len() - usize::from(!row_vector) - usize::from(!column_vector);
    let stage = cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, &[k], |dag, index, by| {
        let (outer, inner) = index.split_at(batch);
        let at = |own: &[i64], row: Option<&PrimExpr>, column: Option<&PrimExpr>| {
            let matrix = usize::from(row.is_some()) + usize::from(column.is_some());
            let mut at = broadcast(&own[..own.len() - matrix], &shape[..batch], outer);
            at.extend(row.into_iter().chain(column).cloned());
            at
        };
        let row = (!row_vector).then(|| &inner[0]);
        let column = (!column_vector).then(|| &inner[inner.len() - 1]);
        let left_at = match (row, attrs.transpose_a) {
            (Some(row), true) => at(&left, Some(&by[0]), Some(row)),
            (row, _) => at(&left, row, Some(&by[0])),
        };
        let right_at = match (column, attrs.transpose_b) {
            (Some(column), true) => at(&right, Some(column), Some(&by[0])),
            (column, _) => at(&right, Some(&by[0]), column),
        };
        dag.at(a, &left_at).cast(dtype) * dag.at(b, &right_at).cast(dtype)
    });
    if !row_vector && !column_vector {
        let MatmulAttrs { transpose_a, transpose_b, .. } = attrs;
        cx.dag.set_anchor(stage, Anchor::MatMul { lhs: a, rhs: b, transpose_a, transpose_b });
    }
    Ok(vec![stage])
}
