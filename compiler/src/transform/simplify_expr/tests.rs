//! Tests of the rules that filetests do not show: data types, bits, uses and length.

use crate::graph::interp::{Tensor, evaluate};
use crate::graph::{Callee, ExprId, Function, ScopeKind};
use crate::ir::{Constant, DType, IRModule, Type};
use crate::ops::elementwise::{CastAttrs, ClipAttrs};
use crate::ops::nn::{ConvAttrs, MatmulAttrs, PadAttrs, PadMode};
use crate::ops::reduce::ReduceAttrs;
use crate::ops::tensor::{
    ConcatenateAttrs, ExpandDimsAttrs, OneHotAttrs, SqueezeAttrs, TransposeAttrs,
};
use crate::pass::PassContext;
use crate::tir::transform::STRICT_MATH;
use crate::transform::SimplifyExpr;
use crate::transform::tests::support::{Net, after, after_in, count, show, tensors};

fn casts(dtypes: &[DType]) -> String {
    let mut net = Net::default();
    let mut x = net.0.param("x", Type::tensor(&[2], dtypes[0]));
    for &dtype in &dtypes[1..] {
        x = net.op_with("cast", &[x], &CastAttrs::to(dtype));
    }
    show(&after(&SimplifyExpr, net.finish(x)))
}

#[test]
fn casts_that_lose_nothing_in_between_are_dropped() {
    use DType::*;
    for dtypes in [
        [F32, F64, F32].as_slice(),
        &[I8, I32, F32, I8],
        &[F16, F32, F16],
        &[BF16, F32, BF16],
        &[U8, F16, U8],
        &[Bool, I8, Bool],
        &[F32, F32],
        &[F32, F64, F64, F32],
    ] {
        assert_eq!(casts(dtypes), "x", "{dtypes:?}");
    }
    for dtypes in [
        [F16, F32, F64].as_slice(),
        &[I8, I32, F32],
        &[F16, F32, I8],
        &[Bool, I64, F32],
        &[I16, I64, I8],
    ] {
        assert_eq!(casts(dtypes), "cast(x)", "{dtypes:?}");
    }
    // Rounding, wrapping and saturating in between count, and floats saturate where integers wrap.
    for dtypes in [
        [F32, F16, F32],
        [I32, I8, I32],
        [I32, F32, I32],
        [F32, I32, F32],
        [I16, F32, I8],
        [BF16, F16, BF16],
        [U8, I8, I32],
        [F32, Bool, F32],
        [I64, F64, I64],
    ] {
        assert_eq!(casts(&dtypes), "cast(cast(x))", "{dtypes:?}");
    }
    assert_eq!(casts(&[F8E5M2, F8E5M2]), "cast(x)");
}

#[test]
fn zeros_and_powers_follow_strict_arithmetic() {
    let simplified = |op: &str, value: f64, strict: bool| {
        let mut net = Net::default();
        let x = net.input("x", &[2]);
        let x = net.op("nn.relu", &[x]);
        let value = net.scalar(value);
        let y = net.op(op, &[x, value]);
        let cx = PassContext::builder().config(&STRICT_MATH, strict).build().unwrap();
        show(&after_in(&SimplifyExpr, net.finish(y), &cx))
    };
    let x = "nn.relu(x)";
    for strict in [false, true] {
        for (op, value) in
            [("add", -0.0), ("subtract", 0.0), ("multiply", 1.0), ("divide", 1.0), ("power", 1.0)]
        {
            assert_eq!(simplified(op, value, strict), x, "{op} {value}");
        }
        assert_eq!(simplified("power", 2.0, strict), format!("multiply({x}, {x})"));
        assert_eq!(simplified("power", -1.0, strict), format!("reciprocal({x})"));
        assert_eq!(simplified("power", 3.0, strict), format!("power({x}, 3)"));
    }
    assert_eq!(simplified("add", 0.0, false), x);
    assert_eq!(simplified("add", 0.0, true), format!("add({x}, 0)"));
    assert_eq!(simplified("subtract", -0.0, true), format!("subtract({x}, -0)"));
    assert_eq!(simplified("power", 0.5, false), format!("sqrt({x})"));
    assert_eq!(simplified("power", -0.5, false), format!("rsqrt({x})"));
    assert_eq!(simplified("power", 0.5, true), format!("power({x}, 0.5)"));
}

