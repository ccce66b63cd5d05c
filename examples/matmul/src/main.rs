//! Prints each step's speed as a share of the processor's peak.
//!
//! `matmul [SIZE]` measures; `matmul [SIZE] --show STEP` prints a step's loops, trace and C.

#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use matmul::{STEPS, lanes, peak, peak_flops, plain};
use niello::driver::{BuildTarget, NdArray, SourceKind};
use niello::ir::DType;
use niello::options::Backend;
use niello::schedule::Schedule;
use niello_runtime::ThreadPool;

/// Rounds in which the steps take turns.
const ROUNDS: usize = 5;

/// Time a step runs for in each round.
const SLICE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let size = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(1024);
    if let Some(place) = args.iter().position(|arg| arg == "--show") {
        return show(size, args.get(place + 1).map_or("", String::as_str));
    }
    for &backend in Backend::ALL {
        measure(size, backend)?;
    }
    Ok(())
}

/// Prints what a step makes of the loops.
fn show(size: i64, wanted: &str) -> Result<(), Box<dyn Error>> {
    let target = BuildTarget::native(Backend::C);
    let step = STEPS.iter().find(|(name, _)| *name == wanted);
    let Some((_, step)) = step else {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no step `{wanted}`; there are {}", names.join(", ")).into());
    };
    let mut schedule = Schedule::new(plain(size)?);
    step(&mut schedule, &target.machine)?;
    println!("{}\n{}", schedule.trace(), schedule.func());
    println!("{}", niello::build([schedule.func()], &target)?.source(SourceKind::C)?);
    Ok(())
}

/// Times of one step.
struct Timed<'a> {
    name: &'a str,
    run: Box<dyn FnMut() + 'a>,
    flops: f64,
    rates: Vec<f64>,
}

impl Timed<'_> {
    /// Billions of operations a second in one more round.
    fn round(&mut self) {
        let start = Instant::now();
        let mut runs = 0u32;
        while start.elapsed() < SLICE {
            (self.run)();
            runs += 1;
        }
        self.rates.push(self.flops * f64::from(runs) / start.elapsed().as_secs_f64() / 1e9);
    }

    fn median(&mut self) -> f64 {
        self.rates.sort_by(f64::total_cmp);
        self.rates[self.rates.len() / 2]
    }
}

fn measure(size: i64, backend: Backend) -> Result<(), Box<dyn Error>> {
    const PEAK_STEPS: i64 = 1_000_000;

    let target = BuildTarget::native(backend);
    let count = usize::try_from(size * size)?;
    let element = |i: usize| (i % 17) as f32 * 0.25 - 2.0;
    let data: Vec<f32> = (0..count).map(element).collect();
    let a = NdArray::from_slice(&[size, size], &data)?;
    let b = NdArray::from_slice(&[size, size], &data)?;
    let pool = ThreadPool::new(2);

    let factor = NdArray::from_slice(
        &[lanes(&target.machine)],
        &vec![0.5f32; lanes(&target.machine) as usize],
    )?;
    let mut sums = NdArray::zeros(DType::F32, &[16, lanes(&target.machine)])?;
    let limit = niello::build([peak(&target.machine)], &target)?;
    let mut limit = limit.function("peak")?.bind((&factor, &mut sums, PEAK_STEPS))?;
    let flops = (peak_flops(&target.machine) * PEAK_STEPS) as f64;
    let run = Box::new(move || limit.run());
    let mut results: Vec<NdArray> = Vec::new();
    for _ in STEPS {
        results.push(NdArray::zeros(DType::F32, &[size, size])?);
    }
    let active = pool.activate(2);
    let mut timed = vec![Timed { name: "peak", run, flops, rates: Vec::new() }];
    for ((name, step), c) in STEPS.iter().zip(&mut results) {
        let mut schedule = Schedule::new(plain(size)?);
        step(&mut schedule, &target.machine)?;
        let module = niello::build([schedule.into_func()], &target)?;
        let call = module.function("matmul")?.bind((&a, &b, c))?;
        let mut call = match *name {
            // SAFETY: each row of tiles is stored by the iteration that computes it alone.
            "parallel" => unsafe { call.with_workers(&active) },
            _ => call,
        };
        let flops = 2.0 * (size as f64).powi(3);
        timed.push(Timed { name, run: Box::new(move || call.run()), flops, rates: Vec::new() });
    }
    for _ in 0..ROUNDS {
        timed.iter_mut().for_each(Timed::round);
    }
    let peak = timed[0].median();
    println!("{size} x {size} x {size}, {} on one core: {peak:.0} GFLOP/s", target.kind);
    for step in &mut timed[1..] {
        let rate = step.median();
        println!("{:>14}  {rate:7.1} GFLOP/s  {:5.1}%", step.name, 100.0 * rate / peak);
    }
    Ok(())
}
