//! The values of the symbols in a function's types while it is evaluated.

use std::collections::BTreeMap;
use std::fmt;

use super::{Tensor, Value};
use crate::arith::{Facts, Symbol};
use crate::graph::Function;
use crate::ir::{AttrValue, Attrs, TensorType, Type};

/// Symbols with their values.
#[derive(Clone, Default, Debug)]
pub(super) struct Symbols(BTreeMap<Symbol, i64>);

impl Symbols {
    /// The symbols of a function's parameters, from its arguments, whose number is right.
    ///
    /// Solves every extent for its symbols; the facts about the function's symbols must hold.
    ///
    /// # Errors
    ///
    /// If an argument is not of its parameter's type; the message names parameter and extent.
    pub(super) fn of_arguments(function: &Function, args: &[Value]) -> Result<Symbols, String> {
        let mut symbols = Symbols::default();
        let mut facts = function.facts().clone();
        let mut named = Vec::new();
        for (index, (&param, arg)) in function.params().iter().zip(args).enumerate() {
            let name = || match function.var_name(param) {
                Some(name) if !name.is_empty() => format!("argument `{name}`"),
                _ => format!("argument {index}"),
            };
            pairs(function.ty(param), arg, &name, &mut |ty, tensor| {
                for (axis, (dim, &extent)) in ty.shape.iter().zip(tensor.shape()).enumerate() {
                    let value = i64::try_from(extent).unwrap_or(i64::MAX);
                    if dim.is(value) {
                        continue;
                    }
                    let known = facts.simplify(dim);
                    facts.assume_eq(dim, &value.into()).map_err(|mismatch| {
                        let place = format!("dimension {axis} of {}", name());
                        match known.as_const() {
                            Some(known) if dim.is_const() => {
                                format!("{place} must be {known}, but it is {value}")
                            }
                            Some(known) => {
                                format!("{place} must be `{dim}` = {known}, but it is {value}")
                            }
                            None => {
                                format!("{place} is {value}, but must be `{dim}`: {mismatch}")
                            }
                        }
                    })?;
                    named.extend(dim.symbols());
                }
                Ok(())
            })?;
        }
        for symbol in named {
            if let Some(value) = known_value(&facts, &symbol) {
                symbols.0.insert(symbol, value);
            }
        }
        Ok(symbols)
    }

    /// Takes over the values of symbols that have none.
    pub(super) fn add(&mut self, others: &Symbols) {
        for (symbol, value) in &others.0 {
            self.0.entry(symbol.clone()).or_insert(*value);
        }
    }

