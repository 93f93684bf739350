//! `docs/limits.md` names bounds that exist, and every bound of the engine.
//!
//! A row begins with the constant and its file, both in backticks. A constant of the crates below whose name
//! ends in `_MAX` must have a row; other names may have one.

use std::collections::BTreeSet;

use super::Finding;
use super::links::backticked;
use crate::source::{find_word, words};
use crate::tree::Tree;

const PAGE: &str = "docs/limits.md";
const OBLIGED: &[&str] = &["crates/core/src/", "crates/net/src/", "crates/store/src/", "crates/runtime/src/"];
const ENDING: &str = "_MAX";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else {
        return vec![Finding::of(PAGE, "the page of limits is missing")];
    };
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for (index, line) in page.lines().enumerate().filter(|(_, line)| line.starts_with("| `")) {
        let mut cells = backticked(line);
        let (Some(name), Some(path)) = (cells.next(), cells.next()) else { continue };
        let file = tree.rust_file(path);
        if file.is_none_or(|file| find_word(&file.source.code, &format!("const {name}")).is_none()) {
            findings.push(Finding::at(PAGE, index + 1, format!("there is no constant `{name}` in `{path}`")));
        }
        listed.insert((path, name));
    }
    for file in tree.rust().iter().filter(|file| OBLIGED.iter().any(|folder| file.path.starts_with(folder))) {
        for (line, code, _) in file.code_lines().filter(|(_, _, test)| !test) {
            let Some(at) = find_word(code, "const") else { continue };
            let name = words(&code[at + "const".len()..]).next().unwrap_or_default();
            if name.ends_with(ENDING) && !listed.contains(&(file.path.as_str(), name)) {
                let message = format!("`{name}` has no row in {PAGE} that says what happens at the bound");
                findings.push(Finding::at(&file.path, line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "pub const DEPTH_MAX: usize = 5;\nconst OTHER: u8 = 1;\n\
        #[cfg(test)]\nmod tests {\n    const TRIES_MAX: u8 = 1;\n}\n";

    fn found(page: &str) -> Vec<String> {
        let tree =
            Tree::of(&[(PAGE, page), ("crates/core/src/a.rs", CODE), ("xtask/src/b.rs", "const LINES_MAX: u8 = 1;")]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_page_with_every_bound_passes() {
        assert_eq!(found("| bound | file |\n| `DEPTH_MAX` | `crates/core/src/a.rs` | 5 |\n"), Vec::<String>::new());
    }

    #[test]
    fn missing_and_stale_bounds_are_found() {
        let messages =
            found("| `WIDTH_MAX` | `crates/core/src/a.rs` | 5 |\n| `DEPTH_MAX` | `crates/core/src/gone.rs` | 5 |\n");
        assert_eq!(messages.len(), 3);
        assert!(messages[0].contains("`WIDTH_MAX`") && messages[1].contains("gone.rs"));
        assert!(messages[2].contains("has no row"));
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
