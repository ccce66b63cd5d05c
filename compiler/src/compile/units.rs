//! Runs that do one unit of their size after the other.

use std::collections::BTreeMap;

use super::interface::Interface;
use super::{Model, Passes, Stages};
use crate::arith::Symbol;
use crate::diagnostics::{Problem, Report};
use crate::executor::{Program, RunTimeSize, ValueKind};
use crate::graph::Function;
use crate::ir::{Dim, IRModule};
use crate::options::{CompileOptions, DimSize};
use crate::strategy;

/// Fewest multiply-accumulates of a unit for each weight. With fewer, reading the weights takes long
/// enough that several units should share it; convolutions have dozens to hundreds.
const LEAST_WORK: u64 = 8;

/// The program of one unit, with its module, if units have nothing to do with each other and reading
/// the weights for each takes no time that counts, or the size has no bound. `module` is that of runs
/// of any size.
///
/// # Errors
///
/// As those of the passes and strategies; a size has no bound and its units are not independent.
pub(super) fn program(
    model: &Model,
    options: &CompileOptions,
    passes: &Passes,
    module: &IRModule,
    (interface, followed): (&Interface, &BTreeMap<Symbol, Dim>),
    stages: &mut Stages,
) -> Result<Option<(IRModule, Program)>, Report> {
    let unbounded = interface.sizes().iter().find(|size| !size.is_bounded());
    let refused = |why: &str| match unbounded {
        None => Ok(None),
        Some(RunTimeSize { name, min, .. }) => {
            let what = format!("dimension `{name}` needs a greatest size: {why}");
            let help = format!("memory is planned for the greatest size, as in {name}={min}..=512");
            Err(Report::from(Problem::new(what).help(help)))
        }
    };
    if !options.states.is_empty() {
        return refused("units along it would have one state together");
    }
    if !interface.sizes().equal.is_empty() {
        return refused("not all sizes are possible");
    }
    if interface.sizes().len() > 1 {
        return refused("other dimensions have bounds, too");
    }
    if model.as_onnx().is_none() || !strategy::units_are_independent(module, interface.sizes()) {
        return refused("what is computed for one unit along it depends on other units");
    }
    let Some(units) = interface.units() else {
        return refused("units of inputs or outputs are no whole bytes");
    };
    let mut one = options.clone();
    let facts = module.function("main").map(Function::facts);
    for (name, size) in one.dims.iter_mut().filter(|(_, size)| size.bounds().is_some()) {
        // What the model itself asks for is no size of a run.
        let needed = facts.and_then(|facts| facts.simplify(&Dim::symbol(name.as_str())).as_const());
        *size = DimSize::Fixed(needed.and_then(|size| u64::try_from(size).ok()).unwrap_or(1));
    }
    for (symbol, size) in followed {
        let Some(size) = size.eval(&|_| Some(1)).ok().and_then(|size| u64::try_from(size).ok())
        else {
            return refused("it is too large");
        };
        one.dims.insert(symbol.name().to_owned(), DimSize::Fixed(size));
    }
    let imported = stages.run("unit import", || model.import(&one))?;
    let module = stages.run("unit passes", || passes.run(imported.module))?;
    let levels = &one.targets()[..];
    let program = stages.run("unit strategy", || {
        strategy::program(&module, levels, &Default::default(), &one.tuned)
    })?;
    let weights = program.values.values().filter_map(|value| match &value.kind {
        ValueKind::Constant(constant) => constant.ty().num_elements(),
        ValueKind::Input(_)
        | ValueKind::Computed
        | ValueKind::Variable
        | ValueKind::State
        | ValueKind::View(_)
        | ValueKind::Within { .. } => None,
    });
    if unbounded.is_none() && program.macs() / weights.sum::<u64>().max(1) < LEAST_WORK {
        return Ok(None);
    }
    Ok(Some((module, Program { units: Some(units), ..program })))
}
