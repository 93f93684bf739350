//! How close is a put to the memory's own speed?
//!
//! Warm: a put of 1 GiB into pages that this process has mapped, against a plain memcpy of the same size on the same
//! number of threads. Cold: a put into a new arena, against a one-thread memcpy into a new shared mapping. Read: every
//! page of the object through a pin, against the same bytes in private memory. Each ratio is the median of interleaved
//! pairs. Run with `cargo run --release -p bireme-store --example copy_floor [mebibytes]`.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bireme_store::{Arena, ProcessSlot, Sealed, SpillOptions, Store, StoreClient, Table};

const PAIRS: usize = 7;
/// The first put makes the pages, the second maps those that the first only wrote.
const WARMING_ROUNDS: usize = 2;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Machine {
    store: Store,
    client: StoreClient,
}

fn machine(bytes: u64) -> Outcome<Machine> {
    let arena = Arc::new(Arena::create(bytes.next_multiple_of(2 << 20))?);
    let table = Arc::new(Table::create()?);
    let slot = ProcessSlot::new(0).ok_or("no slot")?;
    let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), SpillOptions::default());
    store.admit_process(slot);
    Ok(Machine { store, client: StoreClient::new(arena, table, slot) })
}

fn put(machine: &mut Machine, bytes: &[u8], threads: usize) -> Outcome<Sealed> {
    let location = machine.store.create(bytes.len() as u64)?;
    let mut writer = machine.client.writer(location)?;
    writer.copy_from_with(bytes, threads)?;
    Ok(writer.seal()?)
}

fn memcpy(target: &mut [u8], source: &[u8], threads: usize) -> Outcome<()> {
    let part = source.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (target, source) in target.chunks_mut(part).zip(source.chunks(part)) {
            scope.spawn(|| target.copy_from_slice(source));
        }
    });
    Ok(())
}

/// A one-thread copy through page faults into shared pages that nobody has touched.
fn copy_into_fresh_pages(source: &[u8]) -> Outcome<f64> {
    let mut fresh = machine(source.len() as u64)?;
    let location = fresh.store.create(source.len() as u64)?;
    let mut writer = fresh.client.writer(location)?;
    let start = Instant::now();
    writer.spare_mut().copy_from_slice(source);
    let seconds = start.elapsed().as_secs_f64();
    Ok(seconds)
}

fn sum_of_words(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, ours: Vec<f64>, floor: Vec<f64>) {
    let ratio = median(floor.iter().zip(&ours).map(|(floor, ours)| floor / ours).collect());
    println!("{name}: ours {:.1} ms, floor {:.1} ms, ratio {ratio:.2}", median(ours) * 1e3, median(floor) * 1e3);
}

/// Puts, gets and reads in pages that this process has mapped.
fn warm(source: &[u8], threads: usize) -> Outcome<()> {
    let mut warm = machine(source.len() as u64)?;
    let mut private = vec![1u8; source.len()];
    let (mut ours, mut floor, mut get, mut read, mut read_floor) = (vec![], vec![], vec![], vec![], vec![]);
    for round in 0..PAIRS + WARMING_ROUNDS {
        let (sealed, put_seconds) = timed(|| put(&mut warm, source, threads))?;
        let (_, copy_seconds) = timed(|| memcpy(&mut private, source, threads))?;
        let (pinned, get_seconds) = timed(|| Ok(warm.client.pin(sealed)?))?;
        let (_, read_seconds) = timed(|| Ok(black_box(sum_of_words(&pinned))))?;
        let (_, read_floor_seconds) = timed(|| Ok(black_box(sum_of_words(&private))))?;
        drop(pinned);
        let _ = warm.store.free(sealed.0.entry, sealed.0.generation)?;
        if round >= WARMING_ROUNDS {
            ours.push(put_seconds);
            floor.push(copy_seconds);
            get.push(get_seconds);
            read.push(read_seconds);
            read_floor.push(read_floor_seconds);
        }
    }
    report(&format!("put warm, {threads} threads"), ours, floor);
    report("read again", read, read_floor);
    println!("get: {:.2} µs", median(get) * 1e6);
    Ok(())
}

/// Puts into a new arena each time.
fn cold(source: &[u8], threads: usize) -> Outcome<()> {
    let (mut ours, mut floor) = (vec![], vec![]);
    for _ in 0..PAIRS {
        let mut cold = machine(source.len() as u64)?;
        let (_, seconds) = timed(|| put(&mut cold, source, threads))?;
        drop(cold);
        ours.push(seconds);
        floor.push(copy_into_fresh_pages(source)?);
    }
    report(&format!("put cold, {threads} threads against page faults on one"), ours, floor);
    Ok(())
}

/// Creates, writes, seals and frees small objects, as fast as one thread can.
fn small(bytes: &[u8]) -> Outcome<()> {
    const ROUNDS: u32 = 1_000_000;
    let mut machine = machine(64 << 20)?;
    let (_, seconds) = timed(|| {
        for _ in 0..ROUNDS {
            let sealed = put(&mut machine, bytes, 1)?;
            let _ = machine.store.free(sealed.0.entry, sealed.0.generation)?;
        }
        Ok(())
    })?;
    println!("put and free {} B: {:.2} M/s", bytes.len(), f64::from(ROUNDS) / seconds / 1e6);
    Ok(())
}

fn main() -> Outcome<()> {
    let mebibytes: usize = std::env::args().nth(1).map_or(Ok(1024), |argument| argument.parse())?;
    let source = vec![7u8; mebibytes << 20];
    let most = std::thread::available_parallelism()?.get();
    small(&[7; 100])?;
    warm(&source, 1)?;
    warm(&source, most)?;
    cold(&source, 1)?;
    cold(&source, most)
}
