//! A plain interpreter of loop functions, at every stage of lowering.
//!
//! It is the oracle for passes and code generators: it evaluates what [`scalar`](super::scalar)
//! says an operator means, and checks what generated code cannot: that every access is inside its
//! buffer, that local memory is written before it is read, and that nothing but zero goes into a
//! halo or padding lane. Loops run in order, but parallel ones backwards.

use std::fmt;

use cranelift_entity::SecondaryMap;

use super::{
    BinaryOp, BlockRealize, Buffer, BufferId, BufferScope, CompareOp, ForKind, Intrinsic, IterKind,
    ParamKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, UnaryOp, VarId, scalar,
};
use crate::ir::DType;

/// Why a function could not be interpreted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// The function.
    pub function: String,
    /// What happened, with buffer and index.
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
    };
    interp.run(args, dims).map_err(error)
}

type Result<T, E = String> = std::result::Result<T, E>;

/// A value with its data type; each lane as [`scalar`] holds it.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Scalar(DType, u64),
    Vector(DType, Vec<u64>),
}

impl Value {
    fn dtype(&self) -> DType {
        match self {
            Value::Scalar(dtype, _) | Value::Vector(dtype, _) => *dtype,
        }
    }

    fn lanes(&self) -> usize {
        match self {
            Value::Scalar(..) => 1,
            Value::Vector(_, lanes) => lanes.len(),
        }
    }

    fn lane(&self, index: usize) -> Result<u64> {
        match self {
            Value::Scalar(_, bits) => Ok(*bits),
            Value::Vector(_, lanes) => lanes
                .get(index)
                .copied()
                .ok_or_else(|| format!("there is no lane {index} of {}", lanes.len())),
        }
    }

    fn from_lanes(dtype: DType, mut lanes: Vec<u64>) -> Value {
        if lanes.len() == 1 {
            Value::Scalar(dtype, lanes.remove(0))
        } else {
            Value::Vector(dtype, lanes)
        }
    }
}

/// The bytes of local memory that nothing was stored to: in floats a large number, so that a result
/// that depends on padding lanes, which may be read, is far off.
const PADDING: u8 = 0x7f;

/// A buffer's memory.
#[derive(Clone, Debug)]
struct Memory {
    bytes: Vec<u8>,
    /// For local memory, which elements were stored to.
    written: Option<Vec<bool>>,
}

