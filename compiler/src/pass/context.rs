//! Pass contexts: under which level, lists, instruments and options passes run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;

use super::config::{self, AnyValue, ConfigKey, ConfigValue};
use super::instrument::{Instruments, enter_all, exit_all};
use super::sink::{Records, Sink};
use super::{
    BoxError, ConfigEntry, Evaluator, InstrumentRef, PassBody, PassErrorKind, PassInfo,
    PassInstrument, ReferenceEvaluator, Registry, Remark, Result, Statistics, names,
};
use crate::diagnostics::{Diagnostic, Level, Problem, Report};
use crate::graph::{Callee, Expr, ExprId, Function, verify_module};
use crate::ir::{GlobalVar, IRModule, Span};

/// Optimisation level of a context that says nothing else.
pub const DEFAULT_CONTEXT_OPT_LEVEL: u8 = 2;

/// Checks a module after a pass.
pub type Verifier = Arc<dyn Fn(&IRModule) -> Result<(), BoxError> + Send + Sync>;

/// What the clones of a context share, and never changes, but for the instruments.
struct Shared {
    opt_level: u8,
    required: BTreeSet<String>,
    disabled: BTreeSet<String>,
    instruments: Mutex<Instruments>,
    config: IndexMap<&'static str, AnyValue>,
    evaluator: Arc<dyn Evaluator>,
    verifier: Option<Verifier>,
    registry: Registry,
    remarks: bool,
    jobs: usize,
}

/// What is being worked on.
struct Unit {
    pass: String,
    /// In a pass of functions, the one that is being worked on.
    global: Option<GlobalVar>,
    /// The same, if it is a graph function.
    function: Option<Function>,
}

