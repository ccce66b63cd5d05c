//! The function that runs a model: its calls as data, and their text in C.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use cranelift_entity::SecondaryMap;

use super::{KernelFunctions, PackedWeights, Scratch};
use crate::codegen::c::{GENERATED, declarations, denormals_around, signature, words, wrap};
use crate::executor::{Count, KernelId, Part, Program, RegionKind, Units, ValueId};
use crate::memory::{MemoryPlan, Place, Storage};

/// Kernel calls and regions in one function: compilers take more than linear time for a function's
/// length.
pub const CALLS_PER_FUNCTION: usize = 500;

/// Parameters of each C function that calls kernels.
const PARAMETERS: [&str; 3] =
    ["const struct niello_context *ctx", "const void *const *inputs", "void *const *outputs"];

/// What `<symbol>_run(ctx, inputs, outputs)` does, whatever code generator writes it.
///
/// If runs have sizes of their own, there is one more input: an array of these, as `int64`, to which
/// the run stores those that it computes.
///
/// It looks at `ctx->level` once, makes the [`calls`](field@Self::calls) in order, those of
/// [regions](Self::parts) as often as their conditions say, and then the [`copies`](Self::copies).
/// Functions are those of that level, a level beyond the last being the last. The processor's mode
/// for denormal numbers is set around that, and restored. Each call is handed a copy of the context, in which `scratch` and `scratch_stride` are
/// what the call says, and after it its arguments. A context of more workers than
/// [`workers`](Self::workers) has no `parallel_for` in the copy: their scratch memory would be
/// beyond the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Prefix of the model's symbols.
    pub symbol: String,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The same as a tree of regions, with positions of calls.
    pub parts: Vec<Part<Pointer>>,
    /// Symbols of the functions of each kernel, level by level.
    pub functions: SecondaryMap<KernelId, Vec<String>>,
    /// Number of levels, at least 1.
    pub levels: usize,
    /// How many workers the workspace has scratch memory for.
    pub workers: usize,
    /// What is copied to outputs, once all calls are made.
    pub copies: Vec<Copy>,
    /// The position of the input that holds the sizes of the run: the number of the others.
    pub sizes_input: usize,
    /// If a run makes the calls for each unit of its only size, where the units are.
    pub units: Option<Units>,
    /// Symbol of another model's weights, if calls read some of them.
    pub other_weights: Option<String>,
    /// Whether the calls run with denormal numbers flushed to zero.
    pub flush_denormals: bool,
}

/// A call of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The kernel.
    pub kernel: KernelId,
    /// Scratch memory: its offset in the workspace, and the bytes from one worker's to the next
    /// one's. A kernel without any leaves the context as it is.
    pub scratch: Option<(u64, u64)>,
    /// Where its parameters are, in order.
    pub args: Vec<Pointer>,
    /// How many sizes of the run come after its parameters.
    pub sizes: usize,
    /// The sizes of the run that are known once the call is done.
    pub counts: Vec<SizeCount>,
    /// Whether another code generator made the function: it takes its parameters and no context.
    pub external: bool,
}

/// A size that a run computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeCount {
    /// The number of the size.
    pub size: usize,
    /// Where it is, as `int64`. One that is negative counts as zero.
    pub from: Pointer,
    /// The greatest size; one that is greater counts as this one.
    pub max: i64,
}

/// A copy of a value to an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The value.
    pub from: Pointer,
    /// The position among the model's outputs.
    pub output: usize,
    /// How much.
    pub bytes: u64,
}

/// Where something is at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pointer {
    /// The caller's input of that position.
    Input(usize),
    /// In the caller's output of that position, that many bytes behind its begin.
    Output(usize, u64),
    /// That many bytes after `ctx->weights`.
    Weights(u64),
    /// That many bytes after the symbol of [`Entry::other_weights`].
    Shared(u64),
    /// That many bytes after `ctx->workspace`.
    Workspace(u64),
    /// Nowhere: it is never read.
    Null,
}

/// As C, in a function.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pointer::Input(position) => write!(f, "inputs[{position}]"),
            Pointer::Output(position, 0) => write!(f, "outputs[{position}]"),
            Pointer::Output(position, offset) => {
                write!(f, "(u8 *)outputs[{position}] + {offset}")
            }
            Pointer::Weights(0) => f.write_str("weights"),
            Pointer::Weights(offset) => write!(f, "weights + {offset}"),
            Pointer::Shared(0) => f.write_str("shared"),
            Pointer::Shared(offset) => write!(f, "shared + {offset}"),
            Pointer::Workspace(0) => f.write_str("workspace"),
            Pointer::Workspace(offset) => write!(f, "workspace + {offset}"),
            Pointer::Null => f.write_str("(void *)0"),
        }
    }
}

