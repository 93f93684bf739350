//! The choices in the parentheses of an attribute.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, Lit, LitInt, LitStr, Result, Token, parenthesized, punctuated::Punctuated};

use crate::naming::CratePath;
use crate::stream::Limits;

/// What the attribute chose; what it left out is `None`.
#[derive(Default)]
pub struct Settings {
    pub name: Option<LitStr>,
    pub returns: Option<LitInt>,
    pub handle: Option<Ident>,
    pub stream: Option<Limits>,
    /// The name of our crate.
    pub own_crate: CratePath,
    cpus: Option<Literal>,
    gpus: Option<Literal>,
    memory: Option<LitInt>,
    retries: Option<LitInt>,
    retry_on: Option<Vec<LitStr>>,
    max_calls: Option<LitInt>,
    threads_per_worker: Option<LitInt>,
    strategy: Option<Expr>,
    resources: Vec<(String, Literal)>,
}

/// Which attribute: they know different choices.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Remote,
    Actor,
    Op,
}

impl Kind {
    fn choices(self) -> &'static [&'static str] {
        match self {
            Kind::Remote => &[
                "name",
                "cpus",
                "gpus",
                "memory",
                "resources",
                "retries",
                "retry_on",
                "max_calls",
                "threads_per_worker",
                "strategy",
                "returns",
                "stream",
                "crate",
            ],
            Kind::Actor => &["handle", "cpus", "gpus", "memory", "resources", "strategy", "crate"],
            Kind::Op => &["crate"],
        }
    }
}

impl Settings {
    pub fn read(tokens: TokenStream, kind: Kind) -> Result<Self> {
        let mut settings = Self::default();
        let list = |input: ParseStream<'_>| {
            while !input.is_empty() {
                let key = input.call(Ident::parse_any)?;
                if !kind.choices().contains(&key.to_string().as_str()) {
                    let known = kind.choices().join(", ");
                    return Err(Error::new(key.span(), format!("unknown choice `{key}`; there are {known}")));
                }
                settings.set(&key.to_string(), input)?;
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        };
        syn::parse::Parser::parse2(list, tokens)?;
        Ok(settings)
    }

    fn set(&mut self, key: &str, input: ParseStream<'_>) -> Result<()> {
        if key == "resources" {
            let inner;
            parenthesized!(inner in input);
            let pairs = Punctuated::<Amount, Token![,]>::parse_terminated(&inner)?;
            self.resources = pairs.into_iter().map(|pair| (pair.name, pair.amount)).collect();
            return Ok(());
        }
        if key == "stream" {
            self.stream = Some(Limits::read(input)?);
            return Ok(());
        }
        input.parse::<Token![=]>()?;
        match key {
            "name" => self.name = Some(input.parse()?),
            "returns" => self.returns = Some(input.parse()?),
            "handle" => self.handle = Some(input.parse()?),
            "cpus" => self.cpus = Some(number(input)?),
            "gpus" => self.gpus = Some(number(input)?),
            "memory" => self.memory = Some(input.parse()?),
            "retries" => self.retries = Some(input.parse()?),
            "max_calls" => self.max_calls = Some(at_least_one(key, input)?),
            "threads_per_worker" => self.threads_per_worker = Some(at_least_one(key, input)?),
            "strategy" => self.strategy = Some(strategy(input)?),
            "crate" => self.own_crate = CratePath::of(&input.parse()?)?,
            _ => {
                let inner;
                syn::bracketed!(inner in input);
                let errors = Punctuated::<LitStr, Token![,]>::parse_terminated(&inner)?;
                self.retry_on = Some(errors.into_iter().collect());
            }
        }
        Ok(())
    }

    /// The choices as a `Defaults`, on top of those of `base`.
    pub fn defaults(&self, name: &str, base: &TokenStream) -> TokenStream {
        let name = self.name.as_ref().map_or_else(|| quote!(#name), |name| quote!(#name));
        let cpus = self.cpus.iter();
        let gpus = self.gpus.iter();
        let memory = self.memory.iter();
        let retries = self.retries.iter();
        let retry_on = self.retry_on.iter();
        let max_calls = self.max_calls.iter();
        let threads = self.threads_per_worker.iter();
        let strategy = self.strategy.iter();
        let stream = self.stream.iter().map(|limits| limits.value());
        let names = self.resources.iter().map(|(name, _)| name);
        let amounts = self.resources.iter().map(|(_, amount)| amount);
        quote! {
            __bireme_crate::private::Defaults {
                name: #name,
                resources: &[#((#names, #amounts)),*],
                #(cpus: #cpus,)*
                #(gpus: #gpus,)*
                #(memory: #memory,)*
                #(retries: #retries,)*
                #(retry_on: &[#(#retry_on),*],)*
                #(calls_max: #max_calls,)*
                #(threads_per_worker: #threads,)*
                #(strategy: ::core::option::Option::Some(#strategy),)*
                #(stream: #stream,)*
                ..#base
            }
        }
    }
}

struct Amount {
    name: String,
    amount: Literal,
}

impl Parse for Amount {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse::<Ident>()?.to_string();
        input.parse::<Token![=]>()?;
        Ok(Self { name, amount: number(input)? })
    }
}

/// A constant of type `Strategy`, whose type only the compiler can check.
fn strategy(input: ParseStream<'_>) -> Result<Expr> {
    match input.parse()? {
        Expr::Lit(literal) => {
            Err(Error::new(literal.span(), "`strategy` is a value such as `bireme::Strategy::Spread`"))
        }
        value => Ok(value),
    }
}

/// A whole number from 1.
fn at_least_one(key: &str, input: ParseStream<'_>) -> Result<LitInt> {
    let number: LitInt = input.parse()?;
    match number.base10_parse::<u32>()? {
        0 => {
            Err(Error::new(number.span(), format!("`{key} = 0` would allow no run; give at least 1, or leave it out")))
        }
        _ => Ok(number),
    }
}

/// A number that is not negative, with or without a point.
fn number(input: ParseStream<'_>) -> Result<Literal> {
    if input.peek(Token![-]) {
        return Err(input.error("an amount cannot be negative; give zero or more"));
    }
    let value = match input.parse::<Lit>()? {
        Lit::Int(number) => number.base10_parse::<f64>(),
        Lit::Float(number) => number.base10_parse::<f64>(),
        other => Err(Error::new(other.span(), "an amount is a number, such as 2 or 0.5")),
    }?;
    Ok(Literal::f64_suffixed(value))
}
