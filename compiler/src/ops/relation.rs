//! What the type relations of several operators share: checks of data types, ranks and extents, and
//! broadcasting.

use super::InferCx;
use crate::graph::TypeError;
use crate::ir::{DType, Dim, Shape, TensorType, Type, normalize_axis};

/// The data types that an input may have. None of them contains types that are only stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypes {
    /// Integers and floats.
    Numeric,
    /// Integers, floats and booleans.
    NumericOrBool,
    /// Floats.
    Float,
    /// Integers.
    Int,
    /// Booleans.
    Bool,
}

impl DTypes {
    fn contains(self, dtype: DType) -> bool {
        if dtype.is_storage_only() {
            return false;
        }
        match self {
            DTypes::Numeric => dtype.is_int() || dtype.is_float(),
            DTypes::NumericOrBool => true,
            DTypes::Float => dtype.is_float(),
            DTypes::Int => dtype.is_int(),
            DTypes::Bool => dtype == DType::Bool,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            DTypes::Numeric => "integers or floats of at least 8 bits",
            DTypes::NumericOrBool => "booleans, integers or floats of at least 8 bits",
            DTypes::Float => "floats of at least 16 bits",
            DTypes::Int => "integers of at least 8 bits",
            DTypes::Bool => "booleans",
        }
    }
}

