//! `unsafe` lives in `store`, in `net` and in the files of the exception table, and argues for itself.
//!
//! Clippy asks for the argument of each block; this rule keeps the places few.

use super::Finding;
use super::exceptions;
use crate::source::find_word;
use crate::tree::Tree;

const FOLDERS: &[&str] = &["crates/store/", "crates/net/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some((line, _, _)) = file.code_lines().find(|(_, code, _)| find_word(code, "unsafe").is_some()) else {
            continue;
        };
        let home = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
        if !home && !exceptions::holds("unsafety", &file.path, "unsafe") {
            let message =
                "`unsafe` lives in store and net: move it there, or list the file in xtask/src/tidy/exceptions.rs";
            findings.push(Finding::at(&file.path, line, message));
        }
        if find_word(&file.source.comments, "SAFETY").is_none() {
            findings.push(Finding::at(&file.path, line, "`unsafe` without a `SAFETY:` comment in the file"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> usize {
        check(&Tree::of(&[(path, code)])).len()
    }

    #[test]
    fn unsafe_away_from_home_is_found() {
        let code = "// SAFETY: planted\nfn a() { unsafe { b() } }";
        assert_eq!(found("crates/bireme/src/task.rs", code), 1);
        assert_eq!(found("crates/store/src/arena.rs", code), 0);
        assert_eq!(found("crates/bireme/src/lib.rs", "#![forbid(unsafe_code)] // no unsafe"), 0);
    }

    #[test]
    fn unsafe_without_an_argument_is_found() {
        assert_eq!(found("crates/net/src/ring.rs", "fn a() { unsafe { b(\"SAFETY\") } }"), 1);
    }
}
