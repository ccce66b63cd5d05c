//! Helpers for `float16`.

use super::helpers::{aarch64_arrangement, suffix};
use super::preamble::Preamble;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::{CompareOp, Intrinsic, PrimType};

/// Between the bits of `float16` and values of `float32`; the target has instructions for it, for
/// whole registers of `float32`.
pub(super) fn convert_fp16(
    preamble: &mut Preamble,
    intrinsic: Intrinsic,
    from: PrimType,
    to: PrimType,
    target: &Target,
) -> String {
    let is_widening = intrinsic == Intrinsic::FromFp16;
    let name = format!("{}_{}", intrinsic.name(), from.lanes);
    let is_arm = target.arch == "aarch64";
    let widest = match is_arm {
        true => 4,
        false if target.has_feature("avx512f") => 16,
        false => 8,
    };
    let parts =
        [16, 8, 4].into_iter().find(|part| *part <= widest && from.lanes.is_multiple_of(*part));
    let Some(part) = parts.filter(|part| *part < from.lanes) else {
        return preamble.helper(name, !from.is_scalar(), |preamble, name| {
            let (source, result) = (preamble.type_name(from), preamble.type_name(to));
            let head = format!("NIELLO_INLINE {result} {name}({source} x) {{\n    {result} r;\n");
            // clang has no registers for vectors of 64 bits.
            let pair = "long long __attribute__((vector_size(16)))";
            let body = match (from.lanes, is_widening) {
                (4, _) if is_arm => {
                    let instruction =
                        if is_widening { "fcvtl %0.4s, %1.4h" } else { "fcvtn %0.4h, %1.4s" };
                    format!("    __asm__(\"{instruction}\" : \"=w\"(r) : \"w\"(x));\n")
                }
                (1, true) if is_arm => "    __asm__(\"fmov %s0, %w1\\n\\tfcvt %s0, %h0\" : \"=w\"(r) : \
                                        \"r\"((unsigned)x));\n"
                    .to_owned(),
                (1, false) if is_arm => "    unsigned bits;\n    __asm__(\"fcvt %h1, %s1\\n\\tfmov %w0, \
                                         %s1\" : \"=r\"(bits), \"+w\"(x));\n    r = bits;\n"
                    .to_owned(),
                (4, true) => format!(
                    "    __asm__(\"vcvtph2ps %1, %0\" : \"=v\"(r) : \"v\"(({pair}){{(long long)x}}));\n"
                ),
                (4, false) => format!(
                    "    {pair} bits;\n    __asm__(\"vcvtps2ph $0, %1, %0\" : \"=v\"(bits) : \
                     \"v\"(x));\n    r = ({result})bits[0];\n"
                ),
                (8 | 16, true) => {
                    "    __asm__(\"vcvtph2ps %1, %0\" : \"=v\"(r) : \"v\"(x));\n".to_owned()
                }
                (8 | 16, false) => {
                    "    __asm__(\"vcvtps2ph $0, %1, %0\" : \"=v\"(r) : \"v\"(x));\n".to_owned()
                }
                (1, true) => "    __asm__(\"vmovd %1, %0\\n\\tvcvtph2ps %0, %0\" : \"=x\"(r) : \
                              \"r\"((unsigned)x));\n"
                    .to_owned(),
                (1, false) => {
                    "    unsigned bits;\n    __asm__(\"vcvtps2ph $0, %1, %1\\n\\tvmovd %1, \
                               %0\" : \"=r\"(bits), \"+x\"(x));\n    r = bits;\n"
                        .to_owned()
                }
                _ => {
                    let one = |ty: PrimType| ty.with_lanes(1);
                    let scalar = convert_fp16(preamble, intrinsic, one(from), one(to), target);
                    let lanes = from.lanes;
                    format!(
                        "    for (int i = 0; i < {lanes}; i++)\n        r[i] = {scalar}(x[i]);\n"
                    )
                }
            };
            format!("{head}{body}    return r;\n}}\n")
        });
    };
    preamble.helper(name, true, |preamble, name| {
        let [source, source_part] = [from, from.with_lanes(part)].map(|ty| preamble.type_name(ty));
        let [result, result_part] = [to, to.with_lanes(part)].map(|ty| preamble.type_name(ty));
        let (count, parts) = (from.lanes / part, [from, to].map(|ty| ty.with_lanes(part)));
        let convert = convert_fp16(preamble, intrinsic, parts[0], parts[1], target);
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n    \
             union {{ {source} whole; {source_part} part[{count}]; }} from = {{x}};\n    \
             union {{ {result} whole; {result_part} part[{count}]; }} to;\n    \
             for (int i = 0; i < {count}; i++)\n        \
             to.part[i] = {convert}(from.part[i]);\n    return to.whole;\n}}\n"
        )
    })
}

/// A comparison of vectors of `float16`, which gcc makes lane by lane; `None` for other types. Its name
/// comes before those of `max` and `min`, which use it.
pub(super) fn compare(
    preamble: &mut Preamble,
    op: CompareOp,
    ty: PrimType,
    target: &Target,
) -> Option<String> {
    if ty.dtype != DType::F16 {
        return None;
    }
    let all = aarch64_arrangement(ty, target)?;
    let (word, instruction, operands) = match op {
        CompareOp::Eq => ("eq", "fcmeq", ["a", "b"]),
        CompareOp::Ne => ("ne", "fcmeq", ["a", "b"]),
        CompareOp::Gt => ("gt", "fcmgt", ["a", "b"]),
        CompareOp::Ge => ("ge", "fcmge", ["a", "b"]),
        CompareOp::Lt => ("lt", "fcmgt", ["b", "a"]),
        CompareOp::Le => ("le", "fcmge", ["b", "a"]),
    };
    let [first, second] = operands;
    let result = if op == CompareOp::Ne { "~m" } else { "m" };
    let name = format!("compare_{word}_{}", suffix(ty));
    Some(preamble.helper(name, true, |preamble, name| {
        let c = preamble.type_name(ty);
        let mask = preamble.type_name(ty.with_dtype(DType::I16));
        format!(
            "NIELLO_INLINE {mask} {name}({c} a, {c} b) {{\n#ifdef __clang__\n    \
             return ({mask})(a {} b);\n#else\n    {mask} m;\n    \
             __asm__(\"{instruction} %0.{all}, %1.{all}, %2.{all}\" : \"=w\"(m) : \
             \"w\"({first}), \"w\"({second}));\n    return {result};\n#endif\n}}\n",
            op.symbol()
        )
    }))
}
