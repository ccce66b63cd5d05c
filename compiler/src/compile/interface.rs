//! The interface of a model: inputs and outputs of known size, and what it says about itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::growing::States;
use super::model::{Contents, Model};
use super::{Compilation, Stages};
use crate::arith::Symbol;
use crate::diagnostics::{Problem, Report, Setting};
use crate::executor::aot::{CacheUse, Code, KernelFunctions};
use crate::executor::{CompiledModel, Program, RunTimeSizes, TensorInfo, Units};
use crate::graph::module_hash;
use crate::ir::{Digest, Dim, FuncType, IRModule, Type};
use crate::memory::MemoryPlan;
use crate::onnx::{self, Imported, ModelInfo, ModelPort};
use crate::options::CompileOptions;
use crate::pass::PassContext;
use crate::target::Target;

/// What a compiled model is to its callers.
pub(super) struct Interface {
    name: String,
    pub(super) inputs: Vec<TensorInfo>,
    pub(super) outputs: Vec<TensorInfo>,
    pub(super) states: Vec<TensorInfo>,
    sizes: RunTimeSizes,
    pub(super) digest: Digest,
    metadata: Vec<(String, String)>,
    external_data: Vec<PathBuf>,
}

/// The interface of an imported model.
///
/// # Errors
///
/// One problem for each dimension of an input or output whose size is neither known nor one of
/// `sizes`; a size that no input has, be it a state.
pub(super) fn of(
    model: &Model,
    imported: &Imported,
    states: &States,
    sizes: RunTimeSizes,
) -> Result<Interface, Report> {
    let mut report = Report::new();
    let mut unknown = BTreeSet::new();
    let mut tensors = |kind: &str, ports: &[ModelPort]| -> Vec<TensorInfo> {
        let info = |port: &ModelPort| tensor(model, kind, port, &sizes, &mut unknown, &mut report);
        ports.iter().filter_map(info).collect()
    };
    let inputs = tensors("input", &imported.inputs);
    let outputs = tensors("output", &imported.outputs);
    for (number, size) in sizes.iter().enumerate() {
        let has_it = |info: &TensorInfo| {
            info.run_time
                .iter()
                .any(|axis| sizes.linear(&axis.extent).is_some_and(|(size, ..)| size == number))
        };
        let is_said = size.counted
            || inputs.iter().any(has_it)
            || states.growing.values().any(|grows| *grows == size.name);
        if report.is_empty() && !is_said {
            report.push(Problem::new(format!("no input has the dimension `{}`", size.name)));
        }
    }
    check_equal(&sizes, &mut report);
    report.into_result(Interface {
        name: model.stem.clone(),
        inputs,
        outputs,
        states: Vec::new(),
        sizes,
        digest: module_hash(&imported.module),
        metadata: metadata(&imported.info),
        external_data: imported.external_files.clone(),
    })
}

/// Reports what is equal in every run but not for the greatest sizes, or depends on sizes that a run
/// computes.
fn check_equal(sizes: &RunTimeSizes, report: &mut Report) {
    let told =
        |symbol: &Symbol| sizes.iter().any(|size| !size.counted && size.name == symbol.name());
    for (left, right) in &sizes.equal {
        if ![left, right].into_iter().flat_map(Dim::symbols).all(|symbol| told(&symbol)) {
            let what =
                format!("{left} and {right} must be equal, which cannot be checked before a run");
            report.push(Problem::new(what));
        }
    }
    let greatest = sizes.greatest_sizes().unwrap_or_default();
    if let (true, Some(((left, right), [is, other]))) =
        (report.is_empty(), sizes.unequal(&greatest))
    {
        let what = format!(
            "{left} and {right} must be equal, but are {is} and {other} for the greatest sizes"
        );
        report.push(Problem::new(what).help("choose greatest sizes for which they are equal"));
    }
}

