//! Canonical integer expressions over named symbols, and what is known about them.
#![allow(missing_docs, reason = "temporary")]
use std::fmt;
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IntExpr {
    C(i64),
    S(String),
}
impl IntExpr {
    pub const SERDE_NAME: &'static str = "niello::IntExpr";
    pub fn symbol(s: &str) -> Self {
        Self::S(s.into())
    }
    pub fn as_const(&self) -> Option<i64> {
        if let Self::C(c) = self { Some(*c) } else { None }
    }
}
impl From<i64> for IntExpr {
    fn from(v: i64) -> Self {
        Self::C(v)
    }
}
impl std::ops::Mul for IntExpr {
    type Output = Self;
    fn mul(self, o: Self) -> Self {
        match (self, o) {
            (Self::C(a), Self::C(b)) => Self::C(a.wrapping_mul(b)),
            (a, _) => a,
        }
    }
}
impl fmt::Display for IntExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::C(c) => write!(f, "{c}"),
            Self::S(s) => f.write_str(s),
        }
    }
}
impl std::str::FromStr for IntExpr {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Ok(Self::S(s.into()))
    }
}
impl serde::Serialize for IntExpr {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::C(c) => s.serialize_i64(*c),
            Self::S(t) => s.serialize_newtype_struct(Self::SERDE_NAME, t),
        }
    }
}
impl<'de> serde::Deserialize<'de> for IntExpr {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl serde::de::Visitor<'_> for V {
            type Value = IntExpr;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("dim")
            }
            fn visit_i64<E>(self, v: i64) -> Result<IntExpr, E> {
                Ok(IntExpr::C(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<IntExpr, E> {
                Ok(IntExpr::S(v.into()))
            }
        }
        d.deserialize_any(V)
    }
}
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts;
