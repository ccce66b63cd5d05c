//! Passes and the funnel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use indexmap::IndexSet;

use super::support::{Log, chain, changing, info, module, noting};
use crate::diagnostics::Level;
use crate::graph::{Function, PrintOptions, Rewriter, print_module};
use crate::ir::{Attrs, Definition, GlobalVar, IRModule, Span};
use crate::pass::{
    FunctionPass, ModulePass, Pass, PassBody, PassContext, PassErrorKind, PassInfo, PassRef,
    PrimFuncPass, Result, RunToken, Sequential,
};
use crate::tir::{PrimFunc, PrimFuncData};

/// A function pass that drops the last call.
fn drop_last(function: Function, _: &IRModule, _: &PassContext) -> Function {
    let last = function.result();
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call().unwrap() {
        if id == last {
            let arg = rewriter.old().expr(id).operands().next().unwrap();
            let arg = rewriter.mapped(arg);
            rewriter.replace(arg);
        }
    }
    rewriter.finish().unwrap()
}

#[test]
fn a_module_pass_has_name_level_and_requirements() {
    let pass = PassRef::new(ModulePass::new(info("m", 0), |m: IRModule, _: &PassContext| m));
    let known = pass.info();
    assert_eq!((known.name(), known.opt_level(), known.required().len()), ("m", 0, 0));
    assert_eq!(pass.to_string(), "Run Module pass: m at the optimization level 0");
}

#[test]
fn a_module_pass_adds_a_function_and_leaves_its_input_alone() {
    let pass = ModulePass::new(info("m", 0), |mut module: IRModule, _: &PassContext| {
        module.insert(GlobalVar::new("myAbs"), Definition::Graph(chain(2)));
        module
    });
    let before = module([("myAdd", chain(1))]);
    let after = pass.apply(before.clone()).unwrap();
    assert_eq!((before.len(), after.len()), (1, 2));
    assert!(after.function("myAdd").unwrap().same(before.function("myAdd").unwrap()));
}

#[test]
fn a_pass_cannot_change_the_module_of_its_caller() {
    let pass = ModulePass::new(info("Clear", 0), |mut module: IRModule, _: &PassContext| {
        module.retain(|_, _| false);
        module
    });
    let before = module([("f", chain(1))]);
    let hash = crate::graph::module_hash(&before);
    assert!(pass.apply(before.clone()).unwrap().is_empty());
    assert_eq!((before.len(), crate::graph::module_hash(&before)), (1, hash));
}

#[test]
fn module_passes_from_closures_return_handles_as_they_are() {
    let m1 = module([("f", chain(1))]);
    let m2 = module([("g", chain(2))]);
    let returned = m2.clone();
    let replace =
        ModulePass::new(info("TestPipeline", 0), move |_, _: &PassContext| returned.clone());
    assert!(replace.apply(m1.clone()).unwrap().same(&m2));
    let keep = ModulePass::new(info("TestPipeline", 0), |module: IRModule, _: &PassContext| module);
    assert!(keep.apply(m1.clone()).unwrap().same(&m1));
}

#[test]
fn a_function_pass_replaces_every_function() {
    let f1 = chain(5);
    let replacement = f1.clone();
    let pass =
        FunctionPass::new(info("Replace", 1), move |_: Function, _: &IRModule, _: &PassContext| {
            replacement.clone()
        });
    let after = pass.apply(module([("main", chain(1))])).unwrap();
    crate::graph::structural_equal(after.function("main").unwrap(), &f1).unwrap();
}

#[test]
fn a_function_pass_visits_every_function() {
    let pass = FunctionPass::new(info("DropLast", 1), drop_last);
    let after = pass.apply(module([("sub", chain(3)), ("log", chain(2))])).unwrap();
    assert_eq!(after.function("sub").unwrap().len(), 3);
    assert_eq!(after.function("log").unwrap().len(), 2);
    // A pass that changes no function returns the same module.
    let plain = module([("f", chain(0))]);
    assert!(pass.apply(plain.clone()).unwrap().same(&plain));
}

