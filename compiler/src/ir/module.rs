//! Modules: named definitions in order.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use super::{Attrs, FuncType, Identity};
use crate::graph::Function;
use crate::tir::PrimFunc;

/// The name of a definition in a module; prints as `@main`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GlobalVar(Arc<str>);

impl GlobalVar {
    /// The global of that name, without the `@`.
    pub fn new(name: &str) -> GlobalVar {
        GlobalVar(name.into())
    }

    /// The name, without the `@`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GlobalVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A function that is defined elsewhere: a custom operator, or one for another code generator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternFunction {
    /// Parameter and result types.
    pub ty: FuncType,
    /// `global_symbol`, `Compiler` and whatever its code generator reads.
    pub attrs: Attrs,
}

/// What a global stands for.
#[derive(Clone, Debug)]
pub enum Definition {
    /// A function of the graph IR.
    Graph(Function),
    /// A function of the loop IR: one kernel.
    Prim(PrimFunc),
    /// A function that is defined elsewhere.
    Extern(Arc<ExternFunction>),
}

impl Definition {
    /// The graph function, if this is one.
    pub fn as_graph(&self) -> Option<&Function> {
        if let Definition::Graph(function) = self { Some(function) } else { None }
    }

    /// The loop function, if this is one.
    pub fn as_prim(&self) -> Option<&PrimFunc> {
        if let Definition::Prim(function) = self { Some(function) } else { None }
    }

    /// Whether both are the same handle, and so certainly equal.
    pub fn same(&self, other: &Definition) -> bool {
        match (self, other) {
            (Definition::Graph(a), Definition::Graph(b)) => a.same(b),
            (Definition::Prim(a), Definition::Prim(b)) => a.same(b),
            (Definition::Extern(a), Definition::Extern(b)) => Arc::ptr_eq(a, b),
            (Definition::Graph(_) | Definition::Prim(_) | Definition::Extern(_), _) => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct ModuleData {
    definitions: IndexMap<GlobalVar, Definition>,
    attrs: Attrs,
}

/// An ordered map from globals to definitions, with attributes.
///
/// A cheap handle with copy-on-write: a clone keeps what it had when it was made. Two handles that
/// are the [`same`](IRModule::same) are equal; others may be.
#[derive(Clone, Debug, Default)]
pub struct IRModule(Arc<ModuleData>);

impl IRModule {
    /// An empty module.
    pub fn new() -> IRModule {
        IRModule::default()
    }

    /// A module of one function, named `main`.
    pub fn from_function(main: Function) -> IRModule {
        let mut module = IRModule::new();
        module.insert(GlobalVar::new("main"), Definition::Graph(main));
        module
    }

    /// Whether both are the same handle.
    pub fn same(&self, other: &IRModule) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What tells this handle's data from all other, for as long as this is around.
    pub(crate) fn identity(&self) -> Identity {
        Identity::of(&self.0)
    }

    /// Number of definitions.
    pub fn len(&self) -> usize {
        self.0.definitions.len()
    }

    /// Whether there are no definitions.
    pub fn is_empty(&self) -> bool {
        self.0.definitions.is_empty()
    }

    /// The definition of a global.
    pub fn get(&self, global: &GlobalVar) -> Option<&Definition> {
        self.0.definitions.get(global)
    }

    /// The graph function of that name, without the `@`.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.get(&GlobalVar::new(name))?.as_graph()
    }

    /// Definitions in order.
    pub fn iter(&self) -> impl Iterator<Item = (&GlobalVar, &Definition)> {
        self.0.definitions.iter()
    }

    /// Graph functions in order.
    pub fn functions(&self) -> impl Iterator<Item = (&GlobalVar, &Function)> {
        self.iter().filter_map(|(global, definition)| Some((global, definition.as_graph()?)))
    }

    /// Loop functions in order.
    pub fn prim_funcs(&self) -> impl Iterator<Item = (&GlobalVar, &PrimFunc)> {
        self.iter().filter_map(|(global, definition)| Some((global, definition.as_prim()?)))
    }

    /// Defines a global. A former definition keeps its place and is returned; a new one goes to
    /// the end. Storing the handle that is there already changes nothing.
    pub fn insert(&mut self, global: GlobalVar, definition: Definition) -> Option<Definition> {
        if let Some(old) = self.get(&global)
            && old.same(&definition)
        {
            return Some(definition);
        }
        Arc::make_mut(&mut self.0).definitions.insert(global, definition)
    }

    /// Removes a definition; the others keep their order.
    pub fn remove(&mut self, global: &GlobalVar) -> Option<Definition> {
        self.get(global)?;
        Arc::make_mut(&mut self.0).definitions.shift_remove(global)
    }

    /// Keeps the definitions for which `keep` holds, in order. If it holds for all, the handle
    /// stays the same.
    pub fn retain(&mut self, mut keep: impl FnMut(&GlobalVar, &Definition) -> bool) {
        let dropped: Vec<GlobalVar> = self
            .iter()
            .filter(|(global, definition)| !keep(global, definition))
            .map(|(global, _)| global.clone())
            .collect();
        if !dropped.is_empty() {
            Arc::make_mut(&mut self.0).definitions.retain(|global, _| !dropped.contains(global));
        }
    }

    /// A global that is not defined here: `stem`, or `stem_1`, `stem_2` and so on, of which the
    /// number before is taken. That takes logarithmic time.
    pub fn fresh_global(&self, stem: &str) -> GlobalVar {
        let numbered = |number: usize| GlobalVar::new(&format!("{stem}_{number}"));
        let is_free = |number: usize| self.get(&numbered(number)).is_none();
        let plain = GlobalVar::new(stem);
        if self.get(&plain).is_none() {
            return plain;
        }
        let mut free = 1;
        while !is_free(free) {
            free *= 2;
        }
        // 0 stands for the stem itself.
        let mut taken = free / 2;
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            *(if is_free(middle) { &mut free } else { &mut taken }) = middle;
        }
        numbered(free)
    }

    /// The module's attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.0.attrs
    }

    /// Replaces the module's attributes.
    pub fn set_attrs(&mut self, attrs: Attrs) {
        if self.0.attrs != attrs {
            Arc::make_mut(&mut self.0).attrs = attrs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, TensorType};

    #[test]
    fn a_hundred_thousand_globals_of_one_stem_take_little_more_than_linear_time() {
        let ty = FuncType { params: Vec::new(), ret: TensorType::scalar(DType::F32).into() };
        let extern_function = Arc::new(ExternFunction { ty, attrs: Attrs::default() });
        let mut module = IRModule::new();
        for number in 0..100_000 {
            let global = module.fresh_global("fused");
            let expected = if number == 0 { "fused".into() } else { format!("fused_{number}") };
            assert_eq!(global.name(), expected);
            module.insert(global, Definition::Extern(extern_function.clone()));
        }
        // A number that became free may be taken again, and no other definition is in its place.
        module.remove(&GlobalVar::new("fused_500"));
        let global = module.fresh_global("fused");
        assert!(module.get(&global).is_none(), "{global}");
    }
}
