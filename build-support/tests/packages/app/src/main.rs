//! A binary beside a library: each includes a model of its own.

mod triple {
    niello_runtime::include_model!("triple");
}

mod far {
    niello_runtime::include_model!("far");
}

mod dash {
    niello_runtime::include_model!("a-b");
}

mod line {
    niello_runtime::include_model!("a_b");
}

mod japan {
    niello_runtime::include_model!("日本");
}

mod china {
    niello_runtime::include_model!("中国");
}

fn main() {
    let x = [1.0, 2.0];
    let mut double = app::double::Model::new();
    println!("double {:?}", double.run(&app::double::Inputs { x: &x }).y);
    println!("triple {:?}", triple::Model::new().run(&triple::Inputs { x: &x }).y);

    println!("a-b {:?}", dash::Model::new().run(&dash::Inputs { x: &x }).y);
    println!("a_b {:?}", line::Model::new().run(&line::Inputs { x: &x }).y);
    println!("日本 {:?}", japan::Model::new().run(&japan::Inputs { x: &x }).y);
    println!("中国 {:?}", china::Model::new().run(&china::Inputs { x: &x }).y);

    static WEIGHTS: &niello_runtime::Aligned<[u8]> =
        &niello_runtime::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/far.bin")));
    let mut model = far::Model::with_weights(&WEIGHTS.0).expect("the weights are this build's");
    println!("far {:?}", model.run(&far::Inputs { x: &x }).y);
    let mut workspace = far::Workspace::new();
    let mut model =
        far::Model::with_weights_and_workspace(&WEIGHTS.0, &mut workspace).expect("as above");
    println!("far {:?}", model.run(&far::Inputs { x: &x }).y);
    let error = far::Model::with_weights(&WEIGHTS.0[..4]).unwrap_err();
    println!("{error}");
}
