//! Values that a caller fixes for inputs of a model.

use std::fmt;
use std::str::FromStr;

use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Constant, DType, Dim, Shape, SharedBytes, TensorType};

/// The value of an input that is compiled into the model.
///
/// Numbers take the input's own element type and shape: as many as the input has elements, or one
/// for all of them. The type of a [`Constant`] has to be the input's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputValue(Repr);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Repr {
    Tensor(Constant),
    Numbers(Vec<Number>),
}

/// A number as it was given: which type it takes is up to the input.
#[derive(Clone, Copy, Debug)]
enum Number {
    Int(i128),
    Float(f64),
}

impl PartialEq for Number {
    /// Numbers are equal if the same bits come out.
    fn eq(&self, other: &Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Float(a), Number::Float(b)) => a.to_bits() == b.to_bits(),
            (Number::Int(_), Number::Float(_)) | (Number::Float(_), Number::Int(_)) => false,
        }
    }
}

impl Eq for Number {}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(value) => write!(f, "{value}"),
            Number::Float(value) => write!(f, "{value:?}"),
        }
    }
}

impl InputValue {
    /// The constant for an input of a type; why there is none, as the end of a sentence about the
    /// value.
    pub(crate) fn fit(&self, input: &TensorType) -> Result<Constant, String> {
        match &self.0 {
            Repr::Tensor(constant) => fit_tensor(constant, input),
            Repr::Numbers(numbers) => fit_numbers(numbers, input),
        }
    }
}

fn fit_tensor(constant: &Constant, input: &TensorType) -> Result<Constant, String> {
    let TensorType { shape, dtype } = constant.ty();
    let fits = *dtype == input.dtype
        && shape.rank() == input.shape.rank()
        && shape
            .iter()
            .zip(input.shape.iter())
            .all(|(given, declared)| declared.as_const().is_none() || given == declared);
    match fits {
        true => Ok(constant.clone()),
        false => Err(format!("is {}, but the input is {input}", constant.ty())),
    }
}

fn fit_numbers(numbers: &[Number], input: &TensorType) -> Result<Constant, String> {
    let ty = TensorType::new(shape_for(numbers.len(), input)?, input.dtype);
    let tensor =
        Tensor::from_elements(input.dtype, &[numbers.len()], elements(numbers, input.dtype)?)
            .map_err(|error| format!("does not fit: {error}"))?;
    // One number stands for all elements, which may be many.
    let constant = match numbers.len() == 1 && ty.num_elements() != Some(1) {
        true => Constant::splat(ty, &tensor.to_bytes()),
        false => Constant::new(ty, SharedBytes::new(tensor.to_bytes())),
    };
    constant.map_err(|error| format!("does not fit: {error}"))
}

/// The input's shape with so many elements: one extent that is not known follows from their number.
fn shape_for(numbers: usize, input: &TensorType) -> Result<Shape, String> {
    let wrong = |why: String| {
        let given =
            if numbers == 1 { "one number".to_owned() } else { format!("{numbers} numbers") };
        format!("has {given}, but the input is {input}{why}")
    };
    let unknown: Vec<usize> =
        (0..input.shape.rank()).filter(|&axis| input.shape[axis].as_const().is_none()).collect();
    match unknown.as_slice() {
        [] => match input.num_elements() {
            Some(count) if count == numbers as u64 || numbers == 1 => Ok(input.shape.clone()),
            Some(count) => Err(wrong(format!(" of {count} elements"))),
            None => Err(wrong(", which is too large".to_owned())),
        },
        &[axis] => {
            let mut known = input.shape.iter().filter_map(Dim::as_const);
            let known =
                known.try_fold(1i64, i64::checked_mul).and_then(|n| usize::try_from(n).ok());
            let extent = known.filter(|&known| known > 0 && numbers.is_multiple_of(known));
            let extent = extent.map(|known| numbers / known).and_then(|n| i64::try_from(n).ok());
            let Some(extent) = extent else {
                return Err(wrong(format!(": no size of `{}` fits", input.shape[axis])));
            };
            let mut dims = input.shape.to_vec();
            dims[axis] = Dim::from(extent);
            Ok(Shape::new(dims))
        }
        _ => Err(wrong(", of which several sizes are not known".to_owned())),
    }
}

/// The numbers as elements of a type, exactly unless the type rounds.
fn elements(numbers: &[Number], dtype: DType) -> Result<Elements, String> {
    if dtype.is_float() {
        let float = |number: &Number| {
            let value = match *number {
                Number::Int(value) => value as f64,
                Number::Float(value) => value,
            };
            let rounded = Tensor::from_floats(dtype, &[], vec![value]).ok();
            let rounded = rounded.as_ref().and_then(|tensor| tensor.floats()?.first().copied());
            match rounded {
                Some(rounded) if rounded.is_finite() || !value.is_finite() => Ok(value),
                Some(_) | None => Err(format!("has {number}, which is no {dtype}")),
            }
        };
        return Ok(Elements::Float(numbers.iter().map(float).collect::<Result<_, _>>()?));
    }
    let (least, most) = dtype.int_range().unwrap_or((0, 1));
    let int = |number: &Number| {
        let value = match *number {
            Number::Int(value) => Some(value),
            Number::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => {
                Some(value as i128)
            }
            Number::Float(_) => None,
        };
        value
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("has {number}, which is no {dtype}"))
    };
    Ok(Elements::Int(numbers.iter().map(int).collect::<Result<_, _>>()?))
}

impl FromStr for InputValue {
    type Err = String;

