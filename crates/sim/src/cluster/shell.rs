//! The shell of a driver or worker: rings in, machines, effects out. A faithful small copy of the runtime's.

use std::sync::Arc;

use bireme_core::failure::{Death, DeathCause, Failure};
use bireme_core::id::{NodeId, ObjectId, ProcessId, digest};
use bireme_core::message::{FromNode, NodeBound, Peer, ToNode};
use bireme_core::owner::{self, Effect};
use bireme_core::record::Record;
use bireme_core::route::Hearer;
use bireme_core::spec::TaskKind;
use bireme_core::value::Value;
use bireme_core::worker;

use super::{Cluster, Happening};
use crate::planted::Planted;

/// A process that cannot write to its node tries again after so long.
pub(super) const BLOCKED_US: u64 = 500;

impl Cluster {
    pub(super) fn write(&mut self, from: ProcessId, to: ProcessId, frame: Vec<u8>) {
        self.mix_bytes(&frame);
        self.network.write(from, to, frame);
        if to.is_node() {
            self.wake_node(to.node);
        } else {
            self.wake(to);
        }
    }

    fn wake(&mut self, process: ProcessId) {
        let most = if self.faulty { self.faults.latency_us } else { 20 };
        let after = self.random.within(1, most);
        let Some(entry) = self.processes.get_mut(&process) else { return };
        if !entry.look_due {
            entry.look_due = true;
            let after = after * entry.slowness;
            self.after(after, Happening::Looked(process));
        }
    }

    /// Reads what came in: the node's words first, then the peers'.
    pub(super) fn look(&mut self, process: ProcessId) {
        if self.is_blocked(process) {
            // It is inside of a send and reads nothing until that is over.
            self.after(BLOCKED_US, Happening::Looked(process));
            return;
        }
        let Some(entry) = self.processes.get_mut(&process) else { return };
        entry.look_due = false;
        self.drain_node_words(process);
        let peers: Vec<ProcessId> = match self.processes.get(&process) {
            Some(entry) => entry.links.iter().copied().collect(),
            None => return,
        };
        for peer in peers {
            self.drain_peer(process, peer);
        }
        if self.processes.contains_key(&process) && self.network.has_news(process) {
            self.wake(process);
        }
        self.arm_owner(process);
    }

    fn drain_node_words(&mut self, process: ProcessId) {
        while let Some(frame) = self.network.read(process, ProcessId::of_node(process.node)) {
            match FromNode::decode(&frame) {
                Ok(message) => self.hear_node(process, message),
                Err(malformed) => panic!("the node wrote what cannot be read: {malformed}"),
            }
        }
    }

    fn drain_peer(&mut self, process: ProcessId, peer: ProcessId) {
        while let Some(frame) = self.network.read(process, peer) {
            match Peer::decode(&frame) {
                Ok(message) => self.hear_peer(process, peer, message),
                Err(malformed) => panic!("{peer} wrote what cannot be read: {malformed}"),
            }
        }
    }

    fn hear_node(&mut self, process: ProcessId, mut message: FromNode) {
        if self.planted == Some(Planted::OneCallTooMany)
            && let FromNode::Construct { spec, .. } = &mut message
            && let TaskKind::Create(options) = &mut Arc::make_mut(spec).kind
        {
            options.concurrency_max += 1;
        }
        match message.hearer() {
            Hearer::Worker => self.step_worker(process, worker::Event::FromNode(message)),
            Hearer::Owner => self.step_owner(process, owner::Event::FromNode(message)),
            Hearer::Shell => self.hear(process, message),
        }
    }

    fn hear(&mut self, process: ProcessId, message: FromNode) {
        match message {
            FromNode::LinkOpened { peer, .. } => {
                let Some(entry) = self.processes.get_mut(&process) else { return };
                entry.links.insert(peer);
                self.send_parked(process);
                self.drain_peer(process, peer);
            }
            FromNode::ProcessDied(death) => self.bury(process, *death),
            FromNode::Flush { dead } => {
                let links = self.processes.get(&process).map(|entry| entry.links.clone()).unwrap_or_default();
                links.into_iter().for_each(|peer| self.drain_peer(process, peer));
                self.tell_node(process, &ToNode::Flushed { dead });
            }
            FromNode::ItemFound { request, index, value } => {
                let Some(entry) = self.processes.get_mut(&process) else { return };
                entry.found.entry(request).or_default().push((index, value));
            }
            FromNode::Relayed { from, bytes } => match Peer::decode(&bytes) {
                Ok(message) => {
                    self.watch.relayed(process, from);
                    self.hear_peer(process, from, message);
                }
                Err(malformed) => panic!("{from} wrote what cannot be read: {malformed}"),
            },
            FromNode::NodeDied { node, .. } => self.bury_node(process, node, message),
            FromNode::Located { request, located } => self.located(process, request, located),
            FromNode::Adopted { request, adoption, attempt, started: _ } => {
                self.answer_thread(process, request, adoption, attempt)
            }
            // Nobody here asks the other questions.
            _ => {}
        }
    }

