//! What a remote function takes and gives; refuses what cannot travel, in words that say what to do.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, LitInt, Pat, PathArguments, Result, ReturnType, Safety, Signature, Type};

use crate::stream::{is_iterator, item_type};

/// [`Shape::read`] or [`Shape::read_stream`].
pub type ReadShape = fn(&Signature, &str, Option<&LitInt>, Option<&Type>) -> Result<Shape>;

/// A function, constructor or method that can be called from elsewhere.
pub struct Shape {
    /// Names of the arguments, for the caller.
    pub names: Vec<Ident>,
    /// Their types.
    pub types: Vec<TokenStream>,
    /// Types of the results.
    pub results: Vec<TokenStream>,
    /// Whether the results come as a tuple.
    pub several: bool,
    /// What the function returns, or each of its items, when that may be a `Result`: only the compiler knows.
    pub outcome: Option<TokenStream>,
    /// Whether its results come one by one.
    pub stream: bool,
    /// Types as text, for the signature.
    pub text: String,
}

impl Shape {
    /// Reads a signature whose results come at its end; `what` names it in errors, `this` stands for `Self`.
    pub fn read(sig: &Signature, what: &str, returns: Option<&LitInt>, this: Option<&Type>) -> Result<Self> {
        let taking = Self::taking(sig, what, this)?;
        let output = output(sig);
        if is_iterator(&output) {
            let text = "an iterator cannot travel: return a `Vec`, or mark the function as a stream, with \
                        `#[bireme::remote(stream)]` or, for a method, `#[bireme::stream]`";
            return Err(Error::new(output.span(), text));
        }
        let whole = owned(&output, this, "return an owned value")?;
        let outcome = may_be_result(&output).then(|| whole.clone());
        let (results, several) = match returns {
            None => (vec![value_type(&outcome, &whole)], false),
            Some(count) => (tuple(count, named_value(&output), this)?, true),
        };
        Ok(Self { results, several, outcome, ..taking }.giving(&whole))
    }

    /// Reads a signature whose results come one by one.
    pub fn read_stream(sig: &Signature, what: &str, returns: Option<&LitInt>, this: Option<&Type>) -> Result<Self> {
        let taking = Self::taking(sig, what, this)?;
        if let Some(returns) = returns {
            return Err(Error::new(returns.span(), "a stream has no `returns`: give each item as a tuple"));
        }
        let item = item_type(&output(sig))?;
        let whole = owned(&item, this, "give owned items")?;
        let outcome = may_be_result(&item).then(|| whole.clone());
        Ok(Self { results: vec![value_type(&outcome, &whole)], outcome, stream: true, ..taking }.giving(&whole))
    }

