//! Schedule traces. The first byte chooses a function, the rest is a trace. What is well-formed
//! prints, and reads back as the same; what can be replayed leaves a valid function that computes
//! the same, and a trace that leads to the same function again.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use niello::ir::DType;
use niello::schedule::{Arg, Schedule, Trace};
use niello::te::{self, Builder};
use niello::tir::{ParamKind, PrimExpr, PrimFunc, interpret, parse, verify};

/// Most iterations that numbers in a trace may add: splits by great factors loop for nothing.
const MOST_WORK: i64 = 1 << 10;

/// A function and the arguments it is interpreted with.
struct Subject {
    func: PrimFunc,
    dims: Vec<i64>,
    args: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    [(matmul(), vec![]), (windows(), vec![]), (rows(), vec![5])]
        .into_iter()
        .map(|(func, dims)| Subject::new(func, dims))
        .collect()
});

/// A matrix product, a bias and a maximum.
fn matmul() -> PrimFunc {
    let mut te = Builder::new("matmul");
    let a = te.placeholder("A", [4, 6], DType::F32);
    let b = te.constant("B", [6, 8], DType::F32);
    let k = te.reduce_axis("k", 6);
    let c = te.compute("C", [4, 8], |[i, j]| te::sum(a.at([i, k]) * b.at([k, j]), [k]));
    let d = te.compute("D", [4, 8], |[i, j]| c.at([i, j]) + te::f32(1.0));
    let e = te.compute("E", [4, 8], |[i, j]| d.at([i, j]).max(te::f32(0.0)));
    te.prim_func(&[a, b, e]).expect("a valid function")
}

/// Sums of padded windows, then of their rows.
fn windows() -> PrimFunc {
    let mut te = Builder::new("windows");
    let x = te.placeholder("X", [3, 6], DType::F32);
    let padded = te.compute("P", [3, 8], |[i, j]| {
        let j = PrimExpr::from(j);
        let inside = j.clone().greater(0).and(j.clone().less(7));
        PrimExpr::select(inside, x.at([PrimExpr::from(i), j - 1]), te::f32(0.0))
    });
    let w = te.reduce_axis("w", 3);
    let y = te.compute("Y", [3, 6], |[i, j]| {
        te::sum(padded.at([PrimExpr::from(i), PrimExpr::from(j) + w]), [w])
    });
    let r = te.reduce_axis("r", 6);
    let z = te.compute("Z", [3, 1], |[i, _]| te::max(y.at([i, r]), [r]));
    te.prim_func(&[x, y, z]).expect("a valid function")
}

/// Sums of rows whose number is known when the function is called.
fn rows() -> PrimFunc {
    let mut te = Builder::new("rows");
    let n = te.size_var("n");
    let x = te.placeholder("X", [PrimExpr::from(n), 4.into()], DType::F32);
    let y = te.compute("Y", [PrimExpr::from(n), 4.into()], |[i, j]| x.at([i, j]) * te::f32(2.0));
    let k = te.reduce_axis("k", 4);
    let z = te.compute("Z", [n], |[i]| te::sum(y.at([i, k]), [k]));
    te.prim_func(&[x, y, z]).expect("a valid function")
}

impl Subject {
    fn new(func: PrimFunc, dims: Vec<i64>) -> Subject {
        // Small integers: sums of them are exact in any order.
        let fixed = func.with_extents(&dims).expect("a number for each dimension");
        let args: Vec<Vec<u8>> = fixed
            .params
            .iter()
            .map(|param| {
                let count: i64 = fixed.buffers[param.buffer].shape().iter().product();
                let is_output = param.kind == ParamKind::Output;
                let element = |i| if is_output { 0.0 } else { ((i * 5 + 1) % 7 - 3) as f32 };
                (0..count).flat_map(|i| element(i).to_le_bytes()).collect()
            })
            .collect();
        let mut expected = args.clone();
        interpret(&func, &mut expected, &dims).expect("a valid function");
        Subject { func, dims, args, expected }
    }

    /// Whether a function has the layouts that the arguments are in.
    fn fits(&self, func: &PrimFunc) -> bool {
        func.params
            .iter()
            .zip(&self.func.params)
            .all(|(new, old)| func.buffers[new.buffer].spec == self.func.buffers[old.buffer].spec)
    }

    fn check(&self, trace: &Trace) {
        let mut schedule = Schedule::new(self.func.clone());
        if trace.replay(&mut schedule).is_err() {
            assert_eq!(
                schedule.trace().steps.len(),
                0,
                "a refused trace leaves the schedule alone"
            );
            return;
        }
        let func = schedule.func();
        let printed = func.to_string();
        assert_eq!(verify(&func), Ok(()), "{printed}");
        let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again.to_string(), printed);
        let mut replayed = Schedule::new(self.func.clone());
        let recorded = schedule.trace();
        assert_eq!(recorded.steps.len(), trace.steps.len(), "{recorded}");
        recorded.replay(&mut replayed).unwrap_or_else(|error| panic!("{error}\n{recorded}"));
        assert_eq!(replayed.trace(), recorded);
        assert_eq!(replayed.func().to_string(), printed, "{recorded}");
        if work(trace) > MOST_WORK || !self.fits(&func) {
            return;
        }
        let mut args = self.args.clone();
        if let Err(error) = interpret(&func, &mut args, &self.dims) {
            panic!("{error}\n{trace}{func}");
        }
        assert_eq!(args, self.expected, "{trace}{func}");
    }
}

/// A bound on the iterations that a trace adds: the product of its numbers.
fn work(trace: &Trace) -> i64 {
    fn numbers(arg: &Arg) -> i64 {
        match arg {
            Arg::Int(number) => number.saturating_abs().max(1),
            Arg::List(list) => list.iter().map(numbers).fold(1, i64::saturating_mul),
            Arg::Rv(_) | Arg::Open | Arg::Text(_) => 1,
        }
    }
    trace.steps.iter().flat_map(|step| &step.args).map(numbers).fold(1, i64::saturating_mul)
}

fuzz_target!(init: niello_fuzz::limit_memory(), |data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    niello_fuzz::run(|| {
        let trace: Trace = match text.parse() {
            Ok(trace) => trace,
            Err(error) => return drop(error.to_string()),
        };
        let printed = trace.to_string();
        let again: Trace = printed.parse().unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again, trace, "{printed}");
        SUBJECTS[usize::from(choice) % SUBJECTS.len()].check(&trace);
    });
});
