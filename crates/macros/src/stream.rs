//! Results that come one by one: the limits of a stream, and what its function returns.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Error, GenericArgument, LitInt, PathArguments, PathSegment, Result, Token, Type, TypeParamBound, parenthesized,
};

/// How far a stream may run ahead of its reader; zero is no limit.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    items: u32,
    bytes: u64,
}

impl Limits {
    /// Reads `(max_buffered_items = 4, max_buffered_bytes = 1000)`, or nothing.
    pub fn read(input: ParseStream<'_>) -> Result<Self> {
        let mut limits = Self::default();
        if !input.peek(syn::token::Paren) {
            return Ok(limits);
        }
        let inner;
        parenthesized!(inner in input);
        while !inner.is_empty() {
            let key: Ident = inner.parse()?;
            inner.parse::<Token![=]>()?;
            let amount: LitInt = inner.parse()?;
            match key.to_string().as_str() {
                "max_buffered_items" => limits.items = amount.base10_parse()?,
                "max_buffered_bytes" => limits.bytes = amount.base10_parse()?,
                _ => {
                    let text = format!("unknown choice `{key}`; there are max_buffered_items, max_buffered_bytes");
                    return Err(Error::new(key.span(), text));
                }
            }
            if amount.base10_parse::<u64>()? == 0 {
                let text = format!("`{key} = 0` would let nothing pass; give at least 1, or leave it out");
                return Err(Error::new(amount.span(), text));
            }
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(limits)
    }

    /// The limits as the runtime has them.
    pub fn value(self) -> TokenStream {
        let Self { items, bytes } = self;
        quote!(::core::option::Option::Some(__bireme_crate::private::Stream { items_max: #items, bytes_max: #bytes }))
    }
}

/// The type of the items in `impl Iterator<Item = T>` or `Box<dyn Iterator<Item = T>>`.
pub fn item_type(output: &Type) -> Result<Type> {
    iterator_item(output).ok_or_else(|| {
        let text = "a stream returns its items one by one: return `impl Iterator<Item = T>`, with `Item = Result<T, E>` \
                    when it can fail";
        Error::new(output.span(), text)
    })
}

/// Whether a type is an iterator as a stream returns it.
pub fn is_iterator(output: &Type) -> bool {
    iterator_item(output).is_some()
}

fn iterator_item(output: &Type) -> Option<Type> {
    match output {
        Type::ImplTrait(found) => bound_item(&found.bounds),
        Type::TraitObject(found) => bound_item(&found.bounds),
        Type::Path(path) => {
            let last = path.path.segments.last().filter(|segment| segment.ident == "Box")?;
            arguments(last).find_map(|argument| match argument {
                GenericArgument::Type(Type::TraitObject(found)) => bound_item(&found.bounds),
                _ => None,
            })
        }
        _ => None,
    }
}

fn bound_item(bounds: &Punctuated<TypeParamBound, Token![+]>) -> Option<Type> {
    let segments = bounds.iter().filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last(),
        _ => None,
    });
    let mut items = segments.filter(|segment| segment.ident.to_string().ends_with("Iterator")).flat_map(arguments);
    items.find_map(|argument| match argument {
        GenericArgument::AssocType(item) if item.ident == "Item" => Some(item.ty.clone()),
        _ => None,
    })
}

fn arguments(segment: &PathSegment) -> impl Iterator<Item = &GenericArgument> {
    let list = match &segment.arguments {
        PathArguments::AngleBracketed(list) => Some(&list.args),
        _ => None,
    };
    list.into_iter().flatten()
}
