//! Why a value could not be encoded or decoded.

use std::fmt;

use serde::{de, ser};

/// An error of one of the encodings. One word, since every part of a value is returned beside it.
#[derive(Debug)]
pub(super) struct Fault(Box<Why>);

#[derive(Debug)]
enum Why {
    /// The plain encoding cannot carry this value: it has to be self-describing.
    NotPlain(&'static str),
    /// The user's code, or the bytes, and what is wrong.
    Other(String),
}

impl Fault {
    /// The plain encoding cannot carry a value, for this reason.
    #[cold]
    pub(super) fn not_plain(why: &'static str) -> Self {
        Self(Box::new(Why::NotPlain(why)))
    }

    #[cold]
    pub(super) fn other(text: impl fmt::Display) -> Self {
        Self(Box::new(Why::Other(text.to_string())))
    }

    /// Whether the value has to be self-describing.
    pub(super) fn is_not_plain(&self) -> bool {
        matches!(*self.0, Why::NotPlain(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Why::NotPlain(why) => f.write_str(why),
            Why::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Fault::other(text)
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Fault::other(text)
    }
}
