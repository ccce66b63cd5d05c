//! The constants of a program in the layouts its kernels read, as one block of bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use cranelift_entity::SecondaryMap;

use super::{Pointer, SharedWeights, StoredConstants, UsedWeights, sharing};
use crate::diagnostics::{Problem, Report};
use crate::executor::{Program, ValueId, ValueKind};
use crate::ir::{BUFFER_ALIGNMENT, BufferSpec, Constant, DType, Digest, SharedBytes, TensorType};
use crate::memory::{MemoryPlan, Place, Storage};
use crate::target::Endian;

/// Most bytes of a constant that are packed before they are written.
const PART_BYTES: usize = 1 << 20;

/// A model's weights: constants, each in the layout in which kernels read it and from an offset
/// that is a multiple of 64.
///
/// They are packed while they are written, a part at a time: weights are the bulk of a model, and
/// memory never has to hold them in two layouts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    constants: Vec<Packed>,
    len: usize,
    endian: Endian,
}

/// A constant of [`Weights`].
#[derive(Clone, PartialEq, Eq, Debug)]
struct Packed {
    constant: Constant,
    dtype: DType,
    spec: BufferSpec,
    /// Bytes that it takes, without the padding behind it.
    len: usize,
}

impl Weights {
    /// Number of bytes, a multiple of 64 if a program's constants were packed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes all bytes, in order.
    ///
    /// # Errors
    ///
    /// Those of `out`; and if there is no memory to write out a constant that has one number in
    /// every place.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let mut left = self.len;
        let mut swapped = Vec::new();
        for Packed { constant, dtype, spec, len } in &self.constants {
            let dense = constant.to_bytes().ok_or(io::ErrorKind::OutOfMemory)?;
            let size = (dtype.bits() / 8).max(1) as usize;
            let write = |part: &[u8]| {
                if self.endian == Endian::Little || size == 1 {
                    return out.write_all(part);
                }
                swapped.clear();
                part.chunks(size).for_each(|element| swapped.extend(element.iter().rev()));
                out.write_all(&swapped)
            };
            match spec.is_dense() {
                true => dense.chunks(PART_BYTES).try_for_each(write)?,
                false => spec.pack_in_parts(&dense, *dtype, PART_BYTES, write)?,
            }
            left -= len;
            let padding = (len.next_multiple_of(BUFFER_ALIGNMENT) - len).min(left);
            out.write_all(&[0; BUFFER_ALIGNMENT][..padding])?;
            left -= padding;
        }
        Ok(())
    }

    /// The same constants in the order of bytes of a machine: unless told, that of a little-endian
    /// one.
    #[must_use]
    pub fn in_order(self, endian: Endian) -> Weights {
        Weights { endian, ..self }
    }

    /// What [`niello_runtime::checksum`] is of the bytes.
    ///
    /// # Errors
    ///
    /// As [`write_to`](Self::write_to).
    pub fn checksum(&self) -> io::Result<u64> {
        let mut sum = Summed(niello_runtime::Checksum::new());
        self.write_to(&mut sum)?;
        Ok(sum.0.finish())
    }

    /// Adds a constant at the end and returns its place, or why its elements cannot be written.
    fn push(
        &mut self,
        constant: &Constant,
        dtype: DType,
        spec: &BufferSpec,
    ) -> Result<Range<u64>, String> {
        if constant.is_opaque() {
            return Err("its elements are not known, only their digest".to_owned());
        }
        let too_large = || "it is too large".to_owned();
        let len = match spec.is_dense() {
            true => usize::try_from(constant.byte_len()).map_err(|_| too_large())?,
            false => spec.packed_bytes(dtype).map_err(|error| error.to_string())?,
        };
        let offset = self.len;
        let end = len.checked_next_multiple_of(BUFFER_ALIGNMENT);
        self.len = end.and_then(|len| offset.checked_add(len)).ok_or_else(too_large)?;
        let (constant, spec) = (constant.clone(), spec.clone());
        self.constants.push(Packed { constant, dtype, spec, len });
        Ok(offset as u64..(offset + len) as u64)
    }
}

impl From<Vec<u8>> for Weights {
    /// Bytes as they are.
    fn from(bytes: Vec<u8>) -> Self {
        let (len, dtype) = (bytes.len(), DType::U8);
        let dims = [i64::try_from(len).expect("no vector is larger")];
        let constant =
            Constant::new(TensorType::from_consts(&dims, dtype), SharedBytes::new(bytes));
        let constant = constant.expect("the type is that of the bytes");
        Weights {
            constants: vec![Packed { constant, dtype, spec: BufferSpec::dense(&dims), len }],
            len,
            endian: Endian::Little,
        }
    }
}

/// Adds up what is written to it.
struct Summed(niello_runtime::Checksum);

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The weights of a program, and where its values are in them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackedWeights {
    /// The constants' bytes, to be placed at an address aligned to 64.
    pub bytes: Weights,
    /// Where each used constant is: in them, or in those of another model.
    pub places: SecondaryMap<ValueId, Option<Pointer>>,
    /// What is where in them.
    pub constants: StoredConstants,
    /// The weights of another model, if some of the constants are there.
    pub other: Option<UsedWeights>,
}

