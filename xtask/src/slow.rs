//! The steps of `slow`: suites that take too long for every change, and run now and then on a machine that nobody waits for.
//!
//! Whoever writes a test that takes minutes puts it here: a Rust test marked `#[ignore]` with a reason that says so, a file
//! `python/tests/slow_NAME.py`, which becomes the suite `NAME`, or a suite of its own in this list. `cargo xtask slow NAME...`
//! runs these suites alone.

use std::time::Duration;

use crate::check::BUILD;
use crate::python;
use crate::step::{Run, Step, Summary};

/// Five times what the longest of these takes on two idle cores.
const SUITE: Duration = Duration::from_secs(4 * 3_600);
/// Seeds of the simulator; those of `ci` come first.
const SEEDS: &str = "400000";
/// How long nodes come and go.
const SOAK_SECONDS: &str = "600";
/// Tests that are ignored for another reason: other tests start them as processes of their own.
const HELPERS: &str =
    "not (binary_id(bireme-runtime::keeper) | binary_id(bireme-store::process) | binary_id(bireme-netlab::lab))";

/// A suite and all that it needs.
pub struct Suite {
    /// By which it can be chosen.
    pub name: String,
    /// Its steps in their order. What another suite of the run has done as well is done once.
    pub steps: Vec<Step>,
}

/// The steps of these suites, or of all when none is named.
pub fn steps(run: &Run, names: &[&str]) -> Result<Vec<Step>, String> {
    let suites = suites(run);
    let is_known = |name: &&&str| suites.iter().any(|suite| suite.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
        return Err(format!("there is no slow suite {unknown:?}; they are: {}", known.join(", ")));
    }
    let chosen = suites.into_iter().filter(|suite| names.is_empty() || names.contains(&suite.name.as_str()));
    let mut steps: Vec<Step> = Vec::new();
    for step in chosen.flat_map(|suite| suite.steps) {
        if steps.iter().all(|earlier| earlier.name != step.name) {
            steps.push(step);
        }
    }
    Ok(steps)
}

fn suites(run: &Run) -> Vec<Suite> {
    let ignored = ["nextest", "run", "--workspace", "--profile", "slow", "--run-ignored", "only", "-E", HELPERS];
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
    let build = ["build", "--release", "--bin", "bireme-sim"];
    let simulate = ["run", "--quiet", "--release", "--bin", "bireme-sim", "--", "--seeds", SEEDS, "--jobs", &cores];
    let soak = ["test", "--quiet", "--package", "bireme-cli", "--test", "soak", "--", "--nocapture"];
    let mutants = ["run", "--quiet", "--package", "xtask", "--", "mutants"];
    let suite = |name: &str, steps| Suite { name: name.to_owned(), steps };
    let mut suites = vec![
        // Floods of connections and of calls, and whatever else is ignored.
        suite("floods", vec![Step::cargo("floods", &ignored, SUITE, Summary::Tests)]),
        suite(
            "simulation",
            vec![
                Step::cargo("simulation build", &build, BUILD, Summary::None),
                Step::cargo("long simulation", &simulate, SUITE, Summary::LastLine),
            ],
        ),
        suite("mutants", vec![Step::cargo("mutants", &mutants, SUITE, Summary::LastLine)]),
        suite(
            "soak",
            vec![Step::cargo("soak", &soak, SUITE, Summary::Tests).with("BIREME_SOAK_SECONDS", SOAK_SECONDS)],
        ),
    ];
    suites.extend(python::slow_suites(run));
    suites
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::step::Skips;

    fn run() -> Run {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        Run { root, target: PathBuf::from("target"), mark: String::new(), skips: Skips::Fail }
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn every_suite_is_run_and_what_they_share_is_done_once() {
        let steps = steps(&run(), &[]).expect("no name is wrong");
        let names = names(&steps);
        for name in ["floods", "long simulation", "mutants", "soak", "notebooks", "shuffle", "torch"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert_eq!(names.iter().filter(|name| **name == "python wheel").count(), 1, "{names:?}");
    }

    #[test]
    fn suites_can_be_chosen_and_bring_what_they_need() {
        let chosen = steps(&run(), &["floods"]).expect("there is such a suite");
        assert_eq!(names(&chosen), ["floods"]);
        let chosen = steps(&run(), &["torch"]).expect("there is such a suite");
        assert_eq!(names(&chosen).last(), Some(&"torch"));
        assert!(names(&chosen).contains(&"slow install") && !names(&chosen).contains(&"shuffle"));
        let refused = steps(&run(), &["tortch"]).err().expect("there is none");
        assert!(refused.contains("tortch") && refused.contains("shuffle"), "{refused}");
    }
}
