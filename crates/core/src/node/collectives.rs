//! Collective groups: where members find each other, and the stages of members that live here.
//!
//! A group has a home, the node of its creator. Members say there that they have come; when all have, each hears who the
//! others are. Whoever dies or leaves is told to the rest, and a group without a living member is forgotten. One that loses a
//! member before all have come can never be formed: who is there hears so, and who comes later. Unless nobody else has heard it, then
//! the lost one may come again; and under a name the group can be formed anew once those who heard it have left. What goes on
//! inside of a group is the members' business (`core::collective`), but for the stages of large calls, which run on the nodes: this
//! one keeps for each who wants it, so that nothing of a dead process goes on or stays.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use super::actors::ActorState;
use super::early::About;
use super::{Effect, Node, send};
use crate::collective::{CollectiveId, MEMBERS_MAX, Peers, Seat, Trouble};
use crate::flow::{StageId, StageSpec};
use crate::id::{ActorId, NodeId, ProcessId};
use crate::message::{FromNode, RequestId};
use crate::value::Location;

/// Groups that one node is home of; another one is refused.
pub const COLLECTIVES_MAX: usize = 10_000;
/// Groups without a living member of which a node remembers why they can never be formed; the oldest is forgotten.
pub const BROKEN_MAX: usize = 1_000;
/// Stages that processes of one node may have at a time; another one fails at once.
pub const COLLECTIVE_STAGES_MAX: usize = 4_096;

#[derive(Debug)]
struct Joined {
    process: ProcessId,
    label: String,
    /// Dead, or it has left.
    gone: bool,
}

/// A process that wants to be a member.
#[derive(Clone, Debug)]
pub(super) struct Newcomer {
    pub(super) process: ProcessId,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) label: String,
    /// The members by rank, when the group is one of actors.
    pub(super) actors: Vec<ActorId>,
}

/// A group whose home is here.
#[derive(Debug)]
struct Collective {
    size: u32,
    /// The members by rank, when the group is one of actors.
    actors: Vec<ActorId>,
    is_named: bool,
    members: BTreeMap<u32, Joined>,
    /// Counts the formings of groups, once all members are there.
    life: Option<u64>,
    /// Who was lost first.
    lost: Option<Trouble>,
    /// Somebody was told that it is broken.
    told: bool,
    /// Those who come again while others have not left yet: nothing says that all hear of the end at the same time.
    next: Vec<Newcomer>,
}

impl Collective {
    fn new(group: CollectiveId, size: u32, actors: Vec<ActorId>) -> Self {
        let is_named = group.is_named();
        Self { size, actors, is_named, members: BTreeMap::new(), life: None, lost: None, told: false, next: Vec::new() }
    }

    fn seat(&self, rank: u32) -> Seat {
        let actor = || self.actors.get(rank as usize).map(ToString::to_string).unwrap_or_default();
        Seat { rank, label: self.members.get(&rank).map_or_else(actor, |member| member.label.clone()) }
    }

    /// Whether the group is about to end: who comes now means the next one of its name.
    fn is_ending_for(&self, rank: u32, size: u32) -> bool {
        let gone = |rank: u32| self.members.get(&rank).is_some_and(|member| member.gone);
        match (self.life, &self.lost) {
            (Some(_), None) => gone(rank) || size != self.size && self.members.keys().any(|rank| gone(*rank)),
            // One that was passed on is broken for good, for those who are in it.
            (None, Some(_)) => self.is_named && gone(rank),
            (None, None) | (Some(_), Some(_)) => false,
        }
    }

    fn living(&self) -> impl Iterator<Item = (u32, ProcessId)> + '_ {
        self.members.iter().filter(|(_, member)| !member.gone).map(|(rank, member)| (*rank, member.process))
    }

    fn is_deserted(&self) -> bool {
        self.living().next().is_none()
    }

    /// A member is lost: those who are there hear it, unless they know already.
    fn lose(&mut self, group: CollectiveId, trouble: Trouble, effects: &mut Vec<Effect>) {
        if self.lost.is_some() {
            return;
        }
        for (rank, process) in self.living() {
            let trouble = trouble.clone();
            send(process, FromNode::CollectiveBroken { group, rank, trouble }, effects);
        }
        self.told = !self.is_deserted();
        self.lost = Some(trouble);
    }
}

