//! Tests of the interpreter.

use super::*;
use crate::ir::BufferSpec;
use crate::tir::{BinaryOp, Intrinsic, PrimType};

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn run(func: &PrimFuncData, args: &mut [Vec<u8>]) -> Result<(), InterpError> {
    interpret(&PrimFunc::new(func.clone()), args, &[])
}

#[test]
fn a_dot_product_by_hand() {
    let mut func = PrimFuncData::new("dot");
    let a = func.input("a", DType::F32, BufferSpec::dense(&[3]));
    let b = func.constant("b", DType::F32, BufferSpec::dense(&[3]));
    let c = func.output("c", DType::F32, BufferSpec::dense(&[1]));
    let acc = func.register("acc", DType::F32, &[1]);
    let sum = func.serial("i", 3, |f, i| {
        let product = f.load(a, [i.clone()]) * f.load(b, [i]);
        f.store(acc, [0], f.load(acc, [0]) + product)
    });
    func.body = Stmt::allocate(
        acc,
        Stmt::seq([
            func.store(acc, [0], PrimExpr::f32(0.5)),
            sum,
            func.store(c, [0], func.load(acc, [0])),
        ]),
    );
    let mut args = [f32s(&[1., 2., 3.]), f32s(&[4., -5., 6.]), vec![0; 4]];
    run(&func, &mut args).unwrap();
    assert_eq!(args[2], f32s(&[4. - 10. + 18. + 0.5]));
}

#[test]
fn an_assertion_that_does_not_hold_ends_the_run() {
    let mut func = PrimFuncData::new("f");
    let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
    let n = func.dim("n");
    func.body = Stmt::seq([
        Stmt::assert(n.less(5), "n is 5 or more"),
        func.store(y, [0], PrimExpr::f32(1.0)),
    ]);
    let func = PrimFunc::new(func);
    let mut args = [f32s(&[0.0])];
    let error = interpret(&func, &mut args, &[5]).unwrap_err();
    assert_eq!(error.to_string(), "interpreting loop function `f`: n is 5 or more");
    assert_eq!(args[0], f32s(&[0.0]));
    interpret(&func, &mut args, &[4]).unwrap();
    assert_eq!(args[0], f32s(&[1.0]));
}

#[test]
fn vectors_reduce_by_halves_and_gather() {
    let mut func = PrimFuncData::new("f");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[16]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
    let every_third = func.load(x, [PrimExpr::ramp(PrimExpr::index(1), 3, 4)]);
    assert_eq!(every_third.ty(), PrimType::vector(DType::F32, 4));
    let max = every_third.vector_reduce(BinaryOp::Max);
    let value = PrimExpr::call(Intrinsic::Sqrt, max);
    func.body = func.store(y, [0], value);
    let input: Vec<f32> = (0..16).map(|i| (i * i) as f32).collect();
    let mut args = [f32s(&input), vec![0; 4]];
    run(&func, &mut args).unwrap();
    assert_eq!(args[1], f32s(&[10.0]));
}

#[test]
fn invalid_accesses_of_generated_code_are_reported() {
    let mut func = PrimFuncData::new("f");
    let spec = BufferSpec::nchwc(&[1, 3, 2, 2], 4, &[(1, 1), (0, 0)]);
    let x = func.input("x", DType::F32, spec.clone());
    let y = func.output("y", DType::F32, spec.clone());
    let scratch = func.local("scratch", DType::F32, BufferSpec::dense(&[2]));
    let blocked = func.local("blocked", DType::F32, BufferSpec::nchwc(&[1, 3, 1, 1], 4, &[]));
    let len = spec.physical_len().unwrap() as usize * 4;
    let at = |c: i64, h: i64| [0, c, h, 1].map(PrimExpr::index);
    let mut check = |body: Stmt, expected: Option<&str>| {
        func.body = body;
        let mut args = [vec![0; len], vec![0; len]];
        let result = run(&func, &mut args);
        match expected {
            None => result.unwrap(),
            Some(text) => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
            }
        }
    };
    let f = func_of(&spec);
    let store = |at: [PrimExpr; 4], value: PrimExpr| f.store(y, at, value);
    check(store(at(2, -1), PrimExpr::f32(0.0)), None);
    check(store(at(2, -1), PrimExpr::f32(1.0)), Some("halo"));
    check(store(at(3, 0), PrimExpr::f32(1.0)), None);
    check(store(at(0, 0), f.load(x, at(0, 3))), Some("outside its shape"));
    check(f.store(x, at(0, 0), PrimExpr::f32(0.0)), Some("only read"));
    let early = store(at(0, 0), f.load(scratch, [1]));
    check(early.clone(), Some("does not exist"));
    check(Stmt::allocate(scratch, early), Some("before it is written"));
    let pair = f.load(scratch, [PrimExpr::ramp(PrimExpr::index(0), 1, 2)]);
    let picked = |lane| store(at(0, 0), pair.clone().shuffle(vec![lane]));
    let half = |lane| Stmt::seq([f.store(scratch, [0], PrimExpr::f32(0.0)), picked(lane)]);
    check(Stmt::allocate(scratch, half(0)), None);
    check(Stmt::allocate(scratch, half(1)), Some("before it is written"));
    let lane = |c: i64| f.load(blocked, [0, c, 0, 0].map(PrimExpr::index));
    check(Stmt::allocate(blocked, store(at(0, 0), lane(2))), Some("before it is written"));
    check(Stmt::allocate(blocked, store(at(0, 0), lane(3))), None);
    check(store(at(0, 0), PrimExpr::index(1)), Some("holds float32"));
}

/// The declarations of the test above once more, to build statements while the function is
/// borrowed.
fn func_of(spec: &BufferSpec) -> PrimFuncData {
    let mut func = PrimFuncData::new("f");
    func.input("x", DType::F32, spec.clone());
    func.output("y", DType::F32, spec.clone());
    func.local("scratch", DType::F32, BufferSpec::dense(&[2]));
    func.local("blocked", DType::F32, BufferSpec::nchwc(&[1, 3, 1, 1], 4, &[]));
    func
}
