//! Contents of files, large parts of which are made only while they are written.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::literal::{Literal, literal_len};
use super::{ObjectFile, Weights};

/// The contents of a file: parts, in order.
#[derive(Clone, Debug, Default)]
pub struct Contents<'a> {
    parts: Vec<Part<'a>>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Part<'a> {
    Bytes(Cow<'a, [u8]>),
    Weights(&'a Weights),
    /// The same as string literals of C.
    Literal(&'a Weights),
}

impl<'a> Contents<'a> {
    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: impl Into<Cow<'a, [u8]>>) {
        let bytes = bytes.into();
        self.len += bytes.len();
        self.parts.push(Part::Bytes(bytes));
    }

    /// Adds weights at the end.
    pub fn push_weights(&mut self, weights: &'a Weights) {
        self.len += weights.len();
        self.parts.push(Part::Weights(weights));
    }

    /// Adds weights at the end, as lines of string literals of C.
    pub fn push_literal(&mut self, weights: &'a Weights) {
        self.len += literal_len(weights.len());
        self.parts.push(Part::Literal(weights));
    }

    /// Adds other contents at the end.
    pub fn append(&mut self, other: Contents<'a>) {
        self.len += other.len;
        self.parts.extend(other.parts);
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes all parts.
    ///
    /// # Errors
    ///
    /// Those of `out`; and if there is no memory for a constant.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| match part {
            Part::Bytes(bytes) => out.write_all(bytes),
            Part::Weights(weights) => weights.write_to(out),
            Part::Literal(weights) => {
                let mut literal = Literal::new(out);
                weights.write_to(&mut literal)?;
                literal.finish()
            }
        })
    }

    /// Writes a file, in the place of any that is there.
    ///
    /// # Errors
    ///
    /// Those of the file system; and if there is no memory for a constant.
    pub fn write_file(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        self.write_to(&mut file)?;
        file.flush()
    }

    /// Whether a file has exactly these bytes. It is read up to the first difference.
    ///
    /// # Errors
    ///
    /// As [`write_file`](Self::write_file).
    pub fn are_those_of(&self, path: &Path) -> io::Result<bool> {
        let file = File::open(path)?;
        if file.metadata()?.len() != self.len as u64 {
            return Ok(false);
        }
        let mut compared = Compared { file, buffer: vec![0; 1 << 16], differs: false };
        match self.write_to(&mut compared) {
            Err(_) if compared.differs => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// All bytes.
    ///
    /// # Errors
    ///
    /// There is no memory for a constant.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len);
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

impl<'a, B: Into<Cow<'a, [u8]>>> From<B> for Contents<'a> {
    fn from(bytes: B) -> Self {
        let mut contents = Contents::default();
        contents.push(bytes);
        contents
    }
}

impl<'a> From<&'a Weights> for Contents<'a> {
    fn from(weights: &'a Weights) -> Self {
        let mut contents = Contents::default();
        contents.push_weights(weights);
        contents
    }
}

impl<'a> From<&'a ObjectFile> for Contents<'a> {
    fn from(object: &'a ObjectFile) -> Self {
        Contents::from(object.bytes.as_slice())
    }
}

/// Takes what a file holds, and fails at the first byte that it does not.
struct Compared {
    file: File,
    buffer: Vec<u8>,
    differs: bool,
}

impl Write for Compared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.buffer.len());
        let found = &mut self.buffer[..len];
        self.file.read_exact(found)?;
        self.differs = found != &bytes[..len];
        if self.differs { Err(io::ErrorKind::InvalidData.into()) } else { Ok(len) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
