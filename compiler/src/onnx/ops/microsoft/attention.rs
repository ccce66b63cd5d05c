//! Attention as ONNX Runtime's optimiser and generative models write it.

use super::quantized;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::attention::{expand, heads, matmul, pack, repeat_heads, rotate, unpack};
use crate::onnx::ops::missing;
use crate::onnx::ops::slice::places;
use crate::ops::elementwise::{
    ADD, CLIP, ClipAttrs, DIVIDE, EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, LOGICAL_AND,
    MAXIMUM, MINIMUM, MULTIPLY, SUBTRACT, TANH,
};
use crate::ops::nn::{MATMUL, MatmulAttrs, SOFTMAX, SoftmaxAttrs};
use crate::ops::tensor::{GATHER, GatherAttrs, TAKE, TakeAttrs, TakeMode};

/// Most keys that a model may say it has.
const MAX_KEYS: i64 = 1 << 24;

/// Queries, keys and values, each `(batch, heads, length, size)`.
struct Heads {
    q: ExprId,
    k: ExprId,
    v: ExprId,
}

/// How scores become weights.
struct Scoring {
    /// Unless given, the root of the reciprocal of the size of a head.
    scale: Option<f64>,
    /// The bound that a hyperbolic tangent keeps scores in; none if zero.
    softcap: f64,
    /// What is added to the scores.
    bias: Option<ExprId>,
    /// Scores of one more key for each head, which has no value.
    sink: Option<ExprId>,
}

impl Heads {
    /// The weighted sums of the values, `(batch, heads, length, size)`, and the scores.
    fn attend(&self, node: &mut Node<'_, '_>, by: &Scoring) -> Result<[ExprId; 2], NodeError> {
        let size = node.known_extent(self.q, 3)?;
        let scale = by.scale.filter(|&scale| scale != 0.0);
        let raw = matmul(node, self.q, self.k, true)?;
        let scale = scale.unwrap_or_else(|| 1.0 / (size as f64).sqrt());
        let mut scores = node.with_scalar(&MULTIPLY, raw, scale)?;
        if by.softcap > 0.0 {
            let inner = node.with_scalar(&DIVIDE, scores, by.softcap)?;
            let inner = node.call(&TANH, &[inner])?;
            scores = node.with_scalar(&MULTIPLY, inner, by.softcap)?;
        }
        if let Some(bias) = by.bias {
            scores = node.add(scores, bias)?;
        }
        let mut all = scores;
        if let Some(sink) = by.sink {
            let mut dims = node.shape(scores)?.to_vec();
            dims[3] = Dim::from(1i64);
            let sink = node.broadcast_to(sink, dims)?;
            all = node.concatenate(&[scores, sink], 3)?;
        }
        let mut weights = node.call_with(&SOFTMAX, &[all], &SoftmaxAttrs { axis: -1 })?;
        if by.sink.is_some() {
            weights = node.slice(weights, 3, 0, -1)?;
        }
        Ok([matmul(node, weights, self.v, false)?, scores])
    }
}

/// `(batch, length, heads · size)` as `(batch, heads, length, size)`.
fn by_head(node: &mut Node<'_, '_>, x: ExprId, heads: i64) -> Result<ExprId, NodeError> {
    if node.shape(x)?.rank() != 3 {
        return Err(NodeError::new(format!(
            "query, key and value must have dimensions (batch, length, elements), but one is {}",
            node.shape(x)?
        )));
    }
    let split = unpack(node, x, heads)?;
    node.transposed(split, &[0, 2, 1, 3])
}

/// The lowest finite number of a type, which leaves a key out unless all are left out.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => -3.389_531_389_251_535_5e38,
        DType::F64 => f64::MIN,
        _ => f64::from(f32::MIN),
    }
}

