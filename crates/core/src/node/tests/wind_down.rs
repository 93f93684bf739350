//! How processes end when they are asked to, and when they do not.

use super::actors::alive;
use super::*;
use crate::node::wind_down::{END_GRACE_US, LAST_CODE_GRACE_US};

fn killed(f: &mut Fixture) {
    let spec = actor_spec(1, None, 0);
    alive(f, &spec);
    let kill = ToNode::KillActor { actor: actor_of(&spec), manager: crate::id::NodeId::ALONE, restart: false };
    assert_eq!(f.ask(DRIVER, kill), [to(W2, FromNode::End)]);
}

#[test]
fn a_process_that_does_not_end_when_asked_is_killed_after_its_grace() {
    let mut f = Fixture::new(1);
    killed(&mut f);
    assert_eq!(f.node.deadline(), Some(f.now.plus_us(END_GRACE_US)));
    f.now = f.now.plus_us(END_GRACE_US - 1);
    assert_eq!(f.step(Event::Ticked), []);
    f.now = f.now.plus_us(1);
    assert_eq!(f.step(Event::Ticked), [Effect::Kill(W2)]);
    assert_eq!(f.step(Event::Ticked), [], "once");
    f.exit(W2);
    let causes: Vec<_> = f.node.deaths.values().map(|death| death.cause.clone()).collect();
    assert_eq!(causes, [DeathCause::Ended("it was killed".into())], "the reason is why it was asked");
}

#[test]
fn the_last_code_of_a_process_has_a_time_of_its_own() {
    let mut f = Fixture::new(1);
    killed(&mut f);
    f.now = f.now.plus_us(END_GRACE_US - 1);
    f.ask(W2, ToNode::Goodbye);
    f.now = f.now.plus_us(LAST_CODE_GRACE_US - 1);
    assert_eq!(f.step(Event::Ticked), []);
    f.now = f.now.plus_us(1);
    assert_eq!(f.step(Event::Ticked), [Effect::Kill(W2)]);
}

#[test]
fn who_was_asked_to_end_can_still_be_killed_at_once() {
    let mut f = Fixture::new(1);
    killed(&mut f);
    let corrupt = Event::ProcessCorrupt { process: W2, reason: "a broken ring".into() };
    assert_eq!(f.step(corrupt.clone()), [Effect::Kill(W2)]);
    assert_eq!(f.step(corrupt), []);
}

#[test]
fn a_node_that_stops_asks_all_workers_and_starts_none() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 1, cpus(1.0));
    f.want(DRIVER, 2, cpus(1.0));
    let starting: Vec<ProcessId> = f.node.workers().map(|(process, _)| process).filter(|p| *p != W2).collect();
    let effects = f.step(Event::Stop);
    assert!(effects.contains(&to(W2, FromNode::End)), "{effects:?}");
    for process in starting {
        assert!(effects.contains(&Effect::Kill(process)), "it has not said hello: {effects:?}");
    }
    let effects = f.exit(W2);
    assert_eq!(spawned(&effects), [], "{effects:?}");
    assert_eq!(spawned(&f.want(DRIVER, 3, cpus(1.0))), []);
}
