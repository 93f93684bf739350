//! Tasks that wait through threads and event loops of their own.

use super::*;

const TAKEN_BACK: Effect = Effect::Node(ToNode::Unblocked { lease: LEASE });

/// Its CPU goes to the node, and these tasks back to their owner.
fn lent(behind: &[&Arc<TaskSpec>]) -> [Effect; 2] {
    [returned(behind, true), Effect::Node(ToNode::Blocked { lease: LEASE })]
}

impl Bench {
    /// A worker in which a task runs.
    fn running() -> (Self, Arc<TaskSpec>) {
        let mut bench = Self::leased();
        let task = bench.task();
        bench.run(OWNER, LEASE, &task);
        (bench, task)
    }

    /// A look at the time of the next one, when the process has used this much processor time since the last.
    fn look(&mut self, waits: bool, used_us: u64) -> Vec<Effect> {
        self.look_when(waits, false, used_us)
    }

    /// The same, when a thread wants a core or not.
    fn look_when(&mut self, waits: bool, runs: bool, used_us: u64) -> Vec<Effect> {
        self.now = Tick(self.now.0 + LOOK_EVERY_US);
        self.processor_us += used_us;
        self.step(Event::Looked { waits, runs, processor_us: self.processor_us })
    }
}

#[test]
fn an_idle_task_whose_threads_wait_lends_its_cpu_until_they_have_what_they_want() {
    let (mut bench, _) = Bench::running();
    let behind = bench.task();
    bench.run(OWNER, LEASE, &behind);
    assert_eq!(bench.look(true, 0), [], "nobody knows yet whether it computes");
    assert_eq!(bench.look(true, 100), lent(&[&behind]));
    assert_eq!(bench.look(true, 100), [], "it is lent already");
    assert_eq!(bench.look(false, 100), [TAKEN_BACK]);
    assert_eq!(bench.look(false, 100), []);
}

#[test]
fn a_task_that_computes_while_its_threads_wait_keeps_its_cpu() {
    let (mut bench, _) = Bench::running();
    for _ in 0..5 {
        assert_eq!(bench.look(true, LOOK_EVERY_US / 4), []);
    }
    assert_eq!(bench.look(true, LOOK_EVERY_US / 4 - 1), lent(&[]));
    assert_eq!(bench.look(true, LOOK_EVERY_US), [TAKEN_BACK], "it computes again");
}

#[test]
fn a_task_that_gets_no_core_on_a_busy_machine_is_not_idle() {
    let (mut bench, _) = Bench::running();
    for _ in 0..5 {
        assert_eq!(bench.look_when(true, true, 0), []);
    }
    assert_eq!(bench.look(true, 0), lent(&[]));
    assert_eq!(bench.look_when(true, true, 0), [TAKEN_BACK]);
}

#[test]
fn a_task_that_began_after_the_last_look_keeps_its_cpu() {
    let (mut bench, first) = Bench::running();
    bench.look(true, 0);
    bench.now = Tick(bench.now.0 + 1);
    bench.finish(LEASE, &first, value(1));
    let second = bench.task();
    bench.run(OWNER, LEASE, &second);
    assert_eq!(bench.look(true, 0), [], "the time before it began says nothing about it");
    assert_eq!(bench.look(true, 0), lent(&[]));
}

#[test]
fn a_task_without_any_wait_keeps_its_cpu_however_idle() {
    let (mut bench, _) = Bench::running();
    for _ in 0..5 {
        assert_eq!(bench.look(false, 0), []);
    }
    bench.look(true, 0);
    bench.look(false, 0);
    assert_eq!(bench.look(true, 0), [], "looks before the pause do not count");
}

#[test]
fn looks_close_together_count_as_one() {
    let (mut bench, _) = Bench::running();
    bench.look(true, 0);
    let soon = Event::Looked { waits: true, runs: false, processor_us: 0 };
    bench.now = Tick(bench.now.0 + LOOK_EVERY_US - 1);
    assert_eq!(bench.step(soon.clone()), []);
    bench.now = Tick(bench.now.0 + 1);
    assert_eq!(bench.step(soon), lent(&[]));
}

#[test]
fn a_task_that_waits_itself_keeps_lending_when_its_threads_wait_no_more() {
    let (mut bench, _) = Bench::running();
    bench.look(true, 0);
    assert_eq!(bench.look(true, 0), lent(&[]));
    assert_eq!(bench.step(Event::Blocked { lease: LEASE }), [], "it is lent already");
    assert_eq!(bench.look(false, 0), [], "its own wait goes on");
    assert_eq!(bench.step(Event::Unblocked { lease: LEASE }), [TAKEN_BACK]);
}

#[test]
fn its_own_wait_counts_while_its_threads_wait_as_well() {
    let (mut bench, task) = Bench::running();
    assert_eq!(bench.step(Event::Blocked { lease: LEASE }), lent(&[]));
    bench.look(true, 0);
    assert_eq!(bench.look(true, 0), []);
    assert_eq!(bench.look(true, LOOK_EVERY_US), [], "its own wait goes on, whoever computes");
    assert_eq!(bench.finish(LEASE, &task, value(1))[0], TAKEN_BACK);
    assert_eq!(bench.look(true, 0), [], "nothing runs");
}

#[test]
fn an_actor_lends_as_a_task_does_unless_it_runs_several_calls() {
    for (limit, lends) in [(1, true), (2, false)] {
        let (mut bench, actor) = Bench::hosting_with(limit);
        let call = bench.call(actor, OWNER, 0);
        bench.run(OWNER, ACTOR_SEAT, &call);
        bench.look(true, 0);
        let effects = bench.look(true, 0);
        let lent = [Effect::Node(ToNode::Blocked { lease: ACTOR_SEAT })];
        assert_eq!(effects, if lends { &lent[..] } else { &[] }, "a limit of {limit}");
    }
}
