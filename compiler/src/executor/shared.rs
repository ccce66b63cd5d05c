//! A compiled model as a shared library that sets itself up.

use std::path::Path;

use super::aot::call_symbol;
use super::{CompiledModel, Contents};
use crate::codegen::c::{self, GENERATED, SourceFile, declarations, level_function};
use crate::codegen::object::weights_object;
use crate::diagnostics::{Problem, Report};
use crate::target::Target;

/// The function that a shared library exports.
pub const SHARED_ENTRY: &str = "niello_run";

/// The function of a shared library that sets the widest CPU level to use.
pub const SHARED_LIMIT: &str = "niello_limit_level";

/// The function of a shared library that takes who runs parallel loops.
pub(super) const SHARED_PARALLEL: &str = "niello_set_parallel";

/// Most workers of a library's own threads, so that a loop's state fits 32 bits.
const MOST_WORKERS: usize = 1023;

/// The threads of a library.
const POOL: &str = include_str!("shared/pool.c");

/// The function of a shared library that makes one of the model's calls, if the model has functions
/// for these.
pub(super) const SHARED_CALL: &str = "niello_call";

/// The function of such a library that says where the workspace is, and how many bytes it has.
pub(super) const SHARED_WORKSPACE: &str = "niello_workspace";

/// Writes `model`, which must have been compiled for `target`, as the shared library `path`.
///
/// It exports `int niello_run(const void *const *inputs, void *const *outputs)`: tensors in the
/// model's order, dense row-major, aligned to their elements; 0 means success. Weights and
/// workspace are in the library, so that one call runs at a time. If runs have sizes of their own,
/// an array of these comes as one more input: see [`CompiledModel`].
///
/// The widest of the model's CPU levels that the machine can run is chosen at the first call.
/// `unsigned niello_limit_level(unsigned most)` asks for one whose place among the model's levels
/// is at most `most`, and returns the place of the one that is used.
///
/// A model with loops that threads share starts them at the first call, no more than the
/// process may use processors. `void niello_set_parallel(parallel_for, pool, workers)` has parallel
/// loops run by the caller's threads in place of them, in the way of `niello_context`; a null pointer
/// goes back. On Windows a library has no threads of its own.
///
/// # Errors
///
/// The C compiler fails, or the file cannot be written.
pub fn write_shared_library(
    model: &CompiledModel,
    target: &Target,
    path: &Path,
) -> Result<(), Report> {
    let name = format!("{}_shared", model.symbol);
    let has_threads = target.os != "windows";
    let file = SourceFile { name, text: c_text(model, has_threads), level: 0 };
    let failed = |error: c::CompileError| Problem::new(error.to_string());
    let entry = c::compile_c(&[file], std::slice::from_ref(target), 1, None).map_err(failed)?;
    let mut objects: Vec<Contents<'_>> = entry.iter().map(Contents::from).collect();
    if let Some(code) = model.objects.first().filter(|_| !model.weights.is_empty()) {
        let symbol = format!("{}_weights", model.symbol);
        objects.push(weights_object(code, &symbol, &model.weights)?.contents);
    }
    objects.extend(model.objects.iter().map(Contents::from));
    c::link_shared(objects, target, path).map_err(failed)?;
    Ok(())
}

