//! Steps of the admission of inputs.

use super::*;
use crate::id::NodeId;

const CAPACITY: u64 = 150;
const MERGE: FunctionKey = FunctionKey(7);

struct Bench {
    machine: Gather,
    now: Tick,
    in_use: Vec<(ObjectKey, u64)>,
}

impl Bench {
    fn new() -> Self {
        Self { machine: Gather::default(), now: Tick(1_000_000), in_use: Vec::new() }
    }

    fn hear(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.machine.step(event, self.now, &mut effects);
        assert_eq!(effects, []);
    }

    fn ask(&mut self, slot: u32, purpose: Purpose, objects: std::ops::Range<u32>, len: u64) -> BundleId {
        let inputs = objects.map(|entry| ((entry, 1), len)).collect();
        let id = id(slot, u64::from(slot));
        let lease = Some(LeaseId(u64::from(slot)));
        self.hear(Event::Asked(Bundle { id, lease, purpose, inputs, arriving_bytes: 0 }));
        id
    }

    fn look(&mut self) -> Vec<BundleId> {
        let mut effects = Vec::new();
        let in_use = self.in_use.clone();
        self.machine.step(Event::Looked { capacity: CAPACITY, in_use }, self.now, &mut effects);
        effects.into_iter().map(|Effect::Admit(id)| id).collect()
    }

    fn end(&mut self, id: BundleId, output_bytes: Option<u64>) {
        self.hear(Event::Ended { id, output_bytes });
    }

    fn pause(&mut self, slot: u32, paused: bool) {
        let process = process(slot);
        self.hear(Event::Paused { process, lease: LeaseId(u64::from(slot)), paused });
    }

    fn pass(&mut self, us: u64) {
        self.now = self.now.plus_us(us);
    }
}

fn process(slot: u32) -> ProcessId {
    ProcessId { node: NodeId(0), slot, incarnation: 1 }
}

fn id(slot: u32, request: RequestId) -> BundleId {
    BundleId { process: process(slot), request }
}

#[test]
fn inputs_come_together_or_not_at_all() {
    let mut bench = Bench::new();
    let first = bench.ask(1, Purpose::Start(MERGE), 0..10, 4);
    let second = bench.ask(2, Purpose::Start(MERGE), 10..20, 4);
    // 40 bytes of inputs and as much of output each: two are 160.
    assert_eq!(bench.look(), [first]);
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), []);
    bench.end(first, Some(40));
    assert_eq!(bench.look(), [second]);
    assert!(!bench.machine.has_waiting());
}

#[test]
fn output_is_learned_from_earlier_runs() {
    let mut bench = Bench::new();
    let first = bench.ask(1, Purpose::Start(MERGE), 0..10, 5);
    assert_eq!(bench.look(), [first]);
    bench.end(first, Some(8));
    let second = bench.ask(2, Purpose::Start(MERGE), 10..20, 5);
    let third = bench.ask(3, Purpose::Start(MERGE), 20..30, 5);
    let other = bench.ask(4, Purpose::Start(FunctionKey(8)), 40..42, 5);
    assert_eq!(bench.look(), [second, third, other]);
}

#[test]
fn a_later_bundle_that_fits_does_not_overtake() {
    let mut bench = Bench::new();
    let first = bench.ask(1, Purpose::Start(MERGE), 0..10, 5);
    assert_eq!(bench.look(), [first]);
    let large = bench.ask(2, Purpose::Start(MERGE), 10..20, 7);
    let small = bench.ask(3, Purpose::Start(FunctionKey(8)), 30..31, 1);
    assert_eq!(bench.look(), []);
    bench.end(first, Some(50));
    assert_eq!(bench.look(), [large, small]);
}

#[test]
fn shared_inputs_count_once() {
    let mut bench = Bench::new();
    bench.in_use = vec![((0, 1), 100)];
    // All read the same 100 bytes, which a task that needed no bundle holds as well.
    let none = |bench: &mut Bench, slot| {
        bench.hear(Event::Ended { id: id(slot, u64::from(slot)), output_bytes: None });
    };
    for slot in 1..4 {
        let read = bench.ask(slot, Purpose::Read, 0..1, 100);
        assert_eq!(bench.look(), [read]);
    }
    for slot in 1..4 {
        none(&mut bench, slot);
    }
}

#[test]
fn what_is_in_use_elsewhere_is_waited_for_and_then_exceeded() {
    let mut bench = Bench::new();
    bench.in_use = vec![((90, 1), 120)];
    let asked = bench.ask(1, Purpose::Read, 0..1, 50);
    assert_eq!(bench.look(), []);
    bench.pass(PATIENCE_US - 1);
    assert_eq!(bench.look(), []);
    bench.pass(1);
    assert_eq!(bench.look(), [asked]);
    // A view that is dropped meanwhile makes room at once.
    let again = bench.ask(2, Purpose::Read, 1..2, 40);
    assert_eq!(bench.look(), []);
    bench.in_use.clear();
    assert_eq!(bench.look(), [again]);
}