    fn giving(mut self, whole: &TokenStream) -> Self {
        let types = &self.types;
        let what = if self.stream { "stream " } else { "" };
        self.text = format!("({}) -> {what}{whole}", quote!(#(#types),*));
        self
    }

    /// What a signature takes.
    fn taking(sig: &Signature, what: &str, this: Option<&Type>) -> Result<Self> {
        refuse_qualifiers(sig, what)?;
        let (mut names, mut types) = (Vec::new(), Vec::new());
        for (index, input) in sig.inputs.iter().enumerate() {
            let FnArg::Typed(argument) = input else { continue };
            if is_callable(argument.ty.to_token_stream()) {
                return Err(Error::new(argument.ty.span(), CALLABLE));
            }
            if has_word(argument.ty.to_token_stream(), "dyn") {
                return Err(Error::new(argument.ty.span(), TRAIT_OBJECT));
            }
            names.push(argument_name(&argument.pat, index)?);
            types.push(owned(
                &argument.ty,
                this,
                "take an owned value, such as `String` for `&str` or `Vec<T>` for `&[T]`",
            )?);
        }
        let results = Vec::new();
        Ok(Self { names, types, results, several: false, outcome: None, stream: false, text: String::new() })
    }

    /// The caller's parameters.
    pub fn parameters(&self) -> TokenStream {
        let (names, types) = (&self.names, &self.types);
        quote!(#(#names: impl __bireme_crate::IntoArg<#types>),*)
    }

    /// The caller's arguments, encoded.
    pub fn arguments(&self) -> TokenStream {
        let (names, types) = (&self.names, &self.types);
        quote!(<__bireme_crate::private::Arguments as ::core::default::Default>::default()#(.with::<#types>(#names))*)
    }

    /// The type that `remote` gives.
    pub fn references(&self) -> TokenStream {
        let results = &self.results;
        if self.stream {
            quote!(#(__bireme_crate::ObjectRefStream<#results>)*)
        } else if self.several {
            quote!((#(__bireme_crate::ObjectRef<#results>,)*))
        } else {
            quote!(#(__bireme_crate::ObjectRef<#results>)*)
        }
    }

    /// Hands the references out of a variable `results`.
    pub fn hand_out(&self) -> TokenStream {
        if self.stream {
            return quote!(results.take_stream());
        }
        let each = self.results.iter().map(|_| quote!(results.take()));
        if self.several { quote!((#(#each,)*)) } else { quote!(#(#each)*) }
    }

    /// Names for the decoded arguments, which no user's name can clash with.
    pub fn decoded(&self) -> Vec<Ident> {
        (0..self.types.len()).map(|index| format_ident!("__bireme_argument_{index}")).collect()
    }

    /// Decodes the arguments of `call`.
    pub fn decode(&self) -> TokenStream {
        let (names, types) = (self.decoded(), &self.types);
        if names.is_empty() {
            return TokenStream::new();
        }
        quote! {
            let mut __bireme_inputs = __bireme_crate::private::Inputs::of(__bireme_call);
            #(let #names: #types = match __bireme_inputs.take() {
                ::core::result::Result::Ok(value) => value,
                ::core::result::Result::Err(error) => {
                    return ::core::result::Result::Err(__bireme_crate::private::broken(__bireme_call, error));
                }
            };)*
        }
    }

    /// Takes the value out of `output`, or ends the call with its error.
    pub fn unwrap(&self) -> TokenStream {
        let Some(outcome) = &self.outcome else { return TokenStream::new() };
        let is_result = is_result(outcome);
        quote! {
            let output = match <#outcome as __bireme_crate::private::Outcome<#is_result>>::split(output, __bireme_call) {
                ::core::result::Result::Ok(value) => value,
                ::core::result::Result::Err(failure) => return ::core::result::Result::Err(failure),
            };
        }
    }

    /// Hands `output` over to the runtime.
    pub fn deliver(&self) -> TokenStream {
        match (self.stream, &self.outcome) {
            (true, Some(outcome)) => {
                let is_result = is_result(outcome);
                return quote!(__bireme_crate::private::try_yield_all::<#outcome, #is_result>(__bireme_call, output));
            }
            (true, None) => return quote!(__bireme_crate::private::yield_all(__bireme_call, output)),
            _ => {}
        }
        let unwrap = self.unwrap();
        if !self.several {
            return quote!(#unwrap __bireme_crate::private::give(__bireme_call, output));
        }
        let parts: Vec<_> = (0..self.results.len()).map(|index| format_ident!("__bireme_result_{index}")).collect();
        quote! {
            #unwrap
            let (#(#parts,)*) = output;
            #(__bireme_crate::private::give(__bireme_call, #parts)?;)*
            ::core::result::Result::Ok(())
        }
    }

    /// The registration of `run` in the worker's table, and of the types for error messages.
    pub fn register(
        &self,
        signature: &TokenStream,
        item: &impl ToTokens,
        name: &str,
        body: &TokenStream,
    ) -> TokenStream {
        let (types, results) = (&self.types, &self.results);
        let function = function(signature, item, name);
        quote! {
            const _: () = {
                fn __bireme_run(
                    __bireme_call: &mut __bireme_crate::private::Invocation<'_>,
                ) -> ::core::result::Result<(), __bireme_crate::private::Failure> {
                    #body
                }
                __bireme_crate::private::inventory::submit! {
                    #function
                }
                __bireme_crate::private::inventory::submit! {
                    __bireme_crate::private::Types(|| ::std::vec![
                        #(::core::any::type_name::<#types>(),)*
                        #(::core::any::type_name::<#results>(),)*
                    ])
                }
            };
        }
    }
}

fn output(sig: &Signature) -> Type {
    match &sig.output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, output) => (**output).clone(),
    }
}

pub fn refuse_qualifiers(sig: &Signature, what: &str) -> Result<()> {
    let refuse = |span: Span, text: &str| Err(Error::new(span, format!("{what} cannot be {text}")));
    if let Some(asyncness) = &sig.asyncness {
        return refuse(asyncness.span(), "async: make it a plain function; callers can `.await` its result");
    }
    if let Safety::Unsafe(token) = &sig.safety {
        return refuse(token.span(), "unsafe: nobody checks its conditions in the worker; wrap it in a safe function");
    }
    if !sig.generics.params.is_empty() && sig.generics.lifetimes().count() == sig.generics.params.len() {
        return Err(Error::new(sig.generics.span(), LIFETIME));
    }
    if !sig.generics.params.is_empty() {
        let text = "generic: the worker finds it by its concrete types; write one function for each type that you need";
        return refuse(sig.generics.span(), text);
    }
    if let Some(abi) = &sig.abi {
        return refuse(abi.span(), "extern: make it a plain Rust function");
    }
    if let Some(variadic) = &sig.variadic {
        return refuse(variadic.span(), "variadic: take a `Vec`");
    }
    Ok(())
}

fn argument_name(pattern: &Pat, index: usize) -> Result<Ident> {
    match pattern {
        Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => Ok(name.ident.clone()),
        Pat::Wild(_) => Ok(format_ident!("argument_{index}")),
        other => Err(Error::new(
            other.span(),
            "a remote argument needs a name: take it apart in the body, with `let ... = name;`",
        )),
    }
}

const LIFETIME: &str = "a value with a lifetime cannot travel to another process, which has nothing that it could borrow from: use an \
                        owned type";
const CALLABLE: &str = "a closure or function pointer cannot travel to another process: take a value that says what to do, such as an \
                        enum, and choose the function by it";
const TRAIT_OBJECT: &str = "a trait object cannot travel to another process, which does not know the type behind it: take an enum of the \
                            types that there are";

/// The type with `Self` replaced, when it can be owned and sent.
fn owned(ty: &Type, this: Option<&Type>, advice: &str) -> Result<TokenStream> {
    if let Type::ImplTrait(_) = ty {
        return Err(Error::new(ty.span(), "`impl Trait` has no name that a worker could find: name the type"));
    }
    let tokens = ty.to_token_stream();
    if has_reference(tokens.clone()) {
        return Err(Error::new(ty.span(), format!("a reference cannot travel to another process: {advice}")));
    }
    if has_lifetime(tokens.clone()) {
        return Err(Error::new(ty.span(), LIFETIME));
    }
    Ok(match this {
        Some(this) => replace_self(tokens, this),
        None => tokens,
    })
}

fn has_reference(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == '&',
        TokenTree::Group(group) => has_reference(group.stream()),
        _ => false,
    })
}

/// Whether a type names a lifetime that ends.
fn has_lifetime(tokens: TokenStream) -> bool {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let found = match token {
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                !matches!(tokens.peek(), Some(TokenTree::Ident(name)) if name == "static")
            }
            TokenTree::Group(group) => has_lifetime(group.stream()),
            _ => false,
        };
        if found {
            return true;
        }
    }
    false
}

pub fn has_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => has_word(group.stream(), word),
        _ => false,
    })
}

/// Whether a type has a function pointer in it, or a closure behind `impl` or `dyn`.
fn is_callable(tokens: TokenStream) -> bool {
    let mut behind = false;
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) if ident == "impl" || ident == "dyn" => {
            behind = true;
            false
        }
        TokenTree::Ident(ident) => {
            ident == "fn" || behind && ["Fn", "FnMut", "FnOnce"].iter().any(|name| ident == name)
        }
        TokenTree::Group(group) => is_callable(group.stream()),
        _ => false,
    })
}