/// A stage that a process of this node wants.
#[derive(Debug)]
struct Wanted {
    process: ProcessId,
    inputs: Vec<Location>,
    /// What it made, once it is over.
    made: Vec<Location>,
    over: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    all: BTreeMap<CollectiveId, Collective>,
    /// Those of them that have no living member and can never be formed, the oldest first.
    broken: VecDeque<CollectiveId>,
    lives: u64,
    stages: BTreeMap<StageId, Wanted>,
}

impl Collectives {
    /// Those that somebody is in.
    fn open(&self) -> usize {
        self.all.len() - self.broken.len()
    }

    fn forget(&mut self, group: CollectiveId) -> Option<Collective> {
        self.broken.retain(|broken| *broken != group);
        self.all.remove(&group)
    }

    /// Keeps why a group can never be formed, for those of its members that have not come yet.
    fn keep_broken(&mut self, group: CollectiveId) {
        self.broken.push_back(group);
        while self.broken.len() > BROKEN_MAX {
            if let Some(oldest) = self.broken.pop_front() {
                self.all.remove(&oldest);
            }
        }
    }
}

impl Node {
    /// Groups whose home is here, and stages that processes of this node want: nothing is left when all is at rest.
    pub fn collectives_open(&self) -> (usize, usize) {
        (self.collectives.open(), self.collectives.stages.len())
    }

    pub(super) fn join_collective(&mut self, group: CollectiveId, newcomer: Newcomer, effects: &mut Vec<Effect>) {
        if self.is_rank_held(group, &newcomer) {
            self.enter_early(newcomer.process, About::Join { group, newcomer });
        } else {
            self.admit_member(group, newcomer, effects);
        }
    }

    /// Whether a formed group has this member, or another size: it may have left already, in a ring that is not read yet.
    pub(super) fn is_rank_held(&self, group: CollectiveId, newcomer: &Newcomer) -> bool {
        let (rank, size) = (newcomer.rank, newcomer.size);
        self.collectives.all.get(&group).is_some_and(|known| {
            let held = known.size != size || known.members.contains_key(&rank);
            held && known.life.is_some() && known.lost.is_none() && !known.is_ending_for(rank, size)
        })
    }

    pub(super) fn admit_member(&mut self, group: CollectiveId, newcomer: Newcomer, effects: &mut Vec<Effect>) {
        let (process, rank, size) = (newcomer.process, newcomer.rank, newcomer.size);
        let begins_again = |known: &Collective| {
            known.is_deserted() && known.lost.is_some() && !known.told && known.members.contains_key(&rank)
        };
        if self.collectives.all.get(&group).is_some_and(begins_again) {
            // Nobody else knows that it was lost.
            self.collectives.forget(group);
        }
        if let Some(trouble) = self.refusal_of_member(group, &newcomer) {
            send(process, FromNode::CollectiveBroken { group, rank, trouble }, effects);
            self.note_refused(group, newcomer);
            return;
        }
        let Newcomer { label, actors, .. } = newcomer;
        let lives = &mut self.collectives.lives;
        let collective =
            self.collectives.all.entry(group).or_insert_with(|| Collective::new(group, size, actors.clone()));
        if collective.is_ending_for(rank, size) {
            collective.next.push(Newcomer { process, rank, size, label, actors });
            return;
        }
        collective.members.insert(rank, Joined { process, label, gone: false });
        if collective.members.len() as u32 == size && collective.life.is_none() {
            *lives += 1;
            collective.life = Some(*lives);
            let members: Peers = collective.members.values().map(|m| (m.process, m.label.clone())).collect();
            for (rank, process) in collective.living() {
                let members = members.clone();
                send(process, FromNode::CollectiveFormed { group, rank, life: *lives, members }, effects);
            }
        } else if collective.life.is_none() {
            let absent = (0..).zip(&collective.actors).filter(|(rank, _)| !collective.members.contains_key(rank));
            let dead = absent.filter_map(|(rank, actor)| match &self.actors.all.get(actor)?.state {
                ActorState::Dead { reason } => Some((rank, reason.clone())),
                _ => None,
            });
            if let Some((rank, why)) = dead.min() {
                let trouble = Trouble::Lost { member: collective.seat(rank), why };
                collective.lose(group, trouble, effects);
            }
        }
    }

