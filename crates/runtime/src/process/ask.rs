//! Questions to the node that block the asking thread.

use std::time::{Duration, Instant};

use bireme_core::message::{FromNode, ToNode};

use super::Process;
use super::wait::{Interest, Waited};
use crate::error::Error;

/// The node answers within this time or something is badly wrong.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

impl Process {
    /// Puts a question and waits for its answer.
    pub(crate) fn ask(&self, request: u64, question: &ToNode) -> Result<FromNode, Error> {
        self.ask_within(request, question, ANSWER_WAIT_MAX)
    }

    /// The same with a shorter patience.
    pub(crate) fn ask_within(&self, request: u64, question: &ToNode, wait: Duration) -> Result<FromNode, Error> {
        let timed_out = || Error::System {
            what: "asking the node",
            reason: format!("no answer within {wait:?}; the machine may be overloaded"),
        };
        self.ask_until(request, question, Some(Instant::now() + wait))?.ok_or_else(timed_out)
    }

    /// The same for as long as it takes: the answer depends on memory that others give back, and on disks.
    pub(crate) fn ask_patiently(&self, request: u64, question: &ToNode) -> Result<FromNode, Error> {
        let unanswered = || Error::System { what: "asking the node", reason: "it did not answer".into() };
        self.ask_until(request, question, None)?.ok_or_else(unanswered)
    }

    fn ask_until(&self, request: u64, question: &ToNode, deadline: Option<Instant>) -> Result<Option<FromNode>, Error> {
        let mut inner = self.lock();
        self.tell_node(&mut inner, question);
        self.flush(&mut inner);
        drop(inner);
        let waited = self.wait_for(deadline, &Interest::Answer, |inner| {
            let whole = match inner.answers.get(&request)? {
                FromNode::State { last, .. } => *last,
                _ => true,
            };
            if whole { inner.answers.remove(&request) } else { None }
        });
        match waited {
            Waited::Got(answer) => Ok(Some(answer)),
            Waited::Over => Err(self.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => Ok(None),
        }
    }

    /// Says something that needs no answer.
    pub(crate) fn tell(&self, request: &ToNode) {
        let mut inner = self.lock();
        self.tell_node(&mut inner, request);
        self.flush(&mut inner);
    }
}