/// Attributes and inputs of which only zero, or nothing, is supported.
fn refuse(
    node: &mut Node<'_, '_>,
    attributes: &[&str],
    inputs: &[(usize, &str)],
) -> Result<(), NodeError> {
    for name in attributes {
        let value = node.attrs.int(name)?.unwrap_or(0);
        if value != 0 {
            return Err(NodeError::new(format!("attribute `{name}` {value} is not supported"))
                .help("ONNX Runtime has it on graphics processors alone; export for the CPU"));
        }
    }
    for &(index, name) in inputs {
        if node.optional(index).is_some() {
            return Err(NodeError::new(format!("input {index}, `{name}`, is not supported")));
        }
    }
    Ok(())
}

/// What is added to scores of `(batch, heads, queries, keys)`: `filter` for each key that a mask of
/// integers leaves out, and the lowest number for keys behind the query if it may not see them.
fn mask_bias(
    node: &mut Node<'_, '_>,
    heads: &Heads,
    mask: Option<ExprId>,
    filter: f64,
    unidirectional: bool,
) -> Result<Option<ExprId>, NodeError> {
    let dtype = node.tensor(heads.q)?.dtype;
    let batch = node.shape(heads.q)?[0].clone();
    let (queries, keys) = (node.shape(heads.q)?[2].clone(), node.shape(heads.k)?[2].clone());
    let zero = node.scalar(0.0, dtype)?;
    let mut bias = None;
    if let Some(mask) = mask {
        let shape = node.shape(mask)?;
        let one = Dim::from(1i64);
        let kept = match &shape[..] {
            // A mask of nothing, which stands for none.
            [_, last] if last.is(1) && !keys.is(1) => None,
            [_, _] | [_, _, _] => {
                let mut dims = shape.to_vec();
                let missing_axes = 4 - dims.len();
                for _ in 0..missing_axes {
                    dims.insert(1, one.clone());
                }
                let mask = node.reshape(mask, dims)?;
                Some(node.with_scalar(&GREATER, mask, 0.0)?)
            }
            [ends] => {
                let has_starts = *ends == &batch * &Dim::from(2i64);
                if !has_starts
                    && !node.is_same(std::slice::from_ref(ends), std::slice::from_ref(&batch))
                {
                    return Err(NodeError::new(format!(
                        "a mask of {ends} lengths is not supported for a batch of {batch}"
                    ))
                    .pin([ends, &batch]));
                }
                let column = vec![batch.clone(), one.clone(), one.clone(), one.clone()];
                let place = node.counting(keys.clone())?;
                let place = node.cast(place, node.tensor(mask)?.dtype)?;
                let ends = if has_starts { node.first_of(mask, 0, &batch)? } else { mask };
                let ends = node.reshape(ends, column.clone())?;
                let mut kept = node.call(&LESS, &[place, ends])?;
                if has_starts {
                    let starts = places(node, mask, 0, batch.clone(), 1, batch.clone())?;
                    let starts = node.reshape(starts, column)?;
                    let from = node.call(&GREATER_EQUAL, &[place, starts])?;
                    kept = node.call(&LOGICAL_AND, &[kept, from])?;
                }
                Some(kept)
            }
            _ => {
                return Err(NodeError::new(format!("a mask of shape {shape} is not supported")));
            }
        };
        if let Some(kept) = kept {
            let filter = node.scalar(filter, dtype)?;
            bias = Some(node.choose(kept, zero, filter)?);
        }
    }
    if unidirectional && !queries.is(1) {
        let lowest = node.scalar(lowest(dtype), dtype)?;
        let key = node.counting(keys.clone())?;
        let place = node.counting(queries.clone())?;
        let place = node.reshape(place, vec![queries.clone(), Dim::from(1i64)])?;
        let before = node.size_scalar(&(keys - queries))?;
        let place = node.add(place, before)?;
        let seen = node.call(&LESS_EQUAL, &[key, place])?;
        let rest = bias.unwrap_or(zero);
        bias = Some(node.choose(seen, rest, lowest)?);
    }
    Ok(bias)
}

