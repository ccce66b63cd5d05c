//! `TfIdfVectorizer` of integers: how often lists of them occur.

use super::{missing, resize::unsupported};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{EQUAL, GREATER, LOGICAL_AND};
use crate::ops::reduce::SUM;
use crate::ops::tensor::{TAKE, TakeAttrs, TakeMode};

/// Most columns of the result.
const MAX_COLUMNS: i64 = 1 << 24;

/// Most items that are left out between two: each number of them is counted by itself.
const MAX_SKIPS: usize = 64;

/// The lists of one length, and the columns that count them.
struct Grams<'a> {
    length: usize,
    /// One after the other.
    items: &'a [i64],
    columns: &'a [i64],
}

/// An attribute that must be a number that is not negative.
fn natural(node: &mut Node<'_, '_>, name: &str) -> Result<usize, NodeError> {
    let number = node.attrs.int(name)?.ok_or_else(|| missing(name))?;
    usize::try_from(number).map_err(|_| {
        NodeError::new(format!("attribute `{name}` must not be negative, but it is {number}"))
    })
}

/// `TfIdfVectorizer`-9, of `pool_int64s`.
pub(super) fn tf_idf_vectorizer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.attrs.has("pool_strings") {
        return Err(NodeError::new("attribute `pool_strings` is not supported")
            .help("map the strings to integers before the model, and use `pool_int64s`"));
    }
    let (shortest, longest) =
        (natural(node, "min_gram_length")?, natural(node, "max_gram_length")?);
    let skips = natural(node, "max_skip_count")?;
    if skips > MAX_SKIPS {
        return Err(NodeError::new(format!(
            "attribute `max_skip_count` {skips} is not supported: it may be up to {MAX_SKIPS}"
        )));
    }
    let mode = node.attrs.string("mode")?.ok_or_else(|| missing("mode"))?;
    let starts = node.attrs.ints("ngram_counts")?.ok_or_else(|| missing("ngram_counts"))?;
    let columns = node.attrs.ints("ngram_indexes")?.ok_or_else(|| missing("ngram_indexes"))?;
    let pool = node.attrs.ints("pool_int64s")?.ok_or_else(|| missing("pool_int64s"))?;
    let weights = node.attrs.floats("weights")?.map(<[f32]>::to_vec);
    let grams = pools(starts, pool, columns)?;
    let width = columns.iter().max().map_or(0, |last| last + 1);

    let shape = node.shape(x)?;
    let (batch, length) = match &shape[..] {
        [_] => (Dim::from(1i64), node.known_extent(x, 0)?),
        [batch, _] => (batch.clone(), node.known_extent(x, 1)?),
        _ => {
            return Err(NodeError::new(format!(
                "items (C) or (N, C) are expected, but the input is {}",
                node.tensor(x)?
            )));
        }
    };
    let items = node.cast(x, DType::I64)?;
    let items = node.reshape(items, vec![batch.clone(), length.into(), 1i64.into()])?;
    let mut counts = Vec::new();
    let mut of_column = vec![None; width as usize];
    let mut counted = 0i64;
    for gram in grams.iter().filter(|gram| (shortest..=longest).contains(&gram.length)) {
        // To a single item, skips do not matter.
        let distances = (1..).take(if gram.length == 1 { 1 } else { skips + 1 });
        let mut total: Option<ExprId> = None;
        for distance in distances {
            let Some(count) = occurrences(node, items, length, gram, distance)? else { break };
            total = Some(match total {
                Some(total) => node.add(total, count)?,
                None => count,
            });
        }
        let Some(total) = total else { continue };
        counts.push(total);
        for &column in gram.columns {
            if of_column[column as usize].replace(counted).is_some() {
                return Err(NodeError::new(format!(
                    "attribute `ngram_indexes` has column {column} twice"
                )));
            }
            counted += 1;
        }
    }
    // Columns that count nothing are zero.
    counts.push(node.full(0.0, DType::F32, vec![batch.clone(), 1i64.into()])?);
    let places: Vec<i64> = of_column.into_iter().map(|place| place.unwrap_or(counted)).collect();
    let all = node.concatenate(&counts, 1)?;
    let places = node.integers(&[width], &places)?;
    let attrs = TakeAttrs { axis: 1, mode: TakeMode::Fast };
    let mut result = node.call_with(&TAKE, &[all, places], &attrs)?;
    if mode != "TF" {
        let mut of_columns = vec![1.0; width as usize];
        if let Some(weights) = weights {
            if weights.len() != columns.len() {
                return Err(NodeError::new(format!(
                    "attribute `weights` must have {} values, one for each list of items, but it has {}",
                    columns.len(),
                    weights.len()
                )));
            }
            for (&column, weight) in columns.iter().zip(weights) {
                of_columns[column as usize] = f64::from(weight);
            }
        }
        let weights = node.numbers(&[width], of_columns, DType::F32)?;
        result = match mode {
            "IDF" => {
                let found = node.with_scalar(&GREATER, result, 0.0)?;
                let zero = node.scalar(0.0, DType::F32)?;
                node.choose(found, weights, zero)?
            }
            "TFIDF" => node.multiply(result, weights)?,
            other => return Err(unsupported("mode", other)),
        };
    }
    let mut dims = shape.to_vec();
    dims.pop();
    dims.push(Dim::from(width));
    Ok(vec![node.reshape(result, dims)?])
}

