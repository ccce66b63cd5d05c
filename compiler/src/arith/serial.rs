//! Expressions in serialised attributes: a number where it is one, else its text.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::expr::IntExpr;

/// The name of the newtype around the text. A serialiser of our own recognises it and writes the
/// expression itself instead of a string.
pub const INT_EXPR: &str = "niello::IntExpr";

impl Serialize for IntExpr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(value) => serializer.serialize_i64(value),
            None => serializer.serialize_newtype_struct(INT_EXPR, &self.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for IntExpr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IntExpr, D::Error> {
        deserializer.deserialize_newtype_struct(INT_EXPR, IntExprVisitor)
    }
}

struct IntExprVisitor;

impl<'de> Visitor<'de> for IntExprVisitor {
    type Value = IntExpr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or the text of an integer expression")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntExpr, E> {
        Ok(IntExpr::constant(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntExpr, E> {
        i64::try_from(value)
            .map(IntExpr::constant)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<IntExpr, E> {
        IntExpr::parse(text).map_err(|error| {
            E::custom(format_args!("`{text}` is not an integer expression: {error}"))
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<IntExpr, D::Error> {
        inner.deserialize_any(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_numbers_and_the_rest_is_text() {
        let dims: Vec<IntExpr> = vec![3.into(), IntExpr::symbol("n") * 2 + 1];
        let json = serde_json::to_string(&dims).expect("dims serialise");
        assert_eq!(json, r#"[3,"2*n + 1"]"#);
        assert_eq!(serde_json::from_str::<Vec<IntExpr>>(&json).expect("dims parse"), dims);
        for wrong in ["[9223372036854775808]", "[\"n +\"]", "[1.5]", "[null]"] {
            assert!(serde_json::from_str::<Vec<IntExpr>>(wrong).is_err(), "{wrong}");
        }
    }
}
