//! Which loops become parallel, and which must not.

mod rows;

use super::*;
use crate::ir::{BufferSpec, DType};
use crate::memory::zero_border;
use crate::pass::Pass;
use crate::tir::transform::VerifyMemory;
use crate::tir::{Lowering, interpret, parse, verify};

/// The function after the pass with so many threads, however little its work is.
fn run(text: &str, threads: u64, min_share: u64) -> PrimFunc {
    let cx = PassContext::builder()
        .config(&PARALLEL_THREADS, threads)
        .config(&PARALLEL_MIN_SHARE, min_share)
        .build()
        .unwrap();
    let func = ParallelizeLoops.run_on_prim_func(parse(text).unwrap(), &cx).unwrap();
    verify(&func).unwrap();
    VerifyMemory.run_on_prim_func(func.clone(), &cx).unwrap();
    func
}

/// The parallel loops if shares are of so many cycles at least: names and numbers of iterations.
fn parallel(text: &str, min_share: u64) -> Vec<(String, i64)> {
    let func = run(text, 2, min_share);
    let mut found = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::For { var, extent, kind: ForKind::Parallel, .. } = stmt {
            found.push((func.vars[*var].name.clone(), extent.as_int().unwrap()));
        }
    });
    found
}

fn is_parallel(params: &str, body: &str) -> bool {
    !parallel(&format!("prim_func @f({params}) {{ {body} }}"), 1).is_empty()
}

#[test]
fn iterations_that_store_apart_are_parallel() {
    let out = "x: input float32[4096], y: output float32[4096]";
    for body in [
        "for i in serial(64) { y[i] = x[i] }",
        // Rows, and columns of a matrix.
        "for i in serial(64) { for j in serial(64) { y[i * 64 + j] = x[j * 64 + i] } }",
        "for i in serial(64) { for j in serial(64) { y[j * 64 + i] = x[j * 64 + i] } }",
        // Rows with a border: the last element of one is not the first of the next.
        "for i in serial(63) { for j in serial(62) { y[i * 64 + j + 65] = x[j] } }",
        // Blocks that are apart by a constant.
        "for i in serial(32) { y[i * 16] = x[0] y[i * 16 + 2048] = x[1] }",
        "for i in serial(16) { for j in serial(2) { y[i * 16 + j * 1024] = x[0]
            y[i * 16 + j * 1024 + 512] = x[1] } }",
        "for i in serial(64) { y[ramp(i * 64, 1, 64)] = x[ramp(i * 64, 1, 64)] }",
        // The element of the own iteration is read again.
        "for i in serial(64) { y[i] = x[i] for k in serial(9) { y[i] = y[i] + x[k] } }",
        // Panels of three vectors in blocks of two: where one ends, the next begins.
        "for i in serial(16) { for j in serial(4) {
            y[ramp(floordiv(i * 24, 16) * 64 + j * 16 + floormod(i * 24, 16), 1, 8)] = x[ramp(0, 1, 8)]
            y[ramp(floordiv(i * 24 + 8, 16) * 64 + j * 16 + floormod(i * 24 + 8, 16), 1, 8)] = x[ramp(0, 1, 8)]
            y[ramp(floordiv(i * 24 + 16, 16) * 64 + j * 16 + floormod(i * 24 + 16, 16), 1, 8)] = x[ramp(0, 1, 8)]
        } }",
        "for i in serial(64) { y[floordiv(i, 8) * 16 + floormod(i, 8) * 2 + 1] = x[i] }",
        // Groups of 34 channels in blocks of 16, pixels of four rows of four.
        "for i in serial(4) { for g in serial(4) { for j in serial(4) { for l in serial(8) {
            y[g * 514 + i * 64 + j * 16 + l] = x[l]
            y[g * 512 + floordiv(g * 2 + l + 8, 16) * 256 + i * 64 + j * 16 + floormod(g * 2 + l + 8, 16)] = x[l]
        } } } }",
        // A value with a name.
        "for i in serial(64) { let r = i * 64 { y[r + 3] = x[r] } }",
    ] {
        assert!(is_parallel(out, body), "{body}");
    }
}

