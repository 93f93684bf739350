//! The stages of a reduce as plain data.

use super::{Reduce, Stream, Wanted};
use crate::flow::{
    Action, AreaSpec, Combine, FlowKey, FlowSpec, IntakeSpec, Op, Origin, Part, Piece, Slice, StageId, StageSpec, Terms,
};

/// How long a stage waits for the first byte of another: as long as a sender may take to begin its own.
const PATIENCE_US: u64 = 60_000_000;
/// How long a slot keeps what it has for the next one: its input may come much later.
const KEPT_US: u64 = 30 * 24 * 3_600 * 1_000_000;

/// What one stage folds into one.
struct Fold<'a> {
    bytes: u64,
    /// Its own inputs.
    inputs: &'a [u32],
    /// Whom it takes from.
    streams: &'a [Stream],
    /// What everything is divided by after the last.
    divisor: u32,
}

impl Reduce {
    /// The stage of a slot that passes on to another.
    pub(super) fn slot_stage(
        &self,
        bytes: u64,
        slot: u32,
        inputs: &[u32],
        streams: &[Stream],
        divides: bool,
    ) -> StageSpec {
        let divisor = if divides { self.divisor() } else { 1 };
        let fold = Fold { bytes, inputs, streams, divisor };
        let mut spec = self.folded(slot, &fold);
        let to = FlowKey::ANYONE;
        let whole = |part| vec![Slice { part, start: 0, len: bytes }];
        let flow = match spec.intakes.len() {
            // The object itself is sent, without a copy.
            0 => FlowSpec { to, slices: whole(Part::Input(0)), lead: 0, follows: Vec::new() },
            intakes => {
                spec.areas = vec![AreaSpec::Scratch { len: bytes }];
                FlowSpec { to, slices: whole(Part::Area(0)), lead: 0, follows: vec![intakes as u32 - 1] }
            }
        };
        spec.flows = vec![flow];
        // Who takes from it may be lost, and another one takes it all again.
        spec.until_ended = true;
        spec.patience_us = KEPT_US;
        spec
    }

    /// The stage that makes the result.
    pub(super) fn last_stage(&self, bytes: u64, slot: u32, inputs: &[u32], streams: &[Stream]) -> StageSpec {
        let fold = Fold { bytes, inputs, streams, divisor: self.divisor() };
        let mut spec = self.folded(slot, &fold);
        if spec.intakes.is_empty() {
            // One input and nothing to combine it with: its bytes.
            spec.intakes.push(IntakeSpec {
                origin: Origin::Local { part: Part::Input(0), start: 0 },
                pieces: vec![Piece { area: 0, start: 0, len: bytes, action: Action::Alone(self.wanted.op) }],
                after: None,
                who: String::new(),
            });
        }
        spec.areas = vec![AreaSpec::Output { len: bytes, head: Vec::new() }];
        spec
    }

    fn divisor(&self) -> u32 {
        if self.wanted.op == Op::Mean { self.wanted.count } else { 1 }
    }

    /// Streams first and own inputs after them, each combined with what came before. No intakes for a single input.
    fn folded(&self, slot: u32, fold: &Fold<'_>) -> StageSpec {
        let Wanted { id, op, .. } = self.wanted;
        let stage = StageId { id, epoch: self.epoch, slot };
        let mut spec = StageSpec::new(stage);
        spec.terms = Terms { digest: u64::from(op as u8), words: self.words() };
        spec.patience_us = PATIENCE_US;
        let named = |index: &u32| self.inputs.get(index).map(|input| (input.at, self.named(&[*index])));
        let (places, names): (Vec<_>, Vec<_>) = fold.inputs.iter().filter_map(named).unzip();
        spec.inputs = places;
        let flow = |stream: &Stream| {
            let StageId { id, epoch, slot } = stream.from;
            let key = FlowKey { id, epoch, from: slot, to: FlowKey::ANYONE };
            (Origin::Flow { node: stream.node, key }, stream.who.clone())
        };
        let local = |at: usize| (Origin::Local { part: Part::Input(at as u32), start: 0 }, names[at].clone());
        let mut sources: Vec<(Origin, String)> = fold.streams.iter().map(flow).collect();
        // The first combination is of two that lie outside of the area.
        let mut with = None;
        match (sources.is_empty(), names.len()) {
            (true, 0 | 1) => return spec,
            (true, _) => {
                sources.push(local(0));
                with = Some(1);
                sources.extend((2..names.len()).map(local));
            }
            (false, 0) => {}
            (false, _) => {
                with = Some(0);
                sources.extend((1..names.len()).map(local));
            }
        }
        let last = sources.len() - 1;
        for (at, (origin, who)) in sources.into_iter().enumerate() {
            let divisor = if at == last { fold.divisor } else { 1 };
            let combined = |with| Action::Array(Combine { with, start: 0, op, divisor });
            let action = match (at, with) {
                (0, Some(input)) => combined(Part::Input(input)),
                // What is combined with another is looked at there.
                (0, None) if self.wanted.count == 1 => Action::Alone(op),
                (0, None) => Action::Store,
                _ => combined(Part::Area(0)),
            };
            let pieces = vec![Piece { area: 0, start: 0, len: fold.bytes, action }];
            let after = at.checked_sub(1).map(|before| before as u32);
            spec.intakes.push(IntakeSpec { origin, pieces, after, who });
        }
        spec
    }
}
