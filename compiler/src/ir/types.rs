//! Types of graph expressions.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::DType;
use crate::arith::IntExpr;

/// One extent of a tensor: a constant, or an expression over named symbols.
pub type Dim = IntExpr;

/// The extents of a tensor, outermost first. Empty for a scalar. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape(Arc<[Dim]>);

impl Shape {
    /// A shape of the given extents.
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Shape {
        Shape(dims.into_iter().collect())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape::new([])
    }

    /// A shape of constant extents.
    pub fn from_consts(dims: &[i64]) -> Shape {
        Shape::new(dims.iter().map(|&d| Dim::from(d)))
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The extents as numbers, or `None` if one is symbolic or negative.
    pub fn as_consts(&self) -> Option<Vec<u64>> {
        self.0.iter().map(|d| d.as_const().and_then(|d| u64::try_from(d).ok())).collect()
    }

    /// The number of elements, as an expression; 1 for a scalar.
    pub fn num_elements(&self) -> Dim {
        self.0.iter().fold(Dim::from(1i64), |product, d| product * d.clone())
    }

    /// Turns an axis counted from either end into an index, if it is in range.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        normalize_axis(axis, self.rank())
    }
}

/// Turns an axis counted from either end of `rank` dimensions into an index, if it is in range.
pub fn normalize_axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis.checked_add(rank)? } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
}

impl Deref for Shape {
    type Target = [Dim];

    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(dims: I) -> Shape {
        Shape::new(dims)
    }
}

impl fmt::Display for Shape {
    /// `(1, 3, n)`, and `()` for a scalar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (index, dim) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shape and element type of a tensor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType {
    /// The extents.
    pub shape: Shape,
    /// The type of the elements.
    pub dtype: DType,
}

impl TensorType {
    /// A tensor type.
    pub fn new(shape: Shape, dtype: DType) -> TensorType {
        TensorType { shape, dtype }
    }

    /// A tensor type of constant extents.
    pub fn from_consts(dims: &[i64], dtype: DType) -> TensorType {
        TensorType::new(Shape::from_consts(dims), dtype)
    }

    /// A tensor of rank 0.
    pub fn scalar(dtype: DType) -> TensorType {
        TensorType::new(Shape::scalar(), dtype)
    }

    /// Bytes of the dense tensor, if its extents are known and the size fits `u64`.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.num_elements()?;
        self.dtype.bytes_for(elements)
    }

    /// Number of elements, if the extents are known and the product fits `u64`.
    pub fn num_elements(&self) -> Option<u64> {
        let dims = self.shape.as_consts()?;
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().try_fold(1u64, |product, &d| product.checked_mul(d))
    }
}

impl fmt::Display for TensorType {
    /// `Tensor[(1, 3), float32]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor[{}, {}]", self.shape, self.dtype)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parameter types and result type of a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FuncType {
    /// The types of the parameters, in order.
    pub params: Vec<Type>,
    /// The type of the result.
    pub ret: Type,
}

/// The type of an expression. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// A dense tensor.
    Tensor(TensorType),
    /// A fixed number of values.
    Tuple(Arc<[Type]>),
    /// A function: a global, or a closure.
    Func(Arc<FuncType>),
    /// ONNX `seq(T)`: any number of values of one type.
    Sequence(Arc<Type>),
    /// ONNX `optional(T)`: a value or none.
    Optional(Arc<Type>),
}

impl Type {
    /// The type of a tensor with constant extents.
    pub fn tensor(dims: &[i64], dtype: DType) -> Type {
        Type::Tensor(TensorType::from_consts(dims, dtype))
    }

    /// The type of a tuple.
    pub fn tuple(fields: impl IntoIterator<Item = Type>) -> Type {
        Type::Tuple(fields.into_iter().collect())
    }

    /// The tensor type, if this is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        if let Type::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The field types, if this is a tuple.
    pub fn as_tuple(&self) -> Option<&[Type]> {
        if let Type::Tuple(fields) = self { Some(fields) } else { None }
    }

    /// The function type, if this is one.
    pub fn as_func(&self) -> Option<&FuncType> {
        if let Type::Func(func) = self { Some(func) } else { None }
    }
}

impl From<TensorType> for Type {
    fn from(tensor: TensorType) -> Type {
        Type::Tensor(tensor)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(f: &mut fmt::Formatter<'_>, types: &[Type]) -> fmt::Result {
            f.write_str("(")?;
            for (index, ty) in types.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                write!(f, "{ty}")?;
            }
            // A tuple of one needs its comma to differ from parentheses.
            f.write_str(if types.len() == 1 { ",)" } else { ")" })
        }
        match self {
            Type::Tensor(tensor) => write!(f, "{tensor}"),
            Type::Tuple(fields) => list(f, fields),
            Type::Func(func) => {
                f.write_str("fn ")?;
                list(f, &func.params)?;
                write!(f, " -> {}", func.ret)
            }
            Type::Sequence(element) => write!(f, "Seq[{element}]"),
            Type::Optional(element) => write!(f, "Optional[{element}]"),
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_in_the_manner_of_relay() {
        let image = Type::tensor(&[1, 3, 8, 8], DType::F32);
        assert_eq!(image.to_string(), "Tensor[(1, 3, 8, 8), float32]");
        let scalar = Type::tensor(&[], DType::I64);
        assert_eq!(Type::tuple([scalar.clone()]).to_string(), "(Tensor[(), int64],)");
        let func = FuncType { params: vec![image], ret: scalar };
        assert_eq!(
            Type::Func(Arc::new(func)).to_string(),
            "fn (Tensor[(1, 3, 8, 8), float32],) -> Tensor[(), int64]"
        );
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(TensorType::from_consts(&[2, 3], DType::F32).bytes(), Some(24));
        assert_eq!(TensorType::from_consts(&[i64::MAX, 0], DType::F32).bytes(), Some(0));
        assert_eq!(TensorType::from_consts(&[i64::MAX, 3], DType::F32).bytes(), None);
        let symbolic = TensorType::new(Shape::new([Dim::symbol("n")]), DType::F32);
        assert_eq!(symbolic.bytes(), None);
    }

    #[test]
    fn axes_count_from_both_ends() {
        assert_eq!(normalize_axis(-1, 3), Some(2));
        assert_eq!(normalize_axis(3, 3), None);
        assert_eq!(normalize_axis(i64::MIN, 3), None);
    }
}
