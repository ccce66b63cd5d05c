//! Four operators of the ONNX domain `audio`, which niello does not have: `Snake`, made of graph
//! operators that there are; `SoftmaxOne`, a graph operator with a tensor expression of its own;
//! `Delay`, one with an attribute as well; and `Distances`, one with a schedule of its own. And a
//! processor that niello does not know.

mod delay;
mod distances;

pub use delay::{DELAY, DelayAttrs};

use niello::graph::TypeError;
use niello::graph::interp::{Elements, Tensor};
use niello::ir::{DType, Type};
use niello::onnx::{Node, NodeError, OnnxOp, Outputs};
use niello::ops::elementwise::{ADD, DIVIDE, MULTIPLY, SIN};
use niello::ops::{Compute, DTypes, EvalCx, EvalError, InferCx, Input, OpDef, OpPattern, Stages};
use niello::target::CpuDef;
use niello::tir::{BinaryOp, Intrinsic, PrimExpr};

niello::register_onnx_op!(OnnxOp::new("audio", "Snake", &[1], (1, 1), snake));
niello::register_onnx_op!(OnnxOp::new("audio", "SoftmaxOne", &[1], (1, 1), softmax_one));
niello::register_op!(SOFTMAX_ONE);

/// A core with AVX2 and a second cache level of 2 MB, in which larger blocks stay than niello assumes of
/// such.
const GRACEMONT: CpuDef = CpuDef {
    arch: "x86_64",
    name: "gracemont",
    features: &["avx2", "fma", "f16c", "bmi1", "bmi2", "lzcnt", "movbe", "popcnt", "avxvnni"],
    caches: [32 << 10, 2 << 20],
};

niello::register_cpu!(GRACEMONT);

/// `x + sin(alpha · x)² / alpha`: an activation for periodic signals (Ziyin et al., 2020).
fn snake(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    if !(alpha > 0.0 && alpha.is_finite()) {
        return Err(NodeError::new(format!("attribute `alpha` {alpha} must be greater than 0")));
    }
    let x = node.input(0)?;
    let alpha = node.scalar(alpha, node.tensor(x)?.dtype)?;
    let angle = node.call(&MULTIPLY, &[x, alpha])?;
    let sine = node.call(&SIN, &[angle])?;
    let square = node.call(&MULTIPLY, &[sine, sine])?;
    let wave = node.call(&DIVIDE, &[square, alpha])?;
    Ok(vec![node.call(&ADD, &[x, wave])?])
}

fn softmax_one(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    Ok(vec![node.call(&SOFTMAX_ONE, &[x])?])
}

/// `exp(x) / (1 + sum(exp(x)))` along the last axis: a softmax that can attend to nothing.
pub static SOFTMAX_ONE: OpDef = OpDef::new(
    "audio.softmax_one",
    "a softmax whose weights may be less than one together",
    &[Input::required("x")],
    infer,
    eval,
    compute,
)
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    cx.axis(0, -1)?;
    Ok(x.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let mut values = cx.floats(0)?.to_vec();
    let length = cx.shape().last().copied().unwrap_or(1);
    for row in values.chunks_mut(length.max(1)) {
        // Zero stands for the one: exp(0).
        let greatest = row.iter().copied().fold(0.0, f64::max);
        let sum: f64 = row.iter().map(|x| (x - greatest).exp()).sum();
        let divisor = (-greatest).exp() + sum;
        row.iter_mut().for_each(|x| *x = (*x - greatest).exp() / divisor);
    }
    cx.result(Elements::Float(values))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let Some((&length, rows)) = shape.split_last() else {
        return cx.unsupported("of a scalar");
    };
    // Halves are summed in 32 bits.
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let op = cx.op.name;
    let dag = &mut *cx.dag;
    let along = |index: &[PrimExpr], by: &[PrimExpr]| [index, by].concat();
    let row = |index: &[PrimExpr]| index[..index.len() - 1].to_vec();
    let most = dag.reduce(op, rows, wide, BinaryOp::Max, &[length], |dag, index, by| {
        dag.at(x, &along(index, by)).cast(wide)
    });
    let greatest = dag.compute(op, rows, wide, |dag, index| {
        PrimExpr::binary(BinaryOp::Max, dag.at(most, index), PrimExpr::float(0.0, wide))
    });
    let exp = dag.compute(op, &shape, wide, |dag, index| {
        let x = dag.at(x, index).cast(wide);
        PrimExpr::call(Intrinsic::Exp, x - dag.at(greatest, &row(index)))
    });
    // Each takes longer to compute than to store.
    dag.set_stored(exp);
    let sum = dag.reduce(op, rows, wide, BinaryOp::Add, &[length], |dag, index, by| {
        dag.at(exp, &along(index, by))
    });
    let divisor = dag.compute(op, rows, wide, |dag, index| {
        let one = PrimExpr::float(0.0, wide) - dag.at(greatest, index);
        PrimExpr::call(Intrinsic::Exp, one) + dag.at(sum, index)
    });
    cx.element(|dag, index| (dag.at(exp, index) / dag.at(divisor, &row(index))).cast(dtype))
}