    /// Checks a computed value against the inferred type. Symbols without a value take theirs from
    /// it, and are added to `new`.
    ///
    /// # Errors
    ///
    /// If the value is not of that type.
    pub(super) fn check_result(
        &mut self,
        ty: &Type,
        value: &Value,
        new: &mut Vec<Symbol>,
    ) -> Result<(), String> {
        pairs(ty, value, &|| "the result".to_owned(), &mut |ty, tensor| {
            for (axis, (dim, &extent)) in ty.shape.iter().zip(tensor.shape()).enumerate() {
                let found = i64::try_from(extent).unwrap_or(i64::MAX);
                if dim.is(found) {
                    continue;
                }
                if let Some(symbol) = dim.as_symbol()
                    && !self.0.contains_key(symbol)
                {
                    self.0.insert(symbol.clone(), found);
                    new.push(symbol.clone());
                    continue;
                }
                // An expression over symbols without a value cannot be checked.
                match dim.eval(&|symbol| self.0.get(symbol).copied()) {
                    Ok(expected) if expected != found => {
                        let given = self.given(dim.symbols());
                        return Err(format!(
                            "dimension {axis} of the result is {found}, but its type is {ty}{given}"
                        ));
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(())
        })
    }

    /// `, with n = 3`.
    fn given(&self, symbols: impl IntoIterator<Item = Symbol>) -> String {
        let mut text = String::new();
        for symbol in symbols {
            if let Some(value) = self.0.get(&symbol) {
                let comma = if text.is_empty() { ", with" } else { "," };
                text += &format!("{comma} {symbol} = {value}");
            }
        }
        text
    }

    /// Forgets symbols that were defined in a scope that ended.
    pub(super) fn forget(&mut self, symbols: impl IntoIterator<Item = Symbol>) {
        for symbol in symbols {
            self.0.remove(&symbol);
        }
    }

    /// The attributes with numbers in place of dimensions.
    ///
    /// # Errors
    ///
    /// If a symbol has no value, or a dimension leaves its range.
    pub(super) fn bind_attrs(&self, attrs: &Attrs) -> Result<Attrs, String> {
        if !attrs.iter().any(|(_, value)| has_dims(value)) {
            return Ok(attrs.clone());
        }
        attrs
            .iter()
            .map(|(name, value)| match self.bind(value) {
                Ok(value) => Ok((name.to_owned(), value)),
                Err(error) => Err(format!("attribute `{name}`: {error}")),
            })
            .collect()
    }

    fn bind(&self, value: &AttrValue) -> Result<AttrValue, String> {
        match value {
            AttrValue::Bool(_) | AttrValue::Int(_) | AttrValue::Float(_) | AttrValue::Str(_) => {
                Ok(value.clone())
            }
            AttrValue::Dim(dim) => dim
                .eval(&|symbol| self.0.get(symbol).copied())
                .map(AttrValue::Int)
                .map_err(|error| error.to_string()),
            AttrValue::List(list) => list
                .iter()
                .map(|value| self.bind(value))
                .collect::<Result<_, _>>()
                .map(AttrValue::List),
        }
    }
}

fn known_value(facts: &Facts, symbol: &Symbol) -> Option<i64> {
    facts.definition(symbol)?.as_const()
}

fn has_dims(value: &AttrValue) -> bool {
    match value {
        AttrValue::Bool(_) | AttrValue::Int(_) | AttrValue::Float(_) | AttrValue::Str(_) => false,
        AttrValue::Dim(_) => true,
        AttrValue::List(list) => list.iter().any(has_dims),
    }
}

/// Calls `visit` for each tensor of a value with its type. Checks everything but the extents.
fn pairs(
    ty: &Type,
    value: &Value,
    name: &dyn Fn() -> String,
    visit: &mut dyn FnMut(&TensorType, &Tensor) -> Result<(), String>,
) -> Result<(), String> {
    let mut stack = vec![(ty, value)];
    while let Some((ty, value)) = stack.pop() {
        match (ty, value) {
            (Type::Tensor(ty), Value::Tensor(tensor)) => {
                if ty.dtype != tensor.dtype() || ty.shape.rank() != tensor.shape().len() {
                    return Err(format!("{} must be {ty}, but it is {}", name(), tensor.ty()));
                }
                visit(ty, tensor)?;
            }
            (Type::Tuple(types), Value::Tuple(fields)) if types.len() == fields.len() => {
                // Reversed, because the stack returns the last one first.
                stack.extend(types.iter().zip(fields.iter()).rev());
            }
            (Type::Func(_), Value::Function(_)) => {}
            (
                Type::Tensor(_)
                | Type::Tuple(_)
                | Type::Func(_)
                | Type::Sequence(_)
                | Type::Optional(_),
                value,
            ) => {
                return Err(format!("{} must be {ty}, but it is {}", name(), Kind(value)));
            }
        }
    }
    Ok(())
}

/// The kind of a value, for messages.
struct Kind<'a>(&'a Value);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Tensor(tensor) => write!(f, "{}", tensor.ty()),
            Value::Tuple(fields) => write!(f, "a tuple of {} fields", fields.len()),
            Value::Function(_) => f.write_str("a function"),
        }
    }
}
