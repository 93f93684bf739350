//! Several drivers at once: whose processes serve whom, and what the end of a driver leaves.

use super::*;
use crate::id::{DRIVERS_MAX, FIRST_ATTACHED_SLOT, JobId};
use crate::message::RequestId;
use crate::value::{Body, Location, RefSpec};

const FIRST: JobId = JobId(11);
const SECOND: JobId = JobId(12);
const D1: ProcessId = worker(FIRST_ATTACHED_SLOT, 1);
const D2: ProcessId = worker(FIRST_ATTACHED_SLOT + 1, 1);
const AT: Location = Location { node: crate::id::NodeId::ALONE, entry: 4, generation: 1, offset: 0, len: 1 << 20 };

fn daemon(prestart: u32, processes_max: u32) -> Fixture {
    let machine = NodeConfig::for_machine(cpus(4.0));
    Fixture::with(NodeConfig { job: None, prestart, processes_max, ..machine })
}

impl Fixture {
    fn attach(&mut self, job: JobId) -> (ProcessId, Vec<Effect>) {
        let process = self.node.next_driver().unwrap();
        let effects = self.step(Event::DriverAttached { process, pid: 7, job });
        (process, effects)
    }

    fn both(prestart: u32, processes_max: u32) -> Self {
        let mut f = daemon(prestart, processes_max);
        f.attach(FIRST);
        f.attach(SECOND);
        f
    }

    fn leave(&mut self, driver: ProcessId) -> Vec<Effect> {
        self.step(Event::DriverGone(death(driver)))
    }

    /// Exits of all that is being ended; gives what came of it.
    fn die(&mut self, effects: &[Effect]) -> Vec<Effect> {
        ended(effects).into_iter().flat_map(|process| self.exit(process)).collect()
    }

    /// Everybody who lives settles and reads what was sent, of every death.
    fn settle_all(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some((dead, waiting)) = self.node.settling.first_key_value() {
            let (dead, process) = (*dead, *waiting.first().unwrap());
            effects.extend(self.ask(process, ToNode::Settled { dead }));
        }
        while let Some((dead, waiting)) = self.node.flushing.first_key_value() {
            let (dead, process) = (*dead, *waiting.first().unwrap());
            effects.extend(self.ask(process, ToNode::Flushed { dead }));
        }
        for _ in 0..4 {
            effects.extend(self.step(Event::Passed));
        }
        effects
    }

    /// What is left of anything at all, but for the jobs that are named.
    fn assert_empty_but_for(&self, jobs: &[JobId]) {
        let node = &self.node;
        assert_eq!(node.jobs.all.keys().copied().collect::<Vec<_>>(), jobs);
        assert!(node.pool.workers.values().all(|worker| jobs.contains(&worker.job)));
        assert!(node.leases.values().all(|lease| node.live.contains(&lease.owner)), "{:?}", node.leases);
        assert!(node.queue.all().all(|(_, waiting)| jobs.contains(&waiting.job)));
        assert!(node.actors.all.values().all(|actor| jobs.contains(&actor.job)));
        let owner = |object| node.ledger.owner(object).unwrap();
        let tasks = node.ledger.task_ids().into_iter().map(|task| owner(ObjectId::result(task, 0)));
        let owners: Vec<ProcessId> = tasks.chain(node.ledger.put_ids().into_iter().map(owner)).collect();
        assert!(owners.iter().all(|owner| node.live.contains(owner)), "{owners:?}");
        let tables = [node.orphans.len(), node.claims.len(), node.loans.len(), node.inside.len(), node.settling.len()];
        assert_eq!(tables, [0; 5]);
        let more = [node.lingering.len(), node.flushing.len(), node.resolving.len(), node.adopters.len()];
        assert_eq!((more, node.questions.len(), node.freed_but_claimed.len()), ([0; 4], 0, 0));
    }
}

fn stored() -> Value {
    Value { body: Body::Stored(AT), nested: Vec::new() }
}

fn detached(driver: ProcessId, name: &str, restarts_max: u32) -> Arc<TaskSpec> {
    let options = ActorOptions { name: Some(name.into()), restarts_max, detached: true, ..ActorOptions::default() };
    spec(root(driver), 50, TaskKind::Create(options), cpus(1.0))
}

