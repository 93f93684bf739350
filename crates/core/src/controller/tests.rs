//! Step tests: state + event → exact effects.

#![allow(clippy::unwrap_used)]

mod cluster;
mod groups;
mod members;

use std::collections::BTreeMap;

use super::groups::{Ends, GroupSpec, Packing, Placement};
use super::*;
use crate::id::{ActorId, GroupId, JobId, ProcessId, TaskId};
use crate::message::Role;
use crate::resources::{Amount, Resources};
use crate::schedule::Load;

pub(super) const N1: NodeId = NodeId(1);
pub(super) const N2: NodeId = NodeId(2);
pub(super) const N3: NodeId = NodeId(3);

pub(super) fn cpus(n: u64) -> Resources {
    Resources::cpus(Amount::whole(n))
}

pub(super) fn group(n: u128) -> GroupId {
    GroupId(TaskId::from_raw(n))
}

/// A group that nothing but its removal ends.
pub(super) fn detached(packing: Packing, bundles: &[u64]) -> GroupSpec {
    let bundles = bundles.iter().map(|n| cpus(*n)).collect();
    GroupSpec { name: None, packing, bundles, creator: ProcessId::first_driver(N1), ends: Ends::Never }
}

pub(super) struct Fixture {
    pub(super) controller: Controller,
    pub(super) now: Tick,
}

impl Fixture {
    /// A cluster of nodes with so many CPUs.
    pub(super) fn new(sizes: &[u64]) -> Self {
        let mut fixture = Self { controller: Controller::new(ControllerConfig::default()), now: Tick(0) };
        for (uid, cpus) in (1..).zip(sizes) {
            fixture.join(uid, *cpus);
        }
        fixture
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.controller.step(event, self.now, &mut effects);
        effects
    }

    pub(super) fn join(&mut self, uid: u128, whole: u64) -> Vec<Effect> {
        let (labels, driver_only) = (BTreeMap::new(), whole == 0);
        let join = Join {
            uid,
            identity: uid,
            role: Role::Node,
            address: format!("host-{uid}:1"),
            total: cpus(whole),
            labels,
            driver_only,
        };
        self.step(Event::JoinAsked { link: uid as u64, join: Box::new(join) })
    }

    pub(super) fn ask(&mut self, node: NodeId, request: ToController) -> Vec<Effect> {
        self.step(Event::Asked { node, request: Box::new(request) })
    }

    pub(super) fn beat(&mut self, node: NodeId, total: u64, free: u64) -> Vec<Effect> {
        let load = Box::new(Load { free: cpus(free), ..Load::idle(cpus(total)) });
        self.ask(node, ToController::Heartbeat { sequence: 1, load })
    }

    pub(super) fn at(&mut self, us: u64) -> Vec<Effect> {
        self.now = Tick(us);
        self.step(Event::Ticked)
    }

    pub(super) fn create(&mut self, id: u128, packing: Packing, bundles: &[u64]) -> Vec<Effect> {
        self.create_as(N1, id, detached(packing, bundles))
    }

    pub(super) fn create_as(&mut self, from: NodeId, id: u128, spec: GroupSpec) -> Vec<Effect> {
        self.ask(from, ToController::CreateGroup { group: group(id), spec: Box::new(spec) })
    }

    pub(super) fn remove(&mut self, from: NodeId, id: u128, reason: &str) -> Vec<Effect> {
        self.ask(from, ToController::RemoveGroup { group: group(id), reason: reason.to_owned() })
    }

    pub(super) fn prepared(&mut self, node: NodeId, id: u128, attempt: u32, refused: Option<&str>) -> Vec<Effect> {
        let (refused, free) = (refused.map(str::to_owned), Box::new(cpus(0)));
        self.ask(node, ToController::Prepared { group: group(id), attempt, refused, free })
    }

    pub(super) fn committed(&mut self, node: NodeId, id: u128, attempt: u32) -> Vec<Effect> {
        self.ask(node, ToController::Committed { group: group(id), attempt })
    }

    pub(super) fn placement(&self, id: u128) -> Placement {
        self.controller.groups().get(group(id)).unwrap().placement()
    }
}

pub(super) fn sent(to: NodeId, message: FromController) -> Effect {
    Effect::Send { to, message }
}

#[test]
fn a_snapshot_brings_everything_back_but_times_and_another_version_is_refused() {
    let mut cluster = Fixture::new(&[4, 4]);
    cluster.create(1, Packing::StrictSpread, &[2, 2]);
    let bytes = cluster.controller.snapshot();
    let mut restored = Fixture { controller: Controller::restore(&bytes, Tick(50)).unwrap(), now: Tick(50) };
    assert_eq!(restored.controller.snapshot(), bytes);
    assert_eq!(restored.controller.members().get(N2).unwrap().until(), Tick(10_000_050), "the longest lease");
    // The try that was under way begins anew.
    let reason = || "the controller was restarted".to_owned();
    let release = |node| sent(node, FromController::Release { group: group(1), attempt: Some(1), reason: reason() });
    let effects = restored.step(Event::Started);
    assert_eq!(effects[..2], [release(N1), release(N2)]);
    assert!(matches!(effects[2], Effect::Send { message: FromController::Prepare { attempt: 2, .. }, .. }));
    let welcomed = restored.join(9, 4);
    assert!(
        welcomed.iter().any(|effect| matches!(effect, Effect::Welcome { node: N3, .. })),
        "no number is used twice"
    );

    let mut other = bytes.clone();
    other[0] = 9;
    let error = Controller::restore(&other, Tick(0)).unwrap_err();
    assert!(error.to_string().contains("version 9"), "{error}");
    assert_eq!(Controller::restore(&bytes[..bytes.len() - 1], Tick(0)).unwrap_err(), SnapshotUnreadable::Damaged);
    assert_eq!(Controller::restore(&[], Tick(0)).unwrap_err(), SnapshotUnreadable::Version { found: None });
}
