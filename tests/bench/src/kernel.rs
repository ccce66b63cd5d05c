//! A kernel to measure: its name, work, limit, goal and code.

use std::fmt::Display;
use std::time::Duration;

use niello::diagnostics::Report;
use niello::ir::Constant;
use niello::options::Backend;

use crate::check::Expected;

/// The failure of one kernel, as a sentence for the reader.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// A kernel to measure. [`crate::catalogue::kernels`] lists them.
pub(crate) struct Kernel {
    /// Its name in the report, without blanks.
    pub(crate) name: String,
    /// The work of one execution.
    pub(crate) work: Work,
    /// Whether its elements are sums of products.
    pub(crate) sums: bool,
    /// The limit of its speed.
    pub(crate) limit: Limit,
    /// The goal on one thread.
    pub(crate) goal: Goal,
    /// Thread counts that it is measured with.
    pub(crate) threads: &'static [usize],
    /// Makes the model that ONNX Runtime and OpenVINO run, and niello unless `build` says otherwise.
    pub(crate) case: Box<dyn Fn() -> Result<Case>>,
    /// How niello makes the code.
    pub(crate) build: Build,
}

/// The work of one execution of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Arithmetic operations, or elements if the kernel has no sums of products.
    pub(crate) flops: u64,
    /// Bytes that are read and written at least.
    pub(crate) bytes: u64,
}

/// The limit of a kernel's speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Fused multiply-adds of `f32`.
    Fma,
    /// Dot products of 8-bit integers.
    Int8,
    /// Reading memory.
    Stream,
}

/// The goal of a kernel's speed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Goal {
    /// A share of its limit, in percent.
    Percent(f64),
    /// Memory traffic in GB/s.
    Bandwidth(f64),
    /// Less time than ONNX Runtime's.
    OnnxRuntime,
    /// As many times as fast as on one thread.
    SpeedUp(f64),
}

/// A model, its inputs and its expected outputs.
pub(crate) struct Case {
    /// The ONNX file.
    pub(crate) model: Vec<u8>,
    /// Its inputs, in order.
    pub(crate) inputs: Vec<Constant>,
    /// Elements of its first output.
    pub(crate) expected: Expected,
    /// Equal operators in it: times are divided by that.
    pub(crate) repeats: u32,
}

/// How niello makes a kernel's code.
pub(crate) enum Build {
    /// From the kernel's model, as users do.
    Model,
    /// By a function: see [`crate::native::of_function`] for code of tensor expressions and schedules.
    Function(Box<dyn Fn(Setup) -> Result<Built>>),
}

/// The target of the code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The code generator.
    pub(crate) backend: Backend,
    /// Threads that the code may use.
    pub(crate) threads: usize,
}

/// Code that is ready to run.
pub(crate) struct Built {
    /// The code.
    pub(crate) code: Box<dyn Code>,
    /// The inputs.
    pub(crate) inputs: Vec<Constant>,
    /// Elements of its first output.
    pub(crate) expected: Expected,
    /// Executions of the kernel in one call.
    pub(crate) repeats: u32,
    /// How long lowering, code generation and the compiler took.
    pub(crate) compile: Duration,
    /// Functions that were compiled.
    pub(crate) functions: usize,
    /// Bytes of machine code.
    pub(crate) code_bytes: u64,
}

/// Makes a call.
pub(crate) type Call<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Code in memory.
pub(crate) trait Code {
    /// The first output for these inputs.
    fn output(&mut self, inputs: &[Constant]) -> Result<Constant>;

    /// Hands `turn` a call on copies of the inputs that it may make many times. Threads that the code uses are awake
    /// for so long.
    fn calls(
        &mut self,
        inputs: &[Constant],
        turn: &mut dyn FnMut(Call<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// An error in one line.
pub(crate) fn said(error: impl Display) -> String {
    error.to_string().replace('\n', " ")
}

/// The first problem of a report in one line.
pub(crate) fn first(report: &Report) -> String {
    report.problems.first().map_or_else(|| "it failed".to_owned(), |problem| said(&problem.message))
}
