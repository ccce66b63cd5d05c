//! Reading attributes into structs.

use std::collections::BTreeMap;

use serde::de::value::{MapDeserializer as Pairs, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::{AttrError, AttrValue};

/// Reads a map of attributes as a struct.
pub(super) struct MapDeserializer<'a>(pub(super) &'a BTreeMap<String, AttrValue>);

impl<'de> Deserializer<'de> for MapDeserializer<'_> {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_map(Pairs::new(self.0.iter().map(|(k, v)| (k.as_str(), Value(v)))))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        // `()` stands for "no attributes".
        match self.0.keys().next() {
            None => visitor.visit_unit(),
            Some(name) => {
                Err(AttrError(format!("unknown attribute `{name}`, there are none here")))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[derive(Clone, Copy)]
struct Value<'a>(&'a AttrValue);

impl<'de> IntoDeserializer<'de, AttrError> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        match self.0 {
            AttrValue::Bool(v) => visitor.visit_bool(*v),
            AttrValue::Int(v) => visitor.visit_i64(*v),
            AttrValue::Float(v) => visitor.visit_f64(*v),
            AttrValue::Str(v) => visitor.visit_str(v),
            AttrValue::Dim(v) => visitor.visit_string(v.to_string()),
            AttrValue::List(list) => {
                visitor.visit_seq(SeqDeserializer::new(list.iter().map(Value)))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        let AttrValue::Str(variant) = self.0 else {
            return Err(AttrError(format!("expected one of {variants:?}, found {}", self.0)));
        };
        StrDeserializer::<AttrError>::new(variant).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
