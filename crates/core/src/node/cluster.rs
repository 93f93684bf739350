//! The other nodes: what they say, whom it concerns, and what their deaths mean here.
//!
//! A process of another node is served as one of our own (`Asked`, `Told`), so leases, actors and claims know no difference.
//! What a process asks that another node decides is passed on to it. Deaths are settled by every node for all its
//! processes at once: the node of the dead waits for all, then says that it is buried.
//!
//! Messages of one node come in order; messages of two nodes about the same thing may cross. Where a count could
//! go to zero for that reason, nothing is dropped before [`GRACE_US`] are over: a message that is older is from a
//! node whose lease is over, and nobody counts what it says.

use std::collections::{BTreeMap, BTreeSet};

use super::census::Census;
use super::contents::Held;
use super::copies::{Copies, Lodger};
use super::delays::Delays;
use super::directory::Directory;
use super::draining::Draining;
use super::guests::Guests;
use super::hosting::Names;
use super::joins::Joins;
use super::passing::Passing;
use super::rehosting::Stay;
use super::{Effect, Node, send};
use crate::collective::Trouble;
use crate::failure::{Death, Failure};
use crate::id::{ActorId, NodeId, ProcessId};
use crate::ledger::tables::TaskState;
use crate::message::{Between, CopyWish, FromNode, ToNode};
use crate::record::Record;
use crate::resources::Resources;
use crate::schedule::{Average, Load};
use crate::time::Tick;
use crate::value::Value;
use crate::waits::Waits;

/// Longer than a message of a node that keeps its lease can be under way.
pub const GRACE_US: u64 = 4_000_000;

/// What the node knows of the others, besides who is alive.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) joins: Joins,
    pub(super) guests: Guests,
    pub(super) passing: Passing,
    pub(super) copies: Copies,
    pub(super) directory: Directory,
    /// Copies that we want and for which another node is to name a sender, by our number.
    pub(super) wishes: BTreeMap<u64, CopyWish>,
    /// What lies in our store and belongs to processes of other nodes, and which, by entry and use.
    pub(super) lodged: BTreeMap<(u32, u32), Lodger>,
    /// What we fetch for nodes that are being drained, by its place there.
    pub(super) taking: BTreeSet<(NodeId, u32, u32)>,
    pub(super) names: Names,
    /// Actors managed here that no node can take as far as its load is known.
    pub(super) unplaced: BTreeSet<ActorId>,
    /// Actors managed here that wait with a node, this one or another.
    pub(super) stays: BTreeMap<ActorId, Stay>,
    /// Questions that need the loads of all nodes.
    pub(super) loads: Census,
    /// Questions that need to know what waits on all nodes.
    pub(super) waits: Census,
    /// The answers of the other nodes in this round.
    pub(super) told_waits: BTreeMap<NodeId, Waits>,
    /// Dead processes of other nodes that some of our own have not settled yet.
    settling: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    flushing: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    /// Dead lenders of other nodes, and when their loans are void.
    pub(super) voiding: BTreeMap<ProcessId, Tick>,
    /// What is inside values that we keep for the dead, and is held with other nodes.
    pub(super) held: Held,
    /// How long tasks take here.
    pub(super) task_us: Average,
    /// Bytes per second that come in from other nodes.
    pub(super) bandwidth: Average,
    /// How long messages take to other nodes.
    pub(super) delays: Delays,
    /// What is left of the arena, when anything was fetched.
    pub(super) arena_free_bytes: Option<u64>,
    /// This node takes nothing more and will leave.
    pub(super) draining: Option<Draining>,
}

impl Cluster {
    pub(super) fn new(me: NodeId) -> Self {
        Self { joins: Joins::new(me), ..Self::default() }
    }
}

/// What a node has open with others: nothing of it is left when all is at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Abroad {
    /// Tasks of other nodes' owners that run here.
    pub guests: usize,
    /// Wishes of our processes that other nodes were asked to grant.
    pub wishes: usize,
    /// Objects of our processes of which other nodes have copies.
    pub copies: usize,
    /// Objects of our processes that are on their way to other nodes, and copies that we want.
    pub moving: usize,
    /// Deaths of other nodes' processes that our own have not settled.
    pub deaths: usize,
}