fn marked(name: &str, value: i64) -> Function {
    chain(1).with_attrs(Attrs::new().with(name, value))
}

#[test]
fn function_passes_skip_functions_marked_to_be_left_alone() {
    let before = module([
        ("skip", marked("SkipOptimization", 1)),
        ("other", chain(1).with_attrs(Attrs::new().with("Compiler", "x"))),
        ("extern", marked("Extern", 1)),
    ]);
    let after = FunctionPass::new(info("DropLast", 0), drop_last).apply(before.clone()).unwrap();
    assert!(after.same(&before));
    // Module passes may change such functions.
    let clear = ModulePass::new(info("Clear", 0), |mut module: IRModule, _: &PassContext| {
        module.retain(|_, _| false);
        module
    });
    assert!(clear.apply(before).unwrap().is_empty());
}

#[test]
fn a_skip_mark_of_zero_has_no_effect() {
    let before = module([("do", marked("SkipOptimization", 0))]);
    let after = FunctionPass::new(info("DropLast", 0), drop_last).apply(before).unwrap();
    assert_eq!(after.function("do").unwrap().len(), 1);
}

#[test]
fn function_passes_see_their_siblings_as_they_were() {
    let pass = FunctionPass::new(
        info("Look", 0),
        |function: Function, module: &IRModule, cx: &PassContext| {
            assert_eq!(module.function("a").unwrap().len(), 3);
            drop_last(function, module, cx)
        },
    );
    let after = pass.apply(module([("a", chain(2)), ("b", chain(2))])).unwrap();
    assert_eq!(after.function("a").unwrap().len(), 2);
}

#[test]
fn the_number_of_threads_does_not_change_the_result() {
    let many: Vec<(String, Function)> =
        (0..100).map(|i| (format!("f{i}"), chain(60 + i % 7))).collect();
    let before = module(many.iter().map(|(name, function)| (name.as_str(), function.clone())));
    let seen = Arc::new(Mutex::new(IndexSet::new()));
    let threads = seen.clone();
    let pass = FunctionPass::new(
        info("Say", 0),
        move |function: Function, module: &IRModule, cx: &PassContext| {
            cx.warning(Span::Unknown, format!("{} expressions", function.len()));
            cx.missed(function.result(), "of no matter");
            cx.count("functions", 1);
            // Long enough for other threads to join in.
            std::thread::sleep(std::time::Duration::from_micros(100));
            threads.lock().unwrap().insert(std::thread::current().id());
            drop_last(function, module, cx)
        },
    );
    let run = |jobs| {
        let cx = PassContext::builder().jobs(jobs).remarks(true).build().unwrap();
        let after = pass.run(before.clone(), &cx).unwrap();
        let text = print_module(&after, &PrintOptions::default());
        (text, cx.diagnostics(), cx.remarks(), cx.statistics())
    };
    let (text, diagnostics, remarks, statistics) = run(1);
    assert_eq!((diagnostics.len(), remarks.len()), (100, 100));
    assert_eq!(seen.lock().unwrap().len(), 1);
    assert_eq!(remarks[3].to_string(), "Say: @f3: `nn.relu`: of no matter");
    assert_eq!(statistics[&("Say".to_owned(), "functions")], 100);
    assert_eq!(run(8), (text, diagnostics, remarks, statistics));
    assert!(seen.lock().unwrap().len() > 1, "no other thread has taken part");
}

