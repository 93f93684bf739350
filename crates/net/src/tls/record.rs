//! The records of TLS 1.3 after the handshake (RFC 8446, section 5): sealed and opened here, with the library's keys and
//! ciphers, from where bytes lie to where they stay.
//!
//! The library's own connections copy everything once more on either side and take a record in by 4 KiB at a time, moving what
//! they have: a message of 64 KB took some sixteen rounds. It offers its keys for this (`rustls::kernel`, made for TLS in the kernel).
//!
//! ```text
//! u8 23 | u16 0x0303 | u16 length of the rest      in the clear, and authenticated
//! content | u8 kind | zeroes                       encrypted
//! 16 bytes of tag
//! ```
//!
//! The number of a record is in its nonce, so one that is left out, repeated or exchanged does not open.

use std::ops::Range;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, Error, InvalidMessage};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Why the connection ends.
    Alert = 21,
    /// New keys.
    Handshake = 22,
    /// Bytes of whoever uses the wire.
    Data = 23,
    /// Not of TLS: so many bytes of whoever uses the wire follow in the clear, where both sides have agreed to that.
    Open = 64,
}

impl Content {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Alert, Self::Handshake, Self::Data, Self::Open].into_iter().find(|content| *content as u8 == number)
    }
}

/// The most bytes of content.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 14;
/// What a record has in front of it.
pub(super) const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// What a record is longer than its content, when it has no padding.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// The longest record: padding counts to the length.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + 256;

/// The length of the record that begins here, when enough is there to tell.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some(&[_, major, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if major != 3 {
        return Err(Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion));
    }
    if length > RECORD_BYTES_MAX {
        return Err(Error::PeerSentOversizedRecord);
    }
    Ok(Some(length))
}

fn header_of(length: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (length as u16).to_be_bytes();
    [Content::Data as u8, 3, 3, high, low]
}

/// Where the next keys of a connection come from.
pub(super) trait Renewal: Send {
    /// Of the bytes that go out.
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;

    /// Of the bytes that come.
    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
}

impl<Side: Send> Renewal for KernelConnection<Side> {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_tx_secret()
    }

    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_rx_secret()
    }
}

/// The key of one direction, and the number of the next record.
struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Key {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::General("a cipher that is not known here".to_owned())),
        };
        let unusable = || Error::General("the key does not fit its cipher".to_owned());
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable())?;
        let iv = iv.as_ref().try_into().map_err(|_| unusable())?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The nonce of the next record, once.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Makes records.
pub(super) struct Sealer(Key);

impl Sealer {
    pub(super) fn new(secrets: (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        Key::new(secrets).map(Self)
    }

    /// Records that the key has sealed.
    pub(super) fn sealed(&self) -> u64 {
        self.0.sequence
    }

    /// Makes a record of bytes that lie elsewhere, at the beginning of `out`: its length.
    pub(super) fn seal(&mut self, content: Content, plain: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let (header, body, tail) = places(plain.len(), out);
        let nonce = self.0.nonce();
        let sealed =
            self.0.key.seal_out_of_place_scatter(nonce, Aad::from(*header), plain, body, &[content as u8], tail);
        sealed.map(|()| plain.len() + OVERHEAD_BYTES).map_err(|_| Error::EncryptError)
    }

    /// The same of bytes that lie where they have to be, behind the place of the header.
    pub(super) fn seal_in_place(&mut self, content: Content, len: usize, out: &mut [u8]) -> Result<usize, Error> {
        let (header, body, tail) = places(len, out);
        let nonce = self.0.nonce();
        let sealed = self.0.key.seal_in_place_scatter(nonce, Aad::from(*header), body, &[content as u8], tail);
        sealed.map(|()| len + OVERHEAD_BYTES).map_err(|_| Error::EncryptError)
    }
}

/// The parts of a record with so many bytes of content, its header written.
fn places(len: usize, out: &mut [u8]) -> (&[u8; HEADER_BYTES], &mut [u8], &mut [u8]) {
    let (header, rest) = out.split_first_chunk_mut().expect("whoever seals has made room for a whole record");
    *header = header_of(len + 1 + TAG_BYTES);
    let (body, rest) = rest.split_at_mut(len);
    (header, body, &mut rest[..1 + TAG_BYTES])
}

/// Takes records apart.
pub(super) struct Opener(Key);

impl Opener {
    pub(super) fn new(secrets: (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        Key::new(secrets).map(Self)
    }

    /// How much room a record of so many bytes needs to be opened into another place.
    pub(super) fn room_for(record_bytes: usize) -> usize {
        record_bytes.saturating_sub(HEADER_BYTES + TAG_BYTES)
    }

    /// Opens a whole record into another place: what it is about, and how many bytes of content it has. Further bytes up to
    /// [`Opener::room_for`] are overwritten.
    pub(super) fn open_into(&mut self, record: &[u8], into: &mut [u8]) -> Result<(Content, usize), Error> {
        let (header, sealed, tag) = parts(record)?;
        let into = into.get_mut(..sealed.len()).ok_or(Error::DecryptError)?;
        let nonce = self.0.nonce();
        let opened = self.0.key.open_separate_gather(nonce, Aad::from(header), sealed, tag, into);
        opened.map_err(|_| Error::DecryptError)?;
        content_of(into)
    }

    /// Opens a whole record where it lies: what it is about, and where in it the content is.
    pub(super) fn open_in_place(&mut self, record: &mut [u8]) -> Result<(Content, Range<usize>), Error> {
        let (header, ..) = parts(record)?;
        let nonce = self.0.nonce();
        let opened = self.0.key.open_in_place(nonce, Aad::from(header), &mut record[HEADER_BYTES..]);
        let (content, len) = content_of(opened.map_err(|_| Error::DecryptError)?)?;
        Ok((content, HEADER_BYTES..HEADER_BYTES + len))
    }
}

/// The header, what is encrypted, and the tag.
type Parts<'a> = ([u8; HEADER_BYTES], &'a [u8], &'a [u8]);

fn parts(record: &[u8]) -> Result<Parts<'_>, Error> {
    let (header, rest) = record.split_first_chunk().ok_or(Error::DecryptError)?;
    if header[0] != Content::Data as u8 {
        // After the handshake everything is encrypted, and looks like this.
        return Err(Error::InvalidMessage(InvalidMessage::InvalidContentType));
    }
    let at = rest.len().checked_sub(TAG_BYTES).ok_or(Error::DecryptError)?;
    let (sealed, tag) = rest.split_at(at);
    Ok((*header, sealed, tag))
}

/// What stands behind the content, before the zeroes.
fn content_of(inner: &[u8]) -> Result<(Content, usize), Error> {
    let nothing = || Error::InvalidMessage(InvalidMessage::InvalidContentType);
    let len = inner.iter().rposition(|byte| *byte != 0).ok_or_else(nothing)?;
    if len > CONTENT_BYTES_MAX {
        return Err(Error::PeerSentOversizedRecord);
    }
    Ok((Content::from_number(inner[len]).ok_or_else(nothing)?, len))
}