/// Under which level, lists, instruments and options passes run. Cheap to clone; clones are the
/// [same](Self::same) context.
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
    /// A builder with level 2 and nothing else.
    pub fn builder() -> PassContextBuilder {
        PassContextBuilder {
            opt_level: DEFAULT_CONTEXT_OPT_LEVEL,
            required: BTreeSet::new(),
            disabled: BTreeSet::new(),
            unchecked: Vec::new(),
            instruments: Vec::new(),
            config: IndexMap::new(),
            values: IndexMap::new(),
            evaluator: Arc::new(ReferenceEvaluator),
            verifier: None,
            registry: Registry::global(),
            remarks: false,
            jobs: None,
        }
    }

    /// A builder with everything that the [current](Self::current) context has.
    pub fn inherit() -> PassContextBuilder {
        let current = PassContext::current();
        let shared = &current.shared;
        PassContextBuilder {
            opt_level: shared.opt_level,
            required: shared.required.clone(),
            disabled: shared.disabled.clone(),
            unchecked: Vec::new(),
            instruments: current.instruments().to_vec(),
            config: shared.config.clone(),
            values: IndexMap::new(),
            evaluator: shared.evaluator.clone(),
            verifier: shared.verifier.clone(),
            registry: shared.registry.clone(),
            remarks: shared.remarks,
            jobs: Some(shared.jobs),
        }
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

    /// What computes calls whose arguments are constants.
    pub fn evaluator(&self) -> &dyn Evaluator {
        &*self.shared.evaluator
    }

    /// Where passes are looked up by name.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Threads that a pass of functions may use.
    pub fn jobs(&self) -> usize {
        self.shared.jobs
    }

    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.shared.verifier.as_ref()
    }

    /// The instruments at this moment.
    pub fn instruments(&self) -> Arc<[InstrumentRef]> {
        self.shared.instruments.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_instruments(&self, instruments: Instruments) {
        *self.shared.instruments.lock().unwrap_or_else(PoisonError::into_inner) = instruments;
    }

    /// Leaves the instruments there are and enters others in their place. A pass that is running
    /// goes on with those it began with.
    ///
    /// # Errors
    ///
    /// If an instrument cannot be left or entered; the context then has none.
    pub fn override_instruments(
        &self,
        instruments: impl IntoIterator<Item = InstrumentRef>,
    ) -> Result<()> {
        let old = self.instruments();
        self.set_instruments(Instruments::default());
        exit_all(&old)?;
        let new: Instruments = instruments.into_iter().collect();
        enter_all(&new)?;
        self.set_instruments(new);
        Ok(())
    }

    // What a pass says.

    /// Says something about a place; an error or a bug fails the pass.
    pub fn emit(&self, diagnostic: Diagnostic) {
        self.sink.lock().diagnostics.push(diagnostic);
    }

    /// Says that the program is wrong, which fails the pass once it returns.
    pub fn error(&self, span: Span, message: impl Into<String>) {
        self.emit(Diagnostic::new(Level::Error, span, message));
    }

    /// Says that the program may not do what was meant.
    pub fn warning(&self, span: Span, message: impl Into<String>) {
        self.emit(Diagnostic::new(Level::Warning, span, message));
    }

    /// Says why a rewrite of `expr` was not made. `expr` is of the function that the pass was
    /// given; for another one, see [`missed_in`](Self::missed_in).
    pub fn missed(&self, expr: ExprId, reason: impl fmt::Display) {
        if self.shared.remarks
            && let Some(function) = self.unit.as_ref().and_then(|unit| unit.function.as_ref())
        {
            self.missed_in(function, expr, reason);
        }
    }

    /// Says why a rewrite of an expression of `function` was not made.
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

    /// Adds to what the pass counts under that name.
    pub fn count(&self, what: &'static str, times: u64) {
        if let Some(unit) = &self.unit {
            *self.sink.lock().statistics.entry((unit.pass.clone(), what)).or_default() += times;
        }
    }

    /// What passes have said under this context so far.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.sink.lock().diagnostics.clone()
    }

    /// The rewrites that were not made, if the context [asks](PassContextBuilder::remarks) for
    /// them.
    pub fn remarks(&self) -> Vec<Remark> {
        self.sink.lock().remarks.clone()
    }

    /// What passes have counted under this context so far.
    pub fn statistics(&self) -> Statistics {
        self.sink.lock().statistics.clone()
    }

    // What the funnel and the runners of passes do with contexts.

    /// This context with a sink of its own, for one run of a pass.
    pub(super) fn for_pass(&self, pass: &str) -> PassContext {
        let unit = Unit { pass: pass.to_owned(), global: None, function: None };
        PassContext {
            shared: self.shared.clone(),
            sink: Arc::default(),
            unit: Some(Arc::new(unit)),
            overrides: self.overrides.clone(),
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
        }
    }

    /// Whether this context is for one function of a pass of functions.
    pub(super) fn is_in_function(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.global.is_some())
    }

    /// A context like any new one, that says what it has to say to this one.
    pub(super) fn fresh_within_function(&self) -> PassContext {
        PassContext { sink: self.sink.clone(), ..PassContext::default() }
    }

    /// Moves what was said under this context to `outer`. A result after an error was said becomes
    /// that error.
    pub(super) fn settle<T>(&self, outer: &PassContext, result: Result<T>) -> Result<T> {
        let failed: Vec<Diagnostic> = match &result {
            Err(_) => Vec::new(),
            Ok(_) => {
                let Records { diagnostics, .. } = &*self.sink.lock();
                if diagnostics.iter().any(|diagnostic| diagnostic.level.is_failure()) {
                    diagnostics.clone()
                } else {
                    Vec::new()
                }
            }
        };
        outer.sink.absorb(&self.sink);
        if failed.is_empty() { result } else { Err(PassErrorKind::Diagnostics(failed).into()) }
    }

    /// A copy of what was said under this context.
    pub(super) fn records(&self) -> Records {
        self.sink.lock().clone()
    }

    /// Moves what was said under this context to `outer`.
    pub(super) fn drain_into(&self, outer: &PassContext) {
        outer.sink.absorb(&self.sink);
    }
}

/// What an expression is, in one word.
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

/// Makes a [`PassContext`].
#[must_use]
pub struct PassContextBuilder {
    opt_level: u8,
    required: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// Names that were given as text, and the list they were given for.
    unchecked: Vec<(String, &'static str)>,
    instruments: Vec<InstrumentRef>,
    config: IndexMap<&'static str, AnyValue>,
    values: IndexMap<String, serde_json::Value>,
    evaluator: Arc<dyn Evaluator>,
    verifier: Option<Verifier>,
    registry: Registry,
    remarks: bool,
    jobs: Option<usize>,
}

impl fmt::Debug for PassContextBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassContextBuilder")
            .field("opt_level", &self.opt_level)
            .finish_non_exhaustive()
    }
}

