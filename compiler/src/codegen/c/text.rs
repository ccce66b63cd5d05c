//! Pieces of C text: expressions with their precedence, constants, type names.

use crate::ir::DType;
use crate::tir::PrimType;

/// How tightly an expression binds; larger binds tighter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Prec {
    /// `a ? b : c`
    Conditional,
    /// `||`
    Or,
    /// `&&`: in parentheses inside `||`.
    And,
    /// `|`, `^`, `&`: always in parentheses inside anything else.
    Bitwise,
    /// `==`, `<` …: always in parentheses inside anything else.
    Compare,
    /// `<<`, `>>`: always in parentheses inside anything else.
    Shift,
    /// `+`, `-`
    Sum,
    /// `*`, `/`, `%`
    Product,
    /// `-a`, casts
    Unary,
    /// Names, calls, indexing.
    Primary,
}

/// The text of an expression.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) prec: Prec,
}

impl Piece {
    pub(super) fn new(text: impl Into<String>, prec: Prec) -> Self {
        Piece { text: text.into(), prec }
    }

    pub(super) fn primary(text: impl Into<String>) -> Self {
        Piece::new(text, Prec::Primary)
    }

    /// The text as an operand where at least `prec` is needed.
    pub(super) fn at(&self, prec: Prec) -> String {
        if self.prec >= prec { self.text.clone() } else { format!("({})", self.text) }
    }

    /// The text as the condition of `?:`.
    pub(super) fn condition(&self) -> String {
        self.at(if self.prec == Prec::Bitwise { Prec::Primary } else { Prec::Or })
    }

    /// The text as an operand of a postfix operator or a cast.
    pub(super) fn tight(&self) -> String {
        self.at(Prec::Primary)
    }
}

/// The name of a scalar type in C, where values are kept in registers.
pub(super) fn scalar_type(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "_Bool",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u8",
        DType::U16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "_Float16",
        DType::BF16
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => return None,
    })
}

/// The name of an element's type in memory: a `Bool` is a byte that is 0 or 1.
pub(super) fn memory_type(dtype: DType) -> Option<&'static str> {
    if dtype == DType::Bool { Some("u8") } else { scalar_type(dtype) }
}

/// The name of a vector type; `Bool` has none, as masks are vectors of integers.
pub(super) fn vector_type(ty: PrimType) -> String {
    format!("{}x{}", ty.dtype.short_name(), ty.lanes)
}

/// The signed integer type whose lanes are masks for values of `bits` bits.
pub(super) fn mask_dtype(bits: u32) -> DType {
    match bits {
        8 => DType::I8,
        16 => DType::I16,
        32 => DType::I32,
        _ => DType::I64,
    }
}

/// The unsigned integers of so many bits.
pub(super) fn unsigned_dtype(bits: u32) -> DType {
    match bits {
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        _ => DType::U64,
    }
}

/// A constant of an integer type or `Bool`.
pub(super) fn int_constant(value: i64, dtype: DType) -> Piece {
    let signed =
        |text: String| Piece::new(text, if value < 0 { Prec::Unary } else { Prec::Primary });
    match dtype {
        DType::I64 if value == i64::MIN => Piece::new(format!("-{}ll - 1", i64::MAX), Prec::Sum),
        DType::I64 => signed(format!("{value}ll")),
        // 2147483648 alone is a long, and its negation as well.
        DType::I32 if value == i64::from(i32::MIN) => {
            Piece::new(format!("-{} - 1", i32::MAX), Prec::Sum)
        }
        DType::U32 => Piece::primary(format!("{value}u")),
        DType::U64 => Piece::primary(format!("{}ull", value as u64)),
        _ => signed(value.to_string()),
    }
}

/// A constant of `float` or `double`: the shortest decimal that reads back exactly.
pub(super) fn float_constant(value: f64, dtype: DType) -> Piece {
    if dtype == DType::F16 {
        let single = float_constant(value, DType::F32);
        return Piece::new(format!("(_Float16){}", single.tight()), Prec::Unary);
    }
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let text = if value.is_nan() {
        format!("__builtin_nan{suffix}(\"\")")
    } else if value.is_infinite() {
        format!("{}__builtin_inf{suffix}()", if value < 0.0 { "-" } else { "" })
    } else if dtype == DType::F32 {
        format!("{:?}f", value as f32)
    } else {
        format!("{value:?}")
    };
    let prec = if text.starts_with('-') { Prec::Unary } else { Prec::Primary };
    Piece::new(text, prec)
}

