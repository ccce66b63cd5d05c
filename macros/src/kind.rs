//! The kinds of passes: parameters and results of their functions.

/// The unit that a pass works on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Module,
    Function,
    PrimFunc,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Module, Kind::Function, Kind::PrimFunc];

    /// The attribute.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Kind::Module => "module_pass",
            Kind::Function => "function_pass",
            Kind::PrimFunc => "prim_func_pass",
        }
    }

    /// The kind in a sentence.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Kind::Module => "module pass",
            Kind::Function => "function pass",
            Kind::PrimFunc => "prim func pass",
        }
    }

    /// The method in an `impl` block.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Kind::Module => "transform_module",
            Kind::Function => "transform_function",
            Kind::PrimFunc => "transform_prim_func",
        }
    }

    /// Types of the parameters, less a receiver.
    pub(crate) fn params(self) -> &'static [&'static str] {
        match self {
            Kind::Module => &["IRModule", "&PassContext"],
            Kind::Function => &["Function", "&IRModule", "&PassContext"],
            Kind::PrimFunc => &["PrimFunc", "&IRModule", "&PassContext"],
        }
    }

    /// The type that the pass maps to itself.
    pub(crate) fn unit(self) -> &'static str {
        self.params()[0]
    }

    /// The allowed return types.
    pub(crate) fn returns(self) -> String {
        match self {
            Kind::Module | Kind::Function => format!("{0} or Result<{0}, E>", self.unit()),
            Kind::PrimFunc => "PrimFunc, Option<PrimFunc> or a Result of either".to_owned(),
        }
    }
}
