//! Tests of the printer, the parser and the verifier.

use niello::graph::{
    VerifyPlace, modules_equal, parse_module, statement_lines, verify_module, visit::ScopeTree,
};
use niello::ir::Span;

use super::file::difference;
use super::{TestFile, valid_module};

/// The printed form of the text, which must parse to the same module.
pub(super) fn print(file: &TestFile) -> Result<String, String> {
    let module = valid_module(file)?;
    let printed = module.to_string();
    let again = parse_module(&printed)
        .map_err(|errors| format!("what is printed does not read back:\n{errors}"))?;
    modules_equal(&module, &again)
        .map_err(|mismatch| format!("what is printed reads back as something else: {mismatch}"))?;
    if again.to_string() != printed {
        let difference = difference(&printed, &again.to_string());
        return Err(format!("printing what was read back differs {difference}"));
    }
    Ok(printed)
}

/// Checks that the text prints unchanged, apart from remarks.
pub(super) fn roundtrip(file: &TestFile) -> Result<(), String> {
    let printed = print(file)?;
    let written: String = file
        .text
        .lines()
        .filter(|line| !line.starts_with(';'))
        .map(|line| format!("{line}\n"))
        .collect();
    let written = written.trim_start();
    match written == printed {
        true => Ok(()),
        false => Err(format!("the text prints otherwise {}", difference(written, &printed))),
    }
}

/// A message with the number of its line, from 1.
type Message = (usize, String);

/// Checks that the errors in the text are those announced on its lines.
pub(super) fn verify(file: &TestFile) -> Result<(), String> {
    let (text, expected) = announced(&file.text);
    let mut found = found(&text);
    let mut problems = Vec::new();
    for (line, message) in expected {
        let at = found.iter().position(|(at, text)| *at == line && text.contains(&message));
        match at {
            Some(at) => {
                found.remove(at);
            }
            None => problems.push(format!("line {line}: there is no error `{message}`")),
        }
    }
    let unexpected = |(line, message)| format!("line {line}: unexpected error: {message}");
    problems.extend(found.into_iter().map(unexpected));
    if problems.is_empty() { Ok(()) } else { Err(format!("\n{}", problems.join("\n"))) }
}

/// The text without the announcements after `; error:`, and the announcements with their lines.
fn announced(text: &str) -> (String, Vec<Message>) {
    let mut announced = Vec::new();
    let mut plain = String::new();
    for (index, line) in text.lines().enumerate() {
        let mut pieces = line.split("; error:");
        plain += pieces.next().unwrap_or("").trim_end();
        plain.push('\n');
        announced.extend(pieces.map(|message| (index + 1, message.trim().to_owned())));
    }
    (plain, announced)
}

fn found(text: &str) -> Vec<Message> {
    let module = match parse_module(text) {
        Ok(module) => module,
        Err(errors) => {
            let message = |error: &niello::graph::ParseError| match &error.help {
                Some(help) => format!("{}; {help}", error.message),
                None => error.message.clone(),
            };
            return errors.0.iter().map(|error| (error.line as usize, message(error))).collect();
        }
    };
    let Err(errors) = verify_module(&module) else { return Vec::new() };
    let mut found = Vec::new();
    for function in &errors.0 {
        let tree = ScopeTree::new(&function.function);
        for error in &function.errors {
            let expr = match error.place {
                VerifyPlace::Expr(id) => Some(id),
                VerifyPlace::Scope(scope) => tree.owner(scope),
            };
            let span = expr.map(|id| function.function.span(id));
            let line = match span {
                Some(Span::Text { line, column: _ }) => *line as usize,
                Some(Span::Unknown | Span::Onnx(_)) | None => 0,
            };
            found.push((line, error.message.clone()));
        }
    }
    let lines = statement_lines(text);
    for function in &errors.1 {
        let lines = lines.get(&function.global);
        found.extend(function.errors.iter().map(|error| {
            let line = error.statement.and_then(|at| lines?.get(at)).copied().unwrap_or(0);
            (line as usize, error.message.clone())
        }));
    }
    found
}
