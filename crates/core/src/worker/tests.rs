//! Step tests: a state, an event, the exact effects.

#![allow(clippy::unwrap_used)]

mod concurrency;
mod idle;
mod streams;

use super::seat::RECENT_RESULTS_MAX;
use super::*;
use crate::failure::{Death, DeathCause};
use crate::id::{FunctionKey, ObjectId};
use crate::resources::{Amount, Resources};
use crate::shared::Shared;
use crate::spec::{ActorOptions, TaskOptions};

const OWNER: ProcessId = ProcessId::DRIVER;
const OTHER: ProcessId = ProcessId { node: crate::id::NodeId::ALONE, slot: 5, incarnation: 2 };
const LEASE: LeaseId = LeaseId(4);

struct Bench {
    worker: Worker,
    now: Tick,
    made: u64,
    processor_us: u64,
    /// How many calls each caller has sent.
    called: BTreeMap<ProcessId, u64>,
}

impl Bench {
    /// A worker with a seat for `OWNER`.
    fn leased() -> Self {
        let mut bench =
            Self { worker: Worker::default(), now: Tick(50), made: 0, processor_us: 0, called: BTreeMap::new() };
        assert_eq!(bench.node(FromNode::LeaseOpened { lease: LEASE, owner: OWNER, gpus: vec![] }), []);
        bench
    }

    /// A worker that hosts an actor.
    fn hosting() -> (Self, ActorId) {
        Self::hosting_with(1)
    }

    /// The same for one that runs so many calls at once.
    fn hosting_with(concurrency_max: u32) -> (Self, ActorId) {
        let (mut bench, spec) = Self::constructing(concurrency_max);
        let actor = ActorId(spec.id);
        let effects = bench.finish(ACTOR_SEAT, &spec, value(0));
        let constructed = Effect::Node(ToNode::ActorConstructed { actor, value: value(0) });
        assert_eq!(effects, [finished(&bench, &spec, value(0)), constructed]);
        (bench, actor)
    }

    /// A worker in which the constructor of an actor runs.
    fn constructing(concurrency_max: u32) -> (Self, Arc<TaskSpec>) {
        let mut bench =
            Self { worker: Worker::default(), now: Tick(50), made: 0, processor_us: 0, called: BTreeMap::new() };
        let spec = bench.spec(TaskKind::Create(ActorOptions { concurrency_max, ..ActorOptions::default() }));
        let (resolved, gpus) = (vec![], vec![]);
        let construct =
            FromNode::Construct { spec: spec.clone(), resolved, incarnation: 0, lane: 0, owner: OWNER, gpus };
        assert_eq!(bench.node(construct), [started(&bench, &spec), execute(ACTOR_SEAT, &spec)]);
        (bench, spec)
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.worker.step(event, self.now, &mut effects);
        effects
    }

    fn node(&mut self, message: FromNode) -> Vec<Effect> {
        self.step(Event::FromNode(message))
    }

    fn run(&mut self, from: ProcessId, lease: LeaseId, spec: &Arc<TaskSpec>) -> Vec<Effect> {
        if lease == ACTOR_SEAT {
            let number = self.called.entry(from).or_insert(0);
            *number += 1;
            let number = *number;
            return self.call_numbered(from, number, spec);
        }
        let message = Peer::Run { lease, spec: Arc::clone(spec), resolved: vec![] };
        self.step(Event::FromPeer { peer: from, message })
    }

    fn call_numbered(&mut self, from: ProcessId, number: u64, spec: &Arc<TaskSpec>) -> Vec<Effect> {
        let message = Peer::Call { number, spec: Arc::clone(spec), resolved: vec![] };
        self.step(Event::FromPeer { peer: from, message })
    }

    fn finish(&mut self, lease: LeaseId, spec: &TaskSpec, value: Value) -> Vec<Effect> {
        self.step(Event::Finished { lease, task: spec.id, values: vec![value] })
    }

