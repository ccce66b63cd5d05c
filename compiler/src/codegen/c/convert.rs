//! Conversions between vectors of integers of different widths.
//!
//! `__builtin_convertvector` is what clang makes one or two instructions of. gcc 12 takes vectors
//! apart where the widths differ by more than a factor of two, and puts halves together where x86 has
//! one instruction.

use super::helpers::{is_x86, suffix};
use super::preamble::Preamble;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::PrimType;

/// The text of `value`, a vector of the integer type `from`, converted to the integer type `to`.
pub(super) fn convert(
    preamble: &mut Preamble,
    value: &str,
    from: PrimType,
    to: DType,
    target: &Target,
) -> String {
    let result = from.with_dtype(to);
    if let Some(builtin) = widening(from, result, target) {
        let helper = widen(preamble, from, result, &builtin);
        return format!("{helper}({value})");
    }
    let mut text = value.to_owned();
    // AVX-512 has all narrowing conversions, which gcc uses.
    if !(is_x86(target) && target.has_feature("avx512f") && to.bits() < from.dtype.bits()) {
        for step in steps(from.dtype, to) {
            let step = preamble.type_name(from.with_dtype(step));
            text = format!("__builtin_convertvector({text}, {step})");
        }
    }
    let result = preamble.type_name(result);
    format!("__builtin_convertvector({text}, {result})")
}

/// The types between two widths: each has half or twice the bits of the one before it.
fn steps(from: DType, to: DType) -> Vec<DType> {
    let wide = from.bits().max(to.bits());
    // Which sign the narrower one has decides what is in the upper bits.
    let narrow = if from.bits() < to.bits() { from } else { to };
    let all =
        if narrow.is_signed_int() { [DType::I16, DType::I32] } else { [DType::U16, DType::U32] };
    let between = |step: &DType| step.bits() > narrow.bits() && step.bits() < wide;
    let mut steps: Vec<DType> = all.into_iter().filter(between).collect();
    if to.bits() < from.bits() {
        steps.reverse();
    }
    steps
}

/// The builtin function of gcc that widens whole registers of an x86.
fn widening(from: PrimType, to: PrimType, target: &Target) -> Option<String> {
    let feature = match (to.bits(), from.dtype.bits()) {
        (128, _) => "sse4.1",
        (256, _) => "avx2",
        (512, 8) if to.dtype.bits() == 16 => "avx512bw",
        (512, _) => "avx512f",
        _ => return None,
    };
    let wider = to.dtype.bits() > from.dtype.bits();
    // gcc 12 fails on some of those to 64 bits: "could not split insn".
    if !is_x86(target) || !target.has_feature(feature) || !wider || to.dtype.bits() > 32 {
        return None;
    }
    let letter = |bits: u32| match bits {
        8 => 'b',
        16 => 'w',
        _ => 'd',
    };
    let (sign, mask) = (
        if from.dtype.is_signed_int() { "sx" } else { "zx" },
        if to.bits() == 512 { "_mask" } else { "" },
    );
    let [narrow, wide] = [from, to].map(|ty| letter(ty.dtype.bits()));
    Some(format!("__builtin_ia32_pmov{sign}{narrow}{wide}{}{mask}", to.bits()))
}

/// A helper that calls such a builtin.
fn widen(preamble: &mut Preamble, from: PrimType, to: PrimType, builtin: &str) -> String {
    let name = format!("widen_{}_{}", suffix(from), suffix(to));
    preamble.helper(name, true, |preamble, name| {
        let [source, result] = [from, to].map(|ty| preamble.type_name(ty));
        let element = |dtype: DType| match dtype.bits() {
            8 => "char",
            16 => "short",
            _ => "int",
        };
        // The builtins take whole registers, and vectors of C's own types.
        let operand_bytes = (from.bits() / 8).max(16);
        let whole = match from.bits() {
            16 => "(short __attribute__((vector_size(16)))){(short)x}".to_owned(),
            32 => "(int __attribute__((vector_size(16)))){(int)x}".to_owned(),
            64 => "(long long __attribute__((vector_size(16)))){(long long)x}".to_owned(),
            _ => "x".to_owned(),
        };
        let operand = format!(
            "({} __attribute__((vector_size({operand_bytes})))){whole}",
            element(from.dtype)
        );
        let wide = format!("{} __attribute__((vector_size({})))", element(to.dtype), to.bits() / 8);
        let all = match to.lanes {
            _ if to.bits() != 512 => String::new(),
            32 => format!(", ({wide}){{0}}, (unsigned)-1"),
            _ => format!(", ({wide}){{0}}, (unsigned short)-1"),
        };
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n#ifdef __clang__\n    \
             return __builtin_convertvector(x, {result});\n#else\n    \
             return ({result}){builtin}({operand}{all});\n#endif\n}}\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_change_by_two() {
        assert_eq!(steps(DType::U8, DType::I32), [DType::U16]);
        assert_eq!(steps(DType::I8, DType::I64), [DType::I16, DType::I32]);
        assert_eq!(steps(DType::I64, DType::U8), [DType::U32, DType::U16]);
        assert_eq!(steps(DType::I16, DType::I32), []);
    }
}
