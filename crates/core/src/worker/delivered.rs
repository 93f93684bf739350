//! The calls that an actor's process has received, so that one which is delivered twice is applied once.
//!
//! The calls of one calling task come in the order of their sequence; those of different tasks of a process may overtake
//! each other.

use std::collections::BTreeMap;

use crate::id::{ProcessId, TaskId};

/// Calling tasks of one process that are remembered; at twice as many, those that called last are kept. A second delivery
/// comes soon after the first, so older ones are not needed.
pub const CALLING_TASKS_MAX: usize = 1_024;

/// The last call of each calling task, by its process.
#[derive(Debug, Default)]
pub(super) struct Delivered(BTreeMap<ProcessId, BTreeMap<TaskId, u64>>);

impl Delivered {
    /// Whether this call was delivered before; from now on it was.
    pub(super) fn again(&mut self, caller: ProcessId, parent: TaskId, sequence: u64) -> bool {
        let tasks = self.0.entry(caller).or_default();
        if tasks.get(&parent).is_some_and(|last| sequence <= *last) {
            return true;
        }
        tasks.insert(parent, sequence);
        if tasks.len() > 2 * CALLING_TASKS_MAX {
            let mut last: Vec<u64> = tasks.values().copied().collect();
            last.sort_unstable();
            let oldest = last[last.len() - CALLING_TASKS_MAX];
            tasks.retain(|_, last| *last >= oldest);
        }
        false
    }

    /// These callers are gone.
    pub(super) fn forget(&mut self, is_dead: impl Fn(ProcessId) -> bool) {
        self.0.retain(|caller, _| !is_dead(*caller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(n: u64) -> TaskId {
        TaskId::root(1, ProcessId::DRIVER).child(0, n, 0)
    }

    #[test]
    fn a_call_is_known_by_its_calling_task_and_number() {
        let mut delivered = Delivered::default();
        assert!(!delivered.again(ProcessId::DRIVER, task(1), 5));
        assert!(!delivered.again(ProcessId::DRIVER, task(2), 3), "another task of the process was overtaken");
        assert!(delivered.again(ProcessId::DRIVER, task(2), 3));
        assert!(delivered.again(ProcessId::DRIVER, task(1), 4), "its calls come in order");
        delivered.forget(|caller| caller == ProcessId::DRIVER);
        assert!(!delivered.again(ProcessId::DRIVER, task(1), 5));
    }

    #[test]
    fn the_tasks_that_called_last_are_remembered() {
        let mut delivered = Delivered::default();
        for n in 0..10_000 {
            assert!(!delivered.again(ProcessId::DRIVER, task(n), n));
            assert!(delivered.again(ProcessId::DRIVER, task(n), n));
        }
        assert!(delivered.0[&ProcessId::DRIVER].len() <= 2 * CALLING_TASKS_MAX);
        assert!(delivered.again(ProcessId::DRIVER, task(9_000), 9_000));
    }
}
