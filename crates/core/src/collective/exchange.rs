//! Carries the steps of one small call out.

use std::ops::Range;

use super::steps::{Action, Step};
use super::{Call, Member, steps};

/// One small call of a member.
#[derive(Debug)]
pub struct Exchange {
    number: u64,
    steps: Vec<Step>,
    at: usize,
}

/// How far it has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is to be sent now, in order.
    pub sends: Vec<(u32, Vec<u8>)>,
    /// Every step is done.
    pub done: bool,
}

impl Exchange {
    /// The call with this number; the member's buffer is as its [`Layout`](super::Layout) says.
    pub fn new(number: u64, call: &Call, rank: u32, size: u32) -> Self {
        Self { number, steps: steps(call, rank, size), at: 0 }
    }

    /// Whether a rank is sent something in this call.
    pub fn sends_to(&self, rank: u32) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Send { to, .. } if *to == rank))
    }

    /// Goes on as far as what has come allows. `combine` puts what came (its second argument) together with what is there.
    pub fn advance(
        &mut self,
        member: &mut Member,
        buffer: &mut [u8],
        combine: &mut dyn FnMut(&mut [u8], &[u8]),
    ) -> Progress {
        let mut progress = Progress::default();
        while let Some(step) = self.steps.get(self.at) {
            match step {
                Step::Send { to, range } => progress.sends.push((*to, buffer[indices(range)].to_vec())),
                Step::Receive { from, range, action } => {
                    let Some(came) = member.take_part(self.number, *from) else { return progress };
                    let place = &mut buffer[indices(range)];
                    match action {
                        // Calls that are equal have arrays that are: another length is nonsense of a broken peer.
                        _ if came.len() != place.len() => return progress,
                        Action::Store => place.copy_from_slice(&came),
                        Action::Combine => combine(place, &came),
                    }
                }
            }
            self.at += 1;
        }
        progress.done = true;
        progress
    }
}

/// A range of a buffer in this process's memory, which fits into it.
fn indices(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}
