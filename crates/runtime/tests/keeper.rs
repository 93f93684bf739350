//! The keeper with real processes: births, deaths, and nothing left behind.
//!
//! Workers run `worker` below, which a constructor of this binary puts in place of the real one; the slot says what a
//! worker does. `driver` is this binary again, as a program of its own that can be killed.
#![allow(clippy::unwrap_used)]

use bireme_runtime::keeper::{
    ExitKind, Keeper, KeeperError, KeeperLost, Report, STDERR_TAIL_LINES_MAX, StartOptions, WorkerExit, WorkerStart,
    set_worker_main,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const EXITS: u32 = 0;
const ABORTS: u32 = 1;
const WAITS: u32 = 2;
const HAS_FAMILY: u32 = 3;
const READS_GIFT: u32 = 4;
const EATS_MEMORY: u32 = 5;
/// What every worker is told.
const WORDS: [u64; 5] = [1, 0, u64::MAX, 7, 5];
const FLOODS: u32 = 6;

/// More than the pipes and the keeper's queue hold together.
const FLOOD_LINES: usize = 40_000;

// SAFETY: the section holds pointers to functions of this signature, which the loader calls once before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        set_worker_main(worker);
        let keeper = std::env::var("BIREME_KEEPER").is_ok_and(|value| value.contains(";keeper;"));
        if keeper && std::env::var_os("KEEPER_TEST_THREAD").is_some() {
            std::thread::spawn(wait_forever);
        }
    }
    constructor
};

fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}

// The processes that are left behind are what is tested.
#[allow(clippy::zombie_processes)]
fn worker(mut start: WorkerStart) -> ! {
    assert_eq!(start.words, WORDS);
    match start.slot {
        EXITS => {
            for n in 0..50 {
                eprintln!("line {n}");
            }
            eprint!("no newline");
            std::process::exit(7)
        }
        ABORTS => {
            eprintln!("giving up");
            std::process::abort()
        }
        HAS_FAMILY => {
            let near = Command::new("sleep").arg("1000").spawn().unwrap();
            let far = Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap();
            // One whose parent is gone, in a session of its own.
            let orphan = Command::new("sh").args(["-c", "setsid sleep 1000 & echo @orphan=$! >&2"]).status().unwrap();
            assert!(orphan.success());
            eprintln!("@near={} @far={}", near.id(), far.id());
            wait_forever()
        }
        READS_GIFT => {
            let mut text = String::new();
            let mut gift = std::fs::File::from(start.take("gift").unwrap());
            gift.rewind().unwrap();
            gift.read_to_string(&mut text).unwrap();
            let name = std::fs::read_to_string("/proc/self/comm").unwrap();
            eprintln!("{text} {} {}", name.trim(), std::env::var("BIREME_KEEPER").is_err());
            std::process::exit(0)
        }
        EATS_MEMORY => {
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            loop {
                eaten.push(vec![1; 1 << 20]);
                std::hint::black_box(&eaten);
            }
        }
        FLOODS => {
            for n in 0..FLOOD_LINES {
                eprintln!("a line of output that nobody reads, {n}");
            }
            std::process::exit(0)
        }
        _ => wait_forever(),
    }
}

fn spawned(keeper: &Keeper, slot: u32, incarnation: u32) -> i32 {
    keeper.spawn(slot, incarnation, WORDS).unwrap();
    match keeper.read_report().unwrap() {
        Report::Spawned { slot: s, incarnation: i, pid } if (s, i) == (slot, incarnation) => pid,
        other => panic!("{other:?}"),
    }
}

fn exited(keeper: &Keeper) -> WorkerExit {
    match keeper.read_report().unwrap() {
        Report::Exited(exit) => exit,
        other => panic!("{other:?}"),
    }
}

fn watch(pid: i32) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
}

fn assert_ends(process: &OwnedFd, what: &str) {
    let timeout = Timespec::try_from(Duration::from_secs(10)).unwrap();
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "{what} is still alive");
}

