#![allow(clippy::unwrap_used)]

use super::*;
use crate::id::FunctionKey;
use crate::resources::{Amount, Resources};
use crate::shared::Shared;
use crate::spec::{TaskKind, TaskOptions};

const OWNER: ProcessId = ProcessId::DRIVER;
const WORKER: ProcessId = ProcessId { node: crate::id::NodeId::ALONE, slot: 2, incarnation: 1 };

fn task(n: u64) -> TaskId {
    TaskId::root(1, OWNER).child(0, n, 0)
}

fn spec(n: u64, attempt: u32, returns: u32) -> Arc<TaskSpec> {
    Arc::new(TaskSpec {
        id: task(n),
        parent: TaskId::root(1, OWNER),
        function: FunctionKey(1),
        digest: 7,
        attempt,
        lane: 0,
        depth: 1,
        returns,
        kind: TaskKind::Plain,
        stream: None,
        options: Arc::new(TaskOptions {
            name: "work".into(),
            resources: Resources::cpus(Amount::whole(1)),
            retries_max: 3,
            ..TaskOptions::default()
        }),
        dependencies: Vec::new(),
        nested: Vec::new(),
        payload: Shared::default(),
    })
}

fn submitted(n: u64, attempt: u32) -> Record {
    Record::Submitted { at: Tick(1), spec: spec(n, attempt, 1) }
}

fn started(n: u64, attempt: u32) -> Record {
    Record::Started { at: Tick(2), task: task(n), attempt }
}

fn finished(n: u64, attempt: u32, byte: u8) -> Record {
    Record::Finished { at: Tick(3), task: task(n), attempt, values: vec![Value::inline(vec![byte])] }
}

fn freed(n: u64) -> Record {
    Record::Freed { object: ObjectId::result(task(n), 0) }
}

fn apply(ledger: &mut Ledger, records: impl IntoIterator<Item = (ProcessId, Record)>) {
    for (process, record) in records {
        ledger.apply(process, record);
    }
}

#[test]
fn a_task_is_forgotten_when_it_is_finished_and_freed_in_any_order_of_rings() {
    let records = [(OWNER, submitted(1, 0)), (OWNER, freed(1)), (WORKER, started(1, 0)), (WORKER, finished(1, 0, 5))];
    // Every merge of the two rings that keeps the order within each.
    for order in [[0, 1, 2, 3], [0, 2, 1, 3], [0, 2, 3, 1], [2, 0, 1, 3], [2, 0, 3, 1], [2, 3, 0, 1]] {
        let mut ledger = Ledger::default();
        apply(&mut ledger, order.map(|i| records[i].clone()));
        assert!(ledger.task(task(1)).is_none(), "LED-1 in order {order:?}");
        assert_eq!(ledger.owned_by(OWNER), 0);
        assert_eq!((ledger.counts().submitted, ledger.counts().finished), (1, 1));
    }
}

#[test]
fn the_first_result_of_the_highest_attempt_wins() {
    let mut ledger = Ledger::default();
    apply(&mut ledger, [(OWNER, submitted(1, 0)), (WORKER, finished(1, 0, 1)), (WORKER, finished(1, 0, 2))]);
    let object = ObjectId::result(task(1), 0);
    assert_eq!(ledger.value(object), Some(&Value::inline(vec![1])), "LED-2");
    apply(&mut ledger, [(OWNER, submitted(1, 1))]);
    assert_eq!(ledger.value(object), None, "a higher attempt reopens");
    apply(&mut ledger, [(WORKER, finished(1, 0, 3)), (WORKER, started(1, 1)), (WORKER, finished(1, 1, 4))]);
    assert_eq!(ledger.value(object), Some(&Value::inline(vec![4])));
    apply(&mut ledger, [(OWNER, Record::Settled { task: task(1), value: Value::failed(Failure::ShutDown) })]);
    assert_eq!(ledger.value(object), Some(&Value::inline(vec![4])), "a settlement comes too late");
}

#[test]
fn a_settled_task_ignores_the_run_that_goes_on() {
    let mut ledger = Ledger::default();
    let value = Value::failed(Failure::Cancelled { task: task(1) });
    apply(&mut ledger, [(OWNER, submitted(1, 0)), (OWNER, Record::Settled { task: task(1), value: value.clone() })]);
    apply(&mut ledger, [(WORKER, started(1, 0)), (WORKER, finished(1, 0, 1))]);
    assert_eq!(ledger.value(ObjectId::result(task(1), 0)), Some(&value));
}

