//! Functions by which a kernel is called that does not have its parameters: as data, which each code
//! generator writes.

use super::size::Size;
use crate::ir::{BufferSpec, DType};

/// A function that calls a kernel, and that other code finds by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrapper {
    /// Takes pointers and dimensions in arrays.
    Array(ArrayWrapper),
    /// Has the signature of TVM's packed functions.
    Packed(PackedWrapper),
}

impl Wrapper {
    /// Whether it is a packed function, which makes a context of its own.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Wrapper::Packed(_))
    }
}

/// A function that calls a kernel with pointers and dimensions from arrays:
///
/// ```c
/// void <symbol>(const struct niello_context *ctx, void *const *buffers, const i64 *dims);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayWrapper {
    /// Its name.
    pub symbol: String,
    /// The kernel's.
    pub kernel: String,
    /// Number of the kernel's buffers.
    pub buffers: usize,
    /// Number of the kernel's dimensions.
    pub dims: usize,
    /// Whether the kernel runs with denormal numbers flushed to zero.
    pub flush_denormals: bool,
}

/// A function with the signature of TVM's packed functions, which checks its arguments:
///
/// ```c
/// int <symbol>(void *args, int *type_codes, int num_args, void *out_ret_value, int *out_ret_tcode,
///              void *resource_handle);
/// ```
///
/// `args` is an array of `TVMValue`: a `DLTensor *` for each buffer, then an integer for each
/// dimension that is no extent of a buffer. The result is 0, or −1 if an argument is not what it should be: then `out_ret_value`
/// and `out_ret_tcode`, if they are not null, are set to a string that says so.
///
/// A tensor has the extents and strides of its buffer's physical layout, `byte_offset` 0, and is in
/// the CPU's memory; `strides` may be null if the layout has no gaps. A kernel that needs scratch
/// memory has it in the object, so that one call of it runs at a time: another is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedWrapper {
    /// Its name.
    pub symbol: String,
    /// The kernel's.
    pub kernel: String,
    /// The tensors, in the order of the kernel's parameters.
    pub tensors: Vec<PackedTensor>,
    /// The dimensions, in order.
    pub dims: Vec<PackedDim>,
    /// Extents that are at least 1: those of reductions.
    pub reduced: Vec<PackedExtent>,
    /// Bytes of scratch memory that the kernel needs for one worker.
    pub scratch_bytes: u64,
    /// Whether the kernel runs with denormal numbers flushed to zero.
    pub flush_denormals: bool,
}

/// A dimension of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedDim {
    /// Its name in messages.
    pub name: String,
    /// The extent of a tensor, or an argument.
    pub size: Size,
}

/// An extent that depends on dimensions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedExtent {
    /// Its value.
    pub size: Size,
    /// What it is called in messages.
    pub text: String,
}

/// A tensor that a packed function takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedTensor {
    /// Its name in messages.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Physical extents.
    pub shape: Vec<i64>,
    /// Distances in elements, one for each extent.
    pub strides: Vec<i64>,
    /// All extents, if one is not constant: the tensor is dense then, and [`shape`](Self::shape)
    /// says the number of its axes only.
    pub symbolic: Option<Vec<PackedExtent>>,
}

/// Type code of `TVMValue` for an integer.
const INT: i32 = 0;

/// Type codes of `TVMValue` for a pointer to a `DLTensor`: an opaque handle, a tensor, an array.
const HANDLES: &[i32] = &[3, 7, 13];

/// Type code of `TVMValue` for a string.
pub(super) const STRING: i32 = 11;

/// Device type of `DLTensor` for the CPU's memory.
const CPU: i64 = 1;

/// A field of `DLTensor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    Data,
    DeviceType,
    Ndim,
    DtypeCode,
    DtypeBits,
    DtypeLanes,
    Shape,
    ByteOffset,
}

/// What has to hold of the arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// There are so many.
    Count(usize),
    /// The type code of the argument is one of these.
    TypeCode(usize, &'static [i32]),
    /// The argument, a pointer, is not null.
    Tensor(usize),
    /// A field of the tensor, a pointer, is not null.
    Pointer(usize, Field),
    /// A field of the tensor has a value.
    Equal(usize, Field, i64),
    /// An extent of the tensor.
    Extent(usize, usize, i64),
    /// A distance of the tensor; `true` if the pointer to all of them may be null instead.
    Stride(usize, usize, i64, bool),
    /// An extent of the tensor is at least 0.
    NotNegative(usize, usize),
    /// An extent of the tensor, which is not constant.
    Symbolic(usize, usize, Size),
    /// The distance along an axis of a dense tensor with so many axes; the pointer to all of them
    /// may be null instead, and where there is one place or none the distance does not matter.
    DenseStride(usize, usize, usize),
    /// The tensor, of so many axes, has memory or no element.
    Data(usize, usize),
    /// An integer is at least 1.
    Positive(Size),
}

