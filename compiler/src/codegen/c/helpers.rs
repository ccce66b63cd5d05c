//! Inline functions for what GNU C has no operator for.
//!
//! Each function here notes the helper in the preamble and returns its name.

use super::convert::convert;
use super::halves;
use super::preamble::Preamble;
use super::text::{float_constant, int_constant, mask_dtype, unsigned_dtype};
use crate::ir::DType;
use crate::target::Target;
use crate::tir::{BinaryOp, CompareOp, Intrinsic, PrimType};

/// Suffix of helper names: `f32`, `f32x16`.
pub(super) fn suffix(ty: PrimType) -> String {
    match ty.lanes {
        1 => ty.dtype.short_name().to_owned(),
        lanes => format!("{}x{lanes}", ty.dtype.short_name()),
    }
}

/// The elements of a vector constant.
pub(super) fn list(elements: &[u32]) -> String {
    elements.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// A vector helper that applies `scalar` to each lane of its arguments.
fn lanewise(
    preamble: &mut Preamble,
    name: &str,
    result: PrimType,
    args: &[PrimType],
    scalar: &str,
) -> String {
    let letters = ["a", "b", "c"];
    let params: Vec<String> = args
        .iter()
        .zip(letters)
        .map(|(ty, letter)| format!("{} {letter}", preamble.type_name(*ty)))
        .collect();
    let lanes: Vec<String> =
        letters[..args.len()].iter().map(|letter| format!("{letter}[i]")).collect();
    let ty = preamble.type_name(result);
    format!(
        "NIELLO_INLINE {ty} {name}({}) {{\n    {ty} r;\n    for (int i = 0; i < {}; i++)\n        \
         r[i] = {scalar}({});\n    return r;\n}}\n",
        params.join(", "),
        result.lanes,
        lanes.join(", ")
    )
}

/// Whether the type is a vector that fills a register of the x86 target, and its width in bits.
fn x86_vector(ty: PrimType, target: &Target) -> Option<u64> {
    let feature = match ty.bits() {
        128 => "sse2",
        256 => "avx",
        512 => "avx512f",
        _ => return None,
    };
    (is_x86(target) && target.has_feature(feature)).then(|| ty.bits())
}

/// How assembly of AArch64 calls the lanes of floats in a register, in which gcc does not keep them
/// where a loop goes over lanes; `None` if they fill none.
pub(super) fn aarch64_arrangement(ty: PrimType, target: &Target) -> Option<String> {
    let is_register = target.arch == "aarch64" && !ty.is_scalar() && matches!(ty.bits(), 64 | 128);
    let kind = aarch64_kind(ty.dtype)?;
    is_register.then(|| format!("{}{kind}", ty.lanes))
}

/// The letter for lanes of floats there.
fn aarch64_kind(dtype: DType) -> Option<char> {
    Some(match dtype {
        DType::F16 => 'h',
        DType::F32 => 's',
        DType::F64 => 'd',
        _ => return None,
    })
}

/// Whether the target is an x86.
pub(super) fn is_x86(target: &Target) -> bool {
    target.arch == "x86_64" || target.arch == "x86"
}

/// `ps` and the mask of all lanes for `f32`, `pd` for `f64`.
fn x86_suffix(dtype: DType) -> (&'static str, &'static str) {
    if dtype == DType::F64 { ("pd", "(u8)-1") } else { ("ps", "(u16)-1") }
}

/// Smaller or larger of two values, the second one if unordered or equal.
pub(super) fn min_max(
    preamble: &mut Preamble,
    op: BinaryOp,
    ty: PrimType,
    target: &Target,
) -> String {
    let (word, sign) = if op == BinaryOp::Min { ("min", "<") } else { ("max", ">") };
    let name = format!("{word}_{}", suffix(ty));
    preamble.helper(name, !ty.is_scalar(), |preamble, name| {
        let c = preamble.type_name(ty);
        let head = format!("NIELLO_INLINE {c} {name}({c} a, {c} b) {{\n");
        if ty.is_scalar() {
            return format!("{head}    return a {sign} b ? a : b;\n}}\n");
        }
        if ty.dtype.is_float()
            && let Some(bits) = x86_vector(ty, target)
        {
            let (ps, all) = x86_suffix(ty.dtype);
            return match bits {
                512 => format!(
                    "{head}#ifdef __clang__\n    return __builtin_ia32_{word}{ps}512(a, b, 4);\n\
                     #else\n    return __builtin_ia32_{word}{ps}512_mask(a, b, a, {all}, 4);\n\
                     #endif\n}}\n"
                ),
                256 => format!("{head}    return __builtin_ia32_{word}{ps}256(a, b);\n}}\n"),
                _ => format!("{head}    return __builtin_ia32_{word}{ps}(a, b);\n}}\n"),
            };
        }
        let mask = preamble.type_name(ty.with_dtype(mask_dtype(ty.dtype.bits())));
        let than = if op == BinaryOp::Min { CompareOp::Lt } else { CompareOp::Gt };
        let is_chosen = match halves::compare(preamble, than, ty, target) {
            Some(helper) => format!("{helper}(a, b)"),
            None => format!("({mask})(a {sign} b)"),
        };
        format!(
            "{head}    const {mask} m = {is_chosen};\n    \
             return ({c})((m & ({mask})a) | (~m & ({mask})b));\n}}\n"
        )
    })
}

/// `m ? a : b` lane by lane; gcc has no such operator in C, but knows this form.
pub(super) fn select(preamble: &mut Preamble, ty: PrimType) -> String {
    preamble.helper(format!("select_{}", suffix(ty)), true, |preamble, name| {
        let c = preamble.type_name(ty);
        let mask = preamble.type_name(ty.with_dtype(mask_dtype(ty.dtype.bits())));
        format!(
            "NIELLO_INLINE {c} {name}({mask} m, {c} a, {c} b) {{\n    \
             return ({c})((m & ({mask})a) | (~m & ({mask})b));\n}}\n"
        )
    })
}

/// The same scalar in every lane.
pub(super) fn splat(preamble: &mut Preamble, ty: PrimType) -> String {
    preamble.helper(format!("splat_{}", suffix(ty)), true, |preamble, name| {
        let c = preamble.type_name(ty);
        let element = preamble.type_name(ty.with_lanes(1));
        let lanes = vec!["x"; ty.lanes as usize].join(", ");
        format!("NIELLO_INLINE {c} {name}({element} x) {{\n    return ({c}){{{lanes}}};\n}}\n")
    })
}

/// `a * b + c`, rounded once; the target has fused multiply-add.
pub(super) fn fma(preamble: &mut Preamble, ty: PrimType, target: &Target) -> String {
    let builtin = match ty.dtype {
        DType::F16 => "__builtin_fmaf16",
        DType::F64 => "__builtin_fma",
        _ => "__builtin_fmaf",
    };
    if ty.is_scalar() {
        return builtin.to_owned();
    }
    preamble.helper(format!("fma_{}", suffix(ty)), true, |preamble, name| {
        let c = preamble.type_name(ty);
        let head = format!("NIELLO_INLINE {c} {name}({c} a, {c} b, {c} c) {{\n");
        let (ps, all) = x86_suffix(ty.dtype);
        let gcc = match x86_vector(ty, target) {
            Some(512) => {
                format!("    return __builtin_ia32_vfmadd{ps}512_mask(a, b, c, {all}, 4);\n")
            }
            Some(256) => format!("    return __builtin_ia32_vfmadd{ps}256(a, b, c);\n"),
            Some(_) => format!("    return __builtin_ia32_vfmadd{ps}(a, b, c);\n"),
            None => match aarch64_arrangement(ty, target) {
                Some(all) => format!(
                    "    __asm__(\"fmla %0.{all}, %1.{all}, %2.{all}\" \
                     : \"+w\"(c) : \"w\"(a), \"w\"(b));\n    return c;\n"
                ),
                None => format!(
                    "    {c} r;\n    for (int i = 0; i < {}; i++)\n        \
                     r[i] = {builtin}(a[i], b[i], c[i]);\n    return r;\n",
                    ty.lanes
                ),
            },
        };
        // clang has had it since version 16, and gives up those of gcc one by one.
        format!(
            "{head}#ifdef __has_builtin\n#if __has_builtin(__builtin_elementwise_fma)\n\
             #define NIELLO_ELEMENTWISE_FMA\n#endif\n#endif\n#ifdef NIELLO_ELEMENTWISE_FMA\n    \
             return __builtin_elementwise_fma(a, b, c);\n#else\n{gcc}#endif\n}}\n"
        )
    })
}

/// The same of one factor that all lanes have in common. gcc would give it a register of its own
/// where the instruction takes it from any lane of another one.
pub(super) fn fma_scalar(preamble: &mut Preamble, ty: PrimType, target: &Target) -> Option<String> {
    let all = aarch64_arrangement(ty, target)?;
    let kind = aarch64_kind(ty.dtype)?;
    // Lanes of 16 bits are taken from the first half of the registers.
    let register = if kind == 'h' { 'x' } else { 'w' };
    let whole = fma(preamble, ty, target);
    let helper = preamble.helper(format!("fma_scalar_{}", suffix(ty)), true, |preamble, name| {
        let (c, element) = (preamble.type_name(ty), preamble.type_name(ty.with_lanes(1)));
        let lanes = vec!["a"; ty.lanes as usize].join(", ");
        format!(
            "NIELLO_INLINE {c} {name}({element} a, {c} b, {c} c) {{\n\
             #ifdef NIELLO_ELEMENTWISE_FMA\n    return {whole}(({c}){{{lanes}}}, b, c);\n#else\n    \
             __asm__(\"fmla %0.{all}, %1.{all}, %2.{kind}[0]\" \
             : \"+w\"(c) : \"w\"(b), \"{register}\"(a));\n    return c;\n#endif\n}}\n"
        )
    });
    Some(helper)
}

/// The negative of floats. gcc takes `-fma(a, b, c)` for `fma(-a, b, -c)`, which has another zero
/// where the sum cancels out, unless the operation is one of bits, or of vectors that are added by
/// their own builtin.
pub(super) fn neg(preamble: &mut Preamble, ty: PrimType, target: &Target) -> Option<String> {
    if x86_vector(ty, target).is_some() {
        return None;
    }
    let helper = preamble.helper(format!("neg_{}", suffix(ty)), !ty.is_scalar(), |preamble, name| {
        let c = preamble.type_name(ty);
        let bits = preamble.type_name(ty.with_dtype(mask_dtype(ty.dtype.bits())));
        let sign = match ty.dtype {
            DType::F16 => "1 << 15",
            DType::F64 => "1ll << 63",
            _ => "1 << 31",
        };
        let body = match ty.is_scalar() {
            true => format!(
                "    union {{ {c} value; {bits} bits; }} x = {{value}};\n    x.bits ^= {sign};\n    return x.value;\n"
            ),
            false => format!("    return ({c})(({bits})value ^ ({sign}));\n"),
        };
        format!("NIELLO_INLINE {c} {name}({c} value) {{\n{body}}}\n")
    });
    Some(helper)
}

/// `x · 2^n` of floats of 32 bits; the target has an instruction for it.
pub(super) fn ldexp(preamble: &mut Preamble, ty: PrimType) -> String {
    let name = format!("ldexp_{}", suffix(ty));
    preamble.helper(name, !ty.is_scalar(), |preamble, name| {
        let c = preamble.type_name(ty);
        let head = format!("NIELLO_INLINE {c} {name}({c} x, {c} n) {{\n    {c} r;\n");
        let body = match ty.lanes {
            4 | 8 | 16 => {
                "    __asm__(\"vscalefps %2, %1, %0\" : \"=v\"(r) : \"v\"(x), \"v\"(n));\n".to_owned()
            }
            1 => "    __asm__(\"vscalefss %2, %1, %0\" : \"=v\"(r) : \"v\"(x), \"v\"(n));\n".to_owned(),
            lanes => format!(
                "    for (int i = 0; i < {lanes}; i++) {{\n        float y;\n        \
                 __asm__(\"vscalefss %2, %1, %0\" : \"=v\"(y) : \"v\"(x[i]), \"v\"(n[i]));\n        \
                 r[i] = y;\n    }}\n"
            ),
        };
        format!("{head}{body}    return r;\n}}\n")
    })
}

/// The bits of a scalar as another type of the same width.
pub(super) fn reinterpret(preamble: &mut Preamble, from: DType, to: DType) -> String {
    let name = format!("bits_{}_{}", from.short_name(), to.short_name());
    preamble.helper(name, false, |preamble, name| {
        let source = preamble.type_name(from.into());
        let result = preamble.type_name(to.into());
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n    \
             const union {{ {source} from; {result} to; }} bits = {{x}};\n    \
             return bits.to;\n}}\n"
        )
    })
}

