//! Tests of the verifier: each violation is found and printed at its place.

use super::*;
use crate::ir::BufferSpec;
use crate::tir::{parse, print_with_errors};

/// Each violation is printed under the statement that it is about.
#[test]
fn violations_are_reported_under_the_guilty_statement() {
    let text = r#"prim_func @wrong(x: input float32[4], y: output float32[4], z: output int32[2, 2], n: dim) inplace(0, 1) {
  ; error: in-place pair (0, 1) is not an output and an input
  x[0] = 1.0
  ; error: `x` is stored to, but only read
  y[0] = 1
  ; error: int64 is stored where `y` has float32
  y[ramp(0, 1, 4)] = 1.0
  ; error: float32 is stored where `y` has float32x4
  z[0] = int32(1)
  ; error: `z` has 2 axes and is accessed by 1 indices
  z[0, x[1]] = int32(1)
  ; error: an index of `z` is float32, not int64 or int32
  z[ramp(0, 1, 2), ramp(0, 1, 4)] = broadcast(int32(1), 4)
  ; error: indices of `z` have 2 and 4 lanes
  y[0] = x[0] + 1
  ; error: operands of `+` are float32 and int64
  y[0] = x[0] & x[1]
  ; error: `&` is not defined on float32
  y[0] = select(x[0], 1.0, 2.0)
  ; error: float32 is the condition of a select of float32
  y[0] = reinterpret<float32>(n)
  ; error: the bits of int64 are not those of float32
  y[0] = reduce<->(x[ramp(0, 1, 4)])
  ; error: lanes of float32x4 cannot be reduced by `-`
  y[0] = shuffle<4>(x[ramp(0, 1, 4)])
  ; error: a shuffle of 4 lanes picks [4]
  y[0] = exp(1.0, 2.0)
  ; error: exp has 2 arguments
  y[0] = cast<float32>(exp(3))
  ; error: exp is not defined on int64
  y[0] = cast<float32>(fma(1, 2, 3))
  ; error: fused multiply-add is not defined on int64
  z[0, 0] = dot_add(int8(1), int8(1), int32(1))
  ; error: dot_add of int8, int8 and int32: it takes uint8 and int8, four lanes for each of int32, or int16, two lanes
  y[0] = cast<float32>(not(x[0]))
  ; error: Not is not defined on float32
  for i in vectorized(n) {
  ; error: a vectorized loop has no constant extent
    y[i] = 1.0
  }
  for i_1 in serial(int32(2147483647), int32(1)) {
  ; error: the end of a loop is beyond int32
    y[i_1] = 1.0
  }
  for i_2 in serial(int32(1), n) {
  ; error: the bounds of a loop are int32 and int64
    y[0] = 1.0
  }
  for i_3 in parallel(x[0], n) {
  ; error: the first value of a loop is not a scalar int64 or int32
    for j in parallel(n) {
    ; error: a parallel loop is inside another one
      y[j] = 1.0
    }
  }
  if n {
  ; error: the condition of a branch is not a scalar bool
  }
  prefetch x[ramp(0, 1, 4)] read 4
  ; error: the index of a prefetch is a vector
  ; error: there is no prefetch locality 4
}
"#;
    let func = parse(text).unwrap();
    let errors = verify(&func).unwrap_err();
    assert_eq!(print_with_errors(&func, &errors), text);
}

fn messages(func: &PrimFuncData) -> Vec<String> {
    let errors = verify(&PrimFunc::new(func.clone())).unwrap_err();
    errors.into_iter().map(|error| error.message).collect()
}

#[test]
fn violations_that_text_cannot_express_are_found() {
    let mut func = PrimFuncData::new("f");
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4]));
    let local = func.local("local", DType::F32, BufferSpec::dense(&[4]));
    let var = func.var("v", DType::F32);
    let using = func.var_expr(var);

    func.body = func.store(y, [0], using.clone());
    assert_eq!(messages(&func), ["variable `v` is used outside its scope"]);

    func.body = func.store(y, [0], func.load(local, [0]));
    assert_eq!(messages(&func), ["buffer `local` is used outside its Allocate"]);

    let bound = |value: PrimExpr, body: Stmt| Stmt::let_(var, value, body);
    func.body = bound(PrimExpr::f32(1.0), bound(PrimExpr::f32(2.0), Stmt::nop()));
    assert_eq!(messages(&func), ["variable `v` is bound inside its own scope"]);

    func.body = bound(PrimExpr::index(1), Stmt::nop());
    assert_eq!(messages(&func), ["variable `v` is declared float32 and bound to int64"]);

    func.body = Stmt::allocate(local, Stmt::allocate(local, Stmt::nop()));
    assert_eq!(messages(&func), ["buffer `local` is allocated while it exists"]);

    func.body = Stmt::allocate(y, Stmt::nop());
    assert!(messages(&func).contains(&"parameter `y` is allocated".to_owned()));

    let constant = PrimExpr::Int { value: 300, dtype: DType::I8 };
    func.body = func.store(y, [0], PrimExpr::Cast { value: Box::new(constant), dtype: DType::F32 });
    assert_eq!(messages(&func), ["the constant 300 is not in the range of int8"]);

    let mut deep = using;
    for _ in 0..2 * MAX_DEPTH {
        deep = -deep;
    }
    func.body = Stmt::let_(var, PrimExpr::f32(1.0), func.store(y, [0], deep));
    assert_eq!(messages(&func), [format!("expressions nest deeper than {MAX_DEPTH}")]);

    func.body = Stmt::nop();
    func.output("huge", DType::F32, BufferSpec::dense(&[i64::MAX, 3]));
    assert!(messages(&func)[0].contains("2^63"));
}
