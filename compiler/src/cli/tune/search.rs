//! The search for the fastest ways.
//!
//! All workloads of a model are measured together: the model is compiled with another way for each of
//! them, and its kernels are timed call by call, in turn with those of the model as the compiler would
//! make it. What looks faster is compared once more at the end, for longer, as the best of dozens of
//! measurements is often a lucky one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::cli::bench::{Times, WARM_UP};
use crate::codegen::c::TempFolder;
use crate::compile::Model;
use crate::diagnostics::{Problem, Report};
use crate::executor::aot::KernelCache;
use crate::executor::{LoadedCall, Part};
use crate::ir::Constant;
use crate::options::{Backend, CompileOptions};
use crate::samples::runner::Runner;
use crate::strategy::is_algorithm;
use crate::tuned::{Measured, Tunable, Tuned, Workload};

/// Time in percent of the compiler's own choice from which on another one is of no use.
const WORTH: u32 = 97;

/// How long a candidate is measured, and how often what is left of them in the end.
const GLANCE: Duration = Duration::from_millis(500);
const LOOKS: usize = 5;

/// How long that is, as a share of the time for candidates.
const LOOK: f64 = 1.0 / 200.0;

/// How many runs of a model follow one that is not measured, as it finds the other model's data in the
/// caches.
const TURN: usize = 3;

/// Fewest runs that are measured.
const MIN_RUNS: usize = 7;

/// Most bytes of compiled kernels that are kept for the next candidates.
const CACHE_BYTES: u64 = 1 << 30;

/// A model that is being tuned.
pub(super) struct Search<'a> {
    model: &'a Model,
    inputs: &'a [Constant],
    options: CompileOptions,
    backend: Backend,
    workers: usize,
    tuned: Tuned,
    /// The workloads of the model.
    workloads: Vec<Workload>,
    /// Where compiled kernels are kept, unless the user has a place for them.
    _cache: Option<TempFolder>,
}

/// Where a model has several ways, and how long the kernels take of which it is a part.
struct Place {
    tunable: Tunable,
    time: Duration,
}

/// The places of a model by their workloads.
type Places = BTreeMap<Workload, Place>;

/// How long the model takes, by the compiler's own choices and by those of the search.
pub(super) struct Outcome {
    before: Duration,
    after: Duration,
}

