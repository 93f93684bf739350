//! Memory pressure: PRESS-1, PRESS-2, and who is ended.

use proptest::prelude::*;

use super::super::pressure::{CALM_AFTER_US, END_PAUSE_US, SAMPLE_STALE_US, SPILL_AGAIN_US, SPILL_GRACE_US};
use super::*;

const LIMIT: u64 = 1_000 << 20;

/// A sample with so many thousandths in use.
fn sample(permille: u64, workers: &[(ProcessId, u64)]) -> Event {
    let workers = workers.iter().map(|(process, mib)| (*process, mib << 20)).collect();
    Event::Memory { used_bytes: LIMIT / 1_000 * permille, limit_bytes: LIMIT, workers }
}

impl Fixture {
    fn memory(&mut self, permille: u64, workers: &[(ProcessId, u64)]) -> Vec<Effect> {
        self.step(sample(permille, workers))
    }

    fn later(&mut self, us: u64) -> &mut Self {
        self.now = self.now.plus_us(us);
        self
    }

    /// A task that cannot be run again, running there.
    fn run_last(&mut self, process: ProcessId, n: u64) {
        let mut spec = (*plain(root(DRIVER), n)).clone();
        spec.options = Arc::new(TaskOptions { retries_max: 0, ..(*spec.options).clone() });
        let spec = Arc::new(spec);
        self.submit(DRIVER, &spec);
        self.start(process, spec.id);
    }

    fn run(&mut self, process: ProcessId, n: u64) {
        let spec = plain(root(DRIVER), n);
        self.submit(DRIVER, &spec);
        self.start(process, spec.id);
    }
}

fn killed(effects: &[Effect]) -> Vec<ProcessId> {
    effects.iter().filter_map(|e| if let Effect::Kill(process) = e { Some(*process) } else { None }).collect()
}

fn spills(effects: &[Effect]) -> Vec<u64> {
    effects.iter().filter_map(|e| if let Effect::SpillSome { bytes } = e { Some(*bytes) } else { None }).collect()
}

#[test]
fn pressure_pauses_new_work_which_goes_on_when_it_ends_press_1() {
    let mut f = Fixture::new(2);
    assert_eq!(f.leased(DRIVER, 1, cpus(1.0)).len(), 1);
    assert_eq!(f.memory(870, &[]), []);
    assert_eq!(f.node.memory_level(), MemoryLevel::Pressed);
    assert!(f.node.load().pressed);
    assert_eq!(f.want_at(DRIVER, 1, 1, cpus(0.5), 0), [], "nothing is granted, and no worker is started");
    let spec = spec(root(DRIVER), 9, TaskKind::Plain, cpus(0.5));
    f.submit(DRIVER, &spec);
    let why = f.node.explain(spec.id, f.now);
    assert!(why.contains("memory is short (870 of 1000 MiB are in use)"), "{why}");
    assert_eq!(f.memory(700, &[]), [], "that it is lower has to last");
    assert_eq!(spawned(&f.later(CALM_AFTER_US).memory(700, &[])), [W3]);
    assert_eq!(f.node.memory_level(), MemoryLevel::Calm);
    assert_eq!(granted(&f.hello(W3)).len(), 1);
}

#[test]
fn a_use_just_below_the_threshold_is_still_pressure() {
    let mut f = Fixture::new(2);
    f.memory(860, &[]);
    for _ in 0..8 {
        f.later(CALM_AFTER_US).memory(840, &[]);
        assert_eq!(f.node.memory_level(), MemoryLevel::Pressed);
    }
    f.memory(820, &[]);
    f.later(CALM_AFTER_US / 2).memory(840, &[]);
    f.later(CALM_AFTER_US).memory(820, &[]);
    assert_eq!(f.node.memory_level(), MemoryLevel::Pressed, "it was higher in between");
    f.later(CALM_AFTER_US).memory(820, &[]);
    assert_eq!(f.node.memory_level(), MemoryLevel::Calm);
}

