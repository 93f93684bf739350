//! What may depend on what: the table of ARCHITECTURE.md against every `Cargo.toml`.
//!
//! The table is the one after the line `<!-- tidy: dependencies -->`. Its first column is the folder in
//! backticks, its column `may use` names our crates in backticks by folder, or says `nothing of ours`. The
//! ordinary dependencies must be exactly those of the table; test dependencies must be among them or be test tools.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::tree::Tree;

const PAGE: &str = "ARCHITECTURE.md";
const MARKER: &str = "<!-- tidy: dependencies -->";
/// Crates that the tests of every crate may use.
const TEST_TOOLS: &[&str] = &["netlab"];

/// Our crates that a manifest names, by folder.
#[derive(Default)]
struct Used {
    ordinary: BTreeMap<String, usize>,
    test: BTreeMap<String, usize>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let table = match table(tree.get(PAGE).unwrap_or_default()) {
        Ok(table) => table,
        Err(message) => return vec![Finding::of(PAGE, message)],
    };
    let mut findings = Vec::new();
    let folders = crate_folders(tree);
    for (folder, path) in &folders {
        let Some((_, allowed)) = table.get(folder) else {
            findings.push(Finding::of(path, format!("crate `{folder}` has no row in the dependency table of {PAGE}")));
            continue;
        };
        let used = used(tree.get(path).unwrap_or_default(), folders.keys());
        let test = used.test.iter().filter(|(name, _)| !TEST_TOOLS.contains(&name.as_str()));
        for (name, line) in used.ordinary.iter().chain(test).filter(|(name, _)| !allowed.contains(*name)) {
            let message =
                format!("`{folder}` may not use `{name}`; change the code, or the table in {PAGE} in the same commit");
            findings.push(Finding::at(path, *line, message));
        }
        for name in allowed.iter().filter(|name| !used.ordinary.contains_key(*name)) {
            let message = format!(
                "the table in {PAGE} lets `{folder}` use `{name}`, which it does not: take it out of the table"
            );
            findings.push(Finding::of(path, message));
        }
    }
    for (folder, (line, allowed)) in &table {
        for name in std::iter::once(folder).chain(allowed).filter(|name| !folders.contains_key(*name)) {
            findings.push(Finding::at(PAGE, *line, format!("there is no crate `{name}`")));
        }
    }
    findings
}

/// Folder to manifest.
fn crate_folders(tree: &Tree) -> BTreeMap<String, String> {
    let manifests = tree.files().map(|(path, _)| path).filter(|path| path.ends_with("/Cargo.toml"));
    let named = manifests.filter_map(|path| {
        let folder = path.strip_suffix("/Cargo.toml")?;
        let name = folder.strip_prefix("crates/").unwrap_or(folder);
        (!name.contains('/')).then(|| (name.to_owned(), path.to_owned()))
    });
    named.collect()
}

/// Folder to line and to what it may use.
fn table(page: &str) -> Result<BTreeMap<String, (usize, BTreeSet<String>)>, String> {
    let mut lines = page.lines().enumerate().skip_while(|(_, line)| line.trim() != MARKER).skip(1);
    let mut column = None;
    let mut rows = BTreeMap::new();
    for (index, line) in lines.by_ref().skip_while(|(_, line)| line.trim().is_empty()) {
        let line = line.trim();
        if !line.starts_with('|') {
            break;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some(column) = column else {
            column = cells.iter().position(|cell| *cell == "may use");
            if column.is_none() {
                return Err("the dependency table has no column `may use`".to_owned());
            }
            continue;
        };
        if let Some(folder) = super::links::backticked(cells[0]).next() {
            let allowed = cells.get(column).map(|cell| super::links::backticked(cell).map(str::to_owned).collect());
            rows.insert(folder.to_owned(), (index + 1, allowed.unwrap_or_default()));
        }
    }
    if rows.is_empty() {
        return Err(format!("no dependency table after the line `{MARKER}`"));
    }
    Ok(rows)
}

/// The crates of ours that a manifest names, with the line.
fn used<'a>(manifest: &str, folders: impl Iterator<Item = &'a String> + Clone) -> Used {
    let mut used = Used::default();
    let mut section = String::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            header.trim_matches(['[', ']']).clone_into(&mut section);
        }
        let Some((_, after)) = section.split_once("dependencies") else { continue };
        for folder in folders.clone() {
            let package = package_of(folder);
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            let header = line.starts_with('[') && after.strip_prefix('.') == Some(&package);
            let renamed = line.contains(&format!("package = \"{package}\""));
            if key == package || header || renamed {
                let kind = if section.contains("dev-") { &mut used.test } else { &mut used.ordinary };
                kind.insert(folder.clone(), index + 1);
            }
        }
    }
    used
}

/// Packages have a prefix, since one named plain `core` would clash with Rust's own.
fn package_of(folder: &str) -> String {
    match folder {
        "bireme" | "xtask" => folder.to_owned(),
        _ => format!("bireme-{folder}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Map\n<!-- tidy: dependencies -->\n\n| folder | may use |\n|---|---|\n\
        | `core` | nothing of ours |\n| `net` | `core` |\n";

    fn messages(core: &str, net: &str) -> Vec<String> {
        let tree = Tree::of(&[(PAGE, TABLE), ("crates/core/Cargo.toml", core), ("crates/net/Cargo.toml", net)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn manifests_that_agree_with_the_table_pass() {
        let net = "[package]\nname = \"bireme-net\"\n[dependencies]\nbireme-core.workspace = true\nrustix = \"1\"\n";
        assert!(messages("[dependencies]\nserde = \"1\"\n", net).is_empty());
        assert!(messages("", "[dependencies.bireme-core]\npath = \"../core\"\n").is_empty());
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let net = "[dependencies]\nbireme-core.workspace = true\n";
        for planted in [
            "[dependencies]\nbireme-net.workspace = true\n",
            "[dev-dependencies]\nbireme-net = { path = \"../net\" }\n",
            "[target.'cfg(unix)'.dependencies]\nother = { package = \"bireme-net\" }\n",
        ] {
            let found = messages(planted, net);
            assert_eq!(found.len(), 1, "{planted}");
            assert!(found[0].contains("`core` may not use `net`"));
        }
    }

    #[test]
    fn a_test_tool_is_for_tests_alone() {
        let table = format!("{TABLE}| `netlab` | nothing of ours |\n");
        let found = |core: &str| {
            let net = "[dependencies]\nbireme-core.workspace = true\n";
            let manifests = [("crates/core/Cargo.toml", core), ("crates/net/Cargo.toml", net)];
            let tree =
                Tree::of(&[(PAGE, table.as_str()), ("crates/netlab/Cargo.toml", ""), manifests[0], manifests[1]]);
            check(&tree).len()
        };
        assert_eq!(found("[dev-dependencies]\nbireme-netlab.workspace = true\n"), 0);
        assert_eq!(found("[dependencies]\nbireme-netlab.workspace = true\n"), 1);
    }

    #[test]
    fn a_row_that_allows_too_much_is_found() {
        let found = messages("", "[dev-dependencies]\nbireme-core.workspace = true\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("take it out"));
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        let tree = Tree::of(&[(PAGE, TABLE), ("crates/core/Cargo.toml", ""), ("crates/new/Cargo.toml", "")]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("`new` has no row"));
        assert!(found[1].contains("no crate `net`"));
    }

    #[test]
    fn a_page_without_a_table_is_found() {
        let tree = Tree::of(&[(PAGE, "# Map\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
