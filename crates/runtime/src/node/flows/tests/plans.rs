//! Plans as the machines of `core` make them, in their simplest form.

use bireme_core::value::Location;

use super::*;

/// The header of an array of one dimension.
pub(super) const HEADER: u64 = 64;

/// A stage of the tests' one operation.
pub(super) fn id(slot: u32) -> StageId {
    StageId { id: 7, epoch: 0, slot }
}

pub(super) fn whole(part: Part, len: u64) -> Slice {
    Slice { part, start: 0, len }
}

pub(super) fn piece(area: u32, start: u64, len: u64, action: Action) -> Piece {
    Piece { area, start, len, action }
}

pub(super) fn intake(from: u32, to: u32, node: NodeId, pieces: Vec<Piece>) -> IntakeSpec {
    let key = FlowKey { id: 7, epoch: 0, from, to };
    IntakeSpec { origin: Origin::Flow { node, key }, pieces, after: None, who: format!("rank {from}") }
}

/// One member of a chain over nodes 1, 2, ..., whose last one has the result.
pub(super) fn chain(slot: u32, slots: u32, input: Location, op: Op) -> StageSpec {
    let (len, last) = (input.len, slot + 1 == slots);
    let mut stage = StageSpec { inputs: vec![input], ..StageSpec::new(id(slot)) };
    if !last {
        let (part, follows) = if slot == 0 { (Part::Input(0), vec![]) } else { (Part::Area(0), vec![0]) };
        stage.flows = vec![FlowSpec { to: slot + 1, slices: vec![whole(part, len)], lead: 0, follows }];
    }
    if slot > 0 {
        let divisor = if last && op == Op::Mean { slots } else { 1 };
        let combine = Combine { with: Part::Input(0), start: 0, op, divisor };
        stage.intakes = vec![intake(slot - 1, slot, NodeId(slot), vec![piece(0, 0, len, Action::Array(combine))])];
        stage.areas = vec![if last { AreaSpec::Output { len, head: Vec::new() } } else { AreaSpec::Scratch { len } }];
    }
    stage
}

/// A ring of members with `count` numbers each.
pub(super) struct Ring {
    pub(super) ranks: usize,
    pub(super) count: usize,
}

impl Ring {
    /// A segment as bytes of an array object.
    fn segment(&self, at: usize) -> (u64, u64) {
        let at = at % self.ranks;
        let start = |at: usize| HEADER + 4 * (at * self.count / self.ranks) as u64;
        (start(at), start(at + 1) - start(at))
    }

    /// The part of one member.
    pub(super) fn stage(
        &self,
        rank: usize,
        input: Location,
        head: Vec<u8>,
        node: impl Fn(usize) -> NodeId,
    ) -> StageSpec {
        let ranks = self.ranks;
        let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        let mut pieces = Vec::new();
        for step in 1..ranks {
            let (start, len) = self.segment(rank + ranks - step);
            let combine = Combine { with: Part::Input(0), start, op: Op::Sum, divisor: 1 };
            let area = u32::from(step < ranks - 1);
            pieces.push(piece(area, start, len, Action::Numbers(Number::F32, combine)));
        }
        for step in 0..ranks - 1 {
            let (start, len) = self.segment(rank + ranks - step);
            pieces.push(piece(0, start, len, Action::Store));
        }
        let (start, lead) = self.segment(rank);
        let mut slices = vec![Slice { part: Part::Input(0), start, len: lead }];
        let sent = pieces[..pieces.len() - 1].iter();
        slices.extend(sent.map(|p| Slice { part: Part::Area(p.area), start: p.start, len: p.len }));
        let mut stage = StageSpec { inputs: vec![input], ..StageSpec::new(id(rank as u32)) };
        stage.areas = vec![AreaSpec::Output { len: input.len, head }, AreaSpec::Scratch { len: input.len }];
        stage.intakes = vec![intake(before as u32, rank as u32, node(before), pieces)];
        stage.flows = vec![FlowSpec { to: after as u32, slices, lead, follows: vec![0] }];
        stage
    }
}
