//! The workers that run something, as their own records tell, and the leases that are therefore idle.
//!
//! An owner keeps a lease for a while after its last task has ended, so that the next task finds a warm worker. Nobody uses
//! what such a lease holds, and its owner returns it as soon as it is asked to. So it counts as free in everything that is
//! told to people and to other nodes. It is granted to nobody before it has come back (RES-1).

use super::leases::Lease;
use super::stock::{Stock, give};
use super::{Effect, Node, send};
use crate::id::{LeaseId, ProcessId, TaskId};
use crate::map::IdMap;
use crate::message::FromNode;
use crate::record::Record;
use crate::resources::{Amount, Resources};

/// The runs of the process that has a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    incarnation: u32,
    /// Runs that have begun and not ended.
    open: u32,
    /// Runs that have begun.
    begun: u64,
}

/// The tasks and calls that run in processes of this node.
#[derive(Debug, Default)]
pub(super) struct Busy {
    running: IdMap<TaskId, ProcessId>,
    /// By slot: an array access for each record.
    runs: Vec<Runs>,
}

impl Busy {
    /// A process of this node recorded something.
    pub(super) fn recorded(&mut self, process: ProcessId, record: &Record) {
        match record {
            Record::Started { task, .. } => {
                if let Some(before) = self.running.insert(*task, process) {
                    self.end(before);
                }
                let slot = process.slot as usize;
                if self.runs.len() <= slot {
                    self.runs.resize(slot + 1, Runs::default());
                }
                let runs = &mut self.runs[slot];
                if runs.incarnation != process.incarnation {
                    *runs = Runs { incarnation: process.incarnation, open: 0, begun: 0 };
                }
                runs.open += 1;
                runs.begun += 1;
            }
            // One that was cancelled before it began ends without having begun.
            Record::Finished { task, .. } => {
                if let Some(process) = self.running.remove(task) {
                    self.end(process);
                }
            }
            Record::Submitted { .. }
            | Record::Settled { .. }
            | Record::Put { .. }
            | Record::Yielded { .. }
            | Record::Freed { .. } => {}
        }
    }

    fn end(&mut self, process: ProcessId) {
        if let Some(runs) = self.runs.get_mut(process.slot as usize)
            && runs.incarnation == process.incarnation
        {
            runs.open = runs.open.saturating_sub(1);
        }
    }

    /// A process is dead.
    pub(super) fn forget(&mut self, process: ProcessId) {
        for task in self.running.sorted_keys_where(|_, at| *at == process) {
            self.running.remove(&task);
        }
    }

    fn of(&self, process: ProcessId) -> Runs {
        let runs = self.runs.get(process.slot as usize).copied().unwrap_or_default();
        if runs.incarnation == process.incarnation { runs } else { Runs::default() }
    }

    /// Whether a run has begun in a process and not ended.
    pub(super) fn runs_something(&self, process: ProcessId) -> bool {
        self.of(process).open > 0
    }

    /// Number of runs that have begun in a process.
    pub(super) fn begun(&self, process: ProcessId) -> u64 {
        self.of(process).begun
    }
}

impl Node {
    /// Whether nothing runs under a lease. Where several share a process, those whose tasks wait account for as many runs.
    pub(super) fn is_idle(&self, lease: &Lease) -> bool {
        if !lease.announced || lease.blocked {
            return false;
        }
        let open = self.busy.of(lease.worker).open;
        if open == 0 {
            return true;
        }
        let leases = self.pool.workers.get(&lease.worker).into_iter().flat_map(|worker| &worker.leases);
        let blocked = leases.filter_map(|id| self.leases.get(id)).filter(|lease| lease.blocked).count();
        open as usize <= blocked
    }

    /// Whether a lease is idle and not just granted: the first task under a new one is still on its way.
    fn is_left_idle(&self, lease: &Lease) -> bool {
        self.busy.begun(lease.worker) > lease.begun && self.is_idle(lease)
    }

    /// The resources that nobody uses, idle leases included, and the debt that would be left if they were returned.
    pub(super) fn unused(&self) -> (Resources, Amount) {
        self.free_with(|lease| self.is_idle(lease))
    }

    /// The same as others should count on it: a lease that was just granted is about to be used.
    pub(super) fn likely_free(&self) -> Resources {
        self.free_with(|lease| self.is_left_idle(lease)).0
    }

    fn free_with(&self, counts: impl Fn(&Lease) -> bool) -> (Resources, Amount) {
        let (mut free, mut debt) = (self.free.clone(), self.debt);
        for lease in self.leases.values().filter(|lease| lease.stock == Stock::Machine && counts(lease)) {
            give(&mut free, &mut debt, &lease.holds());
        }
        (free, debt)
    }

    /// The resources that may stay in use for ever: those of actors, placement groups and tasks that wait for others.
    pub(super) fn lasting(&self) -> Resources {
        let mut held = Resources::default();
        for bundle in self.groups.reserved() {
            held.give(&bundle.total);
        }
        for worker in self.pool.workers.values().filter(|worker| worker.stock == Stock::Machine) {
            held.give(&worker.holds());
        }
        for lease in self.leases.values().filter(|lease| lease.blocked && lease.stock == Stock::Machine) {
            held.give(&lease.holds());
        }
        held
    }

    /// Asks owners for idle leases that hold some of this.
    pub(super) fn reclaim_idle(&mut self, wanted: &Resources, effects: &mut Vec<Effect>) {
        let in_the_way = |lease: &Lease| {
            let free = lease.stock == Stock::Machine && self.live.contains(&lease.owner);
            free && !lease.reclaimed && self.is_idle(lease) && lease.resources.conflicts(wanted)
        };
        let found: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| in_the_way(lease)).map(|(id, _)| *id).collect();
        for id in found {
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.reclaimed = true;
                send(lease.owner, FromNode::Reclaim { lease: id }, effects);
            }
        }
    }
}
