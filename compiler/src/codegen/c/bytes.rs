//! Helpers for vectors of bytes.

use super::super::kernel::turned_quarters;
use super::helpers::{list, suffix};
use super::preamble::Preamble;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::PrimType;

/// `c` plus the products of `a` and `b` in groups of four; the target has an instruction for it, or
/// one for products of `int16` in groups of two.
///
/// In assembly, as GCC 12 keeps the accumulators of its own function in memory, Clang has another
/// name for some of these functions, and those of Arm would need a header.
pub(super) fn dot_add(preamble: &mut Preamble, ty: PrimType, target: &Target) -> String {
    preamble.helper(format!("dot_add_{}", suffix(ty)), true, |preamble, name| {
        let bytes = |dtype| PrimType::vector(dtype, ty.lanes * 4);
        let c = preamble.type_name(ty);
        let a = preamble.type_name(bytes(DType::U8));
        let b = preamble.type_name(bytes(DType::I8));
        let has = |feature| target.has_feature(feature);
        if target.arch == "aarch64" {
            let body = match target.has_dot_add(ty.lanes) {
                true => aarch64_dot_add([&a, &c], ("a", "16b"), target),
                false => {
                    let words = PrimType::vector(DType::I16, ty.lanes * 2);
                    aarch64_pair_add(&preamble.type_name(words))
                }
            };
            return format!(
                "NIELLO_INLINE {c} {name}({a} a, {b} b, {c} c) {{\n{body}    return c;\n}}\n"
            );
        }
        if !target.has_dot_add(ty.lanes) {
            // Even bytes and odd ones.
            let pairs = add_pairs(preamble, ty, target);
            let [[a0, a1], [b0, b1]] = [DType::U8, DType::I8]
                .map(|dtype| [0, 1].map(|first| alternate_words(preamble, bytes(dtype), first)));
            return format!(
                "NIELLO_INLINE {c} {name}({a} a, {b} b, {c} c) {{\n    \
                 const {c} even = {pairs}({a0}(a), {b0}(b));\n    \
                 return c + even + {pairs}({a1}(a), {b1}(b));\n}}\n"
            );
        }
        // Without AVX-512 in vectors of this width there is only the encoding of AVX.
        let has_evex = has("avx512vnni") && (ty.bits() == 512 || has("avx512vl"));
        let prefix = if has_evex { "" } else { "%{vex%} " };
        format!(
            "NIELLO_INLINE {c} {name}({a} a, {b} b, {c} c) {{\n    \
             __asm__(\"{prefix}vpdpbusd %2, %1, %0\" : \"+v\"(c) : \"v\"(a), \"v\"(b));\n    \
             return c;\n}}\n"
        )
    })
}

/// The same where the bytes of `a` are four, over and over: an instruction takes them from any lane of
/// a register. `None` if the target has none that does.
pub(super) fn dot_add_four(
    preamble: &mut Preamble,
    ty: PrimType,
    target: &Target,
) -> Option<String> {
    let takes_lanes = target.arch == "aarch64" && target.has_dot_add(ty.lanes);
    takes_lanes.then(|| {
        preamble.helper(format!("dot_add_four_{}", suffix(ty)), true, |preamble, name| {
            let c = preamble.type_name(ty);
            let a = preamble.type_name(PrimType::vector(DType::U8, 4));
            let [b, unsigned] = [DType::I8, DType::U8]
                .map(|dtype| preamble.type_name(PrimType::vector(dtype, ty.lanes * 4)));
            let word = preamble.type_name(DType::U32.into());
            let body = aarch64_dot_add([&unsigned, &c], ("four", "4b[0]"), target);
            format!(
                "NIELLO_INLINE {c} {name}({a} a, {b} b, {c} c) {{\n    \
                 const {word} four = ({word})a;\n{body}    return c;\n}}\n"
            )
        })
    })
}

/// What adds the products of bytes and `b`, in groups of four, to `c` by instructions of AArch64 that do
/// so. Where the bytes are: an operand, and its arrangement.
fn aarch64_dot_add(
    [bytes, sums]: [&str; 2],
    (a, arrangement): (&str, &str),
    target: &Target,
) -> String {
    let dot = |instruction: &str, sum: &str, by: &str| {
        format!(
            "    __asm__(\"{instruction} %0.4s, %1.16b, %2.{arrangement}\" : \"+w\"({sum}) : \
             \"w\"({by}), \"w\"({a}));\n"
        )
    };
    if target.has_dot_add_of_signs() {
        // The unsigned operand is the first one, unless it is in a lane.
        return match arrangement {
            "16b" => {
                "    __asm__(\"usdot %0.4s, %1.16b, %2.16b\" : \"+w\"(c) : \"w\"(a), \"w\"(b));\n"
                    .to_owned()
            }
            _ => dot("sudot", "c", "b"),
        };
    }
    // Products with signed bytes are those with unsigned ones that are greater by 128, less 128 times
    // the sum of the others: that is one instruction for all columns of a row.
    let high = ["128"; 16].join(", ");
    format!(
        "    const {bytes} high = {{{high}}}, raised = ({bytes})b ^ high;\n    {sums} excess = {{0}};\n{}{}    \
         c -= excess;\n",
        dot("udot", "excess", "high"),
        dot("udot", "c", "raised"),
    )
}

