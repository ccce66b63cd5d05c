//! Passes of the pipeline do ten times as much for ten times as many operators: in allocations and
//! their bytes, as times are different on each machine.

use std::sync::Arc;

use niello::graph::FunctionBuilder;
use niello::ir::{Attrs, Constant, DType, IRModule, Type};
use niello::ops::Op;
use niello::pass::instruments::{CountingAllocator, PassMemory};
use niello::pass::{Pass, PassContext};
use niello::transform::pipeline::{PipelineExtensions, pipeline};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What a pass may allocate for ten times as many operators: ten times as much, and what tables that
/// grow by doubling have in reserve.
const MAX_GROWTH: u64 = 16;

/// Allocations, and bytes, below which a pass has found nothing to do.
const MIN_ALLOCATIONS: u64 = 500;
const MIN_BYTES: u64 = 100_000;

/// Residual steps one after the other, of so many operators altogether.
fn chain(operators: usize) -> IRModule {
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", Type::tensor(&[1, 4, 3, 3], DType::F32));
    let call = |b: &mut FunctionBuilder, op: &str, args: &[_]| {
        b.call(Op::get(op).unwrap(), args, Attrs::new()).unwrap()
    };
    for step in 0..operators / 4 {
        let skip = x;
        x = call(&mut b, "tanh", &[x]);
        let factors = [0.5, 0.25, 0.75, step as f32];
        let factor = b.constant(Constant::from_f32(&[4, 1, 1], &factors).unwrap());
        x = call(&mut b, "multiply", &[x, factor]);
        let half = b.constant(Constant::scalar(0.5, DType::F32).unwrap());
        x = call(&mut b, "multiply", &[x, half]);
        x = call(&mut b, "add", &[x, skip]);
    }
    IRModule::from_function(b.finish(x))
}

/// The name, the allocations and their bytes of each pass.
fn measured(operators: usize) -> Vec<(String, u64, u64)> {
    let memory = Arc::new(PassMemory::new());
    let builder = PassContext::builder().opt_level(4).jobs(1).shared_instrument(memory.clone());
    let cx = builder.build().unwrap();
    let list = pipeline(&PipelineExtensions::new()).unwrap();
    let module = chain(operators);
    cx.scope(|cx| list.run(module, cx)).unwrap();
    let number = |words: &str| words.split(' ').next().unwrap().parse().unwrap();
    let text = memory.render();
    let rows = text.lines().map(|line| {
        // `FoldConstant: 12 allocations, 480 bytes, kept +0, peak +480`.
        let (name, rest) = line.trim_start().split_once(": ").unwrap();
        let (allocations, bytes) = rest.split_once(", ").unwrap();
        (name.to_owned(), number(allocations), number(bytes))
    });
    rows.collect()
}

#[test]
fn every_pass_of_the_pipeline_grows_with_the_number_of_operators() {
    let (small, large) = (measured(1_000), measured(10_000));
    assert!(small.len() > 15, "{small:?}");
    let names = |rows: &[(String, u64, u64)]| -> Vec<String> {
        rows.iter().map(|(name, ..)| name.clone()).collect()
    };
    assert_eq!(names(&small), names(&large));
    for ((name, count, bytes), (_, large_count, large_bytes)) in small.iter().zip(&large) {
        assert!(
            *large_count <= MAX_GROWTH * (*count).max(MIN_ALLOCATIONS),
            "{name}: {count} allocations for 1,000 operators, {large_count} for 10,000"
        );
        assert!(
            *large_bytes <= MAX_GROWTH * (*bytes).max(MIN_BYTES),
            "{name}: {bytes} bytes for 1,000 operators, {large_bytes} for 10,000"
        );
    }
}
