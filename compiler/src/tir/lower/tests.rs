//! Tests of lowering as a whole.

use crate::codegen::c::{generate, translation_unit};
use crate::ir::{BufferSpec, DType};
use crate::pass::PassContext;
use crate::target::Target;
use crate::tir::{
    ForKind, Intrinsic, MAX_DEPTH, PrimExpr, PrimFunc, PrimFuncData, interpret, lower, parse,
    pipeline, verify,
};

/// A chain of `length` operators on every element of a row.
fn chain(length: usize, step: impl Fn(PrimExpr) -> PrimExpr) -> PrimFunc {
    let mut func = PrimFuncData::new("chain");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[8]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[8]));
    func.body = func.for_("i", 8, ForKind::Vectorized, |f, i| {
        let value = (0..length).fold(f.load(x, [i.clone()]), |value, _| step(value));
        f.store(y, [i], value)
    });
    PrimFunc::new(func)
}

/// Runs unoptimised, like a user's build script, on the smallest usual stack.
#[test]
fn the_deepest_function_fits_a_small_stack() {
    let run = || {
        let target = Target::host();
        let deepest = chain(MAX_DEPTH - 5, |value| value + PrimExpr::f32(1.0));
        // Strategies inline up to 48 operators.
        let nested = chain(48, |value| PrimExpr::call(Intrinsic::Tanh, value));
        for func in [deepest, nested] {
            verify(&func).unwrap();
            let text = func.to_string();
            assert_eq!(parse(&text).unwrap().to_string(), text);
            let lowered = lower(func, &target).unwrap();
            verify(&lowered).unwrap();
            let mut args = [vec![0; 32], vec![0; 32]];
            interpret(&lowered, &mut args, &[]).unwrap();
            let kernel = generate(&lowered, "chain", &target).unwrap();
            assert!(translation_unit([&kernel], &[]).contains("void chain("));
            #[cfg(feature = "llvm")]
            {
                use crate::codegen::llvm::{Kernel, Source, compile};
                let kernels = vec![Kernel { func: lowered, symbol: "chain".to_owned() }];
                let name = "chain".to_owned();
                let source = Source { name, kernels, wrappers: vec![], entry: None, level: 0 };
                compile(&[source], std::slice::from_ref(&target), 1, false).unwrap();
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    thread.join().unwrap();
}

/// Names of the passes under a context with this value of `tir.add_lower_pass`.
fn names(added: serde_json::Value) -> Result<Vec<String>, String> {
    let cx = PassContext::builder().config_value("tir.add_lower_pass", added).build();
    let list = cx.and_then(|cx| pipeline(&cx)).map_err(|error| error.to_string())?;
    Ok(list.passes().iter().map(|pass| pass.info().name().to_owned()).collect())
}

#[test]
fn passes_of_the_users_run_at_the_end_of_their_phases() {
    let plain = names(serde_json::json!([])).unwrap();
    let added = serde_json::json!([
        [9, "tir.transform.VectorizeLoop"],
        [0, "tir.UnrollLoop"],
        [1, "infer-type"],
        [3, "tir.LowerBlocks"]
    ]);
    let added = names(added).unwrap();
    assert_eq!(added.len(), plain.len() + 4);
    assert_eq!(added[0], "tir.UnrollLoop");
    let at = |name: &str| added.iter().rposition(|other| other == name).unwrap();
    assert_eq!(added[at("InferType") + 1], "tir.LoopPartition");
    assert_eq!(at("tir.LowerBlocks"), at("tir.VectorizeLoop") + 1);
    assert_eq!(added[at("tir.LowerBlocks") + 1], "tir.LegalizeRegisterAccess");
}

#[test]
fn wrong_passes_of_the_users_are_reported() {
    for (added, expected) in [
        (serde_json::json!([[-1, "tir.UnrollLoop"]]), "invalid value: integer `-1`, expected u64"),
        (
            serde_json::json!([[1, "tir.UnrolLoop"], [1, "FoldConstant"]]),
            "tir.add_lower_pass: there is no pass `tir.UnrolLoop`; did you mean `tir.UnrollLoop`?",
        ),
        (
            serde_json::json!([[1, "FoldConstant"]]),
            "`FoldConstant` works on functions of the graph",
        ),
    ] {
        let error = names(added).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_order_of_lowering_satisfies_every_pass() {
    pipeline(&PassContext::default()).unwrap().plan(&PassContext::default()).unwrap();
}