    /// Numbers, `true` and `false`, separated by commas.
    fn from_str(text: &str) -> Result<InputValue, String> {
        let number = |text: &str| match text.trim() {
            "true" => Ok(Number::Int(1)),
            "false" => Ok(Number::Int(0)),
            text => text
                .parse()
                .map(Number::Int)
                .or_else(|_| text.parse().map(Number::Float))
                .map_err(|_| format!("`{text}` is not a number")),
        };
        Ok(InputValue(Repr::Numbers(text.split(',').map(number).collect::<Result<_, _>>()?)))
    }
}

impl From<Constant> for InputValue {
    fn from(constant: Constant) -> InputValue {
        InputValue(Repr::Tensor(constant))
    }
}

macro_rules! from_numbers {
    ($variant:ident($wide:ty): $($number:ty),*) => {$(
        impl From<$number> for InputValue {
            fn from(number: $number) -> InputValue {
                InputValue::from([number])
            }
        }

        impl<const N: usize> From<[$number; N]> for InputValue {
            fn from(numbers: [$number; N]) -> InputValue {
                InputValue::from(&numbers[..])
            }
        }

        impl From<Vec<$number>> for InputValue {
            fn from(numbers: Vec<$number>) -> InputValue {
                InputValue::from(&numbers[..])
            }
        }

        impl From<&[$number]> for InputValue {
            fn from(numbers: &[$number]) -> InputValue {
                let numbers = numbers.iter().map(|&n| Number::$variant(<$wide>::from(n)));
                InputValue(Repr::Numbers(numbers.collect()))
            }
        }
    )*};
}

from_numbers!(Int(i128): bool, i8, i16, i32, i64, u8, u16, u32, u64);
from_numbers!(Float(f64): f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(value: impl Into<InputValue>, dims: &[i64], dtype: DType) -> Result<Constant, String> {
        value.into().fit(&TensorType::from_consts(dims, dtype))
    }

    #[test]
    fn numbers_take_the_type_and_the_shape_of_the_input() {
        let rate = fit(16000, &[], DType::I64).unwrap();
        assert_eq!(rate.ty(), &TensorType::scalar(DType::I64));
        assert_eq!(rate.to_i64_vec(), Some(vec![16000]));
        let row = fit([1, 2, 3], &[1, 3], DType::F16).unwrap();
        assert_eq!(row.to_f64_vec(), Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(row.ty(), &TensorType::from_consts(&[1, 3], DType::F16));
        let mask = fit(true, &[2, 2], DType::Bool).unwrap();
        assert_eq!(mask.to_i64_vec(), Some(vec![1; 4]));
        assert_eq!(fit(1.5, &[2], DType::BF16).unwrap().to_f64_vec(), Some(vec![1.5; 2]));
        assert_eq!(fit(7, &[5], DType::I4).unwrap().to_i64_vec(), Some(vec![7; 5]));
        assert_eq!(fit(vec![1u8; 3], &[3], DType::U4).unwrap().to_i64_vec(), Some(vec![1; 3]));
        assert_eq!(fit(9.0, &[0], DType::F32).unwrap().to_f64_vec(), Some(vec![]));
    }

    #[test]
    fn an_extent_that_is_not_known_follows_from_the_numbers() {
        let symbolic = |dims: Vec<Dim>| TensorType::new(Shape::new(dims), DType::I64);
        let rows = symbolic(vec![Dim::symbol("n"), Dim::from(2)]);
        let value = InputValue::from([1, 2, 3, 4]).fit(&rows).unwrap();
        assert_eq!(value.ty(), &TensorType::from_consts(&[2, 2], DType::I64));
        assert_eq!(
            InputValue::from(1).fit(&rows).unwrap_err(),
            "has one number, but the input is Tensor[(n, 2), int64]: no size of `n` fits"
        );
        let open = symbolic(vec![Dim::symbol("n"), Dim::symbol("m")]);
        assert!(
            InputValue::from(1).fit(&open).unwrap_err().ends_with("several sizes are not known")
        );
    }

    #[test]
    fn numbers_that_the_type_does_not_have_are_refused() {
        let error = |value: &str, dims: &[i64], dtype| {
            fit(value.parse::<InputValue>().unwrap(), dims, dtype).unwrap_err()
        };
        assert_eq!(error("256", &[], DType::U8), "has 256, which is no uint8");
        assert_eq!(error("-1", &[], DType::U64), "has -1, which is no uint64");
        assert_eq!(error("1.5", &[], DType::I32), "has 1.5, which is no int32");
        assert_eq!(error("2", &[], DType::Bool), "has 2, which is no bool");
        assert_eq!(error("1e39", &[], DType::F32), "has 1e39, which is no float32");
        assert_eq!(
            error("1,2", &[3], DType::F32),
            "has 2 numbers, but the input is Tensor[(3), float32] of 3 elements"
        );
    }

    #[test]
    fn texts_are_numbers_separated_by_commas() {
        let of = |text: &str| text.parse::<InputValue>();
        assert_eq!(of("1, -2,true"), Ok(InputValue::from([1, -2, 1])));
        assert_eq!(of("0.5"), Ok(InputValue::from(0.5)));
        assert_eq!(of("-inf"), Ok(InputValue::from(f64::NEG_INFINITY)));
        assert_eq!(of("9223372036854775807"), Ok(InputValue::from(i64::MAX)));
        assert_eq!(of("x"), Err("`x` is not a number".to_owned()));
        assert!(of("").is_err() && of("1,").is_err());
    }
}
