//! How much memory is in use: looked at on a thread of its own, told to the node when it is near the limit.
//!
//! The use is the machine's (what could not be had without swapping), or that of the own cgroup or one above it where
//! that has a limit and is nearer to it: files that the kernel keeps in spare memory do not count. A limit that was given in
//! bytes is compared with what the node's workers and objects use. What each worker has for itself is read when it matters,
//! from `statm`: resident pages that are neither a file's nor shared. Pages that a worker still shares with the process that it
//! is a copy of count for both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bireme_core::id::ProcessId;
use bireme_core::node::{Event, MemoryLevel, MemoryThresholds};
use bireme_net::Doorbell;
use bireme_store::Arena;

use crate::error::Error;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// A limit of this size is none.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// What the node and the sampler tell each other.
#[derive(Default)]
pub(super) struct MemoryWatch {
    workers: Mutex<BTreeMap<ProcessId, u32>>,
    /// The last sample that the node has not taken; an older one is of no use.
    sample: Mutex<Option<Event>>,
    pressed: AtomicBool,
}

impl MemoryWatch {
    /// A worker has this system process id.
    pub(super) fn began(&self, process: ProcessId, pid: u32) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).insert(process, pid);
    }

    /// A worker is gone.
    pub(super) fn ended(&self, process: ProcessId) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
    }

    /// What was measured since the last look.
    pub(super) fn take(&self) -> Option<Event> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// While the node is pressed it is told every sample.
    pub(super) fn set_pressed(&self, level: MemoryLevel) {
        self.pressed.store(level > MemoryLevel::Calm, Ordering::Relaxed);
    }
}

/// Starts the sampler, unless workers are never ended for their memory.
pub(super) fn start(
    watch: &Arc<MemoryWatch>,
    thresholds: MemoryThresholds,
    limit_bytes: Option<u64>,
    arena: Arc<Arena>,
    (doorbell, stop): (&Doorbell, &Arc<AtomicBool>),
) -> Result<Option<JoinHandle<()>>, Error> {
    if thresholds.end_permille >= 1_000 {
        return Ok(None);
    }
    let (watch, doorbell, stop) = (Arc::clone(watch), doorbell.clone(), Arc::clone(stop));
    let meter = match limit_bytes {
        Some(limit) => Meter::Own { limit, arena },
        None => Meter::Machine { cgroups: Cgroup::all() },
    };
    let body = move || {
        while !stop.load(Ordering::Acquire) {
            let pressed = watch.pressed.load(Ordering::Relaxed);
            if let Some(sample) = meter.sample(&watch, thresholds.calm_permille(), pressed) {
                *watch.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
                doorbell.ring_self();
            }
            std::thread::park_timeout(PERIOD);
        }
    };
    crate::thread::spawn("bireme-memory", body).map(Some)
}

/// Bytes in use, and bytes that there are.
type Use = (u64, u64);

enum Meter {
    Machine { cgroups: Vec<Cgroup> },
    Own { limit: u64, arena: Arc<Arena> },
}

impl Meter {
    /// What the node is to hear: something when the use is at least `calm_permille`, or when it is pressed.
    fn sample(&self, watch: &MemoryWatch, calm_permille: u64, pressed: bool) -> Option<Event> {
        let (used_bytes, limit_bytes, workers) = match self {
            Meter::Machine { cgroups } => {
                let all = cgroups.iter().filter_map(Cgroup::usage).chain(machine());
                let (used, limit) = all.max_by(|a, b| permille(*a).cmp(&permille(*b)))?;
                if permille((used, limit)) < calm_permille && !pressed {
                    return None;
                }
                (used, limit, workers(watch))
            }
            Meter::Own { limit, arena } => {
                let workers = workers(watch);
                (workers.iter().map(|(_, bytes)| bytes).sum::<u64>() + arena.resident(), *limit, workers)
            }
        };
        let near = permille((used_bytes, limit_bytes)) >= calm_permille;
        (near || pressed).then_some(Event::Memory { used_bytes, limit_bytes, workers })
    }
}

fn permille((used, limit): Use) -> u64 {
    u64::try_from(u128::from(used) * 1_000 / u128::from(limit.max(1))).unwrap_or(u64::MAX)
}

