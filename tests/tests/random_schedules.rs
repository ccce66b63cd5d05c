//! Random tensor expressions under random schedules: the scheduled loops, their lowered form and
//! the code of every backend equal the plain loops, bit for bit.

use niello::driver::{Arg, BuildTarget, Function, NdArray};
use niello::options::Backend;
use niello::pass::PassContext;
use niello::schedule::{Schedule, Trace};
use niello::target::Target;
use niello::tir::{ParamKind, PrimFunc, interpret, lower, parse, verify};
use niello_tests::random::Choices;
use niello_tests::random::schedule::{RandomFunction, random_function, random_schedule};
use proptest::prelude::{ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, proptest};
use proptest::test_runner::RngSeed;

fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..10_000, 0..120)
}

/// Extents of the parameters for values of the dimensions.
fn shapes(func: &PrimFunc, dims: &[i64]) -> Vec<Vec<i64>> {
    let func = func.with_extents(dims).unwrap();
    func.params.iter().map(|param| func.buffers[param.buffer].shape().to_vec()).collect()
}

/// Small integers for each parameter, dense; zeros for an output.
fn values(func: &PrimFunc, dims: &[i64]) -> Vec<Vec<f32>> {
    let values = |(param, shape): (&niello::tir::Param, Vec<i64>)| {
        let len: i64 = shape.iter().product();
        let element = |i: i64| ((i * 5 + 1) % 7 - 3) as f32;
        let is_output = param.kind == ParamKind::Output;
        (0..len).map(|i| if is_output { 0.0 } else { element(i) }).collect()
    };
    func.params.iter().zip(shapes(func, dims)).map(values).collect()
}

/// The outputs of the interpreter.
fn interpreted(func: &PrimFunc, values: &[Vec<f32>], dims: &[i64]) -> Result<Vec<Vec<u8>>, String> {
    let mut args: Vec<Vec<u8>> =
        values.iter().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    interpret(func, &mut args, dims).map_err(|error| format!("{dims:?} {error}\n{func}"))?;
    let outputs = func.params.iter().zip(args);
    Ok(outputs.filter(|(p, _)| p.kind == ParamKind::Output).map(|(_, bytes)| bytes).collect())
}

/// The outputs of compiled code.
fn compiled(
    function: &Function,
    func: &PrimFunc,
    values: &[Vec<f32>],
    dims: &[i64],
) -> Vec<Vec<u8>> {
    let mut arrays: Vec<NdArray> = values
        .iter()
        .zip(shapes(func, dims))
        .map(|(values, shape)| NdArray::from_slice(&shape, values).unwrap())
        .collect();
    let mut args: Vec<Arg<'_>> = arrays.iter_mut().map(Arg::from).collect();
    // Dimensions that are no extent by themselves.
    let passed = func
        .dims
        .iter()
        .zip(dims)
        .filter(|(dim, _)| function.dims().contains(&func.vars[**dim].name));
    args.extend(passed.map(|(_, &value)| Arg::Int(value)));
    function.call(args).unwrap();
    let outputs = func.params.iter().zip(&arrays);
    let outputs = outputs.filter(|(param, _)| param.kind == ParamKind::Output);
    outputs.map(|(_, array)| array.bytes().to_vec()).collect()
}

/// Whether a function was refused because its own memory would have an unknown size.
fn has_no_memory(func: &PrimFunc, error: &str) -> bool {
    !func.dims.is_empty() && error.contains("is local, and its extents")
}

/// Runs `body` under a context that makes indices `int32` in lowering.
fn narrowed<T>(body: impl FnOnce() -> T) -> T {
    let pass = serde_json::json!([[1, "tir.NarrowDataType"]]);
    let cx = PassContext::builder().config_value("tir.add_lower_pass", pass).build().unwrap();
    cx.scope(|_| Ok(body())).unwrap()
}

/// A random function and a random schedule of it.
fn scheduled(list: &[u32]) -> (RandomFunction, Schedule) {
    let mut choices = Choices::new(list);
    let random = random_function(&mut choices);
    let mut schedule = Schedule::new(random.func.clone());
    random_schedule(&mut choices, &mut schedule, &random.blocks);
    (random, schedule)
}

