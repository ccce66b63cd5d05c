//! Batch normalisation, folded into the convolution before it.

use std::collections::BTreeMap;

use super::attribute;
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto};
use crate::onnx::tensor::constant_to_onnx;

/// The names of a graph's values, with how often each is read: by nodes, by graphs within them, as an
/// output.
pub(super) fn used_names(graph: &GraphProto) -> BTreeMap<String, usize> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        for tensor in &graph.initializer {
            names.entry(tensor.name().to_owned()).or_default();
        }
        for port in &graph.input {
            names.entry(port.name().to_owned()).or_default();
        }
        for output in &graph.output {
            *names.entry(output.name().to_owned()).or_default() += 1;
        }
        for node in &graph.node {
            node.output.iter().for_each(|name| _ = names.entry(name.clone()).or_default());
            node.input.iter().for_each(|name| *names.entry(name.clone()).or_default() += 1);
            let inner = node.attribute.iter();
            graphs.extend(inner.flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs)));
        }
    }
    names
}

/// Folds each batch normalisation of constant statistics into the convolution whose result nothing
/// else reads. The convolution then computes the value that the normalisation did.
pub(super) fn fold_batch_norm(graph: &mut GraphProto, constants: &mut BTreeMap<String, Constant>) {
    let uses = used_names(graph);
    let mut folded = Vec::new();
    let mut replaced = Vec::new();
    let producers: BTreeMap<String, usize> = graph
        .node
        .iter()
        .enumerate()
        .flat_map(|(at, node)| node.output.iter().map(move |name| (name.clone(), at)))
        .collect();
    for at in 0..graph.node.len() {
        let norm = &graph.node[at];
        let is_plain = |node: &NodeProto, op| node.op_type() == op && node.domain().is_empty();
        let Some(&before) = norm.input.first().and_then(|name| producers.get(name)) else {
            continue;
        };
        let conv = &graph.node[before];
        if !is_plain(norm, "BatchNormalization")
            || !is_plain(conv, "Conv")
            || norm.output.iter().filter(|name| !name.is_empty()).count() != 1
            || uses.get(&norm.input[0]) != Some(&1)
            || conv.input.get(1).and_then(|name| uses.get(name)) != Some(&1)
        {
            continue;
        }
        let Some((weight, bias)) = folded_weights(conv, norm, constants) else { continue };
        let weight_name = conv.input[1].clone();
        let bias_name = norm.input[2].clone();
        if uses.get(&bias_name) != Some(&1) {
            continue;
        }
        let output = norm.output[0].clone();
        replaced.extend(conv.input.get(2).cloned());
        replaced.extend(norm.input[1..].iter().cloned());
        let conv = &mut graph.node[before];
        let former = std::mem::replace(&mut conv.output[0], output);
        conv.input.truncate(2);
        conv.input.push(bias_name.clone());
        graph.value_info.retain(|info| info.name() != former);
        for (name, constant) in [(weight_name, weight), (bias_name, bias)] {
            let tensor = graph.initializer.iter_mut().find(|tensor| tensor.name() == name);
            if let (Some(tensor), Some(new)) = (tensor, constant_to_onnx(&constant, &name)) {
                *tensor = new;
            }
            constants.insert(name, constant);
        }
        folded.push(at);
    }
    let mut at = 0..;
    graph.node.retain(|_| at.next().is_none_or(|at| !folded.contains(&at)));
    let used = used_names(graph);
    graph.initializer.retain(|tensor| {
        let name = tensor.name();
        let is_used = used.get(name).is_some_and(|&uses| uses > 0);
        is_used || !replaced.iter().any(|former| former == name)
    });
}

/// Weights and bias of a convolution that also does what the normalisation after it does.
fn folded_weights(
    conv: &NodeProto,
    norm: &NodeProto,
    constants: &BTreeMap<String, Constant>,
) -> Option<(Constant, Constant)> {
    if attribute(norm, "training_mode").map_or(0, AttributeProto::i) != 0 {
        return None;
    }
    let epsilon = f64::from(attribute(norm, "epsilon").map_or(1e-5, AttributeProto::f));
    let weight = constants.get(&conv.input[1])?;
    let dims = weight.ty().shape.as_consts()?;
    let mut weights = weight.to_f64_vec()?;
    let channels = *dims.first()? as usize;
    let vector =
        |name: &String| constants.get(name)?.to_f64_vec().filter(|values| values.len() == channels);
    let [_, gamma, beta, mean, variance] = &norm.input[..] else { return None };
    let (gamma, beta) = (vector(gamma)?, vector(beta)?);
    let (mean, variance) = (vector(mean)?, vector(variance)?);
    let bias = match conv.input.get(2).filter(|name| !name.is_empty()) {
        Some(name) => vector(name)?,
        None => vec![0.0; channels],
    };
    let factors: Vec<f64> =
        gamma.iter().zip(&variance).map(|(gamma, v)| gamma / (v + epsilon).sqrt()).collect();
    let inner = weights.len().checked_div(channels)?;
    for (channel, factor) in factors.iter().enumerate() {
        weights[channel * inner..][..inner].iter_mut().for_each(|weight| *weight *= factor);
    }
    let bias: Vec<f64> =
        (0..channels).map(|c| (bias[c] - mean[c]) * factors[c] + beta[c]).collect();
    if weights.iter().chain(&bias).any(|&value| !(value as f32).is_finite()) {
        return None;
    }
    let float = |dims: &[u64], values: Vec<f64>| {
        let shape: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
        Tensor::from_floats(DType::F32, &shape, values).ok()?.to_constant().ok()
    };
    Some((float(&dims, weights)?, float(&[channels as u64], bias)?))
}
