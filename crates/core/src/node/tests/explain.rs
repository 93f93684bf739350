use super::*;

fn explain(f: &mut Fixture, spec: &TaskSpec) -> String {
    let effects = f.ask(DRIVER, ToNode::Explain { request: 3, task: spec.id });
    let [Effect::Send { to: DRIVER, message: FromNode::Explained { request: 3, text } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    text.clone()
}

#[test]
fn a_queued_task_names_what_is_free_and_who_holds_the_rest() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.5));
    let holder = spec(root(DRIVER), 1, TaskKind::Plain, cpus(1.5));
    f.submit(DRIVER, &holder);
    f.start(W2, holder.id);
    let queued = spec(root(DRIVER), 2, TaskKind::Plain, cpus(2.0));
    f.submit(DRIVER, &queued);
    f.want_at(DRIVER, 1, 1, cpus(2.0), 0);
    f.now = Tick(12_300_000);
    let expected = format!(
        "{} (work) is queued for 2 CPUs (waiting 12.3 s): 0.5 of 2 CPUs are free; held by: worker-2.1 (pid 102) running \
         `work` for 12.3 s",
        queued.id
    );
    assert_eq!(explain(&mut f, &queued), expected);
}

#[test]
fn every_stage_of_a_task_has_its_words() {
    let mut f = Fixture::new(1);
    let task = plain(root(DRIVER), 1);
    let name = format!("{} (work)", task.id);
    assert!(explain(&mut f, &task).contains("is not known to the node"));
    f.submit(DRIVER, &task);
    assert_eq!(
        explain(&mut f, &task),
        format!("{name} is with its owner driver, which has not asked for a worker yet")
    );
    f.leased(DRIVER, 1, cpus(1.0));
    let waits = format!("{name} is queued behind other tasks at driver: ");
    assert_eq!(explain(&mut f, &task), waits + "worker-2.1 (pid 102) leased and idle");
    f.start(W2, task.id);
    f.now = Tick(2_000_000);
    assert_eq!(explain(&mut f, &task), format!("worker-2.1 (pid 102) has been running {name} for 2.0 s"));
    f.exit(W2);
    let lost = format!("{name} was running on worker-2.1, which is dead; driver has to run it again");
    assert_eq!(explain(&mut f, &task), lost);
    f.finish(W2, task.id, Value::inline(vec![]));
    assert_eq!(explain(&mut f, &task), format!("{name} is done"));
}

#[test]
fn calls_and_constructors_say_where_their_actor_is() {
    let mut f = Fixture::new(1);
    let create = actor_spec(1, None, 0);
    let actor = actor_of(&create);
    let call = TaskKind::Call { actor, caller: DRIVER, sequence: 0 };
    let call = spec(root(DRIVER), 2, call, cpus(0.0));
    f.submit(DRIVER, &create);
    f.submit(DRIVER, &call);
    assert!(explain(&mut f, &create).ends_with(&format!("has not been asked to start {actor} yet")));
    f.ask(DRIVER, ToNode::CreateActor { spec: create.clone(), resolved: Vec::new() });
    assert!(explain(&mut f, &call).ends_with(&format!("is a call of {actor}: {actor} starts on worker-2.1")));
    f.hello(W2);
    f.ask(W2, ToNode::ActorConstructed { actor, value: Value::inline(vec![]) });
    let text = explain(&mut f, &call);
    assert!(text.ends_with(&format!("queued behind other calls; worker-2.1 (pid 102) hosting {actor}")), "{text}");
}

#[test]
fn the_tables_list_everything() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.0));
    let task = plain(root(DRIVER), 1);
    f.submit(DRIVER, &task);
    f.start(W2, task.id);
    let create = actor_spec(2, Some("store"), 0);
    f.ask(DRIVER, ToNode::CreateActor { spec: create, resolved: Vec::new() });
    let snapshot = f.node.snapshot(Tick(5));
    assert_eq!((snapshot.tasks.len(), snapshot.objects.len()), (1, 1));
    assert_eq!((snapshot.workers.len(), snapshot.leases.len(), snapshot.actors.len()), (2, 1, 1));
    assert_eq!(snapshot.actors[0].name.as_deref(), Some("store"));
    assert_eq!(snapshot.resources.free.cpus, Amount(0));
    let bytes = postcard::to_allocvec(&snapshot).unwrap();
    assert_eq!(postcard::from_bytes::<crate::ledger::Snapshot>(&bytes).unwrap(), snapshot);
}

