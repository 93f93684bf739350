//! The steps of `check` and `ci`: the same list with two budgets.
//!
//! Nothing is skipped: a step that cannot run fails, a test step that ran no test fails, and so does a test that cannot run
//! here, unless `--allow-skips` is given. All steps run even when one fails, so that one look shows everything that is wrong.
//!
//! Deadlines are for hangs alone, five times what a step usually takes on two idle cores: a busy machine fails nothing.
//!
//! Programs are built by their own names and never with `--package`: cargo gives dependencies the features that the chosen
//! packages ask for, and other features mean another build of everything above them, which took minutes.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::python;
use crate::remains;
use crate::slow;
use crate::step::{self, Run, Skips, Step, Summary};
use crate::tidy;
use crate::tree::Tree;

/// How much a run may spend.
pub struct Budget {
    name: &'static str,
    /// Seeds of the simulator.
    seeds: u32,
    /// When the simulator is ended and counts as failed.
    simulation: Duration,
    /// Preemptions per execution that a model explores.
    preemptions: u32,
    /// Cases of each property test.
    cases: u32,
    /// The profile of nextest, in `.config/nextest.toml`.
    profile: &'static str,
}

/// While developing.
pub const CHECK: Budget = Budget {
    name: "check",
    seeds: 2_000,
    simulation: Duration::from_secs(600),
    preemptions: 2,
    cases: 64,
    profile: "default",
};

/// Before landing.
pub const CI: Budget = Budget {
    name: "ci",
    seeds: 80_000,
    simulation: Duration::from_secs(2_400),
    preemptions: 3,
    cases: 256,
    profile: "ci",
};

/// A step that builds may have to compile every dependency on two slow cores.
pub const BUILD: Duration = Duration::from_secs(1_800);

/// A test step builds and runs.
const TEST: Duration = Duration::from_secs(3_600);

/// An example is a user's first minute.
const EXAMPLE: Duration = Duration::from_secs(300);

/// What everything may take on two idle cores: said when it took longer, and no failure.
const GOAL: Duration = Duration::from_secs(30 * 60);

/// The crates with models of every interleaving.
const MODELLED: &[&str] = &["bireme-net", "bireme-store"];

/// Runs every step and prints a verdict. True when all of them succeeded.
pub fn run(root: &Path, budget: &Budget, skips: Skips) -> bool {
    run_steps(root, budget.name, skips, |run| steps(run, budget))
}

/// The same with the steps about the Python package alone.
pub fn run_python(root: &Path, skips: Skips) -> bool {
    run_steps(root, "python", skips, |run| Ok(python::steps(run, &example_names(&Tree::read(&run.root)?, ".py"))))
}

/// Runs the suites that take too long for every change, those of these names or all. True when all of them succeeded.
pub fn run_slow(root: &Path, skips: Skips, names: &[&str]) -> bool {
    run_steps(root, "slow", skips, |run| slow::steps(run, names).map_err(std::io::Error::other))
}

fn run_steps(root: &Path, name: &str, skips: Skips, steps: impl Fn(&Run) -> std::io::Result<Vec<Step>>) -> bool {
    let started = Instant::now();
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    // Processes name their executable by its real path.
    let target = target.canonicalize().unwrap_or(target);
    let nanoseconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos());
    let mark = format!("{}-{nanoseconds}", std::process::id());
    let run = Run { root: root.to_path_buf(), target, mark, skips };
    remains::clear_temporary_folder(&run.target);
    python::clear(&run);
    let shared_memory_before = remains::shared_memory_files();

    let mut failed = Vec::new();
    let mut count = 1;
    if !tidy_step(root) {
        failed.push("tidy".to_owned());
    }
    let steps = match steps(&run) {
        Ok(steps) => steps,
        Err(error) => {
            println!("FAILED  no steps: {error}");
            return false;
        }
    };
    for step in &steps {
        count += 1;
        if !step.run(&run) {
            failed.push(step.name.clone());
        }
    }
    if steps.iter().any(|step| step.name == python::WHEEL) {
        count += 1;
        if !wheel_step(&run) {
            failed.push("wheel size".to_owned());
        }
    }
    count += 1;
    if !remains_step(&run, &shared_memory_before) {
        failed.push("remains".to_owned());
    }

    if name != "slow" && started.elapsed() > GOAL {
        println!("    longer than {} minutes, which is the goal on two idle cores", GOAL.as_secs() / 60);
    }
    let elapsed = started.elapsed().as_secs_f64();
    if failed.is_empty() {
        println!("{name}: all {count} steps ok in {elapsed:.0}s");
    } else {
        println!("{name}: {} of {count} steps FAILED in {elapsed:.0}s: {}", failed.len(), failed.join(", "));
    }
    failed.is_empty()
}

fn tidy_step(root: &Path) -> bool {
    let started = Instant::now();
    let ok = tidy::run(root);
    match ok {
        true => step::report_ok("tidy", started.elapsed()),
        false => step::report_failure("tidy", started.elapsed(), "the findings stand above"),
    }
    ok
}

fn wheel_step(run: &Run) -> bool {
    let started = Instant::now();
    match python::wheel_bytes(run).and_then(python::judge_wheel) {
        Ok(line) => {
            step::report_ok("wheel size", started.elapsed());
            println!("    {line}");
            true
        }
        Err(reason) => {
            step::report_failure("wheel size", started.elapsed(), &reason);
            false
        }
    }
}

