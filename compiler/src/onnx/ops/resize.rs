//! Resizing of images.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::tensor::{
    CoordinateTransformation, NearestRounding, RESIZE2D, Resize2dAttrs, ResizeMethod, fraction,
};

/// The coefficient of cubic convolution unless a node says otherwise.
const CUBIC_ALPHA: f64 = -0.75;

/// How large the result is, for each axis of the input.
struct Sizes {
    dims: Vec<Dim>,
    /// The factors, if they were given and not the sizes.
    scales: Option<Vec<f64>>,
}

/// `Resize`-10 (by scales, as `Upsample`), -11 (modes, sizes), -13 (without `tf_half_pixel_for_nn`, which
/// exporters and ONNX Runtime still know), -18 (`antialias`, `axes`,
/// `keep_aspect_ratio_policy`), -19 (`half_pixel_symmetric`).
pub(super) fn resize(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let method = method(node)?;
    if node.version < 11 {
        let scales = node.floats_input(1)?.ok_or_else(|| missing("scales"))?;
        return resize_10(node, x, scales, method);
    }
    let coordinates = match node.attrs.string("coordinate_transformation_mode")? {
        None | Some("half_pixel") => CoordinateTransformation::HalfPixel,
        Some("pytorch_half_pixel") => CoordinateTransformation::PytorchHalfPixel,
        Some("align_corners") => CoordinateTransformation::AlignCorners,
        Some("asymmetric") => CoordinateTransformation::Asymmetric,
        Some("half_pixel_symmetric") if node.version >= 19 => {
            CoordinateTransformation::HalfPixelSymmetric
        }
        Some("tf_half_pixel_for_nn") => CoordinateTransformation::TfHalfPixelForNn,
        Some("tf_crop_and_resize") => CoordinateTransformation::TfCropAndResize,
        Some(other) => return Err(unsupported("coordinate_transformation_mode", other)),
    };
    let rounding = match node.attrs.string("nearest_mode")? {
        None | Some("round_prefer_floor") => NearestRounding::RoundPreferFloor,
        Some("round_prefer_ceil") => NearestRounding::RoundPreferCeil,
        Some("floor") => NearestRounding::Floor,
        Some("ceil") => NearestRounding::Ceil,
        Some(other) => return Err(unsupported("nearest_mode", other)),
    };
    let beyond = node.attrs.float("extrapolation_value")?.unwrap_or(0.0);
    let crops = coordinates == CoordinateTransformation::TfCropAndResize;
    let attrs = Resize2dAttrs {
        coordinate_transformation_mode: coordinates,
        rounding_method: rounding,
        cubic_alpha: node.attrs.float("cubic_coeff_a")?.unwrap_or(CUBIC_ALPHA),
        cubic_exclude: node.attrs.flag("exclude_outside", false)?,
        antialias: node.version >= 18 && node.attrs.flag("antialias", false)?,
        extrapolation_value: if crops { beyond } else { 0.0 },
        ..upsample_attrs(method)
    };
    let mut policy = None;
    let mut axes: Vec<usize> = (0..shape.rank()).collect();
    if node.version >= 18 {
        policy = match node.attrs.string("keep_aspect_ratio_policy")? {
            None | Some("stretch") => None,
            Some("not_larger") => Some(f64::min as fn(f64, f64) -> f64),
            Some("not_smaller") => Some(f64::max as fn(f64, f64) -> f64),
            Some(other) => return Err(unsupported("keep_aspect_ratio_policy", other)),
        };
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
            match policy {
                Some(choose) => in_proportion(&shape, &axes, &sizes, choose)?,
                None => {
                    let mut dims = shape.to_vec();
                    axes.iter().zip(sizes).for_each(|(&axis, size)| dims[axis] = size);
                    Sizes { dims, scales: None }
                }
            }
        }
        (None, None) => return Err(NodeError::new("neither scales nor sizes are given")),
    };
    let region = match node.floats_input(1)? {
        Some(ends) if crops => {
            if ends.len() != 2 * axes.len() {
                return Err(wrong_length("starts and ends of the region `roi`", ends.len()));
            }
            let mut region = vec![[0.0, 1.0]; shape.rank()];
            for (position, &axis) in axes.iter().enumerate() {
                region[axis] = [ends[position], ends[position + axes.len()]];
            }
            Some(region)
        }
        None if crops => return Err(missing("roi")),
        _ => None,
    };
    resized(node, x, &shape, sizes, region, attrs)
}

/// The sizes by one factor for all axes, the least or greatest that the sizes ask for.
fn in_proportion(
    shape: &Shape,
    axes: &[usize],
    sizes: &[Dim],
    choose: fn(f64, f64) -> f64,
) -> Result<Sizes, NodeError> {
    let known = |dim: &Dim| {
        dim.as_const().filter(|&extent| extent > 0).ok_or_else(|| {
            NodeError::new(format!(
                "dimension {dim} must be known, and have elements, to be resized by \
                 `keep_aspect_ratio_policy`"
            ))
            .pin([dim])
        })
    };
    let mut factor: Option<f64> = None;
    for (&axis, size) in axes.iter().zip(sizes) {
        let wanted = known(size)? as f64 / known(&shape[axis])? as f64;
        factor = Some(factor.map_or(wanted, |factor| choose(factor, wanted)));
    }
    let factor = factor.unwrap_or(1.0);
    let (mut dims, mut scales) = (shape.to_vec(), vec![1.0; shape.rank()]);
    for &axis in axes {
        dims[axis] = Dim::from((factor * known(&shape[axis])? as f64 + 0.5).floor() as i64);
        scales[axis] = factor;
    }
    Ok(Sizes { dims, scales: Some(scales) })
}