    /// Why a process cannot be this member.
    fn refusal_of_member(&self, group: CollectiveId, newcomer: &Newcomer) -> Option<Trouble> {
        let Newcomer { process, rank, size, ref label, .. } = *newcomer;
        if size == 0 || size > MEMBERS_MAX || rank >= size {
            let text =
                format!("rank {rank} of {size} members cannot be: 1 to {MEMBERS_MAX} members have ranks from 0 on");
            return Some(Trouble::Misuse(text));
        }
        let Some(known) = self.collectives.all.get(&group) else {
            let full = self.collectives.open() >= COLLECTIVES_MAX;
            let text = || format!("{} keeps {COLLECTIVES_MAX} collective groups already; end some", self.config.id);
            return full.then(|| Trouble::Misuse(text()));
        };
        if known.is_ending_for(rank, size) {
            return None;
        }
        let seat = Seat { rank, label: label.clone() };
        if known.size != size {
            let text = format!("{seat} says that {group} has {size} members, and others say {}", known.size);
            return Some(Trouble::NotMember(text));
        }
        if let Some(lost) = &known.lost {
            return Some(lost.clone());
        }
        match known.members.get(&rank) {
            Some(holder) if holder.process != process || known.life.is_some() => {
                let text = format!("{seat} cannot join {group}: {} has this rank already", known.seat(rank));
                Some(Trouble::NotMember(text))
            }
            _ => None,
        }
    }

    /// One that came to a broken group is in it until it leaves, as those are that were there before.
    fn note_refused(&mut self, group: CollectiveId, newcomer: Newcomer) {
        let Newcomer { process, rank, size, label, .. } = newcomer;
        let Some(known) = self.collectives.all.get_mut(&group) else { return };
        if known.lost.is_none() || known.life.is_some() || known.size != size || rank >= size {
            return;
        }
        known.told = true;
        if let Entry::Vacant(seat) = known.members.entry(rank) {
            seat.insert(Joined { process, label, gone: false });
            self.collectives.broken.retain(|broken| *broken != group);
        }
    }

    /// A member will take part in no other call.
    pub(super) fn leave_collective(
        &mut self,
        process: ProcessId,
        group: CollectiveId,
        rank: u32,
        calls: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.forget_early_join(process, group, rank) {
            return;
        }
        let Some(collective) = self.collectives.all.get_mut(&group) else { return };
        let waits = |newcomer: &Newcomer| newcomer.process == process && newcomer.rank == rank;
        if let Some(at) = collective.next.iter().position(waits) {
            collective.next.remove(at);
            return;
        }
        let is_this = |member: &&mut Joined| member.process == process && !member.gone;
        let Some(member) = collective.members.get_mut(&rank).filter(is_this) else { return };
        member.gone = true;
        if collective.life.is_none() {
            let trouble = Trouble::Left { member: collective.seat(rank), calls };
            collective.lose(group, trouble, effects);
        } else {
            for (to, process) in collective.living() {
                send(process, FromNode::CollectiveLeft { group, rank: to, member: rank, calls }, effects);
            }
        }
        if collective.is_deserted() {
            self.end_collective(group, effects);
        }
    }

    /// Forgets a group that no living member is in, unless some are still to come who have to hear that it can never be formed.
    /// Those who wait for its next life begin it.
    fn end_collective(&mut self, group: CollectiveId, effects: &mut Vec<Effect>) {
        let is_awaited = |known: &Collective| {
            !known.is_named && known.life.is_none() && known.lost.is_some() && (known.members.len() as u32) < known.size
        };
        if self.collectives.all.get(&group).is_some_and(is_awaited) {
            self.collectives.keep_broken(group);
            return;
        }
        let next = self.collectives.forget(group).map(|over| over.next);
        for newcomer in next.unwrap_or_default() {
            self.join_collective(group, newcomer, effects);
        }
    }

    /// Who has come so far.
    pub(super) fn list_collective(
        &self,
        process: ProcessId,
        request: RequestId,
        group: CollectiveId,
        effects: &mut Vec<Effect>,
    ) {
        let joined = self.collectives.all.get(&group).map(|known| known.living().map(|(rank, _)| rank).collect());
        send(process, FromNode::CollectiveJoined { request, joined: joined.unwrap_or_default() }, effects);
    }

