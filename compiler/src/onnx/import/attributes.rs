//! The attributes of a node. Each is marked as it is read; what is left over is a problem.

use super::NodeError;
use crate::onnx::proto::{
    AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto, TypeProto,
};

/// A node's attributes. A getter returns `None` where the node does not have the attribute.
pub struct Attributes<'a> {
    list: &'a [AttributeProto],
    read: Vec<bool>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(node: &'a NodeProto) -> Attributes<'a> {
        Attributes { list: &node.attribute, read: vec![false; node.attribute.len()] }
    }

    /// No attributes: for a node that only builds calls.
    pub(super) fn none() -> Attributes<'a> {
        Attributes { list: &[], read: Vec::new() }
    }

    /// The attributes, with none left here.
    pub(super) fn take(&mut self) -> Attributes<'a> {
        std::mem::replace(self, Attributes::none())
    }

    /// Attributes that nothing has read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.list.iter().zip(&self.read).filter(|(_, read)| !**read).map(|(attr, _)| attr.name())
    }

    /// A name that occurs twice, if there is one.
    pub(super) fn repeated(&self) -> Option<&'a str> {
        let mut names: Vec<&str> = self.list.iter().map(|attr| attr.name()).collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Whether the attribute is there. Does not count as reading it.
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|attr| attr.name() == name)
    }

    fn get(
        &mut self,
        name: &str,
        expected: AttributeType,
    ) -> Result<Option<&'a AttributeProto>, NodeError> {
        let Some(index) = self.list.iter().position(|attr| attr.name() == name) else {
            return Ok(None);
        };
        self.read[index] = true;
        let attr = &self.list[index];
        if let Some(other) = attr.ref_attr_name.as_deref().filter(|other| !other.is_empty()) {
            return Err(NodeError::new(format!(
                "attribute `{name}` refers to attribute `{other}` of a function, but the node is in none"
            )));
        }
        let found = AttributeType::try_from(attr.r#type.unwrap_or_default()).ok();
        // Old writers left the type out; then the field that is set decides.
        let fits = match found {
            Some(AttributeType::Undefined) => holds(attr, expected),
            found => found == Some(expected),
        };
        if !fits {
            let found = found.map_or_else(|| "unknown".to_owned(), describe);
            return Err(NodeError::new(format!(
                "attribute `{name}` must be of type {}, but it is of type {found}",
                describe(expected)
            )));
        }
        Ok(Some(attr))
    }

    /// An integer.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn int(&mut self, name: &str) -> Result<Option<i64>, NodeError> {
        Ok(self.get(name, AttributeType::Int)?.map(AttributeProto::i))
    }

    /// An integer that stands for a truth value, with a default.
    ///
    /// # Errors
    ///
    /// If it is of another type, or neither 0 nor 1.
    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, NodeError> {
        match self.int(name)? {
            None => Ok(default),
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            Some(other) => {
                Err(NodeError::new(format!("attribute `{name}` must be 0 or 1, but it is {other}")))
            }
        }
    }

    /// A float.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn float(&mut self, name: &str) -> Result<Option<f64>, NodeError> {
        Ok(self.get(name, AttributeType::Float)?.map(|attr| f64::from(attr.f())))
    }

    /// A string.
    ///
    /// # Errors
    ///
    /// If it is of another type, or no UTF-8 text.
    pub fn string(&mut self, name: &str) -> Result<Option<&'a str>, NodeError> {
        let Some(attr) = self.get(name, AttributeType::String)? else { return Ok(None) };
        match std::str::from_utf8(attr.s()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(NodeError::new(format!("attribute `{name}` is no UTF-8 text"))),
        }
    }

    /// A list of strings.
    ///
    /// # Errors
    ///
    /// If it is of another type, or has what is no UTF-8 text.
    pub fn strings(&mut self, name: &str) -> Result<Option<Vec<&'a str>>, NodeError> {
        let Some(attr) = self.get(name, AttributeType::Strings)? else { return Ok(None) };
        let texts: Result<_, _> =
            attr.strings.iter().map(|text| std::str::from_utf8(text)).collect();
        texts
            .map(Some)
            .map_err(|_| NodeError::new(format!("attribute `{name}` has what is no UTF-8 text")))
    }

    /// A list of integers.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn ints(&mut self, name: &str) -> Result<Option<&'a [i64]>, NodeError> {
        Ok(self.get(name, AttributeType::Ints)?.map(|attr| attr.ints.as_slice()))
    }

    /// A list of integers of a given length, with a default for each.
    ///
    /// # Errors
    ///
    /// If it is of another type or length.
    pub fn ints_or(
        &mut self,
        name: &str,
        length: usize,
        default: i64,
    ) -> Result<Vec<i64>, NodeError> {
        let Some(ints) = self.ints(name)? else { return Ok(vec![default; length]) };
        if ints.len() != length {
            return Err(NodeError::new(format!(
                "attribute `{name}` must have {length} values, but it is {ints:?}"
            )));
        }
        Ok(ints.to_vec())
    }

    /// A list of floats.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn floats(&mut self, name: &str) -> Result<Option<&'a [f32]>, NodeError> {
        Ok(self.get(name, AttributeType::Floats)?.map(|attr| attr.floats.as_slice()))
    }

    /// A tensor.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn tensor(&mut self, name: &str) -> Result<Option<&'a TensorProto>, NodeError> {
        Ok(self.get(name, AttributeType::Tensor)?.and_then(|attr| attr.t.as_deref()))
    }
}

impl<'a> Attributes<'a> {
    /// A type.
    pub(super) fn ty(&mut self, name: &str) -> Result<Option<&'a TypeProto>, NodeError> {
        Ok(self.get(name, AttributeType::TypeProto)?.and_then(|attr| attr.tp.as_deref()))
    }

    /// A graph.
    pub(super) fn graph(&mut self, name: &str) -> Result<&'a GraphProto, NodeError> {
        self.get(name, AttributeType::Graph)?
            .and_then(|attr| attr.g.as_deref())
            .ok_or_else(|| NodeError::new(format!("attribute `{name}` is missing")))
    }
}

/// Whether the field for values of a type is set. An empty list is any list.
fn holds(attr: &AttributeProto, ty: AttributeType) -> bool {
    match ty {
        AttributeType::Undefined => false,
        AttributeType::Float => attr.f.is_some(),
        AttributeType::Int => attr.i.is_some(),
        AttributeType::String => attr.s.is_some(),
        AttributeType::Tensor => attr.t.is_some(),
        AttributeType::Graph => attr.g.is_some(),
        AttributeType::SparseTensor => attr.sparse_tensor.is_some(),
        AttributeType::TypeProto => attr.tp.is_some(),
        AttributeType::Floats => attr.ints.is_empty() && attr.strings.is_empty(),
        AttributeType::Ints => attr.floats.is_empty() && attr.strings.is_empty(),
        AttributeType::Strings => attr.floats.is_empty() && attr.ints.is_empty(),
        AttributeType::Tensors => !attr.tensors.is_empty(),
        AttributeType::Graphs => !attr.graphs.is_empty(),
        AttributeType::SparseTensors => !attr.sparse_tensors.is_empty(),
        AttributeType::TypeProtos => !attr.type_protos.is_empty(),
    }
}

/// The name of an attribute type in messages.
fn describe(ty: AttributeType) -> String {
    format!("{ty:?}").to_ascii_lowercase()
}
