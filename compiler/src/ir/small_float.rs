//! The formats of floats of 16 bits and fewer, and conversion between their bits and values.
//!
//! Everything here works on numbers of the host, exactly: it is what constants and the reference
//! interpreter go by. Generated code converts with integer operations of its own, in
//! `tir::transform::small_float`.

use serde::{Deserialize, Serialize};

use super::DType;

/// What the largest exponent and the sign bit of zero stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Specials {
    /// As in IEEE 754: the largest exponent holds the infinities and NaNs.
    Ieee,
    /// All ones are NaN; there is no infinity (`fn`).
    AllOnesNan,
    /// What would be −0 is the one NaN; there is neither infinity nor negative zero (`fnuz`).
    NegativeZeroNan,
    /// Every code is a number.
    None,
}

/// A binary floating-point format with a sign bit, gradual underflow and at most 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallFloat {
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the mantissa.
    pub mantissa_bits: u32,
    /// What the exponent is stored too large by.
    pub bias: i32,
    /// What is not a number.
    pub specials: Specials,
}

impl SmallFloat {
    /// The format of a data type; `None` for wider floats, for what is no float, and for
    /// [`DType::F8E8M0`], which has neither sign nor mantissa.
    pub fn of(dtype: DType) -> Option<SmallFloat> {
        let (exponent_bits, mantissa_bits, bias, specials) = match dtype {
            DType::F16 => (5, 10, 15, Specials::Ieee),
            DType::BF16 => (8, 7, 127, Specials::Ieee),
            DType::F8E4M3FN => (4, 3, 7, Specials::AllOnesNan),
            DType::F8E4M3FNUZ => (4, 3, 8, Specials::NegativeZeroNan),
            DType::F8E5M2 => (5, 2, 15, Specials::Ieee),
            DType::F8E5M2FNUZ => (5, 2, 16, Specials::NegativeZeroNan),
            DType::F4E2M1 => (2, 1, 1, Specials::None),
            DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
            | DType::F32
            | DType::F64
            | DType::I4
            | DType::U4
            | DType::I2
            | DType::U2
            | DType::F8E8M0 => return None,
        };
        Some(SmallFloat { exponent_bits, mantissa_bits, bias, specials })
    }

    /// The sign bit.
    pub fn sign(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The code of the greatest number.
    pub fn max_code(self) -> u32 {
        let ones = self.sign() - 1;
        match self.specials {
            Specials::Ieee => self.infinity_code() - 1,
            Specials::AllOnesNan => ones - 1,
            Specials::NegativeZeroNan | Specials::None => ones,
        }
    }

    /// The least code above which there are only infinity and NaNs, in formats of IEEE 754.
    pub fn infinity_code(self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// The code of NaN; where there is none, −0, as in the tables of ONNX's `Cast`.
    pub fn nan_code(self) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code() | 1 << (self.mantissa_bits - 1),
            Specials::AllOnesNan => self.sign() - 1,
            Specials::NegativeZeroNan | Specials::None => self.sign(),
        }
    }

