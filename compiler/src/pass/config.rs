//! Options of passes: typed keys, registered where they are read, checked when a context is built.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::diagnostics::{Origin, Problem, Report, suggest};

/// A value of any type, as contexts hold it.
pub(super) type AnyValue = Arc<dyn Any + Send + Sync>;

/// The type of an option's value: any type that serde can read, such as `bool`, `i64`, `String`, or
/// a
/// struct with `#[serde(default, deny_unknown_fields)]` for partial maps.
pub trait ConfigValue: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> ConfigValue for T {}

/// An option that passes read from the context: the only way to it, so that its type is known.
///
/// Made by [`register_pass_config_option!`](crate::register_pass_config_option).
pub struct ConfigKey<T> {
    name: &'static str,
    default: fn() -> T,
}

impl<T: ConfigValue> ConfigKey<T> {
    /// The key of a registered option.
    #[doc(hidden)]
    pub const fn new(name: &'static str, default: fn() -> T) -> ConfigKey<T> {
        ConfigKey { name, default }
    }

    /// The option's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The value in contexts that do not set the option.
    pub fn default_value(&self) -> T {
        (self.default)()
    }
}

impl<T> Clone for ConfigKey<T> {
    fn clone(&self) -> ConfigKey<T> {
        *self
    }
}

impl<T> Copy for ConfigKey<T> {}

impl<T> fmt::Debug for ConfigKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigKey({})", self.name)
    }
}

/// A registered option.
pub struct ConfigEntry {
    /// The option's name.
    pub name: &'static str,
    /// The purpose of the option.
    pub doc: &'static str,
    /// Where it is defined.
    pub origin: Origin,
    type_name: fn() -> String,
    default: fn() -> String,
    parse: fn(&serde_json::Value) -> Result<AnyValue, String>,
    to_json: fn(&AnyValue) -> Option<serde_json::Value>,
}

inventory::collect!(ConfigEntry);

/// Implemented by the type that the macro generates for an option, to keep its expansion short.
#[doc(hidden)]
pub trait ConfigOption {
    /// The type of the option's value.
    type Value: ConfigValue;
    /// The value if the option is not set.
    fn default_value() -> Self::Value;
}

impl ConfigEntry {
    /// The entry of an option.
    #[doc(hidden)]
    pub const fn of<O: ConfigOption>(
        name: &'static str,
        doc: &'static str,
        origin: Origin,
    ) -> ConfigEntry {
        ConfigEntry {
            name,
            doc,
            origin,
            type_name: short_type_name::<O::Value>,
            default: || serde_json::to_string(&O::default_value()).unwrap_or_default(),
            parse: |value| {
                O::Value::deserialize(value)
                    .map(|value| Arc::new(value) as AnyValue)
                    .map_err(|error| error.to_string())
            },
            to_json: |value| serde_json::to_value(value.downcast_ref::<O::Value>()?).ok(),
        }
    }

    /// The type of the option's value.
    pub fn type_name(&self) -> String {
        (self.type_name)()
    }

    /// The value that a context holds for this JSON.
    pub(super) fn parse(&self, value: &serde_json::Value) -> Result<AnyValue, String> {
        (self.parse)(value)
    }

    /// The JSON of a value that a context holds for this option.
    pub(super) fn to_json(&self, value: &AnyValue) -> Option<serde_json::Value> {
        (self.to_json)(value)
    }

    /// The fields of the option with their defaults, if it is a struct.
    pub(crate) fn default_fields(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::from_str(&self.default_json()).unwrap_or_default()
    }

    /// The value if the option is not set, as JSON.
    pub fn default_json(&self) -> String {
        (self.default)()
    }
}

impl fmt::Debug for ConfigEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigEntry({}: {})", self.name, self.type_name())
    }
}

/// The name of a type without the modules it is in: `Vec<String>`.
fn short_type_name<T>() -> String {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let mut name = String::new();
    let mut rest = std::any::type_name::<T>();
    while !rest.is_empty() {
        let path = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        name += rest[..path].rsplit("::").next().unwrap_or_default();
        let other = rest[path..].find(is_path).map_or(rest.len(), |at| path + at);
        name += &rest[path..other];
        rest = &rest[other..];
    }
    name
}

/// Every registered option of every linked crate, in the order of their names.
pub fn list_configs() -> Vec<&'static ConfigEntry> {
    let mut entries: Vec<&ConfigEntry> = inventory::iter::<ConfigEntry>().collect();
    entries.sort_by_key(|entry| (entry.name, entry.origin));
    entries
}

