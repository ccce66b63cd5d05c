//! The instruments of `niello opt`, as arguments.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args, ValueEnum};

use crate::cli::Failure;
use crate::cli::output::Output;
use crate::diagnostics::{Problem, Report};
use crate::files::write_file;
use crate::pass::instruments::{
    CrashReproducer, DumpIr, IrStatistics, OptBisect, PassMemory, PassSelection, PassStatistics,
    PassTiming, PrintChanged, PrintIr, TextOutput, TimingFormat, VerifyEach,
};
use crate::pass::{InstrumentRef, PassError, Registry};

/// How a module that a pass changed is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Changed {
    /// As a unified diff
    Diff,
    /// The whole module
    Whole,
}

/// How the times of passes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Timing {
    /// A tree
    Text,
    /// One JSON object
    Json,
    /// Trace events, for chrome://tracing or ui.perfetto.dev
    Trace,
}

impl From<Timing> for TimingFormat {
    fn from(timing: Timing) -> TimingFormat {
        match timing {
            Timing::Text => TimingFormat::Text,
            Timing::Json => TimingFormat::Json,
            Timing::Trace => TimingFormat::Trace,
        }
    }
}

/// What to print, measure and write while passes run. All text goes to the standard error.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Watching passes")]
pub(super) struct WatchArgs {
    /// Print the module before these passes, or before all
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true,
          default_missing_value = ALL)]
    print_before: Option<String>,
    /// Print the module after these passes, or after all
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true,
          default_missing_value = ALL)]
    print_after: Option<String>,
    /// Print the module at the start, and what each pass changed; those of `--print-after` alone if
    /// that is given
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true,
          default_missing_value = "diff")]
    print_changed: Option<Changed>,
    /// Write the module to numbered files of a folder, after each pass that changed it
    #[arg(long, value_name = "DIR")]
    dump_dir: Option<PathBuf>,
    /// With `--dump-dir`, a folder for each list of passes within a list
    #[arg(long, requires = "dump_dir")]
    dump_tree: bool,
    /// Measure how long each pass takes
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "text")]
    time_passes: Option<Timing>,
    /// Write the times to a file
    #[arg(long, value_name = "FILE", requires = "time_passes")]
    time_passes_file: Option<PathBuf>,
    /// Count calls and constants before and after each pass; tell what passes count, and why they
    /// left what they might have rewritten
    #[arg(long)]
    pub(super) stats: bool,
    /// Measure what each pass allocates
    #[arg(long)]
    memory: bool,
    /// Verify the module before the first pass and after each, and that passes keep what they say
    /// they keep
    #[arg(long)]
    pub(super) verify_each: bool,
    /// Run only the first N passes of those that a level can leave out; -1 runs all. Tells each
    /// with its number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    opt_bisect_limit: Option<i64>,
    /// If a pass fails, write what repeats that to a file
    #[arg(long, value_name = "FILE")]
    reproducer: Option<PathBuf>,
    /// Have the reproducer begin with the model and run all passes, not the failing one alone
    #[arg(long, requires = "reproducer", action = ArgAction::SetTrue)]
    whole_pipeline: bool,
}

/// The selection of all passes.
const ALL: &str = "all";

/// Instruments that have something to say at the end.
#[derive(Default)]
pub(super) struct Watch {
    /// In the order in which a context is to have them.
    pub(super) instruments: Vec<InstrumentRef>,
    timing: Option<(Arc<PassTiming>, TimingFormat, Option<PathBuf>)>,
    ir: Option<Arc<IrStatistics>>,
    statistics: Option<Arc<PassStatistics>>,
    memory: Option<Arc<PassMemory>>,
}

