//! Waits that explain themselves, and the tables behind the explanations.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

#[path = "support/link.rs"]
mod link;
mod support;

use std::path::PathBuf;
use std::time::Duration;

use bireme::{Bytes, Error, ObjectRef};
use link::Link;
use support::{Gate, Journal, Scratch, my_pid, note, pass, start, two_cpus};

const SHORT: Duration = Duration::from_millis(30);

#[bireme::remote(name = "holder")]
fn hold(gate: PathBuf, journal: PathBuf) -> u8 {
    note(&journal, my_pid());
    pass(&gate);
    1
}

#[bireme::remote(name = "add")]
fn add(a: u8, b: u8) -> u8 {
    a + b
}

#[bireme::remote(name = "wide", cpus = 2)]
fn wide() -> u8 {
    2
}

/// The explanation inside a timeout.
fn why<T: bireme::Value + std::fmt::Debug>(reference: &ObjectRef<T>) -> String {
    let error = reference.get_timeout(SHORT).unwrap_err();
    let Error::Timeout { object, waited, waiting_for } = error else { panic!("{error:?}") };
    assert_eq!(object, reference.id());
    assert!(waited >= SHORT && waited < Duration::from_secs(10));
    waiting_for
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn a_timeout_says_who_runs_the_task_and_for_how_long() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("running");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let running = hold::remote(gate.path.clone(), journal.path.clone());
    let pid = journal.next();
    has(&why(&running), &["holder", "running", &format!("pid {pid}"), " s"]);
    has(&bireme::explain(&running).unwrap(), &["holder", "running"]);
    gate.open();
    assert_eq!(running.get().unwrap(), 1);
    has(&running.explain().unwrap(), &["ready"]);
}

#[test]
fn a_timeout_says_for_which_cpus_a_task_is_queued_and_who_has_them() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("queued");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let running = hold::remote(gate.path.clone(), journal.path.clone());
    let pid = journal.next();
    let queued = wide::remote();
    has(&why(&queued), &["wide", "queued for 2 CPU", "1 of 2 CPUs are free", "holder", &pid]);
    gate.open();
    assert_eq!((running.get().unwrap(), queued.get().unwrap()), (1, 2));
}

#[test]
fn a_timeout_says_which_arguments_are_missing() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("arguments");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let first = hold::remote(gate.path.clone(), journal.path.clone());
    journal.next();
    // An actor's call waits for its arguments at the caller; a task may go ahead of them to the same worker.
    let counter = Counter::remote();
    counter.ready().get().unwrap();
    let call = counter.add(&first);
    has(&why(&call), &["add", "waits for 1 of its arguments", &first.id().to_string()]);
    let sum = add::remote(&first, hold::remote(gate.path.clone(), journal.path.clone()));
    let text = why(&sum);
    assert!(text.contains("argument") || text.contains("queued behind"), "{text}");
    gate.open();
    assert_eq!((call.get().unwrap(), sum.get().unwrap()), (1, 2));
}

#[derive(Default)]
pub struct Counter(u8);

#[bireme::actor]
impl Counter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, n: u8) -> u8 {
        self.0 += n;
        self.0
    }

    pub fn pass(&mut self, gate: PathBuf, journal: PathBuf) {
        note(&journal, my_pid());
        pass(&gate);
    }
}

#[test]
fn a_timeout_says_that_an_actor_is_busy_or_waits_for_resources() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("actor");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let counter = Counter::options().name("counter").remote();
    let busy = counter.pass(gate.path.clone(), journal.path.clone());
    journal.next();
    let behind = counter.add(1);
    has(&why(&behind), &["add", &counter.id().to_string(), "pending calls"]);
    let one = Counter::options().cpus(2.0).remote();
    one.ready().get().unwrap();
    let other = Counter::options().cpus(1.0).remote();
    has(&why(&other.ready()), &["queued for 1 CPU", "0 of 2 CPUs are free"]);
    has(&why(&other.add(1)), &["add", "has not started"]);
    gate.open();
    busy.get().unwrap();
    assert_eq!(behind.get().unwrap(), 1);
    one.kill().unwrap();
    assert_eq!(other.add(1).get().unwrap(), 2);
}

