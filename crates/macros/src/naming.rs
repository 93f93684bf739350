//! The name of the crate in generated code.
//!
//! Templates say [`__bireme_crate`](MARK) where the crate is meant, and the last step puts its path there: `::bireme`, or what
//! `crate = "..."` in the attribute says, for programs that have the crate under another name.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Error, LitStr, Path, Result};

const MARK: &str = "__bireme_crate";

/// How generated code names the crate.
pub struct CratePath(TokenStream);

impl Default for CratePath {
    fn default() -> Self {
        Self(quote!(::bireme))
    }
}

impl CratePath {
    /// From the attribute: the name of a dependency, or a path to the crate.
    pub fn of(text: &LitStr) -> Result<Self> {
        let path: Path = text.parse().map_err(|_| {
            Error::new(
                text.span(),
                "`crate` is the name of the dependency or a path to it, such as `crate = \"galley\"`",
            )
        })?;
        let is_name = path.get_ident().is_some_and(|name| name != "crate" && name != "self" && name != "super");
        Ok(Self(if is_name { quote!(::#path) } else { path.into_token_stream() }))
    }

    /// Generated code with the path in the place of the marks.
    pub fn put_into(&self, tokens: TokenStream) -> TokenStream {
        let replaced = tokens.into_iter().map(|token| match token {
            TokenTree::Ident(ident) if ident == MARK => self.at(&ident),
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), self.put_into(group.stream()));
                inner.set_span(group.span());
                TokenTree::Group(inner).into()
            }
            other => other.into(),
        });
        replaced.collect()
    }

    fn at(&self, mark: &Ident) -> TokenStream {
        let path = self.0.clone().into_iter().map(|mut token| {
            token.set_span(mark.span());
            token
        });
        path.collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn named(text: &str) -> String {
        let path = CratePath::of(&LitStr::new(text, proc_macro2::Span::call_site())).unwrap();
        path.put_into(quote!(impl __bireme_crate::Actor for (X, [__bireme_crate::Y]) {})).to_string()
    }

    #[test]
    fn the_path_is_put_where_the_marks_are() {
        assert_eq!(named("galley"), quote!(impl ::galley::Actor for (X, [::galley::Y]) {}).to_string());
        assert_eq!(
            named("crate::deps::oars"),
            quote!(impl crate::deps::oars::Actor for (X, [crate::deps::oars::Y]) {}).to_string()
        );
        assert_eq!(named("crate"), quote!(impl crate::Actor for (X, [crate::Y]) {}).to_string());
        let default = CratePath::default().put_into(quote!(__bireme_crate::X)).to_string();
        assert_eq!(default, quote!(::bireme::X).to_string());
    }

    #[test]
    fn a_text_that_is_no_path_is_refused() {
        assert!(CratePath::of(&LitStr::new("not a crate", proc_macro2::Span::call_site())).is_err());
    }
}
