//! The lines of a function's text around one expression.

use super::{GlobalText, print_with_lines};
use crate::diagnostics::Excerpt;
use crate::graph::{ExprId, Function};
use crate::ir::GlobalVar;

/// Lines shown before and after the line in question.
const CONTEXT_LINES: usize = 1;

/// The text of a function around an expression, with the expression marked. `None` if the text does
/// not contain the expression because nothing uses it.
pub fn excerpt(function: &Function, global: Option<&GlobalVar>, expr: ExprId) -> Option<Excerpt> {
    let printed = print_with_lines(function, global);
    let line = printed.lines.get(expr).copied().flatten()?;
    of_line(&printed.text, global, line as usize)
}

/// The lines around line `line` of a function's text, counted from 0. The marked part is the
/// definition after ` = `, or else the whole line.
pub(in crate::graph) fn of_line(
    text: &str,
    global: Option<&GlobalVar>,
    line: usize,
) -> Option<Excerpt> {
    let lines: Vec<&str> = text.lines().collect();
    let guilty = *lines.get(line)?;
    let first = line.saturating_sub(CONTEXT_LINES);
    let last = (line + CONTEXT_LINES).min(lines.len() - 1);
    let before: usize = lines[first..line].iter().map(|line| line.len() + 1).sum();
    let indent = guilty.len() - guilty.trim_start().len();
    let named = guilty[indent..].starts_with('%') || guilty[indent..].starts_with("let ");
    let start = match guilty.find(" = ") {
        Some(at) if named => at + 3,
        _ => indent,
    };
    let end = guilty.trim_end_matches([';', '{', ' ']).len().max(start);
    Some(Excerpt {
        name: global.map_or_else(|| "a function".to_owned(), |g| GlobalText(g).to_string()),
        text: lines[first..=last].join("\n"),
        first_line: first as u32 + 1,
        guilty: before + start..before + end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_module;

    #[test]
    fn an_excerpt_marks_what_a_line_defines() {
        let module = parse_module(
            "def @f(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
               %0 = add(%x, %x);
               %1 = multiply(%0, %0);
               nn.relu(%1)
             }",
        )
        .unwrap();
        let function = module.function("f").unwrap();
        let global = GlobalVar::new("f");
        let guilty: Vec<(u32, String)> = function
            .ids()
            .filter_map(|id| excerpt(function, Some(&global), id))
            .map(|found| (found.position().0, found.text[found.guilty].to_owned()))
            .collect();
        let header = "def @f(%x: Tensor[(2), float32]) -> Tensor[(2), float32]".to_owned();
        let expected = [
            (1, header),
            (2, "add(%x, %x)".into()),
            (3, "multiply(%0, %0)".into()),
            (4, "nn.relu(%1)".into()),
        ];
        assert_eq!(guilty, expected);
        let last = excerpt(function, Some(&global), function.result()).unwrap();
        assert_eq!((last.name.as_str(), last.first_line), ("@f", 3));
        assert_eq!(last.text, "  %1 = multiply(%0, %0);\n  nn.relu(%1)\n}");
    }
}