impl PackedWrapper {
    /// What has to hold of the arguments, in order, and what is said if it does not. Each
    /// condition may rely on those before it.
    pub(super) fn conditions(&self) -> Vec<(Condition, String)> {
        let is_passed = |dim: &&PackedDim| matches!(dim.size, Size::Argument(_));
        let passed: Vec<&PackedDim> = self.dims.iter().filter(is_passed).collect();
        let count = self.tensors.len() + passed.len();
        let symbol = &self.symbol;
        let mut all =
            vec![(Condition::Count(count), format!("{symbol}: {count} arguments are needed"))];
        for (position, tensor) in self.tensors.iter().enumerate() {
            let mut add = |condition, what: String| {
                let name = &tensor.name;
                all.push((condition, format!("{symbol}: argument {position} ({name}): {what}")));
            };
            let equal = |field, value: i64| Condition::Equal(position, field, value);
            let dtype = tensor.dtype;
            add(Condition::TypeCode(position, HANDLES), "a DLTensor is needed".to_owned());
            add(Condition::Tensor(position), "the DLTensor is null".to_owned());
            add(
                equal(Field::Ndim, tensor.shape.len() as i64),
                format!("ndim must be {}", tensor.shape.len()),
            );
            add(equal(Field::DtypeCode, dlpack_code(dtype)), format!("dtype must be {dtype}"));
            add(equal(Field::DtypeBits, i64::from(dtype.bits())), format!("dtype must be {dtype}"));
            add(equal(Field::DtypeLanes, 1), "dtype must have one lane".to_owned());
            add(
                equal(Field::DeviceType, CPU),
                "the tensor must be in the memory of the CPU".to_owned(),
            );
            add(equal(Field::ByteOffset, 0), "byte_offset must be 0".to_owned());
            if !tensor.shape.is_empty() {
                add(Condition::Pointer(position, Field::Shape), "shape is null".to_owned());
            }
            if tensor.symbolic.is_some() {
                let rank = tensor.shape.len();
                for axis in 0..rank {
                    let what = format!("shape[{axis}] must be at least 0");
                    add(Condition::NotNegative(position, axis), what);
                }
                for axis in 0..rank {
                    let what = format!("strides[{axis}] must be that of a dense tensor");
                    add(Condition::DenseStride(position, axis, rank), what);
                }
                add(Condition::Data(position, rank), "data is null".to_owned());
                continue;
            }
            for (axis, &extent) in tensor.shape.iter().enumerate() {
                add(
                    Condition::Extent(position, axis, extent),
                    format!("shape[{axis}] must be {extent}"),
                );
            }
            // Where there is one place or none, the distance to the next does not matter.
            let dense = BufferSpec::dense(&tensor.shape).strides();
            let matters = |axis: &usize| tensor.shape[*axis] > 1 && !tensor.shape.contains(&0);
            let axes: Vec<usize> = (0..tensor.shape.len()).filter(matters).collect();
            let is_dense = axes.iter().all(|&axis| dense[axis] == tensor.strides[axis]);
            for axis in axes {
                let stride = tensor.strides[axis];
                add(
                    Condition::Stride(position, axis, stride, is_dense),
                    format!("strides[{axis}] must be {stride}"),
                );
            }
            if !tensor.shape.contains(&0) {
                add(Condition::Pointer(position, Field::Data), "data is null".to_owned());
            }
        }
        for (number, dim) in passed.into_iter().enumerate() {
            let (position, name) = (self.tensors.len() + number, &dim.name);
            let what = format!("{symbol}: argument {position} ({name}): an integer is needed");
            all.push((Condition::TypeCode(position, &[INT]), what));
        }
        for (position, tensor) in self.tensors.iter().enumerate() {
            for (axis, PackedExtent { size, text }) in tensor.symbolic.iter().flatten().enumerate()
            {
                if *size == Size::Extent(position, axis) {
                    continue;
                }
                let what = format!(
                    "{symbol}: argument {position} ({}): shape[{axis}] must be {text}{}",
                    tensor.name,
                    self.origin(size)
                );
                all.push((Condition::Symbolic(position, axis, size.clone()), what));
            }
        }
        for PackedExtent { size, text } in &self.reduced {
            let what = format!("{symbol}: the reduction over {text} needs an element");
            all.push((Condition::Positive(size.clone()), what));
        }
        all
    }

