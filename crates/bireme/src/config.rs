//! What the user can choose for the runtime.

use std::path::PathBuf;

use bireme_runtime::cluster::ClusterChoice;
use std::time::Duration;

use crate::Result;

/// Choices for [`init_with`](crate::init_with). What is left out has a sensible default.
///
/// ```
/// let config = bireme::Config::default().cpus(2.0).resource("camera", 1.0).object_store_memory(64 << 20);
/// let _context = bireme::init_with(config)?;
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Config {
    runtime: bireme_runtime::Config,
}

impl Config {
    /// Attaches to a running node instead of starting one in this program: `auto` for the one that you have running on this
    /// machine, `HOST:PORT` for one of several, or the folder of a node. What the machine has is the node's to say then.
    ///
    /// ```no_run
    /// // After `bireme start`.
    /// let _context = bireme::init_with(bireme::Config::default().address("auto"))?;
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn address(mut self, address: &str) -> Self {
        self.runtime.address = Some(address.to_owned());
        self
    }

    /// Where names of actors and placement groups are looked up: programs of one namespace find each other's. Without it what
    /// `BIREME_NAMESPACE` says; else each program has names of its own, which no other program finds.
    ///
    /// ```no_run
    /// let _context = bireme::init_with(bireme::Config::default().address("auto").namespace("team"))?;
    /// # Ok::<(), bireme::Error>(())
    /// ```
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.runtime.namespace = Some(namespace.to_owned());
        self
    }

    /// CPUs that tasks can ask for; as many as the machine has unless chosen.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.runtime.cpus = Some(cpus);
        self
    }

    /// GPUs that tasks can ask for; none unless chosen.
    pub fn gpus(mut self, gpus: f64) -> Self {
        self.runtime.gpus = gpus;
        self
    }

    /// Bytes of memory that tasks can ask for.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.runtime.memory_bytes = Some(bytes);
        self
    }

    /// An amount of something that you give a name.
    pub fn resource(mut self, name: &str, amount: f64) -> Self {
        self.runtime.resources.insert(name.to_owned(), amount);
        self
    }

    /// Bytes of shared memory for objects.
    pub fn object_store_memory(mut self, bytes: u64) -> Self {
        self.runtime.object_store_bytes = Some(bytes);
        self
    }

    /// Makes the program's own node one of a cluster: its head, or a member of the cluster of another head.
    pub fn cluster(mut self, choice: ClusterChoice) -> Self {
        self.runtime.cluster = Some(choice);
        self
    }

    /// Where objects go when the store is full.
    pub fn spill_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.runtime.spill_directory = Some(directory.into());
        self
    }

    /// How many bytes may be there at once.
    pub fn spill_limit(mut self, bytes: u64) -> Self {
        self.runtime.spill_bytes_max = bytes;
        self
    }

    /// Whether waiting threads spin for a bounded moment when a core is spare.
    pub fn spin(mut self, spin: bool) -> Self {
        self.runtime.spin = spin;
        self
    }

    /// Part of the memory in use at which the largest worker is ended, 0.95 unless chosen; a little below, new work pauses and
    /// objects are spilled. 1.0: nobody looks.
    pub fn memory_limit_fraction(mut self, fraction: f64) -> Self {
        self.runtime.memory_limit_fraction = fraction;
        self
    }

    /// Bytes that workers and objects may use together, instead of what the machine has.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.runtime.memory_limit_bytes = Some(bytes);
        self
    }

    /// At most so many worker processes; without it what `BIREME_PROCESSES_MAX` says, else 1,024. Tasks beyond wait for one; when
    /// all of them wait, they share one.
    pub fn workers_max(mut self, workers: u32) -> Self {
        self.runtime.workers_max = Some(workers);
        self
    }

    /// At most so many tasks in one process, all but one of them blocked.
    pub fn threads_per_worker_max(mut self, threads: u32) -> Self {
        self.runtime.threads_per_worker_max = threads;
        self
    }

    /// How long a worker without work stays.
    pub fn idle_worker(mut self, time: Duration) -> Self {
        self.runtime.idle_worker_ms = milliseconds(time);
        self
    }

    /// How long a task that was asked to stop may go on before its worker is ended.
    pub fn cancel_grace(mut self, time: Duration) -> Self {
        self.runtime.cancel_grace_ms = milliseconds(time);
        self
    }

    /// Checks the amounts, before anything is started.
    pub(crate) fn finish(self) -> Result<bireme_runtime::Config> {
        if self.runtime.address.is_some() {
            return Ok(self.runtime);
        }
        self.runtime.total()?;
        self.runtime.arena_bytes()?;
        Ok(self.runtime)
    }
}

impl Config {
    /// How another configuration differs, in words; none when it is equal.
    pub(crate) fn differences(&self, other: &Self) -> Option<String> {
        let (ours, theirs) = (&self.runtime, &other.runtime);
        let mut found = Vec::new();
        let mut compare = |name: &str, shown: fn(&bireme_runtime::Config) -> String| {
            let (running, asked) = (shown(ours), shown(theirs));
            if running != asked {
                found.push(format!("`{name}` is {running} and not {asked}"));
            }
        };
        compare("address", |config| chosen(&config.address));
        compare("namespace", |config| chosen(&config.namespace));
        compare("cpus", |config| chosen(&config.cpus));
        compare("gpus", |config| config.gpus.to_string());
        compare("memory", |config| chosen(&config.memory_bytes));
        compare("resource", |config| format!("{:?}", config.resources));
        compare("object_store_memory", |config| chosen(&config.object_store_bytes));
        compare("spill_directory", |config| chosen(&config.spill_directory));
        compare("spill_limit", |config| config.spill_bytes_max.to_string());
        compare("spin", |config| config.spin.to_string());
        compare("memory_limit_fraction", |config| config.memory_limit_fraction.to_string());
        compare("memory_limit", |config| chosen(&config.memory_limit_bytes));
        compare("workers_max", |config| chosen(&config.workers_max));
        compare("threads_per_worker_max", |config| config.threads_per_worker_max.to_string());
        compare("idle_worker", |config| format!("{} ms", config.idle_worker_ms));
        compare("cancel_grace", |config| format!("{} ms", config.cancel_grace_ms));
        // It has secrets, which are not told.
        if ours.cluster != theirs.cluster {
            found.push("`cluster` is another one".to_owned());
        }
        (!found.is_empty()).then(|| found.join(", "))
    }
}

fn chosen<T: std::fmt::Debug>(choice: &Option<T>) -> String {
    choice.as_ref().map_or_else(|| "the default".to_owned(), |value| format!("{value:?}"))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
