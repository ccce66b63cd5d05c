//! How long the stages of a compilation take.

use std::fmt;
use std::time::{Duration, Instant};

/// One stage and how long it took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// What was done.
    pub name: &'static str,
    /// How long it took.
    pub duration: Duration,
}

/// The stages of a compilation, in order. Prints as one line each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stages(pub Vec<Stage>);

impl Stages {
    /// Runs a stage and notes how long it took.
    pub fn run<T>(&mut self, name: &'static str, stage: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = stage();
        self.0.push(Stage { name, duration: start.elapsed() });
        result
    }

    /// How long all of them took.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|stage| stage.duration).sum()
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = ("total", self.total());
        let lines = self.0.iter().map(|stage| (stage.name, stage.duration)).chain([total]);
        for (name, duration) in lines {
            writeln!(f, "{name:<14} {:>9.1} ms", duration.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_print_in_order_with_their_sum() {
        let mut stages = Stages::default();
        assert_eq!(stages.run("import", || 7), 7);
        stages.0[0].duration = Duration::from_micros(1500);
        stages.0.push(Stage { name: "passes", duration: Duration::from_millis(20) });
        assert_eq!(
            stages.to_string(),
            "import               1.5 ms\npasses              20.0 ms\ntotal               21.5 ms\n"
        );
    }
}
