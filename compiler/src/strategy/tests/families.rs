//! Operators with the attributes and values that one call of each does not cover.

use serde::Serialize;

use super::{Arg, Case, Net, check_all, dense, sample};
use crate::codegen::testing::runnable_levels;
use crate::graph::FunctionBuilder;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, BufferSpec, Constant, DType, Dim, TensorType, Type};
use crate::ops::Op;
use crate::ops::elementwise::ClipAttrs;
use crate::ops::nn::{
    AvgPoolAttrs, BatchNormAttrs, ConvAttrs, GroupNormAttrs, InstanceNormAttrs, L2NormalizeAttrs,
    LayerNormAttrs, LrnAttrs, MaxPoolAttrs, PadAttrs, PadMode, RmsNormAttrs,
};
use crate::ops::reduce::{ArgReduceAttrs, ReduceAttrs};
use crate::ops::tensor::{
    CoordinateTransformation, FullAttrs, LayoutTransformAttrs, NearestRounding, OneHotAttrs,
    Resize2dAttrs, ResizeMethod, ShapeOfAttrs, StridedSliceAttrs, TakeAttrs, TakeMode,
};

/// A call of one operator.
pub(super) fn call(op: &str, attrs: impl Serialize, args: &[Option<Tensor>]) -> Case {
    call_with(op, Attrs::from_struct(&attrs).unwrap(), args)
}

fn call_with(op: &str, attrs: Attrs, args: &[Option<Tensor>]) -> Case {
    let mut b = FunctionBuilder::new();
    let params: Vec<_> =
        args.iter().map(|arg| arg.as_ref().map(|tensor| b.param("x", tensor.ty()))).collect();
    let result = b.call_optional(Op::get(op).unwrap(), params, attrs.clone()).unwrap();
    let layout = |ty: &TensorType| {
        let extents = ty.shape.as_consts().unwrap();
        BufferSpec::dense(&extents.iter().map(|&d| d as i64).collect::<Vec<_>>())
    };
    let fields = match b.ty(result).as_tuple() {
        Some(fields) => fields.to_vec(),
        None => vec![b.ty(result).clone()],
    };
    let tensors: Vec<Tensor> = args.iter().flatten().cloned().collect();
    Case {
        name: format!("`{op}` with {attrs:?}"),
        function: b.finish(result),
        args: tensors.iter().map(|tensor| Arg::Input(layout(&tensor.ty()))).collect(),
        results: fields.iter().filter_map(Type::as_tensor).map(layout).collect(),
        tensors,
    }
}

fn plain(op: &str, args: &[Tensor]) -> Case {
    call(op, (), &args.iter().cloned().map(Some).collect::<Vec<_>>())
}

fn check(cases: &[Case]) {
    check_all(cases, &runnable_levels());
}

pub(super) fn floats(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_floats(dtype, shape, values.to_vec()).unwrap()
}

pub(super) fn ints(dtype: DType, shape: &[usize], values: &[i128]) -> Tensor {
    Tensor::from_ints(dtype, shape, values.to_vec()).unwrap()
}

/// Two vectors with every pair of the values.
fn pairs(dtype: DType, a: &[i128], b: &[i128]) -> [Tensor; 2] {
    let (left, right): (Vec<i128>, Vec<i128>) =
        a.iter().flat_map(|&a| b.iter().map(move |&b| (a, b))).unzip();
    [ints(dtype, &[left.len()], &left), ints(dtype, &[right.len()], &right)]
}

#[test]
fn remainders_have_the_sign_they_should() {
    let mut cases = Vec::new();
    for op in ["mod", "floor_mod"] {
        for dtype in [DType::I8, DType::I32, DType::I64] {
            cases.push(plain(op, &pairs(dtype, &[-7, -6, 0, 5, 127, -128], &[-3, -1, 1, 4])));
        }
        cases.push(plain(op, &pairs(DType::U8, &[0, 7, 200, 255], &[1, 3, 250])));
        for dtype in [DType::F32, DType::F64] {
            let a = [-4.5, -4.0, -0.5, 0.0, 4.25, 7.0, f64::INFINITY, f64::NAN, 3.0];
            let b = [2.0, -2.0, -3.0, 2.0, -1.5, 3.5, 2.0, 1.0, f64::INFINITY];
            cases.push(plain(op, &[floats(dtype, &[9], &a), floats(dtype, &[9], &b)]));
        }
    }
    check(&cases);
}

