//! Deaths of workers, borrowers and owners.

use super::*;

fn foreign() -> RefSpec {
    RefSpec { object: ObjectId::put(TaskId::root(9, W2), 0, 1, 0), owner: W2 }
}

fn claim(object: ObjectId, count: i64) -> Effect {
    Effect::Node(ToNode::Claim { object, count, home: crate::id::NodeId::ALONE })
}

#[test]
fn what_a_dead_borrower_of_another_node_had_is_kept_until_its_node_can_have_claimed_it() {
    for (node, claims) in [(crate::id::NodeId(9), 2), (crate::id::NodeId::ALONE, 0)] {
        let mut bench = Bench::new();
        let (object, borrower) = (ObjectId::put(bench.root, 0, 1, 0), ProcessId { node, ..W2 });
        bench.step(Event::Put { object, digest: 1, value: value(1), recorded: false });
        bench.peer(W1, Peer::Lent { object, borrower, count: 1 });
        assert_eq!(bench.step(Event::RefDropped(object)), [], "it is lent");
        let claimed = [claim(object, 1), claim(object, -1)].into_iter().take(claims);
        let over = [freed(object), Effect::Node(ToNode::Settled { dead: borrower })];
        assert_eq!(bench.die(borrower), claimed.chain(over).collect::<Vec<_>>());
    }
}

#[test]
fn a_lost_attempt_is_asked_about_and_then_run_again_own_4() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    assert_eq!(bench.die(W1), [ask(FIRST_REQUEST, &spec), all_settled(W1)]);
    assert_eq!(bench.state(&spec), Some(TaskState::Asked));
    let retried = again(&spec);
    let effects = bench.answer(FIRST_REQUEST, Adoption::New);
    assert_eq!(effects, [bench.submitted(&retried), want(1, 1)]);
}

#[test]
fn an_attempt_that_had_ended_is_not_run_again() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.step(Event::Wanted(result(&spec)));
    bench.die(W1);
    let effects = bench.answer(FIRST_REQUEST, Adoption::Finished(vec![value(6)]));
    assert_eq!(effects, [Effect::Ready(result(&spec))]);
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(6)));
}

#[test]
fn the_task_that_ran_pays_for_a_death_also_when_its_owner_thinks_that_another_was_first() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = bench.task();
    bench.step(Event::Submitted(second.clone()));
    bench.die(W1);
    let lost = |request, started| FromNode::Adopted { request, adoption: Adoption::New, attempt: 1, started };
    bench.node(lost(FIRST_REQUEST, false));
    bench.node(lost(FIRST_REQUEST + 1, true));
    assert_eq!(bench.owner.tasks.get(&first.id).map(|entry| entry.failures), Some(1), "nobody else can be blamed");
    assert_eq!(bench.owner.tasks.get(&second.id).map(|entry| entry.failures), Some(1));
}

#[test]
fn retries_run_out() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.die(W1);
    bench.answer(FIRST_REQUEST, Adoption::New);
    bench.grant(L2, W2);
    bench.die(W2);
    let effects = bench.answer(FIRST_REQUEST + 1, Adoption::New);
    let failure =
        Failure::WorkerDied { task: spec.id, name: "work".into(), death: Box::new(death(W2, None)), attempts: 2 };
    assert_eq!(effects, [settled(&spec, failure)]);
}

#[test]
fn only_the_first_task_of_a_lease_is_to_blame() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    bench.die(W1);
    bench.answer(FIRST_REQUEST, Adoption::New);
    bench.answer(FIRST_REQUEST + 1, Adoption::New);
    let failures = |spec: &TaskSpec| bench.owner.tasks.get(&spec.id).unwrap().failures;
    assert_eq!((failures(&specs[0]), failures(&specs[1])), (1, 0));
}

#[test]
fn the_culprit_alone_is_to_blame_when_there_is_one() {
    let mut bench = Bench::new();
    let specs: Vec<TaskSpec> = (0..2).map(|_| bench.task()).collect();
    for spec in &specs {
        bench.submit(spec);
    }
    bench.grant(L1, W1);
    let culprit = bench.root;
    bench.node(FromNode::ProcessDied(Box::new(death(W1, Some(culprit)))));
    bench.answer(FIRST_REQUEST, Adoption::New);
    bench.answer(FIRST_REQUEST + 1, Adoption::New);
    let failures = |spec: &TaskSpec| bench.owner.tasks.get(&spec.id).unwrap().failures;
    assert_eq!((failures(&specs[0]), failures(&specs[1])), (0, 0));
}

