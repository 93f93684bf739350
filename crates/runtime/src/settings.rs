//! Settings of a node and of programs that connect to one: flag before environment before file before default.
//!
//! Called by the command line (`bireme start`, `bireme config`) and by `init` of the front ends. One table (`table`) has
//! every setting; the flags of the command line are made from it. Nothing here opens a socket or starts a process.
//!
//! | file | what |
//! |---|---|
//! | `table` | name, type, default, variable, flag and help of each setting |
//! | `value` | values, read from text |
//! | `file` | the configuration file |
//! | `surroundings` | environment and user, as a value |
//! | `resolve` | which of the four places counts |
//! | `origin` | where a value was said |
//! | `discover` | the node that a program connects to |
//! | `error` | what can be wrong |

mod discover;
mod error;
mod file;
mod origin;
mod resolve;
mod surroundings;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bireme_core::throttle::QUEUED_BYTES_MAX;
use bireme_store::PROCESSES_MAX;

pub use discover::{Endpoint, discover};
pub use error::SettingsError;
pub use origin::Origin;
pub use resolve::{Entry, Flags, resolve};
pub use surroundings::Surroundings;
pub use table::{Default, Kind, SETTINGS, Setting, find};
pub use value::{Secret, Value};

use crate::config::Config;

/// Longest token file that is read.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Longer than any link on earth, and short enough for every patience.
const LINK_DELAY_MAX: Duration = Duration::from_secs(1);
/// The shortest queue for another node: one value that goes inside of a message.
const LINK_QUEUE_BYTES_MIN: u64 = 64 << 10;
/// A lease that ends after fewer missed signs of life would end when a machine is merely busy.
const HEARTBEATS_PER_LEASE_MIN: u32 = 5;

/// Every setting, as the node uses it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Node of the cluster to join; none: a cluster of its own.
    pub address: Option<String>,
    /// Where to listen.
    pub host: IpAddr,
    /// On which port; 0 is any.
    pub port: u16,
    /// CPUs that tasks may use; none: the machine's.
    pub cpus: Option<f64>,
    /// GPUs that tasks may use.
    pub gpus: f64,
    /// Memory that tasks may ask for; none: the machine's.
    pub memory_bytes: Option<u64>,
    /// Named resources.
    pub resources: BTreeMap<String, f64>,
    /// Size of the object arena; none: 30 % of the machine's memory.
    pub object_store_bytes: Option<u64>,
    /// The user's folder for sockets, logs and keys. Use it through [`crate::local::StateDirectory`].
    pub state_directory: PathBuf,
    /// Where objects go when the arena is full.
    pub spill_directory: Option<PathBuf>,
    /// Time between two signs of life of a node.
    pub heartbeat_period: Duration,
    /// Silence after which a node counts as dead.
    pub node_lease: Duration,
    /// How long a node that lost its cluster tries to join it again.
    pub rejoin_time: Duration,
    /// Whether bytes of objects are encrypted between machines.
    pub bulk_encryption: bool,
    /// Whether nodes of one user on one machine read objects in each other's memory.
    pub local_copies: bool,
    /// How much later than it came something from another node arrives: for tests and benchmarks.
    pub link_delay: Duration,
    /// Bytes of messages that wait for one other node, beyond which processes that have more for it wait.
    pub link_queue_bytes: u64,
    /// The token to join with.
    pub token: Option<Secret>,
    /// Where logs go that stay when the node has ended.
    pub log_directory: Option<PathBuf>,
    /// Interpreter for Python workers.
    pub python: String,
    /// Part of the machine's memory in use at which the largest worker is ended.
    pub memory_limit_fraction: f64,
    /// Worker processes at most.
    pub processes_max: u32,
    /// Copies of the ledger on other nodes.
    pub replicas: u32,
    /// Where names are looked up; none: each job has its own.
    pub namespace: Option<String>,
}

impl Settings {
    /// Those of this process, with these flags.
    pub fn load(flags: &Flags) -> Result<Self, SettingsError> {
        Self::of(&resolve(flags, &Surroundings::of_this_process())?)
    }

    /// The settings that were resolved.
    pub fn of(entries: &[Entry]) -> Result<Self, SettingsError> {
        let read = Reader(entries);
        let settings = Self {
            address: read.text("address"),
            host: read.ip("host"),
            port: read.number("port").unwrap_or(0) as u16,
            cpus: read.amount("num_cpus"),
            gpus: read.amount("num_gpus").unwrap_or(0.0),
            memory_bytes: read.number("memory"),
            resources: read.resources("resources"),
            object_store_bytes: read.number("object_store_memory"),
            state_directory: read.path("state_directory").unwrap_or_default(),
            spill_directory: read.path("spill_directory"),
            heartbeat_period: read.duration("heartbeat_period"),
            node_lease: read.duration("node_lease"),
            rejoin_time: read.duration("rejoin_time"),
            bulk_encryption: read.switch("bulk_encryption"),
            local_copies: read.switch("local_copies"),
            link_delay: read.duration("link_delay"),
            link_queue_bytes: read.number("link_queue").unwrap_or(QUEUED_BYTES_MAX as u64),
            token: read.token()?,
            log_directory: read.path("log_directory"),
            python: read.text("python").unwrap_or_default(),
            memory_limit_fraction: read.amount("memory_limit_fraction").unwrap_or(1.0),
            processes_max: read.number("processes_max").unwrap_or(0) as u32,
            replicas: read.number("replicas").unwrap_or(0) as u32,
            namespace: read.text("namespace"),
        };
        settings.check(&read)?;
        Ok(settings)
    }

