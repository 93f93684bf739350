//! `.ci/run` calls exactly the test command of the README, so that nothing runs only in CI.
//!
//! The commands are the fenced `sh` blocks in the README's section `## Two commands`: the first builds and
//! runs, the second tests. Each block is one line.

use super::Finding;
use crate::tree::Tree;

const README: &str = "README.md";
const SECTION: &str = "## Two commands";
const RUN: &str = ".ci/run";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let commands = commands(tree.get(README).unwrap_or_default());
    let [_, test] = commands.as_slice() else {
        let message = format!("the section `{SECTION}` has {} `sh` lines in blocks, not two", commands.len());
        return vec![Finding::of(README, message)];
    };
    let mut findings = Vec::new();
    let called = called(tree.get(RUN).unwrap_or_default());
    if called != [*test] {
        findings.push(Finding::of(RUN, format!("it calls {called:?}, but the README's test command is `{test}`")));
    }
    for command in commands.iter().filter_map(|command| command.strip_prefix("./")) {
        if !tree.exists(command) {
            findings.push(Finding::of(README, format!("the command `./{command}` is not there")));
        }
    }
    findings
}

/// The lines of the `sh` blocks in the section.
fn commands(readme: &str) -> Vec<&str> {
    let section = readme.lines().skip_while(|line| line.trim() != SECTION).skip(1);
    let mut shell = false;
    let mut found = Vec::new();
    for line in section.take_while(|line| !line.starts_with("## ")).map(str::trim) {
        match line {
            "```sh" => shell = true,
            "```" => shell = false,
            _ if shell && !line.is_empty() => found.push(line),
            _ => {}
        }
    }
    found
}

/// What a script calls, its preparation apart.
fn called(script: &str) -> Vec<&str> {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let calls = lines.filter(|line| !line.starts_with("set ") && !line.starts_with("cd "));
    calls.map(|line| line.strip_prefix("exec ").unwrap_or(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str, run: &str) -> usize {
        check(&Tree::of(&[(README, readme), (RUN, run), ("check", ""), ("demo", "")])).len()
    }

    #[test]
    fn ci_must_call_the_test_command_and_nothing_else() {
        let readme =
            "# A\n## Two commands\nRun:\n```sh\n./demo\n```\nTest:\n```sh\n./check\n```\n## Next\n```sh\nmore\n```\n";
        assert_eq!(found(readme, "#!/bin/bash\nset -e\ncd x\nexec ./check\n"), 0);
        assert_eq!(found(readme, "./check\n./more\n"), 1);
        assert_eq!(found(readme, "./check --fast\n"), 1);
        assert_eq!(found(readme, ""), 1);
    }

    #[test]
    fn a_readme_without_the_two_commands_is_found() {
        assert_eq!(found("# A\n", "./check\n"), 1);
        assert_eq!(found("## Two commands\n```sh\n./gone\n```\n```sh\n./check\n```\n", "./check\n"), 1);
    }
}
