//! Code generators of other crates: which parts of a graph they take, and what they make of them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::diagnostics::{Origin, Problem, Report, suggest};
use crate::graph::{Function, PrintOptions, print_constant, print_function};
use crate::ir::{Blake3, Constant, DType};

/// A code generator of another crate; [`register_external_codegen!`](crate::register_external_codegen)
/// makes it known.
pub trait ExternalCodegen: Sync {
    /// What build scripts and the command call it, such as `dsp`.
    fn name(&self) -> &'static str;

    /// The operators that it takes, such as `nn.dense`.
    fn operators(&self) -> &'static [&'static str] {
        &[]
    }

    /// The device whose work it takes, whatever the operators: what is computed [there] by
    /// `on_device`. 1 is the processor, where the rest is computed.
    ///
    /// [there]: crate::analysis::devices
    fn device_type(&self) -> Option<u32> {
        None
    }

    /// Names and texts of the patterns that it takes, as `MergeComposite` has them:
    /// `("dsp.dense_relu", "nn.relu(nn.dense(*, const))")`. The name of each begins with the code
    /// generator's and a dot.
    fn patterns(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether neighbours become one function. Otherwise each has one call, of an operator or of a
    /// pattern's instance.
    fn merges_neighbours(&self) -> bool {
        false
    }

    /// Says which C function computes a part of the graph, and may write it.
    ///
    /// # Errors
    ///
    /// The code generator cannot compute that: the model is not compiled, and the text is told.
    fn generate(&self, function: &ExternalFunction) -> Result<ExternalCode, String>;
}

/// A tensor that a function of another code generator takes or returns: dense, row-major, aligned
/// to its elements.
#[derive(Clone, PartialEq, Debug)]
pub struct ExternalTensor {
    /// Type of the elements, as they are in memory: those narrower than a byte have one each.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// The value, if it is a constant. The function is handed a pointer to it nevertheless.
    pub value: Option<Constant>,
}

/// A part of a graph that another code generator takes.
#[derive(Clone, Debug)]
pub struct ExternalFunction {
    /// A name that functions of other parts do not have, nor other functions of a program.
    pub symbol: String,
    /// What it computes. Instances of patterns are closures with the attribute `Composite`.
    pub function: Function,
    /// What it takes: the parameters of `function`, tuples flattened.
    pub params: Vec<ExternalTensor>,
    /// What it returns: the result of `function`, a tuple flattened.
    pub results: Vec<ExternalTensor>,
}

/// What another code generator makes of a part of a graph: a C function
///
/// ```c
/// void symbol(const void *param_0, …, void *result_0, …);
/// ```
///
/// with a pointer for each of [`ExternalFunction::params`], then one for each of
/// [`ExternalFunction::results`]. Results overlap neither each other nor what the function takes.
/// Runs of several models may call it at the same time, each on one thread; denormal numbers are
/// flushed to zero meanwhile unless the model was compiled to keep them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalCode {
    /// The function's name, a C identifier.
    pub symbol: String,
    /// C that is compiled with the model for its narrowest CPU level, and defines the function. It
    /// is freestanding, and what else it defines is static. Without one, whoever links the program
    /// provides the function.
    pub source: Option<String>,
    /// Names of the functions that the source calls and does not define: whoever links the program
    /// provides them.
    pub needs: Vec<String>,
}

impl ExternalCode {
    /// A function that whoever links the program provides.
    pub fn symbol(symbol: impl Into<String>) -> ExternalCode {
        ExternalCode { symbol: symbol.into(), source: None, needs: Vec::new() }
    }

    /// The C that defines the function.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> ExternalCode {
        self.source = Some(source.into());
        self
    }

    /// A function that the source calls and does not define.
    #[must_use]
    pub fn needs(mut self, symbol: impl Into<String>) -> ExternalCode {
        self.needs.push(symbol.into());
        self
    }

    /// The symbols that whoever links the program provides.
    pub fn undefined(&self) -> impl Iterator<Item = &str> {
        let own = self.source.is_none().then_some(self.symbol.as_str());
        own.into_iter().chain(self.needs.iter().map(String::as_str))
    }
}

impl ExternalFunction {
    /// A part of a graph for the code generator `codegen`, with a symbol of its own.
    pub(crate) fn new(
        codegen: &str,
        function: Function,
        params: Vec<ExternalTensor>,
        results: Vec<ExternalTensor>,
    ) -> ExternalFunction {
        let mut hasher = Blake3::new();
        hasher.update(print_function(&function, None, &PrintOptions::default()).as_bytes());
        for param in &params {
            let value = param.value.as_ref().map(|value| print_constant(value, 0));
            hasher.update(format!("{:?} {:?} {value:?}", param.dtype, param.shape).as_bytes());
        }
        let digest = hasher.finalize();
        let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let codegen: String =
            codegen.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let symbol = format!("niello_external_{codegen}_{digest}");
        ExternalFunction { symbol, function, params, results }
    }
}

