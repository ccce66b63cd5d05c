//! Tests of narrowing: expressions that fit, expressions that do not, and both in one.

use super::*;
use crate::codegen::c;
use crate::pass::Pass;
use crate::target::Target;
use crate::tir::transform::{Simplify, VectorizeLoop};
use crate::tir::{interpret, lower, parse, verify};

fn context(target_bits: u32) -> PassContext {
    let host = Target { arch: "x86_64".to_owned(), ..Target::host() };
    let avx2 = host.with_cpu("x86-64-v3").unwrap();
    let config = NarrowDataTypeConfig { target_bits };
    PassContext::builder().target(avx2).config(&NARROW_DATA_TYPE, config).build().unwrap()
}

fn narrowed(text: &str) -> PrimFunc {
    let func = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&func).unwrap();
    let result = NarrowDataType.run_on_prim_func(func, &context(32)).unwrap();
    verify(&result).unwrap_or_else(|errors| panic!("{errors:?}\n{result}"));
    let printed = result.to_string();
    assert_eq!(parse(&printed).unwrap().to_string(), printed);
    let again = NarrowDataType.run_on_prim_func(result.clone(), &context(32)).unwrap();
    assert!(again.same(&result), "{again}");
    result
}

/// The narrowed function with this body and these parameters.
#[track_caller]
fn becomes(params: &str, before: &str, after: &str) {
    let text = |body: &str| format!("prim_func @f({params}) {{\n{body}}}\n");
    assert_eq!(narrowed(&text(before)).to_string(), text(after));
}

#[test]
fn a_product_that_overflows_stays_wide() {
    becomes(
        "y: output int8[8589934592]",
        "for i in serial(65536) { for j in serial(131072) { y[i * 131072 + j] = cast<int8>(j) } }",
        "  for i in serial(int32(65536)) {
    for j in serial(int32(131072)) {
      y[cast<int64>(i) * 131072 + cast<int64>(j)] = cast<int8>(j)
    }
  }
",
    );
    // Only the last index is too large.
    let rows = |extent: i64| {
        let text = format!(
            "prim_func @f(y: output int8[4294967296]) {{
               for i in serial({extent}) {{ y[i * 65536] = int8(0) }} }}"
        );
        narrowed(&text).to_string()
    };
    assert!(rows(32768).contains("y[i * int32(65536)]"));
    assert!(rows(32769).contains("y[cast<int64>(i) * 65536]"));
}

#[test]
fn index_arithmetic_with_an_unknown_size_stays_wide() {
    becomes(
        "x: input float32[4096], y: output float32[4096], n: dim",
        "for i in serial(n) { y[i] = x[i] }
         for i in serial(4) { for j in serial(8) { y[i * n + j * 2] = x[i * 8 + j] } }
         for i in serial(min(n, 100)) { y[i] = 1.0 }
         if n < 64 { for i in serial(n) { y[i * 64 + n] = 2.0 } }",
        "  for i in serial(n) {
    y[i] = x[i]
  }
  for i_1 in serial(int32(4)) {
    for j in serial(int32(8)) {
      y[cast<int64>(i_1) * n + cast<int64>(j * int32(2))] = x[i_1 * int32(8) + j]
    }
  }
  for i_2 in serial(cast<int32>(min(n, 100))) {
    y[i_2] = 1.0
  }
  if n < 64 {
    for i_3 in serial(cast<int32>(n)) {
      y[cast<int64>(i_3 * int32(64)) + n] = 2.0
    }
  }
",
    );
}

#[test]
fn a_loop_whose_end_is_beyond_stays_wide() {
    let first = |first: i64| {
        let text = format!(
            "prim_func @f(y: output int8[2147483648]) {{
               for i in serial({first}, 7) {{ y[i] = int8(1) }} }}"
        );
        narrowed(&text).to_string()
    };
    assert!(first(2_147_483_640).contains("for i in serial(int32(2147483640), int32(7))"));
    assert!(first(2_147_483_641).contains("for i in serial(2147483641, 7)"));
}

/// Indices count elements: those of a large buffer may be narrow, although its addresses are not.
#[test]
fn a_buffer_of_more_than_two_gibibytes_has_narrow_indices() {
    let func = narrowed(
        "prim_func @f(x: input float64[1073741824], y: output float64[1]) {
           for i in serial(4) { y[0] = x[i * 268435455] } }",
    );
    assert!(func.to_string().contains("x[i * int32(268435455)]"), "{func}");
    let target = Target::host();
    let code = c::generate(&lower(func, &target).unwrap(), "f", &target).unwrap();
    let text = c::translation_unit([&code], &[]);
    assert!(text.contains("for (i32 i = 0; i < 4; i++)") && text.contains("x[i * 268435455]"));
}

