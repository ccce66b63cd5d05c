//! Schedules: checked, recorded rewrites of loop functions.
//!
//! A [`Schedule`] begins with a function of blocks, as tensor expressions make it, and rewrites it
//! one primitive at a time. A primitive either keeps the function's results or returns an error
//! with the reason; after every step the function can be interpreted, printed and lowered. The
//! steps are recorded in a [`Trace`], which can be printed, and replayed on a function of the same
//! form.
//!
//! The primitives are those of TVM's `tir.Schedule` (Feng et al., "TensorIR: An Abstraction for
//! Automatic Tensorized Program Optimization", ASPLOS 2023).
//!
//! ```
//! use niello::ir::DType;
//! use niello::schedule::Schedule;
//! use niello::te;
//!
//! let mut te = te::Builder::new("add");
//! let x = te.placeholder("X", [1000], DType::F32);
//! let y = te.compute("Y", [1000], |[i]| x.at([i]) + te::f32(1.0));
//! let mut schedule = Schedule::new(te.prim_func(&[x, y])?);
//! let block = schedule.get_block("Y")?;
//! let [i] = schedule.get_loops(block)?[..] else { unreachable!("one axis") };
//! let [_, lanes] = schedule.split(i, [None, Some(16)])?;
//! schedule.vectorize(lanes)?;
//! assert_eq!(schedule.trace().to_string(), "\
//! b0 = get_block(\"Y\")
//! l1 = get_loops(b0)
//! l2, l3 = split(l1, [_, 16])
//! vectorize(l3)
//! ");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod compute_at;
mod error;
mod inline;

mod layout;
pub mod library;
mod loops;
mod pad_einsum;
mod padding;
mod prefetch;
mod query;
mod reduction;
mod replay;
mod rfactor;
mod rolling_buffer;
mod rule;
mod tensorize;
mod trace;
mod tree;

#[cfg(test)]
mod tests;

pub use crate::strategy::Machine;
pub use error::ScheduleError;
pub use layout::BufferAccess;
pub(crate) use rule::{AnyRule, registered};
pub use rule::{RuleEntry, ScheduleRule, Task};
pub use tensorize::TensorIntrin;
pub use trace::{Arg, Rv, Step, Trace, TraceError};

use crate::tir::{BufferScope, ForKind, PrimFunc, PrimFuncData, PrimType, Stmt, VarId, verify};
use error::Rewrite;
use tree::Tree;

/// A loop of a schedule. It becomes invalid once the loop is split, fused or moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoopRv(u32);

/// A block of a schedule; its name stays the same while it is moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockRv(u32);

/// The loop or block behind a [`LoopRv`] or [`BlockRv`].
#[derive(Clone, Debug)]
enum Symbol {
    Loop(VarId),
    Block(String),
}

/// A function with the trace of the primitives applied to it.
#[derive(Clone, Debug)]
pub struct Schedule {
    func: PrimFuncData,
    symbols: Vec<Symbol>,
    trace: Trace,
}

type Result<T, E = ScheduleError> = std::result::Result<T, E>;

impl Schedule {
    /// A schedule of a function, whose blocks must have distinct names; tensor expressions give
    /// them such names.
    pub fn new(func: PrimFunc) -> Schedule {
        Schedule { func: func.into_data(), symbols: Vec::new(), trace: Trace::default() }
    }

    /// A copy of the current function.
    pub fn func(&self) -> PrimFunc {
        PrimFunc::new(self.func.clone())
    }

    /// The current function.
    pub fn into_func(self) -> PrimFunc {
        PrimFunc::new(self.func)
    }

