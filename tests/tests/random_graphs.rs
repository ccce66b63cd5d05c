//! Properties of the graph IR's tools on random modules, and of the parser on damaged text.

use niello::graph::interp::{Value, evaluate};
use niello::graph::{
    PrintOptions, module_hash, modules_equal, parse_module, parse_module_with, print_with_sidecar,
    verify_module,
};
use niello::ir::{Definition, GlobalVar, IRModule};
use niello::pass::{Pass, PassContext, PassRef};
use niello::transform::pipeline::{PipelineExtensions, pipeline};
use niello::transform::{
    DeadCodeElimination, DefuseOps, EtaExpand, FoldConstant, FuseOps, Inline, LambdaLift,
    ToANormalForm, ToBasicBlockNormalForm, ToGraphNormalForm,
};
use niello_tests::random::random_module;
use niello_tests::values::{close, sample_inputs};
use proptest::prelude::{
    ProptestConfig, Strategy, TestCaseError, prop, prop_assert, prop_assert_eq, proptest,
};
use proptest::test_runner::RngSeed;

fn value(module: &IRModule) -> Value {
    let inputs = sample_inputs(module.function("main").unwrap()).unwrap();
    evaluate(module, "main", &inputs).unwrap_or_else(|error| panic!("{error}\n{module}"))
}

fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..10_000, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        // The same modules in every run: a failure belongs to the change that it appears with.
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    #[test]
    fn printed_modules_read_back_equal(choices in choices()) {
        let module = random_module(&choices, false);
        if let Err(errors) = verify_module(&module) {
            prop_assert!(false, "{errors}");
        }
        let (text, sidecar) = print_with_sidecar(&module, &PrintOptions::default());
        let again = match parse_module_with(&text, &sidecar) {
            Ok(again) => again,
            Err(errors) => return Err(TestCaseError::fail(format!("{errors}\n{text}"))),
        };
        prop_assert_eq!(again.to_string(), text);
        if let Err(mismatch) = modules_equal(&module, &again) {
            prop_assert!(false, "{}\n{}", mismatch, module);
        }
        prop_assert_eq!(module_hash(&module), module_hash(&again));
        prop_assert!(verify_module(&again).is_ok());
        if let Err(error) = close(&value(&module), &value(&again)) {
            prop_assert!(false, "{}\n{}", error, module);
        }
    }

    #[test]
    fn dead_code_changes_ids_and_nothing_else(choices in choices()) {
        let (module, junk) = (random_module(&choices, false), random_module(&choices, true));
        prop_assert!(verify_module(&junk).is_ok());
        if let Err(mismatch) = modules_equal(&module, &junk) {
            prop_assert!(false, "{}\n{}\n{}", mismatch, module, junk);
        }
        prop_assert_eq!(module_hash(&module), module_hash(&junk));
        // The text keeps dead code.
        let text = junk.to_string();
        let again = parse_module(&text).map_err(|errors| TestCaseError::fail(errors.to_string()))?;
        prop_assert_eq!(again.to_string(), text);
    }

    #[test]
    fn passes_keep_the_results(choices in choices()) {
        let module = random_module(&choices, false);
        let expected = value(&module);
        let cx = PassContext::builder()
            .verify_with(|module| verify_module(module).map_err(Into::into))
            .build()
            .unwrap();
        let mut after = module.clone();
        for pass in pipeline(&PipelineExtensions::new()).unwrap().passes() {
            let name = pass.info().name();
            after = pass
                .run(after, &cx)
                .map_err(|error| TestCaseError::fail(format!("{name}: {error}\n{module}")))?;
            if let Err(error) = close(&expected, &value(&after)) {
                prop_assert!(false, "{}: {}\nbefore:\n{}\nafter:\n{}", name, error, module, after);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(11),
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn normal_forms_keep_the_results_and_do_nothing_twice(choices in choices()) {
        let mut module = random_module(&choices, false);
        let helper = GlobalVar::new("helper");
        if let Some(function) = module.get(&helper).and_then(Definition::as_graph).cloned() {
            let attrs = function.attrs().clone().with("Inline", 1);
            module.insert(helper, Definition::Graph(function.with_attrs(attrs)));
        }
        let expected = value(&module);
        let cx = PassContext::builder()
            .verify_with(|module| verify_module(module).map_err(Into::into))
            .build()
            .unwrap();
        let forms: [PassRef; 8] = [
            ToBasicBlockNormalForm.into(),
            ToANormalForm.into(),
            ToGraphNormalForm.into(),
            EtaExpand.into(),
            Inline.into(),
            LambdaLift.into(),
            DeadCodeElimination.into(),
            FoldConstant.into(),
        ];
        let fails = |name: &str, error: &str, after: &IRModule| {
            TestCaseError::fail(format!("{name}: {error}\nbefore:\n{module}\nafter:\n{after}"))
        };
        let mut all = module.clone();
        for pass in forms {
            let name = pass.info().name();
            let run = |module: &IRModule| {
                pass.run(module.clone(), &cx)
                    .map_err(|error| fails(name, &error.to_string(), module))
            };
            let once = run(&module)?;
            close(&expected, &value(&once)).map_err(|error| fails(name, &error, &once))?;
            if name != "FoldConstant" {
                let twice = run(&once)?;
                prop_assert!(twice.same(&once), "{} twice:\n{}\n{}", name, once, twice);
            }
            all = run(&all)?;
            close(&expected, &value(&all)).map_err(|error| fails(name, &error, &all))?;
        }
        let fused = FuseOps.run(module.clone(), &cx).unwrap();
        let defused = DefuseOps.run(fused, &cx).unwrap();
        close(&expected, &value(&defused)).map_err(|error| fails("DefuseOps", &error, &defused))?;
    }
}

/// Pseudo-random numbers that are the same in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

#[test]
fn no_damage_to_a_text_makes_a_tool_panic() {
    let pieces = [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        "%0",
        "%x",
        "@main",
        "if",
        "loop",
        "fn",
        "let",
        "=",
        "const(",
        "-1",
        "1e999",
        "9223372036854775808",
        "Tensor[(",
        "_",
        "\"",
        "\\",
        "/*",
        "//",
        "; ",
        "\n",
        "é",
        "\0",
        ".0",
        "where",
        "dim(",
        "blake3:",
        "nan(0x",
        "def ",
    ];
    let mut random = Lcg(7);
    let mut parsed = 0;
    for round in 0..100 {
        let choices: Vec<u32> = (0..80).map(|_| random.below(10_000) as u32).collect();
        let text = random_module(&choices, round % 2 == 0).to_string();
        for _ in 0..200 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                let end = (at + 1 + random.below(12)).min(bytes.len());
                match random.below(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => drop(bytes.splice(at..at, pieces[random.below(pieces.len())].bytes())),
                    2 => bytes[at] = (random.below(96) + 32) as u8,
                    _ => {
                        let copied = bytes[at..end].to_vec();
                        let to = random.below(bytes.len());
                        drop(bytes.splice(to..to, copied));
                    }
                }
            }
            let damaged = String::from_utf8_lossy(&bytes);
            match parse_module(&damaged) {
                Ok(module) => {
                    parsed += 1;
                    // The module may be invalid, but it can be printed.
                    let printed = module.to_string();
                    let again = parse_module(&printed).unwrap_or_else(|errors| {
                        panic!("this was printed, but does not read back: {errors}\n{printed}")
                    });
                    assert_eq!(again.to_string(), printed);
                    let _ = verify_module(&module).map_err(|errors| errors.to_string());
                }
                Err(errors) => assert!(!errors.to_string().is_empty()),
            }
        }
    }
    assert!(parsed > 200, "damage that leaves a valid text is tested as well: {parsed}");
}