    /// What a number beyond the greatest one becomes: infinity, NaN or the greatest number,
    /// whichever the format has.
    pub fn overflow_code(self) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code(),
            Specials::AllOnesNan | Specials::NegativeZeroNan => self.nan_code(),
            Specials::None => self.max_code(),
        }
    }

    /// The greatest number.
    pub fn max_value(self) -> f64 {
        self.decode(self.max_code())
    }

    /// The value of a code.
    pub fn decode(self, code: u32) -> f64 {
        let magnitude = code & (self.sign() - 1);
        let is_nan = match self.specials {
            Specials::Ieee => magnitude > self.infinity_code(),
            Specials::AllOnesNan => magnitude == self.nan_code(),
            Specials::NegativeZeroNan => code == self.nan_code(),
            Specials::None => false,
        };
        if is_nan {
            return f64::NAN;
        }
        let value = if self.specials == Specials::Ieee && magnitude == self.infinity_code() {
            f64::INFINITY
        } else {
            let mantissa = f64::from(magnitude & ((1 << self.mantissa_bits) - 1));
            let exponent = (magnitude >> self.mantissa_bits) as i32;
            let unit = 2f64.powi(exponent.max(1) - self.bias - self.mantissa_bits as i32);
            let hidden = if exponent == 0 { 0.0 } else { f64::from(1u32 << self.mantissa_bits) };
            (hidden + mantissa) * unit
        };
        if code & self.sign() == 0 { value } else { -value }
    }

    /// The code of the nearest number, ties to even; beyond the greatest number
    /// [`overflow_code`](Self::overflow_code).
    pub fn encode(self, value: f64) -> u32 {
        let sign = if value.is_sign_negative() { self.sign() } else { 0 };
        if value.is_nan() {
            return match self.specials {
                Specials::NegativeZeroNan | Specials::None => self.nan_code(),
                Specials::Ieee | Specials::AllOnesNan => sign | self.nan_code(),
            };
        }
        // The exponent of the unit in the last place, at least that of the least number.
        let magnitude = value.abs();
        let least = 1 - self.bias - self.mantissa_bits as i32;
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-1022);
        let unit = (exponent - self.mantissa_bits as i32).max(least);
        // A product with a power of two: exact, as results below 2⁻¹⁰²² are zeros here anyway.
        let units = (magnitude * 2f64.powi(-unit)).round_ties_even();
        // As an integer of the format, the code is linear across a change of the exponent.
        let hidden = f64::from(1u32 << self.mantissa_bits);
        let code = units + f64::from(unit - least) * hidden;
        let code =
            if code > f64::from(self.max_code()) { self.overflow_code() } else { code as u32 };
        match self.specials {
            Specials::NegativeZeroNan if code == 0 || code == self.nan_code() => code,
            Specials::Ieee | Specials::AllOnesNan | Specials::NegativeZeroNan | Specials::None => {
                code | sign
            }
        }
    }
}

/// How a number between two powers of two becomes one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerRounding {
    /// To the greater one.
    #[default]
    Up,
    /// To the lesser one.
    Down,
    /// To the nearer one, ties to the greater.
    Nearest,
}

/// The value of the code of an 8-bit power of two.
pub fn decode_e8m0(code: u8) -> f64 {
    if code == 0xff { f64::NAN } else { 2f64.powi(i32::from(code) - 127) }
}

/// The code of a power of two near the magnitude of a number, as ONNX's `Cast` finds it. The sign
/// is dropped, and 0 becomes the least power. With `saturate` what rounds beyond the greatest power
/// becomes it, else NaN.
pub fn encode_e8m0(value: f32, rounding: PowerRounding, saturate: bool) -> u8 {
    let bits = value.to_bits();
    let (exponent, mantissa) = ((bits >> 23) as u8, bits & 0x7f_ffff);
    if exponent == 0xff {
        return 0xff;
    }
    // The least power is denormal in 32 bits, with no hidden bit.
    let above = if exponent == 0 { mantissa > 0x40_0000 } else { mantissa > 0 };
    let up = match rounding {
        PowerRounding::Up => above,
        PowerRounding::Down => false,
        PowerRounding::Nearest => above && mantissa >= 0x40_0000,
    };
    let code = exponent + u8::from(up);
    if code == 0xff && saturate { 0xfe } else { code }
}

/// The value of a float's bits; `None` for what is no float.
pub fn float_value(bits: u64, dtype: DType) -> Option<f64> {
    match dtype {
        DType::F64 => Some(f64::from_bits(bits)),
        DType::F32 => Some(f64::from(f32::from_bits(bits as u32))),
        DType::F8E8M0 => Some(decode_e8m0(bits as u8)),
        _ => SmallFloat::of(dtype).map(|format| format.decode(bits as u32)),
    }
}

