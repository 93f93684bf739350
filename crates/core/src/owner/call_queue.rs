//! The calls of one actor that were not sent: in the order of their submits for each calling task.
//!
//! Tasks that share a process must not wait for each other's arguments: one may be waiting for the other. So each calling
//! task has a line of its own, and only the first call of a line can be sent.

use std::collections::{BTreeMap, VecDeque};

use crate::id::TaskId;

/// A call that is first in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    /// The number of the call among those of this process.
    pub(super) sequence: u64,
    /// The call.
    pub(super) task: TaskId,
    /// The caller.
    pub(super) parent: TaskId,
}

/// Lines by calling task; none is empty.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    lines: BTreeMap<TaskId, VecDeque<(u64, TaskId)>>,
    len: usize,
}

impl CallQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a call at its place: the last one as a rule, but for one that was sent and is back.
    pub(super) fn insert(&mut self, parent: TaskId, sequence: u64, task: TaskId) {
        let line = self.lines.entry(parent).or_default();
        match line.back() {
            Some((last, _)) if *last > sequence => {
                let at = line.partition_point(|(other, _)| *other <= sequence);
                line.insert(at, (sequence, task));
            }
            _ => line.push_back((sequence, task)),
        }
        self.len += 1;
    }

    /// The first calls of all lines.
    pub(super) fn firsts(&self) -> impl Iterator<Item = First> {
        self.lines.iter().filter_map(|(parent, line)| {
            let (sequence, task) = *line.front()?;
            Some(First { sequence, task, parent: *parent })
        })
    }

    /// Takes a call out.
    pub(super) fn remove(&mut self, parent: TaskId, task: TaskId) {
        let Some(line) = self.lines.get_mut(&parent) else { return };
        let before = line.len();
        match line.front() {
            Some((_, first)) if *first == task => drop(line.pop_front()),
            _ => line.retain(|(_, other)| *other != task),
        }
        self.len -= before - line.len();
        if line.is_empty() {
            self.lines.remove(&parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ProcessId;

    fn task(n: u64) -> TaskId {
        TaskId::root(1, ProcessId::DRIVER).child(0, n, 0)
    }

    fn firsts(queue: &CallQueue) -> Vec<u64> {
        let mut firsts: Vec<u64> = queue.firsts().map(|first| first.sequence).collect();
        firsts.sort_unstable();
        firsts
    }

    #[test]
    fn each_calling_task_has_a_line_in_the_order_of_its_submits() {
        let mut queue = CallQueue::default();
        for (parent, sequence) in [(1, 0), (2, 1), (1, 2), (2, 3)] {
            queue.insert(task(parent), sequence, task(10 + sequence));
        }
        assert_eq!((firsts(&queue), queue.len()), (vec![0, 1], 4));
        queue.remove(task(1), task(10));
        assert_eq!(firsts(&queue), [1, 2]);
        queue.insert(task(1), 0, task(10));
        assert_eq!(firsts(&queue), [0, 1], "one that is back has its place again");
        queue.remove(task(2), task(13));
        queue.remove(task(2), task(13));
        queue.remove(task(2), task(11));
        assert_eq!((firsts(&queue), queue.len()), (vec![0], 2));
    }
}
