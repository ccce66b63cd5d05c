//! Stands in for the compiler: models whose code is a few lines of C, written by hand.

use std::path::Path;

use niello_build::niello::diagnostics::{Problem, Report};
use niello_build::niello::executor::{CompiledModel, ObjectFile, TensorInfo};
use niello_build::niello::ir::DType;
use niello_build::niello::options::CompileOptions;

/// Name, type and shape of a tensor.
pub type Tensor<'a> = (&'a str, DType, &'a [u64]);

/// A model by hand.
#[derive(Default)]
pub struct Model<'a> {
    pub inputs: &'a [Tensor<'a>],
    pub outputs: &'a [Tensor<'a>],
    pub workspace_bytes: u64,
    pub weights: Vec<u8>,
    pub metadata: &'a [(&'a str, &'a str)],
    /// Statements over `context`, `inputs` and `outputs`; `@FACTOR@` is the model file's text.
    pub body: &'a str,
}

const SOURCE: &str = r#"
#include <stdint.h>
#include <stddef.h>
struct niello_context {
    const unsigned char *weights; unsigned char *workspace; unsigned char *scratch;
    size_t scratch_stride; void *parallel_for; void *pool; size_t workers; size_t level;
};
__attribute__((visibility("hidden")))
void @SYMBOL@_run(const struct niello_context *context, const void *const *inputs, void *const *outputs) {
    @BODY@
}
"#;

/// Compiles `model` as niello would compile the file at `path`, which holds a factor.
pub fn compile(
    model: Model<'_>,
    path: &Path,
    options: &CompileOptions,
) -> Result<CompiledModel, Report> {
    let factor = std::fs::read_to_string(path)
        .map_err(|error| Problem::new(format!("the model cannot be read: {error}")))?;
    let factor: i32 = factor
        .trim()
        .parse()
        .map_err(|_| Problem::new(format!("`{}` is not a factor", factor.trim())))?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => path.file_stem().unwrap().to_str().unwrap().to_owned(),
    };
    let body = model.body.replace("@FACTOR@", &factor.to_string());
    let mut digest = [0u8; 32];
    for (index, byte) in body.bytes().enumerate() {
        digest[index % 8] = digest[index % 8].wrapping_mul(31).wrapping_add(byte);
    }
    let symbol = niello_build::niello::bindings::symbol_name(
        &options.package,
        &options.version,
        &name,
        &digest,
    );
    let mut objects = Vec::new();
    if !options.stub {
        let folder = std::env::var("OUT_DIR").unwrap();
        let file = Path::new(&folder).join(format!("{name}.c"));
        let source = SOURCE.replace("@SYMBOL@", &symbol).replace("@BODY@", &body);
        std::fs::write(&file, source).unwrap();
        let intermediate = cc::Build::new()
            .cargo_metadata(false)
            .opt_level(1)
            .flag("-fvisibility=hidden")
            .file(&file)
            .compile_intermediates();
        let bytes = std::fs::read(&intermediate[0]).unwrap();
        objects.push(ObjectFile { name: format!("{name}.o"), bytes });
    }
    let tensors = |list: &[Tensor<'_>]| {
        list.iter()
            .map(|(name, dtype, shape)| TensorInfo::new(*name, *dtype, shape))
            .collect()
    };
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Ok(CompiledModel {
        name,
        symbol,
        inputs: tensors(model.inputs),
        outputs: tensors(model.outputs),
        states: Vec::new(),
        sizes: Default::default(),
        workspace_bytes: model.workspace_bytes,
        scratch_offset: model.workspace_bytes,
        scratch_stride: 0,
        threads: 1,
        workers: 1,
        weights: if options.stub { Vec::new() } else { model.weights }.into(),
        constants: Default::default(),
        other_weights: None,
        macs: 1234,
        kernels: Default::default(),
        calls: 0,
        external_symbols: Vec::new(),
        levels: vec![options.target.cpu_level()],
        digest,
        metadata: model.metadata.iter().map(own).collect(),
        external_data: Vec::new(),
        objects,
    })
}

/// `y = factor · x + bias`, with the bias in the weights: two elements of f32.
pub fn scale(path: &Path, options: &CompileOptions) -> Result<CompiledModel, Report> {
    let model = Model {
        inputs: &[("x", DType::F32, &[2])],
        outputs: &[("y", DType::F32, &[2])],
        weights: [0.5f32, 0.25].iter().flat_map(|value| value.to_ne_bytes()).collect(),
        body: "const float *x = inputs[0], *bias = (const float *)context->weights;
               float *y = outputs[0];
               if ((uintptr_t)bias % 64) return;
               for (int i = 0; i < 2; i++) y[i] = @FACTOR@ * x[i] + bias[i];",
        ..Model::default()
    };
    compile(model, path, options)
}