/// The first driver has a detached actor in worker-2.1.
fn with_detached(restarts_max: u32) -> (Fixture, ActorId) {
    let mut f = Fixture::both(0, 8);
    let create = detached(D1, "keeper of keys", restarts_max);
    f.submit(D1, &create);
    f.ask(D1, ToNode::CreateActor { spec: create.clone(), resolved: Vec::new() });
    f.hello(W2);
    f.ask(W2, ToNode::ActorConstructed { actor: actor_of(&create), value: Value::inline(vec![]) });
    (f, actor_of(&create))
}

/// The processes that are killed, or asked to end.
fn ended(effects: &[Effect]) -> Vec<ProcessId> {
    let ended = effects.iter().filter_map(|effect| match effect {
        Effect::Kill(process) | Effect::Send { to: process, message: FromNode::End } => Some(*process),
        _ => None,
    });
    ended.collect()
}

fn found(f: &mut Fixture, who: ProcessId, request: RequestId) -> Option<(ActorId, ProcessId, FunctionKey)> {
    let mut effects = f.ask(who, ToNode::FindActor { request, name: "keeper of keys".into() });
    effects.extend(f.step(Event::Passed));
    effects.extend(f.step(Event::Passed));
    effects.into_iter().find_map(|effect| match effect {
        Effect::Send { message: FromNode::ActorFound { found, .. }, .. } => Some(found),
        _ => None,
    })?
}

#[test]
fn a_daemon_starts_workers_for_each_job_that_comes() {
    let mut f = daemon(1, 8);
    assert_eq!(f.step(Event::Started), []);
    assert_eq!(f.attach(FIRST), (D1, vec![Effect::Spawn(W2)]));
    assert_eq!(f.attach(SECOND), (D2, vec![Effect::Spawn(W3)]));
    assert_eq!((f.node.job_of(W2), f.node.job_of(W3)), (Some(FIRST), Some(SECOND)));
    assert_eq!((f.node.job_of(D2), f.node.job_of(W4)), (Some(SECOND), None));
}

#[test]
fn a_process_serves_one_job_job_1() {
    let mut f = Fixture::both(1, 8);
    f.hello(W2);
    f.hello(W3);
    assert_eq!(granted(&f.want(D2, 1, cpus(1.0))), [(LeaseId(1), W3)], "worker-2.1 is idle and not its own");
    assert_eq!(spawned(&f.want(D2, 1, cpus(1.0))), [W4]);
    assert_eq!(granted(&f.want(D1, 1, cpus(1.0)))[0].1, W2);
}

#[test]
fn idle_workers_of_one_job_end_when_another_needs_the_room_and_do_not_come_back_before_it() {
    let mut f = Fixture::both(1, 2);
    f.hello(W2);
    f.hello(W3);
    let effects = f.want(D2, 2, cpus(1.0));
    assert!(effects.contains(&to(W2, FromNode::Retire)), "{effects:?}");
    f.exit(W2);
    let effects = f.settle_all();
    assert_eq!(spawned(&effects), [worker(2, 2)]);
    assert_eq!(f.node.job_of(worker(2, 2)), Some(SECOND));
}

#[test]
fn starts_that_fail_in_one_job_are_no_concern_of_another() {
    let mut f = Fixture::both(0, 8);
    f.want(D1, 1, cpus(1.0));
    for slot in 0..3 {
        let process = f.node.pool.workers.keys().copied().next().unwrap();
        let cause = DeathCause::NotStarted("no such file".into());
        let effects = f.step(Event::WorkerExited(Death { cause, ..death(process) }));
        let told = |effect: &Effect| matches!(effect, Effect::Send { message: FromNode::Infeasible { .. }, .. });
        assert_eq!(effects.iter().any(told), slot == 2);
    }
    assert_eq!(spawned(&f.want(D2, 1, cpus(1.0))).len(), 1);
}

