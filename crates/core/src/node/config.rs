//! What the machine has and how the node uses it.

use super::pressure::MemoryThresholds;
use crate::id::{JobId, NodeId};
use crate::resources::Resources;

/// What the machine has and how the node uses it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its number in the cluster.
    pub id: NodeId,
    /// The job of the driver that the node is embedded in, which is there from the start; none when drivers come and go.
    pub job: Option<JobId>,
    /// The pid of that driver; 0 when there is none, or it does not matter.
    pub driver_pid: u32,
    /// All that can be granted.
    pub total: Resources,
    /// Worker processes at a time; demand beyond waits.
    pub processes_max: u32,
    /// Leases hosted by one process; demand beyond goes to other processes.
    pub threads_per_process_max: u32,
    /// A worker that is idle for longer is ended, down to `prestart`.
    pub idle_worker_us: u64,
    /// Workers of each job that are started ahead of demand and kept.
    pub prestart: u32,
    /// What is done at which use of memory.
    pub memory: MemoryThresholds,
}

impl NodeConfig {
    /// The usual configuration for a machine that has this.
    pub fn for_machine(total: Resources) -> Self {
        let cpus = u32::try_from(total.cpus.0 / crate::resources::UNITS_PER_WHOLE).unwrap_or(u32::MAX);
        Self {
            id: NodeId::ALONE,
            job: Some(JobId::default()),
            driver_pid: 0,
            total,
            processes_max: cpus.saturating_mul(4).clamp(64, 1_024),
            threads_per_process_max: 64,
            idle_worker_us: 60_000_000,
            prestart: cpus.clamp(1, 2),
            memory: MemoryThresholds::default(),
        }
    }
}