    /// Processes are dead: the rest of their groups hears it, and what they wanted ends.
    pub(super) fn members_died(&mut self, is_dead: impl Fn(ProcessId) -> bool, why: &str, effects: &mut Vec<Effect>) {
        let mut deserted = Vec::new();
        for (group, collective) in &mut self.collectives.all {
            collective.next.retain(|newcomer| !is_dead(newcomer.process));
            let dead = |(_, member): &(&u32, &Joined)| !member.gone && is_dead(member.process);
            let dead: Vec<u32> = collective.members.iter().filter(dead).map(|(rank, _)| *rank).collect();
            let Some(first) = dead.first() else { continue };
            let trouble = Trouble::Lost { member: collective.seat(*first), why: why.to_owned() };
            for rank in &dead {
                if let Some(member) = collective.members.get_mut(rank) {
                    member.gone = true;
                }
            }
            collective.lose(*group, trouble, effects);
            if collective.is_deserted() {
                deserted.push(*group);
            }
        }
        for group in deserted {
            self.end_collective(group, effects);
        }
        let theirs = self.collectives.stages.iter().filter(|(_, stage)| is_dead(stage.process)).map(|(id, _)| *id);
        for id in theirs.collect::<Vec<StageId>>() {
            self.end_collective_stage(id, why, effects);
        }
    }

    /// An actor is dead for good: a group of which it is a member and that it has not joined can never be formed.
    pub(super) fn member_actor_died(&mut self, actor: ActorId, why: &str, effects: &mut Vec<Effect>) {
        for (group, collective) in &mut self.collectives.all {
            let rank = collective.actors.iter().position(|member| *member == actor).map(|rank| rank as u32);
            if let Some(rank) = rank.filter(|rank| collective.life.is_none() && !collective.members.contains_key(rank))
            {
                let trouble = Trouble::Lost { member: collective.seat(rank), why: why.to_owned() };
                collective.lose(*group, trouble, effects);
            }
        }
    }

    /// A process of this node wants a stage to run.
    pub(super) fn run_collective_stage(&mut self, process: ProcessId, spec: StageSpec, effects: &mut Vec<Effect>) {
        let id = spec.id;
        let reason = if self.collectives.stages.len() >= COLLECTIVE_STAGES_MAX {
            Some(format!("{COLLECTIVE_STAGES_MAX} calls of groups run on {} already; wait for some", self.config.id))
        } else if self.collectives.stages.contains_key(&id) {
            Some(format!("{id} runs already"))
        } else {
            None
        };
        if let Some(reason) = reason {
            effects.extend(spec.inputs.into_iter().map(Effect::FreeStored));
            send(process, FromNode::StageFailed { id, reason, peer: None }, effects);
            return;
        }
        let wanted = Wanted { process, inputs: spec.inputs.clone(), made: Vec::new(), over: false };
        self.collectives.stages.insert(id, wanted);
        effects.push(Effect::RunStage(spec));
    }

    /// The process that wants a stage has written more of what it reads.
    pub(super) fn grow_collective_stage(&self, process: ProcessId, id: StageId, effects: &mut Vec<Effect>) {
        if self.collectives.stages.get(&id).is_some_and(|wanted| wanted.process == process && !wanted.over) {
            effects.push(Effect::GrowStage(id));
        }
    }

    /// A stage is over. Says whether a process of this node wanted it.
    pub(super) fn collective_stage_done(&mut self, id: StageId, at: &[Location], effects: &mut Vec<Effect>) -> bool {
        let Some(wanted) = self.collectives.stages.get_mut(&id) else { return false };
        (wanted.made, wanted.over) = (at.to_vec(), true);
        send(wanted.process, FromNode::StageDone { id, at: at.to_vec() }, effects);
        true
    }

    /// A stage has failed. Says whether a process of this node wanted it.
    pub(super) fn collective_stage_failed(
        &mut self,
        id: StageId,
        reason: &str,
        peer: Option<NodeId>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(wanted) = self.collectives.stages.remove(&id) else { return false };
        effects.extend(wanted.inputs.into_iter().map(Effect::FreeStored));
        send(wanted.process, FromNode::StageFailed { id, reason: reason.to_owned(), peer }, effects);
        true
    }

    /// The process has what it wants of a stage, or wants nothing more of it: what it holds in place stays as long.
    pub(super) fn end_collective_stage(&mut self, id: StageId, reason: &str, effects: &mut Vec<Effect>) {
        let Some(wanted) = self.collectives.stages.remove(&id) else { return };
        if !wanted.over {
            effects.push(Effect::EndStage { id, reason: reason.to_owned() });
        }
        effects.extend(wanted.inputs.into_iter().chain(wanted.made).map(Effect::FreeStored));
    }
}
