//! Timing many runs.

use std::time::{Duration, Instant};

use crate::diagnostics::Problem;

/// Part of the time in which runs are not counted: caches and branch predictors learn, and the
/// processor reaches its frequency.
pub(in crate::cli) const WARM_UP: f64 = 0.1;

/// Fewest runs that are counted, however long one takes.
pub(super) const MIN_RUNS: usize = 5;

/// Most runs that are counted. A run of a microsecond reaches it after seconds, and the median of
/// that many does not move any more.
pub(super) const MAX_RUNS: usize = 2_000_000;

/// Times of many runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) struct Times {
    pub(in crate::cli) median: Duration,
    pub(super) min: Duration,
}

impl Times {
    /// The times of at least one run.
    pub(in crate::cli) fn of(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        let middle = times.len() / 2;
        let median = match times.len() % 2 {
            0 => (times[middle - 1] + times[middle]) / 2,
            _ => times[middle],
        };
        Times { median, min: times[0] }
    }
}

/// Times `run` for about `length`.
///
/// # Errors
///
/// Those of `run`.
pub(super) fn measure(
    length: Duration,
    mut run: impl FnMut() -> Result<(), Problem>,
) -> Result<Times, Problem> {
    let start = Instant::now();
    let warm_up = length.mul_f64(WARM_UP);
    loop {
        run()?;
        if start.elapsed() >= warm_up {
            break;
        }
    }
    let mut times = Vec::new();
    while times.len() < MIN_RUNS || (start.elapsed() < length && times.len() < MAX_RUNS) {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    Ok(Times::of(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_least_is_the_least() {
        let times = |micros: &[u64]| {
            Times::of(micros.iter().map(|&micros| Duration::from_micros(micros)).collect())
        };
        let (median, min) = (Duration::from_micros(3), Duration::from_micros(1));
        assert_eq!(times(&[9, 1, 3]), Times { median, min });
        assert_eq!(times(&[9, 1, 2, 4]), Times { median, min });
    }

    #[test]
    fn even_no_time_at_all_is_enough_for_a_few_runs_after_the_warm_up() {
        let mut runs = 0;
        measure(Duration::ZERO, || {
            runs += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(runs, MIN_RUNS + 1);
        let error = measure(Duration::ZERO, || Err(Problem::new("broken"))).unwrap_err();
        assert_eq!(error.message, "broken");
    }
}
