//! A probe: this executable started again to measure one row, away from all others.
//!
//! The parent ([`measure`]) starts it with the row's name and reads one line of JSON per pair; [`serve`] is the probe's
//! side. A row that needs a fresh process gets one per pair, the others one for all pairs. A probe that says nothing
//! for [`PAIR_WAIT`] is killed, and its workers die with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::Outcome;
use super::measure::Pair;
use super::rows::{self, Row};

/// How long a pair may take, preparation included. Slow machines take seconds.
const PAIR_WAIT: Duration = Duration::from_secs(60);

/// The command line of a probe.
#[derive(Args)]
pub(crate) struct Arguments {
    name: String,
    /// Number of the first pair.
    #[arg(long)]
    first: u32,
    #[arg(long)]
    pairs: u32,
    #[arg(long)]
    quick: bool,
}

/// What a row's function is told.
pub(crate) struct Probe {
    first: u32,
    pairs: u32,
    quick: bool,
}

impl Probe {
    /// How much to measure: the first number, or the second when it should be quick.
    pub(crate) fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Measures each pair, given its number, and tells the parent.
    pub(crate) fn measure(&self, mut pair: impl FnMut(u32) -> Outcome<Pair>) -> Outcome<()> {
        for number in self.first..self.first + self.pairs {
            let line = serde_json::to_string(&pair(number)?)?;
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{line}")?;
            stdout.flush()?;
        }
        Ok(())
    }
}

/// The probe's side.
pub(crate) fn serve(arguments: &Arguments) -> Outcome<()> {
    let row = rows::find(&arguments.name).ok_or_else(|| format!("there is no row named {:?}", arguments.name))?;
    (row.probe)(&Probe { first: arguments.first, pairs: arguments.pairs, quick: arguments.quick })
}

/// Measures the pairs of a row.
pub(crate) fn measure(row: &Row, pairs: u32, quick: bool) -> Outcome<Vec<Pair>> {
    let mut measured = Vec::new();
    let step = if row.fresh { 1 } else { pairs };
    for first in (0..pairs).step_by(step as usize) {
        measured.extend(run(row.name, first, step, quick)?);
    }
    Ok(measured)
}

fn run(name: &str, first: u32, pairs: u32, quick: bool) -> Outcome<Vec<Pair>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench-probe", name]);
    command.args(["--first", &first.to_string(), "--pairs", &pairs.to_string()]);
    if quick {
        command.arg("--quick");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let read = read_pairs(&mut child);
    if read.is_err() {
        // It may have ended already: then its status says more.
        let _ = child.kill();
    }
    let status = child.wait()?;
    match read {
        Ok(measured) if status.success() && measured.len() == pairs as usize => Ok(measured),
        Ok(measured) => Err(format!("the probe ended with {status} after {} of {pairs} pairs", measured.len()).into()),
        Err(error) => Err(error),
    }
}

/// The pairs that the probe says, until it closes its output.
fn read_pairs(child: &mut Child) -> Outcome<Vec<Pair>> {
    let stdout = child.stdout.take().ok_or("the probe has no output")?;
    let (to_us, lines) = mpsc::channel();
    // A thread, since a pipe cannot be read with a timeout. It ends with the probe, or with `lines`.
    thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| to_us.send(line)));
    let mut pairs = Vec::new();
    while let Some(line) = next_line(&lines, PAIR_WAIT)? {
        pairs.push(serde_json::from_str(&line).map_err(|error| format!("the probe said {line:?}: {error}"))?);
    }
    Ok(pairs)
}

/// The next line, or nothing when the sender is gone; silence is an error.
pub(super) fn next_line(lines: &Receiver<String>, wait: Duration) -> Outcome<Option<String>> {
    match lines.recv_timeout(wait) {
        Ok(line) => Ok(Some(line)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => Err(format!("no figures after {wait:?}; it was ended").into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_end_with_the_sender_and_silence_is_an_error() {
        let (to_us, lines) = mpsc::channel();
        to_us.send("one".to_owned()).unwrap();
        assert_eq!(next_line(&lines, Duration::ZERO).unwrap().as_deref(), Some("one"));
        assert!(next_line(&lines, Duration::ZERO).is_err());
        drop(to_us);
        assert_eq!(next_line(&lines, Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn pairs_are_numbered_from_the_first() {
        let probe = Probe { first: 3, pairs: 2, quick: true };
        let mut numbers = Vec::new();
        probe
            .measure(|number| {
                numbers.push(number);
                Ok(Pair { ours: 1.0, floor: 1.0 })
            })
            .unwrap();
        assert_eq!((numbers, probe.size(100, 10)), (vec![3, 4], 10));
    }
}
