//! The floor of what crosses a network: two processes and a TCP connection, on the hosts of the nodes.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use clap::Subcommand;

use super::super::Outcome;
use super::super::floor::{Latencies, pin_to, spinning, two_cores};
use super::super::machine::Moment;
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
    Echo {
        bind: IpAddr,
        bytes: usize,
        /// On the core of the other process.
        #[arg(long)]
        one_core: bool,
    },
    /// Print the median of so many round trips in microseconds.
    Ping { to: SocketAddr, bytes: usize, count: usize },
    /// Say where to connect to, then read all that comes into the place of an object again and again, and say so.
    Take { bind: IpAddr, object: usize },
    /// Send so many bytes out of an object again and again; print the milliseconds until all were taken, and the seconds
    /// that the cores worked meanwhile.
    Give { to: SocketAddr, bytes: usize, object: usize },
}

/// Is one of them.
pub(crate) fn serve(side: Wire) -> Outcome<()> {
    let cores = two_cores()?;
    match side {
        Wire::Echo { bind, bytes, one_core } => {
            let mut message = vec![1; bytes];
            pin_to(if one_core { cores[0] } else { cores[1] })?;
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
        Wire::Take { bind, object } => {
            pin_to(cores[1])?;
            take(bind, object)?;
        }
        Wire::Give { to, bytes, object } => {
            pin_to(cores[0])?;
            give(to, bytes, object)?;
        }
    }
    Ok(())
}

fn take(bind: IpAddr, object: usize) -> Outcome<()> {
    let mut place = Object::new(object);
    let listener = TcpListener::bind((bind, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut peer, _) = listener.accept()?;
    loop {
        let came = peer.read(place.piece())?;
        if came == 0 {
            break;
        }
        place.advance(came);
    }
    Ok(peer.write_all(&[1])?)
}

fn give(to: SocketAddr, bytes: usize, object: usize) -> Outcome<()> {
    let mut source = Object::new(object);
    let mut peer = TcpStream::connect(to)?;
    let before = Moment::now()?;
    let (took, done) = seconds(|| -> Outcome<()> {
        let mut left = bytes;
        while left > 0 {
            let piece = source.piece();
            let piece_len = piece.len().min(left);
            let went = peer.write(&piece[..piece_len])?;
            source.advance(went);
            left -= went;
        }
        peer.shutdown(Shutdown::Write)?;
        Ok(peer.read_exact(&mut [0])?)
    });
    done?;
    println!("{} {}", took * 1e3, before.busy_since()?);
    Ok(())
}

/// The memory of an object, from its start to its end and again: what is moved comes from memory and ends there, unlike a
/// buffer that stays in the cache.
struct Object {
    bytes: Vec<u8>,
    at: usize,
}

impl Object {
    fn new(bytes: usize) -> Self {
        // Not zeros, whose pages would come with the first use.
        Self { bytes: vec![1; bytes.max(1)], at: 0 }
    }

    fn piece(&mut self) -> &mut [u8] {
        let end = (self.at + PIECE_BYTES).min(self.bytes.len());
        &mut self.bytes[self.at..end]
    }

    fn advance(&mut self, by: usize) {
        self.at = (self.at + by) % self.bytes.len();
    }
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
    ping_pong_on(stage, place, hosts, bytes, count, &[])
}

/// The same with both processes on one core and on two, and beside it processes that spin on shared memory, which have no
/// hosts and no bytes.
pub(in crate::bench) fn latencies(
    stage: &Stage,
    place: &Place,
    hosts: [usize; 2],
    bytes: usize,
    count: usize,
) -> Outcome<Latencies> {
    Ok(Latencies {
        blocking_one_core: ping_pong_on(stage, place, hosts, bytes, count, &["--one-core"])?,
        blocking_two_cores: ping_pong(stage, place, hosts, bytes, count)?,
        spinning: spinning(count)?,
    })
}

fn ping_pong_on(
    stage: &Stage,
    place: &Place,
    hosts: [usize; 2],
    bytes: usize,
    count: usize,
    flags: &[&str],
) -> Outcome<f64> {
    let (bind, bytes) = (place.address(hosts[1])?.to_string(), bytes.to_string());
    let (_echo, mut lines) = start(place, hosts[1], &[&["echo", &bind, &bytes], flags].concat())?;
    let to = lines.next(stage.stop(), FLOOR_WAIT)?;
    let (_ping, mut lines) = start(place, hosts[0], &["ping", &to, &bytes, &count.to_string()])?;
    Ok(lines.next(stage.stop(), FLOOR_WAIT)?.parse()?)
}

/// What a plain copy between two hosts took.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Copied {
    /// From the first byte to the word that the last one was taken.
    pub(in crate::bench) milliseconds: f64,
    /// Of all cores, whatever they did.
    pub(in crate::bench) busy_seconds: f64,
}

/// Sends an object so many times from one host to another through a socket, and does nothing else.
pub(in crate::bench) fn copy(
    stage: &Stage,
    place: &Place,
    hosts: [usize; 2],
    object: usize,
    times: usize,
) -> Outcome<Copied> {
    let (bind, bytes, object) =
        (place.address(hosts[1])?.to_string(), (object * times).to_string(), object.to_string());
    let (_take, mut taken) = start(place, hosts[1], &["take", &bind, &object])?;
    let to = taken.next(stage.stop(), FLOOR_WAIT)?;
    let (_give, mut given) = start(place, hosts[0], &["give", &to, &bytes, &object])?;
    let given = given.next(stage.stop(), FLOOR_WAIT)?;
    let (milliseconds, busy) = given.split_once(' ').ok_or("a process of the floor said too little")?;
    Ok(Copied { milliseconds: milliseconds.parse()?, busy_seconds: busy.parse()? })
}