    /// What of them an embedded runtime has a name for.
    pub fn config(&self) -> Config {
        Config {
            cpus: self.cpus,
            gpus: self.gpus,
            memory_bytes: self.memory_bytes,
            resources: self.resources.clone(),
            object_store_bytes: self.object_store_bytes,
            spill_directory: self.spill_directory.clone(),
            workers_max: Some(self.processes_max),
            memory_limit_fraction: self.memory_limit_fraction,
            ..Config::default()
        }
    }

    fn check(&self, read: &Reader<'_>) -> Result<(), SettingsError> {
        let unfit = |name, reason| Err(SettingsError::Unfit { origin: read.entry(name).origin.clone(), reason });
        if self.replicas > 0 {
            return unfit("replicas", format!("{} replicas of the ledger are not possible yet; give 0", self.replicas));
        }
        check_processes_max(self.processes_max, &read.entry("processes_max").origin)?;
        if self.link_queue_bytes < LINK_QUEUE_BYTES_MIN {
            let reason = format!("a link queue of {} bytes is too short; give 64KiB or more", self.link_queue_bytes);
            return unfit("link_queue", reason);
        }
        if self.link_delay > LINK_DELAY_MAX {
            let reason = format!("a link delay of {:?} is over the limit; give 0ms to 1s", self.link_delay);
            return unfit("link_delay", reason);
        }
        if self.node_lease < self.heartbeat_period * HEARTBEATS_PER_LEASE_MIN {
            let reason = format!(
                "a node lease of {:?} is shorter than {HEARTBEATS_PER_LEASE_MIN} heartbeats of {:?}; make it longer",
                self.node_lease, self.heartbeat_period
            );
            return unfit("node_lease", reason);
        }
        Ok(())
    }
}

fn check_processes_max(processes: u32, origin: &Origin) -> Result<(), SettingsError> {
    if processes > 0 && processes < PROCESSES_MAX {
        return Ok(());
    }
    let reason = format!("processes_max is {processes}; give 1 to {}", PROCESSES_MAX - 1);
    Err(SettingsError::Unfit { origin: origin.clone(), reason })
}

/// Worker processes at most, for a program that has its node inside: what the environment says, or the default. The file
/// is for nodes that are processes of their own.
pub(crate) fn processes_max(surroundings: &Surroundings) -> Result<u32, SettingsError> {
    let entry = resolve::from_environment("processes_max", surroundings)?;
    let processes = match entry.value {
        Some(Value::Number(number)) => u32::try_from(number).unwrap_or(u32::MAX),
        _ => 0,
    };
    check_processes_max(processes, &entry.origin)?;
    Ok(processes)
}

/// The namespace of a program that chose none itself: what the environment says or, for one that connects to a node, the file.
pub(crate) fn namespace(surroundings: &Surroundings, connects: bool) -> Result<Option<String>, SettingsError> {
    if connects {
        return Ok(Reader(&resolve(&Flags::new(), surroundings)?).text("namespace"));
    }
    Ok(Reader(&[resolve::from_environment("namespace", surroundings)?]).text("namespace"))
}

/// Values by name. A kind that does not fit the name would be a mistake in this file, which its tests find.
struct Reader<'a>(&'a [Entry]);

impl Reader<'_> {
    fn entry(&self, name: &str) -> &Entry {
        self.0.iter().find(|entry| entry.setting.name == name).expect("every name above is one of the table")
    }

    fn text(&self, name: &str) -> Option<String> {
        match &self.entry(name).value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.entry(name).value {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    fn amount(&self, name: &str) -> Option<f64> {
        match self.entry(name).value {
            Some(Value::Amount(amount)) => Some(amount),
            _ => None,
        }
    }

    fn ip(&self, name: &str) -> IpAddr {
        match self.entry(name).value {
            Some(Value::Ip(address)) => address,
            _ => IpAddr::from([127, 0, 0, 1]),
        }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        match &self.entry(name).value {
            Some(Value::Path(path)) => Some(path.clone()),
            _ => None,
        }
    }

    fn duration(&self, name: &str) -> Duration {
        match self.entry(name).value {
            Some(Value::Duration(time)) => time,
            _ => Duration::ZERO,
        }
    }

    fn switch(&self, name: &str) -> bool {
        matches!(self.entry(name).value, Some(Value::Switch(true)))
    }

    fn resources(&self, name: &str) -> BTreeMap<String, f64> {
        match &self.entry(name).value {
            Some(Value::Resources(resources)) => resources.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// The token itself, or the one in the file, whichever was said in the place that counts more.
    fn token(&self) -> Result<Option<Secret>, SettingsError> {
        let (direct, file) = (self.entry("token"), self.entry("token_file"));
        let path = match (&direct.value, &file.value) {
            (Some(Value::Secret(token)), _) if direct.origin <= file.origin => return Ok(Some(token.clone())),
            (_, Some(Value::Path(path))) => path,
            _ => return Ok(None),
        };
        let unreadable = |reason: String| SettingsError::Unreadable { path: path.clone(), reason };
        resolve::check_private(path)?;
        let size = path.metadata().map_err(|error| unreadable(error.to_string()))?.len();
        if size > TOKEN_BYTES_MAX {
            return Err(unreadable(format!("its {size} bytes are no token")));
        }
        let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        match text.trim() {
            "" => Err(unreadable("it is empty".to_owned())),
            token => Ok(Some(Secret::new(token))),
        }
    }
}
