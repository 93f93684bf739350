//! Rows about objects.

use std::hint::black_box;

use bireme::Bytes;

use super::Outcome;
use super::floor;
use super::measure::{Pair, median_us, seconds};
use super::probe::Probe;

const GIB: usize = 1 << 30;
const QUICK_BYTES: usize = 64 << 20;
const SMALL_BYTES: usize = 100;
/// Puts of a large object before the first that counts: then the pages that come and go are all known.
const WARM_PUTS: usize = 3;

/// How fast does a large `put` copy into pages that were used before, against memcpy on as many threads?
pub(super) fn put_warm(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let size = probe.size(GIB, QUICK_BYTES);
    let source = present(size);
    let mut target = vec![2; size];
    for _ in 0..WARM_PUTS {
        drop(bireme::put(source.clone())?);
    }
    probe.measure(|_| {
        let (ours, object) = seconds(|| bireme::put(source.clone()));
        drop(object?);
        Ok(Pair { ours: rate(size, ours), floor: rate(size, floor::copy_seconds(&source, &mut target)) })
    })
}

/// How fast is the first large `put` after `init`, into pages that nobody has touched, against a plain copy on one
/// thread into fresh shared pages?
pub(super) fn put_cold(probe: &Probe) -> Outcome<()> {
    let size = probe.size(GIB, QUICK_BYTES);
    let source = present(size);
    probe.measure(|_| {
        let context = bireme::init()?;
        let (ours, object) = seconds(|| bireme::put(source.clone()));
        drop(object?);
        context.shutdown();
        Ok(Pair { ours: rate(size, ours), floor: rate(size, floor::copy_into_fresh_shared_pages(&source)?) })
    })
}

/// How long until a large object can be read, in a process of this machine?
pub(super) fn get_zero_copy(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let size = probe.size(GIB, QUICK_BYTES);
    let object = bireme::put(present(size))?;
    let count = probe.size(10_000, 1_000);
    let get = || match object.get()?.len() {
        len if len == size => Ok(()),
        len => Err(format!("an object of {size} bytes has {len}").into()),
    };
    probe.measure(|_| Ok(Pair { ours: median_us(count, get)?, floor: floor::system_call_us(count)? }))
}

struct Reader {
    private: Vec<u8>,
}

#[bireme::actor]
impl Reader {
    pub fn new(size: u64) -> Self {
        Self { private: vec![1; size as usize] }
    }

    /// Seconds to read the object, and the sum of its bytes.
    pub fn read_object(&mut self, bytes: Bytes) -> (f64, u64) {
        seconds(|| sum(&bytes))
    }

    /// The same for private memory.
    pub fn read_private(&mut self) -> (f64, u64) {
        seconds(|| sum(&self.private))
    }
}

/// How long to read all of a large object, in a worker that has read other objects at the same place before, against
/// private memory of the same worker?
pub(super) fn get_read(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let size = probe.size(GIB, QUICK_BYTES);
    let source = present(size);
    let reader = Reader::remote(size as u64);
    let read = || reader.read_object(bireme::put(source.clone())?).get();
    for _ in 0..WARM_PUTS {
        read()?;
    }
    probe.measure(|_| {
        let ((ours, sum), (floor, same)) = (read()?, reader.read_private().get()?);
        if sum != same {
            return Err(format!("the object's bytes add up to {sum} and not to {same}").into());
        }
        Ok(Pair { ours: ours * 1e3, floor: floor * 1e3 })
    })
}

/// How many small values per second can be put?
pub(super) fn put_small(probe: &Probe) -> Outcome<()> {
    let _context = bireme::init()?;
    let count = probe.size(300_000, 30_000);
    let value = present(SMALL_BYTES);
    let run = |count: usize| -> Outcome<f64> {
        let put_all = || (0..count).map(|_| bireme::put(value.clone())).collect::<bireme::Result<Vec<_>>>();
        let (took, objects) = seconds(put_all);
        drop(objects?);
        Ok(count as f64 / took)
    };
    run(count / 10)?;
    probe.measure(|_| Ok(Pair { ours: run(count)?, floor: floor::small_copies_per_second(&value, count) }))
}

/// Bytes whose pages are present.
fn present(size: usize) -> Bytes {
    Bytes::from(vec![1; size])
}

/// Gigabytes per second.
fn rate(size: usize, seconds: f64) -> f64 {
    size as f64 / seconds / 1e9
}

/// Reads every byte, in words so that memory is the limit and not the adding. The length is a multiple of 64.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    for line in bytes.chunks_exact(64) {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    black_box(sums.iter().fold(0, |all, sum| all.wrapping_add(*sum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_sees_every_byte() {
        let mut bytes = vec![0; 256];
        for at in 0..bytes.len() {
            bytes[at] = 1;
            assert_eq!(sum(&bytes), 1 << (at % 8 * 8));
            bytes[at] = 0;
        }
    }

    #[test]
    fn rates_are_decimal_gigabytes() {
        assert_eq!(rate(2_000_000_000, 4.0), 0.5);
    }
}