/// Float to integer: truncates, saturates, NaN gives 0.
pub(super) fn float_to_int(
    preamble: &mut Preamble,
    from: PrimType,
    to: DType,
    target: &Target,
) -> String {
    let scalar_name = format!("cast_{}_{}", from.dtype.short_name(), to.short_name());
    let scalar = preamble.helper(scalar_name, false, |preamble, name| {
        let source = preamble.type_name(from.dtype.into());
        let result = preamble.type_name(to.into());
        let (low, high) = to.int_range().unwrap_or((0, 1));
        // Both powers of two, or zero, are exact; the greatest value itself may not be.
        let above = float_constant((high as f64 + 1.0).round(), from.dtype).text;
        let below = float_constant(low as f64, from.dtype).text;
        let greatest = int_constant(high as u64 as i64, to).at(super::text::Prec::Unary);
        let least = int_constant(low as i64, to).at(super::text::Prec::Unary);
        // gcc takes the float of such an integer for a rounded float, whose zero may be negative.
        format!(
            "NIELLO_INLINE {result} {name}({source} x) {{\n    \
             {result} n = x != x ? 0 : x >= {above} ? {greatest} : x < {below} ? {least} : ({result})x;\n    \
             __asm__(\"\" : \"+r\"(n));\n    return n;\n}}\n"
        )
    });
    if from.is_scalar() {
        return scalar;
    }
    let result = from.with_dtype(to);
    let name = format!("cast_{}_{}", suffix(from), suffix(result));
    preamble.helper(name, true, |preamble, name| {
        if from.dtype == DType::F32 && !matches!(to, DType::U32 | DType::U64) {
            return vector_float_to_int(preamble, name, from, to, target);
        }
        lanewise(preamble, name, result, &[from], &scalar)
    })
}

