//! Which machine a C compiler makes code for: the options that name it, and whether the compiler
//! obeys them.

use object::{AddressSize, Architecture, Endianness, Object};

use crate::codegen::object::is_wasm;
use crate::target::{Endian, Target};

/// What `object` calls an architecture of `cfg(target_arch)`, and the package of Debian and Ubuntu
/// with a cross compiler for Linux on it, if there is one.
const ARCHITECTURES: &[(&str, Architecture, Option<&str>)] = &[
    ("aarch64", Architecture::Aarch64, Some("gcc-aarch64-linux-gnu")),
    ("arm", Architecture::Arm, Some("gcc-arm-linux-gnueabihf")),
    ("loongarch64", Architecture::LoongArch64, Some("gcc-loongarch64-linux-gnu")),
    ("powerpc64", Architecture::PowerPc64, Some("gcc-powerpc64le-linux-gnu")),
    ("riscv32", Architecture::Riscv32, None),
    ("riscv64", Architecture::Riscv64, Some("gcc-riscv64-linux-gnu")),
    ("s390x", Architecture::S390x, Some("gcc-s390x-linux-gnu")),
    ("sparc64", Architecture::Sparc64, Some("gcc-sparc64-linux-gnu")),
    ("wasm32", Architecture::Wasm32, None),
    ("x86", Architecture::I386, Some("gcc-i686-linux-gnu")),
    ("x86_64", Architecture::X86_64, Some("gcc")),
];

/// The options by which the crate `cc` names a machine that is not the host: word size,
/// instructions, floating-point unit, calling convention. `default` are its own arguments with the
/// environment's at their end, which are left aside.
pub(super) fn machine_flags(
    target: &Target,
    default: &[String],
    environment: &[String],
) -> Vec<String> {
    let own = &default[..default.len().saturating_sub(environment.len())];
    let is_machine = |flag: &&String| flag.starts_with("-m") || flag.starts_with("--target=");
    let mut flags: Vec<String> = own.iter().filter(is_machine).cloned().collect();
    // Without Linux, the crate has floats in registers of integers, and rustc in those of floats.
    for flag in flags.iter_mut().filter(|flag| ["-mabi=lp64", "-mabi=ilp32"].contains(&&***flag)) {
        flag.push_str(riscv_floats(&target.triple));
    }
    flags
}

/// What RISC-V's conventions are called with behind the width of their integers, for the floats that
/// have registers: those of the extensions in a triple's first part.
fn riscv_floats(triple: &str) -> &'static str {
    let instructions = triple.split('-').next().unwrap_or_default();
    let extensions = instructions.strip_prefix("riscv").unwrap_or_default();
    let has = |extension: char| extensions.contains(extension);
    match (has('d') || has('g'), has('f')) {
        (true, _) => "d",
        (false, true) => "f",
        (false, false) => "",
    }
}

/// The package of Debian and Ubuntu that has a compiler for a target: what an error advises.
pub(super) fn package(target: &Target) -> &'static str {
    match (target.os.as_str(), target.arch.as_str()) {
        ("linux", "powerpc64") if target.endian == Endian::Big => "gcc-powerpc64-linux-gnu",
        ("linux", arch) => {
            let row = ARCHITECTURES.iter().find(|row| row.0 == arch);
            row.and_then(|row| row.2).unwrap_or("clang")
        }
        ("none", "arm") => "gcc-arm-none-eabi",
        ("none", "riscv32" | "riscv64") => "gcc-riscv64-unknown-elf",
        ("windows", "x86_64") => "gcc-mingw-w64-x86-64",
        ("windows", "x86") => "gcc-mingw-w64-i686",
        (_, "wasm32" | "wasm64") => "clang lld",
        _ => "clang",
    }
}

/// What kind of machine an object is for, if it is not the target's; `None` if it is, or if the
/// target's is not known here.
pub(super) fn other_machine(object: &[u8], target: &Target) -> Option<String> {
    let is_wasm32 = target.arch == "wasm32" && target.pointer_width == 32;
    if is_wasm(object) && is_wasm32 {
        return None;
    }
    let Ok(file) = object::File::parse(object) else {
        return Some("a machine whose objects are not known".to_owned());
    };
    let row = ARCHITECTURES.iter().find(|row| row.0 == target.arch)?;
    let endian = match file.endianness() {
        Endianness::Little => Endian::Little,
        Endianness::Big => Endian::Big,
    };
    // The file's own width says nothing in COFF, which has one form for both.
    let bytes = file.architecture().address_size().map_or(0, AddressSize::bytes);
    let bits = 8 * u32::from(bytes);
    let found = match file.architecture() {
        // The conventions of 64-bit processors that have pointers of 32 bits.
        Architecture::X86_64_X32 => Architecture::X86_64,
        Architecture::Aarch64_Ilp32 => Architecture::Aarch64,
        found => found,
    };
    if (found, bits, endian) == (row.1, target.pointer_width, target.endian) {
        return None;
    }
    let name = ARCHITECTURES.iter().find(|row| row.1 == found).map(|row| row.0);
    let order = if endian == Endian::Little { "little-endian" } else { "big-endian" };
    let name = name.map_or_else(|| format!("{found:?}"), str::to_owned);
    Some(format!("{name} ({bits} bits, {order})"))
}

