use super::*;
use crate::failure::Failure;
use crate::message::Between;
use crate::schedule::{Load, Row};

fn create(f: &mut Fixture, spec: &Arc<TaskSpec>) -> Vec<Effect> {
    f.submit(DRIVER, spec);
    f.ask(DRIVER, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() })
}

fn construct(spec: &Arc<TaskSpec>, incarnation: u32, lane: u32) -> FromNode {
    FromNode::Construct { spec: spec.clone(), resolved: Vec::new(), incarnation, lane, owner: DRIVER, gpus: Vec::new() }
}

fn constructed(f: &mut Fixture, process: ProcessId, spec: &TaskSpec) -> Vec<Effect> {
    f.finish(process, spec.id, Value::inline(vec![]));
    f.ask(process, ToNode::ActorConstructed { actor: actor_of(spec), value: Value::inline(vec![]) })
}

pub(super) fn alive(f: &mut Fixture, spec: &Arc<TaskSpec>) {
    create(f, spec);
    f.hello(W2);
    constructed(f, W2, spec);
}

fn watch(f: &mut Fixture, spec: &TaskSpec) -> Vec<Effect> {
    f.ask(DRIVER, ToNode::WatchActor { actor: actor_of(spec), manager: crate::id::NodeId::ALONE })
}

fn dead(spec: &TaskSpec, reason: &str) -> Effect {
    to(DRIVER, FromNode::ActorDead { actor: actor_of(spec), reason: reason.into() })
}

fn names(request: u64, names: &[&str]) -> Effect {
    to(DRIVER, FromNode::Names { request, names: names.iter().map(|name| (*name).to_owned()).collect() })
}

#[test]
fn an_actor_gets_a_process_its_owner_and_watchers_hear_of_it() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 0);
    let actor = actor_of(&spec);
    assert_eq!(create(&mut f, &spec), [Effect::Spawn(W2)]);
    assert_eq!(watch(&mut f, &spec), [], "not there yet");
    assert_eq!(f.hello(W2), [to(W2, construct(&spec, 0, 0))]);
    let value = Value::inline(vec![]);
    let at = FromNode::ActorAt { actor, process: W2, incarnation: 0, concurrency_max: 1 };
    let created = to(DRIVER, FromNode::ActorCreated { actor, value });
    assert_eq!(constructed(&mut f, W2, &spec), [created, link(DRIVER, W2), to(DRIVER, at.clone())]);
    assert_eq!(constructed(&mut f, W2, &spec), [], "once");
    assert_eq!(watch(&mut f, &spec), [link(DRIVER, W2), to(DRIVER, at)]);
    assert_eq!(f.node.free.cpus, Amount(0), "held for its life");
    assert_eq!(create(&mut f, &spec), [], "a repeated creation changes nothing");
}

#[test]
fn an_actor_waits_for_resources_and_never_shares() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let spec = actor_spec(1, None, 0);
    assert_eq!(create(&mut f, &spec), []);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    assert_eq!(spawned(&effects), [W3], "a process without a past");
}

#[test]
fn an_actor_in_an_idle_worker_is_constructed_at_once() {
    let mut f = Fixture::with(NodeConfig { prestart: 1, processes_max: 1, ..NodeConfig::for_machine(cpus(1.0)) });
    f.step(Event::Started);
    f.hello(W2);
    let spec = actor_spec(1, None, 0);
    assert_eq!(create(&mut f, &spec), [to(W2, construct(&spec, 0, 0))]);
}

#[test]
fn a_constructor_that_fails_ends_the_actor_for_everybody() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, Some("store"), 3);
    let actor = actor_of(&spec);
    create(&mut f, &spec);
    watch(&mut f, &spec);
    f.hello(W2);
    let value = Value::failed(crate::failure::Failure::ShutDown);
    let effects = f.ask(W2, ToNode::ActorConstructed { actor, value: value.clone() });
    let reason = "its constructor failed: the runtime was shut down";
    let created = to(DRIVER, FromNode::ActorCreated { actor, value });
    assert_eq!(effects, [Effect::Kill(W2), created, dead(&spec, reason)]);
    assert_eq!(f.node.free.cpus, Amount(0), "held until the process is gone");
    f.exit(W2);
    assert_eq!(f.node.free, f.node.config.total);
    assert_eq!(watch(&mut f, &spec), [dead(&spec, reason)]);
}

