//! One call from begin to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bireme_core::collective::{
    Call, Exchange, Ground, Kind, Layout, Member, Seat, Trouble, Word, has_stage, stage, stage_id, uses,
};
use bireme_core::flow::{IntakeSpec, Origin, StageId, StageSpec};
use bireme_core::id::{NodeId, ObjectId, TaskId};
use bireme_core::message::{FromNode, ToNode};
use bireme_core::value::{Location, RefSpec};

use super::arithmetic::Arithmetic;
use super::hear::StageEnd;
use super::input::{Brought, Filling, Lent};
use super::{Membership, Outcome};
use crate::error::Error;
use crate::fetched::Fetched;
use crate::function::Part;
use crate::process::{Inner, Interest, Process, Waited};

/// A broken stream is taken for a dead member when its death is heard of within this time.
const LOSS_WAIT: Duration = Duration::from_secs(8);
/// A call whose members are all there may take so many times the group's timeout.
const PATIENCE_TIMES: u32 = 40;

/// What a member brings, in the form in which its call needs it.
pub(super) enum Prepared {
    /// The member's buffer, as its [`Layout`] says.
    Small(Vec<u8>),
    /// Its arrays one behind the other, where it brings any.
    Large(Brought),
    /// It is told what comes.
    Told,
    /// There was no room for what it brings: the others hear that when it is the call's turn.
    Failed(Error),
}

pub(super) fn misuse(text: String) -> Error {
    Error::from(Trouble::Misuse(text))
}

impl Membership {
    /// Checks a call and copies what it needs of the member's arrays: all of it, unless its caller waits for it.
    pub(super) fn prepare(
        &self,
        process: &Arc<Process>,
        call: &Call,
        inputs: Vec<Part>,
        caller_waits: bool,
    ) -> Result<Prepared, Error> {
        if let Some(root) = call.root.filter(|root| *root >= self.size) {
            let most = self.size - 1;
            return Err(misuse(format!("{} has no rank {root}: the ranks are 0 to {most}", call.kind.name())));
        }
        Arithmetic::of(call).map_err(Error::from)?;
        if call.kind == Kind::Scatter && call.root != Some(self.rank) {
            return Ok(Prepared::Told);
        }
        let layout = Layout::of(call, self.rank, self.size).map_err(Error::from)?;
        let (given, wanted) = (inputs.len(), layout.inputs.len());
        if given != wanted {
            let text =
                format!("{} of rank {} takes {wanted} arrays, and {given} were given", call.kind.name(), self.rank);
            return Err(misuse(text));
        }
        let block = call.block_bytes() as usize;
        if let Some(wrong) = inputs.iter().map(|input| (**input).as_ref().len()).find(|bytes| *bytes != block) {
            let array = call.array.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(misuse(format!("an array of {wrong} bytes is no {array}, which has {block}")));
        }
        if !call.is_small(self.size) {
            // Who only gets something brings nothing.
            let brings = call.kind != Kind::Broadcast || call.root == Some(self.rank);
            let brought = match (brings, caller_waits) {
                (false, _) => Ok(Brought::Nothing),
                (true, true) => Ok(Brought::Here(inputs)),
                (true, false) => Lent::write(process, inputs).map(Brought::Written),
            };
            return Ok(brought.map_or_else(Prepared::Failed, Prepared::Large));
        }
        let mut buffer = vec![0; layout.bytes as usize];
        for (input, range) in inputs.iter().zip(&layout.inputs) {
            buffer[range.start as usize..range.end as usize].copy_from_slice((**input).as_ref());
        }
        if let Some((from, to)) = layout.own {
            buffer.copy_within(from.start as usize..from.end as usize, to.start as usize);
        }
        Ok(Prepared::Small(buffer))
    }

    /// Carries a call out.
    pub(super) fn run(&self, process: &Arc<Process>, call: Call, prepared: Prepared) -> Result<Outcome, Error> {
        self.await_formed(process, &call)?;
        if self.with(process, |member| member.needs_barrier())? {
            let barrier = Call { kind: Kind::Barrier, op: None, root: None, array: None };
            if let Err(error) = self.run_one(process, barrier, Prepared::Small(Vec::new())) {
                self.fail_unbegun(process, call, &error);
                return Err(error);
            }
        }
        if let Prepared::Failed(error) = prepared {
            self.fail_unbegun(process, call, &error);
            return Err(error);
        }
        self.run_one(process, call, prepared)
    }

    /// A call failed before it began: it has its number all the same, as it has with others.
    fn fail_unbegun(&self, process: &Process, call: Call, error: &Error) {
        let mut inner = process.lock();
        if let Some(member) = inner.collectives.member(self.group, self.rank) {
            let number = member.begin(call);
            member.fail(number, self.trouble_of(error));
            member.end(number);
        }
        process.send_answers(&mut inner, self.group, self.rank);
        process.flush(&mut inner);
    }

