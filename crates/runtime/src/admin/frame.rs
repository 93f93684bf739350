//! Frames of the admin socket: magic, length, a postcard value. Bounded in bytes and in time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Begins every frame. The last letter is the version: a command of another one is refused in words.
const MAGIC: [u8; 4] = *b"BRA1";

/// Writes one frame before the deadline.
pub(super) fn write<T: Serialize>(
    stream: &mut UnixStream,
    value: &T,
    bytes_max: u32,
    deadline: Instant,
) -> io::Result<()> {
    let body = postcard::to_allocvec(value).map_err(|error| invalid(error.to_string()))?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= bytes_max);
    let Some(length) = length else {
        return Err(invalid(format!("{} bytes are more than {bytes_max}", body.len())));
    };
    let frame = [&MAGIC[..], &length.to_le_bytes(), &body].concat();
    let mut rest = &frame[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads one frame before the deadline. Nothing is allocated for a length that is too large.
pub(super) fn read<T: DeserializeOwned>(stream: &mut UnixStream, bytes_max: u32, deadline: Instant) -> io::Result<T> {
    let mut head = [0; 8];
    read_exact(stream, &mut head, deadline)?;
    let [a, b, c, d, length @ ..] = head;
    if [a, b, c, d] != MAGIC {
        return Err(invalid("the other side speaks another language; are both of the same version?".to_owned()));
    }
    let length = u32::from_le_bytes(length);
    if length > bytes_max {
        return Err(invalid(format!("{length} bytes are more than {bytes_max}")));
    }
    let mut body = vec![0; length as usize];
    read_exact(stream, &mut body, deadline)?;
    postcard::from_bytes(&body).map_err(|error| invalid(error.to_string()))
}

fn read_exact(stream: &mut UnixStream, mut rest: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether to look at the deadline and try again.
fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn left(deadline: Instant) -> io::Result<std::time::Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the other side took too long"));
    }
    Ok(left)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