impl Node {
    /// What is open with other nodes.
    pub fn abroad(&self) -> Abroad {
        Abroad {
            guests: self.cluster.guests.len(),
            wishes: self.cluster.passing.len(),
            copies: self.cluster.copies.len(),
            moving: self.cluster.directory.len() + self.cluster.wishes.len(),
            deaths: self.cluster.settling.len() + self.cluster.flushing.len(),
        }
    }

    /// Whether this node is one of several.
    pub(super) fn is_clustered(&self) -> bool {
        self.config.id != NodeId::ALONE
    }

    /// Whether this is the node of a driver that runs where there is none: it has no workers, and never will.
    pub(super) fn takes_no_work(&self) -> bool {
        self.is_clustered() && self.config.total.is_zero()
    }

    /// What was decided for processes of other nodes goes to those; links are only between processes of one.
    pub(super) fn route(&self, effects: &mut Vec<Effect>, from: usize) {
        let me = self.config.id;
        let foreign = |effect: &Effect| match effect {
            Effect::Send { to, .. } => to.node != me,
            Effect::OpenLink { a, b } => a.node != me || b.node != me,
            Effect::FreeStored(at) => at.node != me,
            Effect::Tell { node, .. } => !self.live.has_node(*node),
            _ => false,
        };
        if !effects[from..].iter().any(foreign) {
            return;
        }
        for effect in effects.split_off(from) {
            let (node, message) = match effect {
                effect if !foreign(&effect) => {
                    effects.push(effect);
                    continue;
                }
                Effect::Send { to, message } => (to.node, Between::Told { to, message: Box::new(message) }),
                Effect::FreeStored(at) => (at.node, Between::Free { at }),
                _ => continue,
            };
            if self.live.has_node(node) {
                effects.push(Effect::Tell { node, message });
            }
        }
    }

    /// The other node that serves this request of a process, when it is not this one.
    fn server(&self, request: &ToNode) -> Option<NodeId> {
        let me = self.config.id;
        let node = match request {
            ToNode::ReturnLease { lease } if lease.0 != 0 => lease.node(),
            ToNode::FindCopy { home, .. }
            | ToNode::Resolve { home, .. }
            | ToNode::Claim { home, .. }
            | ToNode::ClaimFor { home, .. }
            | ToNode::ClaimArrived { home, .. } => *home,
            ToNode::KillWorker { worker, .. } => worker.node,
            ToNode::PeerCorrupt { peer, .. } => peer.node,
            ToNode::FreeObject { at } | ToNode::AbortObject { at } => at.node,
            ToNode::WatchActor { actor, manager } | ToNode::KillActor { actor, manager, .. } => {
                match self.cluster.names.away.get(actor) {
                    Some(node) => *node,
                    // Who hosts it does not know of its next life.
                    None if self.actors.all.contains_key(actor) => {
                        self.actors.all.get(actor).and_then(|actor| actor.manager).unwrap_or(me)
                    }
                    // Whoever outlives its owner's node is with the head.
                    None if *manager != me && !self.live.has_node(*manager) => NodeId::HEAD,
                    None => *manager,
                }
            }
            ToNode::ReleaseActor { actor } => self.cluster.names.away.get(actor).copied().unwrap_or(me),
            ToNode::FindActor { .. } | ToNode::QueryNames { .. } => NodeId::HEAD,
            ToNode::Lookup { function, .. } if !self.code.contains_key(function) => NodeId::HEAD,
            ToNode::CreateActor { spec, .. } if super::hosting::is_detached(spec) => NodeId::HEAD,
            ToNode::JoinCollective { group, .. }
            | ToNode::LeaveCollective { group, .. }
            | ToNode::QueryCollective { group, .. } => group.home,
            _ => me,
        };
        (node != me).then_some(node)
    }

