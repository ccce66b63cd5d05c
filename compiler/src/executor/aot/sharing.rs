//! Constants that several models of a program have, stored with one of them.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use crate::ir::{BufferSpec, Constant, DType, Digest};

/// Where each constant of a model is among its weights, in bytes, by what decides its bytes:
/// elements, width of an element, layout.
pub type StoredConstants = BTreeMap<Digest, Range<u64>>;

/// Weights of another model of the program, to which code may refer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedWeights {
    /// Their symbol.
    pub symbol: String,
    /// How many bytes they have.
    pub bytes: u64,
    /// What they hold.
    pub constants: Arc<StoredConstants>,
}

/// The weights of another model that a model uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedWeights {
    /// Their symbol, which is defined in an archive of the same name.
    pub symbol: String,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many of these the model uses.
    pub used_bytes: u64,
}

/// What a constant is found by in [`StoredConstants`].
pub(super) fn key(constant: &Constant, dtype: DType, spec: &BufferSpec) -> Digest {
    super::kernels::digest(|hasher| (constant.digest(), dtype.bits(), spec).hash(hasher))
}