/// In a handle `Self` would be the handle.
fn replace_self(tokens: TokenStream, this: &Type) -> TokenStream {
    let replaced = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(ident) if ident == "Self" => this.to_token_stream(),
        TokenTree::Group(group) => {
            let mut inner = proc_macro2::Group::new(group.delimiter(), replace_self(group.stream(), this));
            inner.set_span(group.span());
            TokenTree::Group(inner).into()
        }
        other => other.into(),
    });
    replaced.collect()
}

/// Types of the standard library that are no `Result`, under names that nobody gives to one.
const PLAIN: [&str; 26] = [
    "bool", "char", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "String", "Vec", "Option", "PathBuf", "HashMap", "BTreeMap", "HashSet", "BTreeSet", "Bytes", "Array",
];

/// Whether a type is, or may be a name for, a `Result`.
fn may_be_result(output: &Type) -> bool {
    match output {
        Type::Path(path) => path.path.segments.last().is_none_or(|last| !PLAIN.iter().any(|plain| last.ident == plain)),
        Type::Macro(_) | Type::Paren(_) | Type::Group(_) | Type::Verbatim(_) => true,
        _ => false,
    }
}

/// What a reference to the result stands for.
fn value_type(outcome: &Option<TokenStream>, whole: &TokenStream) -> TokenStream {
    match outcome {
        Some(outcome) => {
            let is_result = is_result(outcome);
            quote!(<#outcome as __bireme_crate::private::Outcome<#is_result>>::Value)
        }
        None => whole.clone(),
    }
}

/// A constant: whether this type is a `Result`, whatever its name.
fn is_result(outcome: &TokenStream) -> TokenStream {
    quote!({
        #[allow(unused_imports)]
        use __bireme_crate::private::NoResult as _;
        <__bireme_crate::private::Returned<#outcome>>::IS_RESULT
    })
}

/// The type in a `Result` that is called so, or the type itself: for results that are taken apart by how they are written.
fn named_value(output: &Type) -> Option<&Type> {
    let Type::Path(path) = output else { return Some(output) };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Result")?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(value)) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

fn tuple(count: &LitInt, value: Option<&Type>, this: Option<&Type>) -> Result<Vec<TokenStream>> {
    let wanted: usize = count.base10_parse()?;
    match value {
        Some(Type::Tuple(tuple)) if tuple.elems.len() == wanted && wanted > 0 => {
            tuple.elems.iter().map(|part| owned(part, this, "return an owned value")).collect()
        }
        _ => Err(Error::new(
            count.span(),
            format!("`returns = {wanted}` needs a function that returns a tuple of {wanted} values"),
        )),
    }
}

/// Documentation of the user's item, for what is made from it.
pub fn documentation(attributes: &[syn::Attribute]) -> Vec<&syn::Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).collect()
}

/// Conditions of the user's item, which hold for what is made from it too.
pub fn conditions(attributes: &[syn::Attribute]) -> Vec<&syn::Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect()
}

/// `module::name(types) -> result`.
pub fn signature_text(name: &str, types: &str) -> TokenStream {
    let text = format!("::{name}{types}");
    quote!(::core::concat!(::core::module_path!(), #text))
}

/// What a function is known by: its signature, and a type of its own or of its actor. Functions in two bodies may have one
/// signature, and those that one macro call generates one place.
pub fn identity(signature: &TokenStream, item: &impl ToTokens) -> TokenStream {
    quote!(__bireme_crate::private::Identity::new(#signature, ::core::any::TypeId::of::<#item>()))
}

/// The function for the worker's table.
pub fn function(signature: &TokenStream, item: &impl ToTokens, name: &str) -> TokenStream {
    let identity = identity(signature, item);
    quote! {
        __bireme_crate::private::Function {
            identity: #identity,
            signature: #signature,
            place: ::core::concat!(::core::file!(), ":", ::core::line!(), ":", ::core::column!()),
            name: #name,
            run: __bireme_run,
        }
    }
}
