//! Both ends over loopback sockets: whole, in parts, broken at random points, chained, and against nonsense.
#![allow(clippy::unwrap_used)]

mod host;
mod pool;

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::frame::Header;
use super::low_water::LowWater;
use super::*;
use crate::wire::{PlainWire, Wire};

/// An object of which a part may be final.
#[derive(Clone, Debug)]
struct Growing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: Vec<u8>,
    ready: Mutex<Result<u64, String>>,
    changed: Condvar,
}

impl Growing {
    fn new(len: usize, ready: u64) -> Self {
        let bytes = (0..len).map(|at| (at ^ (at >> 9)) as u8).collect();
        Self(Arc::new(Inner { bytes, ready: Mutex::new(Ok(ready)), changed: Condvar::new() }))
    }

    fn whole(len: usize) -> Self {
        Self::new(len, len as u64)
    }

    fn become_ready(&self, ready: Result<u64, String>) {
        *self.0.ready.lock().unwrap() = ready;
        self.0.changed.notify_all();
    }
}

impl Source for Growing {
    fn len(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    fn wait_beyond(&self, at: u64, patience: Duration) -> Result<u64, String> {
        let more = |ready: &mut Result<u64, String>| ready.as_ref().is_ok_and(|ready| *ready <= at);
        let ready = self.0.ready.lock().unwrap();
        self.0.changed.wait_timeout_while(ready, patience, more).unwrap().0.clone()
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        &self.0.bytes[range.start as usize..range.end as usize]
    }
}

/// Objects by one-byte keys.
#[derive(Clone, Default)]
struct Shelf(BTreeMap<u8, Growing>);

impl Catalogue for Shelf {
    fn find(&mut self, key: &[u8], waiting: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String> {
        waiting().map_err(|why| why.to_string())?;
        let found = key.first().and_then(|key| self.0.get(key)).cloned();
        found.map(|found| Box::new(found) as Box<dyn Source>).ok_or_else(|| format!("no object {key:?}"))
    }
}

/// A place that tells who waits how far it is.
#[derive(Debug, Default)]
struct Place {
    bytes: Vec<u8>,
    watermark: usize,
    told: Option<Growing>,
}

impl Place {
    fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], watermark: 0, told: None }
    }
}

impl Sink for Place {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_sent_on(&self) -> bool {
        self.told.is_some()
    }

    fn watermark(&self) -> u64 {
        self.watermark as u64
    }

    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]> {
        Ok(&mut self.bytes[self.watermark..self.watermark + most])
    }

    fn advance(&mut self, len: u64) -> io::Result<()> {
        self.watermark += len as usize;
        if let Some(told) = &self.told {
            told.become_ready(Ok(self.watermark as u64));
        }
        Ok(())
    }
}

fn options() -> BulkOptions {
    BulkOptions { block: 16 << 10, silence: Duration::from_secs(5), ..BulkOptions::default() }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}

fn line(stream: TcpStream, options: &BulkOptions) -> Line {
    Line::new(Box::new(PlainWire::new(stream).unwrap()), options.clone()).unwrap()
}

type Serving = JoinHandle<(Sent, Result<(), Break>)>;

/// A connection to a thread that serves the shelf.
fn served(shelf: &Shelf) -> (TcpStream, Serving) {
    let (near, far) = sockets();
    let mut shelf = shelf.clone();
    let serving = std::thread::spawn(move || serve(line(far, &options()), &mut shelf, &|| false));
    (near, serving)
}

fn go() -> impl Fn() -> bool {
    || false
}

/// A wire that breaks, or damages a byte, after so many bytes were read from it. It calls itself protected, so that no
/// byte goes past it.
struct Faulty {
    wire: PlainWire,
    left: usize,
    damage: bool,
}

