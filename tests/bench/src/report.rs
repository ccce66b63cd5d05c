//! The report: a line for each row, and the table of the document.

use std::fmt::Write;
use std::time::Duration;

use crate::check::Error;
use crate::kernel::{Goal, Limit, Work};
use crate::peers::ENGINES;

/// The columns of a line.
pub(crate) const COLUMNS: [&str; 17] = [
    "name",
    "backend",
    "threads",
    "gflops",
    "percent_of_peak",
    "ort_ms",
    "openvino_ms",
    "ms",
    "gb_per_s",
    "compile_ms",
    "functions",
    "code_bytes",
    "max_error",
    "max_ulp",
    "speed_up",
    "goal",
    "reached",
];

/// A kernel by one backend on some threads.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) backend: &'static str,
    pub(crate) threads: usize,
    pub(crate) work: Work,
    /// The kind of [`limit`](Self::limit).
    pub(crate) kind: Limit,
    /// Whether the elements are sums of products.
    pub(crate) sums: bool,
    /// The rate that is 100%: operations, or bytes, in a second.
    pub(crate) limit: Option<f64>,
    /// Seconds of each of [`ENGINES`].
    pub(crate) peers: [Option<f64>; ENGINES.len()],
    /// The cost of niello's code, if there is such code.
    pub(crate) cost: Option<Cost>,
    pub(crate) goal: Goal,
}

/// The cost of code.
pub(crate) struct Cost {
    /// Seconds of one execution of the kernel.
    pub(crate) seconds: f64,
    /// How long it took to make the code.
    pub(crate) compile: Duration,
    /// Functions that were compiled.
    pub(crate) functions: usize,
    /// Bytes of machine code.
    pub(crate) code_bytes: u64,
    /// How exact it is.
    pub(crate) error: Error,
}

impl Row {
    /// One word for each of [`COLUMNS`]; `-` for unknown values. `rows` has the row on one thread.
    fn words(&self, rows: &[Row]) -> [String; COLUMNS.len()] {
        let Row { name, backend, threads, peers, .. } = self;
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let cost = |word: &dyn Fn(&Cost) -> String| known(self.cost.as_ref().map(word));
        let ms = |seconds: f64| format!("{:.4}", seconds * 1e3);
        let ulp = |cost: &Cost| match cost.error.ulp {
            // Terms cancel in sums, and the last place means nothing.
            _ if self.sums => "-".to_owned(),
            few if few < 1e4 => format!("{few:.1}"),
            many => format!("{many:.0e}"),
        };
        let reached = self.reached(rows).map(|yes| if yes { "yes" } else { "no" }.to_owned());
        let [ort, openvino] = peers.map(|peer| known(peer.map(ms)));
        [
            name.clone(),
            (*backend).to_owned(),
            threads.to_string(),
            cost(&|cost| format!("{:.1}", self.work.flops as f64 / cost.seconds / 1e9)),
            known(self.percent().map(|percent| format!("{percent:.1}%"))),
            ort,
            openvino,
            cost(&|cost| ms(cost.seconds)),
            known(self.bandwidth().map(|bandwidth| format!("{bandwidth:.1}"))),
            cost(&|cost| format!("{:.0}", cost.compile.as_secs_f64() * 1e3)),
            cost(&|cost| cost.functions.to_string()),
            cost(&|cost| cost.code_bytes.to_string()),
            cost(&|cost| format!("{:.1e}", cost.error.scaled)),
            cost(&ulp),
            known(self.speed_up(rows).map(|times| format!("{times:.2}"))),
            self.goal.word(),
            known(reached),
        ]
    }

    /// The row as a line.
    pub(crate) fn line(&self, rows: &[Row]) -> String {
        self.words(rows).join(" ")
    }

    /// The share of its limit that the kernel reaches.
    fn percent(&self) -> Option<f64> {
        let amount = match self.kind {
            Limit::Fma | Limit::Int8 => self.work.flops,
            Limit::Stream => self.work.bytes,
        };
        let rate = amount as f64 / self.cost.as_ref()?.seconds;
        Some(100.0 * rate / self.limit?)
    }

    /// GB/s.
    fn bandwidth(&self) -> Option<f64> {
        Some(self.work.bytes as f64 / self.cost.as_ref()?.seconds / 1e9)
    }

    /// How many times as fast as on one thread it is on several.
    fn speed_up(&self, rows: &[Row]) -> Option<f64> {
        let alone = rows
            .iter()
            .find(|row| row.threads == 1 && row.name == self.name && row.backend == self.backend)?;
        let seconds = self.cost.as_ref()?.seconds;
        (self.threads > 1).then_some(alone.cost.as_ref()?.seconds / seconds)
    }

