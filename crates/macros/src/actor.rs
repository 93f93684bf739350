//! `#[bireme::actor]` on an `impl`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::{Attribute, Error, ImplItem, ImplItemFn, ItemImpl, Meta, ReceiverKind, Result, Type, Visibility};

use crate::settings::{Kind, Settings};
use crate::signature::{ReadShape, Shape, conditions, documentation, identity, signature_text};
use crate::stream::Limits;

/// Methods that every handle has.
const HANDLE_METHODS: [&str; 4] = ["kill", "ready", "id", "with_options"];
/// Functions that the attribute gives to the type.
const TYPE_FUNCTIONS: [&str; 3] = ["remote", "try_remote", "options"];

/// What is known of the actor.
struct Subject<'a> {
    this: &'a Type,
    name: String,
    handle: Ident,
    builder: Ident,
}

pub fn expand(settings: TokenStream, block: &ItemImpl) -> Result<TokenStream> {
    let settings = Settings::read(settings, Kind::Actor)?;
    let name = actor_name(block)?;
    let handle = settings.handle.clone().unwrap_or_else(|| format_ident!("{name}Handle"));
    let builder = format_ident!("__bireme_options_of_{}", name.unraw());
    let subject = Subject { this: &block.self_ty, name: name.unraw().to_string(), handle, builder };
    let (constructor, methods) = sort(block)?;
    let creation = creation(&subject, &settings, constructor)?;
    let common = common(&subject, &constructor.vis);
    let calls = methods.into_iter().map(|method| call(&subject, method)).collect::<Result<Vec<_>>>()?;
    let (calls, registrations): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let handle = &subject.handle;
    let block = without_markers(block);
    let generated = settings.own_crate.put_into(quote! {
        #creation
        #common
        #[allow(dead_code, private_interfaces, clippy::too_many_arguments, clippy::type_complexity)]
        impl #handle {
            #(#calls)*
        }
        #(#registrations)*
    });
    Ok(quote! {
        // A constructor without arguments is one that the engine calls; `Default` would have no use.
        #[allow(clippy::new_without_default)]
        #block
        #generated
    })
}

fn actor_name(block: &ItemImpl) -> Result<Ident> {
    if let Some((path, _)) = &block.trait_ {
        return Err(Error::new_spanned(path, "an actor's methods are in an inherent impl: `impl Type { ... }`"));
    }
    if !block.generics.params.is_empty() {
        let text =
            "an actor cannot be generic: the worker finds it by its concrete type; wrap it in one struct per type";
        return Err(Error::new_spanned(&block.generics, text));
    }
    match &*block.self_ty {
        Type::Path(path) if path.qself.is_none() => match path.path.segments.last() {
            Some(last) if last.arguments.is_none() => Ok(last.ident.clone()),
            _ => Err(Error::new_spanned(path, "an actor cannot be generic: wrap it in a struct of its own")),
        },
        other => Err(Error::new_spanned(other, "an actor is a struct or an enum with a name")),
    }
}

/// Our marks on methods.
const MARKS: [&str; 2] = ["constructor", "stream"];

fn is_mark(attribute: &Attribute, mark: &str) -> bool {
    let segments = &attribute.path().segments;
    // `bireme::stream` under any name of the crate, and `stream` alone.
    segments.len() <= 2 && segments.last().is_some_and(|segment| segment.ident == mark)
}

fn is_constructor(method: &ImplItemFn) -> bool {
    method.attrs.iter().any(|attribute| is_mark(attribute, "constructor"))
}

