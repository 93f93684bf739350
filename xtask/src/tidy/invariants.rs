//! The table of invariants in ARCHITECTURE.md and the comments of the code use the same names.
//!
//! The table is the one after the line `<!-- tidy: invariants -->`; its first column is a name such as
//! `RING-2`. A name of the table must stand in a comment of a crate, and a comment must not use a name of
//! the same family that the table does not have.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";
const MARKER: &str = "<!-- tidy: invariants -->";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let page = tree.get(PAGE).unwrap_or_default();
    let table: Vec<(usize, &str)> = rows(page).collect();
    if table.is_empty() {
        return vec![Finding::of(PAGE, format!("no table of invariants after the line `{MARKER}`"))];
    }
    let families: BTreeSet<&str> = table.iter().filter_map(|(_, name)| name.split('-').next()).collect();
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for file in tree.rust().iter().filter(|file| file.path.starts_with("crates/")) {
        for (index, line) in file.source.comments.lines().enumerate() {
            for name in names(line).filter(|name| families.contains(name.split('-').next().unwrap_or_default())) {
                if !table.iter().any(|(_, listed)| *listed == name) {
                    findings.push(Finding::at(
                        &file.path,
                        index + 1,
                        format!("`{name}` is not in the table of {PAGE}"),
                    ));
                }
                used.insert(name);
            }
        }
    }
    let unused = table.iter().filter(|(_, name)| !used.contains(name));
    findings
        .extend(unused.map(|(line, name)| Finding::at(PAGE, *line, format!("no comment of a crate names `{name}`"))));
    findings
}

fn rows(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| line.trim() != MARKER).skip(1);
    let table = lines.skip_while(|(_, line)| line.trim().is_empty()).take_while(|(_, line)| line.starts_with('|'));
    table.filter_map(|(index, line)| names(line.split('|').nth(1)?).next().map(|name| (index + 1, name)))
}

/// Words such as `RING-2`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            family.len() > 2
                && family.chars().all(|c| c.is_ascii_uppercase())
                && !number.is_empty()
                && number.chars().all(|c| c.is_ascii_digit())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(table: &str, code: &str) -> Vec<String> {
        let page = format!("# Map\n{MARKER}\n\n| name | what |\n|---|---|\n{table}");
        let tree = Tree::of(&[(PAGE, &page), ("crates/net/src/ring.rs", code)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn names_that_agree_pass() {
        assert_eq!(found("| RING-1 | x |\n", "//! RING-1: UTF-8 is another family.\n"), Vec::<String>::new());
    }

    #[test]
    fn names_on_one_side_only_are_found() {
        let messages = found("| RING-1 | x |\n", "// by RING-2\nlet a = \"RING-3\";\n");
        assert_eq!(
            messages,
            ["`RING-2` is not in the table of ARCHITECTURE.md", "no comment of a crate names `RING-1`"]
        );
        assert_eq!(check(&Tree::of(&[(PAGE, "# Map\n")])).len(), 1);
    }
}