/// The conversion of all lanes at once, to narrow integers through `int`. Out of its range the
/// conversion of vectors is not defined, so what is beyond is taken out before.
fn vector_float_to_int(
    preamble: &mut Preamble,
    name: &str,
    from: PrimType,
    to: DType,
    target: &Target,
) -> String {
    let wide = from.with_dtype(DType::I32);
    let [source, int, result] = [from, wide, from.with_dtype(to)].map(|ty| preamble.type_name(ty));
    let (low, high) = to.int_range().unwrap_or((0, 1));
    if to.bits() <= 32
        && let Some(all) = aarch64_arrangement(from, target)
    {
        // The instruction saturates, and makes 0 of NaN.
        let mut body = format!(
            "    {int} n;\n    __asm__(\"fcvtzs %0.{all}, %1.{all}\" : \"=w\"(n) : \"w\"(x));\n"
        );
        if to != DType::I32 {
            for (bound, value) in [("smax", low), ("smin", high)] {
                body += &format!(
                    "    __asm__(\"{bound} %0.{all}, %0.{all}, %1.{all}\" : \"+w\"(n) : \
                     \"w\"(({int}){{0}} + {value}));\n"
                );
            }
        }
        let whole = match to {
            DType::I32 => "n".to_owned(),
            _ => convert(preamble, "n", wide, to, target),
        };
        body += &format!("    return {whole};\n");
        return format!("NIELLO_INLINE {result} {name}({source} x) {{\n{body}}}\n");
    }
    let constant = |value: f64| float_constant(value, from.dtype).text;
    // A bound where the condition holds. Helpers cannot call each other: they stand in the order of
    // their names.
    let bound = |condition: &str, value: &str| {
        format!(
            "    m = ({int})(x {condition} {value});\n    \
             x = ({source})((m & ({int})(({source}){{0}} + {value})) | (~m & ({int})x));\n"
        )
    };
    // NaN is not equal to itself, and becomes 0.
    let mut body = format!("    {int} m = ({int})(x == x);\n    x = ({source})(m & ({int})x);\n");
    body += &bound("<", &constant(low as f64));
    if to.bits() >= 32 {
        // The greatest integer is no float: it takes the place of what is converted from 0.
        let mask =
            if to == DType::I32 { "m" } else { &format!("__builtin_convertvector(m, {result})") };
        body += &format!(
            "    m = ({int})(x >= {});\n    x = ({source})(~m & ({int})x);\n    \
             return __builtin_convertvector(x, {result}) | ({mask} & {});\n",
            constant(high as f64 + 1.0),
            int_constant(high as i64, to).text
        );
    } else {
        body += &bound(">", &constant(high as f64));
        let whole = format!("__builtin_convertvector(x, {int})");
        body += &format!("    return {};\n", convert(preamble, &whole, wide, to, target));
    }
    format!("NIELLO_INLINE {result} {name}({source} x) {{\n{body}}}\n")
}

