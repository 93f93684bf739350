//! The tokens of a cluster, for the command line: made, listed and taken back on the machine that has the authority.
//!
//! The daemon of a head makes the authority at its first start ([`Tokens::found`]); commands find both files in the
//! cluster's folder ([`Tokens::of`]). What a token is and how it is checked is in `bireme_net::token`.

use std::path::Path;
use std::time::Duration;

use bireme_net::tls::{Authority, SecurityError};
use bireme_net::token::{TokenBook, TokenError};

pub use bireme_core::rotation::{Stage, UnderWay};
pub use bireme_net::tls::{Fingerprint, Role};
pub use bireme_net::token::{Stay, Token, TokenEntry, TokenId, TokenState, TokenTerms};

use crate::clock;
use crate::error::Error;

/// The name of the token book in a cluster's folder.
pub const BOOK: &str = "tokens";

/// The book of a cluster; beside it is the authority that its tokens name.
pub struct Tokens {
    book: TokenBook,
}

impl Tokens {
    /// Those of a cluster that this user has the authority of, in the cluster's folder.
    pub fn of(folder: &Path) -> Result<Self, Error> {
        Authority::load(folder).map_err(|error| match error {
            SecurityError::Secret(error) if error.is_missing() => Error::BadArgument(
                "the authority of this cluster is not on this machine: go where its head runs; a cluster that listens \
                 on loopback has none and needs no tokens"
                    .to_owned(),
            ),
            other => Error::BadArgument(other.to_string()),
        })?;
        Self::with(folder)
    }

    /// The same; at the first start of a cluster the authority is made.
    pub fn found(folder: &Path) -> Result<Self, Error> {
        let authority = Authority::open(folder, clock::seconds_since_1970());
        authority.map_err(|error| Error::BadArgument(error.to_string()))?;
        Self::with(folder)
    }

    fn with(folder: &Path) -> Result<Self, Error> {
        Ok(Self { book: TokenBook::open(&folder.join(BOOK)).map_err(bad)? })
    }

    /// Makes a token. Its secret is seen now and never again.
    pub fn create(&self, terms: TokenTerms) -> Result<Token, Error> {
        let newest = self.book.authorities().map_err(bad)?.newest();
        self.book.create(terms, newest, clock::seconds_since_1970()).map_err(bad)
    }

    /// All of them, oldest first, each with whether it can still be used.
    pub fn list(&self) -> Result<Vec<(TokenEntry, TokenState)>, Error> {
        let now = clock::seconds_since_1970();
        let entries = self.book.list().map_err(bad)?;
        Ok(entries.into_iter().map(|entry| (entry.clone(), entry.state(now))).collect())
    }

    /// Takes a token back; who came in with it is expelled.
    pub fn revoke(&self, id: TokenId) -> Result<(), Error> {
        self.book.revoke(id).map_err(bad)
    }

    /// Begins to replace the authority. The head, which runs, does the rest; both authorities are trusted for so long at most.
    pub fn rotate(&self, overlap: Duration) -> Result<(), Error> {
        self.book.rotate(overlap, clock::seconds_since_1970()).map_err(bad)
    }

    /// Has the old authority go as soon as all nodes have renewed that are there; by force without those that do not within seconds.
    pub fn finish_rotation(&self, force: bool) -> Result<(), Error> {
        self.book.finish_rotation(force, clock::seconds_since_1970()).map_err(bad)
    }

    /// The rotation that is under way, if one is.
    pub fn rotation(&self) -> Result<Option<UnderWay>, Error> {
        Ok(self.book.read_now().map_err(bad)?.rotation().under_way().cloned())
    }

    /// What new tokens carry: the newest authority's fingerprint.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(self.book.authorities().map_err(bad)?.newest())
    }
}

/// How far a rotation is, in one line for people.
pub fn rotation_text(rotation: &UnderWay, now: u64) -> String {
    let stage = match rotation.stage {
        Stage::Announced => "nodes learn to trust the new one",
        Stage::Issued => "certificates are of the new one",
    };
    let behind: Vec<String> = rotation.behind.iter().map(ToString::to_string).collect();
    let waits = if behind.is_empty() { String::new() } else { format!(", but not yet those of {}", behind.join(", ")) };
    let hurries = if rotation.hurries { "as soon as all nodes have renewed that are there, in " } else { "in " };
    let left = time_left(rotation.until.saturating_sub(now));
    format!("the authority is being replaced: {stage}{waits}; the old one goes {hurries}{left} at the latest")
}

/// A time for people: its two largest units.
pub fn time_left(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m {}s", seconds % 60),
        (0, _) => format!("{hours}h {minutes}m"),
        (_, _) => format!("{days}d {hours}h"),
    }
}

fn bad(error: TokenError) -> Error {
    Error::BadArgument(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_have_two_units() {
        for (seconds, shown) in [(0, "0m 0s"), (61, "1m 1s"), (3_600, "1h 0m"), (90_000, "1d 1h")] {
            assert_eq!(time_left(seconds), shown);
        }
    }

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
        assert_eq!(tokens.fingerprint().unwrap(), token.fingerprint);
        tokens.revoke(token.id).unwrap();
        let listed = found.list().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].0.id, listed[0].1), (token.id, TokenState::Revoked));
        assert!(tokens.revoke(TokenId(token.id.0 ^ 1)).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
