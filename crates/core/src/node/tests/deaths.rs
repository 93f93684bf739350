use super::*;
use crate::failure::Failure;
use crate::message::Adoption;
use crate::value::{Body, Location};

const AT: Location = Location { node: crate::id::NodeId::ALONE, entry: 4, generation: 1, offset: 0, len: 1 << 20 };

fn stored() -> Value {
    Value { body: Body::Stored(AT), nested: Vec::new() }
}

fn resolved(process: ProcessId, object: ObjectId, value: Value) -> Effect {
    to(process, FromNode::Resolved { object, value, home: crate::id::NodeId::ALONE })
}

/// The answer about something that was recorded with attempt 0.
fn adopted(process: ProcessId, adoption: Adoption) -> Effect {
    let attempt = u32::from(adoption == Adoption::New);
    to(process, FromNode::Adopted { request: 1, adoption, attempt, started: false })
}

/// The same about one that had begun to run.
fn lost_run(process: ProcessId) -> Effect {
    to(process, FromNode::Adopted { request: 1, adoption: Adoption::New, attempt: 1, started: true })
}

fn adopt(f: &mut Fixture, process: ProcessId, object: ObjectId) -> Vec<Effect> {
    f.ask(process, ToNode::Adopt { request: 1, object, digest: 7, items: 0 })
}

fn result(spec: &TaskSpec) -> ObjectId {
    ObjectId::result(spec.id, 0)
}

/// Passes until the question is ripe.
fn passes(f: &mut Fixture) -> Vec<Effect> {
    let mut effects = f.step(Event::Passed);
    effects.extend(f.step(Event::Passed));
    effects
}

/// The driver's task `parent` runs on worker-2.1, which has submitted `child`; worker-3.1 is leased to worker-2.1.
struct Family {
    f: Fixture,
    parent: Arc<TaskSpec>,
    child: Arc<TaskSpec>,
}

fn family() -> Family {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.0));
    let parent = plain(root(DRIVER), 1);
    f.submit(DRIVER, &parent);
    f.start(W2, parent.id);
    f.leased(W2, 1, cpus(1.0));
    let child = plain(parent.id, 1);
    f.submit(W2, &child);
    Family { f, parent, child }
}

impl Family {
    fn lose_parent(&mut self) {
        self.f.exit(W2);
        self.f.settle(W3, W2);
        self.f.settle(DRIVER, W2);
    }
}

#[test]
fn a_death_is_told_to_all_and_the_slot_is_used_again_when_all_have_settled() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 2, cpus(1.0));
    let told = died(W2, DeathCause::Signalled(9));
    assert_eq!(f.exit(W2), [to(DRIVER, told.clone()), to(W3, told.clone())]);
    assert_eq!(f.exit(W2), [], "a second report changes nothing");
    assert_eq!(f.want(DRIVER, 1, cpus(1.0)), [Effect::Spawn(W4)], "DEATH-1: the slot is not free yet");
    assert_eq!(f.settle(DRIVER, W2), []);
    assert_eq!(f.settle(DRIVER, W2), []);
    assert_eq!(f.settle(W3, W2), [Effect::CloseProcess(W2)]);
    assert_eq!(f.ask(W2, ToNode::Hello), []);
    assert_eq!(f.ask(DRIVER, ToNode::Connect { peer: W2 }), [to(DRIVER, told)], "who asks later hears it too");
    assert_eq!(f.ask(DRIVER, ToNode::Connect { peer: W3 }), [link(DRIVER, W3)]);
}

#[test]
fn the_dead_settle_every_death() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 2, cpus(1.0));
    f.exit(W2);
    f.settle(DRIVER, W2);
    let effects = f.exit(W3);
    assert_eq!(effects, [to(DRIVER, died(W3, DeathCause::Signalled(9))), Effect::CloseProcess(W2)]);
}

