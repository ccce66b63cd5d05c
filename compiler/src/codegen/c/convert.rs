//! Conversions between vectors of integers of different widths.
//!
//! `__builtin_convertvector` is what clang makes one or two instructions of. gcc 12 takes vectors
//! apart where the widths differ by more than a factor of two, and puts halves together where x86 has
//! one instruction. On AArch64 it has no vectors of four bytes.

use super::super::kernel::{low_bytes, picks_low_bytes};
use super::helpers::{is_x86, list, suffix};
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
    if let Some(instructions) = four_bytes(from, result, target) {
        let helper = through_word(preamble, from, result, instructions);
        return format!("{helper}({value})");
    }
    if picks_low_bytes(from, to, target) {
        let helper = pick_low_bytes(preamble, from, result);
        return format!("{helper}({value})");
    }
    if is_x86(target) && target.has_feature("avx512f") && to.bits() < from.dtype.bits() {
        let helper = narrow(preamble, from, result);
        return format!("{helper}({value})");
    }
    let mut text = value.to_owned();
    for step in steps(from.dtype, to) {
        let step = preamble.type_name(from.with_dtype(step));
        text = format!("__builtin_convertvector({text}, {step})");
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

/// A helper for the narrowing conversions of AVX-512, which gcc uses unless it sees that the integers
/// are the bits of floats. Its name comes before those of casts, which use it.
fn narrow(preamble: &mut Preamble, from: PrimType, to: PrimType) -> String {
    let name = format!("bytes_{}_{}", suffix(from), suffix(to));
    preamble.helper(name, true, |preamble, name| {
        let [source, result] = [from, to].map(|ty| preamble.type_name(ty));
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n#ifndef __clang__\n    \
             __asm__(\"\" : \"+v\"(x));\n#endif\n    \
             return __builtin_convertvector(x, {result});\n}}\n"
        )
    })
}

/// A helper for the lowest bytes of the integers of a register. Its name comes before those of casts,
/// which use it.
fn pick_low_bytes(preamble: &mut Preamble, from: PrimType, to: PrimType) -> String {
    let name = format!("bytes_{}_{}", suffix(from), suffix(to));
    preamble.helper(name, true, |preamble, name| {
        let [source, result] = [from, to].map(|ty| preamble.type_name(ty));
        let [all, words] = [(DType::I8, 32), (DType::I32, 8)]
            .map(|(dtype, lanes)| preamble.type_name(PrimType::vector(dtype, lanes)));
        let (bytes, order) = low_bytes();
        let (bytes, order) = (list(&bytes), list(&order));
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n    \
             const {all} bytes = {{{bytes}}};\n    const {words} order = {{{order}}};\n    \
             {words} r;\n    \
             __asm__(\"vpshufb %2, %1, %0\\n\\tvpermd %0, %3, %0\" : \"=&x\"(r) : \"x\"(x), \
             \"x\"(bytes), \"x\"(order));\n    \
             return ({result})((long long __attribute__((vector_size(32))))r)[0];\n}}\n"
        )
    })
}

/// The instructions of AArch64 between four bytes, which gcc takes for no vector, and four wider integers.
fn four_bytes(from: PrimType, to: PrimType, target: &Target) -> Option<&'static str> {
    if target.arch != "aarch64" || !target.has_feature("neon") || from.lanes != 4 {
        return None;
    }
    Some(match (from.dtype.bits(), to.dtype.bits(), from.dtype.is_signed_int()) {
        (8, 16, false) => "uxtl %0.8h, %1.8b",
        (8, 16, true) => "sxtl %0.8h, %1.8b",
        (8, 32, false) => "uxtl %0.8h, %1.8b\\n\\tuxtl %0.4s, %0.4h",
        (8, 32, true) => "sxtl %0.8h, %1.8b\\n\\tsxtl %0.4s, %0.4h",
        (16, 8, _) => "xtn %0.8b, %1.8h",
        (32, 8, _) => "xtn %0.4h, %1.4s\\n\\txtn %0.8b, %0.8h",
        _ => return None,
    })
}

/// A helper of such instructions, for which the bytes are a word. Its name comes before those of casts,
/// which use it.
fn through_word(
    preamble: &mut Preamble,
    from: PrimType,
    to: PrimType,
    instructions: &str,
) -> String {
    let name = format!("bytes_{}_{}", suffix(from), suffix(to));
    preamble.helper(name, true, |preamble, name| {
        let [source, result] = [from, to].map(|ty| preamble.type_name(ty));
        let word = preamble.type_name(DType::U32.into());
        let gcc = match from.dtype.bits() {
            8 => format!(
                "    const {word} bytes = ({word})x;\n    {result} r;\n    \
                 __asm__(\"{instructions}\" : \"=w\"(r) : \"w\"(bytes));\n    return r;\n"
            ),
            _ => format!(
                "    {word} bytes;\n    __asm__(\"{instructions}\" : \"=w\"(bytes) : \"w\"(x));\n    \
                 return ({result})bytes;\n"
            ),
        };
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n#ifdef __clang__\n    \
             return __builtin_convertvector(x, {result});\n#else\n{gcc}#endif\n}}\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_have_instructions_on_aarch64() {
        let arm = Target::from_triple("aarch64-unknown-linux-gnu").unwrap();
        let x86 = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        let of = |from: DType, to: DType, lanes: u32, target: &Target| {
            four_bytes(PrimType::vector(from, lanes), PrimType::vector(to, lanes), target)
        };
        for (from, to, word) in [
            (DType::U8, DType::I32, "uxtl"),
            (DType::I8, DType::I16, "sxtl"),
            (DType::I32, DType::U8, "xtn"),
            (DType::I16, DType::I8, "xtn"),
        ] {
            assert!(
                of(from, to, 4, &arm).is_some_and(|text| text.starts_with(word)),
                "{from} {to}"
            );
            assert_eq!([of(from, to, 8, &arm), of(from, to, 4, &x86)], [None, None]);
        }
        // Whole registers, of which gcc has vectors.
        assert_eq!(of(DType::I16, DType::I32, 4, &arm), None);
    }

    #[test]
    fn widths_change_by_two() {
        assert_eq!(steps(DType::U8, DType::I32), [DType::U16]);
        assert_eq!(steps(DType::I8, DType::I64), [DType::I16, DType::I32]);
        assert_eq!(steps(DType::I64, DType::U8), [DType::U32, DType::U16]);
        assert_eq!(steps(DType::I16, DType::I32), []);
    }
}