/// Prefix of the symbol of the function that makes one call of a model.
pub(crate) fn call_symbol(model: &str, number: usize) -> String {
    format!("{model}_call_{number}")
}

impl Entry {
    /// The calls of a program whose memory is planned.
    pub fn new(
        program: &Program,
        storage: &Storage,
        plan: &MemoryPlan,
        weights: &PackedWeights,
        symbol: &str,
        functions: &KernelFunctions,
        scratch: &Scratch,
    ) -> Entry {
        let pointer = |value: ValueId| match plan.places[value] {
            Place::Input(position) => Pointer::Input(position),
            Place::Output(position, offset) => Pointer::Output(position, offset),
            Place::Weights(constant) => weights.places[constant].unwrap_or(Pointer::Null),
            Place::Arena(offset) => Pointer::Workspace(offset),
            Place::Nowhere => Pointer::Null,
        };
        let roots = program.roots();
        let size_count = |count: Count| SizeCount {
            size: count.size,
            from: pointer(count.value),
            max: program.sizes.max(count.size),
        };
        let calls = program.steps.iter().enumerate().map(|(number, step)| {
            let offset = plan.scratch.get(number).copied().flatten();
            Call {
                kernel: step.kernel,
                scratch: offset.map(|offset| (offset, scratch.strides[step.kernel])),
                args: step.args.iter().map(|&arg| pointer(arg)).collect(),
                sizes: program.kernels[step.kernel].signature().dims.len(),
                counts: program.counted_by(step, &roots).map(size_count).collect(),
                external: program.kernels[step.kernel].signature().external_symbol().is_some(),
            }
        });
        let parts = located(program.parts(), &pointer);
        let copies = storage.copies.iter().map(|copy| Copy {
            from: pointer(copy.from),
            output: copy.output,
            bytes: copy.bytes,
        });
        let mut symbols: SecondaryMap<KernelId, Vec<String>> = SecondaryMap::new();
        let mut levels = 1;
        for kernel in program.kernels.keys() {
            let count = functions.by_level[kernel].len();
            let symbol = |level| functions.symbol(kernel, level).to_owned();
            symbols[kernel] = (0..count).map(symbol).collect();
            levels = levels.max(count);
        }
        Entry {
            symbol: symbol.to_owned(),
            calls: calls.collect(),
            parts,
            functions: symbols,
            levels,
            workers: scratch.workers,
            copies: copies.collect(),
            sizes_input: program.inputs.len(),
            units: program.units.clone(),
            other_weights: weights.other.as_ref().map(|other| other.symbol.clone()),
            flush_denormals: program
                .kernels
                .values()
                .any(|kernel| kernel.signature().flushes_denormals()),
        }
    }

    /// An entry for each [part](Self::parts), and a last one for the copies if there are any: made in
    /// order, they do what this one does, for the first unit if it repeats them. The symbol of each is
    /// `<symbol>_call_<n>`.
    pub fn single_calls(&self) -> Vec<Entry> {
        let only = |calls: &[Call], parts: Vec<Part<Pointer>>, copies: &[Copy]| Entry {
            calls: calls.to_vec(),
            parts,
            copies: copies.to_vec(),
            units: None,
            ..self.clone()
        };
        let calls = self.parts.iter().map(|part| match part {
            Part::Step(at) => only(&self.calls[*at..=*at], vec![Part::Step(0)], &[]),
            Part::Region { .. } => only(&self.calls, vec![part.clone()], &[]),
        });
        let copies = (!self.copies.is_empty()).then(|| only(&[], Vec::new(), &self.copies));
        let mut entries: Vec<Entry> = calls.chain(copies).collect();
        for (number, entry) in entries.iter_mut().enumerate() {
            entry.symbol = call_symbol(&self.symbol, number);
        }
        entries
    }

