//! The layout of each tensor that goes from kernel to kernel.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::calls::call_with;
use crate::analysis::{Demand, called, demands};
use crate::executor::Truncation;
use crate::graph::{
    Call, Callee, Expr, ExprData, ExprId, Function, FunctionBuilder, Rewriter, ScopeId,
};
use crate::ir::{AttrValue, Attrs, DType, Definition, Dim, GlobalVar, IRModule, Type};
use crate::ops::nn::{
    CONV2D, CONV2D_WINOGRAD, ConvAttrs, DENSE, LOG_SOFTMAX, MATMUL, SOFTMAX, SoftmaxAttrs,
};
use crate::ops::reduce::{ARGMAX, ARGMIN, ArgReduceAttrs, ReduceAttrs};
use crate::ops::tensor::{EXPAND_DIMS, LAYOUT_TRANSFORM, LayoutTransformAttrs, RESHAPE, SQUEEZE};
use crate::ops::{Op, OpPattern};
use crate::pass::{PassContext, Result, is_optimizable, module_pass};
use crate::strategy::{
    BLOCKED_LAYOUT, DENSE_LAYOUT, LAYOUTS, Machine, can_be_blocked, goes_along_rows, goes_by_lanes,
    reads_blocks, tensor_types,
};

crate::register_pass_config_option! {
    /// Bits of the vectors for which weights are packed; 0 for those of the target. A model for
    /// several CPU levels has one layout for all, that of the widest.
    pub VECTOR_BITS: u64 = "relay.PlanLayouts.vector_bits";
}

/// Says in which layout each kernel stores what it computes.
///
/// Images that a convolution reads are in blocks of channels, and so is what kernels make of blocks,
/// unless something reads it dense: a matrix product, another shape, what goes over the channels of
/// each place, the caller. It stands at the calls of kernels, `@fused_nn_conv2d(%x, …,
/// layouts=["NCHW16c"])`, and what stands there before the pass, stays; a pass after this one may still
/// say otherwise. A tensor can be in blocks if it has four axes, eight channels or more, and elements
/// of one or two bytes or `float32`.
///
/// A convolution by Winograd's algorithm has blocks alone: where planes come in or are asked for, a
/// kernel of its own copies them, `@fused_layout_transform`.
#[module_pass(opt_level = 0)]
pub fn plan_layouts(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let mut packing = Machine::of(cx.target());
    if let bits @ 1.. = cx.get(&VECTOR_BITS) {
        packing.vector_bits = u32::try_from(bits).unwrap_or(packing.vector_bits);
    }
    for (global, function) in module.clone().functions() {
        if !is_optimizable(function.attrs()) || function.attrs().flag("Primitive") {
            continue;
        }
        let planned = planned(function, &mut module, packing, cx)?;
        module.insert(global.clone(), Definition::Graph(planned));
    }
    Ok(module)
}

