//! Errors of functions that are wrong, and functions that may be right.

use super::*;
use crate::tir::parse;

/// Checks the messages for a function with this body.
fn check(body: &str, expected: &[&str]) {
    let text = format!(
        "prim_func @f(x: input float32[8], y: output float32[8], m: output float32[4, 4], n: dim) \
         {{\n{body}\n}}\n"
    );
    let func = parse(&text).unwrap();
    let errors = verify(&func).err().unwrap_or_else(|| memory_errors(&func));
    let message = describe(&func, &errors);
    assert_eq!(message.lines().collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn indices_outside_of_buffers_are_errors() {
    check(
        "for i in serial(8) { y[i + 1] = x[i] }",
        &["axis 0 of `y` goes from 0 to 7, but an index is 8: y[i + 1] = x[i]"],
    );
    check(
        "for i in serial(2) { y[ramp(i * 4, 1, 4)] = x[ramp(i * 4 - 1, 1, 4)] }",
        &["axis 0 of `x` goes from 0 to 7, but an index is -1: \
           y[ramp(i * 4, 1, 4)] = x[ramp(i * 4 - 1, 1, 4)]"],
    );
    check("for i in serial(8) { if i < 7 { y[i + 1] = x[i] } }", &[]);
    check("for i in serial(8) { y[i] = select(i > 0, x[i - 1], 0.0) }", &[]);
    check("for i in serial(n) { y[i + 1] = x[i] }", &[]);
    check("for i in serial(8) { y[floormod(i + 1, 8)] = x[i] prefetch x[i + 9] read 3 }", &[]);
}

#[test]
fn reads_before_any_store_are_errors() {
    check(
        "allocate s: local float32[4]\nfor i in serial(4) { y[i] = s[i] s[i] = x[i] }",
        &["`s` is read before anything is stored to it: y[i] = s[i]"],
    );
    check("y[0] = y[1]", &["`y` is read before anything is stored to it: y[0] = y[1]"]);
    check(
        "allocate s: local float32[4]
         for i in serial(4) { if i > 0 { y[i] = s[i - 1] } s[i] = x[i] }",
        &[],
    );
    check(
        "allocate s: local float32[4]
         for i in serial(4) { for j in serial(i) { y[i] = s[j] } s[i] = x[i] }",
        &[],
    );
}

#[test]
fn races_between_parallel_iterations_are_errors() {
    check(
        "for i in parallel(8) { y[0] = x[i] }",
        &["iterations of the parallel loop over `i` store to the same element of `y`: y[0] = x[i]"],
    );
    check(
        "for i in parallel(4) { for j in serial(4) { m[j, 0] = x[i] m[i, j] = 0.0 } }",
        &["iterations of the parallel loop over `i` store to the same element of `m`: \
           m[j, 0] = x[i]"],
    );
    check(
        "y[0] = x[0]\nfor i in parallel(7) { y[i + 1] = y[i] }",
        &[
            "iterations of the parallel loop over `i` read an element of `y` that another one stores \
           to: y[i + 1] = y[i]",
        ],
    );
    check(
        "allocate r: register float32[1]\nr[0] = 1.0\nfor i in parallel(8) { y[i] = r[0] }",
        &["register buffer `r` is used in a parallel loop inside its Allocate: y[i] = r[0]"],
    );
    check("for i in parallel(4) { y[i] = x[i] y[i + 4] = x[i] + y[i] }", &[]);
    check("for i in parallel(8) { let j = floormod(i, 4) y[j] = x[i] }", &[]);
    check("for i in parallel(8) { allocate s: local float32[1] s[0] = x[i] y[i] = s[0] }", &[]);
    check("for i in parallel(4) { for j in serial(2) { y[i * 2 + j] = x[i] } }", &[]);
}

#[test]
fn errors_of_the_verifier_come_first() {
    check("x[0] = 1.0", &["`x` is stored to, but only read: x[0] = 1.0"]);
}