    /// Whether the kernel reaches its goal, if that is known.
    fn reached(&self, rows: &[Row]) -> Option<bool> {
        let seconds = self.cost.as_ref()?.seconds;
        match self.goal {
            Goal::Percent(least) => Some(self.percent()? >= least),
            Goal::Bandwidth(least) => Some(self.bandwidth()? >= least),
            Goal::OnnxRuntime => Some(seconds < self.peers[0]?),
            Goal::SpeedUp(least) => Some(self.speed_up(rows)? >= least),
        }
    }
}

impl Goal {
    fn word(self) -> String {
        match self {
            Goal::Percent(least) => format!(">={least}%"),
            Goal::Bandwidth(least) => format!(">={least}GB/s"),
            Goal::OnnxRuntime => "<ort_ms".to_owned(),
            Goal::SpeedUp(least) => format!(">={least}x"),
        }
    }
}

/// The rows as Markdown, followed by the failures.
pub(crate) fn markdown(peaks: &[String], rows: &[Row], failures: &[String]) -> String {
    let mut text = String::new();
    for peak in peaks {
        let _ = writeln!(text, "{peak}  ");
    }
    let titles = COLUMNS.map(|column| column.replace('_', " ")).join(" | ");
    let alignment = "---|---|".to_owned() + &"--:|".repeat(COLUMNS.len() - 2);
    let _ = writeln!(text, "\n| {titles} |\n|{alignment}");
    for row in rows {
        let _ = writeln!(
            text,
            "| {} |",
            row.words(rows).map(|word| if word == "-" { "–".to_owned() } else { word }).join(" | ")
        );
    }
    if !failures.is_empty() {
        let _ = writeln!(text, "\nNot measured:\n");
        for failure in failures {
            let _ = writeln!(text, "- {failure}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(threads: usize, kind: Limit, goal: Goal, ms: f64) -> Row {
        Row {
            name: "name".to_owned(),
            backend: "c",
            threads,
            work: Work { flops: 2_000_000, bytes: 1_000_000 },
            kind,
            sums: kind == Limit::Fma,
            limit: Some(4e9),
            peers: [Some(2e-3), None],
            cost: Some(Cost {
                seconds: ms / 1e3,
                compile: Duration::from_millis(40),
                functions: 2,
                code_bytes: 3000,
                error: Error { scaled: 1.2e-6, ulp: 2.5 },
            }),
            goal,
        }
    }

    #[test]
    fn a_line_has_the_cells_of_its_columns() {
        let rows = [row(1, Limit::Fma, Goal::Percent(50.0), 1.0)];
        assert_eq!(
            rows[0].line(&rows),
            "name c 1 2.0 50.0% 2.0000 - 1.0000 1.0 40 2 3000 1.2e-6 - - >=50% yes"
        );
        let rows = [row(1, Limit::Stream, Goal::Bandwidth(2.0), 1.0)];
        assert_eq!(
            rows[0].line(&rows),
            "name c 1 2.0 25.0% 2.0000 - 1.0000 1.0 40 2 3000 1.2e-6 2.5 - >=2GB/s no"
        );
    }

    #[test]
    fn goals_compare_with_peers_and_with_one_thread() {
        let rows = [
            row(1, Limit::Fma, Goal::OnnxRuntime, 1.9),
            row(2, Limit::Fma, Goal::SpeedUp(1.85), 1.0),
            row(2, Limit::Fma, Goal::SpeedUp(1.95), 1.0),
        ];
        let reached: Vec<_> = rows.iter().map(|row| row.reached(&rows)).collect();
        assert_eq!(reached, [Some(true), Some(true), Some(false)]);
        assert_eq!(rows[1].reached(&[]), None, "the row on one thread is missing");
        assert!(rows[1].line(&rows).ends_with(" - 1.90 >=1.85x yes"), "{}", rows[1].line(&rows));
    }

    #[test]
    fn the_table_has_as_many_cells_as_columns_in_each_row() {
        let rows = [row(1, Limit::Int8, Goal::Percent(85.0), 1.0)];
        let text = markdown(&["peak 1".to_owned()], &rows, &["name, OpenVINO: why".to_owned()]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 3);
        for line in lines {
            assert_eq!(line.matches('|').count(), COLUMNS.len() + 1, "{line}");
        }
        assert!(text.starts_with("peak 1  \n"));
        assert!(text.ends_with("\nNot measured:\n\n- name, OpenVINO: why\n"));
    }
}
