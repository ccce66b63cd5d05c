//! The destinations of text that instruments write.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The destination of text that an instrument writes while passes run. Clones share it.
#[derive(Clone)]
pub struct TextOutput(Kind);

#[derive(Clone)]
enum Kind {
    Kept(Arc<Mutex<String>>),
    To(Arc<dyn Fn(&str) + Send + Sync>),
}

impl Default for TextOutput {
    /// An output that keeps the text until [`kept`](TextOutput::kept) reads it.
    fn default() -> TextOutput {
        TextOutput(Kind::Kept(Arc::default()))
    }
}

impl TextOutput {
    /// An output to standard error, which ignores a closed pipe.
    pub fn stderr() -> TextOutput {
        TextOutput::new(|text| {
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        })
    }

    /// An output to a function, which gets whole lines.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> TextOutput {
        TextOutput(Kind::To(Arc::new(write)))
    }

    /// Writes text.
    pub(super) fn write(&self, text: &str) {
        match &self.0 {
            Kind::Kept(kept) => {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
            }
            Kind::To(write) => write(text),
        }
    }

    /// The text that was kept; empty if the output writes it elsewhere.
    pub fn kept(&self) -> String {
        match &self.0 {
            Kind::Kept(kept) => kept.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Kind::To(_) => String::new(),
        }
    }
}

impl fmt::Debug for TextOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Kept(_) => "TextOutput(kept)",
            Kind::To(_) => "TextOutput(to a function)",
        })
    }
}