/// The limits of a method that is marked as a stream.
fn limits(method: &ImplItemFn) -> Result<Option<Limits>> {
    let Some(mark) = method.attrs.iter().find(|attribute| is_mark(attribute, "stream")) else { return Ok(None) };
    match &mark.meta {
        Meta::Path(_) => Ok(Some(Limits::default())),
        _ => {
            let list = mark.meta.require_list()?;
            let tokens = &list.tokens;
            Parser::parse2(Limits::read, quote!((#tokens))).map(Some)
        }
    }
}

/// The constructor, and the methods that a handle has.
fn sort(block: &ItemImpl) -> Result<(&ImplItemFn, Vec<&ImplItemFn>)> {
    let functions = || block.items.iter().filter_map(|item| if let ImplItem::Fn(f) = item { Some(f) } else { None });
    if let Some(taken) = functions().find(|f| TYPE_FUNCTIONS.iter().any(|name| f.sig.ident == name)) {
        let ident = &taken.sig.ident;
        let text =
            format!("every actor has a function `{ident}` already, made by the attribute: give this one another name");
        return Err(Error::new_spanned(ident, text));
    }
    let marked: Vec<_> = functions().filter(|function| is_constructor(function)).collect();
    if let [_, second, ..] = marked[..] {
        return Err(Error::new_spanned(&second.sig.ident, "an actor has one constructor: mark only one"));
    }
    let constructor = marked.first().copied().or_else(|| functions().find(|function| function.sig.ident == "new"));
    let Some(constructor) = constructor else {
        let text = "an actor needs a constructor: `pub fn new(...) -> Self`, or one marked `#[bireme::constructor]`";
        return Err(Error::new_spanned(&block.self_ty, text));
    };
    if let Some(receiver) = constructor.sig.receiver() {
        return Err(Error::new_spanned(receiver, "a constructor makes the actor: it has no `self`"));
    }
    let is_method = |f: &&ImplItemFn| !matches!(f.vis, Visibility::Inherited) && f.sig.receiver().is_some();
    let is_stream = |f: &ImplItemFn| f.attrs.iter().any(|attribute| is_mark(attribute, "stream"));
    if let Some(plain) = functions().find(|function| is_stream(function) && !is_method(function)) {
        let text = "only a public method with `self` can be a stream: nothing else is called from other processes";
        return Err(Error::new_spanned(&plain.sig.ident, text));
    }
    Ok((constructor, functions().filter(is_method).collect()))
}

/// The user's block without our marks.
pub fn without_markers(block: &ItemImpl) -> ItemImpl {
    let mut block = block.clone();
    for item in &mut block.items {
        if let ImplItem::Fn(function) = item {
            function.attrs.retain(|attribute| !MARKS.iter().any(|mark| is_mark(attribute, mark)));
        }
    }
    block
}

/// `remote`, `try_remote` and `options` on the type, and the registration of its constructor.
fn creation(subject: &Subject<'_>, settings: &Settings, constructor: &ImplItemFn) -> Result<TokenStream> {
    let Subject { this, name, handle, builder } = subject;
    let shape = Shape::read(&constructor.sig, "an actor's constructor", None, Some(this))?;
    let (vis, new) = (&constructor.vis, &constructor.sig.ident);
    let signature = signature_text(&format!("{name}::{}", new.unraw()), &shape.text);
    let defaults = settings.defaults(name, &quote!(__bireme_crate::private::Defaults::ACTOR));
    let (parameters, arguments) = (shape.parameters(), shape.arguments());
    let (decode, decoded, unwrap) = (shape.decode(), shape.decoded(), shape.unwrap());
    let body = quote! {
        #decode
        let output = <#this>::#new(#(#decoded),*);
        #unwrap
        *__bireme_call.actor = ::core::option::Option::Some(::std::boxed::Box::new(output));
        __bireme_crate::private::give(__bireme_call, ())
    };
    // The actor itself is no value: only the types of its arguments are names for error messages.
    let registered = Shape { results: Vec::new(), ..shape };
    let own = quote!(<#handle>::__BIREME_SIGNATURE);
    let (identity, register) = (identity(&own, handle), registered.register(&own, handle, name, &body));
    let create = |options: TokenStream| quote!(__bireme_crate::private::Handle::create(<#handle>::__bireme_site(), #options, #arguments));
    let plain = create(quote!(::core::option::Option::None));
    let chosen = create(quote!(::core::option::Option::Some(self.0)));
    Ok(quote! {
        #[allow(dead_code, private_interfaces, clippy::too_many_arguments)]
        impl #this {
            /// Starts an actor; a refused one gives its error to every call.
            #vis fn remote(#parameters) -> #handle {
                #handle(#plain)
            }

            /// Starts an actor, or says at once why not.
            #vis fn try_remote(#parameters) -> __bireme_crate::Result<#handle> {
                #plain.submitted().map(#handle)
            }

            /// Choices for one actor.
            #vis fn options() -> #builder {
                #builder(<#handle>::__bireme_site().options())
            }
        }

        __bireme_crate::__options!(actor #[doc(hidden)] #[allow(non_camel_case_types, dead_code)] #vis #builder);

        #[allow(dead_code, private_interfaces, clippy::too_many_arguments)]
        impl #builder {
            /// Starts an actor with these choices.
            #vis fn remote(self, #parameters) -> #handle {
                #handle(#chosen)
            }

            /// Starts an actor with these choices, or says at once why not.
            #vis fn try_remote(self, #parameters) -> __bireme_crate::Result<#handle> {
                #chosen.submitted().map(#handle)
            }
        }

        impl #handle {
            const __BIREME_SIGNATURE: &'static str = #signature;

            const __BIREME_IDENTITY: __bireme_crate::private::Identity = #identity;

            fn __bireme_site() -> &'static __bireme_crate::private::Site {
                static SITE: __bireme_crate::private::Site =
                    __bireme_crate::private::Site::new(<#handle>::__BIREME_IDENTITY, 1, #defaults);
                &SITE
            }
        }

        #register
    })
}

