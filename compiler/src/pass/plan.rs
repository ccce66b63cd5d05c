//! Plans a list of passes: the enabled ones in order, each after its requirements.

use std::fmt;

use indexmap::IndexMap;

use super::property::Properties;
use super::{
    PassContext, PassError, PassErrorKind, PassInfo, PassKind, PassRef, Property, Registry,
    Requirement, Result, names,
};

/// The passes that a [`Sequential`](super::Sequential) runs under a context, in order.
///
/// A requirement is left out when its turn comes if its result still holds.
#[derive(Clone, Debug)]
pub struct Plan(Vec<Step>);

/// One pass of a plan.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) pass: PassRef,
    pub(super) role: Role,
    /// If the pass is itself a list, the plan of that list.
    members: Option<Plan>,
}

/// The reason why a pass is in a plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// The list contains it.
    Listed,
    /// A pass after it requires it.
    Required,
    /// A later pass requires the property, which this pass sets.
    Provider(Property),
}

impl Plan {
    /// Plans a list under a context, for a module that has these properties.
    ///
    /// # Errors
    ///
    /// If an enabled pass requires an unknown pass, or a property that no pass or more than one
    /// sets; if passes require each other; or if a pass is in a place that another forbids.
    pub(super) fn new(
        passes: &[PassRef],
        cx: &PassContext,
        properties: Properties,
    ) -> Result<Plan> {
        let mut planner = Planner { cx: Some(cx), registry: cx.registry(), properties };
        let plan = planner.list(passes)?;
        plan.check_order()?;
        Ok(plan)
    }