    fn die(&mut self, process: ProcessId) -> Vec<Effect> {
        let cause = DeathCause::Signalled(9);
        let death = Death { process, pid: 1, cause, stderr_tail: String::new(), memory_peak_bytes: 0, culprit: None };
        self.node(FromNode::ProcessDied(Box::new(death)))
    }

    fn spec(&mut self, kind: TaskKind) -> Arc<TaskSpec> {
        self.made += 1;
        let root = TaskId::root(1, OWNER);
        let resources = Resources::cpus(Amount::whole(1));
        let options = TaskOptions { name: "work".into(), resources, ..TaskOptions::default() };
        Arc::new(TaskSpec {
            id: root.child(0, self.made, 0),
            parent: root,
            function: FunctionKey::of("work"),
            digest: 7,
            attempt: 0,
            lane: 0,
            depth: 1,
            returns: 1,
            kind,
            stream: None,
            options: Arc::new(options),
            dependencies: vec![],
            nested: vec![],
            payload: Shared::default(),
        })
    }

    fn task(&mut self) -> Arc<TaskSpec> {
        self.spec(TaskKind::Plain)
    }

    fn call(&mut self, actor: ActorId, caller: ProcessId, sequence: u64) -> Arc<TaskSpec> {
        self.spec(TaskKind::Call { actor, caller, sequence })
    }
}

fn value(byte: u8) -> Value {
    Value::inline(vec![byte])
}

fn started(bench: &Bench, spec: &TaskSpec) -> Effect {
    Effect::Record(Record::Started { at: bench.now, task: spec.id, attempt: spec.attempt })
}

fn execute(lease: LeaseId, spec: &Arc<TaskSpec>) -> Effect {
    Effect::Execute(Execution { lease, spec: Arc::clone(spec), lane: 0, resolved: vec![], gpus: vec![] })
}

fn finished(bench: &Bench, spec: &TaskSpec, value: Value) -> Effect {
    Effect::Record(Record::Finished { at: bench.now, task: spec.id, attempt: spec.attempt, values: vec![value] })
}

fn reply(to: ProcessId, spec: &TaskSpec, value: Value) -> Effect {
    let (task, attempt) = (spec.id, spec.attempt);
    Effect::Send { to, message: Peer::Reply { task, attempt, values: vec![value], duration_us: 0 } }
}

fn returned(tasks: &[&Arc<TaskSpec>], blocked: bool) -> Effect {
    let tasks = tasks.iter().map(|spec| spec.id).collect();
    Effect::Send { to: OWNER, message: Peer::Returned { lease: LEASE, tasks, blocked } }
}

#[test]
fn started_is_recorded_before_the_code_runs_and_finished_before_the_reply_wrk_2() {
    let mut bench = Bench::leased();
    let spec = bench.task();
    assert_eq!(bench.run(OWNER, LEASE, &spec), [started(&bench, &spec), execute(LEASE, &spec)]);
    assert!(bench.worker.is_running(&spec.id));
    let effects = bench.finish(LEASE, &spec, value(3));
    assert_eq!(effects, [finished(&bench, &spec, value(3)), reply(OWNER, &spec, value(3))]);
    assert!(!bench.worker.is_running(&spec.id));
    assert_eq!(bench.finish(LEASE, &spec, value(4)), [], "it ended already");
}

#[test]
fn a_seat_runs_one_task_at_a_time_in_the_order_of_arrival_wrk_1() {
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    assert_eq!(bench.run(OWNER, LEASE, &second), []);
    let effects = bench.finish(LEASE, &first, value(1));
    assert_eq!(effects[2..], [started(&bench, &second), execute(LEASE, &second)]);
}

#[test]
fn the_reply_tells_how_long_the_code_ran() {
    let mut bench = Bench::leased();
    let spec = bench.task();
    bench.run(OWNER, LEASE, &spec);
    bench.now = Tick(80);
    let effects = bench.finish(LEASE, &spec, value(1));
    assert!(matches!(&effects[1], Effect::Send { message: Peer::Reply { duration_us: 30, .. }, .. }), "{effects:?}");
}

