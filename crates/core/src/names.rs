//! Names of actors and placement groups as the engine knows them: a namespace and a name in it, or a name alone.

use std::fmt;

/// Between a namespace and a name: nobody types it, so no two pairs are the same text.
pub const SEPARATOR: char = '\u{1f}';

/// The namespace, if there is one, and the name in it.
pub fn split(full: &str) -> (Option<&str>, &str) {
    match full.rsplit_once(SEPARATOR) {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, full),
    }
}

/// Where the names of a job's actors and groups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// The job has its nodes for itself: a name alone is enough.
    Alone,
    /// Nobody else's: what a job has that shares its nodes and chose none.
    OfJob,
    /// What was chosen; jobs that chose the same find each other's names.
    Chosen(String),
}

/// Why something cannot be a name or a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} has the control character U+001F in it, which no name and no namespace can have", self.0)
    }
}

impl std::error::Error for BadName {}

impl Namespace {
    /// That of a job, which may have chosen one and may share its nodes with other jobs.
    pub fn of_job(chosen: Option<String>, shares_nodes: bool) -> Result<Self, BadName> {
        match chosen.filter(|name| !name.is_empty()) {
            Some(name) => check(&name).map(|()| Self::Chosen(name)),
            None if shares_nodes => Ok(Self::OfJob),
            None => Ok(Self::Alone),
        }
    }

    /// Its name, in a process of this job; empty when names stand alone.
    pub fn name(&self, job: u64) -> String {
        match self {
            Self::Alone => String::new(),
            Self::OfJob => format!("job-{job:016x}"),
            Self::Chosen(name) => name.clone(),
        }
    }

    /// As text, for the job's workers.
    pub fn to_text(&self) -> String {
        match self {
            Self::Alone => "alone".to_owned(),
            Self::OfJob => "of-job".to_owned(),
            Self::Chosen(name) => format!("={name}"),
        }
    }

    /// Reads [`Namespace::to_text`]; nothing when it is something else.
    pub fn from_text(text: &str) -> Option<Self> {
        match text {
            "alone" => Some(Self::Alone),
            "of-job" => Some(Self::OfJob),
            _ => text.strip_prefix('=').map(|name| Self::Chosen(name.to_owned())),
        }
    }
}

/// The name as the engine knows it; the empty namespace is that of names that stand alone.
pub fn join(namespace: &str, name: &str) -> Result<String, BadName> {
    check(namespace)?;
    check(name)?;
    Ok(if namespace.is_empty() { name.to_owned() } else { format!("{namespace}{SEPARATOR}{name}") })
}

fn check(part: &str) -> Result<(), BadName> {
    if part.contains(SEPARATOR) { Err(BadName(part.to_owned())) } else { Ok(()) }
}

/// The name for people.
pub fn in_words(full: &str) -> String {
    match split(full) {
        (Some(namespace), name) => format!("{name:?} in the namespace {namespace:?}"),
        (None, name) => format!("{name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_never_see_what_separates_a_namespace_from_a_name() {
        assert_eq!(split("counter"), (None, "counter"));
        assert_eq!(split("team\u{1f}counter"), (Some("team"), "counter"));
        assert_eq!(in_words("counter"), "\"counter\"");
        assert_eq!(in_words("team\u{1f}counter"), "\"counter\" in the namespace \"team\"");
    }

    #[test]
    fn a_job_that_shares_its_nodes_has_a_namespace_of_its_own_unless_it_chose_one() {
        let chosen = |name: &str| Namespace::of_job(Some(name.to_owned()), true);
        assert_eq!(Namespace::of_job(None, false), Ok(Namespace::Alone));
        assert_eq!(chosen("team"), Ok(Namespace::Chosen("team".to_owned())));
        assert_eq!(chosen(""), Ok(Namespace::OfJob));
        assert!(chosen("a\u{1f}b").is_err());
        assert_ne!(Namespace::OfJob.name(1), Namespace::OfJob.name(2));
        for namespace in [Namespace::Alone, Namespace::OfJob, Namespace::Chosen("of-job".to_owned())] {
            assert_eq!(Namespace::from_text(&namespace.to_text()), Some(namespace));
        }
    }

    #[test]
    fn no_name_reaches_into_another_namespace() {
        assert_eq!(join("team", "counter").as_deref(), Ok("team\u{1f}counter"));
        assert_eq!(join("", "counter").as_deref(), Ok("counter"));
        assert!(join("", "team\u{1f}counter").is_err());
    }
}
