//! Random small functions with loops, branches, names and scratch memory, for tests of passes.

use crate::ir::{BufferSpec, DType};
use crate::tir::{
    BinaryOp, BufferId, ForKind, Intrinsic, PrimExpr, PrimFunc, PrimFuncData, Stmt, interpret,
    verify,
};

const ROWS: i64 = 4;
const COLS: i64 = 6;

/// Deepest nesting of statements.
const DEPTH: u32 = 5;

struct Generator<'a> {
    numbers: &'a [u32],
    next: usize,
    func: PrimFuncData,
    x: BufferId,
    k: BufferId,
    y: BufferId,
    z: BufferId,
    /// Indices in scope, each with its extent if that is known.
    indices: Vec<(PrimExpr, Option<i64>)>,
    /// Named floats in scope.
    floats: Vec<PrimExpr>,
    /// Scratch rows of [`COLS`] floats in scope.
    rows: Vec<BufferId>,
}

/// A function of two inputs, two outputs and a dimension. For all numbers, every access is inside
/// its buffer, if only because of a guard, and memory is written before it is read.
pub(crate) fn random_program(numbers: &[u32]) -> PrimFunc {
    let mut func = PrimFuncData::new("program");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[ROWS, COLS]));
    let k = func.input("k", DType::I64, BufferSpec::dense(&[COLS]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[ROWS, COLS]));
    let z = func.output("z", DType::I64, BufferSpec::dense(&[COLS]));
    let n = func.dim("n");
    let indices = vec![(n, None)];
    let mut generator = Generator {
        numbers,
        next: 0,
        func,
        x,
        k,
        y,
        z,
        indices,
        floats: Vec::new(),
        rows: Vec::new(),
    };
    let clear = generator.func.serial("i", ROWS, |f, i| {
        f.serial("j", COLS, |f, j| f.store(y, [i, j], PrimExpr::f32(0.5)))
    });
    let count = generator.func.serial("i", COLS, |f, i| f.store(z, [i.clone()], i));
    let body = (0..4).map(|_| generator.stmt(0)).collect::<Vec<_>>();
    generator.func.body = Stmt::seq([clear, count].into_iter().chain(body));
    PrimFunc::new(generator.func)
}

/// Arguments of a random program.
pub(crate) fn arguments() -> Vec<Vec<u8>> {
    let x = (0..ROWS * COLS).map(|i| ((i * 7) % 11 - 5) as f32 / 2.0);
    let k = (0..COLS).map(|i| (i * 5) % 7 - 2);
    vec![
        x.flat_map(f32::to_le_bytes).collect(),
        k.flat_map(i64::to_le_bytes).collect(),
        vec![0; (ROWS * COLS * 4) as usize],
        vec![0; (COLS * 8) as usize],
    ]
}

/// Checks that two functions are well formed and give the same results for [`arguments`] and
/// dimensions of 0 to 4.
pub(crate) fn check_same_results(before: &PrimFunc, after: &PrimFunc) {
    let show = |func: &PrimFunc| func.to_string();
    verify(before).unwrap_or_else(|errors| panic!("{errors:?}\n{}", show(before)));
    verify(after).unwrap_or_else(|errors| panic!("{errors:?}\n{}{}", show(before), show(after)));
    for n in 0..5 {
        let (mut expected, mut found) = (arguments(), arguments());
        interpret(before, &mut expected, &[n])
            .unwrap_or_else(|error| panic!("{error} for n = {n}\n{}", show(before)));
        interpret(after, &mut found, &[n])
            .unwrap_or_else(|error| panic!("{error} for n = {n}\n{}{}", show(before), show(after)));
        assert_eq!(expected, found, "for n = {n}\n{}{}", show(before), show(after));
    }
}

