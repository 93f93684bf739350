//! What a stage does with the bytes of one stream: puts them in their place, combined or not, and says how far it is.

use std::ops::Range;
use std::sync::Arc;

use bireme_arith as arith;
use bireme_core::flow::{Action, Combine, Number, Op, Part};
use bireme_store::array::{ArrayHeader, ByteOrder, Dtype, Library, NDIM_MAX};

use super::running::Running;

/// The longest header of an array.
const HEADER_ROOM: usize = (16 + 8 * NDIM_MAX).next_multiple_of(64);
/// Pages are mapped this far ahead of what arrives.
const PREPARE_BYTES: u64 = 2 << 20;

/// A part of a piece in which the same is done with every byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    act: Act,
    area: usize,
    start: u64,
    /// Bytes that are left of it.
    pub(super) left: u64,
    /// It is dealt with in multiples of this.
    unit: u64,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Store,
    /// With which bytes of which part.
    Numbers(Number, Combine, u64),
    Same(Part, u64),
    /// The header of an array, which has to be that of this part; it is stored unless it is there.
    Header(Part, u64),
    /// The first bytes of an array of so many, for whose elements the operation has to be defined.
    Front(Op, u64),
}

/// One stream of a stage.
pub(super) struct Taker {
    pub(super) running: Arc<Running>,
    pub(super) intake: usize,
    /// Bytes that are dealt with.
    at: u64,
    /// The array that the stream is inside: its piece, the bytes of its header and of header and elements, and the elements.
    array: Option<(usize, u64, u64, Number)>,
    /// Bytes that are less than one unit, until the rest comes.
    carry: [u8; HEADER_ROOM],
    carried: usize,
    /// For each area: up to where pages are mapped, from where.
    prepared: Vec<Range<u64>>,
}

impl Taker {
    pub(super) fn new(running: Arc<Running>, intake: usize) -> Self {
        let prepared = vec![0..0; running.areas.len()];
        Self { running, intake, at: 0, array: None, carry: [0; HEADER_ROOM], carried: 0, prepared }
    }

    /// The stream's length.
    pub(super) fn len(&self) -> u64 {
        self.running.stream_len(self.intake)
    }

    /// Bytes that have come.
    pub(super) fn received(&self) -> u64 {
        self.at + self.carried as u64
    }

