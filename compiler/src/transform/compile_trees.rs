//! Forests of constant trees in the form that is fastest for their shape and the number of rows.

use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter};
use crate::ir::{Attrs, Constant, DType, IRModule, SharedBytes, TensorType};
use crate::ops::Op;
use crate::ops::elementwise::NEGATIVE;
use crate::ops::reduce::{ReduceAttrs, SUM};
use crate::ops::tensor::{
    CHAINS, CONCATENATE, MAX_TREE_DEPTH, MAX_WRITTEN_DEPTH, TAKE, TREE_SUM, TREE_TRAVERSE,
    TakeAttrs, TreeForm, TreeSumAttrs, TreeTraverseAttrs,
};
use crate::pass::{PassContext, Result, function_pass};
use crate::strategy::Machine;
use crate::transform::InferType;

/// Most bytes of complete trees: what a few bytes of a model can ask for has no bounds.
const MAX_BYTES: f64 = (1 << 28) as f64;

/// Sums up what constant trees yield in one kernel, which goes through them in the way that takes the
/// least time.
///
/// Trees become complete, level by level, where that is faster than nodes that say where they lead
/// to. The sum is taken tree by tree, not in the order of a reduction, which rounds it otherwise.
#[function_pass(opt_level = 1, required = [InferType])]
pub fn compile_trees(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let machine = Machine::of(cx.target());
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some(linked) = Linked::of(&old, id)? else { continue };
        let (form, levels) = match linked.shape().best(machine) {
            Ok(best) => best,
            Err(why) => {
                cx.missed(id, why);
                continue;
            }
        };
        let Some(constants) = linked.complete() else { continue };
        let x = rewriter.mapped(linked.x);
        let builder = rewriter.builder();
        let [feature, threshold, leaves] = constants.map(|constant| builder.constant(constant));
        let attrs = Attrs::from_struct(&TreeSumAttrs { form, levels, at_least: linked.at_least })?;
        let new = builder.call(Op::new(&TREE_SUM), &[x, feature, threshold, leaves], attrs)?;
        cx.count("forests", 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}

/// What the time of a forest depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Shape {
    trees: f64,
    /// Levels of nodes.
    depth: u32,
    /// Nodes and leaves of the trees as they are; complete ones have more.
    nodes: f64,
    /// Rows of a run; 1 if a run says how many there are.
    rows: f64,
    columns: f64,
    /// Numbers of a leaf.
    width: f64,
    dtype: DType,
}

/// Nanoseconds of the steps of each form, measured on one core of a server of 2021 with AVX2 (AMD
/// EPYC). What they cost with wider vectors has not been measured; only ratios matter.
mod ns {
    /// A step of a row in a tree beside enough others.
    pub(super) const CHAIN: f64 = 1.0;
    /// The same alone: two loads that depend on each other, and a comparison.
    pub(super) const CHAIN_ALONE: f64 = 5.0;
    /// To read a leaf and add it.
    pub(super) const LEAF: f64 = 1.0;
    /// A branch, of which every third or so is guessed wrong.
    pub(super) const BRANCH: f64 = 2.5;
    /// A node for a vector of rows.
    pub(super) const LEVEL: f64 = 0.8;
    /// To begin a row in a tree where whole levels end.
    pub(super) const BEGIN: f64 = 0.4;
    /// An element of the columns that are put side by side.
    pub(super) const TURN: f64 = 1.0;
    /// A step of a row in a tree whose nodes say where they lead to, and the place of its leaf.
    pub(super) const LINKED: f64 = 2.4;
    /// A line of nodes from behind the second cache level, beside others.
    pub(super) const FAR: f64 = 2.0;
}

