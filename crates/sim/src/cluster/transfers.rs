//! Copies on their way from node to node: who wants one asks the owner's node who sends, and asks again when it loses that.

use std::collections::BTreeMap;

use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{CopySource, CopyWish, FromNode, LostSender, RequestId, ToNode};
use bireme_core::node;
use bireme_core::value::{Location, RefSpec};

use super::stores::{Store, key};
use super::{Cluster, Happening};
use crate::planted::Planted;

/// Bytes of an object take about so long from one node to another.
const FETCH_US: u64 = 300;
/// Whether an unreachable or waiting sender has anything is looked at so often.
const LOOK_US: u64 = 2_000;
/// With faults, one look in so many finds the connection broken, or has waited too long.
const BREAKS_ONE_IN: u64 = 12;

type Asker = (ProcessId, RequestId);

/// A copy that somebody wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    node: NodeId,
    /// Who waits for it; nobody when the node itself wants it.
    asker: Option<Asker>,
    object: RefSpec,
    of: Location,
}

/// The transfers to one node, by its numbers.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    under_way: BTreeMap<u64, Transfer>,
    next_number: u64,
}

#[derive(Debug)]
struct Transfer {
    object: RefSpec,
    of: Location,
    askers: Vec<Asker>,
    /// Who sends, or why nobody does; nothing while the owner's node is asked.
    from: Option<Result<CopySource, String>>,
}

impl Store {
    /// Copies that are wanted or on their way.
    pub fn transfers_left(&self) -> usize {
        self.transfers.under_way.len()
    }

    fn transfer_of(&mut self, of: Location) -> Option<&mut Transfer> {
        self.transfers.under_way.values_mut().find(|transfer| transfer.of == of)
    }
}

/// How a look at the sender went.
enum Look {
    /// It has all of it, there.
    Whole(Location),
    /// It gets it itself, or cannot be reached for now.
    Wait,
    Lost {
        is_useless: bool,
    },
}

impl Cluster {
    /// A process wants a copy, or the node for itself.
    pub(super) fn want_copy(&mut self, node: NodeId, asker: Option<Asker>, object: RefSpec, of: Location) {
        let after = self.random.within(1, FETCH_US);
        self.after(after, Happening::CopyWanted(Box::new(Wanted { node, asker, object, of })));
    }

    /// The store sees to it.
    pub(super) fn copy_wanted(&mut self, wanted: Wanted) {
        let Wanted { node, asker, object, of } = wanted;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        if let Some(copy) = host.store.copies.get(&(of.node, key(of))).copied() {
            if asker.is_none() {
                self.step_node(node, node::Event::Copied { object, of, at: Some(copy) });
            }
            self.answer_askers(asker, &Ok(copy));
            return;
        }
        if let Some(transfer) = host.store.transfer_of(of) {
            transfer.askers.extend(asker);
            return;
        }
        host.store.transfers.next_number += 1;
        let number = host.store.transfers.next_number;
        let transfer = Transfer { object, of, askers: Vec::from_iter(asker), from: None };
        host.store.transfers.under_way.insert(number, transfer);
        self.ask_for_sender(node, number, None);
    }

    fn ask_for_sender(&mut self, node: NodeId, number: u64, lost: Option<LostSender>) {
        let Some(transfer) = self.transfer(node, number) else { return };
        transfer.from = None;
        let (object, of) = (transfer.object, transfer.of);
        self.step_node(node, node::Event::CopyWanted(CopyWish { object, of, number, lost }));
        self.arm_node(node);
    }

    fn transfer(&mut self, node: NodeId, number: u64) -> Option<&mut Transfer> {
        self.hosts.get_mut(&node)?.store.transfers.under_way.get_mut(&number)
    }

    /// The owner's node has said who sends, or that nobody need or can.
    pub(super) fn fetch_from(&mut self, node: NodeId, number: u64, from: Result<CopySource, String>) {
        let after = self.random.within(1, 2 * FETCH_US);
        let Some(transfer) = self.transfer(node, number) else { return };
        let is_new = transfer.from.is_none();
        if is_new || from.is_err() {
            transfer.from = Some(from);
        }
        if is_new {
            self.after(after, Happening::TransferWentOn(node, number));
        }
    }