impl PackedWeights {
    /// Lays out the constants that steps or output copies use, in the order of their first use.
    /// Equal elements in equal layouts are stored once, and not at all if `other` has them.
    ///
    /// # Errors
    ///
    /// A constant's elements are not known, or cannot be brought into its layout.
    pub fn pack(
        program: &Program,
        storage: &Storage,
        plan: &MemoryPlan,
        other: Option<&SharedWeights>,
    ) -> Result<PackedWeights, Report> {
        let mut weights = PackedWeights::default();
        let mut found: BTreeMap<Digest, &Range<u64>> = BTreeMap::new();
        let mut report = Report::new();
        let steps = program.steps.iter().flat_map(|step| step.args.iter().copied());
        let used = steps.chain(storage.copies.iter().map(|copy| copy.from));
        for used in used {
            let Place::Weights(id) = plan.places[used] else { continue };
            let value = &program.values[id];
            let ValueKind::Constant(constant) = &value.kind else { continue };
            if weights.places[id].is_some() {
                continue;
            }
            let key = sharing::key(constant, value.dtype, &value.spec);
            if let Some(place) = other.and_then(|other| other.constants.get(&key)) {
                weights.places[id] = Some(Pointer::Shared(place.start));
                found.insert(key, place);
                continue;
            }
            if let Some(place) = weights.constants.get(&key) {
                weights.places[id] = Some(Pointer::Weights(place.start));
                continue;
            }
            match weights.bytes.push(constant, value.dtype, &value.spec) {
                Ok(place) => {
                    weights.places[id] = Some(Pointer::Weights(place.start));
                    weights.constants.insert(key, place);
                }
                Err(error) => {
                    report.push(Problem::new(format!("constant `{}`: {error}", value.name)));
                }
            }
        }
        weights.other = other.filter(|_| !found.is_empty()).map(|other| UsedWeights {
            symbol: other.symbol.clone(),
            bytes: other.bytes,
            used_bytes: found.values().map(|place| place.end - place.start).sum(),
        });
        report.into_result(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use std::sync::Arc;

    use crate::memory::plan;

    #[test]
    fn constants_are_packed_in_order_of_use_and_stored_once() {
        let mut b = ProgramBuilder::default();
        let x = b.input("x", &[2, 3]);
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let unused = b.constant("unused", Constant::from_f32(&[2, 3], &[9.0; 6]).unwrap());
        let same = b.constant("same", Constant::from_f32(&[2, 3], &values).unwrap());
        let dense = b.constant("dense", Constant::from_f32(&[2, 3], &values).unwrap());
        let packed = b.constant("packed", Constant::from_f32(&[2, 3], &values).unwrap());
        b.program.values[packed].spec = BufferSpec::packed(&[2, 3], &[(1, 1), (0, 1)]);
        let splat =
            Constant::splat(TensorType::from_consts(&[2, 3], DType::F32), &7f32.to_le_bytes());
        let splat = b.constant("splat", splat.unwrap());
        let spec = BufferSpec::dense(&[2, 3]);
        let sum = |x: &[crate::tir::PrimExpr]| x[0].clone() + x[1].clone();
        let y = b.map("add", &[x, dense], spec.clone(), sum);
        let y = b.map("add", &[y, packed], spec.clone(), sum);
        let y = b.map("add", &[y, same], spec, sum);
        b.output(y);
        b.output(splat);
        b.program.verify().unwrap();
        let storage = Storage::of(&b.program).unwrap();
        let plan = plan(&b.program, &storage, &Default::default()).unwrap();
        let weights = PackedWeights::pack(&b.program, &storage, &plan, None).unwrap();

        let places = |weights: &PackedWeights| {
            [unused, dense, packed, same, splat].map(|id| weights.places[id])
        };
        let own = |offset| Some(Pointer::Weights(offset));
        assert_eq!(places(&weights), [None, own(0), own(64), own(0), own(128)]);
        let mut bytes = Vec::new();
        weights.bytes.write_to(&mut bytes).unwrap();
        assert_eq!(bytes.len(), weights.bytes.len());
        let mut other_order = Vec::new();
        weights.bytes.clone().in_order(Endian::Big).write_to(&mut other_order).unwrap();
        let swapped: Vec<u8> = bytes.chunks(4).flat_map(|e| e.iter().rev().copied()).collect();
        assert_eq!(other_order, swapped);
        assert_eq!(weights.bytes.checksum().unwrap(), niello_runtime::checksum(&bytes));
        let floats: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(floats[..6], values);
        assert_eq!(floats[16..22], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(floats[32..38], [7.0; 6]);
        assert_eq!(floats.len(), 48);

        // Another model that has the second and the third of them.
        let mut constants = weights.constants.clone();
        constants.retain(|_, place| place.start > 0);
        let symbol = "other_weights".to_owned();
        let other = SharedWeights { symbol, bytes: 320, constants: Arc::new(constants) };
        let fewer = PackedWeights::pack(&b.program, &storage, &plan, Some(&other)).unwrap();
        let there = |offset| Some(Pointer::Shared(offset));
        assert_eq!(places(&fewer), [None, own(0), there(64), own(0), there(128)]);
        let mut own_bytes = Vec::new();
        fewer.bytes.write_to(&mut own_bytes).unwrap();
        assert_eq!(own_bytes, bytes[..64]);
        let used = fewer.other.unwrap();
        assert_eq!((used.symbol.as_str(), used.bytes, used.used_bytes), ("other_weights", 320, 48));
        let none = SharedWeights { constants: Arc::default(), ..other };
        let all = PackedWeights::pack(&b.program, &storage, &plan, Some(&none)).unwrap();
        assert_eq!(all, weights);
    }
}
