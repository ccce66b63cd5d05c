//! Attention and what goes with it: `Attention`, `RotaryEmbedding`, `LinearAttention` and
//! `CausalConvWithState`.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{MAX_UNROLLED_STEPS, Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::elementwise::{
    ADD, EQUAL, EXP, LESS, LESS_EQUAL, LOGICAL_AND, MULTIPLY, SIGMOID, SUBTRACT, TANH,
};
use crate::ops::nn::{
    CONV1D, ConvAttrs, MATMUL, MatmulAttrs, PAD, PadAttrs, PadMode, SOFTMAX, SoftmaxAttrs,
};
use crate::ops::reduce::MAX;
use crate::ops::tensor::{
    EXPAND_DIMS, ExpandDimsAttrs, FULL, FullAttrs, STRIDED_SLICE, StridedSliceAttrs, TAKE,
    TakeAttrs, TakeMode,
};

pub(super) fn matmul(
    node: &mut Node<'_, '_>,
    a: ExprId,
    b: ExprId,
    transpose_b: bool,
) -> Result<ExprId, NodeError> {
    node.call_with(&MATMUL, &[a, b], &MatmulAttrs { transpose_b, ..MatmulAttrs::default() })
}

pub(super) fn expand(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: &[i64],
) -> Result<ExprId, NodeError> {
    node.call_with(&EXPAND_DIMS, &[x], &ExpandDimsAttrs { axis: axis.to_vec() })
}

/// A number of heads that an attribute gives, for a packed input.
pub(super) fn heads(node: &mut Node<'_, '_>, name: &str) -> Result<i64, NodeError> {
    let heads = node.attrs.int(name)?.ok_or_else(|| missing(name))?;
    if heads < 1 {
        return Err(NodeError::new(format!(
            "attribute `{name}` must be positive, but it is {heads}"
        )));
    }
    Ok(heads)
}

/// `(batch, length, heads · size)` as `(batch, length, heads, size)`.
pub(super) fn unpack(node: &mut Node<'_, '_>, x: ExprId, heads: i64) -> Result<ExprId, NodeError> {
    let width = node.known_extent(x, 2)?;
    if width % heads != 0 {
        return Err(NodeError::new(format!(
            "{width} elements cannot be divided among {heads} heads"
        )));
    }
    let shape = node.shape(x)?;
    let dims = [shape[0].clone(), shape[1].clone(), heads.into(), (width / heads).into()];
    node.reshape(x, dims.to_vec())
}

/// `(batch, heads, length, size)` as `(batch, length, heads · size)`.
pub(super) fn pack(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    let shape = node.shape(x)?;
    let x = node.transposed(x, &[0, 2, 1, 3])?;
    let width = &shape[1] * &shape[3];
    node.reshape(x, vec![shape[0].clone(), shape[2].clone(), width])
}

/// Each head `times` over: `(batch, heads, …)` as `(batch, heads · times, …)`.
pub(super) fn repeat_heads(
    node: &mut Node<'_, '_>,
    x: ExprId,
    times: i64,
) -> Result<ExprId, NodeError> {
    if times == 1 {
        return Ok(x);
    }
    let shape = node.shape(x)?.to_vec();
    let column = expand(node, x, &[2])?;
    let mut dims = shape.clone();
    dims.insert(2, times.into());
    let all = node.broadcast_to(column, dims)?;
    let mut dims = shape;
    dims[1] = &dims[1] * &Dim::from(times);
    node.reshape(all, dims)
}