proptest! {
    #![proptest_config(ProptestConfig {
        // The same schedules in every run: a failure belongs to the change that it appears with.
        rng_seed: RngSeed::Fixed(5),
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn schedules_keep_the_results(list in choices()) {
        let (RandomFunction { func, calls, .. }, schedule) = scheduled(&list);
        let made = schedule.func();
        let text = made.to_string();
        prop_assert_eq!(parse(&text).unwrap().to_string(), &*text);
        let mut expected = Vec::new();
        for dims in &calls {
            let values = values(&func, dims);
            let outputs = interpreted(&func, &values, dims).unwrap();
            match interpreted(&made, &values, dims) {
                Ok(found) => prop_assert_eq!(&found, &outputs, "{}{}", schedule.trace(), made),
                Err(error) => prop_assert!(false, "{}{}", schedule.trace(), error),
            }
            expected.push((dims, values, outputs));
        }
        for cpu in ["x86-64", "x86-64-v3", "x86-64-v4"] {
            let Ok(target) = Target::host().with_cpu(cpu) else { continue };
            let wide = lower(made.clone(), &target);
            for (is_narrow, lowered) in [(false, wide), (true, narrowed(|| lower(made.clone(), &target)))] {
                let lowered = match lowered {
                    Ok(lowered) => lowered,
                    Err(error) if has_no_memory(&made, &error.to_string()) => continue,
                    Err(error) => return Err(proptest::test_runner::TestCaseError::fail(
                        format!("{}{error}\n{made}", schedule.trace()),
                    )),
                };
                prop_assert!(verify(&lowered).is_ok(), "{lowered}");
                // The size of a dimension is unknown.
                if made.dims.is_empty() || !is_narrow {
                    prop_assert_eq!(lowered.to_string().contains("int32("), is_narrow, "{}", lowered);
                }
                for (dims, values, expected) in &expected {
                    match interpreted(&lowered, values, dims) {
                        Ok(found) => prop_assert_eq!(
                            &found, expected, "{}{}{}", schedule.trace(), made, lowered
                        ),
                        Err(error) => prop_assert!(false, "{}{}{}", schedule.trace(), made, error),
                    }
                }
            }
        }
    }

    #[test]
    fn traces_replay(list in choices()) {
        let (RandomFunction { func, .. }, schedule) = scheduled(&list);
        let trace: Trace = schedule.trace().to_string().parse().unwrap();
        prop_assert_eq!(&trace, schedule.trace());
        let mut again = Schedule::new(func);
        trace.replay(&mut again).unwrap();
        prop_assert_eq!(again.func().to_string(), schedule.func().to_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(11),
        failure_persistence: None,
        // Every backend compiles each function.
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn generated_code_equals_the_plain_loops(list in choices()) {
        let (RandomFunction { func, calls, .. }, schedule) = scheduled(&list);
        let made = schedule.func();
        for &backend in Backend::ALL {
            let target = BuildTarget::native(backend);
            let module = match niello::build([made.clone()], &target) {
                Ok(module) => module,
                Err(error) if has_no_memory(&made, &error.to_string()) => continue,
                Err(error) => return Err(proptest::test_runner::TestCaseError::fail(
                    format!("{target}: {}{error}\n{made}", schedule.trace()),
                )),
            };
            let function = module.function(&made.name).unwrap();
            for dims in &calls {
                let values = values(&func, dims);
                let expected = interpreted(&func, &values, dims).unwrap();
                let found = compiled(&function, &made, &values, dims);
                prop_assert_eq!(
                    &found, &expected, "{} {:?}\n{}{}", target, dims, schedule.trace(), made
                );
            }
        }
    }
}

#[test]
fn random_functions_reduce_and_read_constants() {
    let functions: Vec<String> = (0u32..200)
        .map(|seed| {
            let mixed = |i: u32| (seed * 60 + i).wrapping_mul(2_654_435_761) >> 8;
            let list: Vec<u32> = (0..60).map(mixed).collect();
            random_function(&mut Choices::new(&list)).func.to_string()
        })
        .collect();
    for what in ["reduce(", ": const ", "select(", "max(", ": dim", "* 2 + 1"] {
        assert!(functions.iter().any(|text| text.contains(what)), "no function has `{what}`");
    }
}
