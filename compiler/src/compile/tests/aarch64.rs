//! Hot loops on AArch64, as assembly: what LLVM makes of them, which runs nowhere else.

use super::*;
use crate::onnx::ModelAttr;

/// Most instructions in a loop for each that multiplies: operands, prefetches and the loop itself.
const MOST_A_MULTIPLICATION: f64 = 1.9;

/// A model of one operator, with one input and a weight.
fn one(op: &str, x: Constant, weight: Constant, sum: DType, y: &[i64]) -> Model {
    let dims = |constant: &Constant| -> Vec<ModelDim> {
        constant.ty().shape.as_consts().unwrap().iter().map(|&dim| (dim as i64).into()).collect()
    };
    let y: Vec<ModelDim> = y.iter().map(|&dim| dim.into()).collect();
    let pads: [(&str, ModelAttr); 1] = [("pads", [1; 4].into())];
    let attrs = if op.starts_with("Conv") { &pads[..] } else { &[] };
    let proto = ModelBuilder::new(19)
        .input("x", x.ty().dtype, &dims(&x))
        .initializer("w", &weight)
        .node(op, &["x", "w"], &["y"], attrs)
        .output("y", sum, &y)
        .build();
    Model::from_onnx("one", ModelFile { proto, folder: None, store: None })
}

fn constant(dtype: DType, shape: &[usize]) -> Constant {
    let numbers = (0..shape.iter().product::<usize>()).map(|at| (at * 37 % 23) as f64 - 11.0);
    let tensor = match dtype.is_float() {
        true => Tensor::from_floats(dtype, shape, numbers.collect()),
        false => Tensor::from_ints(dtype, shape, numbers.map(|n| n as i128 + 11).collect()),
    };
    tensor.unwrap().to_constant().unwrap()
}

/// The instructions of each innermost loop of the model's kernels.
fn loops(model: &Model, cpu: &str) -> Vec<Vec<String>> {
    let target = Target::from_triple("aarch64-unknown-linux-gnu").unwrap();
    let options = CompileOptions {
        target: target.with_cpu(cpu).unwrap(),
        backend: Backend::Llvm,
        numerics: Numerics::Float16,
        ..options()
    };
    let made = run(model, &options).unwrap();
    let mut loops = Vec::new();
    for (_, text) in made.code.listing(Listing::Assembly, &options).unwrap() {
        let mut block: (&str, Vec<String>) = ("", Vec::new());
        for line in text.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if let Some(label) = line.strip_suffix(':') {
                block = (label, Vec::new());
            } else if !line.is_empty() && !line.starts_with('.') {
                block.1.push(line.to_owned());
                if line.starts_with("b.") && line.ends_with(block.0) && !block.0.is_empty() {
                    loops.push(std::mem::take(&mut block.1));
                }
            }
        }
    }
    loops
}

fn count(lines: &[String], instruction: &str) -> usize {
    lines.iter().filter(|line| line.split_whitespace().next() == Some(instruction)).count()
}

/// The loop with the most of an instruction, which has so many and does little else.
#[track_caller]
fn hot(model: &Model, cpu: &str, instruction: &str, least: usize, most_others: f64) -> Vec<String> {
    let loops = loops(model, cpu);
    let hot = loops.into_iter().max_by_key(|lines| count(lines, instruction));
    let hot = hot.unwrap_or_else(|| panic!("{cpu}: no loop"));
    let (found, text) = (count(&hot, instruction), hot.join("\n"));
    assert!(found >= least, "{cpu}: {found} {instruction}\n{text}");
    let all = hot.len() as f64 / found as f64;
    assert!(all <= most_others, "{cpu}: {all} instructions a {instruction}\n{text}");
    hot
}

/// Its sums stay in registers.
#[track_caller]
fn is_without_spills(hot: &[String]) {
    let spill = hot.iter().find(|line| line.contains("[sp") && line.contains('q'));
    assert_eq!(spill, None, "{}", hot.join("\n"));
}

#[test]
fn sums_of_floats_are_fused_multiply_adds_on_registers() {
    let (x, w) = (constant(DType::F32, &[96, 256]), constant(DType::F32, &[256, 128]));
    let product = one("MatMul", x, w, DType::F32, &[96, 128]);
    let (x, w) = (constant(DType::F32, &[1, 32, 7, 7]), constant(DType::F32, &[64, 32, 3, 3]));
    let conv = one("Conv", x, w, DType::F32, &[1, 64, 7, 7]);
    for (model, least) in [(&product, 20), (&conv, 16)] {
        is_without_spills(&hot(model, "generic", "fmla", least, MOST_A_MULTIPLICATION));
    }
}

/// By bytes of both signs, by those of one sign and a correction that all columns share, and by
/// products of words.
#[test]
fn sums_of_bytes_are_dot_products_where_there_are_some() {
    let (x, w) = (constant(DType::U8, &[96, 256]), constant(DType::I8, &[256, 128]));
    let product = one("MatMulInteger", x, w, DType::I32, &[96, 128]);
    is_without_spills(&hot(&product, "aarch64-i8mm", "usdot", 16, 2.4));
    is_without_spills(&hot(&product, "aarch64-dotprod", "udot", 20, 3.0));
    // LLVM keeps some of the words that weights become in memory; gcc does not.
    hot(&product, "generic", "sadalp", 20, 5.5);
}

#[test]
fn sums_of_halves_are_fused_multiply_adds_of_twice_as_many_lanes() {
    let (x, w) = (constant(DType::F16, &[96, 256]), constant(DType::F16, &[256, 128]));
    let product = one("MatMul", x, w, DType::F16, &[96, 128]);
    let (x, w) = (constant(DType::F16, &[1, 32, 9, 9]), constant(DType::F16, &[64, 32, 3, 3]));
    let conv = one("Conv", x, w, DType::F16, &[1, 64, 9, 9]);
    for (model, least) in [(&product, 20), (&conv, 18)] {
        let hot = hot(model, "aarch64-fp16", "fmla", least, MOST_A_MULTIPLICATION);
        is_without_spills(&hot);
        let sums = hot.iter().filter(|line| line.starts_with("fmla"));
        assert!(sums.clone().all(|line| line.contains(".8h")), "{}", hot.join("\n"));
    }
}

#[test]
fn halves_are_converted_by_instructions() {
    let (x, w) = (constant(DType::F16, &[1, 64]), constant(DType::F16, &[64, 64]));
    let product = one("MatMul", x, w, DType::F16, &[1, 64]);
    let loops = loops(&product, "generic");
    let converts = |lines: &Vec<String>| count(lines, "fcvtl") + count(lines, "fcvt");
    assert!(loops.iter().any(|lines| converts(lines) > 0), "{loops:#?}");
}