fn driver_command(job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "driver_job", "--ignored", "--nocapture"]).env("KEEPER_TEST_JOB", job);
    command.stdin(Stdio::piped());
    command
}

/// This test binary as a driver of its own; its output, standard error of its workers included, can be read.
fn driver(job: &str, with: &[(&str, &str)]) -> (std::process::Child, BufReader<std::io::PipeReader>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = driver_command(job);
    command.envs(with.iter().copied()).stdout(writer.try_clone().unwrap()).stderr(writer);
    (command.spawn().unwrap(), BufReader::new(reader))
}

/// Reads until every `@name=value` was seen.
fn read_tokens<const N: usize>(output: &mut impl BufRead, names: [&str; N]) -> [String; N] {
    let mut found: [Option<String>; N] = [const { None }; N];
    let mut line = String::new();
    while found.iter().any(Option::is_none) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the driver ended before it said {names:?}");
        for word in line.split_whitespace() {
            let Some((name, value)) = word.strip_prefix('@').and_then(|word| word.split_once('=')) else { continue };
            if let Some(index) = names.iter().position(|known| *known == name) {
                found[index] = Some(value.to_owned());
            }
        }
    }
    found.map(Option::unwrap)
}

/// Not a test: what the driver processes of the tests run.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn driver_job() {
    let job = std::env::var("KEEPER_TEST_JOB").unwrap_or_default();
    // A test that fails takes its driver with it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1)
    });
    if let Some(group) = std::env::var_os("KEEPER_TEST_CGROUP") {
        std::fs::write(group, std::process::id().to_string()).unwrap();
    }
    let keeper = Keeper::start(StartOptions::default()).unwrap();
    match job.as_str() {
        "family" => {
            let (waits, family) = (spawned(&keeper, WAITS, 1), spawned(&keeper, HAS_FAMILY, 1));
            println!("\n@keeper={} @waits={waits} @family={family}", keeper.pid());
        }
        "memory" => {
            spawned(&keeper, EATS_MEMORY, 1);
            let exit = exited(&keeper);
            println!("\n@exit={} @memory={}", matches!(exit.status, ExitKind::Signal(9)), exit.out_of_memory);
        }
        "flood" => {
            spawned(&keeper, FLOODS, 1);
            println!("\n@last={}", exited(&keeper).stderr_tail.rsplit(' ').next().unwrap());
        }
        "threads" => {
            spawned(&keeper, EXITS, 1);
            let exit = exited(&keeper);
            println!("\n@exit={} @tail={}", matches!(exit.status, ExitKind::Exit(7)), exit.stderr_tail.len());
        }
        other => panic!("unknown job {other:?}"),
    }
    wait_forever();
}

#[test]
fn exits_and_signals_are_reported_with_the_last_lines_of_stderr() {
    let keeper = Keeper::start(StartOptions::default()).unwrap();
    let pid = spawned(&keeper, EXITS, 1);
    let exit = exited(&keeper);
    assert_eq!((exit.slot, exit.incarnation, exit.pid, exit.status), (EXITS, 1, pid, ExitKind::Exit(7)));
    assert_eq!(exit.stderr_tail.lines().count(), 40);
    assert!(exit.stderr_tail.starts_with("line 11\n") && exit.stderr_tail.ends_with("line 49\nno newline"));

    spawned(&keeper, ABORTS, 4);
    let exit = exited(&keeper);
    assert_eq!((exit.incarnation, exit.status), (4, ExitKind::Signal(libc::SIGABRT)));
    assert_eq!(exit.stderr_tail, "giving up");

    spawned(&keeper, WAITS, 1);
    keeper.spawn(WAITS, 2, WORDS).unwrap();
    assert!(matches!(keeper.read_report().unwrap(), Report::SpawnFailed { slot: WAITS, incarnation: 2, .. }));
    keeper.signal(WAITS, libc::SIGKILL).unwrap();
    let exit = exited(&keeper);
    assert_eq!((exit.status, exit.out_of_memory), (ExitKind::Signal(libc::SIGKILL), false));
    spawned(&keeper, WAITS, 2);
}

