//! A stage that has its memory: what its streams read and write, and how much of its output is final.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use bireme_core::flow::{Action, AreaSpec, Origin, Part, Piece, StageSpec};
use bireme_store::{Area, Growing, Pinned};

use super::super::pace::Pace;
use super::super::transfers::Growth;
use super::progress::Progress;

/// An object that a stage reads.
pub(super) enum Input {
    /// All of it is there.
    Whole(Pinned),
    /// It is still arriving or being made.
    Growing(Growing),
}

/// Something that a stage writes.
pub(super) struct Place {
    pub(super) area: Arc<Area>,
    /// For an output: who is told that it grows.
    pub(super) growth: Option<Arc<Growth>>,
}

/// A stage whose memory is there.
pub(super) struct Running {
    pub(super) spec: StageSpec,
    pub(super) areas: Vec<Place>,
    pub(super) inputs: Vec<Input>,
    pub(super) progress: Arc<Progress>,
    /// Serving threads that have one of its flows in hand.
    pub(super) serving: AtomicUsize,
    /// Of all streams from other nodes: they come over the same link.
    pub(super) pace: Mutex<Pace>,
    layouts: Vec<Layout>,
}

/// Where the pieces of an intake are in its stream, and what of each area is still to come.
struct Layout {
    /// The first byte of each piece in the stream, and the end.
    starts: Vec<u64>,
    /// For each output: the lowest byte that this piece or a later one writes.
    lowest: Vec<Vec<u64>>,
}

fn writes(piece: &Piece, area: usize) -> bool {
    piece.area as usize == area && piece.len > 0 && !matches!(piece.action, Action::Same(..))
}

impl Layout {
    fn new(spec: &StageSpec, intake: usize) -> Self {
        let pieces = &spec.intakes[intake].pieces;
        let mut starts = vec![0];
        starts.extend(pieces.iter().scan(0, |at, piece| {
            *at += piece.len;
            Some(*at)
        }));
        let lowest = spec.areas.iter().enumerate().map(|(area, of)| {
            let mut below = vec![of.len(); pieces.len() + 1];
            for (at, piece) in pieces.iter().enumerate().rev() {
                let own = if writes(piece, area) { piece.start } else { u64::MAX };
                below[at] = below[at + 1].min(own);
            }
            below
        });
        Self { lowest: lowest.collect(), starts }
    }

    fn piece_at(&self, at: u64) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }
}

impl Running {
    pub(super) fn new(spec: StageSpec, areas: Vec<Place>, inputs: Vec<Input>, progress: Arc<Progress>) -> Self {
        let layouts = (0..spec.intakes.len()).map(|intake| Layout::new(&spec, intake)).collect();
        let (serving, pace) = (AtomicUsize::new(0), Mutex::default());
        Self { spec, areas, inputs, progress, serving, pace, layouts }
    }

    /// Bytes of a part that are final.
    pub(super) fn read(&self, part: Part, start: u64, len: u64) -> Result<&[u8], String> {
        let missing = || format!("{part:?} has no final bytes from {start} on, {len} of them: the plan is broken");
        match part {
            Part::Area(area) => {
                let place = self.areas.get(area as usize).ok_or_else(missing)?;
                place.area.read(start..start + len).map_err(|error| error.to_string())
            }
            Part::Input(input) => match self.inputs.get(input as usize).ok_or_else(missing)? {
                Input::Whole(whole) => whole.get(start as usize..(start + len) as usize).ok_or_else(missing),
                Input::Growing(growing) => {
                    let bytes = growing.bytes(start..start + len);
                    if bytes.len() as u64 == len { Ok(bytes) } else { Err(missing()) }
                }
            },
        }
    }

    /// Where a part begins in the arena's file.
    pub(super) fn offset(&self, part: Part) -> Option<u64> {
        match part {
            Part::Area(area) => self.areas.get(area as usize)?.area.file_offset(),
            Part::Input(input) => match self.inputs.get(input as usize)? {
                Input::Whole(whole) => whole.file_offset(),
                Input::Growing(growing) => growing.file_offset(),
            },
        }
    }

