//! Pipelines as text: `module(function(fold-constant),fuse-ops{max_depth=10})`.
//!
//! ```text
//! pipeline := element (',' element)*
//! element  := group | pass
//! group    := ('module' | 'function' | 'prim_func') '(' pipeline ')'
//! pass     := name ('{' (option (sep option)*)? '}')?
//! sep      := ',' | blank
//! option   := key ('=' value)?
//! value    := JSON | word
//! ```
//!
//! Options are separated by commas or by blanks; one without a value is `true`. A value that begins
//! with `"`, `[` or `{` is JSON and is read whole: commas and blanks within belong to it. Any other
//! value is a word up to a blank, a comma or `}`. A word that is no JSON is a string.
//!
//! A group states what its passes work on: a function pass may stand in any group, a module pass not
//! within `function(…)`. The passes of `function(…)`, and of those next to it, run function by
//! function: `function(a),function(b,c)` runs `a`, `b` and `c` on the first function and then on the
//! next one.

use std::fmt;

use indexmap::IndexMap;
use serde::de::IgnoredAny;

use super::by_function::ByFunction;
use super::config::{AnyValue, ConfigEntry};
use super::{
    PassBody, PassContext, PassErrorKind, PassInfo, PassKind, PassRef, Registry, Result, RunToken,
    Sequential, list_configs, names,
};
use crate::diagnostics::{Problem, Report, suggest};
use crate::ir::IRModule;
use crate::tir::PrimFunc;

/// Deepest nesting of groups, of which there are only three kinds.
const MAX_DEPTH: usize = 16;

/// A parsed pipeline. It prints in one canonical form, which parses to the same pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PipelineText(Vec<Element>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Element {
    Group { anchor: Anchor, elements: Vec<Element> },
    Pass { name: String, options: IndexMap<String, String>, at: usize },
}

/// The kind of passes that a group states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Anchor {
    Module,
    Function,
    PrimFunc,
}

impl Anchor {
    fn of(name: &str) -> Option<Anchor> {
        [Anchor::Module, Anchor::Function, Anchor::PrimFunc]
            .into_iter()
            .find(|anchor| names::same(anchor.name(), name))
    }

    fn name(self) -> &'static str {
        match self {
            Anchor::Module => "module",
            Anchor::Function => "function",
            Anchor::PrimFunc => "prim_func",
        }
    }

    fn takes(self, kind: PassKind) -> bool {
        match self {
            Anchor::Module => true,
            Anchor::Function => kind == PassKind::Function,
            Anchor::PrimFunc => kind == PassKind::PrimFunc,
        }
    }
}

impl PipelineText {
    /// Reads a pipeline. Names are not looked up yet.
    ///
    /// # Errors
    ///
    /// The first thing that is malformed, with its place.
    pub fn parse(text: &str) -> Result<PipelineText> {
        let mut parser = Parser { text, at: 0 };
        let elements = parser.elements(0)?;
        if parser.rest().starts_with(')') {
            return Err(parser.error("extra closing parenthesis"));
        }
        if !parser.rest().is_empty() {
            return Err(parser.error("expected `,` after a pass or a group"));
        }
        Ok(PipelineText(elements))
    }

    /// The passes, looked up and with their options.
    ///
    /// # Errors
    ///
    /// All names that are not registered, all options that the pass does not have or whose value
    /// has the wrong type, and all passes in a group of another kind.
    pub fn build(&self, registry: &Registry) -> Result<Sequential> {
        let mut report = Report::new();
        let mut passes = Vec::new();
        build(&self.0, Anchor::Module, registry, &mut passes, &mut report);
        let passes = passes.into_iter().map(|listed| match listed {
            Listed::One(pass) => pass,
            Listed::ByFunction(passes) => ByFunction::new(passes).into(),
        });
        let passes: Vec<PassRef> = passes.collect();
        report.into_result(Sequential::new(passes)).map_err(Into::into)
    }
}

/// A part of a pipeline.
enum Listed {
    One(PassRef),
    /// The passes of adjacent groups of function passes.
    ByFunction(Vec<PassRef>),
}