#[test]
fn the_end_of_a_driver_ends_its_job_and_leaves_nothing() {
    let mut f = Fixture::both(1, 8);
    f.hello(W2);
    f.hello(W3);
    f.want(D1, 3, cpus(1.0));
    f.hello(W4);
    let task = plain(root(D1), 1);
    f.submit(D1, &task);
    f.start(W2, task.id);
    let child = plain(task.id, 1);
    f.submit(W2, &child);
    f.want(W2, 1, cpus(1.0));
    f.record(D1, Record::Put { object: ObjectId::put(root(D1), 0, 1, 0), digest: 1, value: stored() });
    let create = actor_spec(9, Some("mine"), 5);
    f.submit(D1, &create);
    f.ask(D1, ToNode::CreateActor { spec: create, resolved: Vec::new() });
    f.ask(D1, ToNode::Publish { request: 1, function: FunctionKey(5), code: vec![1] });
    let kept = ObjectId::put(root(D2), 0, 1, 0);
    f.record(D2, Record::Put { object: kept, digest: 1, value: Value::inline(vec![2]) });

    let effects = f.leave(D1);
    let gone = ended(&effects);
    assert_eq!(gone.len(), f.node.pool.workers.len() - 1, "all but the other job's");
    assert!(!gone.contains(&W3));
    for process in &gone {
        let asked = effects.contains(&to(*process, FromNode::End));
        assert_eq!(asked, f.node.live.contains(process), "who can hear is asked: {process}");
    }
    assert_eq!(f.want(W2, 1, cpus(1.0)), [], "a worker that is being ended with its job gets nothing more");
    assert_eq!(f.leave(D1), [], "a second report changes nothing");
    let mut ended = f.die(&effects);
    assert_eq!(ended.iter().filter(|effect| matches!(effect, Effect::EndJob(FIRST))).count(), 1);
    assert_eq!(ended.iter().filter(|effect| matches!(effect, Effect::CloseJob(FIRST))).count(), 1);
    ended.extend(f.settle_all());
    assert!(ended.contains(&Effect::FreeStored(AT)));
    assert!(ended.contains(&Effect::CloseProcess(D1)));
    f.assert_empty_but_for(&[SECOND]);
    assert!(f.node.ledger.knows(kept));
    let lookup = f.ask(D2, ToNode::Lookup { request: 1, function: FunctionKey(5) });
    assert_eq!(lookup, [to(D2, FromNode::Code { request: 1, function: FunctionKey(5), code: None })]);
    assert_eq!(f.node.free, f.node.config.total);
    assert_eq!(f.node.next_driver(), Some(worker(FIRST_ATTACHED_SLOT, 2)));
}

#[test]
fn a_slot_of_a_driver_is_used_again_when_its_death_is_settled() {
    let mut f = Fixture::both(0, 8);
    f.leave(D1);
    assert_eq!(f.node.next_driver().map(|next| next.slot), Some(FIRST_ATTACHED_SLOT + 2), "DEATH-1");
    assert_eq!(f.ask(D2, ToNode::Settled { dead: D1 }), [Effect::CloseProcess(D1)]);
    assert_eq!(f.attach(JobId(13)).0, worker(FIRST_ATTACHED_SLOT, 2));
}

#[test]
fn there_are_no_more_drivers_than_the_maximum() {
    let mut f = daemon(0, 8);
    for job in 0..u64::from(DRIVERS_MAX) {
        f.attach(JobId(job));
    }
    assert_eq!(f.node.next_driver(), None);
}

#[test]
fn what_another_job_holds_outlives_the_job_that_made_it() {
    let mut f = Fixture::both(0, 8);
    let object = ObjectId::put(root(D1), 0, 1, 0);
    f.record(D1, Record::Put { object, digest: 1, value: stored() });
    f.leave(D1);
    f.ask(D2, ToNode::Claim { object, count: 1, home: crate::id::NodeId::ALONE });
    assert!(!f.settle_all().contains(&Effect::FreeStored(AT)));
    f.ask(D2, ToNode::Claim { object, count: -1, home: crate::id::NodeId::ALONE });
    assert!(f.settle_all().contains(&Effect::FreeStored(AT)));
    f.assert_empty_but_for(&[SECOND]);
}

#[test]
fn a_detached_actor_outlives_its_driver_and_is_found_by_the_next() {
    let (mut f, actor) = with_detached(0);
    let effects = f.leave(D1);
    assert!(effects.contains(&Effect::EndJob(FIRST)) && ended(&effects).is_empty(), "{effects:?}");
    f.settle_all();
    assert_eq!(f.node.job_of(W2), Some(FIRST));
    let node = ProcessId::of_node(crate::id::NodeId::ALONE);
    assert_eq!(found(&mut f, D2, 1), Some((actor, node, FunctionKey(1))), "the node answers for it");
    let at = FromNode::ActorAt { actor, process: W2, incarnation: 0, concurrency_max: 1 };
    assert_eq!(f.ask(D2, ToNode::WatchActor { actor, manager: crate::id::NodeId::ALONE }), [link(D2, W2), to(D2, at)]);
    let resolve = ToNode::Resolve { object: actor.object(), home: crate::id::NodeId::ALONE };
    let value = Value::inline(vec![]);
    let told = FromNode::Resolved { object: actor.object(), value, home: crate::id::NodeId::ALONE };
    assert_eq!(f.ask(D2, resolve), [to(D2, told)]);
    let effects = f.ask(D2, ToNode::KillActor { actor, manager: crate::id::NodeId::ALONE, restart: false });
    let effects = f.die(&effects);
    assert!(effects.contains(&Effect::CloseJob(FIRST)), "{effects:?}");
    f.settle_all();
    f.assert_empty_but_for(&[SECOND]);
    assert_eq!(found(&mut f, D2, 2), None);
}

