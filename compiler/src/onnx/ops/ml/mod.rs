//! Operators of the domain ai.onnx.ml on numbers: what scikit-learn, LightGBM and XGBoost are
//! exported to.

mod coupling;
mod encode;
mod forest;
mod linear;
mod svm;
mod trees;

use super::{OpImport, op};
use crate::graph::ExprId;
use crate::ir::{Constant, DType, Dim, SharedBytes, TensorType};
use crate::onnx::import::{Node, NodeError};
use crate::ops::elementwise::{
    ABS, DIVIDE, EXP, GREATER, LOG, MULTIPLY, NEGATIVE, SIGMOID, SIGN, SQRT, SUBTRACT,
};
use crate::ops::nn::{SOFTMAX, SoftmaxAttrs};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs, MAX, SUM};
use crate::ops::tensor::{TAKE, TakeAttrs, TakeMode};

/// Every operator, by name.
pub(super) static TABLE: &[OpImport] = &[
    op("ArrayFeatureExtractor", &[1], (2, 2), encode::array_feature_extractor),
    op("Binarizer", &[1], (1, 1), encode::binarizer),
    op("FeatureVectorizer", &[1], (1, usize::MAX), encode::feature_vectorizer),
    op("Imputer", &[1], (1, 1), encode::imputer),
    op("LabelEncoder", &[1, 2, 4], (1, 1), encode::label_encoder),
    op("LinearClassifier", &[1], (1, 1), linear::classifier),
    op("LinearRegressor", &[1], (1, 1), linear::regressor),
    op("Normalizer", &[1], (1, 1), encode::normalizer),
    op("OneHotEncoder", &[1], (1, 1), encode::one_hot_encoder),
    op("SVMClassifier", &[1], (1, 1), svm::classifier),
    op("SVMRegressor", &[1], (1, 1), svm::regressor),
    op("Scaler", &[1], (1, 1), encode::scaler),
    op("TreeEnsemble", &[5], (1, 1), trees::ensemble),
    op("TreeEnsembleClassifier", &[1, 3, 5], (1, 1), trees::classifier),
    op("TreeEnsembleRegressor", &[1, 3, 5], (1, 1), trees::regressor),
    op("ZipMap", &[1], (1, 1), encode::zip_map),
];

/// The shape of an error that a constant's elements do not fit.
fn constant_error(error: impl std::fmt::Display) -> NodeError {
    NodeError::new(error.to_string())
}

/// A constant of floats of that type.
fn floats(
    node: &mut Node<'_, '_>,
    dims: &[i64],
    values: &[f64],
    dtype: DType,
) -> Result<ExprId, NodeError> {
    let bytes: Vec<u8> = match dtype {
        DType::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
    };
    let ty = TensorType::from_consts(dims, if dtype == DType::F64 { dtype } else { DType::F32 });
    let constant = Constant::new(ty, SharedBytes::new(bytes)).map_err(constant_error)?;
    Ok(node.constant(constant))
}

/// A constant of indices, none of which is negative.
fn indices(node: &mut Node<'_, '_>, dims: &[i64], values: &[i32]) -> Result<ExprId, NodeError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let ty = TensorType::from_consts(dims, DType::U32);
    let constant = Constant::new(ty, SharedBytes::new(bytes)).map_err(constant_error)?;
    Ok(node.constant(constant))
}

/// A list of 64-bit integers as a constant.
fn ints(node: &mut Node<'_, '_>, values: &[i64]) -> Result<ExprId, NodeError> {
    let constant = Constant::from_i64(&[values.len() as i64], values).map_err(constant_error)?;
    Ok(node.constant(constant))
}

/// A list of floats, exactly.
fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Input 0 as a matrix of floats, a row for each example: a vector is one of them.
fn rows(node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let x = match &shape[..] {
        [_, _] => x,
        [columns] => node.reshape(x, vec![Dim::from(1i64), columns.clone()])?,
        _ => {
            return Err(NodeError::new(format!(
                "input 0 must have dimensions (batch, features), but it is {shape}"
            )));
        }
    };
    match node.tensor(x)?.dtype {
        DType::F32 | DType::F64 => Ok(x),
        _ => node.cast(x, DType::F32),
    }
}

/// What is made of scores, by the attribute `post_transform`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PostTransform {
    None,
    Softmax,
    Logistic,
    /// A softmax that leaves zeros alone.
    SoftmaxZero,
    Probit,
}

impl PostTransform {
    const ALL: [(&'static str, PostTransform); 5] = [
        ("NONE", PostTransform::None),
        ("SOFTMAX", PostTransform::Softmax),
        ("LOGISTIC", PostTransform::Logistic),
        ("SOFTMAX_ZERO", PostTransform::SoftmaxZero),
        ("PROBIT", PostTransform::Probit),
    ];

    fn read(node: &mut Node<'_, '_>) -> Result<PostTransform, NodeError> {
        let name = node.attrs.string("post_transform")?.unwrap_or("NONE");
        let found = PostTransform::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, transform)| transform).ok_or_else(|| {
            NodeError::new(format!("attribute `post_transform` `{name}` is not known"))
        })
    }

    /// Results of `(batch, targets)`: of a single one, ONNX Runtime takes the probit alone.
    fn of_targets(self, node: &mut Node<'_, '_>, results: ExprId) -> Result<ExprId, NodeError> {
        let is_single = node.known_extent(results, 1)? == 1;
        if is_single && self != PostTransform::Probit {
            Ok(results)
        } else {
            self.apply(node, results)
        }
    }

    /// Scores of `(batch, classes)`.
    fn apply(self, node: &mut Node<'_, '_>, scores: ExprId) -> Result<ExprId, NodeError> {
        match self {
            PostTransform::None => Ok(scores),
            PostTransform::Softmax => {
                node.call_with(&SOFTMAX, &[scores], &SoftmaxAttrs { axis: -1 })
            }
            PostTransform::Logistic => node.call(&SIGMOID, &[scores]),
            PostTransform::SoftmaxZero => softmax_zero(node, scores),
            PostTransform::Probit => probit(node, scores),
        }
    }
}

