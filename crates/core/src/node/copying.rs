//! How this node gets copies and tells others where to get theirs: the way of a want to the directory and back.

use super::copies::key;
use super::directory::{Answer, Directory, Want};
use super::{Effect, Node};
use crate::id::NodeId;
use crate::message::{Between, CopySource, CopyWish};
use crate::value::{Location, RefSpec};

impl Node {
    /// Our store wants a copy: the owner's node says who sends it.
    pub(super) fn copy_wanted(&mut self, wish: CopyWish, effects: &mut Vec<Effect>) {
        let home = wish.object.owner.node;
        if home == self.config.id {
            self.assign_sender(home, wish, effects);
        } else if self.live.has_node(home) {
            self.cluster.wishes.insert(wish.number, wish);
            effects.push(Effect::Tell { node: home, message: Between::WantCopy(wish) });
        } else {
            let from = self.without_directory(&wish);
            effects.push(Effect::FetchFrom { number: wish.number, from });
        }
    }

    /// The node is gone that knew of copies: only the place is left that was heard of.
    fn without_directory(&self, wish: &CopyWish) -> Result<CopySource, String> {
        let CopyWish { object, of, lost, .. } = *wish;
        let home = object.owner.node;
        if !self.live.has_node(of.node) {
            return Err(format!("{} is gone, and so is {home}, which knew of copies", of.node));
        }
        match lost {
            Some(lost) if lost.node == of.node && lost.is_useless => {
                Err(format!("{} does not have it, and {home} is gone, which knew of copies", of.node))
            }
            _ => Ok(CopySource { node: of.node, at: of, is_complete: true }),
        }
    }

    /// A node wants a copy of what one of our processes owns.
    pub(super) fn assign_sender(&mut self, from: NodeId, wish: CopyWish, effects: &mut Vec<Effect>) {
        let CopyWish { of: name, number, lost, .. } = wish;
        let of = self.moved_to(name).unwrap_or(name);
        if self.cluster.copies.was_freed(of) {
            self.tell_sender(Answer { node: from, number, from: Err("it was freed".to_owned()) }, effects);
            return;
        }
        let first = self.has_place(of).then_some((of.node, of));
        let complete: Vec<(NodeId, Location)> = self.cluster.copies.of(of).chain(first).collect();
        let want = Want { node: from, number, name, lost };
        self.with_directory(effects, |directory, answers| directory.want(of, complete, want, answers));
    }

    /// Whether the node of a place is there.
    fn has_place(&self, at: Location) -> bool {
        at.node == self.config.id || self.live.has_node(at.node)
    }

    /// Changes the directory and says to everybody what comes of it.
    pub(super) fn with_directory(
        &mut self,
        effects: &mut Vec<Effect>,
        change: impl FnOnce(&mut Directory, &mut Vec<Answer>),
    ) {
        let mut answers = Vec::new();
        change(&mut self.cluster.directory, &mut answers);
        for answer in answers {
            self.tell_sender(answer, effects);
        }
    }

    fn tell_sender(&self, answer: Answer, effects: &mut Vec<Effect>) {
        let Answer { node, number, from } = answer;
        if node == self.config.id {
            effects.push(Effect::FetchFrom { number, from });
        } else {
            effects.push(Effect::Tell { node, message: Between::CopyFrom { number, from } });
        }
    }

    /// The owner's node has named a sender, or says that there is none.
    pub(super) fn sender_assigned(
        &mut self,
        by: NodeId,
        number: u64,
        from: Result<CopySource, String>,
        effects: &mut Vec<Effect>,
    ) {
        // Without a question it is the news that it was freed.
        if self.cluster.wishes.get(&number).is_none_or(|wish| wish.object.owner.node == by) {
            self.cluster.wishes.remove(&number);
            effects.push(Effect::FetchFrom { number, from });
        }
    }

    /// A node is gone: it sends nothing and names nobody.
    pub(super) fn copier_died(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        self.with_directory(effects, |directory, answers| directory.node_died(node, answers));
        let unanswered: Vec<CopyWish> =
            self.cluster.wishes.values().filter(|wish| wish.object.owner.node == node).copied().collect();
        for wish in unanswered {
            self.cluster.wishes.remove(&wish.number);
            let from = self.without_directory(&wish);
            effects.push(Effect::FetchFrom { number: wish.number, from });
        }
    }

    /// A process wants other nodes to have copies. A node that is gone meanwhile is left out.
    pub(super) fn broadcast(&mut self, object: RefSpec, at: Location, nodes: &[NodeId], effects: &mut Vec<Effect>) {
        for node in nodes.iter().copied().filter(|node| *node != at.node) {
            if node == self.config.id {
                self.prefetch(object, at, effects);
            } else if self.live.has_node(node) {
                effects.push(Effect::Tell { node, message: Between::Prefetch { object, of: at } });
            }
        }
    }

    /// A process somewhere wants us to have a copy.
    pub(super) fn prefetch(&mut self, object: RefSpec, of: Location, effects: &mut Vec<Effect>) {
        let is_taken = self.cluster.taking.contains(&key(of));
        if of.node != self.config.id && !is_taken && !self.is_lost_place(of) {
            effects.push(Effect::Bring { object, at: of });
        }
    }
}
