//! Options that fix a problem, spelled as whoever reads about it would write them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ir::Dim;

/// Whether the reader has typed a command, and has no build script.
static IN_COMMAND: AtomicBool = AtomicBool::new(false);

/// Has options spelled as arguments of the command `niello` from here on, in this process.
#[cfg(feature = "cli")]
pub(crate) fn spell_options_as_arguments() {
    IN_COMMAND.store(true, Ordering::Relaxed);
}

/// Whether options are spelled as arguments of the command.
pub(crate) fn options_are_arguments() -> bool {
    IN_COMMAND.load(Ordering::Relaxed)
}

/// An option of a compilation that is about something with a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    /// The size of a symbolic dimension.
    Dim,
    /// The shape of an input.
    InputShape,
    /// The value of an input.
    InputValue,
    /// A folder that links to external data may lead to.
    ExternalDataFolder,
    /// A pass that must not run.
    DisablePass,
}

impl Setting {
    /// The option for the thing of that name: `.dim("batch", N)` or `--dim batch=N`.
    pub(crate) fn of(self, name: &str) -> String {
        self.spelled(name, options_are_arguments())
    }

    fn spelled(self, name: &str, as_argument: bool) -> String {
        if !as_argument {
            return match self {
                Setting::Dim => format!(".dim({name:?}, N)"),
                Setting::InputShape => format!(".input_shape({name:?}, [N, ..])"),
                Setting::InputValue => format!(".input_value({name:?}, VALUE)"),
                Setting::ExternalDataFolder => format!(".external_data_folder({name:?})"),
                Setting::DisablePass => format!(".disable_pass({name:?})"),
            };
        }
        let (option, value) = match self {
            Setting::Dim => ("--dim", "=N"),
            Setting::InputShape => ("--input-shape", "=N,.."),
            Setting::InputValue => ("--input-value", "=VALUE"),
            Setting::ExternalDataFolder => ("--external-data-folder", ""),
            Setting::DisablePass => ("--disable-pass", ""),
        };
        // Any other character may mean something to a shell.
        let plain = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
        match name.chars().all(plain) && !name.is_empty() {
            true => format!("{option} {name}{value}"),
            false => format!("{option} '{name}{value}'"),
        }
    }

    /// The options for several things, as one list.
    pub(crate) fn of_all<'a>(self, names: impl IntoIterator<Item = &'a str>) -> String {
        names.into_iter().map(|name| self.of(name)).collect::<Vec<_>>().join(" ")
    }
}

/// How to pin the symbols that these extents consist of, if there are any.
pub(crate) fn pin<'d>(dims: impl IntoIterator<Item = &'d Dim>) -> Option<String> {
    let symbols: BTreeSet<_> = dims.into_iter().flat_map(Dim::symbols).collect();
    let what = match symbols.len() {
        0 => return None,
        1 => "pin it",
        _ => "pin them",
    };
    Some(format!("{what}: {}", Setting::Dim.of_all(symbols.iter().map(|symbol| symbol.name()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_extents_are_pinned_once_each() {
        let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
        let dims = [&n * Dim::from(2) + &m, m.clone(), Dim::from(3)];
        assert_eq!(pin(&dims), Some("pin them: .dim(\"m\", N) .dim(\"n\", N)".to_owned()));
        assert_eq!(pin([&m]), Some("pin it: .dim(\"m\", N)".to_owned()));
        assert_eq!(pin([&Dim::from(3)]), None);
    }

    #[test]
    fn options_are_spelled_for_build_scripts_and_for_commands() {
        let both =
            |setting: Setting, name| (setting.spelled(name, false), setting.spelled(name, true));
        let pair = |rust: &str, command: &str| (rust.to_owned(), command.to_owned());
        assert_eq!(both(Setting::Dim, "batch"), pair(".dim(\"batch\", N)", "--dim batch=N"));
        assert_eq!(both(Setting::Dim, "a b"), pair(".dim(\"a b\", N)", "--dim 'a b=N'"));
        assert_eq!(
            both(Setting::InputShape, "x"),
            pair(".input_shape(\"x\", [N, ..])", "--input-shape x=N,..")
        );
        assert_eq!(
            both(Setting::InputValue, "sr"),
            pair(".input_value(\"sr\", VALUE)", "--input-value sr=VALUE")
        );
        assert_eq!(Setting::Dim.of_all(["m", "n"]), ".dim(\"m\", N) .dim(\"n\", N)");
    }
}
