//! Runs two compiled ONNX models.

mod affine {
    niello_runtime::include_model!("affine");
}

mod dense {
    niello_runtime::include_model!("dense");
}

mod batches {
    niello_runtime::include_model!("batches");
}

fn main() {
    let mut model = affine::Model::new();
    let outputs = model.run(&affine::Inputs { x_0: &[1.0, -2.0, 3.5] });
    println!("{:?} {:?}", outputs.r#type, affine::NAME);
    let mut model = dense::Model::new();
    let outputs = model.run(&dense::Inputs { tensor_12: &[1.0, 2.0, 3.0, 4.0] });
    println!("{:?} {:?}", outputs.y, dense::inputs::tensor_12::SHAPE);
    let mut model = batches::Model::new();
    for rows in [&[1.0, 2.0][..], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]] {
        match model.run(&batches::Inputs { tensor_12: rows }) {
            Ok(outputs) => println!("{:?}", outputs.y),
            Err(error) => println!("{error}"),
        }
    }
    let mut y = [0.0; 1];
    let inputs = batches::Inputs { tensor_12: &[1.0, 2.0] };
    let error = model.run_into(&inputs, &mut batches::OutputsMut { y: &mut y }).unwrap_err();
    println!("{error}");
}