#[test]
fn the_error_of_the_first_failing_function_is_returned() {
    let many: Vec<(String, Function)> = (0..40).map(|i| (format!("f{i}"), chain(100))).collect();
    let before = module(many.iter().map(|(name, function)| (name.as_str(), function.clone())));
    let calls = AtomicUsize::new(0);
    let pass = FunctionPass::new(
        info("Fails", 0),
        move |function: Function, module: &IRModule, _: &PassContext| {
            calls.fetch_add(1, Ordering::Relaxed);
            let position = module.functions().position(|(_, other)| other.same(&function)).unwrap();
            assert!(position < 30, "deep trouble");
            if position >= 7 { Err("not this one") } else { Ok(function) }
        },
    );
    for jobs in [1, 4] {
        let cx = PassContext::builder().jobs(jobs).build().unwrap();
        let error = pass.run(before.clone(), &cx).unwrap_err();
        assert_eq!(error.to_string(), "pass Fails, function @f7: not this one");
        assert_eq!(error.function(), Some(&GlobalVar::new("f7")));
    }
}

#[test]
fn a_panic_is_an_error_that_names_pass_and_function() {
    let pass = FunctionPass::new(
        info("Panics", 0),
        |function: Function, _: &IRModule, _: &PassContext| {
            assert!(function.is_empty(), "oh no");
            function
        },
    );
    let error = pass.apply(module([("main", chain(1))])).unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::Panicked(message) if message == "oh no"));
    assert_eq!(error.to_string(), "pass Panics, function @main: panicked: oh no");
}

#[test]
fn an_emitted_error_fails_its_pass_and_not_the_next_one() {
    for level in [Level::Bug, Level::Error] {
        let cx = PassContext::default();
        let say = ModulePass::new(info("Say", 0), move |module: IRModule, cx: &PassContext| {
            cx.emit(crate::diagnostics::Diagnostic::new(level, Span::Unknown, "wrong"));
            module
        });
        let error = say.run(IRModule::new(), &cx).unwrap_err();
        assert!(matches!(error.kind(), PassErrorKind::Diagnostics(list) if list.len() == 1));
        let next = ModulePass::new(info("Next", 0), |module: IRModule, cx: &PassContext| {
            assert!(cx.diagnostics().is_empty());
            module
        });
        next.run(IRModule::new(), &cx).unwrap();
        assert_eq!(cx.diagnostics().len(), 1);
    }
}

#[test]
fn an_error_emitted_through_the_current_context_fails_the_pass() {
    let cx = PassContext::default();
    let say = ModulePass::new(info("Say", 0), |module: IRModule, _: &PassContext| {
        PassContext::current().error(Span::Unknown, "wrong");
        module
    });
    cx.scope(|cx| {
        assert!(say.run(IRModule::new(), cx).is_err());
        Ok(())
    })
    .unwrap();
    // The context is not entered, so the error goes to the thread's default context.
    assert!(say.run(IRModule::new(), &cx).is_ok());
}

#[test]
fn a_changed_module_is_verified_if_the_context_asks() {
    let log = Log::default();
    let pass = changing(&log, info("Grow", 0));
    let cx = PassContext::builder()
        .verify_with(|module| if module.len() > 1 { Err("too long".into()) } else { Ok(()) })
        .build()
        .unwrap();
    let once = pass.run(IRModule::new(), &cx).unwrap();
    let error = pass.run(once, &cx).unwrap_err();
    assert_eq!(error.to_string(), "pass Grow: the pass returned a malformed module: too long");
}

#[test]
fn a_pass_within_a_function_pass_gets_a_fresh_context() {
    let pass = FunctionPass::new(
        info("Outer", 0),
        |function: Function, module: &IRModule, cx: &PassContext| {
            let inner = ModulePass::new(info("Inner", 0), |module: IRModule, cx: &PassContext| {
                assert_eq!(cx.opt_level(), 2);
                cx.warning(Span::Unknown, "from within");
                module
            });
            inner.run(module.clone(), cx).map(|_| function)
        },
    );
    let log = Log::default();
    let cx = PassContext::builder()
        .opt_level(4)
        .instrument(super::support::Noting::new(1, &log))
        .build()
        .unwrap();
    pass.run(module([("main", chain(1))]), &cx).unwrap();
    // Only the hooks of the outer pass.
    assert_eq!(log.take(), "S1 B1 A1");
    assert_eq!(cx.diagnostics().len(), 1);
}