impl Outcome {
    fn ratio(&self) -> f64 {
        self.after.as_secs_f64() / self.before.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (before, after) = (micros(self.before), micros(self.after));
        let ratio = self.ratio();
        write!(f, "a run takes {after:.2} us, and {before:.2} us untuned: {ratio:.3}")
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        model: &'a Model,
        inputs: &'a [Constant],
        mut options: CompileOptions,
        backend: Backend,
        workers: usize,
    ) -> Result<Search<'a>, Problem> {
        // Most kernels of one candidate are those of another one, too.
        let mut cache = None;
        if options.kernel_cache.is_none() {
            let folder = TempFolder::new().map_err(|error| Problem::new(error.to_string()))?;
            options.kernel_cache = Some(KernelCache::new(folder.path(), CACHE_BYTES));
            cache = Some(folder);
        }
        let (tuned, workloads) = (Tuned::default(), Vec::new());
        Ok(Search { model, inputs, options, backend, workers, tuned, workloads, _cache: cache })
    }

    /// All choices: those that were known, and what was found.
    pub(super) fn tuned(&self) -> &Tuned {
        &self.tuned
    }

    /// What was found for the model.
    pub(super) fn found(&self) -> impl Iterator<Item = (&Workload, &Measured)> {
        let known = self.workloads.iter().filter_map(|w| Some((w, self.tuned.get(w)?)));
        known.filter(|(_, measured)| measured.choice.is_some())
    }

    /// Measures candidates until all have been, or the time is over; what is known already is not
    /// measured again. `write` is handed all choices after each step.
    pub(super) fn run(
        &mut self,
        known: Tuned,
        length: Duration,
        write: &mut dyn FnMut(&Tuned) -> Result<(), Problem>,
    ) -> Result<(), Report> {
        let begun = Instant::now();
        self.tuned = known;
        // Which algorithm it is decides which other choices there are.
        for algorithms in [true, false] {
            let base = self.only_algorithms(!algorithms);
            let runner = self.runner(&base)?;
            let [own, _] = self.compare([&runner, &runner], Duration::ZERO)?;
            let own: Places =
                own.into_iter().filter(|(w, _)| is_algorithm(w) == algorithms).collect();
            self.workloads.extend(own.keys().cloned());
            let most = own.values().map(|place| place.tunable.candidates.len()).max().unwrap_or(0);
            for number in 0..most {
                if begun.elapsed() >= length {
                    break;
                }
                self.step(number, &own, &base, &runner)?;
                write(&self.tuned)?;
            }
        }
        Ok(())
    }

    /// What is known of algorithms, or nothing.
    fn only_algorithms(&self, keep: bool) -> Tuned {
        let mut base = Tuned::default();
        let known = self.tuned.choices().filter(|(workload, _)| keep && is_algorithm(workload));
        for (workload, choice) in known {
            let choice = Some(choice.to_owned());
            base.set(workload.clone(), Measured { choice, ..Measured::default() });
        }
        base
    }

    /// Measures the candidate of that number of each workload that has not got so far.
    fn step(
        &mut self,
        number: usize,
        own: &Places,
        base: &Tuned,
        runner: &Runner,
    ) -> Result<(), Report> {
        let mut table = base.clone();
        let mut tried = Vec::new();
        for (workload, Place { tunable, .. }) in own {
            let known = self.tuned.get(workload).cloned().unwrap_or_default();
            let Some(candidate) = tunable.candidates.get(number) else { continue };
            if known.tried > number {
                continue;
            }
            if *candidate == tunable.chosen {
                let percent = if known.choice.is_some() { known.percent } else { 100 };
                let tried = number + 1;
                self.tuned.set(workload.clone(), Measured { tried, percent, ..known });
                continue;
            }
            let choice = Some(candidate.clone());
            table.set(workload.clone(), Measured { choice, ..Measured::default() });
            tried.push((workload, candidate, known));
        }
        if tried.is_empty() {
            return Ok(());
        }
        let other = self.runner(&table)?;
        let [before, after] = self.compare([runner, &other], GLANCE)?;
        for (workload, candidate, known) in tried {
            let mut measured = Measured { tried: number + 1, ..known };
            if measured.choice.is_none() {
                measured.percent = 100;
            }
            let pair = before.get(workload).zip(after.get(workload));
            // A pass may have left the choice alone.
            let pair = pair.filter(|(_, place)| place.tunable.chosen == *candidate);
            let percent = pair.map(|(before, after)| percent(after.time, before.time));
            if let Some(percent) = percent.filter(|&percent| percent < measured.percent) {
                (measured.choice, measured.percent) = (Some(candidate.clone()), percent);
            }
            self.tuned.set(workload.clone(), measured);
        }
        Ok(())
    }

    /// Compares all choices with the compiler's own, drops what is not worth it, and measures the model
    /// as a whole: if that is not faster, nothing is kept. `length` is the time for candidates.
    pub(super) fn settle(&mut self, length: Duration) -> Result<Option<Outcome>, Report> {
        if self.found().next().is_none() {
            return Ok(None);
        }
        let look = length.mul_f64(LOOK);
        let mut percents: BTreeMap<Workload, Vec<u32>> = BTreeMap::new();
        for _ in 0..LOOKS {
            // Where memory lies makes some percent as well, so each look has memory of its own.
            let own = self.runner(&Tuned::default())?;
            let tuned = self.runner(&self.tuned)?;
            let [before, after] = self.compare([&own, &tuned], look)?;
            for (workload, place) in after {
                let known = self.tuned.get(&workload).and_then(|known| known.choice.as_ref());
                // Of another algorithm than the compiler's own there is nothing to compare with.
                let own = before.get(&workload).filter(|_| known == Some(&place.tunable.chosen));
                let percent = own.map(|own| percent(place.time, own.time));
                percents.entry(workload).or_default().extend(percent);
            }
        }
        for (workload, mut percents) in percents {
            percents.sort_unstable();
            if let Some(&percent) = percents.get(percents.len() / 2) {
                self.keep(&workload, percent);
            }
        }
        let outcome = self.outcome(look)?;
        if outcome.after >= outcome.before {
            for workload in self.workloads.clone() {
                self.keep(&workload, 100);
            }
        }
        Ok(self.found().next().map(|_| outcome))
    }

    /// Notes how long a choice takes, and drops it if that is not worth it.
    fn keep(&mut self, workload: &Workload, percent: u32) {
        let Some(measured) = self.tuned.get(workload).cloned() else { return };
        let settled = match percent <= WORTH {
            true => Measured { percent, ..measured },
            false => Measured { choice: None, percent: 100, ..measured },
        };
        self.tuned.set(workload.clone(), settled);
    }

    /// Measures the model as a whole: the medians of looks at memory of their own.
    fn outcome(&self, look: Duration) -> Result<Outcome, Report> {
        let mut outcomes = Vec::with_capacity(LOOKS);
        for _ in 0..LOOKS {
            let runners = [self.runner(&Tuned::default())?, self.runner(&self.tuned)?];
            let mut calls = [self.call(&runners[0])?, self.call(&runners[1])?];
            let mut times = [Vec::new(), Vec::new()];
            in_turns(look, |model, is_counted| {
                let start = Instant::now();
                calls[model].run()?;
                times[model].extend(is_counted.then(|| start.elapsed()));
                Ok(())
            })?;
            let [before, after] = times.map(|times| Times::of(times).median);
            outcomes.push(Outcome { before, after });
        }
        outcomes.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        Ok(outcomes.swap_remove(LOOKS / 2))
    }

    /// The model, made by these choices.
    fn runner(&self, tuned: &Tuned) -> Result<Runner, Report> {
        let options = CompileOptions { tuned: tuned.clone(), ..self.options.clone() };
        Runner::new(Some(self.backend), self.model, self.inputs, &options, self.workers)
    }

    fn call<'r>(&self, runner: &'r Runner) -> Result<LoadedCall<'r>, Problem> {
        let loaded = runner.loaded().ok_or_else(|| Problem::new("the model is no native code"))?;
        loaded.call(&runner.passed(self.inputs))
    }

    /// Runs two models in turn, for so long in all, and gives the places of each.
    fn compare(&self, runners: [&Runner; 2], length: Duration) -> Result<[Places; 2], Problem> {
        let mut models = Vec::with_capacity(2);
        for runner in runners {
            let count = runner.compilation().map_or(0, |compilation| compilation.model.calls);
            models.push((self.call(runner)?, vec![Vec::new(); count]));
        }
        in_turns(length, |model, is_counted| {
            let (call, times) = &mut models[model];
            for (number, times) in times.iter_mut().enumerate() {
                let start = Instant::now();
                call.run_call(number)?;
                times.extend(is_counted.then(|| start.elapsed()));
            }
            Ok(())
        })?;
        let mut models = models.into_iter().map(|(_, times)| times);
        Ok(runners.map(|runner| places(runner, models.next().unwrap_or_default())))
    }
}

