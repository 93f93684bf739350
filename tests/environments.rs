//! What a worker process is for: one environment, the GPUs that it was given, so many calls.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use bireme::{Error, Failure, ObjectRef};
use std::path::PathBuf;

use support::{Gate, Journal, Scratch, my_pid, note, pass, start, two_cpus};

#[bireme::remote]
fn pid() -> i32 {
    my_pid()
}

#[bireme::remote]
fn pid_and_pid_of(environment: u64) -> (i32, i32) {
    (my_pid(), pid::options().environment(environment).remote().get().unwrap())
}

pub struct Here;

#[bireme::actor]
impl Here {
    pub fn new() -> Self {
        Here
    }

    pub fn pid(&self) -> i32 {
        my_pid()
    }
}

#[test]
fn a_process_never_serves_two_environments() {
    let _turn = start(two_cpus());
    let mut seen: BTreeMap<i32, BTreeSet<u64>> = BTreeMap::new();
    for round in 0..3 {
        let pids: Vec<_> =
            (0..24).map(|n| ((n + round) % 3, pid::options().environment((n + round) % 3).remote())).collect();
        for (environment, pid) in pids {
            seen.entry(pid.get().unwrap()).or_default().insert(environment);
        }
    }
    assert!(seen.values().all(|environments| environments.len() == 1), "{seen:?}");
    assert_eq!(seen.values().flatten().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn a_waiting_task_does_not_lend_its_process_to_another_environment() {
    let _turn = start(two_cpus().cpus(1.0));
    let (outer, inner) = pid_and_pid_of::options().environment(4).remote(5u64).get().unwrap();
    assert_ne!(outer, inner);
}

#[test]
fn at_the_bound_of_processes_idle_ones_of_other_environments_make_room() {
    let _turn = start(two_cpus().workers_max(2));
    let mut pids = BTreeSet::new();
    for environment in 0..12 {
        let pid = pid::options().environment(environment).remote().get().unwrap();
        assert!(pids.insert(pid), "environment {environment} runs in a process of its own");
    }
}

#[test]
fn an_actor_has_its_environment_too() {
    let _turn = start(two_cpus());
    let task = pid::options().environment(9).remote().get().unwrap();
    let actor = Here::options().environment(9).remote();
    let usual = Here::remote();
    let pids = BTreeSet::from([task, actor.pid().get().unwrap(), usual.pid().get().unwrap()]);
    assert_eq!(pids.len(), 3);
}

#[bireme::remote(cpus = 0)]
fn gpus_when_open(journal: PathBuf, gate: PathBuf) -> Vec<u32> {
    note(&journal, my_pid());
    pass(&gate);
    bireme::gpu_indices()
}

pub struct Trainer;

#[bireme::actor(cpus = 0, gpus = 1)]
impl Trainer {
    pub fn new() -> Self {
        Trainer
    }

    pub fn gpus(&self) -> Vec<u32> {
        bireme::gpu_indices()
    }
}

#[test]
fn tasks_that_run_at_once_have_gpus_of_their_own() {
    let scratch = Scratch::new("gpus");
    let _turn = start(two_cpus().gpus(4.0));
    assert!(bireme::gpu_indices().is_empty(), "the driver has asked for none");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let ask = |gpus: f64| gpus_when_open::options().gpus(gpus).remote(journal.path.clone(), gate.path.clone());
    let trainer = Trainer::remote();
    trainer.ready().get().unwrap();
    let running = [ask(2.0), ask(0.5), ask(0.5)];
    for _ in &running {
        journal.next();
    }
    gate.open();
    let mut share = BTreeMap::from([(trainer.gpus().get().unwrap()[0], 1.0)]);
    for (gpus, reference) in [2.0, 0.5, 0.5f64].into_iter().zip(running) {
        let indices = reference.get().unwrap();
        assert_eq!(indices.len(), gpus.ceil() as usize);
        for index in indices {
            *share.entry(index).or_default() += gpus.min(1.0);
        }
    }
    assert_eq!(share, (0..4).map(|index| (index, 1.0)).collect());
}

#[test]
fn one_and_a_half_gpus_are_refused() {
    let scratch = Scratch::new("refused");
    let _turn = start(two_cpus().gpus(4.0));
    let path = scratch.path("none");
    let refused: ObjectRef<Vec<u32>> = gpus_when_open::options().gpus(1.5).remote(path.clone(), path);
    let Err(Error::Failed(failure)) = refused.get() else { panic!("1.5 GPUs were given") };
    assert!(matches!(*failure, Failure::Infeasible { .. }), "{failure}");
    assert!(failure.to_string().contains("whole numbers"), "{failure}");
}

#[test]
fn a_process_ends_after_its_calls_and_nothing_is_lost() {
    let _turn = start(two_cpus());
    let mut runs: BTreeMap<i32, u32> = BTreeMap::new();
    let tasks: Vec<_> = (0..50).map(|_| pid::options().max_calls(3).retries(0).remote()).collect();
    for task in tasks {
        *runs.entry(task.get().unwrap()).or_default() += 1;
    }
    assert!(runs.values().all(|runs| *runs <= 3), "{runs:?}");
    for _ in 0..5 {
        let once = pid::options().max_calls(1).retries(0).remote().get().unwrap();
        let again = pid::options().max_calls(1).retries(0).remote().get().unwrap();
        assert_ne!(once, again);
    }
}

#[bireme::remote]
fn put_here() -> ObjectRef<i32> {
    bireme::put(my_pid()).unwrap()
}

#[test]
fn what_a_process_owns_outlives_its_last_call() {
    let _turn = start(two_cpus());
    let inner = put_here::options().max_calls(1).retries(0).remote().get().unwrap();
    let elsewhere = pid::remote().get().unwrap();
    assert_ne!(inner.get().unwrap(), elsewhere, "it takes no more tasks");
}
