//! `cargo xtask ratchet`: everything that must not get worse, in one go.
//!
//! Random graphs, node tests and models at every CPU level, sanitizers, latency and the cold build are run by the tasks
//! that there are for them. Their figures are held against `tests/ratchet.json`, which `--write` renews.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::{Result, bench, process, workspace};

/// By how much a ratio to a peer of the same run may grow: a busy machine moves a small model's by as much.
const RATIO_TOLERANCE: f64 = 0.15;

/// By how much the mean of these ratios may grow, in which such movements cancel out.
const MEAN_TOLERANCE: f64 = 0.05;

/// By how much a time may grow, which is compared on one kind of machine only.
const TIME_TOLERANCE: f64 = 0.3;

/// The name of the mean over all models.
const MEAN: &str = "mean";

/// What node tests and models are run by, and the CPUs that are compiled for.
const SUITES: [(&str, &str); 4] =
    [("llvm", "portable"), ("llvm", "x86-64-v2"), ("c", "portable"), ("interp", "portable")];

/// Random graphs of a run.
const GRAPHS: u64 = 1000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the figures to tests/ratchet.json instead of holding them against it
    #[arg(long)]
    write: bool,
    /// Seed of the random graphs [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

/// What is compared.
#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    /// The processor.
    machine: String,
    /// Cases that pass: none may get lost.
    counts: BTreeMap<String, u64>,
    /// Latency beside the best peer of the same run.
    ratios: BTreeMap<String, f64>,
    /// Times.
    seconds: BTreeMap<String, f64>,
}

/// Measures everything and compares.
pub(crate) fn run(options: &Options) -> Result {
    let file = workspace::root().join("tests/ratchet.json");
    let figures = measure(options)?;
    if options.write {
        fs::write(&file, format!("{:#}\n", figures.to_json()))?;
        println!("ratchet: {} is written", workspace::shown(&file));
        return Ok(());
    }
    let text = fs::read_to_string(&file)
        .map_err(|error| format!("{}: {error}; `--write` makes it", workspace::shown(&file)))?;
    let worse = Figures::of_json(&serde_json::from_str(&text)?)?.worse(&figures);
    for line in &worse {
        println!("ratchet: {line}");
    }
    if !worse.is_empty() {
        return Err(format!("{} figures are worse than before", worse.len()).into());
    }
    println!("ratchet: nothing is worse than before");
    Ok(())
}

