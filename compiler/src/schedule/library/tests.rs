//! The library's schedules, compared with the plain loops.

mod winograd;

use super::{Int8Tiles, MatmulTiles, matmul, matmul_int8};
use crate::codegen::testing::{LoadedKernel, runnable_levels};
use crate::driver::accesses::are_proved;
use crate::driver::{BuildTarget, NdArray};
use crate::ir::{BufferSpec, DType};
use crate::options::Backend;
use crate::schedule::Schedule;
use crate::schedule::tests::check;
use crate::target::Target;
use crate::te;
use crate::tir::{PrimFunc, interpret, lower};

/// The layouts of the parameters.
fn specs(func: &PrimFunc) -> Vec<BufferSpec> {
    func.params.iter().map(|param| func.buffers[param.buffer].spec.clone()).collect()
}

/// Small integers derived from their positions, so that sums are exact in any order.
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
fn scheduled_products_of_all_sizes_equal_plain_loops() {
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
            for (panels_outside, block, prefetch_panel, ahead) in [
                (false, None, false, 0),
                (true, None, false, 2),
                (true, None, true, 0),
                (true, Some(6), true, 3),
            ] {
                let cut = MatmulTiles {
                    rows: 4,
                    vectors: 2,
                    lanes: 8,
                    packed: 16,
                    panels_outside,
                    block,
                    prefetch_panel,
                    ahead,
                };
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

/// Numbers of rows and columns that end within a tile.
#[test]
fn machine_code_computes_products_that_end_within_a_tile() {
    for target in runnable_levels() {
        let lanes = i64::try_from(target.vector_bits() / 32).unwrap().max(4);
        // Partly filled panels, and partly filled vectors.
        for (n, with_epilogue) in [(lanes * 5, true), (lanes * 3 + 1, true), (lanes - 1, false)] {
            let (m, k) = (7, 4);
            let mut te = te::Builder::new("matmul");
            let a = te.placeholder("A", [m, k], DType::F32);
            let b = te.constant("B", [k, n], DType::F32);
            let r = te.reduce_axis("k", k);
            let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
            let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
            let func = te.prim_func(&[a, b, if with_epilogue { d } else { c }]).unwrap();
            let data = values(&specs(&func));
            let expected = run(&func, &specs(&func), &data);
            let cut = MatmulTiles {
                rows: 4,
                vectors: 2,
                lanes,
                packed: 2 * lanes,
                panels_outside: true,
                block: None,
                prefetch_panel: true,
                ahead: 8,
            };
            let mut s = Schedule::new(func);
            let block = s.get_block("C").unwrap();
            let epilogue = with_epilogue.then(|| s.get_block("D").unwrap());
            matmul(&mut s, block, epilogue, cut).unwrap();
            let specs = specs(&s.func());
            let lowered = lower(s.func(), &target).unwrap();
            for &backend in Backend::ALL {
                let pairs = specs.iter().zip(&data);
                let mut args: Vec<Vec<u8>> =
                    pairs.map(|(spec, data)| spec.pack(data, DType::F32).unwrap()).collect();
                LoadedKernel::new(&lowered, &target, backend).run(&mut args, &[]);
                let found = specs[2].unpack(&args[2], DType::F32).unwrap();
                assert_eq!(found, expected, "{backend} {:?} {n}", target.cpu);
            }
        }
    }
}

#[test]
fn a_product_of_bytes_is_made_of_dot_products() {
    let tiles = Int8Tiles { rows: 4, vectors: 2, lanes: 16, resident_bytes: 1 << 20 };
    // Rows that do not divide evenly, partly filled panels and groups.
    for (m, k, n) in [(4, 8, 32), (9, 8, 64), (5, 12, 40), (3, 7, 32), (5, 1, 40)] {
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
    let mut te = te::Builder::new("relu");
    let x = te.placeholder("X", [4, 8], DType::F32);
    let y = te.compute("Y", [4, 8], |index| x.at(index).max(te::f32(0.0)));
    let mut s = Schedule::new(te.prim_func(&[x, y]).unwrap());
    let block = s.get_block("Y").unwrap();
    let tiles = Int8Tiles { rows: 4, vectors: 2, lanes: 16, resident_bytes: 1 << 20 };
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

/// So `niello::build` adds no checks to them.
#[test]
fn indices_of_the_schedules_are_proved_to_be_inside() {
    let tiles = Int8Tiles { rows: 4, vectors: 2, lanes: 16, resident_bytes: 1 << 20 };
    for [m, k, n] in [[8, 8, 64], [5, 7, 40]] {
        let mut te = te::Builder::new("matmul");
        let a = te.placeholder("A", [m, k], DType::F32);
        let b = te.constant("B", [k, n], DType::F32);
        let r = te.reduce_axis("k", k);
        let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
        let mut s = Schedule::new(te.prim_func(&[a, b, c]).unwrap());
        let block = s.get_block("C").unwrap();
        let cut = MatmulTiles {
            rows: 4,
            vectors: 2,
            lanes: 8,
            packed: 16,
            panels_outside: true,
            block: None,
            prefetch_panel: true,
            ahead: 2,
        };
        matmul(&mut s, block, None, cut).unwrap();
        for func in [s.into_func(), product_of_bytes([m, k, n], tiles).1] {
            assert!(are_proved(&func).unwrap(), "{func}");
        }
    }
}

/// Bytes of all possible values.
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
        for [m, k, n] in [[16, 16, 64], [15, 21, 48], [5, 8, 21]] {
            let (plain, scheduled) = product_of_bytes([m, k, n], tiles);
            let mut expected = [bytes(m * k), bytes(k * n), vec![0; (m * n * 4) as usize]];
            interpret(&plain, &mut expected, &[]).unwrap();
            let module = crate::build([scheduled], &target).unwrap();
            let a = NdArray::from_bytes(DType::U8, &[m, k], &expected[0]).unwrap();
            let b = NdArray::from_bytes(DType::I8, &[k, n], &expected[1]).unwrap();
            let mut c = NdArray::zeros(DType::I32, &[m, n]).unwrap();
            module.function("matmul").unwrap().call((&a, &b, &mut c)).unwrap();
            assert_eq!(c.bytes(), expected[2], "{backend} {tiles:?}");
        }
    }
}

#[test]
fn loops_are_in_the_order_that_brings_the_fewest_bytes() {
    let target = Target::host().with_cpu("x86-64-v4").unwrap();
    let choose = |m, k, n| MatmulTiles::choose(m, k, n, &target);
    // Both operands stay in the cache, and tiles of rows pass in turn.
    assert!(!choose(384, 384, 384).panels_outside);
    // All rows use a panel before the next one is read.
    let few_rows = choose(49, 512, 2048);
    assert_eq!((few_rows.rows, few_rows.vectors), (14, 2));
    assert!(few_rows.panels_outside && few_rows.prefetch_panel && few_rows.block.is_none());
    // More rows than stay in the cache.
    let large = choose(1024, 1024, 1024);
    assert_eq!((large.rows, large.vectors, large.block), (6, 4, Some(128)));
    // With one row each operand is read once, from memory.
    let row = choose(1, 4096, 4096);
    assert!(row.panels_outside && row.prefetch_panel && row.ahead == 0);
}
