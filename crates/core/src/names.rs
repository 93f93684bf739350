//! Names of actors and placement groups as the engine knows them: a namespace and a name in it, or a name alone.

/// Between a namespace and a name: nobody types it, so no two pairs are the same text.
pub const SEPARATOR: char = '\u{1f}';

/// The namespace, if there is one, and the name in it.
pub fn split(full: &str) -> (Option<&str>, &str) {
    match full.rsplit_once(SEPARATOR) {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, full),
    }
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
}
