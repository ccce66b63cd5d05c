//! The arguments of the attributes.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprArray, ExprLit, Ident, Lit, Path, Token, parse_quote};

use crate::kind::Kind;

/// All arguments.
const NAMES: [&str; 13] = [
    "opt_level",
    "name",
    "required",
    "requires",
    "sets",
    "clears",
    "preserves",
    "analyses",
    "before",
    "after",
    "conflicts",
    "holds",
    "crate",
];

/// A pass, an analysis or a property that is named by path or by string.
pub(crate) enum PassName {
    Path(Path),
    Text(String),
}

/// The earlier results and analyses that still hold after a pass.
pub(crate) enum Preserves {
    All,
    Only(Vec<PassName>),
}

/// The arguments of an attribute; arguments with errors have their defaults.
pub(crate) struct Args {
    pub(crate) opt_level: u8,
    pub(crate) name: Option<String>,
    pub(crate) required: Vec<PassName>,
    pub(crate) requires: Vec<PassName>,
    pub(crate) sets: Vec<PassName>,
    pub(crate) clears: Vec<PassName>,
    pub(crate) preserves: Preserves,
    pub(crate) analyses: Vec<Path>,
    pub(crate) before: Vec<PassName>,
    pub(crate) after: Vec<PassName>,
    pub(crate) conflicts: Vec<PassName>,
    pub(crate) holds: Option<Path>,
    pub(crate) niello: Path,
}

