//! Concatenations and slices whose values are parts of others, beside the same models run with values
//! in blocks of their own, which have none.

use super::*;
use crate::executor::{GraphExecutor, interpret};
use crate::options::Executor;

/// A model of `float32`, with weights that look random.
struct Net {
    builder: ModelBuilder,
    inputs: Vec<Constant>,
    weights: usize,
}

fn values(shape: &[i64], seed: i64) -> Constant {
    let count = shape.iter().product::<i64>();
    let value = |at: i64| ((at * 37 + seed * 11) % 23) as f32 / 16.0 - 0.7;
    Constant::from_f32(shape, &(0..count).map(value).collect::<Vec<_>>()).unwrap()
}

fn dims(shape: &[i64]) -> Vec<ModelDim> {
    shape.iter().map(|&extent| extent.into()).collect()
}

impl Net {
    fn new() -> Net {
        Net { builder: ModelBuilder::new(13), inputs: Vec::new(), weights: 0 }
    }

    fn input(mut self, name: &str, shape: &[i64]) -> Net {
        self.inputs.push(values(shape, self.inputs.len() as i64));
        self.builder = self.builder.input(name, DType::F32, &dims(shape));
        self
    }

    /// An operator with weights as its second operand.
    fn weighted(mut self, op: &str, x: &str, shape: &[i64], y: &str) -> Net {
        self.weights += 1;
        let name = format!("w{}", self.weights);
        let pads = shape.last().map_or(0, |taps| taps / 2);
        let attrs = [("pads", [pads; 4].into())];
        let attrs = if op == "Conv" { &attrs[..] } else { &[] };
        self.builder = self.builder.initializer(&name, &values(shape, self.weights as i64)).node(
            op,
            &[x, &name],
            &[y],
            attrs,
        );
        self
    }

    fn conv(self, x: &str, shape: [i64; 3], y: &str) -> Net {
        let [out, channels, taps] = shape;
        self.weighted("Conv", x, &[out, channels, taps, taps], y)
    }

    fn matmul(self, x: &str, shape: [i64; 2], y: &str) -> Net {
        self.weighted("MatMul", x, &shape, y)
    }

    fn concat(mut self, parts: &[&str], axis: i64, y: &str) -> Net {
        self.builder = self.builder.node("Concat", parts, &[y], &[("axis", axis.into())]);
        self
    }

    fn split(mut self, x: &str, sizes: &[i64], axis: i64, parts: &[&str]) -> Net {
        self.weights += 1;
        let name = format!("sizes{}", self.weights);
        let sizes = Constant::from_i64(&[sizes.len() as i64], sizes).unwrap();
        self.builder = self.builder.initializer(&name, &sizes).node(
            "Split",
            &[x, &name],
            parts,
            &[("axis", axis.into())],
        );
        self
    }

    fn output(mut self, name: &str, shape: &[i64]) -> Net {
        self.builder = self.builder.output(name, DType::F32, &dims(shape));
        self
    }

    /// Compiles and runs the model in every way, which must all give the same, and returns how many
    /// values are parts of others and how many steps copy what is concatenated.
    #[track_caller]
    fn check(self) -> [usize; 2] {
        let proto = self.builder.build();
        let model = Model::from_onnx("parts", ModelFile { proto, folder: None, store: None });
        let mut found = None;
        for &backend in Backend::ALL {
            let options = CompileOptions { backend, ..options() };
            let blocks = CompileOptions { executor: Executor::Graph, ..options.clone() };
            let plain = run(&model, &blocks).unwrap();
            assert_eq!(plain.program.count_parts(), 0);
            let expected = load_one(&plain.model, &blocks).run(&self.inputs).unwrap();
            let options = CompileOptions { single_calls: true, ..options };
            let Compilation { model, program, plan, .. } = run(&model, &options).unwrap();
            assert!(plan.arena_bytes <= plan.token_bytes);
            assert_eq!(interpret(&program, 0, &self.inputs).unwrap(), expected);
            for loaded in load(&model, &options) {
                assert_eq!(loaded.run(&self.inputs).unwrap(), expected);
                assert_eq!(loaded.run(&self.inputs).unwrap(), expected);
                let mut call = GraphExecutor::new(&loaded, &program, &plan, &self.inputs).unwrap();
                call.values().unwrap();
                assert_eq!(call.finish().unwrap(), expected);
            }
            let copies = program.steps.iter().filter(|step| {
                program.kernels[step.kernel].signature().name.starts_with("copy_part")
            });
            let counts = [program.count_parts(), copies.count()];
            assert_eq!(*found.get_or_insert(counts), counts);
        }
        found.unwrap()
    }
}

/// Two branches side by side, in blocks of channels.
fn fire(first: i64, second: i64, taps: i64) -> Net {
    Net::new()
        .input("x", &[1, 16, 6, 5])
        .conv("x", [16, 16, 1], "s")
        .conv("s", [first, 16, 1], "a")
        .conv("s", [second, 16, 3], "b")
        .concat(&["a", "b"], 1, "c")
        .conv("c", [16, first + second, taps], "y")
        .output("y", &[1, 16, 6, 5])
}

#[test]
fn convolutions_store_to_their_concatenation() {
    assert_eq!(fire(16, 32, 1).check(), [2, 0]);
    // The last part may end in a block, others may not.
    assert_eq!(fire(16, 20, 1).check(), [2, 0]);
    assert_eq!(fire(20, 16, 1).check(), [0, 0]);
    // The concatenation has a border, its operands have none.
    assert_eq!(fire(16, 32, 3).check(), [0, 0]);
}

