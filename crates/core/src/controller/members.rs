//! Who is in the cluster.
//!
//! A node joins and is given a number, tells its load in heartbeats, and each heartbeat renews its lease. It goes by its
//! own word, when nobody listens where it was (its process is dead), or when its lease is over. A lost connection alone
//! says nothing: it may be the network, so the lease decides.
//!
//! MEMBER-1: the lease of a silent node ends here only after the node itself has considered it over. The node counts from
//! when it sent the heartbeat, which is before it came here, and takes a margin off for clocks that run differently
//! ([`Tenure`]); a renewal here never shortens what was promised before.
//!
//! MEMBER-2: a number is given once. Whoever is not a member, because it was declared dead or never was one, is refused.

mod tenure;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::tenure::{Hold, Tenure};
use super::{Controller, Effect, FromController, send};
use crate::heartbeat::{Pulse, PulseLimits};
use crate::id::NodeId;
use crate::message::{RequestId, Role, Speaker};
use crate::resources::Resources;
use crate::schedule::{Load, Row};
use crate::time::Tick;

/// Nodes at a time; a further join is turned away.
pub const NODES_MAX: usize = 10_000;
/// Dead nodes whose end is remembered; of older ones only that they are dead.
pub const DEPARTED_MAX: usize = 1_000;

/// Who wants to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Drawn by the node for each time that it joins, so that a repeated join is known and a later one is another.
    pub uid: u128,
    /// The number in its certificate, as the head saw it; 0 where there are no certificates. Several nodes of one user may
    /// have the same.
    pub identity: u128,
    /// The role of its certificate, as the head saw it; without certificates, what it joins as.
    pub role: Role,
    /// Where others reach it; empty when it only dials out.
    pub address: String,
    /// All that it can grant.
    pub total: Resources,
    /// What the user says of the machine.
    pub labels: BTreeMap<String, String>,
    /// It is a driver's and takes no work.
    pub driver_only: bool,
}

/// A member, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its number.
    pub node: NodeId,
    /// The number in its certificate; 0 where there are none. Whoever has another is not this node.
    pub identity: u128,
    /// The messages that it may send.
    pub role: Role,
    /// Where it is reached.
    pub address: String,
    /// All that it can grant.
    pub total: Resources,
    /// What the user says of the machine.
    pub labels: BTreeMap<String, String>,
    /// It is a driver's and takes no work.
    pub driver_only: bool,
    /// It takes nothing more.
    pub draining: bool,
}

/// How a node went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Departure {
    /// By its own word.
    Left,
    /// It was drained, with nothing left on it or because its time was over.
    Drained,
    /// Its process is gone: nobody listens where it was.
    Gone,
    /// Nothing was heard of it for as long as its lease.
    Silent,
    /// It has no right to be here any more, or said what it had no right to.
    Expelled {
        /// The reason, for people.
        reason: String,
    },
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Departure::Left => f.write_str("it left the cluster"),
            Departure::Drained => f.write_str("it was drained"),
            Departure::Gone => f.write_str("its process is gone"),
            Departure::Silent => f.write_str("nothing was heard of it until its lease was over"),
            Departure::Expelled { reason } => write!(f, "it was expelled: {reason}"),
        }
    }
}

/// Whether a member takes work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// It does.
    Alive,
    /// Not any more.
    Draining {
        /// How much time it was given.
        grace_us: u64,
    },
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    join: Join,
    state: MemberState,
    #[serde(skip)]
    load: Load,
    /// What it has free, less what was planned there since it told.
    #[serde(skip)]
    left: Resources,
    #[serde(skip)]
    told: Tick,
    /// The number of the last change of its load.
    #[serde(skip)]
    version: u64,
    /// Up to which change it has been told of the others.
    #[serde(skip)]
    seen: u64,
    /// How regular its heartbeats are; none until the first after a restart of the controller.
    #[serde(skip)]
    pulse: Option<Pulse>,
    #[serde(skip)]
    until: Tick,
    /// When its time to be drained is over.
    #[serde(skip)]
    drain_until: Option<Tick>,
}

impl Member {
    /// Whether it takes work.
    pub fn state(&self) -> &MemberState {
        &self.state
    }

    /// What it told last.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// When its lease is over.
    pub fn until(&self) -> Tick {
        self.until
    }

    fn is_draining(&self) -> bool {
        matches!(self.state, MemberState::Draining { .. })
    }

    fn row(&self, node: NodeId) -> MemberRow {
        let Join { identity, role, address, total, labels, driver_only, .. } = self.join.clone();
        MemberRow { node, identity, role, address, total, labels, driver_only, draining: self.is_draining() }
    }

    fn idle_load(&self) -> Load {
        let total = self.join.total.clone();
        Load { driver_only: self.join.driver_only, draining: self.is_draining(), ..Load::idle(total) }
    }
}

/// All nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Members {
    alive: BTreeMap<NodeId, Member>,
    departed: BTreeMap<NodeId, Departure>,
    /// How many numbers were given.
    given: u32,
    /// Counts the changes of loads.
    #[serde(skip)]
    version: u64,
    /// No lease and no drain ends before this.
    #[serde(skip)]
    due: Option<Tick>,
}