#[test]
fn a_forced_cancel_names_its_task_and_a_corrupt_peer_its_reason() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 2, cpus(1.0));
    let task = plain(root(DRIVER), 1);
    f.submit(DRIVER, &task);
    assert_eq!(f.ask(DRIVER, ToNode::KillWorker { worker: W2, task: task.id }), [Effect::Kill(W2)]);
    assert_eq!(f.ask(DRIVER, ToNode::KillWorker { worker: W2, task: task.id }), []);
    let effects = f.exit(W2);
    let Effect::Send { message: FromNode::ProcessDied(death), .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(death.culprit, Some(task.id));
    assert!(death.to_string().contains("was cancelled and did not stop"));
    let corrupt = ToNode::PeerCorrupt { peer: W3, reason: "bad length".into() };
    assert_eq!(f.ask(DRIVER, corrupt), [Effect::Kill(W3)]);
    assert_eq!(f.exit(W3)[0], to(DRIVER, died(W3, DeathCause::Corrupt("bad length".into()))));
    let unknown = ToNode::PeerCorrupt { peer: DRIVER, reason: "?".into() };
    assert_eq!(f.ask(DRIVER, unknown), [], "the driver is not the node's to end");
}

#[test]
fn a_worker_that_missed_a_call_is_ended_and_its_death_says_which() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let lost = ToNode::CallLost { caller: DRIVER, expected: 5, came: 7 };
    assert_eq!(f.ask(W2, lost), [Effect::Kill(W2)]);
    let cause = DeathCause::CallLost { caller: DRIVER, expected: 5, came: 7 };
    assert!(cause.to_string().contains("message 5 of driver"), "{cause}");
    assert_eq!(f.exit(W2)[0], to(DRIVER, died(W2, cause)));
}

#[test]
fn a_forced_cancel_of_a_finished_task_kills_nobody() {
    let mut f = Fixture::new(1);
    f.leased(DRIVER, 1, cpus(1.0));
    let task = plain(root(DRIVER), 1);
    f.submit(DRIVER, &task);
    f.finish(W2, task.id, Value::inline(vec![]));
    assert_eq!(f.ask(DRIVER, ToNode::KillWorker { worker: W2, task: task.id }), []);
}

#[test]
fn a_dead_owner_s_lease_ends_when_its_host_returns_it() {
    let mut family = family();
    let back = ToNode::ReturnLease { lease: LeaseId(2) };
    assert_eq!(family.f.ask(W3, back.clone()), [], "not while its owner lives");
    family.f.exit(W2);
    assert_eq!(family.f.leases().len(), 1, "W3 may still run a task of W2");
    let effects = family.f.ask(W3, back);
    assert_eq!(effects, [to(W3, FromNode::LeaseClosed { lease: LeaseId(2) })]);
    assert_eq!(family.f.node.free, family.f.node.config.total);
}

#[test]
fn a_dead_owner_s_lease_stays_while_its_task_runs() {
    let mut family = family();
    family.f.start(W3, family.child.id);
    family.f.exit(W2);
    assert_eq!(family.f.settle(W3, W2), []);
    assert_eq!(family.f.leases().len(), 1);
    family.f.finish(W3, family.child.id, Value::inline(vec![1]));
    assert_eq!(family.f.leases().len(), 1, "its host says when");
}

#[test]
fn what_is_inside_a_kept_value_is_kept_as_long() {
    let mut family = family();
    let [inner, outer] = [1, 2].map(|counter| ObjectId::put(family.parent.id, 0, counter, 0));
    let f = &mut family.f;
    f.record(W2, Record::Put { object: inner, digest: 7, value: stored() });
    let nested = vec![crate::value::RefSpec { object: inner, owner: W2 }];
    f.record(W2, Record::Put { object: outer, digest: 8, value: Value { nested, ..Value::inline(vec![1]) } });
    f.exit(W2);
    f.ask(W3, ToNode::Claim { object: outer, count: 1, home: crate::id::NodeId::ALONE });
    f.settle(W3, W2);
    f.settle(DRIVER, W2);
    f.record(DRIVER, Record::Settled { task: family.parent.id, value: Value::failed(Failure::ShutDown) });
    assert!(f.node.ledger.knows(inner), "who reads the outer may ask for the inner");
    f.ask(W3, ToNode::Claim { object: outer, count: -1, home: crate::id::NodeId::ALONE });
    assert_eq!(passes(f), [Effect::FreeStored(AT)]);
    assert!(!f.node.ledger.knows(inner) && !f.node.ledger.knows(outer));
}

impl Fixture {
    fn leases(&self) -> Vec<LeaseId> {
        self.node.leases.keys().copied().collect()
    }
}

