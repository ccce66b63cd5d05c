//! Facts: conclusions from them, and the refusal of contradictions.

use super::expr;
use crate::arith::{Facts, IntExpr, Interval, Mismatch, Modular, Symbol};

fn facts(text: &str) -> Facts {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn bounds_see_through_terms_that_cancel() {
    for (known, text, bounds) in [
        ("", "mod(n, 4)", "[0, 3]"),
        ("", "n - 4*floordiv(n, 4)", "[0, 3]"),
        ("", "n - min(n, m)", "[0, inf)"),
        ("", "max(n, m) - min(n, m)", "[0, inf)"),
        ("* >= 0", "2*n + 1", "[1, inf)"),
        ("* >= 0", "n - floordiv(n, 2)", "[0, inf)"),
        ("* >= 1", "n*m - n", "[0, inf)"),
        ("* >= 0, n <= 10", "7 - 2*n", "[-13, 7]"),
        ("n >= -3, n <= 2", "n*n", "[0, 9]"),
        ("* >= 1, n <= 100", "floordiv(n, m)", "[0, 100]"),
        ("* >= 1", "mod(n, m) - m", "(-inf, -1]"),
        ("* >= 0, n <= m, m <= k", "k - n", "[0, inf)"),
        ("* >= 0, m == n + 3", "m", "[3, inf)"),
        ("* >= 0, n == 9223372036854775807", "n + 1", "[1, inf)"),
    ] {
        assert_eq!(facts(known).bounds_of(&expr(text)).to_string(), bounds, "{known} |- {text}");
    }
}

#[test]
fn simplification_uses_every_kind_of_fact() {
    for (known, text, simplified) in [
        ("", "a*b // b", "floordiv(a*b, b)"),
        ("* >= 1", "a*b // b", "a"),
        ("* >= 1", "(a*b + a) // (b + 1)", "a"),
        ("* >= 1", "(a*b + c) // b", "a + floordiv(c, b)"),
        ("* >= 1", "(a*b + c) % b", "mod(c, b)"),
        ("* >= 1", "(a*b*c) // (2*a*c)", "floordiv(b, 2)"),
        ("* >= 0, i < n", "i // n", "0"),
        ("* >= 0, i < n", "(n*j + i) % n", "i"),
        ("* >= 0, i < n", "(n*j + i) // n", "j"),
        ("n >= 8", "-4 % n", "n - 4"),
        ("n >= 8", "(n*j - 4) % n", "n - 4"),
        ("n >= 3", "-4 % n", "mod(-4, n)"),
        ("i >= 0, i <= 3", "(4*j + i) // 4", "j"),
        ("i >= 0, i <= 3", "(4*j + i) % 4", "i"),
        ("n % 4 == 0", "4*(n // 4)", "n"),
        ("n % 4 == 1", "n % 2", "1"),
        ("n % 4 == 0", "(n + 6) % 4", "2"),
        ("m == 2*n", "m // 2 - n", "0"),
        ("n == 3", "n*m", "3*m"),
        ("a*b == 12", "a*b*c - 12*c", "0"),
        ("* >= 0", "max(n, 0)", "n"),
        ("* >= 0, n <= 7", "min(n, m + 7)", "n"),
    ] {
        let simplified_expr = facts(known).simplify(&expr(text));
        assert_eq!(simplified_expr.to_string(), simplified, "{known} |- {text}");
    }
}

#[test]
fn proofs_answer_always_never_or_unknown() {
    for (known, a, b, equal, less_or_equal) in [
        ("", "n", "n", Some(true), Some(true)),
        ("", "n", "n + 1", Some(false), Some(true)),
        ("", "n", "m", None, None),
        ("", "2*n", "2*m + 1", Some(false), None),
        ("", "n // 2 + (n + 1) // 2", "n", Some(true), Some(true)),
        ("", "3*n // 2", "n + n // 2", Some(true), Some(true)),
        ("", "n % 4", "n - 4*(n // 4)", Some(true), Some(true)),
        ("", "max(a, b) + min(a, b)", "a + b", Some(true), Some(true)),
        ("", "min(n + 1, m + 1)", "min(n, m) + 1", Some(true), Some(true)),
        ("", "(-n) // 4", "n", None, None),
        ("* >= 0", "n + 1", "0", Some(false), Some(false)),
        ("* >= 0", "(n + 1) // 2", "n", None, Some(true)),
        ("* >= 1", "n", "n*m", None, Some(true)),
        ("n % 4 == 1", "n", "6", Some(false), None),
        ("n % 4 == 0", "4*(n // 4)", "n", Some(true), Some(true)),
        ("a*b == c*d", "2*a*b", "2*c*d", Some(true), Some(true)),
        ("", "overflow", "overflow", None, None),
        ("", "n // 0", "1", None, None),
    ] {
        let (known, a, b) = (facts(known), expr(a), expr(b));
        assert_eq!(known.prove_eq(&a, &b), equal, "{known} |- {a} == {b}");
        assert_eq!(known.prove_le(&a, &b), less_or_equal, "{known} |- {a} <= {b}");
    }
}

#[test]
fn congruences_are_those_of_the_operations() {
    let known = facts("n % 6 == 4, m % 4 == 2");
    for (text, set) in [
        ("n + m", "2*k"),
        ("n*m", "4*k"),
        ("2*n + 1", "12*k + 9"),
        ("floordiv(n, 3)", "2*k + 1"),
        ("mod(n, 4)", "2*k"),
        ("min(n, m)", "2*k"),
        ("k", "1*k"),
        ("7", "7"),
    ] {
        let found = known.modular_of(&expr(text)).to_string();
        assert_eq!(found, set, "{text}");
    }
    assert_eq!(Modular::new(4, 1).intersect(Modular::new(6, 3)), Some(Modular::new(12, 9)));
    assert_eq!(Modular::new(4, 1).intersect(Modular::new(6, 2)), None);
}

#[test]
fn equations_are_solved_refuted_or_kept() {
    for (known, a, b, result) in [
        ("", "n", "4", "n == 4"),
        ("", "m", "n", "n == m"),
        ("", "2*n", "8", "n == 4"),
        ("", "2*n + 4*m", "6", "n == 3 - 2*m"),
        ("* >= 0", "n", "m + 3", "* >= 0, n == m + 3"),
        ("* >= 0", "m", "n - 3", "* >= 0, n == m + 3"),
        ("* >= 0", "z", "n - 3", "* >= 0, n >= 3, z == n - 3"),
        ("* >= 1", "n*m", "n*k", "* >= 1, m == k"),
        ("* >= 0", "n*m", "n*k", "* >= 0, k*n - m*n == 0"),
        ("b == 2*a", "c", "b + 1", "b == 2*a, c == 2*a + 1"),
        ("c == b", "b", "a", "b == a, c == a"),
        ("n <= 8", "n", "m", "m <= 8, n == m"),
        ("z % 4 == 0", "z", "n + 1", "mod(n, 4) == 3, z == n + 1"),
        ("", "n % 4", "1", "mod(n, 4) == 1"),
        ("", "3*n", "2*m", "2*m - 3*n == 0"),
        ("* >= 0", "a + b", "c", "* >= 0, c == a + b"),
        ("* >= 0", "z", "a - b", "* >= 0, z == a - b, a - b >= 0"),
        ("a*b == 12", "b", "3", "a == 4, b == 3"),
        ("", "max(5, n)", "n", "n >= 5"),
        ("n <= 9", "n + 2", "max(n + 2, 8)", "n >= 6, n <= 9"),
        ("", "min(5, n)", "n", "n <= 5"),
        ("", "max(n, m)", "n", "n - max(m, n) == 0"),
    ] {
        let mut known = facts(known);
        let before = known.clone();
        known
            .assume_eq(&expr(a), &expr(b))
            .unwrap_or_else(|error| panic!("{before} |- {a} == {b}: {error}"));
        assert_eq!(known.to_string(), result, "{before} |- {a} == {b}");
        assert_eq!(facts(result), known);
    }
}

#[test]
fn contradictions_are_refused_and_change_nothing() {
    for (known, a, b) in [
        ("", "3", "4"),
        ("", "n", "n + 1"),
        ("", "2*n", "7"),
        ("* >= 0", "n + 5", "3"),
        ("* >= 0", "n*m", "-1"),
        ("n <= 8", "n", "9"),
        ("n % 4 == 0", "n", "6"),
        ("a == b + 1", "b", "a"),
        ("a*b == 12", "a*b", "13"),
        ("a*b == 12", "b", "5"),
        ("", "c", "overflow"),
        ("", "n", "n // 0"),
    ] {
        let mut known = match known.parse::<Facts>() {
            Ok(known) => known,
            Err(error) => panic!("{known}: {error}"),
        };
        let before = known.clone();
        let result = known.assume_eq(&expr(a), &expr(b));
        assert!(result.is_err(), "{before} |- {a} == {b}: {known}");
        assert_eq!(known, before);
    }
    assert!("a*b == 12, b == 5, a == 2".parse::<Facts>().is_err());
    assert!("n >= 3, n <= 2".parse::<Facts>().is_err());
}

#[test]
fn mismatches_name_the_values() {
    let mut known = facts("* >= 0, n <= 8");
    let error = known.assume_eq(&expr("n"), &expr("9")).expect_err("9 is out of bounds");
    assert_eq!(error.to_string(), "`n` is never equal to `9`");
    let error = known.assume_bounds(&Symbol::new("n"), Interval::at_least(9));
    let error = error.expect_err("9 is out of bounds");
    assert_eq!(error.to_string(), "`n` is in [0, 8] and would have to be in [9, inf)");
    let error = known.assume_le(&expr("n + 9"), &expr("n")).expect_err("greater");
    assert!(matches!(error, Mismatch::Greater { .. }), "{error}");
}

#[test]
fn facts_with_one_value_define() {
    let mut known = Facts::dims();
    let n = Symbol::new("n");
    known.assume_bounds(&n, Interval::at_most(0)).expect("n is zero");
    assert_eq!(known.definition(&n), Some(&IntExpr::ZERO));
    assert!(Facts::dims().is_empty() && !known.is_empty());
}

#[test]
fn chains_of_equalities_are_followed() {
    let mut known = Facts::dims();
    for index in 1..200 {
        let (a, b) = (format!("s{:03}", index - 1), format!("s{index:03}"));
        known.assume_eq(&(expr(&a) + 1), &expr(&b)).expect("consistent");
    }
    assert_eq!(known.simplify(&expr("s199")).to_string(), "s000 + 199");
    assert_eq!(known.prove_lt(&expr("s000"), &expr("s100")), Some(true));
}

#[test]
fn errors_in_facts_say_where() {
    for (text, offset, message) in [
        ("n >= 1, m", 9, "expected `==`, `<=`, `>=`, `<` or `>`"),
        ("n >= 1; m", 6, "expected `,` or the end"),
        ("n == 1, m + == 2", 12, "found `=`, expected an integer expression"),
        ("n == 1, * >= 0", 8, "the bounds of `*` come first and leave at least one value"),
        ("* >= n", 0, "the bounds of `*` are numbers after `>=` or `<=`"),
        ("n == 1, n == 2", 8, "`1` is never equal to `2`"),
    ] {
        let error = text.parse::<Facts>().expect_err(text);
        assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
    }
    assert_eq!("  ".parse(), Ok(Facts::new()));
}
