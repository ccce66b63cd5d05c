//! Bindings: the typed Rust module and the C header through which a compiled model is called.

mod header;
mod names;
mod rust;
#[cfg(test)]
mod tests;

pub use header::header;
pub use names::{identifiers, symbol_name};
pub use rust::rust;

use crate::diagnostics::Problem;
use crate::executor::{RunTimeSizes, TensorInfo};
use crate::ir::{DType, Dim};

/// Where a model's weights are at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightsPlacement {
    /// Linked into the binary.
    #[default]
    Embedded,
    /// In memory that the caller hands over: a file that was mapped or read.
    External,
}

/// What bindings need to know beside the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingsOptions {
    /// Where the weights are.
    pub weights: WeightsPlacement,
    /// Path of the runtime crate, `::niello_runtime` unless the user has renamed or re-exports it.
    pub runtime: String,
    /// Whether there is no code to link: same types, and a call ends the program with a message.
    pub stub: bool,
}

impl Default for BindingsOptions {
    fn default() -> Self {
        BindingsOptions {
            weights: WeightsPlacement::Embedded,
            runtime: "::niello_runtime".to_owned(),
            stub: false,
        }
    }
}

/// A tensor as bindings see it: a flat array.
struct Tensor<'a> {
    info: &'a TensorInfo,
    /// Name in Rust: an identifier, possibly a raw one.
    ident: String,
    /// Elements of the array.
    len: u64,
    /// Bytes of the array.
    bytes: u64,
    /// What a run has of it, if it says that itself.
    open: Option<Open>,
}

/// A tensor of which a run has as much as its sizes say.
struct Open {
    /// The extents that depend on sizes.
    extents: Vec<Dim>,
    /// Elements for each unit of their product.
    unit: u64,
}

impl<'a> Tensor<'a> {
    fn all(infos: &'a [TensorInfo], sizes: &RunTimeSizes) -> Result<Vec<Self>, Problem> {
        let idents = identifiers(infos.iter().map(|info| info.name.as_str()));
        let tensor = |(info, ident): (&'a TensorInfo, String)| {
            let too_large = || {
                Problem::new(format!(
                    "tensor `{}` of shape {} has more elements than can be counted",
                    info.name,
                    shape(info)
                ))
            };
            let elements = element_count(&info.shape).ok_or_else(too_large)?;
            let bytes = info.dtype.bytes_for(elements).ok_or_else(too_large)?;
            // Elements narrower than a byte are handed over packed, as bytes.
            let len = if info.dtype.bits() < 8 { bytes } else { elements };
            let open = (!info.run_time.is_empty()).then(|| {
                let extents: Vec<Dim> = info.run_time.iter().map(|o| o.extent.clone()).collect();
                let greatest = |dim| sizes.greatest(dim).map_or(1, i64::unsigned_abs);
                let most: u64 = extents.iter().map(greatest).product();
                Open { extents, unit: len / most.max(1) }
            });
            Ok(Tensor { info, ident, len, bytes, open })
        };
        infos.iter().zip(idents).map(tensor).collect()
    }
}

/// Product of the extents; an empty tensor has none whatever its other extents.
fn element_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))
}

/// The shape for people: `[batch = 1, 3, 224, 224]`.
fn shape(info: &TensorInfo) -> String {
    let mut dims = Vec::with_capacity(info.shape.len());
    for (axis, extent) in info.shape.iter().enumerate() {
        dims.push(match info.dim_names.get(axis) {
            Some(Some(name)) if info.open(axis).is_some() => format!("{name} = up to {extent}"),
            None | Some(None) if info.open(axis).is_some() => format!("up to {extent}"),
            Some(Some(name)) => format!("{name} = {extent}"),
            _ => extent.to_string(),
        });
    }
    format!("[{}]", dims.join(", "))
}

/// The Rust type that holds an element, or packed bytes of elements that are narrower.
fn rust_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u8",
        DType::U16 | DType::F16 | DType::BF16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => "u8",
    }
}

/// `text` on one line with everything that cannot be seen escaped.
///
/// Names in a model are any strings; compilers refuse characters that change the direction of text
/// in comments.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}
