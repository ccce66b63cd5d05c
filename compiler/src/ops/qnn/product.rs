//! `qnn.dequantize_matmul`: products with matrices that are kept quantised in blocks.

use serde::{Deserialize, Serialize};

use super::{DEQUANTIZE, DequantizeAttrs};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, DType, Dim, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::Anchor;
use crate::tir::BinaryOp;

/// Attributes of `qnn.dequantize_matmul`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DequantizeMatmulAttrs {
    /// Whether the matrix is `(N, K)`, not `(K, N)`.
    pub transpose_b: bool,
    /// Neighbours along `K` that have one scale in common.
    pub block_size: i64,
}

impl DequantizeMatmulAttrs {
    /// The axis of the matrix that products are summed along.
    fn axis(&self) -> usize {
        usize::from(self.transpose_b)
    }

    fn dequantize(&self) -> DequantizeAttrs {
        let DequantizeMatmulAttrs { transpose_b: _, block_size } = *self;
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
/// constant takes a byte an element in memory and on the way to the processor.
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
.defaults(|| Attrs::new().with("transpose_b", false))
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
    let axis = attrs.axis();
    ensure!(
        cx.same(inner, &weight.shape[axis]),
        "input `weight`, which is {weight}, takes rows of {}, but those of input `x`, which is {x}, \
         have {inner}",
        weight.shape[axis]
    );
    let mut blocks = weight.shape.to_vec();
    blocks[axis] =
        (blocks[axis].clone() + (attrs.block_size - 1)).floor_div(&Dim::from(attrs.block_size));
    let what = "the blocks of input `weight`";
    cx.expect_type(2, &TensorType::new(blocks.iter().cloned().collect(), DType::F32), what)?;
    cx.expect_type(3, &TensorType::new(blocks.into_iter().collect(), weight.dtype), what)?;
    cx.result(outer.iter().chain([&weight.shape[1 - axis]]).cloned(), DType::F32)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: DequantizeMatmulAttrs = cx.attrs()?;
    let dequantize = Attrs::from_struct(&attrs.dequantize())
        .map_err(|error| EvalError::new(error.to_string()))?;
    let weight = [Some(cx.arg(1)?), Some(cx.arg(2)?), cx.optional(3)];
    let weight = DEQUANTIZE.evaluate(&dequantize, &weight)?;
    let matmul =
        Attrs::from_struct(&attrs.matmul()).map_err(|error| EvalError::new(error.to_string()))?;
    MATMUL.evaluate(&matmul, &[Some(cx.arg(0)?), weight.first()])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: DequantizeMatmulAttrs = cx.attrs()?;
    let (x, weight, scale, zero) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?, cx.optional(3));
    let (shape, dtype) = cx.result();
    let extents = cx.dag.shape(weight).to_vec();
    let (axis, block) = (attrs.axis(), attrs.block_size);
    let wide = cx.dag.compute("qnn.dequantize", &extents, dtype, |dag, index| {
        let mut of_block = index.to_vec();
        of_block[axis] = of_block[axis].clone().floordiv(block);
        let number = dag.at(weight, index).cast(DType::I32);
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