/// A code generator of another crate;
/// [`register_external_codegen!`](crate::register_external_codegen) makes one.
pub struct ExternalCodegenEntry {
    codegen: &'static dyn ExternalCodegen,
    origin: Origin,
}

impl ExternalCodegenEntry {
    #[doc(hidden)]
    pub const fn new(
        codegen: &'static dyn ExternalCodegen,
        origin: Origin,
    ) -> ExternalCodegenEntry {
        ExternalCodegenEntry { codegen, origin }
    }
}

inventory::collect!(ExternalCodegenEntry);

/// Registers a static [`ExternalCodegen`](crate::codegen::ExternalCodegen) of the calling crate,
/// so that build scripts and the command can give it parts of models.
///
/// A crate that nothing names is not linked: `use my_codegen as _;` in the build script names it.
#[macro_export]
macro_rules! register_external_codegen {
    ($codegen:path) => {
        $crate::pass::__private::inventory::submit! {
            $crate::codegen::ExternalCodegenEntry::new(
                &$codegen,
                $crate::diagnostics::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
            )
        }
    };
}

fn entries() -> &'static BTreeMap<&'static str, Vec<&'static ExternalCodegenEntry>> {
    static ENTRIES: OnceLock<BTreeMap<&'static str, Vec<&'static ExternalCodegenEntry>>> =
        OnceLock::new();
    ENTRIES.get_or_init(|| {
        let mut entries: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in inventory::iter::<ExternalCodegenEntry>() {
            entries.entry(entry.codegen.name()).or_default().push(entry);
        }
        entries
    })
}

/// The registered code generator of that name.
///
/// # Errors
///
/// There is none, or there are several.
pub fn external_codegen(name: &str) -> Result<&'static dyn ExternalCodegen, Problem> {
    match entries().get(name).map(Vec::as_slice) {
        Some([entry]) => Ok(entry.codegen),
        Some(several) => {
            // The linker's order is not specified.
            let mut origins: Vec<String> =
                several.iter().map(|entry| entry.origin.to_string()).collect();
            origins.sort();
            Err(Problem::new(format!(
                "code generators of the name `{name}` are registered at {}",
                origins.join(" and at ")
            )))
        }
        None => {
            let problem = Problem::new(format!("no code generator `{name}` is registered"));
            Err(problem.help(match suggest(name, entries().keys().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a crate that registers one is linked if something names it, as `use \
                         my_codegen as _;` does"
                    .to_owned(),
            }))
        }
    }
}

/// What the options of the passes that partition graphs are for some code generators.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExternalOptions {
    /// The operators that each takes; the first of several that take one has it.
    pub(crate) targets: Vec<(String, Vec<String>)>,
    /// The device of each that has one.
    pub(crate) devices: Vec<(u32, String)>,
    /// Names and texts of patterns.
    pub(crate) patterns: Vec<(String, String)>,
    /// Those whose functions have one call each.
    pub(crate) apart: Vec<String>,
}

impl ExternalOptions {
    /// Of the code generators of these names. Those that are not registered are left out.
    pub(crate) fn of(names: &[String]) -> ExternalOptions {
        let own = |text: &&str| (*text).to_owned();
        let mut options = ExternalOptions::default();
        for codegen in names.iter().filter_map(|name| external_codegen(name).ok()) {
            let name = codegen.name().to_owned();
            let patterns = codegen.patterns().iter().map(|(name, text)| (own(name), own(text)));
            options.patterns.extend(patterns);
            if !codegen.merges_neighbours() {
                options.apart.push(name.clone());
            }
            options.devices.extend(codegen.device_type().map(|device| (device, name.clone())));
            options.targets.push((name, codegen.operators().iter().map(own).collect()));
        }
        options
    }
}

/// Checks the code generators that a compilation names.
///
/// # Errors
///
/// One problem for each that is not registered, or has a pattern that is not named after it.
pub(crate) fn check_external(names: &[String]) -> Result<(), Report> {
    let mut report = Report::new();
    for name in names {
        let codegen = match external_codegen(name) {
            Ok(codegen) => codegen,
            Err(problem) => {
                report.push(problem);
                continue;
            }
        };
        for (pattern, _) in codegen.patterns() {
            let owner = pattern.split_once('.').map(|(owner, _)| owner);
            if owner != Some(name) {
                report.push(Problem::new(format!(
                    "the code generator `{name}` has the pattern `{pattern}`, whose name must begin \
                     with `{name}.`"
                )));
            }
        }
    }
    report.into_result(())
}
