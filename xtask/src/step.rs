//! One step of a check: a command with a deadline, quiet when it succeeds and loud when it fails.
//!
//! Called by `check`. Success prints one line and the summaries of the test runners; failure prints all that
//! the command said. Every process that a step starts carries a mark in its environment, so that a step that
//! outlives its deadline can be ended as a whole and what is left at the end can be found.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::remains;

/// How often a running step is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What the steps of one run share.
pub struct Run {
    /// The folder of the workspace.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// The value of [`remains::MARK`] in everything that this run starts.
    pub mark: String,
    /// Whether tests may be skipped that lack root, a package or namespaces here.
    pub skips: Skips,
}

/// What becomes of tests that cannot run on this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Skips {
    /// They fail: what nobody has run is not known to work.
    Fail,
    /// `--allow-skips`: they count as passed, and the summary shows them.
    Allow,
}

/// Tells tests that they fail when they cannot run here; read by `bireme_netlab::not_tested` and by `conftest.py`.
const SKIPS: &str = "BIREME_SKIPS";

/// What a step prints when it succeeds, beside its one line.
#[derive(Clone, Copy)]
pub enum Summary {
    /// Nothing more.
    None,
    /// The summary lines of the test runners. A step without one fails: it has tested nothing.
    Tests,
    /// The last line of the output.
    LastLine,
}

/// A command with a name and a deadline.
pub struct Step {
    /// What the line says.
    pub name: String,
    /// What is run; nothing stands for cargo.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to the environment.
    pub environment: Vec<(&'static str, String)>,
    /// A folder with programs that go before those of the system.
    pub first_on_path: Option<PathBuf>,
    /// When the step is ended and counts as failed.
    pub deadline: Duration,
    /// What is printed on success.
    pub summary: Summary,
    /// What to look at when it fails, for failures that are mostly the machine's.
    pub remedy: Option<&'static str>,
}

impl Step {
    /// A step that runs cargo.
    pub fn cargo(name: &str, arguments: &[&str], deadline: Duration, summary: Summary) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let name = name.to_owned();
        let (program, first_on_path, remedy) = (None, None, None);
        Self { name, program, arguments, environment: Vec::new(), first_on_path, deadline, summary, remedy }
    }

    /// A step that runs another program.
    pub fn program(name: &str, program: &Path, arguments: &[&str], deadline: Duration, summary: Summary) -> Self {
        Self { program: Some(program.to_path_buf()), ..Self::cargo(name, arguments, deadline, summary) }
    }

    /// The same step with a remedy.
    pub fn or_else_look_at(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// The same step with one more variable.
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((key, value.into()));
        self
    }

    /// Runs the step and prints its result. True when it succeeded.
    pub fn run(&self, run: &Run) -> bool {
        let started = Instant::now();
        let result = self.execute(run);
        let elapsed = started.elapsed();
        let verdict = match &result {
            Ok((Some(status), output)) if status.success() => self.summary.of(output, run.skips),
            Ok((Some(status), _)) => Err(format!("it ended with {status}")),
            Ok((None, _)) => Err(format!("it was ended after its deadline of {} s", self.deadline.as_secs())),
            Err(error) => Err(format!("it did not run: {error}")),
        };
        match verdict {
            Ok(lines) => {
                report_ok(&self.name, elapsed);
                for line in lines {
                    println!("    {line}");
                }
                true
            }
            Err(reason) => {
                if let Ok((_, output)) = &result {
                    println!("{output}");
                }
                report_failure(&self.name, elapsed, &reason);
                println!("      to repeat: {}", self.command_line());
                if let Some(remedy) = self.remedy {
                    println!("      {remedy}");
                }
                false
            }
        }
    }

