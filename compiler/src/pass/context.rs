//! Pass contexts: the level, lists of passes, instruments and options under which passes run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;

use super::analysis::{AnalysisCache, Claim};
use super::builder::PassContextBuilder;
use super::config::{AnyValue, ConfigKey, ConfigValue};
use super::instrument::{Instruments, enter_all, exit_all};
use super::progress::Progress;
use super::sink::{Records, Sink};
use super::{
    BoxError, ConfigEntry, Evaluator, InstrumentRef, PassError, PassErrorKind, PassInfo, PassKind,
    Registry, Remark, Result, Statistics, names,
};
use crate::diagnostics::{Diagnostic, Level};
use crate::graph::{Callee, Expr, ExprId, Function, excerpt};
use crate::ir::{GlobalVar, IRModule, Span};
use crate::target::Target;

/// Checks a module after a pass.
pub type Verifier = Arc<dyn Fn(&IRModule) -> Result<(), BoxError> + Send + Sync>;

/// The state that all clones of a context share. Only the instruments and the cache of analyses
/// change after the context is built.
pub(super) struct Shared {
    pub(super) opt_level: u8,
    pub(super) required: BTreeSet<String>,
    pub(super) disabled: BTreeSet<String>,
    pub(super) instruments: Mutex<Entered>,
    pub(super) config: IndexMap<&'static str, AnyValue>,
    pub(super) evaluator: Arc<dyn Evaluator>,
    pub(super) verifier: Option<Verifier>,
    pub(super) registry: Registry,
    pub(super) target: Target,
    pub(super) remarks: bool,
    pub(super) resume_panics: bool,
    pub(super) jobs: usize,
    pub(super) analyses: AnalysisCache,
}

/// The instruments of a context, and those of each time that the context was entered.
#[derive(Default)]
pub(super) struct Entered {
    /// The instruments that hooks call now.
    current: Instruments,
    /// The instruments to leave at the end of each scope that entered the context, innermost last.
    entries: Vec<(u64, Instruments)>,
}

impl Entered {
    pub(super) fn new(current: Instruments) -> Entered {
        Entered { current, entries: Vec::new() }
    }
}

/// The pass, and the function, that a context is made for.
struct Unit {
    pass: String,
    /// The global of the function that a pass of functions works on.
    global: Option<GlobalVar>,
    /// That function, if it is a graph function.
    function: Option<Function>,
}

/// The level, lists of passes, instruments and options under which passes run. Cheap to clone;
/// clones are the [same](Self::same) context.
///
/// A context is handed to every pass, and is also the [current](Self::current) one of a thread
/// while it is [entered](Self::enter). A context that is entered within another inherits nothing
/// from it, unless it was made by [`inherit`](Self::inherit).
#[derive(Clone)]
pub struct PassContext {
    shared: Arc<Shared>,
    sink: Arc<Sink>,
    unit: Option<Arc<Unit>>,
    /// Options that a textual pipeline sets for the pass that is running.
    overrides: Overrides,
    /// What the running list of passes knows; handed on to the lists within it.
    progress: Option<Progress>,
    /// The one function that passes of functions work on, within a group that runs function by
    /// function.
    only: Option<GlobalVar>,
}

type Overrides = Option<Arc<IndexMap<&'static str, AnyValue>>>;

impl Default for PassContext {
    fn default() -> PassContext {
        PassContext::builder()
            .build()
            .expect("a context without names and options has no wrong ones")
    }
}

impl fmt::Debug for PassContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassContext")
            .field("opt_level", &self.shared.opt_level)
            .field("required_pass", &self.shared.required)
            .field("disabled_pass", &self.shared.disabled)
            .field("config", &self.shared.config.keys())
            .finish_non_exhaustive()
    }
}

