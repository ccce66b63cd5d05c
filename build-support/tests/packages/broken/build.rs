//! A model whose file comes and goes; a factor of 13 has two problems.

use niello_build::niello::diagnostics::{Problem, Report};

fn main() {
    println!("cargo::rustc-env=RUNS={:?}", std::time::SystemTime::now());
    let result = niello_build::configure("late.onnx").try_compile_with(|path, options| {
        if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "13") {
            let mut report = Report::new();
            report.push(Problem::new("first problem\nwith details").help("choose another factor"));
            report.push(Problem::new("second problem"));
            return Err(report);
        }
        handmade::scale(path, options)
    });
    result.map(drop).unwrap_or_else(|errors| errors.exit());
}
