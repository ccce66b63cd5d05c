//! Storage tokens: how TVM's `GraphPlanMemory` gives memory to values, one whole block for each.
//!
//! A value takes a block that nobody uses any longer if one of a similar size is free, else a new
//! one. [`super::arena::place`] puts values at offsets instead and never needs more, as it takes
//! this plan if it finds no smaller one; reports tell both.

use std::collections::{BTreeMap, BTreeSet};

use super::arena::{ALIGNMENT, ArenaBuffer, ArenaTooLarge};

/// How many times smaller or larger than a request a free block may be, inclusive.
pub const MATCH_RANGE: u64 = 16;

/// A tensor that needs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenTensor {
    /// Its size.
    pub bytes: u64,
    /// The device that computes it; blocks are shared on one device only.
    pub device: u32,
}

/// A node of a graph; nodes are named by their positions, operands first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenNode {
    /// A parameter or a constant: has memory of its own, which is never released.
    Held(TokenTensor),
    /// A call, which reads its arguments while it writes its results.
    Call {
        /// The nodes whose tensors it reads, each as often as it does.
        args: Vec<usize>,
        /// What it computes.
        outputs: Vec<TokenTensor>,
    },
    /// The tensor of another node in another shape: the same memory.
    Reshape(usize),
    /// The tensors of several nodes.
    Tuple(Vec<usize>),
    /// One of the tensors of a node.
    Field(usize, usize),
}

/// A block of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The size of the largest tensor that it holds.
    pub bytes: u64,
    /// Where it is.
    pub device: u32,
}

/// Which block each tensor has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenPlan {
    /// For each node the blocks of its tensors: positions in `tokens`.
    pub storage: Vec<Vec<usize>>,
    /// The blocks.
    pub tokens: Vec<Token>,
}

impl TokenPlan {
    /// Size of all blocks, each rounded up to [`ALIGNMENT`].
    ///
    /// # Errors
    ///
    /// The blocks together exceed 2^63 bytes.
    pub fn bytes(&self) -> Result<u64, ArenaTooLarge> {
        self.offsets().map(|(_, end)| end)
    }

    /// Where each block begins if one lies after the other, and the end of the last.
    pub(super) fn offsets(&self) -> Result<(Vec<u64>, u64), ArenaTooLarge> {
        let mut end = 0u64;
        let mut offsets = Vec::with_capacity(self.tokens.len());
        for token in &self.tokens {
            offsets.push(end);
            let size = token.bytes.checked_next_multiple_of(ALIGNMENT).ok_or(ArenaTooLarge)?;
            end = end.checked_add(size).filter(|&end| end < 1 << 63).ok_or(ArenaTooLarge)?;
        }
        Ok((offsets, end))
    }
}

/// A node that names one that is not before it, or a field that a node does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownNode {
    /// The position of the node that does.
    pub node: usize,
}

impl std::fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} uses a tensor that is not computed before it", self.node)
    }
}

impl std::error::Error for UnknownNode {}

/// Gives each tensor of a graph a block, as TVM's `GraphPlanMemory` does.
///
/// The blocks of `outputs` are never released. A call's results are requested before its arguments
/// are released, so that none takes the place of an argument.
///
/// # Errors
///
/// A node, or an output at the position after the last node, is of a tensor that is not there.
pub fn plan(nodes: &[TokenNode], outputs: &[usize]) -> Result<TokenPlan, UnknownNode> {
    let values = values(nodes)?;
    let mut uses = uses(nodes, &values);
    for &output in outputs {
        let tensors = values.get(output).ok_or(UnknownNode { node: nodes.len() })?;
        tensors.iter().for_each(|&tensor| *uses.entry(tensor).or_default() += 1);
    }
    let mut blocks = Blocks::default();
    let mut token_of: BTreeMap<Tensor, usize> = BTreeMap::new();
    for (node, kind) in nodes.iter().enumerate() {
        match kind {
            TokenNode::Held(tensor) => {
                token_of.insert((node, 0), blocks.add(*tensor));
            }
            TokenNode::Call { args, outputs } => {
                for (index, &tensor) in outputs.iter().enumerate() {
                    token_of.insert((node, index), blocks.request(tensor));
                }
                for index in (0..outputs.len()).filter(|&i| !uses.contains_key(&(node, i))) {
                    blocks.release(token_of[&(node, index)]);
                }
                for &tensor in args.iter().flat_map(|&arg| &values[arg]) {
                    let left = uses.entry(tensor).or_default();
                    *left -= 1;
                    if *left == 0 && !matches!(nodes[tensor.0], TokenNode::Held(_)) {
                        blocks.release(token_of[&tensor]);
                    }
                }
            }
            TokenNode::Reshape(_) | TokenNode::Tuple(_) | TokenNode::Field(..) => {}
        }
    }
    let storage = values.iter().map(|value| value.iter().map(|t| token_of[t]).collect()).collect();
    Ok(TokenPlan { storage, tokens: blocks.tokens })
}