fn prim_module() -> IRModule {
    let mut module = module([("main", chain(1))]);
    for name in ["f", "g"] {
        let function = PrimFunc::new(PrimFuncData::new(name));
        module.insert(GlobalVar::new(name), Definition::Prim(function));
    }
    module
}

#[test]
fn a_prim_func_pass_sees_the_old_bodies_of_its_siblings() {
    let pass = PrimFuncPass::new(
        info("tir.Mark", 0),
        |mut function: PrimFunc, module: &IRModule, _: &PassContext| {
            assert!(module.prim_funcs().all(|(_, other)| other.origin.is_empty()));
            function.make_mut().origin.push("marked".to_owned());
            function
        },
    );
    let before = prim_module();
    let after = pass.apply(before.clone()).unwrap();
    assert!(after.prim_funcs().all(|(_, function)| function.origin == ["marked"]));
    assert!(before.prim_funcs().all(|(_, function)| function.origin.is_empty()));
}

#[test]
fn a_pass_runs_on_one_loop_function_without_a_module() {
    let cx = PassContext::default();
    let func = || PrimFunc::new(PrimFuncData::new("kernel"));
    let says = PrimFuncPass::new(info("tir.Says", 0), |mut func: PrimFunc, _: &_, cx: &_| {
        PassContext::warning(cx, Span::Unknown, "a kernel");
        func.make_mut().origin.push("said".to_owned());
        func
    });
    assert_eq!(says.run_on_prim_func(func(), &cx).unwrap().origin, ["said"]);
    assert_eq!(cx.diagnostics()[0].message, "a kernel");
    // A module pass gets a module of this function alone.
    let log = Log::default();
    let whole = noting(&log, info("Whole", 0));
    let kernel = func();
    assert!(whole.run_on_prim_func(kernel.clone(), &cx).unwrap().same(&kernel));
    assert_eq!(log.take(), "Whole");
    let failure = |body: fn(PrimFunc) -> std::result::Result<Option<PrimFunc>, &'static str>| {
        let pass = PrimFuncPass::new(info("tir.Fails", 0), move |func, _: &_, _: &_| body(func));
        pass.run_on_prim_func(func(), &cx).unwrap_err().to_string()
    };
    let prefix = "pass tir.Fails, function @kernel: ";
    assert_eq!(failure(|_| Err("no")), format!("{prefix}no"));
    assert_eq!(failure(|_| panic!("oh")), format!("{prefix}panicked: oh"));
    let deleted = "the pass deletes the function, which has callers";
    assert_eq!(failure(|_| Ok(None)), format!("{prefix}{deleted}"));
}

#[test]
fn a_prim_func_pass_deletes_a_function_by_returning_none() {
    let delete = PrimFuncPass::new(
        info("tir.Delete", 0),
        |function: PrimFunc, _: &IRModule, _: &PassContext| {
            (function.name != "f").then_some(function)
        },
    );
    let after = delete.apply(prim_module()).unwrap();
    let names: Vec<&str> = after.iter().map(|(global, _)| global.name()).collect();
    assert_eq!(names, ["main", "g"]);
    assert!(delete.apply(after.clone()).unwrap().same(&after));
}

#[test]
fn a_prim_func_pass_that_changes_nothing_copies_nothing() {
    let same = PrimFuncPass::new(
        info("tir.Same", 0),
        |function: PrimFunc, _: &IRModule, _: &PassContext| function,
    );
    let module = prim_module();
    let (before, f) = (module.identity(), module.prim_funcs().next().unwrap().1.identity());
    let after = same.apply(module).unwrap();
    assert_eq!(after.identity().address(), before.address());
    assert_eq!(after.prim_funcs().next().unwrap().1.identity().address(), f.address());
}

#[test]
fn a_function_pass_cannot_add_functions() {
    // The pass borrows the module: it can only add to a copy of its own.
    let pass = FunctionPass::new(
        info("Adds", 0),
        |function: Function, module: &IRModule, _: &PassContext| {
            let mut own = module.clone();
            own.insert(GlobalVar::new("new"), Definition::Graph(chain(1)));
            function
        },
    );
    let before = module([("main", chain(1))]);
    assert!(pass.apply(before.clone()).unwrap().same(&before));
}

