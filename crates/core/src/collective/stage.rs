//! Large calls: streams between members, as the stage of each rank's node.
//!
//! What a member brings is an object of its node's store, and what it gets is another one, which the stage makes. What a member
//! sends on is ready as soon as it has processed it, so a chain or ring of members moves all bytes at the rate of one link. A ring
//! is a delay line: what goes out is one own segment and then what came in. Ring: all_reduce, all_gather, reduce_scatter. Chain:
//! broadcast, reduce. Straight from one to another: gather, scatter, all_to_all, send.
//!
//! Ring and chain follow `order`, a permutation of the ranks in which members of one node are neighbours, so that each link
//! between nodes carries each byte once.

use std::ops::Range;

use super::{Call, CollectiveId, Kind, Seat, number};
use crate::flow::{
    Action, AreaSpec, Combine, FlowKey, FlowSpec, IntakeSpec, Op, Origin, Part, Piece, Slice, StageId, StageSpec,
};
use crate::id::{NodeId, digest_from};
use crate::value::Location;

/// What a stage is planned on. All but rank and input is the same for all members.
#[derive(Clone, Debug)]
pub struct Ground<'a> {
    /// The operation ([`stage_id`]).
    pub id: u128,
    /// Whose stage.
    pub rank: u32,
    /// Every rank once.
    pub order: &'a [u32],
    /// Where each rank is, and who.
    pub seats: &'a [(NodeId, String)],
    /// The member's arrays one behind the other, where it brings any.
    pub input: Option<Location>,
    /// The input does not lie there as it was given, but in the order of its [`uses`].
    pub is_in_order: bool,
    /// How long a sender may take to be there.
    pub patience_us: u64,
}

/// The name of the operation that a call is: members that call different things never meet in it.
pub fn stage_id(group: CollectiveId, life: u64, channel: u64, number: u64, call: &Call) -> u128 {
    let mut key = [0u8; 52];
    key[..16].copy_from_slice(&group.name.raw().to_le_bytes());
    key[16..20].copy_from_slice(&group.home.0.to_le_bytes());
    key[20..28].copy_from_slice(&life.to_le_bytes());
    key[28..36].copy_from_slice(&channel.to_le_bytes());
    key[36..44].copy_from_slice(&number.to_le_bytes());
    // Where a member is told what comes it does not know the array, so the array is not in the name.
    let said = Call { array: call.array.clone().filter(|_| call.kind != Kind::Scatter), ..call.clone() };
    key[44..].copy_from_slice(&said.digest().to_le_bytes());
    let high = crate::id::digest(&key);
    u128::from(high) << 64 | u128::from(digest_from(high, &key))
}

/// Whether a member has anything to do with the node in this call.
pub fn has_stage(spec: &StageSpec) -> bool {
    !spec.intakes.is_empty() || !spec.flows.is_empty()
}

/// The ranges of what a member brings in the order in which its stage uses them, where that is not the order in which they lie. A
/// member that writes them in this order can begin with the first.
pub fn uses(call: &Call, rank: u32, order: &[u32]) -> Vec<Range<u64>> {
    let (n, block) = (order.len() as u32, call.block_bytes());
    let place = place_of(order, rank);
    match call.kind {
        Kind::AllReduce => {
            let segments = split(block, n, call.element_bytes());
            (0..n).map(|use_at| segments[((place + n - use_at) % n) as usize].clone()).collect()
        }
        Kind::ReduceScatter => {
            let part = block / u64::from(n);
            let used = (0..n).map(|use_at| u64::from(order[((place + 2 * n - 1 - use_at) % n) as usize]));
            used.map(|rank| rank * part..(rank + 1) * part).collect()
        }
        _ => Vec::new(),
    }
}

fn place_of(order: &[u32], rank: u32) -> u32 {
    order.iter().position(|at| *at == rank).unwrap_or(0) as u32
}