impl PassContext {
    pub(super) fn from_shared(shared: Shared) -> PassContext {
        PassContext {
            shared: Arc::new(shared),
            sink: Arc::default(),
            unit: None,
            overrides: None,
            progress: None,
            only: None,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A builder with level 2 and nothing else.
    pub fn builder() -> PassContextBuilder {
        PassContextBuilder::new()
    }

    /// A builder with everything that the [current](Self::current) context has.
    pub fn inherit() -> PassContextBuilder {
        PassContextBuilder::of(&PassContext::current())
    }

    /// A context for another target with the same settings; diagnostics and remarks go to this one.
    pub fn for_target(&self, target: &Target) -> Result<PassContext> {
        let other = PassContextBuilder::of(self).target(target.clone()).build()?;
        Ok(PassContext { sink: self.sink.clone(), ..other })
    }

    /// A clone whose diagnostics, remarks and counts are kept apart until [`join`](Self::join), so
    /// that those of several threads can be merged in order.
    pub(crate) fn apart(&self) -> PassContext {
        PassContext { sink: Arc::default(), ..self.clone() }
    }

    /// Adds the records of a clone that [`apart`](Self::apart) made.
    pub(crate) fn join(&self, apart: &PassContext) {
        self.absorb(apart.take_records());
    }

    /// Whether both are the same context.
    pub fn same(&self, other: &PassContext) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The level: a [`Sequential`](super::Sequential) runs passes of this level and below.
    pub fn opt_level(&self) -> u8 {
        self.shared.opt_level
    }

    /// Whether the context wants that pass whatever its level.
    pub fn is_required(&self, pass: &str) -> bool {
        !self.shared.required.is_empty() && self.shared.required.contains(&names::canonical(pass))
    }

    /// Whether the context does not want that pass.
    pub fn is_disabled(&self, pass: &str) -> bool {
        !self.shared.disabled.is_empty() && self.shared.disabled.contains(&names::canonical(pass))
    }

    /// Whether a [`Sequential`](super::Sequential) runs that pass: not if it is disabled, always if
    /// it is required, else by its level.
    pub fn pass_enabled(&self, info: &PassInfo) -> bool {
        !self.is_disabled(info.name())
            && (self.is_required(info.name()) || self.opt_level() >= info.opt_level())
    }

    /// Canonical names of the passes that the context wants whatever their level, in order.
    pub fn required_passes(&self) -> impl Iterator<Item = &str> {
        self.shared.required.iter().map(String::as_str)
    }

    /// Canonical names of the passes that the context does not want, in order.
    pub fn disabled_passes(&self) -> impl Iterator<Item = &str> {
        self.shared.disabled.iter().map(String::as_str)
    }

    /// The options that the context sets, as JSON, in the order of their names.
    pub fn config_json(&self) -> BTreeMap<&'static str, serde_json::Value> {
        let set = |entry: &&ConfigEntry| self.shared.config.contains_key(entry.name);
        let json = |entry: &ConfigEntry| entry.to_json(self.shared.config.get(entry.name)?);
        let entries = super::list_configs().into_iter().filter(set);
        entries.filter_map(|entry| Some((entry.name, json(entry)?))).collect()
    }

    /// The value of an option: the context's, else the option's default.
    pub fn get<T: ConfigValue>(&self, key: &ConfigKey<T>) -> T {
        let own = self.overrides.as_ref().and_then(|overrides| overrides.get(key.name()));
        own.or_else(|| self.shared.config.get(key.name()))
            .and_then(|value| value.downcast_ref::<T>().cloned())
            .unwrap_or_else(|| key.default_value())
    }

    /// The options that are set, including those that a textual pipeline sets for the running pass.
    pub(super) fn effective_config(&self) -> IndexMap<&'static str, AnyValue> {
        let mut config = self.shared.config.clone();
        if let Some(overrides) = &self.overrides {
            config.extend(overrides.iter().map(|(name, value)| (*name, value.clone())));
        }
        config
    }

    /// The evaluator of calls whose arguments are constants.
    pub fn evaluator(&self) -> &dyn Evaluator {
        &*self.shared.evaluator
    }

