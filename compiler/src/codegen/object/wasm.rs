//! Relocatable objects of WebAssembly: the few facts that are asked of them, and weights as one.
//!
//! The form is that of the tool conventions' `Linking.md`: a module whose symbols are in a custom
//! section `linking`.

use super::Symbol;
use crate::executor::{Contents, Weights};

/// What a module begins with: the magic number and the version.
const HEAD: &[u8] = b"\0asm\x01\0\0\0";

/// Numbers of sections.
const CUSTOM: u8 = 0;
const IMPORT: u8 = 2;
const CODE: u8 = 10;
const DATA: u8 = 11;

/// Version of the section `linking`, and the numbers of its parts.
const LINKING_VERSION: u32 = 2;
const SEGMENT_INFO: u8 = 5;
const SYMBOL_TABLE: u8 = 8;

/// Kinds of symbols, which are also those of imports for the first.
const FUNCTION: u8 = 0;
const DATA_SYMBOL: u8 = 1;
const SECTION_SYMBOL: u8 = 3;

/// Flags of symbols.
const LOCAL: u32 = 0x2;
const HIDDEN: u32 = 0x4;
const UNDEFINED: u32 = 0x10;
const EXPLICIT_NAME: u32 = 0x40;

/// Whether a file is a module of WebAssembly.
pub(in crate::codegen) fn is_wasm(bytes: &[u8]) -> bool {
    bytes.starts_with(HEAD)
}

/// What is asked of an object.
pub(super) struct WasmObject {
    pub(super) symbols: Vec<Symbol>,
    pub(super) code_bytes: u64,
}

impl WasmObject {
    /// Reads an object; `None` if it is damaged, or has something that is not known here.
    pub(super) fn read(bytes: &[u8]) -> Option<WasmObject> {
        let mut rest = Reader(bytes.strip_prefix(HEAD)?);
        let mut object = WasmObject { symbols: Vec::new(), code_bytes: 0 };
        let mut functions = Vec::new();
        while !rest.0.is_empty() {
            let id = rest.byte()?;
            let len = rest.number()?;
            let mut section = Reader(rest.take(len)?);
            match id {
                IMPORT => functions = section.imported_functions()?,
                CODE => object.code_bytes += u64::from(len),
                CUSTOM if section.name()? == b"linking" => {
                    object.symbols = section.symbols(&functions)?;
                }
                _ => {}
            }
        }
        Some(object)
    }
}

/// The rest of some bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number in groups of seven bits, the lowest first.
    fn number(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: u32) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len as usize)?;
        self.0 = rest;
        Some(taken)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len)
    }

    /// Least and, if there is one, greatest size of a memory or a table.
    fn limits(&mut self) -> Option<()> {
        let flags = self.number()?;
        self.number()?;
        if flags & 1 != 0 {
            self.number()?;
        }
        Some(())
    }

    /// Names of the imported functions, by their numbers.
    fn imported_functions(&mut self) -> Option<Vec<&'a [u8]>> {
        let mut functions = Vec::new();
        for _ in 0..self.number()? {
            self.name()?;
            let name = self.name()?;
            match self.byte()? {
                FUNCTION => {
                    functions.push(name);
                    self.number()?;
                }
                // A table has the type of its elements first.
                1 => {
                    self.byte()?;
                    self.limits()?;
                }
                2 => self.limits()?,
                // The type of a global and whether it changes; an attribute and a type of a tag.
                3 => {
                    self.take(2)?;
                }
                4 => {
                    self.byte()?;
                    self.number()?;
                }
                _ => return None,
            }
        }
        Some(functions)
    }

    /// The symbols of the section `linking`, behind its name.
    fn symbols(&mut self, functions: &[&[u8]]) -> Option<Vec<Symbol>> {
        if self.number()? != LINKING_VERSION {
            return None;
        }
        let mut symbols = Vec::new();
        while !self.0.is_empty() {
            let kind = self.byte()?;
            let len = self.number()?;
            let mut part = Reader(self.take(len)?);
            if kind == SYMBOL_TABLE {
                for _ in 0..part.number()? {
                    symbols.extend(part.symbol(functions)?);
                }
            }
        }
        Some(symbols)
    }

    /// One symbol; none inside if it stands for a section.
    fn symbol(&mut self, functions: &[&[u8]]) -> Option<Option<Symbol>> {
        let (kind, flags) = (self.byte()?, self.number()?);
        let is_undefined = flags & UNDEFINED != 0;
        let name = match kind {
            DATA_SYMBOL => {
                let name = self.name()?;
                if !is_undefined {
                    // Segment, offset and size.
                    (0..3).try_for_each(|_| self.number().map(|_| ()))?;
                }
                name
            }
            SECTION_SYMBOL => {
                self.number()?;
                return Some(None);
            }
            _ => {
                let index = self.number()? as usize;
                match is_undefined && flags & EXPLICIT_NAME == 0 {
                    true if kind == FUNCTION => functions.get(index)?,
                    // What else is imported is the linker's own: the stack pointer, the table.
                    true => return Some(None),
                    false => self.name()?,
                }
            }
        };
        Some(Some(Symbol { name: name.to_vec(), is_undefined, is_global: flags & LOCAL == 0 }))
    }
}

