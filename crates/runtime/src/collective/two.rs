//! Arrays from one member to another.
//!
//! A small array is in the message; its sender goes on at once, unless the other has too many that it has not taken. A large
//! one is streamed when the other takes it, and its sender waits for that.

use std::sync::Arc;

use bireme_core::collective::{ArrayKind, Call, Came, Kind, Seat, Trouble, Word, stage_id};
use bireme_core::flow::{Action, AreaSpec, FlowKey, FlowSpec, IntakeSpec, Origin, Part as Memory, Piece, Slice};
use bireme_core::flow::{StageId, StageSpec};

use super::call::{misuse, pin_made, run_stage};
use super::hear::StageEnd;
use super::input::Lent;
use super::{Membership, Outcome, Work};
use crate::error::Error;
use crate::fetched::Fetched;
use crate::function::Part;
use crate::process::{Inner, Interest, Process, Waited};

/// What a member sends, in the form in which it goes.
enum Parcel {
    Small(Vec<u8>),
    Large(Lent),
}

fn array_call(array: ArrayKind) -> Call {
    Call { kind: Kind::Send, op: None, root: None, array: Some(array) }
}

impl Membership {
    /// Sends an array to another member.
    pub fn send(&self, to: u32, tag: u32, array: ArrayKind, input: Part) -> Result<(), Error> {
        let process = self.process()?;
        let parcel = self.pack(&process, to, &array, input)?;
        self.deliver(&process, to, tag, &array_call(array), parcel)
    }

    /// Begins to send an array. It is copied before this returns.
    pub fn begin_send(self: &Arc<Self>, to: u32, tag: u32, array: ArrayKind, input: Part) -> Result<Arc<Work>, Error> {
        let process = self.process()?;
        let parcel = self.pack(&process, to, &array, input)?;
        let this = Arc::clone(self);
        aside(move || {
            let process = this.process()?;
            this.deliver(&process, to, tag, &array_call(array), parcel).map(|()| Outcome::nothing())
        })
    }

    /// Takes the next array with this tag of another member.
    pub fn receive(&self, from: u32, tag: u32) -> Result<Outcome, Error> {
        let process = self.process()?;
        self.check_rank(from)?;
        self.take(&process, from, tag)
    }

    /// Begins to take an array.
    pub fn begin_receive(self: &Arc<Self>, from: u32, tag: u32) -> Result<Arc<Work>, Error> {
        self.check_rank(from)?;
        let this = Arc::clone(self);
        aside(move || {
            let process = this.process()?;
            this.take(&process, from, tag)
        })
    }

    fn check_rank(&self, rank: u32) -> Result<(), Error> {
        if rank < self.size {
            return Ok(());
        }
        Err(misuse(format!("the group has no rank {rank}: the ranks are 0 to {}", self.size - 1)))
    }

    fn pack(&self, process: &Arc<Process>, to: u32, array: &ArrayKind, input: Part) -> Result<Parcel, Error> {
        self.check_rank(to)?;
        let (given, wanted) = ((*input).as_ref().len() as u64, array.bytes());
        if given != wanted {
            return Err(misuse(format!("an array of {given} bytes is no {array}, which has {wanted}")));
        }
        match array_call(array.clone()).is_small(self.size) {
            true => Ok(Parcel::Small((*input).as_ref().to_vec())),
            false => Lent::write(process, vec![input]).map(Parcel::Large),
        }
    }

    fn deliver(&self, process: &Arc<Process>, to: u32, tag: u32, call: &Call, parcel: Parcel) -> Result<(), Error> {
        self.await_formed(process, call)?;
        let (group, rank) = (self.group, self.rank);
        let number = self.wait_with(process, to, call, |inner| {
            let member = inner.collectives.member(group, rank)?;
            (!member.is_full(to)).then(|| member.number_sent(to, tag))
        })?;
        let post = |streamed: bool, bytes: Vec<u8>| {
            let mut inner = process.lock();
            let Some(member) = inner.collectives.member(group, rank) else { return };
            let word = Word::Sent { tag, number, call: call.clone(), streamed };
            let packet = member.packet(to, word, bytes);
            process.send_packets(&mut inner, packet.into_iter().collect());
            process.flush(&mut inner);
        };
        let lent = match parcel {
            Parcel::Small(bytes) => {
                post(false, bytes);
                return Ok(());
            }
            Parcel::Large(lent) => lent,
        };
        let mut spec = self.stage_between(process, (rank, to), tag, number, call, true)?;
        let Some(at) = lent.give() else { return Ok(()) };
        spec.inputs.push(at);
        let slices = vec![Slice { part: Memory::Input(0), start: 0, len: at.len }];
        spec.flows.push(FlowSpec { to: self.size + to, slices, lead: at.len, follows: Vec::new() });
        spec.await_flows = true;
        post(true, Vec::new());
        run_stage(process, spec, |process, id| self.wait_stage(process, to, call, id).map(drop))
    }