/// Runs each of two models a few times in turn, for so long in all. `run` is handed which one it is, and
/// whether the run counts.
fn in_turns(
    length: Duration,
    mut run: impl FnMut(usize, bool) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let (begun, warm_up) = (Instant::now(), length.mul_f64(WARM_UP));
    let mut counted = 0;
    while counted < MIN_RUNS || begun.elapsed() < length {
        let is_warm = begun.elapsed() >= warm_up;
        for model in 0..2 {
            for turn in 0..=TURN {
                run(model, is_warm && turn > 0)?;
            }
        }
        counted += if is_warm { TURN } else { 0 };
    }
    Ok(())
}

/// The places of a model, with the sum of the medians of their kernels' times.
fn places(runner: &Runner, times: Vec<Vec<Duration>>) -> Places {
    let mut places = Places::new();
    let Some(compilation) = runner.compilation() else { return places };
    let program = &compilation.program;
    for (part, times) in program.parts().iter().zip(times) {
        let Part::Step(step) = part else { continue };
        let time = Times::of(times).median;
        for tunable in &program.kernels[program.steps[*step].kernel].tunables {
            let place = places.entry(tunable.workload.clone());
            let place =
                place.or_insert_with(|| Place { tunable: tunable.clone(), time: Duration::ZERO });
            place.time += time;
        }
    }
    places
}

fn percent(time: Duration, of: Duration) -> u32 {
    (time.as_secs_f64() / of.as_secs_f64().max(1e-9) * 100.0).round() as u32
}
