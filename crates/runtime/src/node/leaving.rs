//! How a node leaves its cluster: drained, at the end of its lease, or expelled. What must still go is decided in
//! `core::node::draining`; who started the node hears how it ended.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bireme_core::controller::ToController;
use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_core::message::RequestId;
use bireme_core::node::Event;

use super::{Shell, Word};
use crate::keeper::{Report, WorkerExit};

/// All workers are gone within this time after a node was told to stop, or their keeper ends them.
const WIND_DOWN_WAIT: Duration = Duration::from_secs(10);

/// How a node's part in its cluster ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was drained, and the cluster knows.
    Drained,
    /// It is no member any more, and why.
    Expelled(String),
}

/// Told once, on the node's thread. The node is still to be stopped.
pub(crate) type OnEnding = Box<dyn FnOnce(Ending) + Send>;

/// Who is told, and who waits for an answer of the controller.
pub(super) struct Leaving {
    on_ending: Option<OnEnding>,
    /// Who asked for a drain, of this node or another.
    asked: BTreeMap<RequestId, Sender<Result<(), String>>>,
    next_request: RequestId,
    /// The controller was told that this node is drained.
    said: bool,
    /// This node has ended its workers for good.
    ended_workers: bool,
    /// Workers that were asked to end because the node stops, and are still there.
    winding_down: Option<BTreeMap<ProcessId, JobId>>,
}

impl Leaving {
    pub(super) fn new(on_ending: OnEnding) -> Self {
        Self {
            on_ending: Some(on_ending),
            asked: BTreeMap::new(),
            next_request: 0,
            said: false,
            ended_workers: false,
            winding_down: None,
        }
    }

    /// Whether workers are ending because this node stops: others hear of the node, not of each of them.
    pub(super) fn is_winding_down(&self) -> bool {
        self.winding_down.is_some()
    }

    /// Whether no worker is left because this node leaves.
    pub(super) fn has_ended_workers(&self) -> bool {
        self.ended_workers
    }

    fn ends(&mut self, ending: Ending) {
        if let Some(told) = self.on_ending.take() {
            told(ending);
        }
    }
}

impl Shell {
    /// A command of the user: a node, this one or another, is to be drained.
    pub(super) fn drain_asked(&mut self, node: NodeId, grace_us: u64, reply: Sender<Result<(), String>>) {
        let Some(abroad) = &mut self.abroad else {
            // Whoever does not wait any more needs no answer, here and below.
            let _ = reply.send(Err(format!("{} is in no cluster", self.id)));
            return;
        };
        self.leaving.next_request += 1;
        let request = self.leaving.next_request;
        self.leaving.asked.insert(request, reply);
        abroad.peers.ask_controller(ToController::Drain { request, node, grace_us });
    }

    /// The controller's answer to that.
    pub(super) fn drain_answered(&mut self, request: RequestId, refused: Option<String>) {
        if let Some(reply) = self.leaving.asked.remove(&request) {
            let _ = reply.send(refused.map_or(Ok(()), Err));
        }
    }

    /// The controller wants this node to be drained.
    pub(super) fn drain_begins(&mut self, grace_us: u64) {
        eprintln!("bireme: {} is being drained, and has {} s for that", self.id, grace_us / 1_000_000);
        self.step(Event::Drain);
    }

    /// Leaves when nothing is left here, and everything that this node has said has arrived.
    pub(super) fn leave_if_drained(&mut self) {
        if self.leaving.said || !self.node.is_drained() {
            return;
        }
        if self.abroad.as_ref().is_some_and(|abroad| abroad.peers.all_heard()) {
            eprintln!("bireme: nothing is left on {}", self.id);
            self.say_drained();
        }
    }

    /// Its time is over, or the controller knows that it is drained.
    pub(super) fn told_to_leave(&mut self) {
        if self.leaving.said {
            self.leaving.ends(Ending::Drained);
            return;
        }
        let attached = self.drivers.count();
        eprintln!(
            "bireme: the time of {} to be drained is over: {attached} programs and what else is here end",
            self.id
        );
        self.drivers.finish_all(&format!("{} was drained, and did not wait any longer", self.id));
        self.say_drained();
    }

    /// What runs here ends before the others hear that this node is gone.
    fn say_drained(&mut self) {
        self.leaving.said = true;
        self.end_workers();
        if let Some(abroad) = &mut self.abroad {
            abroad.peers.ask_controller(ToController::Drained);
        }
    }

    /// Lets every worker end in good order, while the node still serves them. When and whom to kill is decided by the node's
    /// machine; the bound here is for a keeper that does not report.
    pub(super) fn wind_down(&mut self) {
        if self.leaving.ended_workers {
            return;
        }
        self.leaving.winding_down = Some(self.node.workers().collect());
        self.step(Event::Stop);
        let deadline = Instant::now() + WIND_DOWN_WAIT;
        while self.leaving.winding_down.as_ref().is_some_and(|left| !left.is_empty()) && Instant::now() < deadline {
            self.links.flush();
            if let Some(abroad) = &mut self.abroad {
                abroad.peers.flush();
            }
            if !self.node.wants_pass() {
                self.sleep();
            }
            self.pass();
        }
        self.leaving.ended_workers = true;
    }

    /// A worker has ended, or the keeper of some.
    pub(super) fn winds_down(&mut self, word: &Word) {
        let Some(left) = &mut self.leaving.winding_down else { return };
        match word {
            Word::Report(Report::Exited(WorkerExit { slot, incarnation, .. }))
            | Word::Report(Report::SpawnFailed { slot, incarnation, .. }) => {
                left.remove(&ProcessId { node: self.id, slot: *slot, incarnation: *incarnation });
            }
            Word::KeeperLost { job, .. } => left.retain(|_, of| !self.keepers.serves(*job, *of)),
            _ => {}
        }
    }

    fn end_workers(&mut self) {
        self.leaving.ended_workers = true;
        self.keepers.end_all();
    }

    /// This node is no member of its cluster any more: what runs here ends, before others may run it again.
    pub(super) fn expelled(&mut self, reason: String) {
        if self.leaving.said {
            // The head did not wait until its answer had come.
            self.leaving.ends(Ending::Drained);
            return;
        }
        eprintln!("bireme: {} is no member of its cluster any more: {reason}; its workers end", self.id);
        self.drivers.finish_all(&format!("{} is no member of its cluster any more: {reason}", self.id));
        self.end_workers();
        self.leaving.ends(Ending::Expelled(reason));
    }
}
