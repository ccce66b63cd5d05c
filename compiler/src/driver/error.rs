//! Why functions cannot be built, loaded or called.

use std::fmt;

use crate::codegen::CodegenError;
use crate::codegen::c::CompileError;
use crate::diagnostics::suggest;
use crate::ir::{BufferSpecError, DType};
use crate::pass::PassError;

/// Why functions cannot be built.
#[derive(Debug)]
pub enum BuildError {
    /// There is no function.
    Empty,
    /// A definition of the module, which is named, is no loop function.
    NotLoopFunction(String),
    /// Two functions have this name.
    Repeated(String),
    /// A function is not well-formed: its text with what is wrong below the guilty lines.
    Invalid(String),
    /// A pass cannot lower a function for the target.
    Lower(PassError),
    /// The code generator does not support something: one for each function.
    Codegen(Vec<CodegenError>),
    /// The C compiler cannot be used, or failed.
    Compile(CompileError),
    /// A parameter cannot be a tensor of a packed function: function, parameter, why.
    Packed(String, String, String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Empty => f.write_str("there is no function to be built"),
            BuildError::NotLoopFunction(name) => write!(
                f,
                "@{name} is no loop function: the graph functions of a model are compiled by \
                 `compile::compile`"
            ),
            BuildError::Repeated(name) => {
                write!(f, "two functions are called `{name}`, and are found by their names")
            }
            BuildError::Invalid(text) => write!(f, "the function is not well-formed:\n{text}"),
            BuildError::Lower(error) => error.fmt(f),
            BuildError::Codegen(errors) => lines(f, errors),
            BuildError::Compile(error) => error.fmt(f),
            BuildError::Packed(function, parameter, why) => {
                write!(
                    f,
                    "`{function}` cannot be a packed function: parameter `{parameter}`: {why}"
                )
            }
        }
    }
}

impl std::error::Error for BuildError {}

impl From<PassError> for BuildError {
    fn from(error: PassError) -> Self {
        BuildError::Lower(error)
    }
}

impl From<CompileError> for BuildError {
    fn from(error: CompileError) -> Self {
        BuildError::Compile(error)
    }
}

/// Why a module has no text of a kind.
#[derive(Debug)]
pub enum SourceError {
    /// Modules of this kind of target are not made of such text: text and kind.
    Other(&'static str, &'static str),
    /// The C compiler failed.
    Compile(CompileError),
    /// LLVM failed.
    Codegen(Vec<CodegenError>),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Other(text, kind) => {
                let other = if *kind == "c" { "llvm" } else { "c" };
                write!(
                    f,
                    "a module for the target kind `{kind}` is not made of {text}; one for `{other}` is"
                )
            }
            SourceError::Compile(error) => error.fmt(f),
            SourceError::Codegen(errors) => lines(f, errors),
        }
    }
}

impl std::error::Error for SourceError {}

/// Why a function of a module cannot be called in this process.
#[derive(Debug)]
pub enum LoadError {
    /// There is no function of this name; there are these.
    NoSuchFunction(String, Vec<String>),
    /// The module is for another kind of machine: its triple.
    OtherMachine(String),
    /// This machine lacks features that the code may use.
    MissingFeatures(Vec<String>),
    /// The objects cannot be linked.
    Link(CompileError),
    /// The system or LLVM's linker does not load the code; what it says.
    Load(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NoSuchFunction(name, known) => {
                write!(f, "the module has no function `{name}`; it has {}", known.join(", "))?;
                match suggest(name, known.iter().map(String::as_str)) {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => Ok(()),
                }
            }
            LoadError::OtherMachine(triple) => write!(
                f,
                "the module is for {triple} and cannot be called on this machine; its source, its \
                 objects and its library can be had"
            ),
            LoadError::MissingFeatures(features) => write!(
                f,
                "this machine's CPU lacks {}, which the module's code may use; build for \
                 `-mcpu=native`",
                features.join(", ")
            ),
            LoadError::Link(error) => error.fmt(f),
            LoadError::Load(message) => write!(f, "the module cannot be loaded: {message}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Why a function cannot be called with these arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The function.
    pub function: String,
    /// What is wrong.
    pub kind: CallErrorKind,
}

/// What is wrong with the arguments of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallErrorKind {
    /// There are more or fewer than parameters.
    Count {
        /// Names of the parameters.
        expected: Vec<String>,
        /// Number of arguments.
        found: usize,
    },
    /// A reduction would begin with an element that it does not have.
    EmptyReduction {
        /// Its extent, as text.
        extent: String,
        /// The values of the dimensions in it, and where they are from.
        because: String,
    },
    /// An argument is not what its parameter needs.
    Argument {
        /// The argument's position.
        position: usize,
        /// The parameter's name.
        name: String,
        /// What is wrong.
        problem: ArgumentProblem,
    },
}

/// What is wrong with an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArgumentProblem {
    /// An array is needed, and an integer was given.
    NotAnArray,
    /// An integer is needed, and an array was given.
    NotAnInteger,
    /// A dimension has a value that no dimension can have.
    Dimension(i64),
    /// The function writes to the array, and was given it to read.
    ReadOnly,
    /// Type or shape of the array are others.
    Type {
        /// What is needed.
        expected: (DType, Vec<i64>),
        /// What was given.
        found: (DType, Vec<i64>),
    },
    /// Type or number of axes of the array are others than those of a parameter whose extents depend
    /// on dimensions.
    SymbolicType(Box<WrongType>),
    /// The array has another extent than the dimensions give its parameter.
    Extent(Box<WrongExtent>),
    /// The parameter's layout cannot be made of an array.
    Layout(BufferSpecError),
}