#[test]
fn shifts_and_bits() {
    let mut cases = Vec::new();
    for op in ["left_shift", "right_shift"] {
        for dtype in [DType::U8, DType::U32, DType::U64] {
            cases.push(plain(op, &pairs(dtype, &[1, 3, 200], &[0, 1, 7, 31, 40, 64, 255])));
        }
        for dtype in [DType::I16, DType::I32, DType::I64] {
            cases.push(plain(op, &pairs(dtype, &[1, -3, 300], &[0, 1, 15, 31, 64, -1])));
        }
    }
    for op in ["bitwise_and", "bitwise_or", "bitwise_xor"] {
        for dtype in [DType::I8, DType::U16, DType::I64] {
            cases.push(plain(op, &pairs(dtype, &[0, 5, 100], &[1, 3, 127])));
        }
    }
    for dtype in [DType::I8, DType::U8, DType::I32, DType::U64] {
        cases.push(plain("bitwise_not", &[ints(dtype, &[5], &[0, 1, 2, 100, 127])]));
    }
    check(&cases);
}

#[test]
fn integer_powers_wrap_and_floats_are_classified() {
    let mut cases = Vec::new();
    for dtype in [DType::I8, DType::I32, DType::I64] {
        // Zero to a negative power is not defined.
        cases.push(plain("power", &pairs(dtype, &[-2, -1, 1, 3, 7], &[-2, -1, 0, 1, 2, 5, 31])));
        cases.push(plain("power", &pairs(dtype, &[0], &[0, 1, 9])));
    }
    cases.push(plain("power", &pairs(DType::U8, &[0, 1, 2, 3, 255], &[0, 1, 7, 8, 255])));
    let special = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -3.0, 1e30, -1e30];
    for op in ["isnan", "isinf"] {
        for dtype in [DType::F32, DType::F64] {
            cases.push(plain(op, &[floats(dtype, &[9], &special)]));
        }
    }
    check(&cases);
}

#[test]
fn a_constant_exponent_is_a_few_products() {
    for exponent in [0i64, 1, 2, 5, -1] {
        let mut b = FunctionBuilder::new();
        let x = b.param("x", Type::tensor(&[6], DType::I64));
        let power = b.constant(Constant::from_i64(&[], &[exponent]).unwrap());
        let result = b.call(Op::get("power").unwrap(), &[x, power], Attrs::new()).unwrap();
        let case = Case {
            name: format!("power of {exponent}"),
            function: b.finish(result),
            tensors: vec![ints(DType::I64, &[6], &[-3, -1, 1, 2, 7, 100_000])],
            args: vec![Arg::Input(BufferSpec::dense(&[6]))],
            results: vec![BufferSpec::dense(&[6])],
        };
        check(&[case]);
    }
}

#[test]
fn soft_plus_keeps_small_results_exact() {
    let values = [-40.0, -20.0, -12.5, -3.0, -0.0, 0.5, 3.0, 20.0, 100.0, -1000.0, f64::NAN];
    for op in ["nn.softplus", "nn.mish"] {
        for dtype in [DType::F32, DType::F64] {
            let case = plain(op, &[floats(dtype, &[11], &values)]);
            let expected = case.expected();
            let found = check_all(&[case], &runnable_levels());
            // The comparison allows an absolute error; this expression must do better than that.
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
            let pairs = found[0][0].floats().unwrap().iter().zip(expected[0].floats().unwrap());
            for (found, expected) in pairs.take(8) {
                assert!((found - expected).abs() <= tolerance * expected.abs(), "{found}");
            }
        }
    }
}

#[test]
fn clips_of_integers_stay_in_their_type() {
    let mut cases = Vec::new();
    for (min, max) in
        [(Some(-5.0), Some(1e9)), (Some(3.5), None), (None, Some(7.5)), (Some(9.0), Some(4.0))]
    {
        let values = [0, 3, 4, 7, 8, 100];
        for dtype in [DType::U8, DType::I8, DType::I32, DType::U64] {
            cases.push(call("clip", ClipAttrs { min, max }, &[Some(ints(dtype, &[6], &values))]));
        }
    }
    check(&cases);
}

