//! The developer's commands, in the project's own language: `cargo xtask <command>`.
//!
//! `check` never writes to the tree and `fix` is the only command that does, so what was reviewed is what
//! lands. `ci` is `check` with larger budgets: nothing runs only in CI. `tidy` holds the rules of the house
//! that a machine can check, each with a test that plants a violation.

mod check;
mod mutants;
mod python;
mod remains;
mod slow;
mod source;
mod step;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use step::Skips;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy                     the rules of the house that a machine can check
  check [--allow-skips]    everything, read-only: format, clippy, tidy, tests, docs, models, simulation, examples, Python
  python [--allow-skips]   the steps of check about the Python package: build, install, test, types, examples
  fix                      format and apply clippy's suggestions: the only command that writes
  ci [--allow-skips]       check with larger budgets
  slow [--allow-skips] [NAME...]  what takes too long for that: floods, many seeds, mutants, a soak, shuffles, notebooks, torch; all suites unless named
  mutants [K/N]            changes the decisions of crates/core and sees whether a test notices: the K-th of N parts of all changes
  sim [SEED | --seeds N]   the simulator, one seed or many; --soak HOURS of simulated time
  soak [--minutes N]       work on a cluster whose nodes come and go all the time, 10 minutes unless given; needs root
  netlab [ARGS...]         hosts on this machine, with addresses and links of their own; without ARGS what it can do
  bench [ARGS...]          `bireme bench` in a release build";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let Some((command, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let skips = if rest == ["--allow-skips"] { Skips::Allow } else { Skips::Fail };
    let plain = rest.is_empty() || skips == Skips::Allow;
    let ok = match (command.as_str(), rest.is_empty()) {
        ("tidy", true) => tidy::run(&root),
        ("check", _) if plain => check::run(&root, &check::CHECK, skips),
        ("ci", _) if plain => check::run(&root, &check::CI, skips),
        ("python", _) if plain => check::run_python(&root, skips),
        ("slow", _) => {
            let names: Vec<&str> = rest.iter().copied().filter(|word| *word != "--allow-skips").collect();
            let skips = if names.len() < rest.len() { Skips::Allow } else { Skips::Fail };
            check::run_slow(&root, skips, &names)
        }
        ("mutants", _) if rest.len() < 2 => mutants::run(&root, rest.first().unwrap_or(&mutants::PART)),
        ("fix", true) => fix(&root),
        ("sim", _) => cargo(&root, &[&["run", "--release", "--bin", "bireme-sim", "--"], &rest[..]].concat()),
        ("netlab", _) => cargo(&root, &[&["run", "--quiet", "--bin", "bireme-netlab", "--"], &rest[..]].concat()),
        ("soak", _) => soak(&root, &rest),
        ("bench", _) => {
            let fixed = ["run", "--release", "--bin", "bireme", "--", "bench"];
            cargo(&root, &[&fixed, &rest[..]].concat())
        }
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The folder of the workspace, wherever the command was called from.
fn workspace_root() -> PathBuf {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&manifest).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The soak is a test that takes as long as it is told.
fn soak(root: &Path, arguments: &[&str]) -> bool {
    let minutes = match *arguments {
        [] => Some(10.0),
        ["--minutes", text] => text.parse::<f64>().ok().filter(|minutes| (0.1..=100_000.0).contains(minutes)),
        _ => None,
    };
    let Some(minutes) = minutes else {
        eprintln!("{USAGE}");
        return false;
    };
    let seconds = (minutes * 60.0).round().to_string();
    let test = ["test", "--quiet", "--package", "bireme-cli", "--test", "soak", "--", "--nocapture"];
    eprintln!("> BIREME_SOAK_SECONDS={seconds} cargo {}", test.join(" "));
    let status =
        Command::new(step::cargo_program()).args(test).env("BIREME_SOAK_SECONDS", seconds).current_dir(root).status();
    status.is_ok_and(|status| status.success())
}

fn fix(root: &Path) -> bool {
    let clippy = ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"];
    cargo(root, &clippy) && cargo(root, &["fmt", "--all"])
}

/// Runs cargo with the terminal as it is, and prints the command so that it can be repeated.
fn cargo(root: &Path, arguments: &[&str]) -> bool {
    eprintln!("> cargo {}", arguments.join(" "));
    match Command::new(step::cargo_program()).args(arguments).current_dir(root).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cargo did not start: {error}");
            false
        }
    }
}
