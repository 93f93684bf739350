//! A run of the benchmark script, `bench/suite.py` of the Python package, for one row.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::super::Outcome;
use super::super::measure::Pair;
use super::super::probe::next_line;
use super::interpreter::RAY_SETTINGS;

/// How long a round may take, preparation included. A peer takes many seconds for some.
const ROUND_WAIT: Duration = Duration::from_secs(120);

/// Where and how the script is run.
pub(super) struct Suite<'a> {
    /// The name that the script imports.
    pub(super) system: &'static str,
    /// The interpreter.
    pub(super) python: &'a Path,
    /// The script.
    pub(super) script: &'a Path,
    /// Whether to measure less of everything.
    pub(super) quick: bool,
}

/// A line of the script. Where a row has no floor, the floor is one and says nothing.
#[derive(Deserialize)]
struct Line {
    ours: f64,
    floor: Option<f64>,
}

impl Suite<'_> {
    /// Measures some rounds of a row.
    pub(super) fn measure(&self, row: &str, rounds: u32) -> Outcome<Vec<Pair>> {
        let mut command = Command::new(self.python);
        command.arg(self.script).args([row, "--system", self.system, "--rounds", &rounds.to_string()]);
        if self.quick {
            command.arg("--quick");
        }
        command.envs(RAY_SETTINGS).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.python.display()))?;
        let said = collect_errors(&mut child);
        let read = read_pairs(&mut child);
        if read.is_err() {
            // It may have ended already: then its status says more.
            let _ = child.kill();
        }
        let status = child.wait()?;
        let said = said.and_then(|reader| reader.join().ok()).unwrap_or_default();
        match read {
            Ok(pairs) if status.success() && pairs.len() == rounds as usize => Ok(pairs),
            Ok(pairs) => {
                let text = format!("the script ended with {status} after {} of {rounds} rounds\n{said}", pairs.len());
                Err(text.trim_end().into())
            }
            Err(error) => Err(format!("{error}\n{said}").trim_end().into()),
        }
    }
}

/// What the script says to people, read beside its figures so that neither pipe fills; shown when it fails.
fn collect_errors(child: &mut Child) -> Option<thread::JoinHandle<String>> {
    let stderr = child.stderr.take()?;
    Some(thread::spawn(move || {
        let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }))
}

fn read_pairs(child: &mut Child) -> Outcome<Vec<Pair>> {
    let stdout = child.stdout.take().ok_or("the script has no output")?;
    let (to_us, lines) = mpsc::channel();
    // A thread, since a pipe cannot be read with a timeout. It ends with the script, or with `lines`.
    thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| to_us.send(line)));
    let mut pairs = Vec::new();
    while let Some(line) = next_line(&lines, ROUND_WAIT)? {
        pairs.extend(pair(&line)?);
    }
    Ok(pairs)
}

/// A line of figures, or nothing: workers of a peer may print as well.
fn pair(line: &str) -> Outcome<Option<Pair>> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let Line { ours, floor } =
        serde_json::from_str(line).map_err(|error| format!("the script said {line:?}: {error}"))?;
    // No number, so that no bar can hold by a floor that is not there.
    Ok(Some(Pair { ours, floor: floor.unwrap_or(f64::NAN) }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn figures_are_read_and_other_lines_are_not() {
        let line = r#"{"system": "ray", "row": "a", "ours": 2.5, "floor": null}"#;
        assert!(pair(line).unwrap().is_some_and(|pair| pair.ours == 2.5 && pair.floor.is_nan()));
        let line = r#"{"system": "ray", "row": "a", "ours": 2.5, "floor": 2.0}"#;
        assert_eq!(pair(line).unwrap(), Some(Pair { ours: 2.5, floor: 2.0 }));
        assert_eq!(pair("(raylet) a warning").unwrap(), None);
        assert!(pair(r#"{"ours": "many"}"#).is_err());
    }

    #[test]
    fn a_script_that_fails_says_why() {
        let python = Path::new("/bin/sh");
        let suite = Suite { system: "bireme", python, script: Path::new("/no/such/script"), quick: true };
        let error = suite.measure("task_sync", 2).unwrap_err().to_string();
        assert!(error.contains("after 0 of 2 rounds"), "{error}");
    }
}
