//! Pixels that nobody reads, left out where they are computed.

use cranelift_entity::SecondaryMap;

use super::calls::{call_with, extents, op_of};
use crate::graph::{Call, ExprId, Function, Rewriter};
use crate::ir::{AttrValue, Attrs, IRModule};
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, AvgPoolAttrs, CONV1D, CONV2D, CONV3D, ConvAttrs,
    MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MaxPoolAttrs,
};
use crate::ops::tensor::{STRIDED_SLICE, StridedSliceAttrs};
use crate::ops::{Op, OpDef, OpPattern};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Moves strides up, as OpenVINO's pass of this name does.
///
/// A 1x1 convolution with strides reads one pixel of several. Where all readers of a tensor leave out
/// the same pixels, the window that computes it, a convolution or a pool, takes their strides:
/// `conv(relu(conv(x, w)), v, strides=[2, 2])`, where `v` has one tap, becomes
/// `conv(relu(conv(x, w, strides=[2, 2])), v)`. Between the two may be element-wise operators, whose
/// other operands become slices. The last block of a stage of a residual network computes a quarter.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn strides_optimization(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let pixels = Pixels::of(&function)?;
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let (Some(reader), Some((op, call))) = (&pixels.readers[id], op_of(old.expr(id))) else {
            continue;
        };
        let computed = pixels.computed(id);
        let mut args = rewriter.args(call);
        let mut attrs = call.attrs.clone();
        match reader {
            Reader::Window(window) => {
                let image = call.args[0].and_then(|image| pixels.computed(image));
                if image.is_none() && computed.is_none() {
                    continue;
                }
                let step =
                    |steps: Option<&Steps>, axis: usize| steps.map_or(1, |steps| steps[axis]);
                let strides = window.strides.iter().enumerate().map(|(axis, &stride)| {
                    AttrValue::from(stride * step(computed, axis) / step(image, axis))
                });
                attrs = attrs.with("strides", strides.collect::<Vec<_>>());
                cx.count("windows", u64::from(computed.is_some()));
            }
            Reader::Pointwise(operands) => {
                let Some(steps) = computed else { continue };
                for ((arg, old), operand) in args.iter_mut().zip(&call.args).zip(operands) {
                    let (Some(value), Some(old)) = (*arg, *old) else { continue };
                    if pixels.computed(old).is_none() && !operand.axes.is_empty() {
                        let slice = operand.slice(steps);
                        *arg =
                            Some(call_with(rewriter.builder(), &STRIDED_SLICE, &[value], &slice)?);
                    }
                }
            }
        }
        let new = rewriter.builder().call_optional(op, args, attrs)?;
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}

/// Greatest stride that is moved, by itself or with those behind it: products of two fit into 64 bits.
const MOST_PIXELS: i64 = 1 << 20;

/// Of how many pixels along each spatial axis the first is read.
type Steps = Vec<i64>;

/// Which pixels of tensors are read, and which are computed.
struct Pixels {
    readers: SecondaryMap<ExprId, Option<Reader>>,
    /// What all readers of a tensor leave of it; `None` for the whole.
    read: SecondaryMap<ExprId, Option<Steps>>,
    /// Whether no more than that is computed.
    is_reduced: SecondaryMap<ExprId, bool>,
}

impl Pixels {
    fn of(function: &Function) -> Result<Pixels> {
        let live = function.live();
        let ids = || function.ids().filter(|&id| live[id]);
        let mut pixels = Pixels {
            readers: SecondaryMap::new(),
            read: SecondaryMap::new(),
            is_reduced: SecondaryMap::new(),
        };
        for id in ids() {
            pixels.readers[id] = Reader::of(function, id)?;
        }
        let mut is_read = SecondaryMap::new();
        pixels.add(&mut is_read, function.result(), None);
        for scope in ids().flat_map(|id| function.expr(id).scopes()) {
            pixels.add(&mut is_read, function.scope(scope).result, None);
        }
        for id in ids().rev() {
            let own = pixels.read[id].clone();
            let reader = pixels.readers[id].take();
            match (&reader, function.expr(id).as_call()) {
                (Some(reader), Some(call)) => {
                    for (position, arg) in call.args.iter().enumerate() {
                        let Some(arg) = *arg else { continue };
                        pixels.add(&mut is_read, arg, reader.reads(position, own.as_ref()));
                    }
                }
                _ => {
                    for operand in function.expr(id).operands() {
                        pixels.add(&mut is_read, operand, None);
                    }
                }
            }
            pixels.readers[id] = reader;
        }
        for id in ids().filter(|&id| pixels.read[id].is_some()) {
            pixels.is_reduced[id] = match pixels.readers[id] {
                Some(Reader::Window(_)) => true,
                Some(Reader::Pointwise(_)) => {
                    function.expr(id).operands().any(|operand| pixels.is_reduced[operand])
                }
                None => false,
            };
        }
        Ok(pixels)
    }

    /// One more reader of a tensor.
    fn add(&mut self, is_read: &mut SecondaryMap<ExprId, bool>, id: ExprId, steps: Option<Steps>) {
        if !std::mem::replace(&mut is_read[id], true) {
            self.read[id] = steps;
        } else if self.read[id] != steps {
            self.read[id] = None;
        }
    }

    /// What is computed of a tensor, unless it is the whole.
    fn computed(&self, id: ExprId) -> Option<&Steps> {
        self.read[id].as_ref().filter(|_| self.is_reduced[id])
    }
}

/// A call whose pixels are each of some pixels of its operands.
#[derive(Clone)]
enum Reader {
    Window(Window),
    /// An element-wise operator, with all its operands.
    Pointwise(Vec<Operand>),
}

