//! Ensembles of trees: where each tree leads a row is `tree_traverse`; the rest is sums of what the
//! leaves hold.

use std::collections::BTreeMap;

use super::forest::{Forest, Leaf, Node as TreeNode, Test};
use super::{Classes, PostTransform, complement, floats, opposites, rows, wide};
use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::missing;
use crate::ops::elementwise::{DIVIDE, MAXIMUM, MINIMUM};

/// Most targets, each of which is a sum of its own.
const MAX_TARGETS: usize = 1 << 14;

/// How the values of the trees become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

/// A list of an attribute that is either floats or, since -3, a tensor.
fn numbers(node: &mut Node<'_, '_>, name: &str) -> Result<Option<(Vec<f64>, bool)>, NodeError> {
    let list = node.attrs.floats(name)?.filter(|list| !list.is_empty()).map(wide);
    let tensor = node.attrs.tensor(&format!("{name}_as_tensor"))?;
    match (list, tensor) {
        (Some(list), None) => Ok(Some((list, false))),
        (None, Some(tensor)) => Ok(Some(tensor_numbers(node, name, tensor)?)),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(NodeError::new(format!(
            "only one of the attributes `{name}` and `{name}_as_tensor` is expected"
        ))),
    }
}

/// The elements of a tensor of floats, and whether they have 64 bits.
fn tensor_numbers(
    node: &mut Node<'_, '_>,
    name: &str,
    tensor: &crate::onnx::proto::TensorProto,
) -> Result<(Vec<f64>, bool), NodeError> {
    let constant = node.read_constant(tensor)?;
    let list = constant.to_f64_vec();
    let list =
        list.ok_or_else(|| NodeError::new(format!("attribute `{name}` must hold floats")))?;
    Ok((list, constant.ty().dtype == DType::F64))
}

/// Says that lists do not go together.
fn same_length(name: &str, found: usize, nodes: usize) -> Result<(), NodeError> {
    if found == nodes {
        return Ok(());
    }
    Err(NodeError::new(format!("attribute `{name}` has {found} elements, but there are {nodes}")))
}

fn position(name: &str, value: i64, count: usize) -> Result<usize, NodeError> {
    usize::try_from(value).ok().filter(|&index| index < count).ok_or_else(|| {
        NodeError::new(format!("attribute `{name}` has {value}, but there are {count}"))
    })
}

