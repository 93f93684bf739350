//! Flat little-endian bytes for the hot messages: specs, runs, replies, records.
//!
//! Control messages are postcard; these few are written by hand because one of each is made per task. A reader never
//! trusts a length: every take checks what is left, and every decoder ends in [`Reader::finish`].

use crate::shared::Shared;

/// What is wrong with bytes that came from another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the value does.
    Short,
    /// A tag or number has no meaning.
    Unknown(&'static str),
    /// Bytes are left over.
    Trailing,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Short => write!(f, "message ends too early"),
            Malformed::Unknown(what) => write!(f, "message has an unknown {what}"),
            Malformed::Trailing => write!(f, "message has bytes left over"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Appends numbers and byte strings to a buffer.
pub trait Write {
    /// Appends raw bytes.
    fn raw(&mut self, bytes: &[u8]);

    /// Appends one byte.
    #[inline]
    fn u8(&mut self, v: u8) {
        self.raw(&[v]);
    }
    /// Appends a 32-bit number.
    #[inline]
    fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }
    /// Appends a 64-bit number.
    #[inline]
    fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }
    /// Appends a 128-bit number.
    #[inline]
    fn u128(&mut self, v: u128) {
        self.raw(&v.to_le_bytes());
    }
    /// Appends a length and the bytes.
    #[inline]
    fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.raw(v);
    }
}

impl Write for Vec<u8> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts the bytes instead of keeping them.
#[derive(Debug, Default)]
pub struct Count(pub usize);

impl Write for Count {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes to a place of the right size.
#[derive(Debug)]
pub struct Fill<'a>(pub &'a mut [u8]);

impl Write for Fill<'_> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        let place = std::mem::take(&mut self.0);
        let (here, rest) = place.split_at_mut(bytes.len().min(place.len()));
        here.copy_from_slice(&bytes[..here.len()]);
        self.0 = rest;
    }
}

/// Takes numbers and byte strings off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
    /// What all of it is, when parts of it can be shared.
    whole: Option<&'a Shared>,
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, whole: None }
    }

    /// A reader of these bytes that shares what is long in them.
    #[inline]
    pub fn of(bytes: &'a Shared) -> Self {
        Self { left: bytes, whole: Some(bytes) }
    }

    /// The next `n` bytes.
    #[inline]
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.left.split_at_checked(n).ok_or(Malformed::Short)?;
        self.left = tail;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.left = tail;
        Ok(*head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    /// A 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// A 64-bit number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A 128-bit number.
    #[inline]
    pub fn u128(&mut self) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array()?))
    }
    /// A length and that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.u32()? as usize;
        self.raw(n)
    }

    /// A length and that many bytes, to be kept.
    #[inline]
    pub fn shared(&mut self) -> Result<Shared, Malformed> {
        let bytes = self.bytes()?;
        Ok(match self.whole {
            None => bytes.into(),
            Some(whole) => {
                let end = whole.len() - self.left.len();
                whole.part(end - bytes.len()..end)
            }
        })
    }

    /// A count of items that take at least `least` bytes each, so that a bad count cannot make anyone allocate.
    #[inline]
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let n = self.u32()? as usize;
        if n.saturating_mul(least) > self.left.len() {
            return Err(Malformed::Short);
        }
        Ok(n)
    }

    /// How many bytes are left.
    #[inline]
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// All that is left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// Ends the reading: nothing may be left.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}