/// The lists by length, after checking that they are as the attributes say.
fn pools<'a>(
    starts: &[i64],
    pool: &'a [i64],
    columns: &'a [i64],
) -> Result<Vec<Grams<'a>>, NodeError> {
    let mut grams = Vec::new();
    let mut columns_left = columns;
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(pool.len() as i64);
        let items = usize::try_from(start)
            .ok()
            .zip(usize::try_from(end).ok())
            .and_then(|(start, end)| pool.get(start..end))
            .filter(|items| items.len() % (index + 1) == 0);
        let columns =
            items.and_then(|items| columns_left.split_at_checked(items.len() / (index + 1)));
        let (Some(items), Some((columns, rest))) = (items, columns) else {
            return Err(NodeError::new(format!(
                "attributes `ngram_counts` {starts:?}, `pool_int64s` with {} values and \
                 `ngram_indexes` do not fit together",
                pool.len()
            )));
        };
        columns_left = rest;
        grams.push(Grams { length: index + 1, items, columns });
    }
    if let Some(wrong) = columns.iter().find(|column| !(0..MAX_COLUMNS).contains(*column)) {
        return Err(NodeError::new(format!(
            "attribute `ngram_indexes` must have numbers from 0 to {MAX_COLUMNS}, but there is {wrong}"
        )));
    }
    Ok(grams)
}

/// How often each list occurs, with items so far apart; none if it cannot.
fn occurrences(
    node: &mut Node<'_, '_>,
    items: ExprId,
    length: i64,
    gram: &Grams<'_>,
    distance: i64,
) -> Result<Option<ExprId>, NodeError> {
    let span = (gram.length as i64 - 1).saturating_mul(distance);
    if gram.columns.is_empty() || span >= length {
        return Ok(None);
    }
    let places = length - span;
    let mut matches: Option<ExprId> = None;
    for item in 0..gram.length {
        let begin = item as i64 * distance;
        let found = node.slice(items, 1, begin, begin + places)?;
        let wanted: Vec<i64> = gram.items.iter().skip(item).step_by(gram.length).copied().collect();
        let wanted = node.integers(&[wanted.len() as i64], &wanted)?;
        let equal = node.call(&EQUAL, &[found, wanted])?;
        matches = Some(match matches {
            Some(matches) => node.call(&LOGICAL_AND, &[matches, equal])?,
            None => equal,
        });
    }
    let Some(matches) = matches else { return Ok(None) };
    let counts = node.cast(matches, DType::F32)?;
    Ok(Some(node.reduce(&SUM, counts, [1], false)?))
}