fn remains_step(run: &Run, shared_memory_before: &[String]) -> bool {
    let started = Instant::now();
    let left = remains::look(&run.mark, &run.target, shared_memory_before);
    if left.is_empty() {
        step::report_ok("remains", started.elapsed());
        return true;
    }
    for line in &left {
        println!("{line}");
    }
    step::report_failure("remains", started.elapsed(), "the steps left something behind");
    remains::end_marked(&run.mark);
    false
}

fn steps(run: &Run, budget: &Budget) -> std::io::Result<Vec<Step>> {
    let mut steps = static_steps();
    steps.extend(test_steps(run, budget));
    steps.extend(simulation_steps(budget));
    let tree = Tree::read(&run.root)?;
    steps.extend(example_steps(&example_names(&tree, ".rs")));
    steps.extend(python::steps(run, &example_names(&tree, ".py")));
    Ok(steps)
}

fn static_steps() -> Vec<Step> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // The binary `bireme` would be documented over the library of the same name.
    let doc = ["doc", "--workspace", "--no-deps", "--exclude", "bireme-cli"];
    vec![
        Step::cargo("format", &["fmt", "--all", "--check"], BUILD, Summary::None),
        Step::cargo("clippy", &clippy, BUILD, Summary::None),
        Step::cargo("docs", &doc, BUILD, Summary::None).with("RUSTDOCFLAGS", "-D warnings"),
    ]
}

fn test_steps(run: &Run, budget: &Budget) -> Vec<Step> {
    let tests = ["nextest", "run", "--workspace", "--profile", budget.profile];
    let doc_tests = ["test", "--workspace", "--doc"];
    // Says whether tests that cross a network can run here: without root they cannot.
    let netlab = ["run", "--quiet", "--bin", "bireme-netlab", "--", "check"];
    let mut steps = vec![
        Step::cargo("netlab", &netlab, BUILD, Summary::LastLine),
        Step::cargo("tests", &tests, TEST, Summary::Tests).with("PROPTEST_CASES", budget.cases.to_string()),
        Step::cargo("doc tests", &doc_tests, TEST, Summary::Tests),
    ];
    // Apart from the other builds, or each would undo the other's work.
    let target = run.target.join("loom").display().to_string();
    steps.extend(MODELLED.iter().map(|package| {
        // The library's own tests: models are made of its private parts.
        let models =
            ["nextest", "run", "--profile", budget.profile, "--package", package, "--lib", "-E", "test(loom_)"];
        Step::cargo(&format!("models of {package}"), &models, TEST, Summary::Tests)
            .with("RUSTFLAGS", "--cfg loom")
            .with("LOOM_MAX_PREEMPTIONS", budget.preemptions.to_string())
            .with("CARGO_TARGET_DIR", &target)
    }));
    steps
}

/// Built first, so that the deadline of the simulation is about the simulation.
fn simulation_steps(budget: &Budget) -> [Step; 2] {
    let seeds = budget.seeds.to_string();
    let build = ["build", "--release", "--bin", "bireme-sim"];
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
    let simulate = ["run", "--quiet", "--release", "--bin", "bireme-sim", "--", "--seeds", &seeds, "--jobs", &cores];
    [
        Step::cargo("simulation build", &build, BUILD, Summary::None),
        Step::cargo("simulation", &simulate, budget.simulation, Summary::LastLine),
    ]
}

/// The names of the examples, from their files: a new one is run without being listed anywhere else.
fn example_names(tree: &Tree, ending: &str) -> Vec<String> {
    let files = tree.files().filter_map(|(path, _)| path.strip_prefix("examples/")?.strip_suffix(ending));
    files.filter(|name| !name.contains('/')).map(str::to_owned).collect()
}

/// As the tests built them; the program of the README once more, by its own command.
fn example_steps(names: &[String]) -> Vec<Step> {
    let build = ["build", "--examples"];
    let mut steps = vec![Step::cargo("examples build", &build, BUILD, Summary::None)];
    steps.extend(names.iter().map(|name| {
        let arguments = ["run", "--example", name];
        Step::cargo(&format!("example {name}"), &arguments, EXAMPLE, Summary::None)
    }));
    steps.push(Step::program("demo", Path::new("./demo"), &[], BUILD, Summary::LastLine));
    steps
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_example_file_becomes_a_step() {
        let tree = Tree::of(&[
            ("examples/a.rs", ""),
            ("examples/b.rs", ""),
            ("examples/more/c.rs", ""),
            ("examples/a.py", ""),
        ]);
        assert_eq!(example_names(&tree, ".py"), ["a"]);
        let steps = example_steps(&example_names(&tree, ".rs"));
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["examples build", "example a", "example b", "demo"]);
    }

    #[test]
    fn ci_runs_the_same_steps_as_check() {
        let (root, target) = (PathBuf::from("."), PathBuf::from("target"));
        let run = Run { root, target, mark: String::new(), skips: Skips::Fail };
        let names = |budget| test_steps(&run, budget).into_iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(&CHECK), names(&CI));
        const { assert!(CI.seeds > CHECK.seeds) };
    }
}
