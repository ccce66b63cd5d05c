//! The fuzzer's own tests, which are Python as it is.

use niello_tests::python;

#[test]
fn the_fuzzer_of_onnx_graphs_finds_what_is_wrong_and_nothing_else() {
    let Some(mut python) = python("the fuzzer of ONNX graphs") else { return };
    let output = python
        .args(["-m", "unittest", "discover", "-s", "tests/fuzz"])
        .output()
        .expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // No test at all would be a success, too.
    assert!(errors.lines().any(|line| line == "OK") && errors.contains("\nRan "), "{errors}");
}