#[test]
fn roots_are_taken_only_of_what_is_not_negative() {
    let mut net = Net::default();
    let x = net.input("x", &[2]);
    let half = net.scalar(0.5);
    let y = net.op("power", &[x, half]);
    let function = net.finish(y);
    assert!(after(&SimplifyExpr, function.clone()).same(&function));
}

#[test]
fn a_neutral_constant_that_repeats_the_other_operand_stays() {
    let mut net = Net::default();
    let x = net.input("x", &[1]);
    let ones = net.0.constant(Constant::from_f32(&[3], &[1.0; 3]).unwrap());
    let y = net.op("multiply", &[ones, x]);
    let function = net.finish(y);
    assert!(after(&SimplifyExpr, function.clone()).same(&function));
    let mut net = Net::default();
    let x = net.input("x", &[3]);
    let one = net.0.constant(Constant::from_f32(&[1], &[1.0]).unwrap());
    let y = net.op("multiply", &[one, x]);
    let y = net.op("divide", &[one, y]);
    assert_eq!(show(&after(&SimplifyExpr, net.finish(y))), "divide(c(1), x)");
}

#[test]
fn pads_of_other_elements_or_of_fewer_stay_apart() {
    let pads = |widths: [i64; 2], fills: [f64; 2], modes: [PadMode; 2]| {
        let mut net = Net::default();
        let mut x = net.input("x", &[4]);
        for ((width, fill), mode) in widths.into_iter().zip(fills).zip(modes) {
            let attrs = PadAttrs { pad_width: vec![[1, width]], mode };
            let fill = (mode == PadMode::Constant).then(|| net.scalar(fill));
            let args: Vec<ExprId> = [Some(x), fill].into_iter().flatten().collect();
            x = net.op_with("nn.pad", &args, &attrs);
        }
        count(&after(&SimplifyExpr, net.finish(x)), "nn.pad")
    };
    use PadMode::{Constant, Edge, Reflect};
    assert_eq!(pads([2, 3], [5.0, 5.0], [Constant; 2]), 1);
    assert_eq!(pads([2, 3], [0.0, 0.0], [Edge; 2]), 1);
    assert_eq!(pads([2, 3], [5.0, 6.0], [Constant; 2]), 2);
    assert_eq!(pads([2, -1], [5.0, 5.0], [Constant; 2]), 2);
    assert_eq!(pads([-1, 2], [5.0, 5.0], [Constant; 2]), 2);
    assert_eq!(pads([1, 1], [0.0; 2], [Reflect; 2]), 2);
    assert_eq!(pads([1, 1], [0.0; 2], [Edge, Constant]), 2);
}

#[test]
fn concatenations_in_use_elsewhere_or_along_another_axis_stay() {
    let joined = |axes: [i64; 2], used: bool| {
        let mut net = Net::default();
        let x = net.input("x", &[2, 2]);
        let inner = net.op_with("concatenate", &[x, x], &ConcatenateAttrs { axis: axes[0] });
        let other = net.op_with("concatenate", &[x, x], &ConcatenateAttrs { axis: axes[0] });
        let outer =
            net.op_with("concatenate", &[inner, other], &ConcatenateAttrs { axis: axes[1] });
        let result = if used { net.0.tuple(&[outer, inner]) } else { outer };
        count(&after(&SimplifyExpr, net.finish(result)), "concatenate")
    };
    assert_eq!(joined([0, 0], false), 1);
    assert_eq!(joined([0, -2], false), 1);
    assert_eq!(joined([0, 1], false), 3);
    assert_eq!(joined([0, 0], true), 2);
}

#[test]
fn chains_through_a_branch_are_followed() {
    let mut net = Net::default();
    let (x, cond) = (net.input("x", &[2, 3]), net.0.param("c", Type::tensor(&[], DType::Bool)));
    let axes = TransposeAttrs { axes: vec![1, 0] };
    let turned = net.op_with("transpose", &[x], &axes);
    let branch = |net: &mut Net| {
        net.0.open_scope(ScopeKind::Branch);
        let back = net.op_with("transpose", &[turned], &axes);
        let y = net.op("nn.relu", &[back]);
        net.0.close_scope(y)
    };
    let scopes = (branch(&mut net), branch(&mut net));
    let y = net.0.if_else(cond, scopes.0, scopes.1).unwrap();
    let function = after(&SimplifyExpr, net.finish(y));
    assert_eq!((count(&function, "transpose"), count(&function, "nn.relu")), (0, 2));
}

