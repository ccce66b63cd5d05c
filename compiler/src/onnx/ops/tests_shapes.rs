//! Tests of the import of operators that move elements, reduce, or compute shapes.

use super::tests::{body, unary, x};
use crate::ir::{Constant, DType};
use crate::onnx::{ImportOptions, ModelBuilder, ModelDim, import};

#[test]
fn reshape_resolves_zeros_and_minus_one() {
    let reshape = |opset: i64, dims: &[i64], shape: &[i64], allow_zero: bool| {
        let attrs = [("allowzero", i64::from(allow_zero).into())];
        let attrs = if opset < 14 { &attrs[..0] } else { &attrs[..] };
        body(x(opset, dims).ints("s", shape), "Reshape", &["x", "s"], attrs)
    };
    assert_eq!(reshape(13, &[2, 3, 4], &[0, -1], false), "reshape(%x, newshape=[2, 12])");
    assert_eq!(reshape(13, &[2, 3, 4], &[4, 0, 2], false), "reshape(%x, newshape=[4, 3, 2])");
    assert_eq!(reshape(14, &[0, 3], &[3, 0], true), "reshape(%x, newshape=[3, 0])");
    assert_eq!(reshape(13, &[0, 3, 2], &[0, -1], false), "reshape(%x, newshape=[0, 6])");
    assert_eq!(reshape(13, &[1], &[], false), "reshape(%x, newshape=[])");
    assert_eq!(
        reshape(13, &[5], &[2, -1], false),
        "the shape does not divide the input's elements: 5 are left for extents of 2"
    );
    assert_eq!(reshape(13, &[4], &[-1, -1], false), "the shape has more than one -1");
    assert_eq!(reshape(13, &[4], &[-2], false), "the shape has the negative extent -2");
    assert_eq!(
        reshape(13, &[4], &[4, 0], false),
        "the shape keeps dimension 1, but the input has 1 dimensions"
    );
    assert_eq!(reshape(14, &[0], &[0, -1], true), "a shape with an extent of 0 cannot have a -1");
}

#[test]
fn shapes_are_computed_with_symbols() {
    // What PyTorch writes for x.view(x.size(0), -1).
    let dims: [ModelDim; 3] = ["n".into(), 3.into(), "m".into()];
    let model = ModelBuilder::new(11)
        .input("x", DType::F32, &dims)
        .initializer("zero", &Constant::from_i64(&[], &[0]).unwrap())
        .ints("rest", &[-1])
        .node("Shape", &["x"], &["s"], &[])
        .node("Gather", &["s", "zero"], &["n0"], &[("axis", 0.into())])
        .node("Unsqueeze", &["n0"], &["n1"], &[("axes", [0].into())])
        .node("Concat", &["n1", "rest"], &["shape"], &[("axis", 0.into())])
        .node("Reshape", &["x", "shape"], &["y"], &[])
        .output("y", DType::F32, &["n", "k"])
        .build();
    let imported = import(&model, None, &ImportOptions::default()).unwrap();
    assert_eq!(imported.outputs[0].ty.shape.to_string(), "(n, 3*m)");
}

#[test]
fn shapes_may_pass_through_floats() {
    // An interpolation's size as old exporters wrote it: floor(cast(shape) * scale).
    let model = x(13, &[1, 1, 3, 5])
        .ints("from", &[2])
        .ints("to", &[4])
        .initializer("scale", &Constant::from_f32(&[2], &[1.5, 2.0]).unwrap())
        .ints("channels", &[1, 1])
        .node("Shape", &["x"], &["s"], &[])
        .node("Slice", &["s", "from", "to"], &["hw"], &[])
        .node("Cast", &["hw"], &["f"], &[("to", 1.into())])
        .node("Mul", &["f", "scale"], &["g"], &[])
        .node("Floor", &["g"], &["h"], &[])
        .node("Cast", &["h"], &["i"], &[("to", 7.into())])
        .node("Concat", &["channels", "i"], &["sizes"], &[("axis", 0.into())])
        .node("Resize", &["x", "", "", "sizes"], &["y"], &[])
        .output("y", DType::F32, &[1, 1, 4, 10])
        .build();
    let imported = import(&model, None, &ImportOptions::default()).unwrap();
    assert_eq!(imported.outputs[0].ty.shape.to_string(), "(1, 1, 4, 10)");
}

