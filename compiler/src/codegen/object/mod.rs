//! Relocatable objects and static archives: written and looked into, whatever compiler made the
//! code.

mod archive;
mod inspect;
mod wasm;
mod weights;

pub use archive::{ArchiveKind, Member, archive};
pub use inspect::{MEMORY_FUNCTIONS, check_undefined, text_bytes};
pub(super) use wasm::is_wasm;
pub use weights::{MAX_EMBEDDED_WEIGHTS, WEIGHTS_ALIGNMENT, weights_object};

use object::{Architecture, BinaryFormat, Object, ObjectSymbol};

use crate::diagnostics::Problem;
use crate::executor::ObjectFile;
use wasm::WasmObject;

/// A symbol of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Symbol {
    /// The name as the linker knows it.
    name: Vec<u8>,
    is_undefined: bool,
    is_global: bool,
}

/// Reads the structure of an object file.
fn parse(object: &ObjectFile) -> Result<object::File<'_>, Problem> {
    object::File::parse(object.bytes.as_slice()).map_err(|error| {
        Problem::new(format!("the object `{}` cannot be read: {error}", object.name))
    })
}

/// Reads an object for WebAssembly, which is none of those that `parse` knows.
fn parse_wasm(object: &ObjectFile) -> Result<WasmObject, Problem> {
    WasmObject::read(&object.bytes)
        .ok_or_else(|| Problem::new(format!("the object `{}` cannot be read", object.name)))
}

/// The symbols of an object that have names.
fn symbols(object: &ObjectFile) -> Result<Vec<Symbol>, Problem> {
    if is_wasm(&object.bytes) {
        return Ok(parse_wasm(object)?.symbols);
    }
    let mut symbols = Vec::new();
    for symbol in parse(object)?.symbols() {
        let name = symbol.name_bytes().map_err(|error| {
            Problem::new(format!("the symbols of `{}` cannot be read: {error}", object.name))
        })?;
        if !name.is_empty() {
            let (is_undefined, is_global) = (symbol.is_undefined(), symbol.is_global());
            symbols.push(Symbol { name: name.to_vec(), is_undefined, is_global });
        }
    }
    Ok(symbols)
}

/// The architecture of an object, and the underscore that its format adds to the names of the
/// source.
fn machine(object: &ObjectFile) -> Result<(Architecture, &'static str), Problem> {
    if is_wasm(&object.bytes) {
        return Ok((Architecture::Wasm32, ""));
    }
    let file = parse(object)?;
    let underscore = match (file.format(), file.architecture()) {
        (BinaryFormat::MachO, _) | (BinaryFormat::Coff, Architecture::I386) => "_",
        _ => "",
    };
    Ok((file.architecture(), underscore))
}

#[cfg(test)]
mod testing {
    //! Objects made by hand, for the tests of this folder.

    use object::write::{Object, SectionId, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};

    use crate::executor::ObjectFile;

    /// An object with one global function of 4 bytes for each name of `defined`, and a reference to
    /// each of `undefined`.
    pub(super) fn object(
        format: BinaryFormat,
        name: &str,
        defined: &[&str],
        undefined: &[&str],
    ) -> ObjectFile {
        let mut object = Object::new(format, Architecture::X86_64, Endianness::Little);
        let text: SectionId = object.section_id(object::write::StandardSection::Text);
        for (symbols, section) in
            [(defined, SymbolSection::Section(text)), (undefined, SymbolSection::Undefined)]
        {
            for symbol in symbols {
                let mut value = 0;
                if section != SymbolSection::Undefined {
                    value = object.append_section_data(text, &[0x90, 0x90, 0x90, 0xc3], 1);
                }
                object.add_symbol(Symbol {
                    name: symbol.as_bytes().to_vec(),
                    value,
                    size: 0,
                    kind: SymbolKind::Text,
                    scope: SymbolScope::Linkage,
                    weak: false,
                    section,
                    flags: SymbolFlags::None,
                });
            }
        }
        ObjectFile { name: name.to_owned(), bytes: object.write().unwrap() }
    }
}
