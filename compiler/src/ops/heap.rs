//! Binary heaps in the statements of operators, and keys for them.

use crate::ir::{BufferSpec, DType};
use crate::te::ComputeDag;
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, PrimExpr, Stmt, VarId};

/// Bits of a place beside its key in one integer.
const PLACE_BITS: u32 = 32;

/// Pairs of a key and a place in a local buffer, the least first: a binary heap (Williams 1964). No order of
/// pairs makes it quadratic.
///
/// A pair is one integer if its key has 32 bits, and two else.
pub(super) struct Heap {
    /// The integers of pairs, the first of which counts most.
    parts: Vec<BufferId>,
    /// Where a pair is missing.
    hole: BufferId,
}

/// The integers of a pair.
pub(super) type Pair = Vec<PrimExpr>;

impl Heap {
    /// Room for so many pairs, of keys of a type and of places among so many.
    pub(super) fn new(dag: &mut ComputeDag, count: i64, keys: DType, places: i64) -> Heap {
        let is_wide = keys.bits() > 32 || places >> PLACE_BITS != 0;
        let mut buffer = |name: &str, count: i64| {
            dag.func.buffer(name, DType::I64, BufferSpec::dense(&[count]), BufferScope::Local)
        };
        let (hole, keys) = (buffer("hole", 1), buffer("heap", count));
        let places = is_wide.then(|| buffer("places", count));
        Heap { parts: [keys].into_iter().chain(places).collect(), hole }
    }

    /// The statement with the buffers around it.
    pub(super) fn allocate(&self, body: Stmt) -> Stmt {
        let buffers = self.parts.iter().chain([&self.hole]);
        buffers.fold(body, |body, &buffer| Stmt::allocate(buffer, body))
    }

    /// The pair of a key and a place, both `int64`. In one integer, a place has no more than 32 bits.
    pub(super) fn pair(&self, key: PrimExpr, place: PrimExpr) -> Pair {
        match self.parts[..] {
            [_] => vec![shifted(BinaryOp::Shl, key).or(place)],
            _ => vec![key, place],
        }
    }

    /// The key at an index of the heap.
    pub(super) fn key(&self, dag: &ComputeDag, at: &PrimExpr) -> PrimExpr {
        let first = dag.func.load(self.parts[0], [at.clone()]);
        if self.parts.len() == 1 { shifted(BinaryOp::Shr, first) } else { first }
    }

    /// The place at an index of the heap.
    pub(super) fn place(&self, dag: &ComputeDag, at: &PrimExpr) -> PrimExpr {
        match self.parts[..] {
            [both] => {
                let lowest = PrimExpr::int(u32::MAX.into(), DType::I64);
                dag.func.load(both, [at.clone()]).and(lowest)
            }
            _ => dag.func.load(self.parts[1], [at.clone()]),
        }
    }

    /// The pair at an index of the heap.
    pub(super) fn load(&self, dag: &ComputeDag, at: &PrimExpr) -> Pair {
        self.parts.iter().map(|&part| dag.func.load(part, [at.clone()])).collect()
    }

    /// Stores a pair at an index, whatever is around it.
    pub(super) fn store(&self, dag: &mut ComputeDag, at: &PrimExpr, pair: Pair) -> Stmt {
        let parts = self.parts.iter().zip(pair);
        Stmt::seq(parts.map(|(&part, value)| dag.func.store(part, [at.clone()], value)))
    }

    /// Puts a pair into the first `size` of the heap, which have so many `levels` below the first at most, in
    /// the place of the one at `from`: what is less, and below that, moves up.
    pub(super) fn sift(
        &self,
        dag: &mut ComputeDag,
        pair: Pair,
        from: PrimExpr,
        size: &PrimExpr,
        levels: PrimExpr,
    ) -> Stmt {
        named(dag, pair, |dag, pair| {
            let start = dag.func.store(self.hole, [0], from);
            let hole = |dag: &ComputeDag| dag.func.load(self.hole, [0]);
            let (at_var, at) = name(dag, "at", DType::I64);
            let (below_var, below) = name(dag, "below", DType::I64);
            let left = at.clone() * 2 + 1;
            let right = (left.clone() + 1).min(size.clone() - 1);
            let is_right = less(&self.load(dag, &right), &self.load(dag, &left));
            let least = PrimExpr::select(is_right, right, left.clone());
            let child = self.load(dag, &below);
            let moves = less(&child, &pair);
            let up = self.store(dag, &at, child);
            let up = Stmt::seq([up, dag.func.store(self.hole, [0], below)]);
            let up = Stmt::let_(below_var, least, Stmt::if_then(moves, up));
            let step = Stmt::let_(at_var, hole(dag), Stmt::if_then(left.less(size.clone()), up));
            let steps = each(dag, "level", levels, |_, _| step);
            let at = hole(dag);
            let put = self.store(dag, &at, pair);
            Stmt::seq([start, steps, put])
        })
    }

