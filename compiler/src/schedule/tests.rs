//! Effects and refusals of the primitives.

mod symbolic;

use super::{Arg, Schedule, ScheduleError, Step, Trace};
use crate::ir::DType;
use crate::target::Target;
use crate::te;
use crate::tir::{Buffer, BufferScope, ParamKind, PrimFunc, interpret, lower, parse, verify};

pub(super) fn matmul(m: i64, n: i64, k: i64) -> PrimFunc {
    let mut te = te::Builder::new("matmul");
    let a = te.placeholder("A", [m, k], DType::F32);
    let b = te.constant("B", [k, n], DType::F32);
    let r = te.reduce_axis("k", k);
    let c = te.compute("C", [m, n], |[i, j]| te::sum(a.at([i, r]) * b.at([r, j]), [r]));
    let d = te.compute("D", [m, n], |[i, j]| c.at([i, j]).max(te::f32(0.0)));
    te.prim_func(&[a, b, d]).unwrap()
}

/// Arguments for a call of a function: numbers derived from their positions, in the layouts of the
/// parameters. Padding lanes, which may hold anything, hold large numbers.
fn arguments(func: &PrimFunc) -> Vec<Vec<u8>> {
    let buffers = func.params.iter().map(|param| &func.buffers[param.buffer]);
    buffers
        .map(|Buffer { spec, dtype, .. }| {
            let len = spec.num_elements().unwrap() as usize;
            let dense: Vec<u8> = (0..len).flat_map(|position| number(position, *dtype)).collect();
            let mut bytes = spec.pack(&dense, *dtype).unwrap();
            let elements = spec.pack(&vec![1; dense.len()], *dtype).unwrap();
            for (byte, _) in bytes.iter_mut().zip(elements).filter(|(_, element)| *element == 0) {
                *byte = if spec.has_halo() { 0 } else { 0x7f };
            }
            bytes
        })
        .collect()
}

/// The dense contents of the outputs after a call.
fn outputs(func: &PrimFunc, args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let params = func.params.iter().zip(args);
    params
        .filter(|(param, _)| param.kind == ParamKind::Output)
        .map(|(param, bytes)| {
            let Buffer { spec, dtype, .. } = &func.buffers[param.buffer];
            spec.unpack(bytes, *dtype).unwrap()
        })
        .collect()
}

/// The outputs of a function for the arguments above.
pub(super) fn run(func: &PrimFunc) -> Vec<Vec<u8>> {
    let mut args = arguments(func);
    interpret(func, &mut args, &[]).unwrap_or_else(|error| panic!("{error}\n{func}"));
    outputs(func, &args)
}

/// Checks that a scheduled function and its lowered form compute the same as the function before,
/// and that replaying the trace gives the same function.
pub(crate) fn check(before: &PrimFunc, schedule: &Schedule) {
    let (expected, func) = (run(before), schedule.func());
    assert_eq!(run(&func), expected, "{func}");
    let target = Target::host().with_cpu("x86-64-v4").unwrap();
    let lowered = lower(func.clone(), &target).unwrap();
    verify(&lowered).unwrap();
    let mut args = arguments(&func);
    interpret(&lowered, &mut args, &[]).unwrap();
    assert_eq!(outputs(&func, &args), expected, "{lowered}");
    let trace: Trace = schedule.trace().to_string().parse().unwrap();
    let mut again = Schedule::new(before.clone());
    trace.replay(&mut again).unwrap();
    assert_eq!(again.func().to_string(), func.to_string());
}

#[test]
fn any_text_in_a_trace_reads_back() {
    for text in ["", "a\"b\\c'", "\0\t\r\n\u{1}\u{7f}", "\u{e4}\u{301}", ")] = ("] {
        let args = vec![Arg::Text(text.to_owned()), Arg::List(vec![Arg::Open, Arg::Int(-3)])];
        let step = Step { primitive: "annotate".to_owned(), args, results: Vec::new() };
        let trace = Trace { steps: vec![step] };
        assert_eq!(trace.to_string().parse(), Ok(trace.clone()), "{trace}");
    }
}

#[test]
fn an_argument_too_many_is_refused() {
    let mut s = Schedule::new(matmul(4, 4, 4));
    let trace: Trace = "b0 = get_block(\"C\")\nl1, l2, l3 = get_loops(b0, 7)".parse().unwrap();
    let message = refusal(trace.replay(&mut s));
    assert!(
        message.ends_with("more arguments than `l1, l2, l3 = get_loops(b0)`, which was done"),
        "{message}"
    );
    assert_eq!(s.trace(), &Trace::default());
}

#[test]
fn a_primitive_has_a_name() {
    // The first would print as a comment.
    for line in ["=#split(l0)", "l1 = (l0)", "a b(l0)", "l1 = l2 = split(l0)"] {
        let error = line.parse::<Trace>().unwrap_err();
        assert!(error.message.ends_with("is not the name of a primitive"), "{error}");
    }
}