/// The forest of attributes of versions 1 and 3, the leaves of which are found by the attributes
/// that begin with `leaf`; and whether any number has 64 bits.
fn read(node: &mut Node<'_, '_>, leaf: &str) -> Result<(Forest, bool), NodeError> {
    let mut list = |name: &str| -> Result<&[i64], NodeError> {
        node.attrs.ints(name)?.ok_or_else(|| missing(name))
    };
    let (trees, ids) = (list("nodes_treeids")?, list("nodes_nodeids")?);
    let (features, yes, no) =
        (list("nodes_featureids")?, list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let leaf_names = ["treeids", "nodeids", "ids"].map(|name| format!("{leaf}_{name}"));
    let [leaf_trees, leaf_nodes, leaf_targets] =
        [list(&leaf_names[0])?, list(&leaf_names[1])?, list(&leaf_names[2])?];
    let tracks = node.attrs.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let modes = node.attrs.strings("nodes_modes")?.ok_or_else(|| missing("nodes_modes"))?;
    // How often a node was passed when the model was trained.
    numbers(node, "nodes_hitrates")?;
    let (values, wide_values) =
        numbers(node, "nodes_values")?.ok_or_else(|| missing("nodes_values"))?;
    let weights_name = format!("{leaf}_weights");
    let (weights, wide_weights) =
        numbers(node, &weights_name)?.ok_or_else(|| missing(&weights_name))?;

    let count = ids.len();
    for (name, found) in [
        ("nodes_treeids", trees.len()),
        ("nodes_featureids", features.len()),
        ("nodes_truenodeids", yes.len()),
        ("nodes_falsenodeids", no.len()),
        ("nodes_modes", modes.len()),
        ("nodes_values", values.len()),
        ("nodes_missing_value_tracks_true", if tracks.is_empty() { count } else { tracks.len() }),
    ] {
        same_length(name, found, count)?;
    }
    for (name, found) in leaf_names.iter().zip([leaf_trees, leaf_nodes, leaf_targets]) {
        same_length(name, found.len(), weights.len())?;
    }
    let places: BTreeMap<(i64, i64), usize> = trees
        .iter()
        .zip(ids)
        .enumerate()
        .map(|(index, (&tree, &id))| ((tree, id), index))
        .collect();
    if places.len() != count {
        return Err(NodeError::new("a tree has two nodes of one number"));
    }
    let place = |tree: i64, id: i64| {
        places.get(&(tree, id)).copied().ok_or_else(|| {
            NodeError::new(format!("tree {tree} has no node {id}, which another one leads to"))
        })
    };
    let mut is_child = vec![false; count];
    let mut nodes = Vec::with_capacity(count);
    for index in 0..count {
        let test = match modes[index] {
            "LEAF" => {
                nodes.push(TreeNode::Leaf(Leaf::default()));
                continue;
            }
            "BRANCH_LEQ" => Test::LessEqual,
            "BRANCH_LT" => Test::Less,
            "BRANCH_GTE" => Test::GreaterEqual,
            "BRANCH_GT" => Test::Greater,
            "BRANCH_EQ" => Test::Equal,
            "BRANCH_NEQ" => Test::NotEqual,
            other => {
                return Err(NodeError::new(format!(
                    "attribute `nodes_modes` has `{other}`, which is not known"
                )));
            }
        };
        let children = [place(trees[index], no[index])?, place(trees[index], yes[index])?];
        children.iter().for_each(|&child| is_child[child] = true);
        nodes.push(TreeNode::Branch {
            test,
            feature: features[index],
            value: values[index],
            children,
            nan_is_true: tracks.get(index).is_some_and(|&tracks| tracks != 0),
        });
    }
    for (index, &weight) in weights.iter().enumerate() {
        let at = place(leaf_trees[index], leaf_nodes[index])?;
        let TreeNode::Leaf(leaf) = &mut nodes[at] else { continue };
        leaf.push((leaf_targets[index], weight));
    }
    let mut roots: BTreeMap<i64, usize> = BTreeMap::new();
    for (index, &tree) in trees.iter().enumerate().filter(|(index, _)| !is_child[*index]) {
        roots.entry(tree).or_insert(index);
    }
    let roots = roots.into_values().collect();
    Ok((Forest { nodes, roots }, wide_values || wide_weights))
}

/// The values of each target, `(batch, targets)`, and the type that they were computed in.
fn targets(
    node: &mut Node<'_, '_>,
    forest: &Forest,
    is_wide: bool,
    count: usize,
    aggregate: Aggregate,
) -> Result<ExprId, NodeError> {
    let mut x = rows(node)?;
    if is_wide {
        x = node.cast(x, DType::F64)?;
    }
    if count > MAX_TARGETS {
        return Err(NodeError::new(format!(
            "there are {count} targets, but at most {MAX_TARGETS} are supported"
        )));
    }
    let all = forest.compile(node, x)?;
    match forest.target_of_trees(count)? {
        // Each tree is of one target.
        Some(by_tree) => {
            let table = all.table(node, None)?;
            let mut trees = vec![Vec::new(); count];
            by_tree.iter().enumerate().for_each(|(tree, &target)| trees[target].push(tree));
            let mut columns = Vec::with_capacity(count);
            for trees in trees {
                columns.push(aggregated(node, &all, &trees, table, 1, aggregate)?);
            }
            node.concatenate(&columns, 1)
        }
        None => {
            let table = all.table(node, Some(count))?;
            let trees: Vec<usize> = (0..forest.roots.len()).collect();
            aggregated(node, &all, &trees, table, count, aggregate)
        }
    }
}

/// What some trees yield by a table of their leaves: `(batch, width)`.
fn aggregated(
    node: &mut Node<'_, '_>,
    all: &super::forest::Compiled,
    trees: &[usize],
    table: ExprId,
    width: usize,
    aggregate: Aggregate,
) -> Result<ExprId, NodeError> {
    let mut result: Option<ExprId> = None;
    for piece in all.values(node, trees, table, aggregate.reduction())? {
        result = Some(match (result, aggregate) {
            (None, _) => piece,
            (Some(so_far), Aggregate::Sum | Aggregate::Average) => node.add(so_far, piece)?,
            (Some(so_far), Aggregate::Min) => node.call(&MINIMUM, &[so_far, piece])?,
            (Some(so_far), Aggregate::Max) => node.call(&MAXIMUM, &[so_far, piece])?,
        });
    }
    let result = match result {
        Some(result) => result,
        None => all.zeros(node, width)?,
    };
    if aggregate == Aggregate::Average && !all.roots.is_empty() {
        return node.with_scalar(&DIVIDE, result, all.roots.len() as f64);
    }
    Ok(result)
}

impl Aggregate {
    fn reduction(self) -> &'static crate::ops::OpDef {
        match self {
            Aggregate::Sum | Aggregate::Average => &crate::ops::reduce::SUM,
            Aggregate::Min => &crate::ops::reduce::MIN,
            Aggregate::Max => &crate::ops::reduce::MAX,
        }
    }
}

