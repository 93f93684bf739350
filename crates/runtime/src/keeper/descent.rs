//! The processes below the keeper, from `/proc`.
//!
//! Used to end what a worker leaves behind and, at the end, everything. The keeper is a subreaper, so a process whose
//! parents are gone becomes the keeper's own child: killing whatever is found and looking again until no child is left
//! therefore reaches every descendant, whatever it forks meanwhile.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// Set in the environment of each worker as `slot.incarnation`, so that a subprocess that left its worker's process
/// group can still be told from those of other workers.
pub(super) const WORKER_TAG: &str = "BIREME_WORKER";

/// One process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
}

/// Every process that can be seen.
pub(super) fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// `pid (name) state parent group ...`; the name may contain anything, so the last parenthesis counts.
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
    Some(Process { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// The processes below `root`, without it.
pub(super) fn descendants(root: i32, processes: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for process in processes.iter().filter(|process| process.parent == parent && process.pid != root) {
            // A table read while processes come and go may contain a circle.
            if !found.contains(process) {
                found.push(*process);
                next.push(process.pid);
            }
        }
    }
    found
}

/// The tag that a process got from its worker, if it executed a program with its worker's environment.
pub(super) fn worker_tag(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{WORKER_TAG}=");
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
    String::from_utf8(value.to_vec()).ok()
}

/// How many threads this process has; `None` when `/proc` does not say.
pub(super) fn own_threads() -> Option<usize> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// Sends SIGKILL; a process that is gone, or not ours to kill, is no error.
pub(super) fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_parser() {
        let process = parse_stat(7, "7 (a) b (c) S 3 5 1 0").expect("well formed");
        assert_eq!(process, Process { pid: 7, parent: 3, group: 5 });
        assert_eq!(parse_stat(7, "nonsense"), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_circles_end() {
        let p = |pid, parent| Process { pid, parent, group: pid };
        let table = [p(2, 1), p(3, 2), p(4, 3), p(5, 1), p(6, 5), p(8, 9), p(9, 8)];
        let pids = |root| {
            let mut pids: Vec<i32> = descendants(root, &table).iter().map(|process| process.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(2), [3, 4]);
        assert_eq!(pids(8), [9]);
        assert_eq!(pids(1), [2, 3, 4, 5, 6]);
        assert!(own_threads().is_some_and(|threads| threads >= 1));
    }
}