#[test]
fn a_kill_from_outside_is_not_called_out_of_memory() {
    let keeper = Keeper::start(StartOptions::default()).unwrap();
    let pid = spawned(&keeper, WAITS, 1);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let exit = exited(&keeper);
    assert_eq!((exit.status, exit.out_of_memory), (ExitKind::Signal(libc::SIGKILL), false));
}

#[test]
fn a_worker_gets_the_descriptors_by_name() {
    let mut gift = std::fs::File::from(memfd_create("gift", MemfdFlags::CLOEXEC).unwrap());
    gift.write_all(b"hello").unwrap();
    let keeper =
        Keeper::start(StartOptions { inherit: vec![("gift", gift.as_fd())], ..StartOptions::default() }).unwrap();
    spawned(&keeper, READS_GIFT, 1);
    assert_eq!(exited(&keeper).stderr_tail, "hello bireme-worker true");
    let bad = Keeper::start(StartOptions { inherit: vec![("a=b", gift.as_fd())], ..StartOptions::default() });
    assert!(matches!(bad, Err(KeeperError::BadName(name)) if name == "a=b"));
}

#[test]
fn a_killed_driver_leaves_no_process_behind() {
    let (mut child, mut output) = driver("family", &[]);
    let names = ["keeper", "waits", "family", "near", "far", "orphan"];
    let pids = read_tokens(&mut output, names);
    let processes = pids.map(|pid| watch(pid.parse().unwrap()));
    let started = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    for (process, name) in processes.iter().zip(names) {
        assert_ends(process, name);
    }
    println!("driver killed to all six processes gone: {:?}", started.elapsed());
}

