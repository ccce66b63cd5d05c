//! From a lowered loop function to the text of one C function.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::names::Names;
use super::preamble::Preamble;
use super::text::{comment, comment_text, memory_type, signature, wrap};
use crate::codegen::CodegenError;
use crate::codegen::kernel::{
    Locals, RegisterParts, first_position, has_weak_functions, is_distinct,
};
use crate::codegen::matrix::Matrices;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::{
    Buffer, BufferId, BufferScope, ParamKind, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt,
    VarId,
};

/// The C text of one kernel and what a caller must know about it.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// The C function's name.
    pub symbol: String,
    pub(in crate::codegen) definition: String,
    pub(super) preamble: Preamble,
}

/// Writes one kernel, to be called `symbol`, for a target. The function must have been lowered for
/// the same target.
pub fn generate(
    func: &PrimFunc,
    symbol: &str,
    target: &Target,
) -> std::result::Result<KernelSource, CodegenError> {
    let mut emitter = Emitter::new(func, symbol, target);
    emitter.kernel().map_err(|message| CodegenError { kernel: func.name.clone(), message })?;
    Ok(KernelSource {
        symbol: symbol.to_owned(),
        definition: emitter.definition,
        preamble: emitter.preamble,
    })
}

/// A name that the statements inside see.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    /// Its C type with the asterisk of a pointer, without the name.
    pub(super) ctype: String,
    pub(super) name: String,
}

/// How a register buffer is held: in variables of one type.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub(super) lanes: u32,
    /// By position of the first element.
    pub(super) variables: BTreeMap<i64, String>,
}

pub(super) type Result<T> = std::result::Result<T, String>;

/// Writes the text of one kernel.
pub(super) struct Emitter<'a> {
    pub(super) func: &'a PrimFuncData,
    pub(super) target: &'a Target,
    symbol: &'a str,
    pub(super) names: Names,
    pub(super) preamble: Preamble,
    /// Finished functions: outlined loop bodies, then the kernel.
    pub(in crate::codegen) definition: String,
    /// Lines of the function being written.
    pub(super) lines: Vec<String>,
    pub(super) indent: usize,
    /// Variables and buffers that are visible, by entity.
    pub(super) vars: BTreeMap<VarId, Binding>,
    pub(super) buffers: BTreeMap<BufferId, Binding>,
    pub(super) registers: BTreeMap<BufferId, Registers>,
    /// Width of the masks that hold a vector of `Bool`.
    pub(super) mask_bits: SecondaryMap<VarId, u32>,
    /// Whether the text is an index, where constants need no suffix.
    pub(super) in_index: bool,
    /// Whether the statement is inside a parallel loop.
    pub(super) in_body: bool,
    /// Whether the function being written reads the context.
    pub(super) uses_ctx: bool,
    /// Number of loop bodies written.
    pub(super) bodies: usize,
    pub(super) locals: Locals,
    pub(super) matrices: Matrices,
}

impl<'a> Emitter<'a> {
    fn new(func: &'a PrimFuncData, symbol: &'a str, target: &'a Target) -> Self {
        Emitter {
            func,
            target,
            symbol,
            names: Names::default(),
            preamble: Preamble::default(),
            definition: String::new(),
            lines: Vec::new(),
            indent: 1,
            vars: BTreeMap::new(),
            buffers: BTreeMap::new(),
            registers: BTreeMap::new(),
            mask_bits: SecondaryMap::new(),
            in_index: false,
            in_body: false,
            uses_ctx: false,
            bodies: 0,
            locals: Locals::default(),
            matrices: Matrices::of(func, target),
        }
    }

    fn kernel(&mut self) -> Result<()> {
        for (position, param) in self.func.params.iter().enumerate() {
            let buffer = &self.func.buffers[param.buffer];
            let element = self.element_type(buffer)?;
            let constness = if param.kind == ParamKind::Output { "" } else { "const " };
            let restrict = if is_distinct(self.func, position) { "restrict " } else { "" };
            let binding = Binding {
                ctype: format!("{constness}{element} *{restrict}"),
                name: self.names.unique(&buffer.name),
            };
            self.buffers.insert(param.buffer, binding);
        }
        for &dim in &self.func.dims {
            let name = self.names.unique(&self.func.vars[dim].name);
            self.vars.insert(dim, Binding { ctype: "i64 ".to_owned(), name });
        }
        let body = &self.func.body;
        self.stmt(body)?;
        let lines = std::mem::take(&mut self.lines);
        self.definition.push_str(&comment(&self.func.origin));
        if self.func.flushes_denormals() {
            // Its operations must not move to where the mode is another one.
            self.definition.push_str("__attribute__((noinline))\n");
        }
        if has_weak_functions(self.target) {
            self.definition.push_str("__attribute__((weak))\n");
        }
        self.definition.push_str(&format!("{} {{\n", self.prototype()));
        if !self.uses_ctx {
            self.definition.push_str("    (void)ctx;\n");
        }
        for line in lines {
            self.definition.push_str(&line);
            self.definition.push('\n');
        }
        self.definition.push_str("}\n");
        Ok(())
    }