#[test]
fn an_owner_that_lost_a_worker_hears_at_once_whether_the_task_had_ended() {
    for finished in [true, false] {
        let mut family = family();
        let f = &mut family.f;
        if finished {
            f.finish(W2, family.parent.id, Value::inline(vec![9]));
        }
        f.exit(W2);
        let expected = if finished { Adoption::Finished(vec![Value::inline(vec![9])]) } else { Adoption::New };
        let answer = if finished { adopted(DRIVER, expected) } else { lost_run(DRIVER) };
        assert_eq!(adopt(f, DRIVER, result(&family.parent)), [answer]);
    }
}

#[test]
fn a_repeated_task_adopts_a_finished_child_after_all_have_settled_and_two_passes() {
    let mut family = family();
    let child = result(&family.child);
    let f = &mut family.f;
    f.start(W3, family.child.id);
    f.finish(W3, family.child.id, Value::inline(vec![9]));
    f.exit(W2);
    assert_eq!(adopt(f, W3, child), []);
    assert!(f.node.wants_pass());
    assert_eq!(passes(f), [], "not settled");
    f.settle(DRIVER, W2);
    let effects = f.settle(W3, W2);
    assert!(effects.contains(&adopted(W3, Adoption::Finished(vec![Value::inline(vec![9])]))), "{effects:?}");
    assert_eq!(f.node.ledger.owner(child), Some(W3));
}

#[test]
fn the_answer_waits_for_two_passes() {
    let mut family = family();
    family.lose_parent();
    let f = &mut family.f;
    assert_eq!(adopt(f, W3, result(&family.child)), []);
    assert_eq!(f.step(Event::Passed), []);
    assert_eq!(f.step(Event::Passed), [adopted(W3, Adoption::New)], "submitted, but never started");
    assert!(!f.node.wants_pass());
}

#[test]
fn another_digest_or_a_live_owner_is_something_different_and_the_unknown_is_new() {
    let mut family = family();
    family.lose_parent();
    let f = &mut family.f;
    f.ask(W3, ToNode::Adopt { request: 1, object: result(&family.child), digest: 8, items: 0 });
    assert_eq!(passes(f), [adopted(W3, Adoption::Different)]);
    adopt(f, W3, result(&family.parent));
    assert_eq!(passes(f), [adopted(W3, Adoption::Different)], "the driver owns it and lives");
    adopt(f, W3, result(&plain(root(W2), 77)));
    assert_eq!(
        passes(f),
        [adopted(W3, Adoption::New)],
        "it may have run and left nothing, so it asks for what it makes"
    );
}

#[test]
fn items_that_a_dead_owner_has_freed_are_kept_when_the_stream_runs_again_for_another() {
    let mut family = family();
    let task = family.child.id;
    Arc::make_mut(&mut family.child).stream = Some(crate::stream::Stream { items_max: 2, bytes_max: 1 << 20 });
    let child = Arc::clone(&family.child);
    let f = &mut family.f;
    f.submit(W2, &child);
    f.start(W3, task);
    f.record(W3, Record::Yielded { task, attempt: 0, index: 0, value: stored() });
    let freed = f.record(W2, Record::Freed { object: ObjectId::item(task, 0) });
    assert_eq!(freed, [Effect::FreeStored(AT)]);
    let stopped = Value::failed(Failure::OwnerDied { object: result(&child), owner: W2 });
    family.lose_parent();
    let f = &mut family.f;
    f.record(W3, Record::Finished { at: Tick(9), task, attempt: 0, values: vec![stopped] });
    adopt(f, W3, result(&child));
    assert_eq!(passes(f), [adopted(W3, Adoption::New)]);
    // The records of the worker that runs it again may be read before those of its new owner.
    let again = Record::Yielded { task, attempt: 1, index: 0, value: stored() };
    assert_eq!(f.record(W3, again), [], "the new owner reads it");
}

