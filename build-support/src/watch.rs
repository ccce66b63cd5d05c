//! Instruments: those that variables ask for, and the files that all of them leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use niello::diagnostics::{Problem, Report};
use niello::executor::write_if_changed;
use niello::pass::instruments::{
    CrashReproducer, DumpIr, PassSelection, PassTiming, PrintIr, TimingFormat,
};
use niello::pass::{InstrumentRef, Registry};

use crate::cargo::Environment;

/// The instruments that variables ask for; `model` is the model's name.
pub(crate) fn from_environment(
    environment: &mut Environment<'_>,
    model: &str,
    report: &mut Report,
) -> Vec<InstrumentRef> {
    let mut instruments: Vec<InstrumentRef> = Vec::new();
    let mut user = |name: &str| environment.user(name).filter(|value| !value.is_empty());
    if let Some(format) = user("NIELLO_TIME_PASSES") {
        let format = match format.as_str() {
            "0" => None,
            "1" | "text" => Some(TimingFormat::Text),
            "json" => Some(TimingFormat::Json),
            "trace" => Some(TimingFormat::Trace),
            other => {
                report.push(Problem::new(format!(
                    "NIELLO_TIME_PASSES is `{other}`; it can be text, json or trace, or 0"
                )));
                None
            }
        };
        instruments.extend(format.map(|format| Arc::new(PassTiming::new(format)) as InstrumentRef));
    }
    if let Some(names) = user("NIELLO_PRINT_AFTER") {
        let selection = match names.as_str() {
            "all" => PassSelection::All,
            names => PassSelection::named(names.split(',').map(str::trim)),
        };
        if let PassSelection::Named(names) = &selection {
            let registry = Registry::global();
            let unknown = names.iter().filter_map(|name| registry.entry(name).err());
            report.extend(unknown.map(|e| Problem::new(format!("NIELLO_PRINT_AFTER: {e}"))));
        }
        instruments.push(Arc::new(PrintIr::new().after(selection)));
    }
    if let Some(folder) = user("NIELLO_DUMP_DIR") {
        let folder = PathBuf::from(folder);
        match DumpIr::new(folder.join(model)).only_changed(true).constants(true).refresh() {
            Ok(dump) => instruments.push(Arc::new(dump)),
            Err(error) => report.push(Problem::new(format!("NIELLO_DUMP_DIR: {error}"))),
        }
        // Last, so that it hears of failures of the others.
        let reproducer = folder.join(format!("{model}.reproducer.relay"));
        instruments.push(Arc::new(CrashReproducer::new(reproducer)));
    }
    instruments
}

/// Writes what instruments have to show to `<folder>/<model>.<what it is>`. Of several files of one
/// name, all but the first have a number.
///
/// # Errors
///
/// If a file cannot be written.
pub(crate) fn write_outputs(
    instruments: &[InstrumentRef],
    folder: &Path,
    model: &str,
) -> Result<(), Problem> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for output in instruments.iter().flat_map(|instrument| instrument.outputs()) {
        let times = seen.entry(output.suffix.clone()).or_default();
        *times += 1;
        let name = match times {
            1 => format!("{model}.{}", output.suffix),
            times => format!("{model}.{times}.{}", output.suffix),
        };
        let path = folder.join(name);
        write_if_changed(&path, output.text.as_bytes()).map_err(|error| {
            Problem::new(format!("`{}` cannot be written: {error}", path.display()))
        })?;
    }
    Ok(())
}
