//! Passes of graphs do ten times as much for ten times as many operators: in allocations and their
//! bytes, as times are different on each machine. `--nocapture` shows these, too.

#![allow(clippy::print_stdout, reason = "times are for whoever asks to see them")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use niello::graph::FunctionBuilder;
use niello::ir::{Attrs, Constant, DType, IRModule, Type};
use niello::ops::Op;
use niello::pass::instruments::{CountingAllocator, PassMemory};
use niello::pass::{PassContext, PassRef, Registry};
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

/// What a pass took, with what is [required](niello::pass::PassInfo::required) before it.
struct Row {
    name: String,
    allocations: u64,
    bytes: u64,
    time: Duration,
}

fn measured(pass: &PassRef, module: IRModule) -> (IRModule, Row) {
    let memory = Arc::new(PassMemory::new());
    let builder = PassContext::builder().opt_level(4).jobs(1).shared_instrument(memory.clone());
    let cx = builder.build().unwrap();
    let begin = Instant::now();
    let module = cx.scope(|cx| pass.run(module, cx)).unwrap();
    let time = begin.elapsed();
    let name = pass.info().name().to_owned();
    let mut row = Row { name, allocations: 0, bytes: 0, time };
    let number = |words: &str| words.split(' ').next().unwrap().parse::<u64>().unwrap();
    for line in memory.render().lines() {
        // `FoldConstant: 12 allocations, 480 bytes, kept +0, peak +480`.
        let (_, rest) = line.trim_start().split_once(": ").unwrap();
        let (allocations, bytes) = rest.split_once(", ").unwrap();
        row.allocations += number(allocations);
        row.bytes += number(bytes);
    }
    (module, row)
}

/// The passes of the pipeline, one after the other, and each other pass of graphs alone.
fn all(operators: usize) -> Vec<Row> {
    let pipeline = pipeline(&PipelineExtensions::new()).unwrap();
    let mut rows = Vec::new();
    let mut module = chain(operators);
    for pass in pipeline.passes() {
        let (after, row) = measured(pass, module);
        rows.push(row);
        module = after;
    }
    let registry = Registry::global();
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    for pass in registry.entries().filter_map(|entry| entry.pass()) {
        let name = pass.info().name();
        if !name.starts_with("tir.") && !names.iter().any(|other| other == name) {
            rows.push(measured(&pass, chain(operators)).1);
        }
    }
    rows
}

fn check(small: usize) {
    let large = 10 * small;
    let (less, more) = (all(small), all(large));
    assert!(less.len() > 40, "{} passes", less.len());
    for (less, more) in less.iter().zip(&more) {
        let name = &less.name;
        assert_eq!(*name, more.name);
        println!("{name}: {:.1?}, {:.1?}", less.time, more.time);
        assert!(
            more.allocations <= MAX_GROWTH * less.allocations.max(MIN_ALLOCATIONS),
            "{name}: {} allocations for {small} operators, {} for {large}",
            less.allocations,
            more.allocations
        );
        assert!(
            more.bytes <= MAX_GROWTH * less.bytes.max(MIN_BYTES),
            "{name}: {} bytes for {small} operators, {} for {large}",
            less.bytes,
            more.bytes
        );
    }
}

#[test]
fn every_pass_of_graphs_grows_with_the_number_of_operators() {
    check(1_000);
    check(10_000);
}