/// The sum with a base value for each target.
fn based(
    node: &mut Node<'_, '_>,
    values: ExprId,
    base: &[f64],
    count: usize,
) -> Result<ExprId, NodeError> {
    if base.is_empty() {
        return Ok(values);
    }
    if base.len() != 1 && base.len() != count {
        return Err(NodeError::new(format!(
            "attribute `base_values` must have a number for each of {count} targets, but it has {}",
            base.len()
        )));
    }
    let dtype = node.tensor(values)?.dtype;
    let base = floats(node, &[base.len() as i64], base, dtype)?;
    node.add(values, base)
}

/// `TreeEnsembleRegressor`-1, -3 (numbers as tensors), -5 (deprecated).
pub(super) fn regressor(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (forest, is_wide) = read(node, "target")?;
    let transform = PostTransform::read(node)?;
    let count = node.attrs.int("n_targets")?.unwrap_or(1).max(1) as usize;
    let aggregate = match node.attrs.string("aggregate_function")?.unwrap_or("SUM") {
        "SUM" => Aggregate::Sum,
        "AVERAGE" => Aggregate::Average,
        "MIN" => Aggregate::Min,
        "MAX" => Aggregate::Max,
        other => {
            return Err(NodeError::new(format!(
                "attribute `aggregate_function` must be SUM, AVERAGE, MIN or MAX, but it is `{other}`"
            )));
        }
    };
    let base = numbers(node, "base_values")?.unwrap_or_default().0;
    let values = targets(node, &forest, is_wide, count, aggregate)?;
    let values = based(node, values, &base, count)?;
    let values = node.cast(values, DType::F32)?;
    Ok(vec![transform.of_targets(node, values)?])
}

/// `TreeEnsembleClassifier`-1, -3 (numbers as tensors), -5 (deprecated). Of two classes, trees may
/// have values of one alone, as ONNX Runtime has it.
pub(super) fn classifier(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (mut forest, is_wide) = read(node, "class")?;
    let transform = PostTransform::read(node)?;
    let classes = Classes::read(node, "classlabels_int64s")?;
    let base = numbers(node, "base_values")?.unwrap_or_default().0;
    let used = forest.targets();
    if classes.len() == 2 && used.len() == 1 {
        forest.retarget(0);
        let score = targets(node, &forest, is_wide, 1, Aggregate::Sum)?;
        // A base value for each class makes it two scores, as values of the second class do.
        let is_second = used[0] == 1;
        let is_single = !is_second && base.len() < 2;
        let own = if is_second { base.get(1) } else { base.first() };
        let score = based(node, score, own.map_or(&[], std::slice::from_ref), 1)?;
        let score = node.cast(score, DType::F32)?;
        let is_positive = forest.weights_are_positive();
        let labels = classes.of_sign(node, score, if is_positive { 0.5 } else { 0.0 })?;
        let scores = match transform {
            _ if !is_single => {
                let dims = node.shape(score)?.to_vec();
                let zero = node.full(0.0, DType::F32, dims)?;
                let both = if is_second { [zero, score] } else { [score, zero] };
                let both = node.concatenate(&both, 1)?;
                transform.apply(node, both)?
            }
            PostTransform::Probit => transform.apply(node, score)?,
            PostTransform::Logistic => {
                let both = opposites(node, score)?;
                transform.apply(node, both)?
            }
            _ if is_positive => complement(node, score)?,
            _ => opposites(node, score)?,
        };
        return Ok(vec![labels, scores]);
    }
    let scores = targets(node, &forest, is_wide, classes.len(), Aggregate::Sum)?;
    let scores = based(node, scores, &base, classes.len())?;
    let scores = node.cast(scores, DType::F32)?;
    let labels = classes.of_greatest(node, scores)?;
    Ok(vec![labels, transform.apply(node, scores)?])
}

