//! Diagnostics for people: an excerpt of the text, with a mark under the guilty part.

use annotate_snippets::{
    AnnotationKind, Group, Level as Title, Origin, Renderer as Engine, Snippet,
};

use super::{Diagnostic, Excerpt, Level, Renderer, Source};
use crate::ir::Span;

/// Shows a diagnostic as the Rust compiler shows its own: message, place, the line of the text with
/// a mark under the guilty part, notes and help.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnippetRenderer {
    /// Whether to use colours and bold letters: for terminals.
    pub styled: bool,
}

impl Renderer for SnippetRenderer {
    fn render(&self, diagnostic: &Diagnostic, source: Option<&Source>) -> String {
        let message = title(diagnostic.level).primary_title(clean(&diagnostic.message));
        let mut first = place(Group::with_title(message), diagnostic, source);
        let mut groups = Vec::new();
        for child in &diagnostic.children {
            if child.excerpt.is_none() && child.span == Span::Unknown {
                first = first.element(title(child.level).message(clean(&child.message)));
            } else {
                let group =
                    Group::with_title(title(child.level).secondary_title(clean(&child.message)));
                groups.push(place(group, child, source));
            }
        }
        groups.insert(0, first);
        let engine = if self.styled { Engine::styled() } else { Engine::plain() };
        let mut text = engine.render(&groups);
        text.push('\n');
        text
    }
}

/// Text with control characters escaped: names in a model are any strings, and a terminal would
/// obey them.
fn clean(text: &str) -> String {
    text.chars().fold(String::new(), |mut clean, c| {
        match c {
            c if c.is_control() && c != '\n' => clean.extend(c.escape_default()),
            c => clean.push(c),
        }
        clean
    })
}

fn title(level: Level) -> Title<'static> {
    match level {
        Level::Bug => Title::ERROR.with_name("bug"),
        Level::Error => Title::ERROR,
        Level::Warning => Title::WARNING,
        Level::Note => Title::NOTE,
        Level::Help => Title::HELP,
    }
}

/// Adds the place of a diagnostic: the text, or the node of the model.
fn place<'a>(group: Group<'a>, diagnostic: &Diagnostic, source: Option<&Source>) -> Group<'a> {
    let of_span = match (&diagnostic.span, source) {
        (Span::Text { line, column }, Some(source)) => source.excerpt(*line, *column),
        (Span::Text { .. } | Span::Onnx(_) | Span::Unknown, _) => None,
    };
    let shown = diagnostic.excerpt.as_deref().cloned().or_else(|| of_span.clone());
    let has_excerpt = shown.is_some();
    let group = match shown {
        Some(excerpt) => group.element(snippet(excerpt)),
        None => group,
    };
    match &diagnostic.span {
        Span::Onnx(node) => {
            let file = source.map_or_else(String::new, |source| format!("{}: ", source.name));
            let opset =
                if node.opset > 0 { format!(", opset {}", node.opset) } else { String::new() };
            let place = format!("{file}node `{}` ({}{opset})", node.node, node.op);
            let group = group.element(Origin::path(clean(&place)));
            match &node.source {
                Some(line) => {
                    group.element(Title::NOTE.message(clean(&format!("exported from {line}"))))
                }
                None => group,
            }
        }
        Span::Text { line, column } if !has_excerpt || diagnostic.excerpt.is_some() => {
            let name = source.map_or("the text", |source| source.name.as_str());
            group.element(
                Origin::path(clean(name)).line(*line as usize).char_column(*column as usize),
            )
        }
        Span::Text { .. } | Span::Unknown => group,
    }
}

fn snippet<'a>(excerpt: Excerpt) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let Excerpt { name, text, first_line, guilty } = excerpt;
    Snippet::source(text)
        .path(clean(&name))
        .line_start(first_line as usize)
        .fold(false)
        .annotation(AnnotationKind::Primary.span(guilty))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::diagnostics::{JsonRenderer, override_renderer, renderer};
    use crate::ir::OnnxSpan;

    fn plain(diagnostic: &Diagnostic, source: Option<&Source>) -> String {
        SnippetRenderer::default().render(diagnostic, source)
    }

    fn in_text() -> (Diagnostic, Source) {
        let source = Source::new("two.relay", "def @main() {\n  nn.rellu(%x)\n}\n");
        let span = Span::Text { line: 2, column: 3 };
        let error = Diagnostic::new(Level::Error, span, "no operator `nn.rellu`")
            .help("did you mean `nn.relu`?");
        (error, source)
    }

    #[test]
    fn a_place_in_a_text_is_marked() {
        let (error, source) = in_text();
        assert_eq!(
            plain(&error, Some(&source)),
            "\
error: no operator `nn.rellu`
 --> two.relay:2:3
  |
2 |   nn.rellu(%x)
  |   ^^^^^^^^
  |
  = help: did you mean `nn.relu`?
"
        );
    }

    #[test]
    fn without_the_text_the_place_is_printed() {
        let (error, _) = in_text();
        let text = plain(&error, None);
        assert!(
            text.starts_with("error: no operator `nn.rellu`\n") && text.contains("the text:2:3"),
            "{text}"
        );
    }

    #[test]
    fn a_node_of_a_model_is_named() {
        let span = Span::Onnx(Arc::new(OnnxSpan {
            node: "conv1".to_owned(),
            op: "Conv".to_owned(),
            opset: 13,
            source: Some("train.py:34".to_owned()),
        }));
        let error = Diagnostic::new(Level::Bug, span, "too wide").note("in pass FuseOps");
        let model = Source::new("model.onnx", "");
        assert_eq!(
            plain(&error, Some(&model)),
            "\
bug: too wide
--> model.onnx: node `conv1` (Conv, opset 13)
 = note: exported from train.py:34
 = note: in pass FuseOps
"
        );
    }

    #[test]
    fn colours_are_used_only_if_asked_for() {
        let (error, source) = in_text();
        let styled = SnippetRenderer { styled: true }.render(&error, Some(&source));
        assert!(styled.contains('\u{1b}'));
        assert!(!plain(&error, Some(&source)).contains('\u{1b}'));
    }

    #[test]
    fn names_cannot_bring_control_characters_in() {
        let span = Span::Onnx(Arc::new(OnnxSpan {
            node: "a\u{1b}[31m".to_owned(),
            op: "\u{7}".to_owned(),
            opset: 1,
            source: Some("\r".to_owned()),
        }));
        let error = Diagnostic::new(Level::Error, span, "`\u{1b}[31m`").note("\u{7}");
        let source = Source::new("\u{1b}.relay", "\u{1b}[31m x\u{7}\n");
        for span in [error.span.clone(), Span::Text { line: 1, column: 7 }] {
            let text = plain(&Diagnostic { span, ..error.clone() }, Some(&source));
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }

    #[test]
    fn every_level_has_its_name() {
        for level in [Level::Bug, Level::Error, Level::Warning, Level::Note, Level::Help] {
            let text = plain(&Diagnostic::new(level, Span::Unknown, "message"), None);
            assert_eq!(text, format!("{level}: message\n"));
        }
    }

    #[test]
    fn the_renderer_of_the_program_can_be_replaced() {
        let (error, source) = in_text();
        assert!(renderer(false).render(&error, Some(&source)).contains("^^^"));
        override_renderer(Some(Arc::new(JsonRenderer)));
        let replaced = renderer(false).render(&error, Some(&source));
        override_renderer(None);
        assert!(replaced.starts_with('{'), "{replaced}");
    }
}
