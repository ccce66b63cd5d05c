//! Elements that change places are moved in blocks that are turned in registers.

use super::{Arg, Case, Net, blocked, case, check, check_all, conv_attrs, dense};
use crate::codegen::testing::runnable_levels;
use crate::graph::Function;
use crate::ir::{Attrs, BufferSpec, DType, Type};
use crate::ops::elementwise::CastAttrs;
use crate::strategy::schedule;
use crate::tir::{ParamKind, PrimExpr};

fn transpose(shape: &[i64], axes: &[i64]) -> Function {
    let mut net = Net::new();
    let x = net.param(shape);
    let y = net.call("transpose", &[x], Attrs::new().with("axes", axes.to_vec()));
    net.finish(y)
}

fn relu(shape: &[i64]) -> Function {
    let mut net = Net::new();
    let x = net.param(shape);
    let y = net.plain("nn.relu", &[x]);
    net.finish(y)
}

/// Whether the schedule for wide vectors has a turn in it.
fn turns(function: &Function, input: &BufferSpec, output: &BufferSpec) -> bool {
    let primitive =
        crate::strategy::primitive::primitive("kernel", function, &crate::ir::Dim::as_const, false)
            .unwrap();
    let params: Vec<_> =
        primitive.params.iter().map(|&param| (param, ParamKind::Input, input.clone())).collect();
    let target = runnable_levels().pop().unwrap();
    let outputs = [(primitive.results[0], output.clone())];
    let kernel = schedule(primitive.dag.clone(), &params, &outputs, &[target], &Default::default());
    let mut found = false;
    kernel.versions[0]
        .body
        .walk_exprs(&mut |expr| found |= matches!(expr, PrimExpr::Shuffle { .. }));
    found
}

#[test]
fn functions_are_computed_before_short_rows_are_moved() {
    let made = |op: &str, shape: &[i64], axes: &[i64]| {
        let mut net = Net::new();
        let (x, factor) = (net.param(shape), net.param(&shape[shape.len() - 1..]));
        let y = net.plain(op, &[x]);
        let y = net.plain("multiply", &[y, factor]);
        let y = net.call("transpose", &[y], Attrs::new().with("axes", axes.to_vec()));
        let function = net.finish(y);
        let args = [dense(shape), dense(&shape[shape.len() - 1..])].map(Arg::Input);
        let to: Vec<i64> = axes.iter().map(|&axis| shape[axis as usize]).collect();
        check(&function, &args, &[dense(&to)]);
        let case = case(&function, &args, &[dense(&to)]);
        case.schedule(&runnable_levels()).0.loops.len()
    };
    assert_eq!(made("tanh", &[3, 4, 5, 7], &[1, 2, 0, 3]), 2);
    // Nothing that takes long, whole vectors, and elements on their own.
    assert_eq!(made("nn.relu", &[3, 4, 5, 7], &[1, 2, 0, 3]), 1);
    assert_eq!(made("tanh", &[3, 4, 5, 32], &[1, 2, 0, 3]), 1);
    assert_eq!(made("tanh", &[3, 4, 5, 7], &[0, 1, 3, 2]), 1);
}

#[test]
fn choices_on_what_is_read_are_turned_with_it() {
    let mut net = Net::new();
    let (x, greatest) = (net.param(&[1, 36, 50]), net.param(&[36]));
    let y = net.call("transpose", &[x], Attrs::new().with("axes", vec![0, 2, 1]));
    // Chooses NaNs.
    let y = net.plain("minimum", &[y, greatest]);
    let function = net.finish(y);
    let args = [dense(&[1, 36, 50]), dense(&[36])].map(Arg::Input);
    check(&function, &args, &[dense(&[1, 50, 36])]);
    let case = super::case(&function, &args, &[dense(&[1, 50, 36])]);
    let levels = runnable_levels();
    case.misses_nothing(&levels[levels.len() - 1..]);
}

#[test]
fn layouts_change_both_ways_with_halos_padding_lanes_and_parts_of_blocks() {
    let border = [(1, 1), (1, 2)];
    for shape in [[1, 16, 3, 16], [2, 20, 2, 7], [1, 36, 3, 18], [1, 9, 2, 5]] {
        let function = relu(&shape);
        for (from, to) in [
            (dense(&shape), blocked(&shape, &border)),
            (blocked(&shape, &border), dense(&shape)),
            (blocked(&shape, &[]), dense(&shape).with_halo(2, 1, 0).with_halo(3, 2, 1)),
        ] {
            assert!(turns(&function, &from, &to), "{from} to {to}");
            check(&function, &[Arg::Input(from)], &[to]);
        }
    }
}

#[test]
fn axes_change_places() {
    for (shape, axes) in [
        (vec![19, 37], vec![1, 0]),
        (vec![4, 4], vec![1, 0]),
        (vec![2, 5, 6, 17], vec![0, 2, 3, 1]),
        (vec![1, 9, 3, 8], vec![0, 2, 3, 1]),
        (vec![3, 6, 2, 9], vec![3, 1, 2, 0]),
    ] {
        let function = transpose(&shape, &axes);
        let result: Vec<i64> = axes.iter().map(|&axis| shape[axis as usize]).collect();
        let (from, to) = (dense(&shape), dense(&result));
        let room = shape[shape.len() - 1].min(result[result.len() - 1]) >= 4;
        assert_eq!(turns(&function, &from, &to), room, "{from} to {to}");
        check(&function, &[Arg::Input(from)], &[to]);
    }
}