#[test]
fn late_records_of_a_forgotten_task_leave_nothing_after_a_few_passes() {
    let mut ledger = Ledger::default();
    let value = Value::failed(Failure::Cancelled { task: task(1) });
    apply(
        &mut ledger,
        [(OWNER, submitted(1, 0)), (OWNER, Record::Settled { task: task(1), value }), (OWNER, freed(1))],
    );
    assert!(ledger.task(task(1)).is_none());
    apply(&mut ledger, [(WORKER, started(1, 0)), (WORKER, finished(1, 0, 1))]);
    for _ in 0..=UNNAMED_PASSES_MAX {
        assert!(ledger.task(task(1)).is_some());
        ledger.pass();
    }
    assert!(ledger.task(task(1)).is_none());
}

#[test]
fn of_several_results_the_rest_stays_when_one_is_freed() {
    let mut ledger = Ledger::default();
    let at = Location { node: crate::id::NodeId::ALONE, entry: 1, generation: 1, offset: 0, len: 100_000 };
    let stored = Value { body: Body::Stored(at), nested: Vec::new() };
    let values = vec![stored, Value::inline(vec![2])];
    ledger.apply(OWNER, Record::Submitted { at: Tick(1), spec: spec(1, 0, 2) });
    ledger.apply(WORKER, Record::Finished { at: Tick(3), task: task(1), attempt: 0, values });
    ledger.apply(OWNER, freed(1));
    let first = ledger.value(ObjectId::result(task(1), 0)).unwrap();
    assert!(matches!(first.failure(), Some(Failure::ObjectLost { .. })));
    assert_eq!(ledger.value(ObjectId::result(task(1), 1)), Some(&Value::inline(vec![2])));
    ledger.apply(OWNER, Record::Freed { object: ObjectId::result(task(1), 1) });
    assert!(ledger.task(task(1)).is_none());
}

#[test]
fn a_held_entry_outlives_its_owner_s_count_and_gives_its_place_when_let_go() {
    let mut ledger = Ledger::default();
    let at = Location { node: crate::id::NodeId::ALONE, entry: 1, generation: 1, offset: 0, len: 100_000 };
    let object = ObjectId::put(task(1), 0, 0, 0);
    let value = Value { body: Body::Stored(at), nested: Vec::new() };
    ledger.apply(OWNER, Record::Put { object, digest: 1, value });
    ledger.hold(object, true);
    ledger.apply(OWNER, Record::Freed { object });
    assert!(ledger.value(object).is_some());
    assert_eq!(ledger.hold(object, false), [at]);
    assert!(ledger.put(object).is_none());
}

#[test]
fn only_the_last_finished_tasks_are_remembered() {
    let mut ledger = Ledger::default();
    for n in 0..tables::RECENT_TASKS_MAX as u64 + 5 {
        apply(&mut ledger, [(OWNER, submitted(n, 0)), (OWNER, freed(n)), (WORKER, finished(n, 0, 0))]);
    }
    assert_eq!(ledger.recent().count(), tables::RECENT_TASKS_MAX);
    assert_eq!(ledger.recent().next().unwrap().task, task(5));
    assert!(ledger.task_ids().is_empty());
}

fn streaming(n: u64, attempt: u32) -> Record {
    let stream = Some(crate::stream::Stream::default());
    Record::Submitted { at: Tick(1), spec: Arc::new(TaskSpec { stream, ..(*spec(n, attempt, 1)).clone() }) }
}

fn stored_at(entry: u32) -> Value {
    let at = Location { node: crate::id::NodeId::ALONE, entry, generation: 1, offset: 0, len: 1 << 20 };
    Value { body: Body::Stored(at), nested: Vec::new() }
}

fn yielded(n: u64, index: u32, entry: u32) -> Record {
    Record::Yielded { task: task(n), attempt: 0, index, value: stored_at(entry) }
}