#[test]
fn a_detached_actor_is_not_ended_by_its_last_handle_and_starts_again_without_its_driver() {
    let (mut f, actor) = with_detached(1);
    assert_eq!(f.ask(D1, ToNode::ReleaseActor { actor }), []);
    f.leave(D1);
    f.settle_all();
    let effects = f.exit(W2);
    assert_eq!(spawned(&effects), [W3]);
    assert_eq!(f.node.job_of(W3), Some(FIRST), "JOB-1: its code is its job's");
    let effects = f.hello(W3);
    let Some(Effect::Send { message: FromNode::Construct { owner, incarnation, .. }, .. }) = effects.first() else {
        panic!("{effects:?}")
    };
    assert!(owner.is_node() && *incarnation == 1);
}

#[test]
fn what_a_detached_actor_was_given_stays_while_it_may_start_again() {
    let mut f = Fixture::both(0, 8);
    let object = ObjectId::put(root(D1), 0, 1, 0);
    f.record(D1, Record::Put { object, digest: 1, value: stored() });
    let mut create = Arc::unwrap_or_clone(detached(D1, "keeper of keys", 1));
    create.dependencies.push(RefSpec { object, owner: D1 });
    let actor = actor_of(&create);
    f.ask(D1, ToNode::CreateActor { spec: Arc::new(create), resolved: vec![stored()] });
    f.hello(W2);
    f.ask(W2, ToNode::ActorConstructed { actor, value: Value::inline(vec![]) });
    f.leave(D1);
    assert!(!f.settle_all().contains(&Effect::FreeStored(AT)));
    let effects = f.ask(D2, ToNode::KillActor { actor, manager: crate::id::NodeId::ALONE, restart: false });
    f.die(&effects);
    assert!(f.settle_all().contains(&Effect::FreeStored(AT)));
    f.assert_empty_but_for(&[SECOND]);
}

#[test]
fn what_a_detached_actor_has_started_goes_on_without_the_driver() {
    let (mut f, actor) = with_detached(0);
    f.leased(W2, 1, cpus(1.0));
    let own = spec(actor.0, 1, TaskKind::Create(ActorOptions::default()), cpus(1.0));
    f.ask(W2, ToNode::CreateActor { spec: own, resolved: Vec::new() });
    f.hello(W4);
    assert_eq!(f.node.pool.workers.len(), 3);
    let effects = f.leave(D1);
    assert!(ended(&effects).is_empty(), "{effects:?}");
    f.settle_all();
    assert_eq!(spawned(&f.want_at(W2, 1, 1, cpus(1.0), 0)).len(), 1, "it may start more");
}

#[test]
fn a_driver_that_writes_nonsense_is_dismissed_and_its_job_ends_with_the_reason() {
    let mut f = Fixture::both(0, 8);
    let corrupt = Event::ProcessCorrupt { process: D1, reason: "bad length".into() };
    assert_eq!(f.step(corrupt.clone()), [Effect::Kill(D1)]);
    assert_eq!(f.step(corrupt), [], "once");
    let effects = f.leave(D1);
    let expected = Death { pid: 7, cause: DeathCause::Corrupt("bad length".into()), ..death(D1) };
    assert!(effects.contains(&to(D2, FromNode::ProcessDied(Box::new(expected)))), "{effects:?}");
}

#[test]
fn drivers_are_told_from_workers_by_their_name() {
    assert!(D1.is_driver() && DRIVER.is_driver() && !W2.is_driver());
    assert_eq!((D1.to_string(), D2.to_string()), ("driver-1.1".into(), "driver-2.1".into()));
    assert_eq!((DRIVER.to_string(), W2.to_string()), ("driver".into(), "worker-2.1".into()));
}

#[test]
fn what_is_started_ahead_leaves_room_for_what_another_job_waits_for() {
    let mut f = Fixture::both(0, 1);
    f.want(D1, 3, cpus(1.0));
    assert_eq!(f.node.wanted_by_others(SECOND), 2, "one is being started");
    assert_eq!(f.node.wanted_by_others(FIRST), 0);
}
