//! Tests of the interpreter, and values as text.

use niello::graph::interp::{Tensor, Value, evaluate};
use niello::graph::{parse_constants, print_constant};

use super::{TestFile, valid_module};

/// The result of `main` for each line of arguments, one line each, or the reason why there is none.
pub(super) fn values(file: &TestFile, args: &[String]) -> Result<String, String> {
    let module = valid_module(file)?;
    if args.is_empty() {
        return Err("there is no `; args:` line".to_owned());
    }
    let mut found = String::new();
    for args in args {
        let constants = parse_constants(args).map_err(|errors| format!("args: {errors}"))?;
        let args: Vec<Value> = constants
            .iter()
            .map(|constant| Tensor::from_constant(constant).map(Value::from))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("args: {error}"))?;
        match evaluate(&module, "main", &args) {
            Ok(value) => found += &value_text(&value)?,
            Err(error) => found += &format!("error: {error}"),
        }
        found.push('\n');
    }
    Ok(found)
}

fn value_text(value: &Value) -> Result<String, String> {
    match value {
        Value::Tensor(tensor) => {
            // The sign and the payload of a computed NaN depend on the processor.
            let usual = f64::from_bits(0x7ff8_0000_0000_0000);
            let tensor =
                tensor.map(|value| if value.is_nan() { usual } else { value }, |value| value);
            let constant = tensor.to_constant().map_err(|error| error.to_string())?;
            Ok(print_constant(&constant, u64::MAX))
        }
        Value::Tuple(fields) => {
            let fields: Vec<String> = fields.iter().map(value_text).collect::<Result<_, _>>()?;
            let comma = if fields.len() == 1 { "," } else { "" };
            Ok(format!("({}{comma})", fields.join(", ")))
        }
        Value::Function(_) => Err("the result is a function, which has no text".to_owned()),
    }
}
