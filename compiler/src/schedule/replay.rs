//! Traces applied to other functions.

use super::error::Rewrite;
use super::{
    Arg, BlockRv, BufferAccess, LoopRv, Rv, Schedule, ScheduleError, Step, TensorIntrin, Trace,
};
use crate::ir::BufferSpec;
use crate::tir::BufferScope;

/// The text of a scope in a trace.
pub(super) fn scope_text(scope: BufferScope) -> &'static str {
    match scope {
        BufferScope::Param => "param",
        BufferScope::Local => "local",
        BufferScope::Register => "register",
    }
}

fn scope_of(text: &str) -> Rewrite<BufferScope> {
    match text {
        "param" => Ok(BufferScope::Param),
        "local" => Ok(BufferScope::Local),
        "register" => Ok(BufferScope::Register),
        other => Err(format!("`{other}` is neither local nor register")),
    }
}

impl Trace {
    /// Applies the steps to a new schedule.
    ///
    /// # Errors
    ///
    /// A step is unknown, cannot be applied, or has other results than when it was recorded. The
    /// schedule is then unchanged.
    pub fn replay(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let before = schedule.clone();
        for (number, step) in self.steps.iter().enumerate() {
            if let Err(mut error) = replay(schedule, step) {
                *schedule = before;
                error.message =
                    format!("step {} of the trace, `{step}`: {}", number + 1, error.message);
                return Err(error);
            }
        }
        Ok(())
    }
}

fn replay(schedule: &mut Schedule, step: &Step) -> Result<(), ScheduleError> {
    let known = schedule.trace.steps.len();
    run(schedule, step).map_err(|failure| match failure {
        Failure::Form(message) => ScheduleError { primitive: "replay", message },
        Failure::Step(error) => error,
    })?;
    let done = &schedule.trace.steps[known..];
    let message = if !done.iter().flat_map(|step| &step.results).eq(&step.results) {
        "the function has other loops or blocks than the one it was recorded of".to_owned()
    } else if let Some(done) = done.iter().find(|done| done.args.len() != step.args.len()) {
        format!("it has more arguments than `{done}`, which was done")
    } else {
        return Ok(());
    };
    Err(ScheduleError { primitive: "replay", message })
}

/// The failure of a step: it is malformed, or the primitive refuses it.
enum Failure {
    Form(String),
    Step(ScheduleError),
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        Failure::Step(error)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Form(message)
    }
}

/// The arguments of a step, by their places.
struct Args<'a>(&'a [Arg]);

impl Args<'_> {
    fn at(&self, place: usize) -> Rewrite<&Arg> {
        self.0.get(place).ok_or_else(|| format!("argument {place} is missing"))
    }

    fn block(&self, place: usize) -> Rewrite<BlockRv> {
        match self.at(place)? {
            Arg::Rv(Rv::Block(block)) => Ok(*block),
            other => Err(format!("argument {place} is a block, not `{other}`")),
        }
    }

    fn a_loop(&self, place: usize) -> Rewrite<LoopRv> {
        match self.at(place)? {
            Arg::Rv(Rv::Loop(rv)) => Ok(*rv),
            other => Err(format!("argument {place} is a loop, not `{other}`")),
        }
    }

    fn rv(&self, place: usize) -> Rewrite<Rv> {
        match self.at(place)? {
            Arg::Rv(rv) => Ok(*rv),
            other => Err(format!("argument {place} is a loop or block, not `{other}`")),
        }
    }

    fn locality(&self, place: usize) -> Rewrite<u8> {
        u8::try_from(self.int(place)?).map_err(|_| format!("argument {place} is no locality"))
    }

    fn loops(&self, place: usize) -> Rewrite<Vec<LoopRv>> {
        match self.at(place)? {
            Arg::List(list) => {
                (0..list.len()).map(|position| Args(list).a_loop(position)).collect()
            }
            other => Err(format!("argument {place} is a list of loops, not `{other}`")),
        }
    }

    fn int(&self, place: usize) -> Rewrite<i64> {
        match self.at(place)? {
            Arg::Int(value) => Ok(*value),
            other => Err(format!("argument {place} is a number, not `{other}`")),
        }
    }

    fn index(&self, place: usize) -> Rewrite<usize> {
        usize::try_from(self.int(place)?).map_err(|_| format!("argument {place} is negative"))
    }

    fn factors(&self, place: usize) -> Rewrite<Vec<Option<i64>>> {
        let Arg::List(list) = self.at(place)? else {
            return Err(format!("argument {place} is a list of factors"));
        };
        list.iter()
            .map(|arg| match arg {
                Arg::Open => Ok(None),
                Arg::Int(value) => Ok(Some(*value)),
                other => Err(format!("a factor is a number or `_`, not `{other}`")),
            })
            .collect()
    }

    fn ints(&self, place: usize) -> Rewrite<Vec<i64>> {
        match self.at(place)? {
            Arg::List(list) => (0..list.len()).map(|position| Args(list).int(position)).collect(),
            other => Err(format!("argument {place} is a list of numbers, not `{other}`")),
        }
    }

    /// An access takes two places.
    fn access(&self, place: usize) -> Rewrite<BufferAccess> {
        let index = self.index(place + 1)?;
        match self.text(place)? {
            "read" => Ok(BufferAccess::Read(index)),
            "write" => Ok(BufferAccess::Write(index)),
            other => Err(format!("argument {place} is \"read\" or \"write\", not `{other}`")),
        }
    }

    fn layout(&self, place: usize) -> Rewrite<BufferSpec> {
        self.text(place)?.parse().map_err(|error| format!("argument {place}: {error}"))
    }

    fn text(&self, place: usize) -> Rewrite<&str> {
        match self.at(place)? {
            Arg::Text(text) => Ok(text),
            other => Err(format!("argument {place} is a text, not `{other}`")),
        }
    }
}