    /// Passes a request on to the node that serves it. Says whether it did.
    pub(super) fn passed_to_server(&mut self, process: ProcessId, request: &ToNode, effects: &mut Vec<Effect>) -> bool {
        if !self.is_clustered() {
            return false;
        }
        if let ToNode::FreeObject { at } = request {
            self.free_copies(*at, effects);
        }
        if let (ToNode::Publish { .. }, true) = (request, self.config.id != NodeId::HEAD) {
            // The head has all code; whoever runs a task of ours asks there.
            self.ask_node(NodeId::HEAD, process, request.clone(), effects);
            return false;
        }
        let Some(node) = self.server(request) else { return false };
        if let ToNode::CreateActor { spec, .. } = request {
            self.cluster.names.away.insert(crate::id::ActorId(spec.id), node);
        }
        if self.live.has_node(node) {
            self.ask_node(node, process, request.clone(), effects);
        } else {
            self.answer_for_dead(process, node, request, effects);
        }
        true
    }

    fn ask_node(&self, node: NodeId, process: ProcessId, request: ToNode, effects: &mut Vec<Effect>) {
        let (job, request) = (self.job_of(process).unwrap_or_default(), Box::new(request));
        effects.push(Effect::Tell { node, message: Between::Asked { process, job, request } });
    }

    /// Nobody serves this any more: who waits for an answer gets one that says so.
    fn answer_for_dead(&self, process: ProcessId, node: NodeId, request: &ToNode, effects: &mut Vec<Effect>) {
        let reason = format!("{node} is gone, which kept it");
        let answer = match request {
            ToNode::Resolve { object, .. } => {
                let value = Value::failed(Failure::ObjectLost { object: *object, reason });
                FromNode::Resolved { object: *object, value, home: self.config.id }
            }
            ToNode::FindCopy { object, .. } => FromNode::CopyFound { object: *object, found: Err(reason) },
            ToNode::WatchActor { actor, .. } => FromNode::ActorDead { actor: *actor, reason },
            ToNode::FindActor { request, .. } => FromNode::ActorFound { request: *request, found: None },
            ToNode::QueryNames { request } => FromNode::Names { request: *request, names: Vec::new() },
            ToNode::Lookup { request, function } => {
                FromNode::Code { request: *request, function: *function, code: None }
            }
            ToNode::JoinCollective { group, rank, .. } => {
                let text = format!("{node} is gone, where the members of {group} find each other; make another group");
                FromNode::CollectiveBroken { group: *group, rank: *rank, trouble: Trouble::NotMember(text) }
            }
            ToNode::QueryCollective { request, .. } => {
                FromNode::CollectiveJoined { request: *request, joined: Vec::new() }
            }
            _ => return,
        };
        send(process, answer, effects);
    }

