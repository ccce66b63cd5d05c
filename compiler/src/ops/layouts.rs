//! Attributes that say in which layouts an operator takes its inputs.
//!
//! The functions of a definition are about tensors of the layout that calls have without them. A call in
//! other layouts is what they say of its inputs in that one, and the result in the layout of the
//! first input.

use super::compute::{Compute, ComputeError, Stages};
use super::eval::EvalCx;
use super::tensor::{LAYOUT_TRANSFORM, LayoutTransformAttrs, index_before};
use super::{EvalError, InferArg, InferCx, OpDef};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{AttrValue, Attrs, Dim, Layout, LayoutError, LayoutMap, Type};

/// A call as its operator's definition knows it.
struct Plain {
    /// For each input with an attribute its layout and that of the definition.
    moved: Vec<Option<(Layout, Layout)>>,
    /// The other attributes.
    attrs: Attrs,
}

impl OpDef {
    /// With attributes that say in which layouts the first inputs are, in their order.
    pub const fn layouts(mut self, names: &'static [&'static str]) -> OpDef {
        self.layouts = names;
        self
    }

    /// Whether a call with these attributes has its inputs in the layouts of the definition.
    pub fn is_plain(&self, attrs: &Attrs) -> bool {
        self.layouts.iter().all(|name| attrs.get(name).is_none())
    }

    fn plain(&self, attrs: &Attrs) -> Result<Plain, TypeError> {
        let mut plain =
            Plain { moved: Vec::with_capacity(self.layouts.len()), attrs: attrs.clone() };
        for name in self.layouts {
            plain.moved.push(match attrs.get(name) {
                None => None,
                Some(AttrValue::Str(text)) => {
                    let layout: Layout = text
                        .parse()
                        .map_err(|error| TypeError::new(format!("attribute `{name}`: {error}")))?;
                    let default = layout.default();
                    Some((layout, default))
                }
                Some(other) => bail!("attribute `{name}` must be a layout, but it is {other}"),
            });
            plain.attrs = plain.attrs.without(name);
        }
        Ok(plain)
    }
}

impl Plain {
    /// How an input becomes one of the definition.
    fn input(&self, index: usize) -> Result<Option<LayoutMap>, LayoutError> {
        let Some(Some((layout, default))) = self.moved.get(index) else { return Ok(None) };
        LayoutMap::new(layout, default).map(Some)
    }

    /// How a result of the definition becomes one of the call.
    fn result(&self) -> Result<Option<LayoutMap>, LayoutError> {
        let Some(Some((layout, default))) = self.moved.first() else { return Ok(None) };
        LayoutMap::new(default, layout).map(Some)
    }
}

/// The type of a call.
pub(crate) fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    if cx.op.is_plain(cx.attrs) {
        return (cx.op.infer)(cx);
    }
    let plain = cx.op.plain(cx.attrs)?;
    let mut types = Vec::with_capacity(cx.args.len());
    for index in 0..cx.args.len() {
        let map = plain.input(index).map_err(|error| TypeError::new(error.to_string()))?;
        let (Some(map), Some(x)) = (map, cx.optional_tensor(index)?) else {
            types.push(None);
            continue;
        };
        match map.shape(&x.shape) {
            Ok(shape) => types.push(Some(cx.result(shape, x.dtype)?)),
            Err(error) => bail!("input `{}` is {x}: {error}", cx.input_name(index)),
        }
    }
    let args = cx.args.iter().zip(&types).map(|(arg, ty)| match ty {
        Some(ty) => arg.map(|_| InferArg { ty, shape_value: None, constant: None }),
        None => *arg,
    });
    let args: Vec<Option<InferArg<'_>>> = args.collect();
    let ty = (cx.op.infer)(&InferCx { args: &args, attrs: &plain.attrs, ..*cx })?;
    let map = plain.result().map_err(|error| TypeError::new(error.to_string()))?;
    let (Some(map), Some(result)) = (map, ty.as_tensor()) else { return Ok(ty) };
    match map.shape(&result.shape) {
        Ok(shape) => cx.result(shape, result.dtype),
        Err(error) => bail!("the result is {result}: {error}"),
    }
}

/// The value of a call whose type the relation has found.
pub(super) fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (def, attrs) = (cx.op(), cx.attributes());
    if def.is_plain(attrs) {
        return (def.eval)(cx);
    }
    let plain = def.plain(attrs)?;
    let transform = |x: &Tensor, from: &Layout, to: &Layout| {
        let (src_layout, dst_layout) = (from.to_string(), to.to_string());
        let attrs = Attrs::from_struct(&LayoutTransformAttrs { src_layout, dst_layout });
        let attrs = attrs.map_err(|error| EvalError(error.to_string()))?;
        LAYOUT_TRANSFORM.evaluate(&attrs, &[Some(x)])
    };
    let mut moved = Vec::with_capacity(plain.moved.len());
    for (index, layouts) in plain.moved.iter().enumerate() {
        moved.push(match (layouts, cx.optional(index)) {
            (Some((layout, default)), Some(x)) => transform(x, layout, default)?,
            _ => Vec::new(),
        });
    }
    let args: Vec<Option<&Tensor>> = (0..def.inputs.len())
        .map(|index| moved.get(index).and_then(|x| x.first()).or_else(|| cx.optional(index)))
        .collect();
    let results = def.evaluate(&plain.attrs, &args)?;
    match (plain.moved.first(), results.as_slice()) {
        (Some(Some((layout, default))), [result]) => transform(result, default, layout),
        _ => Ok(results),
    }
}

/// The tensor expression of a call: the definition's, with stages that move elements around it.
pub(crate) fn compute(cx: &mut Compute<'_>) -> Stages {
    let def = cx.op.definition();
    if def.is_plain(cx.attrs) {
        return (def.compute)(cx);
    }
    let plain = def.plain(cx.attrs)?;
    let error = |error: LayoutError| ComputeError(error.to_string());
    let mut args = cx.args.to_vec();
    for (index, arg) in args.iter_mut().enumerate() {
        let (Some(map), Some(x)) = (plain.input(index).map_err(error)?, *arg) else { continue };
        let shape = extents(&map, cx.dag.shape(x)).map_err(error)?;
        let dtype = cx.dag.dtype(x);
        *arg = Some(cx.dag.compute(LAYOUT_TRANSFORM.name, &shape, dtype, |dag, index| {
            let at = index_before(&map, index);
            dag.at(x, &at)
        }));
    }
    let (mut shape, dtype) = cx.result();
    if let Some(map) = plain.input(0).map_err(error)? {
        shape = extents(&map, &shape).map_err(error)?;
    }
    let (results, attrs) = ([(shape, dtype)], &plain.attrs);
    let call = &mut Compute {
        dag: cx.dag,
        op: cx.op,
        attrs,
        args: &args,
        results: &results,
        open_axes: cx.open_axes,
        open_args: cx.open_args,
        sizes: cx.sizes,
        in_place: false,
    };
    let stages = (def.compute)(call)?;
    match (plain.result().map_err(error)?, stages.as_slice()) {
        (Some(map), &[stage]) => cx.element(|dag, index| dag.at(stage, &index_before(&map, index))),
        _ => Ok(stages),
    }
}

/// The extents after a map of a tensor of these extents.
fn extents(map: &LayoutMap, shape: &[i64]) -> Result<Vec<i64>, LayoutError> {
    let dims: Vec<Dim> = shape.iter().copied().map(Dim::from).collect();
    Ok(map.shape(&dims)?.iter().filter_map(Dim::as_const).collect())
}
