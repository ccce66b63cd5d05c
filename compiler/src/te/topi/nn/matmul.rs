//! Matrix products.

use crate::ops::nn::MatmulAttrs;
use crate::te::Anchor;
use crate::te::topi::{Compute, Stages, broadcast};
use crate::tir::{BinaryOp, PrimExpr};

pub(super) fn dense(cx: &mut Compute<'_>) -> Stages {
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let k = cx.dag.shape(weight)[1];
    let stage = cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, &[k], |dag, index, by| {
        let (column, rows) = index.split_last().expect("a matrix has two axes");
        let mut at = rows.to_vec();
        at.push(by[0].clone());
        dag.at(x, &at) * dag.at(weight, &[column.clone(), by[0].clone()])
    });
    cx.dag.set_anchor(stage, Anchor::MatMul { lhs: x, rhs: weight, transpose_b: true });
    Ok(vec![stage])
}

pub(super) fn matmul(cx: &mut Compute<'_>) -> Stages {
    let attrs: MatmulAttrs = cx.attrs()?;
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let (left, right) = (cx.dag.shape(a).to_vec(), cx.dag.shape(b).to_vec());
    // A vector is a row on the left and a column on the right, and its axis is not in the result.
    let (row_vector, column_vector) = (left.len() == 1, right.len() == 1);
    let k =
        if attrs.transpose_a && !row_vector { left[left.len() - 2] } else { left[left.len() - 1] };
    let batch = shape.len() - usize::from(!row_vector) - usize::from(!column_vector);
    let stage = cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, &[k], |dag, index, by| {
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