    /// Handles a message of another node, about nodes that are known here.
    pub(super) fn handle_message(&mut self, from: NodeId, message: Between, now: Tick, effects: &mut Vec<Effect>) {
        // Everything late from a dead one is void.
        if !self.live.has_node(from) {
            return;
        }
        match message {
            Between::Relay { from: sender, to, bytes } => {
                if sender.node == from {
                    self.relay_arrived(sender, to, bytes, now, effects);
                }
            }
            Between::Asked { process, job, request } => {
                if process.node == from {
                    if !process.is_node() {
                        self.jobs.note_guest(process, job);
                    }
                    self.requested(process, *request, now, effects);
                }
            }
            Between::Told { to, message } => self.told(from, to, *message, now, effects),
            Between::ProcessDied(death) => {
                if death.process.node == from {
                    self.foreign_process_died(*death, now, effects);
                }
            }
            Between::Settled { dead } => self.settled(ProcessId::of_node(from), dead, now, effects),
            Between::Flush { dead } => self.flush_for(dead, effects),
            Between::Flushed { dead } => self.flushed(ProcessId::of_node(from), dead, now, effects),
            Between::Runs { task, attempt, worker } => self.runs_on(task, attempt, worker, now, effects),
            Between::Buried { dead } => self.buried(dead, now, effects),
            Between::Host { spec, resolved, incarnation, lane, owner, job, waits } => {
                self.host(from, (spec, resolved), (incarnation, lane, waits), (owner, job), now, effects);
            }
            Between::JobEnded { job, reason } => {
                if job.node() == from {
                    self.foreign_job_ended(job, reason, now, effects);
                }
            }
            Between::Unhost { actor, incarnation, reason } => self.unhost(actor, incarnation, &reason, now, effects),
            Between::Hosted { actor, incarnation, process, value } => {
                self.hosted(actor, incarnation, process, value, now, effects);
            }
            Between::Unhosted { actor, incarnation, failure } => {
                self.unhosted(from, actor, incarnation, failure, now, effects);
            }
            Between::Recall { actor, incarnation } => self.recall(from, actor, incarnation, now, effects),
            Between::Recalled { actor, incarnation } => self.recalled(from, actor, incarnation, now, effects),
            Between::WantLoad { request } => self.load_wanted(from, request, effects),
            Between::WantWaits { request } => self.waits_wanted(from, request, effects),
            Between::GiveWaits { request, waits } => self.waits_given(from, request, *waits, now, effects),
            Between::GiveLoad { request, load } => self.load_given(from, request, *load, now, effects),
            Between::TakeName { name, actor, owner, function } => {
                let holder = self.take_name(name, actor, owner, function);
                effects.push(Effect::Tell { node: from, message: Between::NameGiven { actor, holder } });
            }
            Between::NameGiven { actor, holder } => self.name_given(actor, holder, now, effects),
            Between::DropName { name, actor } => self.cluster.names.drop_foreign(&name, actor),
            Between::CopyMade { of, at } => self.copy_made(from, of, at, effects),
            Between::CopyDropped { of } => self.copy_dropped(from, of, effects),
            Between::Promote { at } => self.promoted(at, effects),
            Between::Idle { node, load } => self.idles(from, node, *load, now, effects),
            Between::Free { at } => effects.push(Effect::FreeStored(at)),
            Between::Take { object, at } => self.take_over(from, object, at, effects),
            Between::NotTaken { at } => self.not_taken(from, at),
            Between::Moved { object, of, at } => self.moved(from, object, of, at, effects),
            Between::Kept { of, by } => self.kept(of, by),
            Between::Seek { process, request, object, at } => {
                let found = self.copy_of(at, effects);
                let message = Between::Sought { process, request, object, found };
                effects.push(Effect::Tell { node: from, message });
            }
            Between::Sought { process, request, object, found } => {
                self.sought(process, request, object, found, effects);
            }
            Between::WantCopy(wish) => self.assign_sender(from, wish, effects),
            Between::CopyFrom { number, from: sender } => self.sender_assigned(from, number, sender, effects),
            Between::Prefetch { object, of } => self.prefetch(object, of, effects),
            Between::RunStage(spec) => self.run_stage(from, *spec, effects),
            Between::EndStage { id, reason } => self.end_stage(from, id, reason, effects),
            Between::Ping { at } => effects.push(Effect::Tell { node: from, message: Between::Pong { at } }),
            Between::Pong { at } => self.cluster.delays.heard(from, at, now),
            // It is no news by now.
            Between::Knows { .. } => {}
            Between::StageFailed { id, reason, peer } => self.stage_of_reduce_failed(id, reason, peer, now, effects),
            // Addressed to the controller, which is another machine, or to the shell.
            Between::Controller(_)
            | Between::Leaving { .. }
            | Between::WantProgram { .. }
            | Between::WantStatus { .. }
            | Between::GiveStatus { .. }
            | Between::Lines { .. }
            | Between::LinesOver { .. }
            | Between::GiveProgram { .. }
            | Between::WantPiece { .. }
            | Between::Through { .. }
            | Between::GivePiece { .. }
            | Between::WantTicket { .. }
            | Between::GiveTicket { .. }
            | Between::Come { .. } => {}
        }
    }

