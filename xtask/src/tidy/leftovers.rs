//! Marks of unfinished work that must not land, in Rust, Python and scripts.

use super::Finding;
use crate::source::find_word;
use crate::tree::Tree;

const CALLS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const BANNED: &str = "FIXME";
const NUMBERED: &str = "TODO";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (line, code, _) in file.code_lines() {
            for call in CALLS.iter().filter(|call| find_word(code, call).is_some()) {
                findings.push(Finding::at(&file.path, line, format!("`{call}` cannot land")));
            }
        }
        findings.extend(marks(&file.path, &file.source.comments));
    }
    findings.extend(tree.python().iter().flat_map(|file| marks(&file.path, &file.source.comments)));
    let is_other = |path: &str| !path.ends_with(".rs") && !path.ends_with(".py");
    let scripts = tree.files().filter(|(path, text)| is_other(path) && text.starts_with("#!"));
    findings.extend(scripts.flat_map(|(path, text)| marks(path, text)));
    findings
}

fn marks(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if find_word(line, BANNED).is_some() {
            findings.push(Finding::at(path, index + 1, format!("{BANNED} cannot land: mend it, or open an issue")));
        }
        if find_word(line, NUMBERED).is_some_and(|at| !has_issue(&line[at + NUMBERED.len()..])) {
            findings.push(Finding::at(path, index + 1, format!("{NUMBERED} without an issue: write {NUMBERED}(#12)")));
        }
    }
    findings
}

fn has_issue(rest: &str) -> bool {
    let number = rest.trim_start_matches(['(', ' ']).strip_prefix('#');
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&Tree::of(&[("crates/net/src/ring.rs", text)])).len()
    }

    #[test]
    fn calls_that_stand_for_missing_code_are_found() {
        assert_eq!(found("fn a() { todo!() }\nfn b() { dbg!(1); }\nfn c() { unimplemented!() }"), 3);
        assert_eq!(found("// todo! in prose\nlet a = \"dbg!\";"), 0);
    }

    #[test]
    fn marks_in_comments_are_found() {
        assert_eq!(found("// FIXME later"), 1);
        assert_eq!(found("// TODO later\n// TODO(#x)"), 2);
        assert_eq!(found("// TODO(#12): later\n// TODO #7\nlet a = \"TODO\";"), 0);
    }

    #[test]
    fn scripts_are_read_too() {
        assert_eq!(check(&Tree::of(&[("check", "#!/bin/sh\n# FIXME\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[("a.py", "#!/usr/bin/python\nx = 'FIXME'  # TODO later\n")])).len(), 1);
    }
}
