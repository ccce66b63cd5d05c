//! The verifier of loop functions. It reports all violations, not only the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::extent::problem_of_buffer;
use super::{
    BinaryOp, BlockRealize, BufferId, BufferScope, ForKind, Intrinsic, MAX_DEPTH, ParamKind,
    PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt, UnaryOp, VarId, scalar,
};
use crate::ir::DType;

/// One violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// The guilty statement, counted in the order in which statements are printed; `None` for the
    /// function's declarations.
    pub statement: Option<usize>,
    /// The message.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.statement {
            Some(number) => write!(f, "statement {number}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for VerifyError {}

/// Checks a function at any stage of lowering. Printed with the function by
/// [`print_with_errors`](super::print_with_errors).
pub fn verify(func: &PrimFunc) -> Result<(), Vec<VerifyError>> {
    let mut verifier = Verifier {
        func,
        errors: Vec::new(),
        vars: BTreeSet::new(),
        buffers: BTreeSet::new(),
        statement: None,
        count: 0,
        in_parallel: false,
        too_deep: false,
    };
    verifier.declarations();
    verifier.stmt(&func.body, 0);
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

struct Verifier<'a> {
    func: &'a PrimFuncData,
    errors: Vec<VerifyError>,
    /// Variables and buffers in scope.
    vars: BTreeSet<VarId>,
    buffers: BTreeSet<BufferId>,
    statement: Option<usize>,
    count: usize,
    in_parallel: bool,
    too_deep: bool,
}

impl Verifier<'_> {
    fn error(&mut self, message: impl Into<String>) {
        self.errors.push(VerifyError { statement: self.statement, message: message.into() });
    }

    fn declarations(&mut self) {
        let func = self.func;
        for buffer in func.buffers.values() {
            if let Some(problem) = problem_of_buffer(buffer, func) {
                self.error(format!("buffer `{}`: {problem}", buffer.name));
            }
        }
        for param in &func.params {
            let Some(buffer) = func.buffers.get(param.buffer) else {
                self.error(format!("parameter {} is not declared", param.buffer));
                continue;
            };
            if buffer.scope != BufferScope::Param {
                self.error(format!(
                    "parameter `{}` is not of the scope of parameters",
                    buffer.name
                ));
            }
            if !self.buffers.insert(param.buffer) {
                self.error(format!("buffer `{}` is two parameters", buffer.name));
            }
        }
        for &dim in &func.dims {
            match func.vars.get(dim) {
                None => self.error(format!("dimension {dim} is not declared")),
                Some(decl) if decl.ty != PrimType::INDEX => {
                    self.error(format!("dimension `{}` is {}, not int64", decl.name, decl.ty));
                }
                Some(decl) => {
                    if !self.vars.insert(dim) {
                        self.error(format!("dimension `{}` is there twice", decl.name));
                    }
                }
            }
        }
        for (pair, &(output, input)) in func.inplace.iter().enumerate() {
            let kind = |position: usize| func.params.get(position).map(|param| param.kind);
            if kind(output) != Some(ParamKind::Output) || kind(input) != Some(ParamKind::Input) {
                self.error(format!(
                    "in-place pair ({output}, {input}) is not an output and an input"
                ));
            }
            if func.inplace[..pair].iter().any(|&(_, other)| other == input) {
                self.error(format!("input {input} may be the memory of several outputs"));
            }
        }
    }

    fn name_of(&self, id: BufferId) -> String {
        self.func.buffers.get(id).map_or_else(|| id.to_string(), |buffer| buffer.name.clone())
    }

    fn stmt(&mut self, stmt: &Stmt, depth: usize) {
        if depth > MAX_DEPTH {
            if !self.too_deep {
                self.error(format!("statements nest deeper than {MAX_DEPTH}"));
            }
            self.too_deep = true;
            return;
        }
        if let Stmt::Seq(stmts) = stmt {
            // A sequence has no line of its own.
            stmts.iter().for_each(|stmt| self.stmt(stmt, depth + 1));
            return;
        }
        self.statement = Some(self.count);
        self.count += 1;
        match stmt {
            Stmt::Seq(_) => {}
            Stmt::BlockRealize(block) => self.realize(block, depth),
            Stmt::Block { name: _, body } => self.stmt(body, depth + 1),
            Stmt::For { var, min, extent, kind, annotations: _, body } => {
                let ty = self.bounds(min, extent, depth);
                let needs_constant = matches!(kind, ForKind::Vectorized | ForKind::Unrolled);
                if needs_constant && extent.as_int().is_none() {
                    self.error(format!("a {} loop has no constant extent", kind.name()));
                }
                let is_parallel = *kind == ForKind::Parallel;
                if is_parallel && self.in_parallel {
                    self.error("a parallel loop is inside another one");
                }
                let outer = self.in_parallel;
                self.in_parallel |= is_parallel;
                if self.bind_value(*var, ty) {
                    self.stmt(body, depth + 1);
                    self.vars.remove(var);
                }
                self.in_parallel = outer;
            }
            Stmt::Store { buffer, indices, value } => {
                let lanes = self.access(*buffer, indices, depth);
                let ty = self.expr(value, depth + 1);
                let kind = self.func.param_of(*buffer).map(|param| param.kind);
                if matches!(kind, Some(ParamKind::Input | ParamKind::Constant)) {
                    let name = self.name_of(*buffer);
                    self.error(format!("`{name}` is stored to, but only read"));
                }
                if let (Some(lanes), Some(ty), Some(decl)) =
                    (lanes, ty, self.func.buffers.get(*buffer))
                {
                    let expected = PrimType::vector(decl.dtype, lanes);
                    if ty != expected {
                        self.error(format!("{ty} is stored where `{}` has {expected}", decl.name));
                    }
                }
            }
            Stmt::Let { var, value, body } => {
                let ty = self.expr(value, depth + 1);
                if self.bind_value(*var, ty) {
                    self.stmt(body, depth + 1);
                    self.vars.remove(var);
                }
            }
            Stmt::If { cond, then, otherwise } => {
                let ty = self.expr(cond, depth + 1);
                if ty.is_some_and(|ty| ty != PrimType::BOOL) {
                    self.error("the condition of a branch is not a scalar bool");
                }
                self.stmt(then, depth + 1);
                if let Some(otherwise) = otherwise {
                    self.stmt(otherwise, depth + 1);
                }
            }
            Stmt::Allocate { buffer, body } => {
                let name = self.name_of(*buffer);
                match self.func.buffers.get(*buffer).map(|decl| decl.scope) {
                    None => self.error(format!("buffer {name} is not declared")),
                    Some(BufferScope::Param) => {
                        self.error(format!("parameter `{name}` is allocated"));
                    }
                    Some(BufferScope::Local | BufferScope::Register) => {}
                }
                if self.buffers.insert(*buffer) {
                    self.stmt(body, depth + 1);
                    self.buffers.remove(buffer);
                } else {
                    self.error(format!("buffer `{name}` is allocated while it exists"));
                }
            }
            Stmt::Prefetch { buffer, indices, offset, locality, write: _ } => {
                if self.access(*buffer, indices, depth).is_some_and(|lanes| lanes != 1) {
                    self.error("the index of a prefetch is a vector");
                }
                let ty = self.expr(offset, depth + 1);
                if let Some(ty) = ty.filter(|ty| !ty.is_index()) {
                    self.error(format!("the offset of a prefetch is {ty}, not int64 or int32"));
                }
                if *locality > 3 {
                    self.error(format!("there is no prefetch locality {locality}"));
                }
            }
            Stmt::Assert { cond, message: _ } => {
                let ty = self.expr(cond, depth + 1);
                if ty.is_some_and(|ty| ty != PrimType::BOOL) {
                    self.error("the condition of an assertion is not a scalar bool");
                }
            }
        }
    }

    /// Checks a loop's bounds; returns the type of its variable, if the bounds allow one.
    fn bounds(&mut self, min: &PrimExpr, extent: &PrimExpr, depth: usize) -> Option<PrimType> {
        let types = [self.expr(min, depth + 1), self.expr(extent, depth + 1)];
        for (what, ty) in ["first value", "extent"].into_iter().zip(types) {
            if ty.is_some_and(|ty| !ty.is_index()) {
                self.error(format!("the {what} of a loop is not a scalar int64 or int32"));
            }
        }
        let [first, count] = types;
        let ty = first.filter(|ty| ty.is_index())?;
        if let Some(count) = count.filter(|count| count.is_index() && *count != ty) {
            self.error(format!("the bounds of a loop are {ty} and {count}"));
            return None;
        }
        if let (Some(first), Some(count)) = (min.as_int(), extent.as_int()) {
            let end = first.checked_add(count.max(0));
            if end.is_none_or(|end| scalar::wrap_int(end, ty.dtype) != end) {
                self.error(format!("the end of a loop is beyond {ty}"));
            }
        }
        Some(ty)
    }

    fn realize(&mut self, block: &BlockRealize, depth: usize) {
        for iter in &block.iters {
            for (what, expr) in [("extent", &iter.extent), ("value", &iter.value)] {
                let ty = self.expr(expr, depth + 1);
                if ty.is_some_and(|ty| ty != PrimType::INDEX) {
                    self.error(format!("the {what} of a block's variable is not a scalar int64"));
                }
            }
        }
        let ty = self.expr(&block.predicate, depth + 1);
        if ty.is_some_and(|ty| ty != PrimType::BOOL) {
            self.error("the predicate of a block is not a scalar bool");
        }
        if block.init.is_some() && !block.is_reduction() {
            self.error("a block without a reduction has an init");
        }
        // The body may use the block's own variables, but not those of the loops around.
        let outer = std::mem::take(&mut self.vars);
        self.vars.extend(&self.func.dims);
        if block.iters.iter().all(|iter| self.bind(iter.var, PrimType::INDEX)) {
            for stmt in block.init.iter().chain([&block.body]) {
                self.stmt(stmt, depth + 1);
            }
        }
        self.vars = outer;
    }

    /// Brings a variable into scope; false if that is not possible.
    fn bind(&mut self, var: VarId, ty: PrimType) -> bool {
        let Some(decl) = self.func.vars.get(var) else {
            self.error(format!("variable {var} is not declared"));
            return false;
        };
        let (name, declared) = (decl.name.clone(), decl.ty);
        if declared != ty {
            self.error(format!("variable `{name}` is declared {declared} and bound to {ty}"));
        }
        if !self.vars.insert(var) {
            self.error(format!("variable `{name}` is bound inside its own scope"));
            return false;
        }
        true
    }

    fn bind_value(&mut self, var: VarId, ty: Option<PrimType>) -> bool {
        // Errors in the value have been reported.
        let ty = ty.or_else(|| self.func.vars.get(var).map(|decl| decl.ty));
        self.bind(var, ty.unwrap_or(PrimType::INDEX))
    }

    /// Checks an access and returns its lanes, unless the indices are wrong themselves.
    fn access(&mut self, id: BufferId, indices: &[PrimExpr], depth: usize) -> Option<u32> {
        let name = self.name_of(id);
        match self.func.buffers.get(id) {
            None => self.error(format!("buffer {name} is not declared")),
            Some(decl) => {
                if !self.buffers.contains(&id) {
                    self.error(format!("buffer `{name}` is used outside its Allocate"));
                }
                let rank = decl.shape().len();
                if indices.len() != rank {
                    self.error(format!(
                        "`{name}` has {rank} axes and is accessed by {} indices",
                        indices.len()
                    ));
                }
            }
        }
        let mut lanes = 1;
        let mut known = true;
        for index in indices {
            let Some(ty) = self.expr(index, depth + 1) else {
                known = false;
                continue;
            };
            if !ty.with_lanes(1).is_index() {
                self.error(format!("an index of `{name}` is {ty}, not int64 or int32"));
            }
            if ty.lanes != 1 && lanes != 1 && ty.lanes != lanes {
                self.error(format!("indices of `{name}` have {lanes} and {} lanes", ty.lanes));
            }
            lanes = lanes.max(ty.lanes);
        }
        known.then_some(lanes)
    }

    /// Checks an expression and returns its type, or `None` if it has none.
    fn expr(&mut self, expr: &PrimExpr, depth: usize) -> Option<PrimType> {
        if depth > MAX_DEPTH {
            if !self.too_deep {
                self.error(format!("expressions nest deeper than {MAX_DEPTH}"));
            }
            self.too_deep = true;
            return None;
        }
        self.expr_of(expr, depth + 1)
    }

    /// Each kind has a function of its own, split where it recurs, so that the frames of the
    /// recursion stay small in unoptimised builds.
    fn expr_of(&mut self, expr: &PrimExpr, below: usize) -> Option<PrimType> {
        match expr {
            PrimExpr::Int { value, dtype } => self.int(*value, *dtype),
            PrimExpr::Float { value, dtype } => self.float(value.get(), *dtype),
            PrimExpr::Var { var, ty } => self.var(*var, *ty),
            PrimExpr::Unary { op, value } => self.expr(value, below).map(|ty| self.unary(*op, ty)),
            PrimExpr::Binary { op, lhs, rhs } => {
                self.alike(op.symbol(), [lhs, rhs], below).map(|ty| self.binary(*op, ty))
            }
            PrimExpr::Compare { op, lhs, rhs } => {
                self.alike(op.symbol(), [lhs, rhs], below).map(|ty| ty.with_dtype(DType::Bool))
            }
            PrimExpr::Select { cond, then, otherwise } => {
                let cond = self.expr(cond, below);
                self.alike("select", [then, otherwise], below).map(|ty| self.select(cond, ty))
            }
            PrimExpr::Cast { value, dtype } => {
                self.expr(value, below).map(|ty| ty.with_dtype(*dtype))
            }
            PrimExpr::Reinterpret { value, dtype } => {
                self.expr(value, below).map(|ty| self.reinterpret(ty, *dtype))
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                let lanes = self.access(*buffer, indices, below - 1);
                self.load(*buffer, *dtype, lanes)
            }
            PrimExpr::Ramp { base, stride, lanes } => {
                self.alike("ramp", [base, stride], below).map(|ty| self.ramp(ty, *lanes))
            }
            PrimExpr::Broadcast { value, lanes } => {
                self.expr(value, below).map(|ty| self.broadcast(ty, *lanes))
            }
            PrimExpr::Shuffle { vectors, lanes } => {
                let types: Vec<_> = vectors.iter().map(|vector| self.expr(vector, below)).collect();
                self.shuffle(types.into_iter().collect::<Option<_>>()?, lanes)
            }
            PrimExpr::VectorReduce { op, value } => {
                self.expr(value, below).map(|ty| self.reduce(*op, ty))
            }
            PrimExpr::MulAdd { a, b, c } => {
                self.alike("fma", [a, b, c], below).map(|ty| self.mul_add(ty))
            }
            PrimExpr::DotAdd { a, b, c } => {
                let [a, b, c] = [a, b, c].map(|operand| self.expr(operand, below));
                Some(self.dot_add(a?, b?, c?))
            }
            PrimExpr::Call { intrinsic, args } => {
                if args.len() != intrinsic.arity() {
                    self.arity(*intrinsic, args.len());
                }
                self.alike(intrinsic.name(), args, below).map(|ty| self.call(*intrinsic, ty))
            }
            PrimExpr::Let { var, value, body } => {
                let ty = self.expr(value, below);
                if !self.bind_value(*var, ty) {
                    return None;
                }
                let result = self.expr(body, below);
                self.vars.remove(var);
                result
            }
        }
    }

    fn int(&mut self, value: i64, dtype: DType) -> Option<PrimType> {
        if !(dtype.is_int() || dtype == DType::Bool) {
            self.error(format!("an integer constant is {dtype}"));
        } else if scalar::wrap_int(value, dtype) != value {
            self.error(format!("the constant {value} is not in the range of {dtype}"));
        }
        Some(dtype.into())
    }

    fn float(&mut self, value: f64, dtype: DType) -> Option<PrimType> {
        let exact =
            scalar::float_bits(value, dtype).and_then(|bits| scalar::float_value(bits, dtype));
        match exact {
            None => self.error(format!("a float constant is {dtype}")),
            Some(exact) if exact != value && !value.is_nan() => {
                self.error(format!("the constant {value} is not exact in {dtype}"));
            }
            Some(_) => {}
        }
        Some(dtype.into())
    }

    fn var(&mut self, var: VarId, ty: PrimType) -> Option<PrimType> {
        match self.func.vars.get(var) {
            None => self.error(format!("variable {var} is not declared")),
            Some(decl) => {
                let (name, declared) = (decl.name.clone(), decl.ty);
                if !self.vars.contains(&var) {
                    self.error(format!("variable `{name}` is used outside its scope"));
                }
                if declared != ty {
                    self.error(format!(
                        "variable `{name}` is declared {declared} and used as {ty}"
                    ));
                }
            }
        }
        Some(ty)
    }

    fn unary(&mut self, op: UnaryOp, ty: PrimType) -> PrimType {
        let defined = match op {
            UnaryOp::Neg => ty.dtype != DType::Bool && !ty.dtype.is_storage_only(),
            UnaryOp::Not => !ty.dtype.is_float(),
        };
        if !defined {
            self.error(format!("{op:?} is not defined on {ty}"));
        }
        ty
    }

    fn binary(&mut self, op: BinaryOp, ty: PrimType) -> PrimType {
        if !is_defined(op, ty.dtype) {
            self.error(format!("`{}` is not defined on {ty}", op.symbol()));
        }
        ty
    }

    fn select(&mut self, cond: Option<PrimType>, ty: PrimType) -> PrimType {
        if let Some(cond) = cond
            && (cond.dtype != DType::Bool || (cond.lanes != 1 && cond.lanes != ty.lanes))
        {
            self.error(format!("{cond} is the condition of a select of {ty}"));
        }
        ty
    }

    fn reinterpret(&mut self, ty: PrimType, dtype: DType) -> PrimType {
        if scalar::reinterpret(ty.dtype, dtype, 0).is_none() {
            self.error(format!("the bits of {ty} are not those of {dtype}"));
        }
        ty.with_dtype(dtype)
    }

    fn load(&mut self, buffer: BufferId, dtype: DType, lanes: Option<u32>) -> Option<PrimType> {
        if let Some(decl) = self.func.buffers.get(buffer)
            && decl.dtype != dtype
        {
            let (name, declared) = (decl.name.clone(), decl.dtype);
            self.error(format!("{dtype} is loaded from `{name}`, which holds {declared}"));
        }
        Some(PrimType::vector(dtype, lanes?))
    }

    fn ramp(&mut self, ty: PrimType, lanes: u32) -> PrimType {
        if !ty.is_scalar() || !ty.dtype.is_int() || lanes < 2 {
            self.error(format!("a ramp of {lanes} lanes is made of {ty}"));
        }
        ty.with_lanes(lanes)
    }

    fn broadcast(&mut self, ty: PrimType, lanes: u32) -> PrimType {
        if !ty.is_scalar() || lanes < 2 {
            self.error(format!("{ty} is broadcast to {lanes} lanes"));
        }
        ty.with_lanes(lanes)
    }

    fn shuffle(&mut self, types: Vec<PrimType>, lanes: &[u32]) -> Option<PrimType> {
        let Some(first) = types.first() else {
            self.error("a shuffle of nothing");
            return None;
        };
        if types.iter().any(|ty| ty.dtype != first.dtype) {
            self.error("a shuffle of vectors of different data types");
        }
        let total: u64 = types.iter().map(|ty| u64::from(ty.lanes)).sum();
        if lanes.is_empty() || lanes.iter().any(|lane| u64::from(*lane) >= total) {
            self.error(format!("a shuffle of {total} lanes picks {lanes:?}"));
        }
        Some(first.with_lanes(lanes.len().max(1) as u32))
    }

    fn reduce(&mut self, op: BinaryOp, ty: PrimType) -> PrimType {
        if !op.reduces() || !is_defined(op, ty.dtype) {
            self.error(format!("lanes of {ty} cannot be reduced by `{}`", op.symbol()));
        }
        if !ty.lanes.is_power_of_two() || ty.lanes < 2 {
            self.error(format!("the lanes of {ty} are reduced, but are no power of two"));
        }
        ty.with_lanes(1)
    }

    fn mul_add(&mut self, ty: PrimType) -> PrimType {
        if !matches!(ty.dtype, DType::F32 | DType::F64) {
            self.error(format!("fused multiply-add is not defined on {ty}"));
        }
        ty
    }

    fn dot_add(&mut self, a: PrimType, b: PrimType, c: PrimType) -> PrimType {
        let takes = |dtypes: [DType; 2], group: u32| {
            let lanes = c.lanes.saturating_mul(group);
            [a, b] == dtypes.map(|dtype| PrimType::vector(dtype, lanes))
        };
        let fits = takes([DType::U8, DType::I8], 4) || takes([DType::I16; 2], 2);
        if !fits || c.dtype != DType::I32 {
            self.error(format!(
                "dot_add of {a}, {b} and {c}: it takes uint8 and int8, four lanes for each of int32, \
                 or int16, two lanes"
            ));
        }
        c
    }

    fn arity(&mut self, intrinsic: Intrinsic, found: usize) {
        self.error(format!("{} has {found} arguments", intrinsic.name()));
    }

    fn call(&mut self, intrinsic: Intrinsic, ty: PrimType) -> PrimType {
        let conversion = intrinsic.conversion();
        let is_defined = match conversion {
            Some((from, _)) => ty.dtype == from,
            None => ty.dtype.is_float() && !ty.dtype.is_storage_only(),
        };
        if !is_defined {
            self.error(format!("{} is not defined on {ty}", intrinsic.name()));
        }
        conversion.map_or(ty, |(_, result)| ty.with_dtype(result))
    }

    /// The common type of operands.
    fn alike<'e>(
        &mut self,
        what: &str,
        operands: impl IntoIterator<Item = &'e (impl AsRef<PrimExpr> + 'e)>,
        depth: usize,
    ) -> Option<PrimType> {
        let types: Vec<_> =
            operands.into_iter().map(|operand| self.expr(operand.as_ref(), depth)).collect();
        let types: Vec<PrimType> = types.into_iter().collect::<Option<_>>()?;
        let first = *types.first()?;
        if let Some(other) = types.iter().find(|ty| **ty != first) {
            self.error(format!("operands of `{what}` are {first} and {other}"));
        }
        Some(first)
    }
}

impl AsRef<PrimExpr> for PrimExpr {
    fn as_ref(&self) -> &PrimExpr {
        self
    }
}

/// Whether an operator is defined for a data type.
fn is_defined(op: BinaryOp, dtype: DType) -> bool {
    if dtype == DType::Bool {
        return matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
    }
    scalar::binary(op, dtype, 0, 0).is_some()
}

/// Violations by the statement they belong to, for printing.
pub(super) fn by_statement(errors: &[VerifyError]) -> BTreeMap<Option<usize>, Vec<&str>> {
    let mut map: BTreeMap<Option<usize>, Vec<&str>> = BTreeMap::new();
    for error in errors {
        map.entry(error.statement).or_default().push(&error.message);
    }
    map
}

#[cfg(test)]
mod tests;