/// Integer division and remainder, total: a zero divisor gives 0, and −1 wraps.
pub(super) fn int_division(preamble: &mut Preamble, op: BinaryOp, ty: PrimType) -> String {
    let word = match op {
        BinaryOp::Div => "div",
        BinaryOp::Rem => "rem",
        BinaryOp::FloorDiv => "floordiv",
        _ => "floormod",
    };
    let dtype = ty.dtype;
    let scalar_name = format!("{word}_{}", dtype.short_name());
    let scalar = preamble.helper(scalar_name, false, |preamble, name| {
        let c = preamble.type_name(dtype.into());
        let head = format!("NIELLO_INLINE {c} {name}({c} a, {c} b) {{\n");
        let guard = if dtype.is_signed_int() {
            let minus_one = match op {
                BinaryOp::Div | BinaryOp::FloorDiv => format!("({c})-a"),
                _ => "0".to_owned(),
            };
            format!("    if (b == 0)\n        return 0;\n    if (b == -1)\n        return {minus_one};\n")
        } else {
            "    if (b == 0)\n        return 0;\n".to_owned()
        };
        let result = match op {
            BinaryOp::Div => "a / b",
            BinaryOp::Rem => "a % b",
            BinaryOp::FloorDiv if dtype.is_signed_int() => {
                "a / b - ((a % b != 0) & ((a < 0) != (b < 0)))"
            }
            BinaryOp::FloorDiv => "a / b",
            _ if dtype.is_signed_int() => "a % b + (((a % b != 0) & ((a < 0) != (b < 0))) ? b : 0)",
            _ => "a % b",
        };
        format!("{head}{guard}    return ({c})({result});\n}}\n")
    });
    if ty.is_scalar() {
        return scalar;
    }
    preamble.helper(format!("{word}_{}", suffix(ty)), true, |preamble, name| {
        lanewise(preamble, name, ty, &[ty, ty], &scalar)
    })
}