/// Options that were registered under one name in several places.
pub(super) fn duplicates() -> Report {
    let mut report = Report::new();
    for same in list_configs().chunk_by(|a, b| a.name == b.name).filter(|same| same.len() > 1) {
        report.push(duplicate(same));
    }
    report
}

fn duplicate(same: &[&ConfigEntry]) -> Problem {
    let places: Vec<String> = same.iter().map(|entry| entry.origin.to_string()).collect();
    Problem::new(format!(
        "the option `{}` is registered in {} places: {}",
        same[0].name,
        if places.len() == 2 { "two".to_owned() } else { places.len().to_string() },
        places.join(" and ")
    ))
}

/// Checks values against the registered options; reports every problem in the order of the names.
pub(super) fn check(
    values: &IndexMap<String, serde_json::Value>,
    report: &mut Report,
) -> IndexMap<&'static str, AnyValue> {
    let entries = list_configs();
    let mut checked = IndexMap::new();
    let mut names: Vec<&String> = values.keys().collect();
    names.sort();
    for name in names {
        let known = || entries.iter().map(|entry| entry.name);
        let same: Vec<&ConfigEntry> =
            entries.iter().copied().filter(|entry| entry.name == name.as_str()).collect();
        if same.len() > 1 {
            report.push(duplicate(&same));
            continue;
        }
        let Some(entry) = same.first() else {
            let mut problem = Problem::new(format!("there is no option `{name}`"));
            let mut all: Vec<&str> = known().collect();
            all.dedup();
            problem = problem.help(match suggest(name, known()) {
                Some(near) => format!("did you mean `{near}`? the options are {}", all.join(", ")),
                None => format!("the options are {}", all.join(", ")),
            });
            report.push(problem);
            continue;
        };
        match entry.parse(&values[name]) {
            Ok(value) => {
                checked.insert(entry.name, value);
            }
            Err(error) => {
                let message = format!("option `{name}` takes {}: {error}", entry.type_name());
                let problem = Problem::new(message);
                report.push(match suggest_field(&error) {
                    Some(field) => problem.help(format!("did you mean `{field}`?")),
                    None => problem,
                });
            }
        }
    }
    checked
}

/// The field that was meant in serde's ``unknown field `x`, expected one of `a`, `b` ``.
fn suggest_field(error: &str) -> Option<&str> {
    let mut quoted = error.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    suggest(unknown, quoted)
}

/// Registers an option of passes and defines the key that reads it.
///
/// ```
/// niello::register_pass_config_option! {
///     /// Whether to fuse my own operator.
///     pub FUSE_MINE: bool = "example.fuse_mine";
///     /// How many of them in a row.
///     pub MINE_IN_A_ROW: u32 = "example.mine_in_a_row", default = 4;
/// }
/// # fn main() -> Result<(), niello::pass::PassError> {
/// let cx = niello::pass::PassContext::builder().config(&FUSE_MINE, true).build()?;
/// assert_eq!((cx.get(&FUSE_MINE), cx.get(&MINE_IN_A_ROW)), (true, 4));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! register_pass_config_option {
    ($(
        $(#[doc = $doc:literal])*
        $vis:vis $key:ident: $ty:ty = $name:literal $(, default = $default:expr)?;
    )+) => {
        $(
            $(#[doc = $doc])*
            $vis static $key: $crate::pass::ConfigKey<$ty> = {
                struct Option_;
                impl $crate::pass::__private::ConfigOption for Option_ {
                    type Value = $ty;
                    fn default_value() -> $ty {
                        $crate::register_pass_config_option!(@default $($default)?)
                    }
                }
                $crate::pass::__private::inventory::submit! {
                    $crate::pass::ConfigEntry::of::<Option_>(
                        $name,
                        concat!($($doc, "\n",)* ""),
                        $crate::pass::Origin::new(env!("CARGO_PKG_NAME"), file!(), line!()),
                    )
                }
                $crate::pass::ConfigKey::new(
                    $name,
                    <Option_ as $crate::pass::__private::ConfigOption>::default_value,
                )
            };
        )+
    };
    (@default $default:expr) => { $default };
    (@default) => { ::core::default::Default::default() };
    // One option, without the final semicolon.
    ($(#[doc = $doc:literal])* $vis:vis $key:ident: $ty:ty = $name:literal $(, default = $default:expr)?) => {
        $crate::register_pass_config_option! {
            $(#[doc = $doc])* $vis $key: $ty = $name $(, default = $default)?;
        }
    };
}
