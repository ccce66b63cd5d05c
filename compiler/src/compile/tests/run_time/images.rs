//! Images whose extents each run has of its own.

use super::*;

const UNKNOWN: [ModelDim; 4] = [const { ModelDim::Unknown }; 4];

#[test]
fn images_may_have_any_extents() {
    let extents = [ModelDim::from(1), ModelDim::from(3), ModelDim::from("h"), ModelDim::from("w")];
    let pads = |count: i64| ("pads", vec![count; 4].into());
    let twos = || ("strides", vec![2, 2].into());
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &extents)
        .initializer("w1", &rows(&[20, 3, 3, 3]))
        .initializer("w2", &rows(&[20, 1, 3, 3]))
        .initializer("w3", &rows(&[24, 20, 1, 1]))
        .initializer("w4", &rows(&[20, 24, 5, 5]))
        .node("Conv", &["x", "w1"], &["a"], &[pads(1), twos()])
        .node("Relu", &["a"], &["b"], &[])
        .node("Conv", &["b", "w2"], &["c"], &[pads(1), ("group", 20.into())])
        .node("Add", &["b", "c"], &["d"], &[])
        .node("MaxPool", &["d"], &["e"], &[("kernel_shape", vec![3, 3].into()), pads(1), twos()])
        .node("Conv", &["e", "w3"], &["f"], &[])
        .node("Sigmoid", &["f"], &["g"], &[])
        .node("Conv", &["g", "w4"], &["h1"], &[pads(2), twos()])
        .node("GlobalAveragePool", &["h1"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4])
        .output("h1", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let dims = [("h", 8..=21), ("w", 9..=33)];
    let runs: &[&[u64]] = &[&[21, 33], &[8, 9], &[9, 10], &[16, 32], &[17, 31]];
    check_sizes(&model(builder), &dims, runs, |sizes| vec![vec![1, 3, sizes[0], sizes[1]]]);
}

/// Windows that reach beyond the image for some extents, and for others not.
#[test]
fn windows_overhang_images_of_some_extents() {
    let extents = [ModelDim::from(2), ModelDim::from(3), ModelDim::from("h"), ModelDim::from("w")];
    let ints = |name, values: &[i64]| (name, values.to_vec().into());
    let same = |which: &'static str| ("auto_pad", which.into());
    let (twos, threes) = (ints("strides", &[2, 2]), ints("kernel_shape", &[3, 3]));
    let (ceil, after) = (("ceil_mode", 1.into()), ints("pads", &[0, 0, 1, 1]));
    let with_padding = ("count_include_pad", 1.into());
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &extents)
        .initializer("w", &rows(&[4, 3, 3, 3]))
        .node("MaxPool", &["x"], &["a"], &[threes.clone(), twos.clone(), ceil.clone()])
        .node("AveragePool", &["x"], &["b"], &[threes.clone(), twos.clone(), ceil.clone()])
        .node("MaxPool", &["x"], &["c"], &[threes.clone(), twos.clone(), after.clone()])
        .node("AveragePool", &["x"], &["d"], &[threes.clone(), twos.clone(), after, with_padding])
        .node("MaxPool", &["x"], &["e", "at"], &[threes.clone(), twos.clone(), ceil])
        .node("Conv", &["x", "w"], &["f"], &[same("SAME_UPPER"), twos.clone()])
        .node("Conv", &["x", "w"], &["g"], &[same("SAME_LOWER"), ints("strides", &[3, 2])])
        .node("MaxPool", &["x"], &["h1"], &[same("SAME_UPPER"), threes, twos]);
    let outputs = ["a", "b", "c", "d", "e", "f", "g", "h1"];
    let builder = outputs
        .into_iter()
        .fold(builder, |builder, output| builder.output(output, DType::F32, &UNKNOWN))
        .output("at", DType::I64, &UNKNOWN);
    let dims = [("h", 3..=8), ("w", 3..=19)];
    let runs: &[&[u64]] = &[&[8, 19], &[3, 3], &[4, 5], &[7, 8], &[5, 18], &[6, 6]];
    check_sizes(&model(builder), &dims, runs, |sizes| vec![vec![2, 3, sizes[0], sizes[1]]]);
}

#[test]
fn images_smaller_than_a_window_are_refused() {
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from(1), ModelDim::from(2), ModelDim::from("n")])
        .node(
            "MaxPool",
            &["x"],
            &["y"],
            &[("kernel_shape", vec![2].into()), ("strides", vec![2].into())],
        )
        .output("y", DType::F32, &UNKNOWN[..3]);
    let options = CompileOptions { dims: [("n".to_owned(), (1..=9).into())].into(), ..options() };
    for loaded in load(&run(&model(builder), &options).unwrap().model, &options) {
        let problem = loaded.run(&[rows(&[1, 2, 1])]).unwrap_err().to_string();
        assert!(problem.contains("`n` is 2..=9"), "{problem}");
        assert_eq!(
            loaded.run(&[rows(&[1, 2, 3])]).unwrap()[0].ty().shape.as_consts().unwrap(),
            [1, 2, 1]
        );
    }
}

