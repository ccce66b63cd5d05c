//! `qnn.dequantize_matmul`: products with matrices that are kept quantised in blocks.

use serde::{Deserialize, Serialize};

use super::{DEQUANTIZE, DequantizeAttrs};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::Anchor;
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `qnn.dequantize_matmul`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DequantizeMatmulAttrs {
    /// Whether the matrix is `(N, K)`, not `(K, N)`.
    pub transpose_b: bool,
    /// Neighbours along `K` that have one scale in common.
    pub block_size: i64,
    /// Bits of an element: 8, or 4, where a byte has two neighbours along `K`, the first in its lower
    /// half.
    pub bits: i64,
}

impl DequantizeMatmulAttrs {
    /// The axis of the matrix that products are summed along.
    fn axis(&self) -> usize {
        usize::from(self.transpose_b)
    }

    /// Elements of a byte of the matrix, which are neighbours along the axis of the sums.
    fn per_byte(&self) -> i64 {
        8 / self.bits
    }

    fn dequantize(&self) -> DequantizeAttrs {
        let DequantizeMatmulAttrs { transpose_b: _, block_size, bits: _ } = *self;
        DequantizeAttrs { axis: self.axis() as i64, block_size, dtype: DType::F32 }
    }

    fn matmul(&self) -> MatmulAttrs {
        MatmulAttrs { transpose_b: self.transpose_b, ..MatmulAttrs::default() }
    }
}

/// `x (…, K)` times `(weight − zero_point) · scale`, of which `weight` is `(K, N)`, and the others have
/// an element for each block of rows: `nn.matmul` of what `qnn.dequantize` yields, to the bit.
///
/// What the matrix stands for is computed in registers, where it is read, so that a matrix that is a
/// constant takes a byte an element, or half of one, in memory and on the way to the processor. Of 4
/// bits, `weight` is `uint8` with half as many elements along `K`, which is even.
pub static DEQUANTIZE_MATMUL: OpDef = OpDef::new(
    "qnn.dequantize_matmul",
    "matrix product with what a matrix of bytes, in blocks, stands for",
    &[
        Input::required("x"),
        Input::required("weight"),
        Input::required("scale"),
        Input::optional("zero_point"),
    ],
    infer,
    eval,
    compute,
)
.attributes::<DequantizeMatmulAttrs>()
.defaults(|| Attrs::new().with("transpose_b", false).with("bits", 8))
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: DequantizeMatmulAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    ensure!(x.dtype == DType::F32, "input `x` must hold float32, but it is {x}");
    let weight = cx.tensor_of_rank(1, DTypes::Numeric, 2, "(K, N)")?;
    ensure!(
        matches!(weight.dtype, DType::I8 | DType::U8),
        "input `weight` must hold integers of 8 bits, but it is {weight}"
    );
    ensure!(
        attrs.block_size > 0,
        "attribute `block_size` must be positive, but it is {}",
        attrs.block_size
    );
    let Some((inner, outer)) = x.shape.split_last().filter(|(_, outer)| !outer.is_empty()) else {
        bail!("input `x` must have dimensions (…, M, K), but it is {x}");
    };
    ensure!(
        attrs.bits == 8 || attrs.bits == 4 && weight.dtype == DType::U8,
        "attribute `bits` must be 8, or 4 for halves of uint8, but it is {}",
        attrs.bits
    );
    let axis = attrs.axis();
    let terms = weight.shape[axis].clone() * attrs.per_byte();
    ensure!(
        cx.same(inner, &terms),
        "input `weight`, which is {weight}, takes rows of {terms}, but those of input `x`, which is \
         {x}, have {inner}"
    );
    let mut blocks = weight.shape.to_vec();
    blocks[axis] = (terms + (attrs.block_size - 1)).floor_div(&Dim::from(attrs.block_size));
    let what = "the blocks of input `weight`";
    cx.expect_type(2, &TensorType::new(blocks.iter().cloned().collect(), DType::F32), what)?;
    cx.expect_type(3, &TensorType::new(blocks.into_iter().collect(), weight.dtype), what)?;
    cx.result(outer.iter().chain([&weight.shape[1 - axis]]).cloned(), DType::F32)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: DequantizeMatmulAttrs = cx.attrs()?;
    let dequantize = Attrs::from_struct(&attrs.dequantize())
        .map_err(|error| EvalError::new(error.to_string()))?;
    let halves = (attrs.bits == 4).then(|| halves(cx.arg(1)?, attrs.axis())).transpose()?;
    let weight = match &halves {
        Some(halves) => halves,
        None => cx.arg(1)?,
    };
    let weight = [Some(weight), Some(cx.arg(2)?), cx.optional(3)];
    let weight = DEQUANTIZE.evaluate(&dequantize, &weight)?;
    let matmul =
        Attrs::from_struct(&attrs.matmul()).map_err(|error| EvalError::new(error.to_string()))?;
    MATMUL.evaluate(&matmul, &[Some(cx.arg(0)?), weight.first()])
}

