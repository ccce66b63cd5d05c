//! Tests of the parser: printed text parses, and damaged text is refused.

use proptest::prelude::*;

use super::*;
use crate::graph::parse_module;
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::target::Target;
use crate::tir::testing::random_function;
use crate::tir::{lower, print_with_errors, verify};

/// Every statement and expression once.
const EVERYTHING: &str = r#"prim_func @everything(x: input float32[1, 20, 4, 4]{dims=0:1 1:16 2:1 3:1 1:1, halo=2:1:1}, w: const float32[16], h: const float64[2], y: output float32[64], c: output uint64[4], n: dim) inplace(3, 0) {
  origin "conv2d \"of\" x"
  attr "key" = "line one\nline \\ two"
  block "tile" {
    allocate acc: register float32[2, 16]
    allocate scratch: local int32[7, 3]
  }
  for i in parallel(n) ["pragma" = "a", "why" = "b"] {
    let t = x[0, i, -1, 2] * (1.0 + 2.5) - 1e-7 {
      y[i] = t + (t - t) * t / t
    }
    for j in vectorized(2, 16) {
      y[j + i * 16] = select(j < 3 & not(i == j), fma(w[j], 2.0, float32(-inf)), float32(NaN))
    }
    for k in unrolled(4) {
      prefetch w[k + 8] read 3
      c[k] = cast<uint64>(reinterpret<int32>(y[k])) >> uint64(18446744073709551615)
    }
    if i >= 3 | false {
      y[ramp(0, 1, 8)] = broadcast((let u = exp(neg(w[0])) in u * u), 8)
    } else {
      y[0] = reduce<max>(shuffle<3, 0>(y[ramp(4, 2, 4)]))
      assert n < 5 | i == 0, "n is \"small\""
    }
    let half = float64(0.5) * h[1]
    y[1] = cast<float32>(min(half, pow(half, half)) % half)
  }
}
"#;

#[test]
fn the_text_form_is_its_own_inverse() {
    let func = parse(EVERYTHING).unwrap();
    assert_eq!(func.to_string(), EVERYTHING);
    assert_eq!(func.params.len(), 5);
    assert_eq!(func.inplace, [(3, 0)]);
    verify(&func).unwrap();
}

#[test]
fn printed_names_are_unique() {
    let mut func = PrimFuncData::new("model/node:0");
    let a = func.input("x:0", DType::F32, BufferSpec::dense(&[1]));
    let b = func.output("x.0", DType::F32, BufferSpec::dense(&[1]));
    let value = func.let_expr("float32", func.load(a, [0]) + func.load(a, [0]), |f, v| {
        f.let_expr("let", v.clone() * v, |_, w| w.clone() + w)
    });
    func.body = func.store(b, [0], value);
    let func = PrimFunc::new(func);
    let text = func.to_string();
    assert!(
        text.contains("@\"model/node:0\"(x_0: input") && text.contains("x_0_1: output"),
        "{text}"
    );
    assert_eq!(parse(&text).unwrap().to_string(), text);
}

#[test]
fn any_name_of_a_function_reads_back() {
    for name in ["main", "nn.relu", "a..b", ".", "", "1x", "a b", "\"\\\n", "\u{e4}"] {
        let func = PrimFunc::new(PrimFuncData::new(name));
        let again = parse(&func.to_string()).unwrap_or_else(|error| panic!("{error}\n{func}"));
        assert_eq!(again.name, name);
    }
}

#[test]
fn parse_errors_have_a_line_and_a_column() {
    for (text, place, message) in [
        ("prim_func f", (1, 11), "`@` is expected"),
        ("prim_func @f() {\n  y[0] = 1\n}", (2, 3), "no buffer `y`"),
        ("prim_func @f(y: output float32[2]) {\n  y[z] = 1.0\n}", (2, 5), "nothing called `z`"),
        ("prim_func @f(y: output float32[2]{dims=}) {\n}", (1, 31), "the last must be 1"),
        ("prim_func @f(y: output float33[2]) {\n}", (1, 24), "float33"),
        ("prim_func @f(y: output int8[2]) {\n y[0] = int8(200)\n}", (2, 14), "200"),
        ("prim_func @f() {\n", (2, 1), "`}` is expected"),
        ("prim_func @f() {}\nrest", (2, 1), "after the function"),
        ("prim_func @f() { for i in often(3) {} }", (1, 27), "not a kind of loop"),
        ("prim_func @f() { \"\n\" }", (1, 18), "does not end"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!((error.line, error.column), place, "{text}: {error}");
    }
    let deep = format!("prim_func @f(y: output float32[1]) {{ y[0] = {}1.0", "(".repeat(5000));
    assert!(parse(&deep).unwrap_err().message.contains("deeper"));
    let long = format!("prim_func @f(y: output float32[1]) {{ y[0] = 1.0{}", " + 1.0".repeat(5000));
    assert!(parse(&long).unwrap_err().message.contains("too long"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_functions_print_and_parse_back(numbers in prop::collection::vec(any::<u32>(), 600)) {
        let func = random_function(&numbers, 512);
        let text = func.to_string();
        let parsed = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(parsed.to_string(), text);
        let mut module = IRModule::new();
        module.insert(GlobalVar::new("a name"), Definition::Prim(func.clone()));
        let text = module.to_string();
        let parsed = parse_module(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(parsed.to_string(), text);
        let target = Target::host();
        let lowered = lower(func, &target).unwrap();
        if let Err(errors) = verify(&lowered) {
            return Err(TestCaseError::fail(print_with_errors(&lowered, &errors)));
        }
        let text = lowered.to_string();
        prop_assert_eq!(parse(&text).unwrap().to_string(), text);
    }
}
