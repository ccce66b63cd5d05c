//! Loop functions: a handle that is cheap to clone and its data.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use cranelift_entity::PrimaryMap;

use super::transform::FLUSH_DENORMALS_ATTR;
use super::{
    Buffer, BufferId, BufferScope, ForKind, Param, ParamKind, PrimExpr, PrimType, Stmt, VarDecl,
    VarId,
};
use crate::ir::{BufferSpec, DType, Digest, Identity, digest};

/// A loop function: one kernel. Clones share the data until one of them is changed.
#[derive(Clone, Debug)]
pub struct PrimFunc(Arc<PrimFuncData>);

/// The contents of a [`PrimFunc`].
///
/// It also serves as the builder: the methods that take `&mut self` declare buffers and variables,
/// and the statements that others return are put into [`body`](Self::body) at the end.
#[derive(Clone, Debug)]
pub struct PrimFuncData {
    /// Symbol in the generated code, without the model's prefix.
    pub name: String,
    /// Tensors the caller hands over, in order.
    pub params: Vec<Param>,
    /// Dimensions the caller hands over after the tensors: scalar `int64` variables.
    pub dims: Vec<VarId>,
    /// Parameters that may be the same memory, as positions (output, input) in
    /// [`params`](Self::params). Each element of the output is written after the element of the
    /// input at the same position was last read. An output may be that of one of several inputs, an
    /// input that of one output.
    pub inplace: Vec<(usize, usize)>,
    /// All buffers, also those no longer used.
    pub buffers: PrimaryMap<BufferId, Buffer>,
    /// All variables, also those no longer used.
    pub vars: PrimaryMap<VarId, VarDecl>,
    /// The statements.
    pub body: Stmt,
    /// Annotations by key.
    pub attrs: BTreeMap<String, String>,
    /// The operators that the function computes, one line each, for comments in generated code.
    pub origin: Vec<String>,
}

/// The attribute of a function that another code generator makes: the symbol of that.
pub const EXTERNAL_SYMBOL_ATTR: &str = "external_symbol";

impl PrimFunc {
    /// Wraps finished data.
    pub fn new(data: PrimFuncData) -> Self {
        PrimFunc(Arc::new(data))
    }

    /// The data, copied first if another handle shares it.
    pub fn make_mut(&mut self) -> &mut PrimFuncData {
        Arc::make_mut(&mut self.0)
    }

    /// The data, copied only if another handle shares it.
    pub fn into_data(self) -> PrimFuncData {
        Arc::unwrap_or_clone(self.0)
    }

    /// The function with its body changed; the same handle if the new body is equal, so that a pass
    /// that finds nothing to do says so.
    ///
    /// ```
    /// use niello::tir::{PrimExpr, parse};
    ///
    /// let func = parse("prim_func @f(x: input float32[4], y: output float32[4]) {
    ///     for i in serial(4) { y[i] = x[i] + 0.0 }
    /// }")?;
    /// let same = func.clone().map_body(|body| body);
    /// assert!(same.same(&func));
    /// let halved = func.map_body(|body| {
    ///     body.map_exprs(&mut |expr| expr.rewrite(&mut |part| match part.as_float() {
    ///         Some(_) => PrimExpr::float(0.5, part.dtype()),
    ///         None => part,
    ///     }))
    /// });
    /// assert!(halved.to_string().contains("0.5"));
    /// # Ok::<(), niello::tir::ParseError>(())
    /// ```
    pub fn map_body(self, change: impl FnOnce(Stmt) -> Stmt) -> Self {
        let body = change(self.body.clone());
        if body == self.body {
            return self;
        }
        let mut func = self;
        func.make_mut().body = body;
        func
    }

    /// A digest of everything but names, the order of declarations, blocks and origin.
    pub fn structural_digest(&self) -> Digest {
        digest(super::print::anonymous_text(self).as_bytes())
    }

    /// Whether both functions are equal apart from names; see
    pub fn structural_eq(&self, other: &PrimFunc) -> bool {
        self.same(other)
            || super::print::anonymous_text(self) == super::print::anonymous_text(other)
    }

    /// An identity that no other data has as long as this handle or a clone exists.
    pub(crate) fn identity(&self) -> Identity {
        Identity::of(&self.0)
    }

    /// Whether both are the same handle.
    pub fn same(&self, other: &PrimFunc) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for PrimFunc {
    type Target = PrimFuncData;

    fn deref(&self) -> &PrimFuncData {
        &self.0
    }
}

impl PrimFuncData {
    /// Whether threads can share some loop.
    pub fn has_parallel_loops(&self) -> bool {
        let mut any = false;
        self.body.walk(&mut |stmt| {
            any |= matches!(stmt, Stmt::For { kind: ForKind::Parallel, .. });
        });
        any
    }

