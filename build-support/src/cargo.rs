//! What Cargo tells a build script, and what a build script tells Cargo.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the value of a variable, if it is set.
type Read<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The environment, with a list of the variables that Cargo must watch.
pub(crate) struct Environment<'a> {
    read: Box<Read<'a>>,
    watched: BTreeSet<String>,
}

impl<'a> Environment<'a> {
    /// The environment of this process. A variable that is not Unicode counts as not set.
    pub(crate) fn of_process() -> Self {
        Environment::new(|name| std::env::var(name).ok())
    }

    pub(crate) fn new(read: impl Fn(&str) -> Option<String> + 'a) -> Self {
        Environment { read: Box::new(read), watched: BTreeSet::new() }
    }

    /// A variable that Cargo sets, and so accounts for itself.
    pub(crate) fn cargo(&self, name: &str) -> Option<String> {
        (self.read)(name)
    }

    /// A variable of the user's: Cargo runs the build script again when it changes.
    pub(crate) fn user(&mut self, name: &str) -> Option<String> {
        self.watch(name);
        (self.read)(name)
    }

    /// Cargo runs the build script again when the variable, which others read, changes.
    pub(crate) fn watch(&mut self, name: &str) {
        self.watched.insert(name.to_owned());
    }

    /// Whether Cargo runs this process as a build script.
    ///
    /// `CARGO_CFG_*` are set for build scripts alone; `OUT_DIR` and `CARGO_PKG_*` are set for the
    /// programs that `cargo run` and `cargo test` start as well.
    pub(crate) fn is_build_script(&self) -> bool {
        self.cargo("CARGO_CFG_TARGET_ARCH").is_some() && self.cargo("OUT_DIR").is_some()
    }

    /// Variables that Cargo must watch.
    pub(crate) fn watched(&self) -> impl Iterator<Item = &str> {
        self.watched.iter().map(String::as_str)
    }
}

/// Lines for Cargo, in order.
#[derive(Default, Debug)]
pub(crate) struct Directives {
    lines: Vec<String>,
}

impl Directives {
    /// Runs the build script again when the file changes.
    ///
    /// A path that does not exist would run it on every build, so it is left out: where a file is
    /// missing the build fails, and Cargo repeats a failed build script anyway.
    pub(crate) fn rerun_if_changed(&mut self, path: &Path) {
        if path.exists() {
            self.lines.push(format!("cargo::rerun-if-changed={}", path.display()));
        }
    }

    /// Runs the build script again when the variable changes.
    pub(crate) fn rerun_if_env_changed(&mut self, name: &str) {
        self.lines.push(format!("cargo::rerun-if-env-changed={name}"));
    }

    /// Lets the linker find archives in `folder`.
    ///
    /// The bindings say themselves what to link: Cargo would hand a `rustc-link-lib` to the library
    /// of the package alone, and a model in a binary beside it would not link.
    pub(crate) fn link_search(&mut self, folder: &Path) {
        self.lines.push(format!("cargo::rustc-link-search=native={}", folder.display()));
    }

    /// Fails the build with `message`, which is one line.
    pub(crate) fn error(&mut self, message: &str) {
        self.lines.push(format!("cargo::error={message}"));
    }

    /// The lines, each with its line break.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}
