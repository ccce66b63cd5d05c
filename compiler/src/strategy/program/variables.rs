//! Branches and loops, and the memory that their steps change.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::{Lowering, RunTimeAxis, tensors_of};
use crate::diagnostics::Problem;
use crate::executor::{
    Kernel, KernelId, Program, Region, RegionKind, Step, Value, ValueId, ValueKind,
};
use crate::graph::{Expr, ExprId, Function, If, ScopeId, While};
use crate::ir::{BufferSpec, DType};
use crate::strategy;
use crate::target::Target;
use crate::tir::ParamKind;

/// Most branches and loops within one another. C compilers take blocks within 256 others.
const MAX_NESTED: usize = 200;

/// Checks that no branch or loop is within too many others: code for them is made by functions that
/// call themselves.
pub(super) fn check_depth(main: &Function) -> Result<(), Problem> {
    let mut depths: SecondaryMap<ScopeId, usize> = SecondaryMap::new();
    for (id, scope) in main.scopes() {
        depths[id] = scope.parent.map_or(0, |parent| depths[parent] + 1);
        if depths[id] > MAX_NESTED {
            let message = format!("a branch or loop is within {MAX_NESTED} others");
            return Err(Problem::new(message).help("no more than that are compiled"));
        }
    }
    Ok(())
}

impl Lowering<'_> {
    /// A choice: each branch stores to the same variables.
    pub(super) fn choice(&mut self, id: ExprId, choice: &If) -> Result<Vec<ValueId>, Problem> {
        let condition = self.dense_values(choice.cond)?[0];
        let results = self.variables(id, "choice")?;
        for (kind, scope) in
            [(RegionKind::If, choice.then_scope), (RegionKind::Unless, choice.else_scope)]
        {
            self.region(kind, condition, |lowering| {
                let values = lowering.scope(scope)?;
                lowering.store_all(&values, &results);
                Ok(())
            })?;
        }
        Ok(results)
    }

    /// A loop: its state is in variables, which the body reads and then changes.
    pub(super) fn repetition(
        &mut self,
        id: ExprId,
        loops: &While,
    ) -> Result<Vec<ValueId>, Problem> {
        let mut first = Vec::new();
        for &init in &loops.init {
            first.extend(self.dense_values(init)?);
        }
        let state = self.variables(id, "state")?;
        self.store_all(&first, &state);
        for scope in [loops.cond, loops.body] {
            let mut rest = &state[..];
            for &param in &self.main.scope(scope).params {
                let count = tensors_of(self.main.ty(param), self.main.span(id), &|dim| {
                    self.program.sizes.greatest(dim)
                })?
                .len();
                let (own, others) = rest.split_at(count.min(rest.len()));
                (self.values[param], rest) = (own.to_vec(), others);
            }
        }
        let goes_on = self.variable("goes_on", DType::Bool, BufferSpec::dense(&[]), Vec::new());
        let values = self.scope(loops.cond)?;
        self.store_all(&values, &[goes_on]);
        self.region(RegionKind::While, goes_on, |lowering| {
            let next = lowering.scope(loops.body)?;
            lowering.store_all(&next, &state);
            let values = lowering.scope(loops.cond)?;
            lowering.store_all(&values, &[goes_on]);
            Ok(())
        })?;
        Ok(state)
    }

    /// Adds the region of the steps that `body` adds, if there are any.
    fn region(
        &mut self,
        kind: RegionKind,
        condition: ValueId,
        body: impl FnOnce(&mut Self) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let (place, start) = (self.program.regions.len(), self.program.steps.len());
        body(self)?;
        let steps = start..self.program.steps.len();
        if !steps.is_empty() {
            self.program.regions.insert(place, Region { kind, condition, steps });
        }
        Ok(())
    }

    /// Lowers what is in a scope; returns the tensors of its result, dense. Calls itself for each
    /// scope within another one.
    pub(super) fn scope(&mut self, scope: ScopeId) -> Result<Vec<ValueId>, Problem> {
        for id in self.members[scope].clone() {
            let is_bound =
                matches!(self.main.expr(id), Expr::Var(_)) && !self.values[id].is_empty();
            if !is_bound {
                self.values[id] = self.expr(id)?;
            }
        }
        self.dense_values(self.main.scope(scope).result)
    }

    /// The tensors of an expression in dense memory, constants among them.
    pub(super) fn dense_values(&mut self, id: ExprId) -> Result<Vec<ValueId>, Problem> {
        match self.main.expr(id) {
            Expr::Tuple(fields) => {
                let mut values = Vec::with_capacity(fields.len());
                for &field in fields {
                    values.extend(self.dense_values(field)?);
                }
                Ok(values)
            }
            Expr::Constant(constant) => {
                let tensors = self.tensors_of(id)?;
                let constants = tensors.iter().map(|(shape, _)| BufferSpec::dense(shape));
                Ok(constants.map(|spec| self.constant(constant, spec)).collect())
            }
            _ => {
                let values = self.values[id].clone().into_iter();
                Ok(values.map(|value| self.dense(value)).collect())
            }
        }
    }

    /// A variable for each tensor of an expression.
    fn variables(&mut self, id: ExprId, name: &str) -> Result<Vec<ValueId>, Problem> {
        let tensors = self.tensors_of(id)?.into_iter().zip(self.axes_of(id)?);
        let made = tensors.map(|((shape, dtype), axes)| {
            self.variable(name, dtype, BufferSpec::dense(&shape), axes)
        });
        Ok(made.collect())
    }

    fn variable(
        &mut self,
        name: &str,
        dtype: DType,
        spec: BufferSpec,
        run_time: Vec<RunTimeAxis>,
    ) -> ValueId {
        let (name, kind) = (name.to_owned(), ValueKind::Variable);
        self.program.values.push(Value { name, dtype, spec, kind, run_time })
    }

    /// Stores values to variables, all at once: none of them is stored to before it is read.
    fn store_all(&mut self, values: &[ValueId], variables: &[ValueId]) {
        let roots = self.program.roots();
        let pairs = values.iter().copied().zip(variables.iter().copied());
        let changes: Vec<(ValueId, ValueId)> =
            pairs.filter(|&(value, to)| roots[value] != to).collect();
        let is_changed = |value| changes.iter().any(|&(_, to)| to == roots[value]);
        let mut stores = Vec::with_capacity(changes.len());
        for &(value, to) in &changes {
            let value = match is_changed(value) {
                true => copy_value(&mut self.program, value, None, self.levels),
                false => value,
            };
            stores.push((value, to));
        }
        for (value, to) in stores {
            copy_value(&mut self.program, value, Some(to), self.levels);
        }
    }
}

