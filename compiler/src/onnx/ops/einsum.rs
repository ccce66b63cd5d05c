//! `Einsum` as transposes, products of matrices and sums.

use crate::graph::ExprId;
use crate::ir::Dim;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::reduce::SUM;
use crate::ops::tensor::{STRIDED_SLICE, StridedSliceAttrs};

/// An axis: a letter, or one of those that an ellipsis stands for, numbered from the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// A value with a label for each of its axes.
#[derive(Clone)]
struct Term {
    value: ExprId,
    labels: Vec<Label>,
}

/// `Einsum`-12. Operands are combined from left to right.
pub(super) fn einsum(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let equation = node.attrs.string("equation")?.ok_or_else(|| super::missing("equation"))?;
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation.as_str(), None),
    };
    let operands = node.all_inputs()?;
    let subscripts: Vec<&str> = inputs.split(',').collect();
    if subscripts.len() != operands.len() {
        return Err(NodeError::new(format!(
            "the equation `{equation}` has {} operands, but {} are given",
            subscripts.len(),
            operands.len()
        )));
    }
    let mut terms = Vec::with_capacity(operands.len());
    for (&value, subscript) in operands.iter().zip(subscripts) {
        let rank = node.shape(value)?.rank();
        let labels = labels(subscript, Some(rank))?;
        terms.push(diagonal(node, Term { value, labels })?);
    }
    let output = match output {
        Some(output) => {
            let ellipsis = terms.iter().flat_map(|term| &term.labels).filter_map(|l| match l {
                Label::Ellipsis(number) => Some(number + 1),
                Label::Letter(_) => None,
            });
            let ellipsis = ellipsis.max().unwrap_or(0);
            let letters = output.replace("...", "").chars().count();
            labels(output, Some(letters + ellipsis * usize::from(output.contains("..."))))?
        }
        None => implicit_output(inputs, &terms),
    };
    let seen = |label: &Label| terms.iter().any(|term| term.labels.contains(label));
    if let Some(label) = output.iter().find(|label| !seen(label)) {
        return Err(NodeError::new(format!(
            "the result of the equation `{equation}` has {label:?}, which no operand has"
        )));
    }
    let mut rest = terms.into_iter();
    let mut result = rest.next().ok_or_else(|| NodeError::new("the equation has no operands"))?;
    let later: Vec<Term> = rest.collect();
    for (index, term) in later.iter().enumerate() {
        // What neither the result nor a later operand has is summed up now.
        let needed = |label: &Label| {
            output.contains(label) || later[index + 1..].iter().any(|t| t.labels.contains(label))
        };
        result = product(node, result, term.clone(), &needed)?;
    }
    let result = sum_out(node, result, &|label| output.contains(label))?;
    Ok(vec![ordered(node, result, &output)?.value])
}

/// The labels of a subscript for a tensor of that rank.
fn labels(subscript: &str, rank: Option<usize>) -> Result<Vec<Label>, NodeError> {
    let letters = subscript.replacen("...", "", 1);
    if let Some(odd) = letters.chars().find(|c| !c.is_ascii_alphabetic()) {
        return Err(NodeError::new(format!("`{odd}` in the subscript `{subscript}` is no letter")));
    }
    let count = letters.len();
    let rank = rank.unwrap_or(count);
    let wrong = || {
        NodeError::new(format!(
            "the subscript `{subscript}` does not fit a tensor of {rank} dimensions"
        ))
    };
    let Some((before, after)) = subscript.split_once("...") else {
        return if count == rank {
            Ok(letters.chars().map(Label::Letter).collect())
        } else {
            Err(wrong())
        };
    };
    let hidden = rank.checked_sub(count).ok_or_else(wrong)?;
    let ellipsis = (0..hidden).rev().map(Label::Ellipsis);
    Ok(before
        .chars()
        .map(Label::Letter)
        .chain(ellipsis)
        .chain(after.chars().map(Label::Letter))
        .collect())
}

/// Without an arrow: the axes of the ellipsis, then the letters that occur once, by the alphabet.
fn implicit_output(inputs: &str, terms: &[Term]) -> Vec<Label> {
    let mut output: Vec<Label> = terms.iter().flat_map(|term| term.labels.clone()).collect();
    output.sort_unstable_by_key(|label| match *label {
        Label::Ellipsis(number) => (0, usize::MAX - number, ' '),
        Label::Letter(letter) => (1, 0, letter),
    });
    output.dedup();
    output.retain(|label| match label {
        Label::Ellipsis(_) => true,
        Label::Letter(letter) => inputs.matches(*letter).count() == 1,
    });
    output
}