#[test]
fn axes_of_squeeze_and_unsqueeze_became_inputs() {
    assert_eq!(
        unary(11, &[1, 2, 1], "Squeeze", &[("axes", [-1].into())]),
        "squeeze(%x, axis=[-1])"
    );
    assert_eq!(unary(11, &[1, 2, 1], "Squeeze", &[]), "squeeze(%x, axis=[0, 2])");
    assert_eq!(unary(11, &[2], "Squeeze", &[]), "%x");
    assert_eq!(
        body(x(13, &[1, 2]).ints("a", &[0]), "Squeeze", &["x", "a"], &[]),
        "squeeze(%x, axis=[0])"
    );
    assert_eq!(
        body(x(11, &[1, 2]).ints("a", &[0]), "Squeeze", &["x", "a"], &[]),
        "the axes are an attribute until version 13 of the operator"
    );
    assert_eq!(
        unary(13, &[1, 2], "Squeeze", &[("axes", [0].into())]),
        "attribute `axes` is not one of Squeeze at opset 13"
    );
    assert_eq!(
        unary(11, &[2], "Unsqueeze", &[("axes", [0, 2].into())]),
        "expand_dims(%x, axis=[0, 2])"
    );
    assert_eq!(unary(11, &[2], "Unsqueeze", &[]), "`axes` is missing");
}

#[test]
fn slices_moved_their_bounds_to_inputs() {
    assert_eq!(
        unary(9, &[4, 5], "Slice", &[("starts", [1].into()), ("ends", [-1].into())]),
        "strided_slice(%x, axes=[0], begin=[1], end=[-1], strides=[1])"
    );
    let model = || x(10, &[4, 5]).ints("s", &[4]).ints("e", &[i64::MIN]).ints("a", &[-1]);
    assert_eq!(
        body(model().ints("t", &[-2]), "Slice", &["x", "s", "e", "a", "t"], &[]),
        "strided_slice(%x, axes=[-1], begin=[4], end=[-9223372036854775808], strides=[-2])"
    );
    assert_eq!(
        body(model().ints("t", &[1, 1]), "Slice", &["x", "s", "e", "a", "t"], &[]),
        "starts, ends, axes and steps must have one length, but they have [1, 1, 1, 2]"
    );
}

#[test]
fn splits_are_equal_unless_sizes_are_given() {
    let split = |opset: i64, extent: i64, outputs: &[&str], sizes: Option<&[i64]>| {
        let model = x(opset, &[extent]);
        let (model, inputs, attrs) = match sizes {
            Some(sizes) if opset >= 13 => (model.ints("s", sizes), vec!["x", "s"], vec![]),
            Some(sizes) => (model, vec!["x"], vec![("split", sizes.into())]),
            None => (model, vec!["x"], vec![]),
        };
        let model = model.node("Split", &inputs, outputs, &attrs);
        let model =
            outputs.iter().fold(model, |model, name| model.output(name, DType::F32, &["n"]));
        match import(&model.build(), None, &ImportOptions::default()) {
            Ok(imported) => imported.outputs.iter().map(|o| o.ty.shape.to_string()).collect(),
            Err(report) => vec![report.problems[0].message.split(" (").next().unwrap().to_owned()],
        }
    };
    assert_eq!(split(11, 6, &["a", "b"], None), ["(3)", "(3)"]);
    assert_eq!(split(11, 6, &["a", "b"], Some(&[4, 2])), ["(4)", "(2)"]);
    assert_eq!(split(13, 6, &["a", "b"], Some(&[1, 5])), ["(1)", "(5)"]);
    assert_eq!(split(13, 5, &["a", "b"], None), ["5 cannot be split into 2 equal pieces"]);
    // Since version 18, the last piece may be smaller.
    assert_eq!(split(18, 7, &["a", "b", "c"], None), ["(3)", "(3)", "(1)"]);
    assert_eq!(
        split(13, 6, &["a", "b"], Some(&[6])),
        ["1 sizes are given, but the node has 2 outputs"]
    );
}

