//! What is wrong with a model or with a program of the IR, and how it is told.
//!
//! A [`Problem`] is about a model as its user knows it: nodes, inputs, files. A [`Diagnostic`] is
//! about a place of the IR, and a [`Renderer`] shows it with an excerpt of the text.

mod diagnostic;
mod excerpt;
mod json;
mod origin;
mod render;
mod setting;
mod snippet;
mod suggest;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use diagnostic::{Diagnostic, Level};
pub use excerpt::{Excerpt, Source};
pub use json::JsonRenderer;
pub use origin::Origin;
pub use render::{Renderer, override_renderer, renderer};
#[cfg(feature = "cli")]
pub(crate) use setting::spell_options_as_arguments;
pub(crate) use setting::{Setting, options_are_arguments, pin};
pub use snippet::SnippetRenderer;
pub use suggest::suggest;

use crate::ir::{OnnxSpan, Span};

/// The node of a model that a problem is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProblemNode {
    /// The node's name in the model; may be empty.
    pub name: String,
    /// The operator, with its domain unless that is the default one.
    pub op: String,
    /// Version of the operator set that the model imports for this operator.
    pub opset: Option<i64>,
    /// The line of the user's program that the exporter recorded.
    pub source: Option<String>,
}

impl ProblemNode {
    /// The node that an expression came from, if it came from one.
    pub fn of(span: &Span) -> Option<ProblemNode> {
        let Span::Onnx(node) = span else { return None };
        Some(ProblemNode {
            name: node.node.clone(),
            op: node.op.clone(),
            opset: Some(node.opset),
            source: node.source.clone(),
        })
    }
}

impl fmt::Display for ProblemNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "an unnamed node ({}", self.op)?,
            name => write!(f, "node `{name}` ({}", self.op)?,
        }
        if let Some(opset) = self.opset {
            write!(f, ", opset {opset}")?;
        }
        f.write_str(")")?;
        if let Some(source) = &self.source {
            write!(f, " from {source}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong, where, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What is wrong: names the thing and the values; lower case, no final full stop.
    pub message: String,
    /// The node it is about, if it is about one.
    pub node: Option<Box<ProblemNode>>,
    /// What would fix it.
    pub help: Option<String>,
}

impl Problem {
    /// A problem of the model as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Problem { message: message.into(), node: None, help: None }
    }

    /// An internal error: niello itself is at fault, not the model and not its user.
    pub fn defect(message: impl fmt::Display) -> Self {
        let (level, backend) = match options_are_arguments() {
            true => ("-O0", "--backend"),
            false => (".opt_level(0)", ".backend(..)"),
        };
        Problem::new(format!("a defect of niello, not of the model: {message}")).help(format!(
            "please report it; {level} or another {backend} may get round it meanwhile"
        ))
    }

    /// Says which node it is about.
    #[must_use]
    pub fn at(mut self, node: ProblemNode) -> Self {
        self.node = Some(Box::new(node));
        self
    }

    /// Says what would fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    /// Always one line: names in a model are any strings, and a line break in one of them would
    /// start what looks like a new message (or a new Cargo directive).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        if let Some(node) = &self.node {
            line = format!("{node}: ");
        }
        line += self.message.trim_end();
        if let Some(help) = &self.help {
            line += "; help: ";
            line += help;
        }
        write_on_one_line(f, &line)
    }
}

impl From<&Problem> for Diagnostic {
    fn from(problem: &Problem) -> Diagnostic {
        let Problem { message, node, help } = problem;
        let span = node.as_deref().map_or(Span::Unknown, |node| {
            let ProblemNode { name, op, opset, source } = node;
            let (node, op, source) = (name.clone(), op.clone(), source.clone());
            Span::Onnx(Arc::new(OnnxSpan { node, op, opset: opset.unwrap_or_default(), source }))
        });
        let diagnostic = Diagnostic::new(Level::Error, span, message.trim_end());
        match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }
}

/// Writes `text` with line breaks as `; ` and other control characters escaped.
fn write_on_one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut first = true;
    for piece in text.split(['\n', '\r']).map(str::trim).filter(|piece| !piece.is_empty()) {
        if !first {
            f.write_str("; ")?;
        }
        first = false;
        for c in piece.chars() {
            match c {
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
    }
    Ok(())
}

/// Every problem that a compilation met, in the order of the model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The problems; a report that is an error has at least one.
    pub problems: Vec<Problem>,
}

impl Report {
    /// A report without problems.
    pub fn new() -> Self {
        Report::default()
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Whether there is no problem.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// A line for each problem. Several kernels or nodes may have the very same one, which is told
    /// once.
    pub fn lines(&self) -> Vec<String> {
        let mut told = BTreeSet::new();
        let lines = self.problems.iter().map(Problem::to_string);
        lines.filter(|line| told.insert(line.clone())).collect()
    }

    /// `value` if there is no problem, else the problems.
    pub fn into_result<T>(self, value: T) -> Result<T, Report> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Report {
    fn from(problem: Problem) -> Self {
        Report { problems: vec![problem] }
    }
}

impl Extend<Problem> for Report {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        self.problems.extend(problems);
    }
}

impl fmt::Display for Report {
    /// One line a problem, without a line break after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whatever_the_names_hold() {
        let problem = Problem::new("weights are [3]\n\n  but [4] was expected\r\n")
            .at(ProblemNode {
                name: "a\ncargo::rustc-env=X=1\u{1b}".to_owned(),
                op: "Conv".to_owned(),
                opset: Some(13),
                source: None,
            })
            .help("export it again");
        assert_eq!(
            problem.to_string(),
            "node `a; cargo::rustc-env=X=1\\u{1b}` (Conv, opset 13): weights are [3]; but [4] was expected; help: export it again"
        );
    }

    #[test]
    fn a_defect_blames_niello_and_names_what_may_get_round_it() {
        assert_eq!(
            Problem::defect("9 lanes").at(ProblemNode::default()).to_string(),
            "an unnamed node (): a defect of niello, not of the model: 9 lanes; help: please report it; \
             .opt_level(0) or another .backend(..) may get round it meanwhile"
        );
    }

    #[test]
    fn a_report_has_one_line_a_problem() {
        let mut report = Report::new();
        assert_eq!(report.clone().into_result(7), Ok(7));
        report.push(Problem::new("one"));
        report.extend([Problem::new("two").at(ProblemNode::default()), Problem::new("one")]);
        assert_eq!(report.to_string(), "one\nan unnamed node (): two");
        assert!(report.into_result(7).is_err());
    }
}
