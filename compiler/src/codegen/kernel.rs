//! What every code generator needs to know of a kernel: where its local buffers are, which registers
//! it has, what a loop body uses.

use std::collections::BTreeSet;

use crate::codegen::CodegenError;
use crate::ir::DType;
use crate::target::{Endian, Target};
use crate::tir::transform::NOALIAS_ATTR;
use crate::tir::{
    Buffer, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt, VarId,
};

/// Largest local buffer, in bytes, that is put on the stack; larger ones are in the scratch area.
pub const STACK_BUFFER_BYTES: u64 = 1 << 10;

/// Most bytes of local buffers that one kernel puts on the stack: kernels run on threads whose
/// stacks may be small.
pub const STACK_BYTES: u64 = 8 << 10;

/// Where a local buffer is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Stack { bytes: u64 },
    Scratch { offset: u64, bytes: u64 },
}

/// Hands out memory to local buffers: buffers that do not live at the same time share it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Locals {
    scratch_top: u64,
    stack_top: u64,
    /// Bytes of scratch memory that a single worker needs.
    pub(super) scratch_bytes: u64,
    /// Bytes of those that each further worker needs of its own: for buffers that live in parallel
    /// loops.
    pub(super) worker_bytes: u64,
    /// Bytes of local buffers on the stack.
    pub(super) stack_bytes: u64,
}

/// What is said of a block that was not lowered.
pub(super) fn unlowered(block: &str) -> String {
    format!("block `{block}` must be lowered (`tir.LowerBlocks`) before code is generated")
}

/// What is said of a loop that was not vectorised.
pub(super) const NOT_VECTORIZED: &str =
    "a vectorized loop must be lowered (`tir.VectorizeLoop`) before code is generated";

/// Whether no other parameter's memory overlaps that of a parameter, by its position.
pub(super) fn is_distinct(func: &PrimFuncData, position: usize) -> bool {
    let is_shared =
        func.inplace.iter().any(|&(output, input)| output == position || input == position);
    !is_shared && func.attrs.get(NOALIAS_ATTR).is_none_or(|value| value != "false")
}

/// Whether objects of a target may define a kernel more than once: models in one program that share a
/// kernel have the same one each, and some linkers are told to take all objects of an archive.
pub(super) fn has_weak_functions(target: &Target) -> bool {
    target.os != "windows"
}

/// The scratch memory that a lowered function needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScratchBytes {
    /// Bytes if one worker runs the function.
    pub serial: u64,
    /// Bytes that each further worker needs, a multiple of 64: the least distance between the areas
    /// of two workers.
    pub worker: u64,
}

/// The scratch memory of a lowered function.
///
/// # Errors
///
/// A local buffer has no size that can be computed.
pub fn scratch_bytes(func: &PrimFunc) -> Result<ScratchBytes, CodegenError> {
    let locals = Locals::of(func);
    let locals = locals.map_err(|message| CodegenError { kernel: func.name.clone(), message })?;
    Ok(ScratchBytes { serial: locals.scratch_bytes, worker: locals.worker_bytes })
}

impl Locals {
    /// The memory of a whole function; backends reserve the same in the same order.
    pub(super) fn of(func: &PrimFuncData) -> Result<Self, String> {
        let mut locals = Locals::default();
        locals.visit(func, &func.body)?;
        Ok(locals)
    }

    fn visit(&mut self, func: &PrimFuncData, stmt: &Stmt) -> Result<(), String> {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.visit(func, stmt)),
            Stmt::For { kind: ForKind::Parallel, body, .. } => {
                // The buffers around the loop are shared; those of a worker begin after them.
                let outside = std::mem::replace(&mut self.scratch_bytes, self.scratch_top);
                self.visit(func, body)?;
                self.worker_bytes = self.worker_bytes.max(self.scratch_bytes - self.scratch_top);
                self.scratch_bytes = self.scratch_bytes.max(outside);
                Ok(())
            }
            Stmt::For { body, .. } | Stmt::Block { body, .. } | Stmt::Let { body, .. } => {
                self.visit(func, body)
            }
            Stmt::If { then, otherwise, .. } => {
                self.visit(func, then)?;
                otherwise.iter().try_for_each(|stmt| self.visit(func, stmt))
            }
            Stmt::Allocate { buffer, body } => {
                let buffer = &func.buffers[*buffer];
                if buffer.scope != BufferScope::Local {
                    return self.visit(func, body);
                }
                let place = self.reserve(local_bytes(buffer)?);
                self.visit(func, body)?;
                self.release(place);
                Ok(())
            }
            Stmt::BlockRealize(block) => Err(unlowered(&block.name)),
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Assert { .. } => Ok(()),
        }
    }

    /// Reserves memory for a local buffer until [`release`](Self::release).
    pub(super) fn reserve(&mut self, bytes: u64) -> Place {
        let bytes = bytes.next_multiple_of(64);
        if bytes <= STACK_BUFFER_BYTES && self.stack_top + bytes <= STACK_BYTES {
            self.stack_top += bytes;
            self.stack_bytes = self.stack_bytes.max(self.stack_top);
            return Place::Stack { bytes };
        }
        let offset = self.scratch_top;
        self.scratch_top += bytes;
        self.scratch_bytes = self.scratch_bytes.max(self.scratch_top);
        Place::Scratch { offset, bytes }
    }

    pub(super) fn release(&mut self, place: Place) {
        match place {
            Place::Stack { bytes } => self.stack_top -= bytes,
            Place::Scratch { bytes, .. } => self.scratch_top -= bytes,
        }
    }
}

