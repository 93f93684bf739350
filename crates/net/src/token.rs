//! Tokens: how a newcomer proves that somebody of the cluster wants it, and knows the cluster in turn.
//!
//! A token is made on the machine that has the authority, carried over by hand (`bireme-...`), and shown once, inside
//! of TLS, for a certificate. It names the authority by its fingerprint, so that its secret is told to nobody else.
//! Its role, expiry and uses are what the [`TokenBook`] says; what the text says of them is for people.

mod book;
mod members;
mod rotation;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;

use bireme_core::rotation::Refusal;

use crate::secret::SecretError;
use crate::tls::{Fingerprint, Role, SecurityError, sha256};

pub use book::{TokenBook, TokenEntry, TokenState, TokenTerms};
pub use members::{Contents, Stay};
pub use rotation::Looked;

/// Bytes of a token's secret: nobody guesses it, so its plain hash can be stored.
const SECRET_BYTES: usize = 32;

/// Names a token in lists and logs. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "token-{:016x}", self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::str::FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits = text.strip_prefix("token-").unwrap_or(text);
        let exact = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| exact);
        number.map(TokenId).ok_or_else(|| TokenError::BadId { text: text.chars().take(40).collect() })
    }
}

/// A token with its secret, as it is carried to a newcomer. [`Token::to_text`] is the only way to see the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Its name.
    pub id: TokenId,
    /// What its holder may become.
    pub role: Role,
    /// Until when, in seconds since 1970.
    pub expires: u64,
    /// The authority that will take it.
    pub fingerprint: Fingerprint,
    secret: [u8; SECRET_BYTES],
}

impl Token {
    /// The form to carry: `bireme-` and letters.
    pub fn to_text(&self) -> String {
        text::encode(self)
    }

    /// Reads it back. A mistyped one is told from a wrong one.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        text::decode(text)
    }

    /// What the book has of the secret.
    fn hash(&self) -> [u8; 32] {
        sha256(&[b"bireme token 1", &self.id.0.to_le_bytes(), &self.secret])
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({}, {})", self.id, self.role)
    }
}

/// Why a token is not taken, or the book not read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The text is none.
    #[error("this is no token, or a letter of it is missing or wrong: copy it again, from `bireme-` to its end")]
    Malformed,
    /// The book has no such token.
    #[error(
        "{id} is unknown here: it is of another cluster, or was forgotten; make a new one with `bireme token create`"
    )]
    Unknown {
        /// The token.
        id: TokenId,
    },
    /// The name is right, the secret is not.
    #[error("the secret of {id} is wrong: copy the token again, or make a new one with `bireme token create`")]
    WrongSecret {
        /// The token.
        id: TokenId,
    },
    /// Its time is over.
    #[error("{id} has expired: make a new one with `bireme token create`")]
    Expired {
        /// The token.
        id: TokenId,
    },
    /// It was taken back.
    #[error("{id} was revoked: make a new one with `bireme token create`")]
    Revoked {
        /// The token.
        id: TokenId,
    },
    /// It was used as often as it may be.
    #[error("{id} has been used up: each newcomer needs a use of its own; make a new one with `bireme token create`")]
    Spent {
        /// The token.
        id: TokenId,
    },
    /// The authority that it names was replaced.
    #[error("{id} is of an authority that was replaced: make a new one with `bireme token create`")]
    Outdated {
        /// The token.
        id: TokenId,
    },
    /// It is for something else.
    #[error("{id} is for a {found}, not for a {wanted}: make one with `bireme token create --for {wanted}`")]
    WrongPurpose {
        /// The token.
        id: TokenId,
        /// What it is for.
        found: Role,
        /// What was asked for.
        wanted: Role,
    },
    /// The member was expelled.
    #[error(
        "it was expelled from the cluster: to come back it needs a new token, and its saved certificate (node.pem or \
         client.pem in its folder of keys) has to be removed"
    )]
    Expelled,
    /// The token that the member came in with was revoked.
    #[error(
        "{id}, with which it came in, was revoked: to come back it needs a new token, and its saved certificate (node.pem or \
         client.pem in its folder of keys) has to be removed"
    )]
    MemberRevoked {
        /// The token.
        id: TokenId,
    },
    /// The authority was replaced, and the member did not renew its certificate meanwhile.
    #[error(
        "the cluster's authority was replaced (`bireme token rotate`), and it has not renewed its certificate in time: it has to join \
         again with a new token"
    )]
    MemberOutdated,
    /// The member has been here for as long as its token allows.
    #[error("it has stayed for as long as its token allows: make a new one with `bireme token create`")]
    StayOver,
    /// The member has not renewed its certificate.
    #[error("its certificate has expired: enrol again with a new token")]
    CertificateExpired,
    /// The certificate was not given for a token of this book.
    #[error("its certificate was not given for a token of this cluster, so it cannot be renewed: enrol with one")]
    NoMember,
    /// There are too many members.
    #[error("{MEMBERS_MAX} members have certificates that are good: wait until some expire")]
    MembersFull,
    /// Not the name of a token.
    #[error("`{text}` is no token's name: `bireme token list` shows them")]
    BadId {
        /// What was given.
        text: String,
    },
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens that can still be used: revoke some with `bireme token revoke`")]
    Full,
    /// The authority is not replaced now.
    #[error(transparent)]
    Rotation(#[from] Refusal),
    /// The authorities' files.
    #[error(transparent)]
    Authority(#[from] Box<SecurityError>),
    /// Another process does not let go of the book.
    #[error("another process has held the token book for too long: end it, then try again")]
    Busy,
    /// The book's file.
    #[error(transparent)]
    Book(#[from] SecretError),
}

/// Tokens in one book. At the bound the oldest that cannot be used any more is forgotten.
pub const TOKENS_MAX: usize = 1024;

/// Holders of certificates in one book. At the bound those whose certificates have expired are forgotten.
pub const MEMBERS_MAX: usize = 10_000;

impl From<SecurityError> for TokenError {
    fn from(error: SecurityError) -> Self {
        Self::Authority(Box::new(error))
    }
}
