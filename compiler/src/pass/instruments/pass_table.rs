//! What each pass of a list did: one row a pass.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::per_thread::PerThread;
use crate::graph::{Callee, Expr};
use crate::ir::{Definition, IRModule};
use crate::pass::{HookResult, PassBody, PassError, PassInfo, PassInstrument, Sequential};

/// What one pass did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PassRow {
    /// Its name.
    pub pass: String,
    /// The level from which on it runs.
    pub level: u8,
    /// `None` if it did not run: the level leaves it out, or what it brings about holds already.
    pub ran: Option<Effect>,
}

/// What a pass that ran has changed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// Whether it made another module.
    pub changed: bool,
    /// Calls of operators before it, those in kernels included.
    pub operators_before: usize,
    /// Calls of operators after it.
    pub operators_after: usize,
    /// How long it took, in microseconds.
    pub micros: f64,
}

/// Records what the passes of one list do. What they run in turn is part of them.
#[derive(Debug)]
pub struct PassTable {
    list: String,
    threads: PerThread<Vec<Open>>,
    rows: Mutex<Vec<PassRow>>,
}

/// A pass that is running.
#[derive(Debug)]
struct Open {
    pass: String,
    module: IRModule,
    start: Instant,
}

impl PassTable {
    /// A table of the passes of that list.
    pub fn new(list: &Sequential) -> PassTable {
        PassTable {
            list: list.info().name().to_owned(),
            threads: PerThread::default(),
            rows: Mutex::default(),
        }
    }

    /// A row for each pass of the list, and for each that one of them required, in order.
    pub fn rows(&self, list: &Sequential) -> Vec<PassRow> {
        let ran = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ran = ran.as_slice();
        let mut rows = Vec::new();
        for pass in list.passes() {
            let (pass, level) = (pass.info().name().to_owned(), pass.info().opt_level());
            match ran.iter().position(|row| row.pass == pass) {
                Some(place) => {
                    rows.extend_from_slice(&ran[..=place]);
                    ran = &ran[place + 1..];
                }
                None => rows.push(PassRow { pass, level, ran: None }),
            }
        }
        rows.extend_from_slice(ran);
        rows
    }
}

/// Calls of operators in all functions.
fn operators(module: &IRModule) -> usize {
    let functions = module.iter().filter_map(|(_, definition)| Definition::as_graph(definition));
    let is_operator =
        |expr: &Expr| expr.as_call().is_some_and(|call| matches!(call.callee, Callee::Op(_)));
    functions.map(|f| f.iter().filter(|(_, data)| is_operator(&data.expr)).count()).sum()
}

impl PassInstrument for PassTable {
    fn run_before_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let (pass, module) = (info.name().to_owned(), module.clone());
        self.threads.with(|open| open.push(Open { pass, module, start: Instant::now() }));
        Ok(())
    }

    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> HookResult {
        let now = Instant::now();
        let (closed, outer) = self.threads.with(|open| {
            let closed = open.pop();
            (closed, open.last().is_some_and(|outer| outer.pass == self.list))
        });
        let Some(Open { pass, module: before, start }) = closed.filter(|_| outer) else {
            return Ok(());
        };
        let ran = Effect {
            changed: !before.same(module),
            operators_before: operators(&before),
            operators_after: operators(module),
            micros: now.duration_since(start).as_secs_f64() * 1e6,
        };
        let row = PassRow { pass, level: info.opt_level(), ran: Some(ran) };
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
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
}
