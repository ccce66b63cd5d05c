//! Choices that were measured on a machine, and stand where a cost model would decide.
//!
//! A rule that can make its loops in several ways says what it works on, the [`Workload`], and which
//! ways there are. `niello tune` measures them and writes a text file, whose lines are in order, so
//! that it can be committed and compared; compilations read it. What a compilation makes never
//! depends on the machine that compiles.
//!
//! ```text
//! niello tuned choices, version 1
//! # machine | workload | choice | time in percent of the compiler's choice | candidates measured
//! 512 bits x 32 | matmul 1x128x384 by 384x1536, .. | panels of 3 vectors, rows outside | 94 | 18
//! 512 bits x 32 | matmul 1x128x1536 by 1536x384, .. | default | 100 | 18
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::diagnostics::Problem;
use crate::files;

/// The first line of a file.
const HEADER: &str = "niello tuned choices, version 1";

/// What the columns are.
const COLUMNS: &str = "# machine | workload | choice | time in percent of the compiler's choice | \
                       candidates measured";

/// The choice of a workload for which nothing was faster than what the compiler takes by itself.
const DEFAULT: &str = "default";

/// What a rule is about to make loops for, in words: whatever decides how fast its ways are, and
/// nothing else, so that equal work of other models is the same workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Workload {
    /// The registers of the machine that the loops are for.
    pub machine: String,
    /// Pattern, extents, data types, layouts, and how much is computed beside.
    pub what: String,
}

/// A place where a kernel could have been made in another way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunable {
    /// What the loops are for.
    pub workload: Workload,
    /// The ways there are, in words. None is there twice.
    pub candidates: Vec<String>,
    /// The one that was taken.
    pub chosen: String,
}

/// What was measured of a workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// The fastest way, if it is another one than the compiler takes by itself.
    pub choice: Option<String>,
    /// The time it takes, in percent of that of the compiler's own choice.
    pub percent: u32,
    /// How many of the candidates were measured.
    pub tried: usize,
}

/// Measured choices by workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tuned {
    measured: Arc<BTreeMap<Workload, Measured>>,
}

impl Tuned {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no such file.
    pub fn read(path: &Path) -> Result<Tuned, Problem> {
        let problem = |what: &dyn Display| Problem::new(format!("{}: {what}", path.display()));
        let bytes = files::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => problem(&"there is no such file")
                .help("`niello tune MODEL -o FILE` makes a file of tuned choices"),
            _ => problem(&error),
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|_| problem(&"it is not text"))?;
        text.parse().map_err(|error: NotTuned| problem(&error))
    }

    /// What was measured of a workload.
    pub fn get(&self, workload: &Workload) -> Option<&Measured> {
        self.measured.get(workload)
    }

    /// Notes what was measured of a workload, in the place of what is known of it.
    pub fn set(&mut self, workload: Workload, measured: Measured) {
        Arc::make_mut(&mut self.measured).insert(workload, measured);
    }

    /// The workloads with another choice than the compiler's own, in order.
    pub fn choices(&self) -> impl Iterator<Item = (&Workload, &str)> {
        let all = self.measured.iter();
        all.filter_map(|(workload, measured)| Some((workload, measured.choice.as_deref()?)))
    }

    /// The way that was measured to be the fastest of these; the first one where nothing is known.
    ///
    /// # Panics
    ///
    /// If there are no candidates.
    pub(crate) fn pick<T: Display>(
        &self,
        workload: Workload,
        candidates: &[T],
    ) -> (usize, Tunable) {
        let candidates: Vec<String> = candidates.iter().map(T::to_string).collect();
        let choice = self.get(&workload).and_then(|measured| measured.choice.as_ref());
        let at = choice.and_then(|choice| candidates.iter().position(|way| way == choice));
        let at = at.unwrap_or(0);
        let chosen = candidates[at].clone();
        (at, Tunable { workload, candidates, chosen })
    }

    /// How many choices count for a model of which these are the places that have several ways, on its
    /// widest CPU level, and how many do not: they are for another machine or for other work. `None` if
    /// there are no choices.
    pub fn remark<'a>(&self, tunables: impl IntoIterator<Item = &'a Tunable>) -> Option<String> {
        let made: Vec<(&Workload, &str)> =
            tunables.into_iter().map(|place| (&place.workload, place.chosen.as_str())).collect();
        let count = self.choices().count();
        let taken = self.choices().filter(|choice| made.contains(choice)).count();
        let others = match count - taken {
            0 => String::new(),
            others => format!(", {others} are for another machine or other work"),
        };
        (count > 0).then(|| format!("{taken} tuned choices are taken{others}"))
    }
}

