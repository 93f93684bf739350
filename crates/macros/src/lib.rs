//! The attributes of the Rust front end. Use them through the `bireme` crate.
//!
//! The generated code refers to the crate alone, under the name that it has in the user's program (`naming`), and is in three parts: the user's item as it was, what the
//! caller uses (`remote`, options, handles), and an entry in the worker's table of functions.
#![forbid(unsafe_code)]

mod actor;
mod naming;
mod op;
mod remote;
mod settings;
mod signature;
mod stream;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a function callable as a task: see `bireme::remote`.
#[proc_macro_attribute]
pub fn remote(settings: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    remote::expand(settings.into(), &function).unwrap_or_else(|error| both(&error, &function)).into()
}

/// Makes a type startable as an actor: see `bireme::actor`.
#[proc_macro_attribute]
pub fn actor(settings: TokenStream, item: TokenStream) -> TokenStream {
    let block = parse_macro_input!(item as syn::ItemImpl);
    actor::expand(settings.into(), &block).unwrap_or_else(|error| both(&error, &actor::without_markers(&block))).into()
}

/// Makes a function an op of reduces: see `bireme::op`.
#[proc_macro_attribute]
pub fn op(settings: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    op::expand(settings.into(), &function).unwrap_or_else(|error| both(&error, &function)).into()
}

/// The error, and the user's item so that nothing else is reported as missing.
fn both(error: &syn::Error, item: &impl quote::ToTokens) -> proc_macro2::TokenStream {
    let error = error.to_compile_error();
    quote::quote!(#error #item)
}
