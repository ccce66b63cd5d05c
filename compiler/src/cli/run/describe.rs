//! Outputs in a few words: type, range and first values.

use serde_json::{Value, json};

use crate::graph::interp::{Elements, Tensor};
use crate::ir::Constant;

/// How many values are shown.
const SHOWN: usize = 8;

/// Least, greatest and mean value. Floats that are NaN count for the mean alone.
struct Range<T> {
    min: Option<T>,
    max: Option<T>,
    mean: f64,
}

fn float_range(values: &[f64]) -> Range<f64> {
    let numbers = || values.iter().copied().filter(|value| !value.is_nan());
    Range {
        min: numbers().reduce(f64::min),
        max: numbers().reduce(f64::max),
        mean: values.iter().sum::<f64>() / values.len() as f64,
    }
}

fn int_range(values: &[i128]) -> Range<i128> {
    Range {
        min: values.iter().copied().min(),
        max: values.iter().copied().max(),
        mean: values.iter().map(|&value| value as f64).sum::<f64>() / values.len() as f64,
    }
}

/// A float as people read it: six digits.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if !magnitude.is_finite() {
        value.to_string()
    } else if magnitude == 0.0 || (1e-4..1e7).contains(&magnitude) {
        // The number of decimals that leaves six digits.
        let digits = if magnitude >= 1.0 { magnitude.log10() as usize + 1 } else { 1 };
        let text = format!("{value:.*}", 6usize.saturating_sub(digits));
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    } else {
        format!("{value:.5e}")
    }
}

/// Two lines about an output.
pub(super) fn text(name: &str, value: &Constant) -> String {
    let mut line = format!("{name}: {}", value.ty());
    let Ok(tensor) = Tensor::from_constant(value) else {
        // A type whose values cannot be read has none to show.
        return line + "\n";
    };
    let numbers = |min: Option<String>, max: Option<String>, mean: f64| match (min, max) {
        (Some(min), Some(max)) => format!(", min {min}, max {max}, mean {}", short(mean)),
        _ if tensor.is_empty() => ", empty".to_owned(),
        _ => ", all NaN".to_owned(),
    };
    let shown: Vec<String> = match tensor.elements() {
        Elements::Float(values) => {
            let range = float_range(values);
            line += &numbers(range.min.map(short), range.max.map(short), range.mean);
            let not_numbers = values.iter().filter(|value| value.is_nan()).count();
            if not_numbers > 0 && range.min.is_some() {
                line += &format!(", {not_numbers} NaN");
            }
            values.iter().take(SHOWN).map(|&value| short(value)).collect()
        }
        Elements::Int(values) => {
            let range = int_range(values);
            let text = |value: i128| value.to_string();
            line += &numbers(range.min.map(text), range.max.map(text), range.mean);
            values.iter().take(SHOWN).map(i128::to_string).collect()
        }
    };
    let dots = if tensor.len() > SHOWN { ", …" } else { "" };
    if shown.is_empty() { line + "\n" } else { format!("{line}\n  {}{dots}\n", shown.join(", ")) }
}

/// The same as JSON. Numbers that JSON does not have are null.
pub(super) fn json(name: &str, value: &Constant) -> Value {
    let ty = value.ty();
    let mut object = json!({"name": name, "dtype": ty.dtype, "shape": ty.shape.as_consts()});
    if let Ok(tensor) = Tensor::from_constant(value) {
        let (min, max, mean, first) = match tensor.elements() {
            Elements::Float(values) => {
                let range = float_range(values);
                let first: Vec<f64> = values.iter().take(SHOWN).copied().collect();
                (json!(range.min), json!(range.max), range.mean, json!(first))
            }
            Elements::Int(values) => {
                let range = int_range(values);
                // Every element is within 64 bits, signed or not.
                let number = |value: i128| match u64::try_from(value) {
                    Ok(value) => json!(value),
                    Err(_) => json!(i64::try_from(value).ok()),
                };
                let first: Vec<Value> = values.iter().take(SHOWN).copied().map(number).collect();
                (
                    range.min.map_or(Value::Null, number),
                    range.max.map_or(Value::Null, number),
                    range.mean,
                    json!(first),
                )
            }
        };
        object["min"] = min;
        object["max"] = max;
        object["mean"] = json!(mean);
        object["first"] = first;
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_described_in_two_lines() {
        let values: Vec<f32> = (0..10).map(|i| i as f32 / 4.0).collect();
        let tensor = Constant::from_f32(&[2, 5], &values).unwrap();
        assert_eq!(
            text("y", &tensor),
            "y: Tensor[(2, 5), float32], min 0, max 2.25, mean 1.125\n  \
             0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, …\n"
        );
        let tensor = Constant::from_i64(&[2], &[i64::MIN, 7]).unwrap();
        assert_eq!(
            text("n", &tensor),
            "n: Tensor[(2), int64], min -9223372036854775808, max 7, mean -4.61169e18\n  \
             -9223372036854775808, 7\n"
        );
    }

    #[test]
    fn nan_is_counted() {
        let nan = f32::NAN;
        let tensor = Constant::from_f32(&[3], &[nan, 1.0, f32::INFINITY]).unwrap();
        assert_eq!(
            text("y", &tensor),
            "y: Tensor[(3), float32], min 1, max inf, mean NaN, 1 NaN\n  NaN, 1, inf\n"
        );
        assert_eq!(json("y", &tensor)["first"], json!([null, 1.0, null]));
        let none = Constant::from_f32(&[1], &[nan]).unwrap();
        assert_eq!(text("y", &none), "y: Tensor[(1), float32], all NaN\n  NaN\n");
        let empty = Constant::from_f32(&[0], &[]).unwrap();
        assert_eq!(text("y", &empty), "y: Tensor[(0), float32], empty\n");
        assert_eq!(json("y", &empty)["min"], Value::Null);
    }

    #[test]
    fn numbers_are_short_and_keep_their_size() {
        for (value, expected) in [
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333"),
            (123_456.7, "123457"),
            (1_234_567.0, "1234567"),
            (1e-7, "1.00000e-7"),
            (-2.5, "-2.5"),
            (100.0, "100"),
        ] {
            assert_eq!(short(value), expected);
        }
    }
}