    fn hear_peer(&mut self, process: ProcessId, peer: ProcessId, message: Peer) {
        let repeatable = match &message {
            Peer::Call { spec, resolved, .. } => {
                spec.nested.is_empty() && resolved.iter().all(|value| value.nested.is_empty())
            }
            Peer::Reply { values, .. } => values.iter().all(|value| value.nested.is_empty()),
            _ => false,
        };
        if repeatable && self.faulty && self.faults.repeat_one_in.is_some_and(|n| self.random.one_in(n)) {
            let after = self.random.within(1, 3_000);
            self.after(after, Happening::Repeated(process, peer, Box::new(message.clone())));
        }
        self.hear_once(process, peer, message);
    }

    /// A message comes that came before. References in it would be counted twice, so it has none.
    pub(super) fn repeated(&mut self, process: ProcessId, peer: ProcessId, message: Peer) {
        if self.processes.contains_key(&process) && self.processes.contains_key(&peer) && !self.is_blocked(process) {
            self.note(|| format!("{process} hears {peer} again: {message:?}"));
            self.hear_once(process, peer, message);
        }
    }

    fn hear_once(&mut self, process: ProcessId, peer: ProcessId, mut message: Peer) {
        if self.planted == Some(Planted::LostWithoutCause)
            && let Peer::Resolved { object, value } = &mut message
        {
            *value = Value::failed(Failure::ObjectLost { object: *object, reason: "it went with node-9".into() });
        }
        match message.hearer() {
            Hearer::Worker => self.step_worker(process, worker::Event::FromPeer { peer, message }),
            Hearer::Owner | Hearer::Shell => self.step_owner(process, owner::Event::FromPeer { peer, message }),
        }
    }