impl Reader {
    fn of(function: &Function, id: ExprId) -> Result<Option<Reader>> {
        let Some((op, call)) = op_of(function.expr(id)) else { return Ok(None) };
        let extents_of = |id| function.ty(id).as_tensor().and_then(extents);
        let Some(result) = extents_of(id).filter(|result| result.len() > 2) else {
            return Ok(None);
        };
        if let Some(window) = Window::of(op, call, extents_of)? {
            return Ok(Some(Reader::Window(window)));
        }
        let operands: Option<Vec<Operand>> = call
            .args
            .iter()
            .map(|arg| match arg {
                Some(arg) => Operand::of(&extents_of(*arg)?, &result, &call.attrs),
                None => Some(Operand::default()),
            })
            .collect();
        let is_pointwise = matches!(op.pattern, OpPattern::ElemWise | OpPattern::Broadcast)
            && call.attrs.get("shape").is_none();
        Ok(operands.filter(|_| is_pointwise).map(Reader::Pointwise))
    }

    /// What is left of an argument, given what is left of the result.
    fn reads(&self, position: usize, result: Option<&Steps>) -> Option<Steps> {
        match self {
            Reader::Window(window) if position == 0 => window.reads(result),
            Reader::Pointwise(operands) if operands[position].is_image => result.cloned(),
            _ => None,
        }
    }
}

/// A convolution or a pool.
#[derive(Clone)]
struct Window {
    /// Along each spatial axis, whether there is one tap and no padding.
    is_one_pixel: Vec<bool>,
    strides: Steps,
}

impl Window {
    fn of(
        op: Op,
        call: &Call,
        extents_of: impl Fn(ExprId) -> Option<Vec<i64>>,
    ) -> Result<Option<Window>> {
        let is_any = |defs: [&OpDef; 3]| defs.iter().any(|def| op.is(def));
        if !op.is_plain(&call.attrs) {
            return Ok(None);
        }
        let (taps, strides, padding) = if is_any([&CONV1D, &CONV2D, &CONV3D]) {
            let weight = call.args.get(1).copied().flatten().and_then(extents_of);
            let Some([_, _, taps @ ..]) = weight.as_deref() else { return Ok(None) };
            let conv: ConvAttrs = call.attrs.parse()?;
            (taps.to_vec(), conv.strides, conv.padding)
        } else if is_any([&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D]) {
            let pool: MaxPoolAttrs = call.attrs.parse()?;
            if pool.ceil_mode {
                return Ok(None);
            }
            (pool.pool_size, pool.strides, pool.padding)
        } else if is_any([&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D]) {
            let pool: AvgPoolAttrs = call.attrs.parse()?;
            if pool.ceil_mode {
                return Ok(None);
            }
            (pool.pool_size, pool.strides, pool.padding)
        } else {
            return Ok(None);
        };
        if strides.iter().any(|&stride| stride > MOST_PIXELS) {
            return Ok(None);
        }
        let rank = taps.len();
        let is_one_pixel = taps
            .iter()
            .enumerate()
            .map(|(axis, &taps)| taps == 1 && padding[axis] == 0 && padding[axis + rank] == 0)
            .collect();
        Ok(Some(Window { is_one_pixel, strides }))
    }

    /// What is left of the argument, given what is left of the result.
    fn reads(&self, result: Option<&Steps>) -> Option<Steps> {
        let steps: Steps = (self.strides.iter().zip(&self.is_one_pixel).enumerate())
            .map(|(axis, (&stride, &is_one_pixel))| match is_one_pixel {
                true => stride * result.map_or(1, |steps| steps[axis]),
                false => 1,
            })
            .collect();
        let is_moved = steps.iter().all(|&step| step <= MOST_PIXELS);
        (is_moved && steps.iter().any(|&step| step > 1)).then_some(steps)
    }
}

/// An operand of an element-wise operator.
#[derive(Clone, Default)]
struct Operand {
    /// The spatial axes along which it is as long as the result, and how long.
    axes: Vec<(usize, i64)>,
    /// Whether it has as many axes, and is as long along all that are spatial.
    is_image: bool,
}

impl Operand {
    /// `None` if, along an axis, it is neither as long as the result nor one element, or if it is a vector
    /// along one that is spatial.
    fn of(extents: &[i64], result: &[i64], attrs: &Attrs) -> Option<Operand> {
        if extents.iter().all(|&extent| extent == 1) {
            return Some(Operand::default());
        }
        if let ([_], Some(axis)) = (extents, attrs.int("axis")) {
            let is_spatial = axis.rem_euclid(result.len() as i64) >= 2;
            return (!is_spatial).then(Operand::default);
        }
        let spatial = result.len() - 2;
        let missing = result.len().checked_sub(extents.len())?;
        let extent_of = |axis: usize| (axis + 2).checked_sub(missing).map(|dim| extents[dim]);
        let mut operand = Operand { axes: Vec::new(), is_image: missing == 0 };
        for axis in 0..spatial {
            match (extent_of(axis), result[axis + 2]) {
                (Some(extent), whole) if extent == whole => operand.axes.push((axis, extent)),
                (None | Some(1), _) => operand.is_image = false,
                _ => return None,
            }
        }
        Some(operand)
    }

    /// What is left of it.
    fn slice(&self, steps: &Steps) -> StridedSliceAttrs {
        StridedSliceAttrs {
            begin: vec![0; self.axes.len()],
            end: self.axes.iter().map(|&(_, extent)| extent).collect(),
            strides: self.axes.iter().map(|&(axis, _)| steps[axis]).collect(),
            // Counted from the end, as an operand may have fewer axes.
            axes: self.axes.iter().map(|&(axis, _)| axis as i64 - steps.len() as i64).collect(),
        }
    }
}
