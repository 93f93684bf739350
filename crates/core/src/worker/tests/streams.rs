//! Streaming tasks at the worker.

use super::*;
use crate::stream::{Stream, end_value};
use crate::worker::Pace;

fn streaming(bench: &mut Bench, items_max: u32, bytes_max: u64) -> Arc<TaskSpec> {
    let spec = Arc::new(TaskSpec { stream: Some(Stream { items_max, bytes_max }), ..(*bench.task()).clone() });
    bench.run(OWNER, LEASE, &spec);
    spec
}

fn yields(bench: &mut Bench, spec: &TaskSpec, byte: u8) -> Vec<Effect> {
    bench.step(Event::Yielded { task: spec.id, value: value(byte) })
}

fn taken(bench: &mut Bench, spec: &TaskSpec, items: u32) -> Vec<Effect> {
    bench.step(Event::FromPeer { peer: OWNER, message: Peer::Taken { task: spec.id, items } })
}

#[test]
fn an_item_is_recorded_before_it_is_sent_and_the_end_counts_them() {
    let mut bench = Bench::leased();
    let spec = streaming(&mut bench, 0, 0);
    let (task, attempt) = (spec.id, spec.attempt);
    for index in 0..2 {
        let record = Record::Yielded { task, attempt, index, value: value(7) };
        let send = Effect::Send { to: OWNER, message: Peer::Item { task, attempt, index, value: value(7) } };
        assert_eq!(yields(&mut bench, &spec, 7), [Effect::Record(record), send]);
    }
    let effects = bench.step(Event::Finished { lease: LEASE, task, values: vec![] });
    assert_eq!(effects, [finished(&bench, &spec, end_value(2)), reply(OWNER, &spec, end_value(2))]);
    assert_eq!(bench.worker.pace(&task), None);
}

#[test]
fn it_pauses_at_its_bound_until_some_are_taken() {
    let mut bench = Bench::leased();
    let spec = streaming(&mut bench, 2, 0);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go));
    yields(&mut bench, &spec, 1);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go));
    yields(&mut bench, &spec, 2);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Pause));
    assert_eq!(taken(&mut bench, &spec, 1), [Effect::Rouse(spec.id)]);
    assert_eq!(taken(&mut bench, &spec, 1), [], "told twice");
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go));
    // A repeated run hears of more than it has yielded.
    assert_eq!(taken(&mut bench, &spec, 9), []);
    for _ in 0..8 {
        yields(&mut bench, &spec, 3);
    }
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go), "one of ten was not taken");
}

#[test]
fn bytes_count_as_well() {
    let mut bench = Bench::leased();
    let spec = streaming(&mut bench, 0, 2);
    yields(&mut bench, &spec, 1);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go));
    yields(&mut bench, &spec, 1);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Pause));
    taken(&mut bench, &spec, 1);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Go));
}

#[test]
fn a_cancelled_stream_stops_also_when_it_pauses() {
    let mut bench = Bench::leased();
    let spec = streaming(&mut bench, 1, 0);
    yields(&mut bench, &spec, 1);
    let effects = bench.step(Event::FromPeer { peer: OWNER, message: Peer::Cancel { task: spec.id, recursive: true } });
    assert!(effects.contains(&Effect::Rouse(spec.id)) && effects.contains(&Effect::Flag(spec.id)));
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Stop));
}

#[test]
fn a_stream_whose_owner_died_stops_and_its_run_counts_as_lost() {
    let mut bench = Bench::leased();
    let spec = streaming(&mut bench, 1, 0);
    yields(&mut bench, &spec, 1);
    assert_eq!(bench.die(OWNER), [Effect::Rouse(spec.id)]);
    assert_eq!(bench.worker.pace(&spec.id), Some(Pace::Stop));
    let cancelled = Value::failed(Failure::Cancelled { task: spec.id });
    let effects = bench.finish(LEASE, &spec, cancelled);
    let lost = Failure::OwnerDied { object: ObjectId::result(spec.id, 0), owner: OWNER };
    assert_eq!(effects[0], finished(&bench, &spec, Value::failed(lost)));
}
