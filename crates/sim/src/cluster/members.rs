//! Who is a member: the controller on the head, heartbeats and tenures, joins, leaves and deaths.
//!
//! Heartbeats and their answers have a connection of their own; everything else between a node and the controller goes over
//! the link of the two. The head's own words to the controller take no way at all.

use std::collections::BTreeMap;

use bireme_core::controller::members::Hold;
use bireme_core::controller::{
    self, Controller, ControllerConfig, Effect, FromController, Join, MemberRow, Tenure, ToController,
};
use bireme_core::id::NodeId;
use bireme_core::message::{Between, Role};
use bireme_core::node::{self, NodeConfig};
use bireme_core::schedule::{Load, Row};
use bireme_core::time::Tick;

use super::{Cluster, Happening};
use crate::planted::Planted;

/// A node says that it is there, and how much it has to do, so often.
const BEAT_US: u64 = 100_000;
/// The same while there are faults: nodes that know little of each other share no work.
const BEAT_BUSY_US: u64 = 2_000;
/// The controller tries again to reach a node whose connection was lost.
const REACH_US: u64 = 5_000;

/// The controller and what its shell keeps.
pub(super) struct Members {
    pub(super) controller: Controller,
    next_link: u64,
    /// Those who asked to join and have no answer yet, and when they asked.
    asking: BTreeMap<u64, (Tick, NodeConfig)>,
    due: Option<Tick>,
}

impl Default for Members {
    fn default() -> Self {
        let controller = Controller::new(ControllerConfig::default());
        Self { controller, next_link: 0, asking: BTreeMap::new(), due: None }
    }
}

/// The answer to a join, on its way.
#[derive(Clone, Debug)]
pub(super) struct Welcome {
    link: u64,
    node: NodeId,
    lease_us: u64,
    members: Vec<MemberRow>,
    rows: Vec<Row>,
}

/// What a node says to the controller, as bytes of the link.
fn encode(message: &ToController) -> Between {
    Between::Controller(postcard::to_allocvec(message).expect("plain data always encodes"))
}

impl Cluster {
    /// A machine asks to join.
    pub(super) fn join(&mut self) {
        let config = self.config();
        self.members.next_link += 1;
        let link = self.members.next_link;
        let join = Join {
            uid: link.into(),
            identity: 0,
            role: if config.total.is_zero() { Role::Client } else { Role::Node },
            address: String::new(),
            total: config.total.clone(),
            labels: BTreeMap::new(),
            driver_only: config.total.is_zero(),
        };
        self.members.asking.insert(link, (self.now, config));
        self.step_controller(controller::Event::JoinAsked { link, join: Box::new(join) });
    }