#[test]
fn the_family_of_a_dead_worker_ends_and_that_of_another_lives() {
    let (mut child, mut output) = driver("family", &[]);
    let [waits, family, near, far, orphan] = read_tokens(&mut output, ["waits", "family", "near", "far", "orphan"]);
    let processes = [near, far, orphan].map(|pid| watch(pid.parse().unwrap()));
    let bystander = watch(waits.parse().unwrap());
    kill_process(Pid::from_raw(family.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    for (process, name) in processes.iter().zip(["near", "far", "orphan"]) {
        assert_ends(process, name);
    }
    let mut fds = [PollFd::new(&bystander, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(0), "another worker must live on");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ends(&bystander, "waits");
}

#[test]
fn a_keeper_with_a_second_thread_starts_workers_by_exec() {
    let (mut child, mut output) = driver("threads", &[("KEEPER_TEST_THREAD", "1")]);
    let [exit, tail] = read_tokens(&mut output, ["exit", "tail"]);
    assert_eq!((exit.as_str(), tail.parse::<usize>().unwrap()), ("true", (STDERR_TAIL_LINES_MAX - 1) * 8 + 10));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_worker_never_waits_for_a_reader_of_standard_error() {
    let (unread, writer) = std::io::pipe().unwrap();
    let mut child = driver_command("flood").stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
    let [last] = read_tokens(&mut BufReader::new(child.stdout.take().unwrap()), ["last"]);
    assert_eq!(last, (FLOOD_LINES - 1).to_string());
    child.kill().unwrap();
    child.wait().unwrap();
    drop(unread);
}

#[test]
fn a_shut_down_or_killed_keeper_is_lost_with_its_workers() {
    let keeper = Keeper::start(StartOptions::default()).unwrap();
    let worker = watch(spawned(&keeper, WAITS, 1));
    keeper.shutdown();
    // Gone and reaped before the keeper went, not left to somebody else.
    assert_eq!(pidfd_send_signal(&worker, Signal::KILL), Err(rustix::io::Errno::SRCH));
    keeper.shutdown();
    assert_ends(&worker, "worker");
    match keeper.read_report() {
        Err(KeeperLost::Ended { how, .. }) => assert_eq!(how, "exited with code 0"),
        other => panic!("{other:?}"),
    }
    assert!(keeper.spawn(WAITS, 2, WORDS).is_err());

    let keeper = Keeper::start(StartOptions::default()).unwrap();
    let worker = watch(spawned(&keeper, WAITS, 1));
    kill_process(Pid::from_raw(keeper.pid()).unwrap(), Signal::KILL).unwrap();
    assert_ends(&worker, "worker");
    let lost = keeper.read_report().unwrap_err();
    assert!(lost.to_string().ends_with("was killed by signal 9 (SIGKILL)"), "{lost}");
}

#[test]
fn two_keepers_live_side_by_side() {
    let (one, two) = (Keeper::start(StartOptions::default()).unwrap(), Keeper::start(StartOptions::default()).unwrap());
    let first = watch(spawned(&one, WAITS, 1));
    let second = spawned(&two, WAITS, 1);
    drop(one);
    assert_ends(&first, "worker of the first keeper");
    two.signal(WAITS, libc::SIGTERM).unwrap();
    let exit = exited(&two);
    assert_eq!((exit.pid, exit.status), (second, ExitKind::Signal(libc::SIGTERM)));
}

#[test]
fn a_worker_killed_for_memory_is_reported_so() {
    // Needs the right to make a memory cgroup; elsewhere the claim logic has its unit test.
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = memberships.lines().find_map(|line| line.split_once(":memory:")).map_or("/", |(_, path)| path);
    let group = format!("/sys/fs/cgroup/memory{own}/keeper-test-{}", std::process::id());
    if std::fs::create_dir(&group).is_err() || std::fs::write(format!("{group}/memory.limit_in_bytes"), "64M").is_err()
    {
        let _ = std::fs::remove_dir(&group);
        assert_ne!(
            std::env::var("BIREME_SKIPS").as_deref(),
            Ok("fail"),
            "not tested: no memory cgroup can be made here"
        );
        return;
    }
    let (mut child, mut output) = driver("memory", &[("KEEPER_TEST_CGROUP", &format!("{group}/cgroup.procs"))]);
    let [exit, memory] = read_tokens(&mut output, ["exit", "memory"]);
    child.kill().unwrap();
    child.wait().unwrap();
    // The pipe ends when the keeper is gone too; only then is the group empty.
    output.read_to_end(&mut Vec::new()).unwrap();
    let _ = std::fs::remove_dir(&group);
    assert_eq!((exit.as_str(), memory.as_str()), ("true", "true"));
}

#[test]
fn starting_and_forking_are_quick() {
    let mut starts: Vec<Duration> = Vec::new();
    let mut forks: Vec<Duration> = Vec::new();
    let mut deaths: Vec<Duration> = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        let keeper = Keeper::start(StartOptions::default()).unwrap();
        spawned(&keeper, WAITS, 1);
        starts.push(begun.elapsed());
        for slot in 100..110 {
            let begun = Instant::now();
            spawned(&keeper, slot, 1);
            forks.push(begun.elapsed());
        }
        let begun = Instant::now();
        keeper.signal(WAITS, libc::SIGKILL).unwrap();
        exited(&keeper);
        deaths.push(begun.elapsed());
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", keeper.pid())).unwrap();
        let sizes = rollup.lines().filter(|line| line.starts_with("Pss:") || line.starts_with("Private_Dirty:"));
        println!("keeper with 10 workers: {}", sizes.collect::<Vec<_>>().join(", "));
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (start, fork, death) = (median(&mut starts), median(&mut forks), median(&mut deaths));
    println!("start to first worker {start:?}, spawn to report {fork:?}, kill to report {death:?} (medians)");
}