fn build(
    elements: &[Element],
    anchor: Anchor,
    registry: &Registry,
    passes: &mut Vec<Listed>,
    report: &mut Report,
) {
    for element in elements {
        match element {
            Element::Group { anchor: inner, elements } => {
                if anchor != Anchor::Module && *inner != anchor {
                    report.push(Problem::new(format!(
                        "`{}(…)` cannot stand within `{}(…)`",
                        inner.name(),
                        anchor.name()
                    )));
                }
                build(elements, *inner, registry, passes, report);
            }
            Element::Pass { name, options, at } => match registry.get(name) {
                Err(error) => report.push(Problem::new(format!("at byte {at}: {error}"))),
                Ok(pass) => {
                    if !anchor.takes(pass.info().kind()) {
                        report.push(Problem::new(format!(
                            "at byte {at}: `{}` is a {} pass and cannot stand within `{}(…)`",
                            pass.info().name(),
                            pass.info().kind(),
                            anchor.name()
                        )));
                    }
                    let pass = with_options(pass, options, *at, report);
                    match passes.last_mut() {
                        Some(Listed::ByFunction(group)) if anchor == Anchor::Function => {
                            group.push(pass);
                        }
                        _ if anchor == Anchor::Function => {
                            passes.push(Listed::ByFunction(vec![pass]));
                        }
                        _ => passes.push(Listed::One(pass)),
                    }
                }
            },
        }
    }
}

/// A pass that runs under a context with these options set.
fn with_options(
    pass: PassRef,
    options: &IndexMap<String, String>,
    at: usize,
    report: &mut Report,
) -> PassRef {
    if options.is_empty() {
        return pass;
    }
    let known = options_of(pass.info().name());
    let whole = struct_option_of(pass.info().name());
    let fields = whole.map(ConfigEntry::default_fields).unwrap_or_default();
    // The fields that the text gives; the others take their defaults.
    let mut given = serde_json::Map::new();
    let mut config = IndexMap::new();
    let mut set = |key: &str, entry: &'static ConfigEntry, json: &serde_json::Value| {
        entry.parse(json).map(|value| config.insert(entry.name, value)).map_err(|error| {
            let ty = entry.type_name();
            Problem::new(format!("at byte {at}: option `{key}` takes {ty}: {error}"))
        })
    };
    for (key, value) in options {
        let json = serde_json::from_str(value).unwrap_or_else(|_| value.as_str().into());
        if let Some(entry) = known.get(key.as_str()) {
            report.problems.extend(set(key, entry, &json).err());
        } else if let Some(entry) = whole.filter(|_| fields.contains_key(key)) {
            let alone =
                serde_json::Value::Object([(key.clone(), json.clone())].into_iter().collect());
            report.problems.extend(set(key, entry, &alone).err());
            given.insert(key.clone(), json);
        } else {
            let name = pass.info().name();
            let problem = Problem::new(format!("at byte {at}: `{name}` has no option `{key}`"));
            let keys: Vec<&str> =
                known.keys().copied().chain(fields.keys().map(String::as_str)).collect();
            report.push(match suggest(key, keys.iter().copied()) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None if keys.is_empty() => problem.help("it has no options".to_owned()),
                None => problem.help(format!("it has {}", keys.join(", "))),
            });
        }
    }
    if let Some(entry) = whole.filter(|_| given.len() > 1) {
        // Each field has been checked alone, and its error reported.
        let _ = set(entry.name, entry, &serde_json::Value::Object(given));
    }
    let info = pass.info().clone().with_options(options_text(options));
    PassRef::new(Configured { pass, info, config })
}

/// Options as text between braces.
fn options_text(options: &IndexMap<String, String>) -> String {
    let list: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    list.join(" ")
}

/// The registered options of the pass of that name, by their last part: `max_depth` for
/// `relay.FuseOps.max_depth`.
pub fn options_of(pass: &str) -> IndexMap<&'static str, &'static ConfigEntry> {
    let last = |name: &str| name.rsplit('.').next().map(names::canonical);
    let own = last(pass);
    list_configs()
        .into_iter()
        .filter_map(|entry| {
            let (owner, key) = entry.name.rsplit_once('.')?;
            (last(owner) == own).then_some((key, entry))
        })
        .collect()
}

/// The registered option that has the name of a pass: a struct, each field of which is an option of
/// the pass in a textual pipeline.
pub fn struct_option_of(pass: &str) -> Option<&'static ConfigEntry> {
    list_configs().into_iter().find(|entry| names::same(entry.name, pass))
}

/// A pass with its own options.
struct Configured {
    pass: PassRef,
    info: PassInfo,
    config: IndexMap<&'static str, AnyValue>,
}