    fn execute(&self, run: &Run) -> io::Result<(Option<ExitStatus>, String)> {
        let folder = run.target.join("check");
        fs::create_dir_all(&folder)?;
        let log = folder.join(format!("{}.log", self.name.replace([' ', '/'], "-")));
        let file = File::create(&log)?;
        let mut command = Command::new(self.program.clone().unwrap_or_else(|| cargo_program().into()));
        command.args(&self.arguments).current_dir(&run.root);
        command.env(remains::MARK, &run.mark).env("CARGO_TERM_COLOR", "never");
        command.env("TMPDIR", remains::temporary_folder(&run.target)?);
        match run.skips {
            Skips::Fail => command.env(SKIPS, "fail"),
            Skips::Allow => command.env_remove(SKIPS),
        };
        // Nothing is written beside a source, also not by an interpreter.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        if let Some(folder) = &self.first_on_path {
            let before = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(folder.clone()).chain(std::env::split_paths(&before));
            command.env("PATH", std::env::join_paths(folders).map_err(io::Error::other)?);
        }
        // Both streams go to one file, in the order in which they were written.
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn()?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if started.elapsed() > self.deadline {
                // The runner first, or it would start the next test while we end this one.
                child.kill()?;
                child.wait()?;
                remains::end_marked(&run.mark);
                break None;
            }
            std::thread::sleep(POLL);
        };
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok((status, output))
    }

    fn command_line(&self) -> String {
        let variables = self.environment.iter().map(|(key, value)| format!("{key}='{value}' "));
        let path = self.first_on_path.as_ref().map(|folder| format!("PATH='{}':\"$PATH\" ", folder.display()));
        let quoted = self
            .arguments
            .iter()
            .map(|argument| if argument.contains([' ', '(']) { format!("'{argument}'") } else { argument.clone() });
        let program = self.program.as_deref().map_or_else(|| "cargo".to_owned(), |path| path.display().to_string());
        let variables = variables.chain(path).collect::<String>();
        format!("{variables}{program} {}", quoted.collect::<Vec<_>>().join(" "))
    }
}

impl Summary {
    fn of(self, output: &str, skips: Skips) -> Result<Vec<&str>, String> {
        let mut lines = output.lines().map(str::trim);
        let found: Vec<&str> = match self {
            Self::None => Vec::new(),
            Self::Tests => {
                let all = lines.filter(|line| is_summary(line));
                // Crates without doc tests say so one by one; a step in which nothing ran still fails below.
                all.filter(|line| !line.starts_with("test result: ok. 0 passed; 0 failed")).collect()
            }
            Self::LastLine => lines.rfind(|line| !line.is_empty()).into_iter().collect(),
        };
        if found.is_empty() && !matches!(self, Self::None) {
            return Err("it printed no summary".to_owned());
        }
        let skipped = found.iter().find(|line| is_of_pytest(line) && line.contains(" skipped"));
        if let (Self::Tests, Skips::Fail, Some(line)) = (self, skips, skipped) {
            return Err(format!("tests were skipped for want of something here ({line}); --allow-skips allows that"));
        }
        Ok(found)
    }
}

/// Whether a test runner ends with this line: nextest, rustdoc, or pytest and the programs, which begin with a number.
fn is_summary(line: &str) -> bool {
    line.starts_with("Summary [") || line.starts_with("test result:") || is_of_pytest(line)
}

fn is_of_pytest(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" passed") && line.contains(" in ")
}

/// Prints the line of a step that succeeded.
pub fn report_ok(name: &str, elapsed: Duration) {
    println!("ok    {name:<28} {:>6.1}s", elapsed.as_secs_f64());
}

/// Prints the line of a step that failed.
pub fn report_failure(name: &str, elapsed: Duration, reason: &str) {
    println!("FAILED  {name}  {:.1}s: {reason}", elapsed.as_secs_f64());
}

