//! Spellings that the text formats share: quoted names, and numbers that read back to the same bits.

use std::fmt;

use super::DType;

/// Whether a name can stand in text without quotes: a letter or `_`, then letters, digits and `_`,
/// all ASCII.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a name is identifiers joined by dots: `nn.conv2d`.
pub fn is_dotted_identifier(name: &str) -> bool {
    name.split('.').all(is_identifier)
}

/// A name as it prints: in quotes unless it is an identifier.
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_identifier(self.0) { f.write_str(self.0) } else { write!(f, "{:?}", self.0) }
    }
}

/// Why text in quotes cannot be read.
const UNKNOWN_ESCAPE: &str =
    "an unknown escape; known are \\n, \\r, \\t, \\0, \\', \\\", \\\\ and \\u{hex}";

/// Reads text in quotes, with the escapes of a Rust string: what `{:?}` prints. `quoted` begins with
/// the quote; what follows the closing one is returned, too.
///
/// # Errors
///
/// An escape is unknown, or the closing quote is missing.
pub fn read_quoted(quoted: &str) -> Result<(String, &str), &'static str> {
    let mut text = String::new();
    let mut chars = quoted.chars();
    chars.next();
    loop {
        match chars.next().ok_or("a quote that is not closed")? {
            '"' => return Ok((text, chars.as_str())),
            '\\' => text.push(match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('0') => '\0',
                Some(c @ ('"' | '\'' | '\\')) => c,
                Some('u') => {
                    let hex =
                        chars.as_str().strip_prefix('{').and_then(|rest| rest.split_once('}'));
                    let (digits, rest) = hex.filter(|(d, _)| d.len() <= 6).ok_or(UNKNOWN_ESCAPE)?;
                    chars = rest.chars();
                    let number = u32::from_str_radix(digits, 16).ok();
                    number.and_then(char::from_u32).ok_or(UNKNOWN_ESCAPE)?
                }
                _ => return Err(UNKNOWN_ESCAPE),
            }),
            c => text.push(c),
        }
    }
}

/// A float as it prints: the shortest digits that read back, with a point or an exponent; `inf`,
/// `-inf`, `nan`, and `nan(0x…)` with all bits for a NaN other than the usual quiet one.
pub fn float_text(value: f64) -> String {
    special_float(value, value.to_bits(), usual_nan(DType::F64), 16)
        .unwrap_or_else(|| format!("{value:?}"))
}

fn special_float(value: f64, bits: u64, usual_nan: u64, hex_digits: usize) -> Option<String> {
    if value.is_nan() {
        return Some(match bits {
            bits if bits == usual_nan => "nan".to_owned(),
            bits => format!("nan(0x{bits:0hex_digits$x})"),
        });
    }
    if value.is_infinite() {
        return Some(if value > 0.0 { "inf" } else { "-inf" }.to_owned());
    }
    None
}

/// Reads a float as [`float_text`] prints it; also an integer.
pub fn parse_float(text: &str) -> Option<f64> {
    match parse_special(text)? {
        Special::Finite => text.parse().ok(),
        Special::Infinite(negative) => Some(if negative { -f64::INFINITY } else { f64::INFINITY }),
        Special::Nan => Some(f64::from_bits(usual_nan(DType::F64))),
        Special::NanBits(bits) => Some(f64::from_bits(bits)).filter(|v| v.is_nan()),
    }
}

enum Special {
    Finite,
    Infinite(bool),
    Nan,
    NanBits(u64),
}

fn parse_special(text: &str) -> Option<Special> {
    Some(match text {
        "inf" => Special::Infinite(false),
        "-inf" => Special::Infinite(true),
        "nan" => Special::Nan,
        _ => match text.strip_prefix("nan(0x").and_then(|rest| rest.strip_suffix(')')) {
            Some(hex) => Special::NanBits(u64::from_str_radix(hex, 16).ok()?),
            // Rust's own parser knows more spellings, such as `infinity`; the text format does not.
            None => {
                let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e');
                text.chars().all(digits).then_some(Special::Finite)?
            }
        },
    })
}

/// Bits of the NaN that a 16-, 32- or 64-bit float prints as plain `nan`.
fn usual_nan(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        DType::F32 => 0x7fc0_0000,
        _ => 0x7ff8_0000_0000_0000,
    }
}

