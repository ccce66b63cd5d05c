//! CPU features that are switched on and off by name, and the width of vectors.

use super::{Target, TargetError};

/// Architecture, feature, and the features without which a CPU cannot have it.
///
/// Names are rustc's. Only features that code generation knows are listed.
const FEATURES: &[(&str, &str, &[&str])] = &[
    ("x86_64", "amx-int8", &["amx-tile"]),
    ("x86_64", "amx-tile", &[]),
    ("x86_64", "avx", &["sse4.2", "xsave"]),
    ("x86_64", "avx2", &["avx"]),
    ("x86_64", "avx512bw", &["avx512f"]),
    ("x86_64", "avx512cd", &["avx512f"]),
    ("x86_64", "avx512dq", &["avx512f"]),
    ("x86_64", "avx512f", &["avx2", "f16c", "fma"]),
    ("x86_64", "avx512vl", &["avx512f"]),
    ("x86_64", "avx512vnni", &["avx512f"]),
    ("x86_64", "avxvnni", &["avx2"]),
    ("x86_64", "bmi1", &[]),
    ("x86_64", "bmi2", &[]),
    ("x86_64", "cmpxchg16b", &[]),
    ("x86_64", "f16c", &["avx"]),
    ("x86_64", "fma", &["avx"]),
    ("x86_64", "fxsr", &[]),
    ("x86_64", "lzcnt", &[]),
    ("x86_64", "movbe", &[]),
    ("x86_64", "popcnt", &[]),
    ("x86_64", "sse", &[]),
    ("x86_64", "sse2", &["sse"]),
    ("x86_64", "sse3", &["sse2"]),
    ("x86_64", "sse4.1", &["ssse3"]),
    ("x86_64", "sse4.2", &["sse4.1"]),
    ("x86_64", "ssse3", &["sse3"]),
    ("x86_64", "xsave", &[]),
    ("aarch64", "bf16", &["neon"]),
    ("aarch64", "dotprod", &["neon"]),
    ("aarch64", "fp16", &["neon"]),
    ("aarch64", "i8mm", &["neon"]),
    ("aarch64", "neon", &[]),
    ("arm", "neon", &[]),
    ("arm", "vfp4", &[]),
    ("riscv64", "v", &[]),
    ("wasm32", "simd128", &[]),
];

/// Names that LLVM, C compilers and Linux have for rustc's features, where they differ.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("amx_int8", "amx-int8"),
    ("amx_tile", "amx-tile"),
    ("avx512_vnni", "avx512vnni"),
    ("avx_vnni", "avxvnni"),
    ("bmi", "bmi1"),
    ("cx16", "cmpxchg16b"),
    ("fullfp16", "fp16"),
];

/// The features that are known for an architecture.
pub(super) fn known(arch: &str) -> impl Iterator<Item = &'static str> {
    FEATURES.iter().filter(move |row| row.0 == arch).map(|row| row.1)
}

impl Target {
    /// The same machine with a feature, and with all that it needs, or without it, and without all
    /// that needs it. The name is rustc's, LLVM's or Linux's.
    ///
    /// # Errors
    ///
    /// The feature is not known for the architecture.
    pub fn with_feature(mut self, name: &str, enabled: bool) -> Result<Self, TargetError> {
        let name = OTHER_NAMES.iter().find(|row| row.0 == name).map_or(name, |row| row.1);
        let Some(name) = known(&self.arch).find(|known| *known == name) else {
            return Err(TargetError::UnknownFeature(name.to_owned(), self.arch));
        };
        let mut left = vec![name];
        while let Some(name) = left.pop() {
            let rows = FEATURES.iter().filter(|row| row.0 == self.arch);
            if enabled {
                self.features.insert(name.to_owned());
                left.extend(rows.filter(|row| row.1 == name).flat_map(|row| row.2));
            } else {
                self.features.remove(name);
                left.extend(rows.filter(|row| row.2.contains(&name)).map(|row| row.1));
            }
        }
        Ok(self)
    }

    /// The same machine with vectors of at most `bits` bits.
    ///
    /// # Errors
    ///
    /// The machine has no registers of that width, or it is not 64 bits times a power of two.
    pub fn with_vector_width(mut self, bits: u64) -> Result<Self, TargetError> {
        let widest = self.register_bits();
        if bits < 64 || !bits.is_power_of_two() || bits > widest {
            return Err(TargetError::BadVectorWidth { asked: bits, widest });
        }
        self.vector_width = (bits < widest).then_some(bits);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86_64() -> Target {
        Target::from_triple("x86_64-unknown-linux-gnu").unwrap()
    }

    #[test]
    fn a_feature_implies_its_requirements_and_removal_its_dependants() {
        let wide = x86_64().with_feature("avx512bw", true).unwrap();
        assert!(["avx512f", "fma", "sse3"].iter().all(|feature| wide.has_feature(feature)));
        let narrow = wide.with_feature("avx2", false).unwrap();
        assert!(narrow.has_feature("fma") && !narrow.has_feature("avx512f"));
        assert_eq!(narrow.vector_bits(), 128);
        assert!(x86_64().with_feature("bmi", true).unwrap().has_feature("bmi1"));
        // Of vectors of 256 bits without AVX-512.
        let vnni = x86_64().with_feature("avx_vnni", true).unwrap();
        assert!(vnni.has_feature("avx2") && vnni.has_dot_add(8) && !vnni.has_dot_add(16));
        let error = x86_64().with_feature("neon", true).unwrap_err().to_string();
        assert!(error.contains("`neon`") && error.contains("avx512vnni"), "{error}");
    }

    /// What the tables of CPUs list for each is complete in itself.
    #[test]
    fn every_cpu_has_what_its_features_need() {
        for (arch, cpu, _) in super::super::CPUS {
            let bare = Target { arch: (*arch).to_owned(), ..Target::host() };
            let target = bare.with_cpu(cpu).unwrap();
            for feature in &target.features {
                let again = target.clone().with_feature(feature, true).unwrap();
                assert_eq!(again.features, target.features, "{cpu}: {feature}");
            }
        }
    }

    #[test]
    fn vectors_are_at_most_as_wide_as_registers() {
        let v4 = x86_64().with_cpu("x86-64-v4").unwrap();
        assert_eq!(v4.clone().with_vector_width(256).unwrap().vector_bits(), 256);
        assert_eq!(v4.clone().with_vector_width(512).unwrap(), v4);
        for (target, bits) in [(v4.clone(), 384), (v4, 1024), (x86_64(), 256)] {
            let error = target.with_vector_width(bits).unwrap_err().to_string();
            assert!(error.contains(&format!("{bits} bits")), "{error}");
        }
    }
}
