//! Operators that have graphs as attributes: control flow, and attention with changes of its own.
//!
//! A branch whose condition is known is imported alone, and loops are unrolled, so that the module
//! has no control flow. Where a condition depends on the model's inputs, both sides are computed and
//! one is selected: the operators are pure, and code without branches is what kernels are made of.

use super::functions::FlatNode;
use super::graph::{Body, GraphImporter, Value};
use super::{Attributes, MAX_UNROLLED_NODES, MAX_UNROLLED_STEPS, Node, NodeError};
use crate::graph::ExprId;
use crate::ir::{DType, Type};
use crate::onnx::ops::attention;
use crate::ops::elementwise::{LOGICAL_AND, WHERE};

/// A scan, whatever it goes over.
struct Scan<'a> {
    body: Body<'a>,
    version: i64,
    /// For each sequence the axis that is scanned, and whether from its end.
    in_axes: Vec<i64>,
    in_reverse: Vec<i64>,
    /// For each output that the steps make together its axis, and whether the last step is first.
    out_axes: Vec<i64>,
    out_reverse: Vec<i64>,
}

impl<'a> GraphImporter<'a, '_, '_> {
    /// `If`-1, -11, -13, -16, -19 and later (more types).
    pub(super) fn import_if(
        &mut self,
        proto: &'a FlatNode<'_>,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        let branches = [attrs.graph("then_branch")?, attrs.graph("else_branch")?];
        let bodies = branches.map(|graph| self.body(graph, proto.opsets));
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let condition = node.input(0)?;
        if let Some(holds) = flag(&mut node, condition)? {
            return Ok(self.shared.run(&bodies[usize::from(!holds)], &[]));
        }
        let [yes, no] = bodies.map(|body| self.shared.run(&body, &[]));
        if yes.len() != no.len() {
            return Err(NodeError::new(format!(
                "one branch has {} outputs and the other {}",
                yes.len(),
                no.len()
            )));
        }
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let condition = node.reshape(condition, Vec::new())?;
        yes.into_iter().zip(no).map(|(yes, no)| select(&mut node, condition, yes, no)).collect()
    }

    /// `Loop`-1, -11, -13, -16, -19 and later (more types). The number of steps must be known, or be
    /// bounded by one that is.
    pub(super) fn import_loop(
        &mut self,
        proto: &'a FlatNode<'_>,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        let graph = attrs.graph("body")?;
        let body = self.body(graph, proto.opsets);
        let carried = inputs.len() - 2;
        if graph.input.len() != carried + 2 || graph.output.len() < carried + 1 {
            return Err(NodeError::new(format!(
                "with {carried} carried values, the body must have {} inputs and at least {} outputs, \
                 but it has {} and {}",
                carried + 2,
                carried + 1,
                graph.input.len(),
                graph.output.len()
            )));
        }
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let steps = match node.optional(0) {
            Some(_) => node.int_input(0)?,
            None => None,
        };
        // Whether the next step takes place, if that is not known.
        let mut running: Option<ExprId> = None;
        let mut goes_on = true;
        if let Some(condition) = node.optional(1) {
            match flag(&mut node, condition)? {
                Some(holds) => goes_on = holds,
                None => running = Some(node.reshape(condition, Vec::new())?),
            }
        }
        let mut values: Vec<Value> =
            inputs[2..].iter().map(|input| input.map_or(Value::Absent, Value::Known)).collect();
        let mut scanned: Vec<Vec<ExprId>> = vec![Vec::new(); graph.output.len() - 1 - carried];
        let mut step = 0i64;
        while goes_on && steps.is_none_or(|steps| step < steps) {
            if running.is_some() && (steps.is_none() || !scanned.is_empty()) {
                let error = NodeError::new("the number of steps depends on the model's inputs");
                let node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
                let causes = [node.optional(0), node.optional(1), running];
                return Err(error.help(rewrite(&node, causes.into_iter().flatten())));
            }
            let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
            let number = node.scalar(step as f64, DType::I64)?;
            let condition = match running {
                Some(running) => running,
                None => node.scalar(1.0, DType::Bool)?,
            };
            let mut given = vec![Value::Known(number), Value::Known(condition)];
            given.extend(&values);
            let results = self.step(&body, step, &given)?;
            if results.contains(&Value::Unknown) {
                return Ok(vec![Value::Unknown; graph.output.len() - 1]);
            }
            let mut results = results.into_iter();
            let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
            let next = results.next();
            for (value, new) in values.iter_mut().zip(results.by_ref()) {
                *value = match running {
                    Some(running) => select(&mut node, running, new, *value)?,
                    None => new,
                };
            }
            for (list, value) in scanned.iter_mut().zip(results) {
                list.push(value.element()?);
            }
            if let Some(next) = next.and_then(Value::known) {
                match flag(&mut node, next)? {
                    Some(holds) => goes_on = holds,
                    None => {
                        let next = node.reshape(next, Vec::new())?;
                        running = Some(match running {
                            Some(running) => node.call(&LOGICAL_AND, &[running, next])?,
                            None => next,
                        });
                    }
                }
            }
            step += 1;
        }
        let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
        for list in scanned {
            values.push(Value::Known(stack(&mut node, &list, 0)?));
        }
        Ok(values)
    }

