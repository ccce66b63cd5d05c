//! The interpreter's memory, and its checks of each access.

use super::super::{Buffer, BufferId, BufferScope, ParamKind, PrimExpr, scalar};
use super::value::{Value, unsupported};
use super::{Interp, Result};

/// The bytes of local memory before the first store: a large number as floats, so that a result
/// that depends on padding lanes, which may be read, is far off.
const PADDING: u8 = 0x7f;

/// A buffer's memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    /// For local memory, whether each element was stored to.
    written: Option<Vec<bool>>,
}

impl Memory {
    /// A parameter's memory, with the caller's contents.
    pub(super) fn of_param(bytes: Vec<u8>) -> Memory {
        Memory { bytes, written: None }
    }

    /// Local memory for a buffer, all of it unwritten.
    pub(super) fn local(decl: &Buffer) -> Result<Memory> {
        let len = byte_len(decl)?;
        let elements = len / decl.dtype.bytes().unwrap_or(1);
        Ok(Memory { bytes: vec![PADDING; len], written: Some(vec![false; elements]) })
    }
}

impl Interp<'_> {
    /// Loads the lanes of an access, or stores them and returns nothing. Lanes for which `is_used`
    /// is false may be loaded before they are written.
    pub(super) fn access(
        &mut self,
        id: BufferId,
        indices: &[PrimExpr],
        stored: Option<Value>,
        is_used: impl Fn(usize) -> bool,
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
                if !defined && is_used(lane) && !is_padding(decl, &index) {
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

/// The position of an element, checked against the layout.
fn position(decl: &Buffer, index: &[i64], stored: Option<u64>) -> Result<usize> {
    let spec = &decl.spec;
    let inside = index.len() == spec.shape().len()
        && index.iter().zip(spec.shape()).all(|(i, extent)| (0..*extent).contains(i));
    if !inside {
        if !spec.is_addressable(index) {
            return Err(format!("`{}`{index:?} is outside its shape {spec}", decl.name));
        }
        // Padding lanes may hold anything, and so may the border of what is the function's own.
        let is_shared = decl.scope == BufferScope::Param && !is_padding(decl, index);
        if is_shared && stored.is_some_and(|bits| bits != 0) {
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

/// Whether an addressable index is in the padding lanes of a block.
fn is_padding(decl: &Buffer, index: &[i64]) -> bool {
    let extents = decl.spec.shape().iter().zip(decl.spec.halo());
    index.iter().zip(extents).any(|(&index, (&extent, halo))| index >= extent + halo.after)
}

/// The bytes of a buffer in its physical layout.
pub(super) fn byte_len(buffer: &Buffer) -> Result<usize> {
    let elements = buffer.spec.physical_len().map_err(|error| error.to_string())?;
    usize::try_from(elements)
        .ok()
        .zip(buffer.dtype.bytes())
        .and_then(|(elements, width)| elements.checked_mul(width))
        .ok_or_else(|| format!("buffer `{}` of {} cannot be held", buffer.name, buffer.dtype))
}