#[test]
fn a_put_is_adopted_by_its_digest() {
    let mut family = family();
    let object = ObjectId::put(family.parent.id, 0, 0, 0);
    family.f.record(W2, Record::Put { object, digest: 7, value: stored() });
    family.lose_parent();
    let f = &mut family.f;
    adopt(f, W3, object);
    assert_eq!(passes(f), [adopted(W3, Adoption::Finished(vec![stored()]))]);
    let request = ToNode::FreeObject { at: AT };
    f.record(W3, Record::Freed { object });
    assert_eq!(f.ask(W3, request.clone()), [Effect::Store { process: W3, request }], "its owner frees it as usual");
}

#[test]
fn a_running_child_is_adopted_and_its_result_told_when_it_comes() {
    let mut family = family();
    family.f.start(W3, family.child.id);
    family.lose_parent();
    let f = &mut family.f;
    adopt(f, DRIVER, result(&family.child));
    assert_eq!(passes(f), [adopted(DRIVER, Adoption::Running)]);
    let effects = f.finish(W3, family.child.id, Value::inline(vec![3]));
    assert_eq!(effects[0], resolved(DRIVER, result(&family.child), Value::inline(vec![3])));
}

#[test]
fn an_adopted_run_that_is_lost_is_new_after_all() {
    let mut family = family();
    family.f.start(W3, family.child.id);
    family.lose_parent();
    let f = &mut family.f;
    adopt(f, DRIVER, result(&family.child));
    passes(f);
    let effects = f.exit(W3);
    assert_eq!(effects[1], adopted(DRIVER, Adoption::New));
}

#[test]
fn borrowers_of_a_dead_owner_s_object_read_on_and_the_last_claim_frees_it() {
    let mut family = family();
    let object = ObjectId::put(family.parent.id, 0, 0, 0);
    let f = &mut family.f;
    f.record(W2, Record::Put { object, digest: 7, value: stored() });
    f.exit(W2);
    f.ask(W3, ToNode::Claim { object, count: 2, home: crate::id::NodeId::ALONE });
    f.settle(W3, W2);
    f.settle(DRIVER, W2);
    assert_eq!(f.ask(W3, ToNode::Resolve { object, home: crate::id::NodeId::ALONE }), [resolved(W3, object, stored())]);
    f.ask(W3, ToNode::Claim { object, count: -1, home: crate::id::NodeId::ALONE });
    f.finish(W3, family.parent.id, Value::inline(vec![]));
    assert!(f.node.ledger.knows(object), "claimed");
    assert_eq!(
        f.ask(W3, ToNode::Claim { object, count: -1, home: crate::id::NodeId::ALONE }),
        [],
        "another claim may be in a ring"
    );
    assert_eq!(passes(f), [Effect::FreeStored(AT)]);
    assert!(!f.node.ledger.knows(object));
    let lost = Failure::ObjectLost { object, reason: "its owner is dead and the node has no record of it".into() };
    assert_eq!(
        f.ask(W3, ToNode::Resolve { object, home: crate::id::NodeId::ALONE }),
        [resolved(W3, object, Value::failed(lost))]
    );
}

#[test]
fn an_orphan_that_nobody_claims_stays_until_its_maker_is_final() {
    let mut family = family();
    let object = ObjectId::put(family.parent.id, 0, 0, 0);
    family.f.record(W2, Record::Put { object, digest: 7, value: stored() });
    family.lose_parent();
    assert!(family.f.node.ledger.knows(object), "the parent may run again and adopt it");
    let effects = family.f.finish(W3, family.parent.id, Value::inline(vec![]));
    assert_eq!(effects, [Effect::FreeStored(AT)]);
}

#[test]
fn a_claimed_object_outlives_the_count_of_the_owner_that_adopted_it() {
    let mut family = family();
    let object = ObjectId::put(family.parent.id, 0, 0, 0);
    let f = &mut family.f;
    f.record(W2, Record::Put { object, digest: 7, value: stored() });
    f.exit(W2);
    f.ask(DRIVER, ToNode::Claim { object, count: 1, home: crate::id::NodeId::ALONE });
    f.settle(DRIVER, W2);
    f.settle(W3, W2);
    adopt(f, W3, object);
    passes(f);
    f.record(W3, Record::Freed { object });
    assert_eq!(f.ask(W3, ToNode::FreeObject { at: AT }), [], "not while the driver holds it");
    assert_eq!(
        f.ask(DRIVER, ToNode::Resolve { object, home: crate::id::NodeId::ALONE }),
        [resolved(DRIVER, object, stored())]
    );
    f.ask(DRIVER, ToNode::Claim { object, count: -1, home: crate::id::NodeId::ALONE });
    assert_eq!(passes(f), [Effect::FreeStored(AT)]);
}

