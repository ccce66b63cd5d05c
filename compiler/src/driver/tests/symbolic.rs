//! Functions with symbolic extents: schedules, calls and refusals.

use super::{filled, target};
use crate::driver::{Arg, BuildTarget, Function, NdArray, build};
use crate::ir::DType;
use crate::options::Backend;
use crate::schedule::Schedule;
use crate::te::{self, Builder};
use crate::tir::{BufferScope, ParamKind, PrimExpr, PrimFunc, interpret, lower, parse, verify};

/// The bytes of all arrays after the interpreter has run.
fn interpreted(func: &PrimFunc, arrays: &[NdArray], dims: &[i64]) -> Vec<Vec<u8>> {
    let mut bytes: Vec<Vec<u8>> = arrays.iter().map(|array| array.bytes().to_vec()).collect();
    interpret(func, &mut bytes, dims).unwrap_or_else(|error| panic!("{error}\n{func}"));
    bytes
}

/// Small whole numbers, so that sums of products are exact with and without fused operations.
fn whole_numbers(shape: &[i64], seed: i64) -> NdArray {
    let len: i64 = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| ((i * 5 + seed) % 7 - 3) as f32).collect();
    NdArray::from_slice(shape, &values).unwrap()
}

/// Checks that a function before and after a schedule gives the same, lowered and compiled by each
/// backend, for all of `sizes`; `shapes` are the parameters' for given dimensions.
fn check(
    plain: &PrimFunc,
    scheduled: &PrimFunc,
    sizes: &[&[i64]],
    shapes: impl Fn(&[i64]) -> Vec<Vec<i64>>,
) {
    for func in [plain, scheduled] {
        let text = func.to_string();
        let again = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        verify(&again).unwrap();
        assert_eq!(again.to_string(), text);
    }
    for &backend in Backend::ALL {
        let target = target(backend);
        let module = build([scheduled.clone()], &target)
            .unwrap_or_else(|error| panic!("{target}: {error}\n{scheduled}"));
        let function = module.function(&scheduled.name).unwrap();
        assert!(function.dims().is_empty(), "the shapes say all");
        let lowered = lower(scheduled.clone(), &target.machine).unwrap();
        verify(&lowered).unwrap();
        for dims in sizes {
            let mut arrays: Vec<NdArray> = shapes(dims)
                .iter()
                .zip(0..)
                .map(|(shape, seed)| whole_numbers(shape, seed))
                .collect();
            let expected = interpreted(plain, &arrays, dims);
            for func in [scheduled, &lowered] {
                assert!(interpreted(func, &arrays, dims) == expected, "{dims:?}\n{func}");
            }
            call(&function, &mut arrays);
            let found: Vec<Vec<u8>> = arrays.iter().map(|array| array.bytes().to_vec()).collect();
            assert!(found == expected, "{target}: {dims:?}\n{lowered}");
        }
    }
}

fn call(function: &Function, arrays: &mut [NdArray]) {
    let kinds = function.parameters().iter().map(|parameter| parameter.kind);
    let args = kinds.zip(arrays).map(|(kind, array)| match kind {
        ParamKind::Output => Arg::from(array),
        ParamKind::Input | ParamKind::Constant => Arg::from(&*array),
    });
    function.call(args.collect::<Vec<_>>()).unwrap();
}

/// `C = A · B` with symbolic extents.
fn matmul() -> PrimFunc {
    let mut te = Builder::new("matmul");
    let [m, k, n] = ["m", "k", "n"].map(|name| te.size_var(name));
    let a = te.placeholder("A", [m, k], DType::F32);
    let b = te.placeholder("B", [k, n], DType::F32);
    let r = te.reduce_axis("r", k);
    let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
    te.prim_func(&[a, b, c]).unwrap()
}

fn matmul_shapes(dims: &[i64]) -> Vec<Vec<i64>> {
    let [m, k, n] = dims[..] else { unreachable!("three dimensions") };
    vec![vec![m, k], vec![k, n], vec![m, n]]
}

