//! The values of several objects, one after another; a failure of any of them ends the wait for the one that is due.

use std::time::{Duration, Instant};

use bireme_core::id::ObjectId;
use bireme_core::owner::{Event, Readiness};

use crate::client::{ASKED_TOGETHER_MAX, Runtime};
use crate::error::Error;
use crate::fetched::Fetched;
use crate::process::{Inner, Interest, Process, Waited};
use crate::reference::Ref;

/// Objects whose values are wanted in this order.
pub struct Together<'a> {
    runtime: &'a Runtime,
    refs: &'a [&'a Ref],
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// The object whose value is next.
    next: usize,
    /// Failures that the process had counted when all objects were last looked at.
    failures_seen: Option<u64>,
}

impl Runtime {
    /// The values of these objects, one after another, within one timeout for all. The owners of objects of others are asked for
    /// [`ASKED_TOGETHER_MAX`] at a time.
    pub fn get_together<'a>(&'a self, refs: &'a [&'a Ref], timeout: Option<Duration>) -> Result<Together<'a>, Error> {
        self.check_refs(refs.iter().copied())?;
        self.process.want_own(refs.iter().map(|r| r.id()));
        let deadline = timeout.and_then(crate::clock::deadline);
        Ok(Together { runtime: self, refs, timeout, deadline, next: 0, failures_seen: None })
    }
}

impl Together<'_> {
    /// Waits for the next value; the failure of any object that is left is an error at once.
    pub fn next_value(&mut self) -> Option<Result<Fetched, Error>> {
        let next = self.refs.get(self.next)?;
        let value = self.wait(next);
        self.next += 1;
        Some(value)
    }

    fn wait(&mut self, next: &Ref) -> Result<Fetched, Error> {
        let left = &self.refs[self.next..];
        if self.next.is_multiple_of(ASKED_TOGETHER_MAX) {
            self.runtime.ask_for(left.iter().copied().take(ASKED_TOGETHER_MAX))?;
        }
        let object = next.id();
        let seen = &mut self.failures_seen;
        let waited = next.process().wait_for(self.deadline, &Interest::ObjectOrFailure(object), |inner| {
            // All of them are looked at only after something failed, so that many take no longer than one after another.
            if seen.replace(inner.failures) != Some(inner.failures)
                && let Some((failed, value)) = left.iter().find_map(|r| Some((*r, failure_of(inner, r)?)))
            {
                return Some((failed, value));
            }
            inner.owner.value(&object).map(|value| (next, value.clone()))
        });
        match waited {
            Waited::Got((r, value)) => r.process().fetch(&value, r.spec()),
            Waited::Over => Err(next.process().over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => {
                let waiting_for = self.runtime.explain(next).unwrap_or_else(|error| error.to_string());
                Err(Error::Timeout { object, waited: self.timeout.unwrap_or_default(), waiting_for })
            }
        }
    }
}

fn failure_of(inner: &Inner, r: &Ref) -> Option<bireme_core::value::Value> {
    inner.owner.value(&r.id()).filter(|value| value.failure().is_some()).cloned()
}

impl Process {
    /// Says that someone waits for those of these objects that this process owns, so that it is told when they are there.
    fn want_own(&self, objects: impl Iterator<Item = ObjectId>) {
        let mut inner = self.lock();
        for object in objects {
            if inner.owner.readiness(&object) == Readiness::Idle && inner.owner.owns(&object) {
                self.step_owner(&mut inner, Event::Wanted(object));
            }
        }
        self.flush(&mut inner);
    }
}
