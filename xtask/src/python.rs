//! The steps of `check` about the Python package: build the wheel, install it, and use it as users do.
//!
//! Two virtual environments below the target folder: `venv` has what the tests need and is kept from run to run,
//! `newcomer` is empty and made anew, as for someone who has just heard of the package. Both get the one wheel that the
//! run has built. Nothing is written beside the sources: no caches, no compiled files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::slow::Suite;
use crate::step::{Run, Step, Summary};

/// The step that builds the wheel.
pub const WHEEL: &str = "python wheel";
const REQUIREMENTS: &str = "python/tests/requirements.txt";
/// What the slow tests use beside those: packages of hundreds of megabytes.
const SLOW_REQUIREMENTS: &str = "python/tests/slow-requirements.txt";
const TYPED_SAMPLE: &str = "python/tests/typed_sample.py";
/// What a wheel may weigh.
const WHEEL_MAX_BYTES: u64 = 20_000_000;

/// An environment, or an installation from the package index.
const INSTALL: Duration = Duration::from_secs(1_500);
/// The wheel is two release builds.
const BUILD: Duration = Duration::from_secs(2_400);
/// All tests of the package.
const TEST: Duration = Duration::from_secs(3_000);
/// The slow tests, and the download of what they use.
const SLOW: Duration = Duration::from_secs(7_200);
/// One program of a user.
const PROGRAM: Duration = Duration::from_secs(300);
/// All programs of `tests/programs`, each of which has a deadline of its own.
const PROGRAMS: Duration = Duration::from_secs(1_800);
/// All rows of the benchmark, quickly.
const BENCH: Duration = Duration::from_secs(900);

const NO_PYTHON: &str = "Python 3.11 or newer with its module venv is needed; BIREME_PYTHON names another than python3";
const NO_INDEX: &str = "if this machine cannot reach a package index, name one with PIP_INDEX_URL, \
    or a folder of wheels with PIP_FIND_LINKS";

/// Where the steps put things.
struct Places {
    target: PathBuf,
    wheels: String,
}

impl Places {
    fn of(run: &Run) -> Self {
        Self { target: run.target.clone(), wheels: wheel_folder(run).display().to_string() }
    }

    fn in_venv(&self, program: &str) -> PathBuf {
        self.target.join("venv/bin").join(program)
    }

    fn in_newcomer(&self, program: &str) -> PathBuf {
        self.target.join("check/newcomer/bin").join(program)
    }
}

/// Takes away what an earlier run built, so that a wheel that is there is this run's.
pub fn clear(run: &Run) {
    // Usually there is none; what cannot be removed is more than one wheel, and fails.
    let _ = fs::remove_dir_all(wheel_folder(run));
}

/// All steps, in their order.
pub fn steps(run: &Run, examples: &[String]) -> Vec<Step> {
    let places = Places::of(run);
    let mut steps = Vec::from(preparation(&places));
    steps.extend(tests(&places));
    let python = places.in_venv("python");
    steps.extend(examples.iter().map(|name| {
        let file = format!("examples/{name}.py");
        Step::program(&format!("python example {name}"), &python, &[&file], PROGRAM, Summary::None)
    }));
    steps.extend(programs(&places));
    let bench = ["bench", "--python", "--quick"];
    steps.push(Step::program("python bench", &places.in_venv("bireme"), &bench, BENCH, Summary::None));
    steps.extend(newcomer(&places));
    steps
}

