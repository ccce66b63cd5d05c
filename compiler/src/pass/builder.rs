//! The builder of pass contexts.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;

use super::analysis::AnalysisCache;
use super::config::{self, AnyValue, ConfigKey, ConfigValue};
use super::context::{Entered, Shared};
use super::{
    BoxError, Evaluator, InstrumentRef, PassBody, PassContext, PassInstrument, ReferenceEvaluator,
    Registry, Result, Verifier, names,
};
use crate::diagnostics::{Problem, Report};
use crate::graph::verify_module;
use crate::ir::IRModule;
use crate::target::Target;

/// The optimisation level of a context for which none is set.
pub const DEFAULT_CONTEXT_OPT_LEVEL: u8 = 2;

/// Highest optimisation level of a context.
pub const MAX_OPT_LEVEL: u8 = 4;

/// Builds a [`PassContext`].
#[must_use]
pub struct PassContextBuilder {
    opt_level: u8,
    required: BTreeSet<String>,
    disabled: BTreeSet<String>,
    /// Names given as text that are still to be looked up, each with the list that it is for.
    unchecked: Vec<(String, &'static str)>,
    instruments: Vec<InstrumentRef>,
    config: IndexMap<&'static str, AnyValue>,
    values: IndexMap<String, serde_json::Value>,
    evaluator: Arc<dyn Evaluator>,
    verifier: Option<Verifier>,
    registry: Registry,
    target: Option<Target>,
    remarks: bool,
    resume_panics: bool,
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
    /// A builder with level 2, and nothing else set.
    pub(super) fn new() -> PassContextBuilder {
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
            target: None,
            remarks: false,
            resume_panics: false,
            jobs: None,
        }
    }

    /// A builder with all settings of a context.
    pub(super) fn of(cx: &PassContext) -> PassContextBuilder {
        let shared = cx.shared();
        PassContextBuilder {
            opt_level: shared.opt_level,
            required: shared.required.clone(),
            disabled: shared.disabled.clone(),
            unchecked: Vec::new(),
            instruments: cx.instruments().to_vec(),
            config: cx.effective_config(),
            values: IndexMap::new(),
            evaluator: shared.evaluator.clone(),
            verifier: shared.verifier.clone(),
            registry: shared.registry.clone(),
            target: Some(shared.target.clone()),
            remarks: shared.remarks,
            resume_panics: shared.resume_panics,
            jobs: Some(shared.jobs),
        }
    }

    /// The level, at most [`MAX_OPT_LEVEL`]: passes of this level and below run; 2 unless set.
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

    /// Adds an instrument after the present ones. To read its results later, hand a clone of an
    /// `Arc` to [`shared_instrument`](Self::shared_instrument).
    pub fn instrument(self, instrument: impl PassInstrument + 'static) -> Self {
        self.shared_instrument(Arc::new(instrument))
    }

    /// Adds an instrument after the present ones.
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

    /// Sets options by their names, as [`config_value`](Self::config_value) does.
    pub fn config_values(mut self, values: serde_json::Map<String, serde_json::Value>) -> Self {
        self.values.extend(values);
        self
    }

    /// Sets the evaluator of calls whose arguments are constants.
    pub fn evaluator(mut self, evaluator: Arc<dyn Evaluator>) -> Self {
        self.evaluator = evaluator;
        self
    }

    /// Whether to verify after each pass that changed the module: the graph functions by
    /// [`verify_module`], the properties that the pass sets, and the analyses it preserves by
    /// computing them again.
    pub fn verify_each(mut self, verify: bool) -> Self {
        self.verifier = verify.then(|| {
            let verifier: Verifier = Arc::new(|module| Ok(verify_module(module)?));
            verifier
        });
        self
    }

    /// As [`verify_each`](Self::verify_each), with another check of the module.
    pub fn verify_with(
        mut self,
        verifier: impl Fn(&IRModule) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.verifier = Some(Arc::new(verifier));
        self
    }

    /// Whether a panic of a pass goes on, after instruments were told and contexts left, instead of
    /// becoming an error.
    pub fn resume_panics(mut self, resume: bool) -> Self {
        self.resume_panics = resume;
        self
    }

    /// Where passes are looked up by name; those of all linked crates unless set.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// The machine that code is to be made for; [`Target::host`] unless set.
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Whether to record rewrites that passes did not make, with the reasons.
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
    /// A level that is too high, all names of passes and options that are not known, and all values
    /// that do not fit.
    pub fn build(self) -> Result<PassContext> {
        let mut report = Report::new();
        if self.opt_level > MAX_OPT_LEVEL {
            report.push(Problem::new(format!(
                "the level {} is beyond the highest, {MAX_OPT_LEVEL}",
                self.opt_level
            )));
        }
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
        Ok(PassContext::from_shared(Shared {
            opt_level: self.opt_level,
            required: self.required,
            disabled: self.disabled,
            instruments: Mutex::new(Entered::new(self.instruments.into())),
            config,
            evaluator: self.evaluator,
            verifier: self.verifier,
            registry: self.registry,
            target: self.target.unwrap_or_else(Target::host),
            remarks: self.remarks,
            resume_panics: self.resume_panics,
            jobs,
            analyses: AnalysisCache::default(),
        }))
    }
}