impl PassBody for Configured {
    fn info(&self) -> &PassInfo {
        &self.info
    }

    fn transform(&self, module: IRModule, cx: &PassContext, token: RunToken) -> Result<IRModule> {
        self.pass.transform(module, &cx.overriding(&self.config), token)
    }

    fn on_prim_func(
        &self,
        func: PrimFunc,
        module: &IRModule,
        cx: &PassContext,
    ) -> Result<Option<PrimFunc>> {
        self.pass.on_prim_func(func, module, &cx.overriding(&self.config))
    }

    fn members(&self) -> &[PassRef] {
        self.pass.members()
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips the character, if it comes next, and the blanks around it.
    fn take(&mut self, expected: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len_utf8();
            self.skip_blanks();
        }
        found
    }

    fn error(&self, what: impl fmt::Display) -> super::PassError {
        let message = format!("pipeline `{}`: {what} at byte {}", self.text, self.at);
        PassErrorKind::Invalid(Problem::new(message).into()).into()
    }

    fn elements(&mut self, depth: usize) -> Result<Vec<Element>> {
        let mut elements = vec![self.element(depth)?];
        while self.take(',') {
            elements.push(self.element(depth)?);
        }
        Ok(elements)
    }

    fn element(&mut self, depth: usize) -> Result<Element> {
        self.skip_blanks();
        let at = self.at;
        let end = self.rest().find(|c: char| ",(){}=".contains(c) || c.is_whitespace());
        let name = &self.rest()[..end.unwrap_or(self.rest().len())];
        if name.is_empty() {
            return Err(self.error("expected the name of a pass"));
        }
        self.at += name.len();
        self.skip_blanks();
        if self.rest().starts_with('(') {
            let Some(anchor) = Anchor::of(name) else {
                self.at = at;
                return Err(self.error(format!(
                    "`{name}` does not group passes: `module`, `function` and `prim_func` do"
                )));
            };
            if depth == MAX_DEPTH {
                return Err(self.error(format!("groups nest deeper than {MAX_DEPTH}")));
            }
            self.take('(');
            let elements = self.elements(depth + 1)?;
            if !self.take(')') {
                return Err(self.error("unbalanced parentheses: expected `,` or `)`"));
            }
            return Ok(Element::Group { anchor, elements });
        }
        let mut options = IndexMap::new();
        if self.take('{') {
            let mut after_comma = false;
            while after_comma || !self.take('}') {
                let (key, value) = self.option()?;
                if options.insert(key.clone(), value).is_some() {
                    return Err(self.error(format!("option `{key}` is given twice")));
                }
                after_comma = self.take(',');
            }
        }
        options.sort_keys();
        Ok(Element::Pass { name: name.to_owned(), options, at })
    }

    fn option(&mut self) -> Result<(String, String)> {
        self.skip_blanks();
        let end = self.rest().find(|c: char| ",(){}=".contains(c) || c.is_whitespace());
        let Some(end) = end else { return Err(self.error("missing closing `}`")) };
        let key = self.rest()[..end].to_owned();
        if key.is_empty() {
            return Err(self.error("expected the name of an option or `}`"));
        }
        self.at += end;
        if !self.take('=') {
            return Ok((key, "true".to_owned()));
        }
        let value = match self.rest().starts_with(['"', '[', '{']) {
            true => self.json(&key)?,
            false => {
                let end = self.rest().find(ends_value).unwrap_or(self.rest().len());
                &self.rest()[..end]
            }
        };
        if value.is_empty() {
            return Err(self.error(format!("option `{key}` has no value after `=`")));
        }
        self.at += value.len();
        match self.rest().starts_with(ends_value) {
            true => Ok((key, value.to_owned())),
            false if self.rest().is_empty() => Err(self.error("missing closing `}`")),
            false => Err(self
                .error(format!("expected a blank, `,` or `}}` after the value of option `{key}`"))),
        }
    }

    /// The text of the JSON value that comes next.
    fn json(&mut self, key: &str) -> Result<&'a str> {
        let rest = self.rest();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        let error = match values.next() {
            Some(Ok(_)) => return Ok(&rest[..values.byte_offset()]),
            Some(Err(error)) => error,
            None => return Err(self.error(format!("option `{key}` has no value after `=`"))),
        };
        let lines = rest.split_inclusive('\n').take(error.line().saturating_sub(1));
        let at = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        self.at += at.min(rest.len());
        let place = format!(" at line {} column {}", error.line(), error.column());
        let what = error.to_string().replace(&place, "");
        Err(self.error(format!("the value of option `{key}` is malformed JSON: {what}")))
    }
}

