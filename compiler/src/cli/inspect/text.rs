//! The facts of a model for people.

use std::fmt::Write;

use super::facts::{Extent, Facts, Port};

/// One line a fact, what it is about in the first column.
pub(super) fn of(facts: &Facts) -> String {
    let mut text = String::new();
    let mut line = |what: &str, fact: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<10} {fact}");
    };
    line("model", &one_line(&facts.model));
    if !facts.producer.is_empty() {
        line("producer", &one_line(&facts.producer));
    }
    for (domain, version) in &facts.opsets {
        line("opset", &format!("{} {version}", one_line(domain)));
    }
    for (key, value) in &facts.metadata {
        line("metadata", &one_line(&format!("{key}: {value}")));
    }
    facts.inputs.iter().for_each(|port| line("input", &port_text(port)));
    facts.outputs.iter().for_each(|port| line("output", &port_text(port)));
    for (left, right) in &facts.equal {
        line("needs", &one_line(&format!("{left} = {right}")));
    }
    let parameters = &facts.parameters;
    let (tensors, elements) = (parameters.tensors, parameters.elements);
    line("parameters", &format!("{elements} in {tensors} tensors, {}", bytes(parameters.bytes)));
    for file in &facts.external_data {
        line("external", &one_line(file));
    }
    match &facts.sizes {
        Some(sizes) => {
            line("macs", &sizes.macs.to_string());
            line("weights", &bytes(sizes.weight_bytes));
            let peak = sizes.peak_live_bytes;
            line(
                "workspace",
                &format!(
                    "{}, of which {peak} bytes are alive at most",
                    bytes(sizes.workspace_bytes)
                ),
            );
        }
        None if !facts.unpinned.is_empty() => {
            let symbols: Vec<String> =
                facts.unpinned.iter().map(|symbol| format!("`{symbol}`")).collect();
            line("sizes", &format!("not known before {} pinned: --dim NAME=N", list(&symbols)));
        }
        None => {}
    }
    let nodes: u64 = facts.operators.values().sum();
    line("operators", &format!("{nodes} of {} kinds", facts.operators.len()));
    for (operator, count) in &facts.operators {
        let note = if facts.unsupported.contains(operator) { " (not supported)" } else { "" };
        let _ = writeln!(text, "  {count:>6} {}{note}", one_line(operator));
    }
    if let Some(passes) = &facts.passes {
        text.push('\n');
        text.push_str(&passes.to_string());
    }
    text
}

/// `a is`, or `a, b are`.
fn list(items: &[String]) -> String {
    format!("{} {}", items.join(", "), if items.len() == 1 { "is" } else { "are" })
}

fn port_text(port: &Port) -> String {
    let Port { name, dtype, shape, other } = port;
    let name = format!("{name:?}");
    if let Some(other) = other {
        return format!("{name} {other}");
    }
    let dims = shape.as_ref().map(|shape| {
        let extents: Vec<String> = shape
            .iter()
            .map(|extent| match extent {
                Extent::Number(number) => number.to_string(),
                Extent::Symbol(symbol) => one_line(symbol),
                Extent::Unknown => "?".to_owned(),
            })
            .collect();
        format!("({})", extents.join(", "))
    });
    let dtype = dtype.map_or("?", |dtype| dtype.name());
    format!("{name} Tensor[{}, {dtype}]", dims.as_deref().unwrap_or("(...)"))
}

/// A number of bytes, and in a unit that is easier to read.
fn bytes(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes >= 10 << shift) {
        Some((shift, unit)) => {
            format!("{bytes} bytes ({:.1} {unit})", bytes as f64 / (1u64 << shift) as f64)
        }
        None => format!("{bytes} bytes"),
    }
}

/// Names in a model are any strings: none of them may begin a line, or steer a terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_beyond_ten_of_it() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(10_239), "10239 bytes");
        assert_eq!(bytes(10_240), "10240 bytes (10.0 KiB)");
        assert_eq!(bytes(15 << 20), "15728640 bytes (15.0 MiB)");
    }

    #[test]
    fn names_cannot_begin_a_line() {
        assert_eq!(one_line("a\nerror: b\u{1b}[31m"), "a\\nerror: b\\u{1b}[31m");
    }
}
