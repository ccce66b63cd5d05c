//! Signals: windows, Mel filters and Fourier transforms.
//!
//! A transform is a product with a constant matrix. A long one whose length has a factor near its
//! root is two of them, as Cooley and Tukey split it, with a rotation in between.

use std::f64::consts::PI;

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::elementwise::{ADD, DIVIDE};
use crate::ops::nn::{MATMUL, MatmulAttrs, PAD, PadAttrs, PadMode};
use crate::ops::tensor::{ARANGE, ArangeAttrs, TAKE, TakeAttrs, TakeMode};

/// Most elements of a window, of Mel filters or of the matrix of a transform.
const MAX_TABLE: i64 = 1 << 25;

/// Longest transform that is one product with a matrix, if it could be two.
const MAX_DIRECT: i64 = 256;

/// Least factor that a transform is worth splitting by.
const MIN_FACTOR: i64 = 8;

/// A window as a sum of cosines with these coefficients, whose signs alternate.
fn window(node: &mut Node<'_, '_>, coefficients: [f64; 3]) -> Result<Outputs, NodeError> {
    let size = node.int_input(0)?.ok_or_else(|| missing("size"))?;
    if !(0..=MAX_TABLE).contains(&size) {
        return Err(NodeError::new(format!(
            "a window of {size} elements is not supported: it must have from 0 to {MAX_TABLE}"
        )));
    }
    let dtype = output_datatype(node)?;
    let period = if node.attrs.flag("periodic", true)? { size } else { size - 1 };
    let [a, b, c] = coefficients;
    let values = (0..size).map(|i| {
        // A window of one element is that element.
        let turn = if period == 0 { PI } else { 2.0 * PI * i as f64 / period as f64 };
        a - b * turn.cos() + c * (2.0 * turn).cos()
    });
    Ok(vec![node.numbers(&[size], values.collect(), dtype)?])
}

/// The attribute `output_datatype`: 32-bit floats unless it says otherwise.
fn output_datatype(node: &mut Node<'_, '_>) -> Result<DType, NodeError> {
    let code = node.attrs.int("output_datatype")?.unwrap_or(1);
    Ok(dtype_from_onnx(i32::try_from(code).unwrap_or(0))?)
}

/// `HannWindow`-17.
pub(super) fn hann_window(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    window(node, [0.5, 0.5, 0.0])
}