/// `TreeEnsemble`-5: leaves are a list of their own, and a node may ask for one of a set.
pub(super) fn ensemble(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut list = |name: &str| -> Result<&[i64], NodeError> {
        node.attrs.ints(name)?.ok_or_else(|| missing(name))
    };
    let (features, roots) = (list("nodes_featureids")?, list("tree_roots")?);
    let children = [
        (list("nodes_falsenodeids")?, list("nodes_falseleafs")?),
        (list("nodes_truenodeids")?, list("nodes_trueleafs")?),
    ];
    let leaf_targets = list("leaf_targetids")?;
    let tracks = node.attrs.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let tensor = |node: &mut Node<'_, '_>, name: &str| match node.attrs.tensor(name)? {
        Some(tensor) => tensor_numbers(node, name, tensor).map(Some),
        None => Ok(None),
    };
    tensor(node, "nodes_hitrates")?;
    let (values, _) = tensor(node, "nodes_splits")?.ok_or_else(|| missing("nodes_splits"))?;
    let (weights, is_wide) =
        tensor(node, "leaf_weights")?.ok_or_else(|| missing("leaf_weights"))?;
    let members = tensor(node, "membership_values")?.unwrap_or_default().0;
    let modes = node.attrs.tensor("nodes_modes")?.ok_or_else(|| missing("nodes_modes"))?;
    let modes = node.read_constant(modes)?.to_i64_vec().unwrap_or_default();
    let count = features.len();
    for (name, found) in [
        ("nodes_falsenodeids", children[0].0.len()),
        ("nodes_falseleafs", children[0].1.len()),
        ("nodes_truenodeids", children[1].0.len()),
        ("nodes_trueleafs", children[1].1.len()),
        ("nodes_splits", values.len()),
        ("nodes_modes", modes.len()),
        ("nodes_missing_value_tracks_true", if tracks.is_empty() { count } else { tracks.len() }),
    ] {
        same_length(name, found, count)?;
    }
    same_length("leaf_targetids", leaf_targets.len(), weights.len())?;
    let mut sets = members.split(|member| member.is_nan());
    let mut nodes: Vec<TreeNode> = Vec::with_capacity(count + weights.len());
    for index in 0..count {
        let mut both = [0; 2];
        for (child, (ids, leaves)) in both.iter_mut().zip(&children) {
            *child = if leaves[index] == 0 {
                position("nodes_truenodeids", ids[index], count)?
            } else {
                count + position("leaf_targetids", ids[index], weights.len())?
            };
        }
        let test = match modes[index] {
            0 => Test::LessEqual,
            1 => Test::Less,
            2 => Test::GreaterEqual,
            3 => Test::Greater,
            4 => Test::Equal,
            5 => Test::NotEqual,
            6 => Test::Member(sets.next().unwrap_or_default().to_vec()),
            other => {
                return Err(NodeError::new(format!(
                    "attribute `nodes_modes` has {other}, which is not known"
                )));
            }
        };
        nodes.push(TreeNode::Branch {
            test,
            feature: features[index],
            value: values[index],
            children: both,
            nan_is_true: tracks.get(index).is_some_and(|&tracks| tracks != 0),
        });
    }
    nodes.extend(
        leaf_targets
            .iter()
            .zip(weights)
            .map(|(&target, weight)| TreeNode::Leaf(vec![(target, weight)])),
    );
    let roots = roots
        .iter()
        .map(|&root| position("tree_roots", root, count))
        .collect::<Result<_, NodeError>>()?;
    let targets_count = node.attrs.int("n_targets")?.unwrap_or(1).max(1) as usize;
    let aggregate = match node.attrs.int("aggregate_function")?.unwrap_or(1) {
        0 => Aggregate::Average,
        1 => Aggregate::Sum,
        2 => Aggregate::Min,
        3 => Aggregate::Max,
        other => {
            return Err(NodeError::new(format!(
                "attribute `aggregate_function` must be from 0 to 3, but it is {other}"
            )));
        }
    };
    let transform = node.attrs.int("post_transform")?.unwrap_or(0);
    let transform = usize::try_from(transform).ok().and_then(|at| PostTransform::ALL.get(at));
    let &(_, transform) = transform
        .ok_or_else(|| NodeError::new("attribute `post_transform` must be from 0 to 4"))?;
    let dtype = node.tensor(node.input(0)?)?.dtype;
    let values = targets(node, &Forest { nodes, roots }, is_wide, targets_count, aggregate)?;
    let values = node.cast(values, dtype)?;
    Ok(vec![transform.of_targets(node, values)?])
}