const MATMULS: [&[i64]; 7] =
    [&[0, 3, 2], &[1, 1, 1], &[3, 5, 7], &[8, 16, 32], &[17, 9, 33], &[5, 2, 0], &[16, 1, 48]];

#[test]
fn a_product_of_any_extents_is_tiled() {
    let plain = matmul();
    let mut s = Schedule::new(plain.clone());
    let c = s.get_block("C").unwrap();
    let [i, j, k] = s.get_loops(c).unwrap()[..] else { unreachable!("three loops") };
    let [i0, j0, i1, j1] = s.tile(i, j, [4, 16]).unwrap();
    let [k0, k1] = s.split(k, [None, Some(4)]).unwrap();
    s.reorder(&[i0, j0, k0, k1, i1, j1]).unwrap();
    let init = s.decompose_reduction(c, k0).unwrap();
    let init_loops = s.get_loops(init).unwrap();
    s.vectorize(*init_loops.last().unwrap()).unwrap();
    s.vectorize(j1).unwrap();
    s.unroll(i1).unwrap();
    s.parallel(i0).unwrap();
    let mut sizes = MATMULS.to_vec();
    // A sum without terms, because the init has loops of its own.
    sizes.push(&[3, 0, 20]);
    check(&plain_without_init(), &s.into_func(), &sizes, matmul_shapes);
}

/// The plain product with a separate init, so that the sum may be empty.
fn plain_without_init() -> PrimFunc {
    let mut s = Schedule::new(matmul());
    let c = s.get_block("C").unwrap();
    let k = s.get_loops(c).unwrap()[2];
    s.decompose_reduction(c, k).unwrap();
    s.into_func()
}

/// Rows are of any number, columns are constant: a tile of sums stays in registers.
#[test]
fn a_tile_of_constant_extents_stays_in_registers() {
    let mut te = Builder::new("rows");
    let m = te.size_var("m");
    let a = te.placeholder("A", [m.into(), PrimExpr::from(24)], DType::F32);
    let b = te.constant("B", [24, 32], DType::F32);
    let r = te.reduce_axis("r", 24);
    let c = te.compute("C", [m.into(), PrimExpr::from(32)], |[i, j]| {
        te::sum(a.at([i, r]) * b.at([r, j]), [r])
    });
    let plain = te.prim_func(&[a, b, c]).unwrap();
    let mut s = Schedule::new(plain.clone());
    let c = s.get_block("C").unwrap();
    let copy = s.cache_write(c, 0, BufferScope::Register).unwrap();
    let [i, j, k] = s.get_loops(c).unwrap()[..] else { unreachable!("three loops") };
    let [i0, j0, i1, j1] = s.tile(i, j, [4, 16]).unwrap();
    s.reorder(&[i0, j0, k, i1, j1]).unwrap();
    s.reverse_compute_at(copy, j0).unwrap();
    let init = s.decompose_reduction(c, k).unwrap();
    for block in [init, c, copy] {
        let [.., rows, lanes] = s.get_loops(block).unwrap()[..] else { unreachable!("a tile") };
        s.unroll(rows).unwrap();
        s.vectorize(lanes).unwrap();
    }
    let sizes: Vec<[i64; 1]> = [0, 1, 3, 4, 8, 13].map(|m| [m]).to_vec();
    let sizes: Vec<&[i64]> = sizes.iter().map(|dims| &dims[..]).collect();
    check(&plain, &s.into_func(), &sizes, |dims| {
        vec![vec![dims[0], 24], vec![24, 32], vec![dims[0], 32]]
    });
}

