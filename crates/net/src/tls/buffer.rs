//! Bytes on their way between a socket and somebody who looks at them where they lie.

use std::io::{self, Read, Write};

/// A queue of bytes in one place that is made once.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    /// What waits is between these.
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn new(capacity: usize) -> Self {
        // Zeroes from the system, page by page as they are touched.
        Self { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What waits.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// So many of the first bytes wait no more.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "more than there is");
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The place behind what waits; [`Buffer::filled`] says how much of it was used.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Adds bytes. There has to be room.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// One read, behind what waits, which moves to the front for it. Zero is the end of the stream, or of the room.
    pub(super) fn read_from(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = stream.read(self.room())?;
        self.filled(read);
        Ok(read)
    }

    /// Writes until nothing waits.
    pub(super) fn write_to(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match stream.write(self.waiting()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.consume(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
