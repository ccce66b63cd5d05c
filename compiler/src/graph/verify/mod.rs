//! The verifier: whether a function or module is well-formed, as the rest of the compiler assumes.
//!
//! It reports all violations, not only the first. A violation is always a bug in the pass, or in
//! the handwritten code, that made the function. The parser and the builders refuse most of them
//! already.

mod check;
mod diagnose;
mod render;

#[cfg(test)]
mod tests;

use std::fmt;

use super::{ExprId, Function, ScopeId};
use crate::diagnostics::{Problem, Report};
use crate::ir::{GlobalVar, IRModule};
use crate::tir::{self, PrimFunc, print_as};

/// The place of a violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum VerifyPlace {
    /// An expression.
    Expr(ExprId),
    /// A scope; shown at the expression that owns it.
    Scope(ScopeId),
}

/// One violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// The place.
    pub place: VerifyPlace,
    /// The message: lower case, no final full stop.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ids are written differently from the numbers in the text, because they differ from these.
        match self.place {
            VerifyPlace::Expr(id) => write!(f, "expression {}: ", id.as_u32())?,
            VerifyPlace::Scope(scope) => write!(f, "{scope}: ")?,
        }
        f.write_str(&self.message)
    }
}

/// The violations in one function.
#[derive(Clone, Debug)]
pub struct FunctionErrors {
    /// The function's name, if it was verified as part of a module.
    pub global: Option<GlobalVar>,
    /// The function.
    pub function: Function,
    /// Its violations, in the order of the expressions; at least one.
    pub errors: Vec<VerifyError>,
}

/// The violations in one loop function.
#[derive(Clone, Debug)]
pub struct PrimFuncErrors {
    /// The function's name.
    pub global: GlobalVar,
    /// The function.
    pub function: PrimFunc,
    /// Its violations, in the order of the statements; at least one.
    pub errors: Vec<tir::VerifyError>,
}

/// Every violation in a module: in its graph functions, and in its loop functions. Displays the
/// functions with each message under the guilty line.
#[derive(Clone, Debug)]
pub struct VerifyErrors(pub Vec<FunctionErrors>, pub Vec<PrimFuncErrors>);

impl VerifyErrors {
    /// The violations in graph functions, in order.
    pub fn iter(&self) -> impl Iterator<Item = &VerifyError> {
        self.0.iter().flat_map(|function| &function.errors)
    }
}

impl fmt::Display for VerifyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|errors| f.write_str(&render::render(errors)))?;
        self.1.iter().try_for_each(|PrimFuncErrors { global, function, errors }| {
            f.write_str(&print_as(function, global.name(), errors))
        })
    }
}

impl std::error::Error for VerifyErrors {}

impl From<VerifyErrors> for Report {
    /// One problem per violation, with the name of its function.
    fn from(errors: VerifyErrors) -> Report {
        let mut report = Report::new();
        for FunctionErrors { global, function: _, errors } in errors.0 {
            let place = global.map(|global| format!("{global}, ")).unwrap_or_default();
            report.extend(errors.iter().map(|error| Problem::new(format!("{place}{error}"))));
        }
        for PrimFuncErrors { global, function: _, errors } in errors.1 {
            report.extend(errors.iter().map(|error| Problem::new(format!("{global}, {error}"))));
        }
        report
    }
}

/// Verifies one function. Globals are looked up in `module`; without one, any global may be used.
///
/// # Errors
///
/// All violations.
pub fn verify_function(function: &Function, module: Option<&IRModule>) -> Result<(), VerifyErrors> {
    match check::check(function, module) {
        errors if errors.is_empty() => Ok(()),
        errors => Err(VerifyErrors(
            vec![FunctionErrors { global: None, function: function.clone(), errors }],
            Vec::new(),
        )),
    }
}

/// Verifies every function of a module, loop functions among them.
///
/// # Errors
///
/// All violations in all functions.
pub fn verify_module(module: &IRModule) -> Result<(), VerifyErrors> {
    let found: Vec<FunctionErrors> = module
        .functions()
        .map(|(global, function)| FunctionErrors {
            global: Some(global.clone()),
            function: function.clone(),
            errors: check::check(function, Some(module)),
        })
        .filter(|found| !found.errors.is_empty())
        .collect();
    let of_loops = |(global, function): (&GlobalVar, &PrimFunc)| {
        let errors = tir::verify(function).err()?;
        Some(PrimFuncErrors { global: global.clone(), function: function.clone(), errors })
    };
    let loops: Vec<PrimFuncErrors> = module.prim_funcs().filter_map(of_loops).collect();
    if found.is_empty() && loops.is_empty() { Ok(()) } else { Err(VerifyErrors(found, loops)) }
}