    /// The steps so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    fn symbol(&mut self, symbol: Symbol) -> u32 {
        self.symbols.push(symbol);
        u32::try_from(self.symbols.len() - 1).unwrap_or(u32::MAX)
    }

    fn new_loop(&mut self, var: VarId) -> LoopRv {
        LoopRv(self.symbol(Symbol::Loop(var)))
    }

    fn new_block(&mut self, name: String) -> BlockRv {
        BlockRv(self.symbol(Symbol::Block(name)))
    }

    fn loop_var(&self, rv: LoopRv) -> Rewrite<VarId> {
        match self.symbols.get(rv.0 as usize) {
            Some(Symbol::Loop(var)) if self.func.vars[*var].ty == PrimType::INDEX => Ok(*var),
            Some(Symbol::Loop(var)) => {
                let decl = &self.func.vars[*var];
                let (name, ty) = (&decl.name, decl.ty);
                Err(format!(
                    "the loop `{name}` is {ty}, not int64: NarrowDataType runs after schedules"
                ))
            }
            _ => Err(format!("l{} is not a loop of this schedule", rv.0)),
        }
    }

    fn loop_vars(&self, rvs: &[LoopRv]) -> Rewrite<Vec<VarId>> {
        rvs.iter().map(|&rv| self.loop_var(rv)).collect()
    }

    fn block_name(&self, rv: BlockRv) -> Rewrite<String> {
        match self.symbols.get(rv.0 as usize) {
            Some(Symbol::Block(name)) => Ok(name.clone()),
            _ => Err(format!("b{} is not a block of this schedule", rv.0)),
        }
    }

    /// Runs a rewrite on a copy of the function, and keeps the copy if the rewrite succeeds.
    fn apply<T>(
        &mut self,
        primitive: &'static str,
        rewrite: impl FnOnce(&Schedule, &mut PrimFuncData) -> Rewrite<T>,
    ) -> Result<T> {
        let error = |message| ScheduleError { primitive, message };
        let mut func = self.func.clone();
        let result = rewrite(self, &mut func).map_err(error)?;
        let func = PrimFunc::new(func);
        verify(&func).map_err(|errors| {
            let messages: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
            error(format!("the result would be invalid: {}", messages.join("; ")))
        })?;
        self.func = func.into_data();
        Ok(result)
    }

    fn record(&mut self, primitive: &str, args: Vec<Arg>, results: Vec<Rv>) {
        self.trace.steps.push(Step { primitive: primitive.to_owned(), args, results });
    }

    fn loops(&mut self, vars: Vec<VarId>) -> Vec<LoopRv> {
        vars.into_iter().map(|var| self.new_loop(var)).collect()
    }

    /// The block of that name.
    ///
    /// # Errors
    ///
    /// No block has that name.
    pub fn get_block(&mut self, name: &str) -> Result<BlockRv> {
        let missing = |message| ScheduleError { primitive: "get_block", message };
        let known: Vec<&str> =
            tree::blocks(&self.func.body).iter().map(|block| block.name.as_str()).collect();
        if !known.contains(&name) {
            let known = known.join("`, `");
            return Err(missing(format!("there is no block `{name}`; there are `{known}`")));
        }
        let block = self.new_block(name.to_owned());
        self.record("get_block", vec![name.into()], vec![Rv::Block(block)]);
        Ok(block)
    }

    /// The loops around a block, outermost first.
    ///
    /// # Errors
    ///
    /// The block is gone.
    pub fn get_loops(&mut self, block: BlockRv) -> Result<Vec<LoopRv>> {
        let loops = self
            .block_name(block)
            .and_then(|name| {
                self.func.block(&name)?;
                Ok(self.func.loops_around(&inline::named(&name)))
            })
            .map_err(|message| ScheduleError { primitive: "get_loops", message })?;
        let loops = self.loops(loops.into_iter().map(|info| info.var).collect());
        let results = loops.iter().map(|&rv| Rv::Loop(rv)).collect();
        self.record("get_loops", vec![block.into()], results);
        Ok(loops)
    }

    /// Replaces a loop by nested loops with the given extents, outermost first; one extent may be
    /// `None`, and is computed. If the product of the extents exceeds the loop's, blocks inside get
    /// a condition.
    ///
    /// # Errors
    ///
    /// The factors do not cover the loop, or the loop is not serial with a constant extent.
    pub fn split<const N: usize>(
        &mut self,
        loop_: LoopRv,
        factors: [Option<i64>; N],
    ) -> Result<[LoopRv; N]> {
        let loops = self.split_into(loop_, &factors)?;
        <[LoopRv; N]>::try_from(loops).map_err(|_| ScheduleError {
            primitive: "split",
            message: "a loop came out for more or less than each factor".to_owned(),
        })
    }

    /// [`split`](Self::split) with any number of factors, for traces.
    fn split_into(&mut self, loop_: LoopRv, factors: &[Option<i64>]) -> Result<Vec<LoopRv>> {
        let vars =
            self.apply("split", |this, func| loops::split(func, this.loop_var(loop_)?, factors))?;
        let loops = self.loops(vars);
        let results = loops.iter().map(|&rv| Rv::Loop(rv)).collect();
        self.record("split", vec![loop_.into(), factors.into()], results);
        Ok(loops)
    }

    /// Replaces a loop by two: an outer one over runs of at most `most` iterations, whose lengths
    /// differ by at most one. `LoopPartition` divides these by length into two loops without
    /// conditions, so that there is no masked tail.
    ///
    /// # Errors
    ///
    /// As for [`split`](Self::split).
    pub fn split_even(&mut self, loop_: LoopRv, most: i64) -> Result<[LoopRv; 2]> {
        let vars = self.apply("split_even", |this, func| {
            loops::split_even(func, this.loop_var(loop_)?, most)
        })?;
        let pair = [self.new_loop(vars[0]), self.new_loop(vars[1])];
        let results = pair.iter().map(|&rv| Rv::Loop(rv)).collect();
        self.record("split_even", vec![loop_.into(), most.into()], results);
        Ok(pair)
    }

    /// Splits two loops and puts the inner parts inside both outer ones: outer `y`, outer `x`,
    /// inner `y`, inner `x`.
    ///
    /// # Errors
    ///
    /// As for [`split`](Self::split) and [`reorder`](Self::reorder).
    pub fn tile(&mut self, y: LoopRv, x: LoopRv, factors: [i64; 2]) -> Result<[LoopRv; 4]> {
        let before = self.clone();
        let mut tile = || {
            let y = self.split(y, [None, Some(factors[0])])?;
            let x = self.split(x, [None, Some(factors[1])])?;
            self.reorder(&[y[0], x[0], y[1], x[1]])?;
            Ok([y[0], x[0], y[1], x[1]])
        };
        tile().inspect_err(|_| *self = before)
    }

    /// Replaces nested loops, outermost first, by one. They must contain nothing else.
    ///
    /// # Errors
    ///
    /// The loops are not nested directly, or not serial with constant extents.
    pub fn fuse(&mut self, loops: &[LoopRv]) -> Result<LoopRv> {
        let var = self.apply("fuse", |this, func| loops::fuse(func, &this.loop_vars(loops)?))?;
        let fused = self.new_loop(var);
        self.record("fuse", vec![loops.into()], vec![Rv::Loop(fused)]);
        Ok(fused)
    }

    /// Puts loops of one nest in the given order; other loops of the nest stay in their places.
    ///
    /// # Errors
    ///
    /// The loops are not one nest, or the bounds of one depend on another.
    pub fn reorder(&mut self, order: &[LoopRv]) -> Result<()> {
        self.apply("reorder", |this, func| loops::reorder(func, &this.loop_vars(order)?))?;
        self.record("reorder", vec![order.into()], Vec::new());
        Ok(())
    }

    fn set_kind(&mut self, primitive: &'static str, loop_: LoopRv, kind: ForKind) -> Result<()> {
        self.apply(primitive, |this, func| loops::set_kind(func, this.loop_var(loop_)?, kind))?;
        self.record(primitive, vec![loop_.into()], Vec::new());
        Ok(())
    }

    /// Runs the iterations of a loop as the lanes of vectors.
    ///
    /// # Errors
    ///
    /// Iterations write the same elements, as along a reduction.
    pub fn vectorize(&mut self, loop_: LoopRv) -> Result<()> {
        self.set_kind("vectorize", loop_, ForKind::Vectorized)
    }

    /// Unrolls a loop.
    ///
    /// # Errors
    ///
    /// The loop has no constant extent.
    pub fn unroll(&mut self, loop_: LoopRv) -> Result<()> {
        self.set_kind("unroll", loop_, ForKind::Unrolled)
    }

    /// Runs the iterations of a loop on several threads.
    ///
    /// # Errors
    ///
    /// Iterations write the same elements, or another parallel loop is around or inside.
    pub fn parallel(&mut self, loop_: LoopRv) -> Result<()> {
        self.set_kind("parallel", loop_, ForKind::Parallel)
    }

    /// Notes that the iterations of a loop may run at the same time, and leaves it to
    /// [`ParallelizeLoops`](crate::tir::transform::ParallelizeLoops) whether threads share them.
    ///
    /// # Errors
    ///
    /// Iterations write the same elements.
    pub fn independent(&mut self, loop_: LoopRv) -> Result<()> {
        self.apply("independent", |this, func| {
            loops::set_independent(func, this.loop_var(loop_)?)
        })?;
        self.record("independent", vec![loop_.into()], Vec::new());
        Ok(())
    }

    /// Puts a loop of one iteration around a block.
    ///
    /// # Errors
    ///
    /// The block is gone.
    pub fn add_unit_loop(&mut self, block: BlockRv) -> Result<LoopRv> {
        let var = self.apply("add_unit_loop", |this, func| {
            loops::add_unit_loop(func, &inline::named(&this.block_name(block)?))
        })?;
        let unit = self.new_loop(var);
        self.record("add_unit_loop", vec![block.into()], vec![Rv::Loop(unit)]);
        Ok(unit)
    }

    /// Annotates a loop with an instruction for lowering: `auto_unroll_max_step`, `unroll_explicit`
    /// or `loop_partition_hint`.
    ///
    /// # Errors
    ///
    /// The loop is gone, or no pass knows the pragma.
    pub fn pragma(&mut self, loop_: LoopRv, key: &str, value: &str) -> Result<()> {
        const KNOWN: [&str; 3] = ["auto_unroll_max_step", "unroll_explicit", "loop_partition_hint"];
        self.apply("pragma", |this, func| {
            if !KNOWN.contains(&key) {
                let known = KNOWN.join(", ");
                return Err(format!("no pass knows the pragma `{key}`; there are {known}"));
            }
            let key = format!("pragma_{key}");
            loops::annotate_loop(func, this.loop_var(loop_)?, &key, value)
        })?;
        self.record("pragma", vec![loop_.into(), key.into(), value.into()], Vec::new());
        Ok(())
    }

    /// Computes a block's element wherever it is read, and removes the block.
    ///
    /// # Errors
    ///
    /// The block is a reduction, stores to a parameter, or is not a single store.
    pub fn compute_inline(&mut self, block: BlockRv) -> Result<()> {
        self.apply("compute_inline", |this, func| {
            inline::compute_inline(func, &this.block_name(block)?)
        })?;
        self.record("compute_inline", vec![block.into()], Vec::new());
        Ok(())
    }

    /// Moves an element-wise consumer into the block that computes its input, and removes the
    /// consumer.
    ///
    /// # Errors
    ///
    /// The other block is a reduction, or is read at another index or by other blocks.
    pub fn reverse_compute_inline(&mut self, block: BlockRv) -> Result<()> {
        self.apply("reverse_compute_inline", |this, func| {
            inline::reverse_compute_inline(func, &this.block_name(block)?)
        })?;
        self.record("reverse_compute_inline", vec![block.into()], Vec::new());
        Ok(())
    }

    /// Computes, in each iteration of a loop, just the part of a block's result that the iteration
    /// reads.
    ///
    /// # Errors
    ///
    /// A statement outside of the loop reads the result, or the result is a parameter.
    pub fn compute_at(&mut self, block: BlockRv, loop_: LoopRv) -> Result<()> {
        self.apply("compute_at", |this, func| {
            compute_at::compute_at(func, &this.block_name(block)?, this.loop_var(loop_)?)
        })?;
        self.record("compute_at", vec![block.into(), loop_.into()], Vec::new());
        Ok(())
    }

    /// Runs a block, in each iteration of a loop, on just the part of its input that the iteration
    /// computes.
    ///
    /// # Errors
    ///
    /// An iteration does not complete the block's input, or the block reads it at more than one
    /// index.
    pub fn reverse_compute_at(&mut self, block: BlockRv, loop_: LoopRv) -> Result<()> {
        self.apply("reverse_compute_at", |this, func| {
            compute_at::reverse_compute_at(func, &this.block_name(block)?, this.loop_var(loop_)?)
        })?;
        self.record("reverse_compute_at", vec![block.into(), loop_.into()], Vec::new());
        Ok(())
    }

    /// Makes a block read its `index`-th input from a copy in memory of the given scope; returns
    /// the block that makes the copy.
    ///
    /// # Errors
    ///
    /// The block has no such input, or the scope is that of parameters.
    pub fn cache_read(
        &mut self,
        block: BlockRv,
        index: usize,
        scope: BufferScope,
    ) -> Result<BlockRv> {
        let name = self.apply("cache_read", |this, func| {
            cache::cache_read(func, &this.block_name(block)?, index, scope)
        })?;
        let copy = self.new_block(name);
        let args = vec![block.into(), index.into(), replay::scope_text(scope).into()];
        self.record("cache_read", args, vec![Rv::Block(copy)]);
        Ok(copy)
    }

    /// Makes a block write its `index`-th output to memory of the given scope; returns the block
    /// that copies it to the original buffer.
    ///
    /// # Errors
    ///
    /// The block has no such output, or the scope is that of parameters.
    pub fn cache_write(
        &mut self,
        block: BlockRv,
        index: usize,
        scope: BufferScope,
    ) -> Result<BlockRv> {
        let name = self.apply("cache_write", |this, func| {
            cache::cache_write(func, &this.block_name(block)?, index, scope)
        })?;
        let copy = self.new_block(name);
        let args = vec![block.into(), index.into(), replay::scope_text(scope).into()];
        self.record("cache_write", args, vec![Rv::Block(copy)]);
        Ok(copy)
    }

    /// Moves the `index`-th output of a block to memory of the given scope.
    ///
    /// # Errors
    ///
    /// The output is a parameter, or the scope is that of parameters.
    pub fn set_scope(&mut self, block: BlockRv, index: usize, scope: BufferScope) -> Result<()> {
        self.apply("set_scope", |this, func| {
            cache::set_scope(func, &this.block_name(block)?, index, scope)
        })?;
        let args = vec![block.into(), index.into(), replay::scope_text(scope).into()];
        self.record("set_scope", args, Vec::new());
        Ok(())
    }

    /// Moves the init of a reduction before a loop; returns the block of the init.
    ///
    /// # Errors
    ///
    /// The block has no init, is not in the loop, or reduces along a loop around it.
    pub fn decompose_reduction(&mut self, block: BlockRv, loop_: LoopRv) -> Result<BlockRv> {
        let name = self.apply("decompose_reduction", |this, func| {
            let (name, var) = (this.block_name(block)?, this.loop_var(loop_)?);
            reduction::decompose_reduction(func, &name, var)
        })?;
        let init = self.new_block(name);
        let args = vec![block.into(), loop_.into()];
        self.record("decompose_reduction", args, vec![Rv::Block(init)]);
        Ok(init)
    }

    /// The number of iterations of a loop, if it is constant.
    pub fn extent(&self, loop_: LoopRv) -> Option<i64> {
        match self.func.loop_stmt(self.loop_var(loop_).ok()?) {
            Ok(Stmt::For { extent, .. }) => extent.as_int(),
            _ => None,
        }
    }

    /// Whether two variables stand for the same loop.
    pub fn is_same_loop(&self, one: LoopRv, other: LoopRv) -> bool {
        matches!((self.loop_var(one), self.loop_var(other)), (Ok(one), Ok(other)) if one == other)
    }

    /// The statement of a loop.
    ///
    /// # Errors
    ///
    /// The loop is gone.
    pub fn loop_stmt(&self, loop_: LoopRv) -> Result<&Stmt> {
        self.loop_var(loop_)
            .and_then(|var| self.func.loop_stmt(var))
            .map_err(|message| ScheduleError { primitive: "loop_stmt", message })
    }
}