#[test]
fn a_name_belongs_to_one_actor_until_that_is_dead() {
    let mut f = Fixture::new(2);
    let (first, second) = (actor_spec(1, Some("store"), 0), actor_spec(2, Some("store"), 0));
    create(&mut f, &first);
    let find = ToNode::FindActor { request: 5, name: "store".into() };
    let found = Some((actor_of(&first), DRIVER, FunctionKey(1)));
    assert_eq!(f.ask(DRIVER, find.clone()), [to(DRIVER, FromNode::ActorFound { request: 5, found })]);
    let effects = create(&mut f, &second);
    let [Effect::Send { to: DRIVER, message: FromNode::ActorCreated { value, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    let taken = crate::failure::Failure::NameTaken { name: "store".into(), holder: actor_of(&first) };
    assert_eq!(value.failure(), Some(&taken));
    assert_eq!(watch(&mut f, &second), [dead(&second, &taken.to_string())], "its callers hear why");
    assert_eq!(f.ask(DRIVER, ToNode::QueryNames { request: 6 }), [names(6, &["store"])]);
    f.hello(W2);
    f.ask(DRIVER, ToNode::KillActor { actor: actor_of(&first), manager: crate::id::NodeId::ALONE, restart: false });
    f.exit(W2);
    assert_eq!(f.ask(DRIVER, find), [], "an actor of this name may be in another ring");
    f.step(Event::Passed);
    assert_eq!(f.step(Event::Passed), [to(DRIVER, FromNode::ActorFound { request: 5, found: None })]);
    assert_eq!(create(&mut f, &second), [Effect::Spawn(W3)]);
}

#[test]
fn an_infeasible_actor_is_refused_at_once() {
    let mut f = Fixture::new(1);
    let spec = spec(root(DRIVER), 1, TaskKind::Create(ActorOptions::default()), cpus(2.0));
    let effects = create(&mut f, &spec);
    assert!(matches!(&effects[..], [Effect::Send { message: FromNode::ActorCreated { value, .. }, .. }]
        if value.failure().unwrap().to_string().contains("2 CPUs")));
}

#[test]
fn a_death_restarts_the_actor_while_restarts_are_left() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 1);
    let actor = actor_of(&spec);
    alive(&mut f, &spec);
    watch(&mut f, &spec);
    let effects = f.exit(W2);
    let reason = "worker-2.1 (pid 102) killed by signal 9 (SIGKILL)".to_string();
    let expected = [
        to(DRIVER, died(W2, DeathCause::Signalled(9))),
        to(DRIVER, FromNode::ActorRestarting { actor, reason, moved: false }),
        Effect::Spawn(W3),
    ];
    assert_eq!(effects, expected);
    assert_eq!(f.settle(DRIVER, W2), [Effect::CloseProcess(W2)]);
    assert_eq!(f.hello(W3), [to(W3, construct(&spec, 1, 1))], "a second life names what it makes anew");
    let at = FromNode::ActorAt { actor, process: W3, incarnation: 1, concurrency_max: 1 };
    assert_eq!(constructed(&mut f, W3, &spec), [link(DRIVER, W3), to(DRIVER, at)], "the owner hears nothing new");
    let effects = f.exit(W3);
    assert_eq!(effects[1], dead(&spec, "worker-3.1 (pid 103) killed by signal 9 (SIGKILL)"));
}

#[test]
fn a_constructor_that_did_not_end_is_run_again_as_the_same_task() {
    let mut f = Fixture::new(1);
    let mut spec = actor_spec(1, None, 1);
    create(&mut f, &spec);
    f.hello(W2);
    f.exit(W2);
    f.settle(DRIVER, W2);
    Arc::make_mut(&mut spec).attempt = 1;
    assert_eq!(f.hello(W3), [to(W3, construct(&spec, 1, 0))], "it adopts what it has made");
}

#[test]
fn killing_is_final_unless_a_restart_is_asked_for() {
    for (restart, restarted) in [(true, true), (false, false)] {
        let mut f = Fixture::new(1);
        let spec = actor_spec(1, None, 1);
        let kill = ToNode::KillActor { actor: actor_of(&spec), manager: crate::id::NodeId::ALONE, restart };
        alive(&mut f, &spec);
        watch(&mut f, &spec);
        assert_eq!(f.ask(DRIVER, kill.clone()), [to(W2, FromNode::End)]);
        assert_eq!(f.ask(DRIVER, kill.clone()), [], "a double kill changes nothing");
        let effects = f.exit(W2);
        let spawns = !spawned(&effects).is_empty();
        assert_eq!(spawns, restarted);
        if !restarted {
            assert_eq!(effects[1], dead(&spec, "it was killed"));
            assert_eq!(f.ask(DRIVER, kill), []);
        }
    }
}

#[test]
fn killing_or_watching_an_unknown_actor_is_defined() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 1);
    assert_eq!(
        f.ask(DRIVER, ToNode::KillActor { actor: actor_of(&spec), manager: crate::id::NodeId::ALONE, restart: false }),
        []
    );
    assert_eq!(watch(&mut f, &spec), [], "its creation may be in another ring");
    assert_eq!(f.step(Event::Passed), []);
    assert_eq!(f.step(Event::Passed), [dead(&spec, "unknown actor")]);
    assert!(!f.node.wants_pass());
}

