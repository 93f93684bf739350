//! Fail points: ways to make a worker fail at a chosen moment, for tests of what the others then do.
//!
//! Off unless asked for; what it costs is one branch per record. `docs/fail-points.md` tells how tests use it.
//! - [`VARIABLE`] in the driver's environment: the first worker in each slot kills itself at that record of its ledger;
//! - [`kill_at_record`] inside a task: the worker that runs it does, counting from now;
//! - [`write_garbage`] inside a task: its worker writes nonsense where its node or the task's owner reads.

use rustix::process::{Signal, getpid, kill_process};

use crate::error::Error;
use crate::process::{self, Process};

/// `<n>`: right before the n-th record of the process, the first being 1; `<n>:after`: right after it.
pub const VARIABLE: &str = "BIREME_KILL_AT_RECORD";

/// The incarnation that is killed: what comes after it lives.
const FIRST_INCARNATION: u32 = 1;

/// A process's end, planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailPoint {
    /// Records until then, that one included.
    left: u64,
    after: bool,
}

impl FailPoint {
    /// What the environment plans for the process of this incarnation. Read once, when a worker starts.
    pub(crate) fn from_environment(incarnation: u32) -> Option<Self> {
        let planned = std::env::var(VARIABLE).ok().filter(|_| incarnation == FIRST_INCARNATION)?;
        Self::parse(&planned)
    }

    fn parse(planned: &str) -> Option<Self> {
        let (number, after) = match planned.strip_suffix(":after") {
            Some(number) => (number, true),
            None => (planned, false),
        };
        number.parse().ok().filter(|left| *left > 0).map(|left| Self { left, after })
    }

    /// Whether the process has to end on this side of the record that is being written.
    pub(crate) fn is_due(&mut self, after: bool) -> bool {
        if self.after == after {
            self.left = self.left.saturating_sub(1);
        }
        self.left == 0
    }
}

/// Ends this process as `kill -9` would.
pub(crate) fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Plans the end of the worker that runs the current task: right before (or after) the n-th record from now.
#[doc(hidden)]
pub fn kill_at_record(n: u64, after: bool) -> Result<(), Error> {
    let process = worker()?;
    process.lock().plan(Some(FailPoint { left: n, after }));
    Ok(())
}

/// Where garbage goes.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A message to the node that means nothing.
    Message,
    /// A frame to the node that is no piece of a message.
    Frame,
    /// A message to every linked process that means nothing.
    ToPeers,
}

/// Makes the worker that runs the current task write what no sound process writes.
#[doc(hidden)]
pub fn write_garbage(garbage: Garbage) -> Result<(), Error> {
    let process = worker()?;
    process.write_garbage(garbage);
    Ok(())
}

fn worker() -> Result<std::sync::Arc<Process>, Error> {
    let process = process::current().ok_or(Error::NotRunning("never started, or shut down"))?;
    if process.me.is_driver() {
        return Err(Error::BadArgument("a driver has no fail points: call this inside a task".into()));
    }
    Ok(process)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_record_and_a_side_of_it() {
        assert_eq!(FailPoint::parse("3"), Some(FailPoint { left: 3, after: false }));
        assert_eq!(FailPoint::parse("1:after"), Some(FailPoint { left: 1, after: true }));
        for nonsense in ["", "0", "x", "-1", "2:before"] {
            assert_eq!(FailPoint::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_end_is_due_at_the_chosen_record_on_the_chosen_side() {
        for after in [false, true] {
            let mut point = FailPoint { left: 2, after };
            let sides: Vec<bool> = [false, true, false, true].into_iter().map(|side| point.is_due(side)).collect();
            let expected = if after { [false, false, false, true] } else { [false, false, true, true] };
            assert_eq!(sides, expected);
        }
    }
}