impl Wire for Faulty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.damage {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let room = if self.damage { buffer.len() } else { buffer.len().min(self.left) };
        let read = self.wire.read(&mut buffer[..room])?;
        if self.damage && (1..=read).contains(&self.left) {
            buffer[self.left - 1] ^= 1;
        }
        self.left = self.left.saturating_sub(read);
        Ok(read)
    }
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.wire.write_vectored(slices)
    }
    fn is_protected(&self) -> bool {
        true
    }
    fn raw_fd(&self) -> BorrowedFd<'_> {
        self.wire.raw_fd()
    }
    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
    fn wants_write(&self) -> bool {
        self.wire.wants_write()
    }
    fn has_buffered(&self) -> bool {
        self.wire.has_buffered()
    }
    fn finish(&mut self) {
        self.wire.finish();
    }
    fn peer_addr(&self) -> SocketAddr {
        self.wire.peer_addr()
    }
}

fn faulty(stream: TcpStream, left: usize, damage: bool, options: &BulkOptions) -> Line {
    let wire = PlainWire::new(stream).unwrap();
    Line::new(Box::new(Faulty { wire, left, damage }), options.clone()).unwrap()
}

#[test]
fn objects_of_all_sizes_follow_each_other_on_one_connection() {
    let lens = [0, 1, 15, 16 << 10, (5 << 20) + 3, 40 << 20];
    let shelf = Shelf(lens.iter().enumerate().map(|(key, len)| (key as u8, Growing::whole(*len))).collect());
    for checksum in [false, true] {
        let (stream, serving) = served(&shelf);
        let mut line = line(stream, &BulkOptions { checksum, ..options() });
        for (key, len) in lens.iter().enumerate() {
            let mut place = Place::new(*len);
            assert_eq!(receive(&mut line, &[key as u8], &mut place, &go()), Ok(()));
            assert!(place.watermark == *len && place.bytes == shelf.0[&(key as u8)].0.bytes);
        }
        drop(line);
        let (sent, end) = serving.join().unwrap();
        assert_eq!((sent.objects, sent.bytes), (6, lens.iter().sum::<usize>() as u64));
        assert_eq!(end, Ok(()));
    }
}

#[test]
fn what_is_not_there_is_refused_in_words_and_the_connection_goes_on() {
    let shelf = Shelf([(1, Growing::whole(100))].into());
    let (stream, serving) = served(&shelf);
    let mut line = line(stream, &options());
    let refused = receive(&mut line, &[9], &mut Place::new(5), &go()).unwrap_err();
    assert_eq!(refused, ReceiveError::Gone { reason: "no object [9]".into() });
    // A receiver that thinks that it has more than there is.
    let mut beyond = Place { watermark: 101, ..Place::new(200) };
    let refused = receive(&mut line, &[1], &mut beyond, &go()).unwrap_err();
    assert!(matches!(&refused, ReceiveError::Gone { reason } if reason.contains("100 bytes")), "{refused}");
    let mut place = Place::new(100);
    assert_eq!(receive(&mut line, &[1], &mut place, &go()), Ok(()));
    drop(line);
    assert_eq!(serving.join().unwrap().0.objects, 1);
}

#[test]
fn an_object_of_another_length_is_not_taken() {
    let (stream, serving) = served(&Shelf([(1, Growing::whole(100))].into()));
    let refused = receive(&mut line(stream, &options()), &[1], &mut Place::new(99), &go()).unwrap_err();
    assert!(refused.to_string().contains("100 bytes for one of 99"), "{refused}");
    let (sent, end) = serving.join().unwrap();
    assert!(sent.objects == 0 && end.is_err());
}