#[test]
fn a_pass_that_left_rings_out_does_not_make_an_actor_unknown() {
    let mut f = Fixture::new(1);
    let (spec, found) = (actor_spec(1, None, 1), actor_spec(2, Some("store"), 0));
    assert_eq!(watch(&mut f, &spec), []);
    f.ask(DRIVER, ToNode::FindActor { request: 5, name: "store".into() });
    for _ in 0..5 {
        assert_eq!(f.step(Event::PassedInPart), [], "its creation may be in a ring that is not read");
    }
    create(&mut f, &found);
    let effects = f.step(Event::PassedInPart);
    assert!(matches!(&effects[..], [Effect::Send { message: FromNode::ActorFound { found: Some(_), .. }, .. }]));
    assert_eq!(f.step(Event::Passed), []);
    assert_eq!(f.step(Event::Passed), [dead(&spec, "unknown actor")]);
}

#[test]
fn a_record_that_came_before_its_task_waits_for_rings_that_are_not_read() {
    let mut f = Fixture::new(1);
    let task = crate::id::TaskId::root(1, DRIVER);
    f.step(Event::Recorded { process: W2, record: crate::record::Record::Started { at: f.now, task, attempt: 0 } });
    for _ in 0..20 {
        f.step(Event::PassedInPart);
        assert!(f.node.ledger().task(task).is_some());
    }
    for _ in 0..20 {
        f.step(Event::Passed);
    }
    assert!(f.node.ledger().task(task).is_none());
}

#[test]
fn a_handle_that_overtakes_its_actor_finds_it() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, Some("store"), 0);
    f.ask(DRIVER, ToNode::FindActor { request: 5, name: "store".into() });
    assert_eq!(watch(&mut f, &spec), []);
    assert!(f.node.wants_pass());
    create(&mut f, &spec);
    let effects = f.step(Event::Passed);
    assert!(
        matches!(&effects[..], [Effect::Send { message: FromNode::ActorFound { found: Some(_), .. }, .. }]),
        "{effects:?}"
    );
    f.hello(W2);
    let effects = constructed(&mut f, W2, &spec);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Send { message: FromNode::ActorAt { .. }, .. })));
}

#[test]
fn a_released_actor_finishes_its_calls_and_ends() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 5);
    let release = ToNode::ReleaseActor { actor: actor_of(&spec) };
    alive(&mut f, &spec);
    assert_eq!(f.ask(W2, release.clone()), [], "only the owner can");
    assert_eq!(f.ask(DRIVER, release), [to(W2, FromNode::Retire)]);
    f.exit(W2);
    assert_eq!(watch(&mut f, &spec), [dead(&spec, "all handles were dropped")], "no restart");
}

#[test]
fn a_released_creation_that_has_not_begun_is_cancelled() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 0);
    create(&mut f, &spec);
    let effects = f.ask(DRIVER, ToNode::ReleaseActor { actor: actor_of(&spec) });
    assert!(matches!(&effects[..], [Effect::Send { message: FromNode::ActorCreated { .. }, .. }]));
    assert_eq!(f.node.free, f.node.config.total);
    assert_eq!(f.hello(W2), [], "its process is nobody's");
    assert_eq!(granted(&f.want(DRIVER, 1, cpus(1.0))), [(LeaseId(1), W2)]);
}

#[test]
fn an_actor_whose_process_cannot_be_started_fails_with_the_reason() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 0);
    create(&mut f, &spec);
    let mut last = Vec::new();
    for n in 1..=3 {
        last = f.exit(worker(2, n));
    }
    assert!(
        matches!(&last[1], Effect::Send { message: FromNode::ActorCreated { value, .. }, .. }
        if value.failure().unwrap().to_string().contains("3 starts failed")),
        "{last:?}"
    );
    assert_eq!(f.node.free, f.node.config.total);
}

