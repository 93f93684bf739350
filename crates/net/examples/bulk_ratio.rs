//! How close is a bulk link to a plain socket copy, in time and in processor time?
//!
//! Both move the same bytes from one mapped memory file into another over a loopback connection, with one thread on each
//! side. The plain copy writes and reads 256 KiB at a time. Ratios are medians of interleaved pairs; processor time is
//! that of both threads. One line per variant.
//!
//! `cargo run --release -p bireme-net --example bulk_ratio [mebibytes] [pairs]`

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bireme_net::bulk::{Break, BulkOptions, Catalogue, Line, Sink, Source, receive, serve};
use bireme_net::wire::PlainWire;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::ClockId;

const CHUNK: usize = 256 << 10;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A memory file, mapped and warm, as an arena is.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value; who shares it only reads.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize, byte: impl Fn(usize) -> u8) -> Outcome<Self> {
        let file = rustix::fs::memfd_create("bulk-ratio", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file that is long enough; nothing else refers to it.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or("mapped at zero")?;
        let mut memory = Self { start, len };
        for (at, place) in memory.bytes_mut().iter_mut().enumerate() {
            *place = byte(at);
        }
        Ok(memory)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is this long and lives as long as `self`; changes need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and nobody else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

struct Whole(Arc<Memory>);

impl Source for Whole {
    fn len(&self) -> u64 {
        self.0.len as u64
    }
    fn wait_beyond(&self, _: u64, _: Duration) -> Result<u64, String> {
        Ok(self.len())
    }
    fn bytes(&self, range: Range<u64>) -> &[u8] {
        &self.0.bytes()[range.start as usize..range.end as usize]
    }
}

struct Shelf(Arc<Memory>);

impl Catalogue for Shelf {
    fn find(&mut self, _: &[u8], _: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String> {
        Ok(Box::new(Whole(Arc::clone(&self.0))))
    }
}

struct Place<'a> {
    memory: &'a mut Memory,
    watermark: usize,
}

impl Sink for Place<'_> {
    fn len(&self) -> u64 {
        self.memory.len as u64
    }
    fn watermark(&self) -> u64 {
        self.watermark as u64
    }
    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]> {
        let watermark = self.watermark;
        Ok(&mut self.memory.bytes_mut()[watermark..watermark + most])
    }
    fn advance(&mut self, len: u64) -> io::Result<()> {
        self.watermark += len as usize;
        Ok(())
    }
}

fn connected() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let out = TcpStream::connect(listener.local_addr()?)?;
    Ok((out, listener.accept()?.0))
}

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds, and processor seconds of both threads.
type Cost = (f64, f64);

fn raw(source: &Arc<Memory>, target: &mut Memory) -> Outcome<Cost> {
    let (mut out, mut into) = connected()?;
    let source = Arc::clone(source);
    let start = Instant::now();
    let before = processor_seconds();
    let sender = std::thread::spawn(move || -> io::Result<f64> {
        let before = processor_seconds();
        for chunk in source.bytes().chunks(CHUNK) {
            out.write_all(chunk)?;
        }
        out.read_exact(&mut [0])?;
        Ok(processor_seconds() - before)
    });
    let mut at = 0;
    while at < target.len {
        let end = (at + CHUNK).min(target.len);
        at += into.read(&mut target.bytes_mut()[at..end])?;
    }
    let seconds = start.elapsed().as_secs_f64();
    into.write_all(&[1])?;
    let mine = processor_seconds() - before;
    Ok((seconds, mine + sender.join().map_err(|_| "the sender panicked")??))
}

fn bulk(source: &Arc<Memory>, target: &mut Memory, options: &BulkOptions) -> Outcome<Cost> {
    let (out, into) = connected()?;
    let mut shelf = Shelf(Arc::clone(source));
    let start = Instant::now();
    let before = processor_seconds();
    let sending = options.clone();
    let sender = std::thread::spawn(move || -> Outcome<f64> {
        let before = processor_seconds();
        let line = Line::new(Box::new(PlainWire::new(out)?), sending)?;
        let (_, served) = serve(line, &mut shelf, &|| false);
        served?;
        Ok(processor_seconds() - before)
    });
    let mut line = Line::new(Box::new(PlainWire::new(into)?), options.clone())?;
    receive(&mut line, b"it", &mut Place { memory: target, watermark: 0 }, &|| false)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(line);
    let mine = processor_seconds() - before;
    Ok((seconds, mine + sender.join().map_err(|_| "the sender panicked")??))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let len = arguments.next().transpose()?.unwrap_or(256) << 20;
    let pairs = arguments.next().transpose()?.unwrap_or(9);
    let source = Arc::new(Memory::new(len, |at| (at ^ (at >> 9)) as u8)?);
    let mut target = Memory::new(len, |_| 0)?;
    let variant = |block: u32, checksum: bool| BulkOptions { block: block << 10, checksum, ..BulkOptions::default() };
    let variants = [
        ("16 KiB", variant(16, false)),
        ("64 KiB", variant(64, false)),
        ("256 KiB", variant(256, false)),
        ("1 MiB", variant(1024, false)),
        ("256 KiB, checksum", variant(256, true)),
    ];
    raw(&source, &mut target)?;
    for (name, options) in variants {
        let (mut rates, mut costs, mut plain, mut plain_costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let gigabytes = len as f64 / 1e9;
        for _ in 0..pairs {
            let (raw_seconds, raw_cost) = raw(&source, &mut target)?;
            target.bytes_mut().fill(0);
            let (seconds, cost) = bulk(&source, &mut target, &options)?;
            if target.bytes() != source.bytes() {
                return Err("the bytes differ".into());
            }
            rates.push(raw_seconds / seconds);
            costs.push(cost / raw_cost);
            plain.push(gigabytes / raw_seconds);
            plain_costs.push(raw_cost / gigabytes);
        }
        println!(
            "{name:<18} {:>5.2} x the rate of a plain copy ({:.2} GB/s), {:>5.2} x its processor time ({:.2} s/GB)",
            median(rates),
            median(plain),
            median(costs),
            median(plain_costs)
        );
    }
    Ok(())
}
