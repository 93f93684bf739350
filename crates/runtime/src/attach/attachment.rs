//! The driver's side: attaching, hearing what the node says beside the rings, and leaving in good order.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bireme_core::names::Namespace;
use bireme_core::owner::OwnerConfig;
use bireme_net::{Fabric, RingSpan};
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};
use rustix::event::PollFlags;

use super::message::{FromDriver, Hello, PACKET_BYTES_MAX, Program, ToDriver, Welcome, decode, decode_answer, encode};
use super::program::own_target;
use super::socket::Socket;
use crate::config::Config;
use crate::error::Error;
use crate::link::{LEDGER_RING_BYTES, NOTICE_RING_BYTES};
use crate::names;
use crate::output::{Output, OutputLine, Outputs, Stream, Throttle};
use crate::process::{Process, Start};
use crate::thread;

/// How long a node may take for its answer: it may have to copy an executable, or to start an interpreter.
const WELCOME_WAIT: Duration = Duration::from_secs(60);
/// How long a node may take to end what is left of a driver that leaves.
const LEAVE_WAIT: Duration = Duration::from_secs(15);
/// How long threads of this program may take to notice that the runtime is over.
const QUIET_WAIT: Duration = Duration::from_secs(5);

/// A driver's hold on its node.
pub(crate) struct Attachment {
    socket: Arc<Socket>,
    leaving: Arc<AtomicBool>,
    /// Ends when the node has said its last word.
    over: Receiver<()>,
}

/// Becomes a driver of the node behind a socket.
pub(crate) fn attach(path: &Path, config: &Config, namespace: &Namespace) -> Result<(Arc<Process>, Attachment), Error> {
    let failed = |error: io::Error| Error::System {
        what: "attaching to the node",
        reason: format!("{}: {error}; does it still run?", path.display()),
    };
    let socket = Socket::connect(path).map_err(failed)?;
    check_user(&socket)?;
    let hello = Hello {
        build: env!("CARGO_PKG_VERSION").to_owned(),
        program: own_program(config, namespace),
        lines: config.output != Output::Silent,
        settings: config.worker_settings(),
    };
    socket.send(&hello.encode(), &[]).map_err(failed)?;
    if !socket.wait(PollFlags::IN, WELCOME_WAIT).map_err(failed)? {
        return Err(failed(io::Error::other(format!("no answer within {WELCOME_WAIT:?}"))));
    }
    let (packet, descriptors) = socket.receive(PACKET_BYTES_MAX).map_err(failed)?;
    let answer = decode_answer(&packet).map_err(|reason| failed(io::Error::other(reason)))?;
    let welcome = answer.map_err(Error::Refused)?;
    let process = begin(welcome, descriptors, config, namespace)?;
    let outputs = Arc::new(Outputs::new(Throttle::new(config.output_dedup, config.output_rate_max)));
    process.take_outputs_from(Arc::clone(&outputs));
    let (socket, leaving) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
    let (said, over) = channel();
    let listener = Listener {
        socket: Arc::clone(&socket),
        leaving: Arc::clone(&leaving),
        process: Arc::downgrade(&process),
        outputs,
        prints: config.output == Output::Inherit,
    };
    thread::spawn("bireme-attach", move || {
        listener.listen();
        // Nobody waits when the node is gone by itself.
        let _ = said.send(());
    })?;
    Ok((process, Attachment { socket, leaving, over }))
}

/// A node of another user is never told anything.
fn check_user(socket: &Socket) -> Result<(), Error> {
    let peer = socket.peer().map_err(|error| Error::Refused(format!("its user is not known: {error}")))?;
    let user = rustix::process::geteuid().as_raw();
    if peer.uid == user {
        return Ok(());
    }
    Err(Error::Refused(format!("it is user {}'s, and this program is user {user}'s", peer.uid)))
}

/// What the workers of this program are.
pub(crate) fn own_program(config: &Config, namespace: &Namespace) -> Program {
    let unnamed = || Program::Rust { target: own_target(), environment: Vec::new() };
    let mut program = config.program.clone().unwrap_or_else(unnamed);
    let (Program::Rust { environment, .. } | Program::Python { environment, .. }) = &mut program;
    environment.push(names::for_workers(namespace));
    program
}

