//! Deaths: everybody is told, everybody settles, then the slot is free and the orphans are looked at.
//!
//! DEATH-1: a process answers `Settled` after it has dropped what the dead one had queued with it and claimed what it
//! holds of the dead one's objects. Its records before that answer are in the ledger then, so nothing of the dead owner
//! can start later.
//!
//! DEATH-2: when all have settled, nobody sends a reference in the dead owner's name any more, but one may be on its way
//! to a process that had settled before. So all are asked to read what was sent to them, and claim what they find, before
//! the dead owner's objects are looked at: no claim can come too late.

use super::pool::{Reserved, WorkerState};
use super::{Effect, Node, open_link, send};
use crate::failure::{Death, DeathCause};
use crate::id::{LeaseId, ProcessId, TaskId};
use crate::ledger::tables::TaskState;
use crate::message::{Between, FromNode};
use crate::time::Tick;

/// So many deaths are remembered in full.
pub const DEATHS_MAX: usize = 1_000;

impl Node {
    pub(super) fn worker_exited(&mut self, mut death: Death, now: Tick, effects: &mut Vec<Effect>) {
        let dead = death.process;
        let Some(worker) = self.pool.workers.remove(&dead) else { return };
        if let Some(cause) = worker.ended.clone() {
            death.cause = cause;
        }
        if let (WorkerState::Hosting(actor), DeathCause::Exited(0)) = (worker.state, &death.cause)
            && self.moves_away(actor)
        {
            death.cause = DeathCause::Moved(self.config.id);
        }
        death.culprit = death.culprit.or(worker.culprit);
        if death.pid == 0 {
            death.pid = worker.pid;
        }
        self.give_back(worker.stock, &worker.holds(), &worker.gpus);
        self.pressure.note_exit(dead, now);
        self.busy.forget(dead);
        let hosted: Vec<LeaseId> = self.leases.iter().filter(|(_, l)| l.worker == dead).map(|(id, _)| *id).collect();
        for id in hosted {
            self.lose_hosted(id, now);
        }
        self.forget_wishes(dead, now);
        self.speak_for(dead, now, effects);
        let greeted = self.live.remove(&dead);
        if greeted {
            self.members_died(|process| process == dead, &death.in_words(), effects);
            self.tell_all(&death, effects);
        } else {
            if worker.ended.is_none() {
                self.spawn_failed(worker.job, &death, now);
            }
            self.pool.free_slot(dead);
            effects.push(Effect::CloseProcess(dead));
        }
        self.forget_asker(|process| process == dead, effects);
        self.lose_runs(|process| process == dead, effects);
        match worker.state {
            WorkerState::Hosting(actor) => self.actor_process_died(actor, &death, now, effects),
            WorkerState::Starting(Reserved::Actor(actor)) => self.requeue_unborn(actor, dead, now, effects),
            WorkerState::Starting(_)
            | WorkerState::Idle { .. }
            | WorkerState::Leased
            | WorkerState::Retiring { .. } => {}
        }
        self.settle_death(dead, now, effects);
        self.jobs.note_change(worker.job);
        self.end_jobs_again(now, effects);
        self.keep_minimum(effects);
        self.schedule(now, effects);
    }

    /// A dead process settles every death; its own is settled when nobody is left who has to.
    pub(super) fn settle_death(&mut self, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        self.settle_for(dead, now, effects);
        if self.settling.get(&dead).is_some_and(|waiting| waiting.is_empty()) {
            self.settlement_over(dead, now, effects);
        }
    }

    /// A dead process wants nothing.
    pub(super) fn forget_wishes(&mut self, dead: ProcessId, now: Tick) {
        for place in self.queue.wishes_of(dead) {
            self.queue.remove(place);
        }
        self.withdraw_unannounced(|owner| owner == dead, now);
    }

    /// A lease goes with its worker; one that was never announced is still wished for.
    pub(super) fn lose_hosted(&mut self, id: LeaseId, now: Tick) {
        let Some(lease) = self.remove_lease(id, now) else { return };
        if !lease.announced
            && let Some(place) = self.queue.wish(lease.owner, lease.pool)
            && let Some(waiting) = self.queue.get_mut(place)
            && let super::queue::Ask::Leases { pending, .. } = &mut waiting.ask
        {
            *pending = pending.saturating_sub(1);
        }
    }

    /// Leases of dead owners that their workers have not heard of.
    pub(super) fn withdraw_unannounced(&mut self, is_dead: impl Fn(ProcessId) -> bool, now: Tick) {
        let unannounced: Vec<LeaseId> =
            self.leases.iter().filter(|(_, l)| is_dead(l.owner) && !l.announced).map(|(id, _)| *id).collect();
        for id in unannounced {
            self.remove_lease(id, now);
        }
    }

    /// A process that was starting for an actor failed: the constructor has not run, so this is no restart.
    fn requeue_unborn(&mut self, id: crate::id::ActorId, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        let Some(actor) = self.actors.all.get(&id) else { return };
        match &actor.state {
            super::ActorState::Starting { process } if *process == dead => self.enqueue_actor(id, now, effects),
            super::ActorState::Ending { process, restart, .. } if *process == dead => {
                if *restart {
                    self.enqueue_actor(id, now, effects);
                } else {
                    let death = Death {
                        process: dead,
                        pid: 0,
                        cause: DeathCause::Ended("it was killed".into()),
                        stderr_tail: String::new(),
                        memory_peak_bytes: 0,
                        culprit: None,
                    };
                    self.actor_process_died(id, &death, now, effects);
                }
            }
            _ => {}
        }
    }

