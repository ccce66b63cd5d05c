//! What the pass infrastructure costs, and what it gains from several threads.
//!
//! `cargo xtask bench passes` builds it with optimisation and runs it. Run as a test it measures
//! nothing and only checks that one and two threads yield the same.

#![allow(clippy::print_stdout, reason = "what a benchmark has to say goes to standard output")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use niello::graph::{Function, FunctionBuilder, PrintOptions, print_module};
use niello::ir::{Attrs, Constant, DType, Definition, GlobalVar, IRModule, Type};
use niello::ops::Op;
use niello::pass::{
    FunctionPass, ModulePass, Pass, PassContext, PassInfo, PassRef, Result, Sequential,
};
use niello::transform::EliminateCommonSubexpr;

/// What a pass may cost beside its own work, with instruments off.
const PER_PASS: Duration = Duration::from_micros(5);
/// The same for each function.
const PER_FUNCTION: Duration = Duration::from_micros(1);
/// How much faster two threads are to be than one.
const SPEED_UP: f64 = 1.6;
/// Least time that the real pass takes for each function.
const WORK: Duration = Duration::from_millis(1);
/// Functions that it has to do.
const FUNCTIONS: usize = 100;
/// Rounds in which one and two threads take turns.
const ROUNDS: usize = 15;
/// Passes in a list.
const LISTED: usize = 10;

fn main() -> ExitCode {
    let measuring = std::env::args().any(|arg| arg == "--bench");
    let done = if measuring { measure() } else { compare(4, 50) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("\nbeyond what is allowed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<bool> {
    println!("| passes | calls | functions | time | allowed |");
    println!("|---|---:|---:|---:|---:|");
    let mut fine = true;
    for calls in [10_000, 100_000] {
        for functions in [1, 10, 100] {
            for (what, pass, passes) in idle()? {
                let time = overhead(&pass, &module(functions, calls / functions)?)?;
                let visits = if what.starts_with("module") { 0 } else { functions as u32 };
                let allowed = (PER_PASS + PER_FUNCTION * visits) * passes;
                fine &= time <= allowed;
                println!("| {what} | {calls} | {functions} | {time:.1?} | {allowed:.1?} |");
            }
        }
    }
    println!();
    Ok(speed_up()? && fine)
}

/// Passes that do nothing: what it is, the pass, how many passes run.
fn idle() -> Result<[(&'static str, PassRef, u32); 3]> {
    let of_module = ModulePass::new(PassInfo::new("IdleModule", 0)?, |m: IRModule, _: &_| m);
    let of_functions = || -> Result<PassRef> {
        let info = PassInfo::new("IdleFunction", 0)?;
        let idle = |function: Function, _: &IRModule, _: &PassContext| function;
        Ok(PassRef::new(FunctionPass::new(info, idle)))
    };
    let listed = (0..LISTED).map(|_| of_functions()).collect::<Result<Vec<_>>>()?;
    Ok([
        ("module pass", PassRef::new(of_module), 1),
        ("function pass", of_functions()?, 1),
        // The list is a pass as well.
        ("list of 10 function passes", PassRef::new(Sequential::new(listed)), LISTED as u32 + 1),
    ])
}

/// The time of one run: the median of many.
fn overhead(pass: &PassRef, module: &IRModule) -> Result<Duration> {
    let cx = PassContext::builder().build()?;
    let mut times = Vec::new();
    for _ in 0..2000 {
        let given = module.clone();
        let start = Instant::now();
        let after = pass.run(given, &cx)?;
        times.push(start.elapsed());
        assert!(after.same(module), "a pass that does nothing returns the same handle");
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn speed_up() -> Result<bool> {
    // Large enough that a function is work for a millisecond.
    let one = PassContext::builder().jobs(1).build()?;
    let mut calls = 500;
    loop {
        let module = module(1, calls)?;
        let start = Instant::now();
        EliminateCommonSubexpr.run(module, &one)?;
        if start.elapsed() >= WORK * 3 / 2 {
            break;
        }
        calls += calls / 4;
    }
    let module = module(FUNCTIONS, calls)?;
    let timed = |jobs| -> Result<Duration> {
        let cx = PassContext::builder().jobs(jobs).build()?;
        let given = module.clone();
        let start = Instant::now();
        let changed = EliminateCommonSubexpr.run(given, &cx)?;
        let elapsed = start.elapsed();
        // What the caller does with the result is no part of the pass.
        drop(changed);
        Ok(elapsed)
    };
    // In turns, as the machine's clock and its other users change from one moment to the next.
    let mut pairs = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        pairs.push((timed(1)?, timed(2)?));
    }
    let gain_of = |(alone, together): (Duration, Duration)| alone.div_duration_f64(together);
    pairs.sort_by(|a, b| gain_of(*a).total_cmp(&gain_of(*b)));
    let (alone, together) = pairs[ROUNDS / 2];
    let each = alone / FUNCTIONS as u32;
    let gain = gain_of((alone, together));
    println!(
        "EliminateCommonSubexpr on {FUNCTIONS} functions of {calls} calls, {each:.1?} each: \
         one thread {alone:.1?}, two threads {together:.1?}, {gain:.2} times as fast, the median of \
         {ROUNDS} rounds (at least {SPEED_UP})"
    );
    let same = compare(FUNCTIONS, calls)?;
    println!(
        "text, diagnostics, remarks and statistics: {}",
        if same { "identical" } else { "differ" }
    );
    Ok(same && gain >= SPEED_UP && each >= WORK)
}

/// Whether one and two threads yield the same.
fn compare(functions: usize, calls: usize) -> Result<bool> {
    let module = module(functions, calls)?;
    let run = |jobs| -> Result<_> {
        let cx = PassContext::builder().opt_level(3).jobs(jobs).remarks(true).build()?;
        let after = EliminateCommonSubexpr.run(module.clone(), &cx)?;
        let text = print_module(&after, &PrintOptions::default());
        Ok((text, cx.diagnostics(), cx.remarks(), cx.statistics()))
    };
    Ok(run(1)? == run(2)?)
}

/// A module of that many functions of that many calls; half of them are there twice.
fn module(functions: usize, calls: usize) -> Result<IRModule> {
    let mut module = IRModule::new();
    for index in 0..functions {
        let global = GlobalVar::new(&format!("f{index}"));
        module.insert(global, Definition::Graph(function(calls)?));
    }
    Ok(module)
}

fn function(calls: usize) -> Result<Function> {
    let op = |name| Op::get(name).ok_or_else(|| format!("there is no operator `{name}`"));
    let (relu, add) = (op("nn.relu")?, op("add")?);
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", Type::tensor(&[4], DType::F32));
    let one = b.constant(Constant::scalar(1.0, DType::F32).ok_or("one is a float")?);
    let mut made = 0;
    while made < calls {
        let left = b.call(relu, &[x], Attrs::new())?;
        let right = b.call(relu, &[x], Attrs::new())?;
        let sum = b.call(add, &[left, right], Attrs::new())?;
        x = b.call(add, &[sum, one], Attrs::new())?;
        made += 4;
    }
    Ok(b.finish(x))
}