#[test]
fn a_task_without_a_seat_is_handed_back() {
    let mut bench = Bench::leased();
    let spec = bench.task();
    let effects = bench.run(OWNER, LeaseId(77), &spec);
    let message = Peer::Returned { lease: LeaseId(77), tasks: vec![spec.id], blocked: false };
    assert_eq!(effects, [Effect::Send { to: OWNER, message }]);
}

#[test]
fn taking_back_leaves_the_running_task_and_what_is_to_be_kept_wrk_3() {
    let mut bench = Bench::leased();
    let specs: Vec<_> = (0..4).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.run(OWNER, LEASE, spec);
    }
    let take = |keep| Event::FromPeer { peer: OWNER, message: Peer::TakeBack { lease: LEASE, keep } };
    assert_eq!(bench.step(take(2)), [returned(&[&specs[2], &specs[3]], false)]);
    assert_eq!(bench.step(take(0)), [returned(&[&specs[1]], false)], "what runs stays");
    let effects = bench.finish(LEASE, &specs[0], value(1));
    assert_eq!(effects.len(), 2, "nothing is left to start: {effects:?}");
}

#[test]
fn a_task_that_waits_sends_its_queue_and_its_cpu_back() {
    let mut bench = Bench::leased();
    let (first, second, third) = (bench.task(), bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    bench.run(OWNER, LEASE, &second);
    let effects = bench.step(Event::Blocked { lease: LEASE });
    assert_eq!(effects, [returned(&[&second], true), Effect::Node(ToNode::Blocked { lease: LEASE })]);
    assert_eq!(bench.step(Event::Blocked { lease: LEASE }), []);
    assert_eq!(bench.run(OWNER, LEASE, &third), [returned(&[&third], true)]);
    assert_eq!(bench.step(Event::Unblocked { lease: LEASE }), [Effect::Node(ToNode::Unblocked { lease: LEASE })]);
    assert_eq!(bench.step(Event::Unblocked { lease: LEASE }), []);
    assert_eq!(bench.run(OWNER, LEASE, &third), []);
}

#[test]
fn a_task_that_ends_while_it_waits_takes_its_cpu_again_first() {
    let mut bench = Bench::leased();
    let spec = bench.task();
    bench.run(OWNER, LEASE, &spec);
    bench.step(Event::Blocked { lease: LEASE });
    let effects = bench.finish(LEASE, &spec, value(1));
    assert_eq!(effects[0], Effect::Node(ToNode::Unblocked { lease: LEASE }));
}

#[test]
fn references_are_accepted_on_arrival_lent_with_the_result_and_dismissed_after_the_reply() {
    let mut bench = Bench::leased();
    let inside = RefSpec { object: ObjectId::put(TaskId::root(2, OTHER), 0, 1, 0), owner: OTHER };
    let mut spec = bench.task();
    Arc::make_mut(&mut spec).nested = vec![inside];
    let effects = bench.run(OWNER, LEASE, &spec);
    assert_eq!(effects[0], Effect::Refs(RefsMoved::Arrived { from: OWNER, refs: vec![inside] }));
    let result = Value { nested: vec![inside], ..value(1) };
    let effects = bench.finish(LEASE, &spec, result.clone());
    let Effect::Send { message, .. } = reply(OWNER, &spec, result.clone()) else { panic!("a reply is sent") };
    let left = Effect::Refs(RefsMoved::Left { to: OWNER, message });
    let done = Effect::Refs(RefsMoved::Done(vec![inside]));
    assert_eq!(effects, [finished(&bench, &spec, result), left, done]);
}

#[test]
fn references_of_a_task_that_is_handed_back_are_dismissed() {
    let mut bench = Bench::leased();
    let inside = RefSpec { object: ObjectId::put(TaskId::root(2, OTHER), 0, 1, 0), owner: OTHER };
    let first = bench.task();
    let mut second = bench.task();
    Arc::make_mut(&mut second).nested = vec![inside];
    bench.run(OWNER, LEASE, &first);
    bench.run(OWNER, LEASE, &second);
    let effects = bench.step(Event::FromPeer { peer: OWNER, message: Peer::TakeBack { lease: LEASE, keep: 1 } });
    assert_eq!(effects, [returned(&[&second], false), Effect::Refs(RefsMoved::Done(vec![inside]))]);
}

#[test]
fn a_queued_task_is_cancelled_with_a_reply() {
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    bench.run(OWNER, LEASE, &second);
    let effects =
        bench.step(Event::FromPeer { peer: OWNER, message: Peer::Cancel { task: second.id, recursive: true } });
    let failed = Value::failed(Failure::Cancelled { task: second.id });
    assert_eq!(effects, [finished(&bench, &second, failed.clone()), reply(OWNER, &second, failed)]);
}

#[test]
fn a_running_task_is_flagged_and_so_are_its_children_unless_they_are_spared() {
    let mut bench = Bench::leased();
    let spec = bench.task();
    bench.run(OWNER, LEASE, &spec);
    let effects = bench.step(Event::FromPeer { peer: OWNER, message: Peer::Cancel { task: spec.id, recursive: true } });
    assert_eq!(effects, [Effect::Flag(spec.id), Effect::Refs(RefsMoved::ParentCancelled(spec.id))]);
    let spare = Peer::Cancel { task: spec.id, recursive: false };
    assert_eq!(bench.step(Event::FromPeer { peer: OWNER, message: spare }), [Effect::Flag(spec.id)]);
    let unknown = TaskId::root(3, OTHER);
    assert_eq!(
        bench.step(Event::FromPeer { peer: OWNER, message: Peer::Cancel { task: unknown, recursive: true } }),
        []
    );
}

#[test]
fn a_dead_owners_unstarted_tasks_are_dropped_and_its_running_one_ends_silently() {
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    bench.run(OWNER, LEASE, &second);
    assert_eq!(bench.die(OWNER), []);
    let effects = bench.finish(LEASE, &first, value(1));
    let back = Effect::Node(ToNode::ReturnLease { lease: LEASE });
    assert_eq!(effects, [finished(&bench, &first, value(1)), back], "recorded for whoever adopts it, sent to nobody");
    assert!(bench.worker.seats.is_empty());
}

#[test]
fn an_idle_seat_goes_with_its_owner() {
    let mut bench = Bench::leased();
    assert_eq!(bench.die(OWNER), [Effect::Node(ToNode::ReturnLease { lease: LEASE })]);
    assert!(bench.worker.seats.is_empty());
}

#[test]
fn a_closed_seat_returns_its_queue_and_goes_when_its_task_has_ended() {
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    bench.run(OWNER, LEASE, &second);
    assert_eq!(bench.node(FromNode::LeaseClosed { lease: LEASE }), [returned(&[&second], false)]);
    let effects = bench.finish(LEASE, &first, value(1));
    assert_eq!(effects, [finished(&bench, &first, value(1)), reply(OWNER, &first, value(1))]);
    assert!(bench.worker.seats.is_empty());
}

#[test]
fn calls_of_many_callers_run_one_by_one_in_the_order_of_arrival() {
    let (mut bench, actor) = Bench::hosting();
    let (first, second) = (bench.call(actor, OWNER, 0), bench.call(actor, OTHER, 0));
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &first), [started(&bench, &first), execute(ACTOR_SEAT, &first)]);
    assert_eq!(bench.run(OTHER, ACTOR_SEAT, &second), []);
    let effects = bench.finish(ACTOR_SEAT, &first, value(1));
    assert_eq!(effects[1], reply(OWNER, &first, value(1)));
    let effects = bench.finish(ACTOR_SEAT, &second, value(2));
    assert_eq!(effects[1], reply(OTHER, &second, value(2)));
}

