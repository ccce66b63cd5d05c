//! Random loops with conditions, divisions and minima of their variables.

use crate::ir::{BufferSpec, DType};
use crate::tir::{
    BinaryOp, BufferId, CompareOp, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, UnaryOp,
};

/// Elements of the input and the output.
pub(crate) const ELEMENTS: i64 = 64;

struct Generator<'a> {
    numbers: std::slice::Iter<'a, u32>,
    func: PrimFuncData,
    input: BufferId,
    output: BufferId,
    scratch: BufferId,
    /// Variables in scope.
    vars: Vec<PrimExpr>,
}

impl Generator<'_> {
    fn number(&mut self, below: u32) -> u32 {
        self.numbers.next().copied().unwrap_or(0) % below
    }

    fn index(&mut self, depth: u32) -> PrimExpr {
        if depth == 0 {
            let at = self.number(9) as usize;
            return match self.number(4) {
                1.. if !self.vars.is_empty() => self.vars[at % self.vars.len()].clone(),
                _ => PrimExpr::index(at as i64 - 2),
            };
        }
        let left = self.index(depth - 1);
        let constant = [1, 2, 3, 4, 8, 16][self.number(6) as usize];
        match self.number(8) {
            0 | 1 => left + self.index(depth - 1),
            2 => left - self.index(depth - 1),
            3 => left * constant,
            4 => left.floordiv(constant),
            5 => left.floormod(constant),
            6 => left.min(self.index(depth - 1)),
            _ => left.max(self.index(depth - 1)),
        }
    }

    fn condition(&mut self, depth: u32) -> PrimExpr {
        match self.number(if depth == 0 { 3 } else { 6 }) {
            3 => self.condition(depth - 1).and(self.condition(depth - 1)),
            4 => self.condition(depth - 1).or(self.condition(depth - 1)),
            5 => PrimExpr::unary(UnaryOp::Not, self.condition(depth - 1)),
            _ => {
                let op = CompareOp::ALL[self.number(6) as usize].0;
                PrimExpr::compare(op, self.index(1), self.index(1))
            }
        }
    }

    fn load(&mut self) -> PrimExpr {
        let at = self.index(2).floormod(ELEMENTS);
        let from = [self.input, self.output, self.scratch][self.number(3) as usize];
        self.func.load(from, [at])
    }

    fn value(&mut self) -> PrimExpr {
        match self.number(4) {
            0 => self.index(2),
            1 => self.load() + self.index(1),
            2 => PrimExpr::select(self.condition(1), self.load(), self.index(1)),
            _ => PrimExpr::binary(BinaryOp::Max, self.load(), self.index(1)),
        }
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.number(if depth == 0 { 1 } else { 7 }) {
            0 => {
                let at = self.index(2).floormod(ELEMENTS);
                let to = [self.output, self.output, self.scratch][self.number(3) as usize];
                let value = self.value();
                self.func.store(to, [at], value)
            }
            1 => {
                let cond = self.condition(2);
                let then = self.stmt(depth - 1);
                match self.number(2) {
                    0 => Stmt::if_then(cond, then),
                    _ => Stmt::if_then_else(cond, then, self.stmt(depth - 1)),
                }
            }
            2 => {
                let value = self.value();
                let var = self.func.index_var("t");
                self.vars.push(self.func.var_expr(var));
                let body = self.stmt(depth - 1);
                self.vars.pop();
                Stmt::let_(var, value, body)
            }
            3 => Stmt::seq([self.stmt(depth - 1), self.stmt(depth - 1)]),
            _ => {
                let min = if self.number(3) == 0 { self.index(1).min(40) } else { 0.into() };
                let extent = match self.number(4) {
                    0 => self.index(1).min(12),
                    _ => i64::from(self.number(10)).into(),
                };
                let kind = [ForKind::Serial, ForKind::Unrolled][self.number(2) as usize];
                let kind = if extent.as_int().is_some() { kind } else { ForKind::Serial };
                let var = self.func.index_var("i");
                self.vars.push(self.func.var_expr(var));
                let body = self.stmt(depth - 1);
                self.vars.pop();
                Stmt::for_loop(var, min, extent, kind, body)
            }
        }
    }
}

/// A function of one `int64` input, one output and a dimension, which stores in nested loops.
pub(crate) fn random_loops(numbers: &[u32]) -> PrimFunc {
    let mut func = PrimFuncData::new("random");
    let spec = || BufferSpec::dense(&[ELEMENTS]);
    let input = func.input("x", DType::I64, spec());
    let output = func.output("y", DType::I64, spec());
    let scratch = func.local("scratch", DType::I64, spec());
    let n = func.dim("n");
    let numbers = numbers.iter();
    let mut random = Generator { numbers, func, input, output, scratch, vars: vec![n] };
    let parts = [4, 5, 4].map(|depth| random.stmt(depth));
    let mut func = random.func;
    let fill = |func: &mut PrimFuncData, to| {
        func.serial("fill", ELEMENTS, |f, i| f.store(to, [i.clone()], i * 3))
    };
    let filled = [fill(&mut func, output), fill(&mut func, scratch)];
    func.body = Stmt::allocate(scratch, Stmt::seq(filled.into_iter().chain(parts)));
    PrimFunc::new(func)
}