fn preparation(places: &Places) -> [Step; 4] {
    let system = PathBuf::from(std::env::var("BIREME_PYTHON").unwrap_or_else(|_| "python3".to_owned()));
    let python = places.in_venv("python");
    let folder = places.target.join("venv").display().to_string();
    let venv = ["-m", "venv", &folder];
    let install = ["-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS];
    // The environment has maturin, so nothing is downloaded for the build.
    let wheel = ["-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", &places.wheels];
    let wheel = Step::program(WHEEL, &python, &wheel, BUILD, Summary::None);
    let package = [
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        "--find-links",
        &places.wheels,
        "bireme",
    ];
    [
        Step::program("python environment", &system, &venv, INSTALL, Summary::None).or_else_look_at(NO_PYTHON),
        Step::program("python requirements", &python, &install, INSTALL, Summary::None).or_else_look_at(NO_INDEX),
        // maturin's own program is called by its name.
        Step { first_on_path: Some(places.target.join("venv/bin")), ..wheel },
        Step::program("python install", &python, &package, INSTALL, Summary::LastLine),
    ]
}

fn tests(places: &Places) -> [Step; 4] {
    let python = places.in_venv("python");
    // `-rs`: why tests were skipped.
    let tests = ["-m", "pytest", "--quiet", "-rs", "-p", "no:cacheprovider", "python/tests"];
    let examples = [
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
        "-p",
        "doc_examples",
        "--doctest-modules",
        "--pyargs",
        "bireme",
    ];
    let types = ["-m", "mypy", "python/bireme", TYPED_SAMPLE];
    let stubs = ["-m", "mypy.stubtest", "bireme._native", "--mypy-config-file", "pyproject.toml"];
    [
        Step::program("python tests", &python, &tests, TEST, Summary::Tests)
            .with("HYPOTHESIS_STORAGE_DIRECTORY", places.target.join("check/hypothesis").display().to_string()),
        Step::program("python doc examples", &python, &examples, TEST, Summary::Tests)
            // Where the plugin is.
            .with("PYTHONPATH", "python/tests"),
        Step::program("python types", &python, &types, TEST, Summary::LastLine),
        Step::program("python stubs", &python, &stubs, TEST, Summary::LastLine),
    ]
}

/// Programs as users write them, in both languages, by themselves and on two nodes.
fn programs(places: &Places) -> [Step; 2] {
    let executables = places.target.join("debug").display().to_string();
    let run = ["tests/programs/run.py", "--rust", &executables];
    [
        Step::cargo("programs build", &["build", "--bins"], BUILD, Summary::None),
        Step::program("programs", &places.in_venv("python"), &run, PROGRAMS, Summary::Tests),
    ]
}

/// An empty environment, the package, the program of the README (which `tidy` compares), the command.
fn newcomer(places: &Places) -> [Step; 4] {
    let folder = places.target.join("check/newcomer").display().to_string();
    let venv = ["-m", "venv", "--clear", &folder];
    let install = ["-m", "pip", "install", "--find-links", &places.wheels, "bireme"];
    let python = places.in_newcomer("python");
    [
        Step::program("newcomer environment", &places.in_venv("python"), &venv, INSTALL, Summary::None),
        Step::program("newcomer install", &python, &install, INSTALL, Summary::LastLine).or_else_look_at(NO_INDEX),
        Step::program("newcomer program", &python, &["examples/quickstart.py"], PROGRAM, Summary::LastLine),
        Step::program("newcomer command", &places.in_newcomer("bireme"), &["--version"], PROGRAM, Summary::LastLine),
    ]
}

/// The files `python/tests/slow_NAME.py`, which the other test run does not collect: each is a suite of that name, in an environment
/// with large packages that is kept from run to run.
pub fn slow_suites(run: &Run) -> Vec<Suite> {
    let python = run.target.join("venv-slow/bin/python");
    let suite = |name: String| {
        let file = format!("python/tests/slow_{name}.py");
        // `-s`: the figures that tests print are in the log.
        let tests = ["-m", "pytest", "--quiet", "-rs", "-s", "-p", "no:cacheprovider", &file];
        let mut steps = slow_preparation(run);
        steps.push(Step::program(&name, &python, &tests, SLOW, Summary::Tests));
        Suite { name, steps }
    };
    slow_names(&run.root).into_iter().map(suite).collect()
}

fn slow_preparation(run: &Run) -> Vec<Step> {
    let places = Places::of(run);
    let folder = places.target.join("venv-slow");
    let python = folder.join("bin/python");
    let venv = ["-m", "venv", &folder.display().to_string()].map(str::to_owned);
    let venv: Vec<&str> = venv.iter().map(String::as_str).collect();
    let install =
        ["-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS, "--requirement", SLOW_REQUIREMENTS];
    let package = ["-m", "pip", "install", "--no-deps", "--no-index", "--force-reinstall", "--find-links"];
    let package = [&package[..], &[&places.wheels, "bireme"]].concat();
    let mut steps = Vec::from(preparation(&places));
    steps.extend([
        Step::program("slow environment", &places.in_venv("python"), &venv, INSTALL, Summary::None),
        Step::program("slow requirements", &python, &install, SLOW, Summary::None).or_else_look_at(NO_INDEX),
        Step::program("slow install", &python, &package, INSTALL, Summary::LastLine),
    ]);
    steps
}

fn slow_names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("python/tests")).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.strip_prefix("slow_")?.strip_suffix(".py")?.to_owned())).collect();
    names.sort_unstable();
    names
}

