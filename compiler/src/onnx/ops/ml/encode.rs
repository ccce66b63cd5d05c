//! Scalers and encoders of features.

use super::{floats, ints, wide};
use crate::graph::ExprId;
use crate::ir::{Constant, DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::missing;
use crate::ops::elementwise::{ABS, EQUAL, GREATER, ISNAN, LOGICAL_OR, MULTIPLY, SQRT};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs, MAX, SUM};
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs, TAKE, TakeAttrs, TakeMode};

/// What strings as input come to.
const STRINGS: &str = "encode the strings as numbers before the model";

fn only_numbers(name: &str) -> NodeError {
    NodeError::new(format!("attribute `{name}` means strings, which are not supported"))
        .help(STRINGS)
}

/// A list of one number for all columns or one for each.
fn per_column(node: &Node<'_, '_>, x: ExprId, name: &str, count: usize) -> Result<(), NodeError> {
    let rank = node.shape(x)?.rank();
    let columns = node.known_extent(x, rank.saturating_sub(1))?;
    if count == 1 || count as i64 == columns {
        return Ok(());
    }
    Err(NodeError::new(format!(
        "attribute `{name}` must have 1 number or one for each of {columns} columns, but it has {count}"
    )))
}

/// `ArrayFeatureExtractor`-1: elements of the last axis.
pub(super) fn array_feature_extractor(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, which) = (node.input(0)?, node.input(1)?);
    let count: Dim = node.shape(which)?.iter().product();
    let which = node.reshape(which, vec![count.clone()])?;
    let attrs = TakeAttrs { axis: -1, mode: TakeMode::Fast };
    let y = node.call_with(&TAKE, &[x, which], &attrs)?;
    if node.shape(y)?.rank() == 1 {
        return Ok(vec![node.reshape(y, vec![Dim::from(1i64), count])?]);
    }
    Ok(vec![y])
}

/// `Binarizer`-1: one where an element is above the threshold.
pub(super) fn binarizer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let threshold = node.attrs.float("threshold")?.unwrap_or(0.0);
    let x = node.input(0)?;
    let dtype = node.tensor(x)?.dtype;
    let above = node.with_scalar(&GREATER, x, threshold)?;
    Ok(vec![node.cast(above, dtype)?])
}

/// `FeatureVectorizer`-1: columns side by side, as floats.
pub(super) fn feature_vectorizer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let widths = node.attrs.ints("inputdimensions")?.unwrap_or_default();
    let inputs = node.all_inputs()?;
    if !widths.is_empty() && widths.len() != inputs.len() {
        return Err(NodeError::new(format!(
            "attribute `inputdimensions` must have a width for each of {} inputs, but it is {widths:?}",
            inputs.len()
        )));
    }
    let mut columns = Vec::with_capacity(inputs.len());
    for (index, x) in inputs.into_iter().enumerate() {
        let shape = node.shape(x)?;
        let dims = match &shape[..] {
            [batch] => vec![batch.clone(), Dim::from(1i64)],
            [batch, rest @ ..] => vec![batch.clone(), rest.iter().product()],
            [] => return Err(NodeError::new(format!("input {index} must not be a scalar"))),
        };
        let x = node.reshape(x, dims)?;
        let width = node.known_extent(x, 1)?;
        if let Some(&declared) = widths.get(index)
            && declared != width
        {
            return Err(NodeError::new(format!(
                "attribute `inputdimensions` says that input {index} has {declared} columns, but it has {width}"
            )));
        }
        columns.push(node.cast(x, DType::F32)?);
    }
    Ok(vec![node.concatenate(&columns, 1)?])
}

/// `Imputer`-1: other numbers in place of one, which may be NaN.
pub(super) fn imputer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let dtype = node.tensor(x)?.dtype;
    let numbers = node.attrs.floats("imputed_value_floats")?.unwrap_or_default();
    let integers = node.attrs.ints("imputed_value_int64s")?.unwrap_or_default();
    let missing_float = node.attrs.float("replaced_value_float")?.unwrap_or(0.0);
    let missing_int = node.attrs.int("replaced_value_int64")?.unwrap_or(0);
    let (is_missing, others) = if dtype.is_float() {
        let is_missing = if missing_float.is_nan() {
            node.call(&ISNAN, &[x])?
        } else {
            node.with_scalar(&EQUAL, x, missing_float)?
        };
        per_column(node, x, "imputed_value_floats", numbers.len())?;
        let others = floats(node, &[numbers.len() as i64], &wide(numbers), dtype)?;
        (is_missing, node.cast(others, dtype)?)
    } else {
        per_column(node, x, "imputed_value_int64s", integers.len())?;
        let which = Constant::from_i64(&[], &[missing_int]);
        let which = node.constant(which.map_err(super::constant_error)?);
        let which = node.cast(which, dtype)?;
        let others = ints(node, integers)?;
        (node.call(&EQUAL, &[x, which])?, node.cast(others, dtype)?)
    };
    Ok(vec![node.choose(is_missing, others, x)?])
}