#[test]
fn a_loop_that_is_said_to_be_independent_is_not_proved() {
    let params = "x: input float32[4096], y: output float32[4096]";
    let body = |annotation: &str| {
        format!(
            "for b in serial(7) {annotation} {{ for t in serial(7) {{
                y[floordiv(b * 7 + t, 10) * 20 + floormod(b * 7 + t, 10)] = x[t]
            }} }}"
        )
    };
    let found =
        |annotation| parallel(&format!("prim_func @f({params}) {{ {} }}", body(annotation)), 1);
    assert_eq!(found("[\"pragma_loop_independent\" = \"1\"]"), [("b".to_owned(), 7)]);
    assert!(found("").iter().all(|(name, _)| name != "b"));
}

#[test]
fn iterations_that_may_meet_stay_serial() {
    let out = "x: input float32[4096], y: output float32[4096], t: input int64[64]";
    for body in [
        // Sums over all iterations.
        "y[0] = 0.0 for i in serial(64) { y[0] = y[0] + x[i] }",
        // Each reads what the one before stored.
        "y[0] = 0.0 for i in serial(63) { y[i + 1] = y[i] + x[i] }",
        // Rows that overlap.
        "for i in serial(32) { y[i * 2] = x[0] y[i * 2 + 1] = x[i] y[i * 2 + 2] = x[1] }",
        "for i in serial(32) { y[ramp(i * 4, 1, 8)] = x[ramp(0, 1, 8)] }",
        // Where it stores depends on data, or is rounded.
        "for i in serial(64) { y[t[i]] = x[i] }",
        "for i in serial(64) { y[i / 2] = x[i] }",
        // Quotients and rests that come again.
        "for i in serial(64) { y[floordiv(i, 8)] = x[i] }",
        "for i in serial(64) { y[floormod(i, 8)] = x[i] }",
        "for i in serial(64) { y[floordiv(i, 8) * 8 + floormod(i, 4)] = x[i] }",
        "for i in serial(64) { y[floordiv(i, 8) * 6 + floormod(i, 8)] = x[i] }",
        "for i in serial(9) { y[floordiv(i + 3, 8) + floormod(i + 3, 8)] = x[i] }",
        // A vector more than a panel has.
        "for i in serial(16) { for j in serial(4) {
            y[ramp(floordiv(i * 24, 16) * 64 + j * 16 + floormod(i * 24, 16), 1, 8)] = x[ramp(0, 1, 8)]
            y[ramp(floordiv(i * 24 + 24, 16) * 64 + j * 16 + floormod(i * 24 + 24, 16), 1, 8)] = x[ramp(0, 1, 8)]
        } }",
        // Large terms make up for the distance of iterations.
        "for i in serial(64) { y[i] = x[i] y[i + 32] = x[i] }",
    ] {
        assert!(!is_parallel(out, body), "{body}");
    }
    // The output may be where the input is, of which another element is read.
    let inplace = |index: &str| {
        format!(
            "prim_func @f(x: input float32[64], y: output float32[64]) inplace(1, 0) {{
               for i in serial(64) {{ y[i] = x[{index}] }}
             }}"
        )
    };
    assert_eq!(parallel(&inplace("i"), 1), [("i".to_owned(), 64)]);
    assert_eq!(parallel(&inplace("63 - i"), 1), []);
}

#[test]
fn loops_are_fused_if_the_outer_one_has_too_few_iterations() {
    let nest = |outer: i64, inner: i64, between: &str| {
        let text = format!(
            "prim_func @f(x: input float32[4096], y: output float32[4096]) {{
               for i in serial({outer}) {{ {between}
                 for j in serial({inner}) {{ for k in serial(32) {{ y[i * 256 + j * 32 + k] = x[k] }} }}
               }}
             }}"
        );
        parallel(&text, 400)
    };
    assert_eq!(nest(16, 7, ""), [("i".to_owned(), 16)]);
    assert_eq!(nest(3, 7, ""), [("i_j".to_owned(), 21)]);
    assert_eq!(nest(1, 16, ""), [("j".to_owned(), 16)]);
    // Not perfectly nested: the inner loop is handed over three times.
    assert_eq!(nest(3, 7, "y[i * 256 + 255] = x[0]"), [("i".to_owned(), 3)]);
}

