//! Progress on a terminal.
//!
//! It goes to the standard error, and only if that is a terminal. There is none when the human text
//! goes there as well, because JSON has the standard output.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::is_stdout;

/// How often a spinner turns: slow enough to cost nothing.
const TICK: Duration = Duration::from_millis(120);

/// What a command is doing, or how far it is.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of unknown length.
    pub(super) fn spinner(json: Option<&Path>, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, target(json));
        bar.set_style(style("{spinner} {msg} ({elapsed})"));
        bar.set_message(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress { bar }
    }

    /// Work in `count` parts.
    pub(super) fn parts(json: Option<&Path>, count: usize, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(count as u64), target(json));
        bar.set_style(style("{bar:30} {pos}/{len} {msg} ({elapsed})"));
        bar.set_message(what);
        Progress { bar }
    }

    /// Says what is done now.
    pub(super) fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// One part is done.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Prints something while the bar is out of the way.
    pub(super) fn suspended(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Leaves nothing on the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    /// An error that ends the work is told on a line of its own.
    fn drop(&mut self) {
        self.finish();
    }
}

fn target(json: Option<&Path>) -> ProgressDrawTarget {
    match json.is_some_and(is_stdout) {
        true => ProgressDrawTarget::hidden(),
        // Hidden by itself where there is no terminal.
        false => ProgressDrawTarget::stderr(),
    }
}

/// A style without colours.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
