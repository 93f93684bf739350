//! Whether a stage makes sense: every range inside its part, every index there, every number in bounds.
//!
//! Specs come from planners of other nodes too, so the engine checks them before it touches memory.

use super::{Action, AreaSpec, FlowKey, IntakeSpec, Origin, Part, Piece, StageSpec};

/// Streams that one stage takes in.
pub const INTAKES_PER_STAGE_MAX: usize = 128;
/// Streams that one stage offers.
pub const FLOWS_PER_STAGE_MAX: usize = 1024;
/// Areas of one stage.
pub const AREAS_PER_STAGE_MAX: usize = 64;
/// Inputs of one stage.
pub const INPUTS_PER_STAGE_MAX: usize = 1024;
/// Pieces of one intake, and slices of one flow.
pub const PIECES_PER_STREAM_MAX: usize = 8192;
/// The first bytes of an area that come with the spec.
pub const HEAD_BYTES_MAX: usize = 4096;
/// Words for errors.
pub const WORDS_BYTES_MAX: usize = 1024;

impl StageSpec {
    /// Checks every index, range and bound. The lengths of inputs are those of their locations. An error is a bug of who
    /// planned the stage.
    pub fn check(&self) -> Result<(), String> {
        let explain =
            |what| format!("{} makes no sense: {what}; its planner is broken or has another version", self.id);
        self.problem().map_err(explain)
    }

    fn problem(&self) -> Result<(), String> {
        bound("inputs", self.inputs.len(), INPUTS_PER_STAGE_MAX)?;
        bound("areas", self.areas.len(), AREAS_PER_STAGE_MAX)?;
        bound("intakes", self.intakes.len(), INTAKES_PER_STAGE_MAX)?;
        bound("flows", self.flows.len(), FLOWS_PER_STAGE_MAX)?;
        bound("bytes of words", self.terms.words.len(), WORDS_BYTES_MAX)?;
        for area in &self.areas {
            bound("first bytes", area.head().len(), HEAD_BYTES_MAX)?;
            if area.head().len() as u64 > area.len() {
                return Err("an area is shorter than its first bytes".to_owned());
            }
        }
        for (at, _) in self.intakes.iter().enumerate() {
            self.check_intake(at).map_err(|what| format!("intake {at}: {what}"))?;
        }
        self.check_writes()?;
        for (at, flow) in self.flows.iter().enumerate() {
            if self.flows[..at].iter().any(|other| other.to == flow.to) {
                return Err(format!("two flows go to slot {}", flow.to));
            }
            self.check_flow(at).map_err(|what| format!("flow to slot {}: {what}", flow.to))?;
        }
        Ok(())
    }

    fn check_intake(&self, at: usize) -> Result<(), String> {
        let intake = &self.intakes[at];
        bound("pieces", intake.pieces.len(), PIECES_PER_STREAM_MAX)?;
        bound("bytes of words", intake.who.len(), WORDS_BYTES_MAX)?;
        let mut total = 0u64;
        for piece in &intake.pieces {
            self.check_piece(piece)?;
            total = total.checked_add(piece.len).ok_or("too many bytes")?;
        }
        match &intake.origin {
            Origin::Flow { key, .. }
                if key.id != self.id.id || (key.to != FlowKey::ANYONE && key.receiver() != self.id) =>
            {
                return Err(format!("its stream is for slot {} of another operation", key.to));
            }
            Origin::Flow { .. } => {}
            Origin::Local { part, start } => self.range(*part, *start, total)?,
        }
        let places = |of: &IntakeSpec| -> Vec<(u32, u64, u64)> {
            of.pieces.iter().map(|piece| (piece.area, piece.start, piece.len)).collect()
        };
        match intake.after {
            Some(before) if before as usize >= at => Err("it goes after one that is not before it".to_owned()),
            Some(before) if places(&self.intakes[before as usize]) != places(intake) => {
                Err("it goes after one that fills other places".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Every byte of an output is written once, or by several intakes of which one goes after the other: so what a flow
    /// reads is final, and an output has no bytes of somebody else's.
    fn check_writes(&self) -> Result<(), String> {
        let first = self.intakes.iter().filter(|intake| intake.after.is_none());
        let pieces = first.flat_map(|intake| &intake.pieces);
        let writes = pieces.filter(|piece| piece.len > 0 && !matches!(piece.action, Action::Same(..)));
        let mut ranges: Vec<(u32, u64, u64)> = writes.map(|p| (p.area, p.start, p.start + p.len)).collect();
        let heads = self.areas.iter().zip(0..).map(|(area, index)| (index, 0, area.head().len() as u64));
        ranges.extend(heads.filter(|(_, _, end)| *end > 0));
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1) {
            return Err(format!("byte {} of area {} is written twice", pair[1].1, pair[1].0));
        }
        for (area, index) in self.areas.iter().zip(0u32..) {
            let written: u64 = ranges.iter().filter(|range| range.0 == index).map(|(_, start, end)| end - start).sum();
            if written < area.len() && !matches!(area, AreaSpec::Scratch { .. }) {
                return Err(format!("only {written} of the {} bytes of area {index} are written", area.len()));
            }
        }
        Ok(())
    }

    fn check_piece(&self, piece: &Piece) -> Result<(), String> {
        let (element, combine) = match piece.action {
            Action::Same(part, start) => return self.range(part, start, piece.len),
            Action::Store | Action::Alone(_) => (1, None),
            Action::Numbers(number, combine) => (number.bytes() as u64, Some(combine)),
            Action::Array(combine) => (1, Some(combine)),
        };
        self.range(Part::Area(piece.area), piece.start, piece.len)?;
        if !piece.len.is_multiple_of(element) {
            return Err(format!("a piece of {} bytes is not a whole number of elements", piece.len));
        }
        match combine {
            Some(combine) if combine.divisor == 0 => Err("a divisor of zero".to_owned()),
            Some(combine) => {
                let in_place = combine.with == Part::Area(piece.area);
                if in_place && combine.start != piece.start {
                    return Err("a piece is combined with another place of its own area".to_owned());
                }
                self.range(combine.with, combine.start, piece.len)
            }
            None => Ok(()),
        }
    }

    fn check_flow(&self, at: usize) -> Result<(), String> {
        let flow = &self.flows[at];
        bound("slices", flow.slices.len(), PIECES_PER_STREAM_MAX)?;
        let mut total = 0u64;
        for slice in &flow.slices {
            self.range(slice.part, slice.start, slice.len)?;
            total = total.checked_add(slice.len).ok_or("too many bytes")?;
        }
        for followed in &flow.follows {
            let intake = self.intakes.get(*followed as usize).ok_or("it follows an intake that is not there")?;
            let comes: u64 = intake.pieces.iter().map(|piece| piece.len).sum();
            if flow.lead.saturating_add(comes) < total {
                return Err(format!("it has {total} bytes and would wait forever after {}", flow.lead + comes));
            }
        }
        Ok(())
    }

    fn range(&self, part: Part, start: u64, len: u64) -> Result<(), String> {
        let whole = match part {
            Part::Area(area) => self.areas.get(area as usize).map(super::AreaSpec::len),
            Part::Input(input) => self.inputs.get(input as usize).map(|at| at.len),
        };
        let whole = whole.ok_or_else(|| format!("{part:?} is not there"))?;
        match start.checked_add(len) {
            Some(end) if end <= whole => Ok(()),
            _ => Err(format!("{len} bytes from {start} on are beyond the {whole} of {part:?}")),
        }
    }
}

fn bound(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("{count} {what}, and {most} is the limit")) }
}