impl WatchArgs {
    /// The instruments. `pipeline` is the text of what will run.
    ///
    /// # Errors
    ///
    /// Names of passes that are not known; a limit below -1; a folder that is not to be written to.
    pub(super) fn instruments(&self, pipeline: &str) -> Result<Watch, Failure> {
        let mut report = Report::new();
        let mut watch = Watch::default();
        // First, so that what the other instruments do before a pass is all that they add to it.
        if let Some(format) = self.time_passes {
            let timing = Arc::new(PassTiming::new(format.into()));
            watch.instruments.push(timing.clone());
            watch.timing = Some((timing, format.into(), self.time_passes_file.clone()));
        }
        if let Some(limit) = self.opt_bisect_limit {
            let limit = match u64::try_from(limit) {
                Ok(limit) => Some(limit),
                Err(_) if limit == -1 => None,
                Err(_) => {
                    report.push(Problem::new(format!(
                        "--opt-bisect-limit is {limit}; the least is -1"
                    )));
                    None
                }
            };
            let bisect = OptBisect::new(limit).output(TextOutput::stderr());
            watch.instruments.push(Arc::new(bisect));
        }
        let before = selection(self.print_before.as_deref(), &mut report);
        let after = selection(self.print_after.as_deref(), &mut report);
        let changed = self.print_changed.map(|how| match how {
            Changed::Diff => PrintChanged::Diff,
            Changed::Whole => PrintChanged::Whole,
        });
        if before != PassSelection::None || after != PassSelection::None || changed.is_some() {
            let mut print = PrintIr::new().before(before).after(after).output(TextOutput::stderr());
            if let Some(how) = changed {
                print = print.changed(how);
            }
            watch.instruments.push(Arc::new(print));
        }
        if let Some(folder) = &self.dump_dir {
            let dump = DumpIr::new(folder).only_changed(true).constants(true);
            let dump = dump.tree(self.dump_tree).refresh();
            let dump = dump.map_err(|error| Problem::new(format!("--dump-dir: {error}")))?;
            watch.instruments.push(Arc::new(dump));
        }
        if self.stats {
            let (ir, statistics) =
                (Arc::<IrStatistics>::default(), Arc::<PassStatistics>::default());
            watch.instruments.push(ir.clone());
            watch.instruments.push(statistics.clone());
            (watch.ir, watch.statistics) = (Some(ir), Some(statistics));
        }
        if self.memory {
            let memory = Arc::<PassMemory>::default();
            watch.instruments.push(memory.clone());
            watch.memory = Some(memory);
        }
        if self.verify_each {
            watch.instruments.push(Arc::new(VerifyEach::new()));
        }
        // Last, so that it hears of what the verifier finds.
        if let Some(path) = &self.reproducer {
            let mut reproducer = CrashReproducer::new(path).output(TextOutput::stderr());
            if self.whole_pipeline {
                reproducer = reproducer.whole_pipeline(pipeline);
            }
            watch.instruments.push(Arc::new(reproducer));
        }
        report.into_result(watch).map_err(Failure::from)
    }
}

/// The passes that an argument names, separated by commas.
fn selection(argument: Option<&str>, report: &mut Report) -> PassSelection {
    let Some(names) = argument else { return PassSelection::None };
    if names == ALL {
        return PassSelection::All;
    }
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    for name in &names {
        if let Err(error) = Registry::global().entry(name) {
            report.push(Problem::new(error.to_string()));
        }
    }
    PassSelection::named(names)
}

impl Watch {
    /// Tells what was measured.
    ///
    /// # Errors
    ///
    /// The file of the times cannot be written.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let section = |title: &str, text: String| {
            if !text.is_empty() {
                Output::error(&format!("; *** {title} ***\n{text}"));
            }
        };
        if let Some(ir) = &self.ir {
            section("IR statistics", ir.render());
        }
        if let Some(statistics) = &self.statistics {
            section("pass statistics", statistics.render());
        }
        if let Some(memory) = &self.memory {
            section("memory", memory.render());
        }
        if let Some((timing, format, file)) = &self.timing {
            let text = timing.finished(*format);
            match file {
                None if *format == TimingFormat::Text => section("times", text),
                None => Output::error(text.trim_end()),
                Some(path) => write_file(path, text.as_bytes())?,
            }
        }
        Ok(())
    }
}

impl From<PassError> for Failure {
    fn from(error: PassError) -> Failure {
        Failure::Report(error.into())
    }
}