#[test]
fn borders_of_parts_are_those_of_the_whole() {
    let net = Net::new()
        .input("x", &[1, 16, 6, 5])
        .conv("x", [16, 16, 1], "a")
        .conv("a", [32, 16, 3], "b")
        .conv("b", [16, 32, 3], "d")
        .concat(&["a", "b"], 1, "c")
        .conv("c", [16, 48, 3], "y")
        .output("y", &[1, 16, 6, 5])
        .output("d", &[1, 16, 6, 5]);
    assert_eq!(net.check(), [2, 0]);
}

#[test]
fn images_side_by_side_are_no_parts() {
    let net = Net::new()
        .input("x", &[2, 16, 4, 4])
        .conv("x", [16, 16, 1], "a")
        .conv("a", [16, 16, 1], "b")
        .concat(&["a", "b"], 1, "c")
        .conv("c", [16, 32, 1], "y")
        .output("y", &[2, 16, 4, 4]);
    assert_eq!(net.check(), [0, 0]);
}

/// Products of matrices, of which a concatenation is made.
fn products() -> Net {
    Net::new().input("x", &[1, 4, 16]).matmul("x", [16, 16], "a").matmul("x", [16, 16], "b").matmul(
        "x",
        [16, 16],
        "d",
    )
}

#[test]
fn operands_with_a_place_of_their_own_are_copied() {
    let sum = |net: Net, rows: i64| net.matmul("c", [16, 8], "y").output("y", &[1, rows, 8]);
    assert_eq!(sum(products().concat(&["a", "b"], 1, "c"), 8).check(), [2, 0]);
    // An input of the model.
    assert_eq!(sum(products().concat(&["a", "x", "b"], 1, "c"), 12).check(), [3, 1]);
    // One and the same twice.
    assert_eq!(sum(products().concat(&["a", "a"], 1, "c"), 8).check(), [2, 1]);
    // An output of the model.
    let net = products().concat(&["a", "b", "d"], 1, "c").output("a", &[1, 4, 16]);
    assert_eq!(sum(net, 12).check(), [3, 1]);
    // A constant.
    let mut net = products();
    net.builder = net.builder.initializer("k", &values(&[1, 4, 16], 5));
    assert_eq!(sum(net.concat(&["a", "k", "b"], 1, "c"), 12).check(), [3, 1]);
    // More than half of the operands: one kernel copies all.
    assert_eq!(sum(products().concat(&["x", "a", "x"], 1, "c"), 12).check(), [0, 0]);
    // Others are between the rows of each operand.
    let net = products().concat(&["a", "b"], 2, "c");
    let net = net.matmul("c", [32, 8], "y").output("y", &[1, 4, 8]);
    assert_eq!(net.check(), [0, 0]);
}

#[test]
fn a_concatenation_may_be_an_output_and_part_of_another_one() {
    let net = products().concat(&["a", "b"], 1, "c").output("c", &[1, 8, 16]);
    assert_eq!(net.check(), [2, 0]);
    // The first has the operand, the second a copy.
    let net = products()
        .concat(&["a", "b"], 1, "c")
        .concat(&["d", "a"], 1, "e")
        .matmul("c", [16, 8], "y")
        .matmul("e", [16, 8], "z")
        .output("y", &[1, 8, 8])
        .output("z", &[1, 8, 8]);
    assert_eq!(net.check(), [4, 1]);
    // Read between the two, or they would be one.
    let net = products()
        .concat(&["a", "b"], 1, "c")
        .matmul("c", [16, 8], "z")
        .concat(&["d", "c"], 1, "e")
        .matmul("e", [16, 8], "y")
        .output("z", &[1, 8, 8])
        .output("y", &[1, 12, 8]);
    assert_eq!(net.check(), [4, 0]);
}

#[test]
fn slices_are_read_where_they_are() {
    let split = |rows: [i64; 2], shape: &[i64], taps: [i64; 2]| {
        let net = Net::new().input("x", shape);
        let net = net.matmul("x", [shape[2], 16], "a");
        net.split("a", &rows, 1, &["b", "c"])
            .matmul("b", taps, "y")
            .matmul("c", taps, "z")
            .output("y", &[1, rows[0], taps[1]])
            .output("z", &[1, rows[1], taps[1]])
    };
    assert_eq!(split([3, 5], &[1, 8, 16], [16, 8]).check(), [2, 0]);
    let net = Net::new()
        .input("x", &[1, 16, 4, 4])
        .conv("x", [48, 16, 1], "a")
        .split("a", &[16, 32], 1, &["b", "c"])
        .conv("b", [16, 16, 1], "y")
        .conv("c", [16, 32, 1], "d")
        .concat(&["d", "b"], 1, "e")
        .conv("e", [16, 32, 1], "z")
        .output("y", &[1, 16, 4, 4])
        .output("z", &[1, 16, 4, 4]);
    assert_eq!(net.check(), [4, 1]);
    // An output of the model has memory of the caller.
    let net = Net::new()
        .input("x", &[1, 8, 16])
        .matmul("x", [16, 16], "a")
        .split("a", &[4, 4], 1, &["b", "c"])
        .matmul("b", [16, 16], "y")
        .output("c", &[1, 4, 16])
        .output("y", &[1, 4, 16]);
    assert_eq!(net.check(), [0, 0]);
}

#[test]
fn memory_decides_what_is_joined() {
    // A small tensor waits for larger ones: the place of both would be there from the start.
    let net = Net::new()
        .input("x", &[1, 16, 4, 4])
        .conv("x", [16, 16, 1], "skip")
        .conv("skip", [48, 16, 1], "wide")
        .conv("wide", [48, 48, 1], "wider")
        .conv("wider", [16, 48, 1], "narrow")
        .concat(&["skip", "narrow"], 1, "c")
        .conv("c", [16, 32, 1], "y")
        .output("y", &[1, 16, 4, 4]);
    assert_eq!(net.check(), [2, 1]);
}
