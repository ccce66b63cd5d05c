//! What the front of tensor expressions makes, against plain loops in Rust.

use super::{Builder, f32, max, prod, sum};
use crate::ir::{BufferSpec, DType};
use crate::schedule::Schedule;
use crate::target::Target;
use crate::tir::{ForKind, PrimExpr, PrimFunc, Stmt, interpret, lower};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Runs a function, as it is and lowered, on one input; returns the outputs' bytes.
fn run(func: &PrimFunc, input: &[f32]) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = input.iter().flat_map(|x| x.to_le_bytes()).collect();
    let results = [func.clone(), lower(func.clone(), &Target::host()).unwrap()].map(|func| {
        let mut args: Vec<Vec<u8>> = func
            .params
            .iter()
            .map(|param| {
                let buffer = &func.buffers[param.buffer];
                let len = usize::try_from(buffer.spec.physical_len().unwrap()).unwrap();
                vec![0; len * buffer.dtype.bytes().unwrap()]
            })
            .collect();
        args[0].clone_from(&bytes);
        interpret(&func, &mut args, &[]).unwrap();
        args.split_off(1)
    });
    let [plain, lowered] = results;
    assert_eq!(plain, lowered, "{func}");
    plain
}

const INPUT: [f32; 12] = [3.0, -1.0, 4.0, 1.5, -5.0, 9.0, 2.0, 9.0, 0.5, 0.5, -2.0, 0.5];

#[test]
fn reducers_of_one_value() {
    let mut te = Builder::new("reduce");
    let x = te.placeholder("X", [3, 4], DType::F32);
    let k = te.reduce_axis("k", 4);
    let total = te.compute("total", [3], |[i]| sum(x.at([i, k]), [k]));
    let product = te.compute("product", [3], |[i]| prod(x.at([i, k]), [k]));
    let greatest = te.compute("greatest", [3], |[i]| max(x.at([i, k]), [k]));
    let func = te.prim_func(&[x, total, product, greatest]).unwrap();
    let results = run(&func, &INPUT);
    assert_eq!(floats(&results[0]), [7.5, 15.0, -0.5]);
    assert_eq!(floats(&results[1]), [-18.0, -810.0, -0.25]);
    assert_eq!(floats(&results[2]), [4.0, 9.0, 0.5]);
}

#[test]
fn a_reducer_of_two_values_finds_the_first_greatest() {
    let mut te = Builder::new("argmax");
    let x = te.placeholder("X", [3, 4], DType::F32);
    let k = te.reduce_axis("k", 4);
    let argmax = te.comm_reducer(
        [DType::I64, DType::F32],
        [PrimExpr::index(i64::MAX), f32(f32::NEG_INFINITY)],
        |[i, x], [j, y]| {
            let is_first = x.clone().equal(y.clone()).and(i.clone().less(j.clone()));
            let stays = x.clone().greater(y.clone()).or(is_first);
            [PrimExpr::select(stays.clone(), i, j), PrimExpr::select(stays, x, y)]
        },
    );
    let [at, greatest] =
        te.compute_reduce(["at", "greatest"], [3], &argmax, [k], |[i]| [k.into(), x.at([i, k])]);
    // One result alone brings the other one along.
    let doubled = te.compute("doubled", [3], |[i]| greatest.at([i]) * f32(2.0));
    let func = te.prim_func(&[x, at, doubled]).unwrap();
    let mut schedule = Schedule::new(func.clone());
    let block = schedule.get_block("at").unwrap();
    let [_, k] = schedule.get_loops(block).unwrap()[..] else { panic!("two loops") };
    schedule.decompose_reduction(block, k).unwrap();
    let expected: Vec<u8> = [2i64, 1, 0].iter().flat_map(|i| i.to_le_bytes()).collect();
    for func in [func, schedule.into_func()] {
        let results = run(&func, &INPUT);
        assert_eq!(results[0], expected);
        assert_eq!(floats(&results[1]), [8.0, 18.0, 1.0]);
    }
}

#[test]
fn a_statement_computes_what_has_no_expression() {
    let mut te = Builder::new("scan");
    let x = te.placeholder("X", [3, 4], DType::F32);
    // Sums of all elements up to each.
    let [scan] = te.extern_op([("scan", &[12], DType::F32)], &[x], |f, inputs, [scan]| {
        let x = inputs[0];
        f.for_("i", 12, ForKind::Serial, |f, i| {
            let value = f.load(x, [i.clone().floordiv(4), i.clone().floormod(4)]);
            let first = f.store(scan, [i.clone()], value.clone());
            let before = f.load(scan, [i.clone() - 1]);
            let rest = f.store(scan, [i.clone()], before + value);
            Stmt::if_then_else(i.equal(0), first, rest)
        })
    });
    let halved = te.compute("halved", [12], |[i]| scan.at([i]) * f32(0.5));
    let results = run(&te.prim_func(&[x, halved]).unwrap(), &INPUT);
    let mut total = 0.0;
    let expected: Vec<f32> = INPUT
        .iter()
        .map(|x| {
            total += x;
            total / 2.0
        })
        .collect();
    assert_eq!(floats(&results[0]), expected);
}

#[test]
fn what_cannot_be_a_function_is_said() {
    let mut te = Builder::new("f");
    let x = te.placeholder("X", [4], DType::F32);
    let y = te.compute("Y", [4], |[i]| x.at([i]) + f32(1.0));
    let error = |te: &Builder, params: &[_]| te.prim_func(params).unwrap_err().to_string();
    assert_eq!(error(&te, &[x]), "function `f` has no output");
    assert_eq!(error(&te, &[y]), "tensor `X` is needed, but not a parameter");
    let mut stray = None;
    te.compute("Z", [4], |[i]| {
        stray = Some(i);
        x.at([i])
    });
    let w = te.compute("W", [4], |_| x.at([stray.unwrap()]));
    assert!(error(&te, &[x, w]).contains("variable"), "{}", error(&te, &[x, w]));
    te.compute("V", [4], |[i]| sum(x.at([i]), [i]));
    assert_eq!(error(&te, &[x, y]), "`i` of `V` is not a reduction axis");
}

#[test]
fn layouts_of_parameters_are_those_asked_for() {
    let mut te = Builder::new("f");
    let layout = BufferSpec::nchwc(&[1, 32, 2, 2], 16, &[(1, 1), (1, 1)]);
    let x = te.placeholder_in("X", layout.clone(), DType::F32);
    // The border reads as zero.
    let y = te.compute("Y", [32], |[c]| {
        x.at([PrimExpr::index(0), c.into(), PrimExpr::index(-1), PrimExpr::index(0)])
    });
    let func = te.prim_func(&[x, y]).unwrap();
    assert_eq!(func.buffers[func.params[0].buffer].spec, layout);
    let len = layout.physical_len().unwrap() as usize;
    assert_eq!(floats(&run(&func, &vec![0.0; len])[0]), [0.0; 32]);
}