    /// The passes in order, including those added because others require them.
    pub fn passes(&self) -> impl Iterator<Item = &PassRef> {
        self.0.iter().map(|step| &step.pass)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Initializes every pass, including the passes of nested lists.
    pub(super) fn initialize(&self, cx: &PassContext) -> Result<()> {
        self.0.iter().try_for_each(|step| match &step.members {
            Some(members) => members.initialize(cx),
            None => step.pass.initialize(cx).map_err(|error| error.within(step.pass.info().name())),
        })
    }

    /// The error for a property that the module lacks when a pass that needs it is reached.
    pub(super) fn unmet(&self, property: &Property, pass: &PassInfo) -> PassError {
        let required_by = pass.name().to_owned();
        let sets = |pass: &&PassInfo| pass.sets().iter().any(|set| set.same(property));
        let property = property.name();
        match self.flattened().iter().any(sets) {
            true => PassErrorKind::SkippedProvider { property, required_by }.into(),
            false => {
                let providers = Vec::new();
                PassErrorKind::UnmetProperty { property, required_by, providers }.into()
            }
        }
    }

    /// The passes in order, with nested lists replaced by their passes.
    fn flattened(&self) -> Vec<&PassInfo> {
        let mut passes = Vec::new();
        for step in &self.0 {
            passes.push(step.pass.info());
            if let Some(members) = &step.members {
                passes.extend(members.flattened());
            }
        }
        passes
    }

    /// Checks the order that passes declare by `before`, `after` and `conflicts`.
    fn check_order(&self) -> Result<()> {
        let passes = self.flattened();
        let says_something = |pass: &&PassInfo| {
            !(pass.before().is_empty() && pass.after().is_empty() && pass.conflicts().is_empty())
        };
        if !passes.iter().any(says_something) {
            return Ok(());
        }
        refuse_cycles(&passes)?;
        let wrong = |pass: &PassInfo, problem: String| {
            Err(PassErrorKind::Order { pass: pass.name().to_owned(), problem }.into())
        };
        for (index, pass) in passes.iter().enumerate() {
            let (earlier, later) = (&passes[..index], &passes[index + 1..]);
            let among = |list: &[&PassInfo], other: &Requirement| {
                list.iter().any(|pass| names::same(pass.name(), other.name()))
            };
            let not = |other: &&Requirement| !names::same(pass.name(), other.name());
            for other in pass.conflicts().iter().filter(not) {
                if among(&passes, other) {
                    let problem = format!("cannot be in one list with `{}`", other.name());
                    return wrong(pass, problem);
                }
            }
            for other in pass.after().iter().filter(not) {
                if among(later, other) && !among(earlier, other) {
                    return wrong(pass, format!("must come after `{}`", other.name()));
                }
            }
            for other in pass.before().iter().filter(not) {
                if among(earlier, other) && !among(later, other) {
                    return wrong(pass, format!("must come before `{}`", other.name()));
                }
            }
        }
        Ok(())
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let mut needed: Vec<String> = Vec::new();
        for Step { pass, role, members } in &self.0 {
            let info = pass.info();
            match role {
                Role::Required => needed.push(info.name().to_owned()),
                Role::Provider(property) => {
                    needed.push(format!("{} (for {})", info.name(), property.name()));
                }
                Role::Listed => {
                    let (kind, level) = (info.kind(), info.opt_level());
                    write!(f, "{}{} ({kind}, level {level})", "  ".repeat(depth), info.name())?;
                    if !needed.is_empty() {
                        write!(f, ", after {}", needed.join(", "))?;
                        needed.clear();
                    }
                    f.write_str("\n")?;
                    if let Some(members) = members {
                        members.write(f, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// One pass a line, with the passes of a list indented: `FoldConstant (function, level 2),
    /// after InferType`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// The direct and indirect requirements of `pass`, each once and after its own requirements, in the
/// order of first mention.
///
/// # Errors
///
/// As [`Plan::new`].
pub(super) fn requirements(pass: &PassRef, registry: &Registry) -> Result<Vec<PassRef>> {
    let mut planner = Planner { cx: None, registry, properties: Properties::default() };
    let steps = planner.with_requirements(pass)?;
    Ok(steps[..steps.len() - 1].iter().map(|step| step.pass.clone()).collect())
}

struct Planner<'a> {
    /// The context whose level and lists enable passes; `None` if all passes are enabled.
    cx: Option<&'a PassContext>,
    registry: &'a Registry,
    /// The properties of the module at this point of the plan.
    properties: Properties,
}

/// The state of collecting the requirements of one pass of a list.
#[derive(Default)]
struct Group {
    /// Names of the passes whose requirements are being visited; as deep as the longest chain of
    /// requirements, which programmers write by hand.
    path: Vec<String>,
    steps: IndexMap<String, Step>,
}

impl Planner<'_> {
    fn list(&mut self, passes: &[PassRef]) -> Result<Plan> {
        let mut steps = Vec::new();
        for pass in passes {
            if self.cx.is_none_or(|cx| cx.pass_enabled(pass.info())) {
                steps.extend(self.with_requirements(pass)?);
            }
        }
        Ok(Plan(steps))
    }

    /// The requirements of a pass, followed by the pass.
    fn with_requirements(&mut self, pass: &PassRef) -> Result<Vec<Step>> {
        let info = pass.info();
        if info.required().is_empty() && info.requires().is_empty() {
            return Ok(vec![self.step(pass, Role::Listed)?]);
        }
        let mut group = Group::default();
        self.visit(pass, Role::Listed, &mut group)?;
        Ok(group.steps.into_values().collect())
    }

    fn step(&mut self, pass: &PassRef, role: Role) -> Result<Step> {
        let info = pass.info();
        let members = match info.kind() {
            PassKind::Sequential => Some(self.list(pass.members())?),
            PassKind::Module | PassKind::Function | PassKind::PrimFunc => None,
        };
        self.properties.clear(info.clears());
        self.properties.set(info.sets());
        Ok(Step { pass: pass.clone(), role, members })
    }

    fn visit(&mut self, pass: &PassRef, role: Role, group: &mut Group) -> Result<()> {
        let name = pass.info().name();
        let key = names::canonical(name);
        if group.steps.contains_key(&key) {
            return Ok(());
        }
        if let Some(start) = group.path.iter().position(|open| names::same(open, name)) {
            let mut cycle = group.path[start..].to_vec();
            cycle.push(name.to_owned());
            return Err(PassErrorKind::RequirementCycle(cycle).into());
        }
        group.path.push(name.to_owned());
        for requirement in pass.info().required() {
            let required = self.resolve(requirement, name)?;
            self.visit(&required, Role::Required, group)?;
        }
        for property in pass.info().requires() {
            if !self.properties.contains(property)
                && let Some(provider) = self.provider(property, name)?
            {
                self.visit(&provider, Role::Provider(*property), group)?;
            }
        }
        group.path.pop();
        let step = self.step(pass, role)?;
        group.steps.insert(key, step);
        Ok(())
    }

    fn resolve(&self, requirement: &Requirement, required_by: &str) -> Result<PassRef> {
        if let Some(pass) = requirement.make() {
            return Ok(pass);
        }
        match self.registry.get(requirement.name()) {
            Ok(pass) => Ok(pass),
            Err(error) if matches!(error.kind(), PassErrorKind::UnknownPass { .. }) => {
                Err(self.registry.unknown(requirement.name(), Some(required_by)))
            }
            Err(error) => Err(error),
        }
    }

    /// The one registered pass that sets a property; `None` if no pass does but a look at the
    /// module can find the property.
    fn provider(&self, property: &Property, required_by: &str) -> Result<Option<PassRef>> {
        let sets = |pass: &PassRef| pass.info().sets().iter().any(|set| set.same(property));
        let providers: Vec<PassRef> = self
            .registry
            .entries()
            .filter_map(|entry| entry.pass())
            .filter(|pass| sets(pass) && !names::same(pass.info().name(), required_by))
            .collect();
        match providers.as_slice() {
            [provider] => Ok(Some(provider.clone())),
            [] if property.can_be_seen() => Ok(None),
            _ => Err(PassErrorKind::UnmetProperty {
                property: property.name(),
                required_by: required_by.to_owned(),
                providers: providers.iter().map(|pass| pass.info().name().to_owned()).collect(),
            }
            .into()),
        }
    }
}

/// Checks that some order satisfies every `before` and `after`.
fn refuse_cycles(passes: &[&PassInfo]) -> Result<()> {
    // For each pass, the passes that must come before it, as positions of the first pass of a name.
    let position = |name: &str| passes.iter().position(|pass| names::same(pass.name(), name));
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); passes.len()];
    for pass in passes {
        let Some(index) = position(pass.name()) else { continue };
        after[index].extend(pass.after().iter().filter_map(|other| position(other.name())));
        for other in pass.before().iter().filter_map(|other| position(other.name())) {
            after[other].push(index);
        }
    }
    // A depth-first search along these edges: a pass that is met again on the current path is on a
    // cycle.
    let mut finished = vec![false; passes.len()];
    for start in 0..passes.len() {
        let mut path = vec![(start, 0)];
        while let Some((index, next)) = path.last_mut() {
            let index = *index;
            match after[index].get(*next) {
                None => {
                    finished[index] = true;
                    path.pop();
                }
                Some(&other) => {
                    *next += 1;
                    if let Some(at) = path.iter().position(|(open, _)| *open == other) {
                        let open = path[at..].iter().map(|(open, _)| *open).chain([other]);
                        let cycle = open.map(|index| passes[index].name().to_owned()).collect();
                        return Err(PassErrorKind::OrderCycle(cycle).into());
                    }
                    if !finished[other] {
                        path.push((other, 0));
                    }
                }
            }
        }
    }
    Ok(())
}