/// Appends a number in groups of seven bits.
fn push_number(mut value: u32, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a section or a part of one: its number, its length, and what is in it.
fn push_part(id: u8, contents: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(id);
    push_number(contents.len() as u32, bytes);
    bytes.extend_from_slice(contents);
}

fn push_name(name: &str, bytes: &mut Vec<u8>) {
    push_number(name.len() as u32, bytes);
    bytes.extend_from_slice(name.as_bytes());
}

/// An object with `weights` as data under a symbol that is not visible outside of the program.
/// There are fewer than 2^32 of them, at an address that is a multiple of 2^`alignment`.
pub(super) fn weights_object<'a>(
    symbol: &str,
    weights: &'a Weights,
    alignment: u32,
) -> Contents<'a> {
    let len = weights.len() as u32;
    let mut bytes = HEAD.to_vec();
    // The memory that the segment is in, of at least one page.
    let mut imports = vec![1];
    push_name("env", &mut imports);
    push_name("__linear_memory", &mut imports);
    imports.extend([2, 0, 1]);
    push_part(IMPORT, &imports, &mut bytes);

    // One segment, at the address 0 as far as this object goes: `i32.const 0`, `end`.
    let mut before = vec![1, 0, 0x41, 0, 0x0b];
    push_number(len, &mut before);
    bytes.push(DATA);
    push_number(before.len() as u32 + len, &mut bytes);
    bytes.extend(before);

    let mut segments = vec![1];
    push_name(&format!(".rodata.{symbol}"), &mut segments);
    push_number(alignment, &mut segments);
    segments.push(0);
    let mut symbols = vec![1, DATA_SYMBOL];
    push_number(HIDDEN, &mut symbols);
    push_name(symbol, &mut symbols);
    // The segment and the offset.
    symbols.extend([0, 0]);
    push_number(len, &mut symbols);
    let mut linking = Vec::new();
    push_name("linking", &mut linking);
    push_number(LINKING_VERSION, &mut linking);
    push_part(SEGMENT_INFO, &segments, &mut linking);
    push_part(SYMBOL_TABLE, &symbols, &mut linking);
    let mut after = Vec::new();
    push_part(CUSTOM, &linking, &mut after);

    let mut contents = Contents::from(bytes);
    contents.push_weights(weights);
    contents.push(after);
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_back_as_a_hidden_symbol() {
        for len in [1, 127, 128, 70_000] {
            let weights = Weights::from(vec![7; len]);
            let bytes = weights_object("niello_w", &weights, 6).to_bytes().unwrap();
            assert!(is_wasm(&bytes));
            let object = WasmObject::read(&bytes).unwrap();
            assert_eq!(object.code_bytes, 0);
            let symbol =
                Symbol { name: b"niello_w".to_vec(), is_undefined: false, is_global: true };
            assert_eq!(object.symbols, [symbol]);
            // Whatever is cut off is missed.
            for end in (0..bytes.len()).step_by(bytes.len() / 8 + 1).skip(1) {
                let cut = WasmObject::read(&bytes[..end]);
                assert!(cut.is_none_or(|object| object.symbols.is_empty()), "{end}");
            }
        }
    }

    #[test]
    fn functions_that_are_imported_are_named_by_their_imports() {
        let mut bytes = HEAD.to_vec();
        let mut imports = vec![3];
        for (name, what) in [
            ("__stack_pointer", &[3, 0x7f, 1][..]),
            ("__indirect_function_table", &[1, 0x70, 1, 0, 0]),
            ("memset", &[0, 0]),
        ] {
            push_name("env", &mut imports);
            push_name(name, &mut imports);
            imports.extend_from_slice(what);
        }
        push_part(IMPORT, &imports, &mut bytes);
        push_part(CODE, &[0; 9], &mut bytes);
        let mut symbols = vec![4, 2, UNDEFINED as u8, 0, FUNCTION, UNDEFINED as u8, 0];
        symbols.extend([FUNCTION, LOCAL as u8, 1, 1, b'f', SECTION_SYMBOL, 0, 2]);
        let mut linking = Vec::new();
        push_name("linking", &mut linking);
        linking.push(2);
        push_part(SYMBOL_TABLE, &symbols, &mut linking);
        push_part(CUSTOM, &linking, &mut bytes);
        let object = WasmObject::read(&bytes).unwrap();
        assert_eq!(object.code_bytes, 9);
        let symbol = |name: &str, is_undefined, is_global| Symbol {
            name: name.into(),
            is_undefined,
            is_global,
        };
        assert_eq!(object.symbols, [symbol("memset", true, true), symbol("f", false, false)]);
    }
}