fn sum_of(
    node: &mut Node<'_, '_>,
    a: Option<ExprId>,
    b: Option<ExprId>,
) -> Result<Option<ExprId>, NodeError> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(node.add(a, b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

/// `Attention`: the projection of one input to queries, keys and values, and attention.
pub(super) fn attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    refuse(node, &["do_rotary", "past_present_share_buffer"], &[(6, "past_sequence_length")])?;
    node.attrs.int("rotary_embedding_dim")?;
    let mut packed = node.call_with(&MATMUL, &[x, weight], &MatmulAttrs::default())?;
    if let Some(bias) = node.optional(2) {
        packed = node.add(packed, bias)?;
    }
    let sizes = node.attrs.ints("qkv_hidden_sizes")?.map(<[i64]>::to_vec);
    let (mask, past, bias) = (node.optional(3), node.optional(4), node.optional(5));
    of_packed(node, packed, sizes, [mask, past, bias])
}

/// `QAttention`: `Attention` of a quantised input and weights.
pub(super) fn quantized_attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    refuse(node, &["do_rotary", "past_present_share_buffer"], &[])?;
    let packed = quantized::attention_projection(node)?;
    let (mask, past) = (node.optional(5), node.optional(8));
    of_packed(node, packed, None, [mask, past, None])
}

/// Attention of `(batch, length, queries + keys + values)`.
fn of_packed(
    node: &mut Node<'_, '_>,
    packed: ExprId,
    sizes: Option<Vec<i64>>,
    [mask, past, attention_bias]: [Option<ExprId>; 3],
) -> Result<Outputs, NodeError> {
    let count = heads(node, "num_heads")?;
    let width = node.known_extent(packed, 2)?;
    let sizes = sizes.unwrap_or_else(|| vec![width / 3; 3]);
    let fits = sizes.len() == 3
        && sizes.iter().all(|size| (1..=width).contains(size))
        && sizes.iter().sum::<i64>() == width;
    if !fits {
        return Err(NodeError::new(format!(
            "{width} elements cannot be divided into queries, keys and values of {sizes:?}"
        )));
    }
    let mut parts = Vec::with_capacity(3);
    let mut begin = 0;
    for size in sizes {
        let part = node.slice(packed, 2, begin, begin + size)?;
        begin += size;
        parts.push(by_head(node, part, count)?);
    }
    let mut all = Heads { q: parts[0], k: parts[1], v: parts[2] };
    if let Some(past) = past {
        let (key, value) = (node.first_axis_at(past, 0)?, node.first_axis_at(past, 1)?);
        all.k = node.concatenate(&[key, all.k], 2)?;
        all.v = node.concatenate(&[value, all.v], 2)?;
    }
    let unidirectional = node.attrs.flag("unidirectional", false)?;
    let filter = node.attrs.float("mask_filter_value")?.unwrap_or(-10000.0);
    let bias = mask_bias(node, &all, mask, filter, unidirectional)?;
    let bias = sum_of(node, bias, attention_bias)?;
    let scale = node.attrs.float("scale")?;
    let [y, _] = all.attend(node, &Scoring { scale, softcap: 0.0, bias, sink: None })?;
    let mut outputs = vec![pack(node, y)?];
    if node.wants_output(1) {
        let (key, value) = (expand(node, all.k, &[0])?, expand(node, all.v, &[0])?);
        outputs.push(node.concatenate(&[key, value], 0)?);
    }
    Ok(outputs)
}