/// `Attention`-23, -24 (`nonpad_kv_seqlen`), -25 (windows).
pub(super) fn attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (mut q, mut k, mut v) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = node.tensor(q)?.dtype;
    let is_packed = node.shape(q)?.rank() == 3;
    if is_packed {
        let (q_heads, kv_heads) = (heads(node, "q_num_heads")?, heads(node, "kv_num_heads")?);
        for (value, heads) in [(&mut q, q_heads), (&mut k, kv_heads), (&mut v, kv_heads)] {
            let split = unpack(node, *value, heads)?;
            *value = node.transposed(split, &[0, 2, 1, 3])?;
        }
    } else {
        // Of no use where the heads are an axis of their own.
        node.attrs.int("q_num_heads")?;
        node.attrs.int("kv_num_heads")?;
    }
    for value in [q, k, v] {
        let shape = node.shape(value)?;
        if shape.rank() != 4 {
            return Err(NodeError::new(format!(
                "query, key and value must have three or four dimensions, all the same, but one is {shape}"
            )));
        }
    }
    let past = match (node.optional(4), node.optional(5)) {
        (Some(key), Some(value)) => {
            k = node.concatenate(&[key, k], 2)?;
            v = node.concatenate(&[value, v], 2)?;
            Some(node.shape(key)?[2].clone())
        }
        (None, None) => None,
        _ => return Err(NodeError::new("past key and past value must be given together")),
    };
    let (present_key, present_value) = (k, v);
    let (q_heads, kv_heads) = (node.known_extent(q, 1)?, node.known_extent(k, 1)?);
    if kv_heads == 0 || q_heads % kv_heads != 0 {
        return Err(NodeError::new(format!(
            "{q_heads} heads of the query cannot share {kv_heads} heads of the key"
        )));
    }
    k = repeat_heads(node, k, q_heads / kv_heads)?;
    v = repeat_heads(node, v, q_heads / kv_heads)?;

    let size = node.known_extent(q, 3)?;
    let scale = node.attrs.float("scale")?.unwrap_or_else(|| 1.0 / (size as f64).sqrt());
    // As the specification has it, both factors are scaled, so that 16-bit products stay finite.
    let root = scale.sqrt();
    q = node.with_scalar(&MULTIPLY, q, root)?;
    k = node.with_scalar(&MULTIPLY, k, root)?;
    let raw = matmul(node, q, k, true)?;
    let softcap = node.attrs.float("softcap")?.unwrap_or(0.0);
    let mut scores = raw;
    if softcap > 0.0 {
        let inner = node.with_scalar(&MULTIPLY, scores, 1.0 / softcap)?;
        let inner = node.call(&TANH, &[inner])?;
        scores = node.with_scalar(&MULTIPLY, inner, softcap)?;
    }
    let capped = scores;
    let bias = attention_bias(node, q, k, past, dtype)?;
    if let Some(bias) = bias {
        scores = node.add(scores, bias)?;
    }
    let biased = scores;
    if let Some(precision) = node.attrs.int("softmax_precision")? {
        scores = node.cast(scores, softmax_dtype(precision)?)?;
    }
    let mut weights = node.call_with(&SOFTMAX, &[scores], &SoftmaxAttrs { axis: -1 })?;
    weights = node.cast(weights, dtype)?;
    if let Some(bias) = bias {
        // A query that may attend to nothing has no weights.
        let rank = node.shape(bias)?.rank();
        let most = node.reduce(&MAX, bias, [rank - 1], true)?;
        let nothing = node.with_scalar(&EQUAL, most, f64::NEG_INFINITY)?;
        let zero = node.scalar(0.0, dtype)?;
        weights = node.choose(nothing, zero, weights)?;
    }
    let mut y = matmul(node, weights, v, false)?;
    if is_packed {
        y = pack(node, y)?;
    }
    let shown = match node.attrs.int("qk_matmul_output_mode")?.unwrap_or(0) {
        0 => raw,
        1 => capped,
        2 => biased,
        3 => weights,
        other => {
            return Err(NodeError::new(format!(
                "attribute `qk_matmul_output_mode` must be from 0 to 3, but it is {other}"
            )));
        }
    };
    Ok(vec![y, present_key, present_value, shown])
}

/// The data type that `softmax_precision` stands for.
fn softmax_dtype(precision: i64) -> Result<DType, NodeError> {
    i32::try_from(precision)
        .ok()
        .and_then(|precision| dtype_from_onnx(precision).ok())
        .filter(|dtype| dtype.is_float())
        .ok_or_else(|| {
            NodeError::new(format!(
                "attribute `softmax_precision` {precision} is no floating-point type"
            ))
        })
}

/// How many heads of the query share one of another input, both `(batch, heads, length, size)`.
fn sharing(node: &Node<'_, '_>, of: ExprId) -> Result<i64, NodeError> {
    let q = node.input(0)?;
    for value in [q, of] {
        let shape = node.shape(value)?;
        if shape.rank() != 4 {
            return Err(NodeError::new(format!(
                "four dimensions are expected, but one is {shape}"
            )));
        }
    }
    let (q_heads, heads) = (node.known_extent(q, 1)?, node.known_extent(of, 1)?);
    if heads == 0 || q_heads % heads != 0 {
        return Err(NodeError::new(format!(
            "{q_heads} heads of the query cannot share {heads} heads of the key"
        )));
    }
    Ok(q_heads / heads)
}

