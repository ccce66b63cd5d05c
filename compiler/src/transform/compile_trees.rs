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

/// Bytes of nodes that stay in the caches of most targets while others stream by.
const NEAR_BYTES: f64 = (256 << 10) as f64;

/// Sums up what constant trees yield in one kernel, in the form that takes the least time.
///
/// Trees become complete, level by level, where that is faster than nodes that say where they lead
/// to. The sum is taken tree by tree, not in the order of a reduction, which rounds it otherwise.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn compile_trees(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let machine = Machine::of(cx.target());
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_call()? {
        let old = rewriter.old().clone();
        let Some(linked) = Linked::of(&old, id)? else { continue };
        let shape = linked.shape();
        if !shape.is_complete() {
            cx.missed(id, "complete trees would have many more nodes than these have");
            continue;
        }
        let (form, levels) = shape.best(machine);
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
///
/// Not measured faster in any case, and so no form of its own: nodes by instructions that gather lanes,
/// as that processor takes four times as long for them as for chains.
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
    pub(super) const LINKED: f64 = 1.7;
    /// A line of nodes from behind the caches, beside others.
    pub(super) const FAR: f64 = 2.0;
}

impl Shape {
    /// The fastest way through complete trees: the form, and the levels that are computed whole.
    fn best(&self, machine: Machine) -> (TreeForm, u32) {
        let written = self.depth.min(MAX_WRITTEN_DEPTH);
        let ways = (0..=written).map(|levels| (TreeForm::Chains, levels));
        let branches = (self.depth <= written).then_some((TreeForm::Branches, 0));
        let cost = |way: &(TreeForm, u32)| self.cost(*way, machine);
        let best = ways.chain(branches).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        best.unwrap_or((TreeForm::Chains, 0))
    }

