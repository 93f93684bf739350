//! `cargo xtask mutants [K/N]`: changes the decisions of `crates/core` one at a time, and sees whether a test notices.
//!
//! `cargo mutants` makes the changes; `.cargo/mutants.toml` says where. The judge is the library's own tests, and for
//! what these let through the first hundreds of seeds of the simulator. All changes together take days, so a run takes the
//! K-th of N parts, every N-th change over all files; parts are the same each time as long as the code is.
//! What survives is accepted when `docs/mutants.md` lists it as no change at all, by its file and words without the line.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step;

/// The version whose files and arguments this module knows.
const VERSION: &str = "27.1.0";
/// The part of the slow lane: about 150 changes.
pub const PART: &str = "0/40";
/// The list of survivors.
const LIST: &str = "docs/mutants.md";
/// Begins the part of the list that is accepted.
const EQUIVALENT: &str = "## Equivalent";
/// Of a hundred changes so many are caught or listed, at least.
const CAUGHT_PERCENT_MIN: usize = 95;
/// A change can make a loop endless that allocates: in KiB.
const MEMORY_MAX: &str = "8000000";
/// The tests of the simulator that judge: its scenarios take minutes, and have mostly seeds of their own.
const SEEDS: &str = "test(the_first_hundreds_of_seeds_hold)";
/// Seconds for all tests of a changed library; the tests of one take a few seconds.
const TEST_SECONDS: &str = "300";

/// How the changes of a part ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    caught: usize,
    equivalent: usize,
    survivors: Vec<String>,
}

/// Runs a part and prints its verdict last. True when enough of it is caught.
pub fn run(root: &Path, part: &str) -> bool {
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    match judge(root, &target, part) {
        Ok(verdict) => {
            verdict.survivors.iter().for_each(|name| println!("survives: {name}"));
            println!("{}", verdict.line(part));
            verdict.is_enough()
        }
        Err(error) => {
            println!("the changes of part {part} were not judged: {error}");
            false
        }
    }
}

fn judge(root: &Path, target: &Path, part: &str) -> io::Result<Verdict> {
    let tool = install(target)?;
    let folder = target.join("mutants");
    let _ = fs::remove_dir_all(&folder);
    let (step_tests, seeds) = (folder.join("step-tests"), folder.join("seeds"));
    let judged = ["--test-package", "bireme-core", "--shard", part, "--sharding", "round-robin"];
    change(root, &tool, &step_tests, "all()", &judged)?;
    let mut count = caught(&step_tests)?;
    let mut missed = names(&step_tests, "missed.txt")?;
    if !missed.is_empty() {
        hold_unchanged(root)?;
        leave_out_all_but(root, &tool, &seeds, &missed)?;
        // The tool would try the tests of the changed package without a change, of which the filter leaves none.
        let judged = ["--test-package", "bireme-sim", "--iterate", "--baseline", "skip"];
        change(root, &tool, &seeds, SEEDS, &judged)?;
        count += caught(&seeds)?;
        missed = names(&seeds, "missed.txt")?;
    }
    let list = fs::read_to_string(root.join(LIST))?;
    Ok(Verdict::of(count, &missed, &list))
}

/// The tool in the build folder, built there when it is missing.
fn install(target: &Path) -> io::Result<PathBuf> {
    let folder = target.join("tools");
    let tool = folder.join("bin/cargo-mutants");
    if !tool.exists() {
        let mut command = Command::new(step::cargo_program());
        command.args(["install", "--locked", "--version", VERSION, "--root"]).arg(&folder).arg("cargo-mutants");
        if !command.status()?.success() {
            return Err(io::Error::other("cargo-mutants cannot be installed"));
        }
    }
    tool.canonicalize()
}

/// The changes that ended in one way.
fn names(folder: &Path, file: &str) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(folder.join("mutants.out").join(file))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// How many were noticed; a test that does not end is one that notices.
fn caught(folder: &Path) -> io::Result<usize> {
    Ok(names(folder, "caught.txt")?.len() + names(folder, "timeout.txt")?.len())
}

/// Fails when the seeds do without a change.
fn hold_unchanged(root: &Path) -> io::Result<()> {
    let mut command = Command::new(step::cargo_program());
    command.args(["nextest", "run", "--package", "bireme-sim", "--lib", "--run-ignored", "all", "--filterset", SEEDS]);
    match command.current_dir(root).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("the seeds fail without a change")),
    }
}