    /// The symbol of the function that stands behind this one, if another code generator makes it:
    /// the body is empty then.
    pub fn external_symbol(&self) -> Option<&str> {
        self.attrs.get(EXTERNAL_SYMBOL_ATTR).map(String::as_str)
    }

    /// Whether denormal numbers count as zeros while the function runs: what calls it has to set the
    /// processor's mode.
    pub fn flushes_denormals(&self) -> bool {
        self.attrs.get(FLUSH_DENORMALS_ATTR).is_some_and(|value| value == "true")
    }

    /// A function without parameters that does nothing.
    pub fn new(name: impl Into<String>) -> Self {
        PrimFuncData {
            name: name.into(),
            params: Vec::new(),
            dims: Vec::new(),
            inplace: Vec::new(),
            buffers: PrimaryMap::new(),
            vars: PrimaryMap::new(),
            body: Stmt::nop(),
            attrs: BTreeMap::new(),
            origin: Vec::new(),
        }
    }

    /// Declares a parameter.
    pub fn param(
        &mut self,
        kind: ParamKind,
        name: impl Into<String>,
        dtype: DType,
        spec: BufferSpec,
    ) -> BufferId {
        let buffer = self.buffer(name, dtype, spec, BufferScope::Param);
        self.params.push(Param { buffer, kind });
        buffer
    }

    /// Declares an input.
    pub fn input(&mut self, name: impl Into<String>, dtype: DType, spec: BufferSpec) -> BufferId {
        self.param(ParamKind::Input, name, dtype, spec)
    }

    /// Declares a constant input.
    pub fn constant(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        spec: BufferSpec,
    ) -> BufferId {
        self.param(ParamKind::Constant, name, dtype, spec)
    }

    /// Declares an output.
    pub fn output(&mut self, name: impl Into<String>, dtype: DType, spec: BufferSpec) -> BufferId {
        self.param(ParamKind::Output, name, dtype, spec)
    }

    /// Declares scratch memory; an `Allocate` must surround its uses.
    pub fn local(&mut self, name: impl Into<String>, dtype: DType, spec: BufferSpec) -> BufferId {
        self.buffer(name, dtype, spec, BufferScope::Local)
    }

    /// Declares registers; an `Allocate` must surround their uses.
    pub fn register(&mut self, name: impl Into<String>, dtype: DType, shape: &[i64]) -> BufferId {
        self.buffer(name, dtype, BufferSpec::dense(shape), BufferScope::Register)
    }

    /// Declares a buffer of any scope; parameters are declared by [`param`](Self::param).
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        spec: BufferSpec,
        scope: BufferScope,
    ) -> BufferId {
        self.buffers.push(Buffer { name: name.into(), dtype, spec, symbolic: None, scope })
    }