/// Only the weights tell the channels.
#[test]
fn transposed_convolutions_may_have_any_extents() {
    let extents = ["n", "channels", "h", "w"].map(ModelDim::from);
    let twos = || ("strides", vec![2, 2].into());
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &extents)
        .initializer("w1", &rows(&[6, 4, 3, 3]))
        .initializer("w2", &rows(&[4, 5, 5, 2]))
        .node("ConvTranspose", &["x", "w1"], &["a"], &[("auto_pad", "SAME_UPPER".into()), twos()])
        .node("Relu", &["a"], &["b"], &[])
        .node("ConvTranspose", &["b", "w2"], &["y"], &[("auto_pad", "SAME_LOWER".into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let dims = [("n", 1..=2), ("h", 1..=9), ("w", 1..=17)];
    let runs: &[&[u64]] = &[&[1, 1, 1], &[2, 9, 17], &[1, 4, 16], &[2, 2, 5]];
    check_sizes(&model(builder), &dims, runs, |sizes| vec![vec![sizes[0], 6, sizes[1], sizes[2]]]);
}

/// Padded to whole blocks, made smaller and larger again, and cut to what they were.
#[test]
fn images_of_whole_blocks_are_cut_again() {
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let extents = [ModelDim::from(1), ModelDim::from(2), ModelDim::from("h"), ModelDim::from(8)];
    let twos = || ("strides", vec![2, 2].into());
    let builder = ModelBuilder::new(15)
        .input("x", DType::F32, &extents)
        .initializer("four", &ints(&[4]))
        .initializer("none", &ints(&[0]))
        .initializer("nones", &ints(&[0; 5]))
        .initializer("axis", &ints(&[2]))
        .initializer("down", &rows(&[5, 2, 3, 3]))
        .initializer("up", &rows(&[5, 3, 2, 2]))
        .node("Shape", &["x"], &["h"], &[("start", 2.into()), ("end", 3.into())])
        .node("Neg", &["h"], &["less"], &[])
        .node("Mod", &["less", "four"], &["rest"], &[])
        .node("Concat", &["nones", "none", "rest", "none"], &["pads"], &[("axis", 0.into())])
        .node("Pad", &["x", "pads"], &["a"], &[])
        .node("Conv", &["a", "down"], &["b"], &[twos(), ("pads", vec![1; 4].into())])
        .node("MaxPool", &["b"], &["c"], &[twos(), ("kernel_shape", vec![2, 2].into())])
        .node("ConvTranspose", &["c", "up"], &["d"], &[twos()])
        .node("ConvTranspose", &["b", "up"], &["e"], &[twos()])
        .node("Slice", &["e", "none", "h", "axis"], &["y"], &[])
        .output("d", DType::F32, &UNKNOWN)
        .output("y", DType::F32, &UNKNOWN);
    let runs: &[&[u64]] = &[&[17], &[1], &[4], &[6], &[15]];
    check_sizes(&model(builder), &[("h", 1..=17)], runs, |sizes| vec![vec![1, 2, sizes[0], 8]]);
}

/// Images that are made as large as others, or smaller by a part, and padded to whole blocks.
#[test]
fn images_may_become_as_large_as_others() {
    let extents = [1, 2, 0, 0].map(ModelDim::from);
    let [one, two, ..] = extents;
    let extents = [one, two, ModelDim::from("h"), ModelDim::from("w")];
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let floats = |values: &[f32]| Constant::from_f32(&[values.len() as i64], values).unwrap();
    let dims = [("h", 8..=20), ("w", 8..=33)];
    let runs: &[&[u64]] = &[&[8, 8], &[9, 16], &[16, 31], &[20, 33]];
    let check = |build: &dyn Fn(ModelBuilder) -> ModelBuilder| {
        let builder = build(ModelBuilder::new(19).input("x", DType::F32, &extents));
        let builder = builder.output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
        check_sizes(&model(builder), &dims, runs, |sizes| vec![vec![1, 2, sizes[0], sizes[1]]]);
    };
    for mode in ["nearest", "linear", "cubic"] {
        for places in ["half_pixel", "align_corners", "asymmetric"] {
            let attrs = [("mode", mode.into()), ("coordinate_transformation_mode", places.into())];
            // To a size, to one of the run, and by a factor.
            check(&|b| {
                let half = [("kernel_shape", vec![2, 2].into()), ("strides", vec![2, 2].into())];
                b.initializer("sizes", &ints(&[1, 2, 12, 24]))
                    .node("Resize", &["x", "", "", "sizes"], &["a"], &attrs)
                    .node("MaxPool", &["a"], &["b"], &half)
                    .node("Shape", &["x"], &["shape"], &[])
                    .node("Resize", &["b", "", "", "shape"], &["y"], &attrs)
            });
            check(&|b| {
                b.initializer("half", &floats(&[1.0, 1.0, 0.5, 1.5])).node(
                    "Resize",
                    &["x", "", "half"],
                    &["y"],
                    &attrs,
                )
            });
        }
    }
    for mode in ["constant", "reflect", "edge", "wrap"] {
        check(&|b| {
            b.initializer("two", &ints(&[2]))
                .initializer("four", &ints(&[4]))
                .initializer("block", &ints(&[16, 16]))
                .initializer("zeros", &ints(&[0, 0]))
                .node("Shape", &["x"], &["shape"], &[])
                .node("Slice", &["shape", "two", "four"], &["extents"], &[])
                .node("Neg", &["extents"], &["less"], &[])
                .node("Mod", &["less", "block"], &["missing"], &[])
                .node("Div", &["missing", "two"], &["before"], &[])
                .node("Sub", &["missing", "before"], &["after"], &[])
                .node(
                    "Concat",
                    &["zeros", "before", "zeros", "after"],
                    &["pads"],
                    &[("axis", 0.into())],
                )
                .node("Pad", &["x", "pads"], &["y"], &[("mode", mode.into())])
        });
    }
}

/// Images of any size, one row or column among them, that are made as large as others with sizes of
/// their own.
#[test]
fn images_may_become_as_large_as_images_of_other_sizes() {
    let image = |height: &str, width: &str| {
        [ModelDim::from(1), ModelDim::from(2), ModelDim::from(height), ModelDim::from(width)]
    };
    let dims = [("h", 1..=9), ("w", 1..=12), ("H", 1..=9), ("W", 1..=12)];
    let runs: &[&[u64]] = &[&[9, 12, 9, 12], &[1, 7, 5, 1], &[9, 1, 1, 12], &[4, 5, 8, 3]];
    let check = |places: &str, attrs: &[(&'static str, ModelAttr)]| {
        let mut attrs = attrs.to_vec();
        attrs.push(("coordinate_transformation_mode", places.into()));
        let builder = ModelBuilder::new(19)
            .input("x", DType::F32, &image("h", "w"))
            .input("like", DType::F32, &image("H", "W"))
            .node("Shape", &["like"], &["sizes"], &[])
            .node("Resize", &["x", "", "", "sizes"], &["y"], &attrs)
            .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
        check_sizes(&model(builder), &dims, runs, |sizes| {
            let image = |height: i64, width: i64| vec![1, 2, height, width];
            vec![image(sizes[0], sizes[1]), image(sizes[2], sizes[3])]
        });
    };
    let modes = ["half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric"];
    for places in modes {
        check(places, &[("mode", "nearest".into())]);
        check(places, &[("mode", "linear".into())]);
    }
    check("asymmetric", &[("mode", "cubic".into()), ("exclude_outside", 1.into())]);
}

/// Padding that a mean leaves out is that of multiples of the stride.
#[test]
fn means_with_automatic_padding_go_over_whole_strides() {
    let image = [ModelDim::from(1), ModelDim::from(2), ModelDim::from("side"), ModelDim::from(6)];
    let attrs = [
        ("auto_pad", "SAME_UPPER".into()),
        ("strides", vec![2, 2].into()),
        ("kernel_shape", vec![3, 3].into()),
    ];
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &image)
        .node("AveragePool", &["x"], &["y"], &attrs)
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let model = model(builder);
    let shapes = |sizes: &[i64]| vec![vec![1, 2, sizes[0], 6]];
    check_sizes(&model, &[("side", 1..=12)], &[&[2], &[6], &[12]], shapes);
    let options =
        CompileOptions { dims: [("side".to_owned(), (1..=12).into())].into(), ..options() };
    let loaded = load(&run(&model, &options).unwrap().model, &options);
    let wrong = loaded[0].run(&[rows(&[1, 2, 5, 6])]).unwrap_err().to_string();
    assert!(wrong.contains("they are equal in the model"), "{wrong}");
}

/// Large windows are combined along one axis after the other, whatever the size of a run.
#[test]
fn large_windows_slide_over_images_of_any_size() {
    for op in ["MaxPool", "AveragePool"] {
        let dims = ["h", "w"].map(ModelDim::from);
        let [one, two] = [1, 2].map(ModelDim::from);
        let window = [("kernel_shape", vec![5, 5].into())];
        let builder = ModelBuilder::new(13)
            .input("x", DType::F32, &[&[one, two][..], &dims].concat())
            .node(op, &["x"], &["y"], &window)
            .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
        let runs: &[&[u64]] = &[&[5, 5], &[6, 20], &[30, 40]];
        let shapes = |sizes: &[i64]| vec![vec![1, 2, sizes[0], sizes[1]]];
        check_sizes(&model(builder), &[("h", 5..=30), ("w", 5..=40)], runs, shapes);
    }
}