    /// `Scan`-8, -9 (no batch axis), -11 (negative axes), -16, -19 and later (more types).
    pub(super) fn import_scan(
        &mut self,
        proto: &'a FlatNode<'_>,
        version: i64,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        // In -8, the lengths of the sequences of a batch come first.
        let batched = version < 9;
        if batched && inputs.first().is_some_and(Option::is_some) {
            return Err(NodeError::new(
                "a Scan of opset 8 over sequences of different lengths is not supported",
            )
            .help(super::CONVERT));
        }
        let inputs = if batched { inputs.get(1..).unwrap_or_default() } else { inputs };
        let graph = attrs.graph("body")?;
        let scans = attrs.int("num_scan_inputs")?.and_then(|count| usize::try_from(count).ok());
        let count = scans.and_then(|scans| Some((inputs.len().checked_sub(scans)?, scans)));
        let Some((carried, scans)) = count.filter(|&(_, scans)| scans > 0) else {
            return Err(NodeError::new(
                "attribute `num_scan_inputs` must be from 1 to the number of inputs",
            ));
        };
        let Some(outputs) = graph.output.len().checked_sub(carried) else {
            return Err(NodeError::new("the body has fewer outputs than the node has states"));
        };
        if graph.input.len() != inputs.len() {
            return Err(NodeError::new(format!(
                "the body has {} inputs, but the node has {}",
                graph.input.len(),
                inputs.len()
            )));
        }
        let directions = if batched { "directions" } else { "scan_input_directions" };
        let in_reverse = attrs.ints_or(directions, scans, 0)?;
        let [mut in_axes, mut out_axes, mut out_reverse] =
            [vec![0; scans], vec![0; outputs], vec![0; outputs]];
        if !batched {
            in_axes = attrs.ints_or("scan_input_axes", scans, 0)?;
            out_axes = attrs.ints_or("scan_output_axes", outputs, 0)?;
            out_reverse = attrs.ints_or("scan_output_directions", outputs, 0)?;
        }
        let scan = Scan {
            body: self.body(graph, proto.opsets),
            version,
            in_axes,
            in_reverse,
            out_axes,
            out_reverse,
        };
        let node = self.shared.node(proto, version, inputs.to_vec(), Attributes::none());
        let all = node.all_inputs()?;
        let (states, sequences) = all.split_at(carried);
        if !batched {
            return self.scan(proto, &scan, states, sequences);
        }
        let examples = node.known_extent(sequences[0], 0)?;
        if all.iter().any(|&value| node.known_extent(value, 0) != Ok(examples)) {
            return Err(NodeError::new("the inputs are not of one batch"));
        }
        let mut results: Vec<Vec<ExprId>> = vec![Vec::new(); graph.output.len()];
        for example in 0..examples {
            let mut node = self.shared.node(proto, version, Vec::new(), Attributes::none());
            let of_example: Vec<ExprId> = all
                .iter()
                .map(|&value| node.step_of(value, 0, example))
                .collect::<Result<_, _>>()?;
            let (states, sequences) = of_example.split_at(carried);
            let values = self.scan(proto, &scan, states, sequences)?;
            if values.contains(&Value::Unknown) {
                return Ok(values);
            }
            for (list, value) in results.iter_mut().zip(values) {
                list.push(value.element()?);
            }
        }
        let mut node = self.shared.node(proto, version, Vec::new(), Attributes::none());
        results.iter().map(|list| Ok(Value::Known(stack(&mut node, list, 0)?))).collect()
    }

