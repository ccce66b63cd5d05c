//! Softmax and norms in the memory of what they are computed of.

use super::*;
use crate::graph::interp::{Tolerance, Value, compare, evaluate};
use crate::graph::parse_module;

const ROWS: i64 = 24;

/// A product, two operators on its rows of so many elements, and a product of what they make.
fn rows_between_products(first: &str, second: &str, length: i64) -> String {
    format!(
        "def @main(%x: Tensor[({ROWS}, 8), float32], %w: Tensor[(8, {length}), float32], \
         %v: Tensor[({length}, 5), float32]) -> Tensor[({ROWS}, 5), float32] {{
            %0 = nn.matmul(%x, %w);
            %1 = {first}(%0{});
            %2 = {second}(%1{});
            nn.matmul(%2, %v)
        }}",
        rest(first),
        rest(second),
    )
}

fn rest(op: &str) -> &'static str {
    match op {
        "nn.softmax" => ", axis=-1",
        _ => ", _, _, axis=-1, epsilon=1e-05",
    }
}

fn input(shape: &[i64], seed: i64) -> Constant {
    let value = |at: i64| ((at * 37 + seed * 11) % 23) as f32 / 16.0 - 0.7;
    let count = shape.iter().product::<i64>();
    Constant::from_f32(shape, &(0..count).map(value).collect::<Vec<_>>()).unwrap()
}

#[test]
fn rows_take_the_place_of_what_they_are_made_of_if_no_element_is_read_twice() {
    let cases = [("nn.softmax", "nn.layer_norm"), ("nn.layer_norm", "nn.softmax")];
    // The last group of 75 elements begins among those of the one before.
    for ((first, second), length) in cases.iter().flat_map(|&c| [(c, 64), (c, 75)]) {
        let module = parse_module(&rows_between_products(first, second, length)).unwrap();
        let inputs = [input(&[ROWS, 8], 1), input(&[8, length], 2), input(&[length, 5], 3)];
        let values: Vec<Value> =
            inputs.iter().map(|x| Tensor::from_constant(x).unwrap().into()).collect();
        let expected = evaluate(&module, "main", &values).unwrap();
        let result = expected.as_tensor().unwrap().to_constant().unwrap();
        let model = Model::from_module("rows", module);
        for (&backend, threads) in Backend::ALL.iter().flat_map(|b| [(b, 1), (b, 3)]) {
            let options = CompileOptions { backend, threads, ..options() };
            let compilation = run(&model, &options).unwrap();
            let kernels = compilation.program.kernels.values();
            let in_place = kernels.filter(|kernel| !kernel.signature().inplace.is_empty()).count();
            let both = [("nn.softmax", 64), ("nn.layer_norm", 64), ("nn.layer_norm", 75)];
            let expected = [first, second].into_iter().filter(|&op| both.contains(&(op, length)));
            assert_eq!(in_place, expected.count(), "{first}, {second}, {length}");
            for loaded in load(&compilation.model, &options) {
                let found = loaded.run(&inputs).unwrap();
                compare(&found[0], &result, Tolerance::near(&result))
                    .unwrap_or_else(|why| panic!("{backend}, {first}, {length}: {why}"));
            }
        }
    }
}
