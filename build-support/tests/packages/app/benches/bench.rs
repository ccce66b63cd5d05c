//! A benchmark that includes a model of the library.

mod double {
    niello_runtime::include_model!("double");
}

fn main() {
    let x = [3.0, 4.0];
    let mine = *double::Model::new().run(&double::Inputs { x: &x }).y;
    assert_eq!(mine, [6.5, 8.25]);
    assert_eq!(mine, *app::double::Model::new().run(&app::double::Inputs { x: &x }).y);
    assert_eq!(double::DIGEST, app::double::DIGEST);
}