#[test]
fn a_part_is_forwarded_before_the_whole_is_there() {
    let first = Growing::new(1 << 20, 0);
    let (to_first, serving_first) = served(&Shelf([(1, first.clone())].into()));
    // The second has the same bytes in its memory, and says of each when it has arrived.
    let second = Growing::new(1 << 20, 0);
    let (to_second, serving_second) = served(&Shelf([(1, second.clone())].into()));
    let middle = std::thread::spawn(move || {
        let mut place = Place { told: Some(second), ..Place::new(1 << 20) };
        receive(&mut line(to_first, &options()), &[1], &mut place, &go())
    });
    let third = Growing::new(1 << 20, 0);
    let told = third.clone();
    let last = std::thread::spawn(move || {
        let mut place = Place { told: Some(told), ..Place::new(1 << 20) };
        receive(&mut line(to_second, &options()), &[1], &mut place, &go()).map(|()| place.bytes)
    });
    for part in [100_000, 500_000, 1 << 20] {
        first.become_ready(Ok(part));
        // At least all but what is too little to forward arrives at the end of the chain while the rest is missing.
        let enough = if part == 1 << 20 { part } else { part - (16 << 10) };
        assert!(third.wait_beyond(enough - 1, Duration::from_secs(20)).unwrap() >= enough);
    }
    assert_eq!(middle.join().unwrap(), Ok(()));
    assert!(last.join().unwrap().unwrap() == first.0.bytes);
    for serving in [serving_first, serving_second] {
        assert_eq!(serving.join().unwrap().0.objects, 1);
    }
}

#[test]
fn a_sender_that_goes_in_the_middle_of_a_large_block_leaves_all_that_it_sent() {
    let len = 32 << 20;
    // Who sends it on does not wait for more than there is.
    for (told, waited_for) in [(None, 64 << 10), (Some(Growing::new(len, 0)), 1)] {
        let (near, mut far) = sockets();
        let sender = std::thread::spawn(move || {
            far.write_all(&Header::Offer { len: len as u64 }.encode()).unwrap();
            far.write_all(&Header::Block { len: 1 << 20, checksum: 0 }.encode()).unwrap();
            // The last part is less than a read waits for.
            far.write_all(&[7; 300_000]).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            far
        });
        let (mut line, mut place) = (line(near, &options()), Place { told, ..Place::new(len) });
        let broken = receive(&mut line, &[1], &mut place, &go()).unwrap_err();
        let why = Break::Closed { waited_for: "the rest of a block" };
        assert_eq!(broken, ReceiveError::Broken { watermark: 300_000, why });
        assert!(place.bytes[..300_000].iter().all(|byte| *byte == 7));
        assert_eq!(line.low_water, LowWater::at(waited_for));
        drop(sender.join().unwrap());
    }
}

#[test]
fn a_source_that_ends_leaves_what_came_and_the_connection() {
    let (growing, whole) = (Growing::new(1 << 20, 300_000), Growing::whole(10));
    let (stream, serving) = served(&Shelf([(1, growing.clone()), (2, whole)].into()));
    let mut line = line(stream, &options());
    let told = Growing::new(1 << 20, 0);
    let mut place = Place { told: Some(told.clone()), ..Place::new(1 << 20) };
    let ender = std::thread::spawn(move || {
        told.wait_beyond(299_999, Duration::from_secs(20)).unwrap();
        growing.become_ready(Err("its own sender died".into()));
    });
    let ended = receive(&mut line, &[1], &mut place, &go()).unwrap_err();
    assert_eq!(ended, ReceiveError::Ended { watermark: 300_000, reason: "its own sender died".into() });
    assert_eq!(receive(&mut line, &[2], &mut Place::new(10), &go()), Ok(()));
    ender.join().unwrap();
    drop(line);
    assert_eq!(serving.join().unwrap().0, Sent { objects: 1, bytes: 300_010 });
}

#[test]
fn a_peer_that_says_nothing_is_left_with_a_reason() {
    let (near, far) = sockets();
    let short = BulkOptions { silence: Duration::from_millis(300), ..options() };
    let start = Instant::now();
    let broken = receive(&mut line(near, &short), &[1], &mut Place::new(5), &go()).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(broken.to_string().contains("waited for an answer to a request"), "{broken}");
    drop(far);
    // A receiver that reads nothing is as silent to its sender.
    let (mut near, far) = sockets();
    let mut shelf = Shelf([(1, Growing::whole(64 << 20))].into());
    let serving = std::thread::spawn(move || serve(line(far, &short), &mut shelf, &|| false).1);
    let request = Request { key: vec![1], from: 0, block: 16 << 10, checksum: false, host: None };
    near.write_all(&request.header().unwrap().encode()).unwrap();
    near.write_all(&[1]).unwrap();
    let silent = serving.join().unwrap().unwrap_err();
    assert!(matches!(silent, Break::Silent { .. }), "{silent}");
}

