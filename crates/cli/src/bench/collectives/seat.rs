//! An actor on each node. Times are of the machine's monotonic clock, which all hosts of a lab share.

use std::time::Duration;

use bireme::collective::{Group, Member, Op};
use bireme::{Array, Bytes, ObjectRef};
use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until this time, unless it is over.
pub(super) fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}

/// An array of which every element is this.
pub(super) fn elements(bytes: usize, value: f32) -> bireme::Result<Array> {
    let count = bytes / size_of::<f32>();
    Array::from_shape_vec(&[count], vec![value; count])
}

/// Whether every element is this. The ends and the middle say whether the bytes are right; reading all of them would disturb
/// the measurement of others.
pub(super) fn check(array: &Array, value: f32) -> bireme::Result<()> {
    let found = array.as_slice::<f32>()?;
    match [found.first(), found.get(found.len() / 2), found.last()].into_iter().flatten().find(|at| **at != value) {
        None => Ok(()),
        Some(wrong) => Err(bireme::Error::BadArgument(format!("an array of {value} has {wrong} in it"))),
    }
}

/// One place at the table.
pub(crate) struct Seat {
    /// Made before, so that making it takes no time when it is wanted.
    array: Option<Array>,
    /// What it is in the group of all seats.
    member: Option<Member>,
}

#[bireme::actor]
impl Seat {
    /// Holds nothing.
    pub(crate) fn new() -> Self {
        Seat { array: None, member: None }
    }

    /// Makes an array of which every element is this.
    pub(crate) fn prepare(&mut self, bytes: usize, value: f32) -> bireme::Result<()> {
        self.array = Some(elements(bytes, value)?);
        Ok(())
    }

    /// Gives it, at this time.
    pub(crate) fn give(&mut self, at: u64) -> bireme::Result<Array> {
        sleep_until(at);
        self.array.clone().ok_or_else(nothing_prepared)
    }

    /// Gets arrays at this time, of which every element should be this, and says when it had all.
    pub(crate) fn take(&mut self, at: u64, what: Vec<ObjectRef<Array>>, value: f32) -> bireme::Result<u64> {
        sleep_until(at);
        let got = bireme::get_all(&what)?;
        let end = now();
        got.iter().try_for_each(|array| check(array, value)).map(|()| end)
    }

    /// Becomes a member of a group.
    pub(crate) fn enter(&mut self, group: Group) -> bireme::Result<()> {
        self.member = Some(group.member()?);
        Ok(())
    }

    /// Sums its array with those of all members at this time; every element of the result should be this. Says when it had it.
    pub(crate) fn all_reduce(&mut self, at: u64, value: f32) -> bireme::Result<u64> {
        let (array, member) = self.array.as_ref().zip(self.member.as_ref()).ok_or_else(nothing_prepared)?;
        sleep_until(at);
        let sum = member.all_reduce(array, Op::Sum)?;
        let end = now();
        check(&sum, value).map(|()| end)
    }

    /// Gives back what comes.
    pub(crate) fn echo(&mut self, bytes: Bytes) -> Bytes {
        bytes
    }
}

fn nothing_prepared() -> bireme::Error {
    bireme::Error::BadArgument("nothing was prepared".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_element_is_told() {
        let array = elements(16, 3.0).unwrap_or_else(|error| panic!("{error}"));
        assert!(check(&array, 3.0).is_ok());
        assert!(check(&array, 4.0).is_err_and(|error| error.to_string().contains("an array of 4 has 3")));
    }
}
