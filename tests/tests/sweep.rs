//! The own tests of the sweep over random models, which are Python as it is.

use niello_tests::python;

#[test]
fn the_models_of_the_sweep_are_valid_and_its_numbers_are_what_was_measured() {
    let Some(mut python) = python("the sweep over random models") else { return };
    let output = python
        .args(["-m", "unittest", "discover", "-s", "tests/bench"])
        .output()
        .expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // No test at all would be a success, too.
    assert!(errors.lines().any(|line| line == "OK") && errors.contains("\nRan "), "{errors}");
}