#[test]
fn a_blocked_actor_gives_its_cpu_back() {
    let mut f = Fixture::new(1);
    let spec = actor_spec(1, None, 0);
    alive(&mut f, &spec);
    let lease = LeaseId(0);
    f.ask(W2, ToNode::Blocked { lease });
    f.ask(W2, ToNode::Blocked { lease });
    assert_eq!(f.node.free.cpus, Amount::whole(1));
    f.ask(W2, ToNode::Unblocked { lease });
    assert_eq!(f.node.free.cpus, Amount(0));
    f.exit(W2);
    assert_eq!(f.node.free, f.node.config.total);
}

#[test]
fn actors_end_with_their_owner() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.0));
    let create = spec(root(W2), 1, TaskKind::Create(ActorOptions::default()), cpus(1.0));
    f.submit(W2, &create);
    f.ask(W2, ToNode::CreateActor { spec: create.clone(), resolved: Vec::new() });
    f.hello(W3);
    constructed(&mut f, W3, &create);
    f.exit(W2);
    f.settle(W3, W2);
    assert_eq!(f.settle(DRIVER, W2), [Effect::CloseProcess(W2), to(W3, FromNode::End)]);
    f.exit(W3);
    assert_eq!(watch(&mut f, &create), [dead(&create, "its owner worker-2.1 died")]);
}

#[test]
fn an_actor_that_a_node_refused_is_placed_once_when_that_node_dies() {
    let mut f = Fixture::with(NodeConfig { id: NodeId::HEAD, prestart: 0, ..NodeConfig::for_machine(cpus(1.0)) });
    let (first, second) = (NodeId(2), NodeId(3));
    for node in [first, second] {
        f.step(Event::NodeJoined { node, total: cpus(2.0) });
    }
    let driver = ProcessId::first_driver(NodeId::HEAD);
    let spec = spec(root(driver), 1, TaskKind::Create(ActorOptions::default()), cpus(2.0));
    let actor = actor_of(&spec);
    let hosted = |effects: &[Effect]| {
        let asked = |effect: &Effect| matches!(effect, Effect::Tell { message: Between::Host { .. }, .. });
        effects.iter().filter(|effect| asked(effect)).count()
    };
    let record = Record::Submitted { at: f.now, spec: Arc::clone(&spec) };
    f.step(Event::Recorded { process: driver, record });
    let request = ToNode::CreateActor { spec, resolved: vec![] };
    let mut effects = f.step(Event::Requested { process: driver, request });
    assert_eq!(hosted(&effects), 1, "{effects:?}");
    // Both refuse it: what they have is taken by others.
    let mut last = first;
    for _ in 0..2 {
        let asked = effects.iter().find_map(|effect| match effect {
            Effect::Tell { node, message: Between::Host { .. } } => Some(*node),
            _ => None,
        });
        let Some(from) = asked else { break };
        last = from;
        let failure = Failure::Infeasible { asked: "2 CPUs".into(), available: "nothing".into() };
        let message = Between::Unhosted { actor, incarnation: 0, failure };
        effects = f.step(Event::Heard { from, message });
    }
    let left = if last == first { second } else { first };
    let mut places = hosted(&f.step(Event::NodeDied { node: last, reason: "it left".into() }));
    let row = Row { node: left, age_us: 0, load: Load::idle(cpus(2.0)) };
    places += hosted(&f.step(Event::Loads(vec![row.clone()])));
    places += hosted(&f.step(Event::Loads(vec![row])));
    assert_eq!(places, 1);
}

#[test]
fn an_owner_has_its_own_living_actors_and_no_others() {
    let mut f = Fixture::new(4);
    let (first, second) = (actor_spec(1, None, 0), actor_spec(2, None, 0));
    create(&mut f, &first);
    create(&mut f, &second);
    assert_eq!(f.node.actors.of_owner(W3), [], "of somebody else");
    let mut both = [actor_of(&first), actor_of(&second)];
    both.sort();
    assert_eq!(f.node.actors.of_owner(DRIVER), both);
    f.ask(DRIVER, ToNode::KillActor { actor: both[0], manager: crate::id::NodeId::ALONE, restart: false });
    f.exit(W2);
    f.exit(W3);
    assert!(!f.node.actors.of_owner(DRIVER).contains(&both[0]), "dead");
}