impl PassContextBuilder {
    /// The level: passes of this level and below run; 2 unless set.
    pub fn opt_level(mut self, opt_level: u8) -> Self {
        self.opt_level = opt_level;
        self
    }

    /// Runs the registered pass of that name whatever its level, and whatever instruments say.
    pub fn require_pass(mut self, name: &str) -> Self {
        self.required.insert(names::canonical(name));
        self.unchecked.push((name.to_owned(), "required_pass"));
        self
    }

    /// Runs that pass whatever its level, and whatever instruments say.
    pub fn require(mut self, pass: &(impl PassBody + ?Sized)) -> Self {
        self.required.insert(names::canonical(pass.info().name()));
        self
    }

    /// Does not run the registered pass of that name, even if it is required. `sequential` stands
    /// for every list of passes without a name of its own that is within another.
    pub fn disable_pass(mut self, name: &str) -> Self {
        self.disabled.insert(names::canonical(name));
        self.unchecked.push((name.to_owned(), "disabled_pass"));
        self
    }

    /// Does not run that pass, even if it is required.
    pub fn disable(mut self, pass: &(impl PassBody + ?Sized)) -> Self {
        self.disabled.insert(names::canonical(pass.info().name()));
        self
    }

    /// Adds an instrument after those there are. Give a clone of an `Arc` to
    /// [`shared_instrument`](Self::shared_instrument) to ask it later.
    pub fn instrument(self, instrument: impl PassInstrument + 'static) -> Self {
        self.shared_instrument(Arc::new(instrument))
    }

    /// Adds an instrument after those there are.
    pub fn shared_instrument(mut self, instrument: InstrumentRef) -> Self {
        self.instruments.push(instrument);
        self
    }

    /// Sets an option.
    pub fn config<T: ConfigValue>(mut self, key: &ConfigKey<T>, value: T) -> Self {
        self.config.insert(key.name(), Arc::new(value));
        self
    }

    /// Sets an option by its name; name and value are checked when the context is built. The fields
    /// that a map leaves out take their defaults.
    pub fn config_value(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    /// What computes calls whose arguments are constants.
    pub fn evaluator(mut self, evaluator: Arc<dyn Evaluator>) -> Self {
        self.evaluator = evaluator;
        self
    }

    /// Whether to verify the module after each pass that changed it: the graph functions, by
    /// [`verify_module`].
    pub fn verify_each(mut self, verify: bool) -> Self {
        self.verifier = verify.then(|| {
            let verifier: Verifier = Arc::new(|module| Ok(verify_module(module)?));
            verifier
        });
        self
    }

    /// Checks the module after each pass that changed it.
    pub fn verify_with(
        mut self,
        verifier: impl Fn(&IRModule) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.verifier = Some(Arc::new(verifier));
        self
    }

    /// Where passes are looked up by name; those of all linked crates unless set.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Whether to keep why rewrites were not made.
    pub fn remarks(mut self, remarks: bool) -> Self {
        self.remarks = remarks;
        self
    }

    /// Threads that a pass of functions may use; as many as the machine has unless set. The result
    /// does not depend on it.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = Some(jobs.max(1));
        self
    }

    /// The context.
    ///
    /// # Errors
    ///
    /// All names of passes and options that are not known, and all values that do not fit.
    pub fn build(self) -> Result<PassContext> {
        let mut report = Report::new();
        for (name, list) in &self.unchecked {
            if names::same(name, super::sequential::DEFAULT_NAME) {
                continue;
            }
            if let Err(error) = self.registry.get(name) {
                report.push(Problem::new(format!("{list}: {error}")));
            }
        }
        let mut config = self.config;
        config.extend(config::check(&self.values, &mut report));
        report.into_result(())?;
        let jobs = self.jobs.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        let shared = Shared {
            opt_level: self.opt_level,
            required: self.required,
            disabled: self.disabled,
            instruments: Mutex::new(self.instruments.into()),
            config,
            evaluator: self.evaluator,
            verifier: self.verifier,
            registry: self.registry,
            remarks: self.remarks,
            jobs,
        };
        Ok(PassContext {
            shared: Arc::new(shared),
            sink: Arc::default(),
            unit: None,
            overrides: None,
        })
    }
}