#[test]
fn a_bundle_longer_than_the_store_is_admitted_alone() {
    let mut bench = Bench::new();
    let first = bench.ask(1, Purpose::Start(MERGE), 0..1, 10);
    assert_eq!(bench.look(), [first]);
    let huge = bench.ask(2, Purpose::Start(MERGE), 10..20, 40);
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), []);
    bench.end(first, Some(1));
    assert_eq!(bench.look(), []);
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), [huge]);
}

#[test]
fn a_task_that_waits_for_another_does_not_hold_it_back() {
    let mut bench = Bench::new();
    let parent = bench.ask(1, Purpose::Start(MERGE), 0..10, 7);
    assert_eq!(bench.look(), [parent]);
    let child = bench.ask(2, Purpose::Start(MERGE), 10..20, 7);
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), []);
    bench.pause(1, true);
    assert_eq!(bench.look(), [child]);
    // It goes on, and others wait for it again.
    bench.pause(1, false);
    bench.end(child, Some(70));
    let other = bench.ask(3, Purpose::Start(MERGE), 20..30, 7);
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), []);
    bench.end(parent, Some(70));
    assert_eq!(bench.look(), [other]);
}

#[test]
fn a_running_task_that_reads_more_goes_before_tasks_that_have_not_started() {
    let mut bench = Bench::new();
    let running = bench.ask(1, Purpose::Start(MERGE), 0..10, 7);
    assert_eq!(bench.look(), [running]);
    let waiting = bench.ask(2, Purpose::Start(MERGE), 10..20, 7);
    // The task that holds the memory waits for memory itself: nobody else can give it any.
    let inputs = vec![((50, 1), 60)];
    let more = id(1, 99);
    bench.hear(Event::Asked(Bundle {
        id: more,
        lease: Some(LeaseId(1)),
        purpose: Purpose::Read,
        inputs,
        arriving_bytes: 0,
    }));
    bench.pass(PATIENCE_US);
    assert_eq!(bench.look(), [more]);
    bench.end(more, None);
    bench.end(running, Some(10));
    assert_eq!(bench.look(), [waiting]);
}

#[test]
fn copies_from_other_nodes_are_given_room_for_before_they_are_fetched() {
    let mut bench = Bench::new();
    let bundle = |slot: u32| Bundle {
        id: id(slot, 1),
        lease: Some(LeaseId(u64::from(slot))),
        purpose: Purpose::Start(MERGE),
        inputs: vec![((slot, 1), 10)],
        arriving_bytes: 30,
    };
    for slot in [1, 2] {
        bench.hear(Event::Asked(bundle(slot)));
    }
    // 40 bytes of inputs and as much of output each.
    assert_eq!(bench.look(), [id(1, 1)]);
    assert_eq!(bench.look(), []);
    bench.end(id(1, 1), Some(5));
    assert_eq!(bench.look(), [id(2, 1)]);
}

#[test]
fn a_task_that_never_ends_does_not_starve_others() {
    let mut bench = Bench::new();
    let service = bench.ask(1, Purpose::Start(MERGE), 0..10, 7);
    assert_eq!(bench.look(), [service]);
    let other = bench.ask(2, Purpose::Start(MERGE), 10..20, 7);
    bench.pass(PATIENCE_LONG_US - 1);
    assert_eq!(bench.look(), []);
    bench.pass(1);
    assert_eq!(bench.look(), [other]);
}

#[test]
fn the_death_of_a_process_gives_its_room_to_the_next() {
    let mut bench = Bench::new();
    let first = bench.ask(1, Purpose::Start(MERGE), 0..10, 7);
    assert_eq!(bench.look(), [first]);
    bench.ask(2, Purpose::Start(MERGE), 10..20, 7);
    let third = bench.ask(3, Purpose::Start(MERGE), 20..30, 7);
    assert_eq!(bench.look(), []);
    bench.hear(Event::ProcessGone(process(2)));
    assert_eq!(bench.look(), []);
    bench.hear(Event::ProcessGone(process(1)));
    assert_eq!(bench.look(), [third]);
    assert!(!bench.machine.has_waiting());
}

#[test]
fn the_number_of_functions_that_are_remembered_is_bounded() {
    let mut bench = Bench::new();
    for number in 0..=FUNCTIONS_MAX as u64 {
        let asked = bench.ask(1, Purpose::Start(FunctionKey(number)), 0..1, 1);
        assert_eq!(bench.look(), [asked]);
        bench.end(asked, Some(5));
    }
    assert_eq!(bench.machine.outputs.len(), 1);
}