/// The bits of the nearest float; `None` for what is no float. Beyond the greatest number there is
/// infinity, NaN or that number, whichever the type has.
pub fn float_bits(value: f64, dtype: DType) -> Option<u64> {
    match dtype {
        DType::F64 => Some(value.to_bits()),
        DType::F32 => Some(u64::from((value as f32).to_bits())),
        DType::F8E8M0 => Some(encode_e8m0(value as f32, PowerRounding::Nearest, false).into()),
        _ => SmallFloat::of(dtype).map(|format| format.encode(value).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> impl Iterator<Item = (DType, SmallFloat)> {
        DType::all().filter_map(|dtype| Some((dtype, SmallFloat::of(dtype)?)))
    }

    #[test]
    fn half_and_bfloat_are_those_of_the_crate_half() {
        let (f16, bf16) =
            (SmallFloat::of(DType::F16).unwrap(), SmallFloat::of(DType::BF16).unwrap());
        for code in 0..=u16::MAX {
            let (a, b) = (f16.decode(code.into()), half::f16::from_bits(code).to_f64());
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{code:#x}");
            let (a, b) = (bf16.decode(code.into()), half::bf16::from_bits(code).to_f64());
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{code:#x}");
        }
        for bits in (0..=u32::MAX).step_by(9973) {
            let narrow = f32::from_bits(bits);
            let value = f64::from(narrow);
            if value.is_nan() {
                continue;
            }
            assert_eq!(
                f16.encode(value),
                u32::from(half::f16::from_f32(narrow).to_bits()),
                "{value}"
            );
            assert_eq!(
                bf16.encode(value),
                u32::from(half::bf16::from_f32(narrow).to_bits()),
                "{value}"
            );
        }
    }

    #[test]
    fn every_code_reads_back_and_midpoints_go_to_even_codes() {
        for (dtype, format) in formats() {
            for code in 0..2 * format.sign() {
                let value = format.decode(code);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), code, "{dtype} {code:#x}");
                }
            }
            for code in 0..format.max_code() {
                let middle = (format.decode(code) + format.decode(code + 1)) / 2.0;
                assert_eq!(format.encode(middle), code + code % 2, "{dtype} {code:#x}");
            }
            assert!(format.specials == Specials::None || format.decode(format.nan_code()).is_nan());
        }
    }

    #[test]
    fn greatest_numbers_and_overflow_are_the_standards() {
        let format = |dtype| SmallFloat::of(dtype).unwrap();
        for (dtype, greatest, overflow) in [
            (DType::F16, 65504.0, 0x7c00),
            (DType::F8E4M3FN, 448.0, 0x7f),
            (DType::F8E4M3FNUZ, 240.0, 0x80),
            (DType::F8E5M2, 57344.0, 0x7c),
            (DType::F8E5M2FNUZ, 57344.0, 0x80),
            (DType::F4E2M1, 6.0, 0x7),
        ] {
            assert_eq!(format(dtype).max_value(), greatest, "{dtype}");
            assert_eq!(format(dtype).encode(1e300), overflow, "{dtype}");
        }
        // Half a unit beyond the greatest number is still nearest to it.
        assert_eq!(format(DType::F8E4M3FN).encode(464.0), 0x7e);
        assert_eq!(format(DType::F8E4M3FNUZ).encode(-0.0), 0);
        assert_eq!(format(DType::F16).encode(5e-324), 0);
    }

    #[test]
    fn powers_of_two_round_in_the_requested_direction() {
        use PowerRounding::{Down, Nearest, Up};
        for code in 0..=254 {
            for rounding in [Up, Down, Nearest] {
                assert_eq!(encode_e8m0(decode_e8m0(code) as f32, rounding, true), code);
            }
        }
        let codes = |value| [Up, Down, Nearest].map(|rounding| encode_e8m0(value, rounding, false));
        assert_eq!(codes(1.25), [128, 127, 127]);
        assert_eq!(codes(-1.5), [128, 127, 128]);
        assert_eq!(codes(f32::MAX), [255, 254, 255]);
        assert_eq!(encode_e8m0(f32::MAX, Up, true), 254);
        assert_eq!(codes(0.0), [0; 3]);
        assert_eq!(codes(f32::NAN), [0xff; 3]);
        assert!(decode_e8m0(0xff).is_nan());
    }
}