/// An array that is not what a parameter with extents by dimensions needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongType {
    /// What is needed, the extents as text.
    pub expected: (DType, Vec<String>),
    /// What was given.
    pub found: (DType, Vec<i64>),
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongType { expected: (dtype, extents), found } = self;
        let extents = extents.join(", ");
        write!(f, "{dtype}[{extents}] is needed, {}{:?} was given", found.0, found.1)
    }
}

/// An extent of an array that is not what the dimensions give its parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongExtent {
    /// The axis.
    pub axis: usize,
    /// The extent as text.
    pub extent: String,
    /// Its value; `None` if it has none.
    pub expected: Option<i64>,
    /// What was given.
    pub found: i64,
    /// The values of the dimensions in it, and where they are from.
    pub because: String,
}

impl fmt::Display for WrongExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongExtent { axis, extent, expected, found, because } = self;
        match expected {
            None => write!(f, "axis {axis} must be {extent}, which has no value")?,
            Some(value) if value.to_string() == *extent => {
                write!(f, "axis {axis} must be {value}, and is {found}")?;
            }
            Some(value) => write!(f, "axis {axis} must be {extent} = {value}, and is {found}")?,
        }
        match because.is_empty() {
            true => Ok(()),
            false => write!(f, " ({because})"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of `{}`: ", self.function)?;
        match &self.kind {
            CallErrorKind::Count { expected, found } => write!(
                f,
                "{} arguments are needed ({}), {found} were given",
                expected.len(),
                expected.join(", ")
            ),
            CallErrorKind::EmptyReduction { extent, because } => write!(
                f,
                "the reduction over {extent} has no element to begin with ({because}); \
                 decompose_reduction lets it have none"
            ),
            CallErrorKind::Argument { position, name, problem } => {
                write!(f, "argument {position} (`{name}`): {problem}")
            }
        }
    }
}

impl std::error::Error for CallError {}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentProblem::NotAnArray => f.write_str("an array is needed, an integer was given"),
            ArgumentProblem::NotAnInteger => {
                f.write_str("an integer is needed, an array was given")
            }
            ArgumentProblem::Dimension(value) => {
                write!(f, "a dimension from 0 to {} is needed, {value} was given", i32::MAX)
            }
            ArgumentProblem::ReadOnly => f.write_str(
                "the function writes to it, so an array is needed that may be written to",
            ),
            ArgumentProblem::Type { expected, found } => write!(
                f,
                "{}{:?} is needed, {}{:?} was given",
                expected.0, expected.1, found.0, found.1
            ),
            ArgumentProblem::SymbolicType(wrong) => wrong.fmt(f),
            ArgumentProblem::Extent(wrong) => wrong.fmt(f),
            ArgumentProblem::Layout(error) => error.fmt(f),
        }
    }
}

fn lines(f: &mut fmt::Formatter<'_>, errors: &[CodegenError]) -> fmt::Result {
    for (number, error) in errors.iter().enumerate() {
        write!(f, "{}{error}", if number > 0 { "\n" } else { "" })?;
    }
    Ok(())
}
