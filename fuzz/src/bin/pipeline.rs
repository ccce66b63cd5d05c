//! Textual pass pipelines. What is well-formed prints, and reads back as the same; what can be built
//! runs on a small module, which stays valid.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use niello::graph::parse_module;
use niello::ir::IRModule;
use niello::pass::{
    Pass, PassBody, PassContext, PassErrorKind, PipelineText, Registry, Sequential,
};
use niello::target::Target;

/// Most passes of a pipeline that is run: more of them find nothing that a few do not, and are slow.
const MOST_PASSES: usize = 3;

/// A graph function with a bit of everything that passes look for, and a loop function.
static MODULE: LazyLock<IRModule> =
    LazyLock::new(|| parse_module(include_str!("../pipeline.relay")).expect("a valid module"));

/// Looked up once.
static TARGET: LazyLock<Target> = LazyLock::new(Target::host);

/// Runs passes. They may refuse the module, but not break it.
fn run(passes: &Sequential) {
    let cx = PassContext::builder().target(TARGET.clone()).verify_each(true).jobs(1).build();
    let cx = cx.expect("a valid context");
    let Err(error) = passes.run(MODULE.clone(), &cx) else { return };
    let message = error.to_string();
    match error.kind() {
        PassErrorKind::Verify(_)
        | PassErrorKind::NotSet(_)
        | PassErrorKind::NotPreserved { .. } => {
            panic!("{message}")
        }
        _ => {}
    }
}

fuzz_target!(init: niello_fuzz::limit_memory(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    niello_fuzz::run(|| {
        let pipeline = match PipelineText::parse(text) {
            Ok(pipeline) => pipeline,
            Err(error) => return drop(error.to_string()),
        };
        let printed = pipeline.to_string();
        let again = PipelineText::parse(&printed)
            .unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again.to_string(), printed);
        match pipeline.build(&Registry::global()) {
            Ok(passes) if passes.members().len() <= MOST_PASSES => run(&passes),
            Ok(_) => {}
            Err(error) => drop(error.to_string()),
        }
    });
});