    /// A transfer has come to its end, or its sender has.
    pub(super) fn transfer_went_on(&mut self, node: NodeId, number: u64) {
        let Some(transfer) = self.transfer(node, number) else { return };
        let source = match transfer.from.clone() {
            Some(Ok(source)) => source,
            Some(Err(reason)) => return self.transfer_failed(node, number, reason),
            None => return,
        };
        if source.node == node {
            return self.transfer_ended(node, number, source.at);
        }
        match self.look_at_sender(node, source) {
            Look::Whole(at) => self.transfer_complete(node, number, at),
            Look::Wait => self.after(LOOK_US, Happening::TransferWentOn(node, number)),
            Look::Lost { is_useless } => {
                self.note(|| format!("{node} has lost {} as a sender", source.node));
                self.ask_for_sender(node, number, Some(LostSender { node: source.node, is_useless }));
            }
        }
    }

    fn look_at_sender(&mut self, node: NodeId, source: CopySource) -> Look {
        let breaks = self.faulty && self.random.one_in(BREAKS_ONE_IN);
        let knows = self.hosts.get(&node).is_some_and(|host| host.links.contains_key(&source.node));
        if !knows {
            return Look::Lost { is_useless: false };
        }
        let whole = self.wires.is_whole(node, source.node);
        let Some(there) = self.hosts.get_mut(&source.node).filter(|_| whole) else {
            // It goes on when the nodes hear each other, or ends when this one hears of the other's death.
            return if breaks { Look::Lost { is_useless: false } } else { Look::Wait };
        };
        if source.is_complete && !there.stages.has_growing(source.at) {
            return match there.store.has(source.at) {
                true if breaks => Look::Lost { is_useless: false },
                true => Look::Whole(source.at),
                false => Look::Lost { is_useless: true },
            };
        }
        if source.is_complete {
            // It is sent as it grows.
            return if breaks { Look::Lost { is_useless: false } } else { Look::Wait };
        }
        let copy = there.store.copies.get(&(source.at.node, key(source.at))).copied();
        match (copy, there.store.transfer_of(source.at)) {
            (Some(at), _) => Look::Whole(at),
            (None, Some(_)) if breaks => Look::Lost { is_useless: self.random.one_in(2) },
            (None, Some(_)) => Look::Wait,
            (None, None) => Look::Lost { is_useless: true },
        }
    }

    fn transfer_complete(&mut self, node: NodeId, number: u64, from: Location) {
        let Some(transfer) = self.transfer(node, number) else { return };
        let (object, of) = (transfer.object, transfer.of);
        let copy = self.new_place(ProcessId::of_node(node), from.offset);
        self.watch.copied(from, copy);
        if let Some(host) = self.hosts.get_mut(&node) {
            host.store.insert(copy, Some((object, of)));
        }
        self.note(|| format!("{node} has a copy of {} from {}", object.object, from.node));
        self.transfer_ended(node, number, copy);
        self.evict(node);
        self.arm_node(node);
    }

    fn transfer_ended(&mut self, node: NodeId, number: u64, at: Location) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(transfer) = host.store.transfers.under_way.remove(&number) else { return };
        let Transfer { object, of, askers, .. } = transfer;
        if self.planted != Some(Planted::CopyUntold) {
            self.step_node(node, node::Event::Copied { object, of, at: Some(at) });
        }
        self.answer_askers(askers, &Ok(at));
    }

    fn transfer_failed(&mut self, node: NodeId, number: u64, reason: String) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(Transfer { object, of, askers, .. }) = host.store.transfers.under_way.remove(&number) else { return };
        let gone = !host.links.contains_key(&of.node);
        self.step_node(node, node::Event::NotBrought { of });
        self.step_node(node, node::Event::Copied { object, of, at: None });
        if !gone {
            return self.answer_askers(askers, &Err(reason));
        }
        // It may have moved before its node was gone; who knows that is asked.
        for (process, request) in askers {
            if self.processes.contains_key(&process) {
                let request = ToNode::Fetch { request, object, at: of };
                self.step_node(node, node::Event::Requested { process, request });
            }
        }
    }

    fn answer_askers(&mut self, askers: impl IntoIterator<Item = Asker>, located: &Result<Location, String>) {
        for (process, request) in askers {
            self.node_says(process, &FromNode::Located { request, located: located.clone() });
        }
    }
}