#[test]
fn clips_of_floats_have_fractions_as_bounds() {
    let values = [-1.0, 1e-5, 0.3, 0.99, 1.0, f64::NAN];
    let cases: Vec<Case> = [DType::F32, DType::F64]
        .into_iter()
        .map(|dtype| {
            let attrs = ClipAttrs { min: Some(1e-4), max: Some(0.9999) };
            call("clip", attrs, &[Some(floats(dtype, &[6], &values))])
        })
        .collect();
    check(&cases);
}

#[test]
fn extremes_are_found_first_or_last_and_not_a_number_before_all() {
    let mut cases = Vec::new();
    let nan = f64::NAN;
    let values = [1.0, 3.0, 3.0, -1.0, nan, 5.0, nan, 0.0, -2.0, -2.0, 4.0, 4.0];
    for op in ["argmax", "argmin"] {
        for select_last_index in [false, true] {
            for (axis, keepdims) in [(0, true), (-1, false)] {
                let attrs = ArgReduceAttrs { axis, keepdims, select_last_index };
                for dtype in [DType::F32, DType::F64] {
                    cases.push(call(op, attrs.clone(), &[Some(floats(dtype, &[3, 4], &values))]));
                }
                let values = [5, 5, 1, 1, 0, 255, 255, 0, 7, 7, 7, 7];
                cases.push(call(op, attrs, &[Some(ints(DType::U8, &[3, 4], &values))]));
            }
        }
    }
    // Wide enough for vectors along what is kept.
    let attrs = ArgReduceAttrs { axis: 1, keepdims: false, select_last_index: false };
    cases.push(call("argmax", attrs, &[Some(sample(&[2, 9, 40], 3))]));
    check(&cases);
}

#[test]
fn extremes_of_what_is_rounded_where_it_is_stored_are_found() {
    // Powers of two that are multiplied with an odd number: what is rounded away decides nothing.
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for op in ["argmax", "argmin"] {
            let mut net = Net::new();
            let values = |count: usize, of: &dyn Fn(usize) -> f64| -> Vec<f64> {
                (0..count).map(of).collect()
            };
            let x = floats(dtype, &[5, 33], &values(165, &|i| (1 << (i * 7 % 5)) as f64));
            let by = floats(dtype, &[33], &values(33, &|i| 1.0 + (i * 5 % 11) as f64 / 128.0));
            let [p, q] = [&x, &by].map(|tensor| net.b.param("x", tensor.ty()));
            let y = net.plain("divide", &[p, q]);
            let y = net.call(
                op,
                &[y],
                Attrs::from_struct(&ArgReduceAttrs {
                    axis: 1,
                    keepdims: false,
                    select_last_index: false,
                })
                .unwrap(),
            );
            cases.push(Case {
                name: format!("{op} of {dtype}"),
                function: net.finish(y),
                args: vec![Arg::Input(dense(&[5, 33])), Arg::Input(dense(&[33]))],
                results: vec![dense(&[5])],
                tensors: vec![x, by],
            });
        }
    }
    check(&cases);
}

#[test]
fn slices_that_go_backwards_begin_within() {
    let x = sample(&[3, 5], 1);
    let backwards = |begin: i64, stride: i64| StridedSliceAttrs {
        begin: vec![begin],
        end: vec![i64::MIN],
        strides: vec![stride],
        axes: vec![1],
    };
    let starts = [(-100, -1), (-100, -2), (-5, -1), (100, -2), (3, -3)];
    let cases = starts
        .map(|(begin, stride)| call("strided_slice", backwards(begin, stride), &[Some(x.clone())]));
    check(&cases);
}

