//! The part of Rust bindings that is about sizes which each run has of its own.

use std::fmt::Write as _;

use super::{NAMED_BY_MODEL, Open, Tensor, UNUSED, Writer, code, grouped};
use crate::arith::{Atom, View};
use crate::bindings::identifiers;
use crate::ir::Dim;

/// What may be wrong with a run of tensors that say its sizes.
const ERRORS: &str = "    ///
    /// # Errors
    ///
    /// The tensors' lengths, or sizes that the run computes, do not go together, or the model was not
    /// compiled for them.
";

impl Writer<'_> {
    /// Whether each run has sizes of its own.
    pub(super) fn has_sizes(&self) -> bool {
        !self.model.sizes.is_empty()
    }

    /// Whether callers tell a run sizes, and may tell wrong ones.
    pub(super) fn is_told(&self) -> bool {
        self.model.sizes.iter().any(|size| !size.counted)
    }

    /// Whether a run computes sizes.
    pub(super) fn counts(&self) -> bool {
        self.model.sizes.iter().any(|size| size.counted)
    }

    /// Whether a run may fail: callers tell it wrong sizes, or it finds others than the model takes them
    /// to be.
    pub(super) fn fails(&self) -> bool {
        self.is_told() || !self.model.sizes.equal_counts.is_empty()
    }

    /// What a run returns that may fail or not, and the paragraph of its documentation about errors.
    pub(super) fn result(fails: bool, result: &str) -> (String, &'static str) {
        match (fails, result) {
            (false, "()") => (String::new(), ""),
            (false, result) => (format!(" -> {result}"), ""),
            (true, result) => {
                (format!(" -> ::core::result::Result<{result}, __niello::SizeError>"), ERRORS)
            }
        }
    }

    /// The statement of a run that finds its sizes.
    pub(super) fn find_sizes(&self) -> &'static str {
        match (self.has_sizes(), self.is_told()) {
            (false, _) => "",
            (true, false) => "        let sizes = Sizes::GREATEST;\n",
            (true, true) => "        let sizes = Sizes::of(inputs)?;\n",
        }
    }

    /// The statements that check the lengths of slices for outputs.
    pub(super) fn check_outputs(&self) -> String {
        self.outputs.iter().filter(|tensor| tensor.open.is_some()).fold(
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
        match tensor.open {
            Some(_) => format!("[..{}]", self.length(tensor)),
            None => String::new(),
        }
    }

    /// Elements of a tensor in a run.
    fn length(&self, tensor: &Tensor<'_>) -> String {
        let Some(Open { extents, unit }) = &tensor.open else { return grouped(tensor.len) };
        let extents = extents.iter().map(|dim| self.extent(dim));
        let unit = (*unit != 1).then(|| grouped(*unit));
        extents.chain(unit).collect::<Vec<_>>().join(" * ")
    }

    /// An extent in Rust, of numbers that are not negative on the way: sums have their positive terms
    /// first.
    fn extent(&self, dim: &Dim) -> String {
        let poly = match dim.view() {
            View::Const(value) => return grouped(value.max(0).unsigned_abs()),
            View::Poison(_) => return "0".to_owned(),
            View::Poly(poly) => poly,
        };
        let (mut plus, mut minus) = (Vec::new(), Vec::new());
        for term in poly.terms() {
            let factors = term.factors().iter().flat_map(|factor| {
                std::iter::repeat_n(self.atom(&factor.atom), factor.power as usize)
            });
            let product = factors.collect::<Vec<_>>().join(" * ");
            let text = match term.coefficient().unsigned_abs() {
                1 => product,
                factor => format!("{} * {product}", grouped(factor)),
            };
            if term.coefficient() > 0 { plus.push(text) } else { minus.push(text) }
        }
        match poly.constant() {
            0 => {}
            constant @ 1.. => plus.push(grouped(constant.unsigned_abs())),
            constant => minus.push(grouped(constant.unsigned_abs())),
        }
        if minus.is_empty() && plus.len() == 1 && poly.terms().len() == 1 {
            return plus.swap_remove(0);
        }
        let minus = minus.iter().map(|term| format!(" - {term}"));
        format!("({}{})", plus.join(" + "), minus.collect::<String>())
    }

    fn atom(&self, atom: &Atom) -> String {
        let extremum = |operands: &[Dim], function: &str| {
            let mut operands = operands.iter().map(|operand| self.extent(operand));
            let first = operands.next().unwrap_or_default();
            operands.fold(first, |so_far, next| {
                format!("::core::cmp::Ord::{function}({so_far}, {next})")
            })
        };
        match atom {
            Atom::Symbol(symbol) => {
                let name = symbol.name();
                let number = self.model.sizes.iter().position(|size| size.name == name);
                let idents = self.size_idents();
                number.map_or("0".to_owned(), |number| format!("sizes.{}", idents[number]))
            }
            Atom::FloorDiv(a, b) => format!("({} / {})", self.extent(a), self.extent(b)),
            Atom::Mod(a, b) => format!("({} % {})", self.extent(a), self.extent(b)),
            Atom::Min(operands) => extremum(operands, "min"),
            Atom::Max(operands) => extremum(operands, "max"),
        }
    }

    fn size_idents(&self) -> Vec<String> {
        identifiers(self.model.sizes.iter().map(|size| size.name.as_str()))
    }

    /// The inputs whose lengths are so many times a size, with how many.
    fn says(&self, size: usize) -> impl Iterator<Item = (&Tensor<'_>, u64)> {
        self.inputs.iter().filter_map(move |tensor| {
            let Open { extents, unit } = tensor.open.as_ref()?;
            let [extent] = extents.as_slice() else { return None };
            let (number, factor, 0) = self.model.sizes.linear(extent)? else { return None };
            let unit = unit * factor.unsigned_abs();
            (number == size && unit > 0).then_some((tensor, unit))
        })
    }

    /// Whether callers say the sizes of a run, as the lengths of inputs do not.
    pub(super) fn sizes_are_given(&self) -> bool {
        let sizes = self.model.sizes.iter().enumerate();
        let mut told = sizes.filter(|(_, size)| !size.counted);
        told.any(|(number, _)| self.says(number).next().is_none())
    }

    /// The struct `Sizes`.
    pub(super) fn sizes(&self, text: &mut String) {
        if !self.has_sizes() {
            return;
        }
        let idents = self.size_idents();
        let sizes = || self.model.sizes.iter().zip(&idents).enumerate();
        let given = self.sizes_are_given();
        let doc = match (given, self.is_told(), self.counts()) {
            (true, ..) => "",
            (false, false, _) => ", which it computes",
            (false, true, true) => ": the lengths of its inputs say some, and it computes others",
            (false, true, false) => ", which the lengths of its inputs say",
        };
        put!(
            text,
            "\n/// The sizes of a run{doc}.\n{NAMED_BY_MODEL}\
             #[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub struct Sizes {{\n"
        );
        for (_, (size, ident)) in sizes() {
            let name = code(&size.name);
            let from = if size.counted { ", which a run computes" } else { "" };
            put!(text, "    /// {name} in the model{from}: {}.\n", size.in_words());
            put!(text, "    pub {ident}: usize,\n");
        }
        put!(text, "}}\n\n{UNUSED}impl Sizes {{\n");
        text.push_str("    /// The greatest: what there is room for.\n");
        text.push_str("    pub const GREATEST: Sizes = Sizes {");
        for (_, (size, ident)) in sizes() {
            put!(text, " {ident}: {},", grouped(size.max));
        }
        text.pop();
        text.push_str(" };\n");
        if !self.is_told() {
            text.push_str("}\n");
            return;
        }
        let counted = match self.counts() {
            true => " Those that it computes are the greatest.",
            false => "",
        };
        put!(
            text,
            "\n    /// The sizes of a run with these inputs.{counted}
    ///
    /// # Errors
    ///
    /// The lengths of the inputs do not go together, or say sizes that the model was not compiled for.
    pub fn of(inputs: &Inputs<'_>) -> ::core::result::Result<Self, __niello::SizeError> {{
        let sizes = Sizes {{
"
        );
        for (number, (size, ident)) in sizes() {
            let (name, min, max) = (&size.name, size.min, size.max);
            if size.counted {
                put!(text, "            {ident}: {},\n", grouped(max));
                continue;
            }
            let size = format!("__niello::RunSize {{ name: {name:?}, min: {min}, max: {max} }}");
            if given {
                put!(text, "            {ident}: {size}.check(inputs.sizes.{ident})?,\n");
                continue;
            }
            put!(text, "            {ident}: {size}.of(&[\n");
            for (Tensor { ident, info, .. }, unit) in self.says(number) {
                let (name, unit) = (&info.name, grouped(unit));
                put!(text, "                ({name:?}, inputs.{ident}.len(), {unit}),\n");
            }
            text.push_str("            ])?,\n");
        }
        text.push_str("        };\n");
        for tensor in &self.inputs {
            let Tensor { ident, info, open, .. } = tensor;
            let said = |size| self.says(size).any(|(other, _)| std::ptr::eq(other, tensor));
            let is_said = !given && (0..self.model.sizes.len()).any(said);
            if open.is_some() && !is_said {
                let (name, length) = (&info.name, self.length(tensor));
                put!(
                    text,
                    "        __niello::check_input({name:?}, inputs.{ident}.len(), {length})?;\n"
                );
            }
        }
        text.push_str(&self.check_equal(&self.model.sizes.equal));
        text.push_str("        ::core::result::Result::Ok(sizes)\n    }\n}\n");
    }

    /// The statements that check the sizes that a run has computed.
    pub(super) fn check_counts(&self) -> String {
        self.check_equal(&self.model.sizes.equal_counts)
    }

    fn check_equal(&self, pairs: &[(Dim, Dim)]) -> String {
        pairs.iter().fold(String::new(), |mut text, (left, right)| {
            let [first, second] = [left, right]
                .map(|side| format!("({:?}, {})", side.to_string(), self.extent(side)));
            put!(text, "        __niello::check_equal({first}, {second})?;\n");
            text
        })
    }

    /// The statement that puts the sizes where the compiled code reads them, and writes those that it
    /// computes.
    pub(super) fn sizes_array(&self) -> String {
        let fields = self.size_idents().into_iter().map(|ident| format!("sizes.{ident} as i64"));
        let fields = fields.collect::<Vec<_>>().join(", ");
        let mutable = if self.counts() { "mut " } else { "" };
        format!("    let {mutable}of_run: [i64; {}] = [{fields}];\n", self.model.sizes.len())
    }

    /// The expression of the sizes as the compiled code has left them.
    pub(super) fn counted_sizes(&self) -> String {
        let mut text = String::from("    Sizes {\n");
        for (number, (size, ident)) in self.model.sizes.iter().zip(self.size_idents()).enumerate() {
            if size.counted {
                put!(
                    text,
                    "        {ident}: ::core::convert::TryFrom::try_from(of_run[{number}])\
                     .unwrap_or(0),\n"
                );
            }
        }
        if self.is_told() {
            text.push_str("        ..sizes\n");
        }
        text + "    }\n"
    }
}