    /// Orders the first `size` pairs, which were stored in any order.
    pub(super) fn order(&self, dag: &mut ComputeDag, size: &PrimExpr, levels: PrimExpr) -> Stmt {
        let parents = size.clone().floordiv(2);
        each(dag, "step", parents.clone(), |dag, step| {
            let at = parents - 1 - step;
            let pair = self.load(dag, &at);
            self.sift(dag, pair, at, size, levels)
        })
    }
}

fn shifted(op: BinaryOp, value: PrimExpr) -> PrimExpr {
    PrimExpr::binary(op, value, PrimExpr::int(PLACE_BITS.into(), DType::I64))
}

/// Whether one pair is less than another one.
fn less(one: &[PrimExpr], other: &[PrimExpr]) -> PrimExpr {
    let pairs = one.iter().zip(other).rev();
    let is_less = pairs.fold(None, |rest: Option<PrimExpr>, (one, other)| {
        let less = one.clone().less(other.clone());
        let equal = one.clone().equal(other.clone());
        Some(rest.map_or(less.clone(), |rest| less.or(equal.and(rest))))
    });
    is_less.unwrap_or(PrimExpr::bool(false))
}

/// A signed integer of so many bits that is greater for greater numbers. Zeros are equal, and so are NaNs,
/// which are greater than infinity.
pub(super) fn ordered(dag: &mut ComputeDag, value: PrimExpr, bits: DType) -> PrimExpr {
    let int = |value: i64| PrimExpr::int(value, bits);
    let lowest = i64::MIN >> (64 - bits.bits());
    match value.dtype() {
        DType::U32 | DType::U64 => PrimExpr::binary(BinaryOp::Xor, value.cast(bits), int(lowest)),
        dtype if !dtype.is_float() => value.cast(bits),
        _ => {
            let value = if bits == DType::I32 { value.cast(DType::F32) } else { value };
            let (x_var, x) = name(dag, "x", value.dtype());
            let is_nan = x.clone().not_equal(x.clone());
            // Where denormal numbers count as zeros, they are equal as well.
            let zero = PrimExpr::float(0.0, x.dtype());
            let number = PrimExpr::select(x.clone().equal(zero.clone()), zero, x).reinterpret(bits);
            let (number_var, n) = name(dag, "number", bits);
            let sign = PrimExpr::binary(BinaryOp::Shr, n.clone(), int(i64::from(bits.bits()) - 1));
            let flips = sign.and(int(!lowest));
            let key =
                PrimExpr::select(is_nan, int(!lowest), PrimExpr::binary(BinaryOp::Xor, n, flips));
            let bind = |var, value: PrimExpr, body: PrimExpr| PrimExpr::Let {
                var,
                value: Box::new(value),
                body: Box::new(body),
            };
            bind(x_var, value, bind(number_var, number, key))
        }
    }
}

/// The integer that is less where another one is greater.
pub(super) fn complement(value: PrimExpr) -> PrimExpr {
    let ones = PrimExpr::int(-1, value.dtype());
    PrimExpr::binary(BinaryOp::Xor, value, ones)
}

/// A serial loop around the statement of each of its indices.
pub(super) fn each(
    dag: &mut ComputeDag,
    name: &str,
    extent: impl Into<PrimExpr>,
    body: impl FnOnce(&mut ComputeDag, PrimExpr) -> Stmt,
) -> Stmt {
    let var = dag.func.index_var(name);
    let index = dag.func.var_expr(var);
    let body = body(dag, index);
    Stmt::for_loop(var, PrimExpr::index(0), extent.into(), ForKind::Serial, body)
}

/// A name for a value, and its use.
fn name(dag: &mut ComputeDag, name: &str, dtype: DType) -> (VarId, PrimExpr) {
    let var = dag.func.var(name, dtype);
    (var, dag.func.var_expr(var))
}

/// A statement about values that have names, as the integers of a pair.
pub(super) fn named(
    dag: &mut ComputeDag,
    values: Vec<PrimExpr>,
    body: impl FnOnce(&mut ComputeDag, Vec<PrimExpr>) -> Stmt,
) -> Stmt {
    let (vars, names): (Vec<_>, _) =
        values.iter().map(|value| name(dag, "part", value.dtype())).unzip();
    let body = body(dag, names);
    let values = vars.into_iter().zip(values).rev();
    values.fold(body, |body, (var, value)| Stmt::let_(var, value, body))
}