    /// Where passes are looked up by name.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// The machine that code is to be made for.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// Threads that a pass of functions may use.
    pub fn jobs(&self) -> usize {
        self.shared.jobs
    }

    /// Whether the module is verified after each pass that changed it.
    pub fn verifies(&self) -> bool {
        self.verifier().is_some()
    }

    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.shared.verifier.as_ref()
    }

    /// Whether a panic of a pass continues after instruments were called.
    pub(super) fn resumes_panics(&self) -> bool {
        self.shared.resume_panics
    }

    pub(super) fn cache(&self) -> &AnalysisCache {
        &self.shared.analyses
    }

    fn entered(&self) -> MutexGuard<'_, Entered> {
        self.shared.instruments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current instruments.
    pub fn instruments(&self) -> Arc<[InstrumentRef]> {
        self.entered().current.clone()
    }

    /// Enters the instruments; [`leave_instruments`](Self::leave_instruments) with the same token
    /// leaves them.
    pub(super) fn enter_instruments(&self, token: u64) -> Result<()> {
        let list = self.instruments();
        enter_all(&list).inspect_err(|_| self.clear_instruments())?;
        self.entered().entries.push((token, list));
        Ok(())
    }

    pub(super) fn leave_instruments(&self, token: u64) -> Result<()> {
        let list = {
            let mut entered = self.entered();
            let position = entered.entries.iter().rposition(|(other, _)| *other == token);
            position.map(|position| entered.entries.remove(position).1)
        };
        let Some(list) = list else { return Ok(()) };
        exit_all(&list).inspect_err(|_| self.clear_instruments())
    }

    /// After a failure no hook is called any more, not even on leaving the context.
    fn clear_instruments(&self) {
        let mut entered = self.entered();
        entered.current = Instruments::default();
        for (_, list) in &mut entered.entries {
            *list = Instruments::default();
        }
    }

    /// Leaves the current instruments and enters others in their place. A pass that is running goes
    /// on with the instruments that it began with. If the context was entered several times, only
    /// the instruments of the innermost scope are replaced; those of the outer scopes are left when
    /// these end.
    ///
    /// # Errors
    ///
    /// If an instrument cannot be left or entered; the context then has none.
    pub fn override_instruments(
        &self,
        instruments: impl IntoIterator<Item = InstrumentRef>,
    ) -> Result<()> {
        let (token, old) = {
            let mut entered = self.entered();
            let current = std::mem::take(&mut entered.current);
            match entered.entries.last_mut() {
                Some((token, list)) => (Some(*token), std::mem::take(list)),
                None => (None, current),
            }
        };
        let new: Instruments = instruments.into_iter().collect();
        exit_all(&old).and_then(|()| enter_all(&new)).inspect_err(|_| self.clear_instruments())?;
        let mut entered = self.entered();
        entered.current = new.clone();
        if let Some((_, list)) = entered.entries.iter_mut().find(|(other, _)| Some(*other) == token)
        {
            *list = new;
        }
        Ok(())
    }

    // Diagnostics, remarks and counts of a pass.

    /// Emits a diagnostic; an error or a bug fails the pass.
    pub fn emit(&self, diagnostic: Diagnostic) {
        self.sink.lock().diagnostics.push(diagnostic);
    }

    /// Emits an error, which fails the pass once it returns.
    pub fn error(&self, span: Span, message: impl Into<String>) {
        self.emit(Diagnostic::new(Level::Error, span, message));
    }

    /// Emits an error about `expr`, which fails the pass once it returns; the message shows the
    /// expression's place in the text of the function. `expr` belongs to the function that the pass
    /// was given.
    pub fn error_at(&self, expr: ExprId, message: impl Into<String>) {
        self.emit(self.at(Level::Error, expr, message.into()));
    }

    /// Emits a warning about `expr`, in the same way as [`error_at`](Self::error_at).
    pub fn warning_at(&self, expr: ExprId, message: impl Into<String>) {
        self.emit(self.at(Level::Warning, expr, message.into()));
    }

    fn at(&self, level: Level, expr: ExprId, message: String) -> Diagnostic {
        let unit = self.unit.as_ref();
        let function = unit.and_then(|unit| unit.function.as_ref());
        let Some(function) = function.filter(|function| (expr.as_u32() as usize) < function.len())
        else {
            return Diagnostic::new(level, Span::Unknown, message);
        };
        let global = unit.and_then(|unit| unit.global.as_ref());
        Diagnostic::new(level, function.span(expr).clone(), message)
            .showing(excerpt(function, global, expr))
    }

    /// Emits a warning: the program may not do what its author meant.
    pub fn warning(&self, span: Span, message: impl Into<String>) {
        self.emit(Diagnostic::new(Level::Warning, span, message));
    }

    /// Records why a rewrite of `expr` was not made. `expr` belongs to the function that the pass
    /// was given; for other functions, see [`missed_in`](Self::missed_in).
    pub fn missed(&self, expr: ExprId, reason: impl fmt::Display) {
        if self.shared.remarks
            && let Some(function) = self.unit.as_ref().and_then(|unit| unit.function.as_ref())
        {
            self.missed_in(function, expr, reason);
        }
    }

    /// Records why a rewrite of an expression of `function` was not made.
    pub fn missed_in(&self, function: &Function, expr: ExprId, reason: impl fmt::Display) {
        if !self.shared.remarks || (expr.as_u32() as usize) >= function.len() {
            return;
        }
        let unit = self.unit.as_ref();
        self.sink.lock().remarks.push(Remark {
            pass: unit.map_or_else(String::new, |unit| unit.pass.clone()),
            function: unit.and_then(|unit| unit.global.clone()),
            what: kind_of(function, expr),
            span: function.span(expr).clone(),
            reason: reason.to_string(),
        });
    }

    /// Adds to the pass's counter of that name.
    pub fn count(&self, what: &'static str, times: u64) {
        if let Some(unit) = &self.unit {
            *self.sink.lock().statistics.entry((unit.pass.clone(), what)).or_default() += times;
        }
    }

    /// The diagnostics of all passes under this context so far.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.sink.lock().diagnostics.clone()
    }

    /// The rewrites that passes did not make, if the context [records](PassContextBuilder::remarks)
    /// them.
    pub fn remarks(&self) -> Vec<Remark> {
        self.sink.lock().remarks.clone()
    }

    /// The counters of all passes under this context so far.
    pub fn statistics(&self) -> Statistics {
        self.sink.lock().statistics.clone()
    }

    // Contexts for single runs of passes; used by the funnel and by the runners of passes.

    /// This context with a sink of its own, for one run of a pass. Only a list inherits the
    /// progress of the list around it: any other pass may run lists on modules of its own.
    pub(super) fn for_pass(&self, info: &PassInfo) -> PassContext {
        let unit = Unit { pass: info.name().to_owned(), global: None, function: None };
        PassContext {
            shared: self.shared.clone(),
            sink: Arc::default(),
            unit: Some(Arc::new(unit)),
            overrides: self.overrides.clone(),
            progress: self.progress.clone().filter(|_| info.kind() == PassKind::Sequential),
            only: self.only.clone().filter(|_| info.kind() == PassKind::Function),
        }
    }

    /// This context with some options set otherwise.
    pub(super) fn overriding(&self, config: &IndexMap<&'static str, AnyValue>) -> PassContext {
        let mut overrides = self.overrides.as_deref().cloned().unwrap_or_default();
        overrides.extend(config.iter().map(|(name, value)| (*name, value.clone())));
        PassContext { overrides: Some(Arc::new(overrides)), ..self.clone() }
    }

    /// This context with a sink of its own, for one definition of a pass of functions.
    pub(super) fn for_definition(
        &self,
        global: &GlobalVar,
        function: Option<&Function>,
    ) -> PassContext {
        let pass = self.unit.as_ref().map_or_else(String::new, |unit| unit.pass.clone());
        let unit = Unit { pass, global: Some(global.clone()), function: function.cloned() };
        PassContext {
            shared: self.shared.clone(),
            sink: Arc::default(),
            unit: Some(Arc::new(unit)),
            overrides: self.overrides.clone(),
            progress: None,
            only: None,
        }
    }

    /// This context with a sink of its own, for a pass that runs on one loop function without a
    /// module around it.
    pub(super) fn for_prim_func(&self, info: &PassInfo, global: &GlobalVar) -> PassContext {
        let unit =
            Unit { pass: info.name().to_owned(), global: Some(global.clone()), function: None };
        PassContext {
            shared: self.shared.clone(),
            sink: Arc::default(),
            unit: Some(Arc::new(unit)),
            overrides: self.overrides.clone(),
            progress: None,
            only: None,
        }
    }

    /// The progress of the list of passes around this one, if there is one.
    pub(super) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    pub(super) fn with_progress(&self, progress: Progress) -> PassContext {
        PassContext { progress: Some(progress), ..self.clone() }
    }

    /// This context, in which passes of functions work on that function alone.
    pub(super) fn only_for(&self, global: GlobalVar) -> PassContext {
        PassContext { only: Some(global), ..self.clone() }
    }

    /// Whether passes of functions work on that function.
    pub(super) fn is_for(&self, global: &GlobalVar) -> bool {
        self.only.as_ref().is_none_or(|only| only == global)
    }

    /// Whether this context is for one function of a pass of functions.
    pub(super) fn is_in_function(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.global.is_some())
    }

    /// A new default context for the same target, whose diagnostics and remarks go to this one.
    pub(super) fn fresh_within_function(&self) -> PassContext {
        let fresh = PassContext::builder().target(self.target().clone());
        let fresh = fresh.build().expect("a context without names and options has no wrong ones");
        PassContext { sink: self.sink.clone(), ..fresh }
    }

    /// Records an analysis that the pass claims to preserve or abandon, for the function that it
    /// works on if it is a pass of functions.
    pub(super) fn claim(&self, claim: Claim) {
        let global = self.unit.as_ref().and_then(|unit| unit.global.clone());
        self.sink.lock().claims.push((global, claim));
    }

    /// Makes this the error of the pass that is running, once it returns.
    pub(super) fn fail_later(&self, error: PassError) {
        self.sink.lock().failures.push(error);
    }

    /// Removes and returns all records of this context.
    pub(super) fn take_records(&self) -> Records {
        self.sink.take()
    }

    /// Adds the records of another context.
    pub(super) fn absorb(&self, records: Records) {
        self.sink.absorb(records);
    }
}