/// Chains of as many calls as that, of each kind.
fn chains(length: usize) -> Vec<(Net, ExprId)> {
    let chain = |link: fn(&mut Net, ExprId, usize) -> ExprId| {
        let mut net = Net::default();
        let mut x = net.input("x", &[2, 3]);
        for index in 0..length {
            x = link(&mut net, x, index);
        }
        (net, x)
    };
    vec![
        chain(|net, x, _| net.op_with("transpose", &[x], &TransposeAttrs { axes: vec![1, 0] })),
        chain(|net, x, index| match index % 2 {
            0 => net.op_with("expand_dims", &[x], &ExpandDimsAttrs { axis: vec![0] }),
            _ => net.op_with("squeeze", &[x], &SqueezeAttrs { axis: vec![0] }),
        }),
        chain(|net, x, index| {
            let dtype = if index % 2 == 0 { DType::F64 } else { DType::F32 };
            net.op_with("cast", &[x], &CastAttrs::to(dtype))
        }),
        chain(|net, x, _| {
            let pad_width = vec![[0, 0], [1, 0]];
            net.op_with("nn.pad", &[x], &PadAttrs { pad_width, mode: PadMode::Constant })
        }),
        chain(|net, x, _| {
            let row = net.tensor(&[1, 3], 0.0);
            net.op_with("concatenate", &[x, row], &ConcatenateAttrs { axis: 0 })
        }),
        chain(|net, x, _| {
            let one = net.scalar(1.0);
            net.op("multiply", &[x, one])
        }),
    ]
}

