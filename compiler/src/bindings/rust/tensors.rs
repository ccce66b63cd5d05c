//! What Rust bindings have for each input and output: a module of facts, and a field of the structs.

use std::fmt::Write as _;

use super::{NAMED_BY_MODEL, Open, Tensor, UNUSED, Writer, code, grouped, rust_type, shape};
use crate::executor::TensorInfo;

impl Writer<'_> {
    /// A module `inputs` or `outputs`, with one module for each tensor.
    pub(super) fn tensor_modules(&self, text: &mut String, name: &str, tensors: &[Tensor<'_>]) {
        put!(text, "\n/// Facts about the {name}.\n{UNUSED}pub mod {name} {{");
        let (function, reference) = match name {
            "inputs" => ("from_slice", "&"),
            _ => ("from_mut_slice", "&mut "),
        };
        for tensor in tensors {
            let info = tensor.info;
            let extents: Vec<_> = info.shape.iter().map(|extent| grouped(*extent)).collect();
            if let Some(Open { unit, .. }) = tensor.open {
                put!(
                    text,
                    "
    /// {what}
    pub mod {ident} {{
        /// Name in the model.
        pub const NAME: &str = {name:?};
        /// Type of the elements.
        pub const DTYPE: &str = \"{dtype}\";
        /// The greatest extents, outermost first: the sizes of a run decide {axes}.
        pub const SHAPE: [usize; {rank}] = [{extents}];
        /// Length of the longest slice.
        pub const LEN: usize = {len};
        /// Elements of a run whose sizes are 1.
        pub const UNIT_LEN: usize = {unit};
    }}
",
                    what = describe(tensor),
                    ident = tensor.ident,
                    name = info.name,
                    dtype = info.dtype.short_name(),
                    axes = axes_text(info),
                    rank = info.shape.len(),
                    extents = extents.join(", "),
                    len = grouped(tensor.len),
                    unit = grouped(unit),
                );
                continue;
            }
            put!(
                text,
                "
    /// {what}
    pub mod {ident} {{
        /// Name in the model.
        pub const NAME: &str = {name:?};
        /// Type of the elements.
        pub const DTYPE: &str = \"{dtype}\";
        /// Extents, outermost first.
        pub const SHAPE: [usize; {rank}] = [{extents}];
        /// Length of the array{packed}.
        pub const LEN: usize = {len};
        /// The elements, dense and row-major.
        pub type Tensor = [{element}; LEN];

        /// The tensor in a slice of the right length.
        ///
        /// # Errors
        ///
        /// The slice is shorter or longer than [`LEN`].
        pub fn {function}(
            elements: {reference}[{element}],
        ) -> ::core::result::Result<{reference}Tensor, super::super::__niello::ShapeError> {{
            let found = elements.len();
            ::core::convert::TryFrom::try_from(elements).map_err(|_| {{
                super::super::__niello::ShapeError {{ tensor: NAME, expected: LEN, found }}
            }})
        }}
    }}
",
                what = describe(tensor),
                ident = tensor.ident,
                name = info.name,
                dtype = info.dtype.short_name(),
                rank = info.shape.len(),
                extents = extents.join(", "),
                packed = if info.dtype.bits() < 8 { ": several elements to a byte" } else { "" },
                len = grouped(tensor.len),
                element = rust_type(info.dtype),
            );
        }
        text.push_str("}\n");
    }

    pub(super) fn tensor_structs(&self, text: &mut String) {
        let structs = [
            ("What a run reads.", "Clone, Copy, Debug", "Inputs", "&'a ", &self.inputs),
            (
                "What [`Model::run`] has computed, in the model's own buffers.",
                "Clone, Copy, Debug",
                "Outputs",
                "&'a ",
                &self.outputs,
            ),
            (
                "Where [`Model::run_into`] writes what it computes.",
                "Debug",
                "OutputsMut",
                "&'a mut ",
                &self.outputs,
            ),
        ];
        for (doc, derives, name, reference, tensors) in structs {
            put!(text, "\n/// {doc}\n{NAMED_BY_MODEL}#[derive({derives}");
            if tensors.is_empty() {
                text.push_str(", Default");
            }
            put!(text, ")]\npub struct {name}<'a> {{\n");
            if name == "Inputs" && self.sizes_are_given() {
                text.push_str(
                    "    /// The sizes of the run, which no input's length says alone.\n",
                );
                text.push_str("    pub sizes: Sizes,\n");
            }
            for tensor in tensors {
                let len = match tensor.open {
                    Some(_) => String::new(),
                    None => format!("; {}", grouped(tensor.len)),
                };
                put!(
                    text,
                    "    /// {}\n    pub {}: {reference}[{}{len}],\n",
                    describe(tensor),
                    tensor.ident,
                    rust_type(tensor.info.dtype),
                );
            }
            if tensors.is_empty() {
                text.push_str("    _none: ::core::marker::PhantomData<&'a ()>,\n");
            }
            text.push_str("}\n");
        }
    }
}

/// The axes whose extents are a run's own: `axis 1`.
fn axes_text(info: &TensorInfo) -> String {
    let axes: Vec<String> = info.run_time.iter().map(|open| open.axis.to_string()).collect();
    let noun = if axes.len() == 1 { "axis" } else { "axes" };
    format!("{noun} {}", axes.join(" and "))
}

/// Name, type and shape in the model, on one line of Markdown.
pub(super) fn describe(tensor: &Tensor<'_>) -> String {
    let info = tensor.info;
    format!("{} in the model: {} {}.", code(&info.name), info.dtype, code(&shape(info)))
}
