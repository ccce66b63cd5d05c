//! The elements of large constants, kept beside a text that names them by digest.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use crate::ir::{self, Constant, Digest, SharedBytes};

const MAGIC: &[u8; 8] = b"niello\x00S";
const VERSION: u32 = 1;
/// Magic, version, number of entries.
const HEADER_BYTES: usize = 8 + 4 + 8;
/// Digest and length.
const ENTRY_BYTES: usize = 32 + 8;

/// Bytes by their BLAKE3 digest, in the order of the digests.
///
/// As a file, all numbers little-endian: `niello\0S`, the version (`u32`, 1), the number of entries
/// (`u64`); for each entry its digest (32 bytes) and length (`u64`); then the bytes of the entries,
/// one after the other.
#[derive(Clone, Debug, Default)]
pub struct Sidecar {
    entries: BTreeMap<Digest, SharedBytes>,
}

/// The error of bytes that are no sidecar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SidecarError {
    /// The bytes do not start with the magic number.
    NotASidecar,
    /// No reader for that version exists.
    Version(u32),
    /// The file is longer or shorter than its entries.
    Length {
        /// The size that the entries need.
        expected: u128,
        /// The size of the file.
        found: u64,
    },
    /// The bytes of an entry do not have its digest.
    Corrupt(Digest),
}

impl fmt::Display for SidecarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SidecarError::NotASidecar => f.write_str("this is not a sidecar of a niello text"),
            SidecarError::Version(found) => {
                write!(f, "the sidecar has version {found}, but {VERSION} is read")
            }
            SidecarError::Length { expected, found } => {
                write!(f, "the sidecar must have {expected} bytes, but it has {found}")
            }
            SidecarError::Corrupt(digest) => {
                write!(f, "the sidecar is corrupt: an entry is not {}", DigestText(digest))
            }
        }
    }
}

impl std::error::Error for SidecarError {}

/// A digest as text prints it.
pub(super) struct DigestText<'a>(pub(super) &'a Digest);

impl fmt::Display for DigestText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blake3:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Sidecar {
    /// An empty sidecar.
    pub fn new() -> Sidecar {
        Sidecar::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of that digest.
    pub fn get(&self, digest: &Digest) -> Option<&SharedBytes> {
        self.entries.get(digest)
    }

    /// Adds the elements of a constant; an opaque constant has none, and adds nothing.
    pub fn insert(&mut self, constant: &Constant) {
        if let Some(bytes) = constant.to_bytes() {
            self.entries.entry(*constant.digest()).or_insert(bytes);
        }
    }

    /// Writes the sidecar as a file.
    ///
    /// # Errors
    ///
    /// The errors of the writer.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(self.entries.len() as u64).to_le_bytes())?;
        for (digest, bytes) in &self.entries {
            out.write_all(digest)?;
            out.write_all(&(bytes.len() as u64).to_le_bytes())?;
        }
        for bytes in self.entries.values() {
            out.write_all(bytes)?;
        }
        Ok(())
    }

    /// Reads the contents of a file. The entries share `file`'s bytes.
    ///
    /// # Errors
    ///
    /// If the bytes are no sidecar, are cut short, or an entry does not have its digest.
    pub fn read(file: &SharedBytes) -> Result<Sidecar, SidecarError> {
        let header = file.get(..HEADER_BYTES).ok_or(SidecarError::NotASidecar)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        let (version, count) = numbers.split_at(4);
        if magic != MAGIC {
            return Err(SidecarError::NotASidecar);
        }
        let version = u32::from_le_bytes(version.try_into().expect("split at four bytes"));
        if version != VERSION {
            return Err(SidecarError::Version(version));
        }
        let count = read_u64(count);
        let found = file.len() as u64;
        let table = u128::from(count) * ENTRY_BYTES as u128 + HEADER_BYTES as u128;
        if table > u128::from(found) {
            return Err(SidecarError::Length { expected: table, found });
        }
        // The table lies within the file, so its length fits an index.
        let table_end = table as usize;
        let entries = || {
            file[HEADER_BYTES..table_end].chunks_exact(ENTRY_BYTES).map(|entry| {
                let (digest, len) = entry.split_at(32);
                let digest: Digest = digest.try_into().expect("split at 32 bytes");
                (digest, read_u64(len))
            })
        };
        let expected = entries().map(|(_, len)| u128::from(len)).sum::<u128>() + table;
        if expected != u128::from(found) {
            return Err(SidecarError::Length { expected, found });
        }
        let mut sidecar = Sidecar::new();
        let mut offset = table_end;
        for (digest, len) in entries() {
            let bytes = file.slice(offset, len as usize).expect("the lengths add up to the file's");
            offset += len as usize;
            if ir::digest(&bytes) != digest {
                return Err(SidecarError::Corrupt(digest));
            }
            sidecar.entries.insert(digest, bytes);
        }
        Ok(sidecar)
    }
}

fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller split off eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut sidecar = Sidecar::new();
        sidecar.insert(&Constant::from_i64(&[2], &[1, 2]).unwrap());
        sidecar.insert(&Constant::from_f32(&[3], &[0.5; 3]).unwrap());
        sidecar.insert(&Constant::from_f32(&[3], &[0.5; 3]).unwrap());
        let mut file = Vec::new();
        sidecar.write_to(&mut file).unwrap();
        file
    }

    #[test]
    fn a_written_sidecar_reads_back() {
        let file = SharedBytes::new(sample());
        let sidecar = Sidecar::read(&file).unwrap();
        assert_eq!(sidecar.len(), 2);
        let constant = Constant::from_i64(&[2], &[1, 2]).unwrap();
        assert_eq!(sidecar.get(constant.digest()).unwrap()[..], constant.to_bytes().unwrap()[..]);
        let mut again = Vec::new();
        sidecar.write_to(&mut again).unwrap();
        assert_eq!(again, file[..]);
    }

    #[test]
    fn a_damaged_sidecar_is_an_error() {
        let file = sample();
        for len in 0..file.len() {
            assert!(Sidecar::read(&SharedBytes::new(file[..len].to_vec())).is_err(), "{len}");
        }
        for index in 0..file.len() {
            let mut damaged = file.clone();
            damaged[index] ^= 0x80;
            assert!(Sidecar::read(&SharedBytes::new(damaged)).is_err(), "{index}");
        }
        let mut longer = file;
        longer.push(0);
        let error = Sidecar::read(&SharedBytes::new(longer)).unwrap_err();
        assert!(error.to_string().contains("bytes, but it has"), "{error}");
    }
}