#[test]
fn a_process_s_death_clears_its_claims() {
    let mut family = family();
    let object = ObjectId::put(family.parent.id, 0, 0, 0);
    let f = &mut family.f;
    f.record(W2, Record::Put { object, digest: 7, value: stored() });
    f.exit(W2);
    f.ask(W3, ToNode::Claim { object, count: 1, home: crate::id::NodeId::ALONE });
    f.settle(W3, W2);
    f.settle(DRIVER, W2);
    f.record(DRIVER, Record::Settled { task: family.parent.id, value: Value::failed(Failure::ShutDown) });
    f.exit(W3);
    let effects = f.settle(DRIVER, W3);
    assert_eq!(effects, [Effect::CloseProcess(W3), Effect::FreeStored(AT)]);
}

#[test]
fn who_waits_for_an_orphan_gets_its_value_or_hears_that_nobody_will_make_it() {
    for runs in [true, false] {
        let mut family = family();
        let child = result(&family.child);
        if runs {
            family.f.start(W3, family.child.id);
        }
        family.f.exit(W2);
        family.f.ask(DRIVER, ToNode::Claim { object: child, count: 1, home: crate::id::NodeId::ALONE });
        assert_eq!(family.f.ask(DRIVER, ToNode::Resolve { object: child, home: crate::id::NodeId::ALONE }), []);
        family.f.settle(W3, W2);
        family.f.settle(DRIVER, W2);
        let parent = family.parent.id;
        let settled = Record::Settled { task: parent, value: Value::failed(Failure::ShutDown) };
        let effects = family.f.record(DRIVER, settled);
        if runs {
            assert_eq!(effects, [], "it still runs");
            let effects = family.f.finish(W3, family.child.id, Value::inline(vec![1]));
            assert!(effects.contains(&resolved(DRIVER, child, Value::inline(vec![1]))));
        } else {
            let lost = Value::failed(Failure::OwnerDied { object: child, owner: W2 });
            assert_eq!(effects, [resolved(DRIVER, child, lost.clone())]);
            assert_eq!(
                family.f.ask(DRIVER, ToNode::Resolve { object: child, home: crate::id::NodeId::ALONE }),
                [resolved(DRIVER, child, lost)]
            );
        }
    }
}

#[test]
fn orphans_of_orphans_end_too() {
    let mut family = family();
    let f = &mut family.f;
    f.start(W3, family.child.id);
    let grandchild = ObjectId::put(family.child.id, 0, 0, 0);
    f.record(W3, Record::Put { object: grandchild, digest: 1, value: stored() });
    f.exit(W2);
    f.settle(W3, W2);
    f.settle(DRIVER, W2);
    f.exit(W3);
    f.settle(DRIVER, W3);
    assert!(f.node.ledger.knows(grandchild));
    let settled = Record::Settled { task: family.parent.id, value: Value::failed(Failure::ShutDown) };
    assert_eq!(f.record(DRIVER, settled), [Effect::FreeStored(AT)]);
    assert!(f.node.orphans.is_empty());
}

#[test]
fn a_child_that_is_submitted_again_by_its_new_owner_leaves_nothing_behind() {
    let mut family = family();
    family.lose_parent();
    let f = &mut family.f;
    adopt(f, W3, result(&family.child));
    assert_eq!(passes(f), [adopted(W3, Adoption::New)]);
    f.submit(W3, &family.child);
    f.start(W3, family.child.id);
    f.finish(W3, family.child.id, stored());
    f.record(W3, Record::Freed { object: result(&family.child) });
    let request = ToNode::FreeObject { at: AT };
    assert_eq!(f.ask(W3, request.clone()), [Effect::Store { process: W3, request }], "freed once, by its owner");
    assert_eq!(f.finish(W3, family.parent.id, Value::inline(vec![])), []);
    assert!(f.node.ledger.task(family.child.id).is_none());
    assert!(f.node.orphans.is_empty());
}

