//! Tests of vectorisation: TVM's cases, and the division of loops into vectors.

use super::*;
use crate::ir::BufferSpec;
use crate::pass::Pass;
use crate::target::Target;
use crate::tir::{interpret, parse, verify};

fn context(is_disabled: bool) -> PassContext {
    let host = Target { arch: "x86_64".to_owned(), ..Target::host() };
    let avx2 = host.with_cpu("x86-64-v3").unwrap();
    PassContext::builder().target(avx2).config(&DISABLE_VECTORIZE, is_disabled).build().unwrap()
}

/// The function vectorised for AVX2.
fn run(func: PrimFuncData) -> PrimFunc {
    VectorizeLoop.run_on_prim_func(PrimFunc::new(func), &context(false)).unwrap()
}

fn copy(extent: i64) -> Stmt {
    let mut func = PrimFuncData::new("f");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[extent]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[extent]));
    func.body = func.for_("i", extent, ForKind::Vectorized, |f, i| {
        let value = f.load(x, [i.clone()]);
        f.store(y, [i], value)
    });
    run(func).body.clone()
}

#[test]
fn a_long_row_is_cut_into_vectors_and_a_tail() {
    let mut widths = Vec::new();
    let body = copy(8 * 5 + 4 + 1);
    body.walk(&mut |stmt| match stmt {
        Stmt::For { extent, kind, .. } => {
            assert_eq!((extent.as_int(), *kind), (Some(5), ForKind::Serial));
        }
        Stmt::Store { value, .. } => widths.push(value.ty().lanes),
        _ => {}
    });
    assert_eq!(widths, [8, 4, 1]);
}

#[test]
fn a_loop_whose_order_matters_stays_a_loop() {
    let mut func = PrimFuncData::new("f");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[16]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[16]));
    let sum = func.for_("i", 16, ForKind::Vectorized, |f, i| {
        let value = f.load(y, [0]) + f.load(x, [i]);
        f.store(y, [0], value)
    });
    let guarded = func.for_("i", 16, ForKind::Vectorized, |f, i| {
        let value =
            PrimExpr::select(i.clone().less(15), f.load(x, [i.clone() + 1]), PrimExpr::f32(0.0));
        f.store(y, [i], value)
    });
    func.body = Stmt::seq([sum, guarded]);
    let func = run(func);
    let mut serial = 0;
    func.body.walk(&mut |stmt| {
        if let Stmt::For { kind, .. } = stmt {
            assert_eq!(*kind, ForKind::Serial);
            serial += 1;
        }
    });
    assert_eq!(serial, 2);
}

#[test]
fn a_mask_without_loads_becomes_a_vector_select() {
    let mut func = PrimFuncData::new("f");
    let y = func.output("y", DType::F32, BufferSpec::dense(&[8]));
    func.body = func.for_("i", 8, ForKind::Vectorized, |f, i| {
        let position = i.clone().cast(DType::F32);
        let value = PrimExpr::select(
            position.clone().less(PrimExpr::f32(3.0)),
            position,
            PrimExpr::f32(0.0),
        );
        f.store(y, [i], value)
    });
    let func = run(func);
    // The loop variable is 64 bits wide, so vectors have four lanes.
    let mut stores = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::Store { value, .. } = stmt {
            stores.push(value.ty());
        }
    });
    assert_eq!(stores, [PrimType::vector(DType::F32, 4)]);
}

/// The text of a function after vectorising its loop over `j`; checks that its results are the
/// same.
fn text(func: &str, dims: &[i64], is_disabled: bool) -> String {
    let func = parse(func).unwrap();
    let after = VectorizeLoop.run_on_prim_func(func.clone(), &context(is_disabled)).unwrap();
    verify(&after).unwrap();
    let ran = [&func, &after].map(|func| {
        let bytes = |param: &crate::tir::Param| {
            let buffer = &func.buffers[param.buffer];
            vec![1; buffer.spec.physical_len().unwrap() as usize * buffer.dtype.bytes().unwrap()]
        };
        let mut args: Vec<Vec<u8>> = func.params.iter().map(bytes).collect();
        interpret(func, &mut args, dims).unwrap();
        args
    });
    assert_eq!(ran[0], ran[1]);
    after.to_string()
}

const FILL: &str = "prim_func @f(a: output float32[4]) { for j in vectorized(4) { a[j] = 1.0 } }";

