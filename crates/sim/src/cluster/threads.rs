//! Threads of user code: the interpreter of a program's jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bireme_core::failure::Failure;
use bireme_core::id::{ActorId, FunctionKey, GroupId, LeaseId, ObjectId, ProcessId, TaskId};
use bireme_core::lane::Lane;
use bireme_core::message::ToNode;
use bireme_core::owner;
use bireme_core::resources::{Amount, Resources};
use bireme_core::spec::{ActorOptions, GroupStrategy, Strategy, TaskKind, TaskOptions, TaskSpec};
use bireme_core::value::{Body, Location, RefSpec, Value};
use bireme_core::worker::{self, Execution};

use super::reduces::Reducing;
use super::{Cluster, Happening};
use crate::planted::Planted;
use crate::program::{JobId, Op, Register};

/// What a thread waits for.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    Nothing,
    Object(ObjectId),
    /// Room for the next item of its own stream.
    Room,
    /// The node's answer about what it is about to make.
    Task(u64, Box<TaskSpec>),
    Put(u64, ObjectId, u64, Value),
    Reduce(u64, ObjectId, Box<Reducing>),
    /// A copy of what lies on another node.
    Fetch(u64, ObjectId, Location),
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The seat and the task; none for the driver's own code.
    pub(super) seat: Option<(LeaseId, Arc<TaskSpec>)>,
    job: JobId,
    pub(super) lane: Lane,
    pub(super) next_op: usize,
    pub(super) registers: Vec<Option<RefSpec>>,
    pub(super) wait: Wait,
    flagged: bool,
    /// The placement group that it made.
    group: Option<GroupId>,
    /// Which item of a stream is next, and whether its handle is open.
    pub(super) cursors: BTreeMap<Register, (u32, bool)>,
    /// Copies that came, or why they do not, and where they were to come from.
    pub(super) fetched: BTreeMap<ObjectId, (Location, Result<Location, String>)>,
    /// Arguments that it has not read yet.
    unread: Vec<(RefSpec, Value)>,
}

/// The error for which a job is tried again.
const FLAKY: &str = "Flaky";

impl Thread {
    pub(super) fn waits_for(&self, object: ObjectId) -> bool {
        matches!(self.wait, Wait::Object(waited) if waited == object)
    }

    /// The task that it runs.
    pub fn task(&self) -> Option<TaskId> {
        self.seat.as_ref().map(|(_, spec)| spec.id)
    }

    /// Handles of items that it waits for.
    pub(super) fn open_items(&self) -> Vec<(Register, ObjectId)> {
        let open = self.cursors.iter().filter(|(_, (_, open))| *open);
        let end = |register: &Register| self.registers.get(*register).copied().flatten();
        open.filter_map(|(register, (index, _))| {
            Some((*register, ObjectId::item(end(register)?.object.task(), *index)))
        })
        .collect()
    }

    fn references(&self, registers: &[Register]) -> Vec<RefSpec> {
        registers.iter().filter_map(|register| self.registers.get(*register).copied().flatten()).collect()
    }
}

impl Cluster {
    /// The driver's own code begins.
    pub(super) fn start_root(&mut self, driver: ProcessId, lane: usize) {
        let root = TaskId::root(1, driver);
        let lane_number = u32::try_from(lane).expect("a program has few roots");
        let thread = Thread {
            seat: None,
            job: self.program.roots[lane],
            lane: Lane::new(root, lane_number, 0, false),
            next_op: 0,
            registers: Vec::new(),
            wait: Wait::Nothing,
            flagged: false,
            group: None,
            cursors: BTreeMap::new(),
            fetched: BTreeMap::new(),
            unread: Vec::new(),
        };
        self.add_thread(driver, thread);
    }

    /// A task begins.
    pub(super) fn start_thread(&mut self, process: ProcessId, execution: Execution) {
        let Execution { lease, spec, lane, resolved, gpus } = execution;
        self.note(|| format!("{process} runs {} attempt {} of {}", spec.id, spec.attempt, spec.options.name));
        let job = usize::try_from(spec.function.0).expect("a job's number");
        self.watch.started(process, lease, &spec, &gpus, self.retries_max(&spec, job));
        self.watch.served(process, self.job_of(process), &spec);
        self.watch.began(process, &spec, self.program.jobs[job].concurrency_max);
        let unread = spec.dependencies.iter().copied().zip(resolved.iter().cloned()).collect();
        let mut registers: Vec<Option<RefSpec>> = spec.nested.iter().copied().map(Some).collect();
        registers.extend(resolved.iter().flat_map(|value| &value.nested).copied().map(Some));
        for reference in registers.clone().into_iter().flatten() {
            self.step_owner(process, owner::Event::RefAdded(reference));
        }
        let repeated = spec.attempt > 0 && self.planted != Some(Planted::AdoptNotAsked);
        let thread = Thread {
            job,
            lane: Lane::new(spec.id, lane, spec.depth, repeated),
            seat: Some((lease, spec)),
            next_op: 0,
            registers,
            wait: Wait::Nothing,
            flagged: false,
            group: None,
            cursors: BTreeMap::new(),
            fetched: BTreeMap::new(),
            unread,
        };
        self.add_thread(process, thread);
    }

