//! The models that this build script has compiled, for what later ones want to know of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use niello::diagnostics::Problem;
use niello::executor::aot::SharedWeights;

use crate::Artifacts;

/// What other models can use of a model's weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ForOthers {
    /// There are none.
    Nothing,
    /// They are in a file.
    External,
    /// Which constants they hold is not known.
    Unknown,
    /// These.
    Weights(SharedWeights),
}

/// A model that has been compiled.
struct Compiled {
    model: PathBuf,
    /// None until all its files are written.
    weights: Option<ForOthers>,
}

/// By folder and name.
static COMPILED: Mutex<BTreeMap<(PathBuf, String), Compiled>> = Mutex::new(BTreeMap::new());

fn compiled() -> MutexGuard<'static, BTreeMap<(PathBuf, String), Compiled>> {
    COMPILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes sure that no two models of a build script have the same name: the bindings of the second
/// would replace those of the first without a word.
pub(crate) fn claim(folder: &Path, name: &str, model: &Path) -> Result<(), Problem> {
    let new = Compiled { model: model.to_owned(), weights: None };
    match compiled().insert((folder.to_owned(), name.to_owned()), new) {
        None => Ok(()),
        Some(other) => Err(Problem::new(format!(
            "this build script has compiled a model of the name `{name}` already: `{}`",
            other.model.display()
        ))
        .help("give one of them another name: `.name(\"other\")`")),
    }
}

/// Notes a model whose files are written.
pub(crate) fn offer(folder: &Path, artifacts: &Artifacts, model: &Path) {
    let weights = Some(artifacts.for_others.clone());
    let done = Compiled { model: model.to_owned(), weights };
    compiled().insert((folder.to_owned(), artifacts.name.clone()), done);
}

/// The weights of the model `name`; none if it has none.
///
/// # Errors
///
/// They cannot be shared: why, and what to do.
pub(crate) fn weights_of(folder: &Path, name: &str) -> Result<Option<SharedWeights>, Problem> {
    let compiled = compiled();
    let of_folder = |((place, name), model): (&(PathBuf, String), &Compiled)| {
        (place == folder && model.weights.is_some()).then(|| name.clone())
    };
    let problem = |why: &str| {
        Problem::new(format!("the weights of the model `{name}` cannot be shared: {why}"))
    };
    let key = (folder.to_owned(), name.to_owned());
    match compiled.get(&key).and_then(|model| model.weights.as_ref()) {
        Some(ForOthers::Weights(weights)) => Ok(Some(weights.clone())),
        Some(ForOthers::Nothing) => Ok(None),
        Some(ForOthers::External) => Err(problem("they are not in the binary but in a file")
            .help(format!("compile `{name}` without `.weights(Weights::External(..))`"))),
        Some(ForOthers::Unknown) => Err(problem(
            "which constants they hold is not known, as it was not niello that compiled the model",
        )),
        None => {
            let names: Vec<String> = compiled.iter().filter_map(of_folder).collect();
            let help = match names.is_empty() {
                true => format!("compile `{name}` before the models that share its weights"),
                false => format!("so far there are: {}", names.join(", ")),
            };
            let why = format!("no model of that name has been compiled into {}", folder.display());
            Err(problem(&why).help(help))
        }
    }
}
