//! Did the kernel kill a worker for want of memory?
//!
//! The kernel does not say so in a wait status; it sends SIGKILL and counts. We compare the count of the memory cgroup
//! that the keeper is in (v2 `memory.events`, v1 `memory.oom_control`), or of the machine (`/proc/vmstat`) where there is
//! no such file, with what it was when the worker started. A death counts as out of memory when the signal was SIGKILL,
//! the node had not asked for it, and the count has risen by a kill that no earlier death has claimed.
//!
//! How sure is it? A "no" is certain as long as the worker stays in its cgroup. A "yes" can be wrong when somebody sends
//! SIGKILL to a worker after the kernel killed another process of the same cgroup (or, with the machine's count, of the
//! machine) during the life of that worker: its own subprocesses are the likely case.

use std::fs;
use std::path::{Path, PathBuf};

/// The count of out-of-memory kills, and how many of them are explained.
pub(super) struct OutOfMemory {
    source: PathBuf,
    claimed: u64,
}

impl OutOfMemory {
    /// Finds the most precise count that this process can read.
    pub(super) fn find() -> OutOfMemory {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let candidates = memberships.lines().flat_map(candidate_files);
        let source = candidates.into_iter().find(|path| read_count(path).is_some());
        OutOfMemory { source: source.unwrap_or_else(|| PathBuf::from("/proc/vmstat")), claimed: 0 }
    }

    /// The count now; zero when it cannot be read, which can only hide a kill and never invent one.
    pub(super) fn count(&self) -> u64 {
        read_count(&self.source).unwrap_or(0)
    }

    /// Whether a worker that was killed was killed for memory, given the count at its start.
    pub(super) fn claim(&mut self, at_spawn: u64) -> bool {
        let count = self.count();
        self.claim_from(count, at_spawn)
    }

    fn claim_from(&mut self, count: u64, at_spawn: u64) -> bool {
        let explained = self.claimed.max(at_spawn);
        let yes = count > explained;
        if yes {
            self.claimed = explained + 1;
        }
        yes
    }
}

/// Files that may hold the count for one line of `/proc/self/cgroup` (`id:controllers:path`).
fn candidate_files(line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let path = path.trim_start_matches('/');
    if controllers.is_empty() {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        return mounts.iter().map(|mount| Path::new(mount).join(path).join("memory.events")).collect();
    }
    if controllers.split(',').any(|controller| controller == "memory") {
        return vec![Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control")];
    }
    Vec::new()
}

/// All three files have a line `oom_kill <number>`.
fn read_count(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_of_the_kernel_explains_one_death() {
        let mut memory = OutOfMemory { source: PathBuf::new(), claimed: 0 };
        assert!(!memory.claim_from(5, 5), "nothing was killed since the start");
        assert!(memory.claim_from(7, 5));
        assert!(memory.claim_from(7, 5), "two kills, two deaths");
        assert!(!memory.claim_from(7, 5), "a third death has another cause");
        assert!(!memory.claim_from(7, 7));
        assert!(memory.claim_from(8, 7));
    }

    #[test]
    fn the_count_lives_in_the_memory_cgroup() {
        assert_eq!(candidate_files("4:cpu,memory:/a/b"), [Path::new("/sys/fs/cgroup/memory/a/b/memory.oom_control")]);
        assert_eq!(candidate_files("0::/a")[0], Path::new("/sys/fs/cgroup/a/memory.events"));
        assert!(candidate_files("3:cpuset:/a").is_empty() && candidate_files("nonsense").is_empty());
    }
}