/// `MultiHeadAttention`: queries, keys and values are inputs of their own.
pub(super) fn multi_head_attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let unsupported = [(8, "past_sequence_length"), (9, "cache_indirection")];
    refuse(node, &[], &unsupported)?;
    let count = heads(node, "num_heads")?;
    let mut parts = [node.input(0)?, node.input(0)?, node.input(0)?];
    for (index, name) in [(1, "key"), (2, "value")] {
        parts[index] = node.optional(index).ok_or_else(|| {
            missing(name).help(
                "packed queries, keys and values are not supported; ONNX Runtime, too, runs them on \
                 graphics processors alone",
            )
        })?;
    }
    if let Some(bias) = node.optional(3) {
        let mut begin = 0;
        for part in &mut parts {
            if node.shape(*part)?.rank() != 3 {
                // Heads of another layer, which has added its own.
                continue;
            }
            let width = node.known_extent(*part, 2)?;
            let own = node.slice(bias, 0, begin, begin + width)?;
            begin += width;
            *part = node.add(*part, own)?;
        }
    }
    for part in &mut parts {
        if node.shape(*part)?.rank() != 4 {
            *part = by_head(node, *part, count)?;
        }
    }
    let mut all = Heads { q: parts[0], k: parts[1], v: parts[2] };
    match (node.optional(6), node.optional(7)) {
        (Some(key), Some(value)) => {
            all.k = node.concatenate(&[key, all.k], 2)?;
            all.v = node.concatenate(&[value, all.v], 2)?;
        }
        (None, None) => {}
        _ => return Err(NodeError::new("past key and past value must be given together")),
    }
    let unidirectional = node.attrs.flag("unidirectional", false)?;
    let filter = node.attrs.float("mask_filter_value")?.unwrap_or(-10000.0);
    let mask = node.optional(4);
    let bias = mask_bias(node, &all, mask, filter, unidirectional)?;
    let attention_bias = node.optional(5);
    let bias = sum_of(node, bias, attention_bias)?;
    let scale = node.attrs.float("scale")?;
    let [y, scores] = all.attend(node, &Scoring { scale, softcap: 0.0, bias, sink: None })?;
    Ok(vec![pack(node, y)?, all.k, all.v, scores])
}

/// `RotaryEmbedding`: of ONNX's own inputs in another order, at places from one first or each given.
pub(super) fn rotary_embedding(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, places) = (node.input(0)?, node.input(1)?);
    let (cos, sin) = (node.input(2)?, node.input(3)?);
    refuse(node, &["is_packed_batching"], &[])?;
    let scale = node.attrs.float("scale")?.unwrap_or(1.0);
    if scale != 1.0 {
        return Err(NodeError::new(format!("attribute `scale` {scale} is not supported")));
    }
    let interleaved = node.attrs.flag("interleaved", false)?;
    let count = node.attrs.int("num_heads")?.unwrap_or(0);
    let turned = node.attrs.int("rotary_embedding_dim")?.unwrap_or(0);
    let is_packed = node.shape(x)?.rank() == 3;
    let whole = match (is_packed, count) {
        (false, _) if node.shape(x)?.rank() == 4 => node.transposed(x, &[0, 2, 1, 3])?,
        (false, _) => {
            return Err(NodeError::new("input 0 must have three or four dimensions"));
        }
        (true, 1..) => unpack(node, x, count)?,
        (true, _) => {
            let size = 2 * node.known_extent(cos, 1)?;
            let count = node.known_extent(x, 2)?.checked_div(size).unwrap_or_default();
            unpack(node, x, count.max(1))?
        }
    };
    let turned = if turned == 0 { node.known_extent(whole, 3)? } else { turned };
    let shape = node.shape(whole)?;
    let (batch, length) = (shape[0].clone(), shape[1].clone());
    let places = if node.shape(places)?.rank() == 2 {
        places
    } else {
        let steps = node.counting(length.clone())?;
        let first = node.cast(places, node.tensor(steps)?.dtype)?;
        let all = node.add(steps, first)?;
        node.broadcast_to(all, vec![batch, length])?
    };
    let tables = angles(node, [cos, sin], places, turned)?;
    let result = rotate(node, whole, tables, turned, interleaved)?;
    Ok(vec![if is_packed {
        let dims = node.shape(x)?.to_vec();
        node.reshape(result, dims)?
    } else {
        node.transposed(result, &[0, 2, 1, 3])?
    }])
}

