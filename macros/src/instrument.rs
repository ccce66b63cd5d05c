//! `#[pass_instrument]`: an inherent impl block whose methods are an instrument's hooks.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, Meta, ReturnType};

use crate::args::{Errors, InstrumentArgs, near};
use crate::check;

/// Marks a method whose name is almost a hook's.
const NOT_A_HOOK: &str = "not_a_hook";

/// A method of the trait `PassInstrument`.
struct Hook {
    name: &'static str,
    /// Types of the parameters after `&self`.
    params: &'static [&'static str],
    answer: Answer,
}

/// The return type of a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// Yes or no.
    Bool,
    /// Files to leave behind; this cannot fail.
    Outputs,
}

/// In the order of the trait.
const HOOKS: [Hook; 12] = [
    hook("enter_pass_ctx", &[]),
    hook("exit_pass_ctx", &[]),
    Hook { answer: Answer::Bool, ..hook("should_run", &["&IRModule", "&PassInfo"]) },
    hook("run_before_pass", &["&IRModule", "&PassInfo"]),
    hook("run_after_pass", &["&IRModule", "&PassInfo"]),
    hook("after_pass_failed", &["&PassInfo", "&PassError"]),
    hook("pass_said", &["&PassInfo", "&Said<'_>"]),
    hook("before_analysis", &["&AnalysisInfo"]),
    hook("after_analysis", &["&AnalysisInfo"]),
    hook("analysis_invalidated", &["&AnalysisInfo"]),
    hook("before_skipped_pass", &["&IRModule", "&PassInfo"]),
    Hook { answer: Answer::Outputs, ..hook("outputs", &[]) },
];

const fn hook(name: &'static str, params: &'static [&'static str]) -> Hook {
    Hook { name, params, answer: Answer::Nothing }
}

fn hook_names() -> Vec<&'static str> {
    HOOKS.iter().map(|hook| hook.name).collect()
}

/// The expansion of the attribute: the block and the implementation of the trait; or the block and
/// errors.
pub(crate) fn instrument(args: TokenStream, tokens: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let item: Item = match syn::parse2(tokens.clone()) {
        Ok(item) => item,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#tokens #error);
        }
    };
    let args = InstrumentArgs::parse(args, &mut errors);
    let block = match item {
        Item::Impl(block) if block.trait_.is_none() => block,
        other => {
            let head = match &other {
                Item::Impl(ItemImpl { trait_: Some((_, path, _)), .. }) => path.to_token_stream(),
                Item::Fn(function) => function.sig.fn_token.to_token_stream(),
                other => check::head(other),
            };
            errors.at(head, "#[pass_instrument] must be applied to an inherent impl block");
            let errors = errors.into_compile_error();
            return quote!(#other #errors);
        }
    };
    let hooks = hooks(&block, &mut errors);
    let kept = without_marks(block.clone());
    match errors.into_result() {
        Ok(()) => {
            let implementation = implementation(&args, &block, &hooks);
            quote!(#kept #implementation)
        }
        Err(errors) => {
            let errors = errors.to_compile_error();
            quote!(#kept #errors)
        }
    }
}

/// The hooks among the methods.
fn hooks<'a>(block: &'a ItemImpl, errors: &mut Errors) -> Vec<(&'static Hook, &'a ImplItemFn)> {
    let mut found = Vec::new();
    let mut mistaken = false;
    for item in &block.items {
        let ImplItem::Fn(method) = item else { continue };
        if method.attrs.iter().any(is_mark) {
            continue;
        }
        let name = method.sig.ident.to_string();
        if let Some(hook) = HOOKS.iter().find(|hook| hook.name == name) {
            signature(hook, method, errors);
            found.push((hook, method));
        } else if let Some(meant) = near(&name, &hook_names()) {
            mistaken = true;
            errors.at(
                &method.sig.ident,
                format!(
                    "unknown hook `{name}`, did you mean `{meant}`? (`#[{NOT_A_HOOK}]` to silence)"
                ),
            );
        }
    }
    if found.is_empty() && !mistaken {
        let message =
            format!("an instrument has at least one of the hooks {}", hook_names().join(", "));
        errors.at(&block.self_ty, message);
    }
    found
}

fn signature(hook: &Hook, method: &ImplItemFn, errors: &mut Errors) {
    let sig = &method.sig;
    let qualifiers = [
        sig.asyncness.map(|token| (token.to_token_stream(), "async")),
        sig.unsafety.map(|token| (token.to_token_stream(), "unsafe")),
        sig.abi.as_ref().map(|abi| (abi.to_token_stream(), "extern")),
    ];
    for (token, name) in qualifiers.into_iter().flatten() {
        errors.at(token, format!("a hook cannot be `{name}`"));
    }
    if sig.generics.type_params().next().is_some() || sig.generics.const_params().next().is_some() {
        errors.at(&sig.generics, "a hook cannot be generic");
    }
    match sig.receiver() {
        Some(receiver) if receiver.reference.is_some() && receiver.mutability.is_none() => {}
        Some(receiver) => errors.at(
            receiver,
            "hooks take &self: instruments are shared by contexts and threads; use Mutex/atomics",
        ),
        None => errors.at(&sig.ident, format!("{} must take `&self`", hook.name)),
    }
    let params = sig.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_))).count();
    if params != hook.params.len() {
        let expected: Vec<&str> = ["&self"].iter().chain(hook.params).copied().collect();
        errors.at(
            &sig.inputs,
            format!("{} takes ({}); found {params} beside self", hook.name, expected.join(", ")),
        );
    }
    if hook.answer == Answer::Bool && matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, "should_run must return bool or Result<bool, E>");
    }
}

