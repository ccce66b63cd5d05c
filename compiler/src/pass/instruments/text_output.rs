//! Where instruments write text.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Where an instrument writes text while passes run. Clones write to the same place.
#[derive(Clone)]
pub struct TextOutput(Kind);

#[derive(Clone)]
enum Kind {
    Kept(Arc<Mutex<String>>),
    To(Arc<dyn Fn(&str) + Send + Sync>),
}

impl Default for TextOutput {
    /// The text is kept, until it is asked for.
    fn default() -> TextOutput {
        TextOutput(Kind::Kept(Arc::default()))
    }
}

impl TextOutput {
    /// To the standard error. A reader that has gone away is no error.
    pub fn stderr() -> TextOutput {
        TextOutput::new(|text| {
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        })
    }

    /// To a function, which gets whole lines.
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

    /// What has been kept; empty if the text goes elsewhere.
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
