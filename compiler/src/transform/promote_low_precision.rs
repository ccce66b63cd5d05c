//! Convolutions and matrix products of 16-bit floats, in 32.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Call, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule, SharedBytes, TensorType};
use crate::ops::elementwise::{CAST, CastAttrs};
use crate::ops::nn::{CONV1D, CONV2D, CONV3D, ConvAttrs, DENSE, MATMUL, MatmulAttrs};
use crate::ops::tensor::CONCATENATE;
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, Result, function_pass};
use crate::tir::transform::FLOAT16_ARITHMETIC;
use crate::transform::InferType;
use crate::transform::calls::{op_of, stays_narrow};

/// Operators with so many multiplications that converting each operand where it is read would cost
/// more than the product itself.
const HEAVY: [&OpDef; 5] = [&CONV1D, &CONV2D, &CONV3D, &DENSE, &MATMUL];

/// Computes convolutions and matrix products of 16-bit floats in `float32`.
///
/// Such operators are then between casts, which are fused into their neighbours, and get the
/// schedules of `float32`. What such operators alone read joined is joined in `float32`, where parts can
/// be written in their places.
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
    let joined = joined_for_promoted(&function, cx);
    let mut rewriter = Rewriter::new(function);
    // One cast of a value serves all its readers in a scope.
    let mut promoted: BTreeMap<(ExprId, u32), ExprId> = BTreeMap::new();
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        let Some((narrow, mut op, call)) = promoted_call(&old, id, cx) else { continue };
        let scope = old.data_of(id).scope.as_u32();
        let mut attrs = call.attrs.clone();
        let mut wide = Vec::with_capacity(call.args.len());
        for (index, arg) in call.args.iter().enumerate() {
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
                    let value = promote(&mut rewriter, arg, &joined)?;
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

/// The data type, the operator and the call of an expression that this pass computes in `float32`.
fn promoted_call<'a>(
    function: &'a Function,
    id: ExprId,
    cx: &PassContext,
) -> Option<(DType, Op, &'a Call)> {
    let (op, call) = op_of(function.expr(id))?;
    let narrow = function.ty(id).as_tensor()?.dtype;
    let is_heavy = matches!(narrow, DType::F16 | DType::BF16) && HEAVY.iter().any(|def| op.is(def));
    let stays = cx.get(&FLOAT16_ARITHMETIC)
        && narrow == DType::F16
        && is_by_constant(function, op, &call.args);
    (is_heavy && !stays).then_some((narrow, op, call))
}

/// The concatenations that nothing but promoted calls of their scope read.
fn joined_for_promoted(function: &Function, cx: &PassContext) -> BTreeSet<ExprId> {
    let scope = |id| function.data_of(id).scope;
    let live = function.live();
    let mut readers: BTreeMap<ExprId, u32> = BTreeMap::new();
    for (id, _) in function.iter().filter(|(id, _)| live[*id]) {
        let Some((_, _, call)) = promoted_call(function, id, cx) else { continue };
        for arg in call.args.iter().flatten().filter(|arg| scope(**arg) == scope(id)) {
            *readers.entry(*arg).or_default() += 1;
        }
    }
    let uses = function.use_counts();
    let is_joined = |id| op_of(function.expr(id)).is_some_and(|(op, _)| op.is(&CONCATENATE));
    let joined = readers.iter().filter(|&(&id, &count)| is_joined(id) && uses[id] == count);
    joined.map(|(&id, _)| id).collect()
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

/// A value of the old function as a `float32` value of the new one; the parts of what is `joined`, no
/// one of which is joined itself.
fn promote(rewriter: &mut Rewriter, old: ExprId, joined: &BTreeSet<ExprId>) -> Result<ExprId> {
    let call = rewriter.old().expr(old).as_call();
    if let Some(Call { args, attrs, .. }) = call.filter(|_| joined.contains(&old)).cloned() {
        let parts = args.into_iter().flatten().map(|part| promote(rewriter, part, joined));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        return Ok(rewriter.builder().call(Op::new(&CONCATENATE), &parts, attrs)?);
    }
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
