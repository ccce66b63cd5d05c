//! What functions are built for, as TVM writes it: `llvm -mcpu=native`.

use std::fmt;
use std::str::FromStr;

use crate::diagnostics::suggest;
use crate::options::{Backend, UnknownBackend};
use crate::target::{Target, TargetError};

/// How code from outside calls the functions of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum InterfaceApi {
    /// Pointers to the buffers, as parameters of C.
    #[default]
    C,
    /// TVM's packed functions, whose arguments are `DLTensor`s: see [`build`](super::build).
    Packed,
}

impl InterfaceApi {
    /// Every interface.
    pub const ALL: [InterfaceApi; 2] = [InterfaceApi::C, InterfaceApi::Packed];

    /// The name in a target's text.
    pub fn name(self) -> &'static str {
        match self {
            InterfaceApi::C => "c",
            InterfaceApi::Packed => "packed",
        }
    }
}

/// What functions are built for: a code generator and a machine.
///
/// The text is TVM's: the target's kind, `c` or `llvm`, then options in any order.
///
/// | option | meaning | without it |
/// |---|---|---|
/// | `-mtriple=aarch64-unknown-linux-gnu` | architecture and system | this machine's |
/// | `-mcpu=x86-64-v3` | a CPU by its name; `native` is this machine's | the least of the architecture |
/// | `-mattr=+avx2,-fma` | features beside the CPU's (`+`), or without which it is used (`-`), in order | the CPU's |
/// | `-vector-width=256` | bits of the widest vectors to use | the widest registers |
/// | `-interface-api=packed` | functions can be called as TVM's packed functions, too | `c` |
///
/// ```
/// # use niello::driver::BuildTarget;
/// let target: BuildTarget = "c -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v4 -vector-width=256".parse()?;
/// assert_eq!(target.machine.vector_bits(), 256);
/// # Ok::<(), niello::driver::BuildTargetError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildTarget {
    /// The target's kind: the code generator.
    pub kind: Backend,
    /// The machine.
    pub machine: Target,
    /// How code from outside calls the functions.
    pub interface_api: InterfaceApi,
}

/// Why a text names no target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildTargetError {
    /// There is no text.
    Empty,
    /// The kind is not one of this build of niello.
    Kind(UnknownBackend),
    /// Something is no option.
    UnknownOption(String),
    /// An option is there twice.
    Repeated(&'static str),
    /// The value of an option is not understood: option, value, what is understood.
    BadValue(&'static str, String, String),
    /// The machine cannot be described.
    Machine(TargetError),
}

impl fmt::Display for BuildTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildTargetError::Empty => {
                f.write_str("a target begins with its kind: `c` or `llvm`, as in `c -mcpu=native`")
            }
            BuildTargetError::Kind(error) => error.fmt(f),
            BuildTargetError::UnknownOption(option) => {
                write!(f, "`{option}` is no option of a target; known are ")?;
                for (number, name) in OPTIONS.iter().enumerate() {
                    write!(f, "{}-{name}=", if number > 0 { ", " } else { "" })?;
                }
                let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
                match suggest(name, OPTIONS) {
                    Some(near) => write!(f, "; did you mean -{near}=?"),
                    None => Ok(()),
                }
            }
            BuildTargetError::Repeated(option) => {
                write!(f, "the option -{option} of the target is given twice")
            }
            BuildTargetError::BadValue(option, value, expected) => {
                write!(f, "-{option} of the target cannot be `{value}`; it is {expected}")
            }
            BuildTargetError::Machine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildTargetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildTargetError::Kind(error) => Some(error),
            BuildTargetError::Machine(error) => Some(error),
            BuildTargetError::Empty
            | BuildTargetError::UnknownOption(_)
            | BuildTargetError::Repeated(_)
            | BuildTargetError::BadValue(..) => None,
        }
    }
}

impl From<TargetError> for BuildTargetError {
    fn from(error: TargetError) -> Self {
        BuildTargetError::Machine(error)
    }
}

/// The options, in the order in which they are applied and printed.
const OPTIONS: [&str; 5] = ["mtriple", "mcpu", "mattr", "vector-width", "interface-api"];

impl BuildTarget {
    /// This machine's own CPU, by a code generator.
    pub fn native(kind: Backend) -> BuildTarget {
        // This machine's own architecture is the only condition.
        let machine = Target::host().with_cpu("native").unwrap_or_else(|_| Target::host());
        BuildTarget { kind, machine, interface_api: InterfaceApi::default() }
    }

    fn set(&mut self, option: &'static str, value: &str) -> Result<(), BuildTargetError> {
        let bad =
            |expected: String| Err(BuildTargetError::BadValue(option, value.to_owned(), expected));
        let machine = self.machine.clone();
        match option {
            "mtriple" => self.machine = Target::from_triple(value)?,
            "mcpu" => self.machine = machine.with_cpu(value)?,
            "mattr" => {
                self.machine = machine;
                for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                    let (name, enabled) = match (word.strip_prefix('+'), word.strip_prefix('-')) {
                        (Some(name), _) => (name, true),
                        (_, Some(name)) => (name, false),
                        _ => return bad("a list of features, each after `+` or `-`".to_owned()),
                    };
                    self.machine = self.machine.clone().with_feature(name, enabled)?;
                }
            }
            "vector-width" => match value.parse() {
                Ok(bits) => self.machine = machine.with_vector_width(bits)?,
                Err(_) => return bad("a number of bits".to_owned()),
            },
            _ => match InterfaceApi::ALL.into_iter().find(|api| api.name() == value) {
                Some(api) => self.interface_api = api,
                None => return bad(InterfaceApi::ALL.map(InterfaceApi::name).join(" or ")),
            },
        }
        Ok(())
    }
}