#[test]
fn an_actor_is_adopted_by_the_task_that_creates_it_again() {
    let mut family = family();
    let f = &mut family.f;
    let create = spec(family.parent.id, 2, TaskKind::Create(ActorOptions::default()), cpus(0.0));
    let actor = actor_of(&create);
    f.submit(W2, &create);
    f.ask(W2, ToNode::CreateActor { spec: create.clone(), resolved: Vec::new() });
    f.hello(W4);
    f.ask(W4, ToNode::ActorConstructed { actor, value: Value::inline(vec![]) });
    f.exit(W2);
    for process in [DRIVER, W3, W4] {
        f.settle(process, W2);
    }
    adopt(f, W3, actor.object());
    assert_eq!(passes(f), [adopted(W3, Adoption::Finished(vec![Value::inline(vec![])]))]);
    f.finish(W3, family.parent.id, Value::inline(vec![]));
    assert_eq!(f.node.actors.all[&actor].state, ActorState::Alive { process: W4 });
    assert_eq!(f.node.actors.all[&actor].owner, W3);
}

#[test]
fn a_claim_whose_lender_died_before_it_sent_the_reference_is_void_when_all_have_settled() {
    for arrived in [false, true] {
        let Family { mut f, parent, child } = family();
        let object = result(&child);
        f.finish(W3, child.id, stored());
        f.ask(W2, ToNode::ClaimFor { object, holder: DRIVER, home: crate::id::NodeId::ALONE });
        if arrived {
            f.ask(DRIVER, ToNode::ClaimArrived { object, lender: W2, home: crate::id::NodeId::ALONE });
        }
        f.exit(W2);
        f.settle(W3, W2);
        f.settle(DRIVER, W2);
        f.finish(DRIVER, parent.id, Value::inline(vec![]));
        passes(&mut f);
        assert_eq!(f.node.ledger().knows(object), arrived);
        assert!(f.node.loans.is_empty());
    }
}

#[test]
fn what_is_inside_the_result_of_an_adopted_run_is_kept_until_its_adopter_claims_it() {
    let Family { mut f, parent, child } = family();
    f.start(W3, child.id);
    f.exit(W2);
    f.settle(W3, W2);
    f.settle(DRIVER, W2);
    adopt(&mut f, DRIVER, result(&child));
    assert_eq!(passes(&mut f), [adopted(DRIVER, Adoption::Running)]);
    let inner = ObjectId::put(child.id, 0, 1, 0);
    f.record(W3, Record::Put { object: inner, digest: 1, value: Value::inline(vec![1]) });
    let nested = vec![crate::value::RefSpec { object: inner, owner: W3 }];
    f.finish(W3, child.id, Value { nested, ..Value::inline(vec![2]) });
    f.record(W3, Record::Freed { object: inner });
    assert!(f.node.ledger().knows(inner));
    f.record(DRIVER, Record::Freed { object: result(&child) });
    f.finish(DRIVER, parent.id, Value::inline(vec![]));
    passes(&mut f);
    assert!(!f.node.ledger().knows(inner));
}

#[test]
fn a_dead_owners_objects_are_looked_at_when_all_have_read_what_was_on_its_way_death_2() {
    let Family { mut f, parent, child } = family();
    f.finish(W3, child.id, stored());
    f.exit(W2);
    f.finish(DRIVER, parent.id, Value::inline(vec![]));
    f.ask(W3, ToNode::Settled { dead: W2 });
    let effects = f.ask(DRIVER, ToNode::Settled { dead: W2 });
    for process in [DRIVER, W3] {
        assert!(effects.contains(&to(process, FromNode::Flush { dead: W2 })));
    }
    f.ask(W3, ToNode::Flushed { dead: W2 });
    assert!(f.node.ledger().knows(result(&child)), "the driver may have a reference in its ring");
    f.ask(DRIVER, ToNode::Claim { object: result(&child), count: 1, home: crate::id::NodeId::ALONE });
    f.ask(DRIVER, ToNode::Flushed { dead: W2 });
    assert!(f.node.ledger().knows(result(&child)));
    f.ask(DRIVER, ToNode::Claim { object: result(&child), count: -1, home: crate::id::NodeId::ALONE });
    assert_eq!(passes(&mut f), [Effect::FreeStored(AT)]);
}