    /// What others hear of an error of this member.
    fn trouble_of(&self, error: &Error) -> Trouble {
        match error {
            Error::Collective(trouble) => (**trouble).clone(),
            other => Trouble::Transfer(format!("rank {}: {other}", self.rank)),
        }
    }

    fn run_one(&self, process: &Arc<Process>, call: Call, prepared: Prepared) -> Result<Outcome, Error> {
        let begun = self.with(process, |member| match member.current() {
            Some(current) => Err(Trouble::Misuse(format!("rank {} is in {current} already", self.rank))),
            None => Ok(member.begin(call.clone())),
        })?;
        let number = begun.map_err(Error::from)?;
        let going = Going { membership: self, process, number, begun: Instant::now() };
        let result = match prepared {
            Prepared::Small(buffer) => going.exchange(&call, buffer),
            Prepared::Large(brought) => going.stream(&call, brought),
            Prepared::Told => going.learn(&call).and_then(|call| match call.is_small(self.size) {
                true => going.exchange(&call, vec![0; call.block_bytes() as usize]),
                false => going.stream(&call, Brought::Nothing),
            }),
            Prepared::Failed(error) => Err(error),
        };
        let mut inner = process.lock();
        if let Some(member) = inner.collectives.member(self.group, self.rank) {
            if let Err(Error::Interrupted) = &result {
                let seat = member.seat(self.rank);
                member.fail(number, Trouble::Transfer(format!("{seat} was interrupted in {call}")));
            }
            member.end(number);
        }
        process.send_answers(&mut inner, self.group, self.rank);
        process.flush(&mut inner);
        result
    }

    /// Uses what the process knows of this member.
    pub(super) fn with<R>(&self, process: &Process, look: impl FnOnce(&mut Member) -> R) -> Result<R, Error> {
        let mut inner = process.lock();
        let left = || Error::from(Trouble::NotMember(format!("rank {} has left the group", self.rank)));
        inner.collectives.member(self.group, self.rank).map(look).ok_or_else(left)
    }

    /// Waits until all members are there.
    pub(super) fn await_formed(&self, process: &Process, call: &Call) -> Result<(), Error> {
        let formed = |inner: &mut Inner| {
            let member = inner.collectives.member(self.group, self.rank)?;
            match (member.trouble(), member.life()) {
                (Some(trouble), _) => Some(Err(Error::from(trouble.clone()))),
                (None, Some(_)) => Some(Ok(())),
                (None, None) => None,
            }
        };
        match process.wait_for(crate::clock::deadline(self.timeout), &Interest::Anything, formed) {
            Waited::Got(result) => result,
            Waited::Over => Err(process.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => {
                let request = process.request_id();
                let asked = process.ask(request, &ToNode::QueryCollective { request, group: self.group })?;
                let FromNode::CollectiveJoined { joined, .. } = asked else {
                    let reason = "the node answered something else".into();
                    return Err(Error::System { what: "asking for a group", reason });
                };
                let absent = (0..self.size).filter(|rank| !joined.contains(rank));
                let missing = absent.map(|rank| Seat { rank, label: "has not joined".into() }).collect();
                Err(Error::from(self.missing(call, 1, missing)))
            }
        }
    }

    fn missing(&self, call: &Call, times: u32, missing: Vec<Seat>) -> Trouble {
        let what = format!("{call} of rank {}", self.rank);
        Trouble::Missing { what, missing, waited_ms: (self.timeout * times).as_millis() as u64 }
    }
}

/// A call that was begun.
struct Going<'a> {
    membership: &'a Membership,
    process: &'a Arc<Process>,
    number: u64,
    begun: Instant,
}