/// The stage of one member in a call that is not small ([`Call::is_small`]).
pub fn stage(call: &Call, ground: &Ground<'_>) -> StageSpec {
    let mut plan = Planner::new(call, ground);
    let (n, block) = (plan.size, plan.block);
    let is_root = call.root == Some(ground.rank);
    let at = |index: u32| u64::from(index) * block..(u64::from(index) + 1) * block;
    match call.kind {
        Kind::Broadcast => plan.chain_down(),
        Kind::Reduce => plan.chain_up(),
        Kind::AllReduce => {
            let output = plan.output(block);
            plan.all_reduce(output);
        }
        Kind::AllGather => {
            let output = plan.output(block * u64::from(n));
            plan.own(output, at(ground.rank));
            plan.all_gather(output);
        }
        Kind::ReduceScatter => plan.reduce_scatter(),
        Kind::Gather if is_root => {
            let output = plan.output(block * u64::from(n));
            plan.own(output, at(ground.rank));
            for from in plan.others() {
                plan.intake(from, vec![plan.stored(output, at(from))]);
            }
        }
        Kind::Gather => {
            let root = call.root.unwrap_or(0);
            plan.flow(root, vec![plan.of_input(0..block)], block, &[]);
        }
        Kind::Scatter if is_root => {
            for to in plan.others() {
                plan.flow(to, vec![plan.of_input(at(to))], block, &[]);
            }
        }
        Kind::Scatter => {
            let output = plan.output(block);
            plan.intake(call.root.unwrap_or(0), vec![plan.stored(output, 0..block)]);
        }
        Kind::AllToAll => {
            let output = plan.output(block * u64::from(n));
            let me = ground.rank;
            plan.own_part(output, at(me).start, at(me));
            // Each begins with another one, so that nobody is everybody's first.
            for from in plan.others().into_iter().rev() {
                plan.intake(from, vec![plan.stored(output, at(from))]);
            }
            for to in plan.others() {
                plan.flow(to, vec![plan.of_input(at(to))], block, &[]);
            }
        }
        Kind::Barrier | Kind::Send => {}
    }
    plan.spec
}

/// A range of what the member brings.
struct Use {
    /// Which bytes of its array.
    of: Range<u64>,
    /// Where they begin in the input.
    start: u64,
}

impl Use {
    fn slice(&self) -> Slice {
        Slice { part: Part::Input(0), start: self.start, len: self.of.end - self.of.start }
    }
}

struct Planner<'a> {
    spec: StageSpec,
    call: &'a Call,
    ground: &'a Ground<'a>,
    size: u32,
    /// The member's place in the order.
    place: u32,
    block: u64,
}

impl<'a> Planner<'a> {
    fn new(call: &'a Call, ground: &'a Ground<'a>) -> Self {
        let mut spec = StageSpec::new(StageId { id: ground.id, epoch: 0, slot: ground.rank });
        let seat = Seat { rank: ground.rank, label: String::new() };
        (spec.terms.digest, spec.terms.words) = (call.digest(), format!("{call} by {seat}"));
        if call.kind == Kind::Scatter {
            spec.terms.digest = 0;
        }
        spec.inputs.extend(ground.input);
        spec.patience_us = ground.patience_us;
        spec.await_flows = true;
        let place = place_of(ground.order, ground.rank);
        Self { spec, call, ground, size: ground.order.len() as u32, place, block: call.block_bytes() }
    }

    fn rank_at(&self, place: u32) -> u32 {
        self.ground.order[(place % self.size) as usize]
    }

    /// The other ranks, from the next in the order on.
    fn others(&self) -> Vec<u32> {
        (1..self.size).map(|ahead| self.rank_at(self.place + ahead)).collect()
    }

    fn output(&mut self, len: u64) -> u32 {
        self.area(AreaSpec::Output { len, head: Vec::new() })
    }

    fn area(&mut self, area: AreaSpec) -> u32 {
        self.spec.areas.push(area);
        self.spec.areas.len() as u32 - 1
    }

    fn of_input(&self, range: Range<u64>) -> Slice {
        Slice { part: Part::Input(0), start: range.start, len: range.end - range.start }
    }