/// The unsigned integer that a vector fits, if lanes picked from it are the vector over and over:
/// processors repeat a scalar faster than they shuffle.
pub(super) fn repeated(operand: PrimType, lanes: &[u32]) -> Option<DType> {
    let word = match operand.bits() {
        32 => DType::U32,
        64 => DType::U64,
        _ => return None,
    };
    let all = lanes.len() as u32;
    let is_repeated = lanes.iter().zip(0..).all(|(lane, place)| *lane == place % operand.lanes);
    let is_wider = all > operand.lanes && all.is_multiple_of(operand.lanes);
    let is_plain = operand.lanes > 1 && operand.dtype != DType::Bool;
    (is_repeated && is_wider && is_plain).then_some(word)
}

/// A vector of bytes, and which of each two, if a cast of an expression is those as words. Processors
/// whose first byte is the lowest have that without a shuffle.
pub(super) fn alternate_words<'a>(
    value: &'a PrimExpr,
    dtype: DType,
    target: &Target,
) -> Option<(&'a PrimExpr, u32)> {
    let PrimExpr::Shuffle { vectors, lanes } = value else { return None };
    let ([bytes], [first @ (0 | 1), ..]) = (vectors.as_slice(), lanes.as_slice()) else {
        return None;
    };
    let ty = bytes.ty();
    let is_byte = matches!(ty.dtype, DType::I8 | DType::U8) && dtype == DType::I16;
    let is_half = lanes.len() as u32 * 2 == ty.lanes && lanes.len() > 1;
    let alternates = lanes.iter().zip(0..).all(|(lane, place)| *lane == 2 * place + first);
    let fits = is_byte && is_half && alternates && target.endian == Endian::Little;
    fits.then_some((bytes, *first))
}

/// Whether lanes of 64 bytes are the first of each quarter, the second of each, and so on, and the
/// target has instructions for it: words of four bytes are moved, then bytes within quarters. LLVM
/// makes one shuffle of the two, for which it takes a dozen instructions without AVX512-VBMI.
pub(super) fn turns_quarters(operand: PrimType, lanes: &[u32], target: &Target) -> bool {
    let is_whole = operand.bits() == 512 && operand.lanes == 64 && lanes.len() == 64;
    let is_turned = lanes.iter().zip(0..).all(|(lane, place)| *lane == place % 4 * 16 + place / 4);
    is_whole && is_turned && target.has_feature("avx512bw") && target.vector_bits() >= 512
}

/// Where each word of four bytes comes from as quarters are [turned](turns_quarters), and then each byte
/// of a quarter.
pub(super) fn turned_quarters() -> ([u32; 16], [u32; 64]) {
    let turn = |place: usize| (place % 4 * 4 + place / 4) as u32;
    (std::array::from_fn(turn), std::array::from_fn(|byte| turn(byte % 16)))
}

/// Whether the lowest bytes of the integers of a register have two instructions: bytes move within the
/// halves of it, then words of four bytes across. Compilers take the halves apart.
pub(super) fn picks_low_bytes(from: PrimType, to: DType, target: &Target) -> bool {
    let has = |feature| target.has_feature(feature);
    let is_whole = from.lanes == 8 && matches!(from.dtype, DType::I32 | DType::U32);
    // AVX-512 has one instruction.
    is_whole && matches!(to, DType::I8 | DType::U8) && has("avx2") && !has("avx512f")
}