    fn take(&self, process: &Arc<Process>, from: u32, tag: u32) -> Result<Outcome, Error> {
        let (group, rank) = (self.group, self.rank);
        let unknown = Call { kind: Kind::Send, op: None, root: None, array: None };
        self.await_formed(process, &unknown)?;
        let Came { number, call, streamed, bytes } = self.wait_with(process, from, &unknown, |inner| {
            let came = inner.collectives.member(group, rank)?.take_sent(from, tag)?;
            process.send_answers(inner, group, rank);
            process.flush(inner);
            Some(came)
        })?;
        let len = call.block_bytes();
        let whole = 0..len as usize;
        let outcome = |bytes| Outcome { array: call.array.clone(), bytes, ranges: vec![whole], own: false };
        if !streamed {
            return Ok(outcome(Fetched::Inline(bytes.into())));
        }
        let mut spec = self.stage_between(process, (from, rank), tag, number, &call, false)?;
        let key = FlowKey { id: spec.id.id, epoch: 0, from, to: self.size + rank };
        let (node, seat) = self.with(process, |member| {
            (member.peers().get(from as usize).map(|(process, _)| process.node), member.seat(from))
        })?;
        spec.areas.push(AreaSpec::Output { len, head: Vec::new() });
        let pieces = vec![Piece { area: 0, start: 0, len, action: Action::Store }];
        let origin = Origin::Flow { node: node.unwrap_or(process.me.node), key };
        spec.intakes.push(IntakeSpec { origin, pieces, after: None, who: seat.to_string() });
        let made = run_stage(process, spec, |process, id| {
            self.wait_stage(process, from, &call, id).and_then(|at| pin_made(process, &at))
        })?;
        made.map(outcome).ok_or_else(|| misuse("the array that was sent is gone".to_owned()))
    }

    /// An empty stage of the sender, or of the receiver.
    fn stage_between(
        &self,
        process: &Process,
        (from, to): (u32, u32),
        tag: u32,
        number: u64,
        call: &Call,
        sends: bool,
    ) -> Result<StageSpec, Error> {
        let life = self.with(process, |member| member.life().unwrap_or(0))?;
        // Calls of all members have channel 0.
        let channel = 1 << 63 | u64::from(from) << 48 | u64::from(to) << 32 | u64::from(tag);
        let id = stage_id(self.group, life, channel, number, call);
        // Both can be one member, so the receiver has another slot.
        let slot = if sends { from } else { self.size + to };
        let mut spec = StageSpec::new(StageId { id, epoch: 0, slot });
        spec.terms.digest = call.digest();
        spec.patience_us = self.timeout.as_micros() as u64;
        Ok(spec)
    }

    fn wait_stage(
        &self,
        process: &Process,
        other: u32,
        call: &Call,
        id: StageId,
    ) -> Result<Vec<bireme_core::value::Location>, Error> {
        let end = self.wait_with(process, other, call, |inner| inner.collectives.stages.get(&id).cloned().flatten())?;
        match end {
            StageEnd::Done(at) => Ok(at),
            StageEnd::Failed(reason) => Err(Error::from(Trouble::Transfer(reason))),
        }
    }

    /// Waits for something that another member has to do.
    fn wait_with<R>(
        &self,
        process: &Process,
        other: u32,
        call: &Call,
        mut check: impl FnMut(&mut Inner) -> Option<R>,
    ) -> Result<R, Error> {
        let (group, rank) = (self.group, self.rank);
        let deadline = crate::clock::deadline(self.timeout);
        let waited = process.wait_for(deadline, &Interest::Anything, |inner| match check(inner) {
            Some(got) => Some(Ok(got)),
            None => inner.collectives.member(group, rank)?.failure_with(other).map(Err),
        });
        match waited {
            Waited::Got(result) => result.map_err(Error::from),
            Waited::Over => Err(process.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => {
                let seat = self
                    .with(process, |member| member.seat(other))
                    .unwrap_or(Seat { rank: other, label: String::new() });
                let what = if call.array.is_some() {
                    format!("{call} to or from rank {rank}")
                } else {
                    format!("recv of rank {rank}")
                };
                let waited_ms = self.timeout.as_millis() as u64;
                Err(Error::from(Trouble::Missing { what, missing: vec![seat], waited_ms }))
            }
        }
    }
}

/// Does something on a thread of its own.
fn aside(body: impl FnOnce() -> Result<Outcome, Error> + Send + 'static) -> Result<Arc<Work>, Error> {
    let work = Arc::new(Work::default());
    let ended = Arc::clone(&work);
    crate::thread::spawn("bireme-collective", move || ended.end(body()))?;
    Ok(work)
}
