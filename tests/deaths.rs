//! Workers that die: what is run again, what is not, and what the error says.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;

use bireme::{DeathCause, Failure, ObjectRef};
use bireme_runtime::fail_point::{self, Garbage};
use rustix::process::Signal;
use support::{Gate, Journal, Scratch, Watch, die, first, my_pid, note, pass, start, two_cpus};

#[bireme::remote]
fn die_once(marker: PathBuf, answer: u32) -> u32 {
    if first(&marker) {
        die(Signal::KILL);
    }
    answer
}

#[test]
fn a_task_whose_worker_is_killed_runs_again_and_its_result_arrives() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("retry");
    for round in 0..5 {
        assert_eq!(die_once::remote(scratch.path(&round.to_string()), round).get().unwrap(), round);
    }
}

#[bireme::remote]
fn killed_from_outside(journal: PathBuf, gate: PathBuf) -> i32 {
    note(&journal, my_pid());
    pass(&gate);
    my_pid()
}

#[test]
fn a_worker_killed_from_outside_in_the_middle_of_a_task_is_replaced() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("outside");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let running = killed_from_outside::remote(journal.path.clone(), gate.path.clone());
    let before: i32 = journal.next().parse().unwrap();
    Watch::new(before).kill(Signal::KILL);
    let after: i32 = journal.next().parse().unwrap();
    gate.open();
    assert_eq!(running.get().unwrap(), after);
    assert_ne!(before, after);
}

#[bireme::remote(retries = 1, name = "doomed")]
fn doomed(journal: PathBuf, how: String) -> u8 {
    note(&journal, "ran");
    eprintln!("last words of {how}");
    match how.as_str() {
        "signal" => die(Signal::KILL),
        "abort" => std::process::abort(),
        "segv" => die(Signal::SEGV),
        _ => std::process::exit(33),
    }
}

#[test]
fn when_retries_are_exhausted_the_error_says_how_often_who_and_how() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("exhausted");
    let mut journal = Journal::new(&scratch, "journal");
    let cases = [
        ("signal", DeathCause::Signalled(9), "SIGKILL"),
        ("abort", DeathCause::Signalled(6), "SIGABRT"),
        ("segv", DeathCause::Signalled(11), "SIGSEGV"),
        ("exit", DeathCause::Exited(33), "code 33"),
    ];
    for (how, cause, word) in cases {
        let reference = doomed::remote(journal.path.clone(), how);
        let error = reference.get().unwrap_err();
        let Some(Failure::WorkerDied { task, name, death, attempts }) = error.failure() else { panic!("{error:?}") };
        assert_eq!((*task, name.as_str(), *attempts), (reference.id().task(), "doomed", 2));
        assert_eq!(death.cause, cause);
        assert!(death.pid > 0);
        assert!(death.stderr_tail.contains(&format!("last words of {how}")), "{:?}", death.stderr_tail);
        let text = error.to_string();
        for part in ["doomed", "2 attempts", word, "last words of", &death.pid.to_string()] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert_eq!(journal.rest(), ["ran", "ran"]);
    }
    assert_eq!(
        doomed::options()
            .retries(0)
            .remote(journal.path.clone(), "exit")
            .get()
            .unwrap_err()
            .failure()
            .map(|f| { matches!(f, Failure::WorkerDied { attempts: 1, .. }) }),
        Some(true)
    );
}

#[bireme::remote(retries = 0)]
fn innocent(journal: PathBuf, n: u32) -> u32 {
    note(&journal, n);
    n
}

#[bireme::remote(retries = 1)]
fn guilty(marker: PathBuf, gate: PathBuf) -> u32 {
    if first(&marker) {
        pass(&gate);
        die(Signal::KILL);
    }
    0
}

#[test]
fn tasks_queued_behind_the_one_that_died_lose_no_retry_and_run_once() {
    let _turn = start(two_cpus().cpus(1.0));
    let scratch = Scratch::new("innocent");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    // Short tasks first, so that the owner queues many ahead.
    let warm: Vec<_> = (0..200).map(|n| innocent::remote(journal.path.clone(), n)).collect();
    bireme::get_all(&warm).unwrap();
    assert_eq!(journal.rest().len(), 200);
    let death = guilty::remote(scratch.path("marker"), gate.path.clone());
    let behind: Vec<_> = (0..100).map(|n| innocent::remote(journal.path.clone(), n)).collect();
    gate.open();
    assert_eq!(bireme::get_all(&behind).unwrap(), (0..100).collect::<Vec<_>>());
    assert_eq!(death.get().unwrap(), 0);
    let mut ran: Vec<u32> = journal.rest().iter().map(|n| n.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..100).collect::<Vec<_>>());
}

#[bireme::remote]
fn slow_child(journal: PathBuf, gate: PathBuf, n: u32) -> u32 {
    note(&journal, format!("child {n}"));
    pass(&gate);
    n * 10
}

#[bireme::remote]
fn lender(journal: PathBuf, gate: PathBuf, n: u32) -> Vec<ObjectRef<u32>> {
    note(&journal, format!("lender {}", my_pid()));
    (0..n).map(|i| slow_child::remote(journal.clone(), gate.clone(), i)).collect()
}

#[bireme::remote]
fn sum(parts: Vec<ObjectRef<u32>>) -> bireme::Result<u32> {
    Ok(bireme::get_all(&parts)?.iter().sum())
}