/// A shift whose amount may be anything.
pub(super) fn shift(preamble: &mut Preamble, op: BinaryOp, ty: PrimType) -> String {
    let dtype = ty.dtype;
    let word = if op == BinaryOp::Shl { "shl" } else { "shr" };
    let scalar_name = format!("{word}_{}", dtype.short_name());
    let scalar = |preamble: &mut Preamble, name: &str| {
        let c = preamble.type_name(dtype.into());
        let bits = dtype.bits();
        let head =
            format!("NIELLO_INLINE {c} {name}({c} a, {c} b) {{\n    const u64 n = (u{bits})b;\n");
        let (result, beyond) = match op {
            BinaryOp::Shl => ("a << n", "0"),
            _ if dtype.is_signed_int() => ("a >> n", "(a < 0 ? -1 : 0)"),
            _ => ("a >> n", "0"),
        };
        format!("{head}    return n < {bits} ? ({c})({result}) : {beyond};\n}}\n")
    };
    if ty.is_scalar() {
        return preamble.helper(scalar_name, false, scalar);
    }
    preamble.helper(format!("{word}_{}", suffix(ty)), true, |preamble, name| {
        let bits = dtype.bits();
        let c = preamble.type_name(ty);
        let unsigned = preamble.type_name(ty.with_dtype(unsigned_dtype(bits)));
        let most = bits - 1;
        // Where the amount is one, all bits of `m` are set.
        let body = match op {
            BinaryOp::Shr if dtype.is_signed_int() => {
                format!("    return a >> (({c})(n & m) | ({c})(~m & {most}));\n")
            }
            BinaryOp::Shl => format!("    return ({c})(({unsigned})a << (n & m) & m);\n"),
            _ => format!("    return ({c})(({unsigned})a >> (n & m) & m);\n"),
        };
        format!(
            "NIELLO_INLINE {c} {name}({c} a, {c} b) {{\n    const {unsigned} n = ({unsigned})b;\n    \
             const {unsigned} m = ({unsigned})(n < {bits});\n{body}}}\n"
        )
    })
}