    /// Nanoseconds of all rows, for complete trees.
    fn cost(&self, (form, levels): (TreeForm, u32), machine: Machine) -> f64 {
        let (depth, whole) = (f64::from(self.depth), f64::from(levels));
        let pairs = self.rows * self.trees;
        let leaf = ns::LEAF * self.width;
        if form == TreeForm::Branches {
            return pairs * (depth * ns::BRANCH + leaf);
        }
        let mut cost = 0.0;
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

    /// Whether complete trees are faster than nodes that say where they lead to.
    ///
    /// As that decides in which order sums are taken, it is up to the trees alone: a forest yields the
    /// same for any number of rows, and on every target.
    fn is_complete(&self) -> bool {
        let (depth, number) = (f64::from(self.depth), f64::from(self.dtype.bits() / 8));
        let feature = f64::from(column_type(self.columns as i64).bits() / 8);
        let complete = self.trees * depth.exp2() * (feature + number + number * self.width);
        let linked = self.nodes * (16.0 + number);
        let leaf = ns::LEAF * self.width;
        let row = |step: f64, leaf: f64, bytes: f64| {
            let outside = (1.0 - NEAR_BYTES / bytes).max(0.0);
            let lines = (bytes / 64.0).min(self.trees * (depth + 1.0));
            self.trees * (depth * step + leaf) + outside * lines * ns::FAR
        };
        (1..=MAX_TREE_DEPTH).contains(&self.depth)
            && complete <= MAX_BYTES
            && row(ns::CHAIN, leaf, complete) < row(ns::LINKED, 2.0 * leaf, linked)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interp::{Tensor, Value, evaluate};
    use crate::ops::tensor::{ConcatenateAttrs, TakeMode};
    use crate::target::Target;
    use crate::transform::tests::support::{Net, after, tensors};

    /// Vectors of eight `float32`.
    fn machine() -> Machine {
        let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        Machine::of(&target.with_cpu("x86-64-v3").unwrap())
    }

    fn shape(trees: f64, depth: u32, rows: f64) -> Shape {
        let nodes = trees * f64::from(depth + 1).exp2();
        Shape { trees, depth, nodes, rows, columns: 30.0, width: 1.0, dtype: DType::F32 }
    }

    #[test]
    fn forms_are_chosen_by_cost() {
        let best = |trees, depth, rows| shape(trees, depth, rows).best(machine());
        // A tree for a row: nothing to do while it waits.
        assert_eq!(best(1.0, 5, 1.0), (TreeForm::Branches, 0));
        // Many trees, or many rows of one.
        assert_eq!(best(500.0, 8, 1.0), (TreeForm::Chains, 0));
        assert_eq!(best(1.0, 5, 1000.0), (TreeForm::Chains, 0));
        // Many rows of many trees: the first levels whole, of small ones all.
        assert_eq!(best(500.0, 8, 1000.0), (TreeForm::Chains, 4));
        assert_eq!(best(100.0, 6, 1000.0), (TreeForm::Chains, 4));
        assert_eq!(best(100.0, 3, 1000.0), (TreeForm::Chains, 3));
        assert_eq!(best(100.0, 4, 1000.0), (TreeForm::Chains, 4));
        // Vectors of more lanes take more levels.
        let target = Target::from_triple("x86_64-unknown-linux-gnu").unwrap();
        let wide = Machine::of(&target.with_cpu("x86-64-v4").unwrap());
        assert_eq!(shape(500.0, 8, 1000.0).best(wide), (TreeForm::Chains, 5));
        // Columns that are put side by side for a few trees alone.
        let many = Shape { columns: 2000.0, ..shape(8.0, 8, 1000.0) };
        assert_eq!(many.best(machine()), (TreeForm::Chains, 0));
    }

    #[test]
    fn trees_with_few_nodes_for_their_depth_stay_as_they_are() {
        assert!(shape(500.0, 8, 1.0).is_complete());
        assert!(shape(1.0, 12, 1.0).is_complete());
        // Half of the nodes, and 63 nodes at a depth of 15.
        assert!(Shape { nodes: 500.0 * 256.0, ..shape(500.0, 8, 1.0) }.is_complete());
        assert!(!Shape { nodes: 100.0 * 127.0, ..shape(100.0, 15, 1.0) }.is_complete());
        assert!(!shape(1.0, MAX_TREE_DEPTH + 1, 1.0).is_complete());
    }

    /// A sum over trees whose nodes ask for columns from `first` on, of an argument and perhaps its
    /// negative.
    fn forest(is_doubled: bool, first: i64) -> Function {
        let mut net = Net::default();
        let x = net.input("x", &[5, 3]);
        let mut all = x;
        if is_doubled {
            let negative = net.op("negative", &[x]);
            all = net.op_with("concatenate", &[x, negative], &ConcatenateAttrs { axis: 1 });
        }
        // Leaves 0 to 3; a chain of three steps, and a tree of one.
        let (own, nan) = ([0, 0, 1, 1, 2, 2, 3, 3], f64::NAN);
        let children: Vec<i64> = [&own[..], &[0, 1, 4, 2, 5, 3, 3, 2]].concat();
        let column = |of: [i64; 4]| of.map(|of| first + of);
        let feature: Vec<i64> = [[0; 4], column([0, 1, 2, 1])].concat();
        let threshold = [[nan; 4], [0.5, -0.25, 1.0, 0.0]].concat();
        let mut constant = |dims: &[i64], values: &[i64]| {
            net.0.constant(Constant::from_i64(dims, values).unwrap())
        };
        let (feature, children) = (constant(&[8], &feature), constant(&[8, 2], &children));
        let roots = constant(&[2], &[6, 7]);
        let threshold: Vec<f32> = threshold.iter().map(|&value| value as f32).collect();
        let threshold = net.0.constant(Constant::from_f32(&[8], &threshold).unwrap());
        let args = [all, feature, threshold, children, roots];
        let leaves = net.op_with("tree_traverse", &args, &TreeTraverseAttrs { depth: 3 });
        let table = net.0.constant(Constant::from_f32(&[4], &[1.0, 10.0, 100.0, 1000.0]).unwrap());
        let attrs = TakeAttrs { axis: 0, mode: TakeMode::Clip };
        let values = net.op_with("take", &[table, leaves], &attrs);
        let sum = net.op_with("sum", &[values], &ReduceAttrs { axis: vec![1], keepdims: true });
        net.finish(sum)
    }

    fn values(function: &Function) -> Vec<f64> {
        let x = (0..15).map(|i| f64::from(i * 7 % 15) / 4.0 - 1.5);
        let x = x.enumerate().map(|(i, x)| if i == 4 { f64::NAN } else { x }).collect();
        let x = Tensor::from_floats(DType::F32, &[5, 3], x).unwrap();
        let module = IRModule::from_function(function.clone());
        let sums = evaluate(&module, "main", &[Value::from(x)]).unwrap();
        tensors(&sums)[0].floats().unwrap().to_vec()
    }

    #[test]
    fn complete_trees_yield_what_the_trees_did() {
        // Nodes that ask for the elements, for their negatives, and for both.
        for (is_doubled, first, at_least) in [(false, 0, false), (true, 3, true), (true, 2, false)]
        {
            let before = forest(is_doubled, first);
            let after = after(&CompileTrees, before.clone());
            let (attrs, args) = call_of(&after, after.result(), &TREE_SUM).unwrap();
            assert_eq!(attrs.parse::<TreeSumAttrs>().unwrap().at_least, at_least);
            let columns = after.ty(args[0].unwrap()).as_tensor().unwrap().shape[1].as_const();
            assert_eq!(columns, Some(if is_doubled && !at_least { 6 } else { 3 }));
            assert_eq!(values(&after), values(&before), "{first}");
        }
    }
}
