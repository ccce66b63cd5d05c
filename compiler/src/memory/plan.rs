//! Where each value of a program is: in the caller's memory, among the weights or in the arena.

use cranelift_entity::SecondaryMap;

use super::arena::{self, ArenaBuffer};
use super::storage::{Life, Storage, lives, step_number};
use super::tokens;
use crate::analysis::CPU;
use crate::diagnostics::Problem;
use crate::executor::{KernelId, Program, ValueId, ValueKind};

/// The memory of a value: shared with every view of it, and part of that of what it lies within.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// Nowhere: no step uses it.
    #[default]
    Nowhere,
    /// The caller's input of that position.
    Input(usize),
    /// In the caller's output of that position, so many bytes behind its begin.
    Output(usize, u64),
    /// Among the weights: the constant that the value is or is a view of.
    Weights(ValueId),
    /// At that offset of the workspace.
    Arena(u64),
}

/// The memory of one inference.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// Where each value is.
    pub places: SecondaryMap<ValueId, Place>,
    /// For each step that needs scratch memory, where it is in the workspace.
    pub scratch: Vec<Option<u64>>,
    /// Size of the arena, a multiple of 64.
    pub arena_bytes: u64,
    /// Most bytes of values, without scratch memory, that are alive in one step: no arena can be
    /// smaller.
    pub peak_live_bytes: u64,
    /// Most bytes of values and scratch memory that are in use in one step: the bound that
    /// [`arena::place`] stops at.
    pub lower_bound_bytes: u64,
    /// What the same buffers would take as storage tokens, by [`tokens::of_buffers`].
    pub token_bytes: u64,
    /// If values are in blocks, as storage tokens, the block of each that is in the workspace.
    pub blocks: SecondaryMap<ValueId, Option<usize>>,
    /// How many blocks there are, those of scratch memory among them.
    pub block_count: usize,
}

/// How values get their place in the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    Offsets,
    Blocks,
}

/// Places the values of a program, and the scratch memory that each call of a kernel needs, by
/// [`arena::place`].
///
/// # Errors
///
/// The sizes overflow.
pub fn plan(
    program: &Program,
    storage: &Storage,
    scratch: &SecondaryMap<KernelId, u64>,
) -> Result<MemoryPlan, Problem> {
    place(program, storage, scratch, Placement::Offsets)
}

/// As [`plan`], but in blocks that one value has at a time, by [`tokens::of_buffers`].
///
/// # Errors
///
/// As [`plan`].
pub fn plan_blocks(
    program: &Program,
    storage: &Storage,
    scratch: &SecondaryMap<KernelId, u64>,
) -> Result<MemoryPlan, Problem> {
    place(program, storage, scratch, Placement::Blocks)
}

/// Most bytes of values in the workspace that are alive in one step.
///
/// # Errors
///
/// The sizes overflow.
pub fn peak_live_bytes(program: &Program, storage: &Storage) -> Result<u64, Problem> {
    let (buffers, _) = buffers(program, storage)?;
    arena::peak_live_bytes(&buffers).map_err(|error| Problem::new(error.to_string()))
}

/// The values that need a place in the workspace, and for each value which of these it is.
type Buffers = (Vec<ArenaBuffer>, SecondaryMap<ValueId, Option<usize>>);

/// One buffer for each group of values that take each other's place.
fn buffers(program: &Program, storage: &Storage) -> Result<Buffers, Problem> {
    let lives = lives(program, &storage.roots);
    let mut buffers: Vec<ArenaBuffer> = Vec::new();
    let mut buffer_of: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    for (id, value) in &program.values {
        let Some(Life { first, last }) = lives[id] else { continue };
        // What is kept is in use from the first step of a run to the last.
        let (first, last) = match value.kind {
            ValueKind::State => (0, u32::MAX),
            _ => (first, last),
        };
        let in_arena =
            matches!(value.kind, ValueKind::Computed | ValueKind::Variable | ValueKind::State);
        if !in_arena || storage.direct[id].is_some() {
            continue;
        }
        let bytes = value.physical_bytes()?;
        let group = storage.groups[id].unwrap_or(id);
        let index = *buffer_of[group].get_or_insert_with(|| {
            buffers.push(ArenaBuffer { bytes, first, last, device: program.device(id) });
            buffers.len() - 1
        });
        buffer_of[id] = Some(index);
        let buffer = &mut buffers[index];
        buffer.bytes = buffer.bytes.max(bytes);
        buffer.first = buffer.first.min(first);
        buffer.last = buffer.last.max(last);
    }
    Ok((buffers, buffer_of))
}

fn place(
    program: &Program,
    storage: &Storage,
    scratch: &SecondaryMap<KernelId, u64>,
    placement: Placement,
) -> Result<MemoryPlan, Problem> {
    let (mut buffers, buffer_of) = buffers(program, storage)?;
    let too_large = |error: arena::ArenaTooLarge| Problem::new(error.to_string());
    let peak_live_bytes = arena::peak_live_bytes(&buffers).map_err(too_large)?;
    let mut scratch_of: Vec<Option<usize>> = Vec::with_capacity(program.steps.len());
    for (step, call) in program.steps.iter().enumerate() {
        let bytes = scratch[call.kernel];
        scratch_of.push((bytes != 0).then(|| {
            let step = step_number(step);
            buffers.push(ArenaBuffer { bytes, first: step, last: step, device: CPU });
            buffers.len() - 1
        }));
    }
    let arena = arena::place(&buffers).map_err(too_large)?;
    let tokens = tokens::of_buffers(&buffers);
    let (token_offsets, token_bytes) = tokens.offsets().map_err(too_large)?;
    let mut blocks: SecondaryMap<ValueId, Option<usize>> = SecondaryMap::new();
    let (offsets, arena_bytes, block_count) = match placement {
        Placement::Offsets => (arena.offsets, arena.bytes, 0),
        Placement::Blocks => {
            let block = |index: usize| tokens.storage[index].first().copied();
            for id in program.values.keys() {
                blocks[id] = buffer_of[storage.roots[id]].and_then(block);
            }
            let offset = |token: &Vec<usize>| token.first().map_or(0, |&at| token_offsets[at]);
            let offsets = tokens.storage.iter().map(offset).collect();
            (offsets, token_bytes, tokens.tokens.len())
        }
    };

    let mut places = SecondaryMap::new();
    for id in program.values.keys() {
        let root = storage.roots[id];
        places[id] = match (&program.values[root].kind, buffer_of[root]) {
            (ValueKind::Input(position), _) => Place::Input(*position),
            (ValueKind::Constant(_), _) => Place::Weights(root),
            (_, Some(index)) => Place::Arena(offsets[index] + storage.offsets[id]),
            (_, None) => storage.direct[root]
                .map_or(Place::Nowhere, |output| Place::Output(output, storage.offsets[id])),
        };
    }
    let offset = |index: Option<usize>| index.map(|index| offsets[index]);
    Ok(MemoryPlan {
        places,
        scratch: scratch_of.into_iter().map(offset).collect(),
        arena_bytes,
        peak_live_bytes,
        lower_bound_bytes: arena.peak_live_bytes,
        token_bytes,
        blocks,
        block_count,
    })
}

#[cfg(test)]
mod tests;