/// Absolute value of each lane.
pub(super) fn vector_abs(preamble: &mut Preamble, ty: PrimType) -> String {
    preamble.helper(format!("abs_{}", suffix(ty)), true, |preamble, name| {
        let c = preamble.type_name(ty);
        let bits = preamble.type_name(ty.with_dtype(mask_dtype(ty.dtype.bits())));
        let rest = if ty.dtype == DType::F64 { "0x7fffffffffffffffll" } else { "0x7fffffff" };
        format!("NIELLO_INLINE {c} {name}({c} x) {{\n    return ({c})(({bits})x & {rest});\n}}\n")
    })
}

/// Square root or rounding of each lane.
pub(super) fn vector_round(
    preamble: &mut Preamble,
    intrinsic: Intrinsic,
    ty: PrimType,
    target: &Target,
) -> String {
    // The compilers' name, the immediate of x86's rounding instructions, and AArch64's instruction.
    let (scalar, mode, aarch64) = match intrinsic {
        Intrinsic::Sqrt => ("sqrt", 0, "fsqrt"),
        Intrinsic::Floor => ("floor", 9, "frintm"),
        Intrinsic::Ceil => ("ceil", 10, "frintp"),
        Intrinsic::Trunc => ("trunc", 11, "frintz"),
        _ => ("roundeven", 8, "frintn"),
    };
    preamble.helper(format!("{scalar}_{}", suffix(ty)), true, |preamble, name| {
        let c = preamble.type_name(ty);
        let (ps, all) = x86_suffix(ty.dtype);
        let x86 = x86_vector(ty, target)
            .filter(|_| intrinsic == Intrinsic::Sqrt || target.has_feature("sse4.1"));
        let float = if ty.dtype == DType::F64 { "" } else { "f" };
        let lanewise = format!(
            "    {c} r;\n    for (int i = 0; i < {}; i++)\n        \
             r[i] = __builtin_{scalar}{float}(x[i]);\n    return r;\n",
            ty.lanes
        );
        let gcc = match (x86, intrinsic) {
            (Some(512), Intrinsic::Sqrt) => {
                format!("    return __builtin_ia32_sqrt{ps}512_mask(x, x, {all}, 4);\n")
            }
            (Some(256), Intrinsic::Sqrt) => format!("    return __builtin_ia32_sqrt{ps}256(x);\n"),
            (Some(_), Intrinsic::Sqrt) => format!("    return __builtin_ia32_sqrt{ps}(x);\n"),
            (Some(512), _) => {
                format!("    return __builtin_ia32_rndscale{ps}_mask(x, {mode}, x, {all}, 4);\n")
            }
            (Some(256), _) => format!("    return __builtin_ia32_round{ps}256(x, {mode});\n"),
            (Some(_), _) => format!("    return __builtin_ia32_round{ps}(x, {mode});\n"),
            (None, _) => match aarch64_arrangement(ty, target) {
                Some(all) => format!(
                    "    __asm__(\"{aarch64} %0.{all}, %1.{all}\" : \"=w\"(x) : \"w\"(x));\n    return x;\n"
                ),
                None => lanewise.clone(),
            },
        };
        // clang has that of square roots since version 16.
        let clang = match intrinsic {
            Intrinsic::Sqrt => format!(
                "#if __has_builtin(__builtin_elementwise_sqrt)\n    \
                 return __builtin_elementwise_sqrt(x);\n#else\n{lanewise}#endif\n"
            ),
            _ => format!("    return __builtin_elementwise_{scalar}(x);\n"),
        };
        format!(
            "NIELLO_INLINE {c} {name}({c} x) {{\n#ifdef __clang__\n{clang}#else\n{gcc}#endif\n}}\n"
        )
    })
}

