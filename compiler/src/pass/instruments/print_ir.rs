//! Prints the module before and after passes.

use similar::TextDiff;

use super::per_thread::PerThread;
use super::text_output::TextOutput;
use crate::ir::IRModule;
use crate::pass::{
    HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument, PassKind, same_name,
};

/// Lines shown on either side of a change.
const DIFF_CONTEXT: usize = 3;

/// A selection of passes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PassSelection {
    /// No passes.
    #[default]
    None,
    /// All passes, but not the lists that contain them.
    All,
    /// The passes of these names; case, `-` and `_` do not matter.
    Named(Vec<String>),
}

impl PassSelection {
    /// The passes of these names.
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> PassSelection {
        PassSelection::Named(names.into_iter().map(Into::into).collect())
    }

    /// Whether the selection contains a pass.
    pub fn contains(&self, info: &PassInfo) -> bool {
        match self {
            PassSelection::None => false,
            PassSelection::All => info.kind() != PassKind::Sequential,
            PassSelection::Named(names) => names.iter().any(|name| same_name(name, info.name())),
        }
    }
}

/// The form in which a changed module is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrintChanged {
    /// The whole module.
    Whole,
    /// Only the changes, as a unified diff.
    Diff,
}

/// Prints the module before and after passes, as text that reads back.
///
/// Each module stands under a line `; *** IR dump after FoldConstant ***`, which is a comment of
/// the text format. Without an [output](Self::output) the text is kept, and shown
/// [afterwards](PassInstrument::outputs) as `ir.txt`.
#[derive(Default, Debug)]
pub struct PrintIr {
    before: PassSelection,
    after: PassSelection,
    changed: Option<PrintChanged>,
    output: TextOutput,
    threads: PerThread<State>,
}

#[derive(Default, Debug)]
struct State {
    /// The text before each pass that is running, if it is needed.
    before: Vec<Option<Seen>>,
    /// Whether the module before the first pass was printed.
    started: bool,
}

#[derive(Debug)]
struct Seen {
    module: IRModule,
    text: String,
}

impl PrintIr {
    /// An instrument that prints nothing yet.
    pub fn new() -> PrintIr {
        PrintIr::default()
    }

    /// Prints the module before these passes.
    #[must_use]
    pub fn before(mut self, passes: PassSelection) -> PrintIr {
        self.before = passes;
        self
    }

    /// Prints the module after these passes.
    #[must_use]
    pub fn after(mut self, passes: PassSelection) -> PrintIr {
        self.after = passes;
        self
    }

    /// Prints the module as it was before the first pass, and after each pass that changed its
    /// text; for other passes prints a line that says so. With [`after`](Self::after), only the
    /// selected passes are printed.
    #[must_use]
    pub fn changed(mut self, how: PrintChanged) -> PrintIr {
        self.changed = Some(how);
        self
    }

    /// Sets the output.
    #[must_use]
    pub fn output(mut self, output: TextOutput) -> PrintIr {
        self.output = output;
        self
    }

    fn shows_after(&self, info: &PassInfo) -> bool {
        match (&self.after, self.changed) {
            (PassSelection::None, Some(_)) => PassSelection::All.contains(info),
            (after, _) => after.contains(info),
        }
    }

    fn print(&self, what: &str, text: &str) {
        self.output.write(&format!("; *** IR dump {what} ***\n{text}\n"));
    }

    fn print_change(
        &self,
        how: PrintChanged,
        info: &PassInfo,
        seen: Option<&Seen>,
        now: &IRModule,
    ) {
        let (name, unchanged) = (info.text(), seen.is_some_and(|seen| seen.module.same(now)));
        let after = if unchanged { None } else { Some(now.to_string()) };
        let before = seen.map_or("", |seen| &seen.text);
        match after {
            Some(after) if after != before => match how {
                PrintChanged::Whole => self.print(&format!("after {name}"), &after),
                PrintChanged::Diff => {
                    let diff = TextDiff::from_lines(before, after.as_str());
                    let diff = diff.unified_diff().context_radius(DIFF_CONTEXT).to_string();
                    self.print(&format!("after {name}"), &diff);
                }
            },
            _ => {
                self.output.write(&format!("; *** {name} changed nothing ***\n"));
            }
        }
    }
}

impl PassInstrument for PrintIr {
    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let shows_change = self.changed.is_some() && self.shows_after(info);
        let (starts, selected) = (
            self.threads.with(|state| shows_change && !std::mem::replace(&mut state.started, true)),
            self.before.contains(info),
        );
        let text = if shows_change || selected { module.to_string() } else { String::new() };
        if starts {
            self.print("at the start", &text);
        }
        if selected {
            self.print(&format!("before {}", info.text()), &text);
        }
        let seen = shows_change.then(|| Seen { module: module.clone(), text });
        self.threads.with(|state| state.before.push(seen));
        Ok(())
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let seen = self.threads.with(|state| state.before.pop()).flatten();
        if self.shows_after(info) {
            match self.changed {
                Some(how) => self.print_change(how, info, seen.as_ref(), module),
                None => self.print(&format!("after {}", info.text()), &module.to_string()),
            }
        }
        Ok(())
    }

    fn after_pass_failed(&self, info: &PassInfo, _: &PassError) -> HookResult {
        self.threads.with(|state| state.before.pop());
        if self.shows_after(info) {
            self.output.write(&format!("; *** {} failed ***\n", info.text()));
        }
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        match self.output.kept() {
            text if text.is_empty() => Vec::new(),
            text => vec![InstrumentOutput::new("ir.txt", text)],
        }
    }
}
