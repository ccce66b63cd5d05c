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
    /// Written out by `UnrollLoop`, or else by the compiler of the generated code; the extent is
    /// constant.
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

/// Marks a loop whose iterations reuse elements that earlier ones left in a buffer, named by the
/// value.
pub(crate) const ROLLING_BUFFER: &str = "rolling_buffer";

/// The block of a tile whose sums are of products of matrices of bytes: first its sums become zeros, then
/// steps add to them. Code generators may keep the sums in registers that are matrices from there to the
/// end of the block; what is in it says the same without.
pub(crate) const MATRIX_SUMS: &str = "matrix_sums";

/// Marks the outermost loop of a step of such sums, over its terms, rows and columns.
pub(crate) const MATRIX_STEP: &str = "matrix_step";

/// Rows of a matrix that a register holds, and columns of `int32`.
pub(crate) const MATRIX_ROWS: i64 = 16;

/// Bytes of a row of such a matrix.
pub(crate) const MATRIX_BYTES: i64 = 64;

/// Registers of rows of a tile, and of columns: as many times as many hold sums, of the eight there are.
pub(crate) const MATRIX_GRID: i64 = 2;

/// Annotations of a loop by key, for schedules and printers.
pub type Annotations = BTreeMap<String, String>;

/// The relation between the iterations over a block's variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IterKind {
    /// Each value writes elements of its own: in any order, or at the same time.
    Spatial,
    /// All values add to the same elements: in any order, one at a time.
    Reduce,
}

impl IterKind {
    /// Every kind with its text form.
    pub const ALL: [(IterKind, &'static str); 2] =
        [(IterKind::Spatial, "spatial"), (IterKind::Reduce, "reduce")];

    /// Text form.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A variable of a block and the value that the loops around give it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockIter {
    /// The variable, a scalar `int64`, known in the block alone.
    pub var: VarId,
    /// Its values are 0 to `extent` - 1.
    pub extent: PrimExpr,
    /// The relation between its iterations.
    pub kind: IterKind,
    /// Its value, in terms of the variables of the loops around.
    pub value: PrimExpr,
}

/// A computation that schedules move: its body depends on the loops around only through the
/// block's own variables (TVM's `BlockRealize`, Feng et al., "TensorIR", 2023).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockRealize {
    /// Its name, unique in a schedule.
    pub name: String,
    /// Its variables.
    pub iters: Vec<BlockIter>,
    /// The condition under which it runs: a scalar `Bool`, in terms of the variables of the loops
    /// around.
    pub predicate: PrimExpr,
    /// Annotations.
    pub annotations: Annotations,
    /// Runs before the body where every `Reduce` variable is 0.
    pub init: Option<Stmt>,
    /// The computation.
    pub body: Stmt,
}

impl BlockRealize {
    /// The variables of a kind.
    pub fn iters_of(&self, kind: IterKind) -> impl Iterator<Item = &BlockIter> {
        self.iters.iter().filter(move |iter| iter.kind == kind)
    }

    /// Whether some variable is one of a reduction.
    pub fn is_reduction(&self) -> bool {
        self.iters_of(IterKind::Reduce).next().is_some()
    }
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// One after the other; an empty sequence does nothing.
    Seq(Vec<Stmt>),
    /// `for var in min .. min + extent`.
    For {
        /// The loop variable, a scalar `int64` or `int32`, as are both bounds.
        var: VarId,
        /// First value.
        min: PrimExpr,
        /// Number of iterations; none if it is not positive.
        extent: PrimExpr,
        /// How the iterations run.
        kind: ForKind,
        /// Annotations.
        annotations: Annotations,
        /// The repeated statement.
        body: Box<Stmt>,
    },
    /// A computation that schedules move. Gone after `LowerBlocks`.
    BlockRealize(Box<BlockRealize>),
    /// A named region: a comment in generated code.
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
        /// The scope of the name.
        body: Box<Stmt>,
    },
    /// A conditional; the condition is a scalar `Bool`.
    If {
        /// The condition.
        cond: PrimExpr,
        /// Runs if the condition holds.
        then: Box<Stmt>,
        /// Runs if the condition does not hold.
        otherwise: Option<Box<Stmt>>,
    },
    /// The lifetime of a `Local` or `Register` buffer.
    Allocate {
        /// The buffer.
        buffer: BufferId,
        /// The buffer's scope.
        body: Box<Stmt>,
    },
    /// Prefetches the cache line of an element, which may be outside the buffer.
    Prefetch {
        /// The buffer.
        buffer: BufferId,
        /// As for a load; scalars only.
        indices: Vec<PrimExpr>,
        /// Distance in elements from the element of the indices to the prefetched one, in memory.
        offset: PrimExpr,
        /// 3 = all cache levels, 2 = from the second on, 1 = from the third on, 0 = no reuse.
        locality: u8,
        /// Whether a store will follow.
        write: bool,
    },
    /// Stops unless a condition holds: the interpreter returns the message as an error, generated
    /// code executes a trap.
    Assert {
        /// The condition, a scalar `Bool`.
        cond: PrimExpr,
        /// The message if it does not hold.
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

    /// Stops unless `cond` holds.
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
