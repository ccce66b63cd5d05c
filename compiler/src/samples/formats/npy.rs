//! numpy's `.npy`: one array, with its type and shape in a header.

use std::fs::File;
use std::io::Read;

use super::header::Header;
use super::{MAX_BYTES, buffered};
use crate::ir::{Constant, DType, Shape, SharedBytes, TensorType};

/// What every file begins with.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header that is read. 64 extents of twenty digits take a fifth of it.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// Multiple of which numpy makes the place where the elements begin.
const ALIGNMENT: usize = 64;

/// Reads a file.
pub(super) fn read_file(file: File) -> Result<Constant, String> {
    let (mut reader, length) = buffered(file)?;
    read(&mut reader, length)
}

/// Reads an array of which there are `length` bytes.
pub(super) fn read(reader: &mut impl Read, length: u64) -> Result<Constant, String> {
    let (header, header_bytes) = read_header(reader)?;
    let element = Element::parse(&header.descr)?;
    let ty = tensor_type(&header, element.dtype)?;
    let bytes = ty
        .bytes()
        .filter(|&bytes| bytes <= MAX_BYTES)
        .ok_or_else(|| format!("{ty} is too large: at most {} GiB are read", MAX_BYTES >> 30))?;
    let there = length.saturating_sub(header_bytes);
    if there != bytes {
        return Err(format!("{ty} takes {bytes} bytes, but the file has {there}"));
    }
    let mut data = Vec::new();
    // The memory grows with what is there: an archive may lie about the length.
    let read = reader.take(bytes).read_to_end(&mut data);
    read.map_err(|error| format!("cannot read the elements: {error}"))?;
    if data.len() as u64 != bytes {
        return Err(format!("the file ends after {} of {bytes} bytes", data.len()));
    }
    if element.big_endian {
        data.chunks_exact_mut(element.size).for_each(<[u8]>::reverse);
    }
    if element.dtype == DType::Bool {
        // Any other byte than 0 is true; the IR holds exactly 0 or 1.
        data.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    if header.fortran_order {
        data = to_row_major(&data, &header.shape, element.size);
    }
    Constant::new(ty, SharedBytes::new(data)).map_err(|error| error.to_string())
}

/// The header, and where the elements begin.
fn read_header(reader: &mut impl Read) -> Result<(Header, u64), String> {
    let cut = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the file is cut short in its header".to_owned(),
        _ => format!("cannot read the header: {error}"),
    };
    let mut start = [0; 8];
    reader.read_exact(&mut start).map_err(cut)?;
    let (magic, version) = start.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(
            "this is no array that numpy.save wrote: it does not begin with \\x93NUMPY".into()
        );
    }
    let length_bytes = match version {
        [1, 0] => 2,
        [2 | 3, 0] => 4,
        [major, minor] => {
            return Err(format!(
                "version {major}.{minor} of the format is not supported; 1.0, 2.0 and 3.0 are"
            ));
        }
        _ => return Err("the version of the format is missing".to_owned()),
    };
    let mut length = [0; 4];
    reader.read_exact(&mut length[..length_bytes]).map_err(cut)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER_BYTES {
        return Err(format!("the header has {length} bytes; at most {MAX_HEADER_BYTES} are read"));
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text).map_err(cut)?;
    let text = String::from_utf8(text).map_err(|_| "the header is no text".to_owned())?;
    Ok((Header::parse(&text)?, (start.len() + length_bytes + length) as u64))
}

fn tensor_type(header: &Header, dtype: DType) -> Result<TensorType, String> {
    let extents: Result<Vec<i64>, _> = header.shape.iter().map(|&e| i64::try_from(e)).collect();
    let extents = extents.map_err(|_| "an extent does not fit in 63 bits".to_owned())?;
    Ok(TensorType::new(Shape::from_consts(&extents), dtype))
}

/// How one element is stored.
struct Element {
    dtype: DType,
    size: usize,
    big_endian: bool,
}

impl Element {
    /// Reads numpy's name of a data type, such as `<f4`.
    fn parse(descr: &str) -> Result<Element, String> {
        let (order, kind) = match descr.split_at_checked(1) {
            Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
            _ => ("", descr),
        };
        let dtype = match kind {
            "b1" => DType::Bool,
            "i1" => DType::I8,
            "i2" => DType::I16,
            "i4" => DType::I32,
            "i8" => DType::I64,
            "u1" => DType::U8,
            "u2" => DType::U16,
            "u4" => DType::U32,
            "u8" => DType::U64,
            "f2" => DType::F16,
            "f4" => DType::F32,
            "f8" => DType::F64,
            // numpy has no bfloat16. An array of the package ml_dtypes becomes one of two opaque
            // bytes, and nothing else that a model takes does.
            "V2" => DType::BF16,
            _ => {
                let what = match kind.as_bytes().first() {
                    Some(b'U' | b'S') => "strings",
                    Some(b'c') => "complex numbers",
                    Some(b'O') => "Python objects",
                    Some(b'M' | b'm') => "dates",
                    Some(b'V') => "a type that numpy only knows the size of",
                    _ => "an unknown type",
                };
                return Err(format!("elements of type `{descr}` ({what}) are not supported"));
            }
        };
        let size = dtype.bytes().unwrap_or(1);
        Ok(Element { dtype, size, big_endian: order == ">" && size > 1 })
    }

