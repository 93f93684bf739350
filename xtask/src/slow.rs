//! The steps of `slow`: suites that take too long for every change, and run now and then on a machine that nobody waits for.
//!
//! Whoever writes a test that takes minutes puts it here: a Rust test marked `#[ignore]` with a reason that says so, a file
//! `python/tests/slow_*.py`, or a step of its own in this list.

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

/// All steps, in their order.
pub fn steps(run: &Run) -> Vec<Step> {
    let ignored = ["nextest", "run", "--workspace", "--profile", "slow", "--run-ignored", "only", "-E", HELPERS];
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
    let build = ["build", "--release", "--bin", "bireme-sim"];
    let simulate = ["run", "--quiet", "--release", "--bin", "bireme-sim", "--", "--seeds", SEEDS, "--jobs", &cores];
    let soak = ["test", "--quiet", "--package", "bireme-cli", "--test", "soak", "--", "--nocapture"];
    let mut steps = vec![
        Step::cargo("ignored tests", &ignored, SUITE, Summary::Tests),
        Step::cargo("simulation build", &build, BUILD, Summary::None),
        Step::cargo("long simulation", &simulate, SUITE, Summary::LastLine),
        Step::cargo("soak", &soak, SUITE, Summary::Tests).with("BIREME_SOAK_SECONDS", SOAK_SECONDS),
    ];
    steps.extend(python::slow_steps(run));
    steps
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::step::Skips;

    #[test]
    fn every_slow_file_of_python_is_run() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let run = Run { root, target: PathBuf::from("target"), mark: String::new(), skips: Skips::Fail };
        let steps = steps(&run);
        let tests = steps.iter().find(|step| step.name == "slow python tests").expect("the step is in the list");
        assert!(tests.arguments.iter().any(|file| file.ends_with("slow_torch.py")), "{:?}", tests.arguments);
        assert!(!tests.arguments.iter().any(|file| file.contains("/test_")));
    }
}
