//! A process serves the job that it was started for (JOB-1), and a job whose driver is gone leaves nothing.

use std::collections::BTreeMap;

use bireme_core::id::{JobId, ProcessId, TaskId};
use bireme_core::ledger::Snapshot;
use bireme_core::spec::{TaskKind, TaskSpec};

use super::Violation;

/// Whose tasks are whose.
#[derive(Debug, Default)]
pub struct Jobs {
    of: BTreeMap<TaskId, JobId>,
}

impl Jobs {
    /// A process of this job makes a task.
    pub fn made(&mut self, task: TaskId, job: Option<JobId>) {
        self.of.extend(job.map(|job| (task, job)));
    }

    /// A process begins to run a task. A call runs where its actor lives, whoever calls.
    pub fn started(&self, process: ProcessId, of: Option<JobId>, spec: &TaskSpec) -> Result<(), Violation> {
        let call = matches!(spec.kind, TaskKind::Call { .. });
        match (self.of.get(&spec.id), of) {
            (Some(job), Some(served)) if *job != served && !call => {
                let text = format!("{process} of {served} begins {} of {job}", spec.id);
                Err(Violation { invariant: "one job per process", text, concerns: vec![spec.id.to_string()] })
            }
            _ => Ok(()),
        }
    }
}

/// What is left of jobs without a driver, in words.
pub fn left_behind(snapshot: &Snapshot) -> Vec<String> {
    let gone = snapshot.jobs.iter().filter(|row| row.over).map(|row| format!("{row:?} has no driver"));
    let driven = |job: &JobId| snapshot.jobs.iter().any(|row| row.job == *job);
    let workers = snapshot.workers.iter().filter(|row| !driven(&row.job)).map(|row| format!("{row:?} has no job"));
    let processes: Vec<ProcessId> = snapshot
        .workers
        .iter()
        .map(|row| row.process)
        .chain(snapshot.jobs.iter().filter_map(|row| row.driver))
        .collect();
    let own = |process: ProcessId| processes.first().is_none_or(|ours| ours.node == process.node);
    let leases = snapshot.leases.iter().filter(|row| own(row.owner) && !processes.contains(&row.owner));
    gone.chain(workers).chain(leases.map(|row| format!("{row:?} has no owner"))).collect()
}