    fn stored(&self, area: u32, range: Range<u64>) -> Piece {
        Piece { area, start: range.start, len: range.end - range.start, action: Action::Store }
    }

    /// Elements that come, combined with the input from `with` on.
    fn combined(&self, area: u32, range: Range<u64>, with: u64, is_last: bool) -> Piece {
        let op = self.call.op.unwrap_or(Op::Sum);
        let divisor = if is_last && op == Op::Mean { self.size } else { 1 };
        let combine = Combine { with: Part::Input(0), start: with, op, divisor };
        let dtype = self.call.array.as_ref().map_or(1, |array| array.dtype);
        // Types without arithmetic are refused before anything is planned.
        let action = number(dtype).map_or(Action::Store, |number| Action::Numbers(number, combine));
        Piece { area, start: range.start, len: range.end - range.start, action }
    }

    /// Takes a stream from another rank. Gives its index.
    fn intake(&mut self, from: u32, pieces: Vec<Piece>) -> u32 {
        let key = FlowKey { id: self.ground.id, epoch: 0, from, to: self.ground.rank };
        let (node, label) = self.ground.seats[from as usize].clone();
        let who = Seat { rank: from, label }.to_string();
        self.spec.intakes.push(IntakeSpec { origin: Origin::Flow { node, key }, pieces, after: None, who });
        self.spec.intakes.len() as u32 - 1
    }

    /// The [`uses`] of the input, and where each lies in it.
    fn input_uses(&self) -> Vec<Use> {
        let mut used = 0;
        let uses = uses(self.call, self.ground.rank, self.ground.order).into_iter().map(|of| {
            let start = if self.ground.is_in_order { used } else { of.start };
            used += of.end - of.start;
            Use { of, start }
        });
        uses.collect()
    }

    /// Copies the whole input into a range of the output.
    fn own(&mut self, area: u32, range: Range<u64>) {
        self.own_part(area, 0, range);
    }

    /// Copies a part of the input into a range of the output.
    fn own_part(&mut self, area: u32, start: u64, range: Range<u64>) {
        let origin = Origin::Local { part: Part::Input(0), start };
        let pieces = vec![self.stored(area, range)];
        self.spec.intakes.push(IntakeSpec { origin, pieces, after: None, who: String::new() });
    }

    /// Offers a stream to another rank.
    fn flow(&mut self, to: u32, slices: Vec<Slice>, lead: u64, follows: &[u32]) {
        self.spec.flows.push(FlowSpec { to, slices, lead, follows: follows.to_vec() });
    }

    /// Where a member is behind the root, and the rank that is so far behind it.
    fn behind_root(&self) -> (u32, u32) {
        let root = self.call.root.unwrap_or(0);
        let root_place = place_of(self.ground.order, root);
        ((self.place + self.size - root_place) % self.size, root_place)
    }

    /// From the root along the order.
    fn chain_down(&mut self) {
        let (behind, root_place) = self.behind_root();
        let next = (behind + 1 < self.size).then(|| self.rank_at(root_place + behind + 1));
        let whole = 0..self.block;
        if behind == 0 {
            let slices = vec![self.of_input(whole)];
            next.into_iter().for_each(|to| self.flow(to, slices.clone(), self.block, &[]));
            return;
        }
        let output = self.output(self.block);
        let from = self.rank_at(root_place + behind - 1);
        let intake = self.intake(from, vec![self.stored(output, whole)]);
        let slices = vec![Slice { part: Part::Area(output), start: 0, len: self.block }];
        next.into_iter().for_each(|to| self.flow(to, slices.clone(), 0, &[intake]));
    }

    /// To the root along the order, from the one after it on.
    fn chain_up(&mut self) {
        let (behind, root_place) = self.behind_root();
        let whole = 0..self.block;
        // The root is the last of the chain.
        let place = if behind == 0 { self.size } else { behind };
        let next = self.rank_at(root_place + place + 1);
        if place == 1 {
            self.flow(next, vec![self.of_input(whole)], self.block, &[]);
            return;
        }
        let is_last = behind == 0;
        let len = self.block;
        let area = if is_last { self.output(len) } else { self.area(AreaSpec::Scratch { len }) };
        let from = self.rank_at(root_place + place - 1);
        let intake = self.intake(from, vec![self.combined(area, whole, 0, is_last)]);
        if !is_last {
            self.flow(next, vec![Slice { part: Part::Area(area), start: 0, len }], 0, &[intake]);
        }
    }