/// The plan for buffers of which only lifetimes are known: each step is a call that computes those
/// which it is the first of, and reads those which it is the last of.
///
/// Each buffer is one node of the plan, in the same order.
pub fn of_buffers(buffers: &[ArenaBuffer]) -> TokenPlan {
    let mut born: Vec<usize> = (0..buffers.len()).collect();
    born.sort_by_key(|&index| (buffers[index].first, index));
    let mut dying = born.clone();
    // Of one step, what nothing reads is released before what is read for the last time.
    dying.sort_by_key(|&index| {
        let buffer = buffers[index];
        (buffer.last, buffer.first != buffer.last, index)
    });
    let mut dying = dying.into_iter().peekable();
    let mut blocks = Blocks::default();
    let mut storage = vec![Vec::new(); buffers.len()];
    for index in born {
        while let Some(over) = dying.next_if(|&over| buffers[over].last < buffers[index].first) {
            let released: &Vec<usize> = &storage[over];
            released.iter().for_each(|&token| blocks.release(token));
        }
        let tensor = TokenTensor { bytes: buffers[index].bytes, device: buffers[index].device };
        storage[index] = vec![blocks.request(tensor)];
    }
    TokenPlan { storage, tokens: blocks.tokens }
}

/// A tensor: the node that has memory for it, and which of its results it is.
type Tensor = (usize, usize);

/// The tensors that each node stands for.
fn values(nodes: &[TokenNode]) -> Result<Vec<Vec<Tensor>>, UnknownNode> {
    let mut values: Vec<Vec<Tensor>> = Vec::with_capacity(nodes.len());
    for (node, kind) in nodes.iter().enumerate() {
        let unknown = UnknownNode { node };
        let known = |of: &usize| values.get(*of).ok_or(unknown);
        let value = match kind {
            TokenNode::Held(_) => vec![(node, 0)],
            TokenNode::Call { args, outputs } => {
                args.iter().try_for_each(|arg| known(arg).map(|_| ()))?;
                (0..outputs.len()).map(|index| (node, index)).collect()
            }
            TokenNode::Reshape(of) => known(of)?.clone(),
            TokenNode::Tuple(fields) => {
                let fields: Vec<&Vec<Tensor>> =
                    fields.iter().map(known).collect::<Result<_, _>>()?;
                fields.into_iter().flatten().copied().collect()
            }
            TokenNode::Field(of, index) => vec![*known(of)?.get(*index).ok_or(unknown)?],
        };
        values.push(value);
    }
    Ok(values)
}

/// How often calls read each tensor.
fn uses(nodes: &[TokenNode], values: &[Vec<Tensor>]) -> BTreeMap<Tensor, usize> {
    let mut uses = BTreeMap::new();
    for node in nodes {
        let TokenNode::Call { args, .. } = node else { continue };
        for &tensor in args.iter().flat_map(|&arg| &values[arg]) {
            *uses.entry(tensor).or_default() += 1;
        }
    }
    uses
}

/// Blocks, and which of them are free.
#[derive(Default)]
struct Blocks {
    tokens: Vec<Token>,
    /// For each device the free blocks: size, when it was released, position.
    free: BTreeMap<u32, BTreeSet<(u64, u64, usize)>>,
    releases: u64,
}