#[test]
fn a_message_with_a_call_that_comes_twice_runs_once() {
    let (mut bench, actor) = Bench::hosting();
    let calls = [0, 1].map(|sequence| bench.call(actor, OWNER, sequence));
    bench.call_numbered(OWNER, 1, &calls[0]);
    bench.call_numbered(OWNER, 2, &calls[1]);
    // Also one that was tried again, whose sequence tells nothing.
    let mut again = calls[0].clone();
    Arc::make_mut(&mut again).attempt = 1;
    for number in [1, 2] {
        assert_eq!(bench.call_numbered(OWNER, number, &again), []);
    }
    assert_eq!(bench.finish(ACTOR_SEAT, &calls[0], value(1)).len(), 4, "the second one starts");
    assert_eq!(bench.finish(ACTOR_SEAT, &calls[1], value(1)).len(), 2, "and nothing behind it");
}

#[test]
fn a_call_that_never_came_ends_the_process_and_nothing_behind_it_runs() {
    let (mut bench, actor) = Bench::hosting();
    let calls = [0, 1, 2, 3].map(|sequence| bench.call(actor, OWNER, sequence));
    assert_eq!(bench.call_numbered(OWNER, 1, &calls[0]).len(), 2);
    let lost = Effect::Node(ToNode::CallLost { caller: OWNER, expected: 2, came: 3 });
    assert_eq!(bench.call_numbered(OWNER, 3, &calls[2]), [lost]);
    assert_eq!(bench.call_numbered(OWNER, 2, &calls[1]), [], "out of order is lost too");
    let other = bench.call(actor, OTHER, 0);
    assert_eq!(bench.call_numbered(OTHER, 1, &other), []);
    assert_eq!(bench.finish(ACTOR_SEAT, &calls[0], value(1)).len(), 2, "no other call starts");
}