#[test]
fn reductions_of_booleans_of_narrow_integers_and_of_nothing() {
    let over = |axis: &[i64], keepdims| ReduceAttrs { axis: axis.to_vec(), keepdims };
    let mut cases = Vec::new();
    for op in ["max", "min"] {
        let values = [1, 0, 0, 0, 1, 1];
        for axis in [0, 1] {
            cases.push(call(
                op,
                over(&[axis], false),
                &[Some(ints(DType::Bool, &[2, 3], &values))],
            ));
        }
        cases.push(call(op, over(&[0], true), &[Some(ints(DType::Bool, &[0, 3], &[]))]));
        cases.push(call(op, over(&[0], true), &[Some(ints(DType::U64, &[0, 3], &[]))]));
    }
    for op in ["sum", "prod", "max", "min", "mean"] {
        cases.push(call(op, over(&[1], false), &[Some(floats(DType::F32, &[3, 0, 2], &[]))]));
    }
    // The sum leaves the type, the mean does not.
    let values = [100, 120, 127, -128, -128, -100];
    cases.push(call("mean", over(&[1], true), &[Some(ints(DType::I8, &[2, 3], &values))]));
    cases.push(call("sum", over(&[1], true), &[Some(ints(DType::I8, &[2, 3], &values))]));
    let values = [250, 251, 3, 255, 255, 255];
    cases.push(call("mean", over(&[], false), &[Some(ints(DType::U8, &[2, 3], &values))]));
    check(&cases);
}

#[test]
fn convolutions_along_one_and_three_axes() {
    let mut cases = Vec::new();
    for (groups, bias) in [(1, None), (2, Some(sample(&[6], 5)))] {
        let conv = ConvAttrs {
            strides: vec![2],
            padding: vec![2, 1],
            dilation: vec![2],
            groups,
            ..ConvAttrs::of_rank(1)
        };
        let channels = 4 / groups as usize;
        let args = [Some(sample(&[2, 4, 19], 1)), Some(sample(&[6, channels, 3], 2)), bias.clone()];
        cases.push(call("nn.conv1d", conv, &args));
        let conv = ConvAttrs {
            strides: vec![1, 2, 1],
            padding: vec![1, 0, 1, 0, 1, 1],
            dilation: vec![1, 1, 2],
            groups,
            ..ConvAttrs::of_rank(3)
        };
        let args =
            [Some(sample(&[1, 4, 3, 5, 8], 1)), Some(sample(&[6, channels, 2, 2, 3], 2)), bias];
        cases.push(call("nn.conv3d", conv, &args));
    }
    check(&cases);
}

#[test]
fn pools_along_one_and_three_axes() {
    let mut cases = Vec::new();
    let (line, volume) = (sample(&[1, 3, 23], 1), sample(&[1, 2, 5, 6, 9], 2));
    for ceil_mode in [false, true] {
        let pool = MaxPoolAttrs {
            pool_size: vec![3],
            strides: vec![2],
            padding: vec![1, 0],
            dilation: vec![2],
            ceil_mode,
        };
        cases.push(call("nn.max_pool1d", pool, &[Some(line.clone())]));
        let pool = MaxPoolAttrs {
            pool_size: vec![2, 3, 2],
            strides: vec![1, 2, 3],
            padding: vec![1, 1, 0, 0, 1, 1],
            dilation: vec![1, 1, 2],
            ceil_mode,
        };
        cases.push(call("nn.max_pool3d", pool, &[Some(volume.clone())]));
        for count_include_pad in [false, true] {
            let pool = AvgPoolAttrs {
                pool_size: vec![4],
                strides: vec![3],
                padding: vec![2, 3],
                dilation: vec![1],
                ceil_mode,
                count_include_pad,
            };
            cases.push(call("nn.avg_pool1d", pool, &[Some(line.clone())]));
            let pool = AvgPoolAttrs {
                pool_size: vec![2, 3, 2],
                strides: vec![2, 2, 3],
                padding: vec![1, 1, 0, 0, 1, 1],
                dilation: vec![1, 1, 2],
                ceil_mode,
                count_include_pad,
            };
            cases.push(call("nn.avg_pool3d", pool, &[Some(volume.clone())]));
        }
    }
    let bytes = ints(DType::U8, &[1, 1, 7], &[3, 200, 7, 255, 0, 0, 1]);
    let pool = MaxPoolAttrs::of_size(&[3]);
    cases.push(call("nn.max_pool1d", pool, &[Some(bytes)]));
    check(&cases);
}

