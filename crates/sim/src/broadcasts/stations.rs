//! The nodes of a broadcast: their machines, what each has of the object, and what they say to each other.

use std::collections::BTreeMap;

use bireme_core::id::{NodeId, ObjectId, ProcessId, TaskId};
use bireme_core::message::{Between, CopySource, CopyWish, LostSender};
use bireme_core::node::{Effect, Event, Node, NodeConfig};
use bireme_core::resources::{Amount, Resources};
use bireme_core::time::Tick;
use bireme_core::value::{Location, RefSpec};

use super::lines::{Line, Stream};
use super::{HAPPENINGS_MAX, HOME, Plan};
use crate::planted::Planted;

/// What must hold, and how it does not.
pub(super) type Broken = (&'static str, String);

/// The number under which each node wants it.
const NUMBER: u64 = 1;

/// What happens next.
#[derive(Debug)]
pub(super) enum Happening {
    Joined(NodeId),
    Wanted(NodeId),
    Died(NodeId),
    Told {
        node: NodeId,
        dead: NodeId,
    },
    Heard {
        from: NodeId,
        to: NodeId,
        message: Box<Between>,
    },
    /// A receiver's request reaches its sender.
    Dialled {
        to: NodeId,
        stream: Stream,
    },
    /// A link can take the next block.
    Free(NodeId),
    Arrived {
        to: NodeId,
        stream: u64,
        index: usize,
        content: u64,
    },
    /// A receiver finds that its stream has ended.
    Lost {
        node: NodeId,
        stream: u64,
        is_useless: bool,
    },
    /// A connection breaks.
    Broke(NodeId),
    Dropped(NodeId),
}

/// A node.
pub(super) struct Station {
    node: Node,
    /// What it has of the object, in order.
    pub(super) blocks: Vec<u64>,
    /// It wants a copy, or has wanted one.
    pub(super) wants: bool,
    /// It has all of it, and has said so.
    pub(super) is_complete: bool,
    /// It has had all of it.
    was_complete: bool,
    /// Who sends, and by which stream; nobody while it asks.
    pub(super) from: Option<(NodeId, u64)>,
    pub(super) line: Line,
}

/// All of them.
pub(super) struct Stations {
    pub(super) plan: Plan,
    pub(super) planted: Option<Planted>,
    pub(super) now_us: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    pub(super) stations: BTreeMap<NodeId, Station>,
    pub(super) next_stream: u64,
    pub(super) losses: u64,
    /// What those had still to get who lost a sender.
    missed: u64,
    /// Blocks that were sent and not used.
    pub(super) wasted: u64,
    /// Blocks that may have been sent in vain: under way when a connection broke, or when their receiver died.
    wasted_max: u64,
    pub(super) broken: Option<Broken>,
    /// When something last changed, and when somebody last had all of it.
    changed_us: u64,
    done_us: u64,
    pub(super) hash: u64,
}

/// What is in a block.
pub(super) fn content(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn object() -> RefSpec {
    RefSpec { object: ObjectId::result(TaskId::from_raw(7), 0), owner: ProcessId::first_driver(HOME) }
}

fn place(node: NodeId) -> Location {
    Location { node, entry: 7, generation: 1, offset: 0, len: 1 << 20 }
}

impl Stations {
    pub(super) fn new(plan: Plan, planted: Option<Planted>) -> Self {
        let mut all = Self {
            planted,
            now_us: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            stations: BTreeMap::new(),
            next_stream: 0,
            losses: 0,
            missed: 0,
            wasted: 0,
            wasted_max: 0,
            broken: None,
            changed_us: 0,
            done_us: 0,
            hash: 0,
            plan,
        };
        all.join(HOME);
        if let Some(home) = all.stations.get_mut(&HOME) {
            home.blocks = (0..all.plan.blocks).map(content).collect();
            home.is_complete = true;
        }
        let plan = all.plan.clone();
        plan.joins.iter().for_each(|(node, at)| all.after(*at, Happening::Joined(*node)));
        plan.wants.iter().for_each(|(node, at)| all.after(*at, Happening::Wanted(*node)));
        plan.deaths.iter().for_each(|(node, at)| all.after(*at, Happening::Died(*node)));
        plan.breaks.iter().for_each(|(node, at)| all.after(*at, Happening::Broke(*node)));
        plan.drops.iter().for_each(|(node, at)| all.after(*at, Happening::Dropped(*node)));
        all
    }

    pub(super) fn after(&mut self, us: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now_us + us, self.sequence), happening);
    }

    /// Until nothing is left to happen.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now_us = at;
            self.hash = (self.hash ^ at).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            self.happen(happening);
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if self.sequence > HAPPENINGS_MAX {
                return Err(("everybody gets what it wants", "it does not end".to_owned()));
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Joined(node) => self.join(node),
            Happening::Wanted(node) => self.want(node),
            Happening::Died(node) => self.die(node),
            Happening::Told { node, dead } => {
                self.step(node, Event::NodeDied { node: dead, reason: "was killed".to_owned() });
            }
            Happening::Heard { from, to, message } => self.step(to, Event::Heard { from, message: *message }),
            Happening::Dialled { to, stream } => self.dialled(to, stream),
            Happening::Free(node) => self.link_free(node),
            Happening::Arrived { to, stream, index, content } => self.arrived(to, stream, index, content),
            Happening::Lost { node, stream, is_useless } => self.lost(node, stream, is_useless),
            Happening::Broke(node) => self.break_stream(node),
            Happening::Dropped(node) => self.drop_copy(node),
        }
    }

    fn join(&mut self, id: NodeId) {
        let total = Resources::cpus(Amount::whole(1));
        let mut node = Node::new(NodeConfig { id, job: None, prestart: 0, ..NodeConfig::for_machine(total.clone()) });
        node.step(Event::Started, Tick(self.now_us), &mut Vec::new());
        let others: Vec<NodeId> = self.stations.keys().copied().collect();
        let station = Station {
            node,
            blocks: Vec::new(),
            wants: false,
            is_complete: false,
            was_complete: false,
            from: None,
            line: Line::default(),
        };
        self.stations.insert(id, station);
        for other in others {
            self.step(other, Event::NodeJoined { node: id, total: total.clone() });
            self.step(id, Event::NodeJoined { node: other, total: total.clone() });
        }
    }

    fn step(&mut self, id: NodeId, event: Event) {
        let Some(station) = self.stations.get_mut(&id) else { return };
        let mut effects = Vec::new();
        station.node.step(event, Tick(self.now_us), &mut effects);
        for effect in effects {
            match effect {
                Effect::Tell { node, message } => {
                    let message = Box::new(message);
                    self.after(self.plan.latency_us, Happening::Heard { from: id, to: node, message });
                }
                Effect::FetchFrom { number: NUMBER, from } => self.fetch(id, from),
                // They have no work.
                _ => {}
            }
        }
    }

    fn want(&mut self, node: NodeId) {
        self.changed_us = self.now_us;
        if let Some(station) = self.stations.get_mut(&node) {
            station.wants = true;
            self.ask(node, None);
        }
    }

    fn ask(&mut self, node: NodeId, lost: Option<LostSender>) {
        let wish = CopyWish { object: object(), of: place(HOME), number: NUMBER, lost };
        self.step(node, Event::CopyWanted(wish));
    }

    /// A node is told who sends.
    fn fetch(&mut self, id: NodeId, from: Result<CopySource, String>) {
        let Some(station) = self.stations.get(&id) else { return };
        if !station.wants || station.is_complete || station.from.is_some() {
            let text = format!("{id} is to fetch from {from:?}, and has {} blocks", station.blocks.len());
            self.break_invariant("nothing is sent where it is not wanted", text);
            return;
        }
        let start = station.blocks.len();
        let source = match from {
            Ok(source) => self.misled(id, start).unwrap_or(source.node),
            Err(reason) => return self.break_invariant("everybody gets what it wants", format!("{id}: {reason}")),
        };
        self.open_stream(id, source, start);
    }

    /// The planted bug: who has lost its sender is told to take it from one that gets it from him.
    fn misled(&self, id: NodeId, has: usize) -> Option<NodeId> {
        let below = |station: &Station| station.from.is_some_and(|(from, _)| from == id) && !station.is_complete;
        let mut below = self.stations.iter().filter(|(_, station)| below(station));
        let is_misled = self.planted == Some(Planted::OwnDescendant) && has > 0;
        below.next().map(|(node, _)| *node).filter(|_| is_misled)
    }

    /// The stream of a node ended before it had all.
    fn lost(&mut self, node: NodeId, stream: u64, is_useless: bool) {
        let Some(station) = self.stations.get_mut(&node) else { return };
        let Some((from, _)) = station.from.take_if(|(_, id)| *id == stream) else { return };
        self.losses += 1;
        self.missed += (self.plan.blocks - station.blocks.len()) as u64;
        self.changed_us = self.now_us;
        self.ask(node, Some(LostSender { node: from, is_useless }));
    }

    fn die(&mut self, node: NodeId) {
        let Some(dead) = self.stations.remove(&node) else { return };
        self.changed_us = self.now_us;
        if let Some((from, stream)) = dead.from {
            self.close_stream(from, stream);
            self.wasted_max += self.in_flight_max();
        }
        for stream in dead.line.streams {
            // What was under way comes before the end of it, but for the block that the link was about to send.
            self.wasted_max += 1;
            let lost = Happening::Lost { node: stream.to, stream: stream.id, is_useless: false };
            self.after(self.plan.latency_us, lost);
        }
        let others: Vec<NodeId> = self.stations.keys().copied().collect();
        for other in others {
            self.after(self.plan.death_told_us, Happening::Told { node: other, dead: node });
        }
    }

    /// The connection of a node to its sender breaks, with what it carried.
    fn break_stream(&mut self, node: NodeId) {
        let Some((from, stream)) = self.stations.get(&node).and_then(|station| station.from) else { return };
        self.close_stream(from, stream);
        self.wasted_max += self.in_flight_max();
        self.lost(node, stream, false);
    }

    /// A node needs room, and nobody is reading its copy.
    fn drop_copy(&mut self, node: NodeId) {
        let Some(station) = self.stations.get_mut(&node) else { return };
        if station.is_complete && station.line.streams.is_empty() {
            station.is_complete = false;
            station.wants = false;
            station.blocks.clear();
            self.step(node, Event::Copied { object: object(), of: place(HOME), at: None });
        }
    }

    /// A node has all of it.
    pub(super) fn complete(&mut self, node: NodeId) {
        let Some(station) = self.stations.get_mut(&node) else { return };
        (station.is_complete, station.was_complete, station.from) = (true, true, None);
        self.done_us = self.now_us;
        self.step(node, Event::Copied { object: object(), of: place(HOME), at: Some(place(node)) });
    }

    /// So many blocks can be on one link at a time.
    fn in_flight_max(&self) -> u64 {
        // The request to stop takes the same time back.
        2 * self.plan.latency_us / self.plan.block_us + 2
    }

    pub(super) fn break_invariant(&mut self, name: &'static str, text: String) {
        self.broken.get_or_insert((name, text));
    }

    /// From the last change until everybody had it, and how long that may take.
    pub(super) fn times(&self) -> (u64, u64) {
        (self.done_us.saturating_sub(self.changed_us), self.plan.bound_us(self.missed, self.losses))
    }

    /// What must hold when nothing is left to happen.
    pub(super) fn check_end(&self) -> Result<(), Broken> {
        for (id, station) in &self.stations {
            let moving = station.node.abroad().moving;
            if moving > 0 {
                return Err(("nothing leaks at rest", format!("the directory of {id} has {moving} entries")));
            }
            if station.wants && !station.is_complete {
                let text = format!("{id} has {} blocks of {}", station.blocks.len(), self.plan.blocks);
                return Err(("everybody gets what it wants", text));
            }
            if station.from.is_some() || !station.line.streams.is_empty() {
                return Err(("nothing leaks at rest", format!("{id} has streams {:?}", station.line.streams)));
            }
        }
        let (took_us, bound_us) = self.times();
        if took_us > bound_us {
            let text = format!("it took {took_us} us after the last change, and may take {bound_us}");
            return Err(("a broadcast takes the time of one transfer", text));
        }
        if self.wasted > self.wasted_max {
            let text = format!("{} blocks were sent in vain, and {} were under way", self.wasted, self.wasted_max);
            return Err(("nothing is sent where it is not wanted", text));
        }
        Ok(())
    }
}
