//! Why a pass, a context or a pipeline failed.

use std::error::Error;
use std::fmt;

use super::InvalidPassName;
use super::upstream::{self, Counterpart};
use crate::diagnostics::{Diagnostic, Level, Problem, ProblemNode, Report, Setting};
use crate::graph::{ParseErrors, TypeError};
use crate::ir::{AttrError, ConstantError, GlobalVar};
use crate::ops::EvalError;

/// Any error that can be sent to another thread.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The result of a pass.
pub type Result<T, E = PassError> = std::result::Result<T, E>;

/// A moment at which an instrument is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hook {
    /// A context is entered.
    EnterPassCtx,
    /// A context is left.
    ExitPassCtx,
    /// Whether a pass is to run.
    ShouldRun,
    /// A pass is about to run.
    RunBeforePass,
    /// A pass has run.
    RunAfterPass,
    /// A pass has failed.
    AfterPassFailed,
    /// A pass was skipped.
    BeforeSkippedPass,
    /// A pass has emitted diagnostics, remarks or counts.
    PassSaid,
    /// An analysis is about to be computed.
    BeforeAnalysis,
    /// An analysis has been computed.
    AfterAnalysis,
    /// The result of an analysis no longer holds.
    AnalysisInvalidated,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Hook::EnterPassCtx => "enter_pass_ctx",
            Hook::ExitPassCtx => "exit_pass_ctx",
            Hook::ShouldRun => "should_run",
            Hook::RunBeforePass => "run_before_pass",
            Hook::RunAfterPass => "run_after_pass",
            Hook::AfterPassFailed => "after_pass_failed",
            Hook::BeforeSkippedPass => "before_skipped_pass",
            Hook::PassSaid => "pass_said",
            Hook::BeforeAnalysis => "before_analysis",
            Hook::AfterAnalysis => "after_analysis",
            Hook::AnalysisInvalidated => "analysis_invalidated",
        })
    }
}

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum PassErrorKind {
    /// The pass returned an error.
    Failed(BoxError),
    /// The pass panicked with that message.
    Panicked(String),
    /// The pass emitted diagnostics, at least one of which is an error or a bug.
    Diagnostics(Vec<Diagnostic>),
    /// An instrument failed or panicked in a hook.
    Instrument {
        /// The instrument's name.
        instrument: String,
        /// The hook.
        hook: Hook,
        /// What the instrument returned.
        source: BoxError,
    },
    /// No registered pass has that name.
    UnknownPass {
        /// The name.
        name: String,
        /// The pass that requires it.
        required_by: Option<String>,
        /// The registered name that is nearest.
        suggestion: Option<String>,
    },
    /// Two registered passes have the same name.
    DuplicatePass {
        /// The name.
        name: String,
        /// Where they are defined.
        origins: Vec<String>,
    },
    /// Passes require each other; the list of names begins and ends with the same one.
    RequirementCycle(Vec<String>),
    /// Passes must come after each other; the list of names begins and ends with the same one.
    OrderCycle(Vec<String>),
    /// A pass is in the wrong place of a list, or conflicts with another of the list.
    Order {
        /// The pass.
        pass: String,
        /// Why the place is wrong.
        problem: String,
    },
    /// No pass, or more than one, sets a property that a pass needs and the module does not have.
    UnmetProperty {
        /// The property.
        property: &'static str,
        /// The pass that needs it.
        required_by: String,
        /// The passes that set the property: none, or several.
        providers: Vec<String>,
    },
    /// A pass needs a property that an earlier pass would have set, had it run.
    SkippedProvider {
        /// The property.
        property: &'static str,
        /// The pass that needs it.
        required_by: String,
    },
    /// A pass says that it sets a property, but the module does not have it.
    NotSet(&'static str),
    /// A pass preserved an analysis whose result has changed.
    NotPreserved {
        /// The analysis; `None` if all of them were preserved and the code has changed.
        analysis: Option<&'static str>,
        /// The pass.
        pass: String,
        /// The function that was analysed; `None` for the module.
        function: Option<GlobalVar>,
    },
    /// Problems of a context, a configuration or a pipeline.
    Invalid(Report),
    /// The module that the pass returned is malformed.
    Verify(BoxError),
    /// A context was left while one that was entered later is still active.
    NotInnermost,
}

#[derive(Debug)]
struct Inner {
    kind: PassErrorKind,
    /// Names of the passes in which the error arose, outermost first.
    passes: Vec<String>,
    function: Option<GlobalVar>,
    secondary: Vec<PassError>,
}

/// Why a pass, a context or a pipeline failed, and where.
#[derive(Debug)]
pub struct PassError(Box<Inner>);

impl PassError {
    /// A failure of a pass, from any error or message.
    pub fn new(error: impl Into<BoxError>) -> PassError {
        // A boxed `PassError` comes from a pass that the failed pass ran itself: it keeps its
        // details.
        match error.into().downcast::<PassError>() {
            Ok(error) => *error,
            Err(error) => PassErrorKind::Failed(error).into(),
        }
    }

    /// What went wrong.
    pub fn kind(&self) -> &PassErrorKind {
        &self.0.kind
    }

    /// Names of the passes in which the error arose, outermost first.
    pub fn passes(&self) -> &[String] {
        &self.0.passes
    }

    /// The function of a pass of functions in which the error arose.
    pub fn function(&self) -> Option<&GlobalVar> {
        self.0.function.as_ref()
    }

    /// Errors that arose while this one was being handled.
    pub fn secondary(&self) -> &[PassError] {
        &self.0.secondary
    }

    /// Adds the name of the pass around.
    #[must_use]
    pub(super) fn within(mut self, pass: &str) -> PassError {
        self.0.passes.insert(0, pass.to_owned());
        self
    }

    /// Adds the function, unless the error already has one.
    #[must_use]
    pub(super) fn about(mut self, function: &GlobalVar) -> PassError {
        self.0.function.get_or_insert_with(|| function.clone());
        self
    }

    /// Attaches an error that arose while this one was being handled.
    #[must_use]
    pub(super) fn followed_by(
        mut self,
        secondary: impl IntoIterator<Item = PassError>,
    ) -> PassError {
        self.0.secondary.extend(secondary);
        self
    }

    /// An error from the payload of a panic.
    pub(super) fn from_panic(payload: &(dyn std::any::Any + Send)) -> PassError {
        PassErrorKind::Panicked(panic_message(payload)).into()
    }
}

/// The message of a panic, if it has one.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    message.unwrap_or_else(|| "a panic without a message".to_owned())
}