/// The halves of the bytes of a matrix, side by side along an axis, the lower one first.
fn halves(matrix: &Tensor, axis: usize) -> Result<Tensor, EvalError> {
    let (&[rows, columns], Elements::Int(bytes)) = (matrix.shape(), matrix.elements()) else {
        return Err(EvalError::new("the matrix has no bytes"));
    };
    let (along_rows, along_columns) = if axis == 0 { (2, 1) } else { (1, 2) };
    let mut elements = Vec::with_capacity(bytes.len() * 2);
    for row in 0..rows * along_rows {
        for column in 0..columns * along_columns {
            let byte = bytes[row / along_rows * columns + column / along_columns];
            let is_upper = if axis == 0 { row % 2 } else { column % 2 } == 1;
            elements.push(if is_upper { byte >> 4 } else { byte & 15 });
        }
    }
    let shape = [rows * along_rows, columns * along_columns];
    Tensor::from_ints(matrix.dtype(), &shape, elements)
        .map_err(|error| EvalError::new(error.to_string()))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: DequantizeMatmulAttrs = cx.attrs()?;
    let (x, weight, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?, cx.optional(3));
    let (shape, dtype) = cx.result();
    let (axis, block, per_byte) = (attrs.axis(), attrs.block_size, attrs.per_byte());
    let mut extents = cx.dag.shape(weight).to_vec();
    extents[axis] *= per_byte;
    let wide = cx.dag.compute("qnn.dequantize", &extents, dtype, |dag, index| {
        let mut of_block = index.to_vec();
        of_block[axis] = of_block[axis].clone().floordiv(block);
        let number = match per_byte {
            1 => dag.at(weight, index).cast(DType::I32),
            _ => {
                let mut of_byte = index.to_vec();
                of_byte[axis] = of_byte[axis].clone().floordiv(per_byte);
                let byte = dag.at(weight, &of_byte).cast(DType::I32);
                let shift = (index[axis].clone().floormod(per_byte) * 4).cast(DType::I32);
                PrimExpr::binary(BinaryOp::Shr, byte, shift).and(PrimExpr::int(15, DType::I32))
            }
        };
        let difference = match zero {
            Some(zero) => number - dag.at(zero, &of_block).cast(DType::I32),
            None => number,
        };
        difference.cast(dtype) * dag.at(scale, &of_block)
    });
    let stage = cx.dag.reduce(
        cx.op.name,
        &shape,
        dtype,
        BinaryOp::Add,
        &[extents[axis]],
        |dag, index, by| {
            let (column, rows) = index.split_last().expect("a product has columns");
            let mut at = rows.to_vec();
            at.push(by[0].clone());
            let mut of_weight = vec![column.clone(); 2];
            of_weight[axis] = by[0].clone();
            dag.at(x, &at) * dag.at(wide, &of_weight)
        },
    );
    let transpose_b = attrs.transpose_b;
    let anchor = Anchor::MatMul { lhs: x, rhs: wide, transpose_a: false, transpose_b };
    cx.dag.set_anchor(stage, anchor);
    Ok(vec![stage])
}