/// An input or output; a size that is not known is reported once for each symbol.
fn tensor(
    model: &Model,
    kind: &str,
    port: &ModelPort,
    sizes: &RunTimeSizes,
    unknown: &mut BTreeSet<String>,
    report: &mut Report,
) -> Option<TensorInfo> {
    let greatest = |dim: &Dim| u64::try_from(sizes.greatest(dim)?).ok();
    let Some(shape) = port.ty.shape.iter().map(greatest).collect::<Option<Vec<u64>>>() else {
        let symbols = port.ty.shape.iter().flat_map(Dim::symbols);
        let is_open = |symbol: &Symbol| sizes.iter().any(|size| size.name == symbol.name());
        let symbols: BTreeSet<Symbol> = symbols.filter(|symbol| !is_open(symbol)).collect();
        let new = |symbol: &&Symbol| unknown.insert(symbol.name().to_owned());
        for symbol in symbols.iter().filter(new) {
            let (name, ty) = (&port.name, &port.ty);
            let message = format!("{kind} `{name}` is {ty}: the size of `{symbol}` is not known");
            let pin = format!("pin it: {}", Setting::Dim.of(symbol.name()));
            report.push(Problem::new(message).help(model.how_to_say_size(pin)));
        }
        // What has no symbol is arithmetic that left 64 bits.
        if symbols.is_empty() {
            report.push(Problem::new(format!("{kind} `{}` is too large: {}", port.name, port.ty)));
        }
        return None;
    };
    let run_time = match sizes.axes(&port.ty.shape) {
        Ok(axes) => axes,
        Err(problem) => {
            let message = format!("{kind} `{}`: {}", port.name, problem.message);
            report.push(Problem { message, ..problem });
            return None;
        }
    };
    let mut dim_names = match &model.contents {
        Contents::Onnx(file) => onnx::dim_names(&file.proto, &port.name),
        Contents::Text(_) => Vec::new(),
    };
    dim_names.resize(shape.len(), None);
    Some(TensorInfo { name: port.name.clone(), dtype: port.ty.dtype, shape, run_time, dim_names })
}

/// Most bytes, and entries, of a model's own metadata that go into a program.
const MAX_METADATA: usize = 1 << 20;
const MAX_PROPERTIES: usize = 1 << 10;

fn metadata(info: &ModelInfo) -> Vec<(String, String)> {
    let mut metadata: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            metadata.push((name.to_owned(), value));
        }
    };
    add("graph", info.graph_name.clone());
    add("producer", info.producer.clone());
    add("description", info.doc.clone());
    if info.model_version != 0 {
        add("version", info.model_version.to_string());
    }
    metadata.extend(info.metadata.iter().cloned());
    bounded(metadata)
}

/// The properties, in their order, without those that would be too much for a program: a file may
/// carry whole documents.
fn bounded(mut metadata: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut left = MAX_METADATA;
    metadata.retain(|(name, value)| {
        let bytes = name.len() + value.len();
        let fits = bytes <= left;
        left -= if fits { bytes } else { 0 };
        fits
    });
    metadata.truncate(MAX_PROPERTIES);
    metadata
}

impl Interface {
    /// What each run has a size of its own for.
    pub(super) fn sizes(&self) -> &RunTimeSizes {
        &self.sizes
    }

    /// The greatest size of a run, if there is one.
    pub(super) fn greatest(&self) -> u64 {
        self.sizes.iter().next().map_or(1, |size| size.max)
    }

    /// Where the units of the only size are in inputs and outputs; `None` if they do not begin with a
    /// byte.
    pub(super) fn units(&self) -> Option<Units> {
        let stride = |info: &TensorInfo| {
            let elements: u64 = info.shape.iter().product();
            let bytes = info.dtype.bytes_for(elements)?;
            match info.run_time.is_empty() {
                true => Some(0),
                false => (info.dtype.bits() >= 8).then_some(bytes / self.greatest()),
            }
        };
        let strides = |infos: &[TensorInfo]| infos.iter().map(stride).collect::<Option<Vec<u64>>>();
        Some(Units { inputs: strides(&self.inputs)?, outputs: strides(&self.outputs)? })
    }

