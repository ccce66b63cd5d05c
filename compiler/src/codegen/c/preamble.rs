//! What stands before the kernels of a file: integer types, the context, vector types, helpers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::kernel::KernelSource;
use super::text::{scalar_type, vector_type};
use super::wrapper::wrappers_text;
use crate::codegen::wrapper::Wrapper;
use crate::tir::PrimType;

/// Names of integer types and the compiler's names for them.
const INTEGERS: [(&str, &str); 9] = [
    ("i8", "__INT8_TYPE__"),
    ("i16", "__INT16_TYPE__"),
    ("i32", "__INT32_TYPE__"),
    ("i64", "__INT64_TYPE__"),
    ("u8", "__UINT8_TYPE__"),
    ("u16", "__UINT16_TYPE__"),
    ("u32", "__UINT32_TYPE__"),
    ("u64", "__UINT64_TYPE__"),
    ("usize", "__SIZE_TYPE__"),
];

/// `niello_runtime::abi::Context`.
const CONTEXT: &str = "\
typedef void niello_body(void *argument, i64 begin, i64 end, usize worker);

struct niello_context {
    const u8 *weights;
    u8 *workspace;
    u8 *scratch;
    usize scratch_stride;
    void (*parallel_for)(void *pool, niello_body *body, void *argument, i64 count);
    void *pool;
    usize workers;
    usize level;
};
";

/// Sets the processor's mode in which denormal numbers count as zeros, and restores what was set.
///
/// A compiler may move operations on floats across these, so they stand in functions without any,
/// around calls that are not inlined.
const DENORMALS: &str = "
static inline u64 niello_flush_denormals(void) {
#if defined(__aarch64__)
    u64 mode;
    __asm__ volatile(\"mrs %0, fpcr\" : \"=r\"(mode));
    __asm__ volatile(\"msr fpcr, %0\" : : \"r\"(mode | 0x1000000)); /* FZ */
    return mode;
#else
    const unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040); /* FTZ, DAZ */
    return mode;
#endif
}
static inline void niello_restore_denormals(u64 mode) {
#if defined(__aarch64__)
    __asm__ volatile(\"msr fpcr, %0\" : : \"r\"(mode));
#else
    __builtin_ia32_ldmxcsr((unsigned)mode);
#endif
}
";

/// The lines of C before and after calls that run with denormal numbers flushed to zero, if they do.
pub(crate) fn denormals_around(flush: bool) -> [&'static str; 2] {
    match flush {
        true => [
            "    const u64 denormals = niello_flush_denormals();\n",
            "    niello_restore_denormals(denormals);\n",
        ],
        false => ["", ""],
    }
}

/// The words of a text: its identifiers, among others.
pub fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
}

/// What a file declares before `text`: the integer types that it mentions and `struct
/// niello_context`, with its fields if it `uses_context`.
pub fn declarations(text: &str, uses_context: bool) -> String {
    let mut words = words(text);
    let denormals = if words.contains("niello_flush_denormals") {
        words.insert("u64");
        DENORMALS
    } else {
        ""
    };
    let context = if uses_context {
        words.extend(["u8", "i64", "usize"]);
        CONTEXT
    } else {
        "struct niello_context;\n"
    };
    let mut declared = String::new();
    for (name, compiler) in INTEGERS.iter().filter(|(name, _)| words.contains(name)) {
        // Writing to a string cannot fail.
        let _ = writeln!(declared, "typedef {compiler} {name};");
    }
    if !declared.is_empty() {
        declared.push('\n');
    }
    declared + context + denormals
}

/// The vector types and helpers that a kernel uses.
#[derive(Clone, Default, Debug)]
pub(super) struct Preamble {
    vectors: BTreeSet<PrimType>,
    /// By whether vectors are involved, then name: a vector helper may call a scalar one.
    helpers: BTreeMap<(bool, String), String>,
}

impl Preamble {
    /// The C type of a value that is not a `Bool`; a vector type is noted as used.
    pub(super) fn type_name(&mut self, ty: PrimType) -> String {
        if ty.is_scalar() {
            return scalar_type(ty.dtype).unwrap_or("void").to_owned();
        }
        self.vectors.insert(ty);
        vector_type(ty)
    }

    /// The type through which vectors are loaded from and stored to unaligned memory.
    pub(super) fn memory_type_name(&mut self, ty: PrimType) -> String {
        self.vectors.insert(ty);
        format!("{}_u", vector_type(ty))
    }

    /// Notes that a helper is used and returns its name; `make` writes its definition.
    pub(super) fn helper(
        &mut self,
        name: String,
        is_vector: bool,
        make: impl FnOnce(&mut Preamble, &str) -> String,
    ) -> String {
        let key = (is_vector, name);
        if !self.helpers.contains_key(&key) {
            let text = make(self, &key.1);
            self.helpers.insert(key.clone(), text);
        }
        key.1
    }

    fn merge(&mut self, other: &Preamble) {
        self.vectors.extend(&other.vectors);
        for (key, text) in &other.helpers {
            self.helpers.entry(key.clone()).or_insert_with(|| text.clone());
        }
    }
}

/// One C file with the given kernels, in order, and functions that call them.
pub fn translation_unit<'a>(
    kernels: impl IntoIterator<Item = &'a KernelSource>,
    wrappers: &[Wrapper],
) -> String {
    let mut preamble = Preamble::default();
    let mut definitions = String::new();
    for kernel in kernels {
        preamble.merge(&kernel.preamble);
        definitions.push('\n');
        definitions.push_str(&kernel.definition);
    }
    let mut text = String::new();
    if !preamble.vectors.is_empty() {
        text.push_str("\n/* Vectors, and the same at any address. */\n");
    }
    for ty in &preamble.vectors {
        let name = vector_type(*ty);
        let element = scalar_type(ty.dtype).unwrap_or("void");
        let (bytes, align) = (ty.bits() / 8, ty.dtype.bits() / 8);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "typedef {element} {name} __attribute__((vector_size({bytes})));");
        let _ = writeln!(
            text,
            "typedef {element} {name}_u __attribute__((vector_size({bytes}), aligned({align}), \
             may_alias));"
        );
    }
    if !preamble.helpers.is_empty() {
        text.push_str("\n#define NIELLO_INLINE static inline __attribute__((always_inline))\n");
    }
    for helper in preamble.helpers.values() {
        text.push('\n');
        text.push_str(helper);
    }
    text.push_str(&definitions);
    text.push_str(&wrappers_text(wrappers));
    let uses_context = text.contains("ctx->") || wrappers.iter().any(Wrapper::is_packed);
    format!("/* Generated by niello. */\n\n{}{text}", declarations(&text, uses_context))
}