    /// How often the program allows a run to be tried again. The constructor of an actor runs in each of its lives.
    fn retries_max(&self, spec: &TaskSpec, job: JobId) -> u32 {
        match &spec.kind {
            TaskKind::Create(options) => options.restarts_max,
            TaskKind::Plain | TaskKind::Call { .. } => self.program.jobs[job].retries_max,
        }
    }

    fn add_thread(&mut self, process: ProcessId, thread: Thread) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let id = entry.next_thread;
        entry.next_thread += 1;
        entry.threads.insert(id, thread);
        let after = self.random.within(1, 20);
        self.after(after, Happening::Ran(process, id));
    }

    pub(super) fn flag_thread(&mut self, process: ProcessId, task: TaskId) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        for thread in entry.threads.values_mut().filter(|thread| thread.task() == Some(task)) {
            thread.flagged = true;
        }
    }

    /// The object that a thread waits for has a value.
    pub(super) fn resume_thread(&mut self, process: ProcessId, id: u64) {
        let Some(thread) = self.processes.get_mut(&process).and_then(|entry| entry.threads.get_mut(&id)) else {
            return;
        };
        thread.wait = Wait::Nothing;
        let lease = thread.seat.as_ref().map(|(lease, _)| *lease);
        if let Some(lease) = lease {
            self.step_worker(process, worker::Event::Unblocked { lease });
        }
        let after = self.random.within(1, 20);
        self.after(after, Happening::Ran(process, id));
    }

    /// One operation.
    pub(super) fn run_thread(&mut self, process: ProcessId, id: u64) {
        if self.is_blocked(process) {
            self.after(super::shell::BLOCKED_US, Happening::Ran(process, id));
            return;
        }
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(thread) = entry.threads.get_mut(&id) else { return };
        if !matches!(thread.wait, Wait::Nothing) {
            return;
        }
        if thread.flagged && thread.seat.is_some() {
            let task = thread.lane.task();
            self.finish_thread(process, id, Err(Failure::Cancelled { task }));
            return;
        }
        if !thread.unread.is_empty() {
            self.read_argument(process, id);
            return;
        }
        let op = self.program.jobs[thread.job].ops.get(thread.next_op).cloned().unwrap_or(Op::Return(vec![]));
        thread.next_op += 1;
        let thread = thread.clone();
        let mut pause = self.random.within(1, 10);
        match op {
            Op::Work(us) => {
                let work = self.random.within(1, 2 * us);
                self.worked_us += work;
                pause = work * self.faults.nodes.pace(process.node);
            }
            Op::Submit { job, dependencies, nested, fickle } => {
                let nonce = if fickle { self.random.number() } else { 0 };
                let (dependencies, nested) = (thread.references(&dependencies), thread.references(&nested));
                let spec = self.spec(&thread, TaskKind::Plain, job, dependencies, nested, nonce);
                self.make_task(process, id, spec);
            }
            Op::Create { job, restarts_max, nested } => {
                let concurrency_max = self.program.jobs[job].concurrency_max;
                let kind = TaskKind::Create(ActorOptions { restarts_max, concurrency_max, ..ActorOptions::default() });
                let spec = self.spec(&thread, kind, job, vec![], thread.references(&nested), 0);
                self.make_task(process, id, spec);
            }
            Op::Call { actor, job, dependencies, nested } => match thread.registers.get(actor).copied().flatten() {
                Some(handle) => {
                    let actor = ActorId(handle.object.task());
                    let kind = TaskKind::Call { actor, caller: process, sequence: 0 };
                    let (dependencies, nested) = (thread.references(&dependencies), thread.references(&nested));
                    let spec = self.spec(&thread, kind, job, dependencies, nested, 0);
                    self.make_task(process, id, spec);
                }
                None => self.fill(process, id, None),
            },
            Op::Put(nested) => self.make_put(process, id, thread.references(&nested)),
            Op::Get(register) => self.get(process, id, register, false),
            Op::Open(register) => self.get(process, id, register, true),
            Op::Drop(register) => self.drop_register(process, id, register),
            Op::Yield(nested) => self.yield_item(process, id, thread.references(&nested)),
            Op::Next { stream, keep } => self.next_item(process, id, stream, keep),
            Op::Skip { stream, items } => self.skip_items(process, id, stream, items),
            Op::Cancel { object, force } => {
                let object = thread.registers.get(object).copied().flatten().map(|r| r.object);
                let wanted = self.faulty && self.faults.cancel_one_in.is_some_and(|n| self.random.one_in(n));
                if let Some(object) = object.filter(|_| wanted) {
                    let recursive = self.random.one_in(2);
                    self.note(|| format!("{process} cancels {object}"));
                    self.step_owner(process, owner::Event::Cancelled { object, force, recursive });
                }
            }
            Op::Group { packing, tenths } => self.make_group(process, id, packing, &tenths),
            Op::Ungroup => {
                if let Some(group) = thread.group {
                    self.watch.group_removed();
                    self.tell_node(process, &ToNode::RemoveGroup { group });
                }
            }
            Op::Reduce { inputs, count, op, options } => {
                let inputs = thread.references(&inputs);
                self.make_reduce(process, id, Reducing::new(inputs, count, op, options));
            }
            Op::Broadcast(register) => {
                if let Some(reference) = thread.registers.get(register).copied().flatten() {
                    self.broadcast(process, reference);
                }
            }
            Op::Apply => self.apply(process, &thread),
            Op::Keep(register) => self.keep(process, id, register),
            Op::Fail => {
                let (task, name) = (thread.lane.task(), self.program.jobs[thread.job].name.to_owned());
                let failure = Failure::Returned { task, name, type_name: "Planned".into(), message: "planned".into() };
                self.finish_thread(process, id, Err(failure));
                return;
            }
            Op::Flake if thread.seat.as_ref().is_some_and(|(_, spec)| spec.attempt == 0) => {
                let (task, name) = (thread.lane.task(), self.program.jobs[thread.job].name.to_owned());
                let failure = Failure::Returned { task, name, type_name: FLAKY.into(), message: "planned".into() };
                self.finish_thread(process, id, Err(failure));
                return;
            }
            Op::Flake => {}
            Op::Return(nested) => {
                self.finish_thread(process, id, Ok(thread.references(&nested)));
                return;
            }
        }
        self.after(pause, Happening::Ran(process, id));
    }

    fn make_group(&mut self, process: ProcessId, id: u64, strategy: GroupStrategy, tenths: &[u64]) {
        let Some(thread) = self.thread(process, id) else { return };
        thread.lane.advance();
        let group = GroupId(thread.lane.task_id());
        thread.group = Some(group);
        let bundles = tenths.iter().map(|tenths| Resources::cpus(Amount(tenths * 1_000))).collect();
        self.tell_node(process, &ToNode::CreateGroup { group, name: None, strategy, bundles, detached: false });
    }

    /// Reads the next argument, when it is here.
    fn read_argument(&mut self, process: ProcessId, id: u64) {
        let Some((reference, value)) = self.thread(process, id).and_then(|thread| thread.unread.last().cloned()) else {
            return;
        };
        if !self.can_read(process, id, reference, &value) {
            return;
        }
        if let Some(value) = self.read(process, id, reference, &value) {
            self.watch.observed(reference.object, &value, process);
        }
        if let Some(thread) = self.thread(process, id) {
            thread.unread.pop();
        }
        let after = self.random.within(1, 5);
        self.after(after, Happening::Ran(process, id));
    }

    fn spec(
        &self,
        thread: &Thread,
        kind: TaskKind,
        job: JobId,
        dependencies: Vec<RefSpec>,
        nested: Vec<RefSpec>,
        nonce: u64,
    ) -> TaskSpec {
        let code = &self.program.jobs[job];
        let options = TaskOptions {
            name: code.name.into(),
            resources: Resources {
                gpus: Amount(code.gpu_tenths * 1_000),
                ..Resources::cpus(Amount(code.cpu_tenths * 1_000))
            },
            retries_max: code.retries_max,
            retry_on: code.ops.iter().filter(|op| matches!(op, Op::Flake)).map(|_| FLAKY.into()).collect(),
            environment: code.environment,
            calls_max: code.calls_max,
            threads_per_worker: code.threads_per_worker,
            strategy: thread.group.map_or(code.strategy, |group| Strategy::Group { group, bundle: None }),
            ..TaskOptions::default()
        };
        let mut spec = TaskSpec {
            id: thread.lane.task(),
            parent: thread.lane.task(),
            function: FunctionKey(job as u64),
            digest: 0,
            attempt: 0,
            lane: 0,
            depth: thread.lane.child_depth(),
            returns: code.returns,
            kind,
            stream: code.stream,
            options: Arc::new(options),
            dependencies,
            nested,
            payload: nonce.to_le_bytes().to_vec().into(),
        };
        spec.digest = spec.compute_digest();
        spec
    }

    pub(super) fn thread(&mut self, process: ProcessId, id: u64) -> Option<&mut Thread> {
        self.processes.get_mut(&process)?.threads.get_mut(&id)
    }

    fn get(&mut self, process: ProcessId, id: u64, register: Register, open: bool) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(thread) = entry.threads.get_mut(&id) else { return };
        let Some(reference) = thread.registers.get(register).copied().flatten() else {
            if open {
                thread.registers.push(None);
            }
            return;
        };
        let object = reference.object;
        if let Some(value) = entry.owner.value(&object).cloned() {
            if !self.can_read(process, id, reference, &value) {
                if let Some(thread) = self.thread(process, id) {
                    thread.next_op -= 1;
                }
                return;
            }
            if let Some(value) = self.read(process, id, reference, &value) {
                self.watch.observed(object, &value, process);
            }
            if open {
                let inside = value.nested.first().copied();
                self.fill(process, id, inside);
                if let Some(inside) = inside {
                    self.step_owner(process, owner::Event::RefAdded(inside));
                }
            }
            return;
        }
        // Not there yet: the same operation runs again when it is.
        thread.next_op -= 1;
        self.wait_for(process, id, object);
    }

    pub(super) fn wait_for(&mut self, process: ProcessId, id: u64, object: ObjectId) {
        let Some(thread) = self.thread(process, id) else { return };
        thread.wait = Wait::Object(object);
        let lease = thread.seat.as_ref().map(|(lease, _)| *lease);
        self.step_owner(process, owner::Event::Wanted(object));
        let waits = self.thread(process, id).is_some_and(|thread| thread.waits_for(object));
        if let Some(lease) = lease.filter(|_| waits) {
            self.step_worker(process, worker::Event::Blocked { lease });
        }
    }

    fn drop_register(&mut self, process: ProcessId, id: u64, register: Register) {
        let Some(thread) = self.thread(process, id) else { return };
        let open = thread.open_items();
        thread.cursors.retain(|stream, _| *stream != register);
        for object in open.into_iter().filter(|(stream, _)| *stream == register).map(|(_, object)| object) {
            self.step_owner(process, owner::Event::RefDropped(object));
        }
        let Some(thread) = self.thread(process, id) else { return };
        if let Some(reference) = thread.registers.get_mut(register).and_then(Option::take) {
            self.step_owner(process, owner::Event::RefDropped(reference.object));
        }
    }

    fn keep(&mut self, process: ProcessId, id: u64, register: Register) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(thread) = entry.threads.get_mut(&id) else { return };
        if let Some(reference) = thread.registers.get_mut(register).and_then(Option::take) {
            entry.kept.push(reference.object);
        }
    }

    fn apply(&mut self, process: ProcessId, thread: &Thread) {
        let Some((_, spec)) = &thread.seat else { return };
        let TaskKind::Call { actor, caller, sequence } = spec.kind else { return };
        self.watch.applied(process, actor, (caller, spec.parent), sequence, spec.id);
        if self.planted == Some(Planted::DoubleExecution) && self.random.one_in(20) {
            self.watch.applied(process, actor, (caller, spec.parent), sequence, spec.id);
        }
    }

    pub(super) fn finish_thread(&mut self, process: ProcessId, id: u64, outcome: Result<Vec<RefSpec>, Failure>) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(thread) = entry.threads.remove(&id) else { return };
        let size = self.program.jobs[thread.job].size;
        if let Some((lease, spec)) = &thread.seat {
            if let (Ok(_), Some(items)) = (&outcome, entry.worker.items(&spec.id)) {
                self.watch.whole(spec.id, items);
            }
            if outcome.is_ok() {
                self.watch.done(process, spec);
            }
            let values = match outcome {
                Ok(nested) => {
                    // What a constructor returns is a unit.
                    let unit = matches!(spec.kind, TaskKind::Create(_)).then(|| Body::Inline(vec![0].into()));
                    let mut values: Vec<Value> = (0..spec.returns)
                        .map(|_| unit.clone().unwrap_or_else(|| self.new_body(process, size)))
                        .map(|body| Value { body, nested: Vec::new() })
                        .collect();
                    if let Some(first) = values.first_mut() {
                        first.nested = nested;
                    }
                    values
                }
                Err(failure) => vec![Value::failed(failure)],
            };
            self.watch.produced(spec.attempt, &values);
            self.watch.ended(process, spec.id);
            self.step_worker(process, worker::Event::Finished { lease: *lease, task: spec.id, values });
        }
        for (_, object) in thread.open_items() {
            self.step_owner(process, owner::Event::RefDropped(object));
        }
        for reference in thread.registers.into_iter().flatten() {
            self.step_owner(process, owner::Event::RefDropped(reference.object));
        }
        self.arm_owner(process);
    }
}