/// Adds a step that copies a dense value: to a new one, unless it is said to which.
pub(crate) fn copy_value(
    program: &mut Program,
    from: ValueId,
    to: Option<ValueId>,
    levels: &[Target],
) -> ValueId {
    let Value { name, dtype, spec, run_time, .. } = program.values[from].clone();
    let spec = to.map_or(spec, |to| program.values[to].spec.clone());
    let name_of_copy = format!("keep_{}", program.kernels.len());
    let kernel = strategy::copy(&name_of_copy, [&spec, &spec], dtype, levels);
    let kernel = program.kernels.push(kernel);
    let to = to.unwrap_or_else(|| {
        let kind = ValueKind::Computed;
        program.values.push(Value { name, dtype, spec, kind, run_time })
    });
    program.steps.push(Step { kernel, args: vec![from, to] });
    to
}

impl Program {
    /// Has steps store to variables and states directly whose results would be copied there: if
    /// nothing else reads the result later, and nothing reads what was there before in between. A step
    /// that changes some elements of what is there stores these alone.
    pub fn store_directly(&mut self) {
        let mut uses: SecondaryMap<ValueId, Vec<usize>> = Default::default();
        let mut roots = self.roots();
        for (number, step) in self.steps.iter().enumerate() {
            for &arg in &step.args {
                uses[roots[arg]].push(number);
            }
        }
        for region in &self.regions {
            uses[roots[region.condition]].push(region.steps.start);
        }
        for &output in &self.outputs {
            uses[roots[output]].push(usize::MAX);
        }
        let mut removed = vec![false; self.steps.len()];
        let mut in_place: BTreeMap<KernelId, KernelId> = BTreeMap::new();
        for number in 0..self.steps.len() {
            let [from, to] = self.steps[number].args[..] else { continue };
            let Some(maker) = self.direct_store(number, [from, to], &roots, &uses, &removed) else {
                continue;
            };
            removed[number] = true;
            let made_by = &self.steps[maker];
            if made_by.args.first().is_some_and(|&arg| roots[arg] == to) {
                let kernel = &self.kernels[made_by.kernel];
                if !kernel.in_place.is_empty() {
                    let kernel = Kernel { versions: kernel.in_place.clone(), ..kernel.clone() };
                    let known = in_place.entry(made_by.kernel);
                    let kernel = *known.or_insert_with(|| self.kernels.push(kernel));
                    self.steps[maker].kernel = kernel;
                }
            }
            for step in maker..number {
                for arg in &mut self.steps[step].args {
                    if *arg == from {
                        *arg = to;
                    }
                }
            }
            for region in &mut self.regions {
                if region.condition == from {
                    region.condition = to;
                }
            }
            for (id, value) in &mut self.values {
                if value.kind == ValueKind::View(from) {
                    value.kind = ValueKind::View(to);
                }
                if roots[id] == from {
                    roots[id] = to;
                }
            }
            let moved = std::mem::take(&mut uses[from]);
            uses[to].extend(moved);
            for value in self.of_main.values_mut().flatten() {
                if *value == from {
                    *value = to;
                }
            }
        }
        let steps = std::mem::take(&mut self.steps).into_iter().zip(removed);
        let left = steps.map(|(step, removed)| if removed { Vec::new() } else { vec![step] });
        self.replace_steps(left.collect());
    }