/// The text of a file.
impl Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}\n{COLUMNS}")?;
        for (Workload { machine, what }, Measured { choice, percent, tried }) in &*self.measured {
            let choice = choice.as_deref().unwrap_or(DEFAULT);
            writeln!(f, "{machine} | {what} | {choice} | {percent} | {tried}")?;
        }
        Ok(())
    }
}

/// Why a text has no tuned choices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotTuned(String);

impl Display for NotTuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotTuned {}

impl FromStr for Tuned {
    type Err = NotTuned;

    fn from_str(text: &str) -> Result<Tuned, NotTuned> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line.trim_end());
        if first != HEADER {
            return Err(NotTuned(format!("the first line is `{first}`, not `{HEADER}`")));
        }
        let mut measured = BTreeMap::new();
        for (number, line) in lines {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| NotTuned(format!("line {}: {what}", number + 1));
            let fields: Vec<&str> = line.split('|').map(str::trim).collect();
            let [machine, what, choice, percent, tried] = fields[..] else {
                return Err(wrong(format!("{} fields, where there should be 5", fields.len())));
            };
            let number = |text: &str| {
                text.parse::<u32>().map_err(|_| wrong(format!("`{text}` is no number")))
            };
            let choice = (choice != DEFAULT).then(|| choice.to_owned());
            let workload = Workload { machine: machine.to_owned(), what: what.to_owned() };
            let entry =
                Measured { choice, percent: number(percent)?, tried: number(tried)? as usize };
            if measured.insert(workload, entry).is_some() {
                return Err(wrong("the workload is there twice".to_owned()));
            }
        }
        Ok(Tuned { measured: Arc::new(measured) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(what: &str) -> Workload {
        Workload { machine: "512 bits x 32".to_owned(), what: what.to_owned() }
    }

    fn some() -> Tuned {
        let mut tuned = Tuned::default();
        let choice = Some("two".to_owned());
        tuned.set(workload("b"), Measured { choice, percent: 94, tried: 3 });
        tuned.set(workload("a"), Measured { choice: None, percent: 100, tried: 2 });
        tuned
    }

    #[test]
    fn a_file_reads_back_and_is_in_order() {
        let text = some().to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected =
            ["512 bits x 32 | a | default | 100 | 2", "512 bits x 32 | b | two | 94 | 3"];
        assert_eq!(lines, expected);
        assert_eq!(text.parse(), Ok(some()));
        assert_eq!(text.replace('\n', "\r\n").parse(), Ok(some()));
    }

    #[test]
    fn what_is_no_such_file_says_where() {
        for (after, said) in [
            ("a | b\n", "line 2: 2 fields, where there should be 5"),
            ("\na | b | c | x | 1\n", "line 3: `x` is no number"),
            ("a | b | c | 1 | -1\n", "line 2: `-1` is no number"),
            ("a|b|c|1|1\na | b | d | 1 | 1\n", "line 3: the workload is there twice"),
        ] {
            let error = format!("{HEADER}\n{after}").parse::<Tuned>().unwrap_err();
            assert_eq!(error.to_string(), said);
        }
        for text in ["", "niello tuned choices, version 2\n", "\u{7f}ELF"] {
            let error = text.parse::<Tuned>().unwrap_err().to_string();
            assert!(error.contains("not `niello tuned choices, version 1`"), "{error}");
        }
    }

    #[test]
    fn a_choice_counts_if_it_is_a_candidate() {
        let tuned = some();
        let pick = |what, candidates: &[&str]| tuned.pick(workload(what), candidates);
        assert_eq!(pick("b", &["one", "two"]).0, 1);
        // As after a change of the rule.
        assert_eq!(pick("b", &["one", "three"]).0, 0);
        assert_eq!(pick("a", &["one", "two"]).0, 0);
        assert_eq!(pick("c", &["one", "two"]).0, 0);
        let (_, taken) = pick("b", &["one", "two"]);
        assert_eq!(taken.chosen, "two");
        assert_eq!(tuned.remark([&taken]).as_deref(), Some("1 tuned choices are taken"));
        let others = "0 tuned choices are taken, 1 are for another machine or other work";
        assert_eq!(tuned.remark([&pick("b", &["one"]).1]).as_deref(), Some(others));
        assert_eq!(Tuned::default().remark([&taken]), None);
    }
}