/// The function with a layout for what each of its kernels makes; copies that it needs are added to the
/// module.
fn planned(
    function: &Function,
    module: &mut IRModule,
    packing: Machine,
    cx: &PassContext,
) -> Result<Function> {
    let mut kernels: BTreeMap<&GlobalVar, Kernel> = BTreeMap::new();
    for (_, data) in function.iter() {
        if let Some(global) = data.expr.as_call().and_then(|call| called(function, call))
            && let Some(kernel) = module.function(global.name())
            && kernel.attrs().flag("Primitive")
            && !kernels.contains_key(global)
        {
            kernels.insert(global, Kernel::of(kernel, packing)?);
        }
    }
    let kernel = |call: &Call| kernels.get(called(function, call)?);
    let asked = demands(
        function,
        |call, arg| match kernel(call) {
            Some(kernel) => kernel.params.get(arg).copied().unwrap_or_default(),
            // Functions of other code generators take dense tensors.
            None => Reads::DENSE,
        },
        &Reads::DENSE,
    );
    let mut blocked: SecondaryMap<ExprId, Vec<bool>> = SecondaryMap::new();
    // Planes that were copied into blocks, by the scope that reads them.
    let mut images: BTreeMap<(ExprId, ScopeId), ExprId> = BTreeMap::new();
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        let ExprData { expr, ty, scope, .. } = function.data_of(id);
        match expr {
            Expr::Tuple(fields) => {
                blocked[id] = fields.iter().flat_map(|&field| blocked[field].clone()).collect();
            }
            Expr::TupleGet { tuple, index } => {
                blocked[id] = blocked[*tuple].get(*index as usize).copied().into_iter().collect();
            }
            Expr::Call(call) => {
                let Some(kernel) = kernel(call) else { continue };
                if let Some(AttrValue::List(layouts)) = call.attrs.get(LAYOUTS) {
                    let is_blocked = |layout: &AttrValue| *layout == BLOCKED_LAYOUT.into();
                    blocked[id] = layouts.iter().map(is_blocked).collect();
                    continue;
                }
                let is_blocked = |&arg: &ExprId| blocked[arg].contains(&true);
                let makes_blocks =
                    kernel.makes_blocks || call.args.iter().flatten().any(is_blocked);
                let mut layouts: Vec<bool> = (tensor_types(ty).iter().zip(&asked[id]))
                    .map(|(ty, reads)| {
                        can_be_blocked(ty) && (reads.conv || (makes_blocks && !reads.dense))
                    })
                    .collect();
                let in_blocks = call.args.iter().zip(&kernel.images).filter(|(_, is)| **is);
                for image in in_blocks.filter_map(|(arg, _)| *arg) {
                    let is_known = is_blocked(&image) || images.contains_key(&(image, *scope));
                    if !is_known && function.expr(image).as_constant().is_none() {
                        let planes = rewriter.mapped(image);
                        let copy = copied(&mut rewriter, module, planes, BLOCKED_LAYOUT)?;
                        images.insert((image, *scope), copy);
                    }
                }
                blocked[id].clone_from(&layouts);
                let takes_blocks = kernel.images.contains(&true);
                let planes = takes_blocks
                    && layouts == [false]
                    && ty.as_tensor().is_some_and(can_be_blocked);
                if planes {
                    layouts = vec![true];
                }
                let count = layouts.iter().filter(|&&blocked| blocked).count();
                if count == 0 && !takes_blocks {
                    continue;
                }
                cx.count("blocked", count as u64);
                let name = |&blocked| if blocked { BLOCKED_LAYOUT } else { DENSE_LAYOUT };
                let layouts: Vec<&str> = layouts.iter().map(name).collect();
                let new = Expr::Call(call.clone()).map(
                    |operand| match images.get(&(operand, *scope)) {
                        Some(&copy) if takes_blocks => copy,
                        _ => rewriter.mapped(operand),
                    },
                    |scope| scope,
                );
                let Expr::Call(mut new) = new else { continue };
                new.attrs = new.attrs.with(LAYOUTS, layouts);
                let mut new = rewriter.builder().push(Expr::Call(new))?;
                if planes {
                    new = copied(&mut rewriter, module, new, DENSE_LAYOUT)?;
                }
                rewriter.replace(new);
            }
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::If(_)
            | Expr::While(_)
            | Expr::Func(_) => {}
        }
    }
    Ok(rewriter.finish()?)
}

/// Calls a kernel that copies an image into a layout.
fn copied(
    rewriter: &mut Rewriter,
    module: &mut IRModule,
    image: ExprId,
    layout: &str,
) -> Result<ExprId> {
    let mut kernel = FunctionBuilder::new();
    *kernel.facts_mut() = rewriter.old().facts().clone();
    kernel.set_attrs(Attrs::new().with("Primitive", 1));
    let param = kernel.param("p0", rewriter.built().ty(image).clone());
    // The order of the axes stays: how elements are stored, the layouts of the call say.
    let order = "NCHW".to_owned();
    let attrs = LayoutTransformAttrs { src_layout: order.clone(), dst_layout: order };
    let copy = call_with(&mut kernel, &LAYOUT_TRANSFORM, &[param], &attrs)?;
    let kernel = kernel.finish(copy);
    let (global, ty) = (module.fresh_global("fused_layout_transform"), kernel.func_type());
    module.insert(global.clone(), Definition::Graph(kernel));
    let b = rewriter.builder();
    let callee = Callee::Expr(b.global(global, ty));
    let attrs = Attrs::new().with(LAYOUTS, vec![layout]);
    Ok(b.push(Expr::Call(Call { callee, args: vec![Some(image)], attrs }))?)
}

/// How a tensor is read.
#[derive(Clone, Copy, Default, Debug)]
struct Reads {
    /// By convolutions that go over blocks of channels.
    conv: bool,
    /// By something that takes it dense.
    dense: bool,
}

impl Reads {
    const DENSE: Reads = Reads { conv: false, dense: true };
}

impl Demand for Reads {
    fn merge(&mut self, other: &Reads) {
        self.conv |= other.conv;
        self.dense |= other.dense;
    }
}

/// What layouts depend on in a kernel's function.
struct Kernel {
    /// How each parameter is read, tuples flattened.
    params: Vec<Reads>,
    /// Whether a convolution makes blocks, even of planes.
    makes_blocks: bool,
    /// Which parameters are images of a convolution by Winograd's algorithm, which takes and makes blocks
    /// alone, or are as large as its result; none if there is no such convolution.
    images: Vec<bool>,
}

