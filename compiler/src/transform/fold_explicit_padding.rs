//! Pads that the window behind them can have itself.

use super::calls::{call_of, op_of, uniform_of};
use crate::graph::{Call, ExprId, Function, FunctionBuilder, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::ops::Op;
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, AvgPoolAttrs, CONV1D, CONV2D, CONV3D, ConvAttrs,
    MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MaxPoolAttrs, PAD, PadAttrs, PadMode,
};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Folds `nn.pad` into the convolution or the pool behind it.
///
/// `conv(pad(x))` becomes a `conv(x)` with more padding.
/// The pad must be along spatial axes alone and of what the window takes for padding: zeros, or the
/// zero point of a quantised image, for convolutions; zeros that count for means; the least value for
/// maxima.
#[function_pass(opt_level = 0, required = [InferType])]
pub fn fold_explicit_padding(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some((op, window)) = op_of(old.expr(id)) else { continue };
        let mut args = rewriter.args(window);
        let Some(&Some(padded)) = args.first() else { continue };
        let b = rewriter.builder();
        let Some(pad) = Pad::of(b, padded)? else { continue };
        let Some(attrs) = pad.folded_into(op, &window.attrs)? else { continue };
        args[0] = Some(pad.x);
        // A window may be too small for so much padding.
        match b.call_optional(op, args, attrs) {
            Ok(new) if b.ty(new) == old.ty(id) => {
                rewriter.replace(new);
                cx.count("pads", 1);
            }
            _ => cx.missed(id, "the window does not take as much padding"),
        }
    }
    Ok(rewriter.finish()?)
}

/// A pad of one element along spatial axes.
struct Pad {
    x: ExprId,
    /// Elements before each spatial axis, then after each.
    padding: Vec<i64>,
    fill: f64,
}

impl Pad {
    fn of(b: &FunctionBuilder, id: ExprId) -> Result<Option<Pad>> {
        let Some(Call { args, attrs, .. }) = call_of(b, id, &PAD) else { return Ok(None) };
        let PadAttrs { pad_width, mode } = attrs.parse()?;
        let fill = match args.get(1).copied().flatten() {
            None => Some(0.0),
            Some(fill) => uniform_of(b, fill),
        };
        let (Some(&Some(x)), Some(fill)) = (args.first(), fill) else { return Ok(None) };
        let [[0, 0], [0, 0], spatial @ ..] = pad_width.as_slice() else { return Ok(None) };
        if mode != PadMode::Constant || spatial.iter().flatten().any(|&width| width < 0) {
            return Ok(None);
        }
        let side = |side: usize| spatial.iter().map(move |width| width[side]);
        Ok(Some(Pad { x, padding: side(0).chain(side(1)).collect(), fill }))
    }

    /// The attributes of a window that has this padding around its own.
    fn folded_into(&self, op: Op, attrs: &Attrs) -> Result<Option<Attrs>> {
        if !op.is_plain(attrs) {
            return Ok(None);
        }
        let is_any = |defs: [&crate::ops::OpDef; 3]| defs.iter().any(|def| op.is(def));
        if is_any([&CONV1D, &CONV2D, &CONV3D]) {
            let mut conv: ConvAttrs = attrs.parse()?;
            let own = conv.padding.iter().any(|&padding| padding != 0);
            // Without padding of its own, a convolution of integers may be padded with anything.
            if own || self.fill == 0.0 {
                if self.fill != conv.pad_value as f64 {
                    return Ok(None);
                }
            } else if self.fill.fract() != 0.0 || self.fill.abs() > 1e9 {
                return Ok(None);
            }
            conv.pad_value = self.fill as i64;
            conv.padding = self.around(&conv.padding);
            return Ok(Some(Attrs::from_struct(&conv)?));
        }
        if is_any([&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D]) {
            let mut pool: AvgPoolAttrs = attrs.parse()?;
            let counts = pool.count_include_pad || pool.padding.iter().all(|&padding| padding == 0);
            if self.fill != 0.0 || !counts || pool.ceil_mode {
                return Ok(None);
            }
            pool.count_include_pad = true;
            pool.padding = self.around(&pool.padding);
            return Ok(Some(Attrs::from_struct(&pool)?));
        }
        if is_any([&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D]) {
            let mut pool: MaxPoolAttrs = attrs.parse()?;
            if self.fill != f64::NEG_INFINITY || pool.ceil_mode {
                return Ok(None);
            }
            pool.padding = self.around(&pool.padding);
            return Ok(Some(Attrs::from_struct(&pool)?));
        }
        Ok(None)
    }

    fn around(&self, own: &[i64]) -> Vec<i64> {
        own.iter().zip(&self.padding).map(|(own, more)| own.saturating_add(*more)).collect()
    }
}