fn c_text(model: &CompiledModel, has_threads: bool) -> String {
    let CompiledModel { symbol, scratch_offset, scratch_stride, .. } = model;
    let (declaration, weights) = match model.weights.is_empty() {
        true => (String::new(), "workspace".to_owned()),
        false => (format!("extern const u8 {symbol}_weights[];\n"), format!("{symbol}_weights")),
    };
    let functions = std::iter::once(symbol.clone())
        .chain((0..model.calls).map(|number| call_symbol(symbol, number)))
        .map(|function| format!("{function}_run"));
    let names = functions.clone().skip(1).collect::<Vec<_>>().join(", ");
    let functions: String = functions
        .map(|function| {
            format!("void {function}(const struct niello_context *, const void *const *, void *const *);\n")
        })
        .collect();
    let serial = "    /* Without a pool, kernels run serially. */\n";
    let ([functions_of_loops, complete, end], note, constant) = match model.workers {
        0 | 1 => (Default::default(), serial, "const "),
        workers => (shared_loops(workers, has_threads), "", ""),
    };
    let bytes = model.workspace_bytes.max(1);
    let single_calls = match model.calls {
        0 => String::new(),
        _ => format!(
            "
int {SHARED_CALL}(unsigned number, const void *const *inputs, void *const *outputs) {{
    static void (*const calls[])(const struct niello_context *, const void *const *, void *const *) = {{{names}}};
    if (number >= sizeof calls / sizeof calls[0])
        return 1;
    const struct niello_context ctx = context();
    calls[number](&ctx, inputs, outputs);
{end}    return 0;
}}

const void *{SHARED_WORKSPACE}(usize *bytes) {{
    *bytes = {bytes};
    return workspace;
}}
"
        ),
    };
    let text = format!(
        "#pragma GCC visibility push(hidden)
{declaration}{functions}#pragma GCC visibility pop

{level}
static unsigned limit = ~0u;
static u8 workspace[{bytes}] __attribute__((aligned(64)));

#pragma GCC visibility push(default)
int {SHARED_ENTRY}(const void *const *inputs, void *const *outputs);
unsigned {SHARED_LIMIT}(unsigned most);
int {SHARED_CALL}(unsigned number, const void *const *inputs, void *const *outputs);
const void *{SHARED_WORKSPACE}(usize *bytes);
#pragma GCC visibility pop

static unsigned level(void) {{
    unsigned best = best_level();
    return best < limit ? best : limit;
}}

unsigned {SHARED_LIMIT}(unsigned most) {{
    limit = most;
    return level();
}}

{functions_of_loops}static struct niello_context context(void) {{
{note}    {constant}struct niello_context ctx = {{
        {weights}, workspace, workspace + {scratch_offset}, {scratch_stride}, 0, 0, 1, level()
    }};
{complete}    return ctx;
}}

int {SHARED_ENTRY}(const void *const *inputs, void *const *outputs) {{
    const struct niello_context ctx = context();
    {symbol}_run(&ctx, inputs, outputs);
{end}    return 0;
}}
{single_calls}",
        level = level_function("best_level", &model.levels),
    );
    format!("{GENERATED}\n\n{}\n{text}", declarations(&text, true))
}

/// What a library's text has if up to so many threads share its loops: functions, statements that
/// complete the context, and a statement after a call.
fn shared_loops(threads: usize, has_threads: bool) -> [String; 3] {
    let threads = threads.min(MOST_WORKERS);
    let (pool, own, end) = match has_threads {
        true => (
            format!("enum {{ THREADS = {threads} }};\n\n{POOL}\n"),
            "    } else {
        begin();
        ctx.parallel_for = run_loop;
        ctx.workers = pool.workers;
",
            "    end();\n",
        ),
        false => (String::new(), "", ""),
    };
    let functions = format!(
        "{pool}
typedef void niello_parallel(void *pool, niello_body *body, void *argument, i64 count);

static struct {{
    niello_parallel *run;
    void *pool;
    usize workers;
}} given;

#pragma GCC visibility push(default)
void {SHARED_PARALLEL}(niello_parallel *run, void *of, usize workers);
#pragma GCC visibility pop

void {SHARED_PARALLEL}(niello_parallel *run, void *of, usize workers) {{
    given.run = run;
    given.pool = of;
    given.workers = workers < {threads} ? workers : {threads};
}}

"
    );
    let complete = format!(
        "    if (given.run) {{
        ctx.parallel_for = given.run;
        ctx.pool = given.pool;
        ctx.workers = given.workers;
{own}    }}
"
    );
    [functions, complete, end.to_owned()]
}
