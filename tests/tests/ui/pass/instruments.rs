//! Every form that an instrument may have.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use niello::ir::IRModule;
use niello::pass::{
    AnalysisInfo, InstrumentOutput, Said, Pass as _, PassContext, PassError, PassInfo, PassInstrument as _, module_pass, pass_instrument,
};

/// One hook, no result.
#[derive(Default)]
struct Counter(AtomicUsize);

#[pass_instrument]
impl Counter {
    fn run_before_pass(&self, _module: &IRModule, _info: &PassInfo) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// All of them, each with the result it likes, beside methods that are no hooks.
#[derive(Default)]
struct Recorder<T> {
    events: Mutex<Vec<String>>,
    extra: T,
}

#[pass_instrument(name = "recorder", crate = ::niello)]
impl<T: Clone + Send + Sync> Recorder<T> {
    fn record(&self, event: &str) {
        self.events.lock().unwrap().push(event.to_owned());
        let _ = self.extra.clone();
    }

    fn enter_pass_ctx(&self) -> Result<(), std::fmt::Error> {
        self.record("enter");
        Ok(())
    }

    fn exit_pass_ctx(&self) {
        self.record("exit");
    }

    fn should_run(&self, _module: &IRModule, info: &PassInfo) -> bool {
        info.name() != "Unwanted"
    }

    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> Result<(), String> {
        self.record(&format!("before {}", info.name()));
        Ok(())
    }

    fn run_after_pass(&self, _module: &IRModule, info: &PassInfo) {
        self.record(&format!("after {}", info.name()));
    }

    #[cfg(any())]
    fn after_pass_failed(&self, nothing: of, this: kind) {}

    #[cfg(all())]
    fn after_pass_failed(&self, info: &PassInfo, _error: &PassError) {
        self.record(&format!("failed {}", info.name()));
    }

    fn before_skipped_pass(&self, _module: &IRModule, info: &PassInfo) {
        self.record(&format!("skipped {}", info.name()));
    }

    fn pass_said(&self, _info: &PassInfo, _said: &Said<'_>) {}

    fn before_analysis(&self, _info: &AnalysisInfo) {}

    fn outputs(&self) -> Vec<InstrumentOutput> {
        Vec::new()
    }

    #[not_a_hook]
    fn run_before_passes(&self) {}
}

#[module_pass(opt_level = 0)]
fn wanted(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 0)]
fn unwanted(_: IRModule, _: &PassContext) -> IRModule {
    panic!("the instrument keeps it from running")
}

#[module_pass(opt_level = 0)]
fn failing(_: IRModule, _: &PassContext) -> Result<IRModule, std::fmt::Error> {
    Err(std::fmt::Error)
}

fn main() {
    use std::sync::Arc;
    let counter = Arc::new(Counter::default());
    let recorder = Arc::new(Recorder::<u8>::default());
    recorder.run_before_passes();
    assert_eq!(recorder.name(), "recorder");
    let cx = PassContext::builder()
        .shared_instrument(counter.clone())
        .shared_instrument(recorder.clone())
        .build()
        .unwrap();
    cx.scope(|cx| {
        Wanted.run(IRModule::new(), cx)?;
        Unwanted.run(IRModule::new(), cx)?;
        assert!(Failing.run(IRModule::new(), cx).is_err());
        niello::pass::Result::Ok(())
    })
    .unwrap();
    assert_eq!(counter.0.load(Ordering::Relaxed), 2);
    assert_eq!(
        *recorder.events.lock().unwrap(),
        [
            "enter", "before Wanted", "after Wanted", "skipped Unwanted", "before Failing",
            "failed Failing", "exit"
        ]
    );
}
