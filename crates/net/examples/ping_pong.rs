//! What the control link costs: a ping-pong of two processes over loopback, against one over a raw blocking socket.
//!
//! `cargo run --release -p bireme-net --example ping_pong [calls] [rounds]`. Both processes are woken for every message,
//! as nodes are; the last row lets them spin as nodes do while relays are under way. Rounds are interleaved, so that all rows
//! meet the same machine. Beside the medians are the best rounds, which say more on a machine that does other things.

#[path = "spike/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme_core::id::NodeId;
use bireme_core::session::SessionLimits;
use bireme_core::time::Tick;
use bireme_net::link::{ControlLink, Track};
use bireme_net::wire::PlainWire;
use bireme_net::{Fabric, Interest, Poller, SpinMode, SpinPolicy};
use processes::{Child, await_quiet, median, slot};

/// A small message, like a call with a small argument.
const MESSAGE_BYTES: usize = 100;

#[derive(Clone, Copy)]
enum Way {
    Raw,
    Link(SpinMode),
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (calls, rounds) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(7));
    let ways = [Way::Raw, Way::Link(SpinMode::Never), Way::Link(SpinMode::Adaptive)];
    let mut figures = ways.map(|_| Vec::new());
    let quiet = await_quiet();
    for _ in 0..rounds {
        for (way, figures) in ways.iter().zip(&mut figures) {
            figures.push(round(*way, calls));
        }
    }
    println!("machine quiet at the start: {quiet}; {calls} calls of {MESSAGE_BYTES} bytes, {rounds} rounds");
    let best = figures.each_ref().map(|figures| figures.iter().copied().fold(f64::INFINITY, f64::min));
    let middle = figures.map(median);
    for (index, name) in ["raw blocking socket", "control link", "control link, spinning"].iter().enumerate() {
        let (us, best_us) = (middle[index], best[index]);
        let (ratio, best_ratio) = (us / middle[0], best_us / best[0]);
        println!("{name:<24} {us:7.2} us  x {ratio:.3}    best {best_us:7.2} us  x {best_ratio:.3}");
    }
}

/// Microseconds per call.
fn round(way: Way, calls: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let child = Child::fork(|| {
        let stream = TcpStream::connect(address).expect("the parent listens");
        match way {
            Way::Raw => raw(stream, calls, false),
            Way::Link(mode) => End::new(stream, mode, false).play(calls),
        };
    });
    let (stream, _) = listener.accept().expect("the child dials");
    let took = match way {
        Way::Raw => raw(stream, calls, true),
        Way::Link(mode) => End::new(stream, mode, true).play(calls),
    };
    drop(child);
    took.as_secs_f64() * 1e6 / calls as f64
}

fn raw(mut stream: TcpStream, calls: usize, serves: bool) -> Duration {
    stream.set_nodelay(true).expect("a TCP stream");
    let mut bytes = [7; MESSAGE_BYTES];
    let begun = Instant::now();
    for _ in 0..calls {
        if serves {
            stream.write_all(&bytes).expect("the peer lives");
        }
        stream.read_exact(&mut bytes).expect("the peer lives");
        if !serves {
            stream.write_all(&bytes).expect("the peer lives");
        }
    }
    begun.elapsed()
}

/// One node's end of the link, with the loop that a node has.
struct End {
    link: ControlLink,
    poller: Poller,
    policy: Option<SpinPolicy>,
    serves: bool,
    begun: Instant,
}

impl End {
    fn new(stream: TcpStream, mode: SpinMode, serves: bool) -> Self {
        let fabric = Fabric::create().and_then(Fabric::with_new_bell).expect("there is memory");
        fabric.claim_slot(slot(0), 1);
        let (me, peer) = if serves { (NodeId(1), NodeId(2)) } else { (NodeId(2), NodeId(1)) };
        let mut link = ControlLink::new(me, peer, SessionLimits::default());
        link.attach(Box::new(PlainWire::new(stream).expect("a TCP stream"))).expect("a fresh stream");
        let poller = Poller::new(fabric.doorbell(slot(0))).expect("the fabric has a bell");
        poller.add(link.socket().expect("attached"), 0, Interest::READ).expect("a socket");
        let policy = (mode != SpinMode::Never).then(|| SpinPolicy::new(mode));
        Self { link, poller, policy, serves, begun: Instant::now() }
    }

    fn play(mut self, calls: usize) -> Duration {
        self.flush();
        // The other side may be sent the first message together with the beginning, and must not drop it.
        while self.serves && !self.link.is_open() {
            self.wait(|_| ());
        }
        let begun = Instant::now();
        let mut left = calls;
        if self.serves {
            self.send(&[7; MESSAGE_BYTES]);
        }
        while left > 0 {
            let mut bytes = [0; MESSAGE_BYTES];
            let mut came = 0;
            self.wait(|message| {
                bytes.copy_from_slice(message);
                came += 1;
            });
            left -= came;
            if came > 0 && (left > 0 || !self.serves) {
                self.send(&bytes);
            }
        }
        begun.elapsed()
    }

    fn now(&self) -> Tick {
        Tick(self.begun.elapsed().as_micros() as u64)
    }

    fn send(&mut self, bytes: &[u8]) {
        let _ = self.link.send(Track::FIRST, bytes.to_vec());
        self.flush();
    }

    fn flush(&mut self) {
        let now = self.now();
        self.link.flush(now).expect("the peer lives");
    }

    /// Waits once and reads what is there.
    fn wait(&mut self, mut deliver: impl FnMut(&[u8])) {
        self.poller.wait(self.policy.as_mut(), Some(Duration::from_secs(1)), || false);
        if self.poller.ready().any(|ready| ready.readable) {
            let now = self.now();
            self.link.receive(now, |_, bytes| deliver(bytes)).expect("the peer lives");
        }
    }
}