#[test]
fn a_running_answer_waits_for_the_result_or_for_another_answer() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.die(W1);
    assert_eq!(bench.answer(FIRST_REQUEST, Adoption::Running), []);
    assert_eq!(bench.state(&spec), Some(TaskState::Asked));
    bench.node(FromNode::Resolved { object: result(&spec), value: value(7), home: crate::id::NodeId::ALONE });
    assert_eq!(bench.owner.value(&result(&spec)), Some(&value(7)));
    bench.drop_result(&spec);
    bench.assert_at_rest();
}

#[test]
fn a_dead_borrower_holds_nothing() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.reply(&spec, value(1));
    bench.peer(W2, Peer::Lent { object: result(&spec), borrower: W2, count: 1 });
    assert_eq!(bench.drop_result(&spec), []);
    assert_eq!(bench.die(W2), [freed(result(&spec)), all_settled(W2)]);
    // News of a loan to the dead comes too late to matter.
    assert_eq!(bench.peer(W1, Peer::Lent { object: result(&spec), borrower: W2, count: 1 }), []);
}

#[test]
fn a_dead_asker_is_not_answered() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    bench.peer(W2, Peer::Resolve { object: result(&spec) });
    bench.die(W2);
    assert_eq!(bench.reply(&spec, value(1)), []);
}

#[test]
fn what_is_held_of_a_dead_owner_is_claimed_and_asked_for_before_settling() {
    let mut bench = Bench::new();
    let borrowed = foreign();
    bench.step(arrived(vec![borrowed, borrowed]));
    bench.step(Event::Wanted(borrowed.object));
    let resolve = Effect::Node(ToNode::Resolve { object: borrowed.object, home: crate::id::NodeId::ALONE });
    assert_eq!(bench.die(W2), [claim(borrowed.object, 2), resolve, all_settled(W2)]);
    let effects =
        bench.node(FromNode::Resolved { object: borrowed.object, value: value(4), home: crate::id::NodeId::ALONE });
    assert_eq!(effects, [Effect::Ready(borrowed.object)]);
    let effects = bench.step(Event::ArgumentsDone(vec![borrowed, borrowed]));
    assert_eq!(effects, [claim(borrowed.object, -2)]);
    bench.assert_at_rest();
}

#[test]
fn a_death_that_is_told_twice_is_claimed_once() {
    let mut bench = Bench::new();
    let borrowed = foreign();
    bench.step(arrived(vec![borrowed]));
    assert_eq!(bench.die(W2), [claim(borrowed.object, 1), all_settled(W2)]);
    assert_eq!(bench.die(W2), [all_settled(W2)]);
}

#[test]
fn a_reference_that_comes_after_its_owners_death_is_claimed_at_once() {
    let mut bench = Bench::new();
    let borrowed = foreign();
    bench.die(W2);
    assert_eq!(bench.step(arrived(vec![borrowed])), [claim(borrowed.object, 1)]);
    let resolve = Effect::Node(ToNode::Resolve { object: borrowed.object, home: crate::id::NodeId::ALONE });
    assert_eq!(bench.step(Event::Wanted(borrowed.object)), [resolve]);
    assert_eq!(bench.step(Event::ArgumentsDone(vec![borrowed])), [claim(borrowed.object, -1)]);
    bench.assert_at_rest();
}

#[test]
fn grants_of_a_dead_owner_and_of_its_successor_go_back_to_whom_they_came_from() {
    let mut bench = Bench::new();
    let borrowed = foreign();
    let successor = RefSpec { owner: W1, ..borrowed };
    bench.step(arrived(vec![borrowed]));
    assert_eq!(bench.die(W2), [claim(borrowed.object, 1), all_settled(W2)]);
    assert_eq!(bench.step(arrived(vec![successor])), []);
    bench.step(Event::ArgumentsDone(vec![borrowed]));
    let effects = bench.step(Event::ArgumentsDone(vec![successor]));
    let give_back = say(W1, Peer::GiveBack { object: borrowed.object, count: 1 });
    assert_eq!(effects, [claim(borrowed.object, -1), give_back]);
    bench.assert_at_rest();
}

