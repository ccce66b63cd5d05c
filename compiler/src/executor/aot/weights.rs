//! The constants of a program in the layouts its kernels read, as one block of bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use cranelift_entity::SecondaryMap;

use super::{Pointer, SharedWeights, StoredConstants, UsedWeights, sharing};

use crate::diagnostics::{Problem, Report};
use crate::executor::{Program, ValueId, ValueKind};
use crate::ir::{BUFFER_ALIGNMENT, Digest};
use crate::memory::{MemoryPlan, Place, Storage};

/// Packed constants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackedWeights {
    /// All of them; to be placed at an address aligned to 64, and a multiple of that in size.
    pub bytes: Vec<u8>,
    /// Where each used constant is: in them, or in those of another model.
    pub places: SecondaryMap<ValueId, Option<Pointer>>,
    /// What is where in them.
    pub constants: StoredConstants,
    /// The weights of another model, if some of the constants are there.
    pub other: Option<UsedWeights>,
}

impl PackedWeights {
    /// Packs the constants that steps or output copies use, in the order of their first use. Equal
    /// elements in equal layouts are stored once, and not at all if `other` has them.
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
            let Some(dense) = constant.to_bytes() else {
                report.push(Problem::new(format!(
                    "the elements of the constant `{}` are not known, only their digest",
                    value.name
                )));
                continue;
            };
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
            weights.constants.insert(key, offset..weights.bytes.len() as u64);
            let aligned = weights.bytes.len().next_multiple_of(BUFFER_ALIGNMENT);
            weights.bytes.resize(aligned, 0);
            weights.places[id] = Some(Pointer::Weights(offset));
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

    use crate::ir::{BufferSpec, Constant, DType, TensorType};
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
        let floats: Vec<f32> = weights
            .bytes
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
        assert_eq!(fewer.bytes, weights.bytes[..64]);
        let used = fewer.other.unwrap();
        assert_eq!((used.symbol.as_str(), used.bytes, used.used_bytes), ("other_weights", 320, 48));
        let none = SharedWeights { constants: Arc::default(), ..other };
        let all = PackedWeights::pack(&b.program, &storage, &plan, Some(&none)).unwrap();
        assert_eq!(all, weights);
    }
}