/// `HammingWindow`-17.
pub(super) fn hamming_window(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    window(node, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

/// `BlackmanWindow`-17.
pub(super) fn blackman_window(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    window(node, [0.42, 0.5, 0.08])
}

/// `MelWeightMatrix`-17: triangles of frequencies, evenly spaced on the Mel scale.
pub(super) fn mel_weight_matrix(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut number =
        |index: usize, name: &str| node.number_input(index)?.ok_or_else(|| missing(name));
    let mels = number(0, "num_mel_bins")?;
    let length = number(1, "dft_length")?;
    let rate = number(2, "sample_rate")?;
    let lower = number(3, "lower_edge_hertz")?;
    let upper = number(4, "upper_edge_hertz")?;
    let (columns, rows) = (mels as i64, length as i64 / 2 + 1);
    if columns < 1 || length < 0.0 || rate < 1.0 || columns.saturating_mul(rows) > MAX_TABLE {
        return Err(NodeError::new(format!(
            "{mels} filters of a transform of {length} at {rate} Hz are not supported: there must \
             be filters and a rate, and at most {MAX_TABLE} weights"
        )));
    }
    let dtype = output_datatype(node)?;
    let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / 10f64.ln();
    let step = (mel(upper) - mel(lower)) / (mels + 2.0);
    let bins: Vec<i64> = (0..columns + 2)
        .map(|i| {
            let hertz = 700.0 * ((i as f64 * step + mel(lower)) / 2595.0 * 10f64.ln()).exp_m1();
            ((length + 1.0) * hertz / rate).floor() as i64
        })
        .collect();
    if bins.iter().any(|bin| !(0..rows).contains(bin)) {
        return Err(NodeError::new(format!(
            "the filters from {lower} to {upper} Hz reach beyond the {rows} frequencies of a \
             transform of {length} at {rate} Hz"
        )));
    }
    let mut weights = vec![0.0; (rows * columns) as usize];
    for (column, ends) in bins.windows(3).enumerate() {
        let &[low, centre, high] = ends else { continue };
        let mut set = |row: i64, weight: f64| {
            weights[row as usize * columns as usize + column] = weight;
        };
        if low >= centre {
            set(centre, 1.0);
        }
        for row in low..=centre {
            if low < centre {
                set(row, (row - low) as f64 / (centre - low) as f64);
            }
        }
        for row in centre..high {
            set(row, (high - row) as f64 / (high - centre) as f64);
        }
    }
    Ok(vec![node.numbers(&[rows, columns], weights, dtype)?])
}

/// A Fourier transform of lines of `length` numbers.
#[derive(Clone, Copy)]
struct Transform {
    length: i64,
    inverse: bool,
}

impl Transform {
    /// A factor of the length near its root, if splitting by it is worth it.
    fn factor(self) -> Option<i64> {
        if self.length <= MAX_DIRECT {
            return None;
        }
        let root = (self.length as f64).sqrt() as i64;
        (MIN_FACTOR..=root).rev().find(|factor| self.length % factor == 0)
    }

    /// The rotation `e^(∓2πi·turns/length)`.
    fn rotation(self, turns: i64) -> [f64; 2] {
        // Of whole turns nothing is left, and angles stay exact.
        let angle = 2.0 * PI * (turns % self.length) as f64 / self.length as f64;
        [angle.cos(), if self.inverse { angle.sin() } else { -angle.sin() }]
    }

    /// The product of lines `(rows, length, parts)`, of real and imaginary part or real part alone,
    /// with the matrix of the transform: `(rows, results, 2)`, the first `results` of them.
    fn product(
        self,
        node: &mut Node<'_, '_>,
        lines: ExprId,
        parts: i64,
        results: i64,
    ) -> Result<ExprId, NodeError> {
        let dtype = node.tensor(lines)?.dtype;
        let dims = [self.length * parts, results * 2];
        if dims[0].saturating_mul(dims[1]) > MAX_TABLE {
            return Err(NodeError::new(format!(
                "a Fourier transform of {} elements needs a matrix of {} by {}, which is larger \
                 than the {MAX_TABLE} elements that are supported",
                self.length, dims[0], dims[1]
            ))
            .help("use a length that is a product of small numbers, such as a power of two"));
        }
        let mut matrix = Vec::with_capacity((dims[0] * dims[1]) as usize);
        for place in 0..self.length {
            let rotation = |result: i64| self.rotation(place * result);
            matrix.extend((0..results).flat_map(rotation));
            if parts == 2 {
                matrix.extend((0..results).map(rotation).flat_map(|[re, im]| [-im, re]));
            }
        }
        let matrix = node.numbers(&dims, matrix, dtype)?;
        let rows = node.shape(lines)?[0].clone();
        let flat = node.reshape(lines, vec![rows.clone(), Dim::from(dims[0])])?;
        let plain = MatmulAttrs { transpose_a: false, transpose_b: false, out_dtype: None };
        let product = node.call_with(&MATMUL, &[flat, matrix], &plain)?;
        node.reshape(product, vec![rows, Dim::from(results), Dim::from(2i64)])
    }

    /// The same for any length: the spectra `(rows, results, 2)` of lines `(rows, length, parts)`.
    fn apply(
        self,
        node: &mut Node<'_, '_>,
        lines: ExprId,
        parts: i64,
        results: i64,
    ) -> Result<ExprId, NodeError> {
        let Some(outer) = self.factor() else {
            return self.product(node, lines, parts, results);
        };
        let inner = self.length / outer;
        let rows = node.shape(lines)?[0].clone();
        let dims = |extents: &[i64]| -> Vec<Dim> {
            std::iter::once(rows.clone()).chain(extents.iter().copied().map(Dim::from)).collect()
        };
        let flat = |extents: [i64; 2], by: i64| {
            vec![&rows * &Dim::from(by), Dim::from(extents[0]), Dim::from(extents[1])]
        };
        // Element `i·inner + j`, result `k + l·outer`: over i, for each j, to k.
        let split = node.reshape(lines, dims(&[outer, inner, parts]))?;
        let split = node.transposed(split, &[0, 2, 1, 3])?;
        let split = node.reshape(split, flat([outer, parts], inner))?;
        let columns = Transform { length: outer, ..self }.product(node, split, parts, outer)?;
        let columns = node.reshape(columns, dims(&[inner, outer, 2]))?;
        let rotated = self.rotate(node, columns, inner, outer)?;
        // Over j, for each k, to l.
        let rotated = node.transposed(rotated, &[0, 2, 1, 3])?;
        let rotated = node.reshape(rotated, flat([inner, 2], outer))?;
        let spectrum = Transform { length: inner, ..self }.product(node, rotated, 2, inner)?;
        let spectrum = node.reshape(spectrum, dims(&[outer, inner, 2]))?;
        let spectrum = node.transposed(spectrum, &[0, 2, 1, 3])?;
        let spectrum = node.reshape(spectrum, dims(&[self.length, 2]))?;
        node.slice(spectrum, 1, 0, results)
    }

    /// Numbers `(rows, inner, outer, 2)`, that at j and k rotated by their product.
    fn rotate(
        self,
        node: &mut Node<'_, '_>,
        value: ExprId,
        inner: i64,
        outer: i64,
    ) -> Result<ExprId, NodeError> {
        let dtype = node.tensor(value)?.dtype;
        let rotations: Vec<[f64; 2]> = (0..inner)
            .flat_map(|j| (0..outer).map(move |k| j * k))
            .map(|turns| self.rotation(turns))
            .collect();
        // The number times the cosine, and its parts, exchanged, times the sine.
        let cosines = rotations.iter().flat_map(|&[re, _]| [re, re]).collect();
        let sines = rotations.iter().flat_map(|&[_, im]| [-im, im]).collect();
        let cosines = node.numbers(&[inner, outer, 2], cosines, dtype)?;
        let sines = node.numbers(&[inner, outer, 2], sines, dtype)?;
        let (re, im) = (node.slice(value, 3, 0, 1)?, node.slice(value, 3, 1, 2)?);
        let exchanged = node.concatenate(&[im, re], 3)?;
        let straight = node.multiply(value, cosines)?;
        let crossed = node.multiply(exchanged, sines)?;
        node.add(straight, crossed)
    }
}

/// A value cut or filled up with zeros behind, to an extent along an axis.
fn fitted(
    node: &mut Node<'_, '_>,
    value: ExprId,
    axis: usize,
    extent: i64,
) -> Result<ExprId, NodeError> {
    let given = node.known_extent(value, axis)?;
    if given >= extent {
        return node.slice(value, axis, 0, extent);
    }
    let mut pad_width = vec![[0, 0]; node.shape(value)?.rank()];
    pad_width[axis][1] = extent - given;
    let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
    node.call_with(&PAD, &[value], &attrs)
}

/// The spectra of the last axis but one, of a value whose last axis is the parts of numbers.
fn spectra(
    node: &mut Node<'_, '_>,
    value: ExprId,
    transform: Transform,
    onesided: bool,
) -> Result<ExprId, NodeError> {
    let Transform { length, inverse } = transform;
    let half = length / 2 + 1;
    let mut dims = node.shape(value)?.to_vec();
    let rank = dims.len();
    let mut parts = node.known_extent(value, rank - 1)?;
    let mut lines = fitted(node, value, rank - 2, if onesided && inverse { half } else { length })?;
    let rows: Dim = dims[..rank - 2].iter().product();
    let taken = node.shape(lines)?[rank - 2].clone();
    lines = node.reshape(lines, vec![rows.clone(), taken, Dim::from(parts)])?;
    if onesided && inverse {
        // The other half of the spectrum of real numbers mirrors the first.
        if parts == 1 {
            lines = fitted(node, lines, 2, 2)?;
            parts = 2;
        }
        let mirrored: Vec<i64> = (1..length - half + 1).rev().collect();
        if !mirrored.is_empty() {
            let places = node.integers(&[mirrored.len() as i64], &mirrored)?;
            let attrs = TakeAttrs { axis: 1, mode: TakeMode::Fast };
            let rest = node.call_with(&TAKE, &[lines, places], &attrs)?;
            let dtype = node.tensor(rest)?.dtype;
            let signs = node.numbers(&[2], vec![1.0, -1.0], dtype)?;
            let rest = node.multiply(rest, signs)?;
            lines = node.concatenate(&[lines, rest], 1)?;
        }
    }
    let results = if onesided && !inverse { half } else { length };
    let mut spectrum = transform.apply(node, lines, parts, results)?;
    if inverse {
        spectrum = node.with_scalar(&DIVIDE, spectrum, length as f64)?;
    }
    dims[rank - 2] = Dim::from(results);
    dims[rank - 1] = Dim::from(2i64);
    if onesided && inverse {
        spectrum = node.slice(spectrum, 2, 0, 1)?;
        dims[rank - 1] = Dim::from(1i64);
    }
    node.reshape(spectrum, dims)
}

/// Checks that the last axis is a real part, or a real and an imaginary one.
fn check_parts(node: &Node<'_, '_>, value: ExprId, least_rank: usize) -> Result<(), NodeError> {
    let ty = node.tensor(value)?;
    let parts = ty.shape.iter().last().and_then(Dim::as_const);
    if ty.shape.rank() >= least_rank && matches!(parts, Some(1 | 2)) && ty.dtype.is_float() {
        return Ok(());
    }
    Err(NodeError::new(format!(
        "floats in at least {least_rank} dimensions are expected, the last of extent 1 or 2 for \
         real and imaginary part, but the input is {ty}"
    )))
}

fn check_length(length: i64) -> Result<(), NodeError> {
    if (1..=MAX_TABLE).contains(&length) {
        return Ok(());
    }
    Err(NodeError::new(format!(
        "a Fourier transform of {length} elements is not supported: it must have from 1 to {MAX_TABLE}"
    )))
}

/// `DFT`-17, -20 (`axis` is an input, the last but one by default).
pub(super) fn dft(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    check_parts(node, x, 2)?;
    let inverse = node.attrs.flag("inverse", false)?;
    let onesided = node.attrs.flag("onesided", false)?;
    let axis = match node.version {
        ..20 => node.attrs.int("axis")?.unwrap_or(1),
        _ => node.int_input(2)?.unwrap_or(-2),
    };
    let rank = node.shape(x)?.rank();
    let axis = node.axis(axis, rank)?;
    if axis + 1 == rank {
        return Err(NodeError::new(
            "the last axis is that of real and imaginary parts, and cannot be transformed",
        ));
    }
    let length = match node.int_input(1)? {
        Some(length) => length,
        None if inverse && onesided => 2 * (node.known_extent(x, axis)? - 1),
        None => node.known_extent(x, axis)?,
    };
    check_length(length)?;
    let dtype = node.tensor(x)?.dtype;
    let wide = node.widened(x)?;
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(axis, rank - 2);
    let lines = node.transposed(wide, &order)?;
    let spectrum = spectra(node, lines, Transform { length, inverse }, onesided)?;
    let spectrum = node.transposed(spectrum, &order)?;
    Ok(vec![node.cast(spectrum, dtype)?])
}

/// `STFT`-17: the spectra of pieces of a signal `(batch, length, parts)`.
pub(super) fn stft(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (mut signal, window) = (node.input(0)?, node.optional(2));
    if node.shape(signal)?.rank() == 2 {
        let mut dims = node.shape(signal)?.to_vec();
        dims.push(Dim::from(1i64));
        signal = node.reshape(signal, dims)?;
    }
    check_parts(node, signal, 3)?;
    let onesided = node.attrs.flag("onesided", true)?;
    let step = node.int_input(1)?.ok_or_else(|| missing("frame_step"))?;
    let elements = node.shape(signal)?[1].clone();
    let of_window = window.map(|window| node.known_extent(window, 0)).transpose()?;
    let length = match node.int_input(3)?.or(of_window) {
        Some(length) => length,
        None => node.known_extent(signal, 1)?,
    };
    check_length(length)?;
    let is_short = elements.as_const().is_some_and(|elements| elements < length);
    if step < 1 || is_short || of_window.is_some_and(|extent| extent != length) {
        return Err(NodeError::new(format!(
            "frames of {length} elements every {step} elements of a signal of {elements}{} are \
             not possible",
            of_window.map_or_else(String::new, |extent| format!(", with a window of {extent},"))
        )));
    }
    let dtype = node.tensor(signal)?.dtype;
    let wide = node.widened(signal)?;
    let count = (elements - Dim::from(length)).floor_div(&Dim::from(step)) + Dim::from(1i64);
    let attrs = ArangeAttrs { start: 0.into(), step, length: count.clone(), dtype: DType::I64 };
    let starts = node.call_with(&ARANGE, &[], &attrs)?;
    let starts = node.reshape(starts, vec![count, Dim::from(1i64)])?;
    let offsets = node.counting(length)?;
    let places = node.call(&ADD, &[starts, offsets])?;
    let attrs = TakeAttrs { axis: 1, mode: TakeMode::Fast };
    let mut frames = node.call_with(&TAKE, &[wide, places], &attrs)?;
    if let Some(window) = window {
        let window = node.widened(window)?;
        let window = node.reshape(window, vec![Dim::from(length), Dim::from(1i64)])?;
        frames = node.multiply(frames, window)?;
    }
    let spectrum = spectra(node, frames, Transform { length, inverse: false }, onesided)?;
    Ok(vec![node.cast(spectrum, dtype)?])
}
