//! Beginnings and ends of a runtime: whatever way its driver goes, nothing of it stays.
//!
//! The driver is this test binary started again (see `the_driver_that_other_tests_start`), so that it can be killed.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bireme::{Bytes, Error, Failure};
use rustix::process::Signal;
use support::{
    Driver, Gate, Journal, PATIENCE, Scratch, Watch, my_pid, note, parent_pid, pass, scenario, start, two_cpus,
};

const DRIVER: &str = "the_driver_that_other_tests_start";
const FOLDER: &str = "BIREME_TEST_FOLDER";

#[bireme::remote]
fn pids_when_open(journal: PathBuf, gate: PathBuf) -> (i32, i32) {
    note(&journal, my_pid());
    pass(&gate);
    (my_pid(), parent_pid())
}

#[bireme::remote(name = "runs for ever")]
#[allow(clippy::zombie_processes)] // Nobody waits for it: the keeper has to end it.
fn run_for_ever(journal: PathBuf, with_subprocess: bool) {
    let subprocess = if with_subprocess {
        // A session of its own: no group, no terminal, no parent's death reaches it by accident.
        let mut command = std::process::Command::new("setsid");
        command.args(["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        format!("{} {}", child.id(), line.trim())
    } else {
        String::new()
    };
    note(&journal, format!("{} {} {subprocess}", my_pid(), parent_pid()));
    loop {
        std::thread::park();
    }
}

pub struct Idler;

#[bireme::actor]
impl Idler {
    pub fn new() -> Self {
        Idler
    }

    pub fn pid(&self) -> i32 {
        my_pid()
    }
}

/// Plays the driver of a job: tasks that run for ever, one with subprocesses, an actor, objects in memory and on disk.
#[test]
fn the_driver_that_other_tests_start() {
    let Some(scenario) = scenario() else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let turn = support::turn();
    let config = two_cpus().object_store_memory(16 << 20).spill_directory(folder.join("spill"));
    let context = bireme::init_with(config).unwrap();
    let journal = folder.join("journal");
    let _tasks = [run_for_ever::remote(journal.clone(), true), run_for_ever::remote(journal, false)];
    let actor = Idler::remote();
    println!("actor={}", actor.pid().get().unwrap());
    let _objects: Vec<_> = (0..8).map(|n| bireme::put(Bytes::from(vec![n; 4 << 20])).unwrap()).collect();
    println!("ready=now");
    // The test has seen every process.
    pass(&folder.join("gate"));
    match scenario.as_str() {
        "return" => drop(context),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        "panic" => panic!("the driver panics"),
        "panic with a lost context" => {
            std::mem::forget(context);
            panic!("the driver panics");
        }
        _ => loop {
            std::thread::park();
        },
    }
    drop(turn);
}

/// Everything that a driver has, as the system sees it.
struct Traces {
    processes: Vec<Watch>,
    memory: Vec<String>,
    folder: Scratch,
    sockets: usize,
}

/// The shared memory of a process, by inode.
fn memory_of(pid: i32) -> Vec<String> {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let paths = fds.filter_map(|fd| {
        let link = fd.unwrap().path();
        let target = std::fs::read_link(&link).ok()?;
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&link).ok()?);
        target.to_string_lossy().contains("memfd:bireme").then(|| inode.to_string())
    });
    paths.collect()
}

/// Processes that map or hold one of these inodes under a name of ours.
fn holders(inodes: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap() {
        let path = process.unwrap().path();
        let Ok(maps) = std::fs::read_to_string(path.join("maps")) else { continue };
        let ours = |line: &str| {
            line.contains("memfd:bireme") && inodes.iter().any(|i| line.split_whitespace().any(|w| w == i))
        };
        if let Some(line) = maps.lines().find(|line| ours(line)) {
            found.push(format!("{}: {line}", path.display()));
        }
    }
    found
}

fn named_sockets() -> usize {
    std::fs::read_to_string("/proc/net/unix").unwrap().lines().filter(|line| line.contains("bireme")).count()
}

