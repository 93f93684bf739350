//! One life of a node: from its seat in the cluster to its end. A node that loses its cluster has another one, under another
//! number and with nothing of what it had.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Ready, start_node};
use crate::attach::program::Programs;
use crate::attach::{self, door::Door};
use crate::cluster::{self, ClusterChoice, ClusterStart, Timing};
use crate::error::Error;
use crate::node::{Ending, Mail, NodeThread, OnEnding};
use crate::settings::Settings;

/// The first pause between two attempts to join again; doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Why a life is over.
pub(super) enum Over {
    /// Somebody asked for it.
    Asked,
    /// The node's own part in the cluster ended.
    Ended(Ending),
}

/// Where the node's thread puts how its part ended.
struct Notice {
    ending: Mutex<Option<Ending>>,
    event: OwnedFd,
}

/// A node with its door for programs.
pub(super) struct Life {
    pub(super) told: Ready,
    node: NodeThread,
    door: Door,
    notice: Arc<Notice>,
}

impl Life {
    pub(super) fn start(
        settings: &Settings,
        choice: &ClusterChoice,
        place: ClusterStart,
        directory: &Path,
        programs: &Arc<Programs>,
    ) -> Result<Self, Error> {
        let own = place.address().map_or(String::new(), |address| address.to_string());
        let told = Ready {
            node: place.node,
            cluster: cluster::cluster_name(place.cluster),
            address: own.clone(),
            head: choice.head.map_or(own, |head| head.to_string()),
            token_file: choice.token_file(place.cluster),
        };
        let notice = Arc::new(Notice { ending: Mutex::default(), event: event()? });
        let told_there = Arc::clone(&notice);
        let on_ending: OnEnding = Box::new(move |ending| {
            *told_there.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
            // The counter is far from full, so that this cannot fail.
            let _ = rustix::io::write(&told_there.event, &1_u64.to_ne_bytes());
        });
        let node = start_node(settings, place, Arc::clone(programs), on_ending)?;
        let socket = directory.join(attach::SOCKET);
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            // Of the life before.
            _ => {}
        }
        let door = Door::open(&socket, node.mail(), node.memory(), Arc::clone(programs))?;
        Ok(Self { told, node, door, notice })
    }

    /// The way to the node's thread.
    pub(super) fn mail(&self) -> Mail {
        self.node.mail()
    }

    /// Returns when one of these descriptors is readable, or the node's part in its cluster is over.
    pub(super) fn wait(&self, asked: [&OwnedFd; 2]) -> Over {
        loop {
            let [first, second] = asked;
            if is_readable([first, second, &self.notice.event], None)[..2].contains(&true) {
                return Over::Asked;
            }
            if let Some(ending) = self.notice.ending.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Over::Ended(ending);
            }
        }
    }

    /// Nobody new, then nobody.
    pub(super) fn stop(self) {
        drop(self.door);
        self.node.stop();
    }
}

/// A descriptor that somebody makes readable.
pub(super) fn event() -> Result<OwnedFd, Error> {
    eventfd(0, EventfdFlags::CLOEXEC)
        .map_err(|error| Error::System { what: "making an event", reason: error.to_string() })
}

fn failed(error: io::Error) -> Error {
    Error::System { what: "listening for programs", reason: error.to_string() }
}

/// Which of these are readable; waits until one is, or for so long.
fn is_readable<const N: usize>(all: [&OwnedFd; N], patience: Option<Duration>) -> [bool; N] {
    let mut ends = all.map(|end| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    // An interrupted wait shows nothing.
    let _ = poll(&mut ends, patience.as_ref());
    ends.map(|end| !end.revents().is_empty())
}

/// Joins again, with pauses, for as long as the settings say. Nothing when the node is asked to end meanwhile.
pub(super) fn rejoin(
    settings: &Settings,
    choice: &ClusterChoice,
    asked: [&OwnedFd; 2],
) -> Result<Option<ClusterStart>, Error> {
    let Some(head) = choice.head else { return Ok(None) };
    let (began, total) = (Instant::now(), settings.config().total()?);
    let mut pause = PAUSE;
    loop {
        if is_readable(asked, Some(pause)).contains(&true) {
            return Ok(None);
        }
        let error = match cluster::prepare(choice, &total, timing(settings)) {
            Ok(place) => return Ok(Some(place)),
            Err(error) => error,
        };
        if pause == PAUSE {
            eprintln!("bireme: {head} is tried again for {:?}: {error}", settings.rejoin_time);
        }
        if began.elapsed() >= settings.rejoin_time {
            let reason = format!(
                "the head at {head} has not let this node in for {:?} ({error}); start the head, then this node",
                settings.rejoin_time
            );
            return Err(Error::System { what: "joining the cluster again", reason });
        }
        pause = (pause * 2).min(PAUSE_MAX).min(settings.rejoin_time.saturating_sub(began.elapsed()).max(PAUSE));
    }
}

/// The head's rules, as these settings have them.
pub(super) fn timing(settings: &Settings) -> Timing {
    Timing { heartbeat: settings.heartbeat_period, lease: settings.node_lease }
}
