//! No type or file is called after what it is not: a thing that needs such a name has not been understood.

use super::Finding;
use crate::source::{find_word, words};
use crate::tree::{PythonFile, Tree};

const KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];
const ENDINGS: &[&str] =
    &["Manager", "Handler", "Helper", "Helpers", "Util", "Utils", "Common", "Base", "Impl", "Data", "Info"];
const FILES: &[&str] =
    &["manager", "handler", "handlers", "helper", "helpers", "util", "utils", "common", "base", "misc"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if file.path.split('/').any(|part| FILES.contains(&part.trim_end_matches(".rs"))) {
            findings.push(Finding::of(
                &file.path,
                format!("`{name}` does not say what is in it: use a word of the glossary"),
            ));
        }
        for (line, code, _) in file.code_lines() {
            for keyword in KEYWORDS {
                let Some(at) = find_word(code, keyword) else { continue };
                let defined = words(&code[at + keyword.len()..]).next().unwrap_or_default();
                if let Some(ending) = ENDINGS.iter().find(|ending| defined.ends_with(*ending)) {
                    let message =
                        format!("`{defined}`: a name that ends in {ending} says nothing; use a word of the glossary");
                    findings.push(Finding::at(&file.path, line, message));
                }
            }
        }
    }
    findings.extend(tree.python().iter().flat_map(in_python));
    findings
}

/// Folders are left alone: `bireme.util` is the name that users know from Ray.
fn in_python(file: &PythonFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if FILES.contains(&name.trim_end_matches(".pyi").trim_end_matches(".py").trim_start_matches('_')) {
        let message = format!("`{name}` does not say what is in it: use a word of the glossary");
        findings.push(Finding::of(&file.path, message));
    }
    for (index, code) in file.source.code.lines().enumerate() {
        let Some(rest) = code.trim_start().strip_prefix("class ") else { continue };
        let defined = words(rest).next().unwrap_or_default();
        if let Some(ending) = ENDINGS.iter().find(|ending| defined.ends_with(*ending)) {
            let message = format!("`{defined}`: a name that ends in {ending} says nothing; use a word of the glossary");
            findings.push(Finding::at(&file.path, index + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> usize {
        check(&Tree::of(&[(path, code)])).len()
    }

    #[test]
    fn types_with_empty_names_are_found() {
        for ending in ENDINGS {
            assert_eq!(found("crates/core/src/node.rs", &format!("pub struct Task{ending};")), 1, "{ending}");
        }
        assert_eq!(found("crates/core/src/node.rs", "struct Metadata(PhantomData<T>); // struct TaskInfo"), 0);
    }

    #[test]
    fn files_with_empty_names_are_found() {
        assert_eq!(found("crates/core/src/utils.rs", ""), 1);
        assert_eq!(found("tests/common/start.rs", ""), 1);
        assert_eq!(found("crates/core/src/node.rs", ""), 0);
    }

    #[test]
    fn python_classes_and_files_with_empty_names_are_found() {
        assert_eq!(found("python/bireme/task.py", "class TaskManager:\n    pass\n"), 1);
        assert_eq!(found("python/bireme/_helpers.py", ""), 1);
        assert_eq!(found("python/bireme/util/queue.py", "class Queue:\n    x = 'class TaskInfo'\n"), 0);
    }
}