/// Columns in which lines end, where they can be broken.
const COLUMNS: usize = 100;

/// Appends a line, broken before it is longer than [`COLUMNS`]: after a comma or before an operator,
/// inside of as few parentheses as possible. A line without such a place stays longer.
pub(crate) fn wrap(text: &str, indent: usize, lines: &mut Vec<String>) {
    let mut rest = text;
    let mut margin = indent * 4;
    while margin + rest.len() > COLUMNS {
        let width = COLUMNS - margin.min(COLUMNS / 2);
        // Not so early that the rest is not shorter.
        let places: Vec<_> = breaks(rest).into_iter().filter(|(at, _)| *at >= width / 3).collect();
        let near = places.iter().filter(|(at, _)| *at <= width);
        let place = near.min_by_key(|&&(at, depth)| (depth, width - at)).or(places.first());
        let Some(&(at, _)) = place else { break };
        lines.push(format!("{}{}", " ".repeat(margin), &rest[..at]));
        rest = &rest[at + 1..];
        margin = indent * 4 + 8;
    }
    lines.push(format!("{}{rest}", " ".repeat(margin)));
}

/// The spaces at which a line can be broken, each with the number of open parentheses; brackets count
/// more, as indices are read in one go.
fn breaks(text: &str) -> Vec<(usize, usize)> {
    let mut depth = 0usize;
    let mut found = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            '[' => depth += 100,
            ']' => depth = depth.saturating_sub(100),
            ' ' => {
                let word = text[at + 1..].split(' ').next().unwrap_or_default();
                let is_operator = word.bytes().all(|b| b"+-*/%&|^<>!?:".contains(&b));
                if before == ',' || is_operator && !word.is_empty() {
                    found.push((at, depth));
                }
            }
            _ => {}
        }
        before = c;
    }
    found
}

/// `head(params)`, with a line for each parameter if one line is too short.
pub(crate) fn signature(head: &str, params: &[String]) -> String {
    let line = format!("{head}({})", params.join(", "));
    if line.len() + " {".len() <= COLUMNS {
        return line;
    }
    format!("{head}(\n    {})", params.join(",\n    "))
}

/// A comment of lines before a function; nothing if there are none.
pub(super) fn comment(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        [line] => format!("/* {} */\n", comment_text(line)),
        lines => {
            let lines: String =
                lines.iter().map(|line| format!(" * {}\n", comment_text(line))).collect();
            format!("/*\n{lines} */\n")
        }
    }
}

/// Text that may stand inside a C comment.
pub(super) fn comment_text(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_outside_of_indices() {
        let wrapped = |text: &str| {
            let mut lines = Vec::new();
            wrap(text, 1, &mut lines);
            lines
        };
        assert_eq!(wrapped("y[i + 1] = x[i];"), ["    y[i + 1] = x[i];"]);
        let index = "block * 1024 + row * 64 + column * 16";
        let text = format!("acc = fma(a[{index}], b[{index}], acc + correction);");
        assert_eq!(
            wrapped(&text),
            [
                format!("    acc = fma(a[{index}], b[{index}],"),
                "            acc + correction);".to_owned()
            ]
        );
        // Nowhere to break it.
        let name = "a".repeat(200);
        assert_eq!(wrapped(&name), [format!("    {name}")]);
        for text in [text, format!("{name} = {name} + {name} * ({name}, {name});")] {
            assert_eq!(
                wrapped(&text).join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
                text
            );
        }
    }

    #[test]
    fn names_in_comments_cannot_end_the_comment() {
        assert_eq!(comment(&["a */ b\nc".to_owned()]), "/* a * / b c */\n");
        let lines = ["one".to_owned(), "/* two".to_owned()];
        assert_eq!(comment(&lines), "/*\n * one\n * / * two\n */\n");
    }
}