    /// The file that defines `<symbol>_run` in C.
    pub fn c_text(&self) -> String {
        let symbol = &self.symbol;
        let mut text = String::new();
        // The kernels know what their parameters point to.
        let declared: BTreeMap<&String, &Call> = (self.calls.iter())
            .flat_map(|call| self.functions[call.kernel].iter().map(move |name| (name, call)))
            .collect();
        for (name, call) in declared.iter().filter(|(_, call)| call.external) {
            let params = vec!["const void *".to_owned(); call.args.len()];
            let _ = writeln!(text, "{};\n", signature(&format!("void {name}"), &params));
        }
        // Without this, calls into the other files would go through a table.
        text.push_str("#pragma GCC visibility push(hidden)\n\n");
        for (name, call) in declared.iter().filter(|(_, call)| !call.external) {
            let mut params = vec![PARAMETERS[0].to_owned()];
            params.extend((call.args.iter()).map(|_| "const void *".to_owned()));
            params.extend((0..call.sizes).map(|_| "i64".to_owned()));
            let _ = writeln!(text, "{};", signature(&format!("void {name}"), &params));
        }
        // Writing to a string cannot fail.
        if let Some(other) = &self.other_weights {
            let _ = writeln!(text, "\nextern const char {other}[];");
        }
        let _ = writeln!(text, "\n{};", head("", &format!("{symbol}_run")));
        text.push_str("\n#pragma GCC visibility pop\n");

        let mut body = String::new();
        if self.levels == 1 {
            self.level(0, &format!("{symbol}_run"), &mut text, &mut body);
        } else {
            for level in 0..self.levels {
                let name = format!("{symbol}_run_level_{level}");
                let mut calls = String::new();
                self.level(level, &name, &mut text, &mut calls);
                self.function("static __attribute__((noinline)) ", &name, &calls, &mut text);
                match level + 1 {
                    last if last == self.levels => {
                        let _ = writeln!(body, "    {name}(ctx, inputs, outputs);");
                    }
                    _ => {
                        let _ = writeln!(
                            body,
                            "    if (ctx->level == {level})\n        {name}(ctx, inputs, \
                             outputs);\n    else"
                        );
                    }
                }
            }
        }
        for copy in &self.copies {
            let Copy { from, output, bytes } = copy;
            let _ = writeln!(body, "    __builtin_memcpy(outputs[{output}], {from}, {bytes});");
        }
        if let Some(units) = &self.units {
            let name = format!("{symbol}_unit");
            self.function("static __attribute__((noinline)) ", &name, &body, &mut text);
            body = units_text(units, &name);
        }
        let [before, after] = denormals_around(self.flush_denormals);
        let body = format!("{before}{body}{after}");
        self.function("", &format!("{symbol}_run"), &body, &mut text);
        format!("{GENERATED}\n\n{}\n{text}", declarations(&text, true))
    }

    /// Writes the calls of one level into `body`.
    fn level(&self, level: usize, name: &str, text: &mut String, body: &mut String) {
        CallWriter { entry: self, level, name, functions: 0, text }.parts(&self.parts, 1, body);
    }

    /// Writes a function: before its body, the bases that pointers are relative to, and a context
    /// whose scratch memory changes, if the body mentions them.
    fn function(&self, specifiers: &str, name: &str, body: &str, text: &mut String) {
        let _ = writeln!(text, "\n{} {{", head(specifiers, name));
        let mut used = words(body);
        let own = format!(
            "struct niello_context own = *ctx;\n    if (own.workers > {})\n        \
             own.parallel_for = (void *)0;",
            self.workers
        );
        let other = self.other_weights.as_deref().unwrap_or_default();
        let shared = format!("const void *const shared = {other};");
        let sizes = match self.calls.iter().all(|call| call.counts.is_empty()) {
            true => format!("const i64 *const sizes = inputs[{}];", self.sizes_input),
            false => format!("i64 *const sizes = (i64 *)inputs[{}];", self.sizes_input),
        };
        for (name, declaration) in [
            ("shared", &*shared),
            ("sizes", &sizes),
            ("weights", "const void *const weights = ctx->weights;"),
            ("workspace", "void *const workspace = ctx->workspace;"),
            ("own", &own),
        ] {
            if used.contains(name) {
                let _ = writeln!(text, "    {declaration}");
                used.insert(if name == "sizes" { "inputs" } else { "ctx" });
            }
        }
        for param in ["ctx", "inputs", "outputs"] {
            if !used.contains(param) {
                let _ = writeln!(text, "    (void){param};");
            }
        }
        let _ = writeln!(text, "{body}}}");
    }
}

/// Writes the calls of one level; if there are many, in functions of their own.
struct CallWriter<'a> {
    entry: &'a Entry,
    level: usize,
    /// Prefix of the functions' names.
    name: &'a str,
    /// How many there are.
    functions: usize,
    /// What they are written to.
    text: &'a mut String,
}