#[test]
fn a_dead_owners_reference_is_passed_on_in_the_nodes_name_and_claimed_once() {
    let mut bench = Bench::new();
    let borrowed = foreign();
    bench.step(arrived(vec![borrowed]));
    bench.die(W2);
    let spec = TaskSpec { nested: vec![borrowed], ..bench.task() };
    bench.submit(&spec);
    let claim_for =
        Effect::Node(ToNode::ClaimFor { object: borrowed.object, holder: W1, home: crate::id::NodeId::ALONE });
    let named = TaskSpec { nested: vec![RefSpec { owner: ProcessId::NODE, ..borrowed }], ..spec.clone() };
    assert_eq!(bench.grant(L1, W1), [claim_for, run(L1, W1, &named, vec![])]);
}

#[test]
fn a_reference_in_the_nodes_name_is_not_claimed_again_and_given_back_once() {
    let mut bench = Bench::new();
    let borrowed = RefSpec { owner: ProcessId::NODE, ..foreign() };
    let here =
        Effect::Node(ToNode::ClaimArrived { object: borrowed.object, lender: W1, home: crate::id::NodeId::ALONE });
    assert_eq!(bench.step(arrived(vec![borrowed])), [here]);
    assert_eq!(bench.step(Event::ArgumentsDone(vec![borrowed])), [claim(borrowed.object, -1)]);
    bench.assert_at_rest();
}

#[test]
fn an_owner_that_gets_its_own_object_in_the_nodes_name_gives_the_claim_back_at_once() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let home = RefSpec { owner: ProcessId::NODE, object: result(&spec) };
    let here = Effect::Node(ToNode::ClaimArrived { object: home.object, home: crate::id::NodeId::ALONE, lender: W1 });
    assert_eq!(bench.step(arrived(vec![home])), [here, claim(home.object, -1)]);
}

#[test]
fn an_object_that_was_adopted_is_lent_in_the_adopters_name() {
    let mut bench = Bench::new();
    let child = bench.task();
    let old = RefSpec { object: result(&child), owner: W2 };
    bench.step(arrived(vec![old]));
    bench.die(W2);
    bench.step(Event::Adopted { spec: child.clone(), values: Some(vec![value(3)]) });
    let spec = TaskSpec { nested: vec![old], ..bench.task() };
    bench.submit(&spec);
    let named = TaskSpec { nested: vec![mine(&child)], ..spec.clone() };
    assert_eq!(bench.grant(L1, W1), [run(L1, W1, &named, vec![])]);
}

#[test]
fn a_task_that_was_ended_for_its_memory_runs_again_later() {
    let mut bench = Bench::new();
    let spec = bench.sent_task();
    let cause = DeathCause::MemoryPressure { used: 3, limit: 4, node_used: 4 };
    bench.node(FromNode::ProcessDied(Box::new(Death { cause, ..death(W1, None) })));
    assert_eq!(
        bench.answer(FIRST_REQUEST, Adoption::New),
        [bench.submitted(&again(&spec))],
        "it asks for no worker yet"
    );
    let due = bench.owner.deadline().unwrap();
    assert_eq!(due, bench.now.plus_us(crate::owner::lost::MEMORY_BACKOFF_US));
    bench.now = due;
    // Nothing was left of the first pool.
    assert_eq!(bench.step(Event::Ticked), [want_in(1, 1, 1)]);
}

#[test]
fn a_task_that_runs_again_on_another_node_names_what_it_makes_anew() {
    let process = |node, slot| ProcessId { node: crate::id::NodeId(node), slot, incarnation: 1 };
    // Only where the records of the first run are, it can be told what it has made.
    for (second, lane) in [(process(1, 3), 0), (process(2, 2), 1 << crate::lane::THREAD_LANES_BITS)] {
        let mut bench = Bench::new();
        bench.owner = Owner::new(process(1, 1), OwnerConfig::default());
        let spec = bench.task();
        bench.submit(&spec);
        bench.grant(L1, process(1, 2));
        bench.die(process(1, 2));
        bench.answer(FIRST_REQUEST, Adoption::New);
        let retried = TaskSpec { lane, ..again(&spec) };
        assert_eq!(bench.grant(L2, second), [run(L2, second, &retried, vec![])]);
    }
}
