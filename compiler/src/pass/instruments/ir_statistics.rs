//! Counts the contents of modules before and after each pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::per_thread::PerThread;
use crate::graph::{Callee, Expr};
use crate::ir::{Definition, IRModule};
use crate::pass::{HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument, PassKind};

/// The contents of a module, counted. A function within a function counts as part of that function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counts {
    /// Definitions: graph functions, loop functions, external ones.
    functions: u64,
    /// Functions within graph functions; after fusion, kernels.
    closures: u64,
    calls: u64,
    constants: u64,
    /// Bytes of the constants; a constant with several uses counts once for each.
    constant_bytes: u64,
    by_op: BTreeMap<String, u64>,
}

impl Counts {
    fn of(module: &IRModule) -> Counts {
        let mut counts = Counts { functions: module.len() as u64, ..Counts::default() };
        for function in module.iter().filter_map(|(_, definition)| Definition::as_graph(definition))
        {
            for (_, data) in function.iter() {
                counts.add(&data.expr);
            }
        }
        counts
    }

    fn add(&mut self, expr: &Expr) {
        match expr {
            Expr::Call(call) => {
                self.calls += 1;
                let callee = match &call.callee {
                    Callee::Op(op) => op.name,
                    Callee::Expr(_) => "a function",
                };
                *self.by_op.entry(callee.to_owned()).or_default() += 1;
            }
            Expr::Constant(constant) => {
                self.constants += 1;
                self.constant_bytes = self.constant_bytes.saturating_add(constant.byte_len());
            }
            Expr::Func(_) => self.closures += 1,
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Tuple(_)
            | Expr::TupleGet { .. }
            | Expr::If(_)
            | Expr::While(_) => {}
        }
    }

    /// The totals, with their names.
    fn totals(&self) -> [(&'static str, u64); 5] {
        [
            ("functions", self.functions),
            ("closures", self.closures),
            ("calls", self.calls),
            ("constants", self.constants),
            ("constant bytes", self.constant_bytes),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "functions": self.functions,
            "closures": self.closures,
            "calls": self.calls,
            "constants": self.constants,
            "constant_bytes": self.constant_bytes,
            "calls_by_operator": self.by_op,
        })
    }
}

/// Counts functions, calls by operator, constants and their bytes, before and after each pass.
///
/// Its file is `ir-statistics.txt`.
#[derive(Default, Debug)]
pub struct IrStatistics {
    threads: PerThread<Vec<(IRModule, Counts)>>,
    passes: Mutex<Vec<Change>>,
}

/// The counts before and after one pass.
#[derive(Debug)]
struct Change {
    pass: String,
    before: Counts,
    after: Counts,
}

impl IrStatistics {
    /// Counters.
    pub fn new() -> IrStatistics {
        IrStatistics::default()
    }

    /// One line a pass that has run, `FoldConstant: calls 7 -> 5, constants 3 -> 2`, and below it
    /// the operators of which there are more or fewer calls than before. The totals at the start
    /// and at the end are around them.
    pub fn render(&self) -> String {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let (Some(first), Some(last)) = (passes.first(), passes.last()) else { return text };
        let totals = |text: &mut String, when: &str, counts: &Counts| {
            let totals: Vec<String> =
                counts.totals().iter().map(|(name, count)| format!("{count} {name}")).collect();
            let _ = writeln!(text, "{when}: {}", totals.join(", "));
        };
        totals(&mut text, "at the start", &first.before);
        passes.iter().for_each(|change| change.write(&mut text));
        totals(&mut text, "at the end", &last.after);
        text
    }

    /// One JSON array with `pass`, `before` and `after` of each pass that has run.
    pub fn render_json(&self) -> String {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let passes: Vec<Value> = passes
            .iter()
            .map(|Change { pass, before, after }| {
                json!({ "pass": pass, "before": before.json(), "after": after.json() })
            })
            .collect();
        format!("{:#}\n", Value::Array(passes))
    }
}

impl Change {
    fn write(&self, text: &mut String) {
        let Change { pass, before, after } = self;
        let totals: Vec<String> = before
            .totals()
            .iter()
            .zip(after.totals())
            .filter(|((_, before), (_, after))| before != after)
            .map(|((name, before), (_, after))| format!("{name} {before} -> {after}"))
            .collect();
        let changes = match totals.is_empty() {
            true => "nothing changed".to_owned(),
            false => totals.join(", "),
        };
        let _ = writeln!(text, "{pass}: {changes}");
        let names: BTreeSet<&String> = before.by_op.keys().chain(after.by_op.keys()).collect();
        for name in names {
            let count = |counts: &Counts| counts.by_op.get(name).copied().unwrap_or(0);
            if count(before) != count(after) {
                let _ = writeln!(text, "    {name} {} -> {}", count(before), count(after));
            }
        }
    }
}

impl PassInstrument for IrStatistics {
    fn run_before_pass(&self, module: &IRModule, _: &PassInfo) -> HookResult {
        let counts = Counts::of(module);
        self.threads.with(|open| open.push((module.clone(), counts)));
        Ok(())
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let Some((input, before)) = self.threads.with(Vec::pop) else { return Ok(()) };
        if info.kind() == PassKind::Sequential {
            return Ok(());
        }
        let after = if input.same(module) { before.clone() } else { Counts::of(module) };
        let change = Change { pass: info.text(), before, after };
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        Ok(())
    }

    fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
        self.threads.with(Vec::pop);
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        match self.render() {
            text if text.is_empty() => Vec::new(),
            text => vec![InstrumentOutput::new("ir-statistics.txt", text)],
        }
    }
}
