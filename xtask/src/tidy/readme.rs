//! The programs of the README are `examples/quickstart.rs` and `examples/quickstart.py`, word for word, so that they
//! are compiled and run.
//!
//! They are the first fenced `rust` and the first fenced `python` block. An example may begin with a header: lines of
//! `//!`, or a docstring.

use super::Finding;
use crate::tree::Tree;

const README: &str = "README.md";

/// A program that the README shows.
struct Program {
    language: &'static str,
    example: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program { language: "rust", example: "examples/quickstart.rs" },
    Program { language: "python", example: "examples/quickstart.py" },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    PROGRAMS.iter().filter_map(|program| compare(tree, program)).collect()
}

fn compare(tree: &Tree, &Program { language, example }: &Program) -> Option<Finding> {
    let Some((line, block)) = first_program(tree.get(README).unwrap_or_default(), language) else {
        return Some(Finding::of(README, format!("no `{language}` block with the program of the newcomer")));
    };
    let Some(text) = tree.get(example) else {
        return Some(Finding::of(example, "the program of the README is not there as an example"));
    };
    let program = without_header(text, language);
    let differs = block.iter().zip(&program).position(|(shown, run)| shown != run);
    let differs = differs.or_else(|| (block.len() != program.len()).then(|| block.len().min(program.len())));
    differs.map(|offset| Finding::at(README, line + offset, format!("the program differs from `{example}` here")))
}

/// The lines of a program after its header and the empty lines that follow it.
fn without_header<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let text = match text.strip_prefix("\"\"\"").and_then(|rest| rest.split_once("\"\"\"")) {
        Some((_, program)) if language == "python" => program,
        _ => text,
    };
    let is_header = |line: &&str| line.is_empty() || (language == "rust" && line.starts_with("//!"));
    text.lines().map(str::trim_end).skip_while(is_header).collect()
}

/// The first block of a language with the number of its first line.
fn first_program<'a>(readme: &'a str, language: &str) -> Option<(usize, Vec<&'a str>)> {
    let lines: Vec<&str> = readme.lines().map(str::trim_end).collect();
    let opening = format!("```{language}");
    let start = lines.iter().position(|line| *line == opening)? + 1;
    let length = lines[start..].iter().position(|line| *line == "```")?;
    Some((start + 1, lines[start..start + length].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n```sh\nx\n```\n```rust\nfn main() {\n}\n```\n";

    fn found(readme: &str, example: &str) -> Vec<usize> {
        let tree = Tree::of(&[(README, readme), (PROGRAMS[0].example, example)]);
        compare(&tree, &PROGRAMS[0]).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_same_program_passes_with_and_without_a_header() {
        assert!(found(PAGE, "fn main() {\n}\n").is_empty());
        assert!(found(PAGE, "//! Header.\n\nfn main() {\n}\n").is_empty());
    }

    #[test]
    fn another_program_is_found_with_its_line() {
        assert_eq!(found(PAGE, "fn main() {\n    go();\n}\n"), [7]);
        assert_eq!(found(PAGE, "fn main() {\n}\nfn more() {}\n"), [8]);
        assert_eq!(found("# A\n", "fn main() {}\n"), [1]);
        assert_eq!(check(&Tree::of(&[(README, PAGE)])).len(), 2, "neither example is there");
    }

    #[test]
    fn the_python_program_is_compared_too() {
        let page = "# A\n```python\nimport bireme\n\nbireme.init()\n```\n";
        let lines = |example: &str| {
            let tree = Tree::of(&[(README, page), (PROGRAMS[1].example, example)]);
            compare(&tree, &PROGRAMS[1]).map(|finding| finding.line)
        };
        assert_eq!(lines("import bireme\n\nbireme.init()\n"), None);
        assert_eq!(lines("\"\"\"A header.\n\nOf two lines.\n\"\"\"\n\nimport bireme\n\nbireme.init()\n"), None);
        assert_eq!(lines("import bireme\nbireme.init()\n"), Some(4));
    }
}