/// Whether a character comes after a value, unless the value is JSON that has it within.
fn ends_value(c: char) -> bool {
    c == ',' || c == '}' || c.is_whitespace()
}

impl fmt::Display for PipelineText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_elements(f, &self.0)
    }
}

fn write_elements(f: &mut fmt::Formatter<'_>, elements: &[Element]) -> fmt::Result {
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        match element {
            Element::Group { anchor, elements } => {
                write!(f, "{}(", anchor.name())?;
                write_elements(f, elements)?;
                f.write_str(")")?;
            }
            Element::Pass { name, options, at: _ } => {
                f.write_str(name)?;
                if !options.is_empty() {
                    write!(f, "{{{}}}", options_text(options))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Definition, GlobalVar};
    use crate::pass::{Pass, PassInstrument};
    use crate::transform::MAX_DEPTH as FUSE_DEPTH;

    fn build(text: &str) -> Result<Sequential> {
        PipelineText::parse(text)?.build(&Registry::global())
    }

    fn error(text: &str) -> String {
        build(text).map(|list| list.passes().len()).unwrap_err().to_string()
    }

    #[test]
    fn printing_is_a_fixpoint_and_sorts_options() {
        for (text, printed) in [
            ("fold-constant", "fold-constant"),
            (
                "module( function(cse , fold-constant),fuse-ops{ max_depth=10  link_params } )",
                "module(function(cse,fold-constant),fuse-ops{link_params=true max_depth=10})",
            ),
            ("a{v=[1, 2] w={\"x\":\"}\"}}", "a{v=[1, 2] w={\"x\":\"}\"}}"),
            ("a{prefix=\"q\",times=2}", "a{prefix=\"q\" times=2}"),
            (
                "a{b , c=-1.5,d=x/y , e=[{\"f\": [1, 2]}, 3]}",
                "a{b=true c=-1.5 d=x/y e=[{\"f\": [1, 2]}, 3]}",
            ),
            ("a{v=\"x, \\\"y}\" w=x=y},b{}", "a{v=\"x, \\\"y}\" w=x=y},b"),
        ] {
            let parsed = PipelineText::parse(text).unwrap();
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(PipelineText::parse(printed).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn groups_and_spellings_make_the_same_list() {
        let names = |text: &str| -> Vec<String> {
            let list = build(text).unwrap();
            list.passes().iter().map(|pass| pass.info().name().to_owned()).collect()
        };
        let plain = names("FoldConstant,FuseOps,InferType");
        assert_eq!(
            names("module(fold-constant,module(fuse_ops),relay._transform.InferType)"),
            plain
        );
        // Passes of a group of functions are one list.
        assert_eq!(
            names("function(fold-constant),module(function(FoldConstant)),fuse_ops"),
            ["function", "FuseOps"]
        );
    }

    #[test]
    fn malformed_pipelines_are_reported_with_their_place() {
        for (text, expected) in [
            ("module(FuseOps", "unbalanced parentheses: expected `,` or `)` at byte 14"),
            ("module(FuseOps))", "extra closing parenthesis at byte 15"),
            ("module()(", "expected the name of a pass at byte 7"),
            (",", "expected the name of a pass at byte 0"),
            ("FuseOps,", "expected the name of a pass at byte 8"),
            ("", "expected the name of a pass at byte 0"),
            ("FuseOps InferType", "expected `,` after a pass or a group at byte 8"),
            ("FuseOps{max_depth=10", "missing closing `}` at byte 20"),
            ("FuseOps{a a}", "option `a` is given twice"),
            ("FuseOps{a= b=1}", "at byte"),
            ("FuseOps{a=,b}", "option `a` has no value after `=` at byte 10"),
            ("FuseOps{,}", "expected the name of an option or `}` at byte 8"),
            ("FuseOps{a,}", "expected the name of an option or `}` at byte 10"),
            ("FuseOps{a,,b}", "expected the name of an option or `}` at byte 10"),
            (
                "FuseOps{a=\"q}",
                "the value of option `a` is malformed JSON: EOF while parsing a string at byte 12",
            ),
            (
                "FuseOps{a=[1\n,\n x]}",
                "the value of option `a` is malformed JSON: expected value at byte 16",
            ),
            ("FuseOps{a=\"\\q\"}", "is malformed JSON: invalid escape at byte 12"),
            (
                "FuseOps{a=\"q\"b}",
                "expected a blank, `,` or `}` after the value of option `a` at byte 13",
            ),
            ("FuseOps{a=\"q\"", "missing closing `}` at byte 13"),
            ("FuseOps{a=,", "option `a` has no value after `=` at byte 10"),
            ("FuseOps(InferType)", "`FuseOps` does not group passes"),
            (
                "function(InferType)",
                "at byte 9: `InferType` is a module pass and cannot stand within `function(…)`",
            ),
            ("function(module(InferType))", "`module(…)` cannot stand within `function(…)`"),
            ("FuseOsp", "at byte 0: there is no pass `FuseOsp`; did you mean `FuseOps`?"),
            (
                "FuseOps{max_dpeth=10}",
                "`FuseOps` has no option `max_dpeth`; help: did you mean `max_depth`?",
            ),
            (
                "FuseOps{max_depth=ten}",
                "option `max_depth` takes usize: invalid type: string \"ten\"",
            ),
            ("InferType{x}", "`InferType` has no option `x`; help: it has no options"),
            (
                "tir.UnrollLoop{auto_max_stp=4}",
                "`tir.UnrollLoop` has no option `auto_max_stp`; help: did you mean `auto_max_step`?",
            ),
            (
                "tir.UnrollLoop{auto_max_step=all}",
                "option `auto_max_step` takes UnrollLoopConfig: invalid type: string \"all\"",
            ),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = "module(".repeat(100_000);
        assert!(error(&deep).contains("groups nest deeper than 16"));
    }

    #[test]
    fn fields_of_a_struct_are_options() {
        let text = "prim_func @f(y: output int64[4]) {
            for i in serial(4) { for j in unrolled(1) { y[i] = i } }
        }";
        let mut module = IRModule::new();
        module.insert(GlobalVar::new("f"), Definition::Prim(crate::tir::parse(text).unwrap()));
        let loops = |text: &str| {
            let after = build(text).unwrap().apply(module.clone()).unwrap();
            let (_, func) = after.prim_funcs().next().unwrap();
            func.to_string().matches("for ").count()
        };
        assert_eq!(loops("tir.UnrollLoop"), 1);
        assert_eq!(loops("tir.UnrollLoop{auto_max_step=4}"), 0);
        assert_eq!(loops("tir.UnrollLoop{auto_max_step=4 explicit_unroll=false}"), 2);
        assert_eq!(loops("tir.UnrollLoop{auto_max_step=4,explicit_unroll=false}"), 2);
    }

    #[test]
    fn options_hold_for_their_pass_alone() {
        /// Notes the depth that each pass would see.
        struct Depths(std::sync::Mutex<Vec<usize>>);
        impl PassInstrument for Depths {
            fn run_before_pass(&self, _: &IRModule, _: &PassInfo) -> crate::pass::HookResult {
                self.0.lock().unwrap().push(PassContext::current().get(&FUSE_DEPTH));
                Ok(())
            }
        }
        use crate::graph::FunctionBuilder;
        use crate::ir::{Attrs, DType, Type};
        let mut b = FunctionBuilder::new();
        let mut x = b.param("x", Type::tensor(&[2], DType::F32));
        for _ in 0..4 {
            x = b.call(crate::ops::Op::get("exp").unwrap(), &[x], Attrs::new()).unwrap();
        }
        let module = IRModule::from_function(b.finish(x));
        let kernels = |text: &str| {
            let after = build(text).unwrap().apply(module.clone()).unwrap();
            after.function("main").unwrap().scopes().count() - 1
        };
        assert_eq!(kernels("FuseOps"), 1);
        assert_eq!(kernels("fuse-ops{max_depth=2}"), 2);
        assert_eq!(PassContext::current().get(&FUSE_DEPTH), FUSE_DEPTH.default_value());
        let depths = std::sync::Arc::new(Depths(Default::default()));
        let cx = PassContext::builder().shared_instrument(depths.clone()).build().unwrap();
        build("fuse-ops{max_depth=2}").unwrap().run(module, &cx).unwrap();
        assert_eq!(*depths.0.lock().unwrap(), [FUSE_DEPTH.default_value(); 2]);
    }
}
