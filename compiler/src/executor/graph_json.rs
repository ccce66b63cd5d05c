//! A program as JSON in the form of TVM's graph executor.

use cranelift_entity::SecondaryMap;
use serde_json::{Value as Json, json};

use super::aot::{Entry, Pointer};
use super::{Program, ValueId};
use crate::memory::MemoryPlan;
use crate::tir::ParamKind;

/// A program whose memory is planned in blocks, as TVM's graph executor reads it: `nodes` in the
/// order of the calls, `arg_nodes` (inputs and constants), `heads`, `node_row_ptr`, and in `attrs`
/// for each tensor `dltype`, `shape` (as it lies in memory), `storage_id` and `device_index`.
///
/// Beside these, `offset` says how many bytes behind the begin of the workspace, or of the weights
/// for a constant, a tensor is: -1 for what is in memory of the caller. `func_name` is the function
/// of the narrowest CPU level, and `__nop` another shape of the same memory.
pub fn graph_json(program: &Program, plan: &MemoryPlan, entry: &Entry) -> Json {
    let mut graph = Graph {
        program,
        plan,
        entries: SecondaryMap::new(),
        own_storage: SecondaryMap::new(),
        storages: plan.block_count,
        nodes: Vec::new(),
        arg_nodes: Vec::new(),
        row_ptr: vec![0],
        tensors: Vec::new(),
        constants: 0,
    };
    for (position, &input) in program.inputs.iter().enumerate() {
        let name = program.values[input].name.clone();
        graph.argument(input, &name, &Pointer::Input(position));
    }
    for (number, (step, call)) in program.steps.iter().zip(&entry.calls).enumerate() {
        let func = program.kernels[step.kernel].signature();
        let params = step.args.iter().zip(&call.args).zip(&func.params);
        let mut inputs = Vec::new();
        for ((&arg, pointer), _) in params.clone().filter(|(_, p)| p.kind != ParamKind::Output) {
            inputs.push(graph.entry(arg, pointer));
        }
        let outputs: Vec<(ValueId, &Pointer)> = params
            .filter(|(_, param)| param.kind == ParamKind::Output)
            .map(|((&arg, pointer), _)| (arg, pointer))
            .collect();
        let symbol = entry.functions[step.kernel].first().map_or("", String::as_str);
        graph.call(&format!("{}_{number}", func.name), symbol, &inputs, &outputs);
    }
    let copied = |output: usize| entry.copies.iter().find(|copy| copy.output == output);
    let heads: Vec<Json> = (program.outputs.iter().enumerate())
        .map(|(position, &output)| {
            let pointer = copied(position).map_or(Pointer::Output(position, 0), |copy| copy.from);
            graph.entry(output, &pointer)
        })
        .collect();
    let list = |of: fn(&Tensor) -> Json| graph.tensors.iter().map(of).collect::<Vec<_>>();
    json!({
        "nodes": graph.nodes,
        "arg_nodes": graph.arg_nodes,
        "heads": heads,
        "node_row_ptr": graph.row_ptr,
        "attrs": {
            "dltype": ["list_str", list(|tensor| json!(tensor.dtype))],
            "shape": ["list_shape", list(|tensor| json!(tensor.shape))],
            "storage_id": ["list_int", list(|tensor| json!(tensor.storage))],
            "device_index": ["list_int", list(|tensor| json!(tensor.device))],
            "offset": ["list_int", list(|tensor| json!(tensor.offset))],
        },
    })
}

/// A result of a node.
struct Tensor {
    dtype: String,
    shape: Vec<i64>,
    storage: usize,
    device: u32,
    offset: i64,
}

struct Graph<'a> {
    program: &'a Program,
    plan: &'a MemoryPlan,
    /// Node and result that compute each value, once it is in the graph.
    entries: SecondaryMap<ValueId, Option<[usize; 2]>>,
    /// The storage of values that are in no block of the plan.
    own_storage: SecondaryMap<ValueId, Option<usize>>,
    storages: usize,
    nodes: Vec<Json>,
    arg_nodes: Vec<usize>,
    row_ptr: Vec<usize>,
    tensors: Vec<Tensor>,
    constants: usize,
}

impl Graph<'_> {
    /// The reference to a value that is read, which is a constant or a view if no node has it yet.
    fn entry(&mut self, id: ValueId, pointer: &Pointer) -> Json {
        // Views that no node has, down to what they are views of.
        let (mut missing, mut at) = (Vec::new(), id);
        while self.entries[at].is_none() {
            missing.push(at);
            let Some((of, _)) = self.program.lies_in(at) else { break };
            at = of;
        }
        for id in missing.into_iter().rev() {
            let value = &self.program.values[id];
            if let Some((of, _)) = self.program.lies_in(id) {
                let inputs = [self.reference(of)];
                let name = format!("{}_{}", value.name, self.nodes.len());
                self.call(&name, "__nop", &inputs, &[(id, pointer)]);
            } else {
                let name = format!("p{}", self.constants);
                self.constants += 1;
                self.argument(id, &name, pointer);
            }
        }
        self.reference(id)
    }

    /// `[node, result, version]` of a value that a node has.
    fn reference(&self, id: ValueId) -> Json {
        let [node, result] = self.entries[id].unwrap_or_default();
        json!([node, result, 0])
    }

    /// A node without a function.
    fn argument(&mut self, id: ValueId, name: &str, pointer: &Pointer) {
        self.arg_nodes.push(self.nodes.len());
        self.node(json!({"op": "null", "name": name, "inputs": []}), &[(id, pointer)]);
    }

    fn call(&mut self, name: &str, symbol: &str, inputs: &[Json], outputs: &[(ValueId, &Pointer)]) {
        let attrs = json!({
            "func_name": symbol,
            "num_inputs": inputs.len().to_string(),
            "num_outputs": outputs.len().to_string(),
            "flatten_data": "0",
        });
        let node = json!({"op": "tvm_op", "name": name, "attrs": attrs, "inputs": inputs});
        self.node(node, outputs);
    }

    fn node(&mut self, node: Json, outputs: &[(ValueId, &Pointer)]) {
        for (result, &(id, pointer)) in outputs.iter().enumerate() {
            self.entries[id] = Some([self.nodes.len(), result]);
            let value = &self.program.values[id];
            let offset = match *pointer {
                Pointer::Weights(offset) | Pointer::Shared(offset) | Pointer::Workspace(offset) => {
                    i64::try_from(offset).unwrap_or(-1)
                }
                Pointer::Input(_) | Pointer::Output(..) | Pointer::Null => -1,
            };
            let storage = self.storage(id);
            self.tensors.push(Tensor {
                dtype: value.dtype.to_string(),
                shape: value.spec.physical_shape(),
                storage,
                device: self.program.device(id),
                offset,
            });
        }
        self.nodes.push(node);
        self.row_ptr.push(self.tensors.len());
    }

    /// The block of a value, or the storage of its own that it shares with its views.
    fn storage(&mut self, id: ValueId) -> usize {
        if let Some(block) = self.plan.blocks[id] {
            return block;
        }
        let mut root = id;
        while let Some((of, _)) = self.program.lies_in(root) {
            root = of;
        }
        *self.own_storage[root].get_or_insert_with(|| {
            self.storages += 1;
            self.storages - 1
        })
    }
}
