//! Which values of a graph hold `float32`, and which operators have a form for `float16`.

use std::collections::BTreeMap;

use super::attribute;
use crate::onnx::proto::{
    AttributeProto, DataType, GraphProto, NodeProto, TypeValue, ValueInfoProto,
};

/// Operators whose floats may be of 16 bits as well as of 32. Their first operand and their first
/// result are of one type but for [`RESULT_IS_NO_FLOAT`], and so are all other floats but for
/// [`FIRST_OPERAND_ONLY`]. What is not here stays `float32`: branches, loops, sequences, random
/// numbers, signals, and what computes with positions.
const HALF: [&str; 107] = [
    "Abs",
    "Add",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "Ceil",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cos",
    "CumSum",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "GRU",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "IsNaN",
    "LRN",
    "LSTM",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "LpPool",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "MeanVarianceNormalization",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "PRelu",
    "Pad",
    "Pow",
    "RMSNormalization",
    "RNN",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// Operators that had no `float16` before a version of the operator sets.
const HALF_SINCE: [(&str, i64); 2] = [("CumSum", 14), ("Equal", 11)];

/// Operators whose further operands stay `float32`: scales of sizes, a ratio.
const FIRST_OPERAND_ONLY: [&str; 2] = ["Dropout", "Resize"];

/// Operators whose results are integers or booleans.
const RESULT_IS_NO_FLOAT: [&str; 17] = [
    "And",
    "ArgMax",
    "ArgMin",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "Or",
    "Shape",
    "Size",
    "Xor",
];

/// Operators whose results but the first are integers, booleans or `float32` in any case.
const OTHER_RESULTS_STAY: [&str; 4] = ["Dropout", "LayerNormalization", "MaxPool", "TopK"];

/// Whether values are `float32`, as far as that is known.
pub(super) struct Floats<'a>(BTreeMap<&'a str, bool>);

impl<'a> Floats<'a> {
    /// What a graph says of its values, and what follows from that.
    pub(super) fn of(graph: &'a GraphProto) -> Floats<'a> {
        let ports = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
        let declared = ports.filter_map(|info| Some((info.name(), is_float(info)?)));
        let mut known: BTreeMap<&str, bool> = declared.collect();
        known.extend(graph.initializer.iter().map(|tensor| {
            let is_float = tensor.data_type == Some(DataType::Float as i32);
            (tensor.name(), is_float)
        }));
        for node in &graph.node {
            let first = first_result(node, &known);
            for (position, name) in node.output.iter().enumerate() {
                let result = match (position, node.op_type()) {
                    (0, _) => first,
                    (_, "LayerNormalization") => Some(true),
                    (_, op) if OTHER_RESULTS_STAY.contains(&op) => Some(false),
                    _ => first,
                };
                if let Some(result) = result
                    && !name.is_empty()
                {
                    known.entry(name).or_insert(result);
                }
            }
        }
        Floats(known)
    }

    /// Whether a value is `float32`; `None` if nothing tells.
    pub(super) fn get(&self, value: &str) -> Option<bool> {
        self.0.get(value).copied()
    }

    /// The operands and results of a node that are going to be `float16`, by position; `None` if the
    /// node stays as it is.
    pub(super) fn of_node(&self, node: &NodeProto, opset: i64) -> Option<(Vec<bool>, Vec<bool>)> {
        let op = node.op_type();
        let since = HALF_SINCE.iter().find(|(name, _)| *name == op).map_or(1, |(_, since)| *since);
        if !node.domain().is_empty() || HALF.binary_search(&op).is_err() || opset < since {
            return None;
        }
        let operands = node.input.iter().enumerate().map(|(position, name)| {
            let stays = name.is_empty() || (position > 0 && FIRST_OPERAND_ONLY.contains(&op));
            if stays { Some(false) } else { self.get(name) }
        });
        let operands: Vec<bool> = operands.collect::<Option<_>>()?;
        let results = node.output.iter().enumerate().map(|(position, name)| {
            let stays = position > 0 && OTHER_RESULTS_STAY.contains(&op);
            if stays || name.is_empty() { Some(false) } else { self.get(name) }
        });
        let results: Vec<bool> = results.collect::<Option<_>>()?;
        operands.contains(&true).then_some((operands, results))
    }
}

fn is_float(info: &ValueInfoProto) -> Option<bool> {
    match info.r#type.as_ref()?.value.as_ref()? {
        TypeValue::Tensor(tensor) => {
            Some(tensor.elem_type.filter(|&number| number != 0)? == DataType::Float as i32)
        }
        _ => Some(false),
    }
}

/// Whether a node's first result is `float32`.
fn first_result(node: &NodeProto, known: &BTreeMap<&str, bool>) -> Option<bool> {
    let operand = |position: usize| known.get(node.input.get(position)?.as_str()).copied();
    let of_tensor = |attribute: &AttributeProto| {
        let tensor = attribute.t.as_ref()?;
        Some(tensor.data_type == Some(DataType::Float as i32))
    };
    if !node.domain().is_empty() {
        return None;
    }
    match node.op_type() {
        "Cast" => Some(attribute(node, "to")?.i() == DataType::Float as i64),
        "Constant" => match node.attribute.first()? {
            value if value.name() == "value" => of_tensor(value),
            value => Some(value.name().starts_with("value_float")),
        },
        "ConstantOfShape" => attribute(node, "value").map_or(Some(true), of_tensor),
        "CastLike" | "Where" => operand(1),
        "OneHot" => operand(2),
        "Range" => operand(0),
        op if RESULT_IS_NO_FLOAT.contains(&op) => Some(false),
        op if HALF.binary_search(&op).is_ok() => operand(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_in_order() {
        assert!(HALF.is_sorted() && RESULT_IS_NO_FLOAT.is_sorted());
        for op in FIRST_OPERAND_ONLY.iter().chain(HALF_SINCE.iter().map(|(op, _)| op)) {
            assert!(HALF.contains(op), "{op}");
        }
    }
}
