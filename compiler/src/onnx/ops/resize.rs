//! Resizing of images.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::tensor::{
    CoordinateTransformation, NearestRounding, RESIZE2D, Resize2dAttrs, ResizeMethod,
};

/// The coefficient of cubic convolution unless a node says otherwise.
const CUBIC_ALPHA: f64 = -0.75;

/// How large the result is, for each axis of the input.
struct Sizes {
    dims: Vec<Dim>,
    /// The factors, if they were given and not the sizes.
    scales: Option<Vec<f64>>,
}

/// `Resize`-10 (by scales, as `Upsample`), -11 (modes, sizes), -13, -18 (`antialias`, `axes`,
/// `keep_aspect_ratio_policy`), -19 (`half_pixel_symmetric`). Only height and width of `(N, C, H, W)`
/// may change.
pub(super) fn resize(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let method = method(node)?;
    if node.version < 11 {
        let scales = node.floats_input(1)?.ok_or_else(|| missing("scales"))?;
        let sizes = scaled(&shape, scales)?;
        return resized(node, x, &shape, sizes, upsample_attrs(method));
    }
    let coordinates = match node.attrs.string("coordinate_transformation_mode")? {
        None | Some("half_pixel") => CoordinateTransformation::HalfPixel,
        Some("pytorch_half_pixel") => CoordinateTransformation::PytorchHalfPixel,
        Some("align_corners") => CoordinateTransformation::AlignCorners,
        Some("asymmetric") => CoordinateTransformation::Asymmetric,
        Some(other) => return Err(unsupported("coordinate_transformation_mode", other)),
    };
    let rounding = match node.attrs.string("nearest_mode")? {
        None | Some("round_prefer_floor") => NearestRounding::RoundPreferFloor,
        Some("round_prefer_ceil") => NearestRounding::RoundPreferCeil,
        Some("floor") => NearestRounding::Floor,
        Some("ceil") => NearestRounding::Ceil,
        Some(other) => return Err(unsupported("nearest_mode", other)),
    };
    // What lies outside of a cropped region, which is not supported.
    node.attrs.float("extrapolation_value")?;
    let attrs = Resize2dAttrs {
        coordinate_transformation_mode: coordinates,
        rounding_method: rounding,
        cubic_alpha: node.attrs.float("cubic_coeff_a")?.unwrap_or(CUBIC_ALPHA),
        cubic_exclude: node.attrs.flag("exclude_outside", false)?,
        ..upsample_attrs(method)
    };
    let mut axes: Vec<usize> = (0..shape.rank()).collect();
    if node.version >= 18 {
        if node.attrs.flag("antialias", false)? {
            return Err(NodeError::new("attribute `antialias` 1 is not supported"));
        }
        let policy = node.attrs.string("keep_aspect_ratio_policy")?;
        if let Some(other) = policy.filter(|&policy| policy != "stretch") {
            return Err(unsupported("keep_aspect_ratio_policy", other));
        }
        if let Some(listed) = node.attrs.ints("axes")? {
            axes = node.axes(listed, shape.rank())?;
        }
    }
    // An empty list is as good as none: before -13, an input could not be left out.
    let scales = node.floats_input(2)?.filter(|scales| !scales.is_empty());
    let sizes = node.dims_input(3)?.filter(|sizes| !sizes.is_empty());
    let wrong_length = |what: &str, found: usize| {
        NodeError::new(format!("{} {what} are expected, but there are {found}", axes.len()))
    };
    let sizes = match (scales, sizes) {
        (Some(scales), _) => {
            if scales.len() != axes.len() {
                return Err(wrong_length("scales", scales.len()));
            }
            let mut all = vec![1.0; shape.rank()];
            axes.iter().zip(scales).for_each(|(&axis, scale)| all[axis] = scale);
            scaled(&shape, all)?
        }
        (None, Some(sizes)) => {
            if sizes.len() != axes.len() {
                return Err(wrong_length("sizes", sizes.len()));
            }
            let mut dims = shape.to_vec();
            axes.iter().zip(sizes).for_each(|(&axis, size)| dims[axis] = size);
            Sizes { dims, scales: None }
        }
        (None, None) => return Err(NodeError::new("neither scales nor sizes are given")),
    };
    resized(node, x, &shape, sizes, attrs)
}

