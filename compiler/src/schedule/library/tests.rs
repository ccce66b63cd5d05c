//! The schedules against the plain loops they came from.

use super::{Int8Tiles, MatmulTiles, WinogradTiles, matmul, matmul_int8, winograd};
use crate::codegen::testing::{LoadedKernel, runnable_levels};
use crate::driver::{BuildTarget, NdArray};
use crate::ir::{BufferSpec, DType};
use crate::options::Backend;
use crate::schedule::Schedule;
use crate::schedule::tests::check;
use crate::target::Target;
use crate::te;
use crate::te::topi::winograd::{Winograd, conv2d};
use crate::tir::{PrimFunc, interpret, lower};

fn convolution(algorithm: Winograd, [channels, out, size]: [i64; 3]) -> PrimFunc {
    let mut te = te::Builder::new("conv");
    let border = [(1, 1), (1, 1)];
    let layout = BufferSpec::nchwc(&[1, channels, size, size], 16, &border);
    let x = te.placeholder_in("X", layout, DType::F32);
    let n = algorithm.inputs();
    let u = te.constant("U", [n, n, channels, out], DType::F32);
    let stages = conv2d(&mut te, algorithm, x, u, |sum, _| sum.max(te::f32(0.0)));
    te.set_layout(stages.output, BufferSpec::nchwc(&[1, out, size, size], 16, &border));
    te.prim_func(&[x, u, stages.output]).unwrap()
}

/// The layouts of the parameters.
fn specs(func: &PrimFunc) -> Vec<BufferSpec> {
    func.params.iter().map(|param| func.buffers[param.buffer].spec.clone()).collect()
}

/// Small integers, made of their positions, so that sums are exact in any order.
fn values(specs: &[BufferSpec]) -> Vec<Vec<u8>> {
    let values = |spec: &BufferSpec| {
        let len = spec.num_elements().unwrap();
        (0..len).flat_map(|i| (((i * 7 + 3) % 23 - 11) as f32).to_le_bytes()).collect()
    };
    specs.iter().map(values).collect()
}

/// Runs a function on dense data.
fn run(func: &PrimFunc, specs: &[BufferSpec], data: &[Vec<u8>]) -> Vec<u8> {
    let mut args: Vec<Vec<u8>> =
        specs.iter().zip(data).map(|(spec, data)| spec.pack(data, DType::F32).unwrap()).collect();
    interpret(func, &mut args, &[]).unwrap();
    specs[2].unpack(&args[2], DType::F32).unwrap()
}

#[test]
fn winograd_gives_what_its_plain_loops_give() {
    for (algorithm, size) in [(Winograd::F2, 4), (Winograd::F4, 4)] {
        let func = convolution(algorithm, [16, 16, size]);
        let specs = specs(&func);
        let data = values(&specs);
        let expected = run(&func, &specs, &data);
        let mut s = Schedule::new(func);
        winograd(&mut s, algorithm, WinogradTiles { tiles: 2, rows: 2, panel: 16, lanes: 8 })
            .unwrap();
        assert_eq!(run(&s.func(), &specs, &data), expected, "{}", s.func());
        let target = Target::host().with_cpu("x86-64-v3").unwrap();
        let lowered = lower(s.func(), &target).unwrap();
        assert_eq!(run(&lowered, &specs, &data), expected);
    }
}

#[test]
fn products_of_all_sizes_give_what_their_plain_loops_give() {
    for (m, k, n) in [(13, 5, 32), (1, 7, 64), (7, 4, 40), (16, 3, 21)] {
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::F32);
        let b = te.constant("B", [k, n], DType::F32);
        let r = te.reduce_axis("k", k);
        let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
        let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
        for with_epilogue in [false, true] {
            let output = if with_epilogue { d } else { c };
            let func = te.prim_func(&[a, b, output]).unwrap();
            let dense: Vec<BufferSpec> = specs(&func);
            let data = values(&dense);
            let expected = run(&func, &dense, &data);
            for (panels_outside, prefetch) in [(false, false), (true, false), (true, true)] {
                let cut = MatmulTiles { rows: 4, vectors: 2, lanes: 8, panels_outside, prefetch };
                let mut s = Schedule::new(func.clone());
                let block = s.get_block("C").unwrap();
                let epilogue = with_epilogue.then(|| s.get_block("D").unwrap());
                matmul(&mut s, block, epilogue, cut).unwrap();
                let specs = specs(&s.func());
                assert_eq!(run(&s.func(), &specs, &data), expected, "{}", s.func());
                let target = Target::host().with_cpu("x86-64-v3").unwrap();
                let lowered = lower(s.func(), &target).unwrap();
                assert_eq!(run(&lowered, &specs, &data), expected, "{lowered}");
            }
        }
    }
}