/// Writes down all other changes as caught before, which is the tool's one exact way to choose some.
fn leave_out_all_but(root: &Path, tool: &Path, folder: &Path, chosen: &[String]) -> io::Result<()> {
    let list = ["mutants", "--list", "--package", "bireme-core"];
    let all = Command::new(tool).args(list).current_dir(root).output()?;
    let all = String::from_utf8_lossy(&all.stdout);
    let others: Vec<&str> = all.lines().filter(|name| chosen.iter().all(|chosen| chosen != name)).collect();
    if others.len() + chosen.len() != all.lines().count() {
        return Err(io::Error::other("cargo-mutants lists other changes than it made"));
    }
    fs::create_dir_all(folder.join("mutants.out"))?;
    fs::write(folder.join("mutants.out").join("caught.txt"), others.join("\n") + "\n")
}

/// Makes the changes, and lets the tests that the filter chooses judge them.
fn change(root: &Path, tool: &Path, folder: &Path, filter: &str, arguments: &[&str]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let limited = format!("ulimit -v {MEMORY_MAX}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(limited).arg(tool).args(["mutants", "--package", "bireme-core"]);
    command.args(["--timeout", TEST_SECONDS, "--build-timeout", TEST_SECONDS, "--jobs", "1", "--no-times"]);
    command.args(arguments).arg("--output").arg(folder).args(["--", "--filterset", filter]).current_dir(root);
    // Builds are most of the time, and these are the shortest.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "false");
    command.env("CARGO_INCREMENTAL", "1").env_remove("CARGO_TARGET_DIR").env("NEXTEST_PROFILE", "mutants");
    // Few cases of property tests, and always the same.
    command.env("PROPTEST_CASES", "16").env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
    let status = command.status()?;
    // Two and three: changes were not noticed, or tests of changed code did not end.
    match status.code() {
        Some(0 | 2 | 3) => Ok(()),
        _ => Err(io::Error::other(format!(
            "cargo-mutants ended with {status}: the tests fail without a change, or it cannot run"
        ))),
    }
}

impl Verdict {
    fn of(caught: usize, missed: &[String], list: &str) -> Self {
        let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
        for name in equivalents(list) {
            *accepted.entry(name).or_default() += 1;
        }
        let mut verdict = Self { caught, ..Self::default() };
        for name in missed {
            match accepted.get_mut(&without_place(name)).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    verdict.equivalent += 1;
                }
                None => verdict.survivors.push(name.clone()),
            }
        }
        verdict
    }

    fn is_enough(&self) -> bool {
        let good = self.caught + self.equivalent;
        good > 0 && good * 100 >= (good + self.survivors.len()) * CAUGHT_PERCENT_MIN
    }

    fn line(&self, part: &str) -> String {
        let Self { caught, equivalent, survivors } = self;
        let all = caught + equivalent + survivors.len();
        let percent = (caught + equivalent) as f64 * 100.0 / all.max(1) as f64;
        let survive = survivors.len();
        format!(
            "part {part}: of {all} changes {caught} caught, {equivalent} equivalent, {survive} survive: {percent:.1} %"
        )
    }
}

/// The entries of the list that are accepted: a line each, the change in backquotes first.
fn equivalents(list: &str) -> impl Iterator<Item = String> {
    let lines = list.lines().skip_while(|line| !line.starts_with(EQUIVALENT)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## "));
    lines.filter_map(|line| line.strip_prefix("- `")?.split_once('`').map(|(name, _)| name.to_owned()))
}

/// `a/b.rs:12:5: replace ...` as `a/b.rs: replace ...`: lines move with every edit.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(what)) => format!("{}:{what}", file.trim_start_matches("crates/core/src/")),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "\
# Mutants
- `a.rs: replace < with <= in before`: not in the accepted part
## Equivalent
- `a.rs: replace + with - in f`: adds nothing
## Survivors
- `a.rs: replace + with * in g`: no test yet
";

    fn missed(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("crates/core/src/{name}")).collect()
    }

    #[test]
    fn a_listed_change_is_accepted_wherever_its_line_went_but_only_as_often_as_it_is_listed() {
        let names = missed(&[
            "a.rs:7:12: replace + with - in f",
            "a.rs:9:1: replace + with - in f",
            "a.rs:1:1: replace + with * in g",
        ]);
        let verdict = Verdict::of(10, &names, LISTED);
        assert_eq!((verdict.caught, verdict.equivalent), (10, 1));
        assert_eq!(verdict.survivors, names[1..]);
    }

    #[test]
    fn one_survivor_in_twenty_is_enough_and_nothing_judged_is_not() {
        assert!(Verdict::of(19, &missed(&["b.rs:1:1: delete ! in f"]), LISTED).is_enough());
        assert!(!Verdict::of(18, &missed(&["b.rs:1:1: delete ! in f"]), LISTED).is_enough());
        assert!(!Verdict::default().is_enough());
    }

    #[test]
    fn a_name_with_paths_in_it_keeps_them() {
        let name = "crates/core/src/a.rs:1:2: replace A::f -> B::C with Default::default()";
        assert_eq!(without_place(name), "a.rs: replace A::f -> B::C with Default::default()");
    }
}
