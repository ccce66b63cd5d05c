//! Canonical forms of expressions, compared with handwritten forms and direct evaluation.

use super::IntExpr;

mod known;
mod properties;

fn expr(text: &str) -> IntExpr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Each text must print as the other one, and the printed text must parse to the same expression.
fn check_forms(cases: &[(&str, &str)]) {
    for (text, canonical) in cases {
        let parsed = expr(text);
        assert_eq!(parsed.to_string(), *canonical, "{text}");
        assert_eq!(expr(canonical), parsed, "{text}");
    }
}

#[test]
fn sums_and_products_have_one_form() {
    check_forms(&[
        ("1 + 2*3", "7"),
        ("n + n", "2*n"),
        ("n - n", "0"),
        ("m - 1 + 2*n*1", "m + 2*n - 1"),
        ("k*m + 2*n - 1", "k*m + 2*n - 1"),
        ("(n + 1)*(n - 1)", "n*n - 1"),
        ("(a + b)*(a + b) - (a - b)*(a - b)", "4*a*b"),
        ("4 - n", "4 - n"),
        ("-n + m", "m - n"),
        ("-n", "-n"),
        ("-2*n*m - 3", "-2*m*n - 3"),
        ("--n", "n"),
        ("b*a*b", "a*b*b"),
        ("9223372036854775807 + 1", "overflow"),
        ("-9223372036854775808*n + m", "m + -9223372036854775808*n"),
        ("n + -9223372036854775808", "n + -9223372036854775808"),
        ("overflow*0", "overflow"),
        ("n // 0", "undefined"),
        ("undefined + overflow", "undefined"),
    ]);
}

#[test]
fn division_keeps_only_inexact_terms() {
    check_forms(&[
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 2", "1"),
        ("7 % -2", "-1"),
        ("ceildiv(7, 2)", "4"),
        ("ceildiv(-7, 2)", "-3"),
        ("(6*n + 4) // 2", "3*n + 2"),
        ("(6*n + 5) // 2", "3*n + 2"),
        ("(6*n + 4) // 4", "floordiv(3*n, 2) + 1"),
        ("n // 2 // 3", "floordiv(n, 6)"),
        ("(n // 2 + 1) // 2", "floordiv(n + 2, 4)"),
        ("ceildiv(n, 4)", "ceildiv(n, 4)"),
        ("-(-n // 4)", "ceildiv(n, 4)"),
        ("(n + 3) // 4", "ceildiv(n, 4)"),
        ("n // -4", "-ceildiv(n, 4)"),
        // What is padded to whole blocks.
        ("(n + mod(-n, 4)) // 4", "ceildiv(n, 4)"),
        ("(n + mod(-n, 4) - 1) // 2", "2*ceildiv(n, 4) - 1"),
        ("(n + mod(-n, 4)) // 8", "floordiv(n + mod(-n, 4), 8)"),
        ("(n + mod(-m, 4)) // 4", "floordiv(n + mod(-m, 4), 4)"),
        ("-(-n // m)", "ceildiv(n, m)"),
        ("ceildiv(n, m)", "ceildiv(n, m)"),
        ("(a*b) // b", "floordiv(a*b, b)"),
        ("0 // n", "0"),
        ("(2*a) // (2*b)", "floordiv(a, b)"),
        ("-a // -b", "floordiv(a, b)"),
        ("(4*n) % 2", "0"),
        ("(5*n + 6) % 4", "mod(n + 2, 4)"),
        ("(7*n) % 4", "mod(-n, 4)"),
        ("(2*n + 3) % 4", "2*mod(n + 1, 2) + 1"),
        ("n % 8 % 4", "mod(n, 4)"),
        ("n % 4 % 8", "mod(n, 4)"),
        ("n % 8 // 4", "mod(floordiv(n, 4), 2)"),
        ("n % 8 // 8", "0"),
        ("n % 1", "0"),
        ("n % -4", "-mod(-n, 4)"),
        ("4*(n // 4) + n % 4", "n"),
        ("m*(n // m) + n % m", "n"),
        ("8*(n // 8) + 4*(n // 4 % 2) + n % 4", "n"),
    ]);
}

#[test]
fn extrema_drop_operands_that_never_win() {
    check_forms(&[
        ("min(3, 5)", "3"),
        ("min(n, n)", "n"),
        ("max(n + 1, n)", "n + 1"),
        ("min(max(1, n), m, 7, min(9, k))", "min(7, k, m, max(1, n))"),
        ("max(n % 4, 4)", "4"),
        ("max(n % 4, 0)", "mod(n, 4)"),
        ("min(9223372036854775807, n)", "n"),
        ("max(n, -9223372036854775807 - 1)", "n"),
        ("min(b, a) + min(a, b)", "2*min(a, b)"),
    ]);
}

#[test]
fn odd_names_are_quoted() {
    check_forms(&[
        (r#""p2o.DynamicDimension.0" + 1"#, r#""p2o.DynamicDimension.0" + 1"#),
        (r#""batch size"*"n""#, r#""batch size"*n"#),
        (r#""min" + "" + "a\"b\\\u{7}""#, r#""" + "a\"b\\\u{7}" + "min""#),
        (r#""größe" - 1"#, r#""größe" - 1"#),
    ]);
}

#[test]
fn errors_say_where() {
    for (text, offset, message) in [
        ("", 0, "found the end, expected an integer expression"),
        ("n +", 3, "found the end, expected an integer expression"),
        ("n m", 2, "found `m`, expected the end"),
        ("floordiv(n)", 0, "`floordiv` takes 2 operands, found 1"),
        ("1 + 9223372036854775808", 4, "`9223372036854775808` is not a 64-bit signed integer"),
        ("\"abc", 0, "the quote is not closed"),
    ] {
        let error = text.parse::<IntExpr>().expect_err(text);
        assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
    }
    let deep = format!("{}n{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(deep.parse::<IntExpr>().is_err());
    assert_eq!(IntExpr::parse_prefix("n + 1, m)"), Ok((expr("n + 1"), 5)));
}