    pub(super) fn tell_all(&mut self, death: &Death, effects: &mut Vec<Effect>) {
        let dead = death.process;
        for process in self.live.local() {
            send(*process, FromNode::ProcessDied(Box::new(death.clone())), effects);
        }
        self.adopt_orphans(dead);
        // Before the word of the death: its lender forgets the loan when it hears of it.
        self.tell_holds(effects);
        for node in self.live.nodes() {
            effects.push(Effect::Tell { node, message: Between::ProcessDied(Box::new(death.clone())) });
        }
        self.settling.insert(dead, self.live.everybody());
        self.remember(death);
    }

    /// Keeps how a process ended, for those who meet a reference to it later.
    pub(super) fn remember(&mut self, death: &Death) {
        self.deaths.insert(death.process, death.clone());
        while self.deaths.len() > DEATHS_MAX {
            self.deaths.pop_first();
        }
    }

    /// What a process that died now will never say; or a node, for all of its own.
    pub(super) fn settle_for(&mut self, process: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        let others: Vec<ProcessId> = self.settling.keys().copied().filter(|dead| *dead != process).collect();
        for dead in others {
            self.settled(process, dead, now, effects);
        }
        let flushing: Vec<ProcessId> = self.flushing.keys().copied().collect();
        for dead in flushing {
            self.flushed(process, dead, now, effects);
        }
        self.settle_foreign_for(process, effects);
    }

    pub(super) fn settled(&mut self, process: ProcessId, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        if dead.node != self.config.id {
            self.settled_foreign(process, dead, effects);
            return;
        }
        let Some(waiting) = self.settling.get_mut(&dead) else { return };
        if !waiting.remove(&process) {
            return;
        }
        let over = waiting.is_empty();
        if over {
            self.settlement_over(dead, now, effects);
        }
        self.schedule(now, effects);
    }

    fn settlement_over(&mut self, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        self.settling.remove(&dead);
        match dead.is_driver() {
            true => self.jobs.free_slot(dead),
            false => self.pool.free_slot(dead),
        }
        effects.push(Effect::CloseProcess(dead));
        if self.is_clustered() {
            self.cluster.voiding.insert(dead, now.plus_us(super::cluster::GRACE_US));
        } else {
            self.void_loans(dead, now);
        }
        for node in self.live.nodes() {
            effects.push(Effect::Tell { node, message: Between::Buried { dead } });
        }
        self.flush(dead, effects);
        self.answer_questions(effects);
        self.review_all(now, effects);
        self.end_actors_of_dead(now, effects);
    }

    /// Asks everybody to read what was sent in the name of a dead owner.
    fn flush(&mut self, dead: ProcessId, effects: &mut Vec<Effect>) {
        if self.ledger.owned_by(dead) == 0 {
            return;
        }
        for process in self.live.local() {
            // Who came after the death has not heard of it.
            if let Some(death) = self.deaths.get(&dead) {
                send(*process, FromNode::ProcessDied(Box::new(death.clone())), effects);
            }
            send(*process, FromNode::Flush { dead }, effects);
        }
        for node in self.live.nodes() {
            effects.push(Effect::Tell { node, message: Between::Flush { dead } });
        }
        self.flushing.insert(dead, self.live.everybody());
    }

    pub(super) fn flushed(&mut self, process: ProcessId, dead: ProcessId, now: Tick, effects: &mut Vec<Effect>) {
        if dead.node != self.config.id {
            self.flushed_foreign(process, dead, effects);
            return;
        }
        let Some(waiting) = self.flushing.get_mut(&dead) else { return };
        waiting.remove(&process);
        if waiting.is_empty() {
            self.flushing.remove(&dead);
            self.review_all(now, effects);
        }
    }

    pub(super) fn connect(&mut self, process: ProcessId, peer: ProcessId, effects: &mut Vec<Effect>) {
        if self.live.contains(&peer) {
            open_link(process, peer, effects);
            return;
        }
        self.tell_dead(process, peer, effects);
    }

    /// Tells a process that the one it speaks to is dead, or its node.
    pub(super) fn tell_dead(&self, process: ProcessId, peer: ProcessId, effects: &mut Vec<Effect>) {
        if peer.node != self.config.id && !self.live.has_node(peer.node) {
            send(process, FromNode::NodeDied { node: peer.node, reason: "is gone".into() }, effects);
            return;
        }
        let cause = DeathCause::Ended("it is gone, and how it ended is forgotten".into());
        let forgotten =
            Death { process: peer, pid: 0, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None };
        let death = self.deaths.get(&peer).cloned().unwrap_or(forgotten);
        send(process, FromNode::ProcessDied(Box::new(death)), effects);
    }

    pub(super) fn kill_worker(&mut self, process: ProcessId, task: TaskId, effects: &mut Vec<Effect>) {
        let done = |state: &TaskState| matches!(state, TaskState::Finished { worker: Some(_), .. });
        if self.ledger.task(task).is_some_and(|entry| done(&entry.state)) {
            return;
        }
        if let Some(worker) = self.pool.workers.get_mut(&process)
            && worker.ended.is_none()
        {
            worker.culprit = Some(task);
            let cause = DeathCause::Ended(format!("{task} was cancelled and did not stop"));
            self.kill(process, cause, effects);
        }
    }

    pub(super) fn peer_corrupt(&mut self, peer: ProcessId, reason: String, effects: &mut Vec<Effect>) {
        self.kill(peer, DeathCause::Corrupt(reason), effects);
    }
}
