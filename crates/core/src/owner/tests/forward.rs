//! Tasks that are sent ahead of their dependencies.

use super::*;

/// A task whose errors are final, so that what needs it can be sent with it.
fn plain(bench: &mut Bench, dependencies: &[RefSpec]) -> TaskSpec {
    let mut spec = bench.spec(TaskKind::Plain, dependencies);
    Arc::make_mut(&mut spec.options).retry_on.clear();
    spec
}

/// The first of a chain is with W1 under L1; two may be in flight.
fn sent(bench: &mut Bench) -> TaskSpec {
    let spec = plain(bench, &[]);
    bench.submit(&spec);
    bench.grant(L1, W1);
    spec
}

fn after(bench: &mut Bench, made: &TaskSpec) -> TaskSpec {
    plain(bench, &[mine(made)])
}

fn run_after(spec: &TaskSpec, ahead: &[u32], resolved: Vec<Value>) -> Effect {
    let spec = Arc::new(spec.clone());
    say(W1, Peer::RunAfter { lease: L1, spec, resolved, ahead: ahead.to_vec() })
}

fn empty() -> Value {
    Value::inline(Vec::new())
}

fn waits(bench: &Bench, spec: &TaskSpec) -> bool {
    matches!(bench.state(spec), Some(TaskState::Waiting { missing: 1 }))
}

#[test]
fn a_task_is_sent_to_the_worker_that_makes_what_it_needs() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let second = after(&mut bench, &first);
    let effects = bench.submit(&second);
    assert_eq!(effects, [bench.submitted(&second), run_after(&second, &[0], vec![empty()])]);
    assert_eq!(bench.state(&second), Some(TaskState::Sent { lease: L1, worker: W1 }));
    assert_eq!(bench.reply(&first, value(1)), []);
    bench.reply(&second, value(2));
    assert_eq!(bench.owner.value(&result(&second)), Some(&value(2)));
    bench.drop_result(&first);
    bench.drop_result(&second);
    bench.assert_at_rest();
    assert_eq!(bench.owner.waiting, 0);
}

#[test]
fn what_waits_when_its_maker_is_sent_goes_with_it() {
    let mut bench = Bench::new();
    let first = plain(&mut bench, &[]);
    let second = after(&mut bench, &first);
    bench.submit(&first);
    bench.submit(&second);
    assert!(waits(&bench, &second));
    let effects = bench.grant(L1, W1);
    assert_eq!(effects[..2], [run(L1, W1, &first, vec![]), run_after(&second, &[0], vec![empty()])]);
}

#[test]
fn values_that_are_there_travel_and_only_the_others_come_from_ahead() {
    let mut bench = Bench::new();
    let known = sent(&mut bench);
    bench.reply(&known, value(7));
    let first = plain(&mut bench, &[]);
    bench.submit(&first);
    let second = plain(&mut bench, &[mine(&known), mine(&first)]);
    let effects = bench.submit(&second);
    assert_eq!(effects[1], run_after(&second, &[1], vec![value(7), empty()]));
}

#[test]
fn a_task_waits_when_the_error_of_its_maker_may_be_tried_again() {
    let mut bench = Bench::new();
    let first = bench.sent_task();
    let second = after(&mut bench, &first);
    assert_eq!(bench.submit(&second), [bench.submitted(&second)]);
    assert!(waits(&bench, &second));
}

#[test]
fn a_task_waits_when_its_maker_is_being_cancelled() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    bench.step(Event::Cancelled { object: result(&first), force: false, recursive: true });
    let second = after(&mut bench, &first);
    bench.submit(&second);
    assert!(waits(&bench, &second));
}

#[test]
fn a_task_waits_when_two_leases_make_what_it_needs() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let other = plain(&mut bench, &[]);
    let third = plain(&mut bench, &[]);
    bench.submit(&other);
    bench.submit(&third);
    bench.grant(L2, W2);
    assert_eq!(bench.state(&third), Some(TaskState::Sent { lease: L2, worker: W2 }));
    let both = plain(&mut bench, &[mine(&first), mine(&third)]);
    bench.submit(&both);
    assert_eq!(bench.state(&both), Some(TaskState::Waiting { missing: 2 }));
}