    /// Another node serves one of our processes.
    fn told(&mut self, from: NodeId, to: ProcessId, message: FromNode, now: Tick, effects: &mut Vec<Effect>) {
        if to.node != self.config.id {
            return;
        }
        match &message {
            FromNode::Granted { pool, .. } => self.granted_elsewhere(from, to, *pool, now),
            FromNode::Infeasible { pool, .. } => {
                if let Some(group) = self.group_of_wish(to, *pool) {
                    self.cluster.passing.forget(from, to, *pool);
                    self.bundle_refused(from, group, effects);
                    return;
                }
                // It was chosen by an old word of what it has: another one is.
                self.cluster.passing.refused(from, to, *pool);
                self.schedule(now, effects);
                return;
            }
            // That is no matter of room: nobody else is asked.
            FromNode::Refused { pool, .. } => {
                if let Some(place) = self.queue.wish(to, *pool) {
                    self.queue.remove(place);
                }
                self.schedule(now, effects);
            }
            FromNode::Code { function, code: Some(code), .. } => self.keep_code(to, *function, code.clone()),
            _ => {}
        }
        if self.live.contains(&to) {
            send(to, message, effects);
        } else if let FromNode::Granted { lease, .. } = message {
            // Its owner died while it was under way.
            self.ask_node(from, to, ToNode::ReturnLease { lease }, effects);
        }
    }

    /// The placement group in which one of our processes wishes for leases.
    fn group_of_wish(&self, owner: ProcessId, pool: u32) -> Option<crate::id::GroupId> {
        self.queue.get(self.queue.wish(owner, pool)?)?.strategy.group()
    }

    /// A node joined the cluster.
    pub(super) fn node_joined(&mut self, node: NodeId, total: Resources, now: Tick, effects: &mut Vec<Effect>) {
        if self.live.node_joined(node) {
            // Until it tells its load it is taken to be idle.
            let mut load = Load::idle(total);
            load.driver_only = load.total.is_zero();
            self.cluster.passing.digest.update(node, load, 0, now);
            self.schedule(now, effects);
        }
        self.deliver_deferred(node, now, effects);
    }

    /// A process of another node died; all that it had said came before.
    fn foreign_process_died(&mut self, death: Death, now: Tick, effects: &mut Vec<Effect>) {
        let dead = death.process;
        if !self.live.departed(dead) {
            return;
        }
        for process in self.live.local() {
            send(*process, FromNode::ProcessDied(Box::new(death.clone())), effects);
        }
        self.remember(&death);
        self.members_died(|process| process == dead, &death.in_words(), effects);
        self.forget_foreign(|process| process == dead, now, effects);
        let here = self.live.local().clone();
        if here.is_empty() {
            effects.push(Effect::Tell { node: dead.node, message: Between::Settled { dead } });
        } else {
            self.cluster.settling.insert(dead, here);
        }
        self.schedule(now, effects);
    }

    /// Wishes, leases, guests and questions of processes of other nodes that are dead.
    fn forget_foreign(&mut self, is_dead: impl Fn(ProcessId) -> bool, now: Tick, effects: &mut Vec<Effect>) {
        for place in self.queue.wishes_where(&is_dead) {
            self.queue.remove(place);
        }
        self.withdraw_unannounced(&is_dead, now);
        self.lose_runs(&is_dead, effects);
        self.jobs.forget_guests(&is_dead);
        self.end_jobs_again(now, effects);
        self.forget_asker(&is_dead, effects);
        self.review_all(now, effects);
    }

    /// One of our processes, or its death, has settled the death of a process of another node.
    pub(super) fn settled_foreign(&mut self, process: ProcessId, dead: ProcessId, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.cluster.settling.get_mut(&dead) else { return };
        waiting.remove(&process);
        if waiting.is_empty() {
            self.cluster.settling.remove(&dead);
            self.tell_runs(dead, effects);
            effects.push(Effect::Tell { node: dead.node, message: Between::Settled { dead } });
        }
    }

    /// One of our processes died: what it will never say about deaths of other nodes' processes.
    pub(super) fn settle_foreign_for(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        let settling: Vec<ProcessId> = self.cluster.settling.keys().copied().collect();
        for dead in settling {
            self.settled_foreign(process, dead, effects);
        }
        let flushing: Vec<ProcessId> = self.cluster.flushing.keys().copied().collect();
        for dead in flushing {
            self.flushed_foreign(process, dead, effects);
        }
    }

    fn flush_for(&mut self, dead: ProcessId, effects: &mut Vec<Effect>) {
        let here = self.live.local().clone();
        for process in &here {
            if let Some(death) = self.deaths.get(&dead) {
                send(*process, FromNode::ProcessDied(Box::new(death.clone())), effects);
            }
            send(*process, FromNode::Flush { dead }, effects);
        }
        if here.is_empty() {
            effects.push(Effect::Tell { node: dead.node, message: Between::Flushed { dead } });
        } else {
            self.cluster.flushing.insert(dead, here);
        }
    }

