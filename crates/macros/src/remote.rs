//! `#[bireme::remote]` on a function.
//!
//! The functions of the caller live on an empty enum with the function's own name: types and values have separate
//! namespaces, and unlike a module an `impl` sees the types in scope, also inside a function's body.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Error, ItemFn, Result};

use crate::settings::{Kind, Settings};
use crate::signature::{ReadShape, Shape, conditions, documentation, has_word, identity, signature_text};

pub fn expand(settings: TokenStream, function: &ItemFn) -> Result<TokenStream> {
    let settings = Settings::read(settings, Kind::Remote)?;
    let sig = &function.sig;
    if let Some(receiver) = sig.receiver() {
        let text = "a remote function has no `self`: for state, use `#[bireme::actor]` on the impl block";
        return Err(Error::new_spanned(receiver, text));
    }
    // Only a function inside of an `impl` or a trait can say `Self`.
    if has_word(sig.to_token_stream(), "Self") {
        let text = "a remote function cannot be inside of an `impl`: write it beside the block, where `Self` is the type's name";
        return Err(Error::new_spanned(&sig.ident, text));
    }
    let (read, choices) = match settings.stream {
        Some(_) => (Shape::read_stream as ReadShape, quote!(stream)),
        None => (Shape::read as ReadShape, quote!(task)),
    };
    let shape = read(sig, "a remote function", settings.returns.as_ref(), None)?;
    let (name, vis) = (&sig.ident, &function.vis);
    let plain = name.unraw().to_string();
    let builder = format_ident!("__bireme_options_of_{plain}");
    let (docs, cfgs) = (documentation(&function.attrs), conditions(&function.attrs));
    let signature = signature_text(&plain, &shape.text);
    let defaults = settings.defaults(&plain, &quote!(__bireme_crate::private::Defaults::TASK));
    let returns = shape.results.len() as u32;
    let (parameters, arguments) = (shape.parameters(), shape.arguments());
    let (references, hand_out) = (shape.references(), shape.hand_out());
    let (decode, decoded, deliver) = (shape.decode(), shape.decoded(), shape.deliver());
    let body = quote!(#decode let output = #name(#(#decoded),*); #deliver);
    let own = quote!(<#name>::__BIREME_SIGNATURE);
    let (identity, register) = (identity(&own, name), shape.register(&own, name, &plain, &body));
    let submit = |options: TokenStream| {
        quote! {
            let mut results = __bireme_crate::private::Results::of(<#name>::__bireme_site().submit(#options, #arguments));
            #hand_out
        }
    };
    let try_submit = |options: TokenStream| {
        quote! {
            let submitted = <#name>::__bireme_site().submit(#options, #arguments)?;
            let mut results = __bireme_crate::private::Results::of(::core::result::Result::Ok(submitted));
            ::core::result::Result::Ok(#hand_out)
        }
    };
    let none = quote!(::core::option::Option::None);
    let some = quote!(::core::option::Option::Some(self.0));
    let (remote, try_remote) = (submit(none.clone()), try_submit(none));
    let (chosen_remote, chosen_try_remote) = (submit(some.clone()), try_submit(some));
    let shown = format!("The function `{plain}` as a task: `{plain}::remote`, `{plain}::options`.");
    let generated = settings.own_crate.put_into(quote! {
        #(#cfgs)*
        #(#docs)*
        #[doc = ""]
        #[doc = #shown]
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #name {}

        #(#cfgs)*
        #[allow(dead_code, private_interfaces, clippy::too_many_arguments, clippy::type_complexity)]
        impl #name {
            const __BIREME_SIGNATURE: &'static str = #signature;

            fn __bireme_site() -> &'static __bireme_crate::private::Site {
                static SITE: __bireme_crate::private::Site =
                    __bireme_crate::private::Site::new(#identity, #returns, #defaults);
                &SITE
            }

            /// Submits a task; a refused submission is an error of the reference.
            #vis fn remote(#parameters) -> #references {
                #remote
            }

            /// Submits a task, or says at once why not.
            #vis fn try_remote(#parameters) -> __bireme_crate::Result<#references> {
                #try_remote
            }

            /// Choices for one call.
            #vis fn options() -> #builder {
                #builder(<#name>::__bireme_site().options())
            }
        }

        #(#cfgs)*
        __bireme_crate::__options!(#choices #[doc(hidden)] #[allow(non_camel_case_types, dead_code)] #vis #builder);

        #(#cfgs)*
        #[allow(dead_code, private_interfaces, clippy::too_many_arguments, clippy::type_complexity)]
        impl #builder {
            /// Submits a task with these choices.
            #vis fn remote(self, #parameters) -> #references {
                #chosen_remote
            }

            /// Submits a task with these choices, or says at once why not.
            #vis fn try_remote(self, #parameters) -> __bireme_crate::Result<#references> {
                #chosen_try_remote
            }
        }

        #(#cfgs)*
        #register
    });
    Ok(quote!(#function #generated))
}
