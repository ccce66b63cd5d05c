//! Random networks, computed in every way that there is: by the interpreter as imported and after
//! the passes of each level, by the interpreter of loop programs, and by the code of each backend
//! at each level, at the default one for each CPU level. All must agree within the table of
//! tolerances.
//!
//! `NIELLO_DIFF_CASES` sets how many cases are run, `NIELLO_DIFF_SEED` which: see docs/testing.md.

mod fusion;
mod stages;
mod threads;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::env;
use std::str::FromStr;

use niello::ir::DType;
use niello::ops;
use niello::options::MAX_OPT_LEVEL;
use niello_tests::random::network::{Network, random_network};
use proptest::prelude::{ProptestConfig, Strategy, prop};
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestCaseError, TestRunner};

/// Cases of a run without `NIELLO_DIFF_CASES`; each is a module of several networks.
const CASES: u32 = 3;

/// Networks of one module: they are compiled together, as starting a compiler takes long.
const PARTS: usize = 16;

/// Types of inputs; those that occur more often are likelier.
const DTYPES: &[DType] = &[
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::Bool,
    DType::U8,
    DType::F32,
    DType::I8,
    DType::U32,
    DType::I16,
    DType::U64,
    DType::U16,
];

/// Cases in which every operator that the generator knows occurs.
const COVERING_CASES: usize = 40;

/// Operators that are in no network: only quantised models have them, the result depends on the
/// order of updates with equal indices, a rounding of their operands leads to another place or tree,
/// or the result is of a size that a run computes. Tests of schedules and of models have these.
const WITHOUT: [&str; 13] = [
    "image.grid_sample",
    "nn.max_pool_indices",
    "qnn.dequantize",
    "qnn.dequantize_matmul",
    "qnn.quantize",
    "qnn.requantize",
    "reinterpret",
    "scatter_elements",
    "tree_sum",
    "tree_traverse",
    "truncate",
    "vision.non_max_suppression",
    "vision.roi_align",
];

fn setting<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

fn seed() -> u64 {
    setting("NIELLO_DIFF_SEED", 7)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::with_cases(setting("NIELLO_DIFF_CASES", CASES))
    }
}

/// Lists of choices; a failing case is shrunk to shorter and fewer lists.
fn parts() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(0u32..10_000, 0..200), 1..2 * PARTS)
}

#[test]
fn every_stage_backend_and_level_computes_the_same() {
    // While a failing case is shrunk, other levels do not matter.
    let failed = Cell::new(None);
    let result = TestRunner::new(config()).run(&parts(), |parts| {
        let network = random_network(&parts, DTYPES);
        let levels = failed.get().map_or(0..=MAX_OPT_LEVEL, |level| level..=level);
        for level in levels {
            stages::check(&network, level).map_err(|difference| {
                if failed.replace(Some(level)).is_none() {
                    eprintln!("-O{level}: {difference}; looking for a smaller module");
                }
                let module = &network.module;
                TestCaseError::fail(format!("seed {}, -O{level}: {difference}\n{module}", seed()))
            })?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn machines_without_vectors_compute_the_same() {
    let result = TestRunner::new(config()).run(&parts(), |parts| {
        let network = random_network(&parts, DTYPES);
        stages::check_without_vectors(&network).map_err(|difference| {
            TestCaseError::fail(format!("seed {}: {difference}\n{}", seed(), network.module))
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn no_number_of_threads_changes_a_bit() {
    let parallel = Cell::new(0);
    let result = TestRunner::new(config()).run(&parts(), |parts| {
        let network = random_network(&parts, DTYPES);
        let found = threads::check(&network).map_err(|difference| {
            TestCaseError::fail(format!("seed {}: {difference}\n{}", seed(), network.module))
        })?;
        parallel.set(parallel.get() + found);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(parallel.get() >= 20, "{} functions with parallel loops", parallel.get());
}

#[test]
fn the_networks_have_every_operator() {
    let mut runner = TestRunner::new(config());
    let mut found = BTreeSet::new();
    for _ in 0..COVERING_CASES {
        let parts = parts().new_tree(&mut runner).expect("nothing is rejected").current();
        let Network { operators, .. } = random_network(&parts, DTYPES);
        found.extend(operators);
    }
    let missing: BTreeSet<_> =
        ops::all().iter().map(|op| op.name).filter(|name| !found.contains(name)).collect();
    assert_eq!(missing, BTreeSet::from(WITHOUT), "the operators that no network has");
}
