//! The floors: the same work done with nothing but the operating system. No code of the engine takes part.
//!
//! Floors that need a second process start this executable again with `bench-floor` ([`serve`]), one end of a socket
//! pair as its standard input. Latency floors are pinned to cores, since free placement changes them fivefold.

// Fresh shared pages can only be mapped by an unsafe call.
#[allow(unsafe_code)]
mod fresh;
mod latency;
// So can shared words.
#[allow(unsafe_code)]
mod shared;

use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use clap::{Args, Subcommand};
use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::Outcome;
use super::cluster::wire::{self, Wire};
use super::measure::{median_us, seconds};

pub(super) use fresh::copy_into_fresh_shared_pages;
pub(super) use latency::{Latencies, spinning};

/// Bytes of a message there and back.
const PING_BYTES: usize = 32;
/// Bytes of a message one way.
const MESSAGE_BYTES: usize = 64;
/// What the reader of messages takes at once.
const DRAIN_BYTES: usize = 64 << 10;

/// The command line of `bench-floor`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// End at once.
    Exit,
    /// Say one byte, then wait for the end of the input.
    Hold,
    /// Send back what comes, on this core.
    Echo { core: usize },
    /// Read so many bytes, then send one.
    Drain { bytes: usize },
    /// Print the median of so many round trips with an echo on another core, or on the same one.
    PingPong {
        count: usize,
        #[arg(long)]
        one_core: bool,
    },
    /// Print the median of so many round trips with a process that spins on a word of shared memory.
    Spinning { count: usize },
    /// Be that process, on this core; the memory is the standard input.
    Spin { core: usize },
    /// Be one of two processes with a connection between their hosts.
    Wire {
        #[command(subcommand)]
        side: Wire,
    },
}

/// Is the floor, or the other side of one.
pub(crate) fn serve(arguments: &Arguments) -> Outcome<()> {
    match arguments.side {
        Side::Exit => Ok(()),
        Side::Hold => hold(),
        Side::Echo { core } => echo(core),
        Side::Drain { bytes } => drain(bytes),
        Side::PingPong { count, one_core } => {
            println!("{}", ping_pong_here(count, one_core)?);
            Ok(())
        }
        Side::Spinning { count } => {
            println!("{}", latency::spinning_here(count)?);
            Ok(())
        }
        Side::Spin { core } => latency::spin(core),
        Side::Wire { side } => wire::serve(side),
    }
}

/// Median of the microseconds of a blocking round trip between two processes on two cores.
pub(super) fn ping_pong(count: usize) -> Outcome<f64> {
    ping_pong_with(&["bench-floor", "ping-pong", &count.to_string()])
}

/// The same with both processes on one core, where none has to wake up.
fn ping_pong_on_one_core(count: usize) -> Outcome<f64> {
    ping_pong_with(&["bench-floor", "ping-pong", &count.to_string(), "--one-core"])
}

fn ping_pong_with(arguments: &[&str]) -> Outcome<f64> {
    let output = Command::new(std::env::current_exe()?).args(arguments).stderr(Stdio::inherit()).output()?;
    Ok(std::str::from_utf8(&output.stdout)?.trim().parse()?)
}

/// Messages per second that one process can send to another through a Unix socket, one by one.
pub(super) fn messages_per_second(count: usize) -> Outcome<f64> {
    let bytes = count * MESSAGE_BYTES;
    let (mut socket, mut reader) = other_side(&["drain", &bytes.to_string()])?;
    let mut message = [1; MESSAGE_BYTES];
    // The reader says when it is there, so that its start does not count.
    socket.read_exact(&mut message[..1])?;
    let start = Instant::now();
    for _ in 0..count {
        socket.write_all(&message)?;
    }
    socket.read_exact(&mut message[..1])?;
    let took = start.elapsed().as_secs_f64();
    reader.wait()?;
    Ok(count as f64 / took)
}

/// Milliseconds to start a process of this program and see its end.
pub(super) fn start_and_end_ms() -> Outcome<f64> {
    let (took, status) = seconds(|| Command::new(std::env::current_exe()?).args(["bench-floor", "exit"]).status());
    status?;
    Ok(took * 1e3)
}

/// Milliseconds from `kill -9` of a process to the first byte of the next one, started when the first was gone.
pub(super) fn kill_and_start_ms() -> Outcome<f64> {
    let (mut socket, mut victim) = other_side(&["hold"])?;
    socket.read_exact(&mut [0])?;
    let start = Instant::now();
    victim.kill()?;
    victim.wait()?;
    let (mut socket, mut next) = other_side(&["hold"])?;
    socket.read_exact(&mut [0])?;
    let took = start.elapsed().as_secs_f64();
    drop(socket);
    next.wait()?;
    Ok(took * 1e3)
}