/// An actor that lives in this process and runs a call, which waits.
fn waiting_actor(f: &mut Fixture, n: u64, process: ProcessId) -> (ActorId, Arc<TaskSpec>) {
    let mut create = actor_spec(n, None, 0);
    Arc::make_mut(&mut create).options = Arc::new(TaskOptions { name: "Made".into(), ..TaskOptions::default() });
    let actor = actor_of(&create);
    f.submit(DRIVER, &create);
    f.ask(DRIVER, ToNode::CreateActor { spec: create, resolved: Vec::new() });
    f.hello(process);
    f.ask(process, ToNode::ActorConstructed { actor, value: Value::inline(vec![]) });
    let outer = call(root(DRIVER), n, actor, DRIVER);
    f.submit(DRIVER, &outer);
    f.start(process, outer.id);
    f.ask(process, ToNode::Blocked { lease: super::super::leases::ACTOR_LEASE });
    (actor, outer)
}

fn call(parent: TaskId, n: u64, actor: ActorId, caller: ProcessId) -> Arc<TaskSpec> {
    spec(parent, 100 + n, TaskKind::Call { actor, caller, sequence: n }, cpus(0.0))
}

#[test]
fn an_actor_that_calls_itself_is_told_so() {
    let mut f = Fixture::new(2);
    let (actor, outer) = waiting_actor(&mut f, 1, W2);
    let inner = call(outer.id, 1, actor, W2);
    f.submit(W2, &inner);
    let text = explain(&mut f, &inner);
    let circle = format!("calls in a circle: `work` of {actor}, which waits for `work` of {actor}, and so on");
    assert!(text.contains(&circle) && text.contains("it waits for itself for ever"), "{text}");
    let text = explain(&mut f, &outer);
    assert!(text.contains("has been running") && text.contains(&circle), "{text}");
    // One that goes on while its call is queued is in no circle.
    f.ask(W2, ToNode::Unblocked { lease: super::super::leases::ACTOR_LEASE });
    assert!(!explain(&mut f, &inner).contains("circle"));
}

#[test]
fn actors_that_wait_for_calls_of_each_other_are_named_also_to_who_waits_behind_them() {
    let mut f = Fixture::new(4);
    let (first, of_first) = waiting_actor(&mut f, 1, W2);
    let (second, of_second) = waiting_actor(&mut f, 2, W3);
    let there = call(of_first.id, 1, second, W2);
    let back = call(of_second.id, 2, first, W3);
    let behind = call(root(DRIVER), 3, first, DRIVER);
    f.submit(W2, &there);
    assert!(!explain(&mut f, &there).contains("circle"), "the second waits for something else");
    f.submit(W3, &back);
    f.submit(DRIVER, &behind);
    for asked in [&there, &back, &behind] {
        let text = explain(&mut f, asked);
        assert!(text.contains("calls in a circle") && text.contains("wait for each other for ever"), "{text}");
        assert!(text.contains(&first.to_string()) && text.contains(&second.to_string()), "{text}");
    }
}

#[test]
fn a_task_between_two_calls_of_one_actor_belongs_to_the_circle() {
    let mut f = Fixture::new(4);
    let (actor, outer) = waiting_actor(&mut f, 1, W2);
    let between = plain(outer.id, 7);
    f.submit(W2, &between);
    let (lease, worker) = f.leased(W2, 1, cpus(1.0))[0];
    f.start(worker, between.id);
    f.ask(worker, ToNode::Blocked { lease });
    let inner = call(between.id, 1, actor, worker);
    f.submit(worker, &inner);
    let text = explain(&mut f, &inner);
    assert!(text.contains("calls in a circle") && text.contains("which waits for `work`, and so on"), "{text}");
}

#[test]
fn the_limit_of_processes_is_named_with_what_to_do() {
    let config = NodeConfig { prestart: 0, processes_max: 1, ..NodeConfig::for_machine(cpus(8.0)) };
    let mut f = Fixture::with(config);
    let (first, second) = (actor_spec(1, None, 0), actor_spec(2, None, 0));
    for create in [&first, &second] {
        f.submit(DRIVER, create);
        f.ask(DRIVER, ToNode::CreateActor { spec: Arc::clone(create), resolved: Vec::new() });
    }
    f.hello(W2);
    let text = explain(&mut f, &second);
    let limit = "there are 1 worker processes, as many as there may be (workers_max, processes_max): 1 are actors'";
    assert!(text.contains(limit), "{text}");
    assert!(f.node.overview(f.now).waiting[0].why.contains(limit));
}
