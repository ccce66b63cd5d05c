//! The attributes of an operator, found out from the struct that they are parsed into.

use std::fmt;

use serde::de::value::{I64Deserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::arith::INT_EXPR;
use crate::ir::{AttrError, AttrValue, DType};

/// An attribute that calls of an operator have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Its name in the text format.
    pub name: &'static str,
    /// What it holds, in words.
    pub kind: String,
    /// Whether calls may be without it.
    pub optional: bool,
    /// What a call has if the text format leaves it out.
    pub default: Option<AttrValue>,
}

impl Attribute {
    /// The layout of an input.
    pub(super) fn layout(name: &'static str) -> Attribute {
        Attribute { name, kind: "layout".to_owned(), optional: true, default: None }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.name, self.kind)?;
        match &self.default {
            Some(default) => write!(f, " (`{default}`)"),
            None if self.optional => f.write_str(", may be left out"),
            None => Ok(()),
        }
    }
}

/// The attributes that a struct has, in its order.
///
/// # Errors
///
/// If a field has a type that no attribute has.
pub(super) fn of<T: DeserializeOwned>() -> Result<Vec<Attribute>, AttrError> {
    let mut found = Vec::new();
    T::deserialize(Struct { found: &mut found, left_out: None })?;
    for (index, attribute) in found.iter_mut().enumerate() {
        let without = Struct { found: &mut Vec::new(), left_out: Some(index) };
        attribute.optional = T::deserialize(without).is_ok();
    }
    Ok(found)
}

/// Is read as a struct, whose fields it writes down. One of them may be left out.
struct Struct<'a> {
    found: &'a mut Vec<Attribute>,
    left_out: Option<usize>,
}

impl<'de> Deserializer<'de> for Struct<'_> {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, AttrError> {
        Err(AttrError::custom("attributes are a struct"))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_unit()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        visitor.visit_map(Fields { of: self, fields: fields.iter().enumerate(), name: "" })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Fields<'a> {
    of: Struct<'a>,
    fields: std::iter::Enumerate<std::slice::Iter<'static, &'static str>>,
    /// Of the field whose value comes next.
    name: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = AttrError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, AttrError> {
        let left_out = self.of.left_out;
        let Some((_, name)) = self.fields.find(|(index, _)| Some(*index) != left_out) else {
            return Ok(None);
        };
        self.name = name;
        seed.deserialize(StrDeserializer::<AttrError>::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, AttrError> {
        let mut kind = String::new();
        let value = seed.deserialize(Field(&mut kind))?;
        self.of.found.push(Attribute { name: self.name, kind, optional: false, default: None });
        Ok(value)
    }
}

/// Is read as a value of any type, whose name it writes down.
struct Field<'a>(&'a mut String);

impl<'de> Deserializer<'de> for Field<'_> {
    type Error = AttrError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, AttrError> {
        Err(AttrError::custom("no attribute has this type"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        *self.0 += "boolean";
        visitor.visit_bool(false)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        *self.0 += "integer";
        visitor.visit_i64(1)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        self.deserialize_i64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        *self.0 += "number";
        visitor.visit_f64(1.0)
    }

    /// Text stands for data types.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        *self.0 += "data type";
        visitor.visit_str(DType::F32.name())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        if name != INT_EXPR {
            return self.deserialize_any(visitor);
        }
        *self.0 += "extent";
        visitor.visit_newtype_struct(I64Deserializer::<AttrError>::new(1))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AttrError> {
        *self.0 += "list of ";
        several(self.0, 1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        *self.0 += &format!("{len} ");
        several(self.0, len, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AttrError> {
        *self.0 += &variants.iter().map(|v| format!("`\"{v}\"`")).collect::<Vec<_>>().join(" or ");
        let first = variants.first().copied().unwrap_or_default();
        StrDeserializer::<AttrError>::new(first).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u64 u128 f32 char str bytes byte_buf unit unit_struct
        tuple_struct map struct identifier ignored_any
    }
}

/// Reads so many elements, and writes down their type in the plural.
fn several<'de, V: Visitor<'de>>(
    kind: &mut String,
    count: usize,
    visitor: V,
) -> Result<V::Value, AttrError> {
    let value = visitor.visit_seq(Elements { kind: &mut *kind, left: count, first: true })?;
    if !kind.ends_with('s') {
        kind.push('s');
    }
    Ok(value)
}

/// The elements of a list, of which the first one writes down its type.
struct Elements<'a> {
    kind: &'a mut String,
    left: usize,
    first: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = AttrError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, AttrError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut other = String::new();
        let kind = if std::mem::take(&mut self.first) { &mut *self.kind } else { &mut other };
        seed.deserialize(Field(kind)).map(Some)
    }
}
