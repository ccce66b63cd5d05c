//! Layouts between kernels, as `PlanLayouts` chooses them and as others say.

use super::*;
use crate::graph::interp::{Tolerance, Value, compare, evaluate};
use crate::graph::{Expr, Function, Rewriter, parse_module};
use crate::ir::{AttrValue, IRModule, Type};
use crate::pass::{FunctionPass, PassInfo, PassRef};
use crate::strategy::{BLOCKED_LAYOUT, DENSE_LAYOUT, LAYOUTS, can_be_blocked};

/// Convolutions of several kinds with what may be around them.
const NETWORK: &str = "\
def @main(%x: Tensor[(1, 20, 9, 7), float32], %w: Tensor[(16, 20, 3, 3), float32], \
          %g: Tensor[(16, 8, 3, 1), float32], %d: Tensor[(16, 1, 3, 3), float32], \
          %p: Tensor[(9, 32, 1, 1), float32], %m: Tensor[(7, 5), float32]) \
    -> (Tensor[(1, 9, 9, 7), float32], Tensor[(1, 16, 9, 5), float32], Tensor[(1, 16), float32]) {
  %0 = nn.relu(nn.conv2d(nn.relu(%x), %w, padding=[1, 1, 1, 1]));
  %1 = nn.conv2d(%0, %g, groups=2, padding=[1, 0, 1, 0]);
  %2 = nn.conv2d(%1, %d, groups=16, padding=[2, 2, 2, 2], dilation=[2, 2]);
  %3 = nn.max_pool2d(%2, pool_size=[3, 3], padding=[1, 1, 1, 1]);
  %4 = concatenate(%3, add(%0, %1), axis=1);
  %5 = nn.conv2d(%4, %p);
  %6 = nn.matmul(nn.relu(%3), %m);
  (%5, %6, reshape(nn.global_avg_pool2d(%2), newshape=[1, 16]))
}";

/// A pass that says of each tensor between kernels that can be in blocks whether it is.
fn says(is_blocked: impl Fn(u64) -> bool + Send + Sync + 'static) -> PassRef {
    let body = move |function: Function, _: &IRModule, _: &PassContext| {
        if function.attrs().flag("Primitive") {
            return Ok(function);
        }
        let mut rewriter = Rewriter::new(function.clone());
        let mut number = 0;
        while let Some(id) = rewriter.next_expr()? {
            let (Expr::Call(call), Some(Type::Tensor(ty))) =
                (function.expr(id), Some(function.ty(id)))
            else {
                continue;
            };
            number += 1;
            let layout = match can_be_blocked(ty) && is_blocked(number) {
                true => BLOCKED_LAYOUT,
                false => DENSE_LAYOUT,
            };
            rewriter.replace_attrs(call.attrs.clone().with(LAYOUTS, vec![layout]))?;
        }
        Ok::<_, crate::pass::PassError>(rewriter.finish()?)
    };
    PassRef::new(FunctionPass::new(PassInfo::new("SayLayouts", 0).unwrap(), body))
}

fn inputs(module: &IRModule) -> Vec<Constant> {
    let main = module.function("main").unwrap();
    let input = |(seed, &param): (usize, &_)| {
        let shape = main.ty(param).as_tensor().unwrap().shape.as_consts().unwrap();
        let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
        let count = shape.iter().product::<i64>() as usize;
        let values = (0..count).map(|at| ((at * 7 + seed * 3) % 11) as f32 / 8.0 - 0.5);
        Constant::from_f32(&shape, &values.collect::<Vec<f32>>()).unwrap()
    };
    main.params().iter().enumerate().map(input).collect()
}

#[test]
fn results_are_the_same_in_any_layouts() {
    let module = parse_module(NETWORK).unwrap();
    let model = Model::from_module("layouts", module.clone());
    let inputs = inputs(&module);
    let values: Vec<Value> =
        inputs.iter().map(|x| Tensor::from_constant(x).unwrap().into()).collect();
    let expected = evaluate(&module, "main", &values).unwrap();
    let mut counts = std::collections::BTreeSet::new();
    // As chosen, all dense, all in blocks, and some.
    for way in 0..12 {
        let options = CompileOptions { opt_level: 1, ..options() };
        let mut passes = Passes::new(&options).unwrap();
        match way {
            0 => {}
            1 => passes.extensions.at_end(says(|_| false)),
            2 => passes.extensions.at_end(says(|_| true)),
            // Before the pass, which leaves them.
            3 => passes.extensions.before("PlanLayouts", says(|number| number % 2 == 0)),
            _ => passes.extensions.at_end(says(move |number| (number * 5 + way) % 7 < 3)),
        }
        let compilation = compile(&model, &options, &passes).unwrap();
        let specs = compilation.program.values.values().map(|value| &value.spec);
        counts.insert(specs.filter(|spec| !spec.is_dense()).count());
        for loaded in load(&compilation.model, &options) {
            let found = loaded.run(&inputs).unwrap();
            for (found, expected) in found.iter().zip(expected.as_tuple().unwrap()) {
                let expected = expected.as_tensor().unwrap().to_constant().unwrap();
                compare(found, &expected, Tolerance::near(&expected))
                    .unwrap_or_else(|why| panic!("way {way}: {why}"));
            }
        }
    }
    assert!(counts.contains(&0) && counts.len() > 3, "{counts:?}");
}

