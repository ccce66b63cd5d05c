//! Analyses of functions and modules, which the pass infrastructure computes once and caches; see
//! [`PassContext::analysis`](crate::pass::PassContext::analysis).

mod call_graph;
mod demand;
mod devices;
mod function;
mod placement;
mod property;
mod purity;
mod types;

pub use call_graph::{CallGraph, Callees, Calls};
pub(crate) use demand::{Demand, called, demands};
pub(crate) use devices::is_anywhere;
pub use devices::{CPU, DEVICE_TYPE, devices};
pub use function::{Liveness, Scopes, UseCounts, Uses};
pub(crate) use placement::Placement;
pub use property::{Anf, BasicBlockNormalForm, Flattened, Fused, Typed, types_hold};
pub(crate) use property::{bound_values, kernel_scopes};
pub use purity::{Pure, effects};
pub use types::{Reference, References, Types, declared};
