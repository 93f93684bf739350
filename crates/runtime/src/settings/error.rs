//! What can be wrong with settings. Each error names the place and what to do.

use std::path::PathBuf;

use super::origin::Origin;

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A file that cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file that is no TOML.
    #[error("{path}:{line}: {reason}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What the reader says.
        reason: String,
    },
    /// A key of the file that is no setting.
    #[error("{path}:{line}: there is no setting {key:?}{}; `bireme config` lists them", meant(*nearest))]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What it says.
        key: String,
        /// What it may have meant.
        nearest: Option<&'static str>,
    },
    /// A value of the file whose type does not fit.
    #[error("{path}:{line}: {key} is {} {found}, give {wanted}", article(found))]
    BadType {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// Which setting.
        key: &'static str,
        /// The type that was found.
        found: &'static str,
        /// What would be right.
        wanted: &'static str,
    },
    /// A value that makes no sense.
    #[error("{origin}: {value:?} {reason}; {name} takes {wanted}")]
    BadValue {
        /// Where it was said.
        origin: Origin,
        /// Which setting.
        name: &'static str,
        /// What was said.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
        /// What would be right.
        wanted: &'static str,
    },
    /// Settings that do not go together, or a value that is not there yet.
    #[error("{origin}: {reason}")]
    Unfit {
        /// Where it was said.
        origin: Origin,
        /// What is wrong.
        reason: String,
    },
    /// A file with a secret that others may read.
    #[error("{path} has a token and others may read it (mode {mode:o}); make it yours alone with `chmod 600`")]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Who may do what.
        mode: u32,
    },
    /// A folder that is not safe to use.
    #[error("the state directory {path} {reason}; choose another with --state-directory or BIREME_STATE_DIRECTORY")]
    StateDirectory {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no node to talk to.
    #[error("{0}")]
    NoNode(String),
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name:?}?"))
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
