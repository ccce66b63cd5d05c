//! The description of a pass: name, level, requirements and effects.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use super::{AnalysisRef, Pass, PassBody, PassRef, Property, names};
use crate::ir::IRModule;

/// What a pass works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PassKind {
    /// A whole module.
    Module,
    /// One graph function after the other.
    Function,
    /// One loop function after the other.
    PrimFunc,
    /// Other passes, in order.
    Sequential,
}

impl fmt::Display for PassKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PassKind::Module => "module",
            PassKind::Function => "function",
            PassKind::PrimFunc => "prim_func",
            PassKind::Sequential => "sequential",
        })
    }
}

/// A pass with a type of its own; implemented by the attribute macros.
pub trait NamedPass: Sized {
    /// The registered name.
    const NAME: &'static str;

    /// The pass, unless constructing it needs configuration.
    fn make_default() -> Option<PassRef>;
}

/// Makes a pass of type `P`, if the type is `Default`.
#[doc(hidden)]
pub struct MakePass<P>(PhantomData<P>);

impl<P> MakePass<P> {
    /// The only value of this type.
    pub const NEW: MakePass<P> = MakePass(PhantomData);
}

/// Found first by method resolution, for types that are `Default`.
#[doc(hidden)]
pub trait ByDefault {
    /// The pass.
    fn make_pass(&self) -> Option<PassRef>;
}

impl<P: PassBody + Default> ByDefault for MakePass<P> {
    fn make_pass(&self) -> Option<PassRef> {
        Some(PassRef::new(P::default()))
    }
}

/// Found through one more reference, for types that are not `Default`.
#[doc(hidden)]
pub trait NoDefault {
    /// No pass.
    fn make_pass(&self) -> Option<PassRef>;
}

impl<P> NoDefault for &MakePass<P> {
    fn make_pass(&self) -> Option<PassRef> {
        None
    }
}

/// A pass that another one needs to have run before it.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    name: &'static str,
    make: fn() -> Option<PassRef>,
}

impl Requirement {
    /// Requires the pass of that type; needs no registry.
    pub const fn of<P: NamedPass>() -> Requirement {
        Requirement { name: P::NAME, make: P::make_default }
    }

    /// Requires the registered pass of that name.
    pub const fn named(name: &'static str) -> Requirement {
        Requirement { name, make: || None }
    }

    /// The name of the required pass.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The required pass, unless only the registry knows it.
    pub(super) fn make(&self) -> Option<PassRef> {
        (self.make)()
    }
}

/// The passes whose results, and the analyses whose results, still hold after a pass that changed
/// the module.
#[derive(Clone, Debug)]
pub enum Preserves {
    /// Only those named.
    Only(Cow<'static, [&'static str]>),
    /// All.
    All,
}

impl Preserves {
    /// No results.
    pub const NONE: Preserves = Preserves::Only(Cow::Borrowed(&[]));

    /// Only the results of these passes and analyses.
    pub fn only(names: impl IntoIterator<Item = &'static str>) -> Preserves {
        Preserves::Only(names.into_iter().collect::<Vec<_>>().into())
    }

    /// Whether the result of that pass or analysis still holds.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Preserves::All => true,
            Preserves::Only(list) => list.iter().any(|kept| names::same(kept, name)),
        }
    }
}

/// The description of a pass: its name, the least level at which it runs, its requirements and its
/// effects.
#[derive(Clone, Debug)]
pub struct PassInfo {
    name: Cow<'static, str>,
    kind: PassKind,
    opt_level: u8,
    required: List<Requirement>,
    requires: List<Property>,
    sets: List<Property>,
    clears: List<Property>,
    before: List<Requirement>,
    after: List<Requirement>,
    conflicts: List<Requirement>,
    preserves: Preserves,
    analyses: List<AnalysisRef>,
    summary: Cow<'static, str>,
    holds: Option<fn(&IRModule) -> bool>,
    options: Cow<'static, str>,
    declared_in: &'static str,
}

/// A list, which may be a constant.
type List<T> = Cow<'static, [T]>;

/// The fields of a [`PassInfo`] as a constant; the attribute macros fill it in.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct StaticPassInfo {
    /// The name; must be valid.
    pub name: &'static str,
    /// What the pass works on.
    pub kind: PassKind,
    /// The least level at which it is enabled.
    pub opt_level: u8,
    /// The passes that must have run before it.
    pub required: &'static [Requirement],
    /// The properties that the module must have before it.
    pub requires: &'static [Property],
    /// The properties that the module has after it.
    pub sets: &'static [Property],
    /// The properties that the module may no longer have after it.
    pub clears: &'static [Property],
    /// The passes that must come after it in a list that has both.
    pub before: &'static [Requirement],
    /// The passes that must come before it in a list that has both.
    pub after: &'static [Requirement],
    /// The passes that may not be in the same list.
    pub conflicts: &'static [Requirement],
    /// The results that it preserves; `None` for all.
    pub preserves: Option<&'static [&'static str]>,
    /// The analyses of the module that are computed before it begins.
    pub analyses: &'static [AnalysisRef],
    /// The first line of its documentation.
    pub summary: &'static str,
    /// Whether the module already has what the pass would establish.
    pub holds: Option<fn(&IRModule) -> bool>,
    /// The path of the Rust module that declares it.
    pub declared_in: &'static str,
}

