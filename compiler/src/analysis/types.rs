//! Types of references between functions.
//!
//! Within a function, types are computed when an expression is pushed. Only the type with which a
//! function refers to another one can become stale. The references of each function are an analysis
//! of their own, so that after a change only the changed functions are examined again.

use crate::graph::{Expr, Function};
use crate::ir::{Definition, FuncType, GlobalVar, IRModule};
use crate::pass::{Analyses, Analysis};

/// A reference to a global, with the type that the referring function assumes.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// The global.
    pub global: GlobalVar,
    /// The assumed type.
    pub ty: FuncType,
}

/// The references of a function to globals, in order.
#[derive(Clone, Copy, Debug)]
pub struct References;

impl Analysis for References {
    const NAME: &'static str = "References";
    type Unit = Function;
    type Output = Vec<Reference>;

    fn compute(function: &Function, _: &Analyses<'_>) -> Vec<Reference> {
        let reference = |id| match (function.expr(id), function.ty(id).as_func()) {
            (Expr::GlobalVar(global), Some(ty)) => {
                Some(Reference { global: global.clone(), ty: ty.clone() })
            }
            _ => None,
        };
        function.global_refs().iter().filter_map(|&id| reference(id)).collect()
    }
}

/// Type inference across functions: the functions that refer to a global with another type than
/// that of its definition, in order. Empty if the types of the module hold.
#[derive(Clone, Copy, Debug)]
pub struct Types;

impl Analysis for Types {
    const NAME: &'static str = "Types";
    type Unit = IRModule;
    type Output = Vec<GlobalVar>;

    fn compute(module: &IRModule, analyses: &Analyses<'_>) -> Vec<GlobalVar> {
        let is_stale = |function: &Function| {
            analyses.get::<References>(function).iter().any(|reference| {
                declared(module, &reference.global).is_some_and(|ty| ty != reference.ty)
            })
        };
        let stale = module.functions().filter(|(_, function)| is_stale(function));
        stale.map(|(global, _)| global.clone()).collect()
    }
}

/// The type of a definition. Loop functions have no type of their own: they are called with the
/// type of the function that they were made from.
pub fn declared(module: &IRModule, global: &GlobalVar) -> Option<FuncType> {
    match module.get(global)? {
        Definition::Graph(function) => Some(function.func_type()),
        Definition::Extern(function) => Some(function.ty.clone()),
        Definition::Prim(_) => None,
    }
}
