//! Calls of intrinsics.

use super::expr::Value;
use super::kernel::{Emitter, Result};
use super::text::Piece;
use super::{halves, helpers};
use crate::ir::DType;
use crate::tir::Intrinsic;

/// Functions of the system's mathematical library that generated code may call on hosted targets:
/// for `float64`, and for what has no polynomial in `float32`. Compilers turn some calls into
/// `exp2`, `ldexp` and `sincos`.
pub const LIBM_FUNCTIONS: &[&str] = &[
    "acos", "acosf", "acosh", "acoshf", "asin", "asinf", "asinh", "asinhf", "atan", "atanf",
    "atanh", "atanhf", "cos", "cosf", "cosh", "coshf", "erf", "exp", "exp2", "exp2f", "fmod",
    "fmodf", "ldexp", "ldexpf", "log", "pow", "powf", "sin", "sincos", "sincosf", "sinf", "sinh",
    "sinhf", "tan", "tanf", "tanh",
];

impl Emitter<'_> {
    pub(super) fn call_of(&mut self, intrinsic: Intrinsic, values: Vec<Value>) -> Result<Value> {
        let Some(ty) = values.first().map(|value| value.ty) else {
            return Err(format!("{} has no argument", intrinsic.name()));
        };
        self.check_type(ty)?;
        let float = if ty.dtype == DType::F64 { "" } else { "f" };
        let scalar = match intrinsic {
            Intrinsic::Abs => format!("__builtin_fabs{float}"),
            Intrinsic::Sqrt => format!("__builtin_sqrt{float}"),
            Intrinsic::Floor | Intrinsic::Ceil | Intrinsic::Trunc | Intrinsic::Round => {
                if !self.target.has_rounding() {
                    return Err(format!(
                        "the target has no instruction for {}: lower it first",
                        intrinsic.name()
                    ));
                }
                let word =
                    if intrinsic == Intrinsic::Round { "roundeven" } else { intrinsic.name() };
                format!("__builtin_{word}{float}")
            }
            Intrinsic::Sigmoid => return Err("sigmoid must be lowered first".to_owned()),
            Intrinsic::Ldexp if ty.dtype == DType::F32 && self.target.has_ldexp() => {
                let function = helpers::ldexp(&mut self.preamble, ty);
                let args: Vec<_> = values.into_iter().map(|value| value.piece.text).collect();
                let text = format!("{function}({})", args.join(", "));
                return Ok(Value::new(Piece::primary(text), ty));
            }
            Intrinsic::Ldexp => return Err("ldexp must be lowered first".to_owned()),
            Intrinsic::FromFp16 | Intrinsic::ToFp16 => return self.convert_fp16(intrinsic, values),
            _ => self.libm(intrinsic.name(), ty.dtype)?,
        };
        let function = match intrinsic {
            _ if ty.is_scalar() => scalar,
            Intrinsic::Abs => helpers::vector_abs(&mut self.preamble, ty),
            Intrinsic::Sqrt
            | Intrinsic::Floor
            | Intrinsic::Ceil
            | Intrinsic::Trunc
            | Intrinsic::Round => {
                helpers::vector_round(&mut self.preamble, intrinsic, ty, self.target)
            }
            _ => helpers::vector_libm(&mut self.preamble, &scalar, ty, values.len()),
        };
        let args: Vec<_> = values.into_iter().map(|value| value.piece.text).collect();
        Ok(Value::new(Piece::primary(format!("{function}({})", args.join(", "))), ty))
    }

    /// The value of the bits of a `float16`, or the bits of a value.
    fn convert_fp16(&mut self, intrinsic: Intrinsic, values: Vec<Value>) -> Result<Value> {
        let conversion = intrinsic.conversion().filter(|_| self.target.has_fp16_conversion());
        let (Some((_, to)), Ok([value])) = (conversion, <[Value; 1]>::try_from(values)) else {
            return Err(format!("{} must be lowered first", intrinsic.name()));
        };
        let (from, to) = (value.ty, value.ty.with_dtype(to));
        let function = halves::convert_fp16(&mut self.preamble, intrinsic, from, to, self.target);
        Ok(Value::new(Piece::primary(format!("{function}({})", value.piece.text)), to))
    }

    /// A function of the system's mathematical library.
    pub(super) fn libm(&self, name: &str, dtype: DType) -> Result<String> {
        if self.target.os == "none" {
            return Err(format!(
                "{name} of {dtype} needs the system's mathematical library, and the target {} has \
                 none",
                self.target.triple
            ));
        }
        let float = if dtype == DType::F64 { "" } else { "f" };
        Ok(format!("__builtin_{name}{float}"))
    }
}