fn run(s: &mut Schedule, step: &Step) -> Result<(), Failure> {
    let args = Args(&step.args);
    match step.primitive.as_str() {
        "get_block" => s.get_block(args.text(0)?).map(drop)?,
        "get_loops" => s.get_loops(args.block(0)?).map(drop)?,
        "split" => s.split_into(args.a_loop(0)?, &args.factors(1)?).map(drop)?,
        "split_even" => s.split_even(args.a_loop(0)?, args.int(1)?).map(drop)?,
        "fuse" => s.fuse(&args.loops(0)?).map(drop)?,
        "reorder" => s.reorder(&args.loops(0)?)?,
        "vectorize" => s.vectorize(args.a_loop(0)?)?,
        "unroll" => s.unroll(args.a_loop(0)?)?,
        "parallel" => s.parallel(args.a_loop(0)?)?,
        "independent" => s.independent(args.a_loop(0)?)?,
        "add_unit_loop" => s.add_unit_loop(args.block(0)?).map(drop)?,
        "annotate" => s.annotate(args.rv(0)?, args.text(1)?, args.text(2)?)?,
        "unannotate" => s.unannotate(args.rv(0)?, args.text(1)?)?,
        "get_child_blocks" => s.get_child_blocks(args.rv(0)?).map(drop)?,
        "get_producers" => s.get_producers(args.block(0)?).map(drop)?,
        "get_consumers" => s.get_consumers(args.block(0)?).map(drop)?,
        "get_output_blocks" => s.get_output_blocks().map(drop)?,
        "pragma" => s.pragma(args.a_loop(0)?, args.text(1)?, args.text(2)?)?,
        "compute_inline" => s.compute_inline(args.block(0)?)?,
        "reverse_compute_inline" => s.reverse_compute_inline(args.block(0)?)?,
        "compute_at" => s.compute_at(args.block(0)?, args.a_loop(1)?)?,
        "reverse_compute_at" => s.reverse_compute_at(args.block(0)?, args.a_loop(1)?)?,
        "cache_read" => {
            let scope = scope_of(args.text(2)?)?;
            s.cache_read(args.block(0)?, args.index(1)?, scope).map(drop)?;
        }
        "cache_write" => {
            let scope = scope_of(args.text(2)?)?;
            s.cache_write(args.block(0)?, args.index(1)?, scope).map(drop)?;
        }
        "set_scope" => {
            let scope = scope_of(args.text(2)?)?;
            s.set_scope(args.block(0)?, args.index(1)?, scope)?;
        }
        "decompose_reduction" => {
            s.decompose_reduction(args.block(0)?, args.a_loop(1)?).map(drop)?;
        }
        "transform_layout" => {
            s.transform_layout(args.block(0)?, args.access(1)?, &args.layout(3)?)?;
        }
        "pad_einsum" => s.pad_einsum(args.block(0)?, &args.ints(1)?)?,
        "storage_align" => {
            let (index, axis) = (args.index(1)?, args.index(2)?);
            s.storage_align(args.block(0)?, index, axis, args.int(3)?, args.int(4)?)?;
        }
        "prefetch" => {
            let (access, locality) = (args.access(1)?, args.locality(5)?);
            s.prefetch(args.block(0)?, access, args.a_loop(3)?, args.int(4)?, locality)?;
        }
        "prefetch_next" => {
            let (access, locality) = (args.access(1)?, args.locality(5)?);
            s.prefetch_next(args.block(0)?, access, args.a_loop(3)?, args.a_loop(4)?, locality)?;
        }
        "rfactor" => s.rfactor(args.a_loop(0)?, args.index(1)?).map(drop)?,
        "decompose_padding" => s.decompose_padding(args.block(0)?, args.a_loop(1)?).map(drop)?,
        "read_halo" => s.read_halo(args.block(0)?)?,
        "rolling_buffer" => s.rolling_buffer(args.block(0)?, args.index(1)?)?,
        "tensorize" => {
            let name = args.text(1)?;
            let intrinsic = TensorIntrin::get(name);
            let intrinsic = intrinsic.ok_or_else(|| format!("there is no intrinsic `{name}`"))?;
            s.tensorize(args.rv(0)?, &intrinsic)?;
        }
        other => return Err(Failure::Form(format!("there is no primitive `{other}`"))),
    }
    Ok(())
}
