//! Output of the instruments on niello's own passes.

mod failures;
mod output;

use std::sync::Arc;

use crate::graph::parse_module;
use crate::ir::IRModule;
use crate::pass::{
    InstrumentRef, ModulePass, Pass, PassContext, PassInfo, PassRef, PipelineText, Registry,
    Result, Sequential,
};

/// A module with constants to fold, equal calls to share and kernels to fuse.
fn sample() -> IRModule {
    parse_module(
        "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
           %0 = add(const([1, 2], f32), const([3, 4], f32));
           %1 = multiply(%x, %0);
           %2 = multiply(%x, %0);
           nn.relu(add(%1, %2))
         }",
    )
    .unwrap()
}

/// The passes of a textual pipeline.
fn passes(text: &str) -> Sequential {
    PipelineText::parse(text).unwrap().build(&Registry::global()).unwrap()
}

/// Runs passes within the scope of a context with these instruments.
fn run(passes: Sequential, instruments: &[InstrumentRef]) -> Result<IRModule> {
    let builder = PassContext::builder().opt_level(4).remarks(true);
    let builder = instruments.iter().fold(builder, |b, i| b.shared_instrument(i.clone()));
    builder.build()?.scope(|cx| passes.run(sample(), cx))
}

fn watch<T: crate::pass::PassInstrument + 'static>(instrument: T) -> (Arc<T>, InstrumentRef) {
    let instrument = Arc::new(instrument);
    (instrument.clone(), instrument)
}

fn info(name: &str) -> PassInfo {
    PassInfo::new(name, 1).unwrap()
}

/// A pass whose result is that of the closure.
fn failing(name: &str, body: fn(&PassContext) -> Result<()>) -> PassRef {
    PassRef::new(ModulePass::new(info(name), move |module: IRModule, cx: &PassContext| {
        body(cx).map(|()| module)
    }))
}