/// Errors, all of which are reported.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// An error shown under all of the tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// The errors as items, for expansions that continue.
    pub(crate) fn into_compile_error(self) -> TokenStream {
        self.0.map(|errors| errors.to_compile_error()).unwrap_or_default()
    }

    pub(crate) fn into_result(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// `name = value`; a value that cannot be parsed stays as tokens.
struct Arg {
    name: Ident,
    value: TokenStream,
}

impl Arg {
    /// The tokens under which an error about the value is shown.
    fn given(&self) -> TokenStream {
        if self.value.is_empty() { self.name.to_token_stream() } else { self.value.clone() }
    }
}

/// The arguments in order, each name once; duplicates are errors.
fn list(tokens: TokenStream, errors: &mut Errors) -> Option<Vec<Arg>> {
    let list = match Punctuated::<Arg, Token![,]>::parse_terminated.parse2(tokens) {
        Ok(list) => list,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let mut args: Vec<Arg> = Vec::new();
    for arg in list {
        if args.iter().any(|seen| seen.name == arg.name) {
            errors.at(&arg.name, format!("duplicate argument `{}`", arg.name));
        } else {
            args.push(arg);
        }
    }
    Some(args)
}

/// An error about an argument that is none of `known`.
fn unknown(name: &Ident, known: &[&'static str], errors: &mut Errors) {
    let near = near(&name.to_string(), known)
        .map_or(";".to_owned(), |near| format!(", did you mean `{near}`?"));
    let all = known.join(", ");
    errors.at(name, format!("unknown argument `{name}`{near} expected one of: {all}"));
}

fn crate_path(arg: &Arg, errors: &mut Errors) -> Option<Path> {
    let path = syn::parse2(arg.value.clone()).ok();
    if path.is_none() {
        errors.at(arg.given(), "crate must be the path of niello");
    }
    path
}

/// The arguments of `#[pass_instrument]`.
pub(crate) struct InstrumentArgs {
    pub(crate) name: Option<syn::LitStr>,
    pub(crate) niello: Path,
}

impl InstrumentArgs {
    /// Reads the arguments.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> InstrumentArgs {
        let mut args = InstrumentArgs { name: None, niello: parse_quote!(::niello) };
        for arg in list(tokens, errors).unwrap_or_default() {
            match arg.name.to_string().as_str() {
                "name" => match syn::parse2(arg.value.clone()) {
                    Ok(name) => args.name = Some(name),
                    Err(_) => errors.at(arg.given(), "name must be a string literal"),
                },
                "crate" => {
                    if let Some(path) = crate_path(&arg, errors) {
                        args.niello = path;
                    }
                }
                _ => unknown(&arg.name, &["name", "crate"], errors),
            }
        }
        args
    }
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> syn::Result<Arg> {
        // `crate` is a keyword.
        let name: Ident = input.call(syn::ext::IdentExt::parse_any)?;
        let mut value = TokenStream::new();
        if input.parse::<Option<Token![=]>>()?.is_some() {
            while !input.is_empty() && !input.peek(Token![,]) {
                value.extend([input.parse::<TokenTree>()?]);
            }
        }
        Ok(Arg { name, value })
    }
}

impl Args {
    /// Reads the arguments; `own` is the name of the pass's type, if the item has one.
    pub(crate) fn parse(
        kind: Kind,
        tokens: TokenStream,
        own: Option<&str>,
        errors: &mut Errors,
    ) -> Args {
        let mut args = Args {
            opt_level: 0,
            name: None,
            required: Vec::new(),
            requires: Vec::new(),
            sets: Vec::new(),
            clears: Vec::new(),
            preserves: Preserves::Only(Vec::new()),
            analyses: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            conflicts: Vec::new(),
            holds: None,
            niello: parse_quote!(::niello),
        };
        let Some(list) = list(tokens, errors) else { return args };
        for arg in &list {
            let (given, value) = (arg.given(), arg.value.clone());
            match arg.name.to_string().as_str() {
                "opt_level" => {
                    match syn::parse2::<syn::LitInt>(value).and_then(|level| level.base10_parse()) {
                        Ok(level) => args.opt_level = level,
                        Err(_) => {
                            errors.at(given, "opt_level must be a non-negative integer literal")
                        }
                    }
                }
                "name" => match syn::parse2::<syn::LitStr>(value) {
                    Ok(name) if is_valid_name(&name.value()) => {
                        args.name = Some(name.value()).filter(|name| !name.is_empty());
                    }
                    Ok(_) => {
                        errors.at(given, "pass name may not contain blanks or any of , ( ) { } =")
                    }
                    Err(_) => errors.at(given, "name must be a string literal"),
                },
                "required" => match names(value) {
                    Some(names) => args.required = names,
                    None => errors.at(given, "required must be a list of pass names or paths"),
                },
                "preserves" => match preserves(value) {
                    Some(preserves) => args.preserves = preserves,
                    None => errors.at(
                        given,
                        "preserves must be `all`, `none`, or a list of passes and analyses",
                    ),
                },
                property @ ("requires" | "sets" | "clears") => match names(value) {
                    Some(names) if property == "requires" => args.requires = names,
                    Some(names) if property == "sets" => args.sets = names,
                    Some(names) => args.clears = names,
                    None => errors.at(
                        given,
                        format!("{property} must be a list of properties or their names"),
                    ),
                },
                order @ ("before" | "after" | "conflicts") => match names(value) {
                    Some(names) if order == "before" => args.before = names,
                    Some(names) if order == "after" => args.after = names,
                    Some(names) => args.conflicts = names,
                    None => {
                        errors.at(given, format!("{order} must be a list of pass names or paths"))
                    }
                },
                "analyses" => match paths(value) {
                    Some(paths) => args.analyses = paths,
                    None => errors.at(given, "analyses must be a list of paths of analyses"),
                },
                "holds" => match syn::parse2(value) {
                    Ok(path) => args.holds = Some(path),
                    Err(_) => errors
                        .at(given, "holds must be the path of a function from &IRModule to bool"),
                },
                "crate" => {
                    if let Some(path) = crate_path(arg, errors) {
                        args.niello = path;
                    }
                }
                _ => unknown(&arg.name, &NAMES, errors),
            }
        }
        // A misspelt `opt_level` is one mistake, not two.
        if !list.iter().any(|arg| near(&arg.name.to_string(), &NAMES) == Some("opt_level")) {
            errors.push(syn::Error::new(
                Span::call_site(),
                format!("Please provide opt_level for the {}.", kind.noun()),
            ));
        }
        for name in &args.required {
            let PassName::Path(path) = name else { continue };
            if path.is_ident("Self") || own.is_some_and(|own| path.is_ident(own)) {
                let own = own.unwrap_or("Self");
                errors.at(path, format!("pass `{own}` cannot require itself"));
            }
        }
        args
    }
}

fn is_valid_name(name: &str) -> bool {
    !name.contains(|c: char| c.is_whitespace() || ",(){}=".contains(c))
}

fn names(value: TokenStream) -> Option<Vec<PassName>> {
    let list: ExprArray = syn::parse2(value).ok()?;
    list.elems
        .into_iter()
        .map(|element| match element {
            Expr::Path(path) if path.qself.is_none() => Some(PassName::Path(path.path)),
            Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => Some(PassName::Text(name.value())),
            _ => None,
        })
        .collect()
}

fn paths(value: TokenStream) -> Option<Vec<Path>> {
    let path = |name| if let PassName::Path(path) = name { Some(path) } else { None };
    names(value)?.into_iter().map(path).collect()
}

fn preserves(value: TokenStream) -> Option<Preserves> {
    match syn::parse2::<Ident>(value.clone()) {
        Ok(ident) if ident == "all" => return Some(Preserves::All),
        Ok(ident) if ident == "none" => return Some(Preserves::Only(Vec::new())),
        Ok(_) | Err(_) => {}
    }
    names(value).map(Preserves::Only)
}

/// The candidate with the same letters apart from separators, or at most two letters different.
pub(crate) fn near(name: &str, candidates: &[&'static str]) -> Option<&'static str> {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let name = plain(name);
    let distance = |candidate: &&&'static str| edit_distance(&name, &plain(candidate));
    let best = candidates.iter().min_by_key(distance)?;
    (distance(&best) <= 2.min(name.len() / 2)).then_some(best)
}

/// The least number of letters to insert, delete or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            row.push((last[j] + usize::from(x != *y)).min(last[j + 1] + 1).min(row[j] + 1));
        }
        last = row;
    }
    last[b.len()]
}
