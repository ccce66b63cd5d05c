//! Helpers of the tests: small modules, passes that do nothing, instruments that take notes.

use std::sync::{Arc, Mutex};

use crate::graph::{Function, FunctionBuilder};
use crate::ir::{Attrs, DType, Definition, GlobalVar, IRModule, Type};
use crate::ops::Op;
use crate::pass::{
    HookResult, ModulePass, PassContext, PassInfo, PassInstrument, PassRef, Requirement,
};

/// `relu` applied `calls` times to a parameter.
pub(super) fn chain(calls: usize) -> Function {
    let relu = Op::get("nn.relu").unwrap();
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", Type::tensor(&[4], DType::F32));
    for _ in 0..calls {
        x = b.call(relu, &[x], Attrs::new()).unwrap();
    }
    b.finish(x)
}

/// A module of these functions.
pub(super) fn module<'a>(functions: impl IntoIterator<Item = (&'a str, Function)>) -> IRModule {
    let mut module = IRModule::new();
    for (name, function) in functions {
        module.insert(GlobalVar::new(name), Definition::Graph(function));
    }
    module
}

/// A list of events, in order.
#[derive(Clone, Default, Debug)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn note(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    /// The events since the last call, separated by blanks.
    pub(super) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }
}

pub(super) fn info(name: &str, level: u8) -> PassInfo {
    PassInfo::new(name, level).unwrap()
}

/// A pass that notes its name and returns the module as it is.
pub(super) fn noting(log: &Log, info: PassInfo) -> PassRef {
    let log = log.clone();
    let name = info.name().to_owned();
    PassRef::new(ModulePass::new(info, move |module, _: &PassContext| {
        log.note(name.clone());
        module
    }))
}

/// A pass that notes its name and adds a definition, which changes the module.
pub(super) fn changing(log: &Log, info: PassInfo) -> PassRef {
    let log = log.clone();
    let name = info.name().to_owned();
    PassRef::new(ModulePass::new(info, move |mut module: IRModule, _: &PassContext| {
        log.note(name.clone());
        let global = module.fresh_global("added");
        module.insert(global, Definition::Graph(chain(0)));
        module
    }))
}

/// A requirement that only the registry can resolve.
pub(super) fn needs(name: &'static str) -> [Requirement; 1] {
    [Requirement::named(name)]
}

/// Notes every hook with its number: `E1` enter, `X1` exit, `S1` should run, `B1` before, `A1`
/// after, `F1` failed; may fail in one of them.
pub(super) struct Noting {
    pub(super) number: u32,
    pub(super) log: Log,
    pub(super) fail_in: Option<char>,
    pub(super) allow: bool,
}

impl Noting {
    pub(super) fn new(number: u32, log: &Log) -> Noting {
        Noting { number, log: log.clone(), fail_in: None, allow: true }
    }

    pub(super) fn failing_in(mut self, hook: char) -> Noting {
        self.fail_in = Some(hook);
        self
    }

    pub(super) fn refusing(mut self) -> Noting {
        self.allow = false;
        self
    }

    fn note(&self, hook: char) -> HookResult {
        self.log.note(format!("{hook}{}", self.number));
        if self.fail_in == Some(hook) {
            return Err(format!("instrument {} fails in {hook}", self.number).into());
        }
        Ok(())
    }
}

impl PassInstrument for Noting {
    fn enter_pass_ctx(&self) -> HookResult {
        self.note('E')
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.note('X')
    }

    fn should_run(&self, _: &IRModule, _: &PassInfo) -> HookResult<bool> {
        self.note('S')?;
        Ok(self.allow)
    }

    fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.note('B')
    }

    fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.note('A')
    }
}

/// A pass that always fails.
pub(super) fn failing(log: &Log) -> PassRef {
    let log = log.clone();
    PassRef::new(ModulePass::new(info("Fails", 0), move |_, _: &PassContext| {
        log.note("P");
        Err::<IRModule, _>("it does not work")
    }))
}
