//! Attributes of calls, functions and modules: an ordered map of plain values, and typed views of
//! it through serde.

mod de;
mod ser;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Dim, text};

/// One attribute value.
#[derive(Clone, Debug)]
pub enum AttrValue {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float; equal if the bits are.
    Float(f64),
    /// A string. Enumerations and data types are held by name.
    Str(Arc<str>),
    /// A dimension that is not a constant; constants are integers.
    Dim(Dim),
    /// A list.
    List(Vec<AttrValue>),
}

impl AttrValue {
    /// What orders and distinguishes values: floats by their bits.
    fn key(&self) -> (u8, i64, u64, &str, Option<&Dim>, &[AttrValue]) {
        match self {
            AttrValue::Bool(v) => (0, i64::from(*v), 0, "", None, &[]),
            AttrValue::Int(v) => (1, *v, 0, "", None, &[]),
            AttrValue::Float(v) => (2, 0, v.to_bits(), "", None, &[]),
            AttrValue::Str(v) => (3, 0, 0, v, None, &[]),
            AttrValue::Dim(v) => (4, 0, 0, "", Some(v), &[]),
            AttrValue::List(v) => (5, 0, 0, "", None, v),
        }
    }
}

impl PartialEq for AttrValue {
    fn eq(&self, other: &AttrValue) -> bool {
        self.key() == other.key()
    }
}

impl Eq for AttrValue {}

impl PartialOrd for AttrValue {
    fn partial_cmp(&self, other: &AttrValue) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttrValue {
    fn cmp(&self, other: &AttrValue) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for AttrValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

macro_rules! value_from {
    ($($from:ty => |$v:ident| $to:expr;)*) => {
        $(impl From<$from> for AttrValue {
            fn from($v: $from) -> AttrValue {
                $to
            }
        })*
    };
}

value_from! {
    bool => |v| AttrValue::Bool(v);
    i64 => |v| AttrValue::Int(v);
    i32 => |v| AttrValue::Int(v.into());
    f64 => |v| AttrValue::Float(v);
    &str => |v| AttrValue::Str(v.into());
    String => |v| AttrValue::Str(v.into());
    super::DType => |v| AttrValue::Str(v.name().into());
    Dim => |v| v.as_const().map_or_else(|| AttrValue::Dim(v.clone()), AttrValue::Int);
}

impl<T: Into<AttrValue>> From<Vec<T>> for AttrValue {
    fn from(list: Vec<T>) -> AttrValue {
        AttrValue::List(list.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for AttrValue {
    /// The text format's spelling: `true`, `3`, `0.5`, `"text"`, `dim(2*n)`, `[1, 2]`. Floats have a
    /// point or an exponent, or are `inf`, `nan` and the like; all read back to the same bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttrValue::Bool(v) => write!(f, "{v}"),
            AttrValue::Int(v) => write!(f, "{v}"),
            AttrValue::Float(v) => f.write_str(&text::float_text(*v)),
            AttrValue::Str(v) => write!(f, "{v:?}"),
            AttrValue::Dim(v) => match v.as_const() {
                Some(value) => write!(f, "{value}"),
                None => write!(f, "dim({v})"),
            },
            AttrValue::List(list) => {
                f.write_str("[")?;
                for (index, value) in list.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{value}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Attributes by name, in the order of their names. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attrs(Arc<BTreeMap<String, AttrValue>>);

static EMPTY: LazyLock<Attrs> = LazyLock::new(|| Attrs(Arc::default()));

impl Default for Attrs {
    fn default() -> Attrs {
        EMPTY.clone()
    }
}

impl Attrs {
    /// No attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }

    /// These attributes and one more; a former value of that name is replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<AttrValue>) -> Attrs {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), value.into());
        self
    }

    /// These attributes less the one named.
    #[must_use]
    pub fn without(mut self, name: &str) -> Attrs {
        if self.0.contains_key(name) {
            Arc::make_mut(&mut self.0).remove(name);
        }
        self
    }

    /// These attributes, and of the others those whose names are not among them.
    #[must_use]
    pub fn or(mut self, others: &Attrs) -> Attrs {
        for (name, value) in others.iter() {
            if self.get(name).is_none() {
                self = self.with(name, value.clone());
            }
        }
        self
    }

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        self.0.get(name)
    }

    /// Whether an attribute is there and neither `false` nor 0: how flags such as `Primitive` and
    /// `SkipOptimization` are read.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(AttrValue::Bool(v)) => *v,
            Some(AttrValue::Int(v)) => *v != 0,
            Some(
                AttrValue::Float(_) | AttrValue::Str(_) | AttrValue::Dim(_) | AttrValue::List(_),
            )
            | None => false,
        }
    }

    /// The dimensions that are values of attributes, or in lists that are; constants are not among them.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        let mut values: Vec<&AttrValue> = self.0.values().collect();
        std::iter::from_fn(move || {
            loop {
                match values.pop()? {
                    AttrValue::Dim(dim) => return Some(dim),
                    AttrValue::List(list) => values.extend(list),
                    AttrValue::Bool(_)
                    | AttrValue::Int(_)
                    | AttrValue::Float(_)
                    | AttrValue::Str(_) => {}
                }
            }
        })
    }

    /// The value of a string attribute.
    pub fn str(&self, name: &str) -> Option<&str> {
        if let Some(AttrValue::Str(v)) = self.get(name) { Some(v) } else { None }
    }

    /// The value of an integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        if let Some(AttrValue::Int(v)) = self.get(name) { Some(*v) } else { None }
    }

    /// Names and values in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AttrValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The attributes as a struct that serde can read. Fields that are missing take the struct's
    /// defaults, if it has them.
    ///
    /// # Errors
    ///
    /// If a field is missing, unknown or of another type; the message names it.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AttrError> {
        de::parse(&self.0)
    }

