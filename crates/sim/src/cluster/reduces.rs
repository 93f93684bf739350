//! Reduces that threads ask for: each makes an object of the asking process, and a repeated thread adopts what exists.

use bireme_core::flow::Op;
use bireme_core::id::{NodeId, ObjectId, ProcessId, digest, digest_from};
use bireme_core::message::{Adoption, ToNode};
use bireme_core::owner;
use bireme_core::reduce::Options;
use bireme_core::value::{Body, RefSpec};

use super::Cluster;
use super::threads::Wait;

/// What a thread wants to be reduced.
#[derive(Clone, Debug)]
pub(super) struct Reducing {
    inputs: Vec<RefSpec>,
    count: u32,
    op: Op,
    options: Options,
}

impl Reducing {
    /// Of the inputs that there are, so many; all when there are fewer.
    pub(super) fn new(inputs: Vec<RefSpec>, count: usize, op: Op, options: Options) -> Self {
        let count = u32::try_from(count.clamp(1, inputs.len().max(1))).expect("a program has few inputs");
        Self { inputs, count, op, options }
    }

    fn digest(&self) -> u64 {
        let first = digest(&[self.op as u8, self.count as u8]);
        self.inputs.iter().fold(first, |earlier, input| {
            digest_from(
                digest_from(earlier, &input.object.task().raw().to_le_bytes()),
                &input.object.index().to_le_bytes(),
            )
        })
    }
}

impl Cluster {
    /// Begins a reduce; a repeated thread asks first.
    pub(super) fn make_reduce(&mut self, process: ProcessId, id: u64, wanted: Reducing) {
        let Some(thread) = self.thread(process, id) else { return };
        if wanted.inputs.is_empty() {
            return self.fill(process, id, None);
        }
        thread.lane.advance();
        let target = thread.lane.put_id();
        if thread.lane.repeated() {
            self.ask_reduce(process, id, target, wanted);
        } else {
            self.begin_reduce(process, id, target, wanted);
        }
    }

    fn begin_reduce(&mut self, process: ProcessId, id: u64, target: ObjectId, wanted: Reducing) {
        self.forget_if_unknown(target);
        let digest = wanted.digest();
        let Reducing { inputs, count, op, options } = wanted;
        self.note(|| format!("{process} reduces {count} of {inputs:?} to {target}"));
        let objects = inputs.iter().map(|input| input.object).collect();
        self.watch.reduce_asked(target, objects, count, op, options.order);
        self.fill(process, id, Some(RefSpec { object: target, owner: process }));
        self.step_owner(process, owner::Event::Reduce { target, digest, inputs, op, count, options });
    }

    fn ask_reduce(&mut self, process: ProcessId, id: u64, target: ObjectId, wanted: Reducing) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        entry.next_request += 1;
        let request = entry.next_request;
        let digest = wanted.digest();
        if let Some(thread) = entry.threads.get_mut(&id) {
            thread.wait = Wait::Reduce(request, target, Box::new(wanted));
        }
        self.tell_node(process, &ToNode::Adopt { request, object: target, digest, items: 0 });
    }

    /// Has an object brought to all nodes.
    pub(super) fn broadcast(&mut self, process: ProcessId, object: RefSpec) {
        let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
        let value = self.processes.get(&process).and_then(|entry| entry.owner.value(&object.object));
        match value.map(|value| &value.body) {
            Some(Body::Stored(at)) => {
                let at = *at;
                self.tell_node(process, &ToNode::Broadcast { object, at, nodes });
            }
            Some(Body::Inline(_) | Body::Failed(_)) => {}
            None => self.step_owner(process, owner::Event::ReadEarly { object: object.object, nodes }),
        }
    }

    /// The node said whether the result of a repeated thread's reduce exists.
    pub(super) fn adopted_reduce(
        &mut self,
        process: ProcessId,
        id: u64,
        target: ObjectId,
        wanted: Reducing,
        adoption: Adoption,
    ) {
        match adoption {
            Adoption::New | Adoption::Running => self.begin_reduce(process, id, target, wanted),
            Adoption::Finished(mut values) if values.len() == 1 => {
                let value = values.remove(0);
                self.put(process, id, target, wanted.digest(), value, true);
            }
            Adoption::Finished(_) | Adoption::Different => {
                let Some(thread) = self.thread(process, id) else { return };
                if thread.lane.open_epoch() {
                    let target = thread.lane.put_id();
                    self.ask_reduce(process, id, target, wanted);
                }
            }
        }
    }
}
