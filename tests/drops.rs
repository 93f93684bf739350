//! The end of actors: their destructors run whenever their process can end by itself, and never twice.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;

use bireme::Failure;
use support::{Gate, Journal, PATIENCE, Scratch, Watch, my_pid, note, pass, start, two_cpus};

#[bireme::remote]
fn double(n: i64) -> i64 {
    n * 2
}

/// What an actor's destructor does beside its note.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub enum Last {
    Nothing,
    /// Asks the runtime for something.
    RunTask,
    Panic,
}

pub struct Crew {
    journal: PathBuf,
    name: String,
    last: Last,
    _below: Option<CrewHandle>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        let seen = match self.last {
            Last::Nothing => String::new(),
            Last::RunTask => format!(" {}", double::remote(21).get().unwrap()),
            Last::Panic => {
                note(&self.journal, format!("{} panics", self.name));
                panic!("overboard")
            }
        };
        note(&self.journal, format!("{} dropped{seen}", self.name));
    }
}

#[bireme::actor]
impl Crew {
    pub fn new(journal: PathBuf, name: String, last: Last, below: Option<CrewHandle>) -> Self {
        Crew { journal, name, last, _below: below }
    }

    pub fn pid(&self) -> i32 {
        my_pid()
    }

    pub fn wait_at(&mut self, gate: PathBuf) -> i64 {
        note(&self.journal, "waits");
        pass(&gate);
        1
    }

    pub fn run_for_ever(&mut self) {
        note(&self.journal, "runs");
        loop {
            std::thread::park();
        }
    }
}

fn crew(journal: &Journal, name: &str, last: Last) -> CrewHandle {
    Crew::remote(journal.path.clone(), name, last, None)
}

#[test]
fn an_actor_is_dropped_after_its_last_handle() {
    let scratch = Scratch::new("drop-handle");
    let mut journal = Journal::new(&scratch, "journal");
    let _turn = start(two_cpus());
    let actor = crew(&journal, "one", Last::Nothing);
    let process = Watch::new(actor.pid().get().unwrap());
    let other = actor.clone();
    drop(actor);
    other.pid().get().unwrap();
    drop(other);
    assert_eq!(journal.next(), "one dropped");
    assert!(process.ended_within(PATIENCE));
    assert_eq!(journal.rest(), [""; 0]);
}

#[test]
fn handles_inside_an_actor_are_dropped_with_it() {
    let scratch = Scratch::new("drop-chain");
    let mut journal = Journal::new(&scratch, "journal");
    let _turn = start(two_cpus().cpus(4.0));
    let below = crew(&journal, "below", Last::Nothing);
    let above = Crew::remote(journal.path.clone(), "above", Last::Nothing, Some(below));
    above.pid().get().unwrap();
    drop(above);
    assert_eq!(journal.take(2), ["above dropped", "below dropped"]);
}

#[test]
fn a_killed_actor_is_dropped_and_its_later_calls_fail() {
    let scratch = Scratch::new("drop-kill");
    let mut journal = Journal::new(&scratch, "journal");
    let _turn = start(two_cpus());
    let actor = crew(&journal, "one", Last::Nothing);
    let process = Watch::new(actor.pid().get().unwrap());
    actor.kill().unwrap();
    assert_eq!(journal.next(), "one dropped");
    assert!(process.ended_within(PATIENCE));
    let error = actor.pid().get().unwrap_err();
    assert!(error.to_string().contains("it was killed"), "{error}");
    assert_eq!(journal.rest(), [""; 0], "it is dropped once");
}

#[test]
fn an_actor_that_is_killed_during_a_call_finishes_it_and_is_dropped() {
    let scratch = Scratch::new("drop-busy");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let _turn = start(two_cpus());
    let actor = crew(&journal, "one", Last::Nothing);
    let running = actor.wait_at(gate.path.clone());
    let queued = actor.wait_at(gate.path.clone());
    assert_eq!(journal.next(), "waits");
    actor.kill().unwrap();
    gate.open();
    // The queued call may begin before the worker hears of the kill. Then it ends before the drop, with its result.
    let next = journal.next();
    let ran = next == "waits";
    assert_eq!(if ran { journal.next() } else { next }, "one dropped");
    assert_eq!(running.get().unwrap(), 1, "a call that ends in time has its result");
    match queued.get() {
        Ok(result) => assert_eq!((ran, result), (true, 1)),
        Err(error) => assert!(!ran && matches!(error.failure(), Some(Failure::ActorDied { .. })), "{error}"),
    }
    assert_eq!(journal.rest(), [""; 0]);
}

#[test]
fn an_actor_that_is_killed_in_an_endless_call_ends_all_the_same() {
    let scratch = Scratch::new("drop-endless");
    let mut journal = Journal::new(&scratch, "journal");
    let _turn = start(two_cpus());
    let actor = crew(&journal, "one", Last::Nothing);
    let process = Watch::new(actor.pid().get().unwrap());
    let running = actor.run_for_ever();
    assert_eq!(journal.next(), "runs");
    actor.kill().unwrap();
    assert!(process.ended_within(PATIENCE));
    let error = running.get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::ActorDied { .. })), "{error}");
    assert_eq!(journal.rest(), [""; 0], "its state is in use by the call");
}

#[test]
fn a_destructor_can_use_the_runtime_and_may_panic() {
    let scratch = Scratch::new("drop-last");
    let mut journal = Journal::new(&scratch, "journal");
    let _turn = start(two_cpus().cpus(4.0));
    let asks = crew(&journal, "asks", Last::RunTask);
    asks.pid().get().unwrap();
    drop(asks);
    assert_eq!(journal.next(), "asks dropped 42");
    let panics = crew(&journal, "falls", Last::Panic);
    let process = Watch::new(panics.pid().get().unwrap());
    drop(panics);
    assert_eq!(journal.next(), "falls panics");
    assert!(process.ended_within(PATIENCE));
}

#[test]
fn shutdown_drops_every_actor_before_it_returns() {
    let scratch = Scratch::new("drop-shutdown");
    let mut journal = Journal::new(&scratch, "journal");
    let mut turn = start(two_cpus().cpus(8.0));
    let names = ["a", "b", "c", "d"];
    let actors: Vec<_> = names.iter().map(|name| crew(&journal, name, Last::Nothing)).collect();
    let pids: Vec<_> = actors.iter().map(|actor| Watch::new(actor.pid().get().unwrap())).collect();
    // An endless task does not keep the others from it.
    let gate = Gate::closed(&scratch, "gate");
    let endless = wait_for_ever::remote(journal.path.clone(), gate.path.clone());
    assert_eq!(journal.next(), "task waits");
    turn.end();
    let mut dropped = journal.rest();
    dropped.sort();
    assert_eq!(dropped, names.map(|name| format!("{name} dropped")));
    assert!(pids.iter().all(|process| !process.is_alive()));
    assert!(endless.get().is_err(), "it is over");
}

#[bireme::remote]
fn wait_for_ever(journal: PathBuf, gate: PathBuf) {
    note(&journal, "task waits");
    pass(&gate);
}