#[test]
fn the_first_call_of_a_caller_is_missed_like_any_other() {
    let (mut bench, actor) = Bench::hosting();
    let call = bench.call(actor, OTHER, 0);
    let lost = Effect::Node(ToNode::CallLost { caller: OTHER, expected: 1, came: 2 });
    assert_eq!(bench.call_numbered(OTHER, 2, &call), [lost]);
}

#[test]
fn a_call_that_was_seen_before_is_dropped() {
    let (mut bench, actor) = Bench::hosting();
    let first = bench.call(actor, OWNER, 3);
    bench.run(OWNER, ACTOR_SEAT, &first);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &first), []);
    let effects = bench.finish(ACTOR_SEAT, &first, value(1));
    assert_eq!(effects.len(), 2, "it ran once: {effects:?}");
    let older = bench.call(actor, OWNER, 2);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &older), []);
}

#[test]
fn a_waiting_call_keeps_its_queue() {
    let (mut bench, actor) = Bench::hosting();
    let (first, second) = (bench.call(actor, OWNER, 0), bench.call(actor, OWNER, 1));
    bench.run(OWNER, ACTOR_SEAT, &first);
    bench.run(OWNER, ACTOR_SEAT, &second);
    let blocked = bench.step(Event::Blocked { lease: ACTOR_SEAT });
    assert_eq!(blocked, [Effect::Node(ToNode::Blocked { lease: ACTOR_SEAT })]);
    let third = bench.call(actor, OWNER, 2);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &third), [], "it waits its turn");
}

#[test]
fn a_retiring_actor_finishes_its_calls_and_exits() {
    let (mut bench, actor) = Bench::hosting();
    let (first, second) = (bench.call(actor, OWNER, 0), bench.call(actor, OWNER, 1));
    bench.run(OWNER, ACTOR_SEAT, &first);
    bench.run(OWNER, ACTOR_SEAT, &second);
    assert_eq!(bench.node(FromNode::Retire), []);
    let effects = bench.finish(ACTOR_SEAT, &first, value(1));
    assert!(!effects.contains(&Effect::Exit));
    let effects = bench.finish(ACTOR_SEAT, &second, value(1));
    assert_eq!(effects.last(), Some(&Effect::Exit));
}