impl CallWriter<'_> {
    /// Writes parts into the body of a function.
    fn parts(&mut self, parts: &[Part<Pointer>], indent: usize, body: &mut String) {
        if parts.len() <= CALLS_PER_FUNCTION {
            return parts.iter().for_each(|part| self.part(part, indent, body));
        }
        for parts in parts.chunks(CALLS_PER_FUNCTION) {
            let mut own = String::new();
            parts.iter().for_each(|part| self.part(part, 1, &mut own));
            let name = format!("{}_{}", self.name, self.functions);
            self.functions += 1;
            self.entry.function("static __attribute__((noinline)) ", &name, &own, self.text);
            let _ = writeln!(body, "{}{name}(ctx, inputs, outputs);", "    ".repeat(indent));
        }
    }

    /// Writes a call, or a region. Calls itself for each region within another one.
    fn part(&mut self, part: &Part<Pointer>, indent: usize, body: &mut String) {
        let (kind, condition, parts) = match part {
            Part::Step(number) => return self.call(&self.entry.calls[*number], indent, body),
            Part::Region { kind, condition, parts } => (kind, condition, parts),
        };
        let before = match kind {
            RegionKind::If => "if (",
            RegionKind::Unless => "if (!",
            RegionKind::While => "while (",
        };
        let space = "    ".repeat(indent);
        let _ = writeln!(body, "{space}{before}*(const u8 *)({condition})) {{");
        self.parts(parts, indent + 1, body);
        let _ = writeln!(body, "{space}}}");
    }

    fn call(&self, call: &Call, indent: usize, body: &mut String) {
        let Some(symbol) = self.entry.functions[call.kernel].get(self.level) else { return };
        let space = "    ".repeat(indent);
        let mut context = "ctx";
        if let Some((offset, stride)) = call.scratch {
            let scratch = Pointer::Workspace(offset);
            let _ = writeln!(body, "{space}own.scratch = {scratch};");
            let _ = writeln!(body, "{space}own.scratch_stride = {stride};");
            context = "&own";
        }
        let context = (!call.external).then(|| context.to_owned());
        let args = context.into_iter().chain(call.args.iter().map(Pointer::to_string));
        let sizes = (0..call.sizes).map(|size| format!("sizes[{size}]"));
        let args: Vec<String> = args.chain(sizes).collect();
        let mut lines = Vec::new();
        wrap(&format!("{symbol}({});", args.join(", ")), indent, &mut lines);
        for line in lines {
            let _ = writeln!(body, "{line}");
        }
        for SizeCount { size, from, max } in &call.counts {
            let (is, size) = (format!("*(const i64 *)({from})"), format!("sizes[{size}]"));
            let _ = writeln!(body, "{space}{size} = {is};");
            let _ =
                writeln!(body, "{space}{size} = {size} < 0 ? 0 : {size} > {max} ? {max} : {size};");
        }
    }
}

/// Parts whose conditions are where `pointer` says.
fn located(parts: Vec<Part>, pointer: &impl Fn(ValueId) -> Pointer) -> Vec<Part<Pointer>> {
    let located = |part| match part {
        Part::Step(number) => Part::Step(number),
        Part::Region { kind, condition, parts } => {
            Part::Region { kind, condition: pointer(condition), parts: located(parts, pointer) }
        }
    };
    parts.into_iter().map(located).collect()
}

/// The loop over the units of a run, which calls a function for each.
fn units_text(units: &Units, name: &str) -> String {
    let list = |array: &str, ty: &str, strides: &[u64]| {
        let pointers = strides.iter().enumerate().map(|(at, stride)| match stride {
            0 => format!("{array}[{at}]"),
            _ => format!("({ty} *){array}[{at}] + unit * {stride}"),
        });
        pointers.collect::<Vec<_>>().join(", ")
    };
    format!(
        "    for (i64 unit = 0; unit < sizes[0]; unit++) {{
        const void *const own_inputs[] = {{{}}};
        void *const own_outputs[] = {{{}}};
        {name}(ctx, own_inputs, own_outputs);
    }}
",
        list("inputs", "const u8", &units.inputs),
        list("outputs", "u8", &units.outputs)
    )
}

/// A function without its body.
fn head(specifiers: &str, name: &str) -> String {
    signature(&format!("{specifiers}void {name}"), &PARAMETERS.map(str::to_owned))
}