/// The handle and what all handles can do.
fn common(subject: &Subject<'_>, vis: &Visibility) -> TokenStream {
    let Subject { this, name, handle, .. } = subject;
    let shown = format!("A handle of an actor of type [`{name}`]; the actor ends when the last one is dropped.");
    let text = handle.unraw().to_string();
    quote! {
        #[doc = #shown]
        #[derive(::core::clone::Clone)]
        #[allow(private_interfaces)]
        #vis struct #handle(__bireme_crate::private::Handle);

        #[allow(dead_code)]
        impl #handle {
            /// The actor's id.
            #vis fn id(&self) -> __bireme_crate::ActorId {
                self.0.id()
            }

            /// Ready when the constructor has run; has its error when that failed.
            #vis fn ready(&self) -> __bireme_crate::ObjectRef<()> {
                self.0.ready()
            }

            /// A handle of the same actor, whose calls have these choices.
            #vis fn with_options(&self, options: __bireme_crate::CallOptions) -> Self {
                Self(self.0.with_options(options))
            }

            /// Ends the actor for good: calls that wait and later ones fail. Doing it again changes nothing.
            ///
            /// A call that runs has a second to end, so that the actor can be dropped; then its process is killed.
            #vis fn kill(&self) -> __bireme_crate::Result<()> {
                self.0.kill()
            }
        }

        impl __bireme_crate::Actor for #this {
            type Handle = #handle;

            fn constructor() -> __bireme_crate::private::FunctionKey {
                <#handle>::__BIREME_IDENTITY.key()
            }

            fn handle(inner: __bireme_crate::private::Handle) -> #handle {
                #handle(inner)
            }
        }

        impl ::core::convert::AsRef<__bireme_crate::private::Handle> for #handle {
            fn as_ref(&self) -> &__bireme_crate::private::Handle {
                &self.0
            }
        }

        impl ::core::fmt::Debug for #handle {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_tuple(#text).field(&self.0.id()).finish()
            }
        }

        impl __bireme_crate::private::serde::Serialize for #handle {
            fn serialize<S: __bireme_crate::private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                __bireme_crate::private::serde::Serialize::serialize(&self.0, serializer)
            }
        }

        impl<'de> __bireme_crate::private::serde::Deserialize<'de> for #handle {
            fn deserialize<D: __bireme_crate::private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<Self, D::Error> {
                __bireme_crate::private::serde::Deserialize::deserialize(deserializer).map(Self)
            }
        }
    }
}

/// One method of the handle, and its registration.
fn call(subject: &Subject<'_>, method: &ImplItemFn) -> Result<(TokenStream, TokenStream)> {
    let Subject { this, name, handle, .. } = subject;
    let sig = &method.sig;
    let ident = &sig.ident;
    if HANDLE_METHODS.contains(&ident.unraw().to_string().as_str()) {
        let text =
            format!("every handle has a method `{ident}` already: give this one another name or make it private");
        return Err(Error::new_spanned(ident, text));
    }
    if let Some(receiver) = sig.receiver()
        && !matches!(receiver.kind, ReceiverKind::Reference(..))
    {
        let text = "an actor's method takes `&self` or `&mut self`: the actor lives on after the call";
        return Err(Error::new_spanned(receiver, text));
    }
    let what = "a public method of an actor is called from other processes and";
    let limits = limits(method)?;
    let read: ReadShape = if limits.is_some() { Shape::read_stream } else { Shape::read };
    let shape = read(sig, what, None, Some(this))?;
    let stream = limits.iter().map(|limits| limits.value());
    let path = format!("{name}::{}", ident.unraw());
    let signature = signature_text(&path, &shape.text);
    let identity = identity(&signature, handle);
    let returns = shape.results.len() as u32;
    let (parameters, arguments) = (shape.parameters(), shape.arguments());
    let (references, hand_out) = (shape.references(), shape.hand_out());
    let (docs, cfgs, vis) = (documentation(&method.attrs), conditions(&method.attrs), &method.vis);
    let undocumented = docs.is_empty().then(|| format!("Calls `{path}`.")).into_iter();
    let call = quote! {
        #(#cfgs)*
        #(#docs)*
        #(#[doc = #undocumented])*
        #vis fn #ident(&self, #parameters) -> #references {
            static SITE: __bireme_crate::private::Site = __bireme_crate::private::Site::new(
                #identity,
                #returns,
                __bireme_crate::private::Defaults { name: #path, #(stream: #stream,)* ..__bireme_crate::private::Defaults::CALL },
            );
            let mut results = self.0.call(&SITE, #arguments);
            #hand_out
        }
    };
    let (decode, decoded, deliver) = (shape.decode(), shape.decoded(), shape.deliver());
    let body = if shape.stream {
        quote! {
            #decode
            __bireme_crate::private::yield_from::<#this>(__bireme_call, |__bireme_actor, __bireme_call| {
                let output = <#this>::#ident(__bireme_actor, #(#decoded),*);
                #deliver
            })
        }
    } else {
        quote! {
            #decode
            let output = <#this>::#ident(__bireme_crate::private::state::<#this>(__bireme_call)?, #(#decoded),*);
            #deliver
        }
    };
    let register = shape.register(&signature, handle, &path, &body);
    Ok((call, quote!(#(#cfgs)* #register)))
}