/// One element of a constant as it prints, from its little-endian bits: `true`, `-3`, `0.5`, and
/// hexadecimal bits for floats of 8 bits and fewer.
pub fn element_text(dtype: DType, bits: u64) -> String {
    let without_point = |text: String| match text.strip_suffix(".0") {
        Some(integer) => integer.to_owned(),
        None => text,
    };
    let hex_digits = dtype.bits() as usize / 4;
    let float = |value: f64, digits: String| {
        special_float(value, bits, usual_nan(dtype), hex_digits)
            .unwrap_or_else(|| without_point(digits))
    };
    match dtype {
        // A byte other than 0 and 1 is not a boolean, but must not print as one either.
        DType::Bool => match bits {
            0 => "false".to_owned(),
            1 => "true".to_owned(),
            other => other.to_string(),
        },
        DType::F16 => {
            let value = half::f16::from_bits(bits as u16).to_f32();
            float(value.into(), format!("{value:?}"))
        }
        DType::BF16 => {
            let value = half::bf16::from_bits(bits as u16).to_f32();
            float(value.into(), format!("{value:?}"))
        }
        DType::F32 => {
            let value = f32::from_bits(bits as u32);
            float(value.into(), format!("{value:?}"))
        }
        DType::F64 => float(f64::from_bits(bits), format!("{:?}", f64::from_bits(bits))),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2 => {
            let unused = 64 - dtype.bits();
            (((bits << unused) as i64) >> unused).to_string()
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::U4 | DType::U2 => {
            bits.to_string()
        }
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => format!("0x{bits:0hex_digits$x}"),
    }
}

/// The bits of one element from its text, if it is one of the data type: the inverse of
/// [`element_text`].
pub fn parse_element(dtype: DType, text: &str) -> Option<u64> {
    if dtype == DType::Bool {
        return match text {
            "false" | "0" => Some(0),
            "true" | "1" => Some(1),
            other => other.parse::<u8>().ok().map(u64::from),
        };
    }
    if let Some((low, high)) = dtype.int_range() {
        let value: i128 = text.parse().ok()?;
        let mask = u64::MAX >> (64 - dtype.bits());
        return (low..=high).contains(&value).then_some(value as u64 & mask);
    }
    if dtype.is_storage_only() {
        let bits = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
        return (bits >> dtype.bits() == 0).then_some(bits);
    }
    let from_f32 = |value: f32| match dtype {
        DType::F16 => half::f16::from_f32(value).to_bits().into(),
        DType::BF16 => half::bf16::from_f32(value).to_bits().into(),
        DType::F32 => value.to_bits().into(),
        _ => f64::from(value).to_bits(),
    };
    match parse_special(text)? {
        Special::Infinite(negative) => {
            Some(from_f32(if negative { -f32::INFINITY } else { f32::INFINITY }))
        }
        Special::Nan => Some(usual_nan(dtype)),
        Special::NanBits(bits) => {
            let is_nan = match dtype {
                DType::F16 => bits >> 16 == 0 && half::f16::from_bits(bits as u16).is_nan(),
                DType::BF16 => bits >> 16 == 0 && half::bf16::from_bits(bits as u16).is_nan(),
                DType::F32 => bits >> 32 == 0 && f32::from_bits(bits as u32).is_nan(),
                _ => f64::from_bits(bits).is_nan(),
            };
            is_nan.then_some(bits)
        }
        Special::Finite => match dtype {
            DType::F64 => text.parse().ok().map(f64::to_bits),
            _ => text.parse().ok().map(from_f32),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_16_bits_and_fewer_reads_back() {
        for dtype in DType::all().filter(|dtype| dtype.bits() <= 16) {
            for bits in 0..1u64 << dtype.bits() {
                let text = element_text(dtype, bits);
                assert_eq!(parse_element(dtype, &text), Some(bits), "{dtype} {text}");
            }
        }
    }

    #[test]
    fn wide_elements_read_back() {
        for bits in [0, 1, 0x8000_0000, 0x3dcc_cccd, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000] {
            let text = element_text(DType::F32, bits);
            assert_eq!(parse_element(DType::F32, &text), Some(bits), "{text}");
        }
        for bits in [1 << 63, 0x7ff0_0000_0000_0001, 0xfff8_0000_0000_0000, 0x3fb9_9999_9999_999a] {
            let text = element_text(DType::F64, bits);
            assert_eq!(parse_element(DType::F64, &text), Some(bits), "{text}");
            let value = f64::from_bits(bits);
            assert_eq!(parse_float(&float_text(value)).map(f64::to_bits), Some(bits));
        }
        assert_eq!(element_text(DType::F32, 1f32.to_bits().into()), "1");
        assert_eq!(element_text(DType::F32, (-0.1f32).to_bits().into()), "-0.1");
        assert_eq!(element_text(DType::I64, u64::MAX), "-1");
        assert_eq!(element_text(DType::F32, 0x7fc0_0001), "nan(0x7fc00001)");
    }

    #[test]
    fn elements_out_of_range_are_refused() {
        for (dtype, text) in [
            (DType::I8, "128"),
            (DType::U4, "16"),
            (DType::U64, "-1"),
            (DType::F32, "nan(0x3f800000)"),
            (DType::F16, "nan(0x17e00)"),
            (DType::F32, "infinity"),
            (DType::F8E4M3FN, "0x100"),
            (DType::Bool, "256"),
        ] {
            assert_eq!(parse_element(dtype, text), None, "{dtype} {text}");
        }
    }

    #[test]
    fn odd_names_are_quoted() {
        assert_eq!(Name("conv1").to_string(), "conv1");
        assert_eq!(Name("input.1").to_string(), r#""input.1""#);
        assert_eq!(Name("a\"\n").to_string(), r#""a\"\n""#);
        assert!(is_dotted_identifier("nn.relu") && !is_dotted_identifier("nn."));
    }
}
