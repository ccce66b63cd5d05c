//! Primitives that look up related blocks, and annotate loops and blocks.

use super::error::Rewrite;
use super::tree::{Tree, read, written};
use super::{BlockRv, LoopRv, Result, Rv, Schedule, ScheduleError};
use crate::tir::{Annotations, BlockRealize, ParamKind, PrimFuncData, Stmt};

impl Schedule {
    /// The blocks in a loop or in a block, in order, without the blocks nested in them.
    ///
    /// # Errors
    ///
    /// The loop or block is gone.
    pub fn get_child_blocks(&mut self, of: impl Into<Rv>) -> Result<Vec<BlockRv>> {
        let of = of.into();
        let names = self.place(of).map(|stmt| {
            let mut names = Vec::new();
            stmt.for_each_child(&mut |child| outermost(child, &mut names));
            names
        });
        self.found("get_child_blocks", vec![of.into()], names)
    }

    /// The blocks that write an input of a block, in order, without the block itself.
    ///
    /// # Errors
    ///
    /// The block is gone.
    pub fn get_producers(&mut self, block: BlockRv) -> Result<Vec<BlockRv>> {
        let names = self.related(block, |this, other| shares(&written(other), &read(this)));
        self.found("get_producers", vec![block.into()], names)
    }

    /// The blocks that read an output of a block, in order, without the block itself.
    ///
    /// # Errors
    ///
    /// The block is gone.
    pub fn get_consumers(&mut self, block: BlockRv) -> Result<Vec<BlockRv>> {
        let names = self.related(block, |this, other| shares(&read(other), &written(this)));
        self.found("get_consumers", vec![block.into()], names)
    }

    /// The blocks that write parameters of the function, in order.
    ///
    /// # Errors
    ///
    /// None; the `Result` is for uniformity with the other queries.
    pub fn get_output_blocks(&mut self) -> Result<Vec<BlockRv>> {
        let outputs: Vec<_> =
            self.func.params.iter().filter(|p| p.kind == ParamKind::Output).collect();
        let writes = |block: &&BlockRealize| {
            written(block).iter().any(|buffer| outputs.iter().any(|param| param.buffer == *buffer))
        };
        let blocks = super::tree::blocks(&self.func.body);
        let names = blocks.into_iter().filter(writes).map(|block| block.name.clone()).collect();
        self.found("get_output_blocks", Vec::new(), Ok(names))
    }

    /// The number of iterations of a loop.
    ///
    /// # Errors
    ///
    /// The loop is gone, or its extent is not constant.
    pub fn get_extent(&self, loop_: LoopRv) -> Result<i64> {
        let extent = self.loop_var(loop_).and_then(|var| match self.func.loop_stmt(var)? {
            Stmt::For { extent, .. } => Ok(extent.as_int()),
            _ => Ok(None),
        });
        let extent = extent.and_then(|extent| {
            extent.ok_or_else(|| format!("l{} has no constant extent", loop_.0))
        });
        extent.map_err(|message| ScheduleError { primitive: "get_extent", message })
    }

    /// Annotates a loop or block with a value for passes to read.
    ///
    /// # Errors
    ///
    /// The loop or block is gone.
    pub fn annotate(&mut self, of: impl Into<Rv>, key: &str, value: &str) -> Result<()> {
        let of = of.into();
        self.apply("annotate", |this, func| {
            notes(this, func, of)?.insert(key.to_owned(), value.to_owned());
            Ok(())
        })?;
        self.record("annotate", vec![of.into(), key.into(), value.into()], Vec::new());
        Ok(())
    }

    /// Removes an annotation of a loop or block.
    ///
    /// # Errors
    ///
    /// The loop or block has no annotation of that key.
    pub fn unannotate(&mut self, of: impl Into<Rv>, key: &str) -> Result<()> {
        let of = of.into();
        self.apply("unannotate", |this, func| {
            let removed = notes(this, func, of)?.remove(key);
            removed.map(drop).ok_or_else(|| format!("{of} has no annotation `{key}`"))
        })?;
        self.record("unannotate", vec![of.into(), key.into()], Vec::new());
        Ok(())
    }

    fn place(&self, of: Rv) -> Rewrite<&Stmt> {
        match of {
            Rv::Loop(rv) => self.func.loop_stmt(self.loop_var(rv)?),
            Rv::Block(rv) => Ok(&self.func.block(&self.block_name(rv)?)?.body),
        }
    }

    fn related(
        &self,
        block: BlockRv,
        is: impl Fn(&BlockRealize, &BlockRealize) -> bool,
    ) -> Rewrite<Vec<String>> {
        let this = self.func.block(&self.block_name(block)?)?;
        let others = super::tree::blocks(&self.func.body);
        let others = others.into_iter().filter(|other| other.name != this.name && is(this, other));
        Ok(others.map(|other| other.name.clone()).collect())
    }

    fn found(
        &mut self,
        primitive: &'static str,
        args: Vec<super::Arg>,
        names: Rewrite<Vec<String>>,
    ) -> Result<Vec<BlockRv>> {
        let names = names.map_err(|message| ScheduleError { primitive, message })?;
        let blocks: Vec<BlockRv> = names.into_iter().map(|name| self.new_block(name)).collect();
        self.record(primitive, args, blocks.iter().map(|&rv| rv.into()).collect());
        Ok(blocks)
    }
}

fn shares<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    one.iter().any(|item| other.contains(item))
}

fn outermost(stmt: &Stmt, names: &mut Vec<String>) {
    match stmt {
        Stmt::BlockRealize(block) => names.push(block.name.clone()),
        other => other.for_each_child(&mut |child| outermost(child, names)),
    }
}

fn notes<'a>(
    schedule: &Schedule,
    func: &'a mut PrimFuncData,
    of: Rv,
) -> Rewrite<&'a mut Annotations> {
    match of {
        Rv::Block(rv) => Ok(&mut func.block_mut(&schedule.block_name(rv)?)?.annotations),
        Rv::Loop(rv) => match func.loop_stmt_mut(schedule.loop_var(rv)?)? {
            Stmt::For { annotations, .. } => Ok(annotations),
            _ => Err(format!("{of} is gone")),
        },
    }
}

#[cfg(test)]
mod tests;