    /// The fields of a struct as attributes. A field that is `None` is left out.
    ///
    /// # Errors
    ///
    /// If the struct has fields that attributes cannot hold, such as maps.
    pub fn from_struct<T: Serialize + ?Sized>(value: &T) -> Result<Attrs, AttrError> {
        value.serialize(ser::AttrsSerializer)
    }
}

impl FromIterator<(String, AttrValue)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (String, AttrValue)>>(iter: I) -> Attrs {
        Attrs(Arc::new(iter.into_iter().collect()))
    }
}

impl fmt::Display for Attrs {
    /// `axis=1, strides=[1, 1]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}={value}", text::Name(name))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// Why attributes do not fit a struct, or a struct does not fit attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttrError {
    message: String,
    /// The field that is missing, if that is what is wrong.
    missing: Option<&'static str>,
}

impl AttrError {
    fn new(message: impl Into<String>) -> AttrError {
        AttrError { message: message.into(), missing: None }
    }
}

impl fmt::Display for AttrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AttrError {}

impl serde::de::Error for AttrError {
    fn custom<T: fmt::Display>(message: T) -> AttrError {
        AttrError::new(message.to_string())
    }

    fn missing_field(field: &'static str) -> AttrError {
        AttrError {
            missing: Some(field),
            ..AttrError::new(format!("attribute `{field}` is missing"))
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> AttrError {
        AttrError::new(match expected {
            [] => format!("unknown attribute `{field}`, there are none here"),
            known => format!("unknown attribute `{field}`, known are `{}`", known.join("`, `")),
        })
    }
}

impl serde::ser::Error for AttrError {
    fn custom<T: fmt::Display>(message: T) -> AttrError {
        AttrError::new(message.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::ir::DType;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Constant,
        EdgePad,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct PadAttrs {
        pads: Vec<i64>,
        #[serde(default)]
        value: f64,
        mode: Mode,
        axis: Option<i64>,
        shape: Vec<Dim>,
    }

    fn sample() -> PadAttrs {
        PadAttrs {
            pads: vec![1, -1],
            value: 0.5,
            mode: Mode::EdgePad,
            axis: None,
            shape: vec![Dim::from(4i64), Dim::symbol("n")],
        }
    }

    #[test]
    fn structs_go_to_attributes_and_back() {
        let attrs = Attrs::from_struct(&sample()).unwrap();
        assert_eq!(
            attrs.to_string(),
            r#"mode="edge_pad", pads=[1, -1], shape=[4, dim(n)], value=0.5"#
        );
        assert_eq!(attrs.parse::<PadAttrs>().unwrap(), sample());
    }

    #[test]
    fn wrong_fields_are_named() {
        let attrs = Attrs::from_struct(&sample()).unwrap();
        let error = |attrs: Attrs| attrs.parse::<PadAttrs>().unwrap_err().to_string();
        assert_eq!(
            error(attrs.clone().with("padding", 1)),
            "unknown attribute `padding`, known are `pads`, `value`, `mode`, `axis`, `shape`"
        );
        assert_eq!(error(attrs.clone().without("pads")), "attribute `pads` is missing");
        assert_eq!(
            error(attrs.clone().with("axis", "x")),
            "attribute `axis`: invalid type: string \"x\", expected i64"
        );
        assert_eq!(
            error(attrs.with("mode", 3)),
            "attribute `mode`: expected one of [\"constant\", \"edge_pad\"], found 3"
        );
    }

    #[test]
    fn all_missing_fields_are_named_at_once() {
        #[derive(Deserialize, Debug)]
        struct Many {
            _kernel: [i64; 2],
            _dtype: DType,
            #[serde(default)]
            _given: i64,
            _keep: bool,
            _scale: f64,
            _dim: Dim,
        }
        let error = |attrs: Attrs| attrs.parse::<Many>().unwrap_err().to_string();
        assert_eq!(
            error(Attrs::new().with("_scale", 1.0)),
            "attributes `_kernel`, `_dtype`, `_keep`, `_dim` are missing"
        );
        let missing = Attrs::new().parse::<PadAttrs>().unwrap_err().to_string();
        assert_eq!(missing, "attributes `pads`, `mode`, `shape` are missing");
    }

    #[test]
    fn an_integer_serves_where_a_float_is_meant() {
        let attrs = Attrs::from_struct(&sample()).unwrap().with("value", 2i64);
        assert_eq!(attrs.parse::<PadAttrs>().unwrap().value, 2.0);
    }

    #[test]
    fn floats_are_equal_by_bits() {
        assert_eq!(AttrValue::Float(f64::NAN), AttrValue::Float(f64::NAN));
        assert_ne!(AttrValue::Float(0.0), AttrValue::Float(-0.0));
    }

    #[test]
    fn flags_follow_the_manner_of_tvm() {
        let attrs = Attrs::new().with("Primitive", 1).with("Extern", 0).with("dtype", DType::F32);
        assert!(attrs.flag("Primitive"));
        assert!(!attrs.flag("Extern") && !attrs.flag("Compiler") && !attrs.flag("dtype"));
    }
}
