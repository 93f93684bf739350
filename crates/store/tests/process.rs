//! Real processes: a reader or writer that is killed leaks nothing and corrupts nothing (`OBJ-3`).
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bireme_store::{
    Arena, FreeOutcome, Location, PinError, ProcessSlot, Sealed, SpillOptions, Store, StoreClient, Table,
    UnsealedLocation,
};

struct Machine {
    arena: Arc<Arena>,
    table: Arc<Table>,
    store: Store,
}

impl Machine {
    fn new() -> Self {
        let arena = Arc::new(Arena::create(4 << 20).unwrap());
        let table = Arc::new(Table::create().unwrap());
        arena.set_inheritable(true).unwrap();
        table.set_inheritable(true).unwrap();
        let mut store = Store::new(Arc::clone(&arena), Arc::clone(&table), SpillOptions::default());
        store.admit_process(slot(0));
        Self { arena, table, store }
    }

    fn client(&self) -> StoreClient {
        StoreClient::new(Arc::clone(&self.arena), Arc::clone(&self.table), slot(0))
    }

    /// Starts this test program again as a process of its own and waits until it has done `role`.
    fn start(&mut self, role: &str, slot: ProcessSlot, location: Location) -> Child {
        self.store.admit_process(slot);
        let bytes: Vec<String> = location.to_bytes().iter().map(u8::to_string).collect();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env("STORE_ROLE", role)
            .env("STORE_SLOT", slot.index().to_string())
            .env("STORE_ARENA", self.arena.fd().as_raw_fd().to_string())
            .env("STORE_TABLE", self.table.fd().as_raw_fd().to_string())
            .env("STORE_LOCATION", bytes.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")), "the other process failed");
        child
    }
}

fn slot(index: u32) -> ProcessSlot {
    ProcessSlot::new(index).unwrap()
}

fn put(machine: &mut Machine, bytes: &[u8]) -> Sealed {
    let mut writer = machine.client().writer(machine.store.create(bytes.len() as u64).unwrap()).unwrap();
    writer.copy_from(bytes).unwrap();
    writer.seal().unwrap()
}

#[test]
#[ignore = "started by the other tests as a process of its own"]
fn the_other_process() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let open = |name: &str| {
        let number: i32 = variable(name).parse().unwrap();
        // SAFETY: the parent left this descriptor open for us, and nobody else in this process owns it.
        unsafe { OwnedFd::from_raw_fd(number) }
    };
    let arena = Arc::new(Arena::from_fd(open("STORE_ARENA")).unwrap());
    let table = Arc::new(Table::from_fd(open("STORE_TABLE")).unwrap());
    let client = StoreClient::new(arena, table, slot(variable("STORE_SLOT").parse().unwrap()));
    let bytes: Vec<u8> = variable("STORE_LOCATION").split(',').map(|byte| byte.parse().unwrap()).collect();
    let location = Location::from_bytes(&bytes).unwrap();
    let mut pins = Vec::new();
    let mut writers = Vec::new();
    match variable("STORE_ROLE").as_str() {
        "reader" => {
            pins.extend((0..3).map(|_| client.pin(Sealed(location)).unwrap()));
            assert!(pins[0].iter().all(|byte| *byte == 6));
        }
        "writer" => {
            let mut writer = client.writer(UnsealedLocation(location)).unwrap();
            writer.copy_from(&[3; 10]).unwrap();
            writers.push(writer);
        }
        role => panic!("no role {role}"),
    }
    println!("ready");
    std::io::stdout().flush().unwrap();
    // Until the parent kills us or goes away.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_reader_killed_while_it_holds_pins_leaks_nothing() {
    let mut machine = Machine::new();
    let sealed = put(&mut machine, &[6; 5000]);
    let mut reader = machine.start("reader", slot(7), sealed.0);
    assert!(machine.store.is_pinned(sealed.0.entry));
    assert!(machine.store.spill_candidates(1).is_empty());
    assert_eq!(machine.store.free(sealed.0.entry, sealed.0.generation), Ok(FreeOutcome::Deferred));
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(machine.store.sweep(), 0, "its pins count until the node knows that it is dead");
    machine.store.release_process(slot(7)).unwrap();
    let stats = machine.store.stats();
    assert_eq!((stats.used, stats.objects, stats.deferred), (0, 0, 0));
    assert_eq!(machine.client().pin(sealed).unwrap_err(), PinError::Moved);
    let again = put(&mut machine, &[6; 5000]);
    let mut second = machine.start("reader", slot(7), again.0);
    second.kill().unwrap();
    second.wait().unwrap();
    machine.store.release_process(slot(7)).unwrap();
    assert!(!machine.store.is_pinned(again.0.entry));
    assert_eq!(*machine.client().pin(again).unwrap(), [6; 5000]);
}

#[test]
fn a_writer_killed_half_way_can_be_aborted_and_its_part_was_readable() {
    let mut machine = Machine::new();
    let location = machine.store.create(100).unwrap();
    let mut writer = machine.start("writer", slot(2), location.0);
    assert_eq!(*machine.client().pin_partial(location).unwrap(), [3; 10]);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(machine.store.abort(location), Ok(FreeOutcome::Deferred));
    machine.store.release_process(slot(2)).unwrap();
    assert_eq!(machine.store.stats().objects, 0);
    assert!(machine.client().pin_partial(location).is_err());
}

#[test]
fn a_descriptor_that_is_no_arena_is_refused() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Arena::from_fd(file.into()).is_err());
    let arena = Arena::create(1 << 20).unwrap();
    assert!(Table::from_fd(arena.fd().try_clone_to_owned().unwrap()).is_err());
    assert!(Arena::create(0).is_err() && Arena::create(5000).is_err() && Arena::create(1 << 50).is_err());
}
