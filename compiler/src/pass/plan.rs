//! What has to run before a pass.

use indexmap::IndexMap;

use super::{PassErrorKind, PassRef, Registry, Requirement, Result, names};

/// The passes that `pass` needs, directly or not, each after those that it needs itself, in the
/// order of first mention, each once.
///
/// # Errors
///
/// If one is not known, or they need each other.
pub(super) fn requirements(pass: &PassRef, registry: &Registry) -> Result<Vec<PassRef>> {
    let mut planner = Planner { registry, path: Vec::new(), planned: IndexMap::new() };
    planner.visit(pass)?;
    let mut planned: Vec<PassRef> = planner.planned.into_values().collect();
    // Last comes the pass itself.
    planned.pop();
    Ok(planned)
}

struct Planner<'a> {
    registry: &'a Registry,
    /// Names of the passes whose requirements are being visited; as deep as the longest chain of
    /// requirements, which programmers write by hand.
    path: Vec<String>,
    planned: IndexMap<String, PassRef>,
}

impl Planner<'_> {
    fn visit(&mut self, pass: &PassRef) -> Result<()> {
        let name = pass.info().name();
        let key = names::canonical(name);
        if self.planned.contains_key(&key) {
            return Ok(());
        }
        if let Some(start) = self.path.iter().position(|open| names::same(open, name)) {
            let mut cycle = self.path[start..].to_vec();
            cycle.push(name.to_owned());
            return Err(PassErrorKind::RequirementCycle(cycle).into());
        }
        self.path.push(name.to_owned());
        for requirement in pass.info().required() {
            let required = self.resolve(requirement, name)?;
            self.visit(&required)?;
        }
        self.path.pop();
        self.planned.insert(key, pass.clone());
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
}
