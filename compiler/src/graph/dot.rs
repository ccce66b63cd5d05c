//! Modules as pictures: the text of Graphviz.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Callee, Expr, ExprId, Function, ScopeId};
use crate::ir::{Definition, IRModule, Span};

/// The graph functions of a module in the language DOT of Graphviz, each a cluster: a node for each
/// expression that its result needs, with operator, type and the node of the model that it came from,
/// and an edge to each of its users. Bodies of branches, loops and closures are clusters beside that
/// of their function.
///
/// ```
/// let text = "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] { abs(%x) }";
/// let module = niello::graph::parse_module(text).unwrap();
/// let dot = niello::graph::dot(&module);
/// assert!(dot.contains("f0_1 [label=\"abs\\nTensor[(2), float32]\", shape=box]"));
/// assert!(dot.contains("f0_0 -> f0_1"));
/// ```
pub fn dot(module: &IRModule) -> String {
    let mut text = String::from("digraph module {\n  node [fontname=\"monospace\"]\n");
    for (number, (global, definition)) in module.iter().enumerate() {
        match Definition::as_graph(definition) {
            Some(function) => self::function(&mut text, number, global.name(), function),
            None => {
                let label = quoted(&[&format!("prim_func @{}", global.name())]);
                line(&mut text, &format!("  f{number} [label={label}, shape=component]"));
            }
        }
    }
    text.push_str("}\n");
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn function(text: &mut String, number: usize, name: &str, function: &Function) {
    let live = function.live();
    let mut scopes: BTreeMap<ScopeId, Vec<ExprId>> = BTreeMap::new();
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        scopes.entry(data.scope).or_default().push(id);
    }
    let node = |id: ExprId| format!("f{number}_{}", id.as_u32());
    for (scope, ids) in scopes {
        let inner = scope != function.body();
        let title = match inner {
            true => format!("@{name}, {scope:?}"),
            false => format!("@{name}"),
        };
        let _ = writeln!(text, "  subgraph cluster_f{number}_{} {{", scope.as_u32());
        line(text, &format!("    label={}", quoted(&[&title])));
        for id in ids {
            let (label, shape) = described(function, id);
            let _ = writeln!(text, "    {} [label={label}, shape={shape}]", node(id));
        }
        line(text, "  }");
    }
    let result = format!("f{number}_result");
    let _ = writeln!(text, "  {result} [label={}, shape=plaintext]", quoted(&["result"]));
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        let bodies = data.expr.scopes().map(|scope| function.scope(scope).result);
        for from in data.expr.operands().chain(bodies) {
            let _ = writeln!(text, "  {} -> {}", node(from), node(id));
        }
    }
    let _ = writeln!(text, "  {} -> {result}", node(function.result()));
}

/// The label of an expression, and its shape.
fn described(function: &Function, id: ExprId) -> (String, &'static str) {
    let (what, shape) = match function.expr(id) {
        Expr::Var(name) => (format!("%{name}"), "ellipse"),
        Expr::GlobalVar(global) => (global.to_string(), "component"),
        Expr::Constant(_) => ("constant".to_owned(), "note"),
        Expr::Tuple(_) => ("tuple".to_owned(), "box"),
        Expr::TupleGet { index, .. } => (format!("field {index}"), "box"),
        Expr::Call(call) => match call.callee {
            Callee::Op(op) => (op.to_string(), "box"),
            Callee::Expr(_) => ("call".to_owned(), "box"),
        },
        Expr::If(_) => ("if".to_owned(), "diamond"),
        Expr::While(_) => ("while".to_owned(), "diamond"),
        Expr::Func(_) => ("function".to_owned(), "component"),
    };
    let ty = function.ty(id).to_string();
    let origin = match function.span(id) {
        Span::Onnx(node) if node.op != "input" && node.op != "initializer" => node.node.clone(),
        Span::Onnx(_) | Span::Text { .. } | Span::Unknown => String::new(),
    };
    let lines = [what.as_str(), &ty, &origin];
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    (quoted(&lines), shape)
}

/// Lines as a string of DOT.
fn quoted(lines: &[&str]) -> String {
    let escaped: Vec<String> = lines
        .iter()
        .map(|line| {
            line.chars().fold(String::new(), |mut text, c| {
                match c {
                    '"' | '\\' => text.extend(['\\', c]),
                    c if c.is_control() => text.push(' '),
                    c => text.push(c),
                }
                text
            })
        })
        .collect();
    format!("\"{}\"", escaped.join("\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_module;

    #[test]
    fn functions_are_clusters_of_what_they_need() {
        let module = parse_module(
            "def @main(%x: Tensor[(2), float32], %c: Tensor[(), bool]) -> Tensor[(2), float32] {\n\
               let %unused = exp(%x);\n\
               if (%c) { tanh(%x) } else { let %pair = (%x, %x); %pair.1 }\n\
             }",
        )
        .unwrap();
        let text = dot(&module);
        let labels: Vec<&str> =
            text.lines().filter_map(|line| line.split("label=").nth(1)).collect();
        let has = |label: &str| labels.iter().any(|found| found.starts_with(label));
        for label in ["\"@main\"", "\"%x\\n", "\"tanh\\n", "\"field 1\\n", "\"if\\n", "\"result\""]
        {
            assert!(has(label), "{label} in {text}");
        }
        assert_eq!(text.matches("subgraph").count(), 3, "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert_eq!(text, dot(&module));
    }

    #[test]
    fn names_do_not_leave_their_string() {
        assert_eq!(quoted(&["a\"b\\c\nd", "e"]), r#""a\"b\\c d\ne""#);
    }
}
