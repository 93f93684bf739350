//! No test sleeps: it waits for an event or steps a clock. A sleep is either too short or too long.
//!
//! A Python test may hold a worker busy with a sleep that nothing waits for to end, and says so on the line with
//! [`BUSY`]. A sleep of zero gives way and waits for nothing.

use super::Finding;
use super::exceptions;
use crate::source::find_word;
use crate::tree::{PythonFile, Tree};

const CALLS: &[&str] = &["thread::sleep", "nanosleep", "sleep_ms"];
/// What marks a sleep of a Python task as its work.
const BUSY: &str = "# a task that is still running";

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
    findings.extend(tree.python().iter().filter(|file| file.is_test()).flat_map(in_python));
    findings
}

fn in_python(file: &PythonFile) -> Vec<Finding> {
    let lines = file.source.code.lines().zip(file.source.comments.lines()).enumerate();
    let sleeps = lines.filter(|(_, (code, comment))| {
        let code = code.replace("sleep(0)", "");
        find_word(&code, "sleep").is_some() && !code.contains("import") && comment.trim() != BUSY
    });
    let message = format!("a sleep in a test: wait for an event instead, or mark a worker's work with `{BUSY}`");
    sleeps.map(|(index, _)| Finding::at(&file.path, index + 1, message.clone())).collect()
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

    #[test]
    fn a_sleep_in_a_python_test_is_found_unless_it_is_a_task_at_work() {
        let text = "import time\nfrom time import sleep\ntime.sleep(1)\nsleep(2)  # soon\nawait asyncio.sleep(0)\n\
            time.sleep(60)  # a task that is still running\n\"time.sleep(1)\"\n";
        let tree = Tree::of(&[("python/tests/test_a.py", text), ("python/bireme/bench/suite.py", text)]);
        let places: Vec<(String, usize)> =
            check(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        let path = "python/tests/test_a.py".to_owned();
        assert_eq!(places, [(path.clone(), 3), (path, 4)]);
    }
}
