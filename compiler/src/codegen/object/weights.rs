//! Weights as a relocatable object, without a detour through a compiler.

use object::write::{MachOBuildVersion, Object, StandardSection, Symbol, SymbolSection};
use object::{
    BinaryFormat, FileFlags, Object as _, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

use super::parse;
use crate::diagnostics::Problem;
use crate::executor::ObjectFile;

/// Alignment of the weights in memory: a cache line, and the widest vector.
pub const WEIGHTS_ALIGNMENT: u64 = 64;

/// Most bytes of weights that are linked into a binary.
///
/// Code reaches the sections around the weights by signed 32-bit distances, so a binary beyond
/// 2 GiB does not link; half of that leaves room for the program itself.
pub const MAX_EMBEDDED_WEIGHTS: usize = 1 << 30;

/// Writes `weights` as read-only data under the symbol `symbol`, which is not visible outside the
/// binary that it is linked into.
///
/// Format, architecture and flags are those of `code`, an object of the same model: a linker
/// refuses objects whose flags (such as the float ABI) differ.
///
/// # Errors
///
/// `code` cannot be read, or there are more bytes than [`MAX_EMBEDDED_WEIGHTS`].
pub fn weights_object(
    code: &ObjectFile,
    symbol: &str,
    weights: &[u8],
) -> Result<ObjectFile, Problem> {
    if weights.len() > MAX_EMBEDDED_WEIGHTS {
        return Err(Problem::new(format!(
            "the model has {} bytes of weights, but at most {MAX_EMBEDDED_WEIGHTS} can be linked into a binary",
            weights.len()
        ))
        .help("keep them in a file of their own: `.weights(Weights::External(file))`"));
    }
    let code_file = parse(code)?;
    let unreadable =
        |error| Problem::new(format!("the object `{}` cannot be read: {error}", code.name));
    let mut object =
        Object::new(code_file.format(), code_file.architecture(), code_file.endianness());
    object.set_sub_architecture(code_file.sub_architecture());
    if let flags @ FileFlags::Elf { .. } = code_file.flags() {
        object.flags = flags;
    }
    if let object::File::MachO64(file) = &code_file
        && let Some(version) = file.build_version().map_err(unreadable)?
    {
        let mut info = MachOBuildVersion::default();
        info.platform = version.platform.get(code_file.endianness());
        info.minos = version.minos.get(code_file.endianness());
        info.sdk = version.sdk.get(code_file.endianness());
        object.set_macho_build_version(info);
    }

    let section = object.section_id(StandardSection::ReadOnlyData);
    object.set_section_data(section, weights, WEIGHTS_ALIGNMENT);
    object.add_symbol(Symbol {
        name: symbol.as_bytes().to_vec(),
        value: 0,
        size: weights.len() as u64,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
    if object.format() == BinaryFormat::Elf {
        // An ELF object without this section asks for an executable stack.
        object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    }
    let bytes = object.write().map_err(|error| {
        Problem::new(format!("the object of the weights cannot be written: {error}"))
    })?;
    Ok(ObjectFile { name: format!("{symbol}.o"), bytes })
}

#[cfg(test)]
mod tests {
    use object::{ObjectSection, ObjectSymbol};

    use super::super::testing::object;
    use super::*;

    #[test]
    fn weights_lie_aligned_under_a_hidden_symbol() {
        let weights: Vec<u8> = (0..=255).collect();
        for (format, prefix) in
            [(BinaryFormat::Elf, ""), (BinaryFormat::MachO, "_"), (BinaryFormat::Coff, "")]
        {
            let code = object(format, "code.o", &["run"], &[]);
            let file = weights_object(&code, "niello_w", &weights).unwrap();
            assert_eq!(file.name, "niello_w.o");
            let file = parse(&file).unwrap();
            assert_eq!(file.format(), format);

            let name = format!("{prefix}niello_w");
            let symbol = file.symbols().find(|s| s.name() == Ok(&name)).unwrap();
            assert!(symbol.is_global(), "{format:?}");
            // COFF has no visibility: a symbol is exported only by request.
            if format != BinaryFormat::Coff {
                assert_eq!(symbol.scope(), SymbolScope::Linkage);
            }
            let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
            assert_eq!(section.align(), 64);
            assert_eq!(section.kind(), SectionKind::ReadOnlyData);
            assert_eq!(section.data().unwrap(), weights);
            assert_eq!(symbol.address(), section.address());
        }
    }

    #[test]
    fn elf_flags_are_those_of_the_code_and_the_stack_is_not_executable() {
        let mut code = object::write::Object::new(
            BinaryFormat::Elf,
            object::Architecture::Riscv64,
            object::Endianness::Little,
        );
        let flags = FileFlags::Elf {
            os_abi: 0,
            abi_version: 0,
            e_flags: object::elf::EF_RISCV_FLOAT_ABI_DOUBLE,
        };
        code.flags = flags;
        let code = ObjectFile { name: "code.o".to_owned(), bytes: code.write().unwrap() };
        let file = weights_object(&code, "w", &[1, 2, 3]).unwrap();
        let file = parse(&file).unwrap();
        assert_eq!(file.flags(), flags);
        assert!(file.section_by_name(".note.GNU-stack").is_some());
    }
}
