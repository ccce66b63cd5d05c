//! Models that run call by call, with values in blocks.

use serde_json::json;

use super::*;
use crate::executor::{GraphExecutor, graph_json};
use crate::options::Executor;

/// Four products by one matrix, and another shape of the last one.
const CHAIN: &str = "def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(4, 4), float32]) -> (Tensor[(2, 4), float32], Tensor[(8), float32]) {
  %0 = nn.dense(%x, %w);
  %1 = nn.dense(%0, %w);
  %2 = nn.dense(%1, %w);
  %3 = nn.dense(%2, %w);
  (%3, reshape(%2, newshape=[8]))
}";

fn chain() -> Model {
    Model::from_module("chain", crate::graph::parse_module(CHAIN).unwrap())
}

fn inputs() -> [Constant; 2] {
    let values = |count: i64| (0..count).map(|i| i as f32 / 8.0 - 0.5).collect::<Vec<_>>();
    [[2, 4], [4, 4]].map(|shape| Constant::from_f32(&shape, &values(shape[0] * shape[1])).unwrap())
}

#[test]
fn blocks_and_offsets_give_the_same_outputs() {
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, ..options() };
        let expected = load_one(&run(&chain(), &options).unwrap().model, &options).run(&inputs());
        let options = CompileOptions { executor: Executor::Graph, ..options };
        let Compilation { model, program, plan, .. } = run(&chain(), &options).unwrap();
        assert_eq!((plan.arena_bytes, plan.block_count > 0), (plan.token_bytes, true));
        for loaded in load(&model, &options) {
            let run = GraphExecutor::new(&loaded, &program, &plan, &inputs()).unwrap();
            assert_eq!(run.finish(), expected);
            assert_eq!(loaded.run(&inputs()), expected);
        }
    }
}

#[test]
fn the_graph_is_in_the_form_of_tvm() {
    let options = CompileOptions { executor: Executor::Graph, ..options() };
    let Compilation { program, plan, code, .. } = run(&chain(), &options).unwrap();
    let graph = graph_json(&program, &plan, code.entry().unwrap());
    let nodes = graph["nodes"].as_array().unwrap();
    assert_eq!(graph["arg_nodes"], json!([0, 1]));
    assert_eq!(nodes[0], json!({"op": "null", "name": "x", "inputs": []}));
    assert_eq!(nodes[2]["attrs"]["num_inputs"], "2");
    assert_eq!(nodes[2]["inputs"], json!([[0, 0, 0], [1, 0, 0]]));
    assert_eq!(nodes[3]["inputs"], json!([[2, 0, 0], [1, 0, 0]]));
    let symbol = nodes[2]["attrs"]["func_name"].as_str().unwrap();
    assert!(symbol.contains("nn_dense"), "{symbol}");
    assert_eq!(graph["heads"], json!([[5, 0, 0], [6, 0, 0]]));
    assert_eq!(nodes[6]["attrs"]["func_name"], "__nop");
    assert_eq!(graph["node_row_ptr"], json!([0, 1, 2, 3, 4, 5, 6, 7]));
    let attrs = |name: &str| graph["attrs"][name][1].as_array().unwrap().clone();
    for name in ["dltype", "shape", "storage_id", "device_index", "offset"] {
        assert_eq!(attrs(name).len(), nodes.len(), "{name}");
    }
    assert_eq!(attrs("shape")[6], json!([8]));
    let storage = attrs("storage_id");
    // The third product is an output, as is its view; the others are in the workspace.
    assert_eq!(storage[4], storage[6]);
    assert!(storage[2] != storage[3] && storage[5] != storage[4]);
    assert_eq!((&attrs("offset")[0], &attrs("offset")[2]), (&json!(-1), &json!(0)));
}

#[test]
fn metadata_tell_interface_memory_and_passes() {
    let options = options();
    let passes = Passes::new(&options).unwrap();
    let compilation = compile(&chain(), &options, &passes).unwrap();
    let metadata = compilation.metadata(&options, &passes).unwrap();
    assert_eq!(metadata["inputs"][1], json!({"name": "w", "dtype": "float32", "shape": [4, 4]}));
    assert_eq!(metadata["outputs"][1]["shape"], json!([8]));
    assert_eq!(metadata["macs"], 4 * 2 * 4 * 4);
    assert_eq!(metadata["devices"], json!([{"device": "cpu", "code_generator": "c"}]));
    let memory = &metadata["memory"];
    assert_eq!(memory["workspace_bytes"], compilation.model.workspace_bytes);
    // The first two products.
    assert_eq!(memory["values"].as_array().unwrap().len(), 2);
    assert_eq!(memory["values"][0]["bytes"], 32);
    // From the call that computes it to the one that reads it.
    assert_eq!(memory["values"][0]["steps"], json!([0, 1]));
    assert_eq!(memory["values"][1]["steps"], json!([1, 2]));
    let passes = metadata["passes"].as_array().unwrap();
    assert!(passes.contains(&json!("FuseOps")), "{passes:?}");
}

#[test]
fn blocks_are_of_one_device() {
    let text = "def @main(%x: Tensor[(8), float32]) -> Tensor[(8), float32] {
  %0 = on_device(cumsum(%x, axis=0), device_type=2);
  %1 = cumsum(%0, axis=0);
  %2 = on_device(cumsum(%1, axis=0), device_type=2);
  cumsum(%2, axis=0)
}";
    let model = Model::from_module("devices", crate::graph::parse_module(text).unwrap());
    let plain = text.replace("on_device(", "").replace(", device_type=2)", "");
    let plain = Model::from_module("plain", crate::graph::parse_module(&plain).unwrap());
    let options = CompileOptions { executor: Executor::Graph, ..options() };
    let Compilation { model, program, plan, code, .. } = run(&model, &options).unwrap();
    let graph = graph_json(&program, &plan, code.entry().unwrap());
    let list = |name: &str| graph["attrs"][name][1].as_array().unwrap().clone();
    // An input, four sums, and the three copies between them.
    assert_eq!(json!(list("device_index")), json!([2, 2, 1, 1, 2, 2, 1, 1]));
    let mut of_block = std::collections::BTreeMap::new();
    for (block, device) in list("storage_id").iter().zip(list("device_index")) {
        assert_eq!(of_block.entry(block.to_string()).or_insert_with(|| device.clone()), &device);
    }
    let input = [Constant::from_f32(&[8], &[0.5; 8]).unwrap()];
    let expected = load_one(&run(&plain, &options).unwrap().model, &options).run(&input);
    assert_eq!(load_one(&model, &options).run(&input), expected);
}