/// The rows of the tables of cosines and sines for `(batch, length)` places, as wide as they are
/// needed.
fn angles(
    node: &mut Node<'_, '_>,
    tables: [ExprId; 2],
    places: ExprId,
    turned: i64,
) -> Result<[ExprId; 2], NodeError> {
    let mut rows = tables;
    for table in &mut rows {
        let width = node.known_extent(*table, 1)?;
        if width < turned / 2 {
            return Err(NodeError::new(format!(
                "{turned} elements are turned in pairs, but the tables have {width} angles"
            )));
        }
        let narrow = node.slice(*table, 1, 0, turned / 2)?;
        let attrs = TakeAttrs { axis: 0, mode: TakeMode::Fast };
        *table = node.call_with(&TAKE, &[narrow, places], &attrs)?;
    }
    Ok(rows)
}

/// `GroupQueryAttention`: heads of queries share keys and values, which a buffer collects. Each
/// sequence of the batch may have a length of its own.
pub(super) fn group_query_attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (q_heads, kv_heads) = (heads(node, "num_heads")?, heads(node, "kv_num_heads")?);
    let unsupported =
        [(12, "k_scale"), (13, "v_scale"), (14, "q_norm_weight"), (15, "k_norm_weight")];
    refuse(node, &["kv_cache_bit_width", "qk_output", "sliding_window_cache"], &unsupported)?;
    for name in ["k_quant_type", "v_quant_type"] {
        if let Some(kind) = node.attrs.string(name)?.filter(|&kind| kind != "NONE") {
            return Err(NodeError::new(format!("attribute `{name}` {kind} is not supported")));
        }
    }
    if q_heads % kv_heads != 0 {
        return Err(NodeError::new(format!(
            "{q_heads} heads of the query cannot share {kv_heads} heads of the key"
        )));
    }
    let mut q = node.input(0)?;
    let (mut k, mut v) = match (node.optional(1), node.optional(2)) {
        (Some(k), Some(v)) => (k, v),
        (None, None) => {
            let packed = node.known_extent(q, 2)?;
            let all = kv_heads.saturating_mul(2).saturating_add(q_heads);
            let size = packed / all;
            let (first, second) = (size * q_heads, size * (all - kv_heads));
            let parts = (node.slice(q, 2, first, second)?, node.slice(q, 2, second, packed)?);
            q = node.slice(q, 2, 0, first)?;
            parts
        }
        _ => return Err(NodeError::new("key and value must be given together")),
    };
    let (batch, length) = (node.shape(q)?[0].clone(), node.shape(q)?[1].clone());
    let total = node.dim_input(6)?.ok_or_else(|| missing("total_sequence_length"))?;
    if total.as_const().is_some_and(|total| total > MAX_KEYS) || !node.is_at_least(&total, &length)
    {
        return Err(NodeError::new(format!(
            "input 6 must be from {length} to {MAX_KEYS}, but it is {total}"
        ))
        .pin([&length, &total]));
    }
    let start = Start::of(node, &length, &total)?;
    let dtype = node.tensor(q)?.dtype;

    // The first place of each sequence's new elements, `(batch, 1)`.
    let one = Dim::from(1i64);
    let ends = node.input(5)?;
    let ends = node.reshape(ends, vec![batch.clone(), one.clone()])?;
    let ends = node.cast(ends, DType::I64)?;
    let ends = node.with_scalar(&ADD, ends, 1.0)?;
    let first = match start {
        Start::Always => node.full(0.0, DType::I64, vec![batch.clone(), one.clone()])?,
        Start::Never | Start::If(_) => {
            let length = node.size_scalar(&length)?;
            let (zero, first) = (node.int(0), node.subtract(ends, length)?);
            start.choose(node, zero, first)?
        }
    };
    let steps = node.counting(length.clone())?;
    let places = node.add(first, steps)?;

    q = unpack(node, q, q_heads)?;
    k = unpack(node, k, kv_heads)?;
    v = unpack(node, v, kv_heads)?;
    let interleaved = node.attrs.flag("rotary_interleaved", false)?;
    if node.attrs.flag("do_rotary", false)? {
        let tables = [node.input(7)?, node.input(8)?];
        // Behind the end of a sequence nothing is read.
        let last = node.known_extent(tables[0], 0)? - 1;
        let attrs = ClipAttrs { min: Some(0.0), max: Some(last as f64) };
        let counted = node.call_with(&CLIP, &[places], &attrs)?;
        let given = match node.optional(9) {
            // At the start ONNX Runtime counts from zero whatever is given.
            Some(given) => {
                let given = node.cast(given, DType::I64)?;
                start.choose(node, counted, given)?
            }
            None => counted,
        };
        let turned = 2 * node.known_extent(tables[0], 1)?;
        let tables = angles(node, tables, given, turned)?;
        q = rotate(node, q, tables, turned, interleaved)?;
        k = rotate(node, k, tables, turned, interleaved)?;
    }
    let mut order = |x: ExprId| node.transposed(x, &[0, 2, 1, 3]);
    (q, k, v) = (order(q)?, order(k)?, order(v)?);

    let capacity = match (node.optional(3), node.optional(4)) {
        (Some(past), Some(_)) => {
            let capacity = node.shape(past)?[2].maximum(&total);
            node.facts().simplify(&capacity)
        }
        (None, None) => total.clone(),
        _ => return Err(NodeError::new("past key and past value must be given together")),
    };
    let mut presents = [k, v];
    for (present, past) in presents.iter_mut().zip([node.optional(3), node.optional(4)]) {
        // What begins a sequence and fills the buffer leaves nothing of it.
        let is_whole = matches!(start, Start::Always) && capacity == length;
        if let Some(past) = past.filter(|_| !is_whole) {
            *present = collected(node, *present, past, first, &capacity)?;
        }
    }
    let [present_key, present_value] = presents;
    let keys = node.first_of(present_key, 2, &total)?;
    let values = node.first_of(present_value, 2, &total)?;
    let all = Heads {
        q,
        k: repeat_heads(node, keys, q_heads / kv_heads)?,
        v: repeat_heads(node, values, q_heads / kv_heads)?,
    };

    // (batch, 1, queries, keys)
    let key = node.counting(total.clone())?;
    let place = node.reshape(places, vec![batch.clone(), one.clone(), length, one.clone()])?;
    let ends = node.reshape(ends, vec![batch, one.clone(), one.clone(), one])?;
    let mut seen = node.call(&LESS, &[key, ends])?;
    if node.attrs.flag("causal", true)? {
        let before = node.call(&LESS_EQUAL, &[key, place])?;
        let both = node.call(&LOGICAL_AND, &[seen, before])?;
        seen = start.choose(node, before, both)?;
    }
    let window = node.attrs.int("local_window_size")?.unwrap_or(-1);
    if window > 0 {
        let from = node.with_scalar(&SUBTRACT, place, window as f64)?;
        let near = node.call(&GREATER, &[key, from])?;
        seen = node.call(&LOGICAL_AND, &[seen, near])?;
    }
    let (zero, lowest) = (node.scalar(0.0, dtype)?, node.scalar(lowest(dtype), dtype)?);
    let rest = match node.optional(10) {
        Some(bias) => {
            let given =
                node.shape(bias)?.get(3).cloned().ok_or_else(|| missing("attention_bias"))?;
            if !node.is_at_least(&given, &total) {
                return Err(NodeError::new(format!(
                    "the bias is for {given} keys, but there are {total}"
                ))
                .pin([&given, &total]));
            }
            node.first_of(bias, 3, &total)?
        }
        None => zero,
    };
    let bias = Some(node.choose(seen, rest, lowest)?);
    let smooth = node.attrs.int("smooth_softmax")?.unwrap_or(0) > 0;
    let sink = match node.optional(11) {
        Some(sink) => {
            let dims = [1, q_heads, 1, 1].map(Dim::from).to_vec();
            let sink = node.cast(sink, dtype)?;
            Some(node.reshape(sink, dims)?)
        }
        None if smooth => Some(zero),
        None => None,
    };
    let softcap = node.attrs.float("softcap")?.unwrap_or(0.0);
    let scale = node.attrs.float("scale")?;
    let [y, _] = all.attend(node, &Scoring { scale, softcap, bias, sink })?;
    Ok(vec![pack(node, y)?, present_key, present_value])
}

