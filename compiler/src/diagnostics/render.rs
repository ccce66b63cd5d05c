//! How diagnostics become text.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Diagnostic, SnippetRenderer, Source};

/// Makes text of diagnostics.
pub trait Renderer: Send + Sync {
    /// The text of one diagnostic, with a line break at its end. `source` is the file that it is
    /// about, if there is one.
    fn render(&self, diagnostic: &Diagnostic, source: Option<&Source>) -> String;
}

/// What [`renderer`] returns, if it is not the usual one.
static OVERRIDE: RwLock<Option<Arc<dyn Renderer>>> = RwLock::new(None);

/// Makes `renderer` the one that the program shows diagnostics with: for a command of one's own that
/// calls `niello::cli::main`. `None` brings the usual one back. Returns the one before.
pub fn override_renderer(renderer: Option<Arc<dyn Renderer>>) -> Option<Arc<dyn Renderer>> {
    let mut current = OVERRIDE.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut current, renderer)
}

/// What the program shows diagnostics with: [`SnippetRenderer`], `styled` for terminals, unless it
/// was [overridden](override_renderer).
pub fn renderer(styled: bool) -> Arc<dyn Renderer> {
    let current = OVERRIDE.read().unwrap_or_else(PoisonError::into_inner);
    current.clone().unwrap_or_else(|| Arc::new(SnippetRenderer { styled }))
}
