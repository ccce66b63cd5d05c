//! Properties of modules, which passes require, set or clear.

use std::fmt;

use super::names;
use crate::ir::IRModule;

/// A property that modules can have, as a type, so that passes can name it by its path.
///
/// ```
/// use niello::ir::IRModule;
/// use niello::pass::{IrProperty, PassContext, module_pass};
///
/// /// No function calls another one.
/// struct Inlined;
///
/// impl IrProperty for Inlined {
///     const NAME: &'static str = "Inlined";
/// }
///
/// /// Copies functions to where they are called.
/// #[module_pass(opt_level = 1, sets = [Inlined])]
/// fn inline_everything(module: IRModule, _cx: &PassContext) -> IRModule {
///     module
/// }
///
/// /// Needs the whole program in one function.
/// #[module_pass(opt_level = 1, requires = [Inlined])]
/// fn plan_everything(module: IRModule, _cx: &PassContext) -> IRModule {
///     module
/// }
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a property of modules",
    note = "what must have run before a pass is said by `required`; `requires`, `sets` and `clears` are about properties"
)]
pub trait IrProperty {
    /// The name in plans and messages.
    const NAME: &'static str;

    /// Finds out whether a module has the property, if that is cheap: at most one look at each
    /// expression. A pass that sets the property is then left out where it holds already, and
    /// verification checks it after the pass.
    const HOLDS: Option<fn(&IRModule) -> bool> = None;
}

/// A property as passes declare it.
#[derive(Clone, Copy)]
pub struct Property {
    name: &'static str,
    holds: Option<fn(&IRModule) -> bool>,
}

impl Property {
    /// The property of that type.
    pub const fn of<P: IrProperty>() -> Property {
        Property { name: P::NAME, holds: P::HOLDS }
    }

    /// The property of that name, which no look at a module can find.
    pub const fn named(name: &'static str) -> Property {
        Property { name, holds: None }
    }

    /// The property's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a module has the property; `None` if only the passes that ran can tell.
    pub fn holds(&self, module: &IRModule) -> Option<bool> {
        self.holds.map(|holds| holds(module))
    }

    /// Whether a look at a module can tell whether it has the property.
    pub(super) fn can_be_seen(&self) -> bool {
        self.holds.is_some()
    }

    /// Whether both are the same property.
    pub fn same(&self, other: &Property) -> bool {
        names::same(self.name, other.name)
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Property({})", self.name)
    }
}

/// The properties of a module at some point of a list of passes.
#[derive(Clone, Default, Debug)]
pub(super) struct Properties(Vec<Property>);

impl Properties {
    pub(super) fn contains(&self, property: &Property) -> bool {
        self.0.iter().any(|held| held.same(property))
    }

    pub(super) fn set(&mut self, properties: &[Property]) {
        for property in properties {
            if !self.contains(property) {
                self.0.push(*property);
            }
        }
    }

    pub(super) fn keep(&mut self, others: &Properties) {
        self.0.retain(|held| others.contains(held));
    }

    pub(super) fn clear(&mut self, properties: &[Property]) {
        self.0.retain(|held| !properties.iter().any(|property| property.same(held)));
    }
}
