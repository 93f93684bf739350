//! Copies within one host: bytes are read where they lie, or come over the connection when they cannot be.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;

use super::*;

/// An object in a memory file, which counts what of it goes over the connection.
#[derive(Clone)]
struct Held {
    object: Growing,
    offset: u64,
    memory: Arc<Memory>,
}

struct Memory {
    file: OwnedFd,
    held: HeldFile,
    on_wire: AtomicU64,
    asked: AtomicU64,
}

impl Memory {
    fn of(file: OwnedFd) -> Self {
        let held = HeldFile::of(file.as_fd()).unwrap();
        Self { file, held, on_wire: AtomicU64::new(0), asked: AtomicU64::new(0) }
    }
}

impl Source for Held {
    fn len(&self) -> u64 {
        self.object.len()
    }

    fn wait_beyond(&self, at: u64, patience: Duration) -> Result<u64, String> {
        self.object.wait_beyond(at, patience)
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        self.memory.on_wire.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.object.bytes(range)
    }

    /// In two places, one after the other.
    fn contiguous_until(&self, at: u64) -> u64 {
        let half = self.len() / 2;
        if at < half { half } else { self.len() }
    }

    fn offset(&self, at: u64) -> Option<u64> {
        Some(self.offset + at + if at < self.len() / 2 { 0 } else { GAP })
    }
}

/// Bytes of something else between the halves of an object.
const GAP: u64 = 100;

#[derive(Clone)]
struct Files {
    objects: BTreeMap<u8, Held>,
    memory: Arc<Memory>,
}

impl Catalogue for Files {
    fn find(&mut self, key: &[u8], _: &mut dyn FnMut() -> Result<(), Break>) -> Result<Box<dyn Source>, String> {
        let found = key.first().and_then(|key| self.objects.get(key)).cloned();
        found.map(|found| Box::new(found) as Box<dyn Source>).ok_or_else(|| format!("no object {key:?}"))
    }

    fn file(&self) -> Option<HeldFile> {
        self.memory.asked.fetch_add(1, Ordering::Relaxed);
        Some(self.memory.held)
    }
}

impl Files {
    /// The objects one after another in a file.
    fn new(objects: &[Growing]) -> Self {
        let file = rustix::fs::memfd_create(c"bulk-test", MemfdFlags::CLOEXEC).unwrap();
        let mut offset = 33;
        let offsets: Vec<u64> = objects
            .iter()
            .map(|object| {
                let (start, (first, second)) = (offset, object.0.bytes.split_at(object.0.bytes.len() / 2));
                for (part, at) in [(first, start), (second, start + first.len() as u64 + GAP)] {
                    let written = if part.is_empty() { 0 } else { rustix::io::pwrite(&file, part, at).unwrap() };
                    assert_eq!(written, part.len());
                }
                offset += object.len() + GAP;
                start
            })
            .collect();
        let memory = Arc::new(Memory::of(file));
        let held = |(object, offset): (&Growing, u64)| Held { object: object.clone(), offset, memory: memory.clone() };
        let objects = objects.iter().zip(offsets).map(held).enumerate().map(|(key, held)| (key as u8, held)).collect();
        Self { objects, memory: Arc::clone(&memory) }
    }

    fn on_wire(&self) -> u64 {
        self.memory.on_wire.load(Ordering::Relaxed)
    }

    fn served(&self, options: &BulkOptions) -> (TcpStream, Serving) {
        let (near, far) = sockets();
        let (mut files, options) = (self.clone(), options.clone());
        let serving = std::thread::spawn(move || serve(line(far, &options), &mut files, &|| false));
        (near, serving)
    }
}

fn here() -> BulkOptions {
    BulkOptions { host: HostMark::of_this_process(), ..options() }
}

#[test]
fn bytes_are_read_where_they_lie_and_little_goes_over_the_connection() {
    let lens = [0, 1, 100_000, (5 << 20) + 3, 40 << 20];
    let objects = lens.map(Growing::whole);
    let files = Files::new(&objects);
    let (stream, serving) = files.served(&here());
    let mut line = line(stream, &here());
    for (key, object) in objects.iter().enumerate() {
        let mut place = Place::new(object.0.bytes.len());
        assert_eq!(receive(&mut line, &[key as u8], &mut place, &go()), Ok(()));
        assert!(place.bytes == object.0.bytes);
    }
    assert_eq!(files.on_wire(), 100_001, "only what is too small to talk about");
    drop(line);
    let (sent, end) = serving.join().unwrap();
    assert_eq!((sent.objects, end), (5, Ok(())));
}