/// Maps what the node has handed over.
fn begin(
    welcome: Welcome,
    descriptors: Vec<std::os::fd::OwnedFd>,
    config: &Config,
    namespace: &Namespace,
) -> Result<Arc<Process>, Error> {
    let broken = |what: &'static str| move |reason: String| Error::System { what, reason };
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| broken("taking over shared memory")("it is missing".to_owned()));
    let fabric = Fabric::from_fd(next()?).map_err(|e| broken("mapping the fabric")(e.to_string()))?;
    let arena = Arena::from_fd(next()?).map_err(|e| broken("mapping the arena")(e.to_string()))?;
    let table = Table::from_fd(next()?).map_err(|e| broken("mapping the object table")(e.to_string()))?;
    let arena = arena.with_overflow(next()?);
    let fabric = match next() {
        Ok(bell) => fabric.with_bell(bell),
        Err(_) => fabric,
    };
    let Welcome { me, job, to_node, from_node } = welcome;
    let slot = ProcessSlot::new(me.slot).ok_or_else(|| broken("finding the slot")(me.slot.to_string()))?;
    let span = |offset, capacity| {
        RingSpan::from_parts(offset, capacity).ok_or_else(|| broken("finding the node's rings")(offset.to_string()))
    };
    Process::start(Start {
        me,
        job: job.0,
        namespace: namespace.clone(),
        store: StoreClient::new(Arc::new(arena), Arc::new(table), slot),
        fabric,
        to_node: span(to_node, LEDGER_RING_BYTES)?,
        from_node: span(from_node, NOTICE_RING_BYTES)?,
        spin: config.spin,
        owner: OwnerConfig { cancel_grace_us: config.cancel_grace_ms.saturating_mul(1_000) },
    })
}

impl Attachment {
    /// Leaves in good order: when this returns, nothing of this program's job is left but detached actors. `process` is over
    /// already.
    pub(crate) fn detach(self, process: &Process) {
        self.leaving.store(true, Ordering::Release);
        process.close();
        if !process.is_quiet_within(QUIET_WAIT) {
            // The slot must not become another's while threads of this program may use it: it goes with the program.
            eprintln!("bireme: a thread still waits for the runtime; its node keeps the job until this program ends");
            std::mem::forget(self);
            return;
        }
        // A node that is gone needs no word, and says none.
        if self.socket.send(&encode(&FromDriver::Detach), &[]).is_ok() {
            let _ = self.over.recv_timeout(LEAVE_WAIT);
        }
    }
}

/// What hears the node beside the rings.
struct Listener {
    socket: Arc<Socket>,
    leaving: Arc<AtomicBool>,
    process: Weak<Process>,
    outputs: Arc<Outputs>,
    /// Lines go where this program prints, and not to whoever asks for them.
    prints: bool,
}

impl Listener {
    fn listen(self) {
        let reason = loop {
            let packet = match self.socket.receive(PACKET_BYTES_MAX) {
                Ok((packet, _)) if packet.is_empty() => break "its process has ended".to_owned(),
                Ok((packet, _)) => packet,
                Err(error) => break format!("the connection to it broke: {error}"),
            };
            match decode(&packet) {
                Ok(ToDriver::Lines { pid, name, stream, node, text }) => {
                    self.lines(&OutputLine { pid, name, stream, node, text });
                }
                Ok(ToDriver::LinesDropped(lines)) => self.outputs.note_dropped(lines),
                Ok(ToDriver::Over(reason)) => break reason,
                Err(reason) => break format!("it said something that cannot be read: {reason}"),
            }
        };
        if !self.leaving.load(Ordering::Acquire)
            && let Some(process) = self.process.upgrade()
        {
            process.lose_node(reason);
        }
        self.outputs.close();
    }

    fn lines(&self, lines: &OutputLine) {
        let text = &lines.text;
        if !self.prints {
            let line = |text: &str| OutputLine { text: text.to_owned(), ..lines.clone() };
            self.outputs.push(text.split('\n').map(line));
            return;
        }
        // Whoever closed these streams wants no lines.
        let _ = match lines.stream {
            Stream::Stdout => writeln!(io::stdout(), "{text}"),
            Stream::Stderr => writeln!(io::stderr(), "{text}"),
        };
    }
}