/// The message of a refusal.
pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, ScheduleError>) -> String {
    result.unwrap_err().message
}

/// A small number derived from a position.
fn number(position: usize, dtype: DType) -> Vec<u8> {
    let value = (position * 7 + 3) as i64 % 23 - 11;
    match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes()[..dtype.bytes().unwrap()].to_vec(),
    }
}

#[test]
fn a_matrix_product_becomes_register_tiles() {
    let func = matmul(13, 32, 5);
    let mut s = Schedule::new(func.clone());
    let c = s.get_block("C").unwrap();
    let d = s.get_block("D").unwrap();
    let loops = s.get_loops(c).unwrap();
    let [i0, i1] = s.split_even(loops[0], 6).unwrap();
    let j = s.split(loops[1], [None, Some(2), Some(8)]).unwrap();
    s.reorder(&[j[0], i0, loops[2], i1, j[1], j[2]]).unwrap();
    s.set_scope(c, 0, BufferScope::Register).unwrap();
    s.reverse_compute_at(d, i0).unwrap();
    let out = s.get_loops(d).unwrap();
    let jd = s.split(out[3], [None, Some(8)]).unwrap();
    for rv in [i1, j[1], out[2], jd[0]] {
        s.unroll(rv).unwrap();
    }
    s.vectorize(j[2]).unwrap();
    s.vectorize(jd[1]).unwrap();
    s.decompose_reduction(c, loops[2]).unwrap();
    check(&func, &s);
}

#[test]
fn loops_of_narrowed_variables_are_refused() {
    let func = parse(
        "prim_func @f(y: output float32[8]) {
           for i in serial(int32(8)) {
             block \"Y\"(v: spatial(8) = cast<int64>(i)) { y[v] = 1.0 } } }",
    );
    let mut schedule = Schedule::new(func.unwrap());
    let block = schedule.get_block("Y").unwrap();
    let loops = schedule.get_loops(block).unwrap();
    let error = refusal(schedule.split(loops[0], [None, Some(4)]));
    assert!(error.contains("the loop `i` is int32, not int64"), "{error}");
}

/// An init outside of loops that compute elements again would leave each of them added up twice.
#[test]
fn inits_stay_inside_of_loops_that_compute_elements_again() {
    let func = |extent: i64, value: &str| {
        let text = format!(
            "prim_func @f(x: input float32[8, 3], y: output float32[8, 2]) {{
               allocate t: local float32[{extent}]
               for i in serial(4) {{
                 for j in serial(2) {{
                   for k in serial(3) {{
                     block \"T\"(v: spatial({extent}) = {value}, r: reduce(3) = k) {{
                       init {{ t[v] = 0.0 }}
                       t[v] = t[v] + x[v, r] }} }}
                   block \"Y\"(v: spatial(4) = i, w: spatial(2) = j) {{ y[v, w] = t[v] }} }} }} }}"
        );
        parse(&text).unwrap()
    };
    let decomposed = |value: &str, extent: i64, at: usize| {
        let mut schedule = Schedule::new(func(extent, value));
        let block = schedule.get_block("T").unwrap();
        let loops = schedule.get_loops(block).unwrap();
        schedule.decompose_reduction(block, loops[at])
    };
    let error = refusal(decomposed("i", 4, 0));
    assert!(error.contains("loop `j` is inside of loop `i` and computes elements"), "{error}");
    assert!(decomposed("i", 4, 2).is_ok());
    let error = refusal(decomposed("i + j", 5, 0));
    assert!(error.contains("computes elements of `T` again"), "{error}");
    assert!(decomposed("i + j", 5, 1).is_ok());
    assert!(decomposed("i * 2 + j", 8, 0).is_ok());
    assert!(decomposed("j * 4 + i", 8, 0).is_ok());
}

#[test]
fn an_element_that_a_consumer_reads_several_times_is_computed_once() {
    let mut te = te::Builder::new("gate");
    let a = te.placeholder("A", [64], DType::F32);
    let b = te.compute("B", [64], |[i]| a.at([i]) * te::f32(3.0) - te::f32(40.0));
    let c = te.compute("C", [64], |[i]| b.at([i]) * b.at([i]).max(te::f32(0.0)));
    let func = te.prim_func(&[a, c]).unwrap();
    let mut s = Schedule::new(func.clone());
    let gate = s.get_block("C").unwrap();
    s.reverse_compute_inline(gate).unwrap();
    let place = s.get_block("B").unwrap();
    let i = s.get_loops(place).unwrap()[0];
    let [_, lane] = s.split(i, [None, Some(16)]).unwrap()[..] else { panic!("two loops") };
    s.vectorize(lane).unwrap();
    let text = s.func().to_string();
    assert_eq!(text.matches("A[").count(), 1, "{text}");
    check(&func, &s);
}