#[test]
fn where_nothing_runs_one_at_a_time_goes_on() {
    let mut f = Fixture::new(4);
    f.memory(870, &[]);
    assert_eq!(spawned(&f.want(DRIVER, 3, cpus(1.0))), [W2], "memory may be short for ever for reasons of others");
    let leases = granted(&f.hello(W2));
    assert_eq!(leases.len(), 1, "and no second one");
    let blocked = f.ask(W2, ToNode::Blocked { lease: leases[0].0 });
    assert_eq!(
        granted(&blocked).len() + spawned(&blocked).len(),
        1,
        "it waits for its children with its memory in hand"
    );
}

#[test]
fn nothing_at_all_is_granted_at_the_use_at_which_workers_are_ended() {
    let mut f = Fixture::new(4);
    f.memory(960, &[]);
    assert_eq!(f.want(DRIVER, 3, cpus(1.0)), []);
    assert_eq!(spawned(&f.memory(900, &[])), [W2], "below, one at a time");
}

#[test]
fn workers_are_not_started_ahead_while_memory_is_short() {
    let mut f = Fixture::with(NodeConfig { prestart: 2, ..NodeConfig::for_machine(cpus(2.0)) });
    f.memory(900, &[]);
    assert_eq!(f.step(Event::Started), []);
    f.memory(100, &[]);
    assert_eq!(spawned(&f.later(CALM_AFTER_US).memory(100, &[])).len(), 2);
}

#[test]
fn objects_are_spilled_before_anybody_is_ended_press_2() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 2, cpus(1.0));
    let workers = [(W2, 300), (W3, 500)];
    let effects = f.memory(960, &workers);
    assert_eq!((spills(&effects), killed(&effects)), (vec![130 * (LIMIT / 1_000)], vec![]));
    assert_eq!(f.later(SPILL_GRACE_US - 1).memory(960, &workers), []);
    assert_eq!(f.later(1).memory(960, &workers), [Effect::Kill(W3)]);
    assert_eq!(spills(&f.later(SPILL_AGAIN_US - SPILL_GRACE_US).memory(960, &workers)).len(), 1);
}

#[test]
fn a_spill_that_helps_saves_the_worker() {
    let mut f = Fixture::new(2);
    f.leased(DRIVER, 2, cpus(1.0));
    f.memory(960, &[(W2, 300)]);
    assert_eq!(f.later(SPILL_GRACE_US / 2).memory(940, &[(W2, 300)]), []);
    assert_eq!(killed(&f.later(SPILL_GRACE_US / 2).memory(960, &[(W2, 300)])), [], "it begins anew");
}

/// Three leased workers, in the state in which one of them is ended by the next sample.
fn about_to_end(count: u32) -> Fixture {
    let mut f = Fixture::new(4);
    assert_eq!(f.leased(DRIVER, count, cpus(1.0)).len(), count as usize);
    f.memory(960, &[]);
    f.later(SPILL_GRACE_US);
    f
}

#[test]
fn a_task_that_can_be_run_again_goes_before_one_of_comparable_size_that_cannot() {
    let mut f = about_to_end(3);
    f.run(W2, 1);
    f.run_last(W3, 2);
    assert_eq!(killed(&f.memory(960, &[(W2, 200), (W3, 390), (W4, 30)])), [W2]);
    let mut f = about_to_end(3);
    f.run(W2, 1);
    f.run_last(W3, 2);
    assert_eq!(killed(&f.memory(960, &[(W2, 200), (W3, 410), (W4, 30)])), [W3], "it has more than twice as much");
}

#[test]
fn an_actor_goes_last() {
    let mut f = about_to_end(1);
    f.memory(100, &[]);
    f.later(CALM_AFTER_US).memory(100, &[]);
    let spec = actor_spec(5, None, 0);
    f.submit(DRIVER, &spec);
    assert_eq!(spawned(&f.ask(DRIVER, ToNode::CreateActor { spec: spec.clone(), resolved: vec![] })), [W3]);
    f.hello(W3);
    f.run_last(W2, 1);
    f.memory(960, &[]);
    assert_eq!(killed(&f.later(SPILL_GRACE_US).memory(960, &[(W2, 200), (W3, 390)])), [W2]);
}

