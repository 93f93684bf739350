//! Streams: tasks and actor calls whose results come one by one.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::id::ActorId;
use bireme_runtime::core::resources::{Amount, Resources};
use bireme_runtime::core::spec::{ActorOptions, TaskOptions};
use bireme_runtime::core::stream::Stream;
use bireme_runtime::core::value::RefSpec;
use bireme_runtime::{Encoded, Error, Function, Invocation, Ref, Runtime, Submit, Target, inventory};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use support::{Gate, Journal, Scratch, Watch, eventually, my_pid, note, pass, start, two_cpus};

/// What a source does.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Plan {
    /// Items.
    items: u32,
    /// Bytes of each.
    bytes: usize,
    /// Where it notes what it does.
    journal: Option<PathBuf>,
    /// A gate that it passes before this item.
    gate: Option<(u32, PathBuf)>,
    /// Ends with an error after the items.
    fails: bool,
}

/// Yields numbers: its own process and the place of the item, then zeros.
fn source(call: &mut Invocation<'_>) -> Result<(), Failure> {
    let plan: Plan = postcard::from_bytes(call.payload).unwrap();
    let tell = |text: String| plan.journal.iter().for_each(|journal| note(journal, &text));
    tell(format!("pid {}", my_pid()));
    for index in 0..plan.items {
        if let Some((at, gate)) = &plan.gate
            && *at == index
        {
            pass(gate);
        }
        tell(format!("yield {index}"));
        let mut head = [my_pid().to_le_bytes(), index.to_le_bytes()].concat();
        head.resize(plan.bytes.max(8), 0);
        if let Err(failure) = call.yield_item(Encoded { head, ..Encoded::default() }) {
            tell(format!("stopped: {failure}"));
            return Err(failure);
        }
    }
    if plan.fails {
        let (task, name) = (call.task, call.name.to_owned());
        return Err(Failure::Returned { task, name, type_name: "Planned".into(), message: "planned".into() });
    }
    Ok(())
}

/// Reads a stream to its end and returns the sum of the places.
fn reader(call: &mut Invocation<'_>) -> Result<(), Failure> {
    let spec: RefSpec = postcard::from_bytes(call.payload).unwrap();
    let (runtime, end) = (Runtime::current().unwrap(), Ref::adopt(spec).unwrap());
    let places = read_to_the_end(&runtime, &end, 1);
    let sum: u32 = places.iter().map(|(_, place)| place).sum();
    call.outputs.push(Encoded { head: sum.to_le_bytes().to_vec(), ..Encoded::default() });
    Ok(())
}

fn construct(call: &mut Invocation<'_>) -> Result<(), Failure> {
    *call.actor = Some(Box::new(()));
    call.outputs.push(Encoded::default());
    Ok(())
}

inventory::submit! { Function::by_hand("tests::streams::source", source) }
inventory::submit! { Function::by_hand("tests::streams::reader", reader) }
inventory::submit! { Function::by_hand("tests::streams::construct", construct) }

fn key(name: &str) -> bireme_runtime::core::id::FunctionKey {
    let path = format!("tests::streams::{name}");
    Function::all().find(|function| function.signature == path).unwrap().key()
}

fn ask(name: &str, payload: Vec<u8>, stream: Option<Stream>) -> Submit {
    let options = TaskOptions {
        name: name.into(),
        resources: Resources::cpus(Amount::whole(1)),
        retries_max: 3,
        retry_on: Vec::new(),
        environment: 0,
        calls_max: 0,
        ..TaskOptions::default()
    };
    Submit {
        function: key(name),
        options: Arc::new(options),
        returns: 1,
        target: Target::Plain,
        stream,
        dependencies: Vec::new(),
        nested: Vec::new(),
        payload,
        keep: Vec::new(),
        inherits: true,
    }
}

fn stream(runtime: &Runtime, plan: &Plan, limits: Stream) -> Ref {
    let mut ends = runtime.submit(ask("source", postcard::to_allocvec(plan).unwrap(), Some(limits))).unwrap();
    ends.pop().unwrap()
}

fn unlimited() -> Stream {
    Stream::default()
}

/// Process and place of an item.
fn numbers(bytes: &[u8]) -> (i32, u32) {
    let word = |at: usize| bytes[at..at + 4].try_into().unwrap();
    (i32::from_le_bytes(word(0)), u32::from_le_bytes(word(4)))
}

fn next(runtime: &Runtime, end: &Ref, index: u64) -> Result<(i32, u32), Error> {
    let item = runtime.stream_item(end, index)?;
    let bytes = runtime.get(&item, Some(support::PATIENCE))?;
    runtime.take_item(end, index)?;
    Ok(numbers(&bytes))
}

