//! Convolution, matrix products, pooling, normalisation and softmax.

use super::{Compute, Stages, broadcast};
use crate::ops::nn::{
    AvgPool2dAttrs, BatchNormAttrs, Conv2dAttrs, MatmulAttrs, MaxPool2dAttrs, PadAttrs, PadMode,
    SoftmaxAttrs,
};
use crate::te::{Anchor, ComputeDag, StageId, identity};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "nn.conv2d" => conv2d(cx),
        "nn.dense" => dense(cx),
        "nn.matmul" => matmul(cx),
        "nn.max_pool2d" => max_pool2d(cx),
        "nn.avg_pool2d" => avg_pool2d(cx),
        "nn.global_avg_pool2d" => global_pool(cx, BinaryOp::Add),
        "nn.global_max_pool2d" => global_pool(cx, BinaryOp::Max),
        "nn.batch_norm" => batch_norm(cx),
        "nn.softmax" => softmax(cx, false),
        "nn.log_softmax" => softmax(cx, true),
        "nn.pad" => pad(cx),
        _ => return None,
    })
}

/// Whether `low <= index < high`.
fn within(index: &PrimExpr, low: i64, high: i64) -> PrimExpr {
    index.clone().greater_equal(low).and(index.clone().less(high))
}

fn conv2d(cx: &mut Compute<'_>) -> Stages {
    let attrs: Conv2dAttrs = cx.attrs()?;
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (input, kernel) = (cx.dag.shape(x).to_vec(), cx.dag.shape(weight).to_vec());
    let (strides, dilation) = (pair(&attrs.strides), pair(&attrs.dilation));
    let padding = [attrs.padding[0], attrs.padding[1]];
    let (groups, padded) = (attrs.groups, attrs.padding.iter().any(|&p| p != 0));
    let group_out = (shape[1] / groups).max(1);
    let over = [kernel[1], kernel[2], kernel[3]];
    let init = PrimExpr::zero(dtype);
    let conv =
        cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, init, &over, |dag, index, by| {
            let channel = if groups == 1 {
                by[0].clone()
            } else {
                index[1].clone().floordiv(group_out) * kernel[1] + by[0].clone()
            };
            let place = |axis: usize| {
                index[axis + 2].clone() * strides[axis] + by[axis + 1].clone() * dilation[axis]
                    - padding[axis]
            };
            let (y, x_) = (place(0), place(1));
            let inside = within(&y, 0, input[2]).and(within(&x_, 0, input[3]));
            let pixel = dag.at(x, &[index[0].clone(), channel, y, x_]);
            let pixel =
                if padded { PrimExpr::select(inside, pixel, PrimExpr::zero(dtype)) } else { pixel };
            pixel * dag.at(weight, &[index[1].clone(), by[0].clone(), by[1].clone(), by[2].clone()])
        });
    cx.dag.set_anchor(conv, Anchor::Conv2d { data: x, weight, strides, padding, dilation, groups });
    let Some(bias) = cx.optional(2) else { return Ok(vec![conv]) };
    cx.element(|dag, index| dag.at(conv, index) + dag.at(bias, &index[1..2]))
}

fn pair(values: &[i64]) -> [i64; 2] {
    [values.first().copied().unwrap_or(1), values.get(1).copied().unwrap_or(1)]
}

fn dense(cx: &mut Compute<'_>) -> Stages {
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let k = cx.dag.shape(weight)[1];
    let init = PrimExpr::zero(dtype);
    let stage =
        cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, init, &[k], |dag, index, by| {
            let (column, rows) = index.split_last().expect("a matrix has two axes");
            let mut at = rows.to_vec();
            at.push(by[0].clone());
            dag.at(x, &at) * dag.at(weight, &[column.clone(), by[0].clone()])
        });
    cx.dag.set_anchor(stage, Anchor::MatMul { lhs: x, rhs: weight, transpose_b: true });
    Ok(vec![stage])
}