    /// Deals with the next bytes of the stream. What is less than a unit is kept for the next time.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let step = self.step()?;
            if self.carried > 0 {
                let more = (step.unit as usize - self.carried).min(bytes.len());
                self.carry[self.carried..self.carried + more].copy_from_slice(&bytes[..more]);
                self.carried += more;
                bytes = &bytes[more..];
                if self.carried as u64 == step.unit {
                    let whole = self.carry;
                    self.carried = 0;
                    self.deal(step, &whole[..step.unit as usize])?;
                }
                continue;
            }
            let most = (bytes.len() as u64).min(step.left);
            let whole = (most - most % step.unit) as usize;
            if whole == 0 {
                self.carry[..bytes.len()].copy_from_slice(bytes);
                self.carried = bytes.len();
                return Ok(());
            }
            self.deal(step, &bytes[..whole])?;
            bytes = &bytes[whole..];
        }
        Ok(())
    }

    /// What happens to the next byte.
    pub(super) fn step(&mut self) -> Result<Step, String> {
        let (index, inside) = self.running.piece_at(self.intake, self.at);
        let pieces = &self.running.spec.intakes[self.intake].pieces;
        let piece = *pieces.get(index).ok_or("more bytes came than the stream has")?;
        let (area, start, left) = (piece.area as usize, piece.start + inside, piece.len - inside);
        let step = |act, left, unit| Step { act, area, start, left, unit };
        Ok(match piece.action {
            Action::Store => step(Act::Store, left, 1),
            Action::Numbers(number, combine) => {
                step(Act::Numbers(number, combine, combine.start + inside), left, number.bytes() as u64)
            }
            Action::Alone(op) if inside == 0 => {
                let look = piece.len.min(HEADER_ROOM as u64);
                step(Act::Front(op, piece.len), look, look)
            }
            Action::Alone(_) => step(Act::Store, left, 1),
            Action::Same(part, from) => step(Act::Same(part, from + inside), left, 1),
            Action::Array(combine) => {
                let (header, whole, number) = self.array_at(index, combine, piece.len)?;
                if inside < header {
                    step(Act::Header(combine.with, combine.start), header, header)
                } else if inside < whole {
                    let act = Act::Numbers(number, combine, combine.start + inside);
                    step(act, whole - inside, number.bytes() as u64)
                } else {
                    step(Act::Store, left, 1)
                }
            }
        })
    }

    /// The array that this stream is combined with: bytes of its header, bytes with its elements, what they are.
    fn array_at(&mut self, index: usize, combine: Combine, len: u64) -> Result<(u64, u64, Number), String> {
        if let Some((piece, header, whole, number)) = self.array
            && piece == index
        {
            return Ok((header, whole, number));
        }
        let look = len.min(HEADER_ROOM as u64);
        self.await_turn(self.piece_start(index) + look)?;
        self.running.await_part(combine.with, combine.start + look)?;
        let bytes = self.running.read(combine.with, combine.start, look)?;
        let (header, number) = header_of(bytes, len)?;
        combine.op.check(number).map_err(|error| error.to_string())?;
        let (front, whole) =
            (header.payload_offset() as u64, header.object_bytes().map_err(|error| error.to_string())?);
        if whole > len {
            return Err(format!("an array of {whole} bytes does not fit into the {len} that were planned for it"));
        }
        self.array = Some((index, front, whole, number));
        Ok((front, whole, number))
    }

    fn piece_start(&self, index: usize) -> u64 {
        let pieces = &self.running.spec.intakes[self.intake].pieces;
        pieces[..index].iter().map(|piece| piece.len).sum()
    }

    /// Whether the bytes of a step can go straight where they stay: they do not depend on others.
    pub(super) fn is_direct(&self, step: &Step) -> bool {
        let waits = self.running.spec.intakes[self.intake].after.is_some();
        matches!(step.act, Act::Store) && !waits && self.carried == 0
    }

    /// The place for the next bytes of a step that is direct.
    pub(super) fn place(&mut self, step: &Step, most: u64) -> Result<bireme_store::AreaWrite, String> {
        let range = step.start..step.start + step.left.min(most);
        self.prepare(step.area, &range)?;
        self.running.areas[step.area].area.write(range).map_err(|error| error.to_string())
    }

    fn prepare(&mut self, area: usize, range: &Range<u64>) -> Result<(), String> {
        let prepared = &mut self.prepared[area];
        if range.start < prepared.start || range.end > prepared.end {
            let ahead = range.start..range.end.max(range.start + PREPARE_BYTES);
            let end = self.running.areas[area].area.prepare(ahead).map_err(|error| error.to_string())?;
            *prepared = range.start..end.max(range.end);
        }
        Ok(())
    }

    /// Bytes that went straight to their place are final.
    pub(super) fn placed(&mut self, len: u64) {
        self.at += len;
        self.running.advance(self.intake, self.at);
    }

    /// Waits until the stream that goes first has dealt with its bytes up to `end`.
    fn await_turn(&self, end: u64) -> Result<(), String> {
        match self.running.spec.intakes[self.intake].after {
            Some(before) => self.running.progress.wait_for(|marks| marks.done[before as usize] >= end),
            None => Ok(()),
        }
    }

    fn deal(&mut self, step: Step, bytes: &[u8]) -> Result<(), String> {
        let len = bytes.len() as u64;
        let range = step.start..step.start + len;
        self.await_turn(self.at + len)?;
        match step.act {
            Act::Store => {
                self.prepare(step.area, &range)?;
                self.store(step.area, range, bytes)?;
            }
            Act::Numbers(number, combine, from) => {
                self.prepare(step.area, &range)?;
                self.numbers(step.area, range, bytes, (number, combine, from))?;
            }
            Act::Same(part, from) => {
                self.running.await_part(part, from + len)?;
                if self.running.read(part, from, len)? != bytes {
                    return Err("the bytes of two members differ that have to be equal".to_owned());
                }
            }
            Act::Front(op, whole) => {
                let (_, number) = header_of(bytes, whole)?;
                op.check(number).map_err(|error| error.to_string())?;
                self.prepare(step.area, &range)?;
                self.store(step.area, range, bytes)?;
            }
            Act::Header(part, from) => {
                let own = self.running.read(part, from, len)?;
                if own != bytes {
                    return Err(differ(bytes, own));
                }
                if part != Part::Area(step.area as u32) || from != step.start {
                    self.prepare(step.area, &range)?;
                    self.store(step.area, range, bytes)?;
                }
            }
        }
        self.at += len;
        self.running.advance(self.intake, self.at);
        Ok(())
    }

    fn store(&self, area: usize, range: Range<u64>, bytes: &[u8]) -> Result<(), String> {
        let mut place = self.running.areas[area].area.write(range).map_err(|error| error.to_string())?;
        place.bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    fn numbers(
        &self,
        area: usize,
        range: Range<u64>,
        bytes: &[u8],
        (number, combine, from): (Number, Combine, u64),
    ) -> Result<(), String> {
        let op = combine.op;
        let in_place = combine.with == Part::Area(area as u32);
        let with = if in_place {
            &[]
        } else {
            self.running.await_part(combine.with, from + bytes.len() as u64)?;
            self.running.read(combine.with, from, bytes.len() as u64)?
        };
        let mut place = self.running.areas[area].area.write(range).map_err(|error| error.to_string())?;
        let out = place.bytes_mut();
        let combined = if in_place {
            arith::combine(op, number, out, bytes)
        } else {
            arith::combine3(op, number, out, bytes, with)
        };
        let divided = match combine.divisor {
            1 => combined,
            divisor => combined.and_then(|()| arith::divide(number, out, divisor)),
        };
        divided.map_err(|error| error.to_string())
    }
}