impl Going<'_> {
    /// Waits until `check` gives something, or the call has failed. Who does not come in time is named.
    fn wait<R>(
        &self,
        call: &Call,
        mut check: impl FnMut(&mut Inner) -> Option<Result<R, Trouble>>,
    ) -> Result<R, Error> {
        let (group, rank) = (self.membership.group, self.membership.rank);
        let half = self.membership.timeout / 2;
        for turn in 1..=PATIENCE_TIMES {
            let deadline = Some(self.begun + half * turn);
            let waited = self.process.wait_for(deadline, &Interest::Anything, |inner| {
                let member = inner.collectives.member(group, rank)?;
                if let Some(trouble) = member.failed(self.number) {
                    return Some(Err(trouble));
                }
                if let Some(result) = check(inner) {
                    return Some(result);
                }
                inner.collectives.member(group, rank)?.failure(self.number).map(Err)
            });
            match waited {
                Waited::Got(result) => return result.map_err(Error::from),
                Waited::Over => return Err(self.process.over_error()),
                Waited::Interrupted => return Err(Error::Interrupted),
                Waited::TimedOut => {
                    let mut inner = self.process.lock();
                    let Some(member) = inner.collectives.member(group, rank) else { continue };
                    let missing = member.missing(self.number);
                    if turn.is_multiple_of(2) && !missing.is_empty() {
                        let trouble = self.membership.missing(call, turn / 2, missing);
                        return Err(self.give_up(&mut inner, trouble));
                    }
                    member.ask_around(self.number);
                    self.process.send_answers(&mut inner, group, rank);
                    self.process.flush(&mut inner);
                }
            }
        }
        let waited = half * PATIENCE_TIMES;
        let text =
            format!("{call} is not over after {waited:?}, though all members are in it; give the group more time");
        Err(self.give_up(&mut self.process.lock(), Trouble::Transfer(text)))
    }

    /// The call has no result, and all others hear why.
    fn give_up(&self, inner: &mut Inner, trouble: Trouble) -> Error {
        let (group, rank) = (self.membership.group, self.membership.rank);
        if let Some(member) = inner.collectives.member(group, rank) {
            member.fail(self.number, trouble.clone());
        }
        self.process.send_answers(inner, group, rank);
        self.process.flush(inner);
        Error::from(trouble)
    }

    /// Waits until the root has said what comes.
    fn learn(&self, call: &Call) -> Result<Call, Error> {
        let (group, rank) = (self.membership.group, self.membership.rank);
        self.tell_next(call, false)?;
        self.wait(call, |inner| {
            let current = inner.collectives.member(group, rank)?.current()?;
            current.array.is_some().then(|| Ok(current.clone()))
        })
    }

    /// Tells the next rank, or all, what this call is.
    fn tell_next(&self, call: &Call, all: bool) -> Result<(), Error> {
        let (rank, size) = (self.membership.rank, self.membership.size);
        let ranks = if all { 1..size } else { 1..size.min(2) };
        let mut inner = self.process.lock();
        let Some(member) = inner.collectives.member(self.membership.group, rank) else { return Ok(()) };
        let call = member.current().filter(|_| !all).unwrap_or(call).clone();
        let note = |ahead: u32| {
            let word = Word::Note { number: self.number, call: call.clone() };
            member.packet((rank + ahead) % size, word, Vec::new())
        };
        let notes = ranks.filter_map(note).collect();
        self.process.send_packets(&mut inner, notes);
        self.process.flush(&mut inner);
        Ok(())
    }

    /// A small call: messages between members.
    fn exchange(&self, call: &Call, mut buffer: Vec<u8>) -> Result<Outcome, Error> {
        let (group, rank, size) = (self.membership.group, self.membership.rank, self.membership.size);
        let mut exchange = Exchange::new(self.number, call, rank, size);
        let arithmetic = Arithmetic::of(call).map_err(Error::from)?;
        if size > 1 && !exchange.sends_to((rank + 1) % size) {
            self.tell_next(call, false)?;
        }
        self.wait(call, |inner| {
            let member = inner.collectives.member(group, rank)?;
            let progress = exchange.advance(member, &mut buffer, &mut |into, from| arithmetic.combine(into, from));
            let part = Word::Part { number: self.number, call: call.clone() };
            let sends = progress.sends.into_iter();
            let packets = sends.filter_map(|(to, bytes)| member.packet(to, part.clone(), bytes)).collect();
            self.process.send_packets(inner, packets);
            self.process.flush(inner);
            progress.done.then_some(Ok(()))
        })?;
        let layout = Layout::of(call, rank, size).map_err(Error::from)?;
        let ranges: Vec<_> = layout.results.iter().map(|range| range.start as usize..range.end as usize).collect();
        if let [range] = &ranges[..] {
            arithmetic.finish(&mut buffer[range.clone()], size);
        }
        if ranges.is_empty() {
            return Ok(Outcome::nothing());
        }
        let bytes = Fetched::Inline(buffer.into());
        Ok(Outcome { array: call.result_kind(size), bytes, ranges, own: self.keeps_own(call) })
    }

    /// Whether the result is what the member brought.
    fn keeps_own(&self, call: &Call) -> bool {
        matches!(call.kind, Kind::Broadcast | Kind::Scatter) && call.root == Some(self.membership.rank)
    }

    /// A large call: a stage of this node.
    fn stream(&self, call: &Call, brought: Brought) -> Result<Outcome, Error> {
        let (membership, rank) = (self.membership, self.membership.rank);
        // Whoever is told what comes has to hear it from the root.
        self.tell_next(call, call.kind == Kind::Scatter && call.root == Some(rank))?;
        let order = membership.with(self.process, |member| member.order())?;
        let (input, filling) = match brought {
            Brought::Nothing => (None, None),
            Brought::Written(lent) => (lent.give(), None),
            Brought::Here(arrays) => {
                let filling = Filling::new(self.process, arrays, uses(call, rank, &order));
                let filling = filling.map_err(|error| self.cannot_bring(error))?;
                (filling.at(), Some(filling))
            }
        };
        let spec = membership.with(self.process, |member| {
            let seats: Vec<(NodeId, String)> =
                member.peers().iter().map(|(process, label)| (process.node, label.clone())).collect();
            let id = stage_id(membership.group, member.life().unwrap_or(0), 0, self.number, call);
            let patience_us = (membership.timeout / 2 * PATIENCE_TIMES).as_micros() as u64;
            let is_in_order = filling.is_some();
            stage(call, &Ground { id, rank, order: &order, seats: &seats, input, is_in_order, patience_us })
        })?;
        if !has_stage(&spec) {
            return Err(misuse(format!("{call} has nothing to stream")));
        }
        let is_far =
            |intake: &IntakeSpec| matches!(intake.origin, Origin::Flow { node, .. } if node != self.process.me.node);
        let crosses_links = spec.intakes.iter().any(is_far);
        let end = run_stage(self.process, spec, |process, id| {
            if let Some(filling) = filling {
                let grew = || process.tell(&ToNode::GrowStage { id });
                filling.fill(crosses_links, grew).map_err(|error| self.cannot_bring(error))?;
            }
            self.wait(call, |inner| inner.collectives.stages.get(&id).cloned().flatten().map(Ok)).and_then(|end| {
                match end {
                    StageEnd::Done(at) => pin_made(process, &at),
                    StageEnd::Failed(reason) => Err(self.broke(reason)),
                }
            })
        })?;
        let kind = call.result_kind(membership.size);
        let block = kind.as_ref().map_or(0, |array| array.bytes() as usize);
        match end {
            Some(bytes) => {
                let count = bytes.len() / block.max(1);
                let ranges = (0..count).map(|at| at * block..(at + 1) * block).collect();
                Ok(Outcome { array: kind, bytes, ranges, own: false })
            }
            None => Ok(Outcome { own: self.keeps_own(call), ..Outcome::nothing() }),
        }
    }

    /// What this member brings has no place, and all others hear it.
    fn cannot_bring(&self, error: Error) -> Error {
        self.give_up(&mut self.process.lock(), self.membership.trouble_of(&error));
        error
    }

    /// A stream broke: because a member is dead, as a rule, of which is heard soon.
    fn broke(&self, reason: String) -> Error {
        let (group, rank) = (self.membership.group, self.membership.rank);
        let waited = self.process.wait_for(Some(Instant::now() + LOSS_WAIT), &Interest::Anything, |inner| {
            inner.collectives.member(group, rank)?.failure(self.number)
        });
        match waited {
            Waited::Got(trouble) => Error::from(trouble),
            Waited::Over => self.process.over_error(),
            Waited::Interrupted => Error::Interrupted,
            Waited::TimedOut => self.give_up(&mut self.process.lock(), Trouble::Transfer(reason)),
        }
    }
}

/// Has the node run a stage until `wait` is over, which knows what it made or why it did not.
pub(super) fn run_stage<R>(
    process: &Arc<Process>,
    spec: StageSpec,
    wait: impl FnOnce(&Process, StageId) -> Result<R, Error>,
) -> Result<R, Error> {
    let id = spec.id;
    let mut inner = process.lock();
    inner.collectives.stages.insert(id, None);
    process.tell_node(&mut inner, &ToNode::RunStage { spec: Box::new(spec) });
    process.flush(&mut inner);
    drop(inner);
    let result = wait(process, id);
    let reason = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let mut inner = process.lock();
    inner.collectives.stages.remove(&id);
    // What was made stays as long as it is pinned.
    process.tell_node(&mut inner, &ToNode::EndStage { id, reason });
    process.flush(&mut inner);
    result
}

/// What a stage made, in place.
pub(super) fn pin_made(process: &Process, at: &[Location]) -> Result<Option<Fetched>, Error> {
    let Some(at) = at.first() else { return Ok(None) };
    // Nobody else knows the object, so it has no name.
    let nameless = RefSpec { object: ObjectId::result(TaskId::from_raw(0), 0), owner: process.me };
    process.pin(nameless, *at).map(Some)
}