    fn prototype(&self) -> String {
        let mut params = vec!["const struct niello_context *ctx".to_owned()];
        for param in &self.func.params {
            let binding = &self.buffers[&param.buffer];
            params.push(format!("{}{}", binding.ctype, binding.name));
        }
        for dim in &self.func.dims {
            params.push(format!("i64 {}", self.vars[dim].name));
        }
        signature(&format!("void {}", self.symbol), &params)
    }

    /// The name of a function or structure that belongs to this kernel.
    pub(super) fn own_name(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.symbol)
    }

    /// Appends a line to the function being written.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        wrap(text.as_ref(), self.indent, &mut self.lines);
    }

    /// Appends a comment to the function being written.
    pub(super) fn comment(&mut self, text: &str) {
        self.lines.push(format!("{}/* {} */", "    ".repeat(self.indent), comment_text(text)));
    }

    /// The C type of a value; a vector of `Bool` is a mask of the given width.
    pub(super) fn value_type(&mut self, ty: PrimType, mask_bits: u32) -> Result<String> {
        let ty = if ty.dtype == crate::ir::DType::Bool && !ty.is_scalar() {
            ty.with_dtype(super::text::mask_dtype(mask_bits))
        } else {
            ty
        };
        self.check_type(ty)?;
        Ok(self.preamble.type_name(ty))
    }

    /// Whether C has a data type on the target.
    fn has(&self, dtype: DType) -> bool {
        let is_known = super::text::scalar_type(dtype).is_some();
        is_known && (dtype != DType::F16 || self.target.has_fp16_arithmetic())
    }

    /// The type of the elements of a buffer in memory.
    pub(super) fn element_type(&self, buffer: &Buffer) -> Result<&'static str> {
        let (name, dtype) = (&buffer.name, buffer.dtype);
        let known = memory_type(dtype).filter(|_| self.has(dtype));
        known.ok_or_else(|| format!("buffer `{name}`: the C backend has no {dtype}"))
    }

    /// Whether C can hold a value: a known data type, and a vector no wider than a register.
    pub(super) fn check_type(&self, ty: PrimType) -> Result<()> {
        if !self.has(ty.dtype) {
            return Err(format!("the C backend has no {}", ty.dtype));
        }
        if ty.is_scalar() {
            return Ok(());
        }
        if !ty.lanes.is_power_of_two() {
            return Err(format!("{ty}: the lanes of a vector must be a power of two"));
        }
        let widest = self.target.vector_bits();
        if ty.bits() > widest {
            return Err(format!(
                "{ty} has {} bits, but the vectors of the target have at most {widest}",
                ty.bits()
            ));
        }
        Ok(())
    }

    /// Names the variables that hold a register buffer in the statement where it lives.
    pub(super) fn registers_of(&mut self, id: BufferId, body: &Stmt) -> Result<Registers> {
        let buffer = &self.func.buffers[id];
        let parts = RegisterParts::of(self.func, id, body)?;
        let name = |&position| (position, self.names.unique(&parts.name(buffer, position)));
        Ok(Registers { lanes: parts.lanes, variables: parts.positions.iter().map(name).collect() })
    }

    /// The variable that holds part of a register buffer.
    pub(super) fn register(&self, id: BufferId, indices: &[PrimExpr]) -> Result<String> {
        let registers = self.registers.get(&id);
        let position = first_position(indices);
        registers
            .zip(position)
            .and_then(|(registers, position)| registers.variables.get(&position))
            .cloned()
            .ok_or_else(|| {
                format!(
                    "register buffer `{}` is used outside its Allocate",
                    self.func.buffers[id].name
                )
            })
    }

    /// Whether a buffer is held in registers.
    pub(super) fn is_register(&self, id: BufferId) -> bool {
        self.func.buffers[id].scope == BufferScope::Register
    }

    /// A visible buffer's pointer.
    pub(super) fn pointer(&self, id: BufferId) -> Result<String> {
        self.buffers.get(&id).map(|binding| binding.name.clone()).ok_or_else(|| {
            format!("buffer `{}` is used outside its Allocate", self.func.buffers[id].name)
        })
    }
}