impl fmt::Display for PassErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassErrorKind::Failed(error) => write!(f, "{error}"),
            PassErrorKind::Panicked(message) => write!(f, "panicked: {message}"),
            PassErrorKind::Diagnostics(diagnostics) => {
                for (index, diagnostic) in diagnostics.iter().enumerate() {
                    if index > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{diagnostic}")?;
                }
                Ok(())
            }
            PassErrorKind::Instrument { instrument, hook, source } => {
                write!(f, "instrument `{instrument}` failed in {hook}: {source}")
            }
            PassErrorKind::UnknownPass { name, required_by, suggestion } => {
                write!(f, "there is no pass `{name}`")?;
                if let Some(requirer) = required_by {
                    write!(f, ", which `{requirer}` requires")?;
                }
                if let Some(suggestion) = suggestion {
                    write!(f, "; did you mean `{suggestion}`?")?;
                }
                if let Some((upstream, Counterpart::Not(reason))) = upstream::counterpart(name) {
                    return write!(f, "; `{upstream}` of TVM is not here: {reason}");
                }
                f.write_str(
                    "; a crate of passes must be named once, as in `use my_passes as _;`, to be linked",
                )
            }
            PassErrorKind::DuplicatePass { name, origins } => {
                write!(f, "several passes are named `{name}`: {}", origins.join(" and "))
            }
            PassErrorKind::RequirementCycle(cycle) => {
                write!(f, "passes require each other: {}", cycle.join(" → "))
            }
            PassErrorKind::OrderCycle(cycle) => {
                write!(f, "passes must come after each other: {}", cycle.join(" → "))
            }
            PassErrorKind::Order { pass, problem } => write!(f, "`{pass}` {problem}"),
            PassErrorKind::UnmetProperty { property, required_by, providers } => {
                write!(f, "`{required_by}` requires the property `{property}`, which ")?;
                match providers.as_slice() {
                    [] => f.write_str("no registered pass sets"),
                    _ => write!(
                        f,
                        "several passes set: {}; put one of them before it",
                        providers.join(", ")
                    ),
                }
            }
            PassErrorKind::SkippedProvider { property, required_by } => write!(
                f,
                "`{required_by}` requires the property `{property}`, but an instrument has kept the pass that sets it from running"
            ),
            PassErrorKind::NotSet(property) => {
                write!(
                    f,
                    "the pass sets the property `{property}`, but the module does not have it"
                )
            }
            PassErrorKind::NotPreserved { analysis, pass, function } => {
                match function {
                    Some(function) => write!(f, "function {function}")?,
                    None => f.write_str("the module")?,
                }
                write!(f, " was changed by `{pass}`, which says that it preserves ")?;
                match analysis {
                    Some(analysis) => write!(f, "`{analysis}`: its result is another one now"),
                    None => f.write_str("every analysis"),
                }
            }
            PassErrorKind::Invalid(report) => write!(f, "{report}"),
            PassErrorKind::Verify(errors) => {
                write!(f, "the pass returned a malformed module: {errors}")
            }
            PassErrorKind::NotInnermost => f.write_str(
                "a pass context was left while one that was entered later is still active",
            ),
        }
    }
}