#[test]
fn a_fused_loop_computes_the_same() {
    let text = "prim_func @f(x: input int32[64], y: output int32[105]) {
        for i in serial(3) { for j in serial(5) { for k in serial(7) {
            y[i * 35 + j * 7 + k] = x[i * 9 + j + k] } } } }";
    let values = |func: &PrimFunc| {
        let x = (0..64i32).flat_map(|i| (i * i).to_le_bytes()).collect();
        let mut args = [x, vec![0; 4 * 105]];
        interpret(func, &mut args, &[]).unwrap();
        args
    };
    let func = run(text, 2, 1);
    assert_ne!(func.body, parse(text).unwrap().body);
    assert_eq!(values(&func), values(&parse(text).unwrap()));
}

#[test]
fn a_buffer_that_each_iteration_fills_first_becomes_its_own() {
    let rows = |fill: &str, after: &str| {
        let text = format!(
            "prim_func @f(x: input float32[4096], y: output float32[4096]) {{
               allocate t: local float32[64] {{
                 for i in serial(64) {{
                   {fill}
                   for k in serial(64) {{ y[i * 64 + k] = t[63 - k] }}
                 }}
                 {after}
               }}
             }}"
        );
        // The loops in it may be parallel in its place.
        parallel(&text, 1).iter().any(|(name, _)| name.starts_with('i'))
    };
    assert!(rows("for j in serial(64) { t[j] = x[i * 64 + j] }", ""));
    assert!(rows("for j in serial(4) { t[ramp(j * 16, 1, 16)] = x[ramp(j * 16, 1, 16)] }", ""));
    assert!(rows("for j in serial(32) { t[j * 2] = x[j] t[j * 2 + 1] = x[i] }", ""));
    // One element is left as the iteration before has left it, or all under a condition.
    assert!(!rows("for j in serial(63) { t[j] = x[i * 64 + j] }", ""));
    assert!(!rows("for j in serial(32) { t[j * 2] = x[j] }", ""));
    assert!(!rows("if i < 9 { for j in serial(64) { t[j] = x[i * 64 + j] } }", ""));
    // What the last iteration leaves is read.
    assert!(!rows("for j in serial(64) { t[j] = x[i * 64 + j] }", "y[0] = t[0]"));
    // What is read after the loop was stored after it.
    assert!(rows("for j in serial(64) { t[j] = x[i * 64 + j] }", "t[0] = x[0] y[0] = t[0]"));
}

#[test]
fn work_that_is_not_worth_it_stays_where_it_is() {
    let text = "prim_func @f(x: input float32[65536], y: output float32[65536]) {
        for i in serial(256) { for j in vectorized(256) { y[i * 256 + j] = x[i * 256 + j] } } }";
    let func = parse(text).unwrap();
    let unchanged = |threads, min_share| run(text, threads, min_share).body == func.body;
    assert!(unchanged(1, 1), "one thread");
    assert!(unchanged(2, 1_000_000), "little work");
    assert!(!unchanged(2, 1_000));
    // With work for few of many threads, iterations are done several at once.
    let func = run(text, 64, 3000);
    let mut extents = Vec::new();
    func.body.walk(&mut |stmt| {
        if let Stmt::For { extent, kind: ForKind::Parallel, .. } = stmt {
            extents.push(extent.as_int().unwrap());
        }
    });
    assert!(extents.len() == 1 && extents[0] < 256 && 256 % extents[0] == 0, "{extents:?}");
}

#[test]
fn why_no_loop_is_parallel_is_noted() {
    let text = "prim_func @f(x: input float32[64], y: output float32[1]) {
        y[0] = 0.0 for i in serial(64) { y[0] = y[0] + x[i] } }";
    let func = run(text, 2, 1);
    assert_eq!(
        func.attrs.get(PARALLEL_MISSED_ATTR).map(String::as_str),
        Some("iterations over `i` may share elements of `y`")
    );
}

