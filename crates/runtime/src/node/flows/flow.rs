//! A flow as a bulk link sees it: ranges of a stage's memory in the order in which they are sent, which become ready as the
//! stage's intakes come along.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bireme_core::flow::{FlowSpec, Slice};
use bireme_net::bulk::Source;

use super::progress::Marks;
use super::running::Running;

/// A stream out of a stage's memory.
pub(super) struct FlowSource {
    running: Arc<Running>,
    flow: FlowSpec,
    /// Its index, when it is one of the stage's flows.
    number: Option<usize>,
    /// The first byte of each slice in the stream, and the end.
    starts: Vec<u64>,
    /// Whether it has bytes of an input that still grows.
    grows: bool,
}

impl FlowSource {
    /// One of the stage's flows.
    pub(super) fn new(running: &Arc<Running>, number: usize) -> Self {
        running.serving.fetch_add(1, Ordering::Relaxed);
        Self::over(running, running.spec.flows[number].clone(), Some(number))
    }

    /// A part of the stage's memory that the stage itself takes in.
    pub(super) fn local(running: &Arc<Running>, slice: Slice) -> Self {
        Self::over(running, FlowSpec { to: 0, slices: vec![slice], lead: slice.len, follows: Vec::new() }, None)
    }

    fn over(running: &Arc<Running>, flow: FlowSpec, number: Option<usize>) -> Self {
        let mut starts = vec![0];
        starts.extend(flow.slices.iter().scan(0, |at, slice| {
            *at += slice.len;
            Some(*at)
        }));
        let grows = flow.slices.iter().any(|slice| running.grows(slice.part).is_some());
        Self { running: Arc::clone(running), flow, number, starts, grows }
    }

    fn slice_at(&self, at: u64) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// Up to where the stream can be sent.
    fn ready(&self, marks: &Marks) -> u64 {
        let done = self.flow.follows.iter().map(|intake| marks.done[*intake as usize]).min();
        let len = self.len();
        let ready = done.map_or(len, |done| self.flow.lead.saturating_add(done).min(len));
        if !self.grows {
            return ready;
        }
        for (index, slice) in self.flow.slices.iter().enumerate() {
            let start = self.starts[index];
            let Some(input) = self.running.grows(slice.part) else { continue };
            let there = start + marks.grown[input].saturating_sub(slice.start).min(slice.len);
            if there < self.starts[index + 1] {
                return ready.min(there);
            }
        }
        ready
    }
}

impl Source for FlowSource {
    fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn wait_beyond(&self, at: u64, patience: Duration) -> Result<u64, String> {
        let mut last = 0;
        let found = self.running.progress.wait(patience, |marks| {
            last = self.ready(marks);
            (last > at).then_some(last)
        })?;
        Ok(found.unwrap_or(last))
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        let index = self.slice_at(range.start);
        let Some(slice) = self.flow.slices.get(index) else { return &[] };
        let start = slice.start + (range.start - self.starts[index]);
        let read = self.running.read(slice.part, start, range.end - range.start);
        // Who asked sees that there are fewer bytes than promised, and ends the connection.
        read.inspect_err(|reason| self.running.progress.end(reason, None)).unwrap_or_default()
    }

    fn contiguous_until(&self, at: u64) -> u64 {
        let index = self.slice_at(at);
        self.starts.get(index + 1).copied().unwrap_or(self.len())
    }

    fn offset(&self, at: u64) -> Option<u64> {
        let index = self.slice_at(at);
        let slice = self.flow.slices.get(index)?;
        Some(self.running.offset(slice.part)? + slice.start + (at - self.starts[index]))
    }

    fn forward_bytes_min(&self, most: u64) -> u64 {
        // A ring of up to 33 members has a lead of at least a 64th of its stream; one of more says how much it has.
        let lead = if self.flow.lead > 0 { self.flow.lead } else { u64::MAX };
        (self.len() / 64).min(lead).clamp(1, most)
    }

    fn taken(&self) {
        if let Some(number) = self.number {
            self.running.progress.change(|marks| marks.taken[number] = true);
            self.running.progress.tell();
        }
    }
}

impl Drop for FlowSource {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.running.serving.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