    pub(super) fn step_controller(&mut self, event: controller::Event) {
        let mut effects = Vec::new();
        self.members.controller.step(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Welcome { link, node, lease_us, members, rows } => {
                    let welcome = Box::new(Welcome { link, node, lease_us, members, rows });
                    // The first nodes are there when the run begins.
                    let after = if self.now == Tick(0) { 0 } else { self.heartbeat_us() };
                    match after {
                        0 => self.welcomed(*welcome),
                        after => self.after(after, Happening::Welcomed(welcome)),
                    }
                }
                Effect::TurnAway { link, reason } => panic!("join {link} is turned away: {reason}"),
                Effect::Send { to, message } => self.controller_says(to, &message),
                Effect::SendAll(message) => {
                    let nodes: Vec<NodeId> = self.members.controller.members().rows().iter().map(|m| m.node).collect();
                    if let FromController::NodeDied { node, .. } = &message {
                        self.declared_dead(*node);
                    }
                    nodes.into_iter().for_each(|node| self.controller_says(node, &message));
                }
                Effect::Reject { node, .. } => {
                    let after = self.heartbeat_us();
                    self.after(after, Happening::Rejected(node));
                }
            }
        }
        if let Some(due) = self.members.controller.deadline()
            && self.members.due.is_none_or(|armed| armed > due || armed < self.now)
        {
            self.members.due = Some(due);
            let after = due.since_us(self.now);
            self.after(after, Happening::Judged);
        }
    }

    /// The controller looks at whose lease is over.
    pub(super) fn judge(&mut self) {
        if self.members.due.is_some_and(|due| due <= self.now) {
            self.members.due = None;
        }
        self.step_controller(controller::Event::Ticked);
    }

    /// The answer to a join is here: the machine is a node from now on.
    pub(super) fn welcomed(&mut self, welcome: Welcome) {
        let Welcome { link, node, lease_us, members, rows } = welcome;
        let Some((sent, mut config)) = self.members.asking.remove(&link) else { return };
        self.note(|| format!("{node} joins"));
        config.id = node;
        self.add_host(config, Tenure::new(sent, lease_us));
        for row in members.into_iter().filter(|row| row.node != node) {
            self.meet(node, row);
        }
        self.step_node(node, node::Event::Loads(rows));
        self.arm_node(node);
        let after = self.random.within(1, BEAT_BUSY_US);
        self.after(after, Happening::Beaten(node));
    }

    fn meet(&mut self, node: NodeId, other: MemberRow) {
        // It may have something to say to it at once.
        self.add_link(node, other.node);
        self.step_node(node, node::Event::NodeJoined { node: other.node, total: other.total });
    }

    /// A node tells the controller something.
    pub(super) fn tell_controller(&mut self, node: NodeId, message: &ToController) {
        self.note(|| format!("{node} -> controller: {message:?}"));
        if node == NodeId::HEAD {
            // Behind what the controller has begun to say.
            self.after(1, Happening::Asked(Box::new(message.clone())));
        } else {
            self.tell(node, NodeId::HEAD, &encode(message));
        }
    }

    /// The head's own words to the controller.
    pub(super) fn asked(&mut self, request: Box<ToController>) {
        self.step_controller(controller::Event::Asked { node: NodeId::HEAD, request });
    }

    fn controller_says(&mut self, to: NodeId, message: &FromController) {
        if let FromController::Renewed { .. } = message {
            if !self.wires.is_cut(NodeId::HEAD, to) {
                let after = if to == NodeId::HEAD { 1 } else { self.heartbeat_us() };
                self.after(after, Happening::Renewed(to, Box::new(message.clone())));
            }
            return;
        }
        self.note(|| format!("controller -> {to}: {message:?}"));
        if to == NodeId::HEAD {
            self.hear_controller(to, message.clone());
        } else {
            let words = postcard::to_allocvec(message).expect("plain data always encodes");
            self.tell(NodeId::HEAD, to, &Between::Controller(words));
        }
    }

    /// Words of the controller's conversation come out of a link.
    pub(super) fn hear_words(&mut self, node: NodeId, from: NodeId, words: &[u8]) {
        if node == NodeId::HEAD {
            let request = postcard::from_bytes(words).expect("a node sends what can be read");
            self.step_controller(controller::Event::Asked { node: from, request: Box::new(request) });
        } else {
            self.hear_controller(node, postcard::from_bytes(words).expect("the controller sends what can be read"));
        }
    }

    /// A node hears the controller.
    pub(super) fn hear_controller(&mut self, node: NodeId, message: FromController) {
        match message {
            FromController::Renewed { sequence, lease_us, rows } => {
                let now = self.now;
                let Some(host) = self.hosts.get_mut(&node) else { return };
                if host.tenure.renewed(sequence, lease_us, now) {
                    self.step_node(node, node::Event::Loads(rows));
                }
            }
            FromController::NodeJoined(row) => self.meet(node, *row),
            FromController::NodeDied { node: dead, departure } => {
                self.note(|| format!("{node} hears that {dead} is dead"));
                self.drop_link(node, dead);
                if self.planted == Some(Planted::NodeDeathUntold) && node != NodeId::HEAD {
                    return;
                }
                self.step_node(node, node::Event::NodeDied { node: dead, reason: departure.to_string() });
                self.stages_lose_node(node, dead);
            }
            FromController::NodeDraining { node: other } => {
                self.step_node(node, node::Event::NodeDraining { node: other });
            }
            FromController::Drain { .. } => self.step_node(node, node::Event::Drain),
            FromController::Leave => self.told_to_leave(node),
            message => self.hear_of_groups(node, message),
        }
        self.arm_node(node);
    }

    fn heartbeat_us(&mut self) -> u64 {
        let most = if self.faulty { self.faults.nodes.latency_us } else { 50 };
        self.random.within(1, most)
    }

    /// A node sends its heartbeat, and ends itself when it had no answer for too long.
    pub(super) fn beaten(&mut self, node: NodeId) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let hold = if node == NodeId::HEAD { Hold::Held } else { host.tenure.hold(now) };
        if hold == Hold::Held {
            host.beats += 1;
            let (sequence, load) = (host.beats, Box::new(host.node.load()));
            host.tenure.heartbeat_sent(sequence, now);
            if node == NodeId::HEAD || !self.wires.is_cut(node, NodeId::HEAD) {
                let after = if node == NodeId::HEAD { 1 } else { self.heartbeat_us() };
                self.after(after, Happening::Heartbeat(node, sequence, load));
            }
            let every = if self.faulty { BEAT_BUSY_US } else { BEAT_US };
            let last = self.hosts.get(&node).map_or(every, |host| host.tenure.deadline().since_us(now).max(1));
            let after = if node == NodeId::HEAD { every } else { every.min(last) };
            self.after(after, Happening::Beaten(node));
            return;
        }
        // It takes its time to end what runs there, and no more than it has.
        let mut left = host.tenure.over().since_us(now);
        if self.planted == Some(Planted::FencedLate) {
            left += 5_000_000;
        }
        self.note(|| format!("{node} has lost its tenure and ends"));
        let after = match self.planted {
            Some(Planted::FencedLate) => left,
            _ => self.random.within(0, left.saturating_sub(1)),
        };
        self.after(after, Happening::Fenced(node));
    }

    /// A heartbeat reaches the controller.
    pub(super) fn heartbeat(&mut self, node: NodeId, sequence: u64, load: Box<Load>) {
        let request = Box::new(ToController::Heartbeat { sequence, load });
        self.step_controller(controller::Event::Asked { node, request });
    }

    /// A node that lost its tenure, or hears that it is dead, has ended its processes, and joins as another.
    pub(super) fn fenced(&mut self, node: NodeId) {
        if self.hosts.contains_key(&node) {
            self.note(|| format!("{node} has ended"));
            self.remove_host(node);
            self.join_later();
        }
    }

    /// Nobody listens where a node was: the controller finds that when it can get there at all.
    pub(super) fn refused(&mut self, node: NodeId) {
        if self.members.controller.members().get(node).is_none() {
            return;
        }
        if self.wires.is_whole(node, NodeId::HEAD) {
            self.step_controller(controller::Event::ConnectionLost { node, refused: true });
        } else {
            self.after(REACH_US, Happening::Refused(node));
        }
    }

    /// The controller's word: it is dead, whatever it does.
    fn declared_dead(&mut self, node: NodeId) {
        self.note(|| format!("the controller declares {node} dead"));
        self.node_lost = true;
        let running = self.processes.keys().filter(|process| process.node == node).count();
        self.watch.declared_dead(node, running);
        self.watch.node_lost(node);
    }

    /// The machine comes back as a new node.
    pub(super) fn join_later(&mut self) {
        let after = self.random.within(100, 20_000);
        self.after(after, Happening::NodeJoined);
    }

    pub(super) fn member_count(&self) -> usize {
        self.members.controller.members().rows().len() + self.members.asking.len()
    }
}
