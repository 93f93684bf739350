//! The rules of the house that a machine can check, as functions from the tree to findings.
//!
//! Called by `cargo xtask tidy` and by every `check`. One module per rule, each with tests that plant a
//! violation and see it found. A finding names file, line, what is wrong and what to do. Exceptions from a
//! rule stand in one table (`exceptions`), with a reason each, and a stale one is a finding too.

mod dependencies;
mod entry;
mod examples;
mod exceptions;
mod invariants;
mod layout;
mod leftovers;
mod limits;
mod links;
mod names;
mod purity;
mod readme;
mod sizes;
mod sleeps;
mod states;
mod unsafety;

use std::path::Path;

use crate::tree::Tree;

/// Something that a rule has to say about a place.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    message: String,
    level: Level,
}

/// Whether a finding fails the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Warning,
    Failure,
}

impl Finding {
    /// A failure at a line, counted from 1.
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), level: Level::Failure }
    }

    /// A failure of the file as a whole.
    fn of(path: &str, message: impl Into<String>) -> Self {
        Self::at(path, 1, message)
    }

    /// The same, as a warning.
    fn into_warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule by name.
const RULES: &[(&str, Rule)] = &[
    ("dependencies", dependencies::check),
    ("purity", purity::check),
    ("sizes", sizes::check),
    ("unsafety", unsafety::check),
    ("links", links::check),
    ("leftovers", leftovers::check),
    ("states", states::check),
    ("limits", limits::check),
    ("invariants", invariants::check),
    ("names", names::check),
    ("examples", examples::check),
    ("sleeps", sleeps::check),
    ("layout", layout::check),
    ("entry", entry::check),
    ("readme", readme::check),
    ("exceptions", exceptions::check),
];

/// Applies every rule to the workspace and prints the findings. True when none of them is a failure.
pub fn run(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            println!("{} cannot be read: {error}", root.display());
            return false;
        }
    };
    let mut failures = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            let label = match finding.level {
                Level::Warning => "warning",
                Level::Failure => "error",
            };
            failures += usize::from(finding.level == Level::Failure);
            println!("{}:{}: {label}: {} [{name}]", finding.path, finding.line, finding.message);
        }
    }
    let (rust, python) = (tree.rust().len(), tree.python().len());
    println!("tidy: {} rules, {rust} Rust files, {python} Python files, {failures} failures", RULES.len());
    failures == 0
}