/// What `inspect` says about a process of this program that has started and does nothing.
pub(super) fn of_idle_process<T>(inspect: impl FnOnce(u32) -> Outcome<T>) -> Outcome<T> {
    let (mut socket, mut process) = other_side(&["hold"])?;
    socket.read_exact(&mut [0])?;
    let seen = inspect(process.id());
    drop(socket);
    process.wait()?;
    seen
}

/// Seconds to copy on as many threads as there are cores, as `put` does; pages of both sides should be present.
pub(super) fn copy_seconds(from: &[u8], to: &mut [u8]) -> f64 {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    let part = from.len().div_ceil(threads).max(1);
    let copy = || {
        thread::scope(|scope| {
            for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                scope.spawn(move || to.copy_from_slice(from));
            }
        });
    };
    let (took, ()) = seconds(copy);
    took
}

/// Median of the microseconds of the cheapest system call.
pub(super) fn system_call_us(count: usize) -> Outcome<f64> {
    median_us(count, || {
        black_box(rustix::process::getppid());
        Ok(())
    })
}

/// Copies per second of a few bytes into heap blocks that are kept.
pub(super) fn small_copies_per_second(bytes: &[u8], count: usize) -> f64 {
    let mut kept = Vec::with_capacity(count);
    let (took, ()) = seconds(|| kept.extend((0..count).map(|_| black_box(bytes).to_vec())));
    black_box(kept);
    count as f64 / took
}

/// Starts a process of this program with one end of a socket pair; gives the other end.
fn other_side(arguments: &[&str]) -> Outcome<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("bench-floor").args(arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
    Ok((ours, command.spawn()?))
}

/// The socket that we were started with.
fn socket() -> Outcome<UnixStream> {
    Ok(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))
}

fn hold() -> Outcome<()> {
    let mut socket = socket()?;
    socket.write_all(&[1])?;
    socket.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn echo(core: usize) -> Outcome<()> {
    pin_to(core)?;
    let mut socket = socket()?;
    let mut message = [0; PING_BYTES];
    while socket.read_exact(&mut message).is_ok() {
        socket.write_all(&message)?;
    }
    Ok(())
}

fn drain(bytes: usize) -> Outcome<()> {
    let mut socket = socket()?;
    socket.write_all(&[1])?;
    let mut buffer = vec![0; DRAIN_BYTES];
    let mut left = bytes;
    while left > 0 {
        match socket.read(&mut buffer)? {
            0 => return Err(format!("the sender left {left} bytes before the end").into()),
            read => left -= read,
        }
    }
    socket.write_all(&[1])?;
    Ok(())
}

fn ping_pong_here(count: usize, one_core: bool) -> Outcome<f64> {
    let [here, other_core] = two_cores()?;
    let there = if one_core { here } else { other_core };
    let (mut socket, mut other) = other_side(&["echo", &there.to_string()])?;
    pin_to(here)?;
    let mut message = [1; PING_BYTES];
    let median = median_us(count, || {
        socket.write_all(&message)?;
        Ok(socket.read_exact(&mut message)?)
    });
    drop(socket);
    other.wait()?;
    median
}

/// From now on this thread runs on one core.
pub(super) fn pin_to(core: usize) -> Outcome<()> {
    Ok(pin(None, core)?)
}

/// The same for all threads of a process, and those that they start.
pub(super) fn pin_process(process: u32, core: usize) -> Outcome<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        match pin(Some(thread.ok_or("a thread without a number")?), core) {
            // It has ended meanwhile.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn pin(thread: Option<Pid>, core: usize) -> Result<(), Errno> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(thread, &cores)
}

/// The first two cores that we may use; twice the same one when there is one.
pub(super) fn two_cores() -> Outcome<[usize; 2]> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let first = cores.next().ok_or("there is no core to run on")?;
    Ok([first, cores.next().unwrap_or(first)])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_on_all_threads_copies_everything() {
        let from: Vec<u8> = (0..1_000_003_u32).map(|n| n as u8).collect();
        let mut to = vec![0; from.len()];
        assert!(copy_seconds(&from, &mut to) > 0.0);
        assert!(from == to);
    }

    #[test]
    fn the_two_cores_are_among_the_allowed_ones() {
        let allowed = sched_getaffinity(None).unwrap();
        assert!(two_cores().unwrap().iter().all(|core| allowed.is_set(*core)));
    }
}