/// The scores of `FlexAttention`, in the type that the softmax is computed in.
pub(in crate::onnx) fn flex_scores(
    node: &mut Node<'_, '_>,
    scale: Option<f64>,
    precision: Option<i64>,
) -> Result<ExprId, NodeError> {
    let (q, k) = (node.input(0)?, node.input(1)?);
    let dtype = node.tensor(q)?.dtype;
    let precision = match precision {
        Some(precision) => softmax_dtype(precision)?,
        None if dtype == DType::F64 => DType::F64,
        None => DType::F32,
    };
    let times = sharing(node, k)?;
    let k = repeat_heads(node, k, times)?;
    let size = node.known_extent(q, 3)?;
    let (q, k) = (node.cast(q, precision)?, node.cast(k, precision)?);
    let scores = matmul(node, q, k, true)?;
    node.with_scalar(&MULTIPLY, scores, scale.unwrap_or_else(|| 1.0 / (size as f64).sqrt()))
}

/// The weights that scores stand for.
pub(in crate::onnx) fn flex_weights(
    node: &mut Node<'_, '_>,
    scores: ExprId,
) -> Result<ExprId, NodeError> {
    node.call_with(&SOFTMAX, &[scores], &SoftmaxAttrs { axis: -1 })
}

/// The weighted sums of the values.
pub(in crate::onnx) fn flex_values(
    node: &mut Node<'_, '_>,
    weights: ExprId,
) -> Result<ExprId, NodeError> {
    let (q, v) = (node.input(0)?, node.input(2)?);
    let times = sharing(node, v)?;
    let v = repeat_heads(node, v, times)?;
    let dtype = node.tensor(v)?.dtype;
    let weights = node.cast(weights, dtype)?;
    let y = matmul(node, weights, v, false)?;
    let dtype = node.tensor(q)?.dtype;
    node.cast(y, dtype)
}

/// A mask with `never` for keys that it does not know, which are not attended to. One whose extent may
/// be another than that of the keys has to be for all of them.
fn for_all_keys(
    node: &mut Node<'_, '_>,
    mask: ExprId,
    keys: &Dim,
    never: ExprId,
) -> Result<ExprId, NodeError> {
    let shape = node.shape(mask)?;
    let last = shape.rank().checked_sub(1).ok_or_else(|| missing("attn_mask"))?;
    let given = &shape[last];
    let is_shorter = node.facts().prove_le(given, keys) == Some(true);
    if !is_shorter || given == keys || given.is(1) {
        return Ok(mask);
    }
    if let [Some(keys), Some(given)] = [keys, given].map(Dim::as_const) {
        let mut pad_width = vec![[0, 0]; last + 1];
        pad_width[last][1] = keys - given;
        let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
        return node.call_with(&PAD, &[mask, never], &attrs);
    }
    if node.facts().bounds_of(given).lower.is_none_or(|least| least < 2) {
        return Err(NodeError::new(format!(
            "the mask knows {given} of {keys} keys, but one may also stand for all of them"
        ))
        .pin([given]));
    }
    let mut rest = shape.to_vec();
    rest[last] = keys - given;
    let rest = node.call_with(&FULL, &[never], &FullAttrs { shape: rest })?;
    node.concatenate(&[mask, rest], last)
}

