//! Tests of unrolling: TVM's cases.

use super::*;
use crate::pass::Pass;
use crate::tir::{parse, verify};

/// `for i < 2 { unroll j < 8 { a[j + 1] = a[i] + 1 } }`, with annotations of the outer loop.
fn nest(annotations: &str) -> PrimFunc {
    parse(&format!(
        "prim_func @nest(a: output int64[16]) {{
           for i in serial(2) {annotations} {{
             for j in unrolled(8) {{
               a[j + 1] = a[i] + 1
             }}
           }}
         }}"
    ))
    .unwrap()
}

fn run(func: PrimFunc, config: UnrollLoopConfig) -> Result<PrimFunc> {
    let cx = PassContext::builder().config(&UNROLL_LOOP, config).build()?;
    let unrolled = UnrollLoop.run_on_prim_func(func, &cx)?;
    verify(&unrolled).unwrap();
    Ok(unrolled)
}

fn with_steps(auto_max_step: i64) -> UnrollLoopConfig {
    UnrollLoopConfig { auto_max_step, ..UnrollLoopConfig::default() }
}

/// The kinds of the remaining loops, outermost first, and the number of stores.
fn shape(func: &PrimFunc) -> (Vec<ForKind>, usize) {
    let (mut kinds, mut stores) = (Vec::new(), 0);
    func.body.walk(&mut |stmt| match stmt {
        Stmt::For { kind, .. } => kinds.push(*kind),
        Stmt::Store { .. } => stores += 1,
        _ => {}
    });
    (kinds, stores)
}

#[test]
fn the_number_of_steps_decides_which_loops_are_unrolled() {
    use ForKind::{Serial, Unrolled};
    let unrolled = |config| shape(&run(nest(""), config).unwrap());
    assert_eq!(unrolled(with_steps(16)), (vec![], 16));
    assert_eq!(unrolled(with_steps(15)), (vec![Serial], 8));
    let marked = UnrollLoopConfig { explicit_unroll: false, ..with_steps(16) };
    assert_eq!(unrolled(marked), (vec![Unrolled, Unrolled], 1));
    let by_extent = UnrollLoopConfig { auto_max_extent: 2, ..with_steps(0) };
    assert_eq!(unrolled(by_extent), (vec![], 16));
    let shallow = UnrollLoopConfig { auto_max_depth: 0, ..with_steps(16) };
    assert_eq!(unrolled(shallow), (vec![Serial], 8));
}

#[test]
fn pragmas_are_options_for_their_loop() {
    let pragma = r#"["pragma_auto_unroll_max_step" = "16"]"#;
    let mut both = nest(pragma).into_data();
    let other = both.copy_of(&both.body.clone(), &BTreeMap::new());
    let other = other.rewrite(&mut |stmt| match stmt {
        Stmt::For { var, min, extent, kind, annotations: _, body } => {
            let annotations = Annotations::new();
            Stmt::For { var, min, extent, kind, annotations, body }
        }
        other => other,
    });
    both.body = Stmt::seq([both.body.clone(), other]);
    let unrolled = run(PrimFunc::new(both), UnrollLoopConfig::default()).unwrap();
    assert_eq!(shape(&unrolled), (vec![ForKind::Serial], 16 + 8));
    let left = run(nest(r#"["pragma_unroll_explicit" = "false"]"#), with_steps(16)).unwrap();
    assert_eq!(shape(&left), (vec![ForKind::Unrolled, ForKind::Unrolled], 1));
    for (pragma, expected) in [
        (r#"["pragma_auto_unroll_max_step" = "all"]"#, "\"all\", which is no number of steps"),
        (r#"["pragma_unroll_explicit" = "2"]"#, "\"2\", which is no `true` or `false`"),
    ] {
        let error = run(nest(pragma), with_steps(0)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_function_without_loops_to_unroll_keeps_its_handle() {
    let func = parse(
        "prim_func @f(x: input float32[4], y: output float32[4]) {
           for i in serial(4) { y[i] = x[i] }
         }",
    )
    .unwrap();
    assert!(run(func.clone(), with_steps(1)).unwrap().same(&func));
    assert!(!run(func.clone(), with_steps(4)).unwrap().same(&func));
    let marked = UnrollLoopConfig { explicit_unroll: false, ..with_steps(0) };
    let nest = nest("");
    assert!(run(nest.clone(), marked).unwrap().same(&nest));
}

#[test]
fn loops_without_iterations_are_removed() {
    for kind in ["serial", "unrolled"] {
        let text =
            format!("prim_func @f(y: output int64[4]) {{ for i in {kind}(0) {{ y[i] = i }} }}");
        let unrolled = run(parse(&text).unwrap(), UnrollLoopConfig::default()).unwrap();
        assert!(unrolled.body.is_nop(), "{unrolled}");
    }
}

#[test]
fn an_extent_must_be_known() {
    let text = "prim_func @f(y: output int64[4], n: dim) { for i in unrolled(n) { y[i] = i } }";
    let error = run(parse(text).unwrap(), UnrollLoopConfig::default()).unwrap_err().to_string();
    let expected = "pass tir.UnrollLoop, function @f: Cannot unroll non-constant loop over `i`";
    assert_eq!(error, expected);
}

#[test]
fn each_copy_has_buffers_of_its_own() {
    let func = parse(
        "prim_func @f(x: input float32[2], y: output float32[2]) {
           for i in unrolled(2) {
             allocate t: local float32[1]
             t[0] = x[i]
             y[i] = t[0] * 2.0
           }
         }",
    )
    .unwrap();
    let unrolled = run(func, UnrollLoopConfig::default()).unwrap();
    let mut buffers = BTreeSet::new();
    unrolled.body.walk(&mut |stmt| {
        if let Stmt::Allocate { buffer, .. } = stmt {
            assert!(buffers.insert(*buffer));
        }
    });
    assert_eq!(buffers.len(), 2);
}

#[test]
fn loops_over_scratch_memory_are_unrolled_on_request() {
    let func = parse(
        "prim_func @f(x: input float32[8], y: output float32[8]) {
           allocate t: local float32[8] {
             for i in serial(8) { t[i] = x[i] }
             for i in serial(8) { y[i] = x[i] }
           }
         }",
    )
    .unwrap();
    assert_eq!(shape(&run(func.clone(), with_steps(0)).unwrap()), (vec![ForKind::Serial; 2], 2));
    let config = UnrollLoopConfig { unroll_local_access: true, ..with_steps(0) };
    assert_eq!(shape(&run(func, config).unwrap()), (vec![ForKind::Serial], 9));
}

#[test]
fn loops_too_large_to_unroll_stay_loops() {
    let loops: String = (0..8).map(|i| format!("for i{i} in unrolled(256) {{ ")).collect();
    let text = format!("prim_func @f(y: output int64[4]) {{ {loops} y[0] = i0 {}", "}".repeat(9));
    let (kinds, stores) = shape(&run(parse(&text).unwrap(), UnrollLoopConfig::default()).unwrap());
    assert_eq!((kinds.len(), stores), (6, 1 << 16));
    let text = "prim_func @f(y: output int64[999]) { for i in unrolled(999) { y[i] = i } }";
    let long = run(parse(text).unwrap(), UnrollLoopConfig::default()).unwrap();
    assert_eq!(shape(&long), (vec![ForKind::Serial], 1));
}