fn begin(scenario: &str) -> (Driver, Traces) {
    let folder = Scratch::new(&format!("driver-{}", scenario.replace(' ', "-")));
    std::fs::create_dir(folder.path("spill")).unwrap();
    std::fs::create_dir(folder.path("tmp")).unwrap();
    let sockets = named_sockets();
    let gate = Gate::closed(&folder, "gate");
    let mut journal = Journal::new(&folder, "journal");
    let temporary = folder.path("tmp");
    let settings = [(FOLDER, folder.0.to_str().unwrap()), ("TMPDIR", temporary.to_str().unwrap())];
    let mut driver = Driver::start(DRIVER, scenario, &settings);
    let mut pids: Vec<i32> = vec![driver.tells("actor").parse().unwrap()];
    for line in journal.take(2) {
        pids.extend(line.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()));
    }
    pids.sort_unstable();
    pids.dedup();
    // Actor, two workers, the keeper, and three subprocesses of a task.
    assert_eq!(pids.len(), 6, "{pids:?}");
    let processes: Vec<Watch> = pids.into_iter().map(Watch::new).collect();
    let memory = memory_of(driver.watch.pid);
    assert!(memory.len() >= 3, "fabric, arena and table at least");
    driver.tells("ready");
    gate.open();
    (driver, Traces { processes, memory, folder, sockets })
}

impl Traces {
    fn all_gone(&self) {
        for process in &self.processes {
            assert!(process.ended_within(Duration::from_secs(10)), "process {} is still there", process.pid);
        }
        support::eventually("no process has the driver's shared memory", || holders(&self.memory).is_empty());
        for folder in ["spill", "tmp"] {
            let left: Vec<_> = std::fs::read_dir(self.folder.path(folder)).unwrap().collect();
            assert!(left.is_empty(), "{folder} has {left:?}");
        }
        let shared: Vec<_> = std::fs::read_dir("/dev/shm")
            .map(|files| files.map(|file| file.unwrap().file_name()).collect())
            .unwrap_or_default();
        assert!(
            !shared.iter().any(|name: &std::ffi::OsString| name.to_string_lossy().contains("bireme")),
            "{shared:?}"
        );
        assert!(named_sockets() <= self.sockets);
    }
}

#[test]
fn a_driver_killed_with_kill_9_leaves_no_process_socket_file_or_shared_memory() {
    let (driver, traces) = begin("park");
    driver.kill(Signal::KILL);
    traces.all_gone();
}

#[test]
fn a_keeper_killed_with_kill_9_takes_every_worker_with_it() {
    let (driver, traces) = begin("park and lose the keeper");
    let keeper = traces.processes.iter().find(|process| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        name.trim() == "bireme-keeper"
    });
    let keeper = keeper.expect("one of them is the keeper");
    keeper.kill(Signal::KILL);
    assert!(keeper.ended_within(PATIENCE));
    driver.kill(Signal::KILL);
    for worker in &traces.processes {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", worker.pid)).unwrap_or_default();
        if !["sh", "sleep", "setsid"].contains(&name.trim()) {
            assert!(worker.ended_within(Duration::from_secs(10)), "process {} ({name}) is still there", worker.pid);
        }
    }
    // Without a keeper nobody is left to end a task's own subprocesses, which left their session: the test does.
    for process in traces.processes.iter().filter(|process| process.is_alive()) {
        process.kill(Signal::KILL);
    }
}

#[test]
fn a_driver_that_returns_or_exits_or_panics_or_aborts_leaves_nothing() {
    for scenario in ["return", "exit", "abort", "panic", "panic with a lost context"] {
        let (mut driver, traces) = begin(scenario);
        traces.all_gone();
        let status = driver.child.wait().unwrap();
        assert_eq!(status.success(), ["return", "exit"].contains(&scenario), "{scenario}: {status}");
    }
}

#[test]
fn interrupts_and_other_signals_to_the_drivers_group_leave_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let (driver, traces) = begin(&format!("park for {signal:?}"));
        driver.kill_group(signal);
        assert!(driver.watch.ended_within(PATIENCE));
        traces.all_gone();
    }
}

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[test]
fn a_runtime_can_be_started_again_after_a_shutdown_many_times() {
    let _turn = support::turn();
    let mut last = Vec::new();
    for round in 0..10 {
        let context = bireme::init_with(two_cpus()).unwrap();
        assert_eq!(add::remote(round, 1).get().unwrap(), round + 1);
        let actor = Idler::remote();
        let workers = vec![Watch::new(actor.pid().get().unwrap())];
        context.shutdown();
        assert!(workers.iter().all(|worker| worker.ended_within(Duration::ZERO)), "shutdown waits for all of them");
        last = workers;
    }
    assert!(!last.is_empty());
}

