//! Nothing in `core` or `sim` reads a clock, thread, file, socket, environment, random number or hash order,
//! waits, or is `unsafe`: a seed must mean the same run everywhere.
//!
//! The `clippy.toml` of the two crates says the same where clippy can; this rule also sees imports.

use super::Finding;
use super::exceptions;
use crate::source::{find_word, is_word, words};
use crate::tree::Tree;

const FOLDERS: &[&str] = &["crates/core/", "crates/sim/"];

/// What may not be written, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("Instant", "time is a value that is passed in"),
    ("SystemTime", "time is a value that is passed in"),
    ("std::thread", "emit an effect; the shell has the threads"),
    ("thread::spawn", "emit an effect; the shell has the threads"),
    ("std::fs", "emit an effect; the shell has the files"),
    ("std::net", "emit an effect; the shell has the sockets"),
    ("std::env", "take it as an option of the machine"),
    ("std::process", "emit an effect; the shell has the processes"),
    ("HashMap", "use a map whose order is fixed, such as BTreeMap"),
    ("HashSet", "use a set whose order is fixed, such as BTreeSet"),
    ("RandomState", "use a hash with a fixed seed"),
    ("DefaultHasher", "use a hash with a fixed seed"),
    ("rand::", "draw from the seeded generator that is passed in"),
    ("thread_rng", "draw from the seeded generator that is passed in"),
    ("getrandom", "draw from the seeded generator that is passed in"),
    ("async", "a machine steps, it never waits"),
    (".await", "a machine steps, it never waits"),
    ("unsafe", "move it into store or net"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().iter().filter(|file| FOLDERS.iter().any(|folder| file.path.starts_with(folder)));
    let mut findings = Vec::new();
    for file in files {
        let mut report = |line, word: &str, instead: &str| {
            if !exceptions::holds("purity", &file.path, word) {
                findings.push(Finding::at(&file.path, line, format!("`{word}` is banned here: {instead}")));
            }
        };
        for (line, code, _) in file.code_lines() {
            for (word, instead) in BANNED.iter().filter(|(word, _)| find_word(code, word).is_some()) {
                report(line, word, instead);
            }
        }
        for (line, module) in grouped_imports(&file.source.code) {
            let word = format!("std::{module}");
            if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| *banned == word) {
                report(line, &word, instead);
            }
        }
    }
    findings
}

/// The modules named in `use std::{a, b::{c, d}}`, with the line.
fn grouped_imports(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, opening) in code.match_indices("std::{") {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let mut depth = 0;
        let mut start = at + opening.len();
        for (offset, c) in code[at..].char_indices() {
            let position = at + offset;
            let closes = c == '}' && depth == 1;
            if (c == ',' && depth == 1) || closes {
                let line = code[..position].matches('\n').count() + 1;
                found.extend(words(&code[start..position]).next().map(|word| (line, word)));
                start = position + 1;
            }
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if closes {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> usize {
        check(&Tree::of(&[("crates/core/src/node.rs", code)])).len()
    }

    #[test]
    fn every_banned_word_is_found() {
        for (word, _) in BANNED {
            assert!(found(&format!("fn a() {{ x {word} y }}")) > 0, "{word}");
        }
    }

    #[test]
    fn an_import_in_a_group_is_found() {
        assert_eq!(found("use std::{collections::{BTreeMap, VecDeque}, fs, fmt};"), 1);
        assert_eq!(found("use std::{collections::BTreeMap, fmt};"), 0);
    }

    #[test]
    fn words_in_comments_strings_and_other_crates_pass() {
        assert_eq!(found("// Instant\nlet operand = \"std::fs\"; let hash_map = brand::new();"), 0);
        let elsewhere = Tree::of(&[("crates/runtime/src/node.rs", "use std::fs;")]);
        assert!(check(&elsewhere).is_empty());
    }
}