#[test]
fn the_death_names_the_use_and_the_limit() {
    let mut f = about_to_end(1);
    f.memory(960, &[(W2, 700)]);
    let effects = f.exit(W2);
    let cause = DeathCause::MemoryPressure { used: 700 << 20, limit: LIMIT, node_used: LIMIT / 1_000 * 960 };
    assert!(effects.contains(&to(DRIVER, died(W2, cause.clone()))), "{effects:?}");
    let text = cause.to_string();
    assert!(text.contains("it had 700 MiB, and 960 of 1000 MiB were in use"), "{text}");
}

#[test]
fn the_next_one_is_ended_when_the_last_is_gone_and_some_time_has_passed() {
    let workers = [(W2, 300), (W3, 400), (W4, 50)];
    let mut f = about_to_end(3);
    assert_eq!(killed(&f.memory(960, &workers)), [W3]);
    assert_eq!(killed(&f.later(4 * END_PAUSE_US).memory(960, &workers)), [], "it is not gone yet");
    f.exit(W3);
    assert_eq!(killed(&f.later(END_PAUSE_US - 1).memory(960, &workers)), []);
    assert_eq!(killed(&f.later(1).memory(960, &workers)), [W2]);
}

#[test]
fn nobody_is_ended_for_memory_that_other_programs_use() {
    let mut f = about_to_end(2);
    assert_eq!(killed(&f.memory(960, &[(W2, 5), (W3, 9)])), []);
    f.want_at(DRIVER, 1, 1, cpus(0.5), 0);
    let spec = spec(root(DRIVER), 9, TaskKind::Plain, cpus(0.5));
    f.submit(DRIVER, &spec);
    let why = f.node.explain(spec.id, f.now);
    assert!(why.contains("used by other programs"), "{why}");
}

#[test]
fn when_nobody_measures_any_more_work_goes_on() {
    let mut f = Fixture::new(2);
    f.memory(960, &[]);
    f.want(DRIVER, 1, cpus(1.0));
    assert_eq!(f.node.deadline(), Some(Tick(SAMPLE_STALE_US)));
    assert_eq!(spawned(&f.later(SAMPLE_STALE_US).step(Event::Ticked)), [W2]);
}

#[test]
fn a_sample_without_a_limit_says_nothing() {
    let mut f = Fixture::new(2);
    f.step(Event::Memory { used_bytes: 5, limit_bytes: 0, workers: vec![] });
    assert_eq!(f.node.memory_level(), MemoryLevel::Calm);
}

#[test]
fn the_thresholds_follow_the_fraction() {
    let all = |t: MemoryThresholds| (t.pause_permille, t.spill_permille, t.end_permille);
    assert_eq!(all(MemoryThresholds::ending_at(0.95)), (850, 900, 950));
    assert_eq!(all(MemoryThresholds::ending_at(0.5)), (447, 473, 500));
}

#[derive(Clone, Debug)]
enum Action {
    Want { pool: u32, count: u32 },
    Return(usize),
    Block(usize),
    Unblock(usize),
    Hello(u32),
    Gone,
    Settle,
    Memory { permille: u64, mib: Vec<u64> },
    Wait(u64),
}

fn any_action() -> impl Strategy<Value = Action> {
    let permille = prop_oneof![2 => Just(500u64), 2 => 800u64..1_000, 3 => Just(960u64)];
    prop_oneof![
        2 => (0u32..3, 1u32..4).prop_map(|(pool, count)| Action::Want { pool, count }),
        2 => (0usize..4).prop_map(Action::Return),
        1 => (0usize..4).prop_map(Action::Block),
        1 => (0usize..4).prop_map(Action::Unblock),
        3 => (0u32..6).prop_map(Action::Hello),
        1 => Just(Action::Gone),
        1 => Just(Action::Settle),
        6 => (permille, proptest::collection::vec(1u64..500, 6))
            .prop_map(|(permille, mib)| Action::Memory { permille, mib }),
        3 => (1u64..700_000).prop_map(Action::Wait),
    ]
}

