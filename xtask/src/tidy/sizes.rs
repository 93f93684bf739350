//! A file that a reader can hold in one sitting: a warning over 600 lines, refused over 1,000. Tests apart.

use super::Finding;
use crate::tree::Tree;

const WARNED: usize = 600;
const REFUSED: usize = 1_000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = tree.rust().iter().map(|file| (&file.path, file.in_test.iter().filter(|test| !**test).count()));
    let python = tree.python().iter().filter(|file| !file.is_test());
    let python = python.map(|file| (&file.path, file.source.code.lines().count()));
    for (path, lines) in rust.chain(python) {
        let message = format!("{lines} lines without tests; the aim is 300, {REFUSED} is refused: split it");
        if lines > REFUSED {
            findings.push(Finding::of(path, message));
        } else if lines > WARNED {
            findings.push(Finding::of(path, message).into_warning());
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn level(path: &str, text: &str) -> Option<Level> {
        check(&Tree::of(&[(path, text)])).first().map(|finding| finding.level)
    }

    #[test]
    fn long_files_are_warned_about_and_longer_ones_refused() {
        let path = "crates/net/src/ring.rs";
        assert_eq!(level(path, &"x();\n".repeat(WARNED)), None);
        assert_eq!(level(path, &"x();\n".repeat(WARNED + 1)), Some(Level::Warning));
        assert_eq!(level(path, &"x();\n".repeat(REFUSED + 1)), Some(Level::Failure));
        assert_eq!(level("python/bireme/task.py", &"x()\n".repeat(REFUSED + 1)), Some(Level::Failure));
    }

    #[test]
    fn lines_of_tests_do_not_count() {
        let long = "x();\n".repeat(REFUSED + 1);
        assert_eq!(level("crates/net/src/ring/tests.rs", &long), None);
        assert_eq!(level("python/tests/test_task.py", &long), None);
        assert_eq!(level("crates/net/src/ring.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")), None);
    }
}