impl Shape {
    /// The fastest way through complete trees: the form, and the levels that are computed whole.
    ///
    /// # Errors
    ///
    /// Why nodes that say where they lead to are faster.
    fn best(&self, machine: Machine) -> Result<(TreeForm, u32), &'static str> {
        if !(1..=MAX_TREE_DEPTH).contains(&self.depth) || self.bytes() > MAX_BYTES {
            return Err("the trees are too deep to be complete");
        }
        let written = self.depth.min(MAX_WRITTEN_DEPTH);
        let chains = (0..=written).map(|levels| (TreeForm::Chains, levels));
        let branches = (TreeForm::Branches, 0);
        let cost = |way: &(TreeForm, u32)| self.cost(*way, machine);
        chains
            .chain([branches])
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .filter(|best| cost(best) < self.linked_cost(machine))
            .ok_or("complete trees would have many more nodes than these have")
    }

    /// Bytes of the complete trees.
    fn bytes(&self) -> f64 {
        let (number, leaves) = (f64::from(self.dtype.bits() / 8), f64::from(self.depth).exp2());
        let feature = f64::from(column_type(self.columns as i64).bits() / 8);
        self.trees * leaves * (feature + number + number * self.width)
    }

    /// Nanoseconds of all rows, for complete trees.
    fn cost(&self, (form, levels): (TreeForm, u32), machine: Machine) -> f64 {
        let (depth, whole) = (f64::from(self.depth), f64::from(levels));
        let pairs = self.rows * self.trees;
        let leaf = ns::LEAF * self.width;
        if form == TreeForm::Branches {
            let fits = self.depth <= MAX_WRITTEN_DEPTH;
            return if fits { pairs * (depth * ns::BRANCH + leaf) } else { f64::INFINITY };
        }
        let mut cost = self.far(self.bytes(), depth, machine);
        if levels > 0 {
            let vectors = (self.rows / machine.lanes(self.dtype) as f64).ceil();
            // For each number of a leaf, trees are gone through again.
            let times = if levels == self.depth { self.width } else { 1.0 };
            cost += vectors * self.trees * (whole.exp2() - 1.0) * ns::LEVEL * times;
            cost += self.rows * self.columns * ns::TURN;
        }
        if levels < self.depth {
            let step = ns::CHAIN.max(ns::CHAIN_ALONE / pairs.min(CHAINS as f64));
            let begin = if levels > 0 { ns::BEGIN } else { 0.0 };
            cost += pairs * ((depth - whole) * step + begin + leaf);
        }
        cost
    }

    /// Nanoseconds of all rows, for trees whose nodes say where they lead to.
    fn linked_cost(&self, machine: Machine) -> f64 {
        let depth = f64::from(self.depth);
        let bytes = self.nodes * f64::from(16 + self.dtype.bits() / 8);
        let step = depth * ns::LINKED + 2.0 * ns::LEAF * self.width;
        self.rows * self.trees * step + self.far(bytes, depth, machine)
    }

    /// Nanoseconds in which nodes come from behind the second cache level: those that rows pass, or
    /// all of them once, as trees stay in the caches for all rows.
    fn far(&self, bytes: f64, depth: f64, machine: Machine) -> f64 {
        let outside = (1.0 - machine.middle_bytes() as f64 / bytes).max(0.0);
        let lines = (bytes / 64.0).min(self.rows * self.trees * (depth + 1.0));
        outside * lines * ns::FAR
    }
}

/// The narrowest type that holds the number of a column.
fn column_type(columns: i64) -> DType {
    if columns <= 1 << 8 { DType::U8 } else { DType::I32 }
}

/// A sum of what trees yield whose nodes say where they lead to.
struct Linked {
    x: ExprId,
    rows: Option<i64>,
    columns: i64,
    depth: i64,
    feature: Vec<i64>,
    threshold: Vec<f64>,
    children: Vec<i64>,
    roots: Vec<i64>,
    /// The leaves' numbers, and how many each has.
    table: Vec<f64>,
    width: usize,
    /// Whether leaves have rows of numbers.
    is_wide: bool,
    /// Whether nodes ask for elements of at least their threshold.
    at_least: bool,
    dtype: DType,
}

/// The operator's attributes and arguments, if an expression is a plain call of it.
fn call_of<'f>(
    function: &'f Function,
    id: ExprId,
    def: &'static crate::ops::OpDef,
) -> Option<(&'f Attrs, &'f [Option<ExprId>])> {
    let Expr::Call(Call { callee: Callee::Op(op), args, attrs }) = function.expr(id) else {
        return None;
    };
    (op.is(def) && op.is_plain(attrs)).then_some((attrs, args))
}

impl Linked {
    /// The sum that a call is, if it is one of constant trees.
    fn of(function: &Function, id: ExprId) -> Result<Option<Linked>> {
        let Some((attrs, &[Some(values)])) = call_of(function, id, &SUM) else { return Ok(None) };
        let ReduceAttrs { axis, keepdims } = attrs.parse()?;
        let Some((attrs, &[Some(table), Some(leaves)])) = call_of(function, values, &TAKE) else {
            return Ok(None);
        };
        let TakeAttrs { axis: of, mode: _ } = attrs.parse()?;
        let Some((attrs, args)) = call_of(function, leaves, &TREE_TRAVERSE) else {
            return Ok(None);
        };
        let TreeTraverseAttrs { depth } = attrs.parse()?;
        let &[Some(x), Some(feature), Some(threshold), Some(children), Some(roots)] = args else {
            return Ok(None);
        };
        let constant =
            |id: ExprId| function.expr(id).as_constant().filter(|constant| !constant.is_opaque());
        let Some(tensor) = function.ty(x).as_tensor() else { return Ok(None) };
        let dims = constant(table).and_then(|table| table.ty().shape.as_consts());
        let (width, is_wide) = match dims.as_deref() {
            Some(&[count]) if count > 0 => (1, false),
            Some(&[count, width]) if count > 0 && width > 0 => (width as usize, true),
            _ => return Ok(None),
        };
        let (Some(columns), true) =
            (tensor.shape[1].as_const(), axis == [1] && of == 0 && keepdims != is_wide)
        else {
            return Ok(None);
        };
        let ints = |id: ExprId| constant(id)?.to_i64_vec();
        let floats = |id: ExprId| constant(id)?.to_f64_vec();
        let (Some(feature), Some(threshold), Some(children), Some(roots), Some(table)) =
            (ints(feature), floats(threshold), ints(children), ints(roots), floats(table))
        else {
            return Ok(None);
        };
        let (rows, dtype) = (tensor.shape[0].as_const(), tensor.dtype);
        // A table of other numbers than those that are compared would be cast.
        let is_same = function.ty(id).as_tensor().is_some_and(|sum| sum.dtype == dtype);
        if !is_same || !matches!(dtype, DType::F32 | DType::F64) || roots.is_empty() {
            return Ok(None);
        }
        Ok(Some(
            Linked {
                x,
                rows,
                columns,
                depth,
                feature,
                threshold,
                children,
                roots,
                table,
                width,
                is_wide,
                at_least: false,
                dtype,
            }
            .without_negatives(function),
        ))
    }

