//! What is said on a bulk connection besides the bytes: headers of 16 bytes, some with a short text behind them.

use super::Break;
use super::host::HostMark;

/// The longest name of an object. Its meaning is the affair of who asks and who serves.
pub const KEY_BYTES_MAX: usize = 80;
/// The longest reason for an object that is not there; a longer one is cut.
pub(super) const REASON_BYTES_MAX: usize = 1024;
/// The shortest block that can be asked for.
pub const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// The longest block that can be asked for.
pub const BLOCK_BYTES_MAX: u32 = 4 << 20;

pub(super) const HEADER_BYTES: usize = 16;

/// Asks for an object, or for the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The object's name with the sender, at most [`KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// The first byte that is wanted.
    pub from: u64,
    /// Bytes per block.
    pub block: u32,
    /// Whether each block has a checksum.
    pub checksum: bool,
    /// Who can read where this process can, when bytes may be left where they lie.
    pub host: Option<HostMark>,
}

impl Request {
    /// What is sent before the key; an error when the request is out of bounds.
    pub(super) fn header(&self) -> Result<Header, String> {
        let key = u8::try_from(self.key.len()).ok().filter(|key| usize::from(*key) <= KEY_BYTES_MAX);
        let key = key.ok_or_else(|| format!("a key of {} bytes", self.key.len()))?;
        let Self { from, block, checksum, host, .. } = *self;
        let header = Header::Request { key, block, checksum, marked: host.is_some(), from };
        header.check().map(|()| header).map_err(|why| why.to_string())
    }

    /// What follows the header.
    pub(super) fn behind(&self) -> Vec<u8> {
        let mark = self.host.map(HostMark::encode);
        [&self.key[..], mark.as_ref().map_or(&[][..], |mark| &mark[..])].concat()
    }
}

/// The fixed part of everything that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A request whose key of so many bytes follows, and then, when it is marked, the mark of the receiver.
    Request { key: u8, block: u32, checksum: bool, marked: bool, from: u64 },
    /// The receiver has everything below.
    Confirm { watermark: u64 },
    /// The sender has the object, and it is this long.
    Offer { len: u64 },
    /// It has not; so many bytes of reason follow.
    Gone { reason: u16 },
    /// So many bytes of the object follow.
    Block { len: u32, checksum: u64 },
    /// Nothing new, but the sender is there.
    Waiting,
    /// There will be no more; so many bytes of reason follow.
    Ended { reason: u16 },
    /// The object lies in a file of the sender, which is described behind this: can the receiver read it?
    Lies,
    /// It can, or not.
    Reads { yes: bool },
    /// The next so many bytes are final and lie there in that file.
    Part { len: u32, offset: u64 },
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let (tag, small, word, long) = match self {
            Self::Request { key, block, checksum, marked, from } => {
                (1, u16::from(key) | u16::from(checksum) << 8 | u16::from(marked) << 9, block, from)
            }
            Self::Confirm { watermark } => (2, 0, 0, watermark),
            Self::Offer { len } => (3, 0, 0, len),
            Self::Gone { reason } => (4, reason, 0, 0),
            Self::Block { len, checksum } => (5, 0, len, checksum),
            Self::Waiting => (6, 0, 0, 0),
            Self::Ended { reason } => (7, reason, 0, 0),
            Self::Lies => (8, 0, 0, 0),
            Self::Reads { yes } => (9, u16::from(yes), 0, 0),
            Self::Part { len, offset } => (10, 0, len, offset),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = tag;
        bytes[2..4].copy_from_slice(&u16::to_le_bytes(small));
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(word));
        bytes[8..].copy_from_slice(&u64::to_le_bytes(long));
        bytes
    }

    pub(super) fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, Break> {
        let [tag, _, a, b, c, d, e, f, long @ ..] = bytes;
        let (small, word) = (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
        let long = u64::from_le_bytes(long);
        let header = match tag {
            1 => {
                let (checksum, marked) = (small & 0x100 != 0, small & 0x200 != 0);
                Self::Request { key: small as u8, block: word, checksum, marked, from: long }
            }
            2 => Self::Confirm { watermark: long },
            3 => Self::Offer { len: long },
            4 => Self::Gone { reason: small },
            5 => Self::Block { len: word, checksum: long },
            6 => Self::Waiting,
            7 => Self::Ended { reason: small },
            8 => Self::Lies,
            9 => Self::Reads { yes: small != 0 },
            10 => Self::Part { len: word, offset: long },
            other => return Err(Break::Nonsense(format!("a header with tag {other}"))),
        };
        header.check().map(|()| header)
    }

    /// Every length is bounded before anything is allocated by it.
    fn check(&self) -> Result<(), Break> {
        let fits = match self {
            Self::Request { key, block, .. } => {
                usize::from(*key) <= KEY_BYTES_MAX && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(block)
            }
            Self::Block { len, .. } => (1..=BLOCK_BYTES_MAX).contains(len),
            Self::Gone { reason } | Self::Ended { reason } => usize::from(*reason) <= REASON_BYTES_MAX,
            Self::Part { len, offset } => *len > 0 && offset.checked_add(u64::from(*len)).is_some(),
            Self::Confirm { .. } | Self::Offer { .. } | Self::Waiting | Self::Lies | Self::Reads { .. } => true,
        };
        if fits { Ok(()) } else { Err(Break::Nonsense(format!("a length out of bounds in {self:?}"))) }
    }
}

/// A reason as it travels.
pub(super) fn cut(reason: &str) -> &str {
    let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(|at| reason.is_char_boundary(*at));
    &reason[..end.unwrap_or(0)]
}

/// The checksum of a block.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_header_is_read_back_or_refused(bytes in prop::array::uniform16(any::<u8>())) {
            if let Ok(header) = Header::decode(bytes) {
                prop_assert_eq!(Header::decode(header.encode()).unwrap(), header);
            }
        }

        #[test]
        fn a_cut_reason_is_a_beginning_of_it(reason in "\\PC{0,600}") {
            let short = cut(&reason);
            prop_assert!(reason.starts_with(short) && short.len() <= REASON_BYTES_MAX);
            prop_assert!(short.len() == reason.len() || short.len() > REASON_BYTES_MAX - 4);
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        let (block, checksum, marked, from) = (BLOCK_BYTES_MIN, true, false, 0);
        let long_key = Header::Request { key: KEY_BYTES_MAX as u8 + 1, block, checksum, marked, from };
        let small_block = Header::Request { key: 1, block: block - 1, checksum, marked, from };
        let empty = Header::Block { len: 0, checksum: 0 };
        let long = Header::Block { len: BLOCK_BYTES_MAX + 1, checksum: 0 };
        let talkative = Header::Gone { reason: REASON_BYTES_MAX as u16 + 1 };
        let nothing = Header::Part { len: 0, offset: 0 };
        let beyond = Header::Part { len: 2, offset: u64::MAX - 1 };
        for header in [long_key, small_block, empty, long, talkative, nothing, beyond] {
            assert!(Header::decode(header.encode()).is_err(), "{header:?}");
        }
    }
}
