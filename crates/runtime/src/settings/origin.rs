//! Where a value was said.

use std::fmt;
use std::path::PathBuf;

/// Where a value was said; an earlier one wins over a later one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// On the command line, by this flag.
    Flag(&'static str),
    /// In this environment variable.
    Environment(&'static str),
    /// In a file.
    File {
        /// Which one.
        path: PathBuf,
        /// Where in it.
        line: usize,
    },
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Environment(variable) => f.write_str(variable),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}