impl<'a> InferCx<'a> {
    /// The tensor type of an argument, whose elements must be of one of these types.
    ///
    /// # Errors
    ///
    /// If it is absent, no tensor, or of another data type.
    pub fn tensor_of(&self, index: usize, dtypes: DTypes) -> Result<&'a TensorType, TypeError> {
        let tensor = self.tensor(index)?;
        ensure!(
            dtypes.contains(tensor.dtype),
            "input `{}` must hold {}, but it is {tensor}; cast it first",
            self.input_name(index),
            dtypes.describe()
        );
        Ok(tensor)
    }

    /// The tensor type of an argument of that many dimensions, which `layout` names: `(N, C, H, W)`.
    pub(super) fn tensor_of_rank(
        &self,
        index: usize,
        dtypes: DTypes,
        rank: usize,
        layout: &str,
    ) -> Result<&'a TensorType, TypeError> {
        let tensor = self.tensor_of(index, dtypes)?;
        ensure!(
            tensor.shape.rank() == rank,
            "input `{}` must have {rank} dimensions {layout}, but it is {tensor}",
            self.input_name(index)
        );
        Ok(tensor)
    }

    /// Checks that two arguments have one data type.
    ///
    /// # Errors
    ///
    /// If they have not.
    pub fn same_dtype(&self, first: usize, second: usize) -> Result<(), TypeError> {
        let (a, b) = (self.tensor(first)?, self.tensor(second)?);
        ensure!(
            a.dtype == b.dtype,
            "inputs `{}` and `{}` must have one data type, but they hold {} and {}; cast one of them",
            self.input_name(first),
            self.input_name(second),
            a.dtype,
            b.dtype
        );
        Ok(())
    }

    /// Checks that an argument, if it is there, has exactly this type; `why` says where that comes
    /// from: `the channels of input `x``.
    pub(super) fn expect_type(
        &self,
        index: usize,
        expected: &TensorType,
        why: &str,
    ) -> Result<(), TypeError> {
        let Some(tensor) = self.optional_tensor(index)? else { return Ok(()) };
        ensure!(
            tensor.dtype == expected.dtype && self.same_shape(&tensor.shape, &expected.shape),
            "input `{}` must be {expected} because of {why}, but it is {tensor}",
            self.input_name(index)
        );
        Ok(())
    }

    /// An axis of an argument, counted from either end, as an index.
    ///
    /// # Errors
    ///
    /// If it is out of range.
    pub fn axis(&self, index: usize, axis: i64) -> Result<usize, TypeError> {
        let tensor = self.tensor(index)?;
        normalize_axis(axis, tensor.shape.rank()).ok_or_else(|| {
            TypeError::new(format!(
                "axis {axis} is out of range for input `{}`, which is {tensor}",
                self.input_name(index)
            ))
        })
    }

    /// Which axes of an argument are listed; each at most once.
    pub(super) fn axis_mask(&self, index: usize, axes: &[i64]) -> Result<Vec<bool>, TypeError> {
        let mut mask = vec![false; self.tensor(index)?.shape.rank()];
        for &axis in axes {
            let listed = &mut mask[self.axis(index, axis)?];
            ensure!(!*listed, "axis {axis} is listed twice in {axes:?}");
            *listed = true;
        }
        Ok(mask)
    }

    /// Whether two dimensions are known to be equal, or are taken to be.
    pub fn same(&self, a: &Dim, b: &Dim) -> bool {
        match (self.facts.prove_eq(a, b), self.equal) {
            (Some(equal), _) => equal,
            (None, Some(list)) => {
                list.borrow_mut().push((a.clone(), b.clone()));
                true
            }
            (None, None) => false,
        }
    }

    fn same_shape(&self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same(a, b))
    }

    /// How to say that two dimensions are not the same: whether that is certain.
    pub(super) fn differ(&self, a: &Dim, b: &Dim) -> &'static str {
        match self.facts.prove_eq(a, b) {
            Some(_) => "differ",
            None => "may differ; pin symbolic dimensions to numbers",
        }
    }

    /// A tensor type as a result, if it can be one: every extent has a value, none is negative, and
    /// the number of elements fits `i64`.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn result(
        &self,
        shape: impl IntoIterator<Item = Dim>,
        dtype: DType,
    ) -> Result<Type, TypeError> {
        let simplify = |dim: Dim| match dim.as_const() {
            Some(_) => dim,
            None => self.facts.simplify(&dim),
        };
        let ty = TensorType::new(shape.into_iter().map(simplify).collect(), dtype);
        for (axis, dim) in ty.shape.iter().enumerate() {
            ensure!(
                !dim.is_poison(),
                "the result's dimension {axis} has no value: \
                 its size leaves 64 bits or is too complex"
            );
            if let Some(extent) = dim.as_const() {
                ensure!(
                    extent >= 0,
                    "the result's dimension {axis} would be {extent}, \
                     but a size cannot be negative"
                );
            }
        }
        if ty.shape.as_consts().is_some() {
            let fits = ty.num_elements().is_some_and(|n| i64::try_from(n).is_ok());
            ensure!(fits, "the result {ty} would have more elements than 64 bits can count");
        }
        Ok(ty.into())
    }

    /// The shape that two broadcast to as in numpy: aligned at the innermost dimension, with
    /// extents of one repeated.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub fn broadcast(&self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, TypeError> {
        let rank = a.len().max(b.len());
        let one = Dim::from(1i64);
        let dim = |shape: &[Dim], axis: usize| {
            let missing = rank - shape.len();
            axis.checked_sub(missing).map_or_else(|| one.clone(), |axis| shape[axis].clone())
        };
        let mut dims = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (x, y) = (dim(a, axis), dim(b, axis));
            dims.push(if is_one(&x) || self.must_be_one(&x, &y) {
                y
            } else if is_one(&y) || self.must_be_one(&y, &x) || self.same(&x, &y) {
                x
            } else {
                let (a, b) = (Shape::new(a.to_vec()), Shape::new(b.to_vec()));
                if x.as_const().is_some() && y.as_const().is_some() {
                    bail!("shapes {a} and {b} do not broadcast: {x} and {y} differ, neither is 1");
                }
                bail!("shapes {a} and {b} do not broadcast: {x} and {y} {}", self.differ(&x, &y));
            });
        }
        Ok(dims)
    }

    /// Whether an extent of a run, which is 1 at most, is taken to be 1, as it cannot be the other's.
    fn must_be_one(&self, dim: &Dim, other: &Dim) -> bool {
        let is_less = self.facts.bounds_of(dim).upper.is_some_and(|most| {
            most <= 1 && self.facts.bounds_of(other).lower.is_some_and(|least| least > most)
        });
        is_less && self.same(dim, &Dim::from(1i64))
    }

    /// Whether a tensor of the first shape broadcasts to just the second.
    pub(super) fn broadcasts_to(&self, from: &[Dim], to: &[Dim]) -> bool {
        let Some(missing) = to.len().checked_sub(from.len()) else { return false };
        from.iter().zip(&to[missing..]).all(|(from, to)| is_one(from) || self.same(from, to))
    }
}

/// Whether a dimension is the number one.
pub(super) fn is_one(dim: &Dim) -> bool {
    dim.as_const() == Some(1)
}

/// Checks an attribute value against a least one.
pub(super) fn at_least(name: &str, value: i64, least: i64) -> Result<(), TypeError> {
    ensure!(value >= least, "attribute `{name}` must be at least {least}, but it is {value}");
    Ok(())
}