#[bireme::remote]
fn lend(gate: PathBuf, journal: PathBuf) -> ObjectRef<u8> {
    hold::remote(gate, journal)
}

#[test]
fn a_timeout_of_a_borrowed_object_explains_itself_too() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("borrowed");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let borrowed = lend::remote(gate.path.clone(), journal.path.clone()).get().unwrap();
    journal.next();
    let text = why(&borrowed);
    assert!(text.contains("holder") && text.contains("running"), "{text}");
    gate.open();
    assert_eq!(borrowed.get().unwrap(), 1);
}

#[test]
fn state_lists_tasks_actors_workers_objects_leases_and_resources() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("state");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let counter = Counter::options().name("counter").remote();
    counter.ready().get().unwrap();
    let stored = bireme::put(Bytes::from(vec![7; 1 << 20])).unwrap();
    let running = hold::remote(gate.path.clone(), journal.path.clone());
    let pid: u32 = journal.next().parse().unwrap();
    let state = bireme::state().unwrap();
    let task = state.tasks.iter().find(|row| row.task == running.id().task()).unwrap();
    assert_eq!((task.name.as_str(), format!("{:?}", task.stage).as_str()), ("holder", "Running"));
    let worker = state.workers.iter().find(|row| Some(row.process) == task.worker).unwrap();
    assert_eq!(worker.pid, pid);
    let actor = state.actors.iter().find(|row| row.actor == counter.id()).unwrap();
    assert_eq!((actor.name.as_deref(), actor.state.as_str()), (Some("counter"), "alive"));
    let object = state.objects.iter().find(|row| row.object == stored.id()).unwrap();
    assert!(object.stored && object.len.is_some_and(|len| len >= 1 << 20), "{object:?}");
    assert_eq!(state.resources.free.cpus.as_f64(), 1.0);
    assert!(!state.leases.is_empty());
    gate.open();
    running.get().unwrap();
    let id = stored.id();
    drop((stored, running, counter));
    support::eventually("a dropped object and a dropped actor are gone", || {
        let state = bireme::state().unwrap();
        let gone = !state.objects.iter().any(|row| row.object == id);
        gone && !state.actors.iter().any(|row| row.state == "alive")
    });
}

#[test]
fn a_wait_gives_what_is_ready_and_leaves_the_rest() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("wait");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let closed = hold::remote(gate.path.clone(), journal.path.clone());
    journal.next();
    let quick = add::remote(1, 1);
    let (ready, rest) = bireme::wait(&[closed.clone(), quick.clone()], 1, None).unwrap();
    assert_eq!((ready, rest), (vec![quick.clone()], vec![closed.clone()]));
    let (ready, rest) = bireme::wait(&[closed.clone(), quick.clone()], 2, Some(SHORT)).unwrap();
    assert_eq!((ready, rest), (vec![quick.clone()], vec![closed.clone()]));
    gate.open();
    assert_eq!(bireme::wait(&[closed, quick], 2, None).unwrap().0.len(), 2);
    assert!(matches!(bireme::wait::<ObjectRef<u8>>(&[], 1, None), Err(Error::BadArgument(_))));
}

#[test]
fn an_actor_that_waits_for_itself_and_actors_that_wait_for_each_other_are_explained() {
    let _turn = start(two_cpus());
    let (one, two) = (Link::remote(), Link::remote());
    let alone = Link::remote();
    for (links, advice) in [
        (vec![alone.clone(), alone], "call the method directly"),
        (vec![one.clone(), two, one], "they wait for each other for ever"),
    ] {
        let actors: Vec<String> = links.iter().map(|link| link.id().to_string()).collect();
        let call = links[0].pass_on(links[1..].to_vec());
        support::eventually("the circle is seen", || call.explain().unwrap().contains("calls in a circle"));
        let text = call.explain().unwrap();
        has(&text, &["pass_on", advice]);
        actors.iter().for_each(|actor| has(&text, &[actor]));
    }
}