#[test]
fn shutdown_does_not_wait_for_what_runs() {
    let mut turn = start(two_cpus());
    let scratch = Scratch::new("shutdown");
    let mut journal = Journal::new(&scratch, "journal");
    let endless = run_for_ever::remote(journal.path.clone(), false);
    let queued: Vec<_> = (0..100).map(|_| run_for_ever::remote(journal.path.clone(), false)).collect();
    journal.next();
    let waiter = std::thread::spawn({
        let endless = endless.clone();
        move || endless.get()
    });
    turn.end();
    let error = waiter.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::NotRunning(_)) || matches!(error.failure(), Some(Failure::ShutDown)), "{error:?}");
    drop((endless, queued));
}

#[test]
fn a_second_init_with_another_configuration_is_refused_and_the_first_runtime_goes_on() {
    let _turn = start(two_cpus());
    for _ in 0..2 {
        let error = bireme::init().unwrap_err();
        assert!(matches!(error, Error::OtherConfig(_)), "{error:?}");
    }
    assert_eq!(add::remote(1, 2).get().unwrap(), 3);
}

#[test]
fn everything_that_is_used_after_a_shutdown_gives_a_typed_error() {
    let mut turn = start(two_cpus());
    let result = add::remote(1, 2);
    let put = bireme::put(5_i64).unwrap();
    let view = bireme::put(Bytes::from(vec![3; 1 << 20])).unwrap().get().unwrap();
    let actor = Idler::options().name("idler").remote();
    actor.pid().get().unwrap();
    result.get().unwrap();
    turn.end();
    let typed = |error: Error| {
        let right = matches!(error, Error::NotRunning(_)) || matches!(error.failure(), Some(Failure::ShutDown));
        assert!(right, "{error:?}");
    };
    typed(result.get().unwrap_err());
    typed(put.get_timeout(Duration::from_millis(1)).unwrap_err());
    typed(actor.pid().get().unwrap_err());
    typed(add::remote(1, 2).get().unwrap_err());
    typed(add::remote(&put, 2).get().unwrap_err());
    typed(bireme::put(1).unwrap_err());
    typed(bireme::wait(std::slice::from_ref(&result), 1, None).unwrap_err());
    typed(bireme::cancel(&result, true).unwrap_err());
    typed(bireme::state().unwrap_err());
    typed(bireme::explain(&result).unwrap_err());
    typed(bireme::get_actor::<Idler>("idler").unwrap_err());
    typed(actor.kill().unwrap_err());
    assert_eq!(view[7], 3, "a view outlives its runtime");
    bireme::shutdown();
    // References of an earlier runtime are as little use in the next one.
    let _context = bireme::init_with(two_cpus()).unwrap();
    typed(result.get().unwrap_err());
    typed(put.get().unwrap_err());
    typed(add::remote(&put, 2).get().unwrap_err());
    typed(actor.pid().get().unwrap_err());
    drop((result, put, view, actor));
    assert_eq!(add::remote(1, 2).get().unwrap(), 3);
}

#[test]
fn workers_that_stay_idle_are_ended_and_new_ones_come_when_needed() {
    let _turn = start(two_cpus().cpus(4.0).idle_worker(Duration::from_millis(50)));
    let scratch = Scratch::new("idle");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let busy: Vec<_> = (0..4).map(|_| pids_when_open::remote(journal.path.clone(), gate.path.clone())).collect();
    let workers: Vec<Watch> = journal.take(4).iter().map(|pid| Watch::new(pid.parse().unwrap())).collect();
    gate.open();
    let pids = bireme::get_all(&busy).unwrap();
    assert!(pids.iter().all(|(_, keeper)| *keeper == pids[0].1), "one keeper is the parent of all workers");
    let ended = |workers: &[Watch]| workers.iter().filter(|worker| !worker.is_alive()).count();
    support::eventually("idle workers end", || ended(&workers) >= 2);
    assert_eq!(add::remote(20, 3).get().unwrap(), 23);
}

#[bireme::remote]
fn speak() {
    println!("words=on standard output");
    eprintln!("words on standard error");
}

#[test]
fn what_workers_print_appears_where_the_driver_prints() {
    if scenario().is_some() {
        let _turn = start(two_cpus());
        speak::remote().get().unwrap();
        return;
    }
    let mut driver = Driver::start("what_workers_print_appears_where_the_driver_prints", "print", &[]);
    assert_eq!(driver.tells("words"), "on standard output");
    assert!(driver.watch.ended_within(PATIENCE));
    // Its standard output is closed: nobody who inherited it is left.
    driver.output_to_the_end();
}