#[test]
fn a_stream_is_forgotten_when_its_end_and_its_items_are_freed_in_any_order_of_rings() {
    let end = Record::Finished { at: Tick(3), task: task(1), attempt: 0, values: vec![crate::stream::end_value(1)] };
    let item = Record::Freed { object: ObjectId::item(task(1), 0) };
    let records =
        [(OWNER, streaming(1, 0)), (OWNER, item), (OWNER, freed(1)), (WORKER, yielded(1, 0, 1)), (WORKER, end)];
    for order in [[0, 1, 2, 3, 4], [0, 1, 3, 2, 4], [0, 3, 1, 2, 4], [0, 3, 4, 1, 2], [3, 0, 1, 2, 4], [3, 4, 0, 1, 2]]
    {
        let mut ledger = Ledger::default();
        apply(&mut ledger, order.map(|i| records[i].clone()));
        assert!(ledger.task(task(1)).is_none(), "LED-1 in order {order:?}: {:?}", ledger.task(task(1)));
        assert_eq!(ledger.owned_by(OWNER), 0);
    }
}

#[test]
fn the_first_record_of_an_item_wins_and_the_bytes_of_later_ones_are_told_str_1() {
    let mut ledger = Ledger::default();
    apply(&mut ledger, [(OWNER, streaming(1, 0))]);
    let object = ObjectId::item(task(1), 0);
    assert_eq!(ledger.yielded(task(1), 0, 0, stored_at(1)), None);
    assert_eq!(ledger.yielded(task(1), 1, 0, stored_at(2)), stored(&stored_at(2)));
    assert_eq!(ledger.value(object), Some(&stored_at(1)));
    assert_eq!(ledger.free_item(object, false), stored(&stored_at(1)));
    assert_eq!(ledger.yielded(task(1), 2, 0, stored_at(3)), stored(&stored_at(3)), "freed, so nobody asks");
    // Another owner has freed nothing: for it the item is made again.
    ledger.set_owner(ObjectId::result(task(1), 0), WORKER);
    assert_eq!(ledger.yielded(task(1), 3, 0, stored_at(4)), None);
    assert_eq!(ledger.drop_task(task(1)), [stored(&stored_at(4)).unwrap()], "nothing leaks with an orphan");
}

#[test]
fn an_owner_that_adopts_its_own_stream_again_has_freed_what_it_has_freed() {
    let mut ledger = Ledger::default();
    let (end, item) = (ObjectId::result(task(1), 0), ObjectId::item(task(1), 0));
    let failed = Value::failed(Failure::Cancelled { task: task(1) });
    let stopped = Record::Finished { at: Tick(3), task: task(1), attempt: 0, values: vec![failed] };
    apply(&mut ledger, [(OWNER, streaming(1, 0)), (WORKER, yielded(1, 0, 1))]);
    ledger.hold(end, true);
    ledger.free_item(item, true);
    apply(&mut ledger, [(WORKER, stopped)]);
    ledger.set_owner(end, OWNER);
    apply(&mut ledger, [(OWNER, freed(1))]);
    assert_eq!(ledger.hold(end, false), [stored(&stored_at(1)).unwrap()]);
    assert!(ledger.task(task(1)).is_none(), "nothing of it is left: {:?}", ledger.task(task(1)));
}

#[test]
fn a_stream_that_stopped_because_its_owner_died_has_not_ended() {
    let mut ledger = Ledger::default();
    let end = ObjectId::result(task(1), 0);
    let lost = Value::failed(Failure::OwnerDied { object: end, owner: OWNER });
    let stopped = Record::Finished { at: Tick(3), task: task(1), attempt: 0, values: vec![lost] };
    apply(
        &mut ledger,
        [(OWNER, streaming(1, 0)), (WORKER, started(1, 0)), (WORKER, yielded(1, 0, 1)), (WORKER, stopped)],
    );
    assert!(!ledger.is_final(task(1)) && ledger.beyond(ObjectId::item(task(1), 1)).is_none());
    assert_eq!(ledger.items_from(task(1), 0), [(0, stored_at(1))]);
    let ended = Record::Finished { at: Tick(3), task: task(1), attempt: 1, values: vec![crate::stream::end_value(1)] };
    apply(&mut ledger, [(WORKER, started(1, 1)), (WORKER, ended)]);
    assert!(ledger.is_whole(task(1), false));
    let beyond = ledger.beyond(ObjectId::item(task(1), 1)).unwrap();
    assert_eq!(beyond.failure(), Some(&Failure::StreamEnded { task: task(1), items: 1 }));
}

