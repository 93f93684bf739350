//! Every file in `examples/`, `tests/` and `benches/` of the root is declared by a crate, and the reverse.
//!
//! Cargo does not look into folders of the root: a file that no crate declares would never be built, and
//! nobody would notice. A file that another one of its folder takes in as a module is built with that one.

use super::Finding;
use crate::tree::Tree;

const FOLDERS: &[&str] = &["examples", "tests", "benches"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let declared: Vec<(&str, usize, &str)> = tree
        .files()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .flat_map(|(path, text)| declarations(text).into_iter().map(move |(line, target)| (path, line, target)))
        .collect();
    for (path, _) in tree.files().filter(|(path, _)| is_target(path)) {
        if !declared.iter().any(|(_, _, target)| *target == path) && !is_module(tree, path) {
            let message = "no crate declares this file, so it is never built: add it to crates/bireme/Cargo.toml";
            findings.push(Finding::of(path, message));
        }
    }
    for (manifest, line, target) in declared {
        if !tree.exists(target) {
            findings.push(Finding::at(manifest, line, format!("`{target}` is not there")));
        }
    }
    findings
}

fn is_target(path: &str) -> bool {
    let inside = FOLDERS.iter().find_map(|folder| path.strip_prefix(folder)?.strip_prefix('/'));
    inside.is_some_and(|name| name.ends_with(".rs") && !name.contains('/'))
}

/// Whether another file of the same folder says `mod name;`.
fn is_module(tree: &Tree, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let declaration = format!("mod {};", name.trim_end_matches(".rs"));
    tree.rust().iter().any(|file| {
        file.path.rsplit_once('/').is_some_and(|(other, _)| other == folder)
            && file.source.code.lines().any(|line| line.trim() == declaration)
    })
}

/// Paths that a manifest declares in folders of the root, from the root.
fn declarations(manifest: &str) -> Vec<(usize, &str)> {
    let lines = manifest.lines().enumerate();
    let paths = lines.filter_map(|(index, line)| {
        let value = line.trim().strip_prefix("path")?.trim_start().strip_prefix('=')?;
        let path = value.trim().trim_matches('"').strip_prefix("../../")?;
        FOLDERS.iter().any(|folder| path.starts_with(folder)).then_some((index + 1, path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_nobody_declares_and_declarations_of_nothing_are_found() {
        let manifest =
            "[[example]]\nname = \"a\"\npath = \"../../examples/a.rs\"\n[[test]]\npath = \"../../tests/gone.rs\"\n";
        let tree = Tree::of(&[
            ("crates/bireme/Cargo.toml", manifest),
            ("examples/a.rs", ""),
            ("examples/b.rs", ""),
            ("tests/kill.rs", ""),
            ("tests/support/start.rs", ""),
            ("tests/support.rs", "mod start;"),
            ("tests/other.rs", "mod support;\n// mod kill;"),
        ]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["examples/b.rs", "tests/kill.rs", "tests/other.rs", "crates/bireme/Cargo.toml"]);
    }
}