/// The softmax of scores that are not zero; zeros stay.
fn softmax_zero(node: &mut Node<'_, '_>, scores: ExprId) -> Result<ExprId, NodeError> {
    let magnitude = node.call(&ABS, &[scores])?;
    let counts = node.with_scalar(&GREATER, magnitude, f64::from(1e-7f32))?;
    let most = node.reduce(&MAX, scores, [1], true)?;
    let shifted = node.subtract(scores, most)?;
    let powers = node.call(&EXP, &[shifted])?;
    let dtype = node.tensor(scores)?.dtype;
    let zero = node.scalar(0.0, dtype)?;
    let powers = node.choose(counts, powers, zero)?;
    let sum = node.reduce(&SUM, powers, [1], true)?;
    node.divide(powers, sum)
}

/// `√2·erf⁻¹(2x - 1)`, by the approximation that ONNX Runtime takes.
fn probit(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    const A: f64 = 0.147f32 as f64;
    let doubled = node.with_scalar(&MULTIPLY, x, 2.0)?;
    let y = node.with_scalar(&SUBTRACT, doubled, 1.0)?;
    let square = node.multiply(y, y)?;
    let rest = node.scalar_less(1.0, square)?;
    let log = node.call(&LOG, &[rest])?;
    let half = node.with_scalar(&MULTIPLY, log, 0.5)?;
    let b = node.with_scalar(&SUBTRACT, half, -2.0 / (std::f64::consts::PI * A))?;
    let c = node.with_scalar(&DIVIDE, log, A)?;
    let b_square = node.multiply(b, b)?;
    let inner = node.subtract(b_square, c)?;
    let root = node.call(&SQRT, &[inner])?;
    let outer = node.subtract(root, b)?;
    let root = node.call(&SQRT, &[outer])?;
    let sign = node.call(&SIGN, &[y])?;
    let inverse = node.multiply(sign, root)?;
    node.with_scalar(&MULTIPLY, inverse, std::f64::consts::SQRT_2)
}

/// The classes of a classifier.
struct Classes {
    /// The labels that are integers; strings are the classes' positions, and a table of the program.
    labels: Vec<i64>,
}

impl Classes {
    /// Reads the two attributes that may hold them, of which one must. Strings become the table of
    /// the labels of the first output.
    fn read(node: &mut Node<'_, '_>, ints: &str) -> Result<Classes, NodeError> {
        let labels = node.attrs.ints(ints)?.map(<[i64]>::to_vec).filter(|list| !list.is_empty());
        let strings = node.attrs.strings("classlabels_strings")?.filter(|list| !list.is_empty());
        let labels = match (labels, strings) {
            (Some(labels), None) => labels,
            (None, Some(strings)) => {
                node.set_labels(0, &strings);
                (0..strings.len() as i64).collect()
            }
            (None, None) => {
                return Err(NodeError::new(format!(
                    "one of the attributes `{ints}` and `classlabels_strings` is expected"
                )));
            }
            (Some(_), Some(_)) => {
                return Err(NodeError::new(format!(
                    "only one of the attributes `{ints}` and `classlabels_strings` is expected"
                )));
            }
        };
        Ok(Classes { labels })
    }

    fn len(&self) -> usize {
        self.labels.len()
    }

    /// The labels of positions.
    fn of(&self, node: &mut Node<'_, '_>, positions: ExprId) -> Result<ExprId, NodeError> {
        if self.labels.iter().copied().eq(0..self.labels.len() as i64) {
            return node.cast(positions, DType::I64);
        }
        let labels = ints(node, &self.labels)?;
        let attrs = TakeAttrs { axis: 0, mode: TakeMode::Clip };
        node.call_with(&TAKE, &[labels, positions], &attrs)
    }

    /// The label of the greatest score of each row.
    fn of_greatest(&self, node: &mut Node<'_, '_>, scores: ExprId) -> Result<ExprId, NodeError> {
        let attrs = ArgReduceAttrs { axis: 1, keepdims: false, select_last_index: false };
        let positions = node.call_with(&ARGMAX, &[scores], &attrs)?;
        self.of(node, positions)
    }

    /// The second label where the only score of a row is above a bound, else the first.
    fn of_sign(
        &self,
        node: &mut Node<'_, '_>,
        score: ExprId,
        bound: f64,
    ) -> Result<ExprId, NodeError> {
        let above = node.with_scalar(&GREATER, score, bound)?;
        let position = node.cast(above, DType::I64)?;
        let batch = node.shape(score)?[0].clone();
        let position = node.reshape(position, vec![batch])?;
        self.of(node, position)
    }
}

/// The scores of both classes, of that of the second alone: `1 - s` and `s`.
fn complement(node: &mut Node<'_, '_>, score: ExprId) -> Result<ExprId, NodeError> {
    let other = node.scalar_less(1.0, score)?;
    node.concatenate(&[other, score], 1)
}

/// The same as `-s` and `s`.
fn opposites(node: &mut Node<'_, '_>, score: ExprId) -> Result<ExprId, NodeError> {
    let other = node.call(&NEGATIVE, &[score])?;
    node.concatenate(&[other, score], 1)
}
