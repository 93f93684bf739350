//! No test sleeps: it waits for an event or steps a clock. A sleep is either too short or too long.

use super::Finding;
use super::exceptions;
use crate::source::find_word;
use crate::tree::Tree;

const CALLS: &[&str] = &["thread::sleep", "nanosleep", "sleep_ms"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (line, code, _) in file.code_lines().filter(|(_, _, test)| *test) {
            for call in CALLS.iter().filter(|call| find_word(code, call).is_some()) {
                if !exceptions::holds("sleeps", &file.path, call) {
                    findings.push(Finding::at(
                        &file.path,
                        line,
                        format!("`{call}` in a test: wait for an event instead"),
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_in_a_test_is_found_and_elsewhere_is_not() {
        let sleep = "fn a() { std::thread::sleep(d); }";
        let inline = format!("{sleep}\n#[cfg(test)]\nmod tests {{\n{sleep}\n}}\n");
        let tree = Tree::of(&[("tests/kill.rs", sleep), ("crates/net/src/ring.rs", &inline), ("examples/a.rs", sleep)]);
        let places: Vec<(String, usize)> =
            check(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(places, [("crates/net/src/ring.rs".to_owned(), 4), ("tests/kill.rs".to_owned(), 1)]);
    }
}