#[test]
fn layouts_of_blocks() {
    let mut cases = Vec::new();
    for (shape, src, dst) in [
        (&[2, 32, 5, 3][..], "NCHW", "NCHW16c"),
        (&[2, 2, 5, 3, 16], "NCHW16c", "NCHW"),
        (&[2, 2, 5, 3, 16], "NCHW16c", "NCHW8c"),
        (&[1, 4, 5, 8], "NCW8c", "NWC16c"),
        (&[8, 12, 3, 3], "OIHW", "OIHW2i4o3i"),
        (&[3, 4, 5], "ABC", "CBA"),
    ] {
        let attrs = LayoutTransformAttrs { src_layout: src.into(), dst_layout: dst.into() };
        cases.push(call("layout_transform", attrs, &[Some(sample(shape, 1))]));
    }
    check(&cases);
}

#[test]
fn convolutions_and_pools_in_other_layouts() {
    fn of(attrs: &impl Serialize, layouts: &[(&str, &str)]) -> Attrs {
        let attrs = Attrs::from_struct(attrs).unwrap();
        layouts.iter().fold(attrs, |attrs, (name, layout)| attrs.with(name, *layout))
    }
    let conv = ConvAttrs {
        strides: vec![2, 1],
        padding: vec![1, 0, 1, 2],
        groups: 2,
        ..ConvAttrs::of_rank(2)
    };
    let bias = Some(sample(&[6], 3));
    let mut cases = Vec::new();
    for (data, x, kernel, w) in [
        ("NHWC", &[2, 7, 9, 4], "HWIO", &[3, 3, 2, 6][..]),
        ("NHWC", &[2, 7, 9, 4], "OHWI", &[6, 3, 3, 2]),
        ("HWCN", &[7, 9, 4, 2], "OIHW2i3o", &[2, 1, 3, 3, 2, 3]),
    ] {
        let attrs = of(&conv, &[("data_layout", data), ("kernel_layout", kernel)]);
        let args = [Some(sample(x, 1)), Some(sample(w, 2)), bias.clone()];
        cases.push(call_with("nn.conv2d", attrs, &args));
    }
    let plain = ConvAttrs { padding: vec![1; 4], ..ConvAttrs::of_rank(2) };
    let layouts = [("data_layout", "NCHW4c"), ("kernel_layout", "OIHW4i4o")];
    let args = [Some(sample(&[1, 2, 5, 6, 4], 1)), Some(sample(&[2, 2, 3, 3, 4, 4], 2)), None];
    cases.push(call_with("nn.conv2d", of(&plain, &layouts), &args));
    let line = of(&ConvAttrs::of_rank(1), &[("data_layout", "NWC")]);
    let args = [Some(sample(&[1, 8, 3], 1)), Some(sample(&[5, 3, 2], 2)), None];
    cases.push(call_with("nn.conv1d", line, &args));
    let image = [Some(sample(&[1, 7, 5, 6], 4))];
    let layout = [("layout", "NHWC")];
    cases.push(call_with("nn.max_pool2d", of(&MaxPoolAttrs::of_size(&[3, 2]), &layout), &image));
    cases.push(call_with("nn.avg_pool2d", of(&AvgPoolAttrs::of_size(&[2, 3]), &layout), &image));
    cases.push(call_with("nn.global_avg_pool2d", of(&(), &layout), &image));
    check(&cases);
}