/// The cargo that runs us, so that one toolchain does everything.
pub fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in(name: &str) -> Run {
        let target = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let mark = format!("test-{name}-{}", std::process::id());
        Run { root: std::env::temp_dir(), target, mark, skips: Skips::Fail }
    }

    #[test]
    fn the_summaries_of_all_test_runners_are_kept() {
        let output = "noise\n     Summary [   0.1s] 3 tests run: 3 passed, 0 skipped\n\
            test result: ok. 2 passed; 0 failed\n............ [100%]\n12 passed in 3.40s\n";
        let lines = Summary::Tests.of(output, Skips::Fail).expect("the output has three summaries");
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("3 passed, 0 skipped"));
    }

    #[test]
    fn skipped_tests_fail_a_step_unless_they_are_allowed() {
        let output = "12 passed, 1 skipped in 3.40s\n";
        let refused = Summary::Tests.of(output, Skips::Fail).expect_err("one was skipped");
        assert!(refused.contains("1 skipped") && refused.contains("--allow-skips"), "{refused}");
        assert_eq!(Summary::Tests.of(output, Skips::Allow), Ok(vec!["12 passed, 1 skipped in 3.40s"]));
        let filtered = "Summary [   0.1s] 3 tests run: 3 passed, 5 skipped";
        assert!(Summary::Tests.of(filtered, Skips::Fail).is_ok(), "nextest calls so what was not asked for");
    }

    #[test]
    fn tests_are_told_whether_they_may_be_skipped() {
        let program = Path::new("sh");
        for (skips, ok) in [(Skips::Fail, true), (Skips::Allow, false)] {
            let run = Run { skips, ..run_in(if ok { "skips-fail" } else { "skips-allow" }) };
            let step =
                Step::program("told", program, &["-c", "test \"$BIREME_SKIPS\" = fail"], POLL * 3_000, Summary::None);
            assert_eq!(step.run(&run), ok);
            std::fs::remove_dir_all(&run.target).expect("the folder was made by the step");
        }
    }

    #[test]
    fn a_test_step_without_a_summary_fails() {
        assert!(Summary::Tests.of("Compiling\n", Skips::Fail).is_err());
        assert!(
            Summary::Tests.of("test result: ok. 0 passed; 0 failed; 0 ignored\n", Skips::Fail).is_err(),
            "nothing ran"
        );
        assert!(Summary::Tests.of("no tests ran in 0.01s\n", Skips::Fail).is_err(), "pytest found none");
        assert!(Summary::None.of("", Skips::Fail).is_ok());
        assert_eq!(Summary::LastLine.of("a\nb\n\n", Skips::Fail), Ok(vec!["b"]));
    }

    #[test]
    fn a_step_succeeds_and_fails_with_its_command() {
        let run = run_in("exit");
        let minute = Duration::from_secs(60);
        assert!(Step::cargo("good", &["--version"], minute, Summary::LastLine).run(&run));
        assert!(!Step::cargo("bad", &["no-such-command"], minute, Summary::None).run(&run));
        std::fs::remove_dir_all(&run.target).expect("the folder was made by the steps");
    }

    #[test]
    fn a_step_past_its_deadline_is_ended_and_fails() {
        let run = run_in("deadline");
        assert!(!Step::cargo("late", &["--list"], Duration::ZERO, Summary::None).run(&run));
        std::fs::remove_dir_all(&run.target).expect("the folder was made by the step");
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        let step = Step::cargo("x", &["nextest", "run", "-E", "test(loom_)"], POLL, Summary::None)
            .with("RUSTFLAGS", "--cfg loom");
        assert_eq!(step.command_line(), "RUSTFLAGS='--cfg loom' cargo nextest run -E 'test(loom_)'");
        let mut step = Step::program("x", Path::new("bin/python"), &["-m", "pytest"], POLL, Summary::None);
        assert_eq!(step.command_line(), "bin/python -m pytest");
        step.first_on_path = Some("target/venv/bin".into());
        assert_eq!(step.command_line(), "PATH='target/venv/bin':\"$PATH\" bin/python -m pytest");
    }
}
