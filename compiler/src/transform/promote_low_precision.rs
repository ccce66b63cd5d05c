//! Convolutions and matrix products of 16-bit floats, in 32.

use std::collections::BTreeMap;

use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule, SharedBytes, TensorType};
use crate::ops::elementwise::{CAST, CastAttrs};
use crate::ops::nn::{CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE, MATMUL, MatmulAttrs};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result, function_pass};
use crate::tir::transform::FLOAT16_ARITHMETIC;
use crate::transform::InferType;
use crate::transform::calls::stays_narrow;

/// Operators with so many multiplications that converting each operand where it is read would cost
/// more than the product itself.
const HEAVY: [&OpDef; 5] = [&CONV1D, &CONV2D, &CONV3D, &DENSE, &MATMUL];

/// Computes convolutions and matrix products of 16-bit floats in `float32`.
///
/// Such operators are then between casts, which are fused into their neighbours, and get the
/// schedules of `float32`.
///
/// The result is the same: such sums are kept in 32 bits in any case, and rounded once. Large constant
/// weights of products, and of convolutions without groups, stay in 16 bits, and are widened in
/// registers, where that is an instruction; other constants are converted here, and take twice the
/// room.
///
/// With [`FLOAT16_ARITHMETIC`], convolutions along two axes and products of `float16` by constant
/// weights stay as they are.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn promote_low_precision(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    // One cast of a value serves all its readers in a scope.
    let mut promoted: BTreeMap<(ExprId, u32), ExprId> = BTreeMap::new();
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = old.expr(id) else {
            continue;
        };
        let Some(narrow) = old.ty(id).as_tensor().map(|ty| ty.dtype) else { continue };
        if !matches!(narrow, DType::F16 | DType::BF16) || !HEAVY.iter().any(|def| op.is(def)) {
            continue;
        }
        if cx.get(&FLOAT16_ARITHMETIC) && narrow == DType::F16 && is_by_constant(&old, *op, args) {
            continue;
        }
        let scope = old.data_of(id).scope.as_u32();
        let (mut op, mut attrs) = (*op, attrs.clone());
        let mut wide = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            let Some(arg) = *arg else {
                wide.push(None);
                continue;
            };
            if index == 1
                && let Some(narrow) = narrow_weights(&old, op, &attrs, arg, cx)?
            {
                (op, attrs) = narrow;
                wide.push(Some(rewriter.mapped(arg)));
                continue;
            }
            wide.push(Some(match promoted.get(&(arg, scope)) {
                Some(&known) => known,
                None => {
                    let value = promote(&mut rewriter, arg)?;
                    promoted.insert((arg, scope), value);
                    value
                }
            }));
        }
        let builder = rewriter.builder();
        let product = builder.call_optional(op, wide, attrs)?;
        let attrs = Attrs::from_struct(&CastAttrs::to(narrow))?;
        let rounded = builder.call(Op::new(&CAST), &[product], attrs)?;
        rewriter.replace(rounded);
        cx.count("promoted calls", 1);
    }
    Ok(rewriter.finish()?)
}

/// Whether a call is a convolution along two axes, or a product, by constant weights.
fn is_by_constant(function: &Function, op: Op, args: &[Option<ExprId>]) -> bool {
    let weight = args.get(1).copied().flatten();
    let is_constant = weight.is_some_and(|id| function.expr(id).as_constant().is_some());
    is_constant && [&CONV2D, &DENSE, &MATMUL].iter().any(|def| op.is(def))
}

/// The operator that reads its weights as they are stored, if these are a constant for which that pays.
fn narrow_weights(
    function: &Function,
    op: Op,
    attrs: &Attrs,
    weight: ExprId,
    cx: &PassContext,
) -> Result<Option<(Op, Attrs)>> {
    let constant = function.expr(weight).as_constant().filter(|constant| !constant.is_opaque());
    let Some(ty) = constant.map(Constant::ty).filter(|ty| stays_narrow(ty, cx)) else {
        return Ok(None);
    };
    let out_dtype = Some(DType::F32);
    if !op.is(&DENSE) && !op.is(&MATMUL) {
        let attrs: ConvAttrs = attrs.parse()?;
        // Of groups there are few sums for each weight.
        let attrs = (attrs.groups == 1).then_some(ConvAttrs { out_dtype, ..attrs });
        return Ok(attrs.as_ref().map(Attrs::from_struct).transpose()?.map(|attrs| (op, attrs)));
    }
    let attrs: MatmulAttrs = match op.is(&DENSE) {
        true => MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() },
        false => attrs.parse()?,
    };
    let attrs = Attrs::from_struct(&MatmulAttrs { out_dtype, ..attrs })?;
    Ok((ty.shape.rank() == 2).then_some((Op::new(&MATMUL), attrs)))
}

/// A value of the old function as a `float32` value of the new one.
fn promote(rewriter: &mut Rewriter, old: ExprId) -> Result<ExprId> {
    let value = rewriter.mapped(old);
    let builder = rewriter.builder();
    if let Expr::Constant(constant) = builder.expr(value)
        && let Some(wide) = promote_constant(constant)
    {
        return Ok(builder.constant(wide));
    }
    let attrs = Attrs::from_struct(&CastAttrs::to(DType::F32))?;
    Ok(builder.call(Op::new(&CAST), &[value], attrs)?)
}

/// The constant as `float32`; `None` if it is opaque, or of no float of 16 bits.
fn promote_constant(constant: &Constant) -> Option<Constant> {
    let widen: fn([u8; 2]) -> f32 = match constant.ty().dtype {
        DType::F16 => |bytes| half::f16::from_le_bytes(bytes).to_f32(),
        DType::BF16 => |bytes| half::bf16::from_le_bytes(bytes).to_f32(),
        _ => return None,
    };
    let narrow = constant.to_bytes()?;
    let mut bytes = Vec::with_capacity(narrow.len() * 2);
    for &element in narrow.as_chunks::<2>().0 {
        bytes.extend_from_slice(&widen(element).to_le_bytes());
    }
    let ty = TensorType::new(constant.ty().shape.clone(), DType::F32);
    Constant::new(ty, SharedBytes::new(bytes)).ok()
}