#[test]
fn normalisation_over_axes_and_channels() {
    let mut cases = Vec::new();
    for (axis, scale) in [(-1, vec![17]), (1, vec![5, 17]), (0, vec![]), (2, vec![5, 1])] {
        let norm = LayerNormAttrs { axis, epsilon: 1e-5 };
        let x = Some(sample(&[3, 5, 17], 1));
        let (gamma, beta) = (sample(&scale, 2), sample(&[17], 3));
        cases.push(call("nn.layer_norm", norm.clone(), &[x.clone(), Some(gamma), Some(beta)]));
        cases.push(call("nn.layer_norm", norm, &[x, None, None]));
    }
    // A mean that is large beside the deviation.
    let far: Vec<f64> = (0..20).map(|i| 1000.0 + f64::from(i % 4) / 4.0).collect();
    let norm = LayerNormAttrs { axis: -1, epsilon: 1e-5 };
    cases.push(call("nn.layer_norm", norm, &[Some(floats(DType::F32, &[2, 10], &far))]));
    for (center, scale) in [(true, true), (true, false), (false, true), (false, false)] {
        let norm = BatchNormAttrs { center, scale, ..BatchNormAttrs::new(1, 1e-5) };
        let variance = floats(DType::F32, &[5], &[0.5, 1.0, 2.0, 0.25, 3.0]);
        let [gamma, beta, mean] = [1, 2, 3].map(|seed| Some(sample(&[5], seed)));
        let args = [Some(sample(&[3, 5, 17], 1)), gamma, beta, mean, Some(variance)];
        cases.push(call("nn.batch_norm", norm, &args));
    }
    for axis in [1, 2, -1] {
        let x = Some(sample(&[2, 6, 12, 18], 1));
        let channels = if axis == 1 {
            6
        } else if axis == 2 {
            12
        } else {
            18
        };
        let [gamma, beta] = [2, 3].map(|seed| Some(sample(&[channels], seed)));
        let norm = InstanceNormAttrs { axis, epsilon: 1e-5 };
        cases.push(call("nn.instance_norm", norm, &[x.clone(), None, beta.clone()]));
        for num_groups in [1, 3, channels as i64] {
            let norm = GroupNormAttrs { num_groups, axis, epsilon: 1e-5 };
            cases.push(call("nn.group_norm", norm, &[x.clone(), gamma.clone(), beta.clone()]));
        }
        let norm = RmsNormAttrs { axis, epsilon: 1e-5 };
        cases.push(call("nn.rms_norm", norm, &[x.clone(), Some(sample(&[12, 1], 2))]));
        let norm = L2NormalizeAttrs { eps: 1e-12, axis: vec![axis, 0] };
        cases.push(call("nn.l2_normalize", norm, &[x]));
    }
    for size in [1, 2, 5, 100] {
        let lrn = LrnAttrs { size, alpha: 0.5, beta: 0.75, bias: 1.5 };
        cases.push(call("nn.lrn", lrn, &[Some(sample(&[2, 7, 3, 5], 1))]));
    }
    check(&cases);
}

#[test]
fn padding_of_every_mode() {
    let mut cases = Vec::new();
    let fill = Some(floats(DType::F32, &[], &[7.5]));
    for mode in [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap] {
        for pad_width in [
            vec![[0, 0], [2, 3], [1, 0]],
            // More than there is to mirror or repeat, and elements that are removed.
            vec![[1, 2], [11, 9], [-1, 5]],
            vec![[0, -1], [-2, 0], [0, 0]],
        ] {
            let x = Some(sample(&[2, 4, 5], 1));
            let pad = PadAttrs { pad_width, mode };
            if mode == PadMode::Constant {
                cases.push(call("nn.pad", pad.clone(), &[x.clone(), fill.clone()]));
            }
            cases.push(call("nn.pad", pad, &[x]));
        }
        // One element is its own mirror image.
        let pad = PadAttrs { pad_width: vec![[3, 2]], mode };
        cases.push(call("nn.pad", pad, &[Some(ints(DType::I64, &[1], &[9]))]));
    }
    check(&cases);
}

#[test]
fn indices_that_are_data() {
    let mut cases = Vec::new();
    let x = Some(sample(&[3, 5, 4], 1));
    let within = [0, -1, 4, -5, 2, 2];
    let beyond = [-9, 17, 4, 100, -1, 5];
    for (mode, values) in
        [(TakeMode::Fast, within), (TakeMode::Clip, beyond), (TakeMode::Wrap, beyond)]
    {
        for dtype in [DType::I8, DType::I32, DType::I64] {
            let take = TakeAttrs { axis: 1, mode };
            cases.push(call("take", take, &[x.clone(), Some(ints(dtype, &[2, 3], &values))]));
        }
        if mode != TakeMode::Fast {
            let take = TakeAttrs { axis: -1, mode };
            let values = [0, 3, 4, u64::MAX.into()];
            cases.push(call("take", take, &[x.clone(), Some(ints(DType::U64, &[4], &values))]));
        }
    }
    for axis in [0, 1, -1] {
        let one_hot = OneHotAttrs { depth: 5.into(), axis };
        let [on, off] = [3.5, -1.0].map(|v| Some(floats(DType::F32, &[], &[v])));
        let which = Some(ints(DType::I64, &[2, 3], &[0, -1, 4, 5, -6, 2]));
        cases.push(call("one_hot", one_hot.clone(), &[which, on, off]));
        let [on, off] = [1, 0].map(|v| Some(ints(DType::Bool, &[], &[v])));
        let which = Some(ints(DType::U64, &[3], &[1, 4, u64::MAX.into()]));
        let axis = axis.min(1);
        cases.push(call("one_hot", OneHotAttrs { axis, ..one_hot }, &[which, on, off]));
    }
    check(&cases);
}

