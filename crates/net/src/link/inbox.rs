//! What was read from a wire: frames, looked at where they lie.
//!
//! One buffer for the life of the connection, at least twice the largest frame. Only what is touched costs memory: a quiet
//! connection uses its beginning. A frame's length is compared with the bound before anything waits for its bytes.

use crate::frame::{Frame, FrameError, HEADER_BYTES, Header};

/// The least size of a buffer: what one read takes at most.
const BUFFER_BYTES_MIN: usize = 256 << 10;

pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    /// What was read and is in no frame that was handed out.
    start: usize,
    end: usize,
    body_bytes_max: usize,
    has_crc: bool,
}

impl Inbox {
    /// For frames with bodies up to a bound.
    pub(crate) fn new(body_bytes_max: usize) -> Self {
        let size = (2 * (body_bytes_max + HEADER_BYTES)).max(BUFFER_BYTES_MIN);
        // Zeroes from the system, page by page as they are touched.
        Self { bytes: vec![0; size].into_boxed_slice(), start: 0, end: 0, body_bytes_max, has_crc: true }
    }

    /// For frames with or without a crc.
    pub(crate) fn with_crc(self, has_crc: bool) -> Self {
        Self { has_crc, ..self }
    }

    /// Where the next read goes: never empty once every whole frame was taken.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end > self.bytes.len() / 2 {
            // Less than one frame is left over, and it came with many others.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were read into the room.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// The next whole frame.
    #[inline]
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let unread = &self.bytes[self.start..self.end];
        let Some(header) = unread.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header);
        header.check(self.body_bytes_max)?;
        let Some(body) = unread[HEADER_BYTES..].get(..header.length as usize) else { return Ok(None) };
        if self.has_crc {
            header.check_body(body)?;
        }
        self.start += HEADER_BYTES + body.len();
        Ok(Some(Frame { kind: header.kind, body }))
    }

    /// Whether a frame has begun that is not whole.
    pub(crate) fn is_inside_a_frame(&self) -> bool {
        self.start != self.end
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::FrameKind;

    const BODY_MAX: usize = 1_000;

    fn frame_bytes(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Header::of(FrameKind(kind), &[body]).encode().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_however_they_are_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..BODY_MAX), 0..50),
            cuts in prop::collection::vec(1..3_000usize, 1..50),
        ) {
            let mut inbox = Inbox::new(BODY_MAX);
            let wire: Vec<u8> = bodies.iter().enumerate().flat_map(|(kind, body)| frame_bytes(kind as u16, body)).collect();
            let (mut sent, mut found, mut cuts) = (0, 0, cuts.iter().cycle());
            while sent < wire.len() {
                let count = (wire.len() - sent).min(*cuts.next().unwrap());
                inbox.room()[..count].copy_from_slice(&wire[sent..sent + count]);
                inbox.filled(count);
                sent += count;
                while let Some(frame) = inbox.next_frame().unwrap() {
                    prop_assert_eq!((frame.kind, frame.body), (FrameKind(found as u16), bodies[found].as_slice()));
                    found += 1;
                }
            }
            prop_assert_eq!(found, bodies.len());
            prop_assert!(!inbox.is_inside_a_frame());
        }
    }

    #[test]
    fn a_frame_over_the_bound_is_refused_by_its_header_alone() {
        let mut inbox = Inbox::new(BODY_MAX);
        let bytes = frame_bytes(1, &[0; BODY_MAX + 1]);
        inbox.room()[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
        inbox.filled(HEADER_BYTES);
        assert!(matches!(inbox.next_frame(), Err(FrameError::TooLong { .. })));
    }
}
