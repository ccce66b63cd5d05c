//! Relocatable objects and static archives: written and looked into, whatever compiler made the
//! code.

mod archive;
mod inspect;
mod weights;

pub use archive::{ArchiveKind, Member, archive};
pub use inspect::{MEMORY_FUNCTIONS, check_undefined, text_bytes};
pub use weights::{MAX_EMBEDDED_WEIGHTS, WEIGHTS_ALIGNMENT, weights_object};

use object::{Architecture, BinaryFormat, Object};

use crate::diagnostics::Problem;
use crate::executor::ObjectFile;

/// Reads the structure of an object file.
fn parse(object: &ObjectFile) -> Result<object::File<'_>, Problem> {
    object::File::parse(object.bytes.as_slice()).map_err(|error| {
        Problem::new(format!("the object `{}` cannot be read: {error}", object.name))
    })
}

/// The name that the source gave to a symbol: without the underscore that some formats add.
fn source_name<'name>(file: &object::File<'_>, name: &'name str) -> &'name str {
    let underscore = match (file.format(), file.architecture()) {
        (BinaryFormat::MachO, _) | (BinaryFormat::Coff, Architecture::I386) => "_",
        _ => "",
    };
    name.strip_prefix(underscore).unwrap_or(name)
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