/// The same by products of words. A product of an unsigned and a signed byte is one; those of the first
/// two of each four are added in pairs, and those of the last two.
fn aarch64_pair_add(words: &str) -> String {
    let mut text = format!("    {words} a_lower, a_upper, b_lower, b_upper, a_pairs, b_pairs;\n");
    for (operand, widen) in [("a", "uxtl"), ("b", "sxtl")] {
        text += &format!(
            "    __asm__(\"{widen} %0.8h, %1.8b\" : \"=w\"({operand}_lower) : \"w\"({operand}));\n    \
             __asm__(\"{widen}2 %0.8h, %1.16b\" : \"=w\"({operand}_upper) : \"w\"({operand}));\n"
        );
    }
    for pick in ["uzp1", "uzp2"] {
        for operand in ["a", "b"] {
            text += &format!(
                "    __asm__(\"{pick} %0.4s, %1.4s, %2.4s\" : \"=w\"({operand}_pairs) : \
                 \"w\"({operand}_lower), \"w\"({operand}_upper));\n"
            );
        }
        text += "    a_pairs *= b_pairs;\n    \
                 __asm__(\"sadalp %0.4s, %1.8h\" : \"+w\"(c) : \"w\"(a_pairs));\n";
    }
    text
}

/// The products of words, each two of them added; the target has an instruction for it.
pub(super) fn add_pairs(preamble: &mut Preamble, ty: PrimType, target: &Target) -> String {
    preamble.helper(format!("add_pairs_{}", suffix(ty)), true, |preamble, name| {
        let words = preamble.type_name(PrimType::vector(DType::I16, ty.lanes * 2));
        let sums = preamble.type_name(ty);
        let pairs = match target.has_feature("avx") {
            true => "__asm__(\"vpmaddwd %2, %1, %0\" : \"=v\"(r) : \"v\"(x), \"vm\"(y))",
            false => "r = x;\n    __asm__(\"pmaddwd %1, %0\" : \"+x\"(r) : \"x\"(y))",
        };
        format!(
            "NIELLO_INLINE {sums} {name}({words} x, {words} y) {{\n    \
             {words} r;\n    {pairs};\n    return ({sums})r;\n}}\n"
        )
    })
}

/// Every second one of a vector of bytes as words, the first of all among them or the second.
pub(super) fn alternate_words(preamble: &mut Preamble, operand: PrimType, first: u32) -> String {
    let name = format!("alternate{first}_{}", suffix(operand));
    preamble.helper(name, true, |preamble, name| {
        let bytes = preamble.type_name(operand);
        let words = |dtype| PrimType::vector(dtype, operand.lanes / 2);
        let (signed, unsigned) =
            (preamble.type_name(words(DType::I16)), preamble.type_name(words(DType::U16)));
        let value = match (operand.dtype, first) {
            (DType::U8, 0) => format!("({signed})(({unsigned})v & 255)"),
            (DType::U8, _) => format!("({signed})(({unsigned})v >> 8)"),
            (_, 0) => format!("({signed})(({unsigned})v << 8) >> 8"),
            (_, _) => format!("({signed})v >> 8"),
        };
        format!("NIELLO_INLINE {signed} {name}({bytes} v) {{\n    return {value};\n}}\n")
    })
}

/// 64 bytes of which the quarters are turned.
pub(super) fn turn(preamble: &mut Preamble, operand: PrimType) -> String {
    preamble.helper(format!("turn_{}", suffix(operand)), true, |preamble, name| {
        let whole = preamble.type_name(operand);
        let all_words = preamble.type_name(PrimType::vector(DType::I32, 16));
        let (words, bytes) = turned_quarters();
        let (words, bytes) = (list(&words), list(&bytes));
        format!(
            "NIELLO_INLINE {whole} {name}({whole} x) {{\n    \
             const {all_words} words = {{{words}}};\n    \
             const {whole} bytes = {{{bytes}}};\n    {whole} r;\n    \
             __asm__(\"vpermd %1, %2, %0\\n\\tvpshufb %3, %0, %0\" : \"=&v\"(r) : \"v\"(x), \
             \"v\"(words), \"v\"(bytes));\n    return r;\n}}\n"
        )
    })
}

/// A short vector over and over, as one wider scalar in each lane.
pub(super) fn repeat(
    preamble: &mut Preamble,
    operand: PrimType,
    word: DType,
    lanes: u32,
) -> String {
    let name = format!("repeat{lanes}_{}", suffix(operand));
    preamble.helper(name, true, |preamble, name| {
        let source = preamble.type_name(operand);
        let result = preamble.type_name(operand.with_lanes(lanes));
        let words = PrimType::vector(word, lanes / operand.lanes);
        let scalar = preamble.type_name(word.into());
        let vector = preamble.type_name(words);
        let copies = vec!["x"; words.lanes as usize].join(", ");
        format!(
            "NIELLO_INLINE {result} {name}({source} v) {{\n    \
             const {scalar} x = ({scalar})v;\n    \
             return ({result})({vector}){{{copies}}};\n}}\n"
        )
    })
}