/// `Upsample`-7 (scales as an attribute), -9 (as an input); `Resize` took its place in -10.
pub(super) fn upsample(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let method = method(node)?;
    let scales = match node.version {
        ..9 => node.attrs.floats("scales")?.map(|list| list.iter().map(|&s| s.into()).collect()),
        9 => node.floats_input(1)?,
        _ => return Err(NodeError::new("Upsample is not part of opset 10 and later; use Resize")),
    };
    let sizes = scaled(&shape, scales.ok_or_else(|| missing("scales"))?)?;
    resized(node, x, &shape, sizes, upsample_attrs(method))
}

fn unsupported(name: &str, value: &str) -> NodeError {
    NodeError::new(format!("attribute `{name}` `{value}` is not supported"))
}

fn method(node: &mut Node<'_, '_>) -> Result<ResizeMethod, NodeError> {
    match node.attrs.string("mode")?.unwrap_or("nearest") {
        "nearest" => Ok(ResizeMethod::NearestNeighbor),
        "linear" | "bilinear" => Ok(ResizeMethod::Linear),
        "cubic" if node.version >= 11 => Ok(ResizeMethod::Cubic),
        other => Err(unsupported("mode", other)),
    }
}

/// How `Upsample` and `Resize`-10 find places: the one below or before. The size is filled in later.
fn upsample_attrs(method: ResizeMethod) -> Resize2dAttrs {
    Resize2dAttrs {
        size: [Dim::from(0i64), Dim::from(0i64)],
        scale: None,
        method,
        coordinate_transformation_mode: CoordinateTransformation::Asymmetric,
        rounding_method: NearestRounding::Floor,
        cubic_alpha: CUBIC_ALPHA,
        cubic_exclude: false,
    }
}

/// Extents times factors, rounded down.
fn scaled(shape: &Shape, scales: Vec<f64>) -> Result<Sizes, NodeError> {
    if scales.len() != shape.rank()
        || scales.iter().any(|scale| !(scale.is_finite() && *scale > 0.0))
    {
        return Err(NodeError::new(format!(
            "one positive scale for each of {} dimensions is expected, but they are {scales:?}",
            shape.rank()
        )));
    }
    let dims = shape.iter().zip(&scales).map(|(dim, &scale)| {
        if scale.fract() == 0.0 && scale <= f64::from(u32::MAX) {
            return Ok(dim * Dim::from(scale as i64));
        }
        match dim.as_const() {
            Some(extent) => Ok(Dim::from((extent as f64 * scale).floor() as i64)),
            None => Err(NodeError::new(format!(
                "dimension {dim} must be known to be scaled by {scale}"
            ))
            .pin([dim])),
        }
    });
    Ok(Sizes { dims: dims.collect::<Result<_, _>>()?, scales: Some(scales) })
}

/// Calls the operator, for images `(N, C, H, W)` or rows `(N, C, W)`, which are images of height one.
fn resized(
    node: &mut Node<'_, '_>,
    x: ExprId,
    shape: &Shape,
    sizes: Sizes,
    attrs: Resize2dAttrs,
) -> Result<Outputs, NodeError> {
    let Sizes { dims, scales } = sizes;
    if dims[..] == shape[..] && scales.as_ref().is_none_or(|s| s.iter().all(|&s| s == 1.0)) {
        return Ok(vec![x]);
    }
    let spatial_only = shape.rank() >= 2
        && dims[..2] == shape[..2]
        && scales.as_ref().is_none_or(|scales| scales[..2] == [1.0, 1.0]);
    let one = Dim::from(1i64);
    match (&dims[..], &shape[..]) {
        ([_, _, height, width], _) if spatial_only => {
            let scale = scales.and_then(|scales| scales[2..].try_into().ok());
            let attrs = Resize2dAttrs { size: [height.clone(), width.clone()], scale, ..attrs };
            Ok(vec![node.call_with(&RESIZE2D, &[x], &attrs)?])
        }
        ([n, c, width], [_, _, old_width]) if spatial_only => {
            let image = vec![n.clone(), c.clone(), one.clone(), old_width.clone()];
            let image = node.reshape(x, image)?;
            let scale = scales.map(|scales| [1.0, scales[2]]);
            let attrs = Resize2dAttrs { size: [one, width.clone()], scale, ..attrs };
            let resized = node.call_with(&RESIZE2D, &[image], &attrs)?;
            Ok(vec![node.reshape(resized, dims.clone())?])
        }
        _ => Err(NodeError::new(format!(
            "only height and width of (N, C, H, W) can change, but {shape} would become {}",
            Shape::new(dims)
        ))),
    }
}