fn matmul(cx: &mut Compute<'_>) -> Stages {
    let attrs: MatmulAttrs = cx.attrs()?;
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (left, right) = (cx.dag.shape(a).to_vec(), cx.dag.shape(b).to_vec());
    // A vector is a row on the left and a column on the right, and its axis is not in the result.
    let (row_vector, column_vector) = (left.len() == 1, right.len() == 1);
    let k =
        if attrs.transpose_a && !row_vector { left[left.len() - 2] } else { left[left.len() - 1] };
    let batch = shape.len() - usize::from(!row_vector) - usize::from(!column_vector);
    let init = PrimExpr::zero(dtype);
    let stage =
        cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, init, &[k], |dag, index, by| {
            let (outer, inner) = index.split_at(batch);
            let at = |own: &[i64], row: Option<&PrimExpr>, column: Option<&PrimExpr>| {
                let matrix = usize::from(row.is_some()) + usize::from(column.is_some());
                let mut at = broadcast(&own[..own.len() - matrix], &shape[..batch], outer);
                at.extend(row.into_iter().chain(column).cloned());
                at
            };
            let row = (!row_vector).then(|| &inner[0]);
            let column = (!column_vector).then(|| &inner[inner.len() - 1]);
            let left_at = match (row, attrs.transpose_a) {
                (Some(row), true) => at(&left, Some(&by[0]), Some(row)),
                (row, _) => at(&left, row, Some(&by[0])),
            };
            let right_at = match (column, attrs.transpose_b) {
                (Some(column), true) => at(&right, Some(column), Some(&by[0])),
                (column, _) => at(&right, Some(&by[0]), column),
            };
            dag.at(a, &left_at) * dag.at(b, &right_at)
        });
    if !attrs.transpose_a && left.len() >= 2 && right.len() == 2 {
        let transpose_b = attrs.transpose_b;
        cx.dag.set_anchor(stage, Anchor::MatMul { lhs: a, rhs: b, transpose_b });
    }
    Ok(vec![stage])
}

/// A window that slides over height and width.
struct Window {
    size: [i64; 2],
    strides: [i64; 2],
    padding: [i64; 4],
    dilation: [i64; 2],
    input: [i64; 2],
}

impl Window {
    fn new(size: &[i64], strides: &[i64], padding: &[i64], dilation: &[i64], x: &[i64]) -> Window {
        let pads = |i: usize| padding.get(i).copied().unwrap_or(0);
        Window {
            size: pair(size),
            strides: pair(strides),
            padding: [pads(0), pads(1), pads(2), pads(3)],
            dilation: pair(dilation),
            input: [x[2], x[3]],
        }
    }

    /// Whether some window reaches beyond the input, as ceil mode or padding make it.
    fn overhangs(&self, output: &[i64]) -> bool {
        (0..2).any(|axis| {
            let last = (output[axis + 2] - 1) * self.strides[axis]
                + (self.size[axis] - 1) * self.dilation[axis]
                - self.padding[axis];
            self.padding[axis] > 0 || last >= self.input[axis]
        })
    }

    /// Where the window of an output index begins along an axis.
    fn start(&self, axis: usize, index: &[PrimExpr]) -> PrimExpr {
        index[axis + 2].clone() * self.strides[axis] - self.padding[axis]
    }

    /// `combiner` over the windows; what is outside of the input counts as the neutral element.
    fn reduce(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        shape: &[i64],
        combiner: BinaryOp,
    ) -> StageId {
        let dtype = cx.dag.dtype(x);
        let neutral = identity(combiner, dtype);
        let guard = self.overhangs(shape);
        let (op, over) = (cx.op.name, self.size);
        cx.dag.reduce(op, shape, dtype, combiner, neutral.clone(), &over, |dag, index, by| {
            let place =
                |axis: usize| self.start(axis, index) + by[axis].clone() * self.dilation[axis];
            let (y, x_) = (place(0), place(1));
            let inside = within(&y, 0, self.input[0]).and(within(&x_, 0, self.input[1]));
            let value = dag.at(x, &[index[0].clone(), index[1].clone(), y, x_]);
            if guard { PrimExpr::select(inside, value, neutral) } else { value }
        })
    }

    /// Taps of a window along an axis that lie in `low..high`.
    fn taps(&self, axis: usize, index: &[PrimExpr], low: i64, high: i64) -> PrimExpr {
        let start = self.start(axis, index);
        let step = self.dilation[axis].max(1);
        let ceil = |distance: PrimExpr| (distance + (step - 1)).floordiv(step);
        let first = ceil(PrimExpr::index(low) - start.clone()).max(0);
        let end = ceil(PrimExpr::index(high) - start).min(self.size[axis]);
        (end - first).max(0)
    }
}

fn max_pool2d(cx: &mut Compute<'_>) -> Stages {
    let attrs: MaxPool2dAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, _) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let window =
        Window::new(&attrs.pool_size, &attrs.strides, &attrs.padding, &attrs.dilation, &input);
    Ok(vec![window.reduce(cx, x, &shape, BinaryOp::Max)])
}

fn avg_pool2d(cx: &mut Compute<'_>) -> Stages {
    let attrs: AvgPool2dAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let window =
        Window::new(&attrs.pool_size, &attrs.strides, &attrs.padding, &attrs.dilation, &input);
    let sum = window.reduce(cx, x, &shape, BinaryOp::Add);
    let overhangs = window.overhangs(&shape);
    cx.element(|dag, index| {
        let count = if overhangs {
            let taps = |axis: usize| {
                let (before, after) = if attrs.count_include_pad {
                    (window.padding[axis], window.padding[axis + 2])
                } else {
                    (0, 0)
                };
                window.taps(axis, index, -before, window.input[axis] + after)
            };
            (taps(0) * taps(1)).max(1).cast(dtype)
        } else {
            PrimExpr::float((window.size[0] * window.size[1]) as f64, dtype)
        };
        dag.at(sum, index) / count
    })
}