#[cfg(test)]
mod tests {
    use object::BinaryFormat;
    use object::write::StandardSection;

    use super::*;

    fn object(architecture: Architecture, endian: Endianness) -> Vec<u8> {
        object_of(BinaryFormat::Elf, architecture, endian)
    }

    fn object_of(format: BinaryFormat, architecture: Architecture, endian: Endianness) -> Vec<u8> {
        let mut object = object::write::Object::new(format, architecture, endian);
        // COFF is not told from other files without a section.
        let text = object.section_id(StandardSection::Text);
        object.append_section_data(text, &[0; 4], 4);
        object.write().unwrap()
    }

    #[test]
    fn objects_of_another_architecture_width_or_byte_order_are_told_apart() {
        let aarch64 = Target::from_triple("aarch64-unknown-linux-gnu").unwrap();
        let own = object(Architecture::Aarch64, Endianness::Little);
        assert_eq!(other_machine(&own, &aarch64), None);
        for (architecture, endian, name) in [
            (Architecture::X86_64, Endianness::Little, "x86_64 (64 bits, little-endian)"),
            (Architecture::I386, Endianness::Little, "x86 (32 bits, little-endian)"),
            (Architecture::Aarch64, Endianness::Big, "aarch64 (64 bits, big-endian)"),
        ] {
            let found = other_machine(&object(architecture, endian), &aarch64);
            assert_eq!(found.as_deref(), Some(name));
        }
        assert!(other_machine(b"no object", &aarch64).is_some());

        let short = Target::from_triple("x86_64-unknown-linux-gnux32").unwrap();
        let own = object(Architecture::X86_64_X32, Endianness::Little);
        assert_eq!(other_machine(&own, &short), None);
        let windows = Target::from_triple("x86_64-pc-windows-gnu").unwrap();
        let own = object_of(BinaryFormat::Coff, Architecture::X86_64, Endianness::Little);
        assert_eq!(other_machine(&own, &windows), None);
    }

    #[test]
    fn options_that_name_the_machine_are_kept_without_those_of_the_environment() {
        let strings =
            |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>();
        let default = strings(&["-O0", "-march=armv7e-m", "-mthumb", "-fPIC", "-mcpu=mine", "-g"]);
        let target = Target::from_triple("thumbv7em-none-eabihf").unwrap();
        let flags = machine_flags(&target, &default, &strings(&["-mcpu=mine", "-g"]));
        assert_eq!(flags, ["-march=armv7e-m", "-mthumb"]);
        for (triple, given, flag) in [
            ("riscv32imac-unknown-none-elf", "-mabi=ilp32", "-mabi=ilp32"),
            ("riscv32imafc-unknown-none-elf", "-mabi=ilp32", "-mabi=ilp32f"),
            ("riscv64gc-unknown-none-elf", "-mabi=lp64", "-mabi=lp64d"),
            ("riscv64gc-unknown-linux-gnu", "-mabi=lp64d", "-mabi=lp64d"),
        ] {
            let target = Target::from_triple(triple).unwrap();
            assert_eq!(machine_flags(&target, &strings(&[given]), &[]), [flag], "{triple}");
        }
    }

    #[test]
    fn the_package_is_that_of_the_target() {
        for (triple, name) in [
            ("aarch64-unknown-linux-gnu", "gcc-aarch64-linux-gnu"),
            ("thumbv7em-none-eabihf", "gcc-arm-none-eabi"),
            ("wasm32-wasip1", "clang lld"),
            ("i686-unknown-linux-gnu", "gcc-i686-linux-gnu"),
            ("s390x-unknown-linux-gnu", "gcc-s390x-linux-gnu"),
            ("powerpc64-unknown-linux-gnu", "gcc-powerpc64-linux-gnu"),
            ("powerpc64le-unknown-linux-gnu", "gcc-powerpc64le-linux-gnu"),
        ] {
            assert_eq!(package(&Target::from_triple(triple).unwrap()), name, "{triple}");
        }
    }
}
