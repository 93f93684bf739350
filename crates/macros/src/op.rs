//! `#[bireme::op]` on a function that combines arrays.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, Result, ReturnType, Signature, Type};

use crate::settings::{Kind, Settings};
use crate::signature::{
    conditions, documentation, function as registered, identity, refuse_qualifiers, signature_text,
};

const SHAPE: &str = "an op is `fn name(into: &mut [T], from: &[T])`, where `T` is a number that an `Array` can have: it \
                     combines `from` into `into`, element by element, and returns nothing";

pub fn expand(settings: TokenStream, function: &ItemFn) -> Result<TokenStream> {
    let settings = Settings::read(settings, Kind::Op)?;
    let sig = &function.sig;
    refuse_qualifiers(sig, "an op")?;
    let element = element(sig)?;
    let (name, vis) = (&sig.ident, &function.vis);
    let plain = name.unraw().to_string();
    let (docs, cfgs) = (documentation(&function.attrs), conditions(&function.attrs));
    let signature = signature_text(&plain, &format!("(&mut [{0}], &[{0}]) -> op", element.to_token_stream()));
    let own = quote!(<#name>::__BIREME_SIGNATURE);
    let (identity, registered) = (identity(&own, name), registered(&own, name, &plain));
    let shown = format!("The function `{plain}` as an op of reduces: `{plain}::OP`.");
    let generated = settings.own_crate.put_into(quote! {
        #(#cfgs)*
        #(#docs)*
        #[doc = ""]
        #[doc = #shown]
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #name {}

        #(#cfgs)*
        #[allow(dead_code)]
        impl #name {
            const __BIREME_SIGNATURE: &'static str = #signature;

            fn __bireme_site() -> &'static __bireme_crate::private::OpSite {
                static SITE: __bireme_crate::private::OpSite =
                    __bireme_crate::private::OpSite::new(#identity, #plain);
                &SITE
            }

            /// The op, for `bireme::reduce`.
            #vis const OP: __bireme_crate::UserOp = __bireme_crate::UserOp::new(<#name>::__bireme_site);
        }

        #(#cfgs)*
        const _: () = {
            fn __bireme_run(
                __bireme_call: &mut __bireme_crate::private::Invocation<'_>,
            ) -> ::core::result::Result<(), __bireme_crate::private::Failure> {
                __bireme_crate::private::run_op::<#element>(__bireme_call, <#name>::__bireme_site(), #name)
            }
            __bireme_crate::private::inventory::submit! {
                #registered
            }
        };
    });
    Ok(quote!(#function #generated))
}

/// The type of the elements that an op combines.
fn element(sig: &Signature) -> Result<Type> {
    let returns_nothing = match &sig.output {
        ReturnType::Default => true,
        ReturnType::Type(_, output) => matches!(&**output, Type::Tuple(tuple) if tuple.elems.is_empty()),
    };
    if !returns_nothing {
        return Err(Error::new(sig.output.span(), SHAPE));
    }
    let inputs: Vec<&FnArg> = sig.inputs.iter().collect();
    let [into, from] = inputs[..] else { return Err(Error::new(sig.span(), SHAPE)) };
    match (slice_of(into), slice_of(from)) {
        (Some((element, true)), Some((other, false))) if text(element) == text(other) => Ok(element.clone()),
        _ => Err(Error::new(sig.inputs.span(), SHAPE)),
    }
}

fn text(element: &Type) -> String {
    element.to_token_stream().to_string()
}

/// The element type of a borrowed slice, and whether it can be written.
fn slice_of(argument: &FnArg) -> Option<(&Type, bool)> {
    let FnArg::Typed(argument) = argument else { return None };
    let Type::Reference(reference) = &*argument.ty else { return None };
    let Type::Slice(slice) = &*reference.elem else { return None };
    Some((&slice.elem, reference.mutability.is_some()))
}