#[test]
fn a_pipeline_within_a_function_pass_changes_nothing_around_it() {
    let pass = FunctionPass::new(
        info("Outer", 0),
        |function: Function, module: &IRModule, cx: &PassContext| {
            let clear = ModulePass::new(info("Clear", 0), |mut m: IRModule, _: &PassContext| {
                m.retain(|_, _| false);
                m
            });
            assert!(Sequential::default().then(clear).run(module.clone(), cx)?.is_empty());
            Ok::<_, crate::pass::PassError>(function)
        },
    );
    let before = module([("f", chain(1)), ("g", chain(2))]);
    assert!(pass.apply(before.clone()).unwrap().same(&before));
}

#[test]
fn every_pass_of_a_list_is_initialized_once_before_the_first_runs() {
    struct Ready(PassInfo, Log, bool);
    impl PassBody for Ready {
        fn info(&self) -> &PassInfo {
            &self.0
        }
        fn initialize(&self, _: &PassContext) -> Result<()> {
            self.1.note(format!("ready:{}", self.0.name()));
            if self.2 { Err("out of order".into()) } else { Ok(()) }
        }
        fn transform(&self, module: IRModule, _: &PassContext, _: RunToken) -> Result<IRModule> {
            self.1.note(self.0.name());
            Ok(module)
        }
    }
    let log = Log::default();
    let ready = |name, fails| Ready(info(name, 0), log.clone(), fails);
    let inner = Sequential::default().then(ready("B", false));
    let list = Sequential::default().then(ready("A", false)).then(inner);
    list.apply(IRModule::new()).unwrap();
    assert_eq!(log.take(), "ready:A ready:B A B");
    // Initialized again in a longer list, and on its own.
    list.then(ready("C", false)).apply(IRModule::new()).unwrap();
    assert_eq!(log.take(), "ready:A ready:B ready:C A B C");
    ready("D", false).apply(IRModule::new()).unwrap();
    assert_eq!(log.take(), "ready:D D");
    let list = Sequential::default().then(ready("A", false)).then(ready("B", true));
    let error = list.apply(IRModule::new()).unwrap_err();
    assert_eq!(log.take(), "ready:A ready:B");
    assert_eq!(error.to_string(), "pass sequential > B: out of order");
}

#[test]
fn a_panic_goes_on_after_clean_up_if_the_context_says_so() {
    let log = Log::default();
    let cx = PassContext::builder()
        .instrument(super::support::Noting::new(1, &log))
        .resume_panics(true)
        .build()
        .unwrap();
    let panics = ModulePass::new(info("Panics", 0), |_: IRModule, _: &PassContext| -> IRModule {
        panic!("oh no")
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cx.scope(|cx| Sequential::default().then(panics).run(IRModule::new(), cx))
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"oh no"));
    assert_eq!((log.take().as_str(), PassContext::depth()), ("E1 S1 B1 S1 B1 X1", 0));
}

#[test]
fn errors_become_problems_at_their_nodes() {
    use crate::diagnostics::Report;
    use crate::ir::OnnxSpan;
    let node = Span::Onnx(std::sync::Arc::new(OnnxSpan {
        node: "conv1".to_owned(),
        op: "Conv".to_owned(),
        opset: 13,
        source: None,
    }));
    let pass = ModulePass::new(info("Check", 0), move |module: IRModule, cx: &PassContext| {
        cx.warning(Span::Unknown, "not told");
        cx.error(node.clone(), "too wide");
        cx.error(Span::Unknown, "too deep");
        module
    });
    let report = Report::from(pass.apply(IRModule::new()).unwrap_err());
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["node `conv1` (Conv, opset 13): pass Check: too wide", "pass Check: too deep"]
    );
}