/// What is added to the scores of `(batch, heads, queries, keys)`, if anything is: zero where a query
/// may attend to a key, and negative infinity where not.
fn attention_bias(
    node: &mut Node<'_, '_>,
    q: ExprId,
    k: ExprId,
    past: Option<Dim>,
    dtype: DType,
) -> Result<Option<ExprId>, NodeError> {
    let (causal, mask, lengths) =
        (node.attrs.flag("is_causal", false)?, node.optional(3), node.optional(6));
    let [left, right] = ["left_window_size", "right_window_size"].map(|name| node.attrs.int(name));
    let (left, right) = (left?.filter(|&size| size >= 0), right?.filter(|&size| size >= 0));
    let zero = node.scalar(0.0, dtype)?;
    let never = node.scalar(f64::NEG_INFINITY, dtype)?;
    let mut bias = None;
    if let Some(mask) = mask {
        let mut mask = mask;
        if node.tensor(mask)?.dtype == DType::Bool {
            mask = node.choose(mask, zero, never)?;
        }
        bias = Some(for_all_keys(node, mask, &node.shape(k)?[2].clone(), never)?);
    }
    let mut allowed: Option<ExprId> = None;
    let mut restrict = |node: &mut Node<'_, '_>, condition: ExprId| -> Result<(), NodeError> {
        allowed = Some(match allowed {
            Some(allowed) => node.call(&LOGICAL_AND, &[allowed, condition])?,
            None => condition,
        });
        Ok(())
    };
    if causal || left.is_some() || right.is_some() || lengths.is_some() {
        let (queries, keys) = (node.shape(q)?[2].clone(), node.shape(k)?[2].clone());
        let key = node.counting(keys)?;
        let lengths = match lengths {
            Some(lengths) => {
                let batch = node.shape(q)?[0].clone();
                let one = Dim::from(1i64);
                let lengths = node.cast(lengths, DType::I64)?;
                Some(node.reshape(lengths, vec![batch, one.clone(), one.clone(), one])?)
            }
            None => None,
        };
        // The place of each query among the keys.
        let query = node.counting(queries.clone())?;
        let query = node.reshape(query, vec![queries.clone(), Dim::from(1i64)])?;
        let place = match (past, lengths) {
            (None, Some(lengths)) => {
                let queries = node.size_scalar(&queries)?;
                let offset = node.subtract(lengths, queries)?;
                node.add(query, offset)?
            }
            (past, _) => {
                let past = node.size_scalar(&past.unwrap_or_else(|| Dim::from(0i64)))?;
                node.add(query, past)?
            }
        };
        if causal {
            let condition = node.call(&LESS_EQUAL, &[key, place])?;
            restrict(node, condition)?;
        }
        if let Some(left) = left {
            let first = node.with_scalar(&SUBTRACT, place, left as f64)?;
            let condition = node.call(&LESS_EQUAL, &[first, key])?;
            restrict(node, condition)?;
        }
        if let Some(right) = right {
            let last = node.with_scalar(&ADD, place, right as f64)?;
            let condition = node.call(&LESS_EQUAL, &[key, last])?;
            restrict(node, condition)?;
        }
        if let Some(lengths) = lengths {
            let condition = node.call(&LESS, &[key, lengths])?;
            restrict(node, condition)?;
        }
    }
    if let Some(allowed) = allowed {
        let rest = bias.unwrap_or(zero);
        bias = Some(node.choose(allowed, rest, never)?);
    }
    Ok(bias)
}

/// `RotaryEmbedding`-23: pairs of elements, turned by an angle that depends on the place.
pub(super) fn rotary_embedding(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, positions) = (node.input(0)?, node.optional(3));
    let interleaved = node.attrs.flag("interleaved", false)?;
    let is_packed = node.shape(x)?.rank() == 3;
    // (batch, length, heads, size)
    let whole = if is_packed {
        let heads = heads(node, "num_heads")?;
        unpack(node, x, heads)?
    } else {
        node.attrs.int("num_heads")?;
        if node.shape(x)?.rank() != 4 {
            return Err(NodeError::new("input 0 must have three or four dimensions"));
        }
        node.transposed(x, &[0, 2, 1, 3])?
    };
    let turned = match node.attrs.int("rotary_embedding_dim")?.unwrap_or(0) {
        0 => node.known_extent(whole, 3)?,
        turned => turned,
    };
    let mut table = |index: usize| -> Result<ExprId, NodeError> {
        let mut table = node.input(index)?;
        if let Some(positions) = positions {
            let attrs = TakeAttrs { axis: 0, mode: TakeMode::Fast };
            table = node.call_with(&TAKE, &[table, positions], &attrs)?;
        }
        Ok(table)
    };
    let tables = [table(1)?, table(2)?];
    let result = rotate(node, whole, tables, turned, interleaved)?;
    let result = if is_packed {
        let dims = node.shape(x)?.to_vec();
        node.reshape(result, dims)?
    } else {
        node.transposed(result, &[0, 2, 1, 3])?
    };
    Ok(vec![result])
}