#[test]
fn what_a_dead_worker_owned_and_lent_is_still_read_by_those_who_borrowed_it() {
    // The lender finishes with its children still running; its result says where they will be.
    let _turn = start(two_cpus().cpus(4.0));
    let scratch = Scratch::new("lent");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let lent = lender::remote(journal.path.clone(), gate.path.clone(), 2).get().unwrap();
    let owner = journal.next().strip_prefix("lender ").unwrap().parse().unwrap();
    journal.take(2);
    let readers: Vec<_> = (0..2).map(|_| sum::remote(lent.clone())).collect();
    let owner = Watch::new(owner);
    owner.kill(Signal::KILL);
    assert!(owner.ended_within(support::PATIENCE));
    gate.open();
    assert_eq!(bireme::get_all(&readers).unwrap(), [10, 10]);
    assert_eq!(bireme::get_all(&lent).unwrap(), [0, 10]);
    // The children ran elsewhere and finished: nobody ran them twice.
    assert_eq!(journal.rest(), Vec::<String>::new());
}

#[bireme::remote(retries = 2)]
fn corrupter(marker: PathBuf, how: u8, answer: u32) -> bireme::Result<u32> {
    if first(&marker) {
        fail_point::write_garbage([Garbage::Message, Garbage::Frame, Garbage::ToPeers][usize::from(how)])?;
        die_slowly();
    }
    Ok(answer)
}

/// Stays until the node ends the process.
fn die_slowly() {
    loop {
        std::thread::park();
    }
}

#[test]
fn a_worker_that_writes_garbage_is_dropped_with_a_reason_and_its_task_is_run_again() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("garbage");
    for how in 0..3_u8 {
        let reference = corrupter::remote(scratch.path(&how.to_string()), how, 7);
        assert_eq!(reference.get_timeout(support::PATIENCE).unwrap(), 7, "garbage of kind {how}");
        let reference = corrupter::options().retries(0).remote(scratch.path(&format!("last-{how}")), how, 7);
        let error = reference.get_timeout(support::PATIENCE).unwrap_err();
        let Some(Failure::WorkerDied { death, .. }) = error.failure() else { panic!("{error:?}") };
        assert!(matches!(death.cause, DeathCause::Corrupt(_)), "{error}");
        assert!(error.to_string().contains("corrupt"), "{error}");
    }
    assert_eq!(die_once::remote(scratch.path("still"), 3).get().unwrap(), 3);
}

pub struct Mortal {
    calls: u32,
}

#[bireme::actor]
impl Mortal {
    pub fn new(journal: PathBuf) -> Self {
        note(&journal, format!("born {}", my_pid()));
        Mortal { calls: 0 }
    }

    pub fn call(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }

    pub fn die(&mut self) -> u32 {
        eprintln!("the actor's last words");
        die(Signal::KILL)
    }
}

#[test]
fn an_actor_without_restarts_dies_with_its_process_and_says_so_to_every_caller() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("actor");
    let journal = Journal::new(&scratch, "journal");
    let mortal = Mortal::options().restarts(0).remote(journal.path.clone());
    assert_eq!(mortal.call().get().unwrap(), 1);
    let calls = [mortal.die(), mortal.call(), mortal.call()];
    for call in calls {
        let error = call.get().unwrap_err();
        let Some(Failure::ActorDied { reason, .. }) = error.failure() else { panic!("{error:?}") };
        assert!(reason.contains("SIGKILL") && reason.contains("last words"), "{reason}");
    }
    assert!(mortal.call().get().is_err());
}

#[test]
fn an_actor_with_restarts_is_constructed_again_and_later_calls_reach_it() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("restart");
    let mut journal = Journal::new(&scratch, "journal");
    let mortal = Mortal::options().restarts(2).remote(journal.path.clone());
    for _ in 0..2 {
        assert_eq!(mortal.call().get().unwrap(), 1);
        assert!(mortal.die().get().is_err());
    }
    assert_eq!(mortal.call().get().unwrap(), 1);
    let born = journal.rest();
    assert_eq!(born.len(), 3, "{born:?}");
    assert!(mortal.die().get().is_err());
    assert!(mortal.call().get().is_err(), "two restarts were allowed, this would be the third");
}

#[bireme::remote]
fn parent_of_a_dying_child(marker: PathBuf) -> bireme::Result<u32> {
    Ok(die_once::remote(marker, 5).get()? + 1)
}

#[test]
fn a_child_that_dies_is_retried_by_its_parent_the_parent_does_not_notice() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("child");
    let parents: Vec<_> = (0..4).map(|n| parent_of_a_dying_child::remote(scratch.path(&n.to_string()))).collect();
    assert_eq!(bireme::get_all(&parents).unwrap(), [6; 4]);
}

#[bireme::remote]
fn pid_when_open(journal: PathBuf, gate: PathBuf) -> i32 {
    note(&journal, my_pid());
    pass(&gate);
    my_pid()
}

#[test]
fn killing_every_worker_again_and_again_loses_no_task() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("storm");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let tasks: Vec<_> =
        (0..6).map(|_| pid_when_open::options().retries(50).remote(journal.path.clone(), gate.path.clone())).collect();
    for _ in 0..20 {
        let pid = journal.next().parse().unwrap();
        Watch::new(pid).kill(Signal::KILL);
    }
    gate.open();
    bireme::get_all(&tasks).unwrap();
}
