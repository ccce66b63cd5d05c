//! Measuring a kernel: all who run it take turns.

use std::thread;
use std::time::{Duration, Instant};

use niello::options::Backend;

use crate::check::Error;
use crate::kernel::{Built, Call, Case, Goal, Kernel, Limit, Result, Setup};
use crate::native;
use crate::peak::{self, Memory};
use crate::peers::{ENGINES, Peers};
use crate::report::{Cost, Row};

/// How is measured.
pub(crate) struct Plan {
    /// Rounds in which each has its turn.
    pub(crate) rounds: usize,
    /// Length of a turn.
    pub(crate) turn: Duration,
    /// Backends of niello.
    pub(crate) backends: Vec<Backend>,
    /// The memory for measuring the bandwidth.
    pub(crate) memory: Memory,
}

/// After engines with several threads have had their turn: their workers look for work for a while before they sleep,
/// and would take the others' cores.
const REST: Duration = Duration::from_millis(20);

/// The goal of two threads.
const SPEED_UP: f64 = 1.85;

/// Rows of a kernel, and failures: the engine and the reason.
pub(crate) type Measured = (Vec<Row>, Vec<(String, String)>);

/// Measures a kernel on that many threads, a row for each backend.
///
/// # Errors
///
/// The kernel has no model.
pub(crate) fn measure(
    plan: &Plan,
    kernel: &Kernel,
    threads: usize,
    peers: Option<&mut Peers>,
) -> Result<Measured> {
    let case = (kernel.case)()?;
    let mut failures = Vec::new();
    let mut built: Vec<Result<(Built, Error)>> = plan
        .backends
        .iter()
        .map(|&backend| checked(native::build(kernel, &case, Setup { backend, threads })?))
        .collect();
    for (backend, built) in plan.backends.iter().zip(&built) {
        if let Err(why) = built {
            failures.push((backend.name().to_owned(), why.clone()));
        }
    }
    let mut others = Others::load(peers, &case, threads, &mut failures);
    let mut limits = Vec::new();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); built.len()];
    let mut peer_times = [Vec::new(), Vec::new()];
    for _ in 0..plan.rounds {
        limits.extend(rate(plan, kernel.limit, threads));
        for (built, times) in built.iter_mut().zip(&mut times) {
            let Ok((built, _)) = built else { continue };
            built.code.calls(&built.inputs, &mut |call| {
                times.push(time(call, plan.turn)?);
                Ok(())
            })?;
            if threads > 1 {
                thread::sleep(REST);
            }
        }
        others.turn(plan.turn, threads, &mut peer_times, &mut failures);
    }
    others.forget();
    let limit = median(&mut limits);
    let repeats = f64::from(case.repeats);
    let peers = peer_times.map(|mut times| median(&mut times).map(|time| time / repeats));
    let goal = if threads == 1 { kernel.goal } else { Goal::SpeedUp(SPEED_UP) };
    let rows = plan.backends.iter().zip(&built).zip(times);
    let rows = rows.map(|((backend, built), mut times)| {
        let cost = built.as_ref().ok().zip(median(&mut times)).map(|((built, error), time)| Cost {
            seconds: time / f64::from(built.repeats),
            compile: built.compile,
            functions: built.functions,
            code_bytes: built.code_bytes,
            error: *error,
        });
        Row {
            name: kernel.name.clone(),
            backend: backend.name(),
            threads,
            work: kernel.work,
            kind: kernel.limit,
            sums: kernel.sums,
            limit,
            peers,
            cost,
            goal,
        }
    });
    Ok((rows.collect(), failures))
}

/// The code, if its output is right, and how exact it is.
fn checked(mut built: Built) -> Result<(Built, Error)> {
    let output = built.code.output(&built.inputs)?;
    let error = built.expected.error(&output)?;
    Ok((built, error))
}

/// The processor's limits at this moment.
fn rate(plan: &Plan, limit: Limit, threads: usize) -> Option<f64> {
    match limit {
        Limit::Fma => Some(peak::fma(threads, plan.turn / 4)),
        Limit::Int8 => peak::int8(threads, plan.turn / 4),
        Limit::Stream => Some(plan.memory.read(threads)),
    }
}

/// Calls that are timed together: looks at the clock cost as much as short ones.
const BATCH: Duration = Duration::from_micros(300);

/// The median time of a call in seconds. What interrupts a few of the calls does not change it.
fn time(call: Call<'_>, length: Duration) -> Result<f64> {
    let begin = Instant::now();
    let (mut times, mut count) = (Vec::new(), 1u32);
    loop {
        let start = Instant::now();
        for _ in 0..count {
            call()?;
        }
        let spent = start.elapsed();
        let each = spent.as_secs_f64() / f64::from(count);
        if spent >= BATCH || begin.elapsed() >= length {
            times.push(each);
        } else {
            // Too short to be told apart from the looks.
            count = (BATCH.as_secs_f64() / each.max(1e-9)).ceil() as u32;
        }
        if begin.elapsed() >= length && !times.is_empty() {
            return median(&mut times).ok_or_else(|| "nothing was timed".to_owned());
        }
    }
}