impl PassInfo {
    /// The description of a pass of a whole module that needs nothing; refine it with
    /// [`requiring`](Self::requiring) and the like.
    ///
    /// # Errors
    ///
    /// If the name is empty or has blanks or any of `,(){}=`, which textual pipelines need.
    pub fn new(name: impl Into<String>, opt_level: u8) -> Result<PassInfo, InvalidPassName> {
        let name = name.into();
        if !names::is_valid(&name) {
            return Err(InvalidPassName(name));
        }
        Ok(PassInfo {
            name: Cow::Owned(name),
            kind: PassKind::Module,
            opt_level,
            required: Cow::Borrowed(&[]),
            requires: Cow::Borrowed(&[]),
            sets: Cow::Borrowed(&[]),
            clears: Cow::Borrowed(&[]),
            before: Cow::Borrowed(&[]),
            after: Cow::Borrowed(&[]),
            conflicts: Cow::Borrowed(&[]),
            preserves: Preserves::NONE,
            analyses: Cow::Borrowed(&[]),
            summary: Cow::Borrowed(""),
            holds: None,
            options: Cow::Borrowed(""),
            declared_in: "",
        })
    }

    /// The description of a pass from a constant.
    #[doc(hidden)]
    pub const fn from_static(info: StaticPassInfo) -> PassInfo {
        PassInfo {
            name: Cow::Borrowed(info.name),
            kind: info.kind,
            opt_level: info.opt_level,
            required: Cow::Borrowed(info.required),
            requires: Cow::Borrowed(info.requires),
            sets: Cow::Borrowed(info.sets),
            clears: Cow::Borrowed(info.clears),
            before: Cow::Borrowed(info.before),
            after: Cow::Borrowed(info.after),
            conflicts: Cow::Borrowed(info.conflicts),
            preserves: match info.preserves {
                Some(kept) => Preserves::Only(Cow::Borrowed(kept)),
                None => Preserves::All,
            },
            analyses: Cow::Borrowed(info.analyses),
            summary: Cow::Borrowed(info.summary),
            holds: info.holds,
            options: Cow::Borrowed(""),
            declared_in: info.declared_in,
        }
    }

    /// Adds passes that must have run before this one.
    #[must_use]
    pub fn requiring(mut self, required: impl IntoIterator<Item = Requirement>) -> PassInfo {
        self.required.to_mut().extend(required);
        self
    }

    /// Adds properties that the module must have before this pass runs.
    #[must_use]
    pub fn needing(mut self, properties: impl IntoIterator<Item = Property>) -> PassInfo {
        self.requires.to_mut().extend(properties);
        self
    }

    /// Adds properties that the module has after this pass.
    #[must_use]
    pub fn setting(mut self, properties: impl IntoIterator<Item = Property>) -> PassInfo {
        self.sets.to_mut().extend(properties);
        self
    }

    /// Adds properties that the module may no longer have after this pass.
    #[must_use]
    pub fn clearing(mut self, properties: impl IntoIterator<Item = Property>) -> PassInfo {
        self.clears.to_mut().extend(properties);
        self
    }

    /// Adds passes that must come after this one in a list that has both.
    #[must_use]
    pub fn going_before(mut self, passes: impl IntoIterator<Item = Requirement>) -> PassInfo {
        self.before.to_mut().extend(passes);
        self
    }

    /// Adds passes that must come before this one in a list that has both.
    #[must_use]
    pub fn going_after(mut self, passes: impl IntoIterator<Item = Requirement>) -> PassInfo {
        self.after.to_mut().extend(passes);
        self
    }

    /// Adds passes that may not be in the same list.
    #[must_use]
    pub fn conflicting_with(mut self, passes: impl IntoIterator<Item = Requirement>) -> PassInfo {
        self.conflicts.to_mut().extend(passes);
        self
    }

    /// Adds analyses of the module that are computed before this pass begins.
    #[must_use]
    pub fn analysing(mut self, analyses: impl IntoIterator<Item = AnalysisRef>) -> PassInfo {
        self.analyses.to_mut().extend(analyses);
        self
    }

    /// Says which earlier results still hold after this pass, even if it changes the module.
    #[must_use]
    pub fn preserving(mut self, preserves: Preserves) -> PassInfo {
        self.preserves = preserves;
        self
    }

    /// Sets the one-line summary.
    #[must_use]
    pub fn describing(mut self, summary: impl Into<String>) -> PassInfo {
        self.summary = Cow::Owned(summary.into());
        self
    }

    pub(super) fn with_kind(mut self, kind: PassKind) -> PassInfo {
        self.kind = kind;
        self
    }

