//! What other members and the node say about groups.

use std::collections::BTreeMap;

use bireme_core::collective::{CollectiveId, Member, Packet, Trouble};
use bireme_core::failure::Death;
use bireme_core::flow::StageId;
use bireme_core::id::NodeId;
use bireme_core::message::{FromNode, Peer};
use bireme_core::value::Location;

use crate::process::{Inner, Process};

/// How a stage ended.
#[derive(Clone, Debug)]
pub(super) enum StageEnd {
    /// With these objects.
    Done(Vec<Location>),
    /// Without.
    Failed(String),
}

/// The members that live in a process, and their stages.
#[derive(Default)]
pub(crate) struct Books {
    members: BTreeMap<(CollectiveId, u32), Member>,
    /// Those that a thread waits for.
    pub(super) stages: BTreeMap<StageId, Option<StageEnd>>,
}

impl Books {
    pub(super) fn join(&mut self, group: CollectiveId, rank: u32, size: u32) {
        self.members.insert((group, rank), Member::new(group, rank, size));
    }

    /// Forgets a member. Gives how many calls it made.
    pub(super) fn leave(&mut self, group: CollectiveId, rank: u32) -> u64 {
        self.members.remove(&(group, rank)).map_or(0, |member| member.calls())
    }

    pub(super) fn member(&mut self, group: CollectiveId, rank: u32) -> Option<&mut Member> {
        self.members.get_mut(&(group, rank))
    }
}

impl Process {
    /// Another member says something to one that lives here.
    pub(crate) fn hear_packet(&self, inner: &mut Inner, packet: Packet) {
        let (group, rank) = (packet.group, packet.to);
        let Some(member) = inner.collectives.member(group, rank) else { return };
        member.heard(packet);
        self.send_answers(inner, group, rank);
        inner.rouse();
    }

    /// Sends what a member has to say because of what it heard.
    pub(super) fn send_answers(&self, inner: &mut Inner, group: CollectiveId, rank: u32) {
        let Some(member) = inner.collectives.member(group, rank) else { return };
        let answers = member.take_answers();
        self.send_packets(inner, answers);
    }

    pub(super) fn send_packets(&self, inner: &mut Inner, packets: Vec<Packet>) {
        for packet in packets {
            let Some(member) = inner.collectives.member(packet.group, packet.from) else { continue };
            let Some((to, _)) = member.peers().get(packet.to as usize) else { continue };
            let to = *to;
            self.send(inner, to, &Peer::Collective(Box::new(packet)));
        }
    }

    /// The node says something about groups and stages. Others are not for here.
    pub(crate) fn hear_of_collectives(&self, inner: &mut Inner, message: FromNode) {
        match message {
            FromNode::CollectiveFormed { group, rank, life, members } => {
                if let Some(member) = inner.collectives.member(group, rank) {
                    member.formed(life, members);
                    self.send_answers(inner, group, rank);
                }
            }
            FromNode::CollectiveBroken { group, rank, trouble } => {
                if let Some(member) = inner.collectives.member(group, rank) {
                    member.broken(trouble);
                }
            }
            FromNode::CollectiveLeft { group, rank, member: who, calls } => {
                if let Some(member) = inner.collectives.member(group, rank) {
                    member.left(who, calls);
                }
            }
            FromNode::StageDone { id, at } => inner.collectives.stage_ended(id, StageEnd::Done(at)),
            FromNode::StageFailed { id, reason, .. } => inner.collectives.stage_ended(id, StageEnd::Failed(reason)),
            _ => return,
        }
        inner.rouse();
    }
}

impl Books {
    fn stage_ended(&mut self, id: StageId, end: StageEnd) {
        if let Some(stage) = self.stages.get_mut(&id) {
            *stage = Some(end);
        }
    }

    /// A process died: groups that it was in are broken.
    pub(crate) fn process_died(&mut self, death: &Death) {
        for member in self.members.values_mut() {
            member.process_died(|process| process == death.process, &death.in_words());
        }
    }

    /// A node died, with all its processes.
    pub(crate) fn node_died(&mut self, node: NodeId, reason: &str) {
        for ((group, _), member) in &mut self.members {
            member.process_died(|process| process.node == node, &format!("{node} {reason}"));
            if group.home == node && member.life().is_none() {
                let text = format!("{node} is gone, where the members of {group} find each other; make another group");
                member.broken(Trouble::NotMember(text));
            }
        }
    }
}
