//! Runs the large model on a small stack.

mod big {
    niello_runtime::include_model!("big");
}

fn main() {
    let run = || {
        let mut model = Box::new(big::Model::new());
        model.run(&big::Inputs { x: &[1] });
        let outputs = model.run(&big::Inputs { x: &[2] });
        println!("{:?}", outputs.y.last());
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    thread.join().unwrap();
}