    /// The steps of a scan, and its outputs.
    fn scan(
        &mut self,
        proto: &'a FlatNode<'_>,
        scan: &Scan<'_>,
        states: &[ExprId],
        sequences: &[ExprId],
    ) -> Result<Vec<Value>, NodeError> {
        let node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
        let mut axes = Vec::with_capacity(sequences.len());
        let mut steps = None;
        for (&sequence, &axis) in sequences.iter().zip(&scan.in_axes) {
            let axis = node.axis(axis, node.shape(sequence)?.rank())?;
            let length = node.known_extent(sequence, axis)?;
            if *steps.get_or_insert(length) != length {
                return Err(NodeError::new("the scanned inputs are not of equal length"));
            }
            axes.push(axis);
        }
        let steps = steps.unwrap_or(0);
        let mut values: Vec<Value> = states.iter().copied().map(Value::Known).collect();
        let mut scanned: Vec<Vec<ExprId>> = vec![Vec::new(); scan.out_axes.len()];
        for step in 0..steps {
            let mut node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
            let mut given = values.clone();
            for (index, (&sequence, &axis)) in sequences.iter().zip(&axes).enumerate() {
                let at = if scan.in_reverse[index] == 1 { steps - 1 - step } else { step };
                given.push(Value::Known(node.step_of(sequence, axis, at)?));
            }
            let results = self.step(&scan.body, step, &given)?;
            if results.contains(&Value::Unknown) {
                return Ok(vec![Value::Unknown; results.len()]);
            }
            let mut results = results.into_iter();
            values = results.by_ref().take(states.len()).collect();
            for (list, value) in scanned.iter_mut().zip(results) {
                list.push(value.element()?);
            }
        }
        let mut node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
        let outputs = scanned.into_iter().zip(&scan.out_axes).zip(&scan.out_reverse);
        for ((mut list, &axis), &reverse) in outputs {
            if reverse == 1 {
                list.reverse();
            }
            values.push(Value::Known(stack(&mut node, &list, axis)?));
        }
        Ok(values)
    }

    /// `SequenceMap`-17: a graph for each element of a sequence. Other sequences go along with it, and
    /// tensors are given to every step.
    pub(super) fn import_sequence_map(
        &mut self,
        proto: &'a FlatNode<'_>,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        let graph = attrs.graph("body")?;
        let body = self.body(graph, proto.opsets);
        if graph.input.len() != inputs.len() {
            return Err(NodeError::new(format!(
                "the body has {} inputs, but the node has {}",
                graph.input.len(),
                inputs.len()
            )));
        }
        let node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let lists: Vec<Result<Vec<ExprId>, ExprId>> = node
            .all_inputs()?
            .into_iter()
            .map(|input| node.elements(input).map(<[ExprId]>::to_vec).ok_or(input))
            .collect();
        let Some(Ok(first)) = lists.first() else {
            return Err(NodeError::new("input 0 must be a sequence"));
        };
        let steps = first.len();
        if lists.iter().flatten().any(|list| list.len() != steps) {
            return Err(NodeError::new("the sequences are not of equal length"));
        }
        let mut results: Vec<Vec<ExprId>> = vec![Vec::new(); graph.output.len()];
        for step in 0..steps {
            let of_step = |list: &Result<Vec<ExprId>, ExprId>| match list {
                Ok(elements) => Value::Known(elements[step]),
                Err(tensor) => Value::Known(*tensor),
            };
            let given: Vec<Value> = lists.iter().map(of_step).collect();
            let values = self.step(&body, step as i64, &given)?;
            if values.contains(&Value::Unknown) {
                return Ok(values);
            }
            for (list, value) in results.iter_mut().zip(values) {
                list.push(value.element()?);
            }
        }
        let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
        Ok(results.iter().map(|list| Value::Known(node.sequence(list))).collect())
    }

    /// `FlexAttention`-1 of `ai.onnx.preview`: attention whose scores and weights go through graphs.
    pub(super) fn import_flex_attention(
        &mut self,
        proto: &'a FlatNode<'_>,
        attrs: &mut Attributes<'a>,
        inputs: &[Option<ExprId>],
    ) -> Result<Vec<Value>, NodeError> {
        let (scale, precision) = (attrs.float("scale")?, attrs.int("softmax_precision")?);
        let mut changes = Vec::with_capacity(2);
        for name in ["score_mod", "prob_mod"] {
            let graph = if attrs.has(name) { Some(attrs.graph(name)?) } else { None };
            changes.push(graph.map(|graph| self.body(graph, proto.opsets)));
        }
        let mut node = self.shared.node(proto, 1, inputs.to_vec(), Attributes::none());
        let mut value = Value::Known(attention::flex_scores(&mut node, scale, precision)?);
        for (index, change) in changes.into_iter().enumerate() {
            if let Some(body) = change {
                let results = self.shared.run(&body, &[value]);
                value = results.first().copied().unwrap_or(Value::Unknown);
            }
            let Value::Known(known) = value else { return Ok(vec![Value::Unknown]) };
            let mut node = self.shared.node(proto, 1, inputs.to_vec(), Attributes::none());
            value = Value::Known(match index {
                0 => attention::flex_weights(&mut node, known)?,
                _ => attention::flex_values(&mut node, known)?,
            });
        }
        Ok(vec![value])
    }

