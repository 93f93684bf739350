//! What threads make: tasks and puts. A repeated thread asks the node first and adopts what exists (design rule 3).

use std::sync::Arc;

use bireme_core::id::{ObjectId, ProcessId, TaskId, digest};
use bireme_core::message::{Adoption, ToNode};
use bireme_core::owner;
use bireme_core::spec::TaskSpec;
use bireme_core::value::{Body, RefSpec, Value};

use super::threads::Wait;
use super::{Cluster, Happening};
use crate::planted::Planted;
use crate::program::Size;

impl Cluster {
    /// Submits; a repeated thread asks first.
    pub(super) fn make_task(&mut self, process: ProcessId, id: u64, mut spec: TaskSpec) {
        let Some(thread) = self.thread(process, id) else { return };
        thread.lane.advance();
        spec.id = thread.lane.task_id();
        let repeated = thread.lane.repeated();
        self.watch.made(process, spec.id, self.job_of(process));
        if self.planted == Some(Planted::OneRetryTooMany) {
            Arc::make_mut(&mut spec.options).retries_max += 1;
        }
        if repeated {
            self.ask_task(process, id, spec);
        } else {
            self.forget_if_unknown(ObjectId::result(spec.id, 0));
            self.submit(process, id, owner::Event::Submitted(spec.clone()), spec.id);
        }
    }

    fn ask_task(&mut self, process: ProcessId, id: u64, spec: TaskSpec) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        entry.next_request += 1;
        let request = entry.next_request;
        let (object, digest) = (ObjectId::result(spec.id, 0), spec.digest);
        if let Some(thread) = entry.threads.get_mut(&id) {
            thread.wait = Wait::Task(request, Box::new(spec));
        }
        self.tell_node(process, &ToNode::Adopt { request, object, digest, items: 0 });
    }

    fn submit(&mut self, process: ProcessId, id: u64, event: owner::Event, task: TaskId) {
        self.fill(process, id, Some(RefSpec { object: ObjectId::result(task, 0), owner: process }));
        self.step_owner(process, event);
    }

    pub(super) fn fill(&mut self, process: ProcessId, id: u64, reference: Option<RefSpec>) {
        if let Some(thread) = self.thread(process, id) {
            thread.registers.push(reference);
        }
    }

    /// Something new, inside the message or in the store.
    pub(super) fn new_body(&mut self, process: ProcessId, size: Size) -> Body {
        let large = match size {
            Size::Any => self.random.one_in(6),
            Size::Small => false,
            Size::Large => true,
        };
        if large {
            return Body::Stored(self.new_place(process, 0));
        }
        Body::Inline(self.random.number().to_le_bytes().to_vec().into())
    }

    pub(super) fn make_put(&mut self, process: ProcessId, id: u64, nested: Vec<RefSpec>) {
        // The digest is of the code, the value is drawn: a put that is made twice instead of adopted shows.
        let value = Value { body: self.new_body(process, Size::Any), nested };
        let Some(thread) = self.thread(process, id) else { return };
        thread.lane.advance();
        let object = thread.lane.put_id();
        let digest = digest(&(thread.next_op as u64).to_le_bytes());
        if thread.lane.repeated() {
            self.ask_put(process, id, object, digest, value);
        } else {
            self.forget_if_unknown(object);
            self.put(process, id, object, digest, value, false);
        }
    }

    fn ask_put(&mut self, process: ProcessId, id: u64, object: ObjectId, digest: u64, value: Value) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        entry.next_request += 1;
        let request = entry.next_request;
        if let Some(thread) = entry.threads.get_mut(&id) {
            thread.wait = Wait::Put(request, object, digest, value);
        }
        self.tell_node(process, &ToNode::Adopt { request, object, digest, items: 0 });
    }

    pub(super) fn put(
        &mut self,
        process: ProcessId,
        id: u64,
        object: ObjectId,
        digest: u64,
        value: Value,
        recorded: bool,
    ) {
        self.fill(process, id, Some(RefSpec { object, owner: process }));
        self.step_owner(process, owner::Event::Put { object, digest, value, recorded });
    }

    /// The node said whether what a repeated thread makes exists.
    pub(super) fn answer_thread(&mut self, process: ProcessId, request: u64, adoption: Adoption, attempt: u32) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let asker = entry.threads.iter_mut().find(|(_, thread)| match &thread.wait {
            Wait::Task(asked, _) | Wait::Put(asked, ..) | Wait::Reduce(asked, ..) => *asked == request,
            Wait::Nothing | Wait::Object(_) | Wait::Room | Wait::Fetch(..) => false,
        });
        let Some((&id, thread)) = asker else { return };
        let items = entry.found.remove(&request).unwrap_or_default();
        match std::mem::replace(&mut thread.wait, Wait::Nothing) {
            Wait::Task(_, spec) => {
                if spec.stream.is_some() && adoption != Adoption::Different {
                    self.step_owner(process, owner::Event::ItemsFound { task: spec.id, items });
                }
                self.adopted_task(process, id, *spec, adoption, attempt);
            }
            Wait::Put(_, object, digest, value) => self.adopted_put(process, id, object, digest, value, adoption),
            Wait::Reduce(_, object, wanted) => self.adopted_reduce(process, id, object, *wanted, adoption),
            Wait::Nothing | Wait::Object(_) | Wait::Room | Wait::Fetch(..) => {}
        }
        let waits = self.thread(process, id).is_none_or(|thread| !matches!(thread.wait, Wait::Nothing));
        if !waits {
            let after = self.random.within(1, 10);
            self.after(after, Happening::Ran(process, id));
        }
    }

    fn adopted_task(&mut self, process: ProcessId, id: u64, mut spec: TaskSpec, adoption: Adoption, attempt: u32) {
        let task = spec.id;
        match adoption {
            Adoption::New => {
                spec.attempt = attempt;
                self.forget_if_unknown(ObjectId::result(task, 0));
                self.submit(process, id, owner::Event::Submitted(spec), task);
            }
            Adoption::Finished(values) => {
                self.submit(process, id, owner::Event::Adopted { spec, values: Some(values) }, task);
            }
            Adoption::Running => self.submit(process, id, owner::Event::Adopted { spec, values: None }, task),
            Adoption::Different => {
                let Some(thread) = self.thread(process, id) else { return };
                if thread.lane.open_epoch() {
                    spec.id = thread.lane.task_id();
                    self.ask_task(process, id, spec);
                }
            }
        }
    }

    fn adopted_put(
        &mut self,
        process: ProcessId,
        id: u64,
        object: ObjectId,
        digest: u64,
        mine: Value,
        adoption: Adoption,
    ) {
        match adoption {
            Adoption::New | Adoption::Running => {
                self.forget_if_unknown(object);
                self.put(process, id, object, digest, mine, false);
            }
            Adoption::Finished(mut values) if values.len() == 1 => {
                let value = values.remove(0);
                self.put(process, id, object, digest, value, true);
            }
            Adoption::Finished(_) | Adoption::Different => {
                let Some(thread) = self.thread(process, id) else { return };
                if thread.lane.open_epoch() {
                    let object = thread.lane.put_id();
                    self.ask_put(process, id, object, digest, mine);
                }
            }
        }
    }

    /// What the ledger has dropped and nobody knows begins a new life.
    pub(super) fn forget_if_unknown(&mut self, object: ObjectId) {
        let known = self.processes.values().any(|entry| entry.owner.knows(&object));
        let recorded = self.hosts.values().any(|host| host.node.ledger().knows(object));
        if !known && !recorded {
            self.watch.freed(object);
        }
    }
}