/// Reads the header of an array of which the first bytes are here, and says what its elements are.
pub(crate) fn header_of(bytes: &[u8], len: u64) -> Result<(ArrayHeader, Number), String> {
    let header = ArrayHeader::decode_front(bytes, len).map_err(|error| error.to_string())?;
    if header.byte_order != ByteOrder::NATIVE {
        return Err("an array of another byte order than this machine's cannot be reduced: convert it first".to_owned());
    }
    let number = match header.dtype {
        Dtype::F16 => Number::F16,
        Dtype::Bf16 => Number::Bf16,
        Dtype::F32 => Number::F32,
        Dtype::F64 => Number::F64,
        Dtype::I32 => Number::I32,
        Dtype::I64 => Number::I64,
        Dtype::U8 => Number::U8,
        other => {
            let name = bireme_core::collective::dtype_name(other as u8);
            return Err(format!("arrays of {name} cannot be reduced: convert them to a wider type first"));
        }
    };
    Ok((header, number))
}

/// The error for two arrays that cannot be combined.
pub(crate) fn differ(theirs: &[u8], own: &[u8]) -> String {
    let describe = |bytes: &[u8]| match ArrayHeader::decode_front(bytes, u64::MAX) {
        Ok(header) => {
            let kind = match header.library {
                Library::Plain => "",
                Library::Torch => " (a tensor of torch)",
            };
            format!("{:?} of shape {:?}{kind}", header.dtype, header.shape).to_lowercase()
        }
        Err(error) => error.to_string(),
    };
    format!("arrays of different kinds cannot be reduced: {} and {}", describe(theirs), describe(own))
}