#[test]
fn elements_are_moved_by_few_operators() {
    assert_eq!(unary(13, &[2, 3, 4], "Flatten", &[]), "reshape(%x, newshape=[2, 12])");
    assert_eq!(
        unary(13, &[2, 3, 4], "Flatten", &[("axis", 0.into())]),
        "reshape(%x, newshape=[1, 24])"
    );
    assert_eq!(
        unary(13, &[2, 3, 4], "Flatten", &[("axis", 3.into())]),
        "reshape(%x, newshape=[24, 1])"
    );
    assert_eq!(unary(13, &[2, 3], "Transpose", &[]), "transpose(%x, axes=[1, 0])");
    assert_eq!(unary(13, &[2], "Identity", &[]), "%x");
    assert_eq!(unary(13, &[2], "Concat", &[("axis", 0.into())]), "%x");
    assert_eq!(unary(13, &[2], "Concat", &[]), "attribute `axis` is missing");
    assert_eq!(
        body(x(13, &[2, 1]).ints("s", &[3, 1, 4]), "Expand", &["x", "s"], &[]),
        "broadcast_to(%x, shape=[3, 2, 4])"
    );
    assert_eq!(
        body(x(13, &[2, 3]).ints("r", &[1, 2]), "Tile", &["x", "r"], &[]),
        "%0 = reshape(%x, newshape=[1, 2, 1, 3]);\n\
         %1 = broadcast_to(%0, shape=[1, 2, 2, 3]);\n\
         reshape(%1, newshape=[2, 6])"
    );
    assert_eq!(
        unary(13, &[1, 8, 2, 3], "DepthToSpace", &[("blocksize", 2.into())]),
        "%0 = reshape(%x, newshape=[1, 2, 2, 2, 2, 3]);\n\
         %1 = transpose(%0, axes=[0, 3, 4, 1, 5, 2]);\n\
         reshape(%1, newshape=[1, 2, 4, 6])"
    );
    let indices = x(13, &[4, 2]).input("i", DType::I64, &[3]);
    assert_eq!(
        body(indices, "Gather", &["x", "i"], &[("axis", 1.into())]),
        "take(%x, %i, axis=1, mode=\"fast\")"
    );
}

#[test]
fn shape_can_be_a_part_since_version_15() {
    let part = [("start", 1.into()), ("end", (-1).into())];
    assert_eq!(
        unary(15, &[2, 3, 4], "Shape", &part),
        "%0 = shape_of(%x, dtype=\"int64\");\n\
         strided_slice(%0, axes=[0], begin=[1], end=[-1], strides=[1])"
    );
    assert_eq!(
        unary(13, &[2, 3, 4], "Shape", &part[..1]),
        "attribute `start` is not one of Shape at opset 13"
    );
    assert_eq!(unary(13, &[2], "Size", &[]), "ndarray_size(%x, dtype=\"int64\")");
}

#[test]
fn constants_come_from_attributes_shapes_and_ranges() {
    let none = || ModelBuilder::new(13);
    assert_eq!(
        body(none(), "Constant", &[], &[("value_ints", vec![1, 2].into())]),
        "const([1, 2], int64)"
    );
    assert_eq!(
        body(none(), "Constant", &[], &[("value_float", 0.5f32.into())]),
        "const(0.5, float32)"
    );
    assert_eq!(
        body(none(), "Constant", &[], &[("value_string", "a".into())]),
        "constants of attribute `value_string` are not supported (no inputs)"
    );
    let filled = |model: ModelBuilder| {
        let value = Constant::from_i64(&[1], &[7]).unwrap();
        body(model, "ConstantOfShape", &["s"], &[("value", value.into())])
    };
    assert_eq!(filled(none().ints("s", &[2])), "full(const(7, int64), shape=[2])");
    // A size that no memory holds is one number, too.
    assert_eq!(
        filled(none().ints("s", &[1 << 40])),
        "full(const(7, int64), shape=[1099511627776])"
    );
    let range = |values: [i64; 3]| {
        let scalar = |value| Constant::from_i64(&[], &[value]).unwrap();
        let model = none()
            .initializer("a", &scalar(values[0]))
            .initializer("b", &scalar(values[1]))
            .initializer("c", &scalar(values[2]));
        body(model, "Range", &["a", "b", "c"], &[])
    };
    assert_eq!(range([1, 8, 3]), "const([1, 4, 7], int64)");
    assert_eq!(range([3, 0, -2]), "const([3, 1], int64)");
    assert_eq!(range([0, 9, 0]), "the step is zero");
    assert_eq!(range([0, i64::MAX, 1]), "more than 1048576 elements are not supported");
}

