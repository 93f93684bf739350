//! Where in a message of one process to another the bytes of its longest value are, without taking it apart.
//!
//! Nodes that pass a message on ask this: the bytes of values may go another way between nodes than what says what to do
//! with them. Kept beside the encodings by a property test.

use std::ops::Range;

use super::peer::{CALL, COLLECTIVE, ITEM, REPLY, RUN, RUN_AFTER};
use crate::codec::{Malformed, Reader};
use crate::spec::TaskSpec;
use crate::value::Value;

/// Where the longest value of an encoded [`Peer`](super::Peer) is: an empty range when it has none, or is none.
pub fn longest_value(message: &[u8]) -> Range<usize> {
    let mut longest = Longest { total: message.len(), found: 0..0 };
    // What was found in a message that then turns out to be malformed is bytes of it all the same.
    let _ = skim(&mut Reader::new(message), &mut longest);
    longest.found
}

/// The longest bytes seen so far in a message of so many bytes.
struct Longest {
    total: usize,
    found: Range<usize>,
}

impl Longest {
    /// These bytes were just read.
    fn see(&mut self, bytes: &[u8], from: &Reader<'_>) {
        if bytes.len() > self.found.len() {
            let end = self.total - from.left();
            self.found = end - bytes.len()..end;
        }
    }
}

fn skim(from: &mut Reader<'_>, longest: &mut Longest) -> Result<(), Malformed> {
    match from.u8()? {
        RUN | RUN_AFTER | CALL => {
            from.u64()?;
            let payload = TaskSpec::skim(from)?;
            longest.see(payload, from);
            skim_values(from, longest)
        }
        REPLY => {
            from.raw(24)?;
            skim_values(from, longest)
        }
        ITEM => {
            from.raw(24)?;
            Value::skim(from, |bytes, from| longest.see(bytes, from))
        }
        COLLECTIVE => {
            let len = from.u64()?;
            let rest = from.rest();
            let elements = usize::try_from(len).ok().and_then(|len| rest.len().checked_sub(len));
            let elements = rest.get(elements.ok_or(Malformed::Short)?..).ok_or(Malformed::Short)?;
            longest.see(elements, from);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn skim_values(from: &mut Reader<'_>, longest: &mut Longest) -> Result<(), Malformed> {
    for _ in 0..from.count(9)? {
        Value::skim(from, |bytes, from| longest.see(bytes, from))?;
    }
    Ok(())
}
