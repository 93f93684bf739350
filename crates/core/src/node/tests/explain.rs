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
    assert_eq!(explain(&mut f, &task), format!("{name} is with its owner driver, which waits for its arguments"));
    f.leased(DRIVER, 1, cpus(1.0));
    let waits = format!("{name} waits for its arguments at driver, or is queued behind other tasks: ");
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
    assert!(explain(&mut f, &create).contains("its owner waits for its arguments"));
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
