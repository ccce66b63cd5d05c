//! Constants.

use super::lexer::{Pos, Token};
use super::parser::{Parser, Result};
use crate::ir::text::parse_element;
use crate::ir::{Constant, DType, Digest, TensorType};

/// Bytes beyond which a text may not have a constant of one repeated value. Such a constant takes a
/// line of text, but a tool that writes its elements allocates its size.
const MAX_SPLAT_BYTES: u64 = 1 << 31;

/// The elements of a constant's text in one list, with the shape given by its brackets.
#[derive(Default)]
struct Elements {
    values: Vec<(String, Pos)>,
    /// Extents, outermost first; `None` until a list of that depth was closed.
    extents: Vec<Option<u64>>,
}

impl Parser<'_> {
    /// `const(elements, dtype)`, `const(elements, Tensor[…])`, `const(Tensor[…], blake3:…)` or
    /// `splat(element, Tensor[…])`.
    pub(super) fn constant(&mut self) -> Result<Constant> {
        let pos = self.pos();
        let splat = self.eat_keyword("splat");
        if !splat {
            self.expect_keyword("const")?;
        }
        self.expect("(")?;
        let constant = if splat {
            let (element, at) = (self.number()?, self.pos());
            self.expect(",")?;
            let ty = self.tensor_type()?;
            self.splat(ty, &element, pos, at)?
        } else if self.at_keyword("Tensor") {
            let ty = self.tensor_type()?;
            self.expect(",")?;
            let digest = self.digest()?;
            self.large(ty, digest, pos)?
        } else {
            let elements = self.elements()?;
            self.expect(",")?;
            let flat = self.at_keyword("Tensor");
            let ty = match flat {
                true => self.tensor_type()?,
                false => {
                    let dims: Vec<i64> =
                        elements.extents.iter().map(|n| n.unwrap_or(0) as i64).collect();
                    TensorType::from_consts(&dims, self.dtype()?)
                }
            };
            if flat && elements.extents.len() != 1 && ty.shape.rank() > 0 {
                return Err(self.error(pos, "elements beside their type must be one flat list"));
            }
            self.dense(ty, &elements, pos)?
        };
        self.expect(")")?;
        Ok(constant)
    }

    fn splat(&mut self, ty: TensorType, element: &str, pos: Pos, at: Pos) -> Result<Constant> {
        if ty.bytes().is_some_and(|bytes| bytes > MAX_SPLAT_BYTES) {
            let message = format!("{ty} takes more than {MAX_SPLAT_BYTES} bytes");
            return Err(self.error(pos, message));
        }
        let Some(bits) = parse_element(ty.dtype, element) else {
            return Err(self.not_a_number(at, element, ty.dtype.name()));
        };
        let bytes = ty.dtype.bits().div_ceil(8) as usize;
        Constant::splat(ty, &bits.to_le_bytes()[..bytes])
            .map_err(|error| self.error(pos, error.to_string()))
    }

    fn dense(&mut self, ty: TensorType, elements: &Elements, pos: Pos) -> Result<Constant> {
        if let ([(element, at)], 0) = (&elements.values[..], ty.shape.rank()) {
            return self.splat(ty, element, pos, *at);
        }
        let found = elements.values.len() as u64;
        if ty.num_elements() != Some(found) {
            let message = format!("{found} elements are given for a constant of type {ty}");
            return Err(self.error(pos, message));
        }
        let bytes = self.pack(ty.dtype, elements)?;
        Constant::new(ty, crate::ir::SharedBytes::new(bytes))
            .map_err(|error| self.error(pos, error.to_string()))
    }

    fn pack(&mut self, dtype: DType, elements: &Elements) -> Result<Vec<u8>> {
        let bits = dtype.bits() as usize;
        let mut bytes = Vec::with_capacity((elements.values.len() * bits).div_ceil(8));
        for (index, (text, pos)) in elements.values.iter().enumerate() {
            let Some(element) = parse_element(dtype, text) else {
                return Err(self.not_a_number(*pos, text, dtype.name()));
            };
            let shift = index * bits % 8;
            match bytes.last_mut() {
                // An element that does not start a byte goes to the upper bits of the last byte.
                Some(last) if shift > 0 => *last |= (element as u8) << shift,
                _ => bytes.extend_from_slice(&element.to_le_bytes()[..bits.div_ceil(8)]),
            }
        }
        Ok(bytes)
    }

    fn elements(&mut self) -> Result<Elements> {
        let mut elements = Elements::default();
        // The number of items of each open list.
        let mut open: Vec<u64> = Vec::new();
        // The depth of the numbers: a list holds either lists or numbers.
        let mut depth = None;
        loop {
            let pos = self.pos();
            if self.eat("[") {
                self.check_nesting(open.len() as u32, pos)?;
                open.push(0);
                if depth.is_some_and(|depth| open.len() > depth) {
                    return Err(self.error(pos, "a list beside a number"));
                }
                if elements.extents.len() < open.len() {
                    elements.extents.push(None);
                }
                if !self.at("]") {
                    continue;
                }
            } else {
                let value = self.number()?;
                if *depth.get_or_insert(open.len()) != open.len() {
                    return Err(self.error(pos, "a number beside a list"));
                }
                elements.values.push((value, pos));
                if let Some(count) = open.last_mut() {
                    *count += 1;
                }
            }
            // After an item: closes the lists that end here, then goes on after a comma.
            loop {
                let Some(count) = open.last().copied() else { return Ok(elements) };
                let pos = self.pos();
                if self.eat("]") {
                    let extent = &mut elements.extents[open.len() - 1];
                    let expected = *extent.get_or_insert(count);
                    open.pop();
                    if let Some(outer) = open.last_mut() {
                        *outer += 1;
                    }
                    if expected != count {
                        let message = format!("a list of {count} beside one of {expected}");
                        return Err(self.error(pos, message));
                    }
                } else if self.eat(",") {
                    if !self.at("]") {
                        break;
                    }
                } else {
                    return Err(self.unexpected("`,` or `]`"));
                }
            }
        }
    }

    fn digest(&mut self) -> Result<Digest> {
        self.expect_keyword("blake3")?;
        self.expect(":")?;
        let lexer = self.raw();
        let pos = lexer.pos();
        let hex = lexer.hex();
        let mut digest = Digest::default();
        let fits = hex.len() == 2 * digest.len();
        let pairs = hex
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            match pair.filter(|_| fits) {
                Some(value) => *byte = value,
                None => return Err(self.error(pos, "a digest must be 64 hexadecimal digits")),
            }
        }
        if !fits {
            return Err(self.error(pos, "a digest must be 64 hexadecimal digits"));
        }
        Ok(digest)
    }

    /// The constant of that digest, from the sidecar if it is there.
    fn large(&mut self, ty: TensorType, digest: Digest, pos: Pos) -> Result<Constant> {
        if ty.bytes().is_none() {
            return Err(self.error(pos, format!("a constant cannot have the type {ty}")));
        }
        match self.sidecar.and_then(|sidecar| sidecar.get(&digest)) {
            None => Ok(Constant::opaque(ty, digest)),
            Some(bytes) => Constant::new(ty, bytes.clone()).map_err(|error| {
                let message = format!("the sidecar's elements do not fit: {error}");
                self.error(pos, message)
            }),
        }
    }

    /// A field's number behind a `.`.
    pub(super) fn field_index(&mut self) -> Result<u32> {
        let lexer = self.raw();
        let pos = lexer.pos();
        let index = lexer.index();
        index.ok_or_else(|| self.error(pos, "expected the number of a field"))
    }

    /// Whether the next word is the given token.
    pub(super) fn at_token(&mut self, token: &Token<'_>) -> bool {
        self.peek() == token
    }
}