/// `Resize`-10, whose nearest pixel is the next one along axes that shrink, and the one before along others.
fn resize_10(
    node: &mut Node<'_, '_>,
    mut x: ExprId,
    mut scales: Vec<f64>,
    method: ResizeMethod,
) -> Result<Outputs, NodeError> {
    let attrs = upsample_attrs(method);
    if method == ResizeMethod::NearestNeighbor && scales.iter().any(|&scale| scale < 1.0) {
        let shape = node.shape(x)?;
        let sizes = scaled(&shape, scales.iter().map(|scale| scale.min(1.0)).collect())?;
        let attrs = Resize2dAttrs { rounding_method: NearestRounding::Ceil, ..attrs.clone() };
        let results = resized(node, x, &shape, sizes, None, attrs)?;
        if scales.iter().all(|&scale| scale <= 1.0) {
            return Ok(results);
        }
        let [result] = results[..] else { return Ok(results) };
        x = result;
        scales.iter_mut().for_each(|scale| *scale = scale.max(1.0));
    }
    let shape = node.shape(x)?;
    let sizes = scaled(&shape, scales)?;
    resized(node, x, &shape, sizes, None, attrs)
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
    resized(node, x, &shape, sizes, None, upsample_attrs(method))
}

pub(super) fn unsupported(name: &str, value: &str) -> NodeError {
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
        antialias: false,
        roi: None,
        extrapolation_value: 0.0,
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
    let dims =
        shape.iter().zip(&scales).map(|(dim, &scale)| match (dim.as_const(), fraction(scale)) {
            (Some(extent), _) => Ok(Dim::from((extent as f64 * scale).floor() as i64)),
            (None, Some((numerator, denominator))) => {
                Ok((dim * Dim::from(numerator)).floor_div(&Dim::from(denominator)))
            }
            (None, None) => Err(NodeError::new(format!(
                "dimension {dim} must be known to be scaled by {scale}"
            ))
            .pin([dim])),
        });
    Ok(Sizes { dims: dims.collect::<Result<_, _>>()?, scales: Some(scales) })
}

/// Calls the operator for the two innermost axes, then for each other axis that changes: along an
/// axis, nothing depends on the others.
fn resized(
    node: &mut Node<'_, '_>,
    x: ExprId,
    shape: &Shape,
    sizes: Sizes,
    region: Option<Vec<[f64; 2]>>,
    attrs: Resize2dAttrs,
) -> Result<Outputs, NodeError> {
    let Sizes { dims, scales } = sizes;
    let rank = shape.rank();
    let of_axis = |axis: usize| {
        let ends = region.as_ref().map(|region| region[axis]);
        (scales.as_ref().map(|scales| scales[axis]), ends)
    };
    let mut left: Vec<usize> = (0..rank)
        .filter(|&axis| {
            let (scale, ends) = of_axis(axis);
            dims[axis] != shape[axis]
                || scale.is_some_and(|scale| (scale - 1.0).abs() > 0.0)
                || ends.is_some_and(|ends| ends != [0.0, 1.0])
        })
        .collect();
    if left.is_empty() {
        return Ok(vec![x]);
    }
    let dtype = node.tensor(x)?.dtype;
    let by_weights = attrs.method != ResizeMethod::NearestNeighbor;
    let mut result = x;
    if by_weights && !dtype.is_float() {
        result = node.cast(result, DType::F32)?;
    }
    let one = Dim::from(1i64);
    let mut now = shape.to_vec();
    while let Some(last) = left.pop() {
        // The axes that are rows and columns; without columns, all behind the rows are.
        let (row, column) = if last + 1 == rank {
            left.pop_if(|axis| *axis + 2 == rank);
            (last.checked_sub(1), Some(last))
        } else {
            (Some(last), None)
        };
        let before = row.unwrap_or(0);
        let image = |now: &[Dim]| {
            let height = row.map_or_else(|| one.clone(), |axis| now[axis].clone());
            let width = now[row.map_or(0, |axis| axis + 1)..].iter().product();
            match (before, rank) {
                (2, 4) => [now[0].clone(), now[1].clone(), height, width],
                _ => [one.clone(), now[..before].iter().product(), height, width],
            }
        };
        let from = image(&now);
        for axis in row.into_iter().chain(column) {
            now[axis] = dims[axis].clone();
        }
        let [.., height, width] = image(&now);
        let pair = [row, column].map(|axis| axis.map_or((Some(1.0), None), of_axis));
        let scale = match pair {
            [(Some(rows), _), (Some(columns), _)] => Some([rows, columns]),
            _ => None,
        };
        let roi = region.is_some().then(|| {
            let [rows, columns] = pair.map(|(_, ends)| ends.unwrap_or([0.0, 1.0]));
            [rows[0], columns[0], rows[1], columns[1]]
        });
        let attrs = Resize2dAttrs { size: [height, width], scale, roi, ..attrs.clone() };
        result = node.reshape(result, from.to_vec())?;
        result = node.call_with(&RESIZE2D, &[result], &attrs)?;
        result = node.reshape(result, now.clone())?;
    }
    Ok(vec![node.cast(result, dtype)?])
}