    /// A process died: what it had sent is read first, then both machines learn of it.
    fn bury(&mut self, process: ProcessId, death: Death) {
        let dead = death.process;
        self.drain_peer(process, dead);
        self.network.drop_ring(dead, process);
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.links.remove(&dead);
            entry.parked.retain(|(to, _)| *to != dead);
        }
        self.send_parked(process);
        let words = FromNode::ProcessDied(Box::new(death));
        if self.planted != Some(Planted::DeadOwnerIgnored) {
            self.step_worker(process, worker::Event::FromNode(words.clone()));
        }
        self.step_owner(process, owner::Event::FromNode(words));
    }

    /// A whole node died: both machines learn of it.
    fn bury_node(&mut self, process: ProcessId, node: NodeId, words: FromNode) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.parked.retain(|(to, _)| to.node != node);
        }
        self.watch.buried(process, node);
        self.send_parked(process);
        self.step_worker(process, worker::Event::FromNode(words.clone()));
        self.step_owner(process, owner::Event::FromNode(words));
    }

    pub(super) fn step_owner(&mut self, process: ProcessId, event: owner::Event) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let mut effects = Vec::new();
        entry.owner.step(event, self.now, &mut effects);
        let mut combined = Vec::new();
        for effect in effects {
            if self.dies_now(process) {
                return;
            }
            match effect {
                Effect::Combine { target, inputs, .. } => {
                    let bytes: Vec<u8> = inputs.iter().flat_map(|(_, _, bytes)| bytes.to_vec()).collect();
                    self.watch.combined(target, inputs.into_iter().map(|(_, object, _)| object).collect());
                    let result = Ok(digest(&bytes).to_le_bytes().to_vec().into());
                    combined.push(owner::Event::Combined { target, result });
                }
                Effect::Record(record) => self.record(process, &record),
                Effect::Send { to, message } => self.send(process, to, &message),
                Effect::Node(request) => self.tell_node(process, &request),
                Effect::Ready(object) => self.wake_threads(process, object),
            }
        }
        for event in combined {
            self.step_owner(process, event);
        }
    }

    pub(super) fn step_worker(&mut self, process: ProcessId, event: worker::Event) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        if let worker::Event::Blocked { lease } = event {
            self.watch.waited(process, lease);
        }
        let mut effects = Vec::new();
        entry.worker.step(event, self.now, &mut effects);
        let withheld = std::mem::take(&mut entry.withheld);
        for frame in withheld {
            self.write(process, ProcessId::of_node(process.node), frame);
        }
        for effect in effects {
            if self.dies_now(process) {
                return;
            }
            match effect {
                worker::Effect::Record(record) => self.record_run(process, &record),
                worker::Effect::Send { to, message } => self.send(process, to, &message),
                worker::Effect::Node(request) => self.tell_node(process, &request),
                worker::Effect::Refs(moved) => self.step_owner(process, moved.into()),
                worker::Effect::Execute(execution) => self.start_thread(process, execution),
                worker::Effect::Flag(task) => self.flag_thread(process, task),
                worker::Effect::Rouse(task) => self.rouse(process, task),
                worker::Effect::Exit => self.kill(process, DeathCause::Exited(0)),
            }
        }
    }

    fn record(&mut self, process: ProcessId, record: &Record) {
        self.note(|| format!("{process} records {record:?}"));
        if let Record::Freed { object } = record {
            self.watch.freed(*object);
        }
        match record {
            Record::Yielded { task, index, value, .. } => {
                self.store_value(process, value);
                self.watch.recorded(process, ObjectId::item(*task, *index), value, None);
            }
            Record::Put { object, value, .. } => {
                self.store_value(process, value);
                let used = self.processes.get(&process).and_then(|entry| entry.owner.used_inputs(object));
                self.watch.recorded(process, *object, value, used);
            }
            Record::Finished { task, values, .. } => {
                for (index, value) in (0..).zip(values) {
                    self.store_value(process, value);
                    self.watch.recorded(process, ObjectId::result(*task, index), value, None);
                }
            }
            _ => {}
        }
        let mut frame = Vec::new();
        record.encode(&mut frame);
        self.write(process, ProcessId::of_node(process.node), frame);
    }

    fn record_run(&mut self, process: ProcessId, record: &Record) {
        if self.planted == Some(Planted::ReplyBeforeRecord)
            && let Record::Finished { .. } = record
            && let Some(entry) = self.processes.get_mut(&process)
        {
            let mut frame = Vec::new();
            record.encode(&mut frame);
            entry.withheld.push(frame);
            return;
        }
        self.record(process, record);
    }

    pub(super) fn tell_node(&mut self, process: ProcessId, request: &ToNode) {
        self.note(|| format!("{process} -> node: {request:?}"));
        if let ToNode::CallLost { .. } = request {
            self.watch.call_lost(process, request);
        }
        let mut frame = Vec::new();
        NodeBound::encode_request(request, &mut frame);
        self.write(process, ProcessId::of_node(process.node), frame);
    }

    fn send(&mut self, process: ProcessId, to: ProcessId, message: &Peer) {
        let dropped = match message {
            Peer::GiveBack { .. } => self.planted == Some(Planted::GiveBackDropped),
            Peer::Lent { .. } => self.planted == Some(Planted::LentDropped),
            _ => false,
        };
        if dropped {
            return;
        }
        self.note(|| format!("{process} -> {to}: {message:?}"));
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let Some(entry) = self.processes.get_mut(&process) else { return };
        match message {
            Peer::Lent { .. } => entry.lending = true,
            Peer::Run { .. }
            | Peer::Call { .. }
            | Peer::RunAfter { .. }
            | Peer::Reply { .. }
            | Peer::Item { .. }
            | Peer::Resolved { .. } => entry.lending = false,
            _ => {}
        }
        if to.node != process.node && entry.parked.is_empty() {
            self.relay(process, to, &frame);
            return;
        }
        let linked = entry.links.contains(&to) || to.node != process.node;
        // What a process tells itself is lost with it: it waits for nothing.
        if to == process || (linked && entry.parked.is_empty()) {
            self.write(process, to, frame);
            return;
        }
        let asked = linked || entry.parked.iter().any(|(other, _)| *other == to);
        entry.parked.push_back((to, frame));
        if !asked {
            self.tell_node(process, &ToNode::Connect { peer: to });
        }
    }

    fn send_parked(&mut self, process: ProcessId) {
        while let Some(entry) = self.processes.get_mut(&process)
            && let Some((to, _)) = entry.parked.front()
            && (entry.links.contains(to) || to.node != process.node)
            && let Some((to, frame)) = entry.parked.pop_front()
        {
            if to.node == process.node {
                self.write(process, to, frame);
            } else {
                self.relay(process, to, &frame);
            }
        }
    }

    /// What is for a process of another node goes through the ring to this one, behind the records that it follows.
    fn relay(&mut self, process: ProcessId, to: ProcessId, message: &[u8]) {
        let mut frame = Vec::new();
        NodeBound::encode_relay(to, message, &mut frame);
        self.write(process, ProcessId::of_node(process.node), frame);
    }

    fn wake_threads(&mut self, process: ProcessId, object: ObjectId) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let ready: Vec<u64> = entry.threads.iter().filter(|(_, t)| t.waits_for(object)).map(|(id, _)| *id).collect();
        for id in ready {
            self.resume_thread(process, id);
        }
    }

    pub(super) fn arm_owner(&mut self, process: ProcessId) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(deadline) = entry.owner.deadline() else { return };
        let at = deadline.max(self.now.plus_us(1));
        if entry.tick_due.is_none_or(|due| due > at) {
            entry.tick_due = Some(at);
            let after = at.since_us(self.now);
            self.after(after, Happening::OwnerTicked(process));
        }
    }
}