proptest::proptest! {
    /// Indices with quotients and rests, compared iteration by iteration.
    #[test]
    fn no_loop_is_parallel_whose_iterations_meet(
        (count, inner) in (2i64..20, 1i64..5),
        quotient in (1i64..25, 0i64..9, 1i64..17, 0i64..33),
        rest in (1i64..25, 0i64..9, 1i64..17, 0i64..9),
        (step, lanes) in (0i64..40, 2i64..9),
        other in 0i64..64,
    ) {
        let (q_factor, q_offset, q_divisor, q_step) = quotient;
        let (r_factor, r_offset, r_divisor, r_step) = rest;
        let index = |i: i64, j: i64| {
            (i * q_factor + q_offset).div_euclid(q_divisor) * q_step
                + (i * r_factor + r_offset).rem_euclid(r_divisor) * r_step
                + j * step
        };
        let text = format!(
            "floordiv(i * {q_factor} + {q_offset}, {q_divisor}) * {q_step} \
             + floormod(i * {r_factor} + {r_offset}, {r_divisor}) * {r_step} + j * {step}"
        );
        let body = format!(
            "for i in serial({count}) {{ for j in serial({inner}) {{
                y[ramp({text}, 1, {lanes})] = broadcast(x[i], {lanes})
                y[{text} + {other}] = x[j]
            }} }}"
        );
        let mut stored_by = BTreeMap::new();
        let mut meets = false;
        for (i, j) in (0..count).flat_map(|i| (0..inner).map(move |j| (i, j))) {
            for place in (0..lanes).chain([other]).map(|offset| index(i, j) + offset) {
                meets |= *stored_by.entry(place).or_insert(i) != i;
            }
        }
        let text = format!(
            "prim_func @f(x: input float32[64], y: output float32[65536]) {{ {body} }}"
        );
        let outer = parallel(&text, 1).iter().any(|(name, _)| name.starts_with('i'));
        proptest::prop_assert!(!(meets && outer), "{body}");
    }
}

/// The border of a large image is shared by blocks of channels, all sides at once; that of a small one is
/// not worth it.
#[test]
fn threads_share_a_border_by_blocks_of_channels() {
    let loops = |channels: i64, extent: i64| {
        let spec = BufferSpec::nchwc(&[1, channels, extent, extent], 16, &[(1, 1), (1, 1)]);
        let cx = PassContext::builder().config(&PARALLEL_THREADS, 2).build().unwrap();
        let func = zero_border("zero_border", DType::F32, &spec);
        let func = Lowering::new(&cx).unwrap().run(func, &cx).unwrap();
        let mut found = Vec::new();
        func.body.walk(&mut |stmt| {
            if let Stmt::For { extent, kind: ForKind::Parallel, .. } = stmt {
                found.push(extent.as_int().unwrap());
            }
        });
        found
    };
    assert_eq!(loops(96, 112), [6]);
    assert!(loops(32, 8).is_empty());
}

/// A tile of eight rows: a vector of the right operand is loaded once for all of them, so that the
/// multiply-adds and the scalars beside them take some 6 cycles, not the 20 that all loads would.
#[test]
fn what_unrolled_iterations_share_is_counted_once() {
    let text =
        "prim_func @f(a: input float32[32768], b: const float32[256], y: output float32[2048]) {
        for i in serial(64) { allocate acc: register float32[32] {
          for z in vectorized(32) { acc[z] = 0.0 }
          for k in serial(64) { for r in unrolled(8) { for c in vectorized(4) {
            acc[r * 4 + c] = fma(a[i * 512 + r * 64 + k], b[k * 4 + c], acc[r * 4 + c]) } } }
          for r in unrolled(8) { for c in vectorized(4) {
            y[i * 32 + r * 4 + c] = acc[r * 4 + c] } } } } }";
    assert_eq!(parallel(text, 15_000), []);
    assert_eq!(parallel(text, 9_000), [("i".to_owned(), 64)]);
}