    /// The model without code and weights.
    pub(super) fn model(self, options: &CompileOptions) -> CompiledModel {
        CompiledModel {
            name: options.name.clone().unwrap_or(self.name),
            symbol: String::new(),
            inputs: self.inputs,
            outputs: self.outputs,
            states: self.states,
            sizes: self.sizes,
            workspace_bytes: 0,
            scratch_offset: 0,
            scratch_stride: 0,
            threads: options.threads.max(1),
            workers: 1,
            weights: Default::default(),
            constants: Default::default(),
            other_weights: None,
            macs: 0,
            kernels: Default::default(),
            levels: options.targets().iter().map(Target::cpu_level).collect(),
            digest: self.digest,
            metadata: self.metadata,
            external_data: self.external_data,
            objects: Vec::new(),
            external_symbols: Vec::new(),
            calls: 0,
        }
    }

    /// The name under which the model's symbols go.
    pub(super) fn name<'a>(&'a self, options: &'a CompileOptions) -> &'a str {
        options.name.as_deref().unwrap_or(&self.name)
    }

    /// What is left of a compilation that stops before code is made.
    pub(super) fn stub(
        self,
        options: &CompileOptions,
        module: IRModule,
        stages: Stages,
    ) -> Compilation {
        let program = Program::default();
        let cx = PassContext::default();
        let symbol = super::identity::symbol(&self, &program.digest(), &program, options, &cx);
        Compilation {
            model: CompiledModel { symbol, ..self.model(options) },
            module,
            program: Program::default(),
            functions: KernelFunctions::default(),
            code: Code::default(),
            cache: CacheUse::default(),
            plan: MemoryPlan::default(),
            stages,
        }
    }
}

/// Checks that passes have left the model's inputs and outputs as they were.
///
/// # Errors
///
/// `main` takes or gives something else: other code would be called through the bindings.
pub(super) fn check_kept(before: &FuncType, module: &IRModule) -> Result<(), Report> {
    // A module without it is refused elsewhere.
    let Some(main) = module.function("main") else { return Ok(()) };
    let after = main.func_type();
    let [old, new] = [before, &after].map(|ty| ty.params.iter().chain([&ty.ret]));
    if before.params.len() == after.params.len() && old.zip(new).all(|(old, new)| fits(old, new)) {
        return Ok(());
    }
    let [before, after] = [before, &after].map(|ty| Type::Func(Arc::new(ty.clone())));
    Err(Problem::new(format!(
        "the passes have changed the type of `main` from {before} to {after}"
    ))
    .help("a pass that was added did this; the inputs and outputs of a model must stay as they are")
    .into())
}

/// Whether a value of one type can be of the other: extents that are symbols may have become known.
fn fits(old: &Type, new: &Type) -> bool {
    match (old, new) {
        (Type::Tensor(old), Type::Tensor(new)) => {
            let mut dims = old.shape.iter().zip(new.shape.iter());
            let may_be_equal = |(old, new): (&Dim, &Dim)| match (old.as_const(), new.as_const()) {
                (Some(old), Some(new)) => old == new,
                _ => true,
            };
            old.dtype == new.dtype && old.shape.rank() == new.shape.rank() && dims.all(may_be_equal)
        }
        (Type::Tuple(old), Type::Tuple(new)) => {
            old.len() == new.len() && old.iter().zip(new.iter()).all(|(old, new)| fits(old, new))
        }
        (old, new) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_hostile_size_are_left_out() {
        let property = |name: &str, bytes: usize| (name.to_owned(), "x".repeat(bytes));
        let kept =
            bounded(vec![property("a", 3), property("b", 2 * MAX_METADATA), property("c", 5)]);
        assert_eq!(kept, [property("a", 3), property("c", 5)]);
        let many = bounded((0..3 * MAX_PROPERTIES).map(|_| property("", 1)).collect());
        assert_eq!(many.len(), MAX_PROPERTIES);
    }
}
