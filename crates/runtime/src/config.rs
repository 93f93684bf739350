//! What a driver chooses when it starts a runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bireme_core::names::Namespace;
use bireme_core::node::{GPUS_MAX, MemoryThresholds};
use bireme_core::resources::{Amount, CUSTOM_RESOURCES_MAX, Resources};
use bireme_store::SpillOptions;

use crate::attach::Program;
use crate::cluster::ClusterChoice;
use crate::error::Error;
use crate::output::Output;

/// Smallest arena that makes sense.
pub const OBJECT_STORE_BYTES_MIN: u64 = 1 << 20;

/// Largest arena that a process can map twice.
pub const OBJECT_STORE_BYTES_MAX: u64 = 1 << 46;

/// Settings of an embedded runtime. Every field has a default.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs that tasks may use; the machine's by default.
    pub cpus: Option<f64>,
    /// GPUs that tasks may use.
    pub gpus: f64,
    /// Memory that tasks may ask for; the machine's by default.
    pub memory_bytes: Option<u64>,
    /// Named resources.
    pub resources: BTreeMap<String, f64>,
    /// Size of the object arena; 30 % of the machine's memory by default. Pages are used only when written.
    pub object_store_bytes: Option<u64>,
    /// Where objects go when the arena is full; the system's folder for temporary files by default.
    pub spill_directory: Option<PathBuf>,
    /// How much may go there.
    pub spill_bytes_max: u64,
    /// Whether threads may spin for a moment before they sleep.
    pub spin: bool,
    /// Worker processes at most; none: what `BIREME_PROCESSES_MAX` says, else 1,024. Tasks beyond wait for one; when all of
    /// them wait, they share one.
    pub workers_max: Option<u32>,
    /// Tasks that one process runs at most while others of it are blocked.
    pub threads_per_worker_max: u32,
    /// An idle worker ends after this time.
    pub idle_worker_ms: u64,
    /// A cancelled task that does not stop within this time loses its worker.
    pub cancel_grace_ms: u64,
    /// Where the output of workers goes.
    pub output: Output,
    /// Whether equal lines of several workers are shown as one with a count; for [`Output::Lines`].
    pub output_dedup: bool,
    /// Lines that one worker may write in a second before they are cut short, if there is a bound; for [`Output::Lines`].
    pub output_rate_max: Option<u32>,
    /// What workers are copies of, instead of this executable: a path and arguments. See [`crate::keeper::enter_from`].
    pub worker_program: Option<Vec<std::ffi::OsString>>,
    /// A folder that workers may make and fill; the keeper removes it at the end. They find its path in
    /// [`crate::keeper::SCRATCH_VARIABLE`].
    pub scratch_directory: Option<PathBuf>,
    /// The cluster that the node is one of; none for a node alone.
    pub cluster: Option<ClusterChoice>,
    /// The node to attach to, instead of one inside this program: `auto`, `HOST:PORT`, or the folder of a node.
    pub address: Option<String>,
    /// What the workers of a program that attaches are; this executable when there is none.
    pub program: Option<Program>,
    /// Where names of actors and groups are looked up; none: what `BIREME_NAMESPACE` says, else each job has its own.
    pub namespace: Option<String>,
    /// Part of the memory in use at which the largest worker is ended; a little below, new work pauses and objects are spilled.
    /// 1.0: nobody looks.
    pub memory_limit_fraction: f64,
    /// Bytes that workers and objects of this node may use together; the machine's by default, with what others use.
    pub memory_limit_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cpus: None,
            gpus: 0.0,
            memory_bytes: None,
            resources: BTreeMap::new(),
            object_store_bytes: None,
            spill_directory: None,
            spill_bytes_max: u64::MAX,
            spin: true,
            workers_max: None,
            threads_per_worker_max: 64,
            idle_worker_ms: 10_000,
            cancel_grace_ms: 1_000,
            output: Output::default(),
            output_dedup: true,
            output_rate_max: Some(10_000),
            worker_program: None,
            scratch_directory: None,
            cluster: None,
            address: None,
            program: None,
            namespace: None,
            memory_limit_fraction: 0.95,
            memory_limit_bytes: None,
        }
    }
}

impl Config {
    /// Refuses what only the node can be told.
    pub(crate) fn check_attached(&self) -> Result<(), Error> {
        let chosen = [
            (self.cpus.is_some(), "cpus"),
            (self.gpus > 0.0, "gpus"),
            (self.memory_bytes.is_some(), "memory"),
            (!self.resources.is_empty(), "resources"),
            (self.object_store_bytes.is_some(), "object_store_memory"),
            (self.cluster.is_some(), "cluster"),
        ];
        match chosen.into_iter().find(|(is_chosen, _)| *is_chosen) {
            Some((_, name)) => Err(Error::BadArgument(format!(
                "{name} belongs to the node, which is there already; leave it out, or leave the address out"
            ))),
            None => Ok(()),
        }
    }

