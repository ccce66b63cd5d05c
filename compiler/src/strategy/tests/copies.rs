//! Copies, windows and masks in vectors, and lines that are sorted and added up.

use super::bytes::bytes;
use super::families::{call, floats, ints, resize};
use super::{Arg, Case, Net, blocked, case, check, check_all, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::executor::Loops;
use crate::graph::interp::Tensor;
use crate::graph::{ExprId, Function};
use crate::ir::{Attrs, BufferSpec, Constant, DType, Dim, TensorType, Type};
use crate::ops::elementwise::CastAttrs;
use crate::ops::nn::{ConvAttrs, PadAttrs, PadMode};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{
    CumulativeAttrs, ResizeMethod, StridedSliceAttrs, TopkAttrs, TreeForm, TreeSumAttrs,
    TreeTraverseAttrs,
};
use crate::strategy::{KernelParam, schedule};
use crate::tir::{ParamKind, interpret};

/// How the stages of a kernel are computed on the widest level.
fn loops(function: &Function, args: &[BufferSpec], results: &[BufferSpec]) -> Vec<Loops> {
    let primitive =
        crate::strategy::primitive::primitive("kernel", function, &crate::ir::Dim::as_const, false)
            .unwrap();
    let params: Vec<KernelParam> = (primitive.params.iter().zip(args))
        .map(|(&param, spec)| (param, ParamKind::Input, spec.clone()))
        .collect();
    let outputs: Vec<_> =
        primitive.results.iter().zip(results).map(|(&stage, spec)| (stage, spec.clone())).collect();
    let target = runnable_levels().pop().unwrap();
    schedule(primitive.dag.clone(), &params, &outputs, &[target], &Default::default()).loops
}

/// What the rules of a kernel missed on the widest level.
pub(super) fn missed(
    function: &Function,
    args: &[BufferSpec],
    results: &[BufferSpec],
) -> Vec<String> {
    loops(function, args, results).into_iter().filter_map(|loops| loops.missed).collect()
}

/// Checks the results of a function, and that all its loops are of vectors.
pub(super) fn check_vectors(function: &Function, args: &[BufferSpec], results: &[BufferSpec]) {
    let none: [String; 0] = [];
    assert_eq!(missed(function, args, results), none, "{args:?} to {results:?}");
    let args: Vec<Arg> = args.iter().cloned().map(Arg::Input).collect();
    check(function, &args, results);
}

/// A call of one operator, whose loops are all of vectors.
fn vectors(case: Case) -> Case {
    let args: Vec<BufferSpec> = case
        .args
        .iter()
        .filter_map(|arg| match arg {
            Arg::Input(spec) => Some(spec.clone()),
            _ => None,
        })
        .collect();
    let none: [String; 0] = [];
    assert_eq!(missed(&case.function, &args, &case.results), none, "{}", case.name);
    case
}

fn reshape(net: &mut Net, x: ExprId, shape: &[i64]) -> ExprId {
    net.call("reshape", &[x], Attrs::new().with("newshape", shape.to_vec()))
}

#[test]
fn pixels_are_put_between_each_other_in_vectors() {
    // What a transposed convolution yields for each of four phases, and how much of it is cut.
    for (height, width, cut) in [(5, 20, [0, 0]), (5, 20, [1, 1]), (3, 9, [1, 0]), (4, 33, [0, 1])]
    {
        let shape = [2, 3, 2, 2, height, width];
        let mut net = Net::new();
        let x = net.param(&shape);
        let order = Attrs::new().with("axes", vec![0, 1, 4, 2, 5, 3]);
        let y = net.call("transpose", &[x], order);
        let y = reshape(&mut net, y, &[2, 3, 2 * height, 2 * width]);
        let kept = StridedSliceAttrs {
            begin: cut.to_vec(),
            end: vec![2 * height - cut[1], 2 * width - cut[0]],
            strides: vec![1, 1],
            axes: vec![2, 3],
        };
        let y = net.call("strided_slice", &[y], Attrs::from_struct(&kept).unwrap());
        let function = net.finish(y);
        let all = cut[0] + cut[1];
        let out = [2, 3, 2 * height - all, 2 * width - all];
        check_vectors(&function, &[dense(&shape)], &[dense(&out)]);
    }
}

/// Where a matrix of so many rows and columns is as far above its diagonal as the operator says.
fn triangle(net: &mut Net, rows: i64, columns: i64, (op, distance): (&str, f64)) -> ExprId {
    let count = |net: &mut Net, length: i64| {
        let attrs = Attrs::new().with("dtype", "int64").with("length", length);
        net.call("arange", &[], attrs.with("start", 0).with("step", 1))
    };
    let (row, column) = (count(net, rows), count(net, columns));
    let row = reshape(net, row, &[rows, 1]);
    let above = net.plain("subtract", &[column, row]);
    let bound = net.b.constant(Constant::scalar(distance, DType::I64).unwrap());
    net.plain(op, &[above, bound])
}

#[test]
fn triangles_are_chosen_by_lanes() {
    for (rows, columns, distance) in [(7, 37, 0.0), (40, 40, -3.0), (3, 16, 5.0), (20, 9, -30.0)] {
        for op in ["greater_equal", "less_equal", "equal"] {
            let mut net = Net::new();
            let x = net.param(&[2, rows, columns]);
            let keep = triangle(&mut net, rows, columns, (op, distance));
            let other = net.b.constant(Constant::scalar(-1.0, DType::F32).unwrap());
            let y = net.plain("where", &[keep, x, other]);
            let function = net.finish(y);
            let spec = dense(&[2, rows, columns]);
            check_vectors(&function, std::slice::from_ref(&spec), std::slice::from_ref(&spec));
        }
    }
}

/// The sums, or the greatest, of windows are stored first.
#[test]
fn triangles_behind_a_reduction_are_chosen_by_lanes() {
    for op in ["sum", "max"] {
        let mut net = Net::new();
        let x = net.param(&[3, 20, 33, 5]);
        let attrs = ReduceAttrs { axis: vec![3], keepdims: false };
        let y = net.call(op, &[x], Attrs::from_struct(&attrs).unwrap());
        let keep = triangle(&mut net, 20, 33, ("greater_equal", 2.0));
        let zero = net.b.constant(Constant::scalar(0.0, DType::F32).unwrap());
        let y = net.plain("where", &[keep, y, zero]);
        check_vectors(&net.finish(y), &[dense(&[3, 20, 33, 5])], &[dense(&[3, 20, 33])]);
    }
}

/// The channels of some groups in turns.
fn shuffled(net: &mut Net, x: ExprId, shape: [i64; 4], groups: i64) -> ExprId {
    let [n, c, h, w] = shape;
    let y = reshape(net, x, &[n, groups, c / groups, h, w]);
    let y = net.call("transpose", &[y], Attrs::new().with("axes", vec![0i64, 2, 1, 3, 4]));
    reshape(net, y, &shape)
}

fn shuffle(shape: [i64; 4], groups: i64) -> Function {
    let mut net = Net::new();
    let x = net.param(&shape);
    let y = shuffled(&mut net, x, shape, groups);
    net.finish(y)
}

#[test]
fn channels_are_shuffled_in_vectors_in_every_layout() {
    for (shape, groups) in [([1, 58, 3, 7], 2), ([2, 34, 2, 3], 2), ([1, 60, 3, 3], 4)] {
        let function = shuffle(shape, groups);
        check_vectors(&function, &[dense(&shape)], &[dense(&shape)]);
        let border = [(1, 1), (1, 2)];
        check_vectors(&function, &[blocked(&shape, &[])], &[blocked(&shape, &border)]);
        check_vectors(&function, &[blocked(&shape, &border)], &[blocked(&shape, &[])]);
    }
}

#[test]
fn parts_that_are_shuffled_are_not_put_side_by_side_first() {
    for (channels, dtype) in [(58, DType::F32), (16, DType::F32), (58, DType::U8), (116, DType::U8)]
    {
        let (part, whole) = ([1, channels, 3, 7], [1, 2 * channels, 3, 7]);
        let mut net = Net::new();
        let ty = TensorType::from_consts(&part, dtype);
        let [x, y] = ["x", "y"].map(|name| net.b.param(name, ty.clone()));
        // What is computed of a part is stored by itself.
        let (stored, computed) = match dtype {
            DType::F32 => ("nn.relu", net.plain("nn.relu", &[y])),
            _ => {
                let wide = net.call("cast", &[y], Attrs::new().with("dtype", "int32"));
                let [scale, zero] = [(0.75, DType::F32), (3.0, DType::U8)]
                    .map(|(value, dtype)| net.b.constant(Constant::scalar(value, dtype).unwrap()));
                let attrs = Attrs::new().with("axis", 1i64).with("dtype", "uint8");
                ("qnn.requantize", net.call("qnn.requantize", &[wide, scale, zero], attrs))
            }
        };
        let z = net.call("concatenate", &[x, computed], Attrs::new().with("axis", 1i64));
        let z = shuffled(&mut net, z, whole, 2);
        let attrs = Attrs::new().with("axis", 1i64).with("sections", vec![channels, channels]);
        let parts = net.call("split", &[z], attrs);
        let function = net.finish(parts);
        let border = [(1, 1), (1, 2)];
        let args = [blocked(&part, &border), blocked(&part, &[])];
        let results = [blocked(&part, &[]), blocked(&part, &border)];
        let loops = loops(&function, &args, &results);
        let missed: Vec<&String> = loops.iter().filter_map(|loops| loops.missed.as_ref()).collect();
        let ops: Vec<&str> = loops.iter().map(|loops| loops.op.as_str()).collect();
        assert_eq!((ops, missed), (vec![stored, "split", "split"], Vec::new()));
        // Planes are put side by side, as before.
        let shape = part.map(|extent| extent as usize);
        let tensors = match dtype {
            DType::F32 => vec![sample(&shape, 1), sample(&shape, 2)],
            _ => vec![bytes(dtype, &part, 1), bytes(dtype, &part, 2)],
        };
        let cases = [args, [dense(&part), dense(&part)]].map(|args| Case {
            name: format!("{dtype} {args:?}"),
            function: function.clone(),
            tensors: tensors.clone(),
            args: args.map(Arg::Input).to_vec(),
            results: results.to_vec(),
        });
        check_all(&cases, &runnable_levels());
    }
}

#[test]
fn tensors_in_blocks_are_reduced_in_vectors() {
    for (op, shape) in [
        ("max", [1, 48, 5, 7]),
        ("min", [2, 24, 3, 5]),
        ("sum", [1, 20, 4, 4]),
        ("mean", [1, 32, 9, 3]),
    ] {
        let reduced = |axes: &[i64], extents: &[i64]| {
            let mut net = Net::new();
            let x = net.param(&shape);
            let attrs = Attrs::new().with("axis", axes.to_vec()).with("keepdims", false);
            let y = net.call(op, &[x], attrs);
            (net.finish(y), dense(extents))
        };
        let border = [(1, 1), (0, 2)];
        let (all, result) = reduced(&[], &[]);
        check_vectors(&all, &[blocked(&shape, &border)], &[result]);
        let (channels, result) = reduced(&[1, 2, 3], &shape[..1]);
        check_vectors(&channels, &[blocked(&shape, &border)], &[result]);
    }
    // Of channels that are no fours, one by one.
    let shape = [1, 18, 5, 5];
    let mut net = Net::new();
    let x = net.param(&shape);
    let attrs = Attrs::new().with("axis", Vec::<i64>::new()).with("keepdims", false);
    let y = net.call("max", &[x], attrs);
    check(&net.finish(y), &[Arg::Input(blocked(&shape, &[]))], &[dense(&[])]);
}

#[test]
fn shapes_change_behind_transposes_and_elements_in_vectors() {
    // Heads of attention side by side.
    let mut net = Net::new();
    let x = net.param(&[1, 4, 9, 32]);
    let y = net.call("transpose", &[x], Attrs::new().with("axes", vec![0i64, 2, 1, 3]));
    let y = reshape(&mut net, y, &[1, 9, 128]);
    let bias = net.param(&[128]);
    let y = net.plain("add", &[y, bias]);
    let function = net.finish(y);
    let args = [dense(&[1, 4, 9, 32]), dense(&[128])];
    check_vectors(&function, &args, &[dense(&[1, 9, 128])]);
    // Rows of another length, longer and shorter ones.
    for (from, to) in [([12, 64], [6, 128]), ([6, 128], [12, 64]), ([10, 48], [15, 32])] {
        let mut net = Net::new();
        let (x, bias) = (net.param(&from), net.param(&from[1..]));
        let y = net.plain("add", &[x, bias]);
        let y = reshape(&mut net, y, &to);
        let function = net.finish(y);
        check(&function, &[dense(&from), dense(&from[1..])].map(Arg::Input), &[dense(&to)]);
    }
}

#[test]
fn parts_that_do_not_begin_with_a_block_are_picked_from_vectors() {
    for (a, b) in [(20, 12), (58, 58), (5, 43)] {
        let (left, right, all) = ([1, a, 3, 4], [1, b, 3, 4], [1, a + b, 3, 4]);
        let mut net = Net::new();
        let (x, y) = (net.param(&left), net.param(&right));
        let z = net.call("concatenate", &[x, y], Attrs::new().with("axis", 1i64));
        let function = net.finish(z);
        let border = [(1, 1), (1, 1)];
        let args = [blocked(&left, &[]), blocked(&right, &border)];
        check_vectors(&function, &args, &[blocked(&all, &border)]);
        check_vectors(&function, &[dense(&left), dense(&right)], &[dense(&all)]);

        let mut net = Net::new();
        let x = net.param(&all);
        let attrs = Attrs::new().with("axis", 1i64).with("sections", vec![a, b]);
        let parts = net.call("split", &[x], attrs);
        let function = net.finish(parts);
        let results = [blocked(&left, &[]), blocked(&right, &border)];
        check_vectors(&function, &[blocked(&all, &[])], &results);
    }
}

/// Blocks of channels become planes before channels become neighbours of pixels.
#[test]
fn channels_in_blocks_become_pixels_in_vectors() {
    for [channels, down, across, height, width] in [[8, 2, 3, 5, 10], [5, 4, 1, 3, 16]] {
        let from = [1, channels * down * across, height, width];
        let to = [1, channels, height * down, width * across];
        let mut net = Net::new();
        let x = net.param(&from);
        let y = reshape(&mut net, x, &[1, channels, down, across, height, width]);
        let order = Attrs::new().with("axes", vec![0i64, 1, 4, 2, 5, 3]);
        let y = net.call("transpose", &[y], order);
        let y = reshape(&mut net, y, &to);
        check_vectors(&net.finish(y), &[blocked(&from, &[])], &[dense(&to)]);
    }
}

/// Planes become the channels of pixels: rows as a whole, and parts of long ones.
#[test]
fn few_planes_become_channels_in_vectors() {
    for (channels, height, width) in [(2, 6, 50), (3, 5, 70), (3, 4, 256), (5, 3, 96), (2, 7, 640)]
    {
        for (read, stored) in [
            (DType::F32, DType::F32),
            (DType::U8, DType::U8),
            (DType::I16, DType::I16),
            (DType::I32, DType::U8),
            (DType::U8, DType::F32),
        ] {
            let mut net = Net::new();
            let shape = [1, channels, height, width];
            let x = net.b.param("x", Type::tensor(&shape, read));
            let y = net.call("transpose", &[x], Attrs::new().with("axes", vec![0i64, 2, 3, 1]));
            let y = net.plain("nn.relu", &[y]);
            let y = match read == stored {
                true => y,
                false => {
                    let attrs = Attrs::from_struct(&CastAttrs::to(stored)).unwrap();
                    net.call("cast", &[y], attrs)
                }
            };
            let [from, to] = [shape, [1, height, width, channels]].map(|shape| dense(&shape));
            check_vectors(&net.finish(y), &[from], &[to]);
        }
    }
}

/// Rows of another length than before, of which parts are kept.
#[test]
fn parts_of_another_shape_are_copied_in_vectors() {
    for (from, to, at) in [([1, 8, 75, 77], [175, 6, 44], 40), ([2, 3, 10, 33], [11, 9, 20], 13)] {
        let mut net = Net::new();
        let x = net.param(&from);
        let y = reshape(&mut net, x, &to);
        let sections = vec![at, to[2] - at];
        let attrs = Attrs::new().with("axis", 2i64).with("sections", sections.clone());
        let parts = net.call("split", &[y], attrs);
        let results: Vec<BufferSpec> =
            sections.iter().map(|&columns| dense(&[to[0], to[1], columns])).collect();
        check_vectors(&net.finish(parts), &[dense(&from)], &results);
    }
}

#[test]
fn windows_that_reach_into_padding_are_vectors_but_for_the_border() {
    for (shape, stride) in [([1, 3, 9, 40], 1), ([1, 5, 20, 41], 2), ([2, 18, 12, 20], 2)] {
        let pool = |include: Option<bool>| {
            let attrs = Attrs::new()
                .with("pool_size", vec![3i64, 3])
                .with("strides", vec![stride, stride])
                .with("padding", vec![1i64, 1, 1, 1])
                .with("dilation", vec![1i64, 1])
                .with("ceil_mode", false);
            include.map_or(attrs.clone(), |include| attrs.with("count_include_pad", include))
        };
        let out = |extent: i64| (extent - 1) / stride + 1;
        let result = [shape[0], shape[1], out(shape[2]), out(shape[3])];
        for (op, include) in
            [("nn.max_pool2d", None), ("nn.avg_pool2d", Some(false)), ("nn.avg_pool2d", Some(true))]
        {
            let mut net = Net::new();
            let x = net.param(&shape);
            let y = net.call(op, &[x], pool(include));
            let function = net.finish(y);
            check_vectors(&function, &[dense(&shape)], &[dense(&result)]);
            // Of blocks of channels, planes are made afterwards.
            check_vectors(&function, &[blocked(&shape, &[])], &[dense(&result)]);
        }
    }
}

#[test]
fn what_is_put_around_a_tensor_leaves_its_inside_to_vectors() {
    let attrs = PadAttrs { pad_width: vec![[0, 1], [2, 0], [3, 1]], mode: PadMode::Constant };
    let x = sample(&[2, 3, 37], 1);
    let edge = PadAttrs { mode: PadMode::Edge, ..attrs.clone() };
    let cases = [
        vectors(call("nn.pad", attrs, &[Some(x.clone()), None])),
        vectors(call("nn.pad", edge, &[Some(x)])),
    ];
    check_all(&cases, &runnable_levels());
}

#[test]
fn elements_at_known_places_are_picked_in_vectors() {
    let x = sample(&[1, 3, 6, 37], 1);
    let pad = |mode| PadAttrs { pad_width: vec![[0, 0], [0, 0], [1, 2], [4, 3]], mode };
    let backwards =
        StridedSliceAttrs { axes: vec![3], begin: vec![-1], end: vec![-38], strides: vec![-1] };
    let nearest = ResizeMethod::NearestNeighbor;
    let mut cases = vec![
        vectors(call("nn.pad", pad(PadMode::Edge), &[Some(x.clone()), None])),
        vectors(call("nn.pad", pad(PadMode::Reflect), &[Some(x.clone()), None])),
        vectors(call("nn.pad", pad(PadMode::Wrap), &[Some(x.clone()), None])),
        vectors(call("strided_slice", backwards, &[Some(x.clone())])),
        vectors(call("image.resize2d", resize([12, 74], nearest), &[Some(x.clone())])),
        vectors(call("image.resize2d", resize([5, 53], nearest), &[Some(x)])),
    ];
    // Rows that only a narrow vector fits in, or none.
    let narrow = sample(&[1, 3, 6, 10], 1);
    cases.push(vectors(call("image.resize2d", resize([9, 30], nearest), &[Some(narrow)])));
    let short = sample(&[1, 3, 2, 3], 1);
    cases.push(call("image.resize2d", resize([5, 19], nearest), &[Some(short)]));
    check_all(&cases, &runnable_levels());
}

#[test]
fn planes_of_few_channels_are_convolved_along_rows() {
    let mut cases = Vec::new();
    for (image, weights, stride) in [
        ([2, 5, 7, 40], [2, 5, 3, 3], 1),
        ([1, 3, 9, 75], [3, 3, 3, 5], 2),
        ([1, 24, 6, 8], [1, 24, 1, 1], 1),
        ([1, 1, 5, 130], [1, 1, 3, 3], 1),
    ] {
        let attrs = ConvAttrs {
            strides: vec![stride; 2],
            padding: vec![1, weights[3] as i64 / 2, 1, 0],
            ..ConvAttrs::of_rank(2)
        };
        let args = [sample(&image, 1), sample(&weights, 2)].map(Some);
        cases.push(call("nn.conv2d", attrs, &[&args[..], &[None]].concat()));
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn masks_are_read_and_written_in_vectors() {
    let [a, b] = [1, 2].map(|seed| sample(&[3, 70], seed));
    let bits = (0..210).map(|i| i128::from(i % 3 == 0)).collect();
    let mask = Tensor::from_ints(DType::Bool, &[3, 70], bits).unwrap();
    let cases = [
        vectors(call("greater", (), &[Some(a.clone()), Some(b.clone())])),
        vectors(call("where", (), &[Some(mask.clone()), Some(a), Some(b)])),
        vectors(call("logical_not", (), &[Some(mask)])),
    ];
    check_all(&cases, &runnable_levels());
}

#[test]
fn the_best_of_a_line_come_in_order_however_many() {
    // Every number four times, and numbers that are none: of equals, the first comes first.
    let mut values: Vec<f64> = (0..600).map(|i| f64::from(i * 7919 % 150)).collect();
    values[17] = f64::NAN;
    values[450] = f64::NAN;
    values[3] = f64::NEG_INFINITY;
    let line = floats(DType::F32, &[600], &values);
    let lines = floats(DType::F32, &[300, 2], &values);
    let whole: Vec<i128> = values.iter().map(|value| *value as i128).collect();
    let ints = Tensor::from_ints(DType::I32, &[2, 300], whole).unwrap();
    let mut cases = Vec::new();
    for largest in [true, false] {
        for (x, axis, counts) in [
            (&line, 0, vec![0, 1, 5, 128, 129, 600]),
            (&lines, 0, vec![3, 299, 300]),
            (&lines, 1, vec![1, 2]),
            (&ints, 1, vec![7, 200]),
        ] {
            let with =
                |k| call("topk", TopkAttrs { k: Dim::from(k), axis, largest }, &[Some(x.clone())]);
            cases.extend(counts.into_iter().map(with));
        }
        // From the least to the greatest number of a type, and both zeros.
        for dtype in [DType::I8, DType::U8, DType::U32, DType::I64, DType::U64] {
            let (least, greatest) = dtype.int_range().unwrap();
            let values = (0..9).map(|i| least + (greatest - least) / 8 * (i * 5 % 9)).collect();
            let x = Tensor::from_ints(dtype, &[9], values).unwrap();
            cases.push(call("topk", TopkAttrs { k: 5.into(), axis: 0, largest }, &[Some(x)]));
        }
        let values = [0.0, -0.0, 1.0, -1e300, f64::INFINITY, -2.5, f64::NAN, -0.0, 0.0, 1e300];
        for dtype in [DType::F16, DType::F32, DType::F64] {
            let x = floats(dtype, &[10], &values);
            cases.push(call("topk", TopkAttrs { k: 9.into(), axis: 0, largest }, &[Some(x)]));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn sums_up_to_each_element_are_made_of_the_one_before() {
    let mut cases = Vec::new();
    for (axis, exclusive, reverse) in
        [(0, false, false), (1, true, false), (1, false, true), (2, true, true), (2, false, false)]
    {
        let attrs = CumulativeAttrs { axis, exclusive, reverse };
        for shape in [[3, 5, 40], [1, 1, 1], [2, 0, 3]] {
            for op in ["cumsum", "cumprod"] {
                let x = sample(&shape, 1);
                cases.push(call(op, attrs.clone(), &[Some(x)]));
            }
        }
    }
    let halves: Vec<f64> = (0..60).map(|i| f64::from(i % 7) / 8.0).collect();
    let attrs = CumulativeAttrs { axis: 1, exclusive: false, reverse: false };
    cases.push(call("cumsum", attrs.clone(), &[Some(floats(DType::F16, &[3, 20], &halves))]));
    let ints = (0..60).map(|i| i128::from(i) << 25).collect();
    let ints = Tensor::from_ints(DType::I32, &[3, 20], ints).unwrap();
    cases.push(call("cumsum", attrs, &[Some(ints)]));
    check_all(&cases, &runnable_levels());
}

#[test]
fn trees_lead_rows_in_blocks_and_one_by_one() {
    // Trees of any numbers: what lies outside counts as the nearest.
    let some = |count: usize, step: usize, range: usize| -> Vec<f64> {
        (0..count).map(|i| ((i * step) % range) as f64 - 3.0).collect()
    };
    let whole = |count, step, range| -> Vec<i128> {
        some(count, step, range).into_iter().map(|value| value as i128).collect()
    };
    let mut cases = Vec::new();
    for (trees, dtype) in [(1, DType::F32), (16, DType::F64), (37, DType::F32)] {
        let mut x = some(15, 7, 11);
        x[4] = f64::NAN;
        let mut threshold = some(20, 3, 7);
        threshold[9] = f64::NAN;
        let args = [
            floats(dtype, &[5, 3], &x),
            ints(DType::I32, &[20], &whole(20, 5, 9)),
            floats(dtype, &[20], &threshold),
            ints(DType::I32, &[20, 2], &whole(40, 11, 29)),
            ints(DType::I32, &[trees], &whole(trees, 13, 24)),
        ];
        for depth in [0, 1, 6] {
            let args: Vec<_> = args.iter().cloned().map(Some).collect();
            cases.push(call("tree_traverse", TreeTraverseAttrs { depth }, &args));
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn complete_trees_yield_the_same_in_every_form() {
    let some = |count: usize, step: usize, range: usize| -> Vec<f64> {
        (0..count).map(|i| ((i * step) % range) as f64 / 4.0 - 1.0).collect()
    };
    let mut cases = Vec::new();
    // One row and tree, as many as go side by side, and with a rest; leaves with rows of numbers; rows
    // in parts.
    let shapes = [(1, 1, 3, None), (5, 1, 1, None), (1, 19, 4, None), (16, 8, 4, None)];
    for (rows, trees, depth, width) in
        shapes.into_iter().chain([(37, 11, 3, Some(3)), (515, 2, 2, None)])
    {
        let (nodes, leaves) = ((1 << depth) - 1, 1 << depth);
        let dtypes = [(DType::F32, DType::U8), (DType::F64, DType::I32)];
        for (dtype, index) in dtypes {
            let mut x = some(rows * 5, 7, 13);
            x[rows / 2] = f64::NAN;
            let mut threshold = some(trees * nodes, 11, 9);
            threshold[nodes - 1] = f64::NAN;
            // What lies outside counts as the nearest.
            let least = if index == DType::U8 { 0 } else { -2 };
            let feature: Vec<i128> =
                (0..trees * nodes).map(|i| ((i * 5) % 9) as i128 + least).collect();
            let ends: Vec<usize> = [trees, leaves].into_iter().chain(width).collect();
            let count = ends.iter().product();
            // Sums that no order but the one is equal to.
            let values: Vec<f64> = (0..count).map(|i| 1.0 / (i * 17 % 29 + 3) as f64).collect();
            let args = [
                floats(dtype, &[rows, 5], &x),
                ints(index, &[trees, nodes], &feature),
                floats(dtype, &[trees, nodes], &threshold),
                floats(dtype, &ends, &values),
            ];
            let ways = (0..=depth).map(|levels| (TreeForm::Chains, levels));
            for (form, levels) in ways.chain([(TreeForm::Branches, 0)]) {
                let args: Vec<_> = args.iter().cloned().map(Some).collect();
                let attrs = TreeSumAttrs { form, levels, at_least: rows % 2 == 0 };
                cases.push(call("tree_sum", attrs, &args));
            }
        }
    }
    check_all(&cases, &runnable_levels());
}

#[test]
fn pixels_of_few_channels_are_in_vectors_with_what_is_read_for_each_channel() {
    // Whole periods of a vector's lanes, whole vectors behind them, and single elements.
    for (batch, pixels, channels) in [(1, 64, 3), (2, 77, 3), (1, 37, 2), (2, 130, 19), (3, 150, 5)]
    {
        let shape = [batch, pixels, channels];
        let mut net = Net::new();
        let (x, mean) = (net.param(&shape), net.param(&[channels]));
        // One for each image and channel as well.
        let scale = net.param(&[batch, 1, channels]);
        let y = net.plain("subtract", &[x, mean]);
        let y = net.plain("multiply", &[y, scale]);
        let args = [dense(&shape), dense(&[channels]), dense(&[batch, 1, channels])];
        check_vectors(&net.finish(y), &args, &[dense(&shape)]);
    }
    // Nothing that lies in pixels is read, and two results are stored.
    let mut net = Net::new();
    let x = net.param(&[3]);
    let wide = Attrs::new().with("shape", vec![40, 3]);
    let y = net.call("broadcast_to", &[x], wide);
    let z = net.plain("nn.relu", &[y]);
    let both = net.b.tuple(&[y, z]);
    check_vectors(&net.finish(both), &[dense(&[3])], &[dense(&[40, 3]), dense(&[40, 3])]);
}

/// What is padded is read within its bounds, which the interpreter of loops checks.
#[test]
fn nothing_is_read_ahead_of_the_condition_that_guards_it() {
    let (border, shape) = ([4, 1, 3], [6, 100, 3]);
    let pads = PadAttrs { pad_width: vec![[1, 1], [0, 0], [0, 0]], mode: PadMode::Constant };
    for function in ["nn.relu", "sin"] {
        let mut net = Net::new();
        let (x, y) = (net.param(&border), net.param(&shape));
        let padded = net.call("nn.pad", &[x], Attrs::from_struct(&pads).unwrap());
        let sum = net.plain("add", &[padded, y]);
        let z = net.plain(function, &[sum]);
        let args = [dense(&border), dense(&shape)].map(Arg::Input);
        let case = case(&net.finish(z), &args, &[dense(&shape)]);
        let (kernel, buffers) = case.schedule(&runnable_levels());
        for version in &kernel.versions {
            let mut buffers = buffers.clone();
            interpret(version, &mut buffers, &[]).unwrap();
            case.compare(&buffers, function);
        }
    }
}

#[test]
fn planes_that_are_resized_to_blocks_are_blocks_before() {
    let (from, to) = ([1, 20, 6, 10], [1, 20, 9, 11]);
    for method in [ResizeMethod::NearestNeighbor, ResizeMethod::Linear, ResizeMethod::Cubic] {
        let mut net = Net::new();
        let x = net.param(&from);
        let attrs = Attrs::from_struct(&resize([to[2], to[3]], method)).unwrap();
        let y = net.call("image.resize2d", &[x], attrs);
        check_vectors(&net.finish(y), &[dense(&from)], &[blocked(&to, &[(1, 1), (0, 1)])]);
    }
}
