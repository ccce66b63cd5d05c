//! The C header of a compiled model.

use super::names::word;
use super::{BindingsOptions, Tensor, WeightsPlacement, printable, shape};
use crate::codegen::c::level_function;
use crate::diagnostics::Problem;
use crate::executor::CompiledModel;

/// The interface of the runtime, once for all the headers that a file includes.
const CONTEXT: &str = "\
#ifndef NIELLO_CONTEXT
#define NIELLO_CONTEXT
struct niello_context {
    const void *weights;   /* aligned to 64 */
    void *workspace;       /* aligned to 64; zeros before the first run */
    void *scratch;         /* of worker 0 */
    size_t scratch_stride; /* bytes between the scratch areas of two workers */
    /* runs body over ranges that cover 0..count; null: kernels run serially */
    void (*parallel_for)(void *pool,
                         void (*body)(void *argument, int64_t begin, int64_t end, size_t worker),
                         void *argument, int64_t count);
    void *pool;            /* handed to parallel_for */
    size_t workers;        /* at least 1 */
    size_t level;          /* which of the CPU levels runs; every machine has 0 */
};
#endif
";

/// Writes the C header of `model`: sizes, the entry, and a function that calls it serially.
///
/// # Errors
///
/// A tensor has more elements than a 64-bit number can count.
pub fn header(model: &CompiledModel, options: &BindingsOptions) -> Result<String, Problem> {
    let short = word(&model.name);
    let upper = short.to_ascii_uppercase();
    let symbol = &model.symbol;
    let mut text = format!(
        "/* The model {}, compiled by niello {}. Generated: do not edit. */\n\
         #ifndef NIELLO_{upper}_H\n#define NIELLO_{upper}_H\n\n\
         #include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{CONTEXT}\n",
        comment(&model.name),
        env!("CARGO_PKG_VERSION"),
    );
    let mut define = |name: &str, value: u64| {
        text += &format!("#define NIELLO_{upper}_{name} {value}\n");
    };
    define("WORKSPACE_BYTES", model.workspace_bytes);
    define("WEIGHT_BYTES", model.weights.len() as u64);
    if model.threads > 1 {
        define("THREADS", model.workers as u64);
    }
    let sizes = u64::from(!model.sizes.is_empty());
    define("INPUTS", model.inputs.len() as u64 + sizes);
    define("OUTPUTS", model.outputs.len() as u64);
    for (kind, infos) in [("input", &model.inputs), ("output", &model.outputs)] {
        for (index, tensor) in Tensor::all(infos, &model.sizes)?.iter().enumerate() {
            text += &format!(
                "\n/* {kind} {index}: {}, {} {} */\n#define NIELLO_{upper}_{}_{index}_BYTES {}\n",
                comment(&tensor.info.name),
                tensor.info.dtype,
                comment(&shape(tensor.info)),
                kind.to_ascii_uppercase(),
                tensor.bytes,
            );
        }
    }
    if !model.sizes.is_empty() {
        let sizes = model.sizes.iter();
        let sizes = sizes.map(|size| {
            let from = if size.counted { ", which the run stores" } else { "" };
            format!("{}, {}{from}", comment(&size.name), size.in_words())
        });
        text += &format!(
            "\n/* input {}: the sizes of the run, an int64_t each: {}.\n   Of tensors that have one \
             of them, BYTES are those for the greatest, and a run accesses as many as its size says. */\n",
            model.inputs.len(),
            sizes.collect::<Vec<_>>().join("; ")
        );
        for (left, right) in &model.sizes.equal {
            let [left, right] = [left, right].map(|side| comment(&side.to_string()));
            text += &format!("/* The caller sees to it that {left} is {right}. */\n");
        }
        for (left, right) in &model.sizes.equal_counts {
            let [left, right] = [left, right].map(|side| comment(&side.to_string()));
            text +=
                &format!("/* A run that stores a {left} other than {right} has no result. */\n");
        }
    }
    if !model.states.is_empty() {
        let states = model.states.iter().map(|state| comment(&state.name)).collect::<Vec<_>>();
        text += &format!(
            "\n/* A run leaves for the next one: {}. A workspace of zeros begins anew. */\n",
            states.join(", ")
        );
    }
    let external = options.weights == WeightsPlacement::External;
    let (weights_parameter, weights) = match (external, model.weights.is_empty()) {
        (true, _) => ("const void *weights, ", "weights".to_owned()),
        (false, true) => ("", "NULL".to_owned()),
        (false, false) => {
            text += &format!(
                "\nextern const unsigned char {symbol}_weights[NIELLO_{upper}_WEIGHT_BYTES];\n"
            );
            ("", format!("{symbol}_weights"))
        }
    };
    let note = if external { "; weights: the file of this build, aligned to 64" } else { "" };
    text.push('\n');
    text += &level_function(&format!("niello_{short}_level"), &model.levels);
    text += &format!(
        "
void {symbol}_run(const struct niello_context *context,
                  const void *const *inputs, void *const *outputs);

/* Runs the model on the calling thread{threads}. workspace: NIELLO_{upper}_WORKSPACE_BYTES bytes aligned
   to 64, zeros before the first run{note}. Tensors are dense and row-major. */
static inline void niello_{short}_run({weights_parameter}void *workspace,
                                      const void *const *inputs, void *const *outputs) {{
    struct niello_context context;
    context.weights = {weights};
    context.workspace = workspace;
    context.scratch = (char *)workspace + {};
    context.scratch_stride = {};
    context.parallel_for = NULL;
    context.pool = NULL;
    context.workers = 1;
    context.level = niello_{short}_level();
    {symbol}_run(&context, inputs, outputs);
}}

#ifdef __cplusplus
}}
#endif
#endif
",
        model.scratch_offset,
        model.scratch_stride,
        threads = match model.threads {
            0 | 1 => String::new(),
            _ => format!(
                " alone: a context with parallel_for and up to\n   NIELLO_{upper}_THREADS workers \
                 has several threads share {symbol}_run"
            ),
        },
    );
    Ok(text)
}

/// `text` so that it can stand in a comment: it cannot end it, and no line of it can be continued.
fn comment(text: &str) -> String {
    printable(text).replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
}