    /// Declares a row-major buffer whose extents may be expressions over dimensions.
    pub fn dense_buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        extents: Vec<PrimExpr>,
        scope: BufferScope,
    ) -> BufferId {
        self.buffers.push(Buffer::dense(name, dtype, extents, scope))
    }

    /// Declares a dimension that the caller hands over.
    pub fn dim(&mut self, name: impl Into<String>) -> PrimExpr {
        let var = self.var(name, PrimType::INDEX);
        self.dims.push(var);
        self.var_expr(var)
    }

    /// Declares a variable.
    pub fn var(&mut self, name: impl Into<String>, ty: impl Into<PrimType>) -> VarId {
        self.vars.push(VarDecl { name: name.into(), ty: ty.into() })
    }

    /// Declares a loop variable.
    pub fn index_var(&mut self, name: impl Into<String>) -> VarId {
        self.var(name, PrimType::INDEX)
    }

    /// A use of a variable.
    pub fn var_expr(&self, var: VarId) -> PrimExpr {
        PrimExpr::Var { var, ty: self.vars[var].ty }
    }

    /// A load; the indices are logical before `FlattenBuffer`.
    pub fn load(
        &self,
        buffer: BufferId,
        indices: impl IntoIterator<Item = impl Into<PrimExpr>>,
    ) -> PrimExpr {
        PrimExpr::Load {
            buffer,
            dtype: self.buffers[buffer].dtype,
            indices: indices.into_iter().map(Into::into).collect(),
        }
    }

    /// A store; a scalar value at a vector of positions is broadcast.
    pub fn store(
        &self,
        buffer: BufferId,
        indices: impl IntoIterator<Item = impl Into<PrimExpr>>,
        value: PrimExpr,
    ) -> Stmt {
        let indices: Vec<PrimExpr> = indices.into_iter().map(Into::into).collect();
        let lanes = indices.iter().map(|index| index.ty().lanes).max().unwrap_or(1);
        Stmt::Store { buffer, indices, value: value.broadcast_to(lanes) }
    }

    /// A prefetch for reading; see [`Stmt::Prefetch`] for `locality`.
    pub fn prefetch(
        &self,
        buffer: BufferId,
        indices: impl IntoIterator<Item = impl Into<PrimExpr>>,
        locality: u8,
    ) -> Stmt {
        let indices = indices.into_iter().map(Into::into).collect();
        let offset = PrimExpr::index(0);
        Stmt::Prefetch { buffer, indices, offset, locality, write: false }
    }

    /// A prefetch of the element that lies `offset` elements behind in memory.
    pub fn prefetch_behind(
        &self,
        buffer: BufferId,
        indices: impl IntoIterator<Item = impl Into<PrimExpr>>,
        offset: PrimExpr,
        locality: u8,
    ) -> Stmt {
        let indices = indices.into_iter().map(Into::into).collect();
        Stmt::Prefetch { buffer, indices, offset, locality, write: false }
    }

    /// A loop from 0 with a new variable; `body` is handed a use of it.
    pub fn for_(
        &mut self,
        name: impl Into<String>,
        extent: impl Into<PrimExpr>,
        kind: ForKind,
        body: impl FnOnce(&mut Self, PrimExpr) -> Stmt,
    ) -> Stmt {
        let var = self.index_var(name);
        let index = self.var_expr(var);
        let body = body(self, index);
        Stmt::for_loop(var, PrimExpr::index(0), extent.into(), kind, body)
    }

    /// A serial loop from 0.
    pub fn serial(
        &mut self,
        name: impl Into<String>,
        extent: impl Into<PrimExpr>,
        body: impl FnOnce(&mut Self, PrimExpr) -> Stmt,
    ) -> Stmt {
        self.for_(name, extent, ForKind::Serial, body)
    }

    /// A value with a name; `body` is handed a use of it.
    pub fn let_stmt(
        &mut self,
        name: impl Into<String>,
        value: PrimExpr,
        body: impl FnOnce(&mut Self, PrimExpr) -> Stmt,
    ) -> Stmt {
        let var = self.var(name, value.ty());
        let using = self.var_expr(var);
        let body = body(self, using);
        Stmt::let_(var, value, body)
    }

    /// A value used several times in an expression; `body` is handed a use of it. Leaves are used
    /// as they are.
    pub fn let_expr(
        &mut self,
        name: impl Into<String>,
        value: PrimExpr,
        body: impl FnOnce(&mut Self, PrimExpr) -> PrimExpr,
    ) -> PrimExpr {
        if value.is_leaf() {
            return body(self, value);
        }
        let var = self.var(name, value.ty());
        let using = self.var_expr(var);
        let body = body(self, using);
        PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) }
    }

    /// The parameter that a buffer is, if it is one.
    pub fn param_of(&self, buffer: BufferId) -> Option<Param> {
        self.params.iter().copied().find(|param| param.buffer == buffer)
    }

    /// The parameters that may be the same memory as a buffer: its partners in
    /// [`inplace`](Self::inplace).
    pub fn same_memory(&self, buffer: BufferId) -> impl Iterator<Item = BufferId> {
        let position = self.params.iter().position(|param| param.buffer == buffer);
        self.inplace.iter().filter_map(move |&(output, input)| {
            let other = match position? {
                position if position == output => input,
                position if position == input => output,
                _ => return None,
            };
            self.params.get(other).map(|param| param.buffer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a row, with declarations in either order and any names.
    fn copy(names: [&str; 3], reverse: bool, extent: i64) -> PrimFunc {
        let mut func = PrimFuncData::new(names[0]);
        if reverse {
            func.index_var("unused");
        }
        let x = func.input(names[1], DType::F32, BufferSpec::dense(&[extent]));
        let y = func.output(names[2], DType::F32, BufferSpec::dense(&[extent]));
        let body = func.serial(names[1], extent, |f, i| {
            let value = f.load(x, [i.clone()]);
            f.store(y, [i], value)
        });
        func.body = if reverse { Stmt::block(names[2], body) } else { body };
        func.origin.push(names[0].to_owned());
        PrimFunc::new(func)
    }

    #[test]
    fn equality_ignores_names_and_compares_extents() {
        let one = copy(["a", "x", "y"], false, 4);
        let same = copy(["b", "left", "right"], true, 4);
        let other = copy(["a", "x", "y"], false, 5);
        assert!(one.structural_eq(&same) && !one.structural_eq(&other));
        assert_eq!(one.structural_digest(), same.structural_digest());
        assert_ne!(one.structural_digest(), other.structural_digest());
    }

    #[test]
    fn a_shared_handle_is_copied_when_it_is_changed() {
        let one = copy(["a", "x", "y"], false, 4);
        let mut other = one.clone();
        assert!(one.same(&other));
        other.make_mut().name = "b".to_owned();
        assert_eq!((one.name.as_str(), other.name.as_str()), ("a", "b"));
        assert!(!one.same(&other));
    }
}
