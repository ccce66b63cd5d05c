//! The part of Rust bindings that is about sizes which each run has of its own.

use std::fmt::Write as _;

use super::{NAMED_BY_MODEL, Tensor, UNUSED, Writer, code, grouped};
use crate::bindings::identifiers;
use crate::diagnostics::Problem;

/// What may be wrong with a run of tensors that say its sizes.
const ERRORS: &str = "    ///
    /// # Errors
    ///
    /// The tensors' lengths do not go together, or say a size that the model was not compiled for.
";

impl Writer<'_> {
    /// Whether each run has sizes of its own.
    pub(super) fn has_sizes(&self) -> bool {
        !self.model.sizes.is_empty()
    }

    /// What a run returns, and the paragraph of its documentation about errors.
    pub(super) fn fallible(&self, result: &str) -> (String, &'static str) {
        match (self.has_sizes(), result) {
            (false, "()") => (String::new(), ""),
            (false, result) => (format!(" -> {result}"), ""),
            (true, result) => {
                (format!(" -> ::core::result::Result<{result}, __niello::SizeError>"), ERRORS)
            }
        }
    }

    /// The statement of a run that finds its sizes.
    pub(super) fn find_sizes(&self) -> &'static str {
        if self.has_sizes() { "        let sizes = Sizes::of(inputs)?;\n" } else { "" }
    }

    /// The statements that check the lengths of slices for outputs.
    pub(super) fn check_outputs(&self) -> String {
        self.outputs.iter().filter(|tensor| tensor.unit.is_some()).fold(
            String::new(),
            |mut text, tensor| {
                let Tensor { ident, info, .. } = tensor;
                put!(
                    text,
                    "        __niello::check_output({:?}, outputs.{ident}.len(), {})?;\n",
                    info.name,
                    self.length(tensor)
                );
                text
            },
        )
    }

    /// The part of a buffer that belongs to a run, in brackets; empty if all of it does.
    pub(super) fn part(&self, tensor: &Tensor<'_>) -> String {
        match tensor.unit {
            Some(_) => format!("[..{}]", self.length(tensor)),
            None => String::new(),
        }
    }

    /// Elements of a tensor in a run.
    fn length(&self, tensor: &Tensor<'_>) -> String {
        match tensor.unit {
            Some((size, unit)) => format!("sizes.{} * {}", self.size_idents()[size], grouped(unit)),
            None => grouped(tensor.len),
        }
    }

    fn size_idents(&self) -> Vec<String> {
        identifiers(self.model.sizes.iter().map(|size| size.name.as_str()))
    }

    /// The struct `Sizes`.
    ///
    /// # Errors
    ///
    /// No input has an element for each unit of a size.
    pub(super) fn sizes(&self, text: &mut String) -> Result<(), Problem> {
        if !self.has_sizes() {
            return Ok(());
        }
        let idents = self.size_idents();
        let sizes = || self.model.sizes.iter().zip(&idents).enumerate();
        let doc = |(_, (size, _)): (usize, (&crate::executor::RunTimeSize, &String))| {
            format!("{} in the model: {} to {}.", code(&size.name), size.min, size.max)
        };
        put!(
            text,
            "\n/// The sizes of a run, which the lengths of its inputs say.\n{NAMED_BY_MODEL}\
             #[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub struct Sizes {{\n"
        );
        for entry in sizes() {
            put!(text, "    /// {}\n    pub {}: usize,\n", doc(entry), entry.1.1);
        }
        put!(text, "}}\n\n{UNUSED}impl Sizes {{\n");
        put!(
            text,
            "    /// The sizes of a run with these inputs.
    ///
    /// # Errors
    ///
    /// The lengths of the inputs do not go together, or say a size that the model was not compiled for.
    pub fn of(inputs: &Inputs<'_>) -> ::core::result::Result<Self, __niello::SizeError> {{
        ::core::result::Result::Ok(Sizes {{
"
        );
        for (number, (size, ident)) in sizes() {
            let (name, min, max) = (&size.name, size.min, size.max);
            put!(
                text,
                "            {ident}: __niello::RunSize {{ name: {name:?}, min: {min}, max: {max} }}.of(&[\n"
            );
            let mut found = false;
            for tensor in &self.inputs {
                if let Some((size, unit)) = tensor.unit.filter(|(_, unit)| *unit > 0)
                    && size == number
                {
                    let Tensor { ident, info, .. } = tensor;
                    let unit = grouped(unit);
                    found = true;
                    put!(
                        text,
                        "                ({:?}, inputs.{ident}.len(), {unit}),\n",
                        info.name
                    );
                }
            }
            if !found {
                let what = format!("no input has elements that say how large `{name}` is");
                return Err(Problem::new(what));
            }
            text.push_str("            ])?,\n");
        }
        text.push_str("        })\n    }\n}\n");
        Ok(())
    }

    /// The statement that puts the sizes where the compiled code reads them.
    pub(super) fn sizes_array(&self) -> String {
        let fields = self.size_idents().into_iter().map(|ident| format!("sizes.{ident} as i64"));
        let fields = fields.collect::<Vec<_>>().join(", ");
        format!("    let sizes: [i64; {}] = [{fields}];\n", self.model.sizes.len())
    }
}