#[test]
fn an_actor_that_moves_finishes_the_call_that_runs_and_begins_no_other() {
    let (mut bench, actor) = Bench::hosting();
    let calls: Vec<_> = (0..3).map(|sequence| bench.call(actor, OWNER, sequence)).collect();
    bench.run(OWNER, ACTOR_SEAT, &calls[0]);
    bench.run(OWNER, ACTOR_SEAT, &calls[1]);
    assert_eq!(bench.node(FromNode::Move), []);
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &calls[2]), []);
    let effects = bench.finish(ACTOR_SEAT, &calls[0], value(1));
    assert_eq!(effects.last(), Some(&Effect::Exit));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Execute(_))), "{effects:?}");
}

#[test]
fn an_actor_that_is_told_to_end_finishes_the_call_that_runs_and_begins_no_other() {
    let (mut bench, actor) = Bench::hosting();
    let calls: Vec<_> = (0..3).map(|sequence| bench.call(actor, OWNER, sequence)).collect();
    bench.run(OWNER, ACTOR_SEAT, &calls[0]);
    bench.run(OWNER, ACTOR_SEAT, &calls[1]);
    assert_eq!(bench.node(FromNode::End), []);
    let effects = bench.finish(ACTOR_SEAT, &calls[0], value(1));
    assert_eq!(effects.last(), Some(&Effect::Exit));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Execute(_))), "{effects:?}");
    assert_eq!(bench.run(OWNER, ACTOR_SEAT, &calls[2]), [], "its state is gone");
}

#[test]
fn a_worker_that_is_told_to_end_gives_its_tasks_up() {
    let mut bench = Bench::leased();
    let task = bench.task();
    bench.run(OWNER, LEASE, &task);
    assert_eq!(bench.node(FromNode::End), [Effect::Exit]);
}

#[test]
fn an_idle_worker_retires_at_once() {
    let mut bench = Bench::leased();
    assert_eq!(bench.node(FromNode::Retire), [Effect::Exit]);
}

fn run_after(bench: &mut Bench, spec: &Arc<TaskSpec>, made: &TaskSpec, index: u32) -> (Arc<TaskSpec>, Vec<Effect>) {
    let mut spec = Arc::clone(spec);
    let dependency = RefSpec { object: ObjectId::result(made.id, index), owner: OWNER };
    Arc::make_mut(&mut spec).dependencies = vec![dependency];
    let resolved = vec![Value::inline(Vec::new())];
    let message = Peer::RunAfter { lease: LEASE, spec: Arc::clone(&spec), resolved, ahead: vec![0] };
    let effects = bench.step(Event::FromPeer { peer: OWNER, message });
    (spec, effects)
}

#[test]
fn a_task_gets_the_result_of_the_one_before_it() {
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    let (second, effects) = run_after(&mut bench, &second, &first, 0);
    assert_eq!(effects, []);
    let effects = bench.finish(LEASE, &first, value(9));
    let execution =
        Execution { lease: LEASE, spec: Arc::clone(&second), lane: 0, resolved: vec![value(9)], gpus: vec![] };
    assert_eq!(effects.last(), Some(&Effect::Execute(execution)));
}

