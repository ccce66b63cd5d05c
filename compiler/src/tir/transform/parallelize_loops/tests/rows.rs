//! Loops over channels that are divided by rows of their image.

use super::*;

/// A depthwise convolution of four channels along rows, in two runs of columns; a row is that of
/// `input`, the weight that of `weight`.
fn depthwise(rows: i64, input: &str, weight: &str, weights: i64) -> String {
    let run = |name: &str, first: i64, last: i64| {
        format!(
            "for y{name} in serial({rows}) {{ for c{name} in serial({count}) {{
               out[o * 4096 + y{name} * 128 + c{name} + {first}] =
                 x[o * 5120 + ({row}) * 128 + c{name} + {first}] * w[{weight}] }} }}",
            count = last - first,
            row = input.replace('y', &format!("y{name}")),
            weight = weight.replace('y', &format!("y{name}")),
        )
    };
    format!(
        "prim_func @f(x: input float32[20480], w: const float32[{weights}],
                      out: output float32[16384]) {{
           for o in serial(4) {{ {} {} }}
         }}",
        run("", 0, 80),
        run("_1", 80, 128),
    )
}

#[test]
fn channels_are_divided_by_rows_of_an_image() {
    let by_rows = |text: &str, threads: u64| {
        let func = run(text, threads, 1);
        let mut found = Vec::new();
        func.body.walk(&mut |stmt| {
            if let Stmt::For { var, extent, kind: ForKind::Parallel, .. } = stmt {
                found.push((func.vars[*var].name.clone(), extent.as_int().unwrap()));
            }
        });
        found
    };
    let rows = |parts: i64| [("rows".to_owned(), parts)];
    let text = depthwise(32, "y + 1", "o", 4);
    assert_eq!(by_rows(&text, 2), rows(8));
    assert_eq!(by_rows(&text, 4), rows(8));
    // Each of eight threads would have 2 KB of each channel: the runs of columns are divided instead.
    assert_eq!(by_rows(&text, 8), [("y".to_owned(), 32), ("y_1".to_owned(), 32)]);
    // Fewer than four rows are not worth it, nor is a division that leaves a thread with more than half.
    assert_eq!(by_rows(&depthwise(7, "y", "o", 4), 2), [("o".to_owned(), 4)]);
    assert_eq!(by_rows(&depthwise(9, "y", "o", 4), 2), [("o".to_owned(), 4)]);
    // Weights that are as large as the image; none that belong to a channel; those of a row.
    assert_eq!(by_rows(&depthwise(32, "y", "o", 32768), 2), [("o".to_owned(), 4)]);
    assert_eq!(by_rows(&depthwise(32, "y", "0", 4), 2), [("o".to_owned(), 4)]);
    assert_eq!(by_rows(&depthwise(32, "y", "o * 32 + y", 128), 2), [("o".to_owned(), 4)]);
}

#[test]
fn rows_that_need_each_other_are_not_divided() {
    // The second run reads what the first has stored, of the row before.
    let text = depthwise(32, "y", "o", 4).replacen(
        "x[o * 5120 + (y_1) * 128 + c_1 + 80]",
        "out[o * 4096 + max(y_1 - 1, 0) * 128 + 79]",
        1,
    );
    assert!(text.contains("max(y_1 - 1, 0)"));
    assert_eq!(parallel(&text, 1), [("o".to_owned(), 4)]);
}

/// What a channel stores for itself is read by other rows than those of the part.
#[test]
fn rows_of_a_buffer_of_the_channel_are_not_divided() {
    let text = "prim_func @f(x: input float32[2048], w: const float32[4], out: output float32[2048]) {
        for o in serial(4) { allocate t: local float32[512] { block \"rows\" {
          for y in serial(32) { for c in serial(16) { t[y * 16 + c] = x[o * 512 + y * 16 + c] * w[o] } }
          for z in serial(32) { for d in serial(16) {
            out[o * 512 + z * 16 + d] = t[max(z - 1, 0) * 16 + d] * w[o] } } } } } }";
    assert_eq!(parallel(text, 1), [("o".to_owned(), 4)]);
}

#[test]
fn parts_of_rows_compute_the_same() {
    for rows in [16, 29, 32] {
        let text = depthwise(rows, "y + 2", "o", 4);
        let values = |func: &PrimFunc| {
            let numbers = |count: usize| {
                (0..count).flat_map(|i| (i as f32 / 7.0).sin().to_le_bytes()).collect::<Vec<u8>>()
            };
            let mut args = [numbers(20480), numbers(4), vec![0; 4 * 16384]];
            interpret(func, &mut args, &[]).unwrap();
            args
        };
        for threads in [2, 3, 4] {
            let func = run(&text, threads, 1);
            assert_ne!(func.body, parse(&text).unwrap().body);
            assert_eq!(values(&func), values(&parse(&text).unwrap()), "{rows}, {threads}");
        }
    }
}
