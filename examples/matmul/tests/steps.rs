//! Every step computes the same product, and the tutorial shows the code that is here.

use matmul::{STEPS, peak, plain};
use niello::driver::{BuildTarget, NdArray};
use niello::ir::DType;
use niello::options::Backend;
use niello::schedule::Schedule;

const SIZE: i64 = 128;

#[test]
fn every_step_computes_the_product() {
    let count = (SIZE * SIZE) as usize;
    let data: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    let [a, b] = [0, 1].map(|_| NdArray::from_slice(&[SIZE, SIZE], &data).unwrap());
    for &backend in Backend::ALL {
        let target = BuildTarget::native(backend);
        for (name, step) in STEPS {
            let mut schedule = Schedule::new(plain(SIZE).unwrap());
            step(&mut schedule, &target.machine).unwrap();
            let module = niello::build([schedule.into_func()], &target).unwrap();
            let mut c = NdArray::zeros(DType::F32, &[SIZE, SIZE]).unwrap();
            module.function("matmul").unwrap().call((&a, &b, &mut c)).unwrap();
            let c = c.as_slice::<f32>().unwrap();
            for (i, j) in [(0, 0), (3, 100), (127, 127), (64, 17)] {
                let expected: f32 = (0..SIZE as usize)
                    .map(|k| data[i * SIZE as usize + k] * data[k * SIZE as usize + j])
                    .sum();
                assert_eq!(c[i * SIZE as usize + j], expected, "{name} by {backend}");
            }
        }
        niello::build([peak(&target.machine)], &target).unwrap();
    }
}

#[test]
fn the_tutorial_shows_the_code_that_is_here() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let tutorial = std::fs::read_to_string(format!("{root}/docs/tutorial-matmul.md")).unwrap();
    let source = include_str!("../src/lib.rs");
    let blocks: Vec<&str> = tutorial
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
        .collect();
    assert!(blocks.len() >= 5, "the tutorial has {} blocks of code", blocks.len());
    for block in blocks {
        assert!(source.contains(block.trim_end()), "not in src/lib.rs:\n{block}");
    }
}

#[test]
fn the_tutorial_shows_the_loops_that_are_printed() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let tutorial = std::fs::read_to_string(format!("{root}/docs/tutorial-matmul.md")).unwrap();
    let (_, rest) = tutorial.split_once("```text\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let printed = plain(1024).unwrap().to_string();
    assert!(printed.contains(shown.trim_end()), "{printed}");
}