impl fmt::Display for PassError {
    /// `pass sequential > FoldConstant, function @main: message; then: what followed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, passes, function, secondary } = &*self.0;
        if !passes.is_empty() {
            write!(f, "pass {}", passes.join(" > "))?;
            if let Some(function) = function {
                write!(f, ", function {function}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{kind}")?;
        for error in secondary {
            write!(f, "; then: {error}")?;
        }
        Ok(())
    }
}

impl Error for PassError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.kind {
            PassErrorKind::Failed(source)
            | PassErrorKind::Verify(source)
            | PassErrorKind::Instrument { source, .. } => Some(&**source),
            PassErrorKind::Invalid(report) => Some(report),
            PassErrorKind::Panicked(_)
            | PassErrorKind::Diagnostics(_)
            | PassErrorKind::UnknownPass { .. }
            | PassErrorKind::DuplicatePass { .. }
            | PassErrorKind::RequirementCycle(_)
            | PassErrorKind::OrderCycle(_)
            | PassErrorKind::Order { .. }
            | PassErrorKind::UnmetProperty { .. }
            | PassErrorKind::SkippedProvider { .. }
            | PassErrorKind::NotSet(_)
            | PassErrorKind::NotPreserved { .. }
            | PassErrorKind::NotInnermost => None,
        }
    }
}

impl From<PassErrorKind> for PassError {
    fn from(kind: PassErrorKind) -> PassError {
        PassError(Box::new(Inner {
            kind,
            passes: Vec::new(),
            function: None,
            secondary: Vec::new(),
        }))
    }
}

macro_rules! from_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for PassError {
            fn from(error: $error) -> PassError {
                PassError::new(error)
            }
        })*
    };
}

from_errors!(
    TypeError,
    EvalError,
    AttrError,
    ConstantError,
    InvalidPassName,
    ParseErrors,
    BoxError,
    String,
    &str
);

impl From<Report> for PassError {
    fn from(report: Report) -> PassError {
        PassErrorKind::Invalid(report).into()
    }
}

impl From<Problem> for PassError {
    fn from(problem: Problem) -> PassError {
        Report::from(problem).into()
    }
}

impl From<PassError> for Report {
    /// One problem for each diagnostic, at the node of the model that it came from.
    fn from(error: PassError) -> Report {
        let passes = error.0.passes.join(" > ");
        match error.0.kind {
            PassErrorKind::Invalid(report) if error.0.secondary.is_empty() => report,
            PassErrorKind::Diagnostics(diagnostics) if error.0.secondary.is_empty() => {
                let failures = diagnostics.into_iter().filter(|d| d.level.is_failure());
                let problems = failures.map(|Diagnostic { level, message, span, .. }| {
                    let message = format!("pass {passes}: {message}");
                    let problem = match level {
                        Level::Bug => Problem::defect(message),
                        _ => Problem::new(message),
                    };
                    match ProblemNode::of(&span) {
                        Some(node) => problem.at(node),
                        None => problem,
                    }
                });
                Report { problems: problems.collect() }
            }
            PassErrorKind::Panicked(_)
            | PassErrorKind::Verify(_)
            | PassErrorKind::NotSet(_)
            | PassErrorKind::NotPreserved { .. } => {
                let what = "a defect of niello or of the pass, not of the model";
                let problem = Problem::new(format!("{what}: {error}"));
                match error.0.passes.last() {
                    Some(pass) => problem.help(format!(
                        "please report it; without the pass it may work: {}",
                        Setting::DisablePass.of(pass)
                    )),
                    None => problem,
                }
                .into()
            }
            _ => Problem::new(error.to_string()).into(),
        }
    }
}