#[test]
fn names_of_narrow_values_are_narrow() {
    becomes(
        "k: input int32[8], x: input float32[64], y: output float32[64], z: output int64[8]",
        "for i in serial(8) {
           let a = i * 8
           let b = cast<int64>(k[i])
           let c = z[i]
           y[a + 1] = x[(let d = b + 3 in min(d * d, 63))]
           y[b] = x[(let d = i + 3 in d * d)]
           z[i] = a + c
         }",
        "  for i in serial(int32(8)) {
    let a = i * int32(8)
    let b = k[i]
    let c = z[i]
    y[a + int32(1)] = x[(let d = cast<int64>(b) + 3 in min(d * d, 63))]
    y[b] = x[(let d_1 = i + int32(3) in d_1 * d_1)]
    z[i] = cast<int64>(a) + c
  }
",
    );
}

#[test]
fn values_keep_their_types() {
    becomes(
        "y: output float32[8], z: output int64[8], u: output uint8[8]",
        "for i in serial(8) {
           z[i] = i * 2
           y[i] = cast<float32>(i) + select(i < 4, 1.0, 2.0)
           u[i] = cast<uint8>(select(i < 4, i, 7 - i))
           z[i] = max(z[i], i)
         }",
        "  for i in serial(int32(8)) {
    z[i] = cast<int64>(i * int32(2))
    y[i] = cast<float32>(i) + select(i < int32(4), 1.0, 2.0)
    u[i] = cast<uint8>(select(i < int32(4), i, int32(7) - i))
    z[i] = max(z[i], cast<int64>(i))
  }
",
    );
}

#[test]
fn vectors_of_indices_are_narrow() {
    becomes(
        "x: input float32[64], y: output float32[64], n: dim",
        "for i in serial(4) {
           y[ramp(i * 8, 1, 8)] = x[broadcast(i, 8) * broadcast(2, 8) + ramp(0, 3, 8)]
           y[ramp(i * 8 + n, 1, 8)] = x[ramp(i, 2, 8)]
         }",
        "  for i in serial(int32(4)) {
    y[ramp(i * int32(8), int32(1), 8)] = x[ramp(i * int32(2), int32(3), 8)]
    y[ramp(cast<int64>(i * int32(8)) + n, 1, 8)] = x[ramp(i, int32(2), 8)]
  }
",
    );
    // Vectors of indices from the vectoriser, and a guard on them lane by lane.
    let func = narrowed(
        "prim_func @f(x: input float32[37], y: output float32[37]) {
           for i in vectorized(37) { y[i] = select(i < 36, x[i + 1], 0.0) }
           for i in vectorized(37) { y[i] = y[i] + x[i] } }",
    );
    let func = VectorizeLoop.run_on_prim_func(func, &context(32)).unwrap();
    verify(&func).unwrap();
    let text = func.to_string();
    assert!(text.contains("for i in serial(int32(37))"), "{text}");
    assert!(text.contains("y[ramp(i_1 * int32(8), int32(1), 8)] + x[ramp("), "{text}");
    let x: Vec<u8> = (0..37).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut args = [x, vec![0; 37 * 4]];
    interpret(&func, &mut args, &[]).unwrap();
    let expected = (0..37).map(|i| if i < 36 { 2 * i + 1 } else { i });
    assert_eq!(args[1], expected.flat_map(|y| (y as f32).to_le_bytes()).collect::<Vec<_>>());
}

/// Facts about wide indices are not assumed of narrow ones, which may wrap.
#[test]
fn narrow_indices_that_wrap_are_not_simplified_away() {
    let func = parse(
        "prim_func @f(y: output int32[4]) {
           for i in serial(int32(4)) {
             y[i] = floordiv(i * int32(1073741824), int32(1073741824))
             if i * int32(1073741824) < int32(0) { y[i] = int32(9) }
           } }",
    )
    .unwrap();
    let result = |func: &PrimFunc| {
        let mut args = [vec![0; 16]];
        interpret(func, &mut args, &[]).unwrap();
        args
    };
    let simple = Simplify.run_on_prim_func(func.clone(), &context(32)).unwrap();
    assert_eq!(result(&simple), result(&func), "{simple}");
}

#[test]
fn the_width_is_an_option() {
    let func = parse("prim_func @f(y: output int8[4]) { y[2] = int8(1) }").unwrap();
    let wide = NarrowDataType.run_on_prim_func(func.clone(), &context(64)).unwrap();
    assert!(wide.same(&func));
    let error = NarrowDataType.run_on_prim_func(func, &context(16)).unwrap_err();
    let expected = "indices cannot have 16 bits: 32 or 64 are possible";
    assert!(error.to_string().contains(expected), "{error}");
}
