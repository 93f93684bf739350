//! Nodes on paper that pass wishes to each other by these rules, with loads that are late: every wish ends, none
//! bounces, and nobody idles for long while somebody waits.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::{ProptestConfig, prop_assert, proptest};

use super::*;
use crate::schedule::moving::MOVE_AFTER_US;

const STEP_US: u64 = 1_000;
const HEARTBEAT_US: u64 = 100_000;
const TRANSIT_US: u64 = 1_000;
/// What the digest adds to the time until a wish moves: a heartbeat, its way by the controller, and the steps.
const STALE_US: u64 = 2 * HEARTBEAT_US + 10 * STEP_US;

#[derive(Clone, Debug)]
struct Wish {
    run_us: u64,
    since: Tick,
    moves: u32,
}

#[derive(Clone, Debug)]
enum Message {
    Passed(Wish),
    Loads(Vec<(NodeId, Load)>),
    Asks(NodeId, Load),
}

struct Member {
    id: NodeId,
    cpus: u64,
    running: Vec<Tick>,
    queue: VecDeque<Wish>,
    digest: Digest,
    task_us: Average,
    idle_since: Option<Tick>,
}

impl Member {
    fn load(&self) -> Load {
        let mut load = load(self.cpus, self.cpus - self.running.len() as u64, self.queue.len() as u32);
        load.task_us = self.task_us.get();
        load
    }

    fn start(&mut self, wish: &Wish, now: Tick) {
        self.task_us.add(wish.run_us);
        self.running.push(now.plus_us(wish.run_us));
    }

    fn free(&self) -> bool {
        (self.running.len() as u64) < self.cpus
    }
}

#[derive(Default)]
struct Cluster {
    members: Vec<Member>,
    mail: BTreeMap<(Tick, u64), (usize, Message)>,
    sent: u64,
    done: usize,
    moves_most: u32,
}

impl Cluster {
    fn send(&mut self, to: NodeId, at: Tick, message: Message) {
        self.sent += 1;
        self.mail.insert((at, self.sent), (to.0 as usize - 1, message));
    }

    fn pass(&mut self, from: usize, to: NodeId, mut wish: Wish, now: Tick) {
        self.members[from].digest.sent(to, &cpus(1), 1, now);
        wish.moves += 1;
        self.moves_most = self.moves_most.max(wish.moves);
        self.send(to, now.plus_us(TRANSIT_US), Message::Passed(wish));
    }

    fn arrives(&mut self, at: usize, mut wish: Wish, fresh: bool, now: Tick) {
        wish.since = now;
        let member = &mut self.members[at];
        if member.free() && member.queue.is_empty() {
            member.start(&wish, now);
            return;
        }
        if fresh {
            member.digest.update(member.id, member.load(), 0, now);
            let one = cpus(1);
            let ask = Ask { resources: &one, strategy: Strategy::Default, inputs: &[], own: member.id, bundles: &[] };
            if let Choice::There(to) = member.digest.choose(&ask, now) {
                self.pass(at, to, wish, now);
                return;
            }
        }
        self.members[at].queue.push_back(wish);
    }

    /// Passes on what should move, to who asked or to anybody.
    fn review(&mut self, at: usize, asker: Option<NodeId>, now: Tick) {
        let member = &mut self.members[at];
        member.digest.update(member.id, member.load(), 0, now);
        let mut staying = VecDeque::new();
        for wish in std::mem::take(&mut self.members[at].queue) {
            let one = cpus(1);
            let parked = Parked { resources: &one, inputs: &[], count: 1, since: wish.since, moves: wish.moves };
            let own = self.members[at].id;
            match self.members[at].digest.should_move(own, &parked, asker, now) {
                Some(Move { to, .. }) => self.pass(at, to, wish, now),
                None => staying.push_back(wish),
            }
        }
        self.members[at].queue = staying;
    }

    fn step(&mut self, now: Tick) {
        while let Some(entry) = self.mail.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, message) = entry.remove();
            match message {
                Message::Passed(wish) => self.arrives(to, wish, false, now),
                Message::Loads(loads) => {
                    let own = self.members[to].id;
                    for (node, load) in loads.into_iter().filter(|(node, _)| *node != own) {
                        self.members[to].digest.update(node, load, TRANSIT_US, now);
                    }
                    self.review(to, None, now);
                }
                Message::Asks(asker, load) => {
                    self.members[to].digest.update(asker, load, 0, now);
                    self.review(to, Some(asker), now);
                }
            }
        }
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let before = member.running.len();
            member.running.retain(|end| *end > now);
            self.done += before - member.running.len();
            while member.free()
                && let Some(wish) = member.queue.pop_front()
            {
                member.start(&wish, now);
            }
            let idle = member.free() && member.queue.is_empty();
            member.idle_since = if idle { member.idle_since.or(Some(now)) } else { None };
            if idle {
                let (own, load) = (member.id, member.load());
                member.digest.update(own, load.clone(), 0, now);
                if let Some(to) = member.digest.whom_to_ask(own, now) {
                    self.send(to, now.plus_us(TRANSIT_US), Message::Asks(own, load));
                }
            }
        }
        if now.0.is_multiple_of(HEARTBEAT_US) {
            let loads: Vec<(NodeId, Load)> = self.members.iter().map(|member| (member.id, member.load())).collect();
            for to in 0..self.members.len() {
                self.send(NodeId(to as u32 + 1), now.plus_us(2 * TRANSIT_US), Message::Loads(loads.clone()));
            }
        }
    }

    /// Nobody has idled, while a wish waited, for longer than the wish had to wait for its next move.
    fn check_conserving(&self, now: Tick) {
        let Some(idle) = self.members.iter().filter_map(|member| member.idle_since).min() else { return };
        for wish in self.members.iter().flat_map(|member| &member.queue) {
            let both = now.since_us(idle.max(wish.since));
            let bound = (MOVE_AFTER_US << wish.moves) + STALE_US;
            assert!(both <= bound, "somebody has idled for {both} us while a wish waited; {} moves", wish.moves);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_wish_ends_none_bounces_and_nobody_idles_for_long_while_one_waits(
        sizes in proptest::collection::vec(1u64..5, 2..7),
        wishes in proptest::collection::vec((0usize..7, 0u64..500, 1u64..200), 1..150),
    ) {
        let mut cluster = Cluster::default();
        for (id, cpus) in (1..).map(NodeId).zip(&sizes) {
            let (running, queue, task_us) = (Vec::new(), VecDeque::new(), Average::default());
            let digest = digest(sizes.iter().map(|cpus| load(*cpus, *cpus, 0)).collect());
            cluster.members.push(Member { id, cpus: *cpus, running, queue, digest, task_us, idle_since: None });
        }
        let work_us: u64 = wishes.iter().map(|(_, _, run)| run * STEP_US).sum();
        let last = 500 * STEP_US + work_us + STALE_US;
        let mut now = Tick(0);
        while cluster.done < wishes.len() {
            prop_assert!(now.0 <= last, "{} of {} ended", cluster.done, wishes.len());
            for (at, _, run) in wishes.iter().filter(|(_, at, _)| at * STEP_US == now.0) {
                let wish = Wish { run_us: run * STEP_US, since: now, moves: 0 };
                cluster.arrives(at % sizes.len(), wish, true, now);
            }
            cluster.step(now);
            cluster.check_conserving(now);
            now = now.plus_us(STEP_US);
        }
        prop_assert!(cluster.moves_most <= 6, "a wish was passed on {} times", cluster.moves_most);
    }
}