impl Generator<'_> {
    fn number(&mut self, below: usize) -> usize {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        number as usize % below
    }

    fn constant(&mut self) -> PrimExpr {
        PrimExpr::index(self.number(5) as i64 - 1)
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        let kind = if depth == DEPTH { self.number(4) } else { self.number(12) };
        match kind {
            0 | 1 => {
                let (at, value) = ([self.inside(ROWS), self.inside(COLS)], self.float(2));
                self.func.store(self.y, at, value)
            }
            2 => {
                let (at, value) = (self.inside(COLS), self.int(2));
                self.func.store(self.z, [at], value)
            }
            3 => match self.rows.last().copied() {
                Some(row) => {
                    let (at, value) = (self.inside(COLS), self.float(2));
                    self.func.store(row, [at], value)
                }
                None => self.vectors(),
            },
            4..=6 => self.for_loop(depth),
            7 | 8 => {
                let cond = self.condition();
                let then = self.stmts(depth);
                match self.number(2) {
                    0 => Stmt::if_then(cond, then),
                    _ => Stmt::if_then_else(cond, then, self.stmts(depth)),
                }
            }
            9 if self.number(2) == 0 => {
                let value = self.float(2);
                let var = self.func.var("t", DType::F32);
                let using = self.func.var_expr(var);
                self.floats.push(using);
                let body = self.stmts(depth);
                self.floats.pop();
                Stmt::let_(var, value, body)
            }
            9 => {
                let value = self.int(2);
                let var = self.func.index_var("v");
                let using = self.func.var_expr(var);
                self.indices.push((using, None));
                let body = self.stmts(depth);
                self.indices.pop();
                Stmt::let_(var, value, body)
            }
            10 => self.allocate(depth),
            _ => self.vectors(),
        }
    }

    fn stmts(&mut self, depth: u32) -> Stmt {
        let count = 1 + self.number(3);
        Stmt::seq((0..count).map(|_| self.stmt(depth + 1)).collect::<Vec<_>>())
    }

    fn for_loop(&mut self, depth: u32) -> Stmt {
        let count = self.number(5) as i64;
        let (extent, below) = match count {
            0 => (self.indices[0].0.clone(), None),
            count => (PrimExpr::index(count), Some(count)),
        };
        let var = self.func.index_var("i");
        let index = self.func.var_expr(var);
        self.indices.push((index, below));
        let body = self.stmts(depth);
        self.indices.pop();
        let kind = match (self.number(6), below) {
            (0, Some(_)) => ForKind::Unrolled,
            _ => ForKind::Serial,
        };
        Stmt::for_loop(var, PrimExpr::index(0), extent, kind, body)
    }

    fn allocate(&mut self, depth: u32) -> Stmt {
        let row = self.func.local("row", DType::F32, BufferSpec::dense(&[COLS]));
        let var = self.func.index_var("j");
        let index = self.func.var_expr(var);
        self.indices.push((index.clone(), Some(COLS)));
        let value = self.float(1);
        self.indices.pop();
        let store = self.func.store(row, [index], value);
        let fill = Stmt::for_loop(var, PrimExpr::index(0), COLS.into(), ForKind::Serial, store);
        self.rows.push(row);
        let body = self.stmts(depth);
        self.rows.pop();
        Stmt::allocate(row, Stmt::seq([fill, body]))
    }

    /// A statement on four elements at once.
    fn vectors(&mut self) -> Stmt {
        let four = |from: i64| PrimExpr::ramp(PrimExpr::index(from), 1, 4);
        let (from, to) = (self.number(3) as i64, self.number(3) as i64);
        let at = self.inside(ROWS);
        let loaded = self.func.load(self.x, [at.clone(), four(from)]);
        let other = self.func.load(self.y, [at.clone(), four(to)]);
        let scale = self.float(1);
        let value = match self.number(3) {
            0 => loaded * scale.broadcast_to(4),
            1 => PrimExpr::select(loaded.clone().greater(PrimExpr::f32(0.0)), loaded, other),
            _ => {
                let mask = four(from).less(self.int(1).broadcast_to(4));
                PrimExpr::select(mask, loaded, other * scale.broadcast_to(4))
            }
        };
        self.func.store(self.y, [at, four(to)], value)
    }

    /// An index in `0..extent`.
    fn inside(&mut self, extent: i64) -> PrimExpr {
        let position = self.number(self.indices.len() + 1);
        match self.indices.get(position).cloned() {
            Some((index, Some(below))) if below <= extent => index,
            _ if self.number(3) == 0 => PrimExpr::index(self.number(extent as usize) as i64),
            _ => self.affine().floormod(extent),
        }
    }

    fn affine(&mut self) -> PrimExpr {
        let position = self.number(self.indices.len());
        let other = self.number(self.indices.len());
        let factor = self.number(4) as i64;
        let sum = self.indices[position].0.clone() * factor + self.indices[other].0.clone();
        sum + self.constant()
    }

    fn int(&mut self, depth: u32) -> PrimExpr {
        match self.number(if depth == 0 { 2 } else { 4 }) {
            0 => self.constant(),
            1 => self.affine(),
            2 => {
                let at = self.inside(COLS);
                let buffer = [self.k, self.z][self.number(2)];
                self.func.load(buffer, [at])
            }
            _ => {
                let (lhs, rhs) = (self.int(depth - 1), self.int(depth - 1));
                let op = [BinaryOp::Mul, BinaryOp::FloorDiv, BinaryOp::Max][self.number(3)];
                PrimExpr::binary(op, lhs, rhs)
            }
        }
    }

    fn condition(&mut self) -> PrimExpr {
        match self.number(5) {
            0 => self.affine().less(self.constant()),
            1 => self.indices[0].0.clone().greater(self.constant()),
            2 => self.float(1).greater(PrimExpr::f32(0.0)),
            3 => {
                let other = self.condition();
                self.condition().and(other)
            }
            _ => self.int(1).greater_equal(self.constant()),
        }
    }

    fn float(&mut self, depth: u32) -> PrimExpr {
        let (row, column) = (self.inside(ROWS), self.inside(COLS));
        match self.number(if depth == 0 { 4 } else { 9 }) {
            0 => PrimExpr::f32(self.number(7) as f32 / 2.0 - 1.0),
            1 => self.func.load(self.x, [row, column]),
            2 => match self.rows.last() {
                Some(buffer) => self.func.load(*buffer, [column]),
                None => self.func.load(self.y, [row, column]),
            },
            3 => match self.floats.last() {
                Some(named) => named.clone(),
                None => self.affine().cast(DType::F32),
            },
            4 => {
                // A load that is inside its buffer only under the condition.
                let at = self.affine();
                let guard = at.clone().greater_equal(0).and(at.clone().less(ROWS));
                let loaded = self.func.load(self.x, [at, column]);
                PrimExpr::select(guard, loaded, self.float(depth - 1))
            }
            5 => {
                let (then, otherwise) = (self.float(depth - 1), self.float(depth - 1));
                PrimExpr::select(self.condition(), then, otherwise)
            }
            6 => {
                let value = self.float(depth - 1);
                PrimExpr::call(Intrinsic::Sqrt, value.clone() * value)
            }
            _ => {
                let (lhs, rhs) = (self.float(depth - 1), self.float(depth - 1));
                let op = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul][self.number(3)];
                PrimExpr::binary(op, lhs, rhs)
            }
        }
    }
}