fn wheel_folder(run: &Run) -> PathBuf {
    run.target.join("check/wheel")
}

/// The size of the one wheel that this run built.
pub fn wheel_bytes(run: &Run) -> Result<u64, String> {
    let folder = wheel_folder(run);
    let wheels = wheels(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    match wheels.as_slice() {
        [size] => Ok(*size),
        _ => Err(format!("{} has {} wheels and not one", folder.display(), wheels.len())),
    }
}

fn wheels(folder: &Path) -> std::io::Result<Vec<u64>> {
    let mut sizes = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "whl") {
            sizes.push(entry.metadata()?.len());
        }
    }
    Ok(sizes)
}

/// A line about the wheel, or why it is too large.
pub fn judge_wheel(bytes: u64) -> Result<String, String> {
    let megabytes = bytes as f64 / 1e6;
    if bytes > WHEEL_MAX_BYTES {
        return Err(format!("the wheel has {megabytes:.1} MB and may have {} MB", WHEEL_MAX_BYTES / 1_000_000));
    }
    Ok(format!("{megabytes:.1} MB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Skips;

    fn run_in(name: &str) -> Run {
        let target = std::env::temp_dir().join(format!("xtask-python-{name}-{}", std::process::id()));
        Run { root: PathBuf::from("."), target, mark: String::new(), skips: Skips::Fail }
    }

    #[test]
    fn every_python_example_becomes_a_step_of_the_environment() {
        let steps = steps(&run_in("steps"), &["quickstart".to_owned(), "actors".to_owned()]);
        let examples: Vec<_> = steps.iter().filter(|step| step.name.starts_with("python example ")).collect();
        assert_eq!(examples.len(), 2);
        assert!(
            examples.iter().all(|step| step.program.as_ref().is_some_and(|path| path.ends_with("venv/bin/python")))
        );
    }

    #[test]
    fn tests_and_doc_examples_must_have_run() {
        let steps = steps(&run_in("tests"), &[]);
        let counted = steps.iter().filter(|step| matches!(step.summary, Summary::Tests)).count();
        assert_eq!(counted, 3);
    }

    #[test]
    fn there_is_one_wheel_and_it_is_small() {
        let run = run_in("wheel");
        assert!(wheel_bytes(&run).is_err(), "none was built");
        fs::create_dir_all(wheel_folder(&run)).expect("the temporary folder can be written");
        fs::write(wheel_folder(&run).join("a.whl"), [0; 10]).expect("the folder was made above");
        assert_eq!(wheel_bytes(&run), Ok(10));
        fs::write(wheel_folder(&run).join("b.whl"), []).expect("the folder was made above");
        assert!(wheel_bytes(&run).is_err(), "two");
        clear(&run);
        assert!(wheel_bytes(&run).is_err());
        fs::remove_dir_all(&run.target).expect("the folder was made above");
        assert!(judge_wheel(WHEEL_MAX_BYTES).is_ok() && judge_wheel(WHEEL_MAX_BYTES + 1).is_err());
    }
}