impl Members {
    /// A live member.
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.alive.get(&node)
    }

    /// The live members, by number.
    pub fn rows(&self) -> Vec<MemberRow> {
        self.alive.iter().map(|(node, member)| member.row(*node)).collect()
    }

    /// What those have in all that take work.
    pub(super) fn totals(&self) -> impl Iterator<Item = (NodeId, &Resources)> {
        self.takers().map(|(node, member)| (node, &member.load.total))
    }

    /// What those have left, to plan with, that take work now.
    pub(super) fn left(&self) -> impl Iterator<Item = (NodeId, &Resources)> {
        self.takers().filter(|(_, member)| !member.load.pressed).map(|(node, member)| (node, &member.left))
    }

    fn takers(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        let takers = self.alive.iter().filter(|(_, member)| !member.is_draining() && !member.join.driver_only);
        takers.map(|(node, member)| (*node, member))
    }

    /// What a node has left, to plan with: replaced by its next load.
    pub(super) fn left_mut(&mut self, node: NodeId) -> Option<&mut Resources> {
        self.alive.get_mut(&node).map(|member| &mut member.left)
    }

    /// A live member with its rights.
    pub fn speaker(&self, node: NodeId) -> Option<Speaker> {
        self.alive.get(&node).map(|member| Speaker { node, role: member.join.role })
    }

    /// Why a number is refused, when it is.
    pub(super) fn refusal(&self, node: NodeId) -> Option<String> {
        if self.alive.contains_key(&node) {
            return None;
        }
        Some(match self.departed.get(&node) {
            Some(departure) => format!("{node} is dead: {departure}; end your workers and join again"),
            None if node.0 <= self.given && node.0 > 0 => format!("{node} is dead; end your workers and join again"),
            None => format!("{node} is not a node of this cluster; join first"),
        })
    }

    /// Why a node cannot be drained, when it cannot. One that is being drained can: its time begins anew.
    fn undrainable(&self, node: NodeId) -> Option<String> {
        match self.alive.get(&node) {
            Some(_) if node == NodeId::HEAD => Some(format!(
                "{node} is the head, and what the cluster knows is there alone; drain the others and stop it, or start \
                 another cluster"
            )),
            Some(member) if member.join.driver_only => {
                Some(format!("{node} is a driver's and takes no work; it leaves when its program ends"))
            }
            Some(_) => None,
            None => Some(match self.departed.get(&node) {
                Some(departure) => format!("{node} is dead: {departure}"),
                None if node.0 <= self.given && node.0 > 0 => format!("{node} is dead"),
                None => format!("{node} is not a node of this cluster; `bireme status` shows them"),
            }),
        }
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    fn wake_by(&mut self, at: Tick) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// After a restart nothing is known of leases and loads.
    pub(super) fn resume(&mut self, lease_us: u64, now: Tick) {
        for member in self.alive.values_mut() {
            self.version += 1;
            (member.load, member.told, member.version) = (member.idle_load(), now, self.version);
            member.left = member.load.free.clone();
            member.until = now.plus_us(lease_us);
            if let MemberState::Draining { grace_us } = member.state {
                member.drain_until = Some(now.plus_us(grace_us));
            }
        }
        let ends = self.alive.values().flat_map(|member| [Some(member.until), member.drain_until]);
        self.due = ends.flatten().min();
    }

    /// What one node has not been told of the others' loads.
    fn news(&self, of: NodeId, seen: u64, now: Tick) -> Vec<Row> {
        let changed = self.alive.iter().filter(|(node, member)| **node != of && member.version > seen);
        let row = |node: &NodeId, member: &Member| Row {
            node: *node,
            age_us: now.since_us(member.told),
            load: member.load.clone(),
        };
        changed.map(|(node, member)| row(node, member)).collect()
    }
}

impl Controller {
    pub(super) fn join(&mut self, link: u64, join: Join, now: Tick, effects: &mut Vec<Effect>) {
        let repeated = self.members.alive.iter().find(|(_, member)| member.join.uid == join.uid);
        if let Some(node) = repeated.map(|(node, _)| *node) {
            self.welcome(link, node, now, effects);
            return;
        }
        if self.members.alive.len() >= NODES_MAX || self.members.given == u32::MAX {
            let reason = format!("the cluster has {NODES_MAX} nodes already, and takes no more");
            effects.push(Effect::TurnAway { link, reason });
            return;
        }
        self.members.given += 1;
        self.members.version += 1;
        let (node, version) = (NodeId(self.members.given), self.members.version);
        let (state, load, left) = (MemberState::Alive, Load::default(), join.total.clone());
        let mut member =
            Member { join, state, load, left, told: now, version, seen: 0, pulse: None, until: now, drain_until: None };
        member.load = member.idle_load();
        let row = member.row(node);
        // To those who are there; the new one sees itself in its welcome.
        for other in self.members.alive.keys() {
            send(*other, FromController::NodeJoined(Box::new(row.clone())), effects);
        }
        self.members.alive.insert(node, member);
        self.generation += 1;
        self.welcome(link, node, now, effects);
        self.place_groups(now, effects);
    }

