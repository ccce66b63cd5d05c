//! Floats of 16 bits in the place of those of 32.
//!
//! Inputs and outputs stay `float32`, and so does what an operator reads and computes that has no
//! form for `float16` or whose types nothing tells: `Cast` goes between. A value has a new name in
//! `float16`, so that branches and loops, which may read the former one, stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::fold::used_names;
use super::half_types::Floats;
use super::{Writer, is_skipped};
use crate::graph::interp::Tensor;
use crate::ir::{Constant, DType};
use crate::onnx::model_builder::ModelAttr;
use crate::onnx::proto::{DataType, GraphProto};

/// The greatest number of `float16`.
const MAX_HALF: f64 = 65504.0;

/// The least positive number of `float16`: what is smaller stays that, as a divisor must not become 0.
const MIN_HALF: f64 = 1.0 / 16_777_216.0;

/// Makes `float16` of a graph's floats. Returns remarks, and the new names of values that exist in
/// `float16` alone.
pub(super) fn convert(
    graph: &mut GraphProto,
    constants: &BTreeMap<String, Constant>,
    skip: &[String],
    opset: i64,
) -> (Vec<String>, BTreeMap<String, String>) {
    let floats = Floats::of(graph);
    let plans: Vec<_> = graph
        .node
        .iter()
        .map(|node| floats.of_node(node, opset).filter(|_| !is_skipped(node, skip)))
        .collect();
    let mut needed: BTreeSet<String> = graph.output.iter().map(|o| o.name().to_owned()).collect();
    for (node, plan) in graph.node.iter().zip(&plans) {
        match plan {
            Some((operands, _)) => {
                let stay = node.input.iter().zip(operands).filter(|(_, becomes)| !**becomes);
                needed.extend(stay.map(|(name, _)| name.clone()));
            }
            None => {
                needed.extend(node.input.iter().cloned());
                let inner = node.attribute.iter();
                inner
                    .flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
                    .for_each(|graph| needed.extend(used_names(graph).into_keys()));
            }
        }
    }
    let mut converter = Converter {
        writer: Writer::new(graph),
        constants,
        halves: BTreeMap::new(),
        remarks: Vec::new(),
    };
    for (mut node, plan) in converter.writer.take_nodes().into_iter().zip(plans) {
        let Some((operands, results)) = plan else {
            converter.writer.push(node);
            continue;
        };
        for (name, becomes) in node.input.iter_mut().zip(operands) {
            if becomes {
                *name = converter.half(name);
            }
        }
        let mut casts = Vec::new();
        for (name, becomes) in node.output.iter_mut().zip(results) {
            if becomes {
                let half = converter.writer.fresh(name, "float16");
                converter.halves.insert(name.clone(), half.clone());
                let float = std::mem::replace(name, half.clone());
                if needed.contains(&float) {
                    casts.push((half, float));
                }
            }
        }
        converter.writer.push(node);
        for (half, float) in casts {
            converter.cast(half, float, DataType::Float);
        }
    }
    let Converter { writer, mut halves, remarks, .. } = converter;
    writer.finish();
    halves.retain(|name, _| !needed.contains(name));
    (remarks, halves)
}

struct Converter<'a, 'g> {
    writer: Writer<'g>,
    constants: &'a BTreeMap<String, Constant>,
    /// The names that values have in `float16`.
    halves: BTreeMap<String, String>,
    remarks: Vec<String>,
}

impl Converter<'_, '_> {
    /// The name of a value in `float16`.
    fn half(&mut self, value: &str) -> String {
        if let Some(half) = self.halves.get(value) {
            return half.clone();
        }
        let half = match self.constants.get(value).and_then(half_of) {
            Some((constant, clamped)) => {
                if clamped > 0 {
                    self.remarks.push(format!(
                        "initializer `{value}`: {clamped} of its numbers are beyond ±{MAX_HALF}, the \
                         range of float16, and become that"
                    ));
                }
                self.writer.replacement(value, "float16", &constant)
            }
            None => {
                let half = self.writer.fresh(value, "float16");
                self.cast(value.to_owned(), half.clone(), DataType::Float16);
                half
            }
        };
        self.halves.insert(value.to_owned(), half.clone());
        half
    }

    fn cast(&mut self, from: String, to: String, dtype: DataType) {
        let attribute = ModelAttr::Int(dtype as i64).to_proto("to");
        self.writer.node_of("", "Cast", vec![from], vec![to], vec![attribute]);
    }
}

/// A constant in `float16`, and how many numbers are clamped; `None` if its elements are not known.
fn half_of(constant: &Constant) -> Option<(Constant, usize)> {
    let mut clamped = 0;
    let values = constant.to_f64_vec()?.into_iter().map(|value| {
        if value.is_finite() && value.abs() > MAX_HALF {
            clamped += 1;
            return MAX_HALF.copysign(value);
        }
        if value != 0.0 && value.abs() < MIN_HALF {
            return MIN_HALF.copysign(value);
        }
        value
    });
    let values = values.collect();
    let shape: Vec<usize> =
        constant.ty().shape.as_consts()?.into_iter().map(|dim| dim as usize).collect();
    let half = Tensor::from_floats(DType::F16, &shape, values).ok()?.to_constant().ok()?;
    Some((half, clamped))
}
