//! Operators that take elements or rows for themselves. Every engine keeps such tensors dense, so that the model is the
//! one operator.

use niello::ir::{Constant, DType};
use niello::onnx::{ModelAttr, ModelBuilder};

use super::values::{Random, dims};
use crate::check::Expected;
use crate::kernel::{Build, Case, Goal, Kernel, Limit, Result, Work};

/// The number added to a variance.
const EPSILON: f32 = 1e-5;

/// An operator of one tensor.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    Softmax,
    LayerNorm,
    Gelu,
    Exp,
    Tanh,
    Sigmoid,
}

impl Operator {
    /// The operator on a tensor of that shape, along its last axis.
    pub(super) fn kernel(self, name: &str, shape: &'static [usize], goal: Goal) -> Kernel {
        let elements = shape.iter().product::<usize>() as u64;
        Kernel {
            name: name.to_owned(),
            work: Work { flops: elements, bytes: 8 * elements },
            sums: false,
            limit: Limit::Stream,
            goal,
            threads: &[1],
            case: Box::new(move || self.case(shape)),
            build: Build::Model,
        }
    }

    fn case(self, shape: &[usize]) -> Result<Case> {
        let mut random = Random::new(3);
        let input = random.normals(shape.iter().product(), 3.0);
        let row = shape.last().copied().unwrap_or(1);
        let constant = |extents: &[usize], values: &[f32]| {
            Constant::from_f32(&dims(extents), values).map_err(|error| error.to_string())
        };
        let scale = random.normals(row, 1.0);
        let shift = random.normals(row, 1.0);
        let mut model = ModelBuilder::new(20).input("x", DType::F32, &dims(shape));
        let (op, names, attrs): (_, &[&str], &[(&str, ModelAttr)]) = match self {
            Operator::Softmax => ("Softmax", &["x"], &[]),
            Operator::LayerNorm => {
                let scale = constant(&[row], &scale)?;
                model = model.initializer("scale", &scale);
                model = model.initializer("shift", &constant(&[row], &shift)?);
                let epsilon = ("epsilon", ModelAttr::Float(EPSILON));
                ("LayerNormalization", &["x", "scale", "shift"], &[epsilon])
            }
            Operator::Gelu => ("Gelu", &["x"], &[]),
            Operator::Exp => ("Exp", &["x"], &[]),
            Operator::Tanh => ("Tanh", &["x"], &[]),
            Operator::Sigmoid => ("Sigmoid", &["x"], &[]),
        };
        let model = model.node(op, names, &["y"], attrs).output("y", DType::F32, &dims(shape));
        let rows = input.chunks_exact(row);
        let values = rows.flat_map(|row| self.reference(row, &scale, &shift));
        Ok(Case {
            model: model.to_bytes(),
            expected: Expected::all(values),
            inputs: vec![constant(shape, &input)?],
            repeats: 1,
        })
    }

    /// The result for a row.
    fn reference(self, row: &[f32], scale: &[f32], shift: &[f32]) -> Vec<f64> {
        let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
        let count = row.len() as f64;
        let each = |f: &dyn Fn(f64) -> f64| row.iter().copied().map(f).collect();
        match self {
            Operator::Softmax => {
                let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
                each(&|x| (x - most).exp() / sum)
            }
            Operator::LayerNorm => {
                let mean = row.iter().sum::<f64>() / count;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
                let deviation = (variance + f64::from(EPSILON)).sqrt();
                let affine = scale.iter().zip(shift);
                let terms = row.iter().zip(affine);
                let term = |(x, (a, b)): (&f64, (&f32, &f32))| {
                    (x - mean) / deviation * f64::from(*a) + f64::from(*b)
                };
                terms.map(term).collect()
            }
            // With the complement, nothing cancels far below zero.
            Operator::Gelu => each(&|x| 0.5 * x * erfc(-x / 2.0f64.sqrt())),
            Operator::Exp => each(&f64::exp),
            Operator::Tanh => each(&f64::tanh),
            Operator::Sigmoid => each(&|x| 1.0 / (1.0 + (-x).exp())),
        }
    }
}

/// The complementary error function of the C library, which the standard library links.
fn erfc(x: f64) -> f64 {
    unsafe extern "C" {
        safe fn erfc(x: f64) -> f64;
    }
    erfc(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_the_definitions_of_the_operators() {
        let reference =
            |operator: Operator| operator.reference(&[0.0, 1.0], &[1.0, 2.0], &[0.5, 0.5]);
        let near = |operator, expected: [f64; 2]| {
            for (found, expected) in reference(operator).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
        };
        near(Operator::Softmax, [0.26894, 0.73106]);
        near(Operator::LayerNorm, [-0.49998, 2.49996]);
        near(Operator::Gelu, [0.0, 0.84134]);
        near(Operator::Exp, [1.0, std::f64::consts::E]);
        near(Operator::Tanh, [0.0, 0.76159]);
        near(Operator::Sigmoid, [0.5, 0.73106]);
    }
}
