//! A context is left on the thread that entered it; rustc's own message.

use niello::pass::PassContext;

fn main() {
    let guard = PassContext::default().enter().unwrap();
    std::thread::spawn(move || drop(guard));
}
