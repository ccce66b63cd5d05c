//! Two versions of a package, each with its model.

fn main() {
    println!("{:?} {:?}", one::run([1.0, 2.0]), two::run([1.0, 2.0]));
}