    fn welcome(&mut self, link: u64, node: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        let lease_us = self.renew(node, now);
        let (members, rows) = (self.members.rows(), self.members.news(node, 0, now));
        if let Some(member) = self.members.alive.get_mut(&node) {
            member.seen = self.members.version;
        }
        effects.push(Effect::Welcome { link, node, lease_us, members, rows });
    }

    /// Another lease: longer for a node whose heartbeats are irregular.
    fn renew(&mut self, node: NodeId, now: Tick) -> u64 {
        let (timeout_min_us, longest) = (self.config.lease_us, self.config.lease_longest_us);
        let period_us = self.config.heartbeat_us;
        let limits = PulseLimits { period_us, timeout_min_us, timeout_max_us: longest.max(timeout_min_us) };
        let Some(member) = self.members.alive.get_mut(&node) else { return 0 };
        match &mut member.pulse {
            Some(pulse) => pulse.heard(now),
            None => member.pulse = Some(Pulse::new(limits, now)),
        }
        let lease_us = member.pulse.map_or(timeout_min_us, |pulse| pulse.timeout_us());
        // MEMBER-1: what was promised before still holds.
        member.until = member.until.max(now.plus_us(lease_us));
        let until = member.until;
        self.members.wake_by(until);
        lease_us
    }

    pub(super) fn heartbeat(
        &mut self,
        node: NodeId,
        sequence: u64,
        mut load: Load,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let Some(member) = self.members.alive.get_mut(&node) else { return };
        load.driver_only = member.join.driver_only;
        load.draining |= member.is_draining();
        let more = load.free != member.left || load.total != member.load.total || load.pressed != member.load.pressed;
        member.left = load.free.clone();
        if load != member.load {
            self.members.version += 1;
            member.version = self.members.version;
        }
        (member.load, member.told) = (load, now);
        let seen = std::mem::replace(&mut member.seen, self.members.version);
        let lease_us = self.renew(node, now);
        let rows = self.members.news(node, seen, now);
        send(node, FromController::Renewed { sequence, lease_us, rows }, effects);
        if more {
            self.groups.try_soon(now);
        }
    }

    pub(super) fn connection_lost(&mut self, node: NodeId, refused: bool, now: Tick, effects: &mut Vec<Effect>) {
        if refused {
            self.depart(node, Departure::Gone, now, effects);
        }
    }

    pub(super) fn drain(
        &mut self,
        from: NodeId,
        request: RequestId,
        node: NodeId,
        grace_us: u64,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let refused = self.members.undrainable(node);
        if refused.is_none()
            && let Some(member) = self.members.alive.get_mut(&node)
        {
            self.members.version += 1;
            (member.state, member.version) = (MemberState::Draining { grace_us }, self.members.version);
            member.load.draining = true;
            let until = now.plus_us(grace_us);
            member.drain_until = Some(until);
            self.members.wake_by(until);
            self.generation += 1;
            effects.push(Effect::SendAll(FromController::NodeDraining { node }));
            send(node, FromController::Drain { grace_us }, effects);
        }
        send(from, FromController::Draining { request, refused }, effects);
    }

    pub(super) fn drained(&mut self, node: NodeId, now: Tick, effects: &mut Vec<Effect>) {
        if self.members.alive.get(&node).is_some_and(Member::is_draining) {
            send(node, FromController::Leave, effects);
            self.depart(node, Departure::Drained, now, effects);
        }
    }

    /// Ends the leases and the drains that are over.
    pub(super) fn expire_members(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if self.members.due.is_none_or(|due| now < due) {
            return;
        }
        let over = |member: &Member| member.until <= now;
        let drained = |member: &Member| member.drain_until.is_some_and(|until| until <= now);
        let ending: Vec<(NodeId, bool)> = self
            .members
            .alive
            .iter()
            .filter(|(_, member)| over(member) || drained(member))
            .map(|(node, member)| (*node, over(member)))
            .collect();
        for (node, silent) in ending {
            if silent {
                self.depart(node, Departure::Silent, now, effects);
            } else {
                // It ends what runs there before it says that it is drained; if it never does, its lease decides.
                send(node, FromController::Leave, effects);
                if let Some(member) = self.members.alive.get_mut(&node) {
                    member.drain_until = None;
                }
            }
        }
        let ends = self.members.alive.values().flat_map(|member| [Some(member.until), member.drain_until]);
        self.members.due = ends.flatten().min();
    }

    /// A node is gone, and with it all that it had.
    pub(super) fn depart(&mut self, node: NodeId, departure: Departure, now: Tick, effects: &mut Vec<Effect>) {
        if self.members.alive.remove(&node).is_none() {
            return;
        }
        self.members.departed.insert(node, departure.clone());
        if self.members.departed.len() > DEPARTED_MAX {
            self.members.departed.pop_first();
        }
        self.generation += 1;
        effects.push(Effect::SendAll(FromController::NodeDied { node, departure }));
        self.end_groups_kept_by(node, now, effects);
        self.lose_bundles(node, now, effects);
    }
}
