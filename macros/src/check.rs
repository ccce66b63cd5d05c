//! Checks of the tokens of a pass's item. Types are left to the compiler.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{FnArg, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, Pat, ReturnType, Signature, Type};

use crate::args::{Errors, near};
use crate::kind::Kind;

/// An item that a pass can be made of.
pub(crate) enum Target<'a> {
    Function(&'a ItemFn),
    Impl { ty: &'a syn::TypePath, name: &'a syn::Ident },
}

/// The pass's item, or `None` after at least one error.
pub(crate) fn target<'a>(kind: Kind, item: &'a Item, errors: &mut Errors) -> Option<Target<'a>> {
    match item {
        Item::Fn(function) => {
            signature(kind, &function.sig, Receiver::None, errors);
            Some(Target::Function(function))
        }
        Item::Impl(block) => impl_block(kind, block, errors),
        other => {
            errors.at(head(other), wrong_item(kind));
            None
        }
    }
}

fn wrong_item(kind: Kind) -> String {
    format!(
        "#[{}] can be applied to a function or an inherent impl block (for a struct: put it on the impl that has {})",
        kind.attribute(),
        kind.method()
    )
}

/// The token that shows the kind of item.
pub(crate) fn head(item: &Item) -> TokenStream {
    match item {
        Item::Struct(item) => item.struct_token.to_token_stream(),
        Item::Enum(item) => item.enum_token.to_token_stream(),
        Item::Trait(item) => item.trait_token.to_token_stream(),
        Item::Const(item) => item.const_token.to_token_stream(),
        Item::Static(item) => item.static_token.to_token_stream(),
        Item::Mod(item) => item.mod_token.to_token_stream(),
        Item::Type(item) => item.type_token.to_token_stream(),
        Item::Union(item) => item.union_token.to_token_stream(),
        Item::Use(item) => item.use_token.to_token_stream(),
        other => other.to_token_stream(),
    }
}

fn impl_block<'a>(kind: Kind, block: &'a ItemImpl, errors: &mut Errors) -> Option<Target<'a>> {
    if let Some((_, path, _)) = &block.trait_ {
        errors.at(path, wrong_item(kind));
        return None;
    }
    if !block.generics.params.is_empty() {
        errors.at(
            &block.generics,
            "a pass cannot be generic: it has one name; give the pass a field of a trait object",
        );
    }
    let methods = || {
        block
            .items
            .iter()
            .filter_map(|item| if let ImplItem::Fn(method) = item { Some(method) } else { None })
    };
    match methods().find(|method| method.sig.ident == kind.method()) {
        Some(method) => signature(kind, &method.sig, Receiver::Reference, errors),
        None => missing_method(kind, block, methods(), errors),
    }
    let Type::Path(ty) = &*block.self_ty else {
        errors.at(&block.self_ty, "a pass must be a named type");
        return None;
    };
    let name = &ty.path.segments.last()?.ident;
    Some(Target::Impl { ty, name })
}

fn missing_method<'a>(
    kind: Kind,
    block: &ItemImpl,
    methods: impl Iterator<Item = &'a ImplItemFn> + Clone,
    errors: &mut Errors,
) {
    let expected =
        format!("expected fn {}(&self, {}) in this impl", kind.method(), kind.params().join(", "));
    for method in methods {
        let name = method.sig.ident.to_string();
        if let Some(other) = Kind::ALL.into_iter().find(|kind| kind.method() == name) {
            let message =
                format!("{expected}; found {name} – did you mean #[{}]?", other.attribute());
            return errors.at(&method.sig.ident, message);
        }
        if near(&name, &[kind.method()]).is_some() {
            return errors.at(&method.sig.ident, format!("{expected}; found {name}"));
        }
    }
    errors.at(&block.self_ty, expected);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    None,
    Reference,
}

fn signature(kind: Kind, sig: &Signature, receiver: Receiver, errors: &mut Errors) {
    if let Some(token) = &sig.asyncness {
        errors.at(token, "a pass function cannot be `async`");
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, "a pass function cannot be `unsafe`");
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "a pass function cannot be `extern`");
    }
    if sig.generics.type_params().next().is_some() || sig.generics.const_params().next().is_some() {
        errors.at(
            &sig.generics,
            "a pass function cannot be generic; capture configuration in a struct",
        );
    }
    match (receiver, sig.receiver()) {
        (Receiver::None, Some(found)) => {
            errors.at(found, "a pass function has no `self`; put the attribute on the impl block");
        }
        (Receiver::Reference, None) => {
            errors.at(&sig.ident, format!("{} must take `&self`", kind.method()));
        }
        (Receiver::Reference, Some(found))
            if found.reference.is_none() || found.mutability.is_some() =>
        {
            errors.at(
                found,
                format!("{} must take `&self`: passes are shared by threads", kind.method()),
            );
        }
        (Receiver::None, None) | (Receiver::Reference, Some(_)) => {}
    }
    let params: Vec<&syn::PatType> = sig
        .inputs
        .iter()
        .filter_map(|input| if let FnArg::Typed(param) = input { Some(param) } else { None })
        .collect();
    if params.len() != kind.params().len() {
        let number = params.len();
        let noun = if number == 1 { "parameter" } else { "parameters" };
        let message = format!(
            "a {} takes ({}); found {number} {noun}",
            kind.noun(),
            kind.params().join(", ")
        );
        // The list of parameters, or the name if the list is empty and so has no place.
        if sig.inputs.is_empty() {
            errors.at(&sig.ident, message);
        } else {
            errors.at(&sig.inputs, message);
        }
    }
    for (index, param) in params.iter().enumerate() {
        if let Type::ImplTrait(ty) = &*param.ty {
            errors.at(ty, "a pass function cannot be generic; capture configuration in a struct");
        }
        let Type::Reference(reference) = &*param.ty else { continue };
        if index == 0 && reference.mutability.is_some() {
            let what = match kind {
                Kind::Module => "module → module",
                Kind::Function => "function → function",
                Kind::PrimFunc => "function → function",
            };
            errors.at(
                reference,
                format!("take {} by value and return it; passes are {what}", kind.unit()),
            );
        } else if reference.mutability.is_some() {
            errors.at(reference, "a pass changes nothing but what it returns; take it by `&`");
        }
        if let Pat::Ident(ident) = &*param.pat
            && ident.by_ref.is_some()
        {
            errors.at(ident, "take it by value");
        }
    }
    if matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, format!("must return {}", kind.returns()));
    }
}
