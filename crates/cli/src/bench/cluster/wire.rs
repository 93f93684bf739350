//! The floor of what crosses a network: two processes and a TCP connection, on the hosts of the nodes.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use clap::Subcommand;

use super::super::Outcome;
use super::super::floor::{pin_to, two_cores};
use super::super::measure::{median_us, seconds};
use super::lines::Lines;
use super::place::Place;
use super::stage::Stage;

/// Bytes of a message: about what a call of an empty task is on the wire, and its result.
pub(in crate::bench) const MESSAGE_BYTES: usize = 256;
/// What a copy writes and reads at once.
const PIECE_BYTES: usize = 1 << 20;
/// How long the floor may take.
const FLOOR_WAIT: Duration = Duration::from_secs(60);

/// The two processes.
#[derive(Clone, Copy, Subcommand)]
pub(crate) enum Wire {
    /// Say where to connect to, then send back what comes.
    Echo { bind: IpAddr, bytes: usize },
    /// Print the median of so many round trips in microseconds.
    Ping { to: SocketAddr, bytes: usize, count: usize },
    /// Say where to connect to, then read all that comes, say so, and print the processor seconds that it took.
    Take { bind: IpAddr },
    /// Send so many bytes; print the milliseconds until all were taken, and the processor seconds.
    Give { to: SocketAddr, bytes: usize },
}

/// Is one of them.
pub(crate) fn serve(side: Wire) -> Outcome<()> {
    let cores = two_cores()?;
    match side {
        Wire::Echo { bind, bytes } => {
            let mut message = vec![1; bytes];
            pin_to(cores[1])?;
            let listener = TcpListener::bind((bind, 0))?;
            println!("{}", listener.local_addr()?);
            let (mut peer, _) = listener.accept()?;
            peer.set_nodelay(true)?;
            while peer.read_exact(&mut message).is_ok() {
                peer.write_all(&message)?;
            }
        }
        Wire::Ping { to, bytes, count } => {
            let mut message = vec![1; bytes];
            pin_to(cores[0])?;
            let mut peer = TcpStream::connect(to)?;
            peer.set_nodelay(true)?;
            let median = median_us(count, || {
                peer.write_all(&message)?;
                Ok(peer.read_exact(&mut message)?)
            })?;
            println!("{median}");
        }
        Wire::Take { bind } => take(bind)?,
        Wire::Give { to, bytes } => give(to, bytes)?,
    }
    Ok(())
}

fn take(bind: IpAddr) -> Outcome<()> {
    let listener = TcpListener::bind((bind, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut peer, _) = listener.accept()?;
    let mut buffer = vec![0; PIECE_BYTES];
    let before = processor_seconds();
    while peer.read(&mut buffer)? > 0 {}
    peer.write_all(&[1])?;
    println!("{}", processor_seconds() - before);
    Ok(())
}

fn give(to: SocketAddr, bytes: usize) -> Outcome<()> {
    let piece = vec![1; PIECE_BYTES.min(bytes)];
    let mut peer = TcpStream::connect(to)?;
    let before = processor_seconds();
    let (took, done) = seconds(|| -> Outcome<()> {
        let mut left = bytes;
        while left > 0 {
            left -= peer.write(&piece[..left.min(piece.len())])?;
        }
        peer.shutdown(Shutdown::Write)?;
        Ok(peer.read_exact(&mut [0])?)
    });
    done?;
    println!("{} {}", took * 1e3, processor_seconds() - before);
    Ok(())
}

/// What this process has used of all cores.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A process of the floor, ended with this value.
struct Side(Child);

impl Drop for Side {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process of the floor on a host.
fn start(place: &Place, host: usize, arguments: &[&str]) -> Outcome<(Side, Lines<ChildStdout>)> {
    let mut command = place.command(host, &[&["bench-floor", "wire"], arguments].concat())?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = child.stdout.take().map(Lines::of);
    Ok((Side(child), lines.ok_or("a process of the floor has no output")?))
}

/// Median of the microseconds of a round trip of messages between two hosts, blocking, on two cores.
pub(in crate::bench) fn ping_pong(
    stage: &Stage,
    place: &Place,
    hosts: [usize; 2],
    bytes: usize,
    count: usize,
) -> Outcome<f64> {
    let (bind, bytes) = (place.address(hosts[1])?.to_string(), bytes.to_string());
    let (_echo, mut lines) = start(place, hosts[1], &["echo", &bind, &bytes])?;
    let to = lines.next(stage.stop(), FLOOR_WAIT)?;
    let (_ping, mut lines) = start(place, hosts[0], &["ping", &to, &bytes, &count.to_string()])?;
    Ok(lines.next(stage.stop(), FLOOR_WAIT)?.parse()?)
}

/// What a plain copy between two hosts took.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Copied {
    /// From the first byte to the word that the last one was taken.
    pub(in crate::bench) milliseconds: f64,
    /// Of both processes.
    pub(in crate::bench) processor_seconds: f64,
}

/// Sends bytes from one host to another through a socket, and does nothing else.
pub(in crate::bench) fn copy(stage: &Stage, place: &Place, hosts: [usize; 2], bytes: usize) -> Outcome<Copied> {
    let (_take, mut taken) = start(place, hosts[1], &["take", &place.address(hosts[1])?.to_string()])?;
    let to = taken.next(stage.stop(), FLOOR_WAIT)?;
    let (_give, mut given) = start(place, hosts[0], &["give", &to, &bytes.to_string()])?;
    let given = given.next(stage.stop(), FLOOR_WAIT)?;
    let (milliseconds, giver) = given.split_once(' ').ok_or("a process of the floor said too little")?;
    let taker: f64 = taken.next(stage.stop(), FLOOR_WAIT)?.parse()?;
    Ok(Copied { milliseconds: milliseconds.parse()?, processor_seconds: giver.parse::<f64>()? + taker })
}