    /// Where the dimensions of an integer are from, for messages.
    fn origin(&self, size: &Size) -> String {
        let mut used: Vec<&Size> = Vec::new();
        leaves(size, &mut used);
        let origins: Vec<String> = self
            .dims
            .iter()
            .filter(|dim| used.contains(&&dim.size))
            .filter_map(|dim| match dim.size {
                Size::Extent(position, axis) => {
                    Some(format!("{} is shape[{axis}] of argument {position}", dim.name))
                }
                Size::Constant(_) | Size::Argument(_) | Size::Binary(..) => None,
            })
            .collect();
        match origins.is_empty() {
            true => String::new(),
            false => format!(" ({})", origins.join(", ")),
        }
    }

    /// What is said when another call of the same function runs.
    pub(super) fn busy_message(&self) -> String {
        format!("{}: another call runs, and there is scratch memory for one", self.symbol)
    }
}

fn leaves<'a>(size: &'a Size, found: &mut Vec<&'a Size>) {
    match size {
        Size::Binary(_, lhs, rhs) => {
            leaves(lhs, found);
            leaves(rhs, found);
        }
        leaf @ (Size::Constant(_) | Size::Extent(..) | Size::Argument(_)) => found.push(leaf),
    }
}

/// The type code of `DLDataType`.
fn dlpack_code(dtype: DType) -> i64 {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::U4 | DType::U2 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
        DType::F8E4M3FN => 10,
        DType::F8E4M3FNUZ => 11,
        DType::F8E5M2 => 12,
        DType::F8E5M2FNUZ => 13,
        DType::F8E8M0 => 14,
        DType::F4E2M1 => 17,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(shape: &[i64], strides: &[i64]) -> Vec<String> {
        let tensor = PackedTensor {
            name: "x".to_owned(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            symbolic: None,
        };
        let wrapper = PackedWrapper {
            symbol: "f".to_owned(),
            kernel: "f_compute".to_owned(),
            tensors: vec![tensor],
            dims: vec![PackedDim { name: "n".to_owned(), size: Size::Argument(0) }],
            reduced: vec![],
            scratch_bytes: 0,
            flush_denormals: false,
        };
        wrapper.conditions().into_iter().map(|(_, message)| message).collect()
    }

    #[test]
    fn everything_about_a_tensor_is_checked() {
        assert_eq!(
            messages(&[4, 1, 8], &[8, 8, 1]),
            [
                "f: 2 arguments are needed",
                "f: argument 0 (x): a DLTensor is needed",
                "f: argument 0 (x): the DLTensor is null",
                "f: argument 0 (x): ndim must be 3",
                "f: argument 0 (x): dtype must be float32",
                "f: argument 0 (x): dtype must be float32",
                "f: argument 0 (x): dtype must have one lane",
                "f: argument 0 (x): the tensor must be in the memory of the CPU",
                "f: argument 0 (x): byte_offset must be 0",
                "f: argument 0 (x): shape is null",
                "f: argument 0 (x): shape[0] must be 4",
                "f: argument 0 (x): shape[1] must be 1",
                "f: argument 0 (x): shape[2] must be 8",
                "f: argument 0 (x): strides[0] must be 8",
                "f: argument 0 (x): strides[2] must be 1",
                "f: argument 0 (x): data is null",
                "f: argument 1 (n): an integer is needed",
            ]
        );
        let empty = messages(&[4, 0], &[0, 1]);
        assert!(
            !empty.iter().any(|text| text.contains("strides") || text.contains("data is null"))
        );
    }

    #[test]
    fn only_a_layout_without_gaps_may_leave_out_its_strides() {
        let strided = PackedTensor {
            name: "x".to_owned(),
            dtype: DType::F32,
            shape: vec![4, 6],
            strides: vec![8, 1],
            symbolic: None,
        };
        let wrapper = |tensor| PackedWrapper {
            symbol: "f".to_owned(),
            kernel: "k".to_owned(),
            tensors: vec![tensor],
            dims: vec![],
            reduced: vec![],
            scratch_bytes: 0,
            flush_denormals: false,
        };
        let may_be_null = |tensor: PackedTensor| {
            let conditions = wrapper(tensor).conditions();
            let strides = conditions.into_iter().filter_map(|(condition, _)| match condition {
                Condition::Stride(_, axis, _, null) => Some((axis, null)),
                _ => None,
            });
            strides.collect::<Vec<_>>()
        };
        assert_eq!(may_be_null(strided.clone()), [(0, false), (1, false)]);
        let dense = PackedTensor { strides: vec![6, 1], ..strided };
        assert_eq!(may_be_null(dense), [(0, true), (1, true)]);
    }
}
