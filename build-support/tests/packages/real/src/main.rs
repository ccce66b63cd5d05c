//! Runs two compiled ONNX models.

mod affine {
    niello_runtime::include_model!("affine");
}

mod dense {
    niello_runtime::include_model!("dense");
}

fn main() {
    let mut model = affine::Model::new();
    let outputs = model.run(&affine::Inputs { x_0: &[1.0, -2.0, 3.5] });
    println!("{:?} {:?}", outputs.r#type, affine::NAME);
    let mut model = dense::Model::new();
    let outputs = model.run(&dense::Inputs { tensor_12: &[1.0, 2.0, 3.0, 4.0] });
    println!("{:?} {:?}", outputs.y, dense::inputs::tensor_12::SHAPE);
}