    /// One of our processes has read what was sent in the name of a dead owner of another node.
    pub(super) fn flushed_foreign(&mut self, process: ProcessId, dead: ProcessId, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.cluster.flushing.get_mut(&dead) else { return };
        waiting.remove(&process);
        if waiting.is_empty() {
            self.cluster.flushing.remove(&dead);
            effects.push(Effect::Tell { node: dead.node, message: Between::Flushed { dead } });
        }
    }

    /// Everybody knows of this death and has what the dead had said: what waited for that goes on.
    fn buried(&mut self, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        self.cluster.voiding.insert(dead, now.plus_us(GRACE_US));
        self.hosted_process_buried(dead, now, effects);
    }

    /// A node is dead, and all its processes with it.
    pub(super) fn node_died(&mut self, node: NodeId, reason: &str, now: Tick, effects: &mut Vec<Effect>) {
        if !self.live.node_died(node) {
            return;
        }
        for process in self.live.local() {
            send(*process, FromNode::NodeDied { node, reason: reason.to_owned() }, effects);
        }
        self.ask_for_what_was_kept(node, effects);
        self.lose_bundles_of(node);
        self.members_died(|process| process.node == node, &format!("{node} {reason}"), effects);
        self.forget_foreign(|process| process.node == node, now, effects);
        self.cluster.joins.node_died(node);
        self.cluster.guests.forget_node(node);
        self.free_lodged(node, effects);
        self.reduces_lose_node(node, now, effects);
        self.cluster.passing.forget_node(node);
        self.cluster.copies.forget_node(node);
        self.copier_died(node, effects);
        self.taker_died(node);
        self.cluster.held.forget_node(node);
        self.cluster.settling.retain(|dead, _| dead.node != node);
        self.cluster.flushing.retain(|dead, _| dead.node != node);
        let lenders: Vec<ProcessId> = self.loans.keys().copied().filter(|lender| lender.node == node).collect();
        for lender in lenders {
            self.cluster.voiding.insert(lender, now.plus_us(GRACE_US));
        }
        self.cluster.names.forget_node(node);
        self.end_jobs_of(node, reason, now, effects);
        self.lose_hosts(node, reason, now, effects);
        self.settle_for(ProcessId::of_node(node), now, effects);
        self.review_questions(now, effects);
        self.schedule(now, effects);
    }

    /// What is due by the clock.
    pub(super) fn pass_time(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        if self.is_clustered() {
            self.void_due_loans(now);
            self.give_up_on_code(now, effects);
            self.go_on_draining(now, effects);
            self.review_questions(now, effects);
        }
    }

    /// When something of this is due next.
    pub(super) fn cluster_deadline(&self) -> Option<Tick> {
        let fading = self.fading.values().filter(|fading| fading.passes_left == 0).map(|fading| fading.until);
        let code = self.awaited.values().flatten().map(|(_, _, until)| *until);
        let draining = self.cluster.draining.as_ref().map(Draining::look_at);
        let census = self.cluster.loads.deadline().into_iter().chain(self.cluster.waits.deadline());
        self.cluster.voiding.values().copied().chain(fading).chain(code).chain(draining).chain(census).min()
    }

    /// How long tasks take here: others estimate by it how long they would wait.
    pub(super) fn note_duration(&mut self, record: &Record) {
        if let Record::Finished { at, task, .. } = record
            && let Some(TaskState::Running { since, .. }) = self.ledger.task(*task).map(|entry| &entry.state)
        {
            self.cluster.task_us.add(at.since_us(*since));
        }
    }

    /// Loans of dead lenders of other nodes, when no word about them can be under way any more.
    fn void_due_loans(&mut self, now: Tick) {
        let due: Vec<ProcessId> =
            self.cluster.voiding.iter().filter(|(_, at)| **at <= now).map(|(lender, _)| *lender).collect();
        for lender in due {
            self.cluster.voiding.remove(&lender);
            self.void_loans(lender, now);
        }
    }
}
