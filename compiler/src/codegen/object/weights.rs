//! Weights as a relocatable object, without a detour through a compiler.

use memmap2::MmapMut;
use object::write::{
    MachOBuildVersion, Object, StandardSection, Symbol, SymbolSection, WritableBuffer,
};
use object::{
    BinaryFormat, FileFlags, Object as _, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

use super::archive::Member;
use super::{is_wasm, parse, wasm};
use crate::diagnostics::Problem;
use crate::executor::{Contents, ObjectFile, Weights};

/// Alignment of the weights in memory: a cache line, and the widest vector.
pub const WEIGHTS_ALIGNMENT: u64 = 64;

/// Most bytes of weights that are linked into a binary.
///
/// Code reaches the sections around the weights by signed 32-bit distances, so a binary beyond
/// 2 GiB does not link; the rest of that is room for the program itself.
pub const MAX_EMBEDDED_WEIGHTS: usize = 3 << 29;

/// Checks that so many bytes of weights can be linked into a binary.
fn check_embedded(bytes: usize) -> Result<(), Problem> {
    if bytes <= MAX_EMBEDDED_WEIGHTS {
        return Ok(());
    }
    Err(Problem::new(format!(
        "the model has {bytes} bytes of weights, but at most {MAX_EMBEDDED_WEIGHTS} can be linked into a binary"
    ))
    .help("keep them in a file of their own: `.weights(Weights::External(file))`"))
}

/// The object with `weights` as read-only data under the symbol `symbol`, which is not visible
/// outside the binary that it is linked into.
///
/// Format, architecture and flags are those of `code`, an object of the same model: a linker
/// refuses objects whose flags (such as the float ABI) differ.
///
/// # Errors
///
/// `code` cannot be read, or there are more bytes than [`MAX_EMBEDDED_WEIGHTS`].
pub fn weights_object<'a>(
    code: &ObjectFile,
    symbol: &str,
    weights: &'a Weights,
) -> Result<Member<'a>, Problem> {
    check_embedded(weights.len())?;
    if is_wasm(&code.bytes) {
        let contents = wasm::weights_object(symbol, weights, WEIGHTS_ALIGNMENT.ilog2());
        let symbols = vec![symbol.as_bytes().to_vec()];
        return Ok(Member { name: format!("{symbol}.o").into(), symbols, contents });
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

    let unwritable = |error: &dyn std::fmt::Display| {
        Problem::new(format!("the object of the weights cannot be written: {error}"))
    };
    // An object's writer wants a section as one slice. Addresses stand in for the weights, with no
    // memory behind them: only the place of this slice is looked at, never its bytes.
    let addresses = match weights.len() {
        0 => None,
        len => Some(MmapMut::map_anon(len).map_err(|error| unwritable(&error))?),
    };
    let stand_in = addresses.as_deref().unwrap_or_default();
    let section = object.section_id(StandardSection::ReadOnlyData);
    object.set_section_data(section, stand_in, WEIGHTS_ALIGNMENT);
    let id = object.add_symbol(Symbol {
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
    let mut around = Around { stand_in, before: Vec::new(), after: None };
    object.emit(&mut around).map_err(|error| unwritable(&error))?;
    let Around { before, after, .. } = around;
    let mut contents = Contents::from(before);
    contents.push_weights(weights);
    contents.push(after.unwrap_or_default());
    let symbols = vec![object.symbol(id).name.clone()];
    Ok(Member { name: format!("{symbol}.o").into(), symbols, contents })
}

/// What an object has before and after the bytes that are stood in for.
struct Around<'a> {
    stand_in: &'a [u8],
    before: Vec<u8>,
    after: Option<Vec<u8>>,
}

impl WritableBuffer for Around<'_> {
    fn len(&self) -> usize {
        let after = self.after.as_ref().map(|after| self.stand_in.len() + after.len());
        self.before.len() + after.unwrap_or(0)
    }

    fn reserve(&mut self, _size: usize) -> Result<(), ()> {
        Ok(())
    }

    fn resize(&mut self, new_len: usize) {
        let more = new_len.saturating_sub(self.len());
        let end = self.after.as_mut().unwrap_or(&mut self.before);
        end.resize(end.len() + more, 0);
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() && std::ptr::eq(bytes, self.stand_in) {
            self.after = Some(Vec::new());
        } else {
            self.after.as_mut().unwrap_or(&mut self.before).extend_from_slice(bytes);
        }
    }
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
            let held = Weights::from(weights.clone());
            let member = weights_object(&code, "niello_w", &held).unwrap();
            assert_eq!(member.name, "niello_w.o");
            let bytes = member.contents.to_bytes().unwrap();
            assert_eq!(bytes.len(), member.contents.len());
            let file = ObjectFile { name: "niello_w.o".to_owned(), bytes };
            let file = parse(&file).unwrap();
            assert_eq!(file.format(), format);

            let name = format!("{prefix}niello_w");
            assert_eq!(member.symbols, [name.as_bytes()]);
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
    fn weights_that_no_program_can_hold_are_refused() {
        assert_eq!(check_embedded(MAX_EMBEDDED_WEIGHTS), Ok(()));
        let message = check_embedded(MAX_EMBEDDED_WEIGHTS + 1).unwrap_err().to_string();
        assert!(message.contains("1610612737 bytes") && message.contains("External"), "{message}");
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
        let weights = Weights::from(vec![1, 2, 3]);
        let bytes = weights_object(&code, "w", &weights).unwrap().contents.to_bytes().unwrap();
        let file = ObjectFile { name: "w.o".to_owned(), bytes };
        let file = parse(&file).unwrap();
        assert_eq!(file.flags(), flags);
        assert!(file.section_by_name(".note.GNU-stack").is_some());
    }
}