    /// One step of a loop, within the bounds of unrolling.
    fn step(
        &mut self,
        body: &Body<'_>,
        step: i64,
        given: &[Value],
    ) -> Result<Vec<Value>, NodeError> {
        self.shared.unrolled = self.shared.unrolled.saturating_add(body.len());
        if step >= MAX_UNROLLED_STEPS as i64 || self.shared.unrolled > MAX_UNROLLED_NODES {
            return Err(NodeError::new(format!(
                "at most {MAX_UNROLLED_STEPS} steps of a loop, and {MAX_UNROLLED_NODES} nodes of all \
                 loops together, are unrolled"
            ))
            .help("feed the sequence in pieces and hand on the state"));
        }
        Ok(self.shared.run(body, given))
    }
}

/// The truth of a condition, if it is known while compiling.
fn flag(node: &mut Node<'_, '_>, condition: ExprId) -> Result<Option<bool>, NodeError> {
    let ty = node.tensor(condition)?;
    if ty.dtype != DType::Bool || ty.num_elements().is_some_and(|count| count != 1) {
        return Err(NodeError::new(format!("the condition must be one boolean, but it is {ty}")));
    }
    let known = node.known_value(condition).and_then(|constant| constant.to_i64_vec());
    Ok(known.and_then(|values| values.first().map(|&value| value != 0)))
}

/// What to do about a loop or branch that cannot be imported because of these values.
fn rewrite(node: &Node<'_, '_>, values: impl IntoIterator<Item = ExprId>) -> String {
    let fix = values.into_iter().find_map(|value| node.fix_inputs(value));
    let fix = fix.map_or_else(String::new, |fix| format!(", or {fix}"));
    format!("rewrite the model without it{fix}")
}

/// One of two values of equal type, by a scalar condition; of two sequences, element by element.
fn select(
    node: &mut Node<'_, '_>,
    condition: ExprId,
    yes: Value,
    no: Value,
) -> Result<Value, NodeError> {
    if yes == no {
        return Ok(yes);
    }
    let (yes, no) = match (yes, no) {
        (Value::Known(yes), Value::Known(no)) => (yes, no),
        (Value::Unknown, _) | (_, Value::Unknown) => return Ok(Value::Unknown),
        (Value::Absent, Value::Known(_)) | (_, Value::Absent) => {
            let error = NodeError::new(
                "the condition depends on the model's inputs, and so would whether an optional value \
                 has an element",
            );
            return Err(error.help(rewrite(node, [condition])));
        }
    };
    if let (Some(first), Some(second)) = (node.elements(yes), node.elements(no))
        && first.len() == second.len()
    {
        let pairs: Vec<_> = first.iter().copied().zip(second.iter().copied()).collect();
        let elements = pairs
            .into_iter()
            .map(|(yes, no)| select_tensor(node, condition, yes, no))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok(Value::Known(node.sequence(&elements)));
    }
    select_tensor(node, condition, yes, no).map(Value::Known)
}

fn select_tensor(
    node: &mut Node<'_, '_>,
    condition: ExprId,
    yes: ExprId,
    no: ExprId,
) -> Result<ExprId, NodeError> {
    if yes == no {
        return Ok(yes);
    }
    let (yes_ty, no_ty) = (node.tensor(yes)?, node.tensor(no)?);
    if yes_ty != no_ty {
        return Err(NodeError::new(format!(
            "the condition depends on the model's inputs, and so would the type of a value: {} or {}",
            Type::from(yes_ty),
            Type::from(no_ty)
        ))
        .help(rewrite(node, [condition])));
    }
    node.call(&WHERE, &[condition, yes, no])
}

/// The values of all steps along a new axis.
fn stack(node: &mut Node<'_, '_>, steps: &[ExprId], axis: i64) -> Result<ExprId, NodeError> {
    if steps.is_empty() {
        return Err(NodeError::new("a loop of no steps has outputs that no step computes"));
    }
    node.stack(steps, axis)
}

impl Value {
    /// The expression, if it is known.
    pub(super) fn known(self) -> Option<ExprId> {
        match self {
            Value::Known(id) => Some(id),
            Value::Unknown | Value::Absent => None,
        }
    }

    /// The expression of a value that the steps of a loop make together; it is known.
    fn element(self) -> Result<ExprId, NodeError> {
        self.known().ok_or_else(|| {
            NodeError::new("a step gives an optional value without an element, which is no element")
        })
    }
}