#[test]
fn a_task_waits_when_the_queue_of_the_worker_is_full() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let second = after(&mut bench, &first);
    let third = after(&mut bench, &second);
    bench.submit(&second);
    bench.submit(&third);
    assert!(waits(&bench, &third), "two are in flight before the first reply");
}

#[test]
fn a_task_waits_when_the_lease_is_blocked_or_reclaimed() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    bench.peer(W1, Peer::Returned { lease: L1, tasks: vec![], blocked: true });
    let second = after(&mut bench, &first);
    bench.submit(&second);
    assert!(waits(&bench, &second));

    let mut bench = Bench::new();
    let first = sent(&mut bench);
    bench.node(FromNode::Reclaim { lease: L1 });
    let second = after(&mut bench, &first);
    bench.submit(&second);
    assert!(waits(&bench, &second));
}

#[test]
fn a_task_of_another_shape_waits() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let mut second = after(&mut bench, &first);
    Arc::make_mut(&mut second.options).resources = Resources::cpus(Amount::whole(2));
    bench.submit(&second);
    assert!(waits(&bench, &second));
}

#[test]
fn a_task_that_comes_back_waits_again_and_leaves_with_the_value() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let second = after(&mut bench, &first);
    bench.submit(&second);
    let effects = bench.peer(W1, Peer::Returned { lease: L1, tasks: vec![second.id], blocked: true });
    assert_eq!(effects, []);
    assert!(waits(&bench, &second));
    assert_eq!(bench.reply(&first, value(1)), [run(L1, W1, &second, vec![value(1)])]);
}

#[test]
fn the_failure_of_a_maker_settles_what_came_back_for_it() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let second = after(&mut bench, &first);
    bench.submit(&second);
    let failure = Failure::Cancelled { task: first.id };
    bench.reply(&first, Value::failed(failure.clone()));
    let effects = bench.peer(W1, Peer::Returned { lease: L1, tasks: vec![second.id], blocked: false });
    assert_eq!(effects, [settled(&second, failure)]);
    assert_eq!((bench.owner.pending(), bench.owner.waiting), (0, 0));
}

#[test]
fn when_the_worker_dies_both_are_asked_about_and_run_in_order_again() {
    let mut bench = Bench::new();
    let first = sent(&mut bench);
    let second = after(&mut bench, &first);
    bench.submit(&second);
    let effects = bench.die(W1);
    assert_eq!(effects, [ask(FIRST_REQUEST, &first), ask(FIRST_REQUEST + 1, &second), all_settled(W1)]);
    // The second is answered first: it waits, for what it needs is not made.
    bench.answer(FIRST_REQUEST + 1, Adoption::New);
    assert!(waits(&bench, &second));
    bench.answer(FIRST_REQUEST, Adoption::New);
    let (first, second) = (again(&first), again(&second));
    let effects = bench.grant(L1, W2);
    let second_run = Peer::RunAfter { lease: L1, spec: Arc::new(second), resolved: vec![empty()], ahead: vec![0] };
    assert_eq!(effects[..2], [run(L1, W2, &first, vec![]), say(W2, second_run)]);
    assert_eq!(bench.owner.waiting, 0);
}

#[test]
fn a_chain_of_a_thousand_flows_through_one_worker() {
    let mut bench = Bench::new();
    let mut chain = vec![plain(&mut bench, &[])];
    for at in 1..1_000 {
        let spec = after(&mut bench, &chain[at - 1]);
        chain.push(spec);
    }
    let mut sent = Vec::new();
    let mut note = |effects: Vec<Effect>| {
        sent.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { message: Peer::Run { spec, .. } | Peer::RunAfter { spec, .. }, .. } => Some(spec.id),
            _ => None,
        }));
    };
    for spec in &chain {
        note(bench.submit(spec));
    }
    note(bench.grant(L1, W1));
    for (at, spec) in chain.iter().enumerate() {
        let reply = Peer::Reply { task: spec.id, attempt: 0, values: vec![value(at as u8)], duration_us: 1 };
        note(bench.peer(W1, reply));
        note(bench.drop_result(spec));
    }
    assert_eq!(sent, chain.iter().map(|spec| spec.id).collect::<Vec<_>>(), "each once and in order");
    bench.assert_at_rest();
    assert_eq!(bench.owner.waiting, 0);
}
