//! Targets from their triples.

use super::{Endian, Target, TargetError, X86_64_V1, baseline_features};
use Endian::{Big, Little};

/// First parts of triples, the architecture as in `cfg(target_arch)`, bits of a pointer, and the
/// order of bytes.
const ARCHITECTURES: &[(&str, &str, u32, Endian)] = &[
    ("aarch64", "aarch64", 64, Little),
    ("arm64", "aarch64", 64, Little),
    ("arm", "arm", 32, Little),
    ("armv4t", "arm", 32, Little),
    ("armv5te", "arm", 32, Little),
    ("armv6", "arm", 32, Little),
    ("armv7", "arm", 32, Little),
    ("armv7a", "arm", 32, Little),
    ("armv7r", "arm", 32, Little),
    ("armv8r", "arm", 32, Little),
    ("i586", "x86", 32, Little),
    ("i686", "x86", 32, Little),
    ("loongarch64", "loongarch64", 64, Little),
    ("powerpc64", "powerpc64", 64, Big),
    ("powerpc64le", "powerpc64", 64, Little),
    ("riscv32gc", "riscv32", 32, Little),
    ("riscv32i", "riscv32", 32, Little),
    ("riscv32im", "riscv32", 32, Little),
    ("riscv32ima", "riscv32", 32, Little),
    ("riscv32imac", "riscv32", 32, Little),
    ("riscv32imafc", "riscv32", 32, Little),
    ("riscv32imc", "riscv32", 32, Little),
    ("riscv64gc", "riscv64", 64, Little),
    ("riscv64im", "riscv64", 64, Little),
    ("riscv64imac", "riscv64", 64, Little),
    ("s390x", "s390x", 64, Big),
    ("sparc64", "sparc64", 64, Big),
    ("thumbv6m", "arm", 32, Little),
    ("thumbv7em", "arm", 32, Little),
    ("thumbv7m", "arm", 32, Little),
    ("thumbv7neon", "arm", 32, Little),
    ("thumbv8m.base", "arm", 32, Little),
    ("thumbv8m.main", "arm", 32, Little),
    ("wasm32", "wasm32", 32, Little),
    ("x86_64", "x86_64", 64, Little),
];

/// What a triple has as its system, and the operating system as in `cfg(target_os)`. Of two that a
/// triple has, as `linux-android`, the later of this list counts.
const SYSTEMS: &[(&str, &str)] = &[
    ("darwin", "macos"),
    ("dragonfly", "dragonfly"),
    ("emscripten", "emscripten"),
    ("espidf", "espidf"),
    ("freebsd", "freebsd"),
    ("fuchsia", "fuchsia"),
    ("haiku", "haiku"),
    ("hurd", "hurd"),
    ("illumos", "illumos"),
    ("ios", "ios"),
    ("linux", "linux"),
    ("macos", "macos"),
    ("netbsd", "netbsd"),
    ("none", "none"),
    ("nuttx", "nuttx"),
    ("openbsd", "openbsd"),
    ("redox", "redox"),
    ("solaris", "solaris"),
    ("tvos", "tvos"),
    ("uefi", "uefi"),
    ("visionos", "visionos"),
    ("vxworks", "vxworks"),
    ("wasi", "wasi"),
    ("watchos", "watchos"),
    ("windows", "windows"),
    ("android", "android"),
];

/// The operating system that the parts of a triple behind the first name. The vendor may be left
/// out, and a version may follow: `arm64-apple-macos14`.
fn system(parts: &[&str]) -> Option<&'static str> {
    let is_named = |system: &&(&str, &str)| parts.iter().any(|part| part.starts_with(system.0));
    match SYSTEMS.iter().rev().find(is_named) {
        Some((_, os)) => Some(os),
        // As a vendor the word says nothing: `wasm32-unknown-unknown`.
        None => {
            parts.last().filter(|last| **last == "unknown" && parts.len() > 1).map(|_| "unknown")
        }
    }
}