    /// numpy's name of a data type, in the byte order of constants.
    fn descr(dtype: DType) -> Option<&'static str> {
        Some(match dtype {
            DType::Bool => "|b1",
            DType::I8 => "|i1",
            DType::I16 => "<i2",
            DType::I32 => "<i4",
            DType::I64 => "<i8",
            DType::U8 => "|u1",
            DType::U16 => "<u2",
            DType::U32 => "<u4",
            DType::U64 => "<u8",
            DType::F16 => "<f2",
            DType::BF16 => "<V2",
            DType::F32 => "<f4",
            DType::F64 => "<f8",
            DType::I4
            | DType::U4
            | DType::I2
            | DType::U2
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => return None,
        })
    }
}

/// Elements whose first index runs fastest, so that the last one does.
fn to_row_major(data: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut result = Vec::with_capacity(data.len());
    let mut index = vec![0; shape.len()];
    // Distances in bytes between neighbours of each dimension; their product fits, as the data does.
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for &extent in shape {
        strides.push(stride);
        stride = stride.saturating_mul(extent as usize);
    }
    let mut offset = 0;
    while result.len() < data.len() {
        result.extend_from_slice(&data[offset..offset + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            offset -= strides[axis] * shape[axis] as usize;
            index[axis] = 0;
        }
    }
    result
}

/// An array as a file.
pub(super) fn to_bytes(tensor: &Constant) -> Result<Vec<u8>, String> {
    let dtype = tensor.ty().dtype;
    let descr = Element::descr(dtype)
        .ok_or_else(|| format!("numpy has no type for {dtype}; let the file's name end in .pb"))?;
    let (Some(shape), Some(data)) = (tensor.ty().shape.as_consts(), tensor.to_bytes()) else {
        return Err("the elements are not known".to_owned());
    };
    let header = Header { descr: descr.to_owned(), fortran_order: false, shape };
    let mut text = header.text();
    let start = MAGIC.len() + 4;
    // The newline is part of what is aligned.
    let length = (start + text.len() + 1).next_multiple_of(ALIGNMENT) - start;
    text += &" ".repeat(length - 1 - text.len());
    text.push('\n');
    let length = u16::try_from(length).map_err(|_| "the shape is too long".to_owned())?;
    let mut bytes = Vec::with_capacity(start + text.len() + data.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(&data);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Damage is an error or another array, and never ends the process.
        #[test]
        fn damaged_files_do_not_panic(
            edits in vec((0usize..200, any::<u8>()), 1..6),
            length in 0usize..200,
            fortran: bool,
        ) {
            let mut bytes = array("<f4", fortran, &[2, 3], &[1; 24]);
            for (at, byte) in edits {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(length);
            let _ = parse(&bytes);
        }

        /// Turning twice changes nothing: the array of the reversed shape has the same elements,
        /// transposed.
        #[test]
        fn index_orders_are_inverse(shape in vec(0u64..4, 0..5)) {
            let elements: u64 = shape.iter().product();
            let data: Vec<u8> = (0..elements).flat_map(|i| (i as u16).to_le_bytes()).collect();
            let reversed: Vec<u64> = shape.iter().rev().copied().collect();
            let once = to_row_major(&data, &shape, 2);
            // Row-major of a shape is column-major of the reversed one.
            prop_assert_eq!(to_row_major(&once, &reversed, 2), data);
        }
    }

    fn parse(bytes: &[u8]) -> Result<Constant, String> {
        read(&mut &bytes[..], bytes.len() as u64)
    }

    /// A file of version 1.0 with this header, without padding.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    fn array(descr: &str, fortran: bool, shape: &[u64], data: &[u8]) -> Vec<u8> {
        let shape = shape.to_vec();
        let header = Header { descr: descr.to_owned(), fortran_order: fortran, shape };
        file(&header.text(), data)
    }

    /// What `numpy.save` of numpy 2 writes for `numpy.array([[1, 2], [3, 4]], dtype="<i2")`.
    #[test]
    fn bytes_are_those_that_numpy_writes() {
        let header =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }";
        let mut expected = header.to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        expected.extend([1, 0, 2, 0, 3, 0, 4, 0]);
        let ty = TensorType::from_consts(&[2, 2], DType::I16);
        let tensor = Constant::new(ty, SharedBytes::new(vec![1, 0, 2, 0, 3, 0, 4, 0])).unwrap();
        assert_eq!(to_bytes(&tensor).unwrap(), expected);
        assert_eq!(parse(&expected), Ok(tensor));
    }

    #[test]
    fn every_dtype_of_numpy_comes_back_and_others_are_refused() {
        for dtype in DType::all() {
            let ty = TensorType::from_consts(&[3, 1], dtype);
            let bytes = vec![1; ty.bytes().unwrap() as usize];
            let tensor = Constant::new(ty, SharedBytes::new(bytes)).unwrap();
            match to_bytes(&tensor) {
                Ok(bytes) => assert_eq!(parse(&bytes), Ok(tensor)),
                Err(error) => {
                    assert!(dtype.is_storage_only(), "{dtype}");
                    assert!(error.contains("numpy has no type"), "{error}");
                }
            }
        }
    }

    #[test]
    fn big_endian_and_fortran_order_are_turned() {
        // numpy.arange(6, dtype=">i2").reshape(2, 3), in Fortran's order.
        let data = [0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5];
        let tensor = parse(&array(">i2", true, &[2, 3], &data)).unwrap();
        assert_eq!(tensor.ty().to_string(), "Tensor[(2, 3), int16]");
        assert_eq!(tensor.to_i64_vec(), Some(vec![0, 1, 2, 3, 4, 5]));
        // Three dimensions: element [i, j, k] is 100 i + 10 j + k.
        let mut data = Vec::new();
        for k in 0..2 {
            for j in 0..3 {
                for i in 0..2 {
                    data.push(100 * i + 10 * j + k);
                }
            }
        }
        let tensor = parse(&array("|u1", true, &[2, 3, 2], &data)).unwrap();
        let expected = [0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121];
        assert_eq!(tensor.to_i64_vec(), Some(expected.to_vec()));
        assert_eq!(parse(&array("<f8", true, &[3, 0], &[])).unwrap().byte_len(), 0);
        assert_eq!(
            parse(&array(">f4", true, &[], &[63, 128, 0, 0])).unwrap().to_f64_vec(),
            Some(vec![1.0])
        );
    }

    #[test]
    fn booleans_become_zero_or_one_and_versions_two_and_three_are_read() {
        let bytes = array("|b1", false, &[3], &[0, 1, 255]);
        assert_eq!(parse(&bytes).unwrap().to_bytes().unwrap()[..], [0, 1, 1]);
        for version in [2, 3] {
            let mut newer = [MAGIC, &[version, 0], &[bytes[8], bytes[9], 0, 0]].concat();
            newer.extend_from_slice(&bytes[10..]);
            assert_eq!(parse(&newer), parse(&bytes));
        }
    }

    #[test]
    fn mistakes_have_distinct_errors() {
        let error = |bytes: &[u8]| parse(bytes).unwrap_err();
        let good = array("<f4", false, &[2], &[0; 8]);
        assert!(error(b"\x93NUMPX\x01\x00").contains("does not begin with"));
        assert_eq!(error(&good[..7]), "the file is cut short in its header");
        assert_eq!(error(&good[..20]), "the file is cut short in its header");
        assert_eq!(
            error(&good[..good.len() - 1]),
            "Tensor[(2), float32] takes 8 bytes, but the file has 7"
        );
        assert!(error(&[&good[..], &[0]].concat()).ends_with("but the file has 9"));
        let mut version = good.clone();
        version[6] = 4;
        assert_eq!(
            error(&version),
            "version 4.0 of the format is not supported; 1.0, 2.0 and 3.0 are"
        );
        for (descr, what) in [
            ("<U7", "(strings)"),
            ("<c8", "(complex numbers)"),
            ("|O", "(Python objects)"),
            ("<M8[ns]", "(dates)"),
            ("<V1", "only knows the size of"),
            ("<f16", "an unknown type"),
            ("é", "an unknown type"),
            ("", "an unknown type"),
        ] {
            let error = error(&array(descr, false, &[1], &[0]));
            assert!(error.contains(what), "{error}");
        }
        let large = array("<f8", false, &[u64::MAX / 2, 4], &[]);
        assert!(error(&large).contains("is too large"), "{}", error(&large));
        assert!(error(&array("<f8", false, &[u64::MAX], &[])).contains("63 bits"));
        let long = [MAGIC, &[2, 0], &[255, 255, 255, 127]].concat();
        assert!(error(&long).contains("the header has 2147483647 bytes"));
    }

    #[test]
    fn an_array_shorter_than_claimed_is_refused() {
        let bytes = array("<f4", false, &[1 << 20], &[0; 8]);
        let claimed = (bytes.len() - 8 + (4 << 20)) as u64;
        let error = read(&mut &bytes[..], claimed).unwrap_err();
        assert_eq!(error, "the file ends after 8 of 4194304 bytes");
    }
}