/// `Normalizer`-1: rows by their greatest element, or the sum or norm of their elements.
pub(super) fn normalizer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let norm = node.attrs.string("norm")?.unwrap_or("MAX");
    let x = node.input(0)?;
    let x = node.cast(x, DType::F32)?;
    let last = node.shape(x)?.rank().saturating_sub(1);
    let by = match norm {
        "MAX" => node.reduce(&MAX, x, [last], true)?,
        "L1" => {
            let magnitude = node.call(&ABS, &[x])?;
            node.reduce(&SUM, magnitude, [last], true)?
        }
        "L2" => {
            let square = node.multiply(x, x)?;
            let sum = node.reduce(&SUM, square, [last], true)?;
            node.call(&SQRT, &[sum])?
        }
        other => {
            return Err(NodeError::new(format!(
                "attribute `norm` must be MAX, L1 or L2, but it is `{other}`"
            )));
        }
    };
    // A row of zeros stays.
    let is_zero = node.with_scalar(&EQUAL, by, 0.0)?;
    let one = node.scalar(1.0, DType::F32)?;
    let by = node.choose(is_zero, one, by)?;
    Ok(vec![node.divide(x, by)?])
}

/// `Scaler`-1: `(x - offset)·scale`.
pub(super) fn scaler(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let offset = node.attrs.floats("offset")?.ok_or_else(|| missing("offset"))?;
    let scale = node.attrs.floats("scale")?.ok_or_else(|| missing("scale"))?;
    let x = node.input(0)?;
    let x = node.cast(x, DType::F32)?;
    per_column(node, x, "offset", offset.len())?;
    per_column(node, x, "scale", scale.len())?;
    let offset = floats(node, &[offset.len() as i64], &wide(offset), DType::F32)?;
    let scale = floats(node, &[scale.len() as i64], &wide(scale), DType::F32)?;
    let centred = node.subtract(x, offset)?;
    Ok(vec![node.call(&MULTIPLY, &[centred, scale])?])
}

/// `OneHotEncoder`-1: an axis of categories at the end. Another category than those of the list has
/// no one, which only `zeros` allows.
pub(super) fn one_hot_encoder(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    if node.attrs.strings("cats_strings")?.is_some_and(|list| !list.is_empty()) {
        return Err(only_numbers("cats_strings"));
    }
    let categories = node.attrs.ints("cats_int64s")?.ok_or_else(|| missing("cats_int64s"))?;
    // Without it ONNX Runtime fails at another category; here no run can.
    node.attrs.flag("zeros", true)?;
    let x = node.input(0)?;
    let x = node.cast(x, DType::I64)?;
    let rank = node.shape(x)?.rank() as i64;
    let column = node.call_with(&EXPAND_DIMS, &[x], &ExpandDimsAttrs { axis: vec![rank] })?;
    let categories = ints(node, categories)?;
    let is_one = node.call(&EQUAL, &[column, categories])?;
    Ok(vec![node.cast(is_one, DType::F32)?])
}

/// Keys or values of a `LabelEncoder`.
enum Labels {
    Ints(Vec<i64>),
    Floats(Vec<f64>, DType),
}

impl Labels {
    /// The list of either type; a tensor since -4.
    fn read(node: &mut Node<'_, '_>, which: &str) -> Result<Labels, NodeError> {
        let strings = format!("{which}_strings");
        if node.attrs.strings(&strings)?.is_some_and(|list| !list.is_empty()) {
            return Err(only_numbers(&strings));
        }
        let integers = node.attrs.ints(&format!("{which}_int64s"))?.filter(|list| !list.is_empty());
        let numbers =
            node.attrs.floats(&format!("{which}_floats"))?.filter(|list| !list.is_empty());
        let tensor = node.attrs.tensor(&format!("{which}_tensor"))?;
        if let Some(integers) = integers {
            return Ok(Labels::Ints(integers.to_vec()));
        }
        if let Some(numbers) = numbers {
            return Ok(Labels::Floats(wide(numbers), DType::F32));
        }
        let Some(tensor) = tensor else {
            return Err(NodeError::new(format!("no attribute gives the {which}")));
        };
        let constant = node.read_constant(tensor)?;
        let dtype = constant.ty().dtype;
        let unreadable = || NodeError::new(format!("{which} of type {dtype} are not supported"));
        if dtype.is_float() {
            let numbers = constant.to_f64_vec().ok_or_else(unreadable)?;
            return Ok(Labels::Floats(numbers, dtype));
        }
        Ok(Labels::Ints(constant.to_i64_vec().ok_or_else(unreadable)?))
    }

