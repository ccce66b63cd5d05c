//! Reading attributes into structs.

use std::collections::BTreeMap;
use std::collections::btree_map;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{AttrError, AttrValue};

/// Reads a map of attributes as a struct.
///
/// # Errors
///
/// Every field that is missing, or the first that is unknown or of another type.
pub(super) fn parse<T: DeserializeOwned>(
    attrs: &BTreeMap<String, AttrValue>,
) -> Result<T, AttrError> {
    let mut missing: Vec<&'static str> = Vec::new();
    loop {
        match T::deserialize(MapDeserializer { attrs, missing: &missing }) {
            // With a stand-in for each field that is missing so far, the next one shows.
            Err(AttrError { missing: Some(field), .. }) if !missing.contains(&field) => {
                missing.push(field);
            }
            result => {
                return match missing.as_slice() {
                    [] => result,
                    [field] => Err(serde::de::Error::missing_field(field)),
                    _ => {
                        let names = missing.join("`, `");
                        Err(AttrError::new(format!("attributes `{names}` are missing")))
                    }
                };
            }
        }
    }
}

struct MapDeserializer<'a> {
    attrs: &'a BTreeMap<String, AttrValue>,
    /// Fields that are known to be missing.
    missing: &'a [&'static str],
}

impl<'de> Deserializer<'de> for MapDeserializer<'_> {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_map(Pairs {
            attrs: self.attrs.iter(),
            missing: self.missing.iter(),
            next: None,
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        // `()` stands for "no attributes".
        match self.attrs.keys().next() {
            None => visitor.visit_unit(),
            Some(name) => Err(serde::de::Error::unknown_field(name, &[])),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Attributes one by one, then a stand-in for each that is missing.
struct Pairs<'a> {
    attrs: btree_map::Iter<'a, String, AttrValue>,
    missing: std::slice::Iter<'a, &'static str>,
    /// The name that was read, and its value unless it is missing.
    next: Option<(&'a str, Option<&'a AttrValue>)>,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = AttrError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, AttrError> {
        let attr = self.attrs.next().map(|(name, value)| (name.as_str(), Some(value)));
        self.next = attr.or_else(|| self.missing.next().map(|name| (*name, None)));
        let Some((name, _)) = self.next else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, AttrError> {
        match self.next.take() {
            Some((name, Some(value))) => seed
                .deserialize(Value(value))
                .map_err(|error| AttrError::new(format!("attribute `{name}`: {error}"))),
            Some((_, None)) | None => seed.deserialize(StandIn),
        }
    }
}

/// Some value of any type: what is read with it is thrown away.
#[derive(Clone, Copy)]
struct StandIn;

impl<'de> IntoDeserializer<'de, AttrError> for StandIn {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for StandIn {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_i64(0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_bool(false)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        // Of the texts that attributes hold, data types alone are checked as they are read.
        visitor.visit_str(crate::ir::DType::F32.name())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<StandIn>()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::repeat_n(StandIn, len)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        let first = variants.first().copied().unwrap_or_default();
        StrDeserializer::<AttrError>::new(first).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        tuple_struct map struct identifier ignored_any
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
            return Err(AttrError::new(format!("expected one of {variants:?}, found {}", self.0)));
        };
        StrDeserializer::<AttrError>::new(variant).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