/// The first `turned` elements of each head of `(batch, length, heads, size)` turned in pairs by
/// angles whose cosines and sines are `(batch, length, turned / 2)`.
pub(super) fn rotate(
    node: &mut Node<'_, '_>,
    whole: ExprId,
    [cos, sin]: [ExprId; 2],
    turned: i64,
    interleaved: bool,
) -> Result<ExprId, NodeError> {
    let size = node.known_extent(whole, 3)?;
    if turned < 2 || turned % 2 != 0 || turned > size {
        return Err(NodeError::new(format!(
            "{turned} of {size} elements cannot be turned in pairs"
        )));
    }
    let half = turned / 2;
    let (cos, sin) = (expand(node, cos, &[2])?, expand(node, sin, &[2])?);
    let pairs = node.slice(whole, 3, 0, turned)?;
    let rest = node.slice(whole, 3, turned, size)?;
    let mut every_other = |first: i64| {
        let attrs = StridedSliceAttrs {
            begin: vec![first],
            end: vec![i64::MAX],
            strides: vec![2],
            axes: vec![3],
        };
        node.call_with(&STRIDED_SLICE, &[pairs], &attrs)
    };
    let (a, b) = if interleaved {
        (every_other(0)?, every_other(1)?)
    } else {
        (node.slice(pairs, 3, 0, half)?, node.slice(pairs, 3, half, turned)?)
    };
    let (a_cos, b_sin) = (node.multiply(cos, a)?, node.multiply(sin, b)?);
    let (a_sin, b_cos) = (node.multiply(sin, a)?, node.multiply(cos, b)?);
    let real = node.subtract(a_cos, b_sin)?;
    let imaginary = node.add(a_sin, b_cos)?;
    let mut result = if interleaved {
        let (real, imaginary) = (expand(node, real, &[4])?, expand(node, imaginary, &[4])?);
        let both = node.concatenate(&[real, imaginary], 4)?;
        let dims = node.shape(pairs)?.to_vec();
        node.reshape(both, dims)?
    } else {
        node.concatenate(&[real, imaginary], 3)?
    };
    if turned < size {
        result = node.concatenate(&[result, rest], 3)?;
    }
    Ok(result)
}