impl Fixture {
    fn pressed_lease(&self, n: usize) -> Option<(LeaseId, ProcessId)> {
        self.node.leases.iter().filter(|(_, lease)| lease.announced).nth(n).map(|(id, lease)| (*id, lease.worker))
    }

    fn apply(&mut self, action: Action, dying: &mut Vec<ProcessId>) -> Vec<Effect> {
        let slots = |f: &Self| f.node.pool.workers.keys().copied().collect::<Vec<_>>();
        match action {
            Action::Want { pool, count } => self.want_at(DRIVER, pool, count, cpus(0.5 + f64::from(pool) / 2.0), 0),
            Action::Return(n) => {
                let lease = self.pressed_lease(n);
                lease.map(|(lease, _)| self.ask(DRIVER, ToNode::ReturnLease { lease })).unwrap_or_default()
            }
            Action::Block(n) => {
                let lease = self.pressed_lease(n);
                lease.map(|(lease, worker)| self.ask(worker, ToNode::Blocked { lease })).unwrap_or_default()
            }
            Action::Unblock(n) => {
                let lease = self.pressed_lease(n);
                lease.map(|(lease, worker)| self.ask(worker, ToNode::Unblocked { lease })).unwrap_or_default()
            }
            Action::Hello(slot) => {
                let found = slots(self).into_iter().find(|process| process.slot == slot + 2);
                found.map(|process| self.hello(process)).unwrap_or_default()
            }
            Action::Gone => dying.pop().map(|process| self.exit(process)).unwrap_or_default(),
            Action::Settle => {
                let open = self.node.settling.iter().flat_map(|(dead, who)| who.iter().map(|p| (*p, *dead)));
                let open: Vec<_> = open.collect();
                open.into_iter().flat_map(|(process, dead)| self.settle(process, dead)).collect()
            }
            Action::Memory { permille, mib } => {
                let workers: Vec<_> = slots(self).into_iter().zip(mib).collect();
                self.memory(permille, &workers)
            }
            Action::Wait(us) => self.later(us).step(Event::Passed),
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_started_beside_what_runs_and_nobody_is_ended_too_soon(
        actions in proptest::collection::vec(any_action(), 1..120),
    ) {
        let mut f = Fixture::new(3);
        let (mut dying, mut last_end, mut over_since) = (Vec::new(), None::<Tick>, None::<Tick>);
        for action in actions {
            let before: BTreeSet<LeaseId> = f.node.leases.keys().copied().collect();
            let sampled = if let Action::Memory { permille, .. } = &action { Some(*permille) } else { None };
            let effects = f.apply(action, &mut dying);
            if let Some(permille) = sampled {
                over_since = if permille >= 950 { over_since.or(Some(f.now)) } else { None };
            }
            for process in killed(&effects) {
                prop_assert!(over_since.is_some_and(|since| f.now.since_us(since) >= SPILL_GRACE_US));
                prop_assert!(last_end.is_none_or(|at| f.now.since_us(at) >= END_PAUSE_US));
                last_end = Some(f.now);
                dying.push(process);
            }
            prop_assert!(dying.len() <= 1, "one at a time");
            if f.node.memory_level() > MemoryLevel::Calm {
                let new: Vec<LeaseId> = f.node.leases.keys().copied().filter(|id| !before.contains(id)).collect();
                let running = f.node.leases.values().filter(|lease| !lease.blocked).count();
                prop_assert!(new.is_empty() || (new.len() == 1 && running == 1), "PRESS-1: {new:?} of {running}");
            }
        }
        // Pressure ends, and so does all that runs: whoever waits is served.
        for process in dying {
            f.exit(process);
        }
        for _ in 0..20 {
            f.later(CALM_AFTER_US).memory(100, &[]);
            f.apply(Action::Settle, &mut Vec::new());
            for slot in 0..8 {
                f.apply(Action::Hello(slot), &mut Vec::new());
            }
            f.apply(Action::Return(0), &mut Vec::new());
        }
        prop_assert_eq!(f.node.memory_level(), MemoryLevel::Calm);
        prop_assert_eq!(f.node.queue.len(), 0);
    }
}