/// Which byte of its half comes to each place as the lowest bytes are [picked](picks_low_bytes), and then
/// which word of four bytes.
pub(super) fn low_bytes() -> ([u32; 32], [u32; 8]) {
    (
        std::array::from_fn(|byte| byte as u32 % 4 * 4),
        std::array::from_fn(|word| word as u32 * 4 % 8),
    )
}

/// Elements of a local buffer, at least one.
pub(super) fn local_elements(buffer: &Buffer) -> Result<u64, String> {
    let len = buffer.spec.physical_len().map_err(|error| error.to_string())?;
    Ok(u64::try_from(len).unwrap_or(0).max(1))
}

/// Bytes of a local buffer.
pub(super) fn local_bytes(buffer: &Buffer) -> Result<u64, String> {
    buffer
        .dtype
        .bytes_for(local_elements(buffer)?)
        .filter(|bytes| *bytes < 1 << 62)
        .ok_or_else(|| format!("buffer `{}` is too large", buffer.name))
}

/// How a register buffer is accessed: in parts of equal width.
#[derive(Clone, Debug)]
pub(super) struct RegisterParts {
    /// Lanes of each part.
    pub(super) lanes: u32,
    /// The position of each part's first element.
    pub(super) positions: BTreeSet<i64>,
}

impl RegisterParts {
    /// Collects how a register buffer is accessed in the statement where it lives.
    pub(super) fn of(func: &PrimFuncData, id: BufferId, body: &Stmt) -> Result<Self, String> {
        let buffer = &func.buffers[id];
        let mut accesses: Vec<(Option<i64>, u32)> = Vec::new();
        let mut prefetched = false;
        let mut note = |indices: &[PrimExpr]| {
            let lanes = indices.first().map_or(1, |index| index.ty().lanes);
            accesses.push((first_position(indices), lanes));
        };
        body.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && *buffer == id
            {
                note(indices);
            }
        });
        body.walk(&mut |stmt| match stmt {
            Stmt::Store { buffer, indices, .. } if *buffer == id => note(indices),
            Stmt::Prefetch { buffer, .. } if *buffer == id => prefetched = true,
            _ => {}
        });
        if prefetched {
            return Err(format!("register buffer `{}` cannot be prefetched", buffer.name));
        }
        let lanes = accesses.first().map_or(1, |access| access.1);
        let mut positions = BTreeSet::new();
        for (position, width) in accesses {
            let Some(position) = position else {
                return Err(format!(
                    "an index of register buffer `{}` is not constant: unroll the loops around it",
                    buffer.name
                ));
            };
            if width != lanes || position % i64::from(lanes) != 0 {
                return Err(format!(
                    "register buffer `{}` is accessed at {position} by {width} lanes and elsewhere \
                     by {lanes}; all accesses must be alike and aligned",
                    buffer.name
                ));
            }
            positions.insert(position);
        }
        Ok(RegisterParts { lanes, positions })
    }

    /// `acc_2_3`: the buffer's name and the logical index of a part, in units of parts.
    pub(super) fn name(&self, buffer: &Buffer, position: i64) -> String {
        let shape = buffer.shape();
        if !buffer.spec.is_dense() {
            return format!("{}_{position}", buffer.name);
        }
        let mut rest = position;
        let mut digits = Vec::new();
        for (axis, &extent) in shape.iter().enumerate().rev() {
            let mut digit = rest % extent.max(1);
            rest /= extent.max(1);
            if axis + 1 == shape.len() {
                digit /= i64::from(self.lanes);
                if extent <= i64::from(self.lanes) {
                    continue;
                }
            }
            digits.push(digit.to_string());
        }
        digits.push(buffer.name.clone());
        digits.reverse();
        digits.join("_")
    }
}

/// The constant position of an access: of its first lane if the lanes are consecutive.
pub(super) fn first_position(indices: &[PrimExpr]) -> Option<i64> {
    indices.first()?.first_position()
}

/// Variables and buffers that a statement mentions, in the order of their declaration.
pub(super) fn uses(body: &Stmt) -> (BTreeSet<VarId>, BTreeSet<BufferId>) {
    let mut vars = BTreeSet::new();
    let mut buffers = BTreeSet::new();
    body.walk_exprs(&mut |expr| match expr {
        PrimExpr::Var { var, .. } => {
            vars.insert(*var);
        }
        PrimExpr::Load { buffer, .. } => {
            buffers.insert(*buffer);
        }
        _ => {}
    });
    body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } = stmt {
            buffers.insert(*buffer);
        }
    });
    (vars, buffers)
}
