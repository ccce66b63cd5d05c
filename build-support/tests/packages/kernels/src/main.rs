//! Runs both models.

fn main() {
    println!("{:?}", kernels::results(2.0));
}
