//! Calls of one member in their order, and those that nobody waits for.
//!
//! A call that is waited for is carried out by the thread that makes it. Others stand in line for one thread, which is there as
//! long as the line is. Two threads that call at once would make the order of the group's calls a matter of luck, so the second
//! is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bireme_core::collective::{Call, Trouble};

use super::call::Prepared;
use super::{Membership, Outcome, Work};
use crate::error::Error;
use crate::function::Part;

/// Calls of one member that may stand in line; another one is refused.
pub const WORKS_MAX: usize = 1_024;

struct Standing {
    /// The handle that it was made with.
    by: Arc<Membership>,
    call: Call,
    prepared: Prepared,
    work: Arc<Work>,
}

/// The calls that one member has begun.
#[derive(Default)]
pub(super) struct Line {
    /// What a thread that waits has called.
    calling: Option<&'static str>,
    /// A thread works off the line.
    working: bool,
    standing: VecDeque<Standing>,
}

/// A thread is in a call.
struct Calling<'a>(&'a Membership);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.lock_line().calling = None;
    }
}

impl Membership {
    /// Makes a call and waits for its end. `inputs` are the member's arrays.
    pub fn call(self: &Arc<Self>, call: Call, inputs: Vec<Part>) -> Result<Outcome, Error> {
        let process = self.process()?;
        let mut line = self.lock_line();
        self.check_alone(&line, &call)?;
        line.calling = Some(call.kind.name());
        let working = line.working;
        drop(line);
        let _calling = Calling(self);
        // Another thread would read the arrays of a caller that may be interrupted.
        let prepared = self.prepare(&process, &call, inputs, !working)?;
        if working {
            // After all that was begun before.
            let work = self.stand_in_line(call, prepared)?;
            return work.wait(None).unwrap_or_else(|| Err(process.over_error()));
        }
        self.run(&process, call, prepared)
    }

    /// Begins a call. What it needs of `inputs` is copied before this returns.
    pub fn begin(self: &Arc<Self>, call: Call, inputs: Vec<Part>) -> Result<Arc<Work>, Error> {
        let process = self.process()?;
        let prepared = self.prepare(&process, &call, inputs, false)?;
        self.check_alone(&self.lock_line(), &call)?;
        self.stand_in_line(call, prepared)
    }

    fn check_alone(&self, line: &Line, call: &Call) -> Result<(), Error> {
        let Some(calling) = line.calling else { return Ok(()) };
        let text = format!(
            "rank {} is in {calling} and called {} from another thread; make the calls of a member one after the other, or \
             with async_op",
            self.rank,
            call.kind.name()
        );
        Err(Error::from(Trouble::Misuse(text)))
    }

    fn stand_in_line(self: &Arc<Self>, call: Call, prepared: Prepared) -> Result<Arc<Work>, Error> {
        let work = Arc::new(Work::default());
        let mut line = self.lock_line();
        if line.standing.len() >= WORKS_MAX {
            let text = format!("rank {} has begun {WORKS_MAX} calls that are not over; wait for some", self.rank);
            return Err(Error::from(Trouble::Misuse(text)));
        }
        line.standing.push_back(Standing { by: Arc::clone(self), call, prepared, work: Arc::clone(&work) });
        if !line.working {
            line.working = true;
            drop(line);
            let line = Arc::clone(&self.line);
            if let Err(error) = crate::thread::spawn("bireme-collective", move || work_off(&line)) {
                self.lock_line().working = false;
                return Err(error);
            }
        }
        Ok(work)
    }

    fn lock_line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}

fn work_off(shared: &Mutex<Line>) {
    loop {
        let mut line = lock(shared);
        let Some(Standing { by, call, prepared, work }) = line.standing.pop_front() else {
            line.working = false;
            return;
        };
        drop(line);
        work.end(by.process().and_then(|process| by.run(&process, call, prepared)));
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
