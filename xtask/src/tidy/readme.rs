//! The program of the README is `examples/quickstart.rs`, word for word, so that it is compiled and run.
//!
//! It is the first fenced `rust` block. The example may begin with a header of `//!` lines.

use super::Finding;
use crate::tree::Tree;

const README: &str = "README.md";
const EXAMPLE: &str = "examples/quickstart.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some((line, block)) = first_program(tree.get(README).unwrap_or_default()) else {
        return vec![Finding::of(README, "no `rust` block with the program of the newcomer")];
    };
    let Some(example) = tree.get(EXAMPLE) else {
        return vec![Finding::of(EXAMPLE, "the program of the README is not there as an example")];
    };
    let lines = example.lines().map(str::trim_end);
    let program: Vec<&str> = lines.skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    let differs = block.iter().zip(&program).position(|(shown, run)| shown != run);
    let differs = differs.or_else(|| (block.len() != program.len()).then(|| block.len().min(program.len())));
    let report = |offset| Finding::at(README, line + offset, format!("the program differs from `{EXAMPLE}` here"));
    differs.map(report).into_iter().collect()
}

/// The first `rust` block with the number of its first line.
fn first_program(readme: &str) -> Option<(usize, Vec<&str>)> {
    let lines: Vec<&str> = readme.lines().map(str::trim_end).collect();
    let start = lines.iter().position(|line| *line == "```rust")? + 1;
    let length = lines[start..].iter().position(|line| *line == "```")?;
    Some((start + 1, lines[start..start + length].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n```sh\nx\n```\n```rust\nfn main() {\n}\n```\n";

    fn found(readme: &str, example: &str) -> Vec<usize> {
        let tree = Tree::of(&[(README, readme), (EXAMPLE, example)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
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
        assert_eq!(check(&Tree::of(&[(README, PAGE)])).len(), 1);
    }
}