/// Extents that are expressions, a fused loop, and the main part of a split loop in vectors.
#[test]
fn elements_of_any_number_are_split_and_fused() {
    let mut te = Builder::new("pairs");
    let n = te.size_var("n");
    let x = te.placeholder("X", [n], DType::F32);
    let wide = te.placeholder("W", [n * 2 + 1, n.into()], DType::F32);
    let twice = te.compute("T", [n], |[i]| x.at([i]) * te::f32(2.0));
    let y = te.compute("Y", [n * 2 + 1, n.into()], |[i, j]| wide.at([i, j]) + twice.at([j]));
    let z = te.compute("Z", [n], |[i]| x.at([i]) - te::f32(1.0));
    let plain = te.prim_func(&[x, wide, y, z]).unwrap();
    let mut s = Schedule::new(plain.clone());
    let [t, y, z] = ["T", "Y", "Z"].map(|name| s.get_block(name).unwrap());
    s.compute_inline(t).unwrap();
    let loops = s.get_loops(y).unwrap();
    let fused = s.fuse(&loops).unwrap();
    let [outer, _] = s.split(fused, [None, Some(8)]).unwrap();
    s.parallel(outer).unwrap();
    let i = s.get_loops(z).unwrap()[0];
    let [_, lanes] = s.split(i, [None, Some(16)]).unwrap();
    s.vectorize(lanes).unwrap();
    let scheduled = s.into_func();
    let lowered = lower(scheduled.clone(), &target(Backend::C).machine).unwrap().to_string();
    assert!(lowered.contains("Z[ramp("), "the main part is in vectors:\n{lowered}");
    let sizes: Vec<[i64; 1]> = [0, 1, 15, 16, 17, 40].map(|n| [n]).to_vec();
    let sizes: Vec<&[i64]> = sizes.iter().map(|dims| &dims[..]).collect();
    check(&plain, &scheduled, &sizes, |dims| {
        let n = dims[0];
        vec![vec![n], vec![2 * n + 1, n], vec![2 * n + 1, n], vec![n]]
    });
}

/// Like softmax, of rows of any number and length: buffers between the steps have one element per
/// row. The exponential is replaced, because interpreter and code compute it differently.
#[test]
fn rows_are_normalised() {
    let mut te = Builder::new("softmax");
    let [m, n] = ["m", "n"].map(|name| te.size_var(name));
    let x = te.placeholder("X", [m, n], DType::F32);
    let [k, l] = ["k", "l"].map(|name| te.reduce_axis(name, n));
    let top = te.compute("top", [m], |[i]| te::max(x.at([i, k]), [k]));
    let e = te
        .compute("e", [m, n], |[i, j]| te::f32(1.0) / (te::f32(1.0) + top.at([i]) - x.at([i, j])));
    let sum = te.compute("sum", [m], |[i]| te::sum(e.at([i, l]), [l]));
    let y = te.compute("Y", [m, n], |[i, j]| e.at([i, j]) / sum.at([i]));
    let plain = te.prim_func(&[x, y]).unwrap();
    let mut s = Schedule::new(plain.clone());
    let [top, e, sum, y] = ["top", "e", "sum", "Y"].map(|name| s.get_block(name).unwrap());
    let unscheduled = build([plain.clone()], &target(Backend::C)).unwrap_err().to_string();
    assert!(unscheduled.contains("its extents m"), "{unscheduled}");
    assert!(unscheduled.contains("compute it at a loop"), "{unscheduled}");
    s.compute_inline(e).unwrap();
    let i = s.get_loops(y).unwrap()[0];
    s.compute_at(sum, i).unwrap();
    s.compute_at(top, i).unwrap();
    let j = s.get_loops(y).unwrap()[1];
    let [_, lanes] = s.split(j, [None, Some(16)]).unwrap();
    s.vectorize(lanes).unwrap();
    s.parallel(i).unwrap();
    let sizes: [&[i64]; 5] = [&[1, 1], &[3, 16], &[5, 37], &[0, 4], &[2, 100]];
    check(&plain, &s.into_func(), &sizes, |dims| vec![vec![dims[0], dims[1]]; 2]);
}