impl FromStr for BuildTarget {
    type Err = BuildTargetError;

    fn from_str(text: &str) -> Result<Self, BuildTargetError> {
        let mut words = text.split_whitespace();
        let kind = words.next().ok_or(BuildTargetError::Empty)?;
        let kind = kind.parse().map_err(BuildTargetError::Kind)?;
        let mut values: [Option<&str>; OPTIONS.len()] = [None; OPTIONS.len()];
        for word in words {
            let option = word.strip_prefix('-').and_then(|rest| rest.split_once('='));
            let known = option.and_then(|(name, value)| {
                let place = OPTIONS.iter().position(|option| *option == name)?;
                Some((OPTIONS[place], values.get_mut(place)?, value))
            });
            let Some((name, place, value)) = known else {
                return Err(BuildTargetError::UnknownOption(word.to_owned()));
            };
            if place.replace(value).is_some() {
                return Err(BuildTargetError::Repeated(name));
            }
        }
        let interface_api = InterfaceApi::default();
        let mut target = BuildTarget { kind, machine: Target::host(), interface_api };
        for (option, value) in OPTIONS.into_iter().zip(values) {
            if let Some(value) = value {
                target.set(option, value)?;
            }
        }
        Ok(target)
    }
}

/// The text that names the target: what parses to it on every machine, but for `-mcpu=native`.
impl fmt::Display for BuildTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BuildTarget { kind, machine, interface_api } = self;
        write!(f, "{kind} -mtriple={}", machine.triple)?;
        if let Some(cpu) = &machine.cpu {
            write!(f, " -mcpu={cpu}")?;
        }
        let plain = Target::from_triple(&machine.triple).ok();
        let plain = plain.map(|plain| match &machine.cpu {
            Some(cpu) => plain.clone().with_cpu(cpu).unwrap_or(plain),
            None => plain,
        });
        let usual = plain.map(|plain| plain.features).unwrap_or_default();
        // What is switched off first could take something with it that is switched on.
        let off = usual.difference(&machine.features).map(|name| format!("-{name}"));
        let on = machine.features.difference(&usual).map(|name| format!("+{name}"));
        let attributes: Vec<String> = off.chain(on).collect();
        if !attributes.is_empty() {
            write!(f, " -mattr={}", attributes.join(","))?;
        }
        if let Some(bits) = machine.vector_width {
            write!(f, " -vector-width={bits}")?;
        }
        match interface_api {
            InterfaceApi::C => Ok(()),
            InterfaceApi::Packed => write!(f, " -interface-api={}", interface_api.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> BuildTarget {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> String {
        text.parse::<BuildTarget>().unwrap_err().to_string()
    }

    const X86: &str = "-mtriple=x86_64-unknown-linux-gnu";

    #[test]
    fn options_describe_the_machine() {
        assert_eq!(parse("c").machine, Target::host());
        let native = parse(&format!("{} -mcpu=native", Backend::ALL[Backend::ALL.len() - 1]));
        assert_eq!(native, BuildTarget::native(Backend::ALL[Backend::ALL.len() - 1]));

        let v3 = parse(&format!("c -mcpu=x86-64-v3 {X86}")).machine;
        assert_eq!((v3.arch.as_str(), v3.vector_bits(), v3.has_fma()), ("x86_64", 256, true));
        let narrow = parse(&format!("c {X86} -vector-width=128 -mcpu=x86-64-v3")).machine;
        assert_eq!((narrow.vector_bits(), narrow.has_fma()), (128, true));
        let attributes = parse(&format!("c {X86} -mattr=+avx2,+fma,-bmi")).machine;
        assert_eq!(attributes.vector_bits(), 256);
        assert!(attributes.has_fma() && !attributes.has_feature("bmi1"));
        let packed = parse("c -interface-api=packed");
        assert_eq!(packed.interface_api, InterfaceApi::Packed);
    }

    #[test]
    fn the_text_parses_back() {
        for options in [
            "",
            "-mcpu=x86-64-v3",
            "-mattr=+avx2,+fma",
            "-mcpu=x86-64-v4 -mattr=-avx512vl,+lzcnt -vector-width=128",
            "-mcpu=x86-64-v3 -mattr=-avx2 -interface-api=packed",
        ] {
            let target = parse(&format!("c {X86} {options}"));
            assert_eq!(parse(&target.to_string()), target, "{target}");
        }
    }

    #[test]
    fn unknown_options_are_named_with_the_known_ones() {
        assert!(error(" ").contains("`c` or `llvm`"));
        assert!(error("cuda -mcpu=native").starts_with("`cuda` is not a backend"));
        let unknown = error("c -mpcu=native");
        assert!(unknown.contains("`-mpcu=native`") && unknown.contains("did you mean -mcpu=?"));
        assert!(error("c -vector-width").contains("known are -mtriple=, -mcpu="));
        assert!(
            error("c -mcpu=native -mcpu=native").contains("-mcpu of the target is given twice")
        );
        assert!(error(&format!("c {X86} -mcpu=pentium")).contains("x86-64-v3"));
        assert!(error(&format!("c {X86} -mattr=+neon")).contains("avx512vnni"));
        assert!(error("c -mattr=avx2").contains("after `+` or `-`"));
        assert!(error("c -vector-width=wide").contains("a number of bits"));
        assert!(error(&format!("c {X86} -vector-width=256")).contains("registers of 128 bits"));
        assert!(error("c -interface-api=rust").contains("c or packed"));
        assert!(error("c -mtriple=vax-dec-vms").contains("`vax`"));
    }
}