/// The peers that can run the model.
struct Others<'a> {
    peers: Option<&'a mut Peers>,
    ready: [bool; 2],
}

impl<'a> Others<'a> {
    fn load(
        peers: Option<&'a mut Peers>,
        case: &Case,
        threads: usize,
        failures: &mut Vec<(String, String)>,
    ) -> Others<'a> {
        let Some(peers) = peers else { return Others { peers: None, ready: [false; 2] } };
        let mut fail = |engine: usize, why| failures.push((ENGINES[engine].1.to_owned(), why));
        let mut ready = [false; 2];
        match peers.load(case, threads) {
            Ok(loaded) => {
                for (engine, loaded) in loaded.into_iter().enumerate() {
                    ready[engine] = loaded.is_ok();
                    if let Err(why) = loaded {
                        fail(engine, why);
                    }
                }
            }
            Err(why) => (0..ENGINES.len()).for_each(|engine| fail(engine, why.clone())),
        }
        Others { peers: Some(peers), ready }
    }

    fn turn(
        &mut self,
        length: Duration,
        threads: usize,
        times: &mut [Vec<f64>; 2],
        failures: &mut Vec<(String, String)>,
    ) {
        let Some(peers) = &mut self.peers else { return };
        for (engine, (name, title)) in ENGINES.iter().enumerate() {
            if !self.ready[engine] {
                continue;
            }
            match peers.time(name, length) {
                Ok(time) => times[engine].push(time),
                Err(why) => {
                    // The process has ended, and the other engine's model with it.
                    self.ready = [false; 2];
                    failures.push(((*title).to_owned(), why));
                }
            }
            if threads > 1 {
                thread::sleep(REST);
            }
        }
    }

    fn forget(self) {
        // A process that has ended has nothing to forget.
        if let Some(peers) = self.peers
            && self.ready.contains(&true)
        {
            let _ = peers.forget();
        }
    }
}

/// The value in the middle; none of none.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use niello::ir::Constant;
    use niello::tir;

    use super::*;
    use crate::catalogue::tests::tiny;
    use crate::check::Expected;
    use crate::kernel::{Build, said};
    use crate::report::COLUMNS;

    fn plan() -> Plan {
        Plan {
            rounds: 1,
            turn: Duration::ZERO,
            backends: Backend::ALL.to_vec(),
            memory: Memory::new(4096),
        }
    }

    #[test]
    fn a_kernel_gets_a_line_for_each_backend_with_a_word_for_each_column() {
        let (rows, failures) = measure(&plan(), &tiny(), 1, None).unwrap();
        assert_eq!(failures, []);
        assert_eq!(rows.len(), Backend::ALL.len());
        for (row, backend) in rows.iter().zip(Backend::ALL) {
            let line = row.line(&rows);
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words.len(), COLUMNS.len(), "{line}");
            assert_eq!(words[..3], ["tiny", backend.name(), "1"]);
            assert!(words[3].parse::<f64>().is_ok(), "{line}");
            assert!(words[4].strip_suffix('%').is_some_and(|w| w.parse::<f64>().is_ok()), "{line}");
            assert_eq!(words[5..7], ["-", "-"], "no peers were asked for");
        }
    }

    #[test]
    fn kernels_that_cannot_be_measured_are_reported_and_keep_their_line() {
        let make = |setup| {
            let func = tir::parse("no function").map_err(said)?;
            native::of_function(func, setup, Vec::new(), Expected::all([1.0]))
        };
        let kernel = Kernel { build: Build::Function(Box::new(make)), ..tiny() };
        let (rows, failures) = measure(&plan(), &kernel, 2, None).unwrap();
        assert_eq!(failures.len(), Backend::ALL.len(), "{failures:?}");
        let line = rows[0].line(&rows);
        assert_eq!(line.split(' ').count(), COLUMNS.len());
        assert!(line.starts_with("tiny c 2 - - - -"), "{line}");
    }

    #[test]
    fn a_kernel_may_be_made_of_a_loop_function() {
        let make = |setup| {
            let func = tir::parse(
                "prim_func @double(x: input float32[2], y: output float32[2]) {
                   for i in serial(2) {
                     y[i] = x[i] * 2.0
                   }
                 }",
            );
            let input = Constant::from_f32(&[2], &[1.0, 2.0]).map_err(said)?;
            let expected = Expected::all([2.0, 4.0]);
            native::of_function(func.map_err(said)?, setup, vec![input], expected)
        };
        let kernel = Kernel { build: Build::Function(Box::new(make)), ..tiny() };
        let (rows, failures) = measure(&plan(), &kernel, 1, None).unwrap();
        assert_eq!(failures, []);
        for row in &rows {
            assert!(row.line(&rows).contains(" 0.0e0 "), "{}", row.line(&rows));
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