fn measure(options: &Options) -> Result<Figures> {
    let mut figures = Figures { machine: bench::machine(), ..Figures::default() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = options.seed.unwrap_or(now).to_string();
    let graphs = GRAPHS.to_string();
    let passes = task(&["fuzz", "onnx", "--cases", &graphs, "--seed", &seed])?;
    figures.counts.insert(format!("{GRAPHS} random graphs"), u64::from(passes));
    figures.counts.insert("sanitizers".to_owned(), u64::from(task(&["sanitize"])?));
    for (backend, cpu) in SUITES {
        for (suite, more) in [("node", &[][..]), ("models", &["--models"])] {
            let name = match backend {
                "interp" => format!("{suite}-{backend}"),
                _ => format!("{suite}-{backend}-{cpu}"),
            };
            let results = workspace::target().join(format!("conformance/{name}.json"));
            remove(&results)?;
            let args = ["conformance", "--backend", backend, "--target-cpu", cpu];
            // What fails is in the results.
            task(&[&args[..], more].concat())?;
            if let Ok(text) = fs::read_to_string(&results) {
                let passed = serde_json::from_str::<Value>(&text)?["passed"].as_u64();
                figures.counts.insert(name, passed.unwrap_or(0));
            }
        }
    }
    figures.ratios = latency()?;
    figures.seconds.insert("cold build of digits".to_owned(), cold_build()?);
    Ok(figures)
}

/// Runs a task of this program; returns whether it succeeded.
fn task(args: &[&(impl AsRef<OsStr> + ?Sized)]) -> Result<bool> {
    let mut task = Command::new(std::env::current_exe()?);
    task.args(args);
    println!("ratchet: {}", process::shown(&task));
    Ok(task.status().map_err(|error| format!("{}: {error}", process::shown(&task)))?.success())
}

/// Each model's latency by LLVM beside that of the best peer, and the mean.
fn latency() -> Result<BTreeMap<String, f64>> {
    let json = workspace::target().join("ratchet-latency.json");
    remove(&json)?;
    let args = ["bench", "models", "--backend", "llvm", "--json"].map(OsStr::new);
    if !task(&[&args[..], &[json.as_os_str()]].concat())? {
        return Err("the latency of models cannot be measured".into());
    }
    let report: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    let models = report["ratios"].as_object().ok_or("the report has no object `ratios`")?;
    let ratio = |(name, ratios): (&String, &Value)| Some((name.clone(), ratios["llvm"].as_f64()?));
    let mut ratios: BTreeMap<String, f64> = models.iter().filter_map(ratio).collect();
    if !ratios.is_empty() {
        let sum: f64 = ratios.values().map(|ratio| ratio.ln()).sum();
        ratios.insert(MEAN.to_owned(), (sum / ratios.len() as f64).exp());
    }
    Ok(ratios)
}

/// Seconds of the digits example's build in an empty target folder.
fn cold_build() -> Result<f64> {
    let folder: PathBuf = workspace::target().join("ratchet-build");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--release", "--package", "digits", "--target-dir"]);
    build.arg(&folder);
    let start = Instant::now();
    process::run(&mut build)?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_dir_all(&folder)?;
    Ok(seconds)
}

fn remove(file: &Path) -> Result {
    if file.exists() {
        fs::remove_file(file)?;
    }
    Ok(())
}

impl Figures {
    fn to_json(&self) -> Value {
        let rounded = |figures: &BTreeMap<String, f64>| -> BTreeMap<String, f64> {
            let round = |value: f64| (value * 1000.0).round() / 1000.0;
            figures.iter().map(|(name, &value)| (name.clone(), round(value))).collect()
        };
        json!({
            "machine": self.machine,
            "counts": self.counts,
            "ratios": rounded(&self.ratios),
            "seconds": rounded(&self.seconds),
        })
    }

    fn of_json(value: &Value) -> Result<Figures> {
        let object = |name: &str| {
            value[name].as_object().ok_or_else(|| format!("tests/ratchet.json has no `{name}`"))
        };
        let floats = |name: &str| -> Result<BTreeMap<String, f64>> {
            let figure = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
            Ok(object(name)?.iter().filter_map(figure).collect())
        };
        let count = |(name, value): (&String, &Value)| Some((name.clone(), value.as_u64()?));
        Ok(Figures {
            machine: value["machine"].as_str().unwrap_or_default().to_owned(),
            counts: object("counts")?.iter().filter_map(count).collect(),
            ratios: floats("ratios")?,
            seconds: floats("seconds")?,
        })
    }

    /// What is worse in `now`, one line each. What is no longer measured is worse.
    fn worse(&self, now: &Figures) -> Vec<String> {
        let mut worse = Vec::new();
        for (name, &before) in &self.counts {
            match now.counts.get(name) {
                Some(&count) if count >= before => {}
                Some(count) => worse.push(format!("{name}: {count} pass, {before} did")),
                None => worse.push(format!("{name}: no result, {before} passed")),
            }
        }
        let mut compare =
            |what: &str, before: &BTreeMap<String, f64>, now: &BTreeMap<_, f64>, most: f64| {
                for (name, &before) in before {
                    let most = if name == MEAN { MEAN_TOLERANCE } else { most };
                    match now.get(name) {
                        Some(&value) if value <= before * (1.0 + most) => {}
                        Some(value) => {
                            worse.push(format!("{name}: {what} {value:.3}, it was {before:.3}"));
                        }
                        None => worse.push(format!("{name}: no {what}, it was {before:.3}")),
                    }
                }
            };
        compare("latency beside the best peer", &self.ratios, &now.ratios, RATIO_TOLERANCE);
        if self.machine == now.machine {
            compare("seconds", &self.seconds, &now.seconds, TIME_TOLERANCE);
        }
        worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures {
            machine: "a processor".to_owned(),
            counts: [("node-llvm-portable".to_owned(), 1665)].into(),
            ratios: [("mnist-8".to_owned(), 0.5), (MEAN.to_owned(), 0.5)].into(),
            seconds: [("cold build of digits".to_owned(), 60.0)].into(),
        }
    }

    #[test]
    fn figures_survive_the_file() {
        assert_eq!(Figures::of_json(&figures().to_json()).unwrap(), figures());
        assert!(Figures::of_json(&json!({"counts": {}})).is_err());
    }

    #[test]
    fn what_got_worse_or_lost_is_told_and_noise_is_not() {
        let before = figures();
        assert_eq!(before.worse(&before), [""; 0]);
        let mut now = figures();
        now.counts.insert("node-llvm-portable".to_owned(), 1664);
        now.ratios.insert("mnist-8".to_owned(), 0.56);
        now.ratios.insert(MEAN.to_owned(), 0.53);
        now.seconds.insert("cold build of digits".to_owned(), 70.0);
        assert_eq!(
            before.worse(&now),
            [
                "node-llvm-portable: 1664 pass, 1665 did",
                "mean: latency beside the best peer 0.530, it was 0.500"
            ]
        );
        now = figures();
        now.ratios.remove("mnist-8");
        now.seconds.insert("cold build of digits".to_owned(), 100.0);
        assert_eq!(
            before.worse(&now),
            [
                "mnist-8: no latency beside the best peer, it was 0.500",
                "cold build of digits: seconds 100.000, it was 60.000"
            ]
        );
        now.machine = "another processor".to_owned();
        assert_eq!(before.worse(&now).len(), 1);
    }
}
