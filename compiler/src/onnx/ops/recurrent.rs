//! Recurrent layers: `LSTM`, `GRU` and `RNN`, step by step.
//!
//! The projection of the whole sequence is one matrix product. A step is the product with the
//! recurrent weights and the gates. A few steps are unrolled; more are a loop, which makes as many as
//! the sequence of a run has.

use super::microsoft::quantized::dynamic_product;
use super::repeat::{Repeated, Row, Until};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{
    ADD, ELU, EluAttrs, GREATER, HARDSIGMOID, HardsigmoidAttrs, LEAKY_RELU, LeakyReluAttrs,
    MULTIPLY, RELU, SIGMOID, SOFTPLUS, SOFTSIGN, TANH, THRESHOLDED_RELU, ThresholdedReluAttrs,
};
use crate::ops::nn::DENSE;

/// Most steps that are unrolled.
const MAX_UNROLLED_STEPS: i64 = 16;

/// The kind of layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    Rnn,
    /// Whether the reset gate is applied after the recurrent product.
    Gru {
        linear_before_reset: bool,
    },
    /// Whether the forget gate is one less the input gate.
    Lstm {
        input_forget: bool,
    },
}

impl Cell {
    /// Number of gates that the weights hold.
    fn gates(self) -> i64 {
        match self {
            Cell::Rnn => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// The activations of one direction, unless a node says otherwise.
    fn default_activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// A function that is applied to gates and states.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Activation {
    Affine { alpha: f64, beta: f64 },
    Elu { alpha: f64 },
    HardSigmoid { alpha: f64, beta: f64 },
    LeakyRelu { alpha: f64 },
    Relu,
    ScaledTanh { alpha: f64, beta: f64 },
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu { alpha: f64 },
}

impl Activation {
    /// The function of that name. It takes what it needs from the node's lists of numbers, each of
    /// which is for the functions that have one, in their order.
    pub(super) fn new(
        name: &str,
        alphas: &mut impl Iterator<Item = f64>,
        betas: &mut impl Iterator<Item = f64>,
    ) -> Result<Activation, NodeError> {
        let mut alpha = |default: f64| alphas.next().unwrap_or(default);
        let mut beta = |default: f64| betas.next().unwrap_or(default);
        Ok(match name.to_ascii_lowercase().as_str() {
            "affine" => Activation::Affine { alpha: alpha(1.0), beta: beta(0.0) },
            "elu" => Activation::Elu { alpha: alpha(1.0) },
            "hardsigmoid" => {
                Activation::HardSigmoid { alpha: alpha(f64::from(0.2f32)), beta: beta(0.5) }
            }
            "leakyrelu" => Activation::LeakyRelu { alpha: alpha(f64::from(0.01f32)) },
            "relu" => Activation::Relu,
            "scaledtanh" => Activation::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
            "sigmoid" => Activation::Sigmoid,
            "softplus" => Activation::Softplus,
            "softsign" => Activation::Softsign,
            "tanh" => Activation::Tanh,
            "thresholdedrelu" => Activation::ThresholdedRelu { alpha: alpha(1.0) },
            _ => {
                return Err(NodeError::new(format!(
                    "attribute `activations` has `{name}`, which is no activation of recurrent layers"
                )));
            }
        })
    }

    pub(super) fn apply(self, node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
        match self {
            Activation::Affine { alpha, beta } => {
                let scaled = node.with_scalar(&MULTIPLY, x, alpha)?;
                node.with_scalar(&ADD, scaled, beta)
            }
            Activation::Elu { alpha } => node.call_with(&ELU, &[x], &EluAttrs { alpha }),
            Activation::HardSigmoid { alpha, beta } => {
                node.call_with(&HARDSIGMOID, &[x], &HardsigmoidAttrs { alpha, beta })
            }
            Activation::LeakyRelu { alpha } => {
                node.call_with(&LEAKY_RELU, &[x], &LeakyReluAttrs { alpha })
            }
            Activation::Relu => node.call(&RELU, &[x]),
            Activation::ScaledTanh { alpha, beta } => {
                let scaled = node.with_scalar(&MULTIPLY, x, beta)?;
                let tanh = node.call(&TANH, &[scaled])?;
                node.with_scalar(&MULTIPLY, tanh, alpha)
            }
            Activation::Sigmoid => node.call(&SIGMOID, &[x]),
            Activation::Softplus => node.call(&SOFTPLUS, &[x]),
            Activation::Softsign => node.call(&SOFTSIGN, &[x]),
            Activation::Tanh => node.call(&TANH, &[x]),
            Activation::ThresholdedRelu { alpha } => {
                node.call_with(&THRESHOLDED_RELU, &[x], &ThresholdedReluAttrs { alpha })
            }
        }
    }
}

/// `RNN`-7, -14 (`layout`), -22 (more types).
pub(super) fn rnn(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    layer(node, Cell::Rnn, &[])
}

/// `GRU`-7, -14 (`layout`), -22 (more types).
pub(super) fn gru(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let linear_before_reset = node.attrs.flag("linear_before_reset", false)?;
    layer(node, Cell::Gru { linear_before_reset }, &[])
}

/// `LSTM`-7, -14 (`layout`), -22 (more types).
pub(super) fn lstm(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let input_forget = node.attrs.flag("input_forget", false)?;
    layer(node, Cell::Lstm { input_forget }, &[])
}

/// `com.microsoft.DynamicQuantizeLSTM`-1: weights of 8 bits, of which each product quantises what it
/// multiplies them with. They are `(directions, elements, gates)`; inputs 8 to 11 are their scales and
/// zero points.
pub(super) fn dynamic_quantize_lstm(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let input_forget = node.attrs.flag("input_forget", false)?;
    layer(node, Cell::Lstm { input_forget }, &[[8, 9], [10, 11]])
}

/// The weights of a product.
#[derive(Clone, Copy)]
enum Weights {
    /// `(gates, elements)`.
    Plain(ExprId),
    /// `(elements, gates)` in 8 bits, with the zero point, and the scale of all or of each gate.
    Quantised { weights: ExprId, zero: Option<ExprId>, scale: ExprId },
}

impl Weights {
    fn product(self, node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
        match self {
            Weights::Plain(weights) => node.call(&DENSE, &[x, weights]),
            Weights::Quantised { weights, zero, scale } => {
                dynamic_product(node, x, [Some(weights), zero], scale, None)
            }
        }
    }
}

/// A layer, of one direction or two.
struct Layer {
    cell: Cell,
    /// Length of the sequence.
    steps: Dim,
    batch: Dim,
    /// Elements of the hidden state.
    hidden: i64,
    dtype: DType,
    /// `(steps, batch, inputs)`.
    x: ExprId,
    /// Lengths of the single sequences, if they differ: `(batch, 1)`.
    lengths: Option<ExprId>,
    /// Bound of the gates before their activation. As in ONNX Runtime, it does not bound the cell
    /// state, of which ONNX's text says nothing clear.
    clip: Option<f64>,
    /// The inputs that have scales and zero points of the weights and of the recurrent ones, if these
    /// are quantised.
    quantised: &'static [[usize; 2]],
}

/// What one direction adds.
struct Direction {
    /// Whether it goes from the last step to the first.
    is_reverse: bool,
    activations: Vec<Activation>,
    /// `(steps, batch, gates)`: the projected sequence with its bias.
    projected: ExprId,
    recurrent: Weights,
    /// `(gates)`, where it must be added to the recurrent product.
    recurrent_bias: Option<ExprId>,
    /// Weights from the cell state to the input, output and forget gates, each `(hidden)`.
    peepholes: Option<[ExprId; 3]>,
}

/// The state after a step: the hidden one, and an LSTM's cell.
#[derive(Clone, Copy)]
struct State {
    hidden: ExprId,
    cell: ExprId,
}

fn layer(
    node: &mut Node<'_, '_>,
    cell: Cell,
    quantised: &'static [[usize; 2]],
) -> Result<Outputs, NodeError> {
    let mut x = node.input(0)?;
    let ty = node.tensor(x)?;
    if ty.shape.rank() != 3 {
        return Err(NodeError::new(format!(
            "input 0 must have dimensions (sequence, batch, elements), but it is {ty}"
        )));
    }
    let batch_first = node.version >= 14 && node.attrs.flag("layout", false)?;
    if batch_first {
        x = node.transposed(x, &[1, 0, 2])?;
    }
    let steps = node.shape(x)?[0].clone();
    if steps.as_const() == Some(0) {
        return Err(NodeError::new("the sequence is empty"));
    }
    let axis_of_gates = if quantised.is_empty() { 1 } else { 2 };
    let hidden = node.known_extent(node.input(2)?, 3 - axis_of_gates)?;
    if let Some(declared) = node.attrs.int("hidden_size")?
        && declared != hidden
    {
        return Err(NodeError::new(format!(
            "attribute `hidden_size` is {declared}, but the recurrent weights have {hidden}"
        )));
    }
    let reverse = match node.attrs.string("direction")?.unwrap_or("forward") {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => {
            return Err(NodeError::new(format!(
                "attribute `direction` must be forward, reverse or bidirectional, but it is `{other}`"
            )));
        }
    };
    check_weights(node, cell, axis_of_gates, hidden, reverse.len())?;
    let mut activations = read_activations(node, cell, reverse.len())?.into_iter();
    let shape = node.shape(x)?;
    let mut layer = Layer {
        cell,
        steps,
        batch: shape[1].clone(),
        hidden,
        dtype: ty.dtype,
        x,
        lengths: None,
        clip: node.attrs.float("clip")?,
        quantised,
    };
    layer.lengths = layer.read_lengths(node)?;
    // By direction.
    let (mut sequences, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (index, is_reverse) in reverse.into_iter().enumerate() {
        let own = activations.by_ref().take(cell.default_activations().len()).collect();
        let direction = layer.direction(node, index, is_reverse, own)?;
        let hidden = layer.initial(node, 5, index, batch_first)?;
        let state = match cell {
            Cell::Lstm { .. } => {
                State { hidden, cell: layer.initial(node, 6, index, batch_first)? }
            }
            Cell::Rnn | Cell::Gru { .. } => State { hidden, cell: hidden },
        };
        let (sequence, last) = layer.run(node, &direction, state)?;
        let mut dims = node.shape(sequence)?.to_vec();
        dims.insert(1, Dim::from(1i64));
        sequences.push(node.reshape(sequence, dims)?);
        hiddens.push(layer.stack(node, &[last.hidden])?);
        cells.push(layer.stack(node, &[last.cell])?);
    }
    let mut sequence = node.concatenate(&sequences, 1)?;
    let mut states = vec![node.concatenate(&hiddens, 0)?];
    if let Cell::Lstm { .. } = cell {
        states.push(node.concatenate(&cells, 0)?);
    }
    if batch_first {
        sequence = node.transposed(sequence, &[2, 0, 1, 3])?;
        for state in &mut states {
            *state = node.transposed(*state, &[1, 0, 2])?;
        }
    }
    Ok([vec![sequence], states].concat())
}

/// Checks the extents that slices of the weights rely on.
fn check_weights(
    node: &Node<'_, '_>,
    cell: Cell,
    axis_of_gates: usize,
    hidden: i64,
    directions: usize,
) -> Result<(), NodeError> {
    let gates = cell.gates().checked_mul(hidden);
    let inputs = [(node.input(1)?, "W"), (node.input(2)?, "R")];
    for (value, name) in inputs {
        let shape = node.shape(value)?;
        let fits = shape.rank() == 3
            && shape[0].as_const() == Some(directions as i64)
            && shape[axis_of_gates].as_const() == gates;
        if !fits {
            let gates = format!("{} · {hidden}", cell.gates());
            let extents =
                if axis_of_gates == 1 { format!("{gates}, …") } else { format!("…, {gates}") };
            return Err(NodeError::new(format!(
                "`{name}` must have the shape ({directions}, {extents}), but it is {shape}"
            )));
        }
    }
    let vectors = [(node.optional(3), "B", 2 * cell.gates()), (node.optional(7), "P", 3)];
    for (value, name, parts) in vectors {
        let Some(value) = value else { continue };
        let shape = node.shape(value)?;
        let fits = shape.rank() == 2
            && shape[0].as_const() == Some(directions as i64)
            && shape[1].as_const() == hidden.checked_mul(parts);
        if !fits {
            return Err(NodeError::new(format!(
                "`{name}` must have the shape ({directions}, {parts} · {hidden}), but it is {shape}"
            )));
        }
    }
    Ok(())
}

fn read_activations(
    node: &mut Node<'_, '_>,
    cell: Cell,
    directions: usize,
) -> Result<Vec<Activation>, NodeError> {
    let wide = |list: Option<&[f32]>| -> Vec<f64> {
        list.unwrap_or_default().iter().map(|&number| f64::from(number)).collect()
    };
    let mut alphas = wide(node.attrs.floats("activation_alpha")?).into_iter();
    let mut betas = wide(node.attrs.floats("activation_beta")?).into_iter();
    let expected = cell.default_activations().len() * directions;
    let names = match node.attrs.strings("activations")? {
        Some(names) if names.len() != expected => {
            return Err(NodeError::new(format!(
                "attribute `activations` must have {expected} names, but it has {}",
                names.len()
            )));
        }
        Some(names) => names,
        None => cell.default_activations().repeat(directions),
    };
    names.into_iter().map(|name| Activation::new(name, &mut alphas, &mut betas)).collect()
}

impl Layer {
    /// The lengths of the sequences, if some may be shorter than the whole.
    fn read_lengths(&self, node: &mut Node<'_, '_>) -> Result<Option<ExprId>, NodeError> {
        let Some(lengths) = node.optional(4) else { return Ok(None) };
        if let Ok(Some(known)) = node.ints_input(4)
            && known.iter().all(|&length| self.steps == Dim::from(length))
        {
            return Ok(None);
        }
        let column = node.reshape(lengths, vec![self.batch.clone(), Dim::from(1i64)])?;
        Ok(Some(column))
    }

    /// An initial state of a direction, `(batch, hidden)`: zero if the input is left out.
    fn initial(
        &self,
        node: &mut Node<'_, '_>,
        input: usize,
        direction: usize,
        batch_first: bool,
    ) -> Result<ExprId, NodeError> {
        let dims = vec![self.batch.clone(), Dim::from(self.hidden)];
        let Some(mut state) = node.optional(input) else {
            return node.full(0.0, self.dtype, dims);
        };
        if node.shape(state)?.rank() != 3 {
            return Err(NodeError::new(format!("input {input} must have three dimensions")));
        }
        if batch_first {
            state = node.transposed(state, &[1, 0, 2])?;
        }
        let state = node.first_axis_at(state, direction as i64)?;
        let shape = node.shape(state)?;
        if !node.is_same(&shape, &dims) {
            return Err(NodeError::new(format!(
                "input {input} must hold {} by {} states, but they are {shape}",
                self.batch, self.hidden
            )));
        }
        Ok(state)
    }

    /// Slices one direction out of the inputs, and projects the sequence.
    fn direction(
        &self,
        node: &mut Node<'_, '_>,
        index: usize,
        is_reverse: bool,
        activations: Vec<Activation>,
    ) -> Result<Direction, NodeError> {
        let at = index as i64;
        let gates = self.cell.gates() * self.hidden;
        let weights = self.weights(node, 0, at)?;
        let recurrent = self.weights(node, 1, at)?;
        let mut projected = weights.product(node, self.x)?;
        let mut recurrent_bias = None;
        if let Some(bias) = node.optional(3) {
            let bias = node.first_axis_at(bias, at)?;
            let own = node.slice(bias, 0, 0, gates)?;
            let other = node.slice(bias, 0, gates, 2 * gates)?;
            let bias = if self.cell == (Cell::Gru { linear_before_reset: true }) {
                recurrent_bias = Some(other);
                own
            } else {
                node.add(own, other)?
            };
            projected = node.add(projected, bias)?;
        }
        let mut peepholes = None;
        if let Some(weights) = node.optional(7) {
            let weights = node.first_axis_at(weights, at)?;
            peepholes = Some([
                self.gate(node, weights, 0, 0)?,
                self.gate(node, weights, 0, 1)?,
                self.gate(node, weights, 0, 2)?,
            ]);
        }
        Ok(Direction { is_reverse, activations, projected, recurrent, recurrent_bias, peepholes })
    }

    /// The weights of a direction: those of the sequence, 0, or of the state, 1.
    fn weights(
        &self,
        node: &mut Node<'_, '_>,
        which: usize,
        direction: i64,
    ) -> Result<Weights, NodeError> {
        let weights = node.input(1 + which)?;
        let weights = node.first_axis_at(weights, direction)?;
        let Some(&[scale, zero]) = self.quantised.get(which) else {
            return Ok(Weights::Plain(weights));
        };
        let scale = node.input(scale)?;
        let scale = node.first_axis_at(scale, direction)?;
        let zero = match node.optional(zero) {
            Some(zero) => Some(node.first_axis_at(zero, direction)?),
            None => None,
        };
        Ok(Weights::Quantised { weights, zero, scale })
    }

    /// The part of a gate along an axis.
    fn gate(
        &self,
        node: &mut Node<'_, '_>,
        gates: ExprId,
        axis: usize,
        index: i64,
    ) -> Result<ExprId, NodeError> {
        node.slice(gates, axis, index * self.hidden, (index + 1) * self.hidden)
    }

    /// The hidden state after each step, in the order of the sequence: `(steps, batch, hidden)`; and
    /// the last state.
    fn run(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        mut state: State,
    ) -> Result<(ExprId, State), NodeError> {
        let Some(steps) = self.steps.as_const().filter(|&steps| steps <= MAX_UNROLLED_STEPS) else {
            return self.run_loop(node, direction, state);
        };
        let mut outputs = Vec::new();
        for step in 0..steps {
            let at = if direction.is_reverse { steps - 1 - step } else { step };
            let x = node.step_of(direction.projected, 0, at)?;
            let at = node.int(at);
            let (output, next) = self.step(node, direction, x, at, state)?;
            outputs.push(output);
            state = next;
        }
        if direction.is_reverse {
            outputs.reverse();
        }
        Ok((self.stack(node, &outputs)?, state))
    }

    /// As [`run`](Self::run), by a loop.
    fn run_loop(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        state: State,
    ) -> Result<(ExprId, State), NodeError> {
        let count = node.extent(self.x, 0)?;
        let mut states = vec![state.hidden];
        if let Cell::Lstm { .. } = self.cell {
            states.push(state.cell);
        }
        let repeat = node.begin_loop(&states);
        let at = match direction.is_reverse {
            true => node.counted_back(count, repeat.step)?,
            false => repeat.step,
        };
        let x = node.taken(direction.projected, at, 0)?;
        let cell = repeat.states.last().copied().unwrap_or(repeat.step);
        let state = State { hidden: repeat.states[0], cell };
        let (value, next) = self.step(node, direction, x, at, state)?;
        let next = &[next.hidden, next.cell][..states.len()];
        let row = Row { value, at, rows: self.steps.clone() };
        let until = Until { count: Some(count), state: None };
        let Repeated { last, rows, .. } = node.end_loop(repeat, next, &[row], until)?;
        let cell = last.last().copied().unwrap_or(last[0]);
        Ok((rows[0], State { hidden: last[0], cell }))
    }

    /// A step: what it puts out, and its state. `x` is what belongs to it in the projected sequence,
    /// and `at` its place there.
    fn step(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        x: ExprId,
        at: ExprId,
        state: State,
    ) -> Result<(ExprId, State), NodeError> {
        let mut next = match self.cell {
            Cell::Rnn => self.rnn(node, direction, x, state)?,
            Cell::Gru { linear_before_reset } => {
                self.gru(node, direction, x, state, linear_before_reset)?
            }
            Cell::Lstm { input_forget } => self.lstm(node, direction, x, state, input_forget)?,
        };
        let Some(lengths) = self.lengths else { return Ok((next.hidden, next)) };
        // Behind its end a sequence keeps its state and puts out zeros.
        let dtype = node.tensor(lengths)?.dtype;
        let place = node.cast(at, dtype)?;
        let within = node.call(&GREATER, &[lengths, place])?;
        let zero = node.scalar(0.0, self.dtype)?;
        let output = node.choose(within, next.hidden, zero)?;
        next.hidden = node.choose(within, next.hidden, state.hidden)?;
        next.cell = match self.cell {
            Cell::Lstm { .. } => node.choose(within, next.cell, state.cell)?,
            Cell::Rnn | Cell::Gru { .. } => next.hidden,
        };
        Ok((output, next))
    }

    /// An activation of what is clipped before, if the layer says so.
    fn activate(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        index: usize,
        x: ExprId,
    ) -> Result<ExprId, NodeError> {
        let x = match self.clip {
            Some(bound) => node.clip_to(x, bound)?,
            None => x,
        };
        direction.activations[index].apply(node, x)
    }

    fn rnn(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        x: ExprId,
        state: State,
    ) -> Result<State, NodeError> {
        let recurrent = direction.recurrent.product(node, state.hidden)?;
        let sum = node.add(recurrent, x)?;
        let hidden = self.activate(node, direction, 0, sum)?;
        Ok(State { hidden, cell: hidden })
    }

    /// Gates are in the order update, reset, hidden.
    fn gru(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        x: ExprId,
        state: State,
        linear_before_reset: bool,
    ) -> Result<State, NodeError> {
        let both = 2 * self.hidden;
        let (x_both, x_new) = (node.slice(x, 1, 0, both)?, self.gate(node, x, 1, 2)?);
        let Weights::Plain(weights) = direction.recurrent else {
            return Err(NodeError::new("weights of a GRU are not quantised"));
        };
        let (update, new);
        if linear_before_reset {
            let mut recurrent = node.call(&DENSE, &[state.hidden, weights])?;
            if let Some(bias) = direction.recurrent_bias {
                recurrent = node.add(recurrent, bias)?;
            }
            let recurrent_both = node.slice(recurrent, 1, 0, both)?;
            let gates = node.add(recurrent_both, x_both)?;
            let gates = self.activate(node, direction, 0, gates)?;
            let reset = self.gate(node, gates, 1, 1)?;
            let recurrent_new = self.gate(node, recurrent, 1, 2)?;
            let kept = node.multiply(reset, recurrent_new)?;
            new = node.add(kept, x_new)?;
            update = self.gate(node, gates, 1, 0)?;
        } else {
            let weights_both = node.slice(weights, 0, 0, both)?;
            let recurrent = node.call(&DENSE, &[state.hidden, weights_both])?;
            let gates = node.add(recurrent, x_both)?;
            let gates = self.activate(node, direction, 0, gates)?;
            let reset = self.gate(node, gates, 1, 1)?;
            let kept = node.multiply(reset, state.hidden)?;
            let weights_new = self.gate(node, weights, 0, 2)?;
            let recurrent = node.call(&DENSE, &[kept, weights_new])?;
            new = node.add(recurrent, x_new)?;
            update = self.gate(node, gates, 1, 0)?;
        }
        let new = self.activate(node, direction, 1, new)?;
        let rest = node.scalar_less(1.0, update)?;
        let new = node.multiply(rest, new)?;
        let old = node.multiply(update, state.hidden)?;
        let hidden = node.add(new, old)?;
        Ok(State { hidden, cell: hidden })
    }

    /// Gates are in the order input, output, forget, cell.
    fn lstm(
        &self,
        node: &mut Node<'_, '_>,
        direction: &Direction,
        x: ExprId,
        state: State,
        input_forget: bool,
    ) -> Result<State, NodeError> {
        let recurrent = direction.recurrent.product(node, state.hidden)?;
        let gates = node.add(recurrent, x)?;
        let mut input = self.gate(node, gates, 1, 0)?;
        let mut output = self.gate(node, gates, 1, 1)?;
        let mut forget = self.gate(node, gates, 1, 2)?;
        let new = self.gate(node, gates, 1, 3)?;
        if let Some([to_input, _, to_forget]) = direction.peepholes {
            let seen = node.multiply(to_input, state.cell)?;
            input = node.add(input, seen)?;
            let seen = node.multiply(to_forget, state.cell)?;
            forget = node.add(forget, seen)?;
        }
        let input = self.activate(node, direction, 0, input)?;
        let forget = if input_forget {
            node.scalar_less(1.0, input)?
        } else {
            self.activate(node, direction, 0, forget)?
        };
        let new = self.activate(node, direction, 1, new)?;
        let kept = node.multiply(forget, state.cell)?;
        let added = node.multiply(input, new)?;
        let cell = node.add(kept, added)?;
        if let Some([_, to_output, _]) = direction.peepholes {
            let seen = node.multiply(to_output, cell)?;
            output = node.add(output, seen)?;
        }
        let output = self.activate(node, direction, 0, output)?;
        let shown = direction.activations[2].apply(node, cell)?;
        Ok(State { hidden: node.multiply(output, shown)?, cell })
    }

    /// States one after the other: `(count, batch, hidden)`.
    fn stack(&self, node: &mut Node<'_, '_>, states: &[ExprId]) -> Result<ExprId, NodeError> {
        let dims = vec![Dim::from(1i64), self.batch.clone(), Dim::from(self.hidden)];
        let states: Vec<ExprId> = states
            .iter()
            .map(|&state| node.reshape(state, dims.clone()))
            .collect::<Result<_, _>>()?;
        node.concatenate(&states, 0)
    }
}
