//! A model that was written as `graph.json` and shared library, read back.

use std::path::Path;

use serde_json::Value as Json;

use super::library::exchange_order;
use super::{LoadedModel, TensorInfo};
use crate::diagnostics::Problem;
use crate::ir::{Constant, DType, SharedBytes, TensorType};

/// What [`graph_json`](super::graph_json) and [`write_shared_library`](super::write_shared_library)
/// wrote of a model, ready to run: nothing else is needed, and nothing is compiled.
#[derive(Debug)]
pub struct GraphModule {
    model: LoadedModel,
    graph: Graph,
}

/// What a graph says.
#[derive(Debug)]
struct Graph {
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    calls: Vec<Call>,
}

/// A node that calls a kernel.
#[derive(Debug)]
struct Call {
    name: String,
    results: Vec<Tensor>,
}

/// A result of a node.
#[derive(Clone, Debug)]
struct Tensor {
    dtype: DType,
    shape: Vec<u64>,
    /// Bytes before it in the workspace; `None` in memory of the caller.
    offset: Option<usize>,
}

impl Tensor {
    fn ty(&self) -> Option<TensorType> {
        let dims = self.shape.iter().map(|&extent| i64::try_from(extent).ok());
        Some(TensorType::from_consts(&dims.collect::<Option<Vec<_>>>()?, self.dtype))
    }

    fn info(&self, name: &str) -> TensorInfo {
        TensorInfo::new(name, self.dtype, &self.shape)
    }
}

impl GraphModule {
    /// Loads the graph at one path and the shared library at the other. Both must have been written
    /// by one compilation with [`Executor::Graph`](crate::options::Executor::Graph), for this
    /// machine: what the library does with memory is not checked.
    ///
    /// # Errors
    ///
    /// A file cannot be read, the graph is malformed, or the library has other calls than the graph.
    pub fn load(graph: &Path, library: &Path) -> Result<GraphModule, Problem> {
        let problem = |what: &dyn std::fmt::Display| {
            Problem::new(format!("{}: {what}", graph.display()))
                .help("`niello compile --executor graph --emit graph-json,shared` writes a graph")
        };
        let text = std::fs::read(graph).map_err(|error| problem(&error))?;
        let json: Json = serde_json::from_slice(&text).map_err(|error| problem(&error))?;
        let graph = Graph::of(&json).map_err(|error| problem(&error))?;
        let (inputs, outputs) = (graph.inputs.clone(), graph.outputs.clone());
        let model = LoadedModel::open(library, inputs, outputs, graph.calls.len())?;
        Ok(GraphModule { model, graph })
    }

    /// The inputs, in the model's order.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.graph.inputs
    }

    /// The outputs, in the model's order, under the names of the nodes that compute them.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.graph.outputs
    }

    /// Runs the model once.
    ///
    /// # Errors
    ///
    /// As [`LoadedModel::run`].
    pub fn run(&self, inputs: &[Constant]) -> Result<Vec<Constant>, Problem> {
        self.model.run(inputs)
    }

    /// Makes the calls of the graph's nodes one after the other, and returns what each leaves in the
    /// workspace, under the name of its node and the number of the result: tensors as they lie in
    /// memory, blocks of channels and borders included.
    ///
    /// # Errors
    ///
    /// A call fails, or a tensor is not in the workspace.
    pub fn values(&self, inputs: &[Constant]) -> Result<Vec<(String, Constant)>, Problem> {
        let mut run = self.model.call(inputs)?;
        let mut values = Vec::new();
        for (number, call) in self.graph.calls.iter().enumerate() {
            run.run_call(number)?;
            for (position, tensor) in call.results.iter().enumerate() {
                let Some(start) = tensor.offset else { continue };
                let name = format!("{}_{position}", call.name);
                let outside = || Problem::new(format!("`{name}` is not in the workspace"));
                let ty = tensor.ty().ok_or_else(outside)?;
                let bytes = ty.bytes().and_then(|bytes| usize::try_from(bytes).ok());
                let end = bytes.and_then(|bytes| start.checked_add(bytes)).ok_or_else(outside)?;
                let mut bytes = run.workspace(start..end).ok_or_else(outside)?;
                exchange_order(&mut bytes, ty.dtype);
                let value = Constant::new(ty, SharedBytes::new(bytes));
                values.push((name, value.map_err(|error| Problem::new(error.to_string()))?));
            }
        }
        Ok(values)
    }
}