#[cfg(test)]
mod tests {
    use niello::graph::{PrintOptions, parse_module, print_module};
    use niello::onnx::{ImportOptions, ModelAttr, ModelBuilder, import};
    use niello::schedule::Machine;
    use niello::target::Target;

    use super::*;

    /// What is wrong with a model of one node.
    fn problem(domain: &str, op: &str, attrs: &[(&str, ModelAttr)]) -> String {
        let model = ModelBuilder::new(18)
            .opset("audio", 1)
            .input("x", DType::F32, &[2, 3])
            .node_in(domain, op, &["x"], &["y"], attrs)
            .output("y", DType::F32, &[2, 3])
            .build();
        import(&model, None, &ImportOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn the_text_format_knows_the_operator() {
        let text = "def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
            audio.softmax_one(%x)
        }";
        let printed = print_module(&parse_module(text).unwrap(), &PrintOptions::default());
        assert!(printed.contains("audio.softmax_one(%x)"), "{printed}");
        assert!(parse_module(&printed).is_ok());
        let misspelt = parse_module(&text.replace("max_one", "max_on")).unwrap_err().to_string();
        assert!(misspelt.contains("audio.softmax_one"), "{misspelt}");
    }

    #[test]
    fn mistakes_are_told_with_their_node() {
        let alpha = problem("audio", "Snake", &[("alpha", 0.0f32.into())]);
        assert!(alpha.contains("audio.Snake"), "{alpha}");
        assert!(alpha.contains("attribute `alpha` 0 must be greater than 0"), "{alpha}");
        let beta = problem("audio", "Snake", &[("beta", 1.0f32.into())]);
        assert!(beta.contains("attribute `beta` is not one of Snake"), "{beta}");
    }

    #[test]
    fn a_registered_cpu_is_one_that_code_can_be_for() {
        let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        let core = target.clone().with_cpu("gracemont").unwrap();
        assert!(core.has_feature("avx2") && core.has_feature("sse4.2"));
        assert!(!core.has_feature("avx512f"));
        let plain = target.clone().with_cpu("x86-64-v3").unwrap();
        assert_eq!(Machine::of(&core).caches, GRACEMONT.caches);
        assert_ne!(Machine::of(&plain).caches, GRACEMONT.caches);
        let known = target.with_cpu("goldmont").unwrap_err().to_string();
        assert!(known.ends_with("znver4, gracemont, twin, twin, znver3"), "{known}");
    }

    const TWIN: CpuDef = CpuDef { name: "twin", ..GRACEMONT };
    niello::register_cpu!(TWIN);
    niello::register_cpu!(CpuDef { features: &[], ..TWIN });
    niello::register_cpu!(CpuDef { name: "znver3", ..TWIN });

    #[test]
    fn a_cpu_that_is_registered_twice_is_an_error_that_says_where() {
        let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        for (cpu, places) in [("twin", 2), ("znver3", 1)] {
            let twice = target.clone().with_cpu(cpu).unwrap_err().to_string();
            assert!(twice.contains(&format!("the CPU `{cpu}` is registered at")), "{twice}");
            assert_eq!(twice.matches("lib.rs:").count(), places, "{twice}");
        }
    }

    niello::register_onnx_op!(OnnxOp::new("audio", "Twice", &[1], (1, 1), snake));
    niello::register_onnx_op!(OnnxOp::new("audio", "Twice", &[1], (1, 1), softmax_one));
    // Of ONNX's own domain, which has a Mish of niello's.
    niello::register_onnx_op!(OnnxOp::new("", "Mish", &[18], (1, 1), snake));
    niello::register_onnx_op!(OnnxOp::new("ai.onnx", "Mish", &[18], (1, 1), softmax_one));

    #[test]
    fn registered_operators_are_listed_by_domain() {
        let domains = niello::onnx::operators_by_domain();
        assert!(domains["audio"].is_superset(&["Snake", "SoftmaxOne"].into()));
        assert!(domains["ai.onnx"].contains("Mish"));
    }

    #[test]
    fn an_operator_that_is_registered_twice_is_an_error_that_says_where() {
        for (domain, op, name) in [("audio", "Twice", "audio.Twice"), ("", "Mish", "Mish")] {
            let twice = problem(domain, op, &[]);
            let expected = format!("imports of the operator {name} are registered at");
            assert!(twice.contains(&expected), "{twice}");
            assert_eq!(twice.matches("lib.rs:").count(), 2, "{twice}");
        }
    }
}
