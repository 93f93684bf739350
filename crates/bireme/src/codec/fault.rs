//! Why a value could not be encoded or decoded.

use std::fmt;

use serde::{de, ser};

/// An error of one of the encodings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The plain encoding cannot carry this value: it has to be self-describing.
    NotPlain(&'static str),
    /// The user's code, or the bytes, and what is wrong.
    Other(String),
}

impl Fault {
    pub(super) fn postcard(error: postcard::Error) -> Self {
        Fault::Other(error.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotPlain(why) => f.write_str(why),
            Fault::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Fault::Other(text.to_string())
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Fault::Other(text.to_string())
    }
}