impl Graph {
    /// Reads a graph; a message says what is wrong with it.
    fn of(json: &Json) -> Result<Graph, String> {
        let nodes = list(json, "nodes")?;
        let row_ptr = numbers(list(json, "node_row_ptr")?, "node_row_ptr")?;
        if row_ptr.len() != nodes.len() + 1 || !row_ptr.is_sorted() || row_ptr.first() != Some(&0) {
            return Err("`node_row_ptr` does not say where the results of each node begin".into());
        }
        let tensors = tensors(json)?;
        if row_ptr.last() != Some(&tensors.len()) {
            return Err("`attrs` are not of as many tensors as the nodes have results".into());
        }
        let results = |node: usize| tensors.get(row_ptr[node]..row_ptr[node + 1]).unwrap_or(&[]);
        let name = |node: usize| -> Result<&str, String> {
            let name = nodes.get(node).and_then(|node| node["name"].as_str());
            name.ok_or_else(|| format!("node {node} has no name"))
        };
        let mut inputs = Vec::new();
        let mut calls = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let known = |reference: &Json| {
                let [node, result] = reference_of(reference)?;
                (node < at && result < results(node).len()).then_some(())
            };
            if list(node, "inputs")?.iter().any(|reference| known(reference).is_none()) {
                return Err(format!("node {at} reads what no node before it computes"));
            }
            let called = node["attrs"]["func_name"].as_str();
            match (node["op"].as_str(), called) {
                (Some("null"), _) => {
                    // Constants are among the weights, which are in the library.
                    inputs.extend(match results(at) {
                        [input] if input.offset.is_none() => Some(input.info(name(at)?)),
                        _ => None,
                    });
                }
                (Some("tvm_op"), Some("__nop")) => {}
                (Some("tvm_op"), Some(_)) => {
                    calls.push(Call { name: name(at)?.to_owned(), results: results(at).to_vec() });
                }
                _ => return Err(format!("node {at} is neither `null` nor a call of a function")),
            }
        }
        let mut outputs = Vec::new();
        for (position, head) in list(json, "heads")?.iter().enumerate() {
            let tensor = reference_of(head)
                .filter(|&[node, _]| node < nodes.len())
                .and_then(|[node, result]| Some((node, results(node).get(result)?)));
            let (node, tensor) = tensor.ok_or(format!("head {position} is no result of a node"))?;
            outputs.push(tensor.info(name(node)?));
        }
        Ok(Graph { inputs, outputs, calls })
    }
}

/// The list of that name.
fn list<'a>(json: &'a Json, name: &str) -> Result<&'a Vec<Json>, String> {
    json[name].as_array().ok_or_else(|| format!("there is no list `{name}`"))
}

/// The attribute of all tensors of that name: `[type, list]`.
fn attribute<'a>(json: &'a Json, name: &str) -> Result<&'a Vec<Json>, String> {
    let list = json["attrs"][name][1].as_array();
    list.ok_or_else(|| format!("`attrs` have no list `{name}`"))
}

fn numbers(list: &[Json], name: &str) -> Result<Vec<usize>, String> {
    let number = |number: &Json| number.as_u64().and_then(|number| usize::try_from(number).ok());
    let numbers: Option<Vec<usize>> = list.iter().map(number).collect();
    numbers.ok_or_else(|| format!("`{name}` has what is no number"))
}

/// Node and result of `[node, result, version]`.
fn reference_of(json: &Json) -> Option<[usize; 2]> {
    let at = |position: usize| json.get(position)?.as_u64().and_then(|n| usize::try_from(n).ok());
    Some([at(0)?, at(1)?])
}

