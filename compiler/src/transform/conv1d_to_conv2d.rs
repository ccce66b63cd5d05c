//! Convolutions along one axis, along two.

use std::collections::BTreeMap;

use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::ops::nn::{CONV1D, CONV2D, ConvAttrs};
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs, SQUEEZE, SqueezeAttrs};
use crate::ops::{Op, OpPattern};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Makes `nn.conv1d` an `nn.conv2d` of images of height 1, which strategies know a schedule for.
///
/// What is computed of its result element by element gets the height as well, so that it can be
/// fused, and a convolution that follows takes it as it is. Elsewhere the height is squeezed away.
#[function_pass(opt_level = 1, required = [InferType])]
pub fn conv1d_to_conv2d(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut images = Images {
        rewriter: Rewriter::new(function),
        computed: BTreeMap::new(),
        expanded: BTreeMap::new(),
    };
    while let Some(id) = images.rewriter.next_expr()? {
        let old = images.rewriter.old().clone();
        let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = old.expr(id) else {
            continue;
        };
        let scope = old.data_of(id).scope.as_u32();
        let image = if op.is(&CONV1D) && op.is_plain(attrs) {
            cx.count("convolutions", 1);
            Some(images.convolution(args, attrs, scope)?)
        } else {
            images.element_wise(id, *op, args, attrs, scope)?
        };
        let Some(image) = image else { continue };
        images.computed.insert((id, scope), image);
        let attrs = Attrs::from_struct(&SqueezeAttrs { axis: vec![2] })?;
        let squeezed = images.rewriter.builder().call(Op::new(&SQUEEZE), &[image], attrs)?;
        images.rewriter.replace(squeezed);
    }
    Ok(images.rewriter.finish()?)
}

/// Values of the old function with a height of 1 before their last axis, in the new one, by the
/// scope in which they are.
struct Images {
    rewriter: Rewriter,
    /// Those that are computed so.
    computed: BTreeMap<(ExprId, u32), ExprId>,
    /// Those that are another shape of a value.
    expanded: BTreeMap<(ExprId, u32), ExprId>,
}

impl Images {
    fn convolution(
        &mut self,
        args: &[Option<ExprId>],
        attrs: &Attrs,
        scope: u32,
    ) -> Result<ExprId> {
        let line: ConvAttrs = attrs.parse()?;
        // The height: one window of one tap.
        let with_height = |of_height: i64, of_width: &[i64]| [&[of_height], of_width].concat();
        let (before, after) = line.padding.split_at(line.padding.len() / 2);
        let attrs = ConvAttrs {
            strides: with_height(1, &line.strides),
            padding: [with_height(0, before), with_height(0, after)].concat(),
            dilation: with_height(1, &line.dilation),
            ..line.clone()
        };
        let mut given = Vec::with_capacity(args.len());
        for (position, arg) in args.iter().enumerate() {
            given.push(match arg {
                Some(arg) if position < 2 => Some(self.image(*arg, scope)?),
                arg => arg.map(|arg| self.rewriter.mapped(arg)),
            });
        }
        let attrs = Attrs::from_struct(&attrs)?;
        Ok(self.rewriter.builder().call_optional(Op::new(&CONV2D), given, attrs)?)
    }

    /// An element-wise call of something that is computed as an image.
    fn element_wise(
        &mut self,
        id: ExprId,
        op: Op,
        args: &[Option<ExprId>],
        attrs: &Attrs,
        scope: u32,
    ) -> Result<Option<ExprId>> {
        let follows = matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast)
            && args.iter().flatten().any(|&arg| self.computed.contains_key(&(arg, scope)));
        // Attributes that are about axes or extents are about those of the value, not of the image.
        let is_about_axes = ["axis", "shape"].iter().any(|name| attrs.get(name).is_some());
        if !follows || is_about_axes || self.rank(id) != Some(3) {
            return Ok(None);
        }
        let mut given = Vec::with_capacity(args.len());
        for arg in args {
            given.push(match arg {
                Some(arg) => Some(self.image(*arg, scope)?),
                None => None,
            });
        }
        Ok(Some(self.rewriter.builder().call_optional(op, given, attrs.clone())?))
    }

    fn rank(&self, id: ExprId) -> Option<usize> {
        self.rewriter.old().ty(id).as_tensor().map(|ty| ty.shape.rank())
    }

    /// A value as an image, or as what is broadcast to one.
    fn image(&mut self, id: ExprId, scope: u32) -> Result<ExprId> {
        let known = self.computed.get(&(id, scope)).or_else(|| self.expanded.get(&(id, scope)));
        if let Some(&image) = known {
            return Ok(image);
        }
        let value = self.rewriter.mapped(id);
        let image = match self.rank(id) {
            Some(rank @ 2..) => {
                let attrs = Attrs::from_struct(&ExpandDimsAttrs { axis: vec![rank as i64 - 1] })?;
                self.rewriter.builder().call(Op::new(&EXPAND_DIMS), &[value], attrs)?
            }
            _ => value,
        };
        self.expanded.insert((id, scope), image);
        Ok(image)
    }
}