/// Reads from item `from` on, counted from 1.
fn read_to_the_end(runtime: &Runtime, end: &Ref, from: u64) -> Vec<(i32, u32)> {
    let mut places = Vec::new();
    for index in from - 1.. {
        match next(runtime, end, index) {
            Ok(place) => places.push(place),
            Err(Error::Failed(failure)) => {
                let Failure::StreamEnded { items, .. } = *failure else { panic!("{failure}") };
                assert_eq!(u64::from(items), index);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    places
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Failed(failure) => (*failure).clone(),
        error => panic!("{error}"),
    }
}

#[test]
fn items_arrive_while_the_task_still_runs() {
    let _turn = start(two_cpus());
    let (runtime, scratch) = (Runtime::current().unwrap(), Scratch::new("stream"));
    let gate = Gate::closed(&scratch, "gate");
    let plan = Plan { items: 3, gate: Some((2, gate.path.clone())), ..Plan::default() };
    let end = stream(&runtime, &plan, unlimited());
    assert_eq!(next(&runtime, &end, 0).unwrap().1, 0);
    assert_eq!(next(&runtime, &end, 1).unwrap().1, 1);
    // The task stands before its gate.
    assert_eq!(runtime.wait(&[&end], 1, Some(Duration::ZERO)).unwrap(), [false]);
    let third = runtime.stream_item(&end, 2).unwrap();
    gate.open();
    assert_eq!(numbers(&runtime.get(&third, None).unwrap()).1, 2);
    let Failure::StreamEnded { items: 3, .. } = failure(next(&runtime, &end, 3).unwrap_err()) else { panic!() };
    assert_eq!(runtime.get(&end, None).unwrap()[..], 3u64.to_le_bytes());
    let after = next(&runtime, &end, 1_000).unwrap_err();
    assert!(matches!(failure(after), Failure::StreamEnded { items: 3, .. }));
}

#[test]
fn a_killed_source_runs_again_and_what_was_seen_stays() {
    let _turn = start(two_cpus());
    let (runtime, scratch) = (Runtime::current().unwrap(), Scratch::new("stream-kill"));
    let mut journal = Journal::new(&scratch, "journal");
    for bytes in [8, 200_000] {
        // Of this round alone: an open one would let the first source pass before it is killed.
        let gate = Gate::closed(&scratch, &format!("gate-{bytes}"));
        let at = Some((3, gate.path.clone()));
        let plan = Plan { items: 6, bytes, journal: Some(journal.path.clone()), gate: at, ..Plan::default() };
        let end = stream(&runtime, &plan, Stream { items_max: 4, bytes_max: 0 });
        let seen: Vec<_> = (0..2).map(|index| next(&runtime, &end, index).unwrap()).collect();
        let kept = runtime.stream_item(&end, 2).unwrap();
        let first = numbers(&runtime.get(&kept, None).unwrap());
        Watch::new(first.0).kill(Signal::KILL);
        let pids = |line: &str| line.strip_prefix("pid ").map(|pid| pid.parse::<i32>().unwrap());
        let again = std::iter::from_fn(|| Some(journal.next())).filter_map(|line| pids(&line)).nth(1).unwrap();
        gate.open();
        let rest = read_to_the_end(&runtime, &end, 4);
        assert_eq!(seen, [(first.0, 0), (first.0, 1)]);
        assert_eq!(rest, [(again, 3), (again, 4), (again, 5)]);
        assert_eq!(numbers(&runtime.get(&kept, None).unwrap()), first, "an object never changes");
        assert_eq!(runtime.get(&end, None).unwrap()[..], 6u64.to_le_bytes());
        journal.rest();
    }
}

#[test]
fn a_source_pauses_when_nobody_takes_and_goes_on_when_somebody_does() {
    let _turn = start(two_cpus());
    let (runtime, scratch) = (Runtime::current().unwrap(), Scratch::new("stream-pause"));
    let mut journal = Journal::new(&scratch, "journal");
    let plan = Plan { items: 20, bytes: 1_000, journal: Some(journal.path.clone()), ..Plan::default() };
    // Three items, by number and by bytes.
    for limits in [Stream { items_max: 3, bytes_max: 0 }, Stream { items_max: 0, bytes_max: 2_500 }] {
        let end = stream(&runtime, &plan, limits);
        let blocked = || runtime.state().unwrap().leases.iter().filter(|lease| lease.blocked).count() == 1;
        journal.take(1);
        for index in 0..20u64 {
            // It has given its CPU back: it waits, and has not begun to make another item.
            let made = journal.take(if index == 0 { 3 } else { usize::from(index < 18) });
            assert!(made.iter().all(|line| line.starts_with("yield ")), "{made:?}");
            if index < 17 {
                eventually("the source waits", blocked);
                assert!(journal.rest().is_empty());
            }
            assert_eq!(u64::from(next(&runtime, &end, index).unwrap().1), index);
        }
        assert_eq!(runtime.get(&end, None).unwrap()[..], 20u64.to_le_bytes());
    }
}

#[test]
fn a_stream_is_read_by_another_task() {
    let _turn = start(two_cpus());
    let runtime = Runtime::current().unwrap();
    for (items, bytes) in [(100, 8), (40, 100_000)] {
        let plan = Plan { items, bytes, ..Plan::default() };
        let end = stream(&runtime, &plan, Stream { items_max: 2, bytes_max: 0 });
        let mut asked = ask("reader", postcard::to_allocvec(&end.spec()).unwrap(), None);
        asked.nested = vec![end.spec()];
        asked.keep = vec![end];
        let sum = runtime.submit(asked).unwrap().pop().unwrap();
        let sum = runtime.get(&sum, None).unwrap();
        assert_eq!(u32::from_le_bytes(sum[..].try_into().unwrap()), items * (items - 1) / 2);
    }
    eventually("everything is freed", || runtime.state().unwrap().objects.is_empty());
}

#[test]
fn more_than_the_store_holds_passes_through_it() {
    let _turn = start(two_cpus().object_store_memory(8 << 20));
    let runtime = Runtime::current().unwrap();
    let plan = Plan { items: 100, bytes: 1 << 20, ..Plan::default() };
    let end = stream(&runtime, &plan, Stream { items_max: 2, bytes_max: 0 });
    assert_eq!(read_to_the_end(&runtime, &end, 1).len(), 100);
}

#[test]
fn a_reader_that_leaves_stops_the_source() {
    let _turn = start(two_cpus());
    let (runtime, scratch) = (Runtime::current().unwrap(), Scratch::new("stream-leave"));
    let mut journal = Journal::new(&scratch, "journal");
    let plan = Plan { items: u32::MAX, bytes: 100_000, journal: Some(journal.path.clone()), ..Plan::default() };
    for limits in [unlimited(), Stream { items_max: 2, bytes_max: 0 }] {
        let end = stream(&runtime, &plan, limits);
        let kept = runtime.stream_item(&end, 0).unwrap();
        runtime.get(&kept, None).unwrap();
        drop(end);
        while !journal.next().starts_with("stopped: ") {}
        assert_eq!(numbers(&runtime.get(&kept, None).unwrap()).1, 0);
        drop(kept);
        eventually("everything is freed", || {
            let state = runtime.state().unwrap();
            state.objects.is_empty() && state.tasks.iter().all(|task| task.run_us.is_some())
        });
    }
}

#[test]
fn the_next_item_of_a_cancelled_stream_is_that_it_was_cancelled() {
    let _turn = start(two_cpus());
    let runtime = Runtime::current().unwrap();
    let plan = Plan { items: u32::MAX, ..Plan::default() };
    let end = stream(&runtime, &plan, Stream { items_max: 2, bytes_max: 0 });
    for index in 0..3 {
        next(&runtime, &end, index).unwrap();
    }
    runtime.cancel(&end, false, true).unwrap();
    let (index, error) = (3..).find_map(|index| Some((index, next(&runtime, &end, index).err()?))).unwrap();
    assert!(matches!(failure(error), Failure::Cancelled { .. }));
    assert!(matches!(failure(next(&runtime, &end, index + 1).unwrap_err()), Failure::StreamEnded { .. }));
    assert!(matches!(failure(runtime.get(&end, None).err().unwrap()), Failure::Cancelled { .. }));
}

#[test]
fn an_error_in_the_middle_comes_after_the_items_before_it() {
    let _turn = start(two_cpus());
    let runtime = Runtime::current().unwrap();
    let end = stream(&runtime, &Plan { items: 2, fails: true, ..Plan::default() }, unlimited());
    assert_eq!(next(&runtime, &end, 0).unwrap().1, 0);
    assert_eq!(next(&runtime, &end, 1).unwrap().1, 1);
    assert!(matches!(failure(next(&runtime, &end, 2).unwrap_err()), Failure::Returned { .. }));
    assert!(matches!(failure(next(&runtime, &end, 3).unwrap_err()), Failure::StreamEnded { items: 2, .. }));
}

#[test]
fn an_actor_streams_too() {
    let _turn = start(two_cpus());
    let runtime = Runtime::current().unwrap();
    let mut create = ask("construct", Vec::new(), None);
    create.target = Target::Create { options: ActorOptions::default(), namespace: None };
    let handle = runtime.submit(create).unwrap().pop().unwrap();
    let actor = ActorId(handle.id().task());
    let call = |plan: &Plan| {
        let limits = Stream { items_max: 3, bytes_max: 0 };
        let mut asked = ask("source", postcard::to_allocvec(plan).unwrap(), Some(limits));
        asked.target = Target::Call { actor, handle: handle.clone(), pending_max: usize::MAX };
        runtime.submit(asked).unwrap().pop().unwrap()
    };
    let plan = Plan { items: 10, ..Plan::default() };
    let (first, second) = (call(&plan), call(&plan));
    let places: Vec<u32> = read_to_the_end(&runtime, &first, 1).into_iter().map(|(_, place)| place).collect();
    assert_eq!(places, (0..10).collect::<Vec<u32>>());
    assert_eq!(read_to_the_end(&runtime, &second, 1).len(), 10);
}

#[test]
fn a_stream_with_several_results_is_refused() {
    let _turn = start(two_cpus());
    let runtime = Runtime::current().unwrap();
    let mut asked = ask("source", Vec::new(), Some(unlimited()));
    asked.returns = 2;
    assert!(matches!(runtime.submit(asked), Err(Error::BadArgument(_))));
}
