//! The node's tables as a [`Snapshot`].

use std::collections::BTreeMap;

use super::jobs::Driver;
use super::{ActorState, Node, WorkerState};
use crate::id::{NodeId, ObjectId, ProcessId, TaskId};
use crate::ledger::snapshot::{
    ActorRow, JobRow, LeaseRow, NodeRow, ObjectRow, ResourcesRow, SNAPSHOT_ROWS_MAX, Snapshot, TaskRow, TaskStage,
    WorkerRow,
};
use crate::ledger::tables::{RecentTask, TaskEntry, TaskState};
use crate::time::Tick;
use crate::value::{Body, Value};

impl Node {
    /// Everything at this moment.
    pub fn snapshot(&self, now: Tick) -> Snapshot {
        let ids = self.ledger.task_ids();
        let named = ids.iter().filter_map(|id| Some((*id, self.ledger.task(*id)?)));
        let mut tasks: Vec<TaskRow> =
            named.take(SNAPSHOT_ROWS_MAX).map(|(id, entry)| self.task_row(id, entry, now)).collect();
        let tasks_left_off = ids.len().saturating_sub(tasks.len()) as u64;
        tasks.extend(self.ledger.recent().filter(|row| self.ledger.task(row.task).is_none()).map(recent_row));
        let (objects, objects_left_off) = self.object_rows(&ids);
        Snapshot {
            at: now,
            resources: self.resources_row(),
            tasks,
            tasks_left_off,
            objects,
            objects_left_off,
            actors: self.actor_rows(),
            workers: self.worker_rows(),
            leases: self.lease_rows(),
            jobs: self.job_rows(),
            counts: self.ledger.counts(),
        }
    }

    /// The resources of the node, and those that nobody uses.
    pub(super) fn resources_row(&self) -> ResourcesRow {
        let (free, debt) = self.unused();
        ResourcesRow { total: self.config.total.clone(), free, debt, queued: self.queue.len() as u64 }
    }

    /// This node as others see it.
    pub(super) fn node_row(&self) -> NodeRow {
        let role = if self.config.id == NodeId::ALONE { "embedded" } else { "worker" };
        NodeRow {
            node: self.config.id,
            address: "127.0.0.1".into(),
            hostname: String::new(),
            role: role.into(),
            alive: true,
            draining: self.is_draining(),
            reason: None,
            total: self.config.total.clone(),
            free: self.unused().0,
            labels: BTreeMap::new(),
        }
    }

    fn task_row(&self, task: TaskId, entry: &TaskEntry, now: Tick) -> TaskRow {
        let (stage, worker, run_us) = match &entry.state {
            TaskState::Submitted => (TaskStage::Submitted, None, None),
            TaskState::Running { worker, since } => {
                let stage = if self.live.contains(worker) { TaskStage::Running } else { TaskStage::Lost };
                (stage, Some(*worker), Some(now.since_us(*since)))
            }
            TaskState::Finished { worker, values } => {
                let failed = values.iter().any(|value| value.failure().is_some());
                (if failed { TaskStage::Failed } else { TaskStage::Finished }, *worker, None)
            }
        };
        TaskRow {
            task,
            name: entry.name().to_owned(),
            parent: entry.spec.as_ref().map(|spec| spec.parent),
            owner: entry.spec.as_ref().map(|_| entry.owner),
            stage,
            worker,
            attempt: entry.attempt,
            since: entry.submitted,
            run_us,
        }
    }

    fn object_rows(&self, tasks: &[TaskId]) -> (Vec<ObjectRow>, u64) {
        let entries = tasks.iter().filter_map(|id| Some((*id, self.ledger.task(*id)?)));
        let results = entries
            .flat_map(|(id, entry)| (0..entry.returns()).map(move |index| (ObjectId::result(id, index), entry.owner)));
        let puts = self.ledger.put_ids();
        let puts = puts.iter().filter_map(|object| Some((*object, self.ledger.put(*object)?.owner)));
        let mut rows = Vec::new();
        let mut left_off = 0;
        for (object, owner) in puts.chain(results) {
            if rows.len() < SNAPSHOT_ROWS_MAX {
                rows.push(self.object_row(object, owner));
            } else {
                left_off += 1;
            }
        }
        (rows, left_off)
    }

