//! A plain interpreter of loop functions, at every stage of lowering.
//!
//! It is the oracle for passes and code generators: operators mean what [`scalar`](super::scalar)
//! says, and it checks properties that generated code cannot check: that every access is inside its
//! buffer, that local memory is written before it is read, and that nothing but zero is stored to a
//! halo. Loops run in order, but parallel ones backwards.

mod arithmetic;
mod memory;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;

use cranelift_entity::SecondaryMap;

use arithmetic::Arithmetic;
use memory::{Memory, byte_len};
use value::{
    Value, binary, broadcast, call, cast, choose, compare, float, map_lanes, ramp, reduce,
    reinterpret, same_type, shuffle, unary, unsupported,
};

use super::{
    BlockRealize, BufferId, BufferScope, ForKind, IterKind, PrimExpr, PrimFunc, PrimFuncData, Stmt,
    VarId, scalar,
};
use crate::ir::DType;

/// The error of an interpretation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// The function.
    pub function: String,
    /// The message, with buffer and index.
    pub message: String,
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interpreting loop function `{}`: {}", self.function, self.message)
    }
}

impl std::error::Error for InterpError {}

/// Runs a function. `args` are the bytes of its parameters in their physical layouts, `dims` the
/// values of its dimensions.
pub fn interpret(func: &PrimFunc, args: &mut [Vec<u8>], dims: &[i64]) -> Result<(), InterpError> {
    let error = |message| InterpError { function: func.name.clone(), message };
    let func = match dims.len() == func.dims.len() {
        true => &func.with_extents(dims).map_err(error)?,
        false => func,
    };
    let mut interp = Interp {
        func,
        vars: SecondaryMap::new(),
        buffers: SecondaryMap::new(),
        lane_index: Vec::new(),
        arithmetic: match func.flushes_denormals() {
            true => Arithmetic::Flushing,
            false => Arithmetic::Gradual,
        },
    };
    interp.run(args, dims).map_err(error)
}

type Result<T, E = String> = std::result::Result<T, E>;

struct Interp<'a> {
    func: &'a PrimFuncData,
    vars: SecondaryMap<VarId, Option<Value>>,
    buffers: SecondaryMap<BufferId, Option<Memory>>,
    /// The index of one lane, kept to save allocations.
    lane_index: Vec<i64>,
    arithmetic: Arithmetic,
}