/// A function of libm, lane by lane.
pub(super) fn vector_libm(
    preamble: &mut Preamble,
    scalar: &str,
    ty: PrimType,
    args: usize,
) -> String {
    let word = scalar.trim_start_matches("__builtin_");
    preamble.helper(format!("{word}_{}", suffix(ty)), true, |preamble, name| {
        lanewise(preamble, name, ty, &vec![ty; args], scalar)
    })
}

/// Lanes chosen from one or two vectors of one type.
pub(super) fn shuffle(
    preamble: &mut Preamble,
    operand: PrimType,
    operands: usize,
    lanes: &[u32],
) -> String {
    let result = operand.with_lanes(lanes.len() as u32);
    // The pattern is part of the name, as run lengths of consecutive lanes.
    let mut pattern = String::new();
    let mut rest = lanes;
    while let Some((&first, _)) = rest.split_first() {
        let run = rest.iter().zip(first..).take_while(|(lane, next)| *lane == next).count();
        pattern.push_str(&format!("_{first}"));
        if run > 1 {
            pattern.push_str(&format!("to{}", first as usize + run - 1));
        }
        rest = &rest[run..];
    }
    let name = format!("shuffle{operands}{pattern}_{}", suffix(operand));
    preamble.helper(name, true, |preamble, name| {
        let c = preamble.type_name(result);
        let source = preamble.type_name(operand);
        let params: Vec<_> =
            ["a", "b"][..operands].iter().map(|letter| format!("{source} {letter}")).collect();
        let second = if operands == 2 { "b" } else { "a" };
        let numbers: Vec<_> = lanes.iter().map(u32::to_string).collect();
        let elements: Vec<_> = lanes
            .iter()
            .map(|&lane| match lane.checked_sub(operand.lanes) {
                Some(lane) => format!("{second}[{lane}]"),
                None => format!("a[{lane}]"),
            })
            .collect();
        format!(
            "NIELLO_INLINE {c} {name}({}) {{\n#if defined(__clang__) || __GNUC__ >= 12\n    \
             return __builtin_shufflevector(a, {second}, {});\n#else\n    \
             return ({c}){{{}}};\n#endif\n}}\n",
            params.join(", "),
            numbers.join(", "),
            elements.join(", ")
        )
    })
}
