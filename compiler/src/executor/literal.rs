//! Bytes as string literals of C, written a line at a time.

use std::io::{self, Write};

/// Bytes of one line.
const LINE_BYTES: usize = 22;

/// What stands before and after the bytes of a line.
const AROUND: [&[u8]; 2] = [b"    \"", b"\"\n"];

/// Length of the lines that so many bytes are written as.
pub(super) fn literal_len(bytes: usize) -> usize {
    4 * bytes + bytes.div_ceil(LINE_BYTES) * (AROUND[0].len() + AROUND[1].len())
}

/// Takes bytes, and writes lines that each are a string literal: neighbours are one string.
///
/// A compiler reads them several times as fast as a list of numbers, in a fraction of the memory.
pub(super) struct Literal<'a> {
    out: &'a mut dyn Write,
    /// What has to wait for the rest of its line.
    line: Vec<u8>,
}

impl<'a> Literal<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Literal { out, line: Vec::with_capacity(LINE_BYTES) }
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> io::Result<()> {
        match self.line.is_empty() {
            true => Ok(()),
            false => self.end_line(),
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let mut text = Vec::with_capacity(literal_len(LINE_BYTES));
        text.extend_from_slice(AROUND[0]);
        for byte in self.line.drain(..) {
            // Three digits, so that none of the next byte is taken for one of this.
            let digits = [byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| b'0' + digit);
            text.push(b'\\');
            text.extend_from_slice(&digits);
        }
        text.extend_from_slice(AROUND[1]);
        self.out.write_all(&text)
    }
}

impl Write for Literal<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(LINE_BYTES - self.line.len());
        self.line.extend_from_slice(&bytes[..taken]);
        if self.line.len() == LINE_BYTES {
            self.end_line()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_three_digits_and_lines_are_full_whatever_the_writes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = |parts: usize| {
            let mut out = Vec::new();
            let mut literal = Literal::new(&mut out);
            bytes.chunks(parts).for_each(|part| literal.write_all(part).unwrap());
            literal.finish().unwrap();
            assert_eq!(out.len(), literal_len(bytes.len()));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(7), text(256));
        assert!(text(1).starts_with("    \"\\000\\001\\002\\003\\004\\005\\006\\007\\010"));
        assert!(text(1).ends_with("\\376\\377\"\n"));
        let mut empty = Vec::new();
        Literal::new(&mut empty).finish().unwrap();
        assert_eq!((empty.len(), literal_len(0)), (0, 0));
    }
}