fn at(entry: u32) -> Location {
    Location { node: crate::id::NodeId::ALONE, entry, generation: 1, offset: 0, len: 1 << 20 }
}

fn finished_stored(n: u64, attempt: u32, entry: u32) -> Record {
    let value = Value { body: Body::Stored(at(entry)), nested: vec![] };
    Record::Finished { at: Tick(3), task: task(n), attempt, values: vec![value] }
}

#[test]
fn the_places_of_values_that_do_not_count_are_given_back() {
    let mut ledger = Ledger::default();
    apply(&mut ledger, [(OWNER, submitted(1, 1)), (WORKER, finished_stored(1, 0, 5))]);
    assert_eq!(ledger.take_lost(), [at(5)], "of an older attempt");
    apply(&mut ledger, [(WORKER, finished_stored(1, 1, 6)), (WORKER, finished_stored(1, 1, 6))]);
    assert!(!ledger.has_lost(), "the same again is no other value");
    ledger.apply(WORKER, finished_stored(1, 1, 7));
    assert_eq!(ledger.take_lost(), [at(7)], "of a second end");
    let put = |entry| Record::Put {
        object: ObjectId::put(task(1), 0, 1, 0),
        digest: 1,
        value: Value { body: Body::Stored(at(entry)), nested: vec![] },
    };
    apply(&mut ledger, [(WORKER, put(8)), (WORKER, put(9))]);
    assert_eq!(ledger.take_lost(), [at(8)], "of a put that was made again");
}

#[test]
fn the_place_of_a_freed_value_is_given_back_in_whatever_order_the_records_come() {
    let mut ledger = Ledger::default();
    apply(&mut ledger, [(OWNER, submitted(1, 0)), (WORKER, finished_stored(1, 0, 5)), (OWNER, freed(1))]);
    assert_eq!(ledger.take_lost(), [at(5)]);
    apply(&mut ledger, [(OWNER, submitted(2, 0)), (OWNER, freed(2)), (WORKER, finished_stored(2, 0, 6))]);
    assert_eq!(ledger.take_lost(), [at(6)]);
    apply(&mut ledger, [(OWNER, submitted(3, 0)), (WORKER, finished_stored(3, 0, 7))]);
    ledger.hold(ObjectId::result(task(3), 0), true);
    ledger.apply(OWNER, freed(3));
    assert!(!ledger.has_lost(), "not while somebody holds it");
}

#[test]
fn what_was_submitted_finished_and_failed_is_counted() {
    let mut ledger = Ledger::default();
    let failed = Value::failed(Failure::ObjectLost { object: ObjectId::result(task(2), 0), reason: String::new() });
    for n in 1..=3 {
        apply(&mut ledger, [(OWNER, submitted(n, 0)), (WORKER, started(n, 0))]);
    }
    apply(&mut ledger, [(WORKER, finished(1, 0, 5))]);
    apply(&mut ledger, [(WORKER, Record::Finished { at: Tick(3), task: task(2), attempt: 0, values: vec![failed] })]);
    let counts = ledger.counts();
    assert_eq!((counts.submitted, counts.finished, counts.failed), (3, 2, 1));
}

#[test]
fn a_stream_that_has_ended_stays_while_one_of_its_items_does() {
    let mut ledger = Ledger::default();
    let stream = Some(crate::stream::Stream { items_max: 0, bytes_max: 0 });
    let spec = Arc::new(TaskSpec { stream, ..(*spec(1, 0, 1)).clone() });
    apply(&mut ledger, [(OWNER, Record::Submitted { at: Tick(1), spec }), (WORKER, started(1, 0))]);
    let value = Value::inline(vec![4]);
    apply(&mut ledger, [(WORKER, Record::Yielded { task: task(1), attempt: 0, index: 0, value })]);
    apply(&mut ledger, [(WORKER, finished(1, 0, 5)), (OWNER, freed(1))]);
    assert_eq!(ledger.task_ids(), [task(1)], "its item can be asked for");
    apply(&mut ledger, [(OWNER, Record::Freed { object: ObjectId::item(task(1), 0) })]);
    assert!(ledger.task_ids().is_empty());
}