/// What each worker has for itself. One that is gone has nothing.
fn workers(watch: &MemoryWatch) -> Vec<(ProcessId, u64)> {
    let workers = watch.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let page = rustix::param::page_size() as u64;
    let bytes = |pid: u32| private_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?).map(|n| n * page);
    workers.into_iter().filter_map(|(process, pid)| Some((process, bytes(pid)?))).collect()
}

/// `statm`: size, resident, shared (of files and shared memory), and others.
fn private_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1);
    let resident: u64 = fields.next()?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

fn machine() -> Option<Use> {
    meminfo(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn meminfo(text: &str) -> Option<Use> {
    let bytes = |name: &str| Some(field(text, name)? << 10);
    let (total, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    Some((total.saturating_sub(available), total))
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// A memory cgroup with a limit.
#[derive(Debug, PartialEq, Eq)]
struct Cgroup {
    folder: PathBuf,
    files: &'static Files,
}

/// What the files of a cgroup are called.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Fields of `memory.stat` with what the kernel would drop first.
    spare: [&'static str; 2],
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    spare: ["total_active_file ", "total_inactive_file "],
};
const V2: Files = Files { limit: "memory.max", used: "memory.current", spare: ["active_file ", "inactive_file "] };

impl Cgroup {
    /// The own one and those above it that have a limit now.
    fn all() -> Vec<Cgroup> {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        memberships.lines().flat_map(candidates).filter(|cgroup| cgroup.usage().is_some()).collect()
    }

    fn usage(&self) -> Option<Use> {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).ok();
        let limit = read(self.files.limit)?.trim().parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT_BYTES)?;
        let used = read(self.files.used)?.trim().parse::<u64>().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let spare: u64 = self.files.spare.iter().filter_map(|name| field(&stat, name)).sum();
        Some((used.saturating_sub(spare), limit))
    }
}

/// The cgroups that one line of `/proc/self/cgroup` (`id:controllers:path`) may stand for, the own one first.
fn candidates(line: &str) -> Vec<Cgroup> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (mount, files) = match controllers {
        "" => ("/sys/fs/cgroup", &V2),
        _ if controllers.split(',').any(|controller| controller == "memory") => ("/sys/fs/cgroup/memory", &V1),
        _ => return Vec::new(),
    };
    let own = Path::new(mount).join(path.trim_start_matches('/'));
    let above = own.ancestors().take_while(|folder| folder.starts_with(mount));
    above.map(|folder| Cgroup { folder: folder.to_path_buf(), files }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_be_had_is_not_in_use() {
        let text = "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    400 kB\n";
        assert_eq!(meminfo(text), Some((600 << 10, 1000 << 10)));
        assert_eq!(meminfo("MemTotal: 5 kB\n"), None);
        let (used, total) = machine().expect("this machine has a /proc");
        assert!(used > 0 && used < total);
    }

    #[test]
    fn the_pages_of_files_and_shared_memory_are_not_a_worker_s_own() {
        assert_eq!(private_pages("900 500 120 3 0 60 0\n"), Some(380));
        assert_eq!(private_pages(""), None);
    }

    #[test]
    fn a_limit_of_a_cgroup_above_counts_too() {
        let folders: Vec<PathBuf> = candidates("0::/a/b").into_iter().map(|cgroup| cgroup.folder).collect();
        assert_eq!(folders, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from));
        assert_eq!(candidates("4:cpu,memory:/")[0].folder, Path::new("/sys/fs/cgroup/memory"));
        assert!(candidates("3:cpuset:/a").is_empty() && candidates("nonsense").is_empty());
    }

    #[test]
    fn files_in_spare_memory_do_not_count_in_a_cgroup() {
        let folder = std::env::temp_dir().join(format!("bireme-cgroup-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder for temporary files takes a folder");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("the folder takes files");
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        let cgroup = Cgroup { folder: folder.clone(), files: &V2 };
        assert_eq!(cgroup.usage(), None, "there is no limit");
        write("memory.max", "1000\n");
        write("memory.stat", "anon 300\nactive_file 150\ninactive_file 250\n");
        assert_eq!(cgroup.usage(), Some((300, 1000)));
        fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