impl Target {
    /// The least machine of a target triple: `aarch64-unknown-linux-gnu`.
    ///
    /// # Errors
    ///
    /// The architecture or the operating system is not a known one.
    pub fn from_triple(triple: &str) -> Result<Self, TargetError> {
        let unknown = |what: &str, found: &str, known: Vec<&str>| {
            let what = format!("`{found}` is no known {what}; known are {}", known.join(", "));
            TargetError::UnknownTriple(triple.to_owned(), what)
        };
        let mut parts = triple.split('-');
        let first = parts.next().unwrap_or_default();
        let Some(&(_, arch, width, endian)) = ARCHITECTURES.iter().find(|row| row.0 == first)
        else {
            let known = ARCHITECTURES.iter().map(|row| row.0).collect();
            return Err(unknown("architecture", first, known));
        };
        let parts: Vec<&str> = parts.collect();
        let last = parts.last().copied().unwrap_or_default();
        let Some(os) = system(&parts) else {
            let known = SYSTEMS.iter().map(|row| row.0).collect();
            return Err(unknown("operating system", last, known));
        };
        // Conventions with short pointers on 64-bit processors.
        let has_short_pointers = last.ends_with("x32") || last.ends_with("ilp32");
        // Kernels and firmware of these leave the registers of floats alone.
        let is_soft =
            last.ends_with("softfloat") || (arch == "x86_64" && ["none", "uefi"].contains(&os));
        let features = match first {
            _ if is_soft => Default::default(),
            "i686" => X86_64_V1.iter().map(|&feature| feature.to_owned()).collect(),
            _ => baseline_features(arch, os),
        };
        Ok(Target {
            triple: triple.to_owned(),
            arch: arch.to_owned(),
            os: os.to_owned(),
            features,
            cpu: None,
            vector_width: None,
            pointer_width: if has_short_pointers { 32 } else { width },
            endian,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_say_architecture_and_system() {
        for (triple, arch, os, bits) in [
            ("x86_64-unknown-linux-gnu", "x86_64", "linux", 64),
            ("aarch64-apple-darwin", "aarch64", "macos", 64),
            ("arm64-apple-macos14", "aarch64", "macos", 64),
            ("thumbv7em-none-eabihf", "arm", "none", 32),
            ("x86_64-pc-windows-msvc", "x86_64", "windows", 64),
            ("wasm32-wasip1", "wasm32", "wasi", 32),
            ("s390x-unknown-linux-gnu", "s390x", "linux", 64),
        ] {
            let target = Target::from_triple(triple).unwrap();
            let found = (target.arch.as_str(), target.os.as_str(), target.pointer_width);
            assert_eq!(found, (arch, os, bits), "{triple}");
        }
        let host = Target::host();
        assert_eq!(Target::from_triple(&host.triple), Ok(host));
    }

    /// What rustc says of a target, as Cargo tells it to build scripts.
    fn from_rustc(triple: &str) -> Target {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let args = ["--print", "cfg", "--target", triple];
        let output = std::process::Command::new(rustc).args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let values = |key: &str| -> Vec<&str> {
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs.filter(|pair| pair.0 == key).map(|pair| pair.1.trim_matches('"')).collect()
        };
        Target::from_cargo_env(|name| match name.strip_prefix("CARGO_CFG_") {
            Some(name) => Some(values(&name.to_lowercase()).join(",")),
            None => Some(triple.to_owned()),
        })
        .unwrap()
    }

    #[test]
    fn a_triple_alone_says_what_cargo_says_of_it() {
        for triple in [
            "aarch64-apple-darwin",
            "aarch64-linux-android",
            "aarch64-unknown-linux-gnu_ilp32",
            "aarch64-unknown-none-softfloat",
            "aarch64-apple-watchos",
            "armv5te-unknown-linux-gnueabi",
            "armv7-unknown-linux-gnueabihf",
            "i586-unknown-linux-gnu",
            "i686-unknown-linux-gnu",
            "loongarch64-unknown-linux-gnu",
            "powerpc64-unknown-linux-gnu",
            "powerpc64le-unknown-linux-gnu",
            "riscv32imac-unknown-none-elf",
            "riscv32imc-esp-espidf",
            "riscv64gc-unknown-linux-gnu",
            "s390x-unknown-linux-gnu",
            "thumbv7m-none-eabi",
            "thumbv8m.base-none-eabi",
            "thumbv8m.main-nuttx-eabihf",
            "wasm32-unknown-emscripten",
            "wasm32-unknown-unknown",
            "wasm32-wasip1",
            "x86_64-pc-windows-gnu",
            "x86_64-unknown-hurd-gnu",
            "x86_64-unknown-netbsd",
            "x86_64-unknown-none",
            "x86_64-unknown-linux-gnux32",
        ] {
            let (target, told) = (Target::from_triple(triple).unwrap(), from_rustc(triple));
            let facts = |target: &Target| {
                let Target { arch, os, pointer_width, endian, .. } = target.clone();
                (arch, os, pointer_width, endian, target.vector_bits())
            };
            assert_eq!(facts(&target), facts(&told), "{triple}");
        }
    }

    #[test]
    fn errors_name_the_wrong_part_of_a_triple() {
        for (triple, part) in [
            ("vax-dec-vms", "`vax`"),
            ("x86_64-dec-vms", "`vms`"),
            ("", "``"),
            ("x86_64-unknown", "`unknown`"),
        ] {
            let error = Target::from_triple(triple).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