impl Blocks {
    fn add(&mut self, tensor: TokenTensor) -> usize {
        self.tokens.push(Token { bytes: tensor.bytes, device: tensor.device });
        self.tokens.len() - 1
    }

    fn release(&mut self, token: usize) {
        let Token { bytes, device } = self.tokens[token];
        self.free.entry(device).or_default().insert((bytes, self.releases, token));
        self.releases += 1;
    }

    /// The smallest free block that is large enough, else the largest that is not, which grows; a
    /// new one if none is of a similar size.
    fn request(&mut self, tensor: TokenTensor) -> usize {
        let size = tensor.bytes;
        let free = self.free.entry(tensor.device).or_default();
        let (least, most) = (size / MATCH_RANGE, size.saturating_mul(MATCH_RANGE));
        let larger = free.range((size, 0, 0)..=(most, u64::MAX, usize::MAX)).next();
        let smaller = || free.range((least, 0, 0)..(size, 0, 0)).next_back();
        let Some(&found) = larger.or_else(smaller) else { return self.add(tensor) };
        free.remove(&found);
        let token = &mut self.tokens[found.2];
        token.bytes = token.bytes.max(size);
        found.2
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Strategy, prop_assert, proptest};

    use super::super::arena::place;
    use super::*;

    fn held(bytes: u64) -> TokenNode {
        TokenNode::Held(tensor(bytes))
    }

    fn tensor(bytes: u64) -> TokenTensor {
        TokenTensor { bytes, device: 0 }
    }

    fn call(args: &[usize], bytes: u64) -> TokenNode {
        TokenNode::Call { args: args.to_vec(), outputs: vec![tensor(bytes)] }
    }

    fn sizes(plan: &TokenPlan) -> Vec<u64> {
        plan.tokens.iter().map(|token| token.bytes).collect()
    }

    #[test]
    fn a_chain_alternates_between_two_blocks_beside_its_parameters() {
        // exp(exp(exp(exp(exp(x + exp(y)))))), 10 and 1 elements.
        let mut nodes = vec![held(40), held(4), call(&[1], 4), call(&[0, 2], 40)];
        (3..8).for_each(|before| nodes.push(call(&[before], 40)));
        let plan = plan(&nodes, &[8]).unwrap();
        // The block of exp(y) has grown to 40 bytes.
        assert_eq!(sizes(&plan), [40, 4, 40, 40]);
        assert_eq!(plan.storage.concat(), [0, 1, 2, 3, 2, 3, 2, 3, 2]);
    }

    /// Whether a request after a block was released takes it, and what size it then has.
    fn reused(released: u64, requested: u64) -> Option<u64> {
        let nodes = [held(4), call(&[0], released), call(&[1], 1 << 30), call(&[2], requested)];
        let plan = plan(&nodes, &[3]).unwrap();
        (plan.storage[3] == plan.storage[1]).then(|| plan.tokens[plan.storage[1][0]].bytes)
    }

    #[test]
    fn blocks_up_to_sixteen_times_as_large_or_small_are_reused() {
        assert_eq!(reused(640, 40), Some(640));
        assert_eq!(reused(644, 40), None);
        assert_eq!(reused(40, 640), Some(640));
        // Integer division: 655 / 16 is 40.
        assert_eq!(reused(40, 655), Some(655));
        assert_eq!(reused(40, 656), None);
    }

    #[test]
    fn a_block_that_is_large_enough_comes_before_one_that_must_grow() {
        let outputs = vec![tensor(64), tensor(96), tensor(200), tensor(300)];
        let all = TokenNode::Call { args: vec![0], outputs };
        let plan = plan(&[held(4), all, call(&[0], 100), call(&[0], 400)], &[2, 3]).unwrap();
        assert_eq!(plan.storage[2], [plan.storage[1][2]]);
        assert_eq!(plan.storage[3], [plan.storage[1][3]]);
        assert_eq!(sizes(&plan), [4, 64, 96, 200, 400]);
    }

    #[test]
    fn results_never_take_the_place_of_arguments_and_unread_ones_are_free_at_once() {
        let plan = plan(&[held(64), call(&[0], 64), call(&[1], 64), call(&[0], 64)], &[3]).unwrap();
        assert_ne!(plan.storage[1], plan.storage[2]);
        // Nothing reads node 2; its block was released before that of node 1.
        assert_eq!(plan.storage[3], plan.storage[2]);
    }