fn built(func: PrimFunc) -> Function {
    let name = func.name.clone();
    build([func], &BuildTarget::native(Backend::C)).unwrap().function(&name).unwrap()
}

#[test]
fn shapes_that_do_not_agree_are_refused() {
    let function = built(matmul());
    let mut c = NdArray::zeros(DType::F32, &[2, 4]).unwrap();
    let array = |shape: &[i64]| filled(DType::F32, shape, 1);
    let error = function.call((&array(&[2, 3]), &array(&[5, 4]), &mut c)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call of `matmul`: argument 1 (`B`): axis 0 must be k = 3, and is 5 (k is 3, axis 1 of `A`)"
    );
    let error = function.call((&array(&[2]), &array(&[5, 4]), &mut c)).unwrap_err().to_string();
    assert_eq!(
        error,
        "call of `matmul`: argument 0 (`A`): float32[m, k] is needed, float32[2] was given"
    );
    let ints = filled(DType::I32, &[3, 4], 1);
    let error = function.call((&array(&[2, 3]), &ints, &mut c)).unwrap_err().to_string();
    assert!(error.contains("float32[k, n] is needed, int32[3, 4] was given"), "{error}");
    let error = function.call((&array(&[2, 0]), &array(&[0, 4]), &mut c)).unwrap_err().to_string();
    assert!(error.contains("the reduction over k has no element to begin with (k is 0"), "{error}");
    assert!(function.call((&array(&[2, 3]), &array(&[3, 4]), &mut c)).is_ok());
}

#[test]
fn extents_that_are_expressions_are_checked() {
    let text = "prim_func @shift(x: input float32[n * 2 + 1], y: output float32[n, 3], \
         z: output float32[min(n, h)], n: dim, h: dim) {
           for i in serial(n) { y[i, 1] = x[i * 2 + 1] }
           for i in serial(min(n, h)) { z[i] = x[h] }
         }";
    let func = parse(text).unwrap();
    verify(&func).unwrap();
    let function = built(func);
    // `h` is no extent by itself, so it is an argument.
    assert_eq!(function.dims(), ["h"]);
    assert_eq!(function.parameters()[0].symbolic.as_ref().unwrap(), &["n * 2 + 1"]);
    let x = filled(DType::F32, &[9], 1);
    let mut y = NdArray::zeros(DType::F32, &[4, 3]).unwrap();
    let mut z = NdArray::zeros(DType::F32, &[2]).unwrap();
    function.call((&x, &mut y, &mut z, 2i64)).unwrap();
    let values = x.to_vec::<f32>().unwrap();
    let found = y.to_vec::<f32>().unwrap();
    assert_eq!([found[1], found[4], found[7], found[10]], [1, 3, 5, 7].map(|at: usize| values[at]));
    assert_eq!(z.to_vec::<f32>().unwrap(), [values[2]; 2]);
    let error = function.call((&x, &mut y, &mut z, 3i64)).unwrap_err().to_string();
    assert_eq!(
        error,
        "call of `shift`: argument 2 (`z`): axis 0 must be min(n, h) = 3, and is 2 \
         (n is 4, axis 0 of `y`; h is 3)"
    );
    let x = filled(DType::F32, &[8], 1);
    let error = function.call((&x, &mut y, &mut z, 2i64)).unwrap_err().to_string();
    assert!(error.contains("axis 0 must be n * 2 + 1 = 9, and is 8"), "{error}");
    let mut flat = NdArray::zeros(DType::F32, &[4, 2]).unwrap();
    let error = function.call((&x, &mut flat, &mut z, 2i64)).unwrap_err().to_string();
    assert!(error.contains("argument 0"), "{error}");
    let x = filled(DType::F32, &[9], 1);
    let error = function.call((&x, &mut flat, &mut z, 2i64)).unwrap_err().to_string();
    assert!(error.ends_with("argument 1 (`y`): axis 1 must be 3, and is 2"), "{error}");
}