fn global_pool(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let over = cx.dag.shape(x)[2..].to_vec();
    let init = identity(combiner, dtype);
    let stage =
        cx.dag.reduce(cx.op.name, &shape, dtype, combiner, init, &over, |dag, index, by| {
            let at: Vec<PrimExpr> = index[..2].iter().chain(by).cloned().collect();
            dag.at(x, &at)
        });
    if combiner == BinaryOp::Max {
        return Ok(vec![stage]);
    }
    let count = over.iter().product::<i64>() as f64;
    cx.element(|dag, index| dag.at(stage, index) / PrimExpr::float(count, dtype))
}

/// Inference only: the statistics are handed on.
fn batch_norm(cx: &mut Compute<'_>) -> Stages {
    let attrs: BatchNormAttrs = cx.attrs()?;
    let (x, gamma, beta) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (mean, variance) = (cx.arg(3)?, cx.arg(4)?);
    let axis = cx.axis(attrs.axis, cx.dag.shape(x).len())?;
    let mut stages = cx.element(|dag, index| {
        let channel = &index[axis..=axis];
        let epsilon = PrimExpr::float(attrs.epsilon, dag.dtype(variance));
        let deviation = PrimExpr::call(Intrinsic::Sqrt, dag.at(variance, channel) + epsilon);
        let scale = dag.at(gamma, channel) / deviation;
        (dag.at(x, index) - dag.at(mean, channel)) * scale + dag.at(beta, channel)
    })?;
    for (stage, (shape, dtype)) in [mean, variance].into_iter().zip(cx.results.iter().skip(1)) {
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |dag, index| dag.at(stage, index)));
    }
    Ok(stages)
}

fn softmax(cx: &mut Compute<'_>, log: bool) -> Stages {
    let attrs: SoftmaxAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let mut rows = shape.clone();
    rows[axis] = 1;
    let over = [shape[axis]];
    let along = |index: &[PrimExpr], by: &PrimExpr| {
        let mut at = index.to_vec();
        at[axis] = by.clone();
        at
    };
    let row = |index: &[PrimExpr]| {
        let mut at = index.to_vec();
        at[axis] = PrimExpr::index(0);
        at
    };
    let op = cx.op.name;
    let dag: &mut ComputeDag = cx.dag;
    let lowest = identity(BinaryOp::Max, dtype);
    let greatest = dag.reduce(op, &rows, dtype, BinaryOp::Max, lowest, &over, |dag, index, by| {
        dag.at(x, &along(index, &by[0]))
    });
    let zero = PrimExpr::zero(dtype);
    let sum = dag.reduce(op, &rows, dtype, BinaryOp::Add, zero, &over, |dag, index, by| {
        let shifted = dag.at(x, &along(index, &by[0])) - dag.at(greatest, &row(index));
        PrimExpr::call(Intrinsic::Exp, shifted)
    });
    cx.element(|dag, index| {
        let shifted = dag.at(x, index) - dag.at(greatest, &row(index));
        let sum = dag.at(sum, &row(index));
        if log {
            shifted - PrimExpr::call(Intrinsic::Log, sum)
        } else {
            PrimExpr::call(Intrinsic::Exp, shifted) / sum
        }
    })
}

fn pad(cx: &mut Compute<'_>) -> Stages {
    let attrs: PadAttrs = cx.attrs()?;
    let (x, fill) = (cx.arg(0)?, cx.optional(1));
    let input = cx.dag.shape(x).to_vec();
    let (_, dtype) = cx.result();
    if attrs.mode != PadMode::Constant {
        return cx.unsupported(format_args!("in mode {:?}", attrs.mode));
    }
    cx.element(|dag, index| {
        let mut at = Vec::with_capacity(index.len());
        let mut inside: Option<PrimExpr> = None;
        for (axis, i) in index.iter().enumerate() {
            let [before, after] = attrs.pad_width[axis];
            let place = i.clone() - before;
            if before != 0 || after != 0 {
                let here = within(&place, 0, input[axis]);
                inside = Some(match inside {
                    Some(inside) => inside.and(here),
                    None => here,
                });
            }
            at.push(place);
        }
        let value = dag.at(x, &at);
        match inside {
            None => value,
            Some(inside) => {
                let fill = match fill {
                    Some(fill) => {
                        let zeros = vec![PrimExpr::index(0); dag.shape(fill).len()];
                        dag.at(fill, &zeros)
                    }
                    None => PrimExpr::zero(dtype),
                };
                PrimExpr::select(inside, value, fill)
            }
        }
    })
}
