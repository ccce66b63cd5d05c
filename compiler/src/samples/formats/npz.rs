//! numpy's `.npz`: a zip archive of `.npy` files, compressed or not.

use std::fs::File;
use std::io::{Cursor, Read, Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::{MAX_BYTES, buffered, npy};
use crate::ir::Constant;

/// Most arrays in one archive: more than any model has inputs.
const MAX_ENTRIES: usize = 1 << 16;

/// Reads a file.
pub(super) fn read_file(file: File) -> Result<Vec<(String, Constant)>, String> {
    let (reader, _) = buffered(file)?;
    read(reader)
}

/// Reads the arrays of an archive, in its order.
fn read(reader: impl Read + Seek) -> Result<Vec<(String, Constant)>, String> {
    let mut archive = ZipArchive::new(reader)
        .map_err(|error| format!("this is no archive that numpy.savez wrote: {error}"))?;
    if archive.len() > MAX_ENTRIES {
        return Err(format!(
            "the archive has {} files; at most {MAX_ENTRIES} are read",
            archive.len()
        ));
    }
    let mut tensors = Vec::with_capacity(archive.len());
    let mut left = MAX_BYTES;
    for index in 0..archive.len() {
        let failed = |error| format!("file {index} of the archive cannot be read: {error}");
        let mut entry = archive.by_index(index).map_err(failed)?;
        let name = entry.name().map_err(failed)?.into_owned();
        let Some(key) = name.strip_suffix(".npy") else {
            return Err(format!("`{name}` in the archive is no .npy file"));
        };
        let length = entry.size();
        left = left.checked_sub(length).ok_or_else(|| {
            format!("the archive unpacks to more than {} GiB, which is not read", MAX_BYTES >> 30)
        })?;
        let tensor = npy::read(&mut entry, length).map_err(|error| format!("`{name}`: {error}"))?;
        // The sum of the bytes is checked where the reader meets their end.
        let end = entry.read(&mut [0]);
        end.map_err(|error| format!("`{name}`: cannot read the elements: {error}"))?;
        tensors.push((key.to_owned(), tensor));
    }
    Ok(tensors)
}

/// Arrays as an archive, not compressed, as `numpy.savez` has them. Equal arrays give equal bytes.
pub(super) fn to_bytes(tensors: &[(&str, &Constant)]) -> Result<Vec<u8>, String> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, tensor) in tensors {
        let failed = |error: &dyn std::fmt::Display| format!("`{name}`: {error}");
        let bytes = npy::to_bytes(tensor).map_err(|error| failed(&error))?;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(u32::try_from(bytes.len()).is_err());
        archive.start_file(format!("{name}.npy"), options).map_err(|error| failed(&error))?;
        archive.write_all(&bytes).map_err(|error| failed(&error))?;
    }
    archive.finish().map(Cursor::into_inner).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Damage is an error or other arrays, and never ends the process.
        #[test]
        fn damaged_archives_do_not_panic(
            edits in vec((0usize..500, any::<u8>()), 1..8),
            length in 100usize..500,
        ) {
            let array = Constant::from_f32(&[40], &[0.25; 40]).unwrap();
            let npy = npy::to_bytes(&array).unwrap();
            let mut bytes = archive("x.npy", CompressionMethod::Deflated, &npy);
            for (at, byte) in edits {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let _ = parse(&bytes);
            bytes.truncate(length);
            let _ = parse(&bytes);
        }
    }

    fn parse(bytes: &[u8]) -> Result<Vec<(String, Constant)>, String> {
        read(Cursor::new(bytes))
    }

    fn archive(name: &str, method: CompressionMethod, bytes: &[u8]) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(name, options).unwrap();
        archive.write_all(bytes).unwrap();
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn arrays_come_back_in_order_compressed_or_not() {
        let a = Constant::from_i64(&[2], &[1, -1]).unwrap();
        let b = Constant::from_f32(&[1000], &[0.5; 1000]).unwrap();
        let names = ["scores:0", "/model/a.b"];
        let bytes = to_bytes(&[(names[0], &b), (names[1], &a)]).unwrap();
        assert_eq!(bytes, to_bytes(&[(names[0], &b), (names[1], &a)]).unwrap());
        let expected = vec![(names[0].to_owned(), b.clone()), (names[1].to_owned(), a)];
        assert_eq!(parse(&bytes), Ok(expected));
        let npy = npy::to_bytes(&b).unwrap();
        let deflated = archive("b.npy", CompressionMethod::Deflated, &npy);
        assert!(deflated.len() < npy.len() / 4);
        assert_eq!(parse(&deflated), Ok(vec![("b".to_owned(), b)]));
    }

    #[test]
    fn mistakes_name_the_file_in_the_archive() {
        let other = archive("readme.txt", CompressionMethod::Stored, b"text");
        assert_eq!(parse(&other).unwrap_err(), "`readme.txt` in the archive is no .npy file");
        let bad = archive("x.npy", CompressionMethod::Stored, b"\x93NUMPY\x01");
        assert_eq!(parse(&bad).unwrap_err(), "`x.npy`: the file is cut short in its header");
        assert!(parse(b"PK\x03\x04").unwrap_err().contains("no archive that numpy.savez wrote"));
        let twice = Constant::from_i64(&[1], &[1]).unwrap();
        assert!(to_bytes(&[("x", &twice), ("x", &twice)]).unwrap_err().starts_with("`x`: "));
    }

    /// The bytes of an array whose sum does not fit are not taken for the array.
    #[test]
    fn damaged_archives_are_refused() {
        let array = Constant::from_i64(&[64], &[7; 64]).unwrap();
        let mut bytes = to_bytes(&[("x", &array)]).unwrap();
        let middle = bytes.windows(8).rposition(|w| w == 7i64.to_le_bytes()).unwrap();
        bytes[middle] = 8;
        assert!(parse(&bytes).is_err());
    }
}