#[test]
fn who_is_elsewhere_or_wants_checksums_or_does_not_ask_gets_the_bytes() {
    let object = Growing::whole(1 << 20);
    let files = Files::new(std::slice::from_ref(&object));
    let elsewhere = BulkOptions { host: Some(HostMark::of_words("elsewhere")), ..options() };
    let checked = BulkOptions { checksum: true, ..here() };
    for (sender, receiver) in [(here(), elsewhere), (here(), checked), (here(), options()), (options(), here())] {
        let before = files.on_wire();
        let (stream, _serving) = files.served(&sender);
        let mut place = Place::new(1 << 20);
        assert_eq!(receive(&mut line(stream, &receiver), &[0], &mut place, &go()), Ok(()));
        assert!(place.bytes == object.0.bytes);
        assert_eq!(files.on_wire() - before, 1 << 20);
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_no_error_and_not_tried_again() {
    let object = Growing::whole(1 << 20);
    let mut files = Files::new(std::slice::from_ref(&object));
    let gone = Files::new(&[Growing::whole(7)]).memory.held;
    files.memory = Arc::new(Memory { held: gone, ..Memory::of(files.memory.file.try_clone().unwrap()) });
    let (stream, _serving) = files.served(&here());
    let mut line = line(stream, &here());
    for _ in 0..2 {
        let mut place = Place::new(1 << 20);
        assert_eq!(receive(&mut line, &[0], &mut place, &go()), Ok(()));
        assert!(place.bytes == object.0.bytes);
    }
    assert_eq!(files.memory.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_part_is_read_before_the_whole_is_there_and_an_end_leaves_it() {
    let object = Growing::new(4 << 20, 0);
    let files = Files::new(std::slice::from_ref(&object));
    let (stream, _serving) = files.served(&here());
    let told = Growing::new(4 << 20, 0);
    let mut place = Place { told: Some(told.clone()), ..Place::new(4 << 20) };
    let feeder = std::thread::spawn({
        let object = object.clone();
        move || {
            for part in [1 << 20, 3 << 20] {
                object.become_ready(Ok(part));
                told.wait_beyond(part - 1, Duration::from_secs(20)).unwrap();
            }
            object.become_ready(Err("its own sender died".into()));
        }
    });
    let mut first = line(stream, &here());
    let ended = receive(&mut first, &[0], &mut place, &go()).unwrap_err();
    assert_eq!(ended, ReceiveError::Ended { watermark: 3 << 20, reason: "its own sender died".into() });
    feeder.join().unwrap();
    // The rest comes on the same connection when there is more.
    object.become_ready(Ok(4 << 20));
    assert_eq!(receive(&mut first, &[0], &mut place, &go()), Ok(()));
    assert!(place.bytes == object.0.bytes);
    assert_eq!(files.on_wire(), 0);
}

#[test]
fn what_a_receiver_may_be_reading_is_held_until_it_has_closed_the_connection() {
    let files = Files::new(&[Growing::whole(1 << 20)]);
    let short = BulkOptions { silence: Duration::from_millis(300), ..here() };
    let (mut stream, serving) = files.served(&short);
    let request = Request { key: vec![0], from: 0, block: 16 << 10, checksum: false, host: here().host };
    stream.write_all(&request.header().unwrap().encode()).unwrap();
    stream.write_all(&request.behind()).unwrap();
    // The offer and the file.
    stream.read_exact(&mut [0; 16 + 16 + 32]).unwrap();
    let holders = Arc::strong_count(&files.memory);
    stream.write_all(&super::super::frame::Header::Reads { yes: true }.encode()).unwrap();
    // Both halves are there, and then it hears nothing from us: it loses patience and says no more, and holds on.
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said.len(), 32);
    assert_eq!(Arc::strong_count(&files.memory), holders);
    assert!(!serving.is_finished());
    drop(stream);
    let (sent, end) = serving.join().unwrap();
    assert!(sent.objects == 0 && matches!(end, Err(Break::Silent { .. })), "{end:?}");
    assert!(Arc::strong_count(&files.memory) < holders);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_connections_break_the_rest_is_read_from_the_watermark(
        cuts in prop::collection::vec(0usize..200, 1..6),
        len in 300_000usize..2_000_000,
    ) {
        let object = Growing::whole(len);
        let files = Files::new(std::slice::from_ref(&object));
        let mut place = Place::new(len);
        for cut in cuts {
            let (stream, serving) = files.served(&here());
            let before = place.watermark;
            let result = receive(&mut faulty(stream, cut, false, &here()), &[0], &mut place, &go());
            drop(serving.join().unwrap());
            prop_assert!(place.watermark >= before && place.bytes[..place.watermark] == object.0.bytes[..place.watermark]);
            if result.is_ok() {
                break;
            }
        }
        let (stream, _serving) = files.served(&here());
        prop_assert_eq!(receive(&mut line(stream, &here()), &[0], &mut place, &go()), Ok(()));
        prop_assert!(place.bytes == object.0.bytes);
    }
}