fn implementation(
    args: &InstrumentArgs,
    block: &ItemImpl,
    hooks: &[(&'static Hook, &ImplItemFn)],
) -> TokenStream {
    let InstrumentArgs { name, niello } = args;
    let pass = quote!(#niello::pass);
    let cfg = block.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let (impl_generics, _, where_clause) = block.generics.split_for_impl();
    let ty = &block.self_ty;
    let name = name.as_ref().map(|name| {
        quote! {
            fn name(&self) -> &str {
                #name
            }
        }
    });
    let methods = hooks.iter().map(|(hook, method)| {
        let cfg = method.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
        let ident = &method.sig.ident;
        let names: Vec<Ident> = (0..hook.params.len())
            .map(|index| quote::format_ident!("argument_{}", index))
            .collect();
        let types = hook.params.iter().map(|ty| match *ty {
            "&IRModule" => quote!(&#niello::ir::IRModule),
            "&PassInfo" => quote!(&#pass::PassInfo),
            "&PassError" => quote!(&#pass::PassError),
            "&AnalysisInfo" => quote!(&#pass::AnalysisInfo),
            _ => quote!(&#pass::Said<'_>),
        });
        if hook.answer == Answer::Outputs {
            return quote! {
                #(#cfg)*
                fn #ident(&self) -> ::std::vec::Vec<#pass::InstrumentOutput> {
                    <#ty>::#ident(self)
                }
            };
        }
        let answer = if hook.answer == Answer::Bool { quote!(bool) } else { quote!(()) };
        // Through a pointer, so that wrong parameter types are one error, at the method's name.
        let work_types = types.clone();
        let work = quote_spanned! { ident.span() =>
            let work: fn(&Self #(, #work_types)*) -> _ = <#ty>::#ident;
        };
        let output = match &method.sig.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => ident.span(),
        };
        let convert =
            quote_spanned!(output => <_ as #pass::IntoHookResult<#answer>>::into_hook_result);
        quote! {
            #(#cfg)*
            fn #ident(&self #(, #names: #types)*) -> #pass::HookResult<#answer> {
                #work
                #convert(work(self #(, #names)*))
            }
        }
    });
    quote! {
        #(#cfg)*
        impl #impl_generics #pass::PassInstrument for #ty #where_clause {
            #name
            #(#methods)*
        }
    }
}

fn is_mark(attr: &Attribute) -> bool {
    matches!(&attr.meta, Meta::Path(path) if path.is_ident(NOT_A_HOOK))
}

/// The block without the attributes of this macro.
fn without_marks(mut block: ItemImpl) -> ItemImpl {
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attr| !is_mark(attr));
        }
    }
    block
}