#[test]
fn what_may_be_overwritten_is_computed_once() {
    // Rows of 18 are 16 and 2: a second block of 16 would read what the first has written, if the
    // result takes the place of the second argument.
    let shape = [1, 20, 2, 18];
    let mut net = Net::new();
    let (x, y) = (net.param(&shape), net.param(&shape));
    let sum = net.plain("add", &[x, y]);
    let function = net.finish(sum);
    let args = [Arg::Input(blocked(&shape, &[])), Arg::Input(dense(&shape))];
    check(&function, &args, &[dense(&shape)]);
    // No result takes the place of a constant, so blocks may overlap.
    let levels = runnable_levels();
    let args = [Arg::Input(blocked(&shape, &[])), Arg::Constant];
    let of_constant = case(&function, &args, &[dense(&shape)]);
    of_constant.misses_nothing(&levels);
    check_all(&[of_constant], &levels);
}

/// A constant lies as the lanes of a kernel read it: beside sums of a tile, and beside planes that become
/// blocks.
#[test]
fn constants_are_packed_as_lanes_read_them() {
    let levels = runnable_levels();
    let shape = [1, 40, 5, 7];
    let mut cases: Vec<Case> = Vec::new();
    let mut net = Net::new();
    let image = [1, 16, 5, 7];
    let (x, w, map) = (net.param(&image), net.param(&[40, 16, 1, 1]), net.param(&shape));
    let y = net.call("nn.conv2d", &[x, w], conv_attrs(1, [0; 4], 1, 1));
    let y = net.plain("add", &[y, map]);
    let args = [Arg::Input(blocked(&image, &[])), Arg::Constant, Arg::Constant];
    cases.push(case(&net.finish(y), &args, &[blocked(&shape, &[])]));

    let mut net = Net::new();
    let (x, map) = (net.param(&shape), net.param(&shape));
    let y = net.plain("multiply", &[x, map]);
    let args = [Arg::Input(dense(&shape)), Arg::Constant];
    cases.push(case(&net.finish(y), &args, &[blocked(&shape, &[])]));

    for case in &cases {
        case.misses_nothing(&levels);
        let (kernel, _) = case.schedule(&levels);
        let func = kernel.signature();
        let constants = func.params.iter().filter(|param| param.kind == ParamKind::Constant);
        let specs: Vec<&BufferSpec> =
            constants.map(|param| &func.buffers[param.buffer].spec).collect();
        assert!(specs.iter().all(|spec| !spec.is_dense()), "{specs:?}");
    }
    check_all(&cases, &levels);
}

#[test]
fn elements_of_every_width_are_turned() {
    let shape = [37, 50];
    let mut cases = Vec::new();
    for dtype in [
        DType::U8,
        DType::I8,
        DType::I16,
        DType::U16,
        DType::I64,
        DType::F64,
        DType::F16,
        DType::BF16,
    ] {
        let mut net = Net::new();
        let x = net.b.param("x", Type::tensor(&shape, dtype));
        let y = net.call("transpose", &[x], Attrs::new().with("axes", vec![1, 0]));
        let function = net.finish(y);
        let (args, results) = (dense(&shape), dense(&[50, 37]));
        assert!(turns(&function, &args, &results), "{dtype}");
        cases.push(case(&function, &[Arg::Input(args)], &[results]));
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn blocks_of_narrow_elements_are_turned() {
    let mut cases = Vec::new();
    for dtype in [DType::U8, DType::I8, DType::F16] {
        for channels in [32, 64, 24] {
            let shape = [2, channels, 3, 17];
            let mut net = Net::new();
            let x = net.b.param("x", Type::tensor(&shape, dtype));
            let y = net.plain("nn.relu", &[x]);
            let function = net.finish(y);
            let blocks = blocked(&shape, &[(1, 1), (1, 2)]);
            for (from, to) in [(dense(&shape), blocks.clone()), (blocks, dense(&shape))] {
                assert!(turns(&function, &from, &to), "{dtype} {from} to {to}");
                cases.push(case(&function, &[Arg::Input(from)], &[to]));
            }
        }
    }
    check_all(&cases, &runnable_levels());
}

/// Elements of another size are turned as what they are cast to.
#[test]
fn what_is_cast_is_turned() {
    let shape = [1, 40, 3, 50];
    for dtype in [DType::I64, DType::U8, DType::Bool, DType::F64] {
        let mut net = Net::new();
        let x = net.b.param("x", Type::tensor(&shape, dtype));
        let cast = Attrs::from_struct(&CastAttrs::to(DType::F32)).unwrap();
        let y = net.call("cast", &[x], cast);
        let y = net.call("nn.relu", &[y], Attrs::new());
        let function = net.finish(y);
        let args = [Arg::Input(dense(&shape))];
        check(&function, &args, &[blocked(&shape, &[(0, 0), (1, 1)])]);
        let case = case(&function, &args, &[blocked(&shape, &[])]);
        let loops = case.schedule(&runnable_levels()).0.loops;
        assert!(loops.iter().all(|loops| loops.missed.is_none()), "{dtype}: {loops:?}");
    }
}