#[test]
fn chains_of_a_hundred_thousand_calls_become_one_on_a_small_stack() {
    let run = || {
        for (net, result) in chains(100_000) {
            let cx = PassContext::builder().build().unwrap();
            let function = after_in(&SimplifyExpr, net.finish(result), &cx);
            let calls = function.iter().filter(|(_, data)| data.expr.as_call().is_some()).count();
            assert!(calls <= 1, "{calls}");
            assert!(after_in(&SimplifyExpr, function.clone(), &cx).same(&function));
        }
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn rows_for_one_hot_vectors_count_from_both_ends_and_are_zeros_beyond_them() {
    let product = |dtype: DType, first: f32| {
        let mut net = Net::default();
        let x = net.0.param("x", Type::tensor(&[7], dtype));
        let (on, off) = (net.scalar(1.0), net.scalar(0.0));
        let marks =
            net.op_with("one_hot", &[x, on, off], &OneHotAttrs { depth: 3.into(), axis: -1 });
        let matrix = net.tensor(&[3, 2], first);
        let attrs = MatmulAttrs { transpose_a: false, transpose_b: false, out_dtype: None };
        let result = net.op_with("nn.matmul", &[marks, matrix], &attrs);
        net.finish(result)
    };
    let numbers = [-4, -3, -1, 0, 2, 3, 100];
    let value = |function: &Function, dtype: DType| {
        let x = Tensor::from_ints(dtype, &[7], numbers.to_vec()).unwrap();
        let module = IRModule::from_function(function.clone());
        evaluate(&module, "main", &[x.into()]).unwrap()
    };
    for dtype in [DType::I8, DType::I32, DType::I64] {
        let before = product(dtype, 0.5);
        let rows = after(&SimplifyExpr, before.clone());
        assert_eq!([count(&rows, "nn.matmul"), count(&rows, "take")], [0, 1]);
        assert_eq!(tensors(&value(&before, dtype)), tensors(&value(&rows, dtype)), "{dtype}");
    }
    // Its greatest numbers would count from the end.
    assert_eq!(count(&after(&SimplifyExpr, product(DType::U64, 0.5)), "take"), 0);
    assert_eq!(count(&after(&SimplifyExpr, product(DType::I32, f32::INFINITY)), "take"), 0);
}

#[test]
fn convolutions_without_taps_of_padding_are_the_same() {
    for (image, kernel, padding, strides, dilation, kept) in [
        ([5, 9], [3, 3], [5, 9, 5, 9], [1, 1], [5, 9], [1, 1]),
        // Padding that reaches less or further than the taps, on one side or both.
        ([4, 8], [3, 2], [9, 0, 0, 4], [1, 1], [4, 9], [1, 2]),
        ([4, 4], [5, 3], [8, 3, 9, 4], [2, 3], [4, 3], [2, 3]),
        ([1, 2], [3, 3], [4, 1, 0, 2], [1, 1], [2, 1], [1, 3]),
        // Strides beyond the image, and taps between which it is.
        ([1, 2], [1, 5], [0, 8, 0, 24], [1, 16], [1, 4], [1, 3]),
        ([1, 2], [1, 2], [0, 3, 0, 1], [1, 1], [1, 5], [1, 2]),
    ] {
        let mut net = Net::default();
        let x = net.input("x", &[1, 2, image[0], image[1]]);
        let weight = net.tensor(&[3, 2, kernel[0], kernel[1]], 1.0);
        let attrs = ConvAttrs {
            strides: strides.to_vec(),
            padding: padding.to_vec(),
            dilation: dilation.to_vec(),
            ..ConvAttrs::of_rank(2)
        };
        let sums = net.op_with("nn.conv2d", &[x, weight], &attrs);
        let function = net.finish(sums);
        let simpler = after(&SimplifyExpr, function.clone());
        let of = |function: &Function| {
            let count = (2 * image[0] * image[1]) as usize;
            let values = (1..=count).map(|value| value as f64 / 8.0).collect();
            let x = [1, 2, image[0] as usize, image[1] as usize];
            let x = Tensor::from_floats(DType::F32, &x, values).unwrap();
            let module = IRModule::from_function(function.clone());
            evaluate(&module, "main", &[x.into()]).unwrap()
        };
        assert_eq!(tensors(&of(&function)), tensors(&of(&simpler)), "{attrs:?}");
        let slice = simpler.ids().find_map(|id| {
            let call = simpler.expr(id).as_call()?;
            let ty = simpler.ty(id).as_tensor()?;
            matches!(call.callee, Callee::Op(op) if op.name == "strided_slice")
                .then(|| ty.shape.as_consts().unwrap())
        });
        let extents = slice.map_or(kernel, |shape| [shape[2] as i64, shape[3] as i64]);
        assert_eq!(extents, kept, "{attrs:?}");
    }
}

/// Functions of one tensor that are written out, by their text.
const WRITTEN_OUT: [(&str, &str); 8] = [
    (
        "nn.gelu",
        "%0 = erf(divide(%x, const(1.4142135, float32))); %1 = multiply(%x, add(%0, const(1.0, float32))); multiply(%1, const(0.5, float32))",
    ),
    (
        "nn.gelu",
        "%0 = erf(multiply(%x, const(0.70710677, float32))); multiply(multiply(const(0.5, float32), %x), add(const(1.0, float32), %0))",
    ),
    (
        "nn.gelu",
        "%0 = erf(multiply(%x, const(0.70710677, float32))); multiply(%x, divide(add(%0, const(1.0, float32)), const(2.0, float32)))",
    ),
    (
        "nn.gelu",
        "%0 = multiply(power(%x, const(3.0, float32)), const(0.044715, float32)); %1 = tanh(multiply(add(%x, %0), const(0.7978846, float32))); multiply(multiply(%x, const(0.5, float32)), add(%1, const(1.0, float32)))",
    ),
    (
        "nn.gelu",
        "%0 = multiply(multiply(multiply(%x, %x), %x), const(0.044715, float32)); %1 = tanh(multiply(const(0.7978846, float32), add(%x, %0))); divide(multiply(add(%1, const(1.0, float32)), %x), const(2.0, float32))",
    ),
    (
        "nn.hardswish",
        "%0 = clip(add(%x, const(3.0, float32)), min=0.0, max=6.0); divide(multiply(%x, %0), const(6.0, float32))",
    ),
    (
        "nn.hardswish",
        "%0 = clip(add(%x, const(3.0, float32)), min=0.0, max=6.0); multiply(multiply(%0, const(0.16666667, float32)), %x)",
    ),
    (
        "nn.hardswish",
        "%0 = clip(add(const(3.0, float32), %x), min=0.0, max=6.0); multiply(%x, divide(%0, const(6.0, float32)))",
    ),
];

fn of_x(body: &str) -> Function {
    let ty = "Tensor[(40), float32]";
    let text = format!("fn (%x: {ty}) -> {ty} {{ {body} }}");
    crate::graph::parse_function(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// What a function of `%x` is from -5 to 5.
fn values(function: &Function) -> Vec<f64> {
    let x = (0..40).map(|i| f64::from(i) / 4.0 - 5.0).collect();
    let x = Tensor::from_floats(DType::F32, &[40], x).unwrap();
    let module = IRModule::from_function(function.clone());
    let result = evaluate(&module, "main", &[x.into()]).unwrap();
    tensors(&result)[0].floats().unwrap().to_vec()
}

#[test]
fn activations_that_are_written_out_are_operators() {
    for (op, body) in WRITTEN_OUT {
        let before = of_x(body);
        let function = after(&SimplifyExpr, before.clone());
        assert_eq!(show(&function), format!("{op}(x)"), "{body}");
        for (found, expected) in values(&function).into_iter().zip(values(&before)) {
            assert!((found - expected).abs() < 1e-6, "{body}: {found}, not {expected}");
        }
        let strict = PassContext::builder().config(&STRICT_MATH, true).build().unwrap();
        assert!(!show(&after_in(&SimplifyExpr, before, &strict)).contains(op), "{body}");
    }
}

#[test]
fn what_is_nearly_an_activation_stays() {
    for body in [
        // Another number, another value, a part that something else reads.
        "%0 = erf(divide(%x, const(1.5, float32))); %1 = multiply(%x, add(%0, const(1.0, float32))); multiply(%1, const(0.5, float32))",
        "%0 = erf(divide(%x, const(1.4142135, float32))); %1 = multiply(exp(%x), add(%0, const(1.0, float32))); multiply(%1, const(0.5, float32))",
        "%0 = clip(add(%x, const(3.0, float32)), min=0.0, max=6.0); add(%0, divide(multiply(%x, %0), const(6.0, float32)))",
    ] {
        let text = show(&after(&SimplifyExpr, of_x(body)));
        assert!(!text.contains("nn."), "{text}");
    }
    // Integers, whose quotients are rounded.
    let mut net = Net::default();
    let x = net.0.param("x", Type::tensor(&[40], DType::I32));
    let [three, six] =
        [3, 6].map(|value| net.0.constant(Constant::scalar(f64::from(value), DType::I32).unwrap()));
    let sum = net.op("add", &[x, three]);
    let clipped = net.op_with("clip", &[sum], &ClipAttrs { min: Some(0.0), max: Some(6.0) });
    let product = net.op("multiply", &[x, clipped]);
    let y = net.op("divide", &[product, six]);
    assert_eq!(count(&after(&SimplifyExpr, net.finish(y)), "divide"), 1);
}

#[test]
fn reductions_of_transposed_tensors_are_those_of_the_tensors() {
    let numbers = |shape: &[usize]| {
        let values = (0..shape.iter().product::<usize>()).map(|i| (i * 7 % 31) as f64 - 9.0);
        Tensor::from_floats(DType::F32, shape, values.collect()).unwrap()
    };
    for (order, axis, keepdims, transposes) in [
        (&[0, 2, 3, 1][..], &[1, 2][..], true, 0),
        (&[0, 2, 3, 1], &[-2, 1], false, 0),
        (&[3, 2, 1, 0], &[], false, 0),
        (&[3, 2, 1, 0], &[0, 1, 3], true, 0),
        // The axes that are left are in another order.
        (&[0, 3, 1, 2], &[2], true, 1),
    ] {
        for op in ["mean", "sum", "max", "min", "prod"] {
            let mut net = Net::default();
            let x = net.0.param("x", Type::tensor(&[2, 3, 4, 5], DType::F32));
            let y = net.op_with("transpose", &[x], &TransposeAttrs { axes: order.to_vec() });
            let y = net.op_with(op, &[y], &ReduceAttrs { axis: axis.to_vec(), keepdims });
            let function = net.finish(y);
            let simple = after(&SimplifyExpr, function.clone());
            assert_eq!(count(&simple, "transpose"), transposes, "{op} {order:?} {axis:?}");
            let results = [&function, &simple].map(|function| {
                let module = IRModule::from_function(function.clone());
                let result = evaluate(&module, "main", &[numbers(&[2, 3, 4, 5]).into()]).unwrap();
                let result = tensors(&result).remove(0);
                (result.shape().to_vec(), result.floats().unwrap().to_vec())
            });
            assert_eq!(results[0], results[1], "{op} {order:?} {axis:?}");
        }
    }
    // A norm keeps its form.
    let mut net = Net::default();
    let x = net.0.param("x", Type::tensor(&[2, 3, 4], DType::F32));
    let y = net.op_with("transpose", &[x], &TransposeAttrs { axes: vec![0, 2, 1] });
    let mean = net.op_with("mean", &[y], &ReduceAttrs { axis: vec![2], keepdims: true });
    let y = net.op("subtract", &[y, mean]);
    let function = net.finish(y);
    assert_eq!(show(&after(&SimplifyExpr, function.clone())), show(&function));
}