    /// The same for a program that joins a cluster elsewhere: its own node only dials out, and takes no work.
    pub(crate) fn of_driver_at(&self, address: &str) -> Result<Self, Error> {
        let settings = crate::settings::Settings::load(&crate::settings::Flags::new())?;
        let state = crate::local::StateDirectory::open(&settings.state_directory)?;
        let cluster = Some(ClusterChoice::of_driver(address, &settings, &state)?);
        Ok(Self { cpus: Some(0.0), gpus: 0.0, memory_bytes: Some(0), cluster, address: None, ..self.clone() })
    }

    /// Where the names of this program's job are.
    pub(crate) fn job_namespace(&self) -> Result<Namespace, Error> {
        let chosen = match &self.namespace {
            Some(name) => Some(name.clone()),
            None => {
                let surroundings = crate::settings::Surroundings::of_this_process();
                crate::settings::namespace(&surroundings, self.address.is_some())?
            }
        };
        let shares_nodes = self.address.is_some() || self.cluster.is_some();
        Namespace::of_job(chosen, shares_nodes).map_err(|bad| Error::BadArgument(bad.to_string()))
    }

    /// For workers: the cancel grace in microseconds shifted left by one; the lowest bit says whether to spin.
    pub(crate) fn worker_settings(&self) -> u64 {
        self.cancel_grace_ms.saturating_mul(1_000) << 1 | u64::from(self.spin)
    }

    /// Maximum number of worker processes.
    pub fn processes_max(&self) -> Result<u32, Error> {
        match self.workers_max {
            Some(workers) => Ok(workers),
            None => Ok(crate::settings::processes_max(&crate::settings::Surroundings::of_this_process())?),
        }
    }

    /// What the node may hand out.
    pub fn total(&self) -> Result<Resources, Error> {
        let cpus = match self.cpus {
            Some(cpus) => Amount::from_f64("cpus", cpus)?,
            None => Amount::whole(machine_cpus()),
        };
        if self.resources.len() > CUSTOM_RESOURCES_MAX {
            let message = format!("{} named resources are more than {CUSTOM_RESOURCES_MAX}", self.resources.len());
            return Err(Error::BadArgument(message));
        }
        let gpus = Amount::from_f64("gpus", self.gpus)?;
        if gpus > Amount::whole(GPUS_MAX as u64) {
            return Err(Error::BadArgument(format!("{gpus} GPUs are more than {GPUS_MAX}")));
        }
        let mut custom = BTreeMap::new();
        for (name, amount) in &self.resources {
            custom.insert(name.clone(), Amount::from_f64(name, *amount)?);
        }
        Ok(Resources { cpus, gpus, memory_bytes: self.memory_bytes.unwrap_or_else(machine_memory_bytes), custom })
    }

    /// What is done at which use of memory.
    pub fn memory_thresholds(&self) -> Result<MemoryThresholds, Error> {
        let fraction = self.memory_limit_fraction;
        if !(0.1..=1.0).contains(&fraction) {
            let message = format!("a memory limit of {fraction} of the memory makes no sense; give 0.1 to 1.0");
            return Err(Error::BadArgument(message));
        }
        Ok(MemoryThresholds::ending_at(fraction))
    }

    /// Where objects go when the arena is full, and how many. A directory that was chosen must be of use now: when memory is
    /// full, it is too late.
    pub(crate) fn spill_options(&self) -> Result<SpillOptions, Error> {
        let directory = self.spill_directory.clone().unwrap_or_else(std::env::temp_dir);
        let spill = SpillOptions { directory, spill_bytes_max: self.spill_bytes_max };
        if self.spill_directory.is_some() && self.spill_bytes_max > 0 {
            spill.make_directory().map_err(|error| {
                let directory = spill.directory.display();
                Error::BadArgument(format!(
                    "objects cannot be spilled to {directory}: {error}; give a spill directory that can be written to"
                ))
            })?;
        }
        Ok(spill)
    }

    /// The size of the arena, in whole pages.
    pub fn arena_bytes(&self) -> Result<u64, Error> {
        let bytes = self.object_store_bytes.unwrap_or_else(|| machine_memory_bytes() / 10 * 3);
        if bytes < OBJECT_STORE_BYTES_MIN {
            let message =
                format!("an object store of {bytes} bytes is too small; give at least {OBJECT_STORE_BYTES_MIN}");
            return Err(Error::BadArgument(message));
        }
        if bytes > OBJECT_STORE_BYTES_MAX {
            let message =
                format!("an object store of {bytes} bytes is too large; give at most {OBJECT_STORE_BYTES_MAX}");
            return Err(Error::BadArgument(message));
        }
        Ok(bytes.next_multiple_of(4096))
    }
}

fn machine_cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
