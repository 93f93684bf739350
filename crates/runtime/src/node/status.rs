//! What people ask about the cluster: this node tells what it knows, and asks the others what they know.
//!
//! The thread that has the question waits ([`gather`]), not the node's: the node's thread says who is there and passes on what
//! comes. A node that does not answer within [`ANSWER_WAIT`] is shown as its last load tells.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bireme_core::controller::{Departure, MemberRow};
use bireme_core::id::NodeId;
use bireme_core::ledger::snapshot::NodeRow;
use bireme_core::message::{Between, FromNode, RequestId};
use bireme_core::node::Overview;
use serde::{Deserialize, Serialize};

use super::Shell;
use super::mail::{Mail, Word};
use crate::clock;

/// How long the others may take for their answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// How long the node's own thread may take.
const OWN_WAIT: Duration = Duration::from_secs(5);
/// Nodes that are asked; of more, the others are shown as their last load tells.
const ASKED_MAX: usize = 256;
/// Questions at a time; a further one takes the place of the oldest, which gets no more answers.
const QUESTIONS_MAX: usize = 8;
/// Bytes of one node's answer; rows are left out until it fits.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What one node knows of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) overview: Overview,
    pub(crate) objects: u64,
    pub(crate) object_bytes: u64,
    pub(crate) object_store_bytes: u64,
}

/// Everything that was gathered.
pub(crate) struct Gathered {
    /// The nodes and, of those that are alive, how many wait there by the last load.
    pub(crate) nodes: Vec<(NodeRow, u64)>,
    /// Those that left by their own word or were drained; the others that are gone died.
    pub(crate) left: BTreeSet<NodeId>,
    /// What those told who answered.
    pub(crate) parts: Vec<(NodeId, Part)>,
    /// Those that were asked and did not answer.
    pub(crate) silent: BTreeSet<NodeId>,
}

/// What the node's thread says to who asks.
pub(crate) enum StatusWord {
    /// Who is there, and who was asked. The first word.
    Cluster { nodes: Vec<(NodeRow, u64)>, left: BTreeSet<NodeId>, asked: BTreeSet<NodeId> },
    /// A node's answer.
    Part(NodeId, Box<Part>),
}

/// Questions that wait for answers of other nodes.
#[derive(Default)]
pub(super) struct Questions {
    open: Vec<(u64, Sender<StatusWord>)>,
    asked: u64,
}

/// Asks the node and, through it, the others. For a thread that may wait.
pub(crate) fn gather(mail: &Mail) -> Result<Gathered, String> {
    let (reply, words) = channel();
    mail.put(Word::StatusAsked(reply));
    let first = words.recv_timeout(OWN_WAIT).map_err(|_| "the node's thread did not answer in time".to_owned())?;
    let StatusWord::Cluster { nodes, left, asked } = first else {
        return Err("the node's thread answered something else".to_owned());
    };
    let (parts, silent) = collect(&words, asked, Instant::now() + ANSWER_WAIT);
    Ok(Gathered { nodes, left, parts, silent })
}

/// The answers that come in time, and who gave none.
fn collect(
    words: &Receiver<StatusWord>,
    mut asked: BTreeSet<NodeId>,
    until: Instant,
) -> (Vec<(NodeId, Part)>, BTreeSet<NodeId>) {
    let mut parts = Vec::new();
    while !asked.is_empty() {
        match words.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(StatusWord::Part(node, part)) => {
                if asked.remove(&node) {
                    parts.push((node, *part));
                }
            }
            Ok(StatusWord::Cluster { .. }) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    (parts, asked)
}

impl Shell {
    /// Somebody wants to know what the cluster looks like.
    pub(super) fn status_asked(&mut self, reply: Sender<StatusWord>) {
        let (members, departed) = self.members();
        let left = |departure: &Departure| matches!(departure, Departure::Left | Departure::Drained);
        let left = departed.iter().filter(|(_, departure)| left(departure)).map(|(row, _)| row.node).collect();
        let rows = self.node.node_rows(&members, &departed).into_iter();
        let nodes = rows.map(|row| (row.clone(), self.node.queued_at(row.node))).collect();
        let others = members.iter().map(|row| row.node).filter(|node| *node != self.id);
        let asked: BTreeSet<NodeId> = others.take(ASKED_MAX).collect();
        let own = Box::new(self.part());
        let all = asked.iter().copied().chain([self.id]).collect();
        let told = reply.send(StatusWord::Cluster { nodes, left, asked: all });
        // Whoever does not wait any more needs no answers.
        if told.and_then(|()| reply.send(StatusWord::Part(self.id, own))).is_err() {
            return;
        }
        self.questions.asked += 1;
        let request = self.questions.asked;
        if self.questions.open.len() >= QUESTIONS_MAX {
            self.questions.open.remove(0);
        }
        self.questions.open.push((request, reply));
        let Some(abroad) = &mut self.abroad else { return };
        for node in asked {
            abroad.peers.tell(node, Between::WantStatus { request });
        }
    }

    /// Another node asks.
    pub(super) fn status_wanted(&mut self, from: NodeId, request: u64) {
        let mut part = self.part();
        let mut bytes = postcard::to_allocvec(&part).unwrap_or_default();
        while bytes.len() > ANSWER_BYTES_MAX && part.overview.shorten() {
            bytes = postcard::to_allocvec(&part).unwrap_or_default();
        }
        if let Some(abroad) = &mut self.abroad {
            abroad.peers.tell(from, Between::GiveStatus { request, bytes });
        }
    }

    /// Another node's answer.
    pub(super) fn status_given(&mut self, from: NodeId, request: u64, bytes: &[u8]) {
        let Ok(part) = postcard::from_bytes::<Part>(bytes) else { return };
        let part = Box::new(part);
        self.questions
            .open
            .retain(|(number, reply)| *number != request || reply.send(StatusWord::Part(from, part.clone())).is_ok());
    }

    /// A process asks for the nodes.
    pub(super) fn send_nodes(&mut self, process: bireme_core::id::ProcessId, request: RequestId) {
        let (members, departed) = self.members();
        let rows = self.node.node_rows(&members, &departed);
        self.links.send(process, &FromNode::Nodes { request, rows });
    }

    fn part(&mut self) -> Part {
        let stats = self.objects.stats();
        let groups = self.abroad.as_ref().map_or_else(Vec::new, |abroad| abroad.peers.groups());
        Part {
            overview: self.node.overview(clock::now()).with_groups(groups),
            objects: stats.objects,
            object_bytes: stats.used,
            object_store_bytes: stats.capacity,
        }
    }

    fn members(&self) -> (Vec<MemberRow>, Vec<(MemberRow, Departure)>) {
        self.abroad.as_ref().map_or_else(Default::default, |abroad| abroad.peers.everybody())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_does_not_answer_in_time_is_named_and_strangers_do_not_count() {
        let (say, words) = channel();
        let part = |queued| Box::new(Part { overview: Overview { queued, ..Overview::default() }, ..Part::default() });
        say.send(StatusWord::Part(NodeId(2), part(7))).unwrap();
        say.send(StatusWord::Part(NodeId(9), part(1))).unwrap();
        say.send(StatusWord::Part(NodeId(2), part(8))).unwrap();
        let asked = BTreeSet::from([NodeId(2), NodeId(3)]);
        let (parts, silent) = collect(&words, asked, Instant::now());
        let told: Vec<(NodeId, u64)> = parts.iter().map(|(node, part)| (*node, part.overview.queued)).collect();
        assert_eq!((told, silent), (vec![(NodeId(2), 7)], BTreeSet::from([NodeId(3)])));
    }
}