#[test]
fn planes_around_convolutions_by_winograds_algorithm_are_copied_by_kernels_of_their_own() {
    let values = |count: usize| -> Vec<f32> {
        (0..count).map(|at| (at * 5 % 13) as f32 / 64.0 - 0.1).collect()
    };
    let shape = [1, 16, 31, 26];
    let weights = Constant::from_f32(&[16, 16, 3, 3], &values(16 * 16 * 9)).unwrap();
    let pads = [("pads", crate::onnx::ModelAttr::from(vec![1i64, 1, 1, 1]))];
    // Both convolutions read the input; one result is read in blocks as well, the other one is not.
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &shape)
        .input("y", DType::F32, &shape)
        .initializer("w", &weights)
        .node("Conv", &["x", "w"], &["a"], &pads)
        .node("Relu", &["a"], &["b"], &[])
        .node("Conv", &["x", "w"], &["c"], &[])
        .node("Tanh", &["c"], &["d"], &[])
        .node("Conv", &["b", "w"], &["e"], &pads)
        .node("Add", &["e", "y"], &["f"], &[])
        .output("d", DType::F32, &[1, 16, 29, 24])
        .output("f", DType::F32, &shape)
        .build();
    let model = Model::from_onnx("planes", ModelFile { proto, folder: None, store: None });
    let options = options();
    let compilation = run(&model, &options).unwrap();
    // The inputs once, and the two results.
    let kernels = compilation.program.steps.iter();
    let kernels = kernels.map(|step| compilation.program.kernels[step.kernel].signature());
    let copies = kernels.filter(|kernel| kernel.name.contains("layout_transform")).count();
    assert_eq!(copies, 4);

    let x = Constant::from_f32(&[1, 16, 31, 26], &values(16 * 31 * 26)).unwrap();
    let inputs = [x.clone(), x];
    let imported = model.import(&options).unwrap();
    let tensors = inputs.iter().map(|x| Value::from(Tensor::from_constant(x).unwrap()));
    let tensors: Vec<Value> = tensors.collect();
    let expected = evaluate(&imported.module, "main", &tensors).unwrap();
    for loaded in load(&compilation.model, &options) {
        let found = loaded.run(&inputs).unwrap();
        for (found, expected) in found.iter().zip(expected.as_tuple().unwrap()) {
            let expected = expected.as_tensor().unwrap().to_constant().unwrap();
            compare(found, &expected, Tolerance::near(&expected)).unwrap();
        }
    }
}

#[test]
fn layouts_that_a_tensor_cannot_have_are_errors() {
    let error = |layouts: AttrValue| {
        let text = "def @main(%x: Tensor[(1, 4, 9, 7), float32]) -> Tensor[(1, 4, 9, 7), float32] {
              nn.relu(%x)
            }";
        let options = options();
        let mut passes = Passes::new(&options).unwrap();
        let body = move |function: Function, _: &IRModule, _: &PassContext| {
            let mut rewriter = Rewriter::new(function.clone());
            while let Some(id) = rewriter.next_expr()? {
                if let Expr::Call(call) = function.expr(id)
                    && !function.attrs().flag("Primitive")
                {
                    let attrs = call.attrs.clone().with(LAYOUTS, layouts.clone());
                    rewriter.replace_attrs(attrs)?;
                }
            }
            Ok::<_, crate::pass::PassError>(rewriter.finish()?)
        };
        let info = PassInfo::new("Say", 0).unwrap();
        passes.extensions.at_end(PassRef::new(FunctionPass::new(info, body)));
        let model = Model::from_module("wrong", parse_module(text).unwrap());
        compile(&model, &options, &passes).map(|_| ()).unwrap_err().to_string()
    };
    let few = error(vec![BLOCKED_LAYOUT].into());
    let expected = "result 0 of a call of `@fused_nn_relu`, of type Tensor[(1, 4, 9, 7), float32], \
                    cannot be stored in \"NCHW16c\": a layout is \"dense\", or \"NCHW16c\" for four axes";
    assert!(few.contains(expected), "{few}");
    let unknown = error(vec!["NHWC"].into());
    assert!(unknown.contains("cannot be stored in \"NHWC\""), "{unknown}");
    for wrong in [AttrValue::from("dense"), vec![DENSE_LAYOUT; 2].into()] {
        let found = error(wrong);
        assert!(found.contains("but must be a list of 1"), "{found}");
    }
}