impl Records {
    /// Turns a result into an error if an error was emitted or a hook failed meanwhile.
    pub(super) fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        let said = &self.diagnostics;
        let result = match result {
            Ok(_) if said.iter().any(|diagnostic| diagnostic.level.is_failure()) => {
                Err(PassErrorKind::Diagnostics(said.clone()).into())
            }
            result => result,
        };
        let mut failures = self.failures.drain(..);
        match result {
            Ok(value) => match failures.next() {
                None => Ok(value),
                Some(first) => Err(first.followed_by(failures)),
            },
            Err(error) => Err(error.followed_by(failures)),
        }
    }
}

/// The kind of an expression in one word, or the operator's name.
fn kind_of(function: &Function, expr: ExprId) -> String {
    match function.expr(expr) {
        Expr::Var(_) => "variable".to_owned(),
        Expr::GlobalVar(global) => global.to_string(),
        Expr::Constant(_) => "constant".to_owned(),
        Expr::Tuple(_) => "tuple".to_owned(),
        Expr::TupleGet { .. } => "tuple field".to_owned(),
        Expr::Call(call) => match &call.callee {
            Callee::Op(op) => op.name.to_owned(),
            Callee::Expr(_) => "call".to_owned(),
        },
        Expr::If(_) => "if".to_owned(),
        Expr::While(_) => "while".to_owned(),
        Expr::Func(_) => "closure".to_owned(),
    }
}