    fn object_row(&self, object: ObjectId, owner: ProcessId) -> ObjectRow {
        let body = self.ledger.value(object).map(|value: &Value| &value.body);
        let len = body.and_then(|body| match body {
            Body::Inline(bytes) => Some(bytes.len() as u64),
            Body::Stored(at) => Some(at.len),
            Body::Failed(_) => None,
        });
        let claims = self.claims.get(&object).map_or(0, |holders| holders.values().sum::<i64>().max(0) as u64);
        let stored = matches!(body, Some(Body::Stored(_)));
        let failed = matches!(body, Some(Body::Failed(_)));
        ObjectRow { object, owner, len, stored, failed, claims }
    }

    pub(super) fn actor_rows(&self) -> Vec<ActorRow> {
        let rows = self.actors.all.iter().map(|(id, actor)| ActorRow {
            actor: *id,
            class: actor.spec.options.name.clone(),
            name: actor.name().map(str::to_owned),
            owner: actor.owner,
            state: match &actor.state {
                ActorState::Queued => "queued".into(),
                ActorState::Starting { .. } => "starting".into(),
                ActorState::Alive { .. } => "alive".into(),
                ActorState::Retiring { .. } => "retiring".into(),
                ActorState::Ending { .. } => "ending".into(),
                ActorState::Dead { reason } => format!("dead: {reason}"),
            },
            process: actor.state.process(),
            incarnation: actor.incarnation,
        });
        rows.collect()
    }

    fn worker_rows(&self) -> Vec<WorkerRow> {
        let rows = self.pool.workers.iter().map(|(process, worker)| WorkerRow {
            process: *process,
            job: worker.job,
            pid: worker.pid,
            state: match (&worker.ended, worker.state) {
                (Some(_), _) => "ending".into(),
                (None, WorkerState::Starting(_)) => "starting".into(),
                (None, WorkerState::Idle { .. }) if worker.spent => "spent".into(),
                (None, WorkerState::Idle { .. }) => "idle".into(),
                (None, WorkerState::Leased) => "leased".into(),
                (None, WorkerState::Hosting(actor)) => format!("hosting {actor}"),
                (None, WorkerState::Retiring { .. }) => "retiring".into(),
            },
            leases: worker.leases.len() as u64,
            blocked: worker.leases.iter().filter(|id| self.leases.get(id).is_some_and(|l| l.blocked)).count() as u64,
            owned: self.ledger.owned_by(*process),
        });
        rows.collect()
    }

    pub(super) fn job_rows(&self) -> Vec<JobRow> {
        let rows = self.jobs.all.iter().map(|(id, job)| JobRow {
            job: *id,
            driver: match job.driver {
                Driver::Here(process) => Some(process),
                Driver::Elsewhere | Driver::Gone(_) => None,
            },
            over: matches!(job.driver, Driver::Gone(_)),
            pid: job.pid,
            workers: self.pool.workers.values().filter(|worker| worker.job == *id).count() as u64,
        });
        rows.collect()
    }

    fn lease_rows(&self) -> Vec<LeaseRow> {
        let rows = self.leases.iter().map(|(id, lease)| LeaseRow {
            lease: *id,
            owner: lease.owner,
            worker: lease.worker,
            resources: lease.resources.clone(),
            blocked: lease.blocked,
            idle: self.is_idle(lease),
        });
        rows.collect()
    }
}

fn recent_row(row: &RecentTask) -> TaskRow {
    TaskRow {
        task: row.task,
        name: row.options.as_ref().map_or_else(|| "?".into(), |options| options.name.clone()),
        parent: None,
        owner: None,
        stage: if row.failed { TaskStage::Failed } else { TaskStage::Finished },
        worker: Some(row.worker),
        attempt: row.attempt,
        since: row.started,
        run_us: Some(row.finished.since_us(row.started)),
    }
}
