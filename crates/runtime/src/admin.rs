//! Questions to a running node from commands of the same user, over the node's Unix socket.
//!
//! One connection is one question and one answer: a frame of magic, length and a postcard value each way. The asking side
//! is [`ask`]; the node's side is [`AdminServer`], a thread that checks the peer's user, reads one bounded frame within
//! [`PEER_WAIT`] and hands the question to the node. Nothing here decides: `Drain` and `Stop` are accepted and happen later.
//!
//! | file | what |
//! |---|---|
//! | `compose` | what all nodes have told, as one picture |
//! | `frame` | frames with a bound and a deadline |
//! | `status` | what `bireme status` shows |

pub(crate) mod compose;
mod frame;
mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bireme_core::id::NodeId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};

pub use status::{ActorStatus, ClusterStatus, GroupStatus, JobStatus, NodeState, NodeStatus, Security, WaitingStatus};

use crate::error::Error;
use crate::thread;

/// Longest question.
pub const REQUEST_BYTES_MAX: u32 = 64 << 10;
/// Longest answer.
pub const REPLY_BYTES_MAX: u32 = 16 << 20;
/// How long a peer may take for its question, and again for the answer.
pub const PEER_WAIT: Duration = Duration::from_secs(2);

/// A question to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AdminRequest {
    /// What the cluster looks like.
    Status,
    /// Move everything off a node, then let it leave.
    Drain {
        /// Which node.
        node: NodeId,
        /// When it leaves whatever is still there.
        deadline_ms: u64,
    },
    /// Put a node out of the cluster at once, and let its certificate in no more. For the head.
    Expel {
        /// Which node.
        node: NodeId,
    },
    /// End this node.
    Stop,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AdminReply {
    /// What the cluster looks like.
    Status(Box<ClusterStatus>),
    /// It is being done.
    Accepted,
    /// It cannot be done, and why.
    Refused(String),
}

/// Asks the node behind a socket. A node of another user is never asked, and never answers.
pub fn ask(socket: &Path, request: &AdminRequest, wait: Duration) -> Result<AdminReply, Error> {
    let failed = |error: io::Error| Error::System { what: "asking the node", reason: error.to_string() };
    let deadline = Instant::now() + wait;
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    check_peer(&stream).map_err(failed)?;
    frame::write(&mut stream, request, REQUEST_BYTES_MAX, deadline).map_err(failed)?;
    frame::read(&mut stream, REPLY_BYTES_MAX, deadline).map_err(failed)
}

/// Refuses a peer of another user. The kernel vouches for it.
pub fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    let user = rustix::process::geteuid();
    if peer != user {
        let message = format!("the peer is user {}, not {}", peer.as_raw(), user.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// The node's side: a thread that answers one peer after the other. Ends when dropped.
pub struct AdminServer {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Answers whoever connects with what `answer` says. It is called on the thread of the server and must not wait long.
    pub fn start(
        listener: UnixListener,
        answer: impl FnMut(AdminRequest) -> AdminReply + Send + 'static,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::System { what: "listening for commands", reason: error.to_string() };
        // A peer that is gone again must not hold the thread in `accept`.
        listener.set_nonblocking(true).map_err(failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let stopped = stop.try_clone().map_err(failed)?;
        let thread = thread::spawn("bireme-admin", move || serve(&listener, &stopped, answer))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // The counter is far from full, so that this cannot fail.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &UnixListener, stop: &OwnedFd, mut answer: impl FnMut(AdminRequest) -> AdminReply) {
    loop {
        let mut both = [listener.as_fd(), stop.as_fd()].map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
        // An interrupted wait shows nothing, and the loop waits again.
        let _ = poll(&mut both, None);
        let [waiting, ended] = both.map(|end| !end.revents().is_empty());
        if ended {
            return;
        }
        if !waiting {
            continue;
        }
        match listener.accept().and_then(|(stream, _)| serve_one(stream, &mut answer)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The peer has heard it, or is gone; the next one is served.
            Err(error) => eprintln!("bireme: a command was not answered: {error}"),
        }
    }
}

/// One question and its answer.
fn serve_one(mut stream: UnixStream, answer: &mut impl FnMut(AdminRequest) -> AdminReply) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    check_peer(&stream)?;
    let request = frame::read(&mut stream, REQUEST_BYTES_MAX, Instant::now() + PEER_WAIT)?;
    let reply = answer(request);
    let deadline = Instant::now() + PEER_WAIT;
    match frame::write(&mut stream, &reply, REPLY_BYTES_MAX, deadline) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let refused = AdminReply::Refused(format!("the answer does not fit: {error}"));
            frame::write(&mut stream, &refused, REPLY_BYTES_MAX, deadline)
        }
        done => done,
    }
}
