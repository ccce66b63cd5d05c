//! The printed names of values.

use cranelift_entity::SecondaryMap;
use indexmap::{IndexMap, IndexSet};

use super::local_text;
use crate::graph::ExprId;

/// The names visible at the current place. Two values visible together never have the same name: a
/// later value of a name in use gets a number after it.
#[derive(Default)]
pub(super) struct Names {
    text: SecondaryMap<ExprId, Option<Box<str>>>,
    visible: IndexSet<String>,
    /// The last number used after each name.
    suffixes: IndexMap<String, u32>,
    /// The names to forget at the end of a scope.
    trail: Vec<(Option<String>, Option<ExprId>)>,
    unnamed: u32,
}

impl Names {
    /// Marks the start of a scope.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Forgets the names since the mark: the scope ends.
    pub(super) fn forget(&mut self, mark: usize) {
        for (name, id) in self.trail.drain(mark..).rev() {
            if let Some(name) = name {
                self.visible.swap_remove(&name);
            }
            if let Some(id) = id {
                self.text[id] = None;
            }
        }
    }

    /// The text of a value that is visible and named.
    pub(super) fn get(&self, id: ExprId) -> Option<&str> {
        self.text[id].as_deref()
    }

    /// Makes a name visible, for `id` unless that is `None`; returns its text.
    pub(super) fn declare(&mut self, name: &str, id: Option<ExprId>) -> String {
        let mut text = local_text(name);
        if self.visible.contains(&text) {
            let mut suffix = self.suffixes.get(name).copied().unwrap_or(0);
            while self.visible.contains(&text) {
                suffix += 1;
                text = local_text(&format!("{name}_{suffix}"));
            }
            self.suffixes.insert(name.to_owned(), suffix);
        }
        self.visible.insert(text.clone());
        self.trail.push((Some(text.clone()), id));
        if let Some(id) = id {
            self.text[id] = Some(text.as_str().into());
        }
        text
    }

    /// Numbers a value without a name; returns its text.
    pub(super) fn number(&mut self, id: ExprId) -> String {
        let text = format!("%{}", self.unnamed);
        self.unnamed += 1;
        self.trail.push((None, Some(id)));
        self.text[id] = Some(text.as_str().into());
        text
    }
}