    /// Whether an input still grows as far as its stage knows.
    pub(super) fn grows(&self, part: Part) -> Option<usize> {
        match part {
            Part::Input(input) => {
                matches!(self.inputs.get(input as usize), Some(Input::Growing(_))).then_some(input as usize)
            }
            Part::Area(_) => None,
        }
    }

    /// Takes in how much there is of inputs that grow.
    pub(super) fn look_at_inputs(&self) {
        let grown = |(index, input): (usize, &Input)| match input {
            Input::Growing(growing) => Some((index, growing.watermark())),
            Input::Whole(_) => None,
        };
        let grown = self.inputs.iter().enumerate().filter_map(grown);
        self.progress.change(|marks| grown.for_each(|(input, at)| marks.grown[input] = at.max(marks.grown[input])));
    }

    /// Waits until a part has its bytes up to `end`. Areas are written in the order of the plan: nothing is waited for.
    pub(super) fn await_part(&self, part: Part, end: u64) -> Result<(), String> {
        match self.grows(part) {
            Some(input) => self.progress.wait_for(|marks| marks.grown[input] >= end),
            None => Ok(()),
        }
    }

    /// Which piece a byte of an intake's stream is in, and how far inside.
    pub(super) fn piece_at(&self, intake: usize, at: u64) -> (usize, u64) {
        let layout = &self.layouts[intake];
        let piece = layout.piece_at(at);
        (piece, at - layout.starts[piece])
    }

    /// The length of an intake's stream.
    pub(super) fn stream_len(&self, intake: usize) -> u64 {
        self.layouts[intake].starts.last().copied().unwrap_or(0)
    }

    /// The end of the intakes that go together with this one, on one thread: inputs that are combined one after the other.
    pub(super) fn together(&self, first: usize) -> usize {
        let intakes = &self.spec.intakes;
        let of_input = |at: usize| matches!(intakes[at].origin, Origin::Local { part: Part::Input(_), .. });
        let follows = |at: &usize| of_input(*at) && intakes[*at].after == u32::try_from(at - 1).ok();
        if !of_input(first) {
            return first + 1;
        }
        first + 1 + (first + 1..intakes.len()).take_while(follows).count()
    }

    /// An intake has dealt with its bytes up to `to`: flows that follow may go on, and readers of the outputs too.
    pub(super) fn advance(&self, intake: usize, to: u64) {
        let over = self.progress.change(|marks| {
            marks.done[intake] = to;
            (0..marks.done.len()).all(|at| marks.done[at] == self.stream_len(at))
        });
        for (index, place) in self.areas.iter().enumerate() {
            let Some(growth) = &place.growth else { continue };
            let marks = self.progress.marks();
            let lowest = (0..marks.done.len()).map(|at| self.lowest_open(at, marks.done[at], index)).min();
            drop(marks);
            place.area.publish(lowest.unwrap_or(0));
            growth.grown();
        }
        if over {
            self.progress.tell();
        }
    }

    /// The lowest byte of an area that an intake has still to write.
    fn lowest_open(&self, intake: usize, done: u64, area: usize) -> u64 {
        let layout = &self.layouts[intake];
        if done >= self.stream_len(intake) {
            return self.areas[area].area.len();
        }
        let at = layout.piece_at(done);
        let piece = &self.spec.intakes[intake].pieces[at];
        let later = layout.lowest[area][at + 1];
        if writes(piece, area) { later.min(piece.start + (done - layout.starts[at])) } else { later }
    }

    /// Whether every intake is at its end.
    pub(super) fn is_filled(&self) -> bool {
        let marks = self.progress.marks();
        (0..marks.done.len()).all(|at| marks.done[at] == self.stream_len(at))
    }

    /// Whether every flow was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.progress.marks().taken.iter().all(|taken| *taken)
    }

    /// Whether an area is what the stage is for.
    pub(super) fn is_output(&self, area: usize) -> bool {
        !matches!(self.spec.areas[area], AreaSpec::Scratch { .. })
    }
}