#[test]
fn a_task_whose_dependency_failed_or_is_not_there_goes_back_and_the_next_one_runs() {
    let mut bench = Bench::leased();
    let (first, second, third) = (bench.task(), bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    let (second, _) = run_after(&mut bench, &second, &first, 0);
    bench.run(OWNER, LEASE, &third);
    let failed = Value::failed(Failure::Cancelled { task: first.id });
    let effects = bench.finish(LEASE, &first, failed);
    assert_eq!(effects[2..], [returned(&[&second], false), started(&bench, &third), execute(LEASE, &third)]);

    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    let (second, effects) = run_after(&mut bench, &second, &first, 0);
    assert_eq!(effects, [returned(&[&second], false)]);
}

#[test]
fn results_with_references_inside_and_those_long_past_are_not_kept() {
    let inside = RefSpec { object: ObjectId::put(TaskId::root(2, OTHER), 0, 1, 0), owner: OTHER };
    let mut bench = Bench::leased();
    let (first, second) = (bench.task(), bench.task());
    bench.run(OWNER, LEASE, &first);
    bench.finish(LEASE, &first, Value { nested: vec![inside], ..value(1) });
    let (second, effects) = run_after(&mut bench, &second, &first, 0);
    assert_eq!(effects, [returned(&[&second], false)]);

    let mut bench = Bench::leased();
    let old = bench.task();
    bench.run(OWNER, LEASE, &old);
    bench.finish(LEASE, &old, value(1));
    for _ in 0..RECENT_RESULTS_MAX - 1 {
        let spec = bench.task();
        bench.run(OWNER, LEASE, &spec);
        bench.finish(LEASE, &spec, value(2));
    }
    let next = bench.task();
    let (next, effects) = run_after(&mut bench, &next, &old, 0);
    assert_eq!(effects.len(), 2, "the last sixteen are there");
    bench.finish(LEASE, &next, value(3));
    let late = bench.task();
    let (late, effects) = run_after(&mut bench, &late, &old, 0);
    assert_eq!(effects, [returned(&[&late], false)]);
}

/// Two tasks of a function that may run twice in a process.
fn limited(bench: &mut Bench) -> Arc<TaskSpec> {
    let mut spec = bench.task();
    let options = Arc::make_mut(&mut Arc::make_mut(&mut spec).options);
    options.calls_max = 2;
    spec
}

fn closing(lease: LeaseId) -> Effect {
    Effect::Send { to: OWNER, message: Peer::Closing { lease } }
}

#[test]
fn with_its_last_run_a_worker_is_spent_and_hands_back_what_is_behind() {
    let mut bench = Bench::leased();
    let specs: Vec<_> = (0..4).map(|_| limited(&mut bench)).collect();
    let other = bench.task();
    bench.run(OWNER, LEASE, &specs[0]);
    for spec in specs[1..].iter().chain([&other]) {
        assert_eq!(bench.run(OWNER, LEASE, spec), []);
    }
    let effects = bench.finish(LEASE, &specs[0], value(1));
    let behind = returned(&[&specs[2], &specs[3], &other], false);
    let spent = Effect::Node(ToNode::Spent);
    assert_eq!(
        effects[1..],
        [
            reply(OWNER, &specs[0], value(1)),
            started(&bench, &specs[1]),
            execute(LEASE, &specs[1]),
            spent,
            closing(LEASE),
            behind
        ]
    );
    let late = bench.task();
    assert_eq!(bench.run(OWNER, LEASE, &late), [closing(LEASE), returned(&[&late], false)]);
    let effects = bench.finish(LEASE, &specs[1], value(2));
    assert_eq!(effects, [finished(&bench, &specs[1], value(2)), reply(OWNER, &specs[1], value(2))]);
    assert_eq!(bench.node(FromNode::LeaseClosed { lease: LEASE }), []);
    assert_eq!(bench.node(FromNode::Retire), [Effect::Exit]);
}

#[test]
fn functions_are_counted_one_by_one_and_those_without_a_limit_not_at_all() {
    let mut bench = Bench::leased();
    for n in 0..5 {
        let mut spec = if n % 2 == 0 { bench.task() } else { limited(&mut bench) };
        Arc::make_mut(&mut spec).function = FunctionKey(n);
        assert_eq!(bench.run(OWNER, LEASE, &spec).len(), 2, "started and executed, no more");
        bench.finish(LEASE, &spec, value(1));
    }
}
