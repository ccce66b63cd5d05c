//! The constants of a program in the layouts its kernels read, as one block of bytes.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::diagnostics::{Problem, Report};
use crate::executor::{Program, ValueId, ValueKind};
use crate::ir::{BUFFER_ALIGNMENT, BufferSpec, Digest};
use crate::memory::{MemoryPlan, Place, Storage};

/// Packed constants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackedWeights {
    /// All of them; to be placed at an address aligned to 64, and a multiple of that in size.
    pub bytes: Vec<u8>,
    /// Where each used constant is.
    pub offsets: SecondaryMap<ValueId, Option<u64>>,
}

impl PackedWeights {
    /// Packs the constants that steps or output copies use, in the order of their first use. Equal
    /// elements in equal layouts are stored once.
    ///
    /// # Errors
    ///
    /// A constant's elements are not known, or cannot be brought into its layout.
    pub fn pack(
        program: &Program,
        storage: &Storage,
        plan: &MemoryPlan,
    ) -> Result<PackedWeights, Report> {
        let mut weights = PackedWeights::default();
        let mut known: BTreeMap<(Digest, u32, &BufferSpec), u64> = BTreeMap::new();
        let mut report = Report::new();
        let steps = program.steps.iter().flat_map(|step| step.args.iter().copied());
        let used = steps.chain(storage.copies.iter().map(|copy| copy.from));
        for used in used {
            let Place::Weights(id) = plan.places[used] else { continue };
            let value = &program.values[id];
            let ValueKind::Constant(constant) = &value.kind else { continue };
            if weights.offsets[id].is_some() {
                continue;
            }
            let Some(dense) = constant.to_bytes() else {
                report.push(Problem::new(format!(
                    "the elements of the constant `{}` are not known, only their digest",
                    value.name
                )));
                continue;
            };
            let key = (*constant.digest(), value.dtype.bits(), &value.spec);
            if let Some(&offset) = known.get(&key) {
                weights.offsets[id] = Some(offset);
                continue;
            }
            let offset = weights.bytes.len() as u64;
            if value.spec.is_dense() {
                weights.bytes.extend_from_slice(&dense);
            } else {
                match value.spec.pack(&dense, value.dtype) {
                    Ok(packed) => weights.bytes.extend_from_slice(&packed),
                    Err(error) => {
                        report.push(Problem::new(format!("constant `{}`: {error}", value.name)));
                    }
                }
            }
            let aligned = weights.bytes.len().next_multiple_of(BUFFER_ALIGNMENT);
            weights.bytes.resize(aligned, 0);
            known.insert(key, offset);
            weights.offsets[id] = Some(offset);
        }
        report.into_result(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::testing::ProgramBuilder;
    use crate::ir::{Constant, DType, TensorType};
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
        let weights = PackedWeights::pack(&b.program, &storage, &plan).unwrap();

        let offsets = [unused, dense, packed, same, splat].map(|id| weights.offsets[id]);
        assert_eq!(offsets, [None, Some(0), Some(64), Some(0), Some(128)]);
        let floats: Vec<f32> = weights
            .bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(floats[..6], values);
        assert_eq!(floats[16..22], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(floats[32..38], [7.0; 6]);
        assert_eq!(floats.len(), 48);
    }
}