/// `LinearAttention`-27, step by step: a state of keys by values that each step adds to.
pub(super) fn linear_attention(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (q_heads, kv_heads) = (heads(node, "q_num_heads")?, heads(node, "kv_num_heads")?);
    // How a longer sequence could be divided; of no effect on the result.
    node.attrs.int("chunk_size")?;
    let rule = node.attrs.string("update_rule")?.unwrap_or("gated_delta");
    let (is_gated, is_delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            return Err(NodeError::new(format!(
                "attribute `update_rule` must be linear, gated, delta or gated_delta, but it is `{other}`"
            )));
        }
    };
    if q_heads % kv_heads != 0 {
        return Err(NodeError::new(format!(
            "{q_heads} heads of the query cannot share {kv_heads} heads of the key"
        )));
    }
    let dtype = node.tensor(node.input(0)?)?.dtype;
    // Sums over the whole sequence, which 16 bits cannot hold.
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut by_head = |input: usize, heads: i64| -> Result<ExprId, NodeError> {
        let x = node.input(input)?;
        let x = node.cast(x, wide)?;
        unpack(node, x, heads)
    };
    let (q, k, v) = (by_head(0, q_heads)?, by_head(1, kv_heads)?, by_head(2, kv_heads)?);
    // (batch, length, heads, 1 or the key's elements)
    let decay = if is_gated { Some(by_head(4, kv_heads)?) } else { None };
    let beta = match (is_delta, node.optional(5)) {
        (false, _) => None,
        (true, None) => return Err(missing("beta")),
        (true, Some(beta)) => {
            let beta = node.cast(beta, wide)?;
            Some(expand(node, beta, &[3])?)
        }
    };
    let (steps, size) = (node.known_extent(q, 1)?, node.known_extent(q, 3)?);
    if !(1..=MAX_UNROLLED_STEPS as i64).contains(&steps) {
        return Err(NodeError::new(format!(
            "the sequence has {steps} steps; from 1 to {MAX_UNROLLED_STEPS} are unrolled"
        ))
        .help("feed the sequence in pieces and hand on the state"));
    }
    let scale = match node.attrs.float("scale")?.unwrap_or(0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    };
    let batch = node.shape(q)?[0].clone();
    let values = node.known_extent(v, 3)?;
    let one = Dim::from(1i64);
    let per_head = |rows: Dim, columns: Dim| vec![batch.clone(), kv_heads.into(), rows, columns];
    let (mut state, state_dtype) = match node.optional(3) {
        Some(past) => {
            let dtype = node.tensor(past)?.dtype;
            (node.cast(past, wide)?, dtype)
        }
        None => (node.full(0.0, wide, per_head(size.into(), values.into()))?, dtype),
    };
    let mut outputs = Vec::new();
    for step in 0..steps {
        if let Some(decay) = decay {
            let gate = node.step_of(decay, 1, step)?;
            let gate = node.call(&EXP, &[gate])?;
            let gate = expand(node, gate, &[3])?;
            state = node.multiply(state, gate)?;
        }
        let key = node.step_of(k, 1, step)?;
        let value = node.step_of(v, 1, step)?;
        let mut value = node.reshape(value, per_head(one.clone(), values.into()))?;
        if let Some(beta) = beta {
            let row = node.reshape(key, per_head(one.clone(), size.into()))?;
            let found = matmul(node, row, state, false)?;
            let rest = node.subtract(value, found)?;
            let rate = node.step_of(beta, 1, step)?;
            let rate = expand(node, rate, &[3])?;
            value = node.multiply(rate, rest)?;
        }
        let column = node.reshape(key, per_head(size.into(), one.clone()))?;
        let product = node.multiply(column, value)?;
        state = node.add(state, product)?;
        // The heads of the query that share a state are rows of one product.
        let query = node.step_of(q, 1, step)?;
        let query = node.reshape(query, per_head((q_heads / kv_heads).into(), size.into()))?;
        let output = matmul(node, query, state, false)?;
        let width = Dim::from(q_heads * values);
        outputs.push(node.reshape(output, vec![batch.clone(), one.clone(), width])?);
    }
    let output = node.concatenate(&outputs, 1)?;
    let output = node.with_scalar(&MULTIPLY, output, scale)?;
    Ok(vec![node.cast(output, dtype)?, node.cast(state, state_dtype)?])
}

/// `CausalConvWithState`-27: a convolution of each channel that sees no later element. The state is
/// what the next piece of the sequence needs of this one.
pub(super) fn causal_conv_with_state(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight, bias) = (node.input(0)?, node.input(1)?, node.optional(2));
    let activation = node.attrs.string("activation")?.unwrap_or("none");
    let is_swish = match activation {
        "none" => false,
        "silu" | "swish" => true,
        other => {
            return Err(NodeError::new(format!(
                "attribute `activation` must be none, silu or swish, but it is `{other}`"
            )));
        }
    };
    let ty = node.tensor(x)?;
    if ty.shape.rank() != 3 {
        return Err(NodeError::new(format!(
            "input 0 must have dimensions (batch, channels, length), but it is {ty}"
        )));
    }
    let (channels, reach) = (node.known_extent(x, 1)?, node.known_extent(weight, 2)? - 1);
    let padded = match node.optional(3) {
        _ if reach == 0 => x,
        Some(past) => node.concatenate(&[past, x], 2)?,
        None => {
            let zero = node.scalar(0.0, ty.dtype)?;
            let pad_width = vec![[0, 0], [0, 0], [reach, 0]];
            let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
            node.call_with(&PAD, &[x, zero], &attrs)?
        }
    };
    let attrs = ConvAttrs { groups: channels, ..ConvAttrs::of_rank(1) };
    let mut y = node.call_optional(&CONV1D, vec![Some(padded), Some(weight), bias], &attrs)?;
    if is_swish {
        let gate = node.call(&SIGMOID, &[y])?;
        y = node.multiply(y, gate)?;
    }
    let attrs = StridedSliceAttrs {
        begin: vec![if reach == 0 { i64::MAX } else { -reach }],
        end: vec![i64::MAX],
        strides: vec![1],
        axes: vec![2],
    };
    Ok(vec![y, node.call_with(&STRIDED_SLICE, &[padded], &attrs)?])
}