#[test]
fn tensors_that_tell_of_others() {
    let x = sample(&[3, 1, 7], 1);
    let shape = |dtype| ShapeOfAttrs { dtype };
    let scalar = Some(floats(DType::F64, &[], &[2.5]));
    let full = FullAttrs { shape: [4, 9].map(Dim::from).to_vec() };
    check(&[
        call("shape_of", shape(DType::I64), &[Some(x.clone())]),
        call("shape_of", shape(DType::I32), std::slice::from_ref(&scalar)),
        call("ndarray_size", shape(DType::U8), &[Some(x)]),
        call("ndarray_size", shape(DType::I64), &[Some(floats(DType::F32, &[2, 0], &[]))]),
        call("full", full, &[scalar]),
    ]);
}

/// Attributes of a resize to a size.
pub(super) fn resize(size: [i64; 2], method: ResizeMethod) -> Resize2dAttrs {
    Resize2dAttrs {
        size: size.map(Dim::from),
        scale: None,
        method,
        coordinate_transformation_mode: CoordinateTransformation::HalfPixel,
        rounding_method: NearestRounding::RoundPreferFloor,
        cubic_alpha: -0.75,
        cubic_exclude: false,
        antialias: false,
        roi: None,
        extrapolation_value: 0.0,
    }
}

const PLACES: [CoordinateTransformation; 4] = [
    CoordinateTransformation::HalfPixel,
    CoordinateTransformation::PytorchHalfPixel,
    CoordinateTransformation::AlignCorners,
    CoordinateTransformation::Asymmetric,
];

#[test]
fn images_by_the_nearest_element() {
    let mut cases = Vec::new();
    let image = sample(&[1, 2, 6, 5], 1);
    for coordinate_transformation_mode in PLACES {
        for rounding_method in [
            NearestRounding::RoundPreferFloor,
            NearestRounding::RoundPreferCeil,
            NearestRounding::Floor,
            NearestRounding::Ceil,
        ] {
            // Whole factors, a scale that is not the quotient of the sizes, one row.
            for (size, scale) in
                [([12, 15], None), ([4, 7], Some([0.7, 1.45])), ([1, 3], None), ([9, 2], None)]
            {
                let attrs = Resize2dAttrs {
                    scale,
                    coordinate_transformation_mode,
                    rounding_method,
                    ..resize(size, ResizeMethod::NearestNeighbor)
                };
                cases.push(call("image.resize2d", attrs, &[Some(image.clone())]));
            }
        }
    }
    let bytes: Vec<i128> = (0..12).collect();
    let attrs = resize([6, 2], ResizeMethod::NearestNeighbor);
    cases.push(call("image.resize2d", attrs, &[Some(ints(DType::U8, &[1, 1, 3, 4], &bytes))]));
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}

#[test]
fn images_by_interpolation() {
    let mut cases = Vec::new();
    let image = sample(&[2, 1, 6, 5], 1);
    for method in [ResizeMethod::Linear, ResizeMethod::Cubic] {
        for coordinate_transformation_mode in PLACES {
            for (size, scale) in [([12, 9], None), ([4, 3], Some([0.7, 0.6])), ([1, 20], None)] {
                for cubic_exclude in [false, true] {
                    let attrs = Resize2dAttrs {
                        scale,
                        coordinate_transformation_mode,
                        cubic_exclude,
                        ..resize(size, method)
                    };
                    cases.push(call("image.resize2d", attrs, &[Some(image.clone())]));
                }
            }
        }
        // What has no weight does not count, not even if it is no number.
        let attrs = Resize2dAttrs {
            coordinate_transformation_mode: CoordinateTransformation::Asymmetric,
            ..resize([2, 4], method)
        };
        let image = floats(DType::F64, &[1, 1, 2, 2], &[1.0, f64::NAN, 2.0, 3.0]);
        cases.push(call("image.resize2d", attrs, &[Some(image)]));
    }
    check_all(&cases, &[runnable_levels().pop().unwrap()]);
}
