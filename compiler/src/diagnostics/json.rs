//! Diagnostics for programs: one JSON object a line.

use serde_json::{Value, json};

use super::{Diagnostic, Excerpt, Renderer, Source};
use crate::ir::Span;

/// Shows a diagnostic as one JSON object on a line of its own: `level`, `message`, `place`,
/// `excerpt` and `children`.
///
/// A place is `{"file", "line", "column"}` or `{"file", "node", "op", "opset", "source"}`; an
/// excerpt `{"name", "text", "line", "column", "end_column"}`. What is not known is `null`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JsonRenderer;

impl Renderer for JsonRenderer {
    fn render(&self, diagnostic: &Diagnostic, source: Option<&Source>) -> String {
        format!("{}\n", object(diagnostic, source))
    }
}

fn object(diagnostic: &Diagnostic, source: Option<&Source>) -> Value {
    let file = source.map(|source| &source.name);
    let place = match &diagnostic.span {
        Span::Unknown => Value::Null,
        Span::Text { line, column } => json!({ "file": file, "line": line, "column": column }),
        Span::Onnx(node) => json!({
            "file": file,
            "node": node.node,
            "op": node.op,
            "opset": node.opset,
            "source": node.source,
        }),
    };
    let of_span = match (&diagnostic.span, source) {
        (Span::Text { line, column }, Some(source)) => source.excerpt(*line, *column),
        (Span::Text { .. } | Span::Onnx(_) | Span::Unknown, _) => None,
    };
    let excerpt = diagnostic.excerpt.as_deref().or(of_span.as_ref()).map(excerpt);
    let children: Vec<Value> =
        diagnostic.children.iter().map(|child| object(child, source)).collect();
    json!({
        "level": diagnostic.level.to_string(),
        "message": diagnostic.message,
        "place": place,
        "excerpt": excerpt,
        "children": children,
    })
}

fn excerpt(excerpt: &Excerpt) -> Value {
    let (line, column) = excerpt.position();
    let guilty = excerpt.text.get(excerpt.guilty.clone()).unwrap_or("");
    json!({
        "name": excerpt.name,
        "text": excerpt.text,
        "line": line,
        "column": column,
        "end_column": column as usize + guilty.chars().count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Level;

    #[test]
    fn a_diagnostic_is_one_line() {
        let source = Source::new("a.relay", "x\n  foo(y)\n");
        let span = Span::Text { line: 2, column: 3 };
        let warning = Diagnostic::new(Level::Warning, span, "odd\nname").note("more");
        let text = JsonRenderer.render(&warning, Some(&source));
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["level"], &value["message"]), (&"warning".into(), &"odd\nname".into()));
        assert_eq!(value["place"], json!({ "file": "a.relay", "line": 2, "column": 3 }));
        assert_eq!(value["excerpt"]["text"], "  foo(y)");
        assert_eq!(value["excerpt"]["end_column"], 6);
        assert_eq!(value["children"][0]["level"], "note");
        assert_eq!(value["children"][0]["place"], Value::Null);
    }
}