impl Interp<'_> {
    fn run(&mut self, args: &mut [Vec<u8>], dims: &[i64]) -> Result<()> {
        let func = self.func;
        if args.len() != func.params.len() || dims.len() != func.dims.len() {
            return Err(format!(
                "{} buffers and {} dimensions are needed, {} and {} were given",
                func.params.len(),
                func.dims.len(),
                args.len(),
                dims.len()
            ));
        }
        for (param, bytes) in func.params.iter().zip(args.iter_mut()) {
            let buffer = &func.buffers[param.buffer];
            let expected = byte_len(buffer)?;
            if bytes.len() != expected {
                return Err(format!(
                    "parameter `{}` has {expected} bytes, {} were given",
                    buffer.name,
                    bytes.len()
                ));
            }
            self.buffers[param.buffer] = Some(Memory::of_param(std::mem::take(bytes)));
        }
        for (&dim, &value) in func.dims.iter().zip(dims) {
            self.vars[dim] = Some(Value::Scalar(DType::I64, value as u64));
        }
        let result = self.stmt(&func.body);
        for (param, bytes) in func.params.iter().zip(args.iter_mut()) {
            if let Some(memory) = self.buffers[param.buffer].take() {
                *bytes = memory.bytes;
            }
        }
        result
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt)),
            Stmt::Block { name: _, body } => self.stmt(body),
            Stmt::BlockRealize(block) => self.realize(block),
            Stmt::For { var, min, extent, kind, annotations: _, body } => {
                let dtype = self.func.vars[*var].ty.dtype;
                let (min, extent) = (self.index(min)?, self.index(extent)?.max(0));
                for step in 0..extent {
                    // In another order than that of a single worker, so that the result differs if
                    // a body depends on the order.
                    let step = if *kind == ForKind::Parallel { extent - 1 - step } else { step };
                    let value = scalar::wrap_int(min.wrapping_add(step), dtype);
                    self.vars[*var] = Some(Value::Scalar(dtype, value as u64));
                    self.stmt(body)?;
                }
                self.vars[*var] = None;
                Ok(())
            }
            Stmt::Store { buffer, indices, value } => {
                let value = self.expr(value)?;
                self.access(*buffer, indices, Some(value), |_| true).map(|_| ())
            }
            Stmt::Let { var, value, body } => {
                let value = self.expr(value)?;
                self.vars[*var] = Some(value);
                self.stmt(body)?;
                self.vars[*var] = None;
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                if self.condition(cond)? {
                    self.stmt(then)
                } else {
                    otherwise.as_ref().map_or(Ok(()), |stmt| self.stmt(stmt))
                }
            }
            Stmt::Allocate { buffer, body } => {
                let decl = &self.func.buffers[*buffer];
                if decl.scope == BufferScope::Param {
                    return Err(format!("parameter `{}` is allocated", decl.name));
                }
                self.buffers[*buffer] = Some(Memory::local(decl)?);
                self.stmt(body)?;
                self.buffers[*buffer] = None;
                Ok(())
            }
            Stmt::Prefetch { buffer: _, indices, offset, locality: _, write: _ } => {
                indices.iter().chain([offset]).try_for_each(|index| self.expr(index).map(|_| ()))
            }
            Stmt::Assert { cond, message } => {
                if self.condition(cond)? {
                    Ok(())
                } else {
                    Err(message.clone())
                }
            }
        }
    }

    fn realize(&mut self, block: &BlockRealize) -> Result<()> {
        if !self.condition(&block.predicate)? {
            return Ok(());
        }
        let mut is_first = true;
        let mut values = Vec::with_capacity(block.iters.len());
        for iter in &block.iters {
            let (value, extent) = (self.index(&iter.value)?, self.index(&iter.extent)?);
            if value < 0 || value >= extent {
                let name = &self.func.vars[iter.var].name;
                return Err(format!(
                    "variable `{name}` of block `{}` is {value}, not below {extent}",
                    block.name
                ));
            }
            is_first &= iter.kind == IterKind::Spatial || value == 0;
            values.push((iter.var, value));
        }
        for (var, value) in values {
            self.vars[var] = Some(Value::Scalar(DType::I64, value as u64));
        }
        if let Some(init) = block.init.as_ref().filter(|_| is_first) {
            self.stmt(init)?;
        }
        self.stmt(&block.body)?;
        for iter in &block.iters {
            self.vars[iter.var] = None;
        }
        Ok(())
    }

    fn index(&mut self, expr: &PrimExpr) -> Result<i64> {
        match self.expr(expr)? {
            Value::Scalar(_, bits) => Ok(bits as i64),
            Value::Vector(..) => Err("a bound or index is a vector".to_owned()),
        }
    }

    fn condition(&mut self, expr: &PrimExpr) -> Result<bool> {
        match self.expr(expr)? {
            Value::Scalar(DType::Bool, bits) => Ok(bits != 0),
            _ => Err("a condition is not a scalar bool".to_owned()),
        }
    }

    /// Evaluates an expression. Each kind has a function of its own, so that the frames of the
    /// recursion stay small in unoptimised builds.
    fn expr(&mut self, expr: &PrimExpr) -> Result<Value> {
        match expr {
            PrimExpr::Int { value, dtype } => Ok(Value::Scalar(*dtype, *value as u64)),
            PrimExpr::Float { value, dtype } => float(value.get(), *dtype),
            PrimExpr::Var { var, ty: _ } => self.var(*var),
            PrimExpr::Unary { op, value } => self.expr(value).and_then(|value| unary(*op, &value)),
            PrimExpr::Binary { op, lhs, rhs } => {
                self.pair(lhs, rhs).and_then(|(lhs, rhs)| binary(self.arithmetic, *op, &lhs, &rhs))
            }
            PrimExpr::Compare { op, lhs, rhs } => {
                self.pair(lhs, rhs).and_then(|(lhs, rhs)| compare(self.arithmetic, *op, &lhs, &rhs))
            }
            PrimExpr::Select { cond, then, otherwise } => self.select(cond, then, otherwise),
            PrimExpr::Cast { value, dtype } => {
                self.expr(value).and_then(|value| cast(self.arithmetic, &value, *dtype))
            }
            PrimExpr::Reinterpret { value, dtype } => {
                self.expr(value).and_then(|value| reinterpret(&value, *dtype))
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                let lanes = self.access(*buffer, indices, None, |_| true);
                lanes.map(|lanes| Value::from_lanes(*dtype, lanes))
            }
            PrimExpr::Ramp { base, stride, lanes } => {
                self.pair(base, stride).and_then(|(base, stride)| ramp(&base, &stride, *lanes))
            }
            PrimExpr::Broadcast { value, lanes } => {
                self.expr(value).and_then(|value| broadcast(&value, *lanes))
            }
            PrimExpr::Shuffle { vectors, lanes } => self.shuffled(vectors, lanes),
            PrimExpr::VectorReduce { op, value } => {
                self.expr(value).and_then(|value| reduce(self.arithmetic, *op, &value))
            }
            PrimExpr::MulAdd { a, b, c } => self.mul_add(a, b, c),
            PrimExpr::DotAdd { a, b, c } => self.dot_add(a, b, c),
            PrimExpr::Call { intrinsic, args } => {
                self.all(args).and_then(|args| call(self.arithmetic, *intrinsic, &args))
            }
            PrimExpr::Let { var, value, body } => self.let_in(*var, value, body),
        }
    }

    fn var(&self, var: VarId) -> Result<Value> {
        self.vars[var]
            .clone()
            .ok_or_else(|| format!("variable `{}` has no value here", self.func.vars[var].name))
    }

    fn pair(&mut self, a: &PrimExpr, b: &PrimExpr) -> Result<(Value, Value)> {
        let a = self.expr(a)?;
        let b = self.expr(b)?;
        Ok((a, b))
    }

    /// Lanes of vectors. Loads with a stride are loads of what lies between as well, of which no
    /// lane is picked, and which need not be written yet.
    fn shuffled(&mut self, vectors: &[PrimExpr], lanes: &[u32]) -> Result<Value> {
        let mut first = 0;
        let mut values = Vec::with_capacity(vectors.len());
        for vector in vectors {
            values.push(match vector {
                PrimExpr::Load { buffer, dtype, indices } => {
                    let is_used =
                        |lane| lanes.iter().any(|&picked| picked as usize == first + lane);
                    let loaded = self.access(*buffer, indices, None, is_used)?;
                    Value::from_lanes(*dtype, loaded)
                }
                other => self.expr(other)?,
            });
            first += vector.ty().lanes as usize;
        }
        shuffle(&values, lanes)
    }

    fn all(&mut self, exprs: &[PrimExpr]) -> Result<Vec<Value>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn select(&mut self, cond: &PrimExpr, then: &PrimExpr, otherwise: &PrimExpr) -> Result<Value> {
        match self.expr(cond)? {
            Value::Scalar(_, bits) => self.expr(if bits != 0 { then } else { otherwise }),
            Value::Vector(_, mask) => self
                .pair(then, otherwise)
                .and_then(|(then, otherwise)| choose(&mask, &then, &otherwise)),
        }
    }

    fn mul_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let dtype = same_type(&a, &b)?;
        same_type(&a, &c)?;
        map_lanes(&[&a, &b, &c], dtype, |lanes| {
            self.arithmetic.mul_add(dtype, lanes[0], lanes[1], lanes[2])
        })
        .map_err(|()| unsupported("fused multiply-add", dtype))
    }

    fn dot_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let group = a.lanes() / c.lanes().max(1);
        let factors = |part: usize| -> Result<[i32; 2]> {
            let (a, b) = (a.lane(part)?, b.lane(part)?);
            Ok(match group {
                2 => [i32::from(a as i16), i32::from(b as i16)],
                _ => [i32::from(a as u8), i32::from(b as i8)],
            })
        };
        let lanes = (0..c.lanes())
            .map(|lane| {
                let mut sum = c.lane(lane)? as i32;
                for part in lane * group..(lane + 1) * group {
                    let [a, b] = factors(part)?;
                    sum = sum.wrapping_add(a * b);
                }
                Ok(i64::from(sum) as u64)
            })
            .collect::<Result<_>>()?;
        Ok(Value::from_lanes(DType::I32, lanes))
    }

    fn let_in(&mut self, var: VarId, value: &PrimExpr, body: &PrimExpr) -> Result<Value> {
        let value = self.expr(value)?;
        let outer = self.vars[var].replace(value);
        let result = self.expr(body);
        self.vars[var] = outer;
        result
    }
}
