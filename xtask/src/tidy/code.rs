//! Rust source without its comments and literals.

/// Returns `source` with every comment, string and character literal turned into spaces, line ends kept.
///
/// Good enough for looking up names, which is all that is done with it; it is no lexer.
pub(super) fn without_comments_and_literals(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'r' if !follows_name(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'b' if bytes[at..].starts_with(b"br") && !follows_name(bytes, at) => {
                raw_string_end(bytes, at + 1).unwrap_or(at)
            }
            b'"' => quoted_end(bytes, at),
            b'\'' if is_character(bytes, at) => quoted_end(bytes, at),
            _ => at,
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("whole characters are replaced by spaces")
}

fn follows_name(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(bytes.len())
}

/// The end of `r"…"` or `r#"…"#`, if one begins at `at`.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let start = at + 1 + hashes;
    if bytes.get(start) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'#'; hashes + 1];
    close[0] = b'"';
    let length = bytes[start + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| start + 1 + length + close.len()))
}

fn quoted_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != bytes[start] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Whether the `'` at `at` begins a character and not a lifetime.
fn is_character(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at + 1) {
        Some(b'\\') => true,
        Some(first) => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            bytes.get(at + 1 + width) == Some(&b'\'')
        }
        None => false,
    }
}

/// Whether `name` stands in `line` as a whole identifier.
pub(super) fn names(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + name.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn strips(source: &str, expected: &str) {
        assert_eq!(without_comments_and_literals(source), expected);
    }

    #[test]
    fn comments_go_and_lines_stay() {
        strips("a // b\nc", "a     \nc");
        strips("a /* b /* c */\n d */ e", "a             \n      e");
        strips("a / b", "a / b");
    }

    #[test]
    fn literals_go() {
        for literal in [r#""a // \" b""#, r##"r#"a " b"#"##, r#"br"\""#, "'\"'", "'\\''", "'é'"] {
            strips(&format!("f({literal}, c)"), &format!("f({}, c)", " ".repeat(literal.len())));
        }
    }

    #[test]
    fn lifetimes_and_names_that_end_in_r_stay() {
        strips("fn f<'a>(x: &'a str) -> &'a str", "fn f<'a>(x: &'a str) -> &'a str");
        strips("bar\"x\"", "bar   ");
        strips("r#type", "r#type");
    }

    #[test]
    fn what_never_closes_ends_with_the_file() {
        for source in ["\"abc", "r#\"abc\"", "/* abc", "'\\", "\"abc\\"] {
            assert_eq!(without_comments_and_literals(source).trim(), "", "{source}");
        }
    }

    #[test]
    fn names_are_whole() {
        assert!(names("use prost::Message;", "prost"));
        assert!(!names("use prost_types::Any;", "prost"));
        assert!(!names("let compost = 1;", "prost"));
    }
}
