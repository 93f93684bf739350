//! The tokens of a cluster, for the command line: made, listed and taken back on the machine that has the authority.
//!
//! The daemon of a head makes the authority at its first start ([`Tokens::found`]); commands find both files in the
//! cluster's folder ([`Tokens::of`]). What a token is and how it is checked is in `bireme_net::token`.

use std::path::Path;

use bireme_net::tls::{Authority, Fingerprint, SecurityError};
use bireme_net::token::TokenBook;

pub use bireme_net::tls::Role;
pub use bireme_net::token::{Stay, Token, TokenEntry, TokenId, TokenState, TokenTerms};

use crate::clock;
use crate::error::Error;

/// The name of the token book in a cluster's folder.
pub const BOOK: &str = "tokens";

/// The book of a cluster, and the authority that its tokens name.
pub struct Tokens {
    book: TokenBook,
    fingerprint: Fingerprint,
}

impl Tokens {
    /// Those of a cluster that this user has the authority of, in the cluster's folder.
    pub fn of(folder: &Path) -> Result<Self, Error> {
        let authority = Authority::load(folder).map_err(|error| match error {
            SecurityError::Secret(error) if error.is_missing() => Error::BadArgument(
                "the authority of this cluster is not on this machine: go where its head runs; a cluster that listens \
                 on loopback has none and needs no tokens"
                    .to_owned(),
            ),
            other => Error::BadArgument(other.to_string()),
        })?;
        Self::with(&authority, folder)
    }

    /// The same; at the first start of a cluster the authority is made.
    pub fn found(folder: &Path) -> Result<Self, Error> {
        let authority = Authority::open(folder, clock::seconds_since_1970());
        Self::with(&authority.map_err(|error| Error::BadArgument(error.to_string()))?, folder)
    }

    fn with(authority: &Authority, folder: &Path) -> Result<Self, Error> {
        let book = TokenBook::open(&folder.join(BOOK)).map_err(|error| Error::BadArgument(error.to_string()))?;
        Ok(Self { book, fingerprint: authority.fingerprint() })
    }

    /// Makes a token. Its secret is seen now and never again.
    pub fn create(&self, terms: TokenTerms) -> Result<Token, Error> {
        let made = self.book.create(terms, self.fingerprint, clock::seconds_since_1970());
        made.map_err(|error| Error::BadArgument(error.to_string()))
    }

    /// All of them, oldest first, each with whether it can still be used.
    pub fn list(&self) -> Result<Vec<(TokenEntry, TokenState)>, Error> {
        let now = clock::seconds_since_1970();
        let entries = self.book.list().map_err(|error| Error::BadArgument(error.to_string()))?;
        Ok(entries.into_iter().map(|entry| (entry.clone(), entry.state(now))).collect())
    }

    /// Takes a token back; who came in with it is expelled.
    pub fn revoke(&self, id: TokenId) -> Result<(), Error> {
        self.book.revoke(id).map_err(|error| Error::BadArgument(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[test]
    fn tokens_are_those_of_the_folder_and_there_are_none_without_an_authority() {
        let folder = std::env::temp_dir().join(format!("bireme-tokens-{}", std::process::id()));
        let missing = Tokens::of(&folder).err().unwrap().to_string();
        assert!(missing.contains("where its head runs"), "{missing}");
        let found = Tokens::found(&folder).unwrap();
        let terms =
            TokenTerms { role: Role::Node, life: Duration::from_secs(60), uses: Some(1), stay: Stay::WithToken };
        let token = found.create(terms).unwrap();
        // Another command, later.
        let tokens = Tokens::of(&folder).unwrap();
        assert_eq!(tokens.fingerprint, token.fingerprint);
        tokens.revoke(token.id).unwrap();
        let listed = found.list().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].0.id, listed[0].1), (token.id, TokenState::Revoked));
        assert!(tokens.revoke(TokenId(token.id.0 ^ 1)).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