    /// Around the ring: every segment is combined on its way round, then goes round once more.
    fn all_reduce(&mut self, output: u32) {
        let n = self.size;
        let uses = self.input_uses();
        // The first goes out; the others come in this order, and then round once more.
        let came = |step: u32| uses[((step + 1) % n) as usize].of.clone();
        // What is only combined to be passed on is never part of the result.
        let passed: u64 = (0..n - 2).map(|step| came(step).end - came(step).start).sum();
        let scratch = if passed > 0 { self.area(AreaSpec::Scratch { len: passed }) } else { output };
        let (mut pieces, mut slices) = (Vec::new(), vec![uses[0].slice()]);
        let mut used = 0;
        for step in 0..2 * (n - 1) {
            let range = came(step);
            let len = range.end - range.start;
            let (area, start) = if step < n - 2 { (scratch, used) } else { (output, range.start) };
            used += len;
            slices.push(Slice { part: Part::Area(area), start, len });
            pieces.push(match step < n - 1 {
                true => self.combined(area, start..start + len, uses[step as usize + 1].start, step == n - 2),
                false => self.stored(output, range),
            });
        }
        slices.pop();
        self.ring(pieces, slices);
    }

    /// Around the ring: every block goes round once.
    fn all_gather(&mut self, output: u32) {
        let (n, block) = (self.size, self.block);
        let (mut pieces, mut slices) = (Vec::new(), vec![self.of_input(0..block)]);
        for step in 0..n - 1 {
            let start = u64::from(self.rank_at(self.place + n - 1 - step)) * block;
            slices.push(Slice { part: Part::Area(output), start, len: block });
            pieces.push(self.stored(output, start..start + block));
        }
        slices.pop();
        self.ring(pieces, slices);
    }

    /// Around the ring: every part is combined on its way to the rank that gets it.
    fn reduce_scatter(&mut self) {
        let (n, part) = (self.size, self.block / u64::from(self.size));
        let output = self.output(part);
        let uses = self.input_uses();
        let (mut pieces, mut slices) = (Vec::new(), vec![uses[0].slice()]);
        // What is only passed on needs no more room than one round.
        let passed = u64::from(n - 2) * part;
        let scratch = if passed > 0 { self.area(AreaSpec::Scratch { len: passed }) } else { output };
        for step in 0..n - 1 {
            let start = u64::from(step) * part;
            let is_last = step == n - 2;
            let (area, start) = if is_last { (output, 0) } else { (scratch, start) };
            pieces.push(self.combined(area, start..start + part, uses[step as usize + 1].start, is_last));
            slices.push(Slice { part: Part::Area(area), start, len: part });
        }
        slices.pop();
        self.ring(pieces, slices);
    }

    /// One stream from the one before and one to the next, which is the first of `slices` and then what came.
    fn ring(&mut self, pieces: Vec<Piece>, slices: Vec<Slice>) {
        let (before, next) = (self.rank_at(self.place + self.size - 1), self.rank_at(self.place + 1));
        let intake = self.intake(before, pieces);
        let lead = slices.first().map_or(0, |slice| slice.len);
        self.flow(next, slices, lead, &[intake]);
    }
}

/// Cuts an array into as many segments as there are members, of nearly equal length, between elements.
fn split(bytes: u64, size: u32, element_bytes: u64) -> Vec<Range<u64>> {
    let (elements, size) = (bytes / element_bytes, u64::from(size));
    let cut = |index: u64| (u128::from(elements) * u128::from(index) / u128::from(size)) as u64 * element_bytes;
    (0..size).map(|index| cut(index)..cut(index + 1)).collect()
}
