//! Writing structs as attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{Impossible, SerializeSeq, SerializeStruct, SerializeTuple, Serializer};

use super::{AttrError, AttrValue, Attrs};
use crate::arith::INT_EXPR;

fn unsupported<T>(what: &str) -> Result<T, AttrError> {
    Err(AttrError::new(format!("attributes cannot hold {what}")))
}

/// Writes a struct as a map of attributes.
pub(super) struct AttrsSerializer;

/// Writes one value; `None` for an absent option.
struct ValueSerializer;

pub(super) struct Fields(BTreeMap<String, AttrValue>);

struct Elements(Vec<AttrValue>);

impl SerializeStruct for Fields {
    type Ok = Attrs;
    type Error = AttrError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), AttrError> {
        if let Some(value) = value.serialize(ValueSerializer)? {
            self.0.insert(key.to_owned(), value);
        }
        Ok(())
    }

    fn end(self) -> Result<Attrs, AttrError> {
        Ok(Attrs(Arc::new(self.0)))
    }
}

impl Elements {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), AttrError> {
        let Some(value) = value.serialize(ValueSerializer)? else {
            return unsupported("a list with absent elements");
        };
        self.0.push(value);
        Ok(())
    }
}

impl SerializeSeq for Elements {
    type Ok = Option<AttrValue>;
    type Error = AttrError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), AttrError> {
        self.push(value)
    }

    fn end(self) -> Result<Option<AttrValue>, AttrError> {
        Ok(Some(AttrValue::List(self.0)))
    }
}

impl SerializeTuple for Elements {
    type Ok = Option<AttrValue>;
    type Error = AttrError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), AttrError> {
        self.push(value)
    }

    fn end(self) -> Result<Option<AttrValue>, AttrError> {
        Ok(Some(AttrValue::List(self.0)))
    }
}

/// The serializer methods that both refuse alike.
macro_rules! refuse {
    ($ok:ty) => {
        type Ok = $ok;
        type Error = AttrError;
        type SerializeTupleStruct = Impossible<$ok, AttrError>;
        type SerializeTupleVariant = Impossible<$ok, AttrError>;
        type SerializeMap = Impossible<$ok, AttrError>;
        type SerializeStructVariant = Impossible<$ok, AttrError>;

        fn serialize_bytes(self, _: &[u8]) -> Result<$ok, AttrError> {
            unsupported("bytes")
        }
        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<$ok, AttrError> {
            unsupported("enum variants with fields")
        }
        fn serialize_tuple_struct(
            self,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeTupleStruct, AttrError> {
            unsupported("tuple structs")
        }
        fn serialize_tuple_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeTupleVariant, AttrError> {
            unsupported("enum variants with fields")
        }
        fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, AttrError> {
            unsupported("maps")
        }
        fn serialize_struct_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeStructVariant, AttrError> {
            unsupported("enum variants with fields")
        }
    };
}

macro_rules! refuse_scalars {
    ($($method:ident: $t:ty,)*) => {
        $(fn $method(self, _: $t) -> Result<Attrs, AttrError> {
            unsupported("a bare value without a name")
        })*
    };
}

impl Serializer for AttrsSerializer {
    refuse!(Attrs);
    type SerializeSeq = Impossible<Attrs, AttrError>;
    type SerializeTuple = Impossible<Attrs, AttrError>;
    type SerializeStruct = Fields;

    refuse_scalars! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_f32: f32,
        serialize_f64: f64,
        serialize_char: char,
        serialize_str: &str,
    }

    fn serialize_none(self) -> Result<Attrs, AttrError> {
        Ok(Attrs::new())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Attrs, AttrError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Attrs, AttrError> {
        Ok(Attrs::new())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Attrs, AttrError> {
        Ok(Attrs::new())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<Attrs, AttrError> {
        unsupported("a bare value without a name")
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Attrs, AttrError> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, AttrError> {
        unsupported("a bare value without a name")
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, AttrError> {
        unsupported("a bare value without a name")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, AttrError> {
        Ok(Fields(BTreeMap::new()))
    }
}

macro_rules! integers {
    ($($method:ident: $t:ty,)*) => {
        $(fn $method(self, v: $t) -> Result<Self::Ok, AttrError> {
            match i64::try_from(v) {
                Ok(v) => Ok(Some(AttrValue::Int(v))),
                Err(_) => unsupported("integers beyond 64 bits"),
            }
        })*
    };
}

impl Serializer for ValueSerializer {
    refuse!(Option<AttrValue>);
    type SerializeSeq = Elements;
    type SerializeTuple = Elements;
    type SerializeStruct = Impossible<Option<AttrValue>, AttrError>;

    integers! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
    }

    fn serialize_bool(self, v: bool) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::Bool(v)))
    }

    fn serialize_f32(self, v: f32) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::Float(v.into())))
    }

    fn serialize_f64(self, v: f64) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::Float(v)))
    }

    fn serialize_char(self, v: char) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::from(v.to_string())))
    }

    fn serialize_str(self, v: &str) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::from(v)))
    }

    fn serialize_none(self) -> Result<Self::Ok, AttrError> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, AttrError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Self::Ok, AttrError> {
        Ok(None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Self::Ok, AttrError> {
        Ok(None)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Self::Ok, AttrError> {
        Ok(Some(AttrValue::from(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Self::Ok, AttrError> {
        let inner = value.serialize(self)?;
        // A dimension that is not a constant comes as its text under this name.
        match inner {
            Some(AttrValue::Str(text)) if name == INT_EXPR => {
                let dim = text.parse().map_err(|error| AttrError::new(format!("{error}")))?;
                Ok(Some(AttrValue::Dim(dim)))
            }
            other => Ok(other),
        }
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Elements, AttrError> {
        Ok(Elements(Vec::with_capacity(len.unwrap_or(0))))
    }

    fn serialize_tuple(self, len: usize) -> Result<Elements, AttrError> {
        Ok(Elements(Vec::with_capacity(len)))
    }

    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, AttrError> {
        unsupported("nested structs")
    }
}