#[test]
fn padding_has_widths_as_pairs() {
    let pads = ("pads", [1, 0, 2, -1].into());
    assert_eq!(
        unary(7, &[4, 4], "Pad", &[pads.clone(), ("value", 3f32.into())]),
        "nn.pad(%x, const(3, float32), mode=\"constant\", pad_width=[[1, 2], [0, -1]])"
    );
    assert_eq!(unary(11, &[4, 4], "Pad", &[pads]), "`pads` is missing");
    let model = x(18, &[4, 4]).ints("p", &[1, 2]).ints("a", &[-1]);
    assert_eq!(
        body(model, "Pad", &["x", "p", "", "a"], &[("mode", "edge".into())]),
        "nn.pad(%x, _, mode=\"edge\", pad_width=[[0, 0], [1, 2]])"
    );
    let model = x(18, &[4]).ints("p", &[0, 0]);
    assert_eq!(body(model, "Pad", &["x", "p"], &[]), "%x");
    let model = x(18, &[4]).ints("p", &[0, 1]);
    assert_eq!(
        body(model, "Pad", &["x", "p"], &[("mode", "wrap".into())]),
        "attribute `mode` cannot be `wrap`"
    );
}

#[test]
fn reductions_moved_their_axes_to_inputs() {
    let axes = || [("axes", [-1].into()), ("keepdims", 0.into())];
    assert_eq!(unary(11, &[2, 3], "ReduceSum", &axes()), "sum(%x, axis=[1], keepdims=false)");
    assert_eq!(unary(17, &[2, 3], "ReduceMean", &axes()), "mean(%x, axis=[1], keepdims=false)");
    assert_eq!(
        unary(18, &[2, 3], "ReduceMean", &axes()),
        "attribute `axes` is not one of ReduceMean at opset 18"
    );
    assert_eq!(
        body(x(13, &[2, 3]).ints("a", &[0]), "ReduceSum", &["x", "a"], &[]),
        "sum(%x, axis=[0], keepdims=true)"
    );
    assert_eq!(unary(13, &[2, 3], "ReduceSum", &[]), "sum(%x, axis=[], keepdims=true)");
    let noop = ("noop_with_empty_axes", 1.into());
    assert_eq!(unary(13, &[2, 3], "ReduceSum", &[noop]), "%x");
    let noop = ("noop_with_empty_axes", 1.into());
    assert_eq!(unary(18, &[2, 3], "ReduceL1", &[noop]), "abs(%x)");
    assert_eq!(
        unary(13, &[2, 3], "ReduceL2", &[]),
        "%0 = multiply(%x, %x);\n%1 = sum(%0, axis=[], keepdims=true);\nsqrt(%1)"
    );
    assert_eq!(
        unary(12, &[2, 3], "ArgMax", &[("select_last_index", 1.into())]),
        "argmax(%x, axis=0, keepdims=true, select_last_index=true)"
    );
}

#[test]
fn resizing_takes_scales_or_sizes() {
    let scales = Constant::from_f32(&[4], &[1.0, 1.0, 2.0, 2.0]).unwrap();
    let attrs =
        [("coordinate_transformation_mode", "asymmetric".into()), ("nearest_mode", "floor".into())];
    let by_scales = |opset: i64, inputs: &[&str], attrs: &[_]| {
        body(x(opset, &[1, 2, 3, 4]).initializer("s", &scales), "Resize", inputs, attrs)
    };
    let text = by_scales(11, &["x", "", "s"], &attrs);
    assert!(text.contains("coordinate_transformation_mode=\"asymmetric\""), "{text}");
    assert!(text.contains("scale=[2.0, 2.0], size=[6, 8]"), "{text}");
    // The first version is the same with fixed modes.
    assert_eq!(by_scales(10, &["x", "s"], &[]), text);
    let sizes = x(13, &[1, 2, 3, 4]).ints("s", &[1, 2, 6, 8]);
    let text = body(sizes, "Resize", &["x", "", "", "s"], &[("mode", "linear".into())]);
    assert!(text.contains("method=\"linear\"") && !text.contains("scale="), "{text}");
    let channels = x(13, &[1, 2, 3, 4]).ints("s", &[1, 4, 6, 8]);
    // Height and width first, then the channels as rows.
    let text = body(channels, "Resize", &["x", "", "", "s"], &[]);
    assert!(text.contains("size=[6, 8]") && text.contains("size=[4, 48]"), "{text}");
    let unknown = [("keep_aspect_ratio_policy", "not_wider".into())];
    let model = x(18, &[1, 2, 3, 4]).ints("s", &[1, 2, 6, 8]);
    assert_eq!(
        body(model, "Resize", &["x", "", "", "s"], &unknown),
        "attribute `keep_aspect_ratio_policy` `not_wider` is not supported"
    );
    let upsample = x(10, &[1, 2, 3, 4]).initializer("s", &scales);
    assert_eq!(
        body(upsample, "Upsample", &["x", "s"], &[]),
        "Upsample is not part of opset 10 and later; use Resize"
    );
}