    /// The step that may store to the second value instead of the first one, which the copy of that
    /// number reads.
    fn direct_store(
        &self,
        copy: usize,
        [from, to]: [ValueId; 2],
        roots: &SecondaryMap<ValueId, ValueId>,
        uses: &SecondaryMap<ValueId, Vec<usize>>,
        removed: &[bool],
    ) -> Option<usize> {
        let (source, target) = (&self.values[from], &self.values[to]);
        let is_kept = matches!(target.kind, ValueKind::Variable | ValueKind::State);
        // A state that grows has room for the greatest, of which a run uses a part.
        let is_alike = (source.dtype, &source.spec) == (target.dtype, &target.spec)
            && (source.run_time == target.run_time || target.kind == ValueKind::State);
        let kernel = &self.kernels[self.steps[copy].kernel];
        let is_copy = matches!(&kernel.loops[..], [loops] if loops.op == "copy");
        if !is_kept || !is_alike || !is_copy || source.kind != ValueKind::Computed || to > from {
            return None;
        }
        let maker = uses[from].iter().copied().min()?;
        if uses[from].iter().any(|&user| user > copy)
            || !self.regions_around(maker).eq(self.regions_around(copy))
        {
            return None;
        }
        let writes = |step: usize, value: ValueId| {
            let step = &self.steps[step];
            let params = &self.kernels[step.kernel].signature().params;
            step.args
                .iter()
                .zip(params)
                .position(|(&arg, param)| arg == value && param.kind == ParamKind::Output)
        };
        let output = writes(maker, from)?;
        let again = (maker + 1..copy).any(|step| !removed[step] && writes(step, from).is_some());
        let between = uses[to].iter().any(|&user| maker < user && user < copy && !removed[user]);
        if again || between {
            return None;
        }
        // The step itself may read what it stores to where its kernel allows that.
        let step = &self.steps[maker];
        let kernel = &self.kernels[step.kernel];
        let inplace = &kernel.signature().inplace;
        let changes = |position: usize| position == 0 && !kernel.in_place.is_empty();
        let reads_elsewhere = step.args.iter().enumerate().any(|(position, &arg)| {
            let is_allowed = inplace.contains(&(output, position)) || changes(position);
            position != output && roots[arg] == to && !is_allowed
        });
        (!reads_elsewhere).then_some(maker)
    }
}