struct Interp<'a> {
    func: &'a PrimFuncData,
    vars: SecondaryMap<VarId, Option<Value>>,
    buffers: SecondaryMap<BufferId, Option<Memory>>,
    /// The index of one lane, kept to save allocations.
    lane_index: Vec<i64>,
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
            let memory = Memory { bytes: std::mem::take(bytes), written: None };
            self.buffers[param.buffer] = Some(memory);
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
                let (min, extent) = (self.index(min)?, self.index(extent)?.max(0));
                for step in 0..extent {
                    // Not in the order in which one worker goes through a parallel loop, so that
                    // results differ where a body depends on it.
                    let step = if *kind == ForKind::Parallel { extent - 1 - step } else { step };
                    self.vars[*var] =
                        Some(Value::Scalar(DType::I64, min.wrapping_add(step) as u64));
                    self.stmt(body)?;
                }
                self.vars[*var] = None;
                Ok(())
            }
            Stmt::Store { buffer, indices, value } => {
                let value = self.expr(value)?;
                self.access(*buffer, indices, Some(value)).map(|_| ())
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
                let len = byte_len(decl)?;
                let elements = len / decl.dtype.bytes().unwrap_or(1);
                let bytes = vec![PADDING; len];
                let memory = Memory { bytes, written: Some(vec![false; elements]) };
                self.buffers[*buffer] = Some(memory);
                self.stmt(body)?;
                self.buffers[*buffer] = None;
                Ok(())
            }
            Stmt::Prefetch { buffer: _, indices, locality: _, write: _ } => {
                indices.iter().try_for_each(|index| self.expr(index).map(|_| ()))
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
                self.pair(lhs, rhs).and_then(|(lhs, rhs)| binary(*op, &lhs, &rhs))
            }
            PrimExpr::Compare { op, lhs, rhs } => {
                self.pair(lhs, rhs).and_then(|(lhs, rhs)| compare(*op, &lhs, &rhs))
            }
            PrimExpr::Select { cond, then, otherwise } => self.select(cond, then, otherwise),
            PrimExpr::Cast { value, dtype } => {
                self.expr(value).and_then(|value| cast(&value, *dtype))
            }
            PrimExpr::Reinterpret { value, dtype } => {
                self.expr(value).and_then(|value| reinterpret(&value, *dtype))
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                self.access(*buffer, indices, None).map(|lanes| Value::from_lanes(*dtype, lanes))
            }
            PrimExpr::Ramp { base, stride, lanes } => {
                self.pair(base, stride).and_then(|(base, stride)| ramp(&base, &stride, *lanes))
            }
            PrimExpr::Broadcast { value, lanes } => {
                self.expr(value).and_then(|value| broadcast(&value, *lanes))
            }
            PrimExpr::Shuffle { vectors, lanes } => {
                self.all(vectors).and_then(|vectors| shuffle(&vectors, lanes))
            }
            PrimExpr::VectorReduce { op, value } => {
                self.expr(value).and_then(|value| reduce(*op, &value))
            }
            PrimExpr::MulAdd { a, b, c } => self.mul_add(a, b, c),
            PrimExpr::DotAdd { a, b, c } => self.dot_add(a, b, c),
            PrimExpr::Call { intrinsic, args } => {
                self.all(args).and_then(|args| call(*intrinsic, &args))
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
            scalar::mul_add(dtype, lanes[0], lanes[1], lanes[2])
        })
        .map_err(|()| unsupported("fused multiply-add", dtype))
    }

    fn dot_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value> {
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let lanes = (0..c.lanes())
            .map(|lane| {
                let mut sum = c.lane(lane)? as i32;
                for part in lane * 4..lane * 4 + 4 {
                    let product = i32::from(a.lane(part)? as u8) * i32::from(b.lane(part)? as i8);
                    sum = sum.wrapping_add(product);
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

    /// Loads the lanes of an access, or stores them and returns nothing.
    fn access(
        &mut self,
        id: BufferId,
        indices: &[PrimExpr],
        stored: Option<Value>,
    ) -> Result<Vec<u64>> {
        let values = indices.iter().map(|index| self.expr(index)).collect::<Result<Vec<_>>>()?;
        let lanes = values.iter().map(Value::lanes).max().unwrap_or(1);
        let decl = &self.func.buffers[id];
        if let Some(value) = &stored {
            if value.dtype() != decl.dtype || value.lanes() != lanes {
                return Err(format!(
                    "{}x{} is stored to {lanes} elements of `{}`, which holds {}",
                    value.dtype(),
                    value.lanes(),
                    decl.name,
                    decl.dtype
                ));
            }
            let kind = self.func.param_of(id).map(|param| param.kind);
            if matches!(kind, Some(ParamKind::Input | ParamKind::Constant)) {
                return Err(format!("`{}` is stored to, but only read", decl.name));
            }
        }
        let width = decl.dtype.bytes().ok_or_else(|| unsupported("an access", decl.dtype))?;
        let mut index = std::mem::take(&mut self.lane_index);
        let mut loaded = Vec::new();
        let memory = self.buffers[id]
            .as_mut()
            .ok_or_else(|| format!("buffer `{}` does not exist here", decl.name))?;
        for lane in 0..lanes {
            index.clear();
            for value in &values {
                index.push(value.lane(lane)? as i64);
            }
            let value = match &stored {
                Some(value) => Some(value.lane(lane)?),
                None => None,
            };
            let position = position(decl, &index, value)?;
            let start = position * width;
            let Some(bytes) = memory.bytes.get_mut(start..start + width) else {
                return Err(format!("`{}`{index:?} is outside its memory", decl.name));
            };
            if let Some(value) = value {
                bytes.copy_from_slice(&value.to_le_bytes()[..width]);
                if let Some(written) = &mut memory.written {
                    written[position] = true;
                }
            } else {
                let defined = memory.written.as_ref().is_none_or(|written| written[position]);
                if !defined && !is_padding(decl, &index) {
                    return Err(format!("`{}`{index:?} is read before it is written", decl.name));
                }
                let mut whole = [0; 8];
                whole[..width].copy_from_slice(bytes);
                let bits = u64::from_le_bytes(whole);
                loaded.push(scalar::wrap_int(bits as i64, decl.dtype) as u64);
            }
        }
        self.lane_index = index;
        Ok(loaded)
    }
}

fn same_type(a: &Value, b: &Value) -> Result<DType> {
    if a.dtype() == b.dtype() && a.lanes() == b.lanes() {
        return Ok(a.dtype());
    }
    Err(format!("operands differ: {}x{} and {}x{}", a.dtype(), a.lanes(), b.dtype(), b.lanes()))
}

fn float(value: f64, dtype: DType) -> Result<Value> {
    scalar::float_bits(value, dtype)
        .map(|bits| Value::Scalar(dtype, bits))
        .ok_or_else(|| unsupported("a constant", dtype))
}

fn unary(op: UnaryOp, value: &Value) -> Result<Value> {
    let dtype = value.dtype();
    map_lanes(&[value], dtype, |lanes| scalar::unary(op, dtype, lanes[0]))
        .map_err(|()| unsupported(&format!("{op:?}"), dtype))
}

fn binary(op: BinaryOp, lhs: &Value, rhs: &Value) -> Result<Value> {
    let dtype = same_type(lhs, rhs)?;
    map_lanes(&[lhs, rhs], dtype, |lanes| scalar::binary(op, dtype, lanes[0], lanes[1]))
        .map_err(|()| unsupported(op.symbol(), dtype))
}

fn compare(op: CompareOp, lhs: &Value, rhs: &Value) -> Result<Value> {
    let dtype = same_type(lhs, rhs)?;
    map_lanes(&[lhs, rhs], DType::Bool, |lanes| {
        scalar::compare(op, dtype, lanes[0], lanes[1]).map(u64::from)
    })
    .map_err(|()| unsupported(op.symbol(), dtype))
}

fn choose(mask: &[u64], then: &Value, otherwise: &Value) -> Result<Value> {
    let dtype = same_type(then, otherwise)?;
    if then.lanes() != mask.len() {
        return Err("a mask has other lanes than its values".to_owned());
    }
    let lanes = mask
        .iter()
        .enumerate()
        .map(|(i, bit)| if *bit != 0 { then.lane(i) } else { otherwise.lane(i) })
        .collect::<Result<_>>()?;
    Ok(Value::Vector(dtype, lanes))
}

fn cast(value: &Value, to: DType) -> Result<Value> {
    let from = value.dtype();
    map_lanes(&[value], to, |lanes| scalar::cast(from, to, lanes[0]))
        .map_err(|()| unsupported(&format!("a cast to {to}"), from))
}

fn reinterpret(value: &Value, to: DType) -> Result<Value> {
    let from = value.dtype();
    map_lanes(&[value], to, |lanes| scalar::reinterpret(from, to, lanes[0]))
        .map_err(|()| unsupported(&format!("the bits as {to}"), from))
}

fn ramp(base: &Value, stride: &Value, lanes: u32) -> Result<Value> {
    let dtype = same_type(base, stride)?;
    let (base, stride) = (base.lane(0)? as i64, stride.lane(0)? as i64);
    let lane = |i: i64| scalar::wrap_int(base.wrapping_add(stride.wrapping_mul(i)), dtype) as u64;
    Ok(Value::Vector(dtype, (0..i64::from(lanes)).map(lane).collect()))
}

fn broadcast(value: &Value, lanes: u32) -> Result<Value> {
    match value {
        Value::Scalar(dtype, bits) => Ok(Value::Vector(*dtype, vec![*bits; lanes as usize])),
        Value::Vector(..) => Err("a vector is broadcast".to_owned()),
    }
}

fn shuffle(vectors: &[Value], lanes: &[u32]) -> Result<Value> {
    let dtype = vectors.first().ok_or("a shuffle of nothing")?.dtype();
    let mut all = Vec::new();
    for vector in vectors {
        for lane in 0..vector.lanes() {
            all.push(vector.lane(lane)?);
        }
    }
    let picked = lanes
        .iter()
        .map(|lane| all.get(*lane as usize).copied())
        .collect::<Option<Vec<_>>>()
        .ok_or("a shuffle picks a lane that does not exist")?;
    Ok(Value::from_lanes(dtype, picked))
}

fn reduce(op: BinaryOp, value: &Value) -> Result<Value> {
    let dtype = value.dtype();
    let mut lanes: Vec<u64> =
        (0..value.lanes()).map(|lane| value.lane(lane)).collect::<Result<_>>()?;
    while lanes.len() > 1 {
        if !lanes.len().is_multiple_of(2) {
            return Err("the lanes of a reduction are no power of two".to_owned());
        }
        let upper = lanes.split_off(lanes.len() / 2);
        lanes = lanes
            .iter()
            .zip(upper)
            .map(|(low, high)| scalar::binary(op, dtype, *low, high))
            .collect::<Option<_>>()
            .ok_or_else(|| unsupported(op.symbol(), dtype))?;
    }
    Ok(Value::from_lanes(dtype, lanes))
}

fn call(intrinsic: Intrinsic, args: &[Value]) -> Result<Value> {
    let first = args.first().ok_or("a call without arguments")?;
    let dtype = first.dtype();
    for value in args {
        same_type(first, value)?;
    }
    let args: Vec<&Value> = args.iter().collect();
    map_lanes(&args, dtype, |lanes| scalar::call(intrinsic, dtype, lanes))
        .map_err(|()| unsupported(intrinsic.name(), dtype))
}

/// The position of an element, checked against the layout.
fn position(decl: &Buffer, index: &[i64], stored: Option<u64>) -> Result<usize> {
    let spec = &decl.spec;
    let inside = index.len() == spec.shape().len()
        && index.iter().zip(spec.shape()).all(|(i, extent)| (0..*extent).contains(i));
    if !inside {
        if !spec.is_addressable(index) {
            return Err(format!("`{}`{index:?} is outside its shape {spec}", decl.name));
        }
        // Padding lanes may hold anything.
        if stored.is_some_and(|bits| bits != 0) && !is_padding(decl, index) {
            return Err(format!(
                "`{}`{index:?} is in the halo of {spec}, but something other than zero is stored \
                 to it",
                decl.name
            ));
        }
    }
    usize::try_from(spec.element_offset(index))
        .map_err(|_| format!("`{}`{index:?} has a negative position", decl.name))
}

/// Whether an index, which must be addressable, is in the padding lanes of a block.
fn is_padding(decl: &Buffer, index: &[i64]) -> bool {
    let extents = decl.spec.shape().iter().zip(decl.spec.halo());
    index.iter().zip(extents).any(|(&index, (&extent, halo))| index >= extent + halo.after)
}

fn byte_len(buffer: &Buffer) -> Result<usize> {
    let elements = buffer.spec.physical_len().map_err(|error| error.to_string())?;
    usize::try_from(elements)
        .ok()
        .zip(buffer.dtype.bytes())
        .and_then(|(elements, width)| elements.checked_mul(width))
        .ok_or_else(|| format!("buffer `{}` of {} cannot be held", buffer.name, buffer.dtype))
}

fn map_lanes(
    values: &[&Value],
    dtype: DType,
    op: impl Fn(&[u64]) -> Option<u64>,
) -> Result<Value, ()> {
    let mut operands = [0; 3];
    let lanes = values[0].lanes();
    let mut one = |lane: usize| {
        for (operand, value) in operands.iter_mut().zip(values) {
            *operand = value.lane(lane).ok()?;
        }
        op(&operands[..values.len()])
    };
    if let Value::Scalar(..) = values[0] {
        return one(0).map(|bits| Value::Scalar(dtype, bits)).ok_or(());
    }
    let lanes = (0..lanes).map(one).collect::<Option<_>>().ok_or(())?;
    Ok(Value::Vector(dtype, lanes))
}

fn unsupported(what: &str, dtype: DType) -> String {
    format!("{what} is not defined on {dtype}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::BufferSpec;
    use crate::tir::PrimType;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn run(func: &PrimFuncData, args: &mut [Vec<u8>]) -> Result<(), InterpError> {
        interpret(&PrimFunc::new(func.clone()), args, &[])
    }

    #[test]
    fn a_dot_product_by_hand() {
        let mut func = PrimFuncData::new("dot");
        let a = func.input("a", DType::F32, BufferSpec::dense(&[3]));
        let b = func.constant("b", DType::F32, BufferSpec::dense(&[3]));
        let c = func.output("c", DType::F32, BufferSpec::dense(&[1]));
        let acc = func.register("acc", DType::F32, &[1]);
        let sum = func.serial("i", 3, |f, i| {
            let product = f.load(a, [i.clone()]) * f.load(b, [i]);
            f.store(acc, [0], f.load(acc, [0]) + product)
        });
        func.body = Stmt::allocate(
            acc,
            Stmt::seq([
                func.store(acc, [0], PrimExpr::f32(0.5)),
                sum,
                func.store(c, [0], func.load(acc, [0])),
            ]),
        );
        let mut args = [f32s(&[1., 2., 3.]), f32s(&[4., -5., 6.]), vec![0; 4]];
        run(&func, &mut args).unwrap();
        assert_eq!(args[2], f32s(&[4. - 10. + 18. + 0.5]));
    }

    #[test]
    fn an_assertion_that_does_not_hold_ends_the_run() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        let n = func.dim("n");
        func.body = Stmt::seq([
            Stmt::assert(n.less(5), "n is 5 or more"),
            func.store(y, [0], PrimExpr::f32(1.0)),
        ]);
        let func = PrimFunc::new(func);
        let mut args = [f32s(&[0.0])];
        let error = interpret(&func, &mut args, &[5]).unwrap_err();
        assert_eq!(error.to_string(), "interpreting loop function `f`: n is 5 or more");
        assert_eq!(args[0], f32s(&[0.0]));
        interpret(&func, &mut args, &[4]).unwrap();
        assert_eq!(args[0], f32s(&[1.0]));
    }

    #[test]
    fn vectors_reduce_by_halves_and_gather() {
        let mut func = PrimFuncData::new("f");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[16]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        let every_third = func.load(x, [PrimExpr::ramp(PrimExpr::index(1), 3, 4)]);
        assert_eq!(every_third.ty(), PrimType::vector(DType::F32, 4));
        let max = every_third.vector_reduce(BinaryOp::Max);
        let value = PrimExpr::call(Intrinsic::Sqrt, max);
        func.body = func.store(y, [0], value);
        let input: Vec<f32> = (0..16).map(|i| (i * i) as f32).collect();
        let mut args = [f32s(&input), vec![0; 4]];
        run(&func, &mut args).unwrap();
        assert_eq!(args[1], f32s(&[10.0]));
    }

    #[test]
    fn what_generated_code_would_silently_do_is_reported() {
        let mut func = PrimFuncData::new("f");
        let spec = BufferSpec::nchwc(&[1, 3, 2, 2], 4, &[(1, 1), (0, 0)]);
        let x = func.input("x", DType::F32, spec.clone());
        let y = func.output("y", DType::F32, spec.clone());
        let scratch = func.local("scratch", DType::F32, BufferSpec::dense(&[2]));
        let blocked = func.local("blocked", DType::F32, BufferSpec::nchwc(&[1, 3, 1, 1], 4, &[]));
        let len = spec.physical_len().unwrap() as usize * 4;
        let at = |c: i64, h: i64| [0, c, h, 1].map(PrimExpr::index);
        let mut check = |body: Stmt, expected: Option<&str>| {
            func.body = body;
            let mut args = [vec![0; len], vec![0; len]];
            let result = run(&func, &mut args);
            match expected {
                None => result.unwrap(),
                Some(text) => {
                    let error = result.unwrap_err().to_string();
                    assert!(error.contains(text), "{error}");
                }
            }
        };
        let f = func_of(&spec);
        let store = |at: [PrimExpr; 4], value: PrimExpr| f.store(y, at, value);
        check(store(at(2, -1), PrimExpr::f32(0.0)), None);
        check(store(at(2, -1), PrimExpr::f32(1.0)), Some("halo"));
        check(store(at(3, 0), PrimExpr::f32(1.0)), None);
        check(store(at(0, 0), f.load(x, at(0, 3))), Some("outside its shape"));
        check(f.store(x, at(0, 0), PrimExpr::f32(0.0)), Some("only read"));
        let early = store(at(0, 0), f.load(scratch, [1]));
        check(early.clone(), Some("does not exist"));
        check(Stmt::allocate(scratch, early), Some("before it is written"));
        let lane = |c: i64| f.load(blocked, [0, c, 0, 0].map(PrimExpr::index));
        check(Stmt::allocate(blocked, store(at(0, 0), lane(2))), Some("before it is written"));
        check(Stmt::allocate(blocked, store(at(0, 0), lane(3))), None);
        check(store(at(0, 0), PrimExpr::index(1)), Some("holds float32"));
    }

    /// The same declarations as in the test above, to build statements while the other is changed.
    fn func_of(spec: &BufferSpec) -> PrimFuncData {
        let mut func = PrimFuncData::new("f");
        func.input("x", DType::F32, spec.clone());
        func.output("y", DType::F32, spec.clone());
        func.local("scratch", DType::F32, BufferSpec::dense(&[2]));
        func.local("blocked", DType::F32, BufferSpec::nchwc(&[1, 3, 1, 1], 4, &[]));
        func
    }
}