/// All results of nodes, in order.
fn tensors(json: &Json) -> Result<Vec<Tensor>, String> {
    let [dtypes, shapes, offsets] =
        [attribute(json, "dltype")?, attribute(json, "shape")?, attribute(json, "offset")?];
    if shapes.len() != dtypes.len() || offsets.len() != dtypes.len() {
        return Err("the lists of `attrs` differ in length".into());
    }
    let tensor = |((dtype, shape), offset): ((&Json, &Json), &Json)| {
        let dtype = dtype.as_str().and_then(|dtype| dtype.parse().ok())?;
        let shape = shape.as_array()?.iter().map(Json::as_u64).collect::<Option<_>>()?;
        let offset = match offset.as_i64()? {
            -1 => None,
            offset => Some(usize::try_from(offset).ok()?),
        };
        Some(Tensor { dtype, shape, offset })
    };
    let tensors = dtypes.iter().zip(shapes).zip(offsets).enumerate();
    tensors
        .map(|(at, parts)| tensor(parts).ok_or_else(|| format!("`attrs` of tensor {at} are wrong")))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn graph() -> Json {
        json!({
            "nodes": [
                {"op": "null", "name": "x", "inputs": []},
                {"op": "null", "name": "p0", "inputs": []},
                {"op": "tvm_op", "name": "add_0", "inputs": [[0, 0, 0], [1, 0, 0]],
                 "attrs": {"func_name": "add", "num_outputs": "1"}},
                {"op": "tvm_op", "name": "view_3", "inputs": [[2, 0, 0]],
                 "attrs": {"func_name": "__nop"}},
            ],
            "arg_nodes": [0, 1],
            "heads": [[3, 0, 0]],
            "node_row_ptr": [0, 1, 2, 3, 4],
            "attrs": {
                "dltype": ["list_str", ["float32", "float32", "float32", "float32"]],
                "shape": ["list_shape", [[2, 2], [2, 2], [2, 2], [4]]],
                "offset": ["list_int", [-1, 0, 64, 64]],
            },
        })
    }

    #[test]
    fn a_graph_says_what_goes_in_and_out() {
        let graph = Graph::of(&graph()).unwrap();
        assert_eq!(graph.inputs, [TensorInfo::new("x", DType::F32, &[2, 2])]);
        assert_eq!(graph.outputs, [TensorInfo::new("view_3", DType::F32, &[4])]);
        assert_eq!(graph.calls.len(), 1);
        assert_eq!(graph.calls[0].results[0].offset, Some(64));
    }

    #[test]
    fn malformed_graphs_are_refused() {
        let with = |change: &dyn Fn(&mut Json)| {
            let mut json = graph();
            change(&mut json);
            Graph::of(&json).unwrap_err()
        };
        assert_eq!(Graph::of(&json!([])).unwrap_err(), "there is no list `nodes`");
        for key in ["nodes", "heads", "node_row_ptr"] {
            let found = with(&|json| json[key] = Json::Null);
            assert_eq!(found, format!("there is no list `{key}`"));
        }
        let found = with(&|json| json["attrs"] = Json::Null);
        assert_eq!(found, "`attrs` have no list `dltype`");
        for row_ptr in [json!([0, 1, 2, 3]), json!([0, 2, 1, 3, 4]), json!([1, 1, 2, 3, 4])] {
            let found = with(&|json| json["node_row_ptr"] = row_ptr.clone());
            assert!(found.starts_with("`node_row_ptr` does not say"), "{found}");
        }
        let found = with(&|json| json["node_row_ptr"] = json!([0, 1, 2, 3, 5]));
        assert!(found.starts_with("`attrs` are not of as many"), "{found}");
        let found = with(&|json| json["node_row_ptr"][0] = json!(-1));
        assert_eq!(found, "`node_row_ptr` has what is no number");
        for offset in [json!(-2), json!("0"), json!(1.5)] {
            let found = with(&|json| json["attrs"]["offset"][1][2] = offset.clone());
            assert_eq!(found, "`attrs` of tensor 2 are wrong");
        }
        let found = with(&|json| json["attrs"]["dltype"][1][0] = json!("complex"));
        assert_eq!(found, "`attrs` of tensor 0 are wrong");
        let found = with(&|json| json["attrs"]["shape"][1] = json!([[4]]));
        assert_eq!(found, "the lists of `attrs` differ in length");
        for reference in [json!([2, 0, 0]), json!([1, 1, 0]), json!([]), json!("x")] {
            let found = with(&|json| json["nodes"][2]["inputs"][0] = reference.clone());
            assert_eq!(found, "node 2 reads what no node before it computes");
        }
        let found = with(&|json| json["nodes"][2]["op"] = json!("if"));
        assert_eq!(found, "node 2 is neither `null` nor a call of a function");
        let found = with(&|json| json["nodes"][2]["name"] = Json::Null);
        assert_eq!(found, "node 2 has no name");
        for head in [json!([9, 0, 0]), json!([3, 1, 0]), json!(3)] {
            let found = with(&|json| json["heads"][0] = head.clone());
            assert_eq!(found, "head 0 is no result of a node");
        }
    }
}