/// Labels that occur twice in one term become one: the diagonal of those axes.
fn diagonal(node: &mut Node<'_, '_>, mut term: Term) -> Result<Term, NodeError> {
    while let Some((first, second)) = repeated(&term.labels) {
        let rank = term.labels.len();
        let extent = node.known_extent(term.value, first)?;
        if node.known_extent(term.value, second)? != extent {
            return Err(NodeError::new("axes with one letter have different extents"));
        }
        // Both axes last and made one, in which the diagonal is every (extent + 1)-th element.
        let mut axes: Vec<usize> = (0..rank).filter(|a| *a != first && *a != second).collect();
        let mut labels: Vec<Label> = axes.iter().map(|&axis| term.labels[axis]).collect();
        labels.push(term.labels[first]);
        axes.extend([first, second]);
        let value = node.transposed(term.value, &axes)?;
        let shape = node.shape(value)?;
        let outer = shape[..rank - 2].to_vec();
        let flat = [outer, vec![Dim::from(extent.saturating_mul(extent))]].concat();
        let value = node.reshape(value, flat)?;
        let attrs = StridedSliceAttrs {
            begin: vec![0],
            end: vec![i64::MAX],
            strides: vec![extent.saturating_add(1)],
            axes: vec![-1],
        };
        term = Term { value: node.call_with(&STRIDED_SLICE, &[value], &attrs)?, labels };
    }
    Ok(term)
}

/// The first two axes with one label.
fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    labels.iter().enumerate().find_map(|(second, label)| {
        let first = labels[..second].iter().position(|other| other == label)?;
        Some((first, second))
    })
}

/// Sums over the axes that are not needed.
fn sum_out(
    node: &mut Node<'_, '_>,
    term: Term,
    needed: &dyn Fn(&Label) -> bool,
) -> Result<Term, NodeError> {
    let axes = (0..term.labels.len()).filter(|&axis| !needed(&term.labels[axis]));
    let value = node.reduce(&SUM, term.value, axes, false)?;
    let labels = term.labels.into_iter().filter(|label| needed(label)).collect();
    Ok(Term { value, labels })
}

/// The term with its axes in that order.
fn ordered(node: &mut Node<'_, '_>, term: Term, order: &[Label]) -> Result<Term, NodeError> {
    let axes: Option<Vec<usize>> =
        order.iter().map(|label| term.labels.iter().position(|own| own == label)).collect();
    let axes = axes.ok_or_else(|| NodeError::new("the result has an axis that no operand has"))?;
    Ok(Term { value: node.transposed(term.value, &axes)?, labels: order.to_vec() })
}

/// The product of two terms, summed over what is not needed any more.
///
/// Both become stacks of matrices: the axes they share and keep outside, then those of one of them
/// and those that are summed.
fn product(
    node: &mut Node<'_, '_>,
    a: Term,
    b: Term,
    needed: &dyn Fn(&Label) -> bool,
) -> Result<Term, NodeError> {
    let in_b = b.labels.clone();
    let a = sum_out(node, a, &|label| needed(label) || in_b.contains(label))?;
    let in_a = a.labels.clone();
    let b = sum_out(node, b, &|label| needed(label) || in_a.contains(label))?;
    let of = |labels: &[Label], which: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        labels.iter().copied().filter(|label| which(label)).collect()
    };
    let both = of(&a.labels, &|label| b.labels.contains(label) && needed(label));
    let summed = of(&a.labels, &|label| b.labels.contains(label) && !needed(label));
    let rows = of(&a.labels, &|label| !b.labels.contains(label));
    let columns = of(&b.labels, &|label| !a.labels.contains(label));

    let a = ordered(node, a, &[&both[..], &rows, &summed].concat())?;
    let b = ordered(node, b, &[&both[..], &summed, &columns].concat())?;
    let (a_shape, b_shape) = (node.shape(a.value)?, node.shape(b.value)?);
    let (r, s) = (both.len() + rows.len(), both.len() + summed.len());
    for ((x, y), label) in a_shape[r..].iter().zip(&b_shape[both.len()..s]).zip(&summed) {
        if x != y {
            return Err(NodeError::new(format!("{label:?} stands for extents of {x} and {y}")));
        }
    }
    let size = |dims: &[Dim]| -> Dim { dims.iter().product() };
    let matrix = |outer: &[Dim], rows: Dim, columns: Dim| [outer, &[rows, columns]].concat();
    let a_matrix =
        matrix(&a_shape[..both.len()], size(&a_shape[both.len()..r]), size(&a_shape[r..]));
    let b_matrix =
        matrix(&b_shape[..both.len()], size(&b_shape[both.len()..s]), size(&b_shape[s..]));
    let (left, right) = (node.reshape(a.value, a_matrix)?, node.reshape(b.value, b_matrix)?);
    let attrs = MatmulAttrs::default();
    let result = node.call_with(&MATMUL, &[left, right], &attrs)?;
    let outer = node.shape(result)?[..both.len()].to_vec();
    let dims = [&outer[..], &a_shape[both.len()..r], &b_shape[s..]].concat();
    Ok(Term { value: node.reshape(result, dims)?, labels: [both, rows, columns].concat() })
}
