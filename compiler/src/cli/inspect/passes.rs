//! What the passes of the pipeline do with a model.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::compile::{self, Compilation, Model, Passes};
use crate::diagnostics::Report;
use crate::options::CompileOptions;
use crate::pass::instruments::{PassRow, PassTable};
use crate::transform::pipeline::{PipelineExtensions, pipeline};

/// What passes did, and what it comes to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct PassFacts {
    passes: Vec<PassRow>,
    kernels: usize,
    /// Bytes of the memory that all values share.
    arena_bytes: u64,
}

/// Compiles a model, and watches the passes.
pub(super) fn compile(
    model: &Model,
    options: &CompileOptions,
) -> Result<(Compilation, PassFacts), Report> {
    let list = pipeline(&PipelineExtensions::new())?;
    let table = Arc::new(PassTable::new(&list));
    let context = Passes::context(options).shared_instrument(table.clone()).build()?;
    let passes = Passes { context, extensions: PipelineExtensions::new() };
    let compilation = compile::compile(model, options, &passes)?;
    let facts = PassFacts {
        passes: table.rows(&list),
        kernels: compilation.program.kernels.len(),
        arena_bytes: compilation.plan.arena_bytes,
    };
    Ok((compilation, facts))
}

/// One line a pass.
impl fmt::Display for PassFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PassFacts { passes, kernels, arena_bytes } = self;
        writeln!(f, "{:<28} level  changed   operators        us", "pass")?;
        for PassRow { pass, level, ran } in passes {
            write!(f, "{pass:<28} {level:>5}  ")?;
            match ran {
                None => writeln!(f, "did not run")?,
                Some(effect) => writeln!(
                    f,
                    "{:<7} {:>4} -> {:<4} {:>9.0}",
                    if effect.changed { "yes" } else { "no" },
                    effect.operators_before,
                    effect.operators_after,
                    effect.micros
                )?,
            }
        }
        writeln!(f, "{kernels} kernels, an arena of {arena_bytes} bytes")
    }
}