#[test]
fn a_store_becomes_a_vector_store() {
    let after = text(FILL, &[], false);
    assert!(after.contains("a[ramp(0, 1, 4)] = broadcast(1.0, 4)"), "{after}");
    let disabled = text(FILL, &[], true);
    assert!(disabled.contains("for j in serial(4) {\n    a[j] = 1.0\n"), "{disabled}");
}

#[test]
fn branches_are_vectors_or_loops_over_lanes() {
    let func = "prim_func @f(a: output float32[4], x: dim, n: dim) {
      for j in vectorized(4) {
        if x < n { a[j] = a[j] + 1.0 } else { if j < n { a[j] = 2.0 } }
      }
    }";
    for dims in [[0, 1], [3, 2]] {
        let after = text(func, &dims, false);
        assert!(
            after.contains("a[ramp(0, 1, 4)] = a[ramp(0, 1, 4)] + broadcast(1.0, 4)"),
            "{after}"
        );
        assert!(after.contains("for j_lane in serial(4) {\n      if j_lane < n {"), "{after}");
    }
    // The loop stores nothing to vectorise.
    let func = "prim_func @f(a: output float32[4], n: dim) {
      for j in vectorized(4) { if j < n { a[j] = 2.0 } }
    }";
    assert!(text(func, &[3], false).contains("for j in serial(4) {\n    if j < n {"));
    // Each lane writes to the same place, so that their order matters.
    let func = "prim_func @f(a: output float32[4], t: output int64[1], n: dim) {
      for j in vectorized(4) {
        if j < n { t[0] = j }
        a[j] = cast<float32>(t[0])
      }
    }";
    assert!(text(func, &[3], false).contains("for j in serial(4) {"));
}

#[test]
fn a_name_becomes_a_vector() {
    let func = "prim_func @f(x: input float32[4], a: output float32[4]) {
      for j in vectorized(4) {
        let v = x[j] + 1.0
        a[j] = v * v
      }
    }";
    let after = text(func, &[], false);
    assert!(after.contains("let v = x[ramp(0, 1, 4)] + broadcast(1.0, 4)"), "{after}");
}

#[test]
fn a_name_of_64_bits_makes_vectors_narrower_unless_it_is_an_index() {
    let stored = "prim_func @f(x: input int32[8], a: output float32[8]) {
      for j in vectorized(8) {
        let v = cast<int64>(x[j])
        let w = v & v
        a[j] = cast<float32>(w)
      }
    }";
    let after = text(stored, &[], false);
    assert!(after.contains("ramp(j * 4, 1, 4)") || after.contains("ramp(0, 1, 4)"), "{after}");
    let index = "prim_func @f(x: input float32[16], a: output float32[8]) {
      for j in vectorized(8) {
        let v = j * 2
        a[j] = x[v]
      }
    }";
    let after = text(index, &[], false);
    assert!(after.contains("a[ramp(0, 1, 8)]"), "{after}");
}

#[test]
fn positions_that_are_loaded_make_vectors_narrower() {
    let one = "let v = p[j] & 7 a[j] = x[v]";
    for statements in [one, "a[j] = x[p[j] & 7]", "let v = p[j] & 7 let w = v + 1 a[j] = x[w]"] {
        let func = format!(
            "prim_func @f(p: input int64[8], x: input float32[16], a: output float32[8]) {{
              for j in vectorized(8) {{ {statements} }}
            }}"
        );
        let after = text(&func, &[], false);
        assert!(!after.contains("ramp(0, 1, 8)"), "{after}");
        assert!(after.contains("ramp(j * 4, 1, 4)"), "{after}");
    }
}

#[test]
fn each_part_declares_its_own_names() {
    let func = "prim_func @f(x: input float32[20], a: output float32[20]) {
      for j in vectorized(20) {
        for k in serial(2) {
          let v = x[j]
          a[j] = v * v
        }
      }
    }";
    let after = text(func, &[], false);
    assert!(after.contains("for k_1 in") && after.contains("let v_1 ="), "{after}");
}

#[test]
fn an_extent_must_be_known() {
    for (extent, named) in [("n + 1", "n + 1"), ("0", "0")] {
        let text = format!(
            "prim_func @f(y: output int64[4], n: dim) {{ for i in vectorized({extent}) {{ y[i] = i }} }}"
        );
        let func = parse(&text).unwrap();
        let error = VectorizeLoop.run_on_prim_func(func, &context(false)).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("Failed to vectorize loop with extent {named}")),
            "{error}"
        );
    }
}
