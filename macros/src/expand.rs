//! What the attributes expand to.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Item, Path};

use crate::args::{Args, Errors, PassName, Preserves};
use crate::check::{self, Target};
use crate::kind::Kind;

/// The expansion of an attribute: the item as it is, and the pass; or the item and errors.
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
            // Errors about types point at the parameters.
            let callee = quote_spanned!(function.sig.inputs.span() => #ident);
            let imp = implementation(kind, &args, &quote!(#own), &name, &doc, &callee, &quote!());
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
            let method = format_ident!("{}", kind.method());
            let imp = implementation(
                kind,
                &args,
                &ty.to_token_stream(),
                &name,
                &doc,
                &quote!(#ty::#method),
                &quote!(self,),
            );
            quote!(#(#cfg)* #imp)
        }
    })
}

/// The implementation and registration of a pass of type `ty` that calls `callee`.
fn implementation(
    kind: Kind,
    args: &Args,
    ty: &TokenStream,
    name: &str,
    doc: &str,
    callee: &TokenStream,
    receiver: &TokenStream,
) -> TokenStream {
    let Args { opt_level, name: _, required, preserves, holds, niello } = args;
    let pass = quote!(#niello::pass);
    let summary = doc.lines().next().unwrap_or_default();
    let required = requirements(niello, required);
    let preserves = match preserves {
        Preserves::All => quote!(::core::option::Option::None),
        Preserves::Only(kept) => {
            let kept = requirements(niello, kept);
            quote!(::core::option::Option::Some(&[#(#kept),*]))
        }
    };
    let holds = match holds {
        Some(path) => quote!(::core::option::Option::Some(#path)),
        None => quote!(::core::option::Option::None),
    };
    let (kind_name, body) = match kind {
        Kind::Module => {
            (quote!(Module), quote!(#pass::IntoModule::into_module(#callee(#receiver module, cx))))
        }
        Kind::Function => (
            quote!(Function),
            quote! {
                #pass::transform_functions(module, cx, &|function, module, cx| {
                    #pass::IntoFunction::into_function(#callee(#receiver function, module, cx))
                })
            },
        ),
        Kind::PrimFunc => (
            quote!(PrimFunc),
            quote! {
                #pass::transform_prim_funcs(module, cx, &|function, module, cx| {
                    #pass::IntoPrimFunc::into_prim_func(#callee(#receiver function, module, cx))
                })
            },
        ),
    };
    quote! {
        const _: () = {
            static INFO: #pass::PassInfo = #pass::PassInfo::from_static(#pass::__private::StaticPassInfo {
                name: #name,
                kind: #pass::PassKind::#kind_name,
                opt_level: #opt_level,
                required: &[#(#required),*],
                preserves: #preserves,
                summary: #summary,
                holds: #holds,
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
            }

            impl #pass::NamedPass for #ty {
                const NAME: &'static str = #name;

                fn make_default() -> ::core::option::Option<#pass::PassRef> {
                    // Picks the first of the two that applies: the type need not be `Default`.
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

fn requirements(niello: &Path, names: &[PassName]) -> Vec<TokenStream> {
    names
        .iter()
        .map(|name| match name {
            PassName::Path(path) => quote!(#niello::pass::Requirement::of::<#path>()),
            PassName::Text(text) => quote!(#niello::pass::Requirement::named(#text)),
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