    fn len(&self) -> usize {
        match self {
            Labels::Ints(list) => list.len(),
            Labels::Floats(list, _) => list.len(),
        }
    }

    fn constant(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        match self {
            Labels::Ints(list) => ints(node, list),
            Labels::Floats(list, dtype) => floats(node, &[list.len() as i64], list, *dtype),
        }
    }
}

/// `LabelEncoder`-2, -4 (tensors): the value of each element's key, where it is one of the keys.
pub(super) fn label_encoder(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    if node.version < 2 {
        return Err(only_numbers("classes_strings"));
    }
    let (keys, values) = (Labels::read(node, "keys")?, Labels::read(node, "values")?);
    node.attrs.string("default_string")?;
    let default_int = node.attrs.int("default_int64")?.unwrap_or(-1);
    let default_float = node.attrs.float("default_float")?.unwrap_or(-0.0);
    let default = match node.attrs.tensor("default_tensor")? {
        Some(tensor) => {
            let constant = node.read_constant(tensor)?;
            let default = node.constant(constant);
            node.reshape(default, vec![Dim::from(1i64)])?
        }
        None => match &values {
            Labels::Ints(_) => ints(node, &[default_int])?,
            Labels::Floats(_, dtype) => floats(node, &[1], &[default_float], *dtype)?,
        },
    };
    if keys.len() != values.len() || keys.len() == 0 {
        return Err(NodeError::new(format!(
            "there are {} keys, but {} values",
            keys.len(),
            values.len()
        )));
    }
    let x = node.input(0)?;
    let rank = node.shape(x)?.rank() as i64;
    let list = keys.constant(node)?;
    let dtype = node.tensor(x)?.dtype;
    let list = node.cast(list, dtype)?;
    let column = node.call_with(&EXPAND_DIMS, &[x], &ExpandDimsAttrs { axis: vec![rank] })?;
    let mut is_key = node.call(&EQUAL, &[column, list])?;
    if dtype.is_float() && node.version >= 4 {
        // A key may be NaN, which is equal to nothing.
        let (a, b) = (node.call(&ISNAN, &[column])?, node.call(&ISNAN, &[list])?);
        let both = node.call(&crate::ops::elementwise::LOGICAL_AND, &[a, b])?;
        is_key = node.call(&LOGICAL_OR, &[is_key, both])?;
    }
    // The first key that fits, or the place behind them all.
    let found = node.cast(is_key, DType::I32)?;
    let mut dims = node.shape(column)?.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = Dim::from(1i64);
    }
    let none = node.full(1.0, DType::I32, dims)?;
    let all = node.concatenate(&[found, none], rank as usize)?;
    let attrs = ArgReduceAttrs { axis: rank, keepdims: false, select_last_index: false };
    let place = node.call_with(&ARGMAX, &[all], &attrs)?;
    let values = values.constant(node)?;
    let table = node.concatenate(&[values, default], 0)?;
    let attrs = TakeAttrs { axis: 0, mode: TakeMode::Clip };
    Ok(vec![node.call_with(&TAKE, &[table, place], &attrs)?])
}

/// `ZipMap`-1: the scores as they are, a column for each class; what the columns stand for is a table
/// of the program.
pub(super) fn zip_map(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let integers = node.attrs.ints("classlabels_int64s")?.unwrap_or_default();
    let strings = node.attrs.strings("classlabels_strings")?.unwrap_or_default();
    let numbers: Vec<String> = integers.iter().map(i64::to_string).collect();
    let labels: Vec<&str> =
        if strings.is_empty() { numbers.iter().map(String::as_str).collect() } else { strings };
    let x = node.input(0)?;
    let rank = node.shape(x)?.rank();
    let columns = node.known_extent(x, rank.saturating_sub(1))?;
    if labels.len() as i64 != columns {
        return Err(NodeError::new(format!(
            "there are {} labels for {columns} columns",
            labels.len()
        )));
    }
    node.set_labels(0, &labels);
    Ok(vec![x])
}
