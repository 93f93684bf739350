//! Every link and every path that a page names is there, and every decision is in the index.
//!
//! Relative links `[text](path)` and paths in backticks that begin with a folder of ours. Fenced blocks are
//! program text, not references.

use super::Finding;
use crate::tree::Tree;

/// A word in backticks that begins so is a path from the root.
const FOLDERS: &[&str] =
    &["crates/", "docs/", "examples/", "tests/", "benches/", "xtask/", "python/", ".ci/", ".config/"];

const DECISIONS: &str = "docs/decisions/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (line, content) in prose_lines(text) {
            for target in link_targets(content).filter_map(|target| resolve(path, target)) {
                if !tree.exists(&target) {
                    findings.push(Finding::at(path, line, format!("link to `{target}`, which is not there")));
                }
            }
            for named in backticked(content).filter(|word| is_path(word)) {
                let named = named.split(':').next().unwrap_or(named);
                if !tree.exists(named) {
                    findings.push(Finding::at(path, line, format!("`{named}` is not there")));
                }
            }
        }
    }
    findings.extend(unlisted_decisions(tree));
    findings
}

fn unlisted_decisions(tree: &Tree) -> Vec<Finding> {
    let index = format!("{DECISIONS}README.md");
    let listed: Vec<&str> = tree.get(&index).unwrap_or_default().lines().flat_map(link_targets).collect();
    let pages = tree.files().filter_map(|(path, _)| path.strip_prefix(DECISIONS).filter(|name| name.ends_with(".md")));
    let missing = pages.filter(|name| *name != "README.md" && !listed.contains(name));
    missing.map(|name| Finding::of(&index, format!("decision `{name}` is not in the index"))).collect()
}

/// Lines outside of fenced blocks, with their number.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The words of a line that stand in backticks.
pub(super) fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(word: &str) -> bool {
    FOLDERS.iter().any(|folder| word.starts_with(folder)) && !word.contains([' ', '*', '<', '{', '…', '$'])
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The path from the root of a relative link, or nothing for a link elsewhere.
fn resolve(page: &str, target: &str) -> Option<String> {
    let target = target.split(['#', ' ']).next().unwrap_or_default();
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> usize {
        check(&Tree::of(&[("docs/journey.md", page), ("crates/core/src/node.rs", ""), ("README.md", "")])).len()
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        assert_eq!(found("see [a](../README.md#top), [b](https://example.org/x), [c](#here)"), 0);
        assert_eq!(found("see [a](README.md) and [b](../nothing.md)"), 2);
    }

    #[test]
    fn a_path_in_backticks_to_nothing_is_found() {
        assert_eq!(
            found("`crates/core/src/node.rs`, `crates/core`, `crates/core/src/node.rs:7` and `crates/*/src`"),
            0
        );
        assert_eq!(found("`crates/core/src/gone.rs`"), 1);
        assert_eq!(found("```\n`crates/core/src/gone.rs`\n```\n"), 0);
    }

    #[test]
    fn a_decision_that_is_not_in_the_index_is_found() {
        let index = ("docs/decisions/README.md", "- [one](0001-one.md)");
        let tree = Tree::of(&[index, ("docs/decisions/0001-one.md", ""), ("docs/decisions/0002-two.md", "")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