/// Whether the new elements are the first of their sequences, which then all begin at zero.
#[derive(Clone, Copy)]
enum Start {
    Always,
    Never,
    /// As this scalar says in each run.
    If(ExprId),
}

impl Start {
    /// So many new elements are the first if there are no others.
    fn of(node: &mut Node<'_, '_>, length: &Dim, total: &Dim) -> Result<Start, NodeError> {
        Ok(match node.facts().prove_eq(length, total) {
            Some(true) => Start::Always,
            Some(false) => Start::Never,
            None => {
                let sizes = [node.size_scalar(length)?, node.size_scalar(total)?];
                Start::If(node.call(&EQUAL, &sizes)?)
            }
        })
    }

    /// One value at the start, and another later.
    fn choose(
        self,
        node: &mut Node<'_, '_>,
        first: ExprId,
        later: ExprId,
    ) -> Result<ExprId, NodeError> {
        match self {
            Start::Always => Ok(first),
            Start::Never => Ok(later),
            Start::If(is_first) => node.choose(is_first, first, later),
        }
    }
}

/// The buffer of `(batch, heads, capacity, size)` with the new elements from the place `first` of
/// each sequence on, the old ones before them and zeros behind.
fn collected(
    node: &mut Node<'_, '_>,
    new: ExprId,
    past: ExprId,
    first: ExprId,
    capacity: &Dim,
) -> Result<ExprId, NodeError> {
    let dtype = node.tensor(new)?.dtype;
    let mut dims = node.shape(new)?.to_vec();
    let length = std::mem::replace(&mut dims[2], capacity.clone());
    let held = node.shape(past)?[2].clone();
    let mut past = past;
    if held != *capacity {
        let at = node.counting(capacity.clone())?;
        let size = node.size_scalar(&held)?;
        let is_held = node.call(&LESS, &[at, size])?;
        let is_held = node.reshape(is_held, vec![capacity.clone(), Dim::from(1i64)])?;
        let (old, zero) = (node.taken(past, at, 2)?, node.scalar(0.0, dtype)?);
        past = node.choose(is_held, old, zero)?;
    }
    // The new element of each place, where there is one.
    let one = Dim::from(1i64);
    let place = node.counting(capacity.clone())?;
    let first =
        node.reshape(first, vec![dims[0].clone(), one.clone(), one.clone(), one.clone()])?;
    let place = node.reshape(place, vec![one.clone(), one.clone(), capacity.clone(), one])?;
    let step = node.subtract(place, first)?;
    let from = node.with_scalar(&GREATER_EQUAL, step, 0.0)?;
    let (count, last) = (node.size_scalar(&length)?, node.size_scalar(&(length - 1))?);
    let until = node.call(&LESS, &[step, count])?;
    let step = node.with_scalar(&MAXIMUM, step, 0.0)?;
    let step = node.call(&MINIMUM, &[step, last])?;
    let step = node.broadcast_to(step, dims)?;
    let moved = node.call_with(&GATHER, &[new, step], &GatherAttrs { axis: 2 })?;
    // As in ONNX Runtime, what lies behind the new elements is zero.
    let zero = node.scalar(0.0, dtype)?;
    let moved = node.choose(until, moved, zero)?;
    node.choose(from, moved, past)
}
