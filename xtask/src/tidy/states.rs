//! `docs/states.md` lists exactly the variants of the state enums.
//!
//! A section begins with a heading of level two that names file and enum, both in backticks. Each table row
//! or bullet below it begins with a variant in backticks (fields may follow the name). An enum of `core`
//! whose name ends in `State` must have a section.

use std::collections::BTreeSet;

use super::Finding;
use super::links::backticked;
use crate::source::{block, find_word, words};
use crate::tree::Tree;

const PAGE: &str = "docs/states.md";
const OBLIGED: &str = "crates/core/src/";

struct Section {
    line: usize,
    path: String,
    name: String,
    variants: BTreeSet<String>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else {
        return vec![Finding::of(PAGE, "the page of states is missing")];
    };
    let sections = sections(page);
    let mut findings = Vec::new();
    if sections.is_empty() {
        findings.push(Finding::of(PAGE, "no section of the form: ## `path/to/file.rs` `EnumName`"));
    }
    for section in &sections {
        findings.extend(compare(tree, section));
    }
    for file in tree.rust().iter().filter(|file| file.path.starts_with(OBLIGED)) {
        for (line, code, test) in file.code_lines() {
            let Some(at) = find_word(code, "enum").filter(|_| !test) else { continue };
            let name = words(&code[at + 4..]).next().unwrap_or_default();
            let listed = sections.iter().any(|section| section.path == file.path && section.name == name);
            if name.ends_with("State") && !listed {
                findings.push(Finding::at(&file.path, line, format!("`{name}` has no section in {PAGE}")));
            }
        }
    }
    findings
}

fn compare(tree: &Tree, section: &Section) -> Vec<Finding> {
    let report = |message: String| Finding::at(PAGE, section.line, message);
    let Some(file) = tree.rust_file(&section.path) else {
        return vec![report(format!("`{}` is not there", section.path))];
    };
    let Some(variants) = variants(&file.source.code, &section.name) else {
        return vec![report(format!("there is no enum `{}` in `{}`", section.name, section.path))];
    };
    let missing = variants.difference(&section.variants);
    let stale = section.variants.difference(&variants);
    let mut findings: Vec<Finding> =
        missing.map(|name| report(format!("`{}::{name}` is not described", section.name))).collect();
    findings.extend(stale.map(|name| report(format!("`{}` has no variant `{name}`", section.name))));
    findings
}

fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut open = false;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("# ") || line.starts_with("## ") {
            let mut names = backticked(line);
            let (path, name) = (names.next(), names.next());
            open = false;
            if let (Some(path), Some(name)) = (path.filter(|path| path.ends_with(".rs")), name) {
                let (path, name) = (path.to_owned(), name.to_owned());
                sections.push(Section { line: index + 1, path, name, variants: BTreeSet::new() });
                open = true;
            }
            continue;
        }
        let item = line.strip_prefix(['|', '-', '*']).map(str::trim_start);
        let first = item.filter(|item| item.starts_with('`')).and_then(|item| backticked(item).next());
        if let (true, Some(first), Some(section)) = (open, first, sections.last_mut()) {
            section.variants.extend(words(first).next().map(str::to_owned));
        }
    }
    sections
}

/// The names of the variants of an enum.
fn variants(code: &str, name: &str) -> Option<BTreeSet<String>> {
    let at = find_word(code, &format!("enum {name}"))?;
    let (start, end) = block(code, at)?;
    let mut names = BTreeSet::new();
    let mut depth = 0;
    let mut expects_name = true;
    let body = &code[start..end];
    for (at, c) in body.char_indices() {
        match c {
            '{' | '(' | '[' | '<' => depth += 1,
            '}' | ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            _ if depth == 0 && expects_name && (c.is_alphabetic() || c == '_') => {
                let word = words(&body[at..]).next().unwrap_or_default();
                names.insert(word.to_owned());
                expects_name = false;
            }
            _ => {}
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENUM: &str = "/// Doc, with a comma\n#[derive(Clone, Debug)]\npub enum TaskState<T> {\n\
        /// Waits, for inputs.\nWaiting { missing: Vec<T>, since: u64 },\n#[default]\nQueued,\nRunning(Worker, u32), Done = 4,\n}\n";

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::of(&[(PAGE, page), ("crates/core/src/task.rs", ENUM)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_page_that_lists_every_variant_passes() {
        let table = "# States\n- `Other` is not in a section\n## `crates/core/src/task.rs` `TaskState`\n\n| state | means |\n|---|---|\n\
            | `Waiting { missing }` | `Nothing` |\n| `Queued` | x |\n- `Running`: y\n- `Done`\n## Words\n- `More`\n";
        assert_eq!(found(table), Vec::<String>::new());
    }

    #[test]
    fn missing_and_stale_variants_are_found() {
        let page = "## `crates/core/src/task.rs` `TaskState`\n- `Waiting`\n- `Queued`\n- `Running`\n- `Gone`\n";
        assert_eq!(found(page), ["`TaskState::Done` is not described", "`TaskState` has no variant `Gone`"]);
    }

    #[test]
    fn missing_files_enums_and_sections_are_found() {
        let gone = found("## `crates/core/src/gone.rs` `TaskState`\n");
        assert_eq!(gone.len(), 2);
        assert!(gone[1].contains("no section"));
        assert_eq!(found("## `crates/core/src/task.rs` `Task`\n").len(), 2);
        assert_eq!(found("# States\n").len(), 2);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
