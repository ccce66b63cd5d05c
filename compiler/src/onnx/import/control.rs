//! Operators that have graphs as attributes: loops, and attention with changes of its own. `If` is in
//! `branches`.
//!
//! A side of an `If` whose condition is known is imported alone, and loops of few steps are unrolled: code
//! without branches is what kernels are made of. Everything else becomes an `if` or a loop of the
//! module. So do long loops, unless a value changes its type from step to step, or something must be
//! known of a step while compiling.

use super::counter::Counted;
use super::functions::FlatNode;
use super::graph::{Body, GraphImporter, Value};
use super::{Attributes, MAX_UNROLLED_NODES, MAX_UNROLLED_STEPS, Node, NodeError};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::ops::attention;
use crate::onnx::ops::repeat::{Repeated, Row, UNROLLED_NODES, Until};

/// Most steps of a loop that a condition on data ends, if it puts results side by side: there is room
/// for those of all steps.
const MAX_COUNTED_STEPS: i64 = 1 << 16;

/// Most loops that are imported again as their counters are found: each loop in another one is so for
/// each time that the outer one is.
const MAX_COUNTED_LOOPS: usize = 64;

/// How many steps a loop makes.
struct Steps {
    /// As many at most, if that is known.
    known: Option<i64>,
    /// Whether there is a first one.
    begins: Option<bool>,
    /// As many as this says, whatever the condition.
    counted: Option<Counted>,
}

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
    /// `Loop`-1, -11, -13, -16, -19 and later (more types). If steps make tensors together, their
    /// number must be known, or be a size of the run, which a counter may reach.
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
        let mut steps = match node.optional(0) {
            Some(count) => {
                let known = node.known_value(count).and_then(|constant| constant.to_i64_vec());
                known.and_then(|values| values.first().copied())
            }
            None => None,
        };
        let mut begins = Some(true);
        if let Some(condition) = node.optional(1) {
            begins = flag(&mut node, condition)?;
        }
        if begins == Some(false) || steps.is_some_and(|steps| steps <= 0) {
            // Rows of what the body yields, none of which is written.
            (steps, begins) = (Some(1), Some(false));
        }
        let carried: Vec<Value> =
            inputs[2..].iter().map(|input| input.map_or(Value::Absent, Value::Known)).collect();
        if begins == Some(false) && graph.output.len() == carried.len() + 1 {
            return Ok(carried);
        }
        if begins == Some(true)
            && self.is_short(&body, steps)
            && let Some(values) = self.unroll_loop(proto, &body, steps, &carried)?
        {
            return Ok(values);
        }
        let told = self.shared.report.problems.len();
        let until = Steps { known: steps, begins, counted: None };
        let run = self.run_loop(proto, &body, inputs, until, &carried);
        if begins != Some(true) || !can_unroll(&run, steps) {
            return run;
        }
        let problems = self.shared.report.problems.split_off(told);
        if let Ok(Some(values)) = self.unroll_loop(proto, &body, steps, &carried) {
            return Ok(values);
        }
        self.shared.report.problems.truncate(told);
        self.shared.report.problems.extend(problems);
        run
    }

    /// Whether a loop is unrolled without trying anything else.
    fn is_short(&self, body: &Body<'_>, steps: Option<i64>) -> bool {
        let nodes = |steps: i64| usize::try_from(steps).ok()?.checked_mul(body.len());
        steps.and_then(nodes).is_some_and(|nodes| nodes <= UNROLLED_NODES)
    }

    /// The steps of a loop one after the other; `None` if it is not known how many there are.
    fn unroll_loop(
        &mut self,
        proto: &'a FlatNode<'_>,
        body: &Body<'_>,
        steps: Option<i64>,
        carried: &[Value],
    ) -> Result<Option<Vec<Value>>, NodeError> {
        let mut values = carried.to_vec();
        let outputs = body.graph.output.len() - 1;
        let mut scanned: Vec<Vec<ExprId>> = vec![Vec::new(); outputs - carried.len()];
        let mut step = 0i64;
        while steps.is_none_or(|steps| step < steps) {
            let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
            let number = node.int(step);
            let condition = node.scalar(1.0, DType::Bool)?;
            let mut given = vec![Value::Known(number), Value::Known(condition)];
            given.extend(&values);
            let results = self.step(body, step, &given)?;
            if results.contains(&Value::Unknown) {
                return Ok(Some(vec![Value::Unknown; outputs]));
            }
            let mut results = results.into_iter();
            let next = results.next();
            for (value, new) in values.iter_mut().zip(results.by_ref()) {
                *value = new;
            }
            for (list, value) in scanned.iter_mut().zip(results) {
                list.push(value.element()?);
            }
            step += 1;
            if let Some(next) = next.and_then(Value::known) {
                let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
                match flag(&mut node, next)? {
                    Some(true) => {}
                    Some(false) => break,
                    None if steps == Some(step) => break,
                    None => return Ok(None),
                }
            }
        }
        let mut node = self.shared.node(proto, 0, Vec::new(), Attributes::none());
        for list in scanned {
            values.push(Value::Known(stack(&mut node, &list, 0)?));
        }
        Ok(Some(values))
    }

    /// A loop that runs.
    fn run_loop(
        &mut self,
        proto: &'a FlatNode<'_>,
        body: &Body<'_>,
        inputs: &[Option<ExprId>],
        until: Steps,
        carried: &[Value],
    ) -> Result<Vec<Value>, NodeError> {
        let Steps { known: steps, begins, counted } = until;
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        let mut states = vec![match node.optional(1) {
            Some(condition) => node.reshape(condition, Vec::new())?,
            None => node.scalar(1.0, DType::Bool)?,
        }];
        states.extend(tensors(&node, carried)?);
        let count = match (&counted, node.optional(0)) {
            (Some(counted), _) => Some(node.end_of(counted)?),
            (None, Some(count)) => Some(node.reshape(count, Vec::new())?),
            (None, None) => None,
        };
        let length = counted.as_ref().map(|counted| counted.length.clone());
        let length = length.or(steps.map(Dim::from)).or_else(|| {
            let known = node.builder.data_of(count?).shape_value.as_deref();
            known.and_then(<[Dim]>::first).cloned()
        });
        let repeat = node.begin_loop(&states);
        let (around, step) = (repeat.around(), repeat.step);
        let given: Vec<Value> =
            [step].iter().chain(&repeat.states).copied().map(Value::Known).collect();
        let results = self.shared.run(body, &given);
        let mut node = self.shared.node(proto, 0, inputs.to_vec(), Attributes::none());
        if results.contains(&Value::Unknown) {
            node.leave_loop(around);
            return Ok(vec![Value::Unknown; results.len() - 1]);
        }
        let mut found = None;
        let finish = || {
            let mut next = tensors(&node, &results)?;
            let rows = next.split_off(states.len());
            // A body that hands on its condition leaves it as it began.
            let goes_on = match next[0] == repeat.states[0] || counted.is_some() {
                true => begins,
                false => flag(&mut node, next[0])?,
            };
            let ends = goes_on != Some(true) || begins != Some(true);
            next[0] = if ends { node.reshape(next[0], Vec::new())? } else { repeat.states[0] };
            // As many rows as there may be steps.
            let bounded = length.filter(|length| {
                !ends || length.as_const().is_none_or(|length| length <= MAX_COUNTED_STEPS)
            });
            let rows: Vec<Row> = match bounded {
                _ if rows.is_empty() => Vec::new(),
                Some(rows_of) => {
                    let row = |value| Row { value, at: step, rows: rows_of.clone() };
                    rows.into_iter().map(row).collect()
                }
                None => {
                    if count.is_none() {
                        found = node.counted(&repeat, &states, &next, begins == Some(true));
                    }
                    let error = NodeError::new(
                        "the number of steps depends on the model's inputs, and so would the extent \
                         of an output",
                    );
                    return Err(
                        error.help(rewrite(&node, inputs.iter().take(2).flatten().copied()))
                    );
                }
            };
            if !ends && count.is_none() {
                return Err(NodeError::new("the loop does not end"));
            }
            let until = Until { count, state: ends.then_some(0) };
            let Repeated { steps, last, mut rows } = node.end_loop(repeat, &next, &rows, until)?;
            if ends && !rows.is_empty() {
                let size = node.size(steps)?;
                for row in &mut rows {
                    *row = node.truncated(*row, 0, &size)?;
                }
            }
            Ok((last, rows))
        };
        match finish() {
            Ok((last, rows)) => {
                Ok(last.into_iter().skip(1).chain(rows).map(Value::Known).collect())
            }
            Err(error) => {
                node.leave_loop(around);
                match found {
                    // The condition says no more than that.
                    Some(counted) if self.shared.counted_loops < MAX_COUNTED_LOOPS => {
                        self.shared.counted_loops += 1;
                        let until =
                            Steps { known: None, begins: Some(true), counted: Some(counted) };
                        self.run_loop(proto, body, inputs, until, carried)
                    }
                    Some(_) | None => Err(error),
                }
            }
        }
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
        let mut along = Vec::with_capacity(sequences.len());
        let mut steps = None;
        for (&sequence, &axis) in sequences.iter().zip(&scan.in_axes) {
            let axis = node.axis(axis, node.shape(sequence)?.rank())?;
            let length = &node.shape(sequence)?[axis];
            if steps.get_or_insert_with(|| length.clone()) != length {
                return Err(NodeError::new("the scanned inputs are not of equal length"));
            }
            along.push((sequence, axis));
        }
        let steps = steps.unwrap_or_else(|| Dim::from(0i64));
        let known = steps.as_const();
        if self.is_short(&scan.body, known) {
            return self.unroll_scan(proto, scan, states, &along, known.unwrap_or(0));
        }
        let told = self.shared.report.problems.len();
        let run = self.run_scan(proto, scan, states, &along, &steps);
        match known {
            Some(steps) if can_unroll(&run, known) => {
                self.shared.report.problems.truncate(told);
                self.unroll_scan(proto, scan, states, &along, steps)
            }
            Some(_) | None => run,
        }
    }

    /// The steps of a scan one after the other.
    fn unroll_scan(
        &mut self,
        proto: &'a FlatNode<'_>,
        scan: &Scan<'_>,
        states: &[ExprId],
        along: &[(ExprId, usize)],
        steps: i64,
    ) -> Result<Vec<Value>, NodeError> {
        let mut values: Vec<Value> = states.iter().copied().map(Value::Known).collect();
        let mut scanned: Vec<Vec<ExprId>> = vec![Vec::new(); scan.out_axes.len()];
        for step in 0..steps {
            let mut node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
            let mut given = values.clone();
            for (&(sequence, axis), &reverse) in along.iter().zip(&scan.in_reverse) {
                let at = if reverse == 1 { steps - 1 - step } else { step };
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

    /// A scan as a loop that runs.
    fn run_scan(
        &mut self,
        proto: &'a FlatNode<'_>,
        scan: &Scan<'_>,
        states: &[ExprId],
        along: &[(ExprId, usize)],
        steps: &Dim,
    ) -> Result<Vec<Value>, NodeError> {
        let mut node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
        let count = node.extent(along[0].0, along[0].1)?;
        let repeat = node.begin_loop(states);
        let (around, step) = (repeat.around(), repeat.step);
        let from_end = node.counted_back(count, step)?;
        let at = |reverse: i64| if reverse == 1 { from_end } else { step };
        let mut given: Vec<Value> = repeat.states.iter().copied().map(Value::Known).collect();
        for (&(sequence, axis), &reverse) in along.iter().zip(&scan.in_reverse) {
            given.push(Value::Known(node.taken(sequence, at(reverse), axis)?));
        }
        let results = self.shared.run(&scan.body, &given);
        let mut node = self.shared.node(proto, scan.version, Vec::new(), Attributes::none());
        if results.contains(&Value::Unknown) {
            node.leave_loop(around);
            return Ok(vec![Value::Unknown; results.len()]);
        }
        let finish = || {
            let mut next = tensors(&node, &results)?;
            let outputs = next.split_off(states.len()).into_iter().zip(&scan.out_reverse);
            let row = |(value, &reverse)| Row { value, at: at(reverse), rows: steps.clone() };
            let rows: Vec<Row> = outputs.map(row).collect();
            let until = Until { count: Some(count), state: None };
            let Repeated { last: mut values, rows, .. } =
                node.end_loop(repeat, &next, &rows, until)?;
            for (tensor, &axis) in rows.into_iter().zip(&scan.out_axes) {
                let rank = node.shape(tensor)?.rank();
                let axis = node.axis(axis, rank)?;
                let mut order: Vec<usize> = (1..rank).collect();
                order.insert(axis, 0);
                values.push(node.transposed(tensor, &order)?);
            }
            Ok(values.into_iter().map(Value::Known).collect())
        };
        finish().inspect_err(|_| node.leave_loop(around))
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
pub(super) fn flag(node: &mut Node<'_, '_>, condition: ExprId) -> Result<Option<bool>, NodeError> {
    let ty = node.tensor(condition)?;
    if ty.dtype != DType::Bool || ty.num_elements().is_some_and(|count| count != 1) {
        return Err(NodeError::new(format!("the condition must be one boolean, but it is {ty}")));
    }
    let known = node.known_value(condition).and_then(|constant| constant.to_i64_vec());
    Ok(known.and_then(|values| values.first().map(|&value| value != 0)))
}

/// What to do about a loop or branch that cannot be imported because of these values.
pub(super) fn rewrite(node: &Node<'_, '_>, values: impl IntoIterator<Item = ExprId>) -> String {
    let fix = values.into_iter().find_map(|value| node.fix_inputs(value));
    let fix = fix.map_or_else(String::new, |fix| format!(", or {fix}"));
    format!("rewrite the model without it{fix}")
}

/// The tensors of a value: of a sequence its elements, and none of nothing.
pub(super) fn elements(node: &Node<'_, '_>, value: Value) -> Vec<ExprId> {
    let Some(id) = value.known() else { return Vec::new() };
    node.elements(id).map_or_else(|| vec![id], <[ExprId]>::to_vec)
}

/// The values, each of which must be a tensor.
fn tensors(node: &Node<'_, '_>, values: &[Value]) -> Result<Vec<ExprId>, NodeError> {
    let tensor = |&value: &Value| {
        let id = value.element()?;
        node.tensor(id).map(|_| id)
    };
    values.iter().map(tensor).collect()
}

/// Whether a loop that could not be imported as one has few enough steps to unroll it.
fn can_unroll(run: &Result<Vec<Value>, NodeError>, steps: Option<i64>) -> bool {
    let failed = run.as_ref().map_or(true, |values| values.contains(&Value::Unknown));
    failed && steps.is_none_or(|steps| steps <= MAX_UNROLLED_STEPS as i64)
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
