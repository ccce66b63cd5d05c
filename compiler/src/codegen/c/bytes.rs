//! Helpers for vectors of bytes.

use super::helpers::suffix;
use super::preamble::Preamble;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::PrimType;

/// `c` plus the products of `a` and `b` in groups of four; the target has an instruction for it, or
/// one for products of `int16` in groups of two.
///
/// In assembly, as GCC 12 keeps the accumulators of its own function in memory, and Clang has
/// another name for some of these functions.
pub(super) fn dot_add(preamble: &mut Preamble, ty: PrimType, target: &Target) -> String {
    preamble.helper(format!("dot_add_{}", suffix(ty)), true, |preamble, name| {
        let bytes = |dtype| PrimType::vector(dtype, ty.lanes * 4);
        let c = preamble.type_name(ty);
        let a = preamble.type_name(bytes(DType::U8));
        let b = preamble.type_name(bytes(DType::I8));
        let has = |feature| target.has_feature(feature);
        if !target.has_dot_add(ty.lanes) {
            // Even bytes and odd ones.
            let words = |dtype| PrimType::vector(dtype, ty.lanes * 2);
            let (signed, unsigned) =
                (preamble.type_name(words(DType::I16)), preamble.type_name(words(DType::U16)));
            let pairs = match has("avx") {
                true => "__asm__(\"vpmaddwd %2, %1, %0\" : \"=v\"(r) : \"v\"(x), \"v\"(y))",
                false => "r = x;\n    __asm__(\"pmaddwd %1, %0\" : \"+x\"(r) : \"x\"(y))",
            };
            return format!(
                "NIELLO_INLINE {c} {name}_pairs({signed} x, {signed} y) {{\n    \
                 {signed} r;\n    {pairs};\n    return ({c})r;\n}}\n\
                 NIELLO_INLINE {c} {name}({a} a, {b} b, {c} c) {{\n    \
                 const {unsigned} u = ({unsigned})a, v = ({unsigned})b;\n    \
                 const {c} even = {name}_pairs(({signed})(u & 255), ({signed})(v << 8) >> 8);\n    \
                 return c + even + {name}_pairs(({signed})(u >> 8), ({signed})v >> 8);\n}}\n"
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
