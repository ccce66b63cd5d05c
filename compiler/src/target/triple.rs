//! Targets from their triples.

use super::{Endian, Target, TargetError, baseline_features};

/// First parts of triples, the architecture as in `cfg(target_arch)`, and bits of a pointer.
const ARCHITECTURES: &[(&str, &str, u32)] = &[
    ("aarch64", "aarch64", 64),
    ("arm64", "aarch64", 64),
    ("arm", "arm", 32),
    ("armv7", "arm", 32),
    ("i586", "x86", 32),
    ("i686", "x86", 32),
    ("riscv32gc", "riscv32", 32),
    ("riscv32imac", "riscv32", 32),
    ("riscv32imafc", "riscv32", 32),
    ("riscv32imc", "riscv32", 32),
    ("riscv64gc", "riscv64", 64),
    ("riscv64imac", "riscv64", 64),
    ("thumbv6m", "arm", 32),
    ("thumbv7em", "arm", 32),
    ("thumbv7m", "arm", 32),
    ("thumbv8m.main", "arm", 32),
    ("wasm32", "wasm32", 32),
    ("x86_64", "x86_64", 64),
];

/// What a triple has as its system, and the operating system as in `cfg(target_os)`.
const SYSTEMS: &[(&str, &str)] = &[
    ("android", "android"),
    ("darwin", "macos"),
    ("freebsd", "freebsd"),
    ("ios", "ios"),
    ("linux", "linux"),
    ("macos", "macos"),
    ("none", "none"),
    ("wasi", "wasi"),
    ("windows", "windows"),
];

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
        let Some((_, arch, pointer_width)) = ARCHITECTURES.iter().find(|row| row.0 == first) else {
            let known = ARCHITECTURES.iter().map(|row| row.0).collect();
            return Err(unknown("architecture", first, known));
        };
        // The vendor may be left out, and a version may follow: `arm64-apple-macos14`.
        let mut systems = parts
            .clone()
            .filter_map(|part| SYSTEMS.iter().copied().find(|system| part.starts_with(system.0)));
        let Some((_, os)) = systems.next() else {
            let known = SYSTEMS.iter().map(|row| row.0).collect();
            return Err(unknown("operating system", parts.next_back().unwrap_or_default(), known));
        };
        Ok(Target {
            triple: triple.to_owned(),
            arch: (*arch).to_owned(),
            os: os.to_owned(),
            features: baseline_features(arch),
            cpu: None,
            vector_width: None,
            pointer_width: *pointer_width,
            endian: Endian::Little,
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
        ] {
            let target = Target::from_triple(triple).unwrap();
            let found = (target.arch.as_str(), target.os.as_str(), target.pointer_width);
            assert_eq!(found, (arch, os, bits), "{triple}");
        }
        let host = Target::host();
        assert_eq!(Target::from_triple(&host.triple), Ok(host));
    }

    #[test]
    fn errors_name_the_wrong_part_of_a_triple() {
        for (triple, part) in [("vax-dec-vms", "`vax`"), ("x86_64-dec-vms", "`vms`"), ("", "``")] {
            let error = Target::from_triple(triple).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