impl Kernel {
    fn of(function: &Function, packing: Machine) -> Result<Kernel> {
        let mut params = Vec::new();
        // The first tensor of each parameter.
        let mut first: SecondaryMap<ExprId, Option<usize>> = SecondaryMap::new();
        for &param in function.params() {
            first[param] = Some(params.len());
            params.resize(params.len() + tensor_types(function.ty(param)).len(), Reads::default());
        }
        let param_of = |arg: ExprId| match function.expr(arg) {
            Expr::TupleGet { tuple, index } => Some(first[*tuple]? + *index as usize),
            _ => first[arg],
        };
        let mut makes_blocks = false;
        let mut images = Vec::new();
        let mut is_view = true;
        let live = function.live();
        for (_, data) in function.iter().filter(|(id, _)| live[*id]) {
            let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = &data.expr else {
                continue;
            };
            let is = |defs: &[&_]| defs.iter().any(|def| op.is(def));
            is_view &= is(&[&RESHAPE, &SQUEEZE, &EXPAND_DIMS]);
            let mut read = |arg: usize, reads: Reads| {
                let param = args.get(arg).copied().flatten().and_then(param_of);
                if let Some(param) = param.and_then(|param| params.get_mut(param)) {
                    param.merge(&reads);
                }
            };
            if is(&[&CONV2D]) && op.is_plain(attrs) {
                let ConvAttrs { groups, strides, .. } = attrs.parse()?;
                let extents = |id| extents(function, function.ty(id));
                let weight = args.get(1).copied().flatten().and_then(extents);
                let (Some(weight), Some(output)) = (weight, self::extents(function, &data.ty))
                else {
                    continue;
                };
                let image = args[0].and_then(|image| function.ty(image).as_tensor());
                let dtype = image.map_or(DType::F32, |image| image.dtype);
                let along_rows =
                    goes_along_rows(&weight, &output, groups, &strides, dtype, packing);
                makes_blocks |= !along_rows;
                // An image in blocks is copied into planes, which takes less than what makes planes of
                // it for others. Channels that are lanes on both sides are in blocks as well.
                let in_lanes = goes_by_lanes(&weight, groups, dtype);
                let is_any = along_rows && groups == 1;
                let in_blocks = groups == 1 || reads_blocks(&weight, groups, dtype);
                let conv = in_blocks && (!along_rows || in_lanes);
                read(0, Reads { conv, dense: !conv && !is_any });
            } else if is(&[&CONV2D_WINOGRAD]) {
                makes_blocks = true;
                let image = args.first().copied().flatten();
                let is_image = |&param: &ExprId| {
                    let ty = function.ty(param).as_tensor().filter(|ty| can_be_blocked(ty));
                    ty.is_some_and(|ty| Some(param) == image || Type::from(ty.clone()) == data.ty)
                };
                images = function.params().iter().map(is_image).collect();
                read(0, Reads { conv: true, dense: false });
            } else if is(&[&MATMUL, &DENSE]) {
                read(0, Reads::DENSE);
                read(1, Reads::DENSE);
            } else if goes_along_channels(*op, attrs)
                && let Some(image) = args.first().copied().flatten()
            {
                // Places of planes are lanes; those of a block would have to be put together. It may be
                // what is computed of an image of that size.
                let image = tensor_types(function.ty(image));
                let types = function.params().iter().flat_map(|&id| tensor_types(function.ty(id)));
                for (param, ty) in params.iter_mut().zip(types) {
                    if image.iter().any(|image| image.shape == ty.shape) {
                        param.merge(&Reads::DENSE);
                    }
                }
            }
        }
        if is_view || Truncation::of(function, function.result()).is_some() {
            params.fill(Reads::DENSE);
        }
        Ok(Kernel { params, makes_blocks, images })
    }
}

/// Whether an operator goes over the channels of each place of an image, and not over the places.
fn goes_along_channels(op: Op, attrs: &Attrs) -> bool {
    let axes = if op.is(&SOFTMAX) || op.is(&LOG_SOFTMAX) {
        attrs.parse().map(|SoftmaxAttrs { axis }| vec![axis])
    } else if op.is(&ARGMAX) || op.is(&ARGMIN) {
        attrs.parse().map(|ArgReduceAttrs { axis, .. }| vec![axis])
    } else if op.pattern == OpPattern::CommReduce {
        attrs.parse().map(|ReduceAttrs { axis, .. }| axis)
    } else {
        return false;
    };
    // Of images, which have four axes.
    let is = |axis: i64| axes.iter().flatten().any(|&along| along.rem_euclid(4) == axis);
    is(1) && !(is(2) && is(3))
}

/// The extents of a tensor, the greatest ones if a run says what they are.
fn extents(function: &Function, ty: &Type) -> Option<Vec<i64>> {
    let greatest = |dim: &Dim| dim.as_const().or_else(|| function.facts().bounds_of(dim).upper);
    ty.as_tensor()?.shape.iter().map(greatest).collect()
}
