//! The expansions of the pass attributes.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, Item, ReturnType, Signature};

use crate::args::{Args, Errors, PassName, Preserves};
use crate::check::{self, Target};
use crate::kind::Kind;

/// The expansion of an attribute: the item unchanged, and the pass; or the item and errors.
pub(crate) fn pass(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    match try_pass(kind, args, item.clone()) {
        Ok(pass) => quote!(#item #pass),
        Err(errors) => {
            let errors = errors.to_compile_error();
            quote!(#item #errors)
        }
    }
}

fn try_pass(kind: Kind, args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let item: Item = syn::parse2(item)?;
    let mut errors = Errors::default();
    let target = check::target(kind, &item, &mut errors);
    let own = target.as_ref().map(|target| match target {
        Target::Function(function) => struct_name(&function.sig.ident),
        Target::Impl { ty: _, name } => (*name).clone(),
    });
    let args = Args::parse(kind, args, own.as_ref().map(Ident::to_string).as_deref(), &mut errors);
    errors.into_result()?;
    let (Some(target), Some(own)) = (target, own) else { return Ok(TokenStream::new()) };

    let name = args.name.clone().unwrap_or_else(|| own.to_string());
    Ok(match target {
        Target::Function(function) => {
            let doc = docs(&function.attrs);
            let cfg = with_name(&function.attrs, "cfg");
            let doc_attrs = with_name(&function.attrs, "doc");
            let vis = &function.vis;
            let ident = &function.sig.ident;
            let callee = Callee { path: quote!(#ident), method: false, sig: &function.sig };
            let imp = implementation(kind, &args, &quote!(#own), &name, &doc, &callee);
            quote! {
                #(#cfg)*
                #(#doc_attrs)*
                #[derive(
                    ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug,
                    ::core::default::Default, ::core::cmp::PartialEq, ::core::cmp::Eq,
                )]
                #vis struct #own;

                #(#cfg)*
                #imp
            }
        }
        Target::Impl { ty, name: _ } => {
            let Item::Impl(block) = &item else { return Ok(TokenStream::new()) };
            let doc = docs(&block.attrs);
            let cfg = with_name(&block.attrs, "cfg");
            let method = block.items.iter().find_map(|item| match item {
                ImplItem::Fn(method) if method.sig.ident == kind.method() => Some(method),
                _ => None,
            });
            let Some(method) = method else { return Ok(TokenStream::new()) };
            let ident = &method.sig.ident;
            let callee = Callee { path: quote!(#ty::#ident), method: true, sig: &method.sig };
            let imp = implementation(kind, &args, &ty.to_token_stream(), &name, &doc, &callee);
            quote!(#(#cfg)* #imp)
        }
    })
}

/// The function that does a pass's work.
struct Callee<'a> {
    path: TokenStream,
    /// Whether it takes `&self` first.
    method: bool,
    sig: &'a Signature,
}

/// The implementation and registration of a pass of type `ty`.
fn implementation(
    kind: Kind,
    args: &Args,
    ty: &TokenStream,
    name: &str,
    doc: &str,
    callee: &Callee<'_>,
) -> TokenStream {
    let Args { opt_level, niello, .. } = args;
    let pass = quote!(#niello::pass);
    let summary = doc.lines().next().unwrap_or_default();
    let [required, before, after, conflicts] =
        [&args.required, &args.before, &args.after, &args.conflicts]
            .map(|names| list(&quote!(#pass::Requirement), names));
    let [requires, sets, clears] = [&args.requires, &args.sets, &args.clears]
        .map(|names| list(&quote!(#pass::Property), names));
    let analyses = &args.analyses;
    let preserves = match &args.preserves {
        Preserves::All => quote!(::core::option::Option::None),
        Preserves::Only(kept) => {
            let kept = kept.iter().map(|name| match name {
                // Passes and analyses alike have a name.
                PassName::Path(path) => quote!(<#path>::NAME),
                PassName::Text(text) => quote!(#text),
            });
            quote!(::core::option::Option::Some(&[#(#kept),*]))
        }
    };
    let holds = match &args.holds {
        Some(path) => quote!(::core::option::Option::Some(#path)),
        None => quote!(::core::option::Option::None),
    };
    let unit = match kind {
        Kind::Module => quote!(#niello::ir::IRModule),
        Kind::Function => quote!(#niello::graph::Function),
        Kind::PrimFunc => quote!(#niello::tir::PrimFunc),
    };
    let siblings = (kind != Kind::Module).then(|| quote!(&#niello::ir::IRModule,));
    let (receiver_type, receiver) =
        if callee.method { (quote!(&#ty,), quote!(self,)) } else { (quote!(), quote!()) };
    let path = &callee.path;
    // Through a pointer, so that wrong parameter types are one error, at the function's name.
    let work = quote_spanned! { callee.sig.ident.span() =>
        let work: fn(#receiver_type #unit, #siblings &#pass::PassContext) -> _ = #path;
    };
    // A wrong result type is an error there.
    let output = match &callee.sig.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => Span::call_site(),
    };
    let mut on_prim_func = TokenStream::new();
    let (kind_name, body) = match kind {
        Kind::Module => {
            let convert = quote_spanned!(output => <_ as #pass::IntoModule>::into_module);
            (quote!(Module), quote!(#work #convert(work(#receiver module, cx))))
        }
        Kind::Function => {
            let convert = quote_spanned!(output => <_ as #pass::IntoFunction>::into_function);
            let body = quote! {
                #work
                #pass::transform_functions(module, cx, &|function, module, cx| {
                    #convert(work(#receiver function, module, cx))
                })
            };
            (quote!(Function), body)
        }
        Kind::PrimFunc => {
            let convert = quote_spanned!(output => <_ as #pass::IntoPrimFunc>::into_prim_func);
            on_prim_func = quote! {
                fn on_prim_func(
                    &self,
                    function: #niello::tir::PrimFunc,
                    module: &#niello::ir::IRModule,
                    cx: &#pass::PassContext,
                ) -> #pass::Result<::core::option::Option<#niello::tir::PrimFunc>> {
                    #work
                    #convert(work(#receiver function, module, cx))
                }
            };
            let body = quote! {
                #pass::transform_prim_funcs(module, cx, &|function, module, cx| {
                    #pass::PassBody::on_prim_func(self, function, module, cx)
                })
            };
            (quote!(PrimFunc), body)
        }
    };
    quote! {
        const _: () = {
            static INFO: #pass::PassInfo = #pass::PassInfo::from_static(#pass::__private::StaticPassInfo {
                name: #name,
                kind: #pass::PassKind::#kind_name,
                opt_level: #opt_level,
                required: &[#(#required),*],
                requires: &[#(#requires),*],
                sets: &[#(#sets),*],
                clears: &[#(#clears),*],
                before: &[#(#before),*],
                after: &[#(#after),*],
                conflicts: &[#(#conflicts),*],
                preserves: {
                    #[allow(unused_imports, reason = "one of the two, or neither, is used")]
                    use #pass::{Analysis as _, NamedPass as _};
                    #preserves
                },
                analyses: &[#(#pass::AnalysisRef::of::<#analyses>()),*],
                summary: #summary,
                holds: #holds,
                declared_in: ::core::module_path!(),
            });

            impl #pass::PassBody for #ty {
                fn info(&self) -> &#pass::PassInfo {
                    &INFO
                }

                fn transform(
                    &self,
                    module: #niello::ir::IRModule,
                    cx: &#pass::PassContext,
                    _token: #pass::RunToken,
                ) -> #pass::Result<#niello::ir::IRModule> {
                    #body
                }

                #on_prim_func
            }

            impl #pass::NamedPass for #ty {
                const NAME: &'static str = #name;

                fn make_default() -> ::core::option::Option<#pass::PassRef> {
                    // Selects the first of the two traits that applies: the type need not be
                    // `Default`.
                    use #pass::__private::{ByDefault as _, NoDefault as _};
                    (&#pass::__private::MakePass::<#ty>::NEW).make_pass()
                }
            }

            #pass::__private::inventory::submit! {
                #pass::PassEntry::of::<#ty>(
                    #doc,
                    #pass::Origin::new(
                        ::core::env!("CARGO_PKG_NAME"),
                        ::core::file!(),
                        ::core::line!(),
                    ),
                )
            }
        };
    }
}

/// Values of a type that a path makes by `of`, or a string by `named`.
fn list(ty: &TokenStream, names: &[PassName]) -> Vec<TokenStream> {
    names
        .iter()
        .map(|name| match name {
            PassName::Path(path) => quote!(#ty::of::<#path>()),
            PassName::Text(text) => quote!(#ty::named(#text)),
        })
        .collect()
}

/// `fold_constant` as `FoldConstant`.
fn struct_name(function: &Ident) -> Ident {
    let name = function.to_string();
    let mut camel = String::new();
    for word in name.trim_start_matches("r#").split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    if camel.starts_with(|c: char| c.is_ascii_digit()) {
        camel.insert(0, '_');
    }
    Ident::new(&camel, Span::call_site().located_at(function.span()))
}

fn with_name<'a>(attrs: &'a [Attribute], name: &'a str) -> Vec<&'a Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident(name)).collect()
}

/// The documentation as text, without the blank that begins each line.
fn docs(attrs: &[Attribute]) -> String {
    let lines: Vec<String> = with_name(attrs, "doc")
        .into_iter()
        .filter_map(|attr| {
            let syn::Meta::NameValue(meta) = &attr.meta else { return None };
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &meta.value else {
                return None;
            };
            let text = text.value();
            Some(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
        })
        .collect();
    lines.join("\n").trim().to_owned()
}
