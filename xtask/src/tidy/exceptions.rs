//! The places where a rule does not hold, in one table, with the reason.
//!
//! An entry that is not needed any more is a finding, so the table only holds what is true.

use super::Finding;
use crate::source::find_word;
use crate::tree::Tree;

/// One word that a rule lets pass in one file.
struct Exception {
    rule: &'static str,
    path: &'static str,
    word: &'static str,
    /// For the reader: why the code is better with it.
    #[allow(dead_code)]
    why: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: "purity",
        path: "crates/core/src/map.rs",
        word: "HashMap",
        why: "the one map with a fixed hash and no visible order, which the others use",
    },
    Exception {
        rule: "purity",
        path: "crates/core/examples/decisions.rs",
        word: "Instant",
        why: "the measure of the machine needs the clock that the machine does without",
    },
    Exception {
        rule: "unsafety",
        path: "crates/runtime/src/entry.rs",
        word: "unsafe",
        why: "worker mode starts before the user's main, from the table of constructors",
    },
    Exception {
        rule: "unsafety",
        path: "crates/runtime/src/keeper/sys.rs",
        word: "unsafe",
        why: "fork and wait, which no safe interface offers",
    },
    Exception {
        rule: "unsafety",
        path: "crates/runtime/src/daemon/allocator.rs",
        word: "unsafe",
        why: "how much the allocator keeps, which no safe call says",
    },
    Exception {
        rule: "unsafety",
        path: "crates/runtime/src/daemon/signals.rs",
        word: "unsafe",
        why: "signals as a descriptor, which no safe call makes",
    },
    Exception {
        rule: "unsafety",
        path: "crates/runtime/tests/keeper.rs",
        word: "unsafe",
        why: "a test of worker mode has to be there before the constructor that starts it",
    },
    Exception {
        rule: "unsafety",
        path: "tests/forks.rs",
        word: "unsafe",
        why: "a test of what a fork may do has to fork",
    },
    Exception {
        rule: "unsafety",
        path: "tests/interrupts.rs",
        word: "unsafe",
        why: "a test of interrupted waits has to handle and send signals",
    },
    Exception {
        rule: "unsafety",
        path: "crates/cli/src/bench/floor/fresh.rs",
        word: "unsafe",
        why: "the floor of a cold put maps fresh shared pages, which no safe call does",
    },
    Exception {
        rule: "unsafety",
        path: "crates/cli/src/bench/floor/shared.rs",
        word: "unsafe",
        why: "the floor of spinning shares one word with another process, which no safe call maps",
    },
    Exception {
        rule: "unsafety",
        path: "crates/py/src/interrupt.rs",
        word: "unsafe",
        why: "a task is cancelled by a signal to its thread, which no safe call sends",
    },
    Exception {
        rule: "unsafety",
        path: "crates/py/src/value.rs",
        word: "unsafe",
        why: "bytes of a Python buffer are read in place while it is held, which PyO3 cannot express",
    },
    Exception {
        rule: "unsafety",
        path: "crates/py/src/view.rs",
        word: "unsafe",
        why: "the buffer protocol hands out a pointer",
    },
    Exception {
        rule: "unsafety",
        path: "crates/py/src/gil.rs",
        word: "unsafe",
        why: "a closure that stays on its thread passes a bound that asks for more",
    },
    Exception {
        rule: "unsafety",
        path: "crates/py/src/zygote.rs",
        word: "unsafe",
        why: "the interpreter has to be told of a fork that it did not make",
    },
    Exception { rule: "unsafety", path: "tests/forks.rs", word: "unsafe", why: "a test of forks has to fork" },
    Exception {
        rule: "unsafety",
        path: "tests/interrupts.rs",
        word: "unsafe",
        why: "a test of signals has to send them to a thread",
    },
    Exception {
        rule: "purity",
        path: "crates/sim/src/main.rs",
        word: "std::env",
        why: "the command line names the seed; the run knows nothing else",
    },
    Exception {
        rule: "purity",
        path: "crates/sim/src/main.rs",
        word: "std::process",
        why: "the exit code of the command, and copies of it that share the seeds; a run knows of neither",
    },
];

/// Whether the rule lets the word pass in the file.
pub(super) fn holds(rule: &str, path: &str, word: &str) -> bool {
    EXCEPTIONS.iter().any(|exception| exception.rule == rule && exception.path == path && exception.word == word)
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    stale(tree, EXCEPTIONS)
}

fn stale(tree: &Tree, exceptions: &[Exception]) -> Vec<Finding> {
    let unused = exceptions.iter().filter(|exception| {
        tree.rust_file(exception.path).is_none_or(|file| find_word(&file.source.code, exception.word).is_none())
    });
    let message =
        |e: &Exception| format!("the exception of {} for `{}` in {} is not needed any more", e.rule, e.word, e.path);
    unused.map(|exception| Finding::of("xtask/src/tidy/exceptions.rs", message(exception))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_that_nothing_needs_is_found() {
        let exception = Exception { rule: "unsafety", path: "a.rs", word: "unsafe", why: "planted" };
        assert!(stale(&Tree::of(&[("a.rs", "unsafe {}")]), std::slice::from_ref(&exception)).is_empty());
        assert_eq!(stale(&Tree::of(&[("a.rs", "// unsafe")]), std::slice::from_ref(&exception)).len(), 1);
        assert_eq!(stale(&Tree::of(&[]), &[exception]).len(), 1);
    }
}
