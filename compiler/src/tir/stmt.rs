//! Statements.

use std::collections::BTreeMap;

use super::{BufferId, PrimExpr, VarId};

/// How the iterations of a loop run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ForKind {
    /// One after the other.
    Serial,
    /// In any order, by several workers. Not nested in another parallel loop.
    Parallel,
    /// As the lanes of vectors; the extent is constant. Gone after `VectorizeLoop`.
    Vectorized,
    /// Written out; the extent is constant. Gone after `UnrollLoop`.
    Unrolled,
}

impl ForKind {
    /// Every kind with its text form.
    pub const ALL: [(ForKind, &'static str); 4] = [
        (ForKind::Serial, "serial"),
        (ForKind::Parallel, "parallel"),
        (ForKind::Vectorized, "vectorized"),
        (ForKind::Unrolled, "unrolled"),
    ];

    /// Text form.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Notes on a loop by key, for schedules and printers.
pub type Annotations = BTreeMap<String, String>;

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// One after the other; an empty sequence does nothing.
    Seq(Vec<Stmt>),
    /// `for var in min .. min + extent`.
    For {
        /// The loop variable, a scalar `int64`.
        var: VarId,
        /// First value.
        min: PrimExpr,
        /// Number of iterations; none if it is not positive.
        extent: PrimExpr,
        /// How the iterations run.
        kind: ForKind,
        /// Notes.
        annotations: Annotations,
        /// What is repeated.
        body: Box<Stmt>,
    },
    /// A named region: what schedules look for, and a comment in generated code.
    Block {
        /// Its name.
        name: String,
        /// The region.
        body: Box<Stmt>,
    },
    /// Stores a scalar, or a vector if an index is a vector.
    Store {
        /// The buffer.
        buffer: BufferId,
        /// One logical index for each axis; after `FlattenBuffer` one physical index.
        indices: Vec<PrimExpr>,
        /// The value.
        value: PrimExpr,
    },
    /// A value with a name in `body`.
    Let {
        /// Its name.
        var: VarId,
        /// The value.
        value: PrimExpr,
        /// Where the name is known.
        body: Box<Stmt>,
    },
    /// A conditional; the condition is a scalar `Bool`.
    If {
        /// The condition.
        cond: PrimExpr,
        /// What happens when it holds.
        then: Box<Stmt>,
        /// What happens when not.
        otherwise: Option<Box<Stmt>>,
    },
    /// The lifetime of a `Local` or `Register` buffer.
    Allocate {
        /// The buffer.
        buffer: BufferId,
        /// Where it exists.
        body: Box<Stmt>,
    },
    /// Asks for the cache line of an element. The index may be outside the buffer.
    Prefetch {
        /// The buffer.
        buffer: BufferId,
        /// As for a load; scalars only.
        indices: Vec<PrimExpr>,
        /// 3 = all cache levels, 2 = from the second on, 1 = from the third on, 0 = no reuse.
        locality: u8,
        /// Whether a store will follow.
        write: bool,
    },
    /// Goes on only if a condition holds: the interpreter returns the message as an error,
    /// generated code executes a trap.
    Assert {
        /// The condition, a scalar `Bool`.
        cond: PrimExpr,
        /// What is wrong when it does not hold.
        message: String,
    },
}

impl Stmt {
    /// The statement that does nothing.
    pub fn nop() -> Self {
        Stmt::Seq(Vec::new())
    }

    /// Whether this is an empty sequence.
    pub fn is_nop(&self) -> bool {
        matches!(self, Stmt::Seq(stmts) if stmts.is_empty())
    }

    /// Statements in order, nested sequences spliced in and no-ops left out.
    pub fn seq(stmts: impl IntoIterator<Item = Stmt>) -> Self {
        let mut flat = Vec::new();
        for stmt in stmts {
            match stmt {
                Stmt::Seq(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        match flat.len() {
            1 => flat.remove(0),
            _ => Stmt::Seq(flat),
        }
    }

    /// A named region.
    pub fn block(name: impl Into<String>, body: Stmt) -> Self {
        Stmt::Block { name: name.into(), body: Box::new(body) }
    }

    /// `if cond { then }`.
    pub fn if_then(cond: PrimExpr, then: Stmt) -> Self {
        Stmt::If { cond, then: Box::new(then), otherwise: None }
    }

    /// `if cond { then } else { otherwise }`.
    pub fn if_then_else(cond: PrimExpr, then: Stmt, otherwise: Stmt) -> Self {
        Stmt::If { cond, then: Box::new(then), otherwise: Some(Box::new(otherwise)) }
    }

    /// Goes on only if `cond` holds.
    pub fn assert(cond: PrimExpr, message: impl Into<String>) -> Self {
        Stmt::Assert { cond, message: message.into() }
    }

    /// The lifetime of `buffer`.
    pub fn allocate(buffer: BufferId, body: Stmt) -> Self {
        Stmt::Allocate { buffer, body: Box::new(body) }
    }

    /// A value with a name in `body`.
    pub fn let_(var: VarId, value: PrimExpr, body: Stmt) -> Self {
        Stmt::Let { var, value, body: Box::new(body) }
    }

    /// A loop without annotations.
    pub fn for_loop(
        var: VarId,
        min: PrimExpr,
        extent: PrimExpr,
        kind: ForKind,
        body: Stmt,
    ) -> Self {
        let annotations = Annotations::new();
        Stmt::For { var, min, extent, kind, annotations, body: Box::new(body) }
    }
}