#[test]
fn a_transfer_that_is_told_to_stop_ends_although_nothing_comes() {
    let (stream, _serving) = served(&Shelf([(1, Growing::new(1 << 20, 0))].into()));
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let receiving = std::thread::spawn(move || {
        receive(&mut line(stream, &options()), &[1], &mut Place::new(1 << 20), &|| told.load(Ordering::Relaxed))
    });
    stop.store(true, Ordering::Relaxed);
    let broken = receiving.join().unwrap().unwrap_err();
    assert_eq!(broken, ReceiveError::Broken { watermark: 0, why: Break::Stopped });
}

#[test]
fn damage_on_the_way_is_found_and_nothing_of_its_block_counts() {
    let shelf = Shelf([(1, Growing::whole(100_000))].into());
    let (stream, _serving) = served(&shelf);
    let checked = BulkOptions { checksum: true, ..options() };
    let mut place = Place::new(100_000);
    // Headers are `Waiting`, `Offer` and one per block; the byte is in the third block.
    let mut line = faulty(stream, 16 * 5 + (40 << 10), true, &checked);
    let broken = receive(&mut line, &[1], &mut place, &go()).unwrap_err();
    assert!(broken.to_string().contains("checksum"), "{broken}");
    assert_eq!(place.watermark, 32 << 10);
    let (stream, _serving) = served(&shelf);
    assert_eq!(receive(&mut super::tests::line(stream, &checked), &[1], &mut place, &go()), Ok(()));
    assert!(place.bytes == shelf.0[&1].0.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_connections_break_the_rest_comes_from_the_watermark(
        cuts in prop::collection::vec(0usize..120_000, 1..6),
        len in 1usize..300_000,
        checksum: bool,
    ) {
        let shelf = Shelf([(1, Growing::whole(len))].into());
        let options = BulkOptions { checksum, ..options() };
        let mut place = Place::new(len);
        let mut whole = false;
        for cut in cuts {
            let (stream, serving) = served(&shelf);
            let before = place.watermark;
            let result = receive(&mut faulty(stream, cut, false, &options), &[1], &mut place, &go());
            let sent = serving.join().unwrap().0;
            prop_assert!(sent.bytes as usize <= len - before);
            match result {
                Ok(()) => whole = true,
                Err(ReceiveError::Broken { watermark, .. }) => prop_assert_eq!(watermark as usize, place.watermark),
                Err(other) => prop_assert!(false, "{}", other),
            }
            prop_assert!(place.bytes[..place.watermark] == shelf.0[&1].0.bytes[..place.watermark]);
            if whole {
                break;
            }
        }
        if !whole {
            let (stream, _serving) = served(&shelf);
            prop_assert_eq!(receive(&mut line(stream, &options), &[1], &mut place, &go()), Ok(()));
        }
        prop_assert!(place.bytes == shelf.0[&1].0.bytes);
    }

    #[test]
    fn nonsense_ends_either_end_and_panics_neither(bytes in prop::collection::vec(any::<u8>(), 0..400), tag in 1u8..12) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        let (near, mut far) = sockets();
        far.write_all(&bytes).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let mut place = Place::new(1000);
        prop_assert!(receive(&mut line(near, &options()), &[1], &mut place, &go()).is_err());
        let (near, mut far) = sockets();
        far.write_all(&bytes).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let mut shelf = Shelf([(1, Growing::whole(10))].into());
        let reader = std::thread::spawn(move || far.read_to_end(&mut Vec::new()));
        let (sent, _) = serve(line(near, &options()), &mut shelf, &|| false);
        prop_assert!(sent.objects <= 1);
        let _ = reader.join().unwrap();
    }
}