/// Rows and columns that end within a tile.
#[test]
fn machine_code_computes_products_that_end_within_a_tile() {
    for target in runnable_levels() {
        let lanes = i64::try_from(target.vector_bits() / 32).unwrap().max(4);
        let (m, k, n) = (7, 4, lanes * 5);
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::F32);
        let b = te.constant("B", [k, n], DType::F32);
        let r = te.reduce_axis("k", k);
        let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
        let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
        let func = te.prim_func(&[a, b, d]).unwrap();
        let data = values(&specs(&func));
        let expected = run(&func, &specs(&func), &data);
        let cut = MatmulTiles { rows: 4, vectors: 2, lanes, panels_outside: true, prefetch: true };
        let mut s = Schedule::new(func);
        let [block, epilogue] = ["C", "D"].map(|name| s.get_block(name).unwrap());
        matmul(&mut s, block, Some(epilogue), cut).unwrap();
        let specs = specs(&s.func());
        let lowered = lower(s.func(), &target).unwrap();
        for &backend in Backend::ALL {
            let pairs = specs.iter().zip(&data);
            let mut args: Vec<Vec<u8>> =
                pairs.map(|(spec, data)| spec.pack(data, DType::F32).unwrap()).collect();
            LoadedKernel::new(&lowered, &target, backend).run(&mut args, &[]);
            let found = specs[2].unpack(&args[2], DType::F32).unwrap();
            assert_eq!(found, expected, "{backend} {:?}", target.cpu);
        }
    }
}

#[test]
fn a_product_of_bytes_is_made_of_dot_products() {
    let tiles = Int8Tiles { rows: 4, vectors: 2, lanes: 16 };
    // Rows that do not divide evenly, and a panel that is not full.
    for (m, k, n) in [(4, 8, 32), (9, 8, 64), (5, 12, 40)] {
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::U8);
        let b = te.constant("B", [k, n], DType::I8);
        let bias = te.constant("bias", [n], DType::I32);
        let r = te.reduce_axis("k", k);
        let c = te.compute("C", [m, n], |[i, j]| {
            te::sum(a.at([i, r]).cast(DType::I32) * b.at([r, j]).cast(DType::I32), [r])
        });
        let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]) + bias.at([j]));
        let func = te.prim_func(&[a, b, bias, d]).unwrap();
        let mut s = Schedule::new(func.clone());
        let c = s.get_block("C").unwrap();
        matmul_int8(&mut s, c, tiles).unwrap();
        check(&func, &s);
    }
}

#[test]
fn dot_products_need_their_instruction() {
    let target = Target::host().with_cpu("x86-64-v3").unwrap();
    assert_eq!(Int8Tiles::choose(&target), None);
    let func = convolution(Winograd::F2, [16, 16, 4]);
    let mut s = Schedule::new(func);
    let block = s.get_block("products").unwrap();
    let tiles = Int8Tiles { rows: 4, vectors: 2, lanes: 16 };
    let error = matmul_int8(&mut s, block, tiles).unwrap_err();
    assert_eq!(error.to_string(), "matmul_int8: the product is not in three loops");
}

fn product_of_bytes([m, k, n]: [i64; 3], tiles: Int8Tiles) -> (PrimFunc, PrimFunc) {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [m, k], DType::U8);
    let b = te.constant("B", [k, n], DType::I8);
    let r = te.reduce_axis("k", k);
    let c = te.compute("C", [m, n], |[i, j]| {
        te::sum(a.at([i, r]).cast(DType::I32) * b.at([r, j]).cast(DType::I32), [r])
    });
    let func = te.prim_func(&[a, b, c]).unwrap();
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    matmul_int8(&mut s, c, tiles).unwrap();
    (func, s.into_func())
}

/// Bytes of all values.
fn bytes(len: i64) -> Vec<u8> {
    (0..len).map(|i| (i * 37 % 251) as u8).collect()
}

#[test]
fn machine_code_computes_products_of_bytes() {
    let native = Target::host().with_cpu("native").unwrap();
    // The encodings of AVX-512 and of AVX.
    let machines = ["-mcpu=native", "-mcpu=x86-64-v3 -mattr=+avxvnni"];
    let targets = machines.iter().flat_map(|machine| {
        Backend::ALL.iter().map(move |backend| (backend, format!("{backend} {machine}")))
    });
    for (backend, target) in targets {
        if target.contains("avxvnni") && !native.has_feature("avxvnni") {
            continue;
        }
        let target: BuildTarget = target.parse().unwrap();
        let tiles = Int8Tiles::choose(&target.machine);
        let Some(tiles) = tiles else { continue };
        let [m, k, n] = [16, 16, 64];
        let (plain, scheduled) = product_of_bytes([m, k, n], tiles);
        let mut expected = [bytes(m * k), bytes(k * n), vec![0; (m * n * 4) as usize]];
        interpret(&plain, &mut expected, &[]).unwrap();
        let module = crate::build([scheduled], &target).unwrap();
        let a = NdArray::from_bytes(DType::U8, &[m, k], &expected[0]).unwrap();
        let b = NdArray::from_bytes(DType::I8, &[k, n], &expected[1]).unwrap();
        let mut c = NdArray::zeros(DType::I32, &[m, n]).unwrap();
        module.function("matmul").unwrap().call((&a, &b, &mut c)).unwrap();
        assert_eq!(c.bytes(), expected[2], "{backend} {:?}", tiles);
    }
}
