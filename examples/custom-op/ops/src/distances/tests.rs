//! The operator and its rule, in models of many sizes, at every CPU level.

use niello::compile::{Compilation, Model, Passes, compile};
use niello::executor::{LoadedModel, Scheduled, write_shared_library};
use niello::graph::interp::evaluate;
use niello::graph::parse_module;
use niello::ir::{Constant, DType};
use niello::options::CompileOptions;
use niello::schedule::{Schedule, Trace};
use niello::target::Target;

use super::*;

/// Small numbers, which sums of are exact in any order.
fn numbers(count: i64) -> Vec<f64> {
    (0..count).map(|at| f64::from(i32::try_from(at * 37 % 61 - 30).unwrap()) / 4.0).collect()
}

/// A model of `n` rows, with a bias and a root behind the distances.
fn model(n: i64, depth: i64, m: i64, codebook: bool) -> String {
    let list = |values: &[f64]| {
        let texts: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        texts.join(", ")
    };
    let row = |at: i64| {
        let all = numbers(depth * m);
        let from = usize::try_from(at * m).unwrap();
        format!("[{}]", list(&all[from..from + usize::try_from(m).unwrap()]))
    };
    let rows: Vec<String> = (0..depth).map(row).collect();
    let constant = format!("const([{}], float32)", rows.join(", "));
    let (param, columns) = match codebook {
        true => (String::new(), constant),
        false => (format!(", %columns: Tensor[({depth}, {m}), float32]"), "%columns".to_owned()),
    };
    format!(
        "def @main(%x: Tensor[({n}, {depth}), float32]{param}) -> Tensor[({n}, {m}), float32] {{
            let %d = audio.distances(%x, {columns});
            let %b = add(%d, const(0.25, float32));
            sqrt(%b)
        }}"
    )
}

fn compiled(text: &str) -> Compilation {
    let options = CompileOptions::new(Target::host());
    let model = Model::from_module("distances", parse_module(text).unwrap());
    compile(&model, &options, &Passes::new(&options).unwrap()).unwrap()
}

#[test]
fn tiles_of_all_sizes_compute_the_distances() {
    for (n, depth, m) in [(1, 7, 64), (13, 40, 100), (29, 3, 17), (64, 64, 256)] {
        let text = model(n, depth, m, true);
        let compilation = compiled(&text);
        let loops = &compilation.model.kernels.rows[0].loops[0];
        assert_eq!((loops.rule, &loops.missed), ("tiles of distances", &None), "{n} {depth} {m}");
        assert_eq!(compilation.model.kernels.rows[0].macs, (n * depth * m).unsigned_abs());

        let x = Tensor::from_floats(
            DType::F32,
            &[usize::try_from(n).unwrap(), usize::try_from(depth).unwrap()],
            numbers(n * depth),
        );
        let x = x.unwrap();
        let module = parse_module(&text).unwrap();
        let expected = evaluate(&module, "main", &[x.clone().into()]).unwrap();
        let expected: Constant = expected.as_tensor().unwrap().to_constant().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("distances.so");
        let options = CompileOptions::new(Target::host());
        write_shared_library(&compilation.model, &options.target, &path).unwrap();
        let mut loaded = LoadedModel::load(&compilation.model, &path).unwrap();
        for place in 0..compilation.model.levels.len() {
            if loaded.limit_level(place) != place {
                continue;
            }
            let found = loaded.run(&[x.to_constant().unwrap()]).unwrap();
            assert_eq!(found[0].to_f64_vec(), expected.to_f64_vec(), "{n} {depth} {m} {place}");
        }
    }
}

#[test]
fn what_the_rule_did_can_be_done_again() {
    let compilation = compiled(&model(13, 40, 100, true));
    let kernel = compilation.program.kernels.values().next().unwrap();
    let Scheduled { from, traces } = kernel.scheduled.as_ref().unwrap();
    assert_eq!(traces.len(), compilation.model.levels.len());
    for trace in traces {
        let mut again = Schedule::new(from.clone());
        let read: Trace = trace.to_string().parse().unwrap();
        read.replay(&mut again).unwrap();
        assert_eq!(again.trace(), trace);
        assert!(trace.to_string().contains("vectorize("), "{trace}");
    }
}

#[test]
fn a_codebook_that_is_computed_takes_generic_loops() {
    let compilation = compiled(&model(13, 40, 100, false));
    let rules = |row: &niello::executor::KernelRow| row.loops[0].rule;
    assert!(compilation.model.kernels.rows.iter().all(|row| rules(row) != "tiles of distances"));
}

/// A rule that takes an operator of niello's, and fails.
struct Failing;

niello::register_schedule_rule!(Failing);

impl ScheduleRule for Failing {
    type Knobs = &'static str;

    fn name(&self) -> &'static str {
        "failing rule"
    }

    fn anchor(&self, dag: &ComputeDag) -> Option<StageId> {
        dag.ids().find(|&stage| dag.stages[stage].op == "atan")
    }

    fn knobs(&self, _: &Task<'_>, _: Option<&Self::Knobs>) -> Vec<Self::Knobs> {
        vec!["no way"]
    }

    fn apply(
        &self,
        schedule: &mut Schedule,
        _: &Task<'_>,
        _: &Self::Knobs,
    ) -> Result<(), ScheduleError> {
        schedule.get_block("nothing").map(drop)
    }
}

#[test]
fn a_rule_that_fails_leaves_a_remark_and_generic_loops() {
    let text = "def @main(%x: Tensor[(64), float32]) -> Tensor[(64), float32] { atan(%x) }";
    let row = compiled(text).model.kernels.rows.remove(0);
    let missed = row.loops[0].missed.as_deref().unwrap_or_default();
    assert!(missed.starts_with("failing rule: get_block: there is no block `nothing`"), "{missed}");
}
