//! The floor of what crosses a network: two processes and a TCP connection, on the hosts of the nodes.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use clap::Subcommand;

use super::super::Outcome;
use super::super::floor::{pin_to, two_cores};
use super::super::measure::median_us;
use super::lines::Lines;
use super::place::Place;
use super::stage::Stage;

/// Bytes of a message: about what a call of an empty task is on the wire, and its result.
const MESSAGE_BYTES: usize = 256;
/// How long the floor may take.
const FLOOR_WAIT: Duration = Duration::from_secs(60);

/// The two processes.
#[derive(Clone, Copy, Subcommand)]
pub(crate) enum Wire {
    /// Say where to connect to, then send back what comes.
    Echo { bind: IpAddr },
    /// Print the median of so many round trips in microseconds.
    Ping { to: SocketAddr, count: usize },
}

/// Is one of them.
pub(crate) fn serve(side: Wire) -> Outcome<()> {
    let cores = two_cores()?;
    let mut message = [1; MESSAGE_BYTES];
    match side {
        Wire::Echo { bind } => {
            pin_to(cores[1])?;
            let listener = TcpListener::bind((bind, 0))?;
            println!("{}", listener.local_addr()?);
            let (mut peer, _) = listener.accept()?;
            peer.set_nodelay(true)?;
            while peer.read_exact(&mut message).is_ok() {
                peer.write_all(&message)?;
            }
        }
        Wire::Ping { to, count } => {
            pin_to(cores[0])?;
            let mut peer = TcpStream::connect(to)?;
            peer.set_nodelay(true)?;
            let median = median_us(count, || {
                peer.write_all(&message)?;
                Ok(peer.read_exact(&mut message)?)
            })?;
            println!("{median}");
        }
    }
    Ok(())
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

/// Median of the microseconds of a round trip between two hosts, blocking, on two cores.
pub(super) fn ping_pong(stage: &Stage, place: &Place, hosts: [usize; 2], count: usize) -> Outcome<f64> {
    let start = |host, arguments: &[&str]| -> Outcome<_> {
        let mut command = place.command(host, &[&["bench-floor", "wire"], arguments].concat())?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().map(Lines::of);
        Ok((Side(child), lines.ok_or("a process of the floor has no output")?))
    };
    let (_echo, mut lines) = start(hosts[1], &["echo", &place.address(hosts[1])?.to_string()])?;
    let to = lines.next(stage.stop(), FLOOR_WAIT)?;
    let (_ping, mut lines) = start(hosts[0], &["ping", &to, &count.to_string()])?;
    Ok(lines.next(stage.stop(), FLOOR_WAIT)?.parse()?)
}