    #[test]
    fn what_is_read_twice_is_released_after_both() {
        let nodes =
            [held(64), call(&[0], 64), call(&[1, 1], 64), call(&[1], 64), call(&[2, 3], 64)];
        let plan = plan(&nodes, &[4]).unwrap();
        assert_eq!(plan.storage.concat(), [0, 1, 2, 3, 1]);
    }

    #[test]
    fn reshapes_tuples_and_fields_are_the_same_memory() {
        let split = TokenNode::Call { args: vec![0], outputs: vec![tensor(64), tensor(128)] };
        let nodes = [
            held(192),
            split,
            TokenNode::Field(1, 1),
            TokenNode::Reshape(2),
            TokenNode::Tuple(vec![3, 0]),
            call(&[4], 128),
            call(&[5], 128),
        ];
        let plan = plan(&nodes, &[6]).unwrap();
        assert_eq!(plan.storage[3], [2]);
        assert_eq!(plan.storage[4], [2, 0]);
        // Field 0 was free from the start; field 1 is once the tuple was read.
        assert_eq!((plan.storage[5].clone(), plan.storage[6].clone()), (vec![1], vec![2]));
    }

    #[test]
    fn nodes_that_are_not_there_are_errors() {
        assert_eq!(plan(&[call(&[0], 4)], &[]), Err(UnknownNode { node: 0 }));
        assert_eq!(plan(&[held(4), TokenNode::Field(0, 1)], &[]), Err(UnknownNode { node: 1 }));
        assert_eq!(plan(&[held(4)], &[1]), Err(UnknownNode { node: 1 }));
    }

    #[test]
    fn sizes_that_cannot_be_added_are_an_error() {
        let plan = plan(&[held(u64::MAX)], &[0]).unwrap();
        assert_eq!(plan.bytes(), Err(ArenaTooLarge));
    }

    proptest! {
        #[test]
        fn offsets_never_need_more_than_blocks(buffers in buffers()) {
            let tokens = of_buffers(&buffers);
            let arena = place(&buffers).unwrap();
            prop_assert!(arena.bytes <= tokens.bytes().unwrap());
            for (i, one) in buffers.iter().enumerate() {
                prop_assert!(tokens.tokens[tokens.storage[i][0]].bytes >= one.bytes);
                for (j, other) in buffers.iter().enumerate().take(i) {
                    let together = one.first <= other.last && other.first <= one.last;
                    prop_assert!(!together || tokens.storage[i] != tokens.storage[j]);
                }
            }
        }
    }

    fn buffers() -> impl Strategy<Value = Vec<ArenaBuffer>> {
        let one = (0u64..2000, 0u32..40, 0u32..8);
        vec(
            one.prop_map(|(bytes, first, length)| ArenaBuffer {
                device: 0,
                bytes,
                first,
                last: first + length,
            }),
            0..60,
        )
    }

    #[test]
    fn blocks_are_of_one_device() {
        // Two convolutions on one device, their sum on another, a third convolution on the first.
        let on = |device: u32, args: &[usize]| {
            let outputs = vec![TokenTensor { bytes: 256, device }];
            TokenNode::Call { args: args.to_vec(), outputs }
        };
        let held = || TokenNode::Held(TokenTensor { bytes: 256, device: 2 });
        let nodes = [
            held(),
            held(),
            on(2, &[0, 1]),
            on(1, &[2]),
            held(),
            on(2, &[4, 1]),
            on(1, &[5]),
            on(1, &[3, 6]),
            on(2, &[7]),
            on(2, &[8, 1]),
        ];
        let plan = plan(&nodes, &[9]).unwrap();
        assert_eq!((plan.storage.len(), plan.tokens.len()), (10, 8));
        for (node, storage) in nodes.iter().zip(&plan.storage) {
            let device = match node {
                TokenNode::Call { outputs, .. } => outputs[0].device,
                _ => 2,
            };
            assert_eq!(plan.tokens[storage[0]].device, device);
        }
    }
}