    pub(super) fn with_options(mut self, options: String) -> PassInfo {
        self.options = Cow::Owned(options);
        self
    }

    /// The pass's own options in a textual pipeline, as they stand between the braces; empty if
    /// there are none.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// The pass as it is written in a textual pipeline: `FuseOps{max_depth=10}`.
    pub fn text(&self) -> String {
        match self.options() {
            "" => self.name().to_owned(),
            options => format!("{}{{{options}}}", self.name()),
        }
    }

    /// The name: what contexts, instruments and textual pipelines call the pass.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the pass works on.
    pub fn kind(&self) -> PassKind {
        self.kind
    }

    /// The least level of the context at which a [`Sequential`](super::Sequential) runs the pass.
    pub fn opt_level(&self) -> u8 {
        self.opt_level
    }

    /// The passes that must have run before this one.
    pub fn required(&self) -> &[Requirement] {
        &self.required
    }

    /// The properties that the module must have before this pass.
    pub fn requires(&self) -> &[Property] {
        &self.requires
    }

    /// The properties that the module has after this pass.
    pub fn sets(&self) -> &[Property] {
        &self.sets
    }

    /// The properties that the module may no longer have after this pass.
    pub fn clears(&self) -> &[Property] {
        &self.clears
    }

    /// The passes that come after this one in a list that has both.
    pub fn before(&self) -> &[Requirement] {
        &self.before
    }

    /// The passes that come before this one in a list that has both.
    pub fn after(&self) -> &[Requirement] {
        &self.after
    }

    /// The passes that may not be in the same list.
    pub fn conflicts(&self) -> &[Requirement] {
        &self.conflicts
    }

    /// The analyses of the module that are computed before this pass begins.
    pub fn analyses(&self) -> &[AnalysisRef] {
        &self.analyses
    }

    /// Which results of earlier passes, and which analyses, still hold after this pass.
    pub fn preserves(&self) -> &Preserves {
        &self.preserves
    }

    /// As if niello itself declared the pass.
    #[cfg(test)]
    pub(super) fn of_niello(mut self) -> PassInfo {
        self.declared_in = module_path!();
        self
    }

    /// Whether niello itself declares the pass by an attribute. What others make is verified.
    pub(super) fn is_niellos(&self) -> bool {
        self.declared_in.split("::").next() == Some(env!("CARGO_CRATE_NAME"))
    }

    /// One line about what the pass does; may be empty.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Whether the module already has what the pass would establish, so that it need not run.
    pub fn holds(&self, module: &IRModule) -> bool {
        self.holds.is_some_and(|holds| holds(module))
    }
}

impl fmt::Display for PassInfo {
    /// `The meta data of the pass - pass name: N, opt_level: L, required passes: [A, B]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let required: Vec<&str> = self.required.iter().map(Requirement::name).collect();
        write!(
            f,
            "The meta data of the pass - pass name: {}, opt_level: {}, required passes: [{}]",
            self.name,
            self.opt_level,
            required.join(", ")
        )
    }
}

/// The error for a name that no pass can have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidPassName(pub String);

impl fmt::Display for InvalidPassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` cannot be the name of a pass: a name has at least one letter, and neither blanks nor any of , ( ) {{ }} =",
            self.0
        )
    }
}

impl std::error::Error for InvalidPassName {}

impl fmt::Display for dyn Pass {
    /// `Run Function pass: FoldConstant at the optimization level 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        let (name, level) = (info.name(), info.opt_level());
        match info.kind() {
            PassKind::Module => {
                write!(f, "Run Module pass: {name} at the optimization level {level}")
            }
            PassKind::Function => {
                write!(f, "Run Function pass: {name} at the optimization level {level}")
            }
            PassKind::PrimFunc => write!(f, "PrimFuncPass({name}, opt_level={level})"),
            PassKind::Sequential => {
                let names: Vec<&str> =
                    self.members().iter().map(|pass| pass.info().name()).collect();
                write!(
                    f,
                    "Run Sequential pass: {name} at the optimization level {level}. The passes will be executed are: [{}]",
                    names.join(" ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_info_returns_the_fields_it_was_made_from() {
        let info = PassInfo::new("xyz", 1).unwrap().requiring([Requirement::named("InferType")]);
        assert_eq!((info.name(), info.opt_level(), info.kind()), ("xyz", 1, PassKind::Module));
        assert_eq!(info.required()[0].name(), "InferType");
        assert_eq!(
            info.to_string(),
            "The meta data of the pass - pass name: xyz, opt_level: 1, required passes: [InferType]"
        );
    }

    #[test]
    fn names_that_a_textual_pipeline_could_not_spell_are_refused() {
        for name in ["", " FoldExplicitPadding", "a b", "a,b", "f(x)", "p{", "k=v"] {
            assert_eq!(PassInfo::new(name, 0).unwrap_err(), InvalidPassName(name.to_owned()));
        }
        assert!(PassInfo::new("tir.UnrollLoop", 0).is_ok());
    }
}