    /// The same trees without the columns of negative elements behind the others, if all nodes ask
    /// for those: a negative element of at most a number is an element of at least its negative.
    fn without_negatives(self, function: &Function) -> Linked {
        let positive = call_of(function, self.x, &CONCATENATE).and_then(|(_, args)| {
            let &[Some(x), Some(negative)] = args else { return None };
            let (_, of) = call_of(function, negative, &NEGATIVE)?;
            (of == [Some(x)]).then_some(x)
        });
        let columns = positive
            .and_then(|x| function.ty(x).as_tensor()?.shape.get(1)?.as_const())
            .filter(|columns| 2 * columns == self.columns);
        let (Some(x), Some(columns)) = (positive, columns) else { return self };
        // Leaves compare with NaN, which does not hold either way.
        let asks = |node: usize| !self.threshold[node].is_nan();
        if !(0..self.feature.len()).all(|node| !asks(node) || self.feature[node] >= columns) {
            return self;
        }
        let feature = self.feature.iter().map(|column| (column - columns).max(0)).collect();
        let threshold = self.threshold.iter().map(|threshold| -threshold).collect();
        Linked { x, columns, feature, threshold, at_least: true, ..self }
    }

    /// Levels of the complete trees: at least one.
    fn levels(&self) -> u32 {
        u32::try_from(self.depth.max(1)).unwrap_or(u32::MAX)
    }

    fn shape(&self) -> Shape {
        Shape {
            trees: self.roots.len() as f64,
            depth: self.levels(),
            nodes: self.feature.len() as f64,
            rows: self.rows.unwrap_or(1) as f64,
            columns: self.columns as f64,
            width: self.width as f64,
            dtype: self.dtype,
        }
    }

    /// Features, thresholds and leaves of the complete trees.
    fn complete(&self) -> Option<[Constant; 3]> {
        let count = self.feature.len() as i64;
        let nearest = |node: i64| node.clamp(0, count - 1) as usize;
        let trees = self.roots.len();
        let (mut feature, mut threshold, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for &root in &self.roots {
            let mut level = vec![nearest(root)];
            for step in 0..self.levels() {
                let mut next = Vec::with_capacity(2 * level.len());
                for node in level {
                    let children = [0, 1].map(|which| nearest(self.children[2 * node + which]));
                    // A tree that has ended waits, and of no steps, the one that is there is none.
                    let waits = i64::from(step) >= self.depth || children == [node, node];
                    feature.push(if waits {
                        0
                    } else {
                        self.feature[node].clamp(0, self.columns - 1)
                    });
                    threshold.push(if waits { f64::NAN } else { self.threshold[node] });
                    next.extend(if waits { [node, node] } else { children });
                }
                level = next;
            }
            for node in level {
                let first = node.min(self.table.len() / self.width - 1) * self.width;
                leaves.extend_from_slice(&self.table[first..first + self.width]);
            }
        }
        let ends = 1i64 << self.levels();
        let dims = [trees as i64, ends, self.width as i64];
        let nodes = [dims[0], ends - 1];
        let feature = match column_type(self.columns) {
            DType::U8 => constant(&nodes, DType::U8, &feature, |&at| [at as u8]),
            dtype => constant(&nodes, dtype, &feature, |&at| (at as i32).to_le_bytes()),
        };
        let rank = if self.is_wide { 3 } else { 2 };
        Some([feature?, self.floats(&nodes, &threshold)?, self.floats(&dims[..rank], &leaves)?])
    }

    fn floats(&self, dims: &[i64], values: &[f64]) -> Option<Constant> {
        match self.dtype {
            DType::F64 => constant(dims, self.dtype, values, |value| value.to_le_bytes()),
            _ => constant(dims, self.dtype, values, |&value| (value as f32).to_le_bytes()),
        }
    }
}

/// A constant of elements, each of so many bytes.
fn constant<T, const N: usize>(
    dims: &[i64],
    dtype: DType,
    values: &[T],
    bytes: impl Fn(&T) -> [u8; N],
) -> Option<Constant> {
    let bytes: Vec<u8> = values.iter().flat_map(bytes).collect();
    Constant::new(TensorType::from_consts(dims, dtype), SharedBytes::new(bytes)).ok()
}
