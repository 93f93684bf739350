//! Random events never break RES-1, GRANT-1 and GROUP-1.

use proptest::prelude::*;

use super::super::stock::Stock;
use super::*;
use crate::id::GroupId;
use crate::spec::GroupStrategy;

const SLOTS: u32 = 6;

#[derive(Clone, Debug)]
enum Action {
    Want { who: u32, pool: u32, count: u32, tenths: u64, depth: u32 },
    Return { who: usize },
    Block { who: usize },
    Unblock { who: usize },
    Hello { slot: u32 },
    Exit { slot: u32 },
    CreateActor { n: u64, restarts: u32 },
    Constructed { slot: u32, fails: bool },
    KillActor { n: u64, restart: bool },
    ReleaseActor { n: u64 },
    CreateGroup { n: u64, tenths: Vec<u64> },
    RemoveGroup { n: u64 },
    Enter { who: u32, n: u64, bundle: Option<u32>, count: u32, tenths: u64 },
    CreateActorIn { n: u64, group: u64 },
    Pass,
    Settle,
    Tick { us: u64 },
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..SLOTS, 0u32..3, 0u32..5, 0u64..25, 0u32..4)
            .prop_map(|(who, pool, count, tenths, depth)| Action::Want { who, pool, count, tenths, depth }),
        4 => (0usize..8).prop_map(|who| Action::Return { who }),
        3 => (0usize..8).prop_map(|who| Action::Block { who }),
        3 => (0usize..8).prop_map(|who| Action::Unblock { who }),
        6 => (0..SLOTS).prop_map(|slot| Action::Hello { slot }),
        1 => (0..SLOTS).prop_map(|slot| Action::Exit { slot }),
        1 => (0u64..4, 0u32..3).prop_map(|(n, restarts)| Action::CreateActor { n, restarts }),
        2 => (0..SLOTS, any::<bool>()).prop_map(|(slot, fails)| Action::Constructed { slot, fails }),
        1 => (0u64..4, any::<bool>()).prop_map(|(n, restart)| Action::KillActor { n, restart }),
        1 => (0u64..4).prop_map(|n| Action::ReleaseActor { n }),
        1 => (0u64..3, proptest::collection::vec(1u64..12, 1..3))
            .prop_map(|(n, tenths)| Action::CreateGroup { n, tenths }),
        1 => (0u64..3).prop_map(|n| Action::RemoveGroup { n }),
        3 => (0..SLOTS, 0u64..3, proptest::option::of(0u32..2), 0u32..4, 0u64..12)
            .prop_map(|(who, n, bundle, count, tenths)| Action::Enter { who, n, bundle, count, tenths }),
        1 => (0u64..4, 0u64..3).prop_map(|(n, group)| Action::CreateActorIn { n, group }),
        1 => Just(Action::Pass),
        3 => Just(Action::Settle),
        1 => (0u64..100_000_000).prop_map(|us| Action::Tick { us }),
    ]
}

fn nth_group(n: u64) -> GroupId {
    GroupId(root(DRIVER).child(9, n, 0))
}

impl Fixture {
    fn in_slot(&self, slot: u32) -> Option<ProcessId> {
        self.node.pool.workers.keys().copied().find(|process| process.slot == slot + 2)
    }

    fn nth_lease(&self, n: usize) -> Option<(LeaseId, ProcessId, ProcessId)> {
        let lease = self.node.leases.iter().filter(|(_, lease)| lease.announced).nth(n)?;
        Some((*lease.0, lease.1.owner, lease.1.worker))
    }

    fn act(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::Want { who, pool, count, tenths, depth } => {
                let owner = self.in_slot(who).unwrap_or(DRIVER);
                let resources = Resources::cpus(Amount(tenths * 1_000));
                let shape = crate::spec::Shape { resources, threads_per_worker: pool, ..Default::default() };
                self.ask(owner, ToNode::WantLeases { pool, shape, count, depth })
            }
            Action::Return { who } => match self.nth_lease(who) {
                Some((lease, owner, _)) => self.ask(owner, ToNode::ReturnLease { lease }),
                None => Vec::new(),
            },
            Action::Block { who } => match self.nth_lease(who) {
                Some((lease, _, worker)) => self.ask(worker, ToNode::Blocked { lease }),
                None => self.ask(W2, ToNode::Blocked { lease: LeaseId(0) }),
            },
            Action::Unblock { who } => match self.nth_lease(who) {
                Some((lease, _, worker)) => self.ask(worker, ToNode::Unblocked { lease }),
                None => self.ask(W2, ToNode::Unblocked { lease: LeaseId(0) }),
            },
            Action::Hello { slot } => self.in_slot(slot).map(|p| self.hello(p)).unwrap_or_default(),
            Action::Exit { slot } => self.in_slot(slot).map(|p| self.exit(p)).unwrap_or_default(),
            Action::CreateActor { n, restarts } => {
                let spec = actor_spec(n, None, restarts);
                self.submit(DRIVER, &spec);
                self.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() })
            }
            Action::Constructed { slot, fails } => {
                let Some(process) = self.in_slot(slot) else { return Vec::new() };
                let WorkerState::Hosting(actor) = self.node.pool.workers[&process].state else { return Vec::new() };
                let failed = Value::failed(crate::failure::Failure::ShutDown);
                let value = if fails { failed } else { Value::inline(vec![]) };
                self.ask(process, ToNode::ActorConstructed { actor, value })
            }
            Action::KillActor { n, restart } => self.ask(
                DRIVER,
                ToNode::KillActor {
                    actor: actor_of(&actor_spec(n, None, 0)),
                    manager: crate::id::NodeId::ALONE,
                    restart,
                },
            ),
            Action::ReleaseActor { n } => {
                self.ask(DRIVER, ToNode::ReleaseActor { actor: actor_of(&actor_spec(n, None, 0)) })
            }
            Action::CreateGroup { n, tenths } => {
                let bundles = tenths.into_iter().map(|tenths| Resources::cpus(Amount(tenths * 1_000))).collect();
                let (group, strategy) = (nth_group(n), GroupStrategy::Pack);
                self.ask(DRIVER, ToNode::CreateGroup { group, name: None, strategy, bundles, detached: false })
            }
            Action::RemoveGroup { n } => self.ask(DRIVER, ToNode::RemoveGroup { group: nth_group(n) }),
            Action::Enter { who, n, bundle, count, tenths } => {
                let owner = self.in_slot(who).unwrap_or(DRIVER);
                let strategy = crate::spec::Strategy::Group { group: nth_group(n), bundle };
                let resources = Resources::cpus(Amount(tenths * 1_000));
                let shape = crate::spec::Shape { resources, strategy, ..Default::default() };
                // A pool has one shape.
                let pool = 10 + n as u32 * 40 + bundle.map_or(0, |b| b + 1) * 12 + tenths as u32;
                self.ask(owner, ToNode::WantLeases { pool, shape, count, depth: 0 })
            }
            Action::CreateActorIn { n, group } => {
                let mut spec = (*actor_spec(n, None, 1)).clone();
                let strategy = crate::spec::Strategy::Group { group: nth_group(group), bundle: None };
                spec.options = Arc::new(TaskOptions { strategy, ..(*spec.options).clone() });
                let spec = Arc::new(spec);
                self.submit(DRIVER, &spec);
                self.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() })
            }
            Action::Pass => self.step(Event::Passed),
            Action::Settle => {
                let open: Vec<_> =
                    self.node.settling.iter().flat_map(|(dead, who)| who.iter().map(|p| (*p, *dead))).collect();
                open.into_iter().flat_map(|(process, dead)| self.settle(process, dead)).collect()
            }
            Action::Tick { us } => {
                self.now = self.now.plus_us(us);
                self.step(Event::Ticked)
            }
        }
    }

    fn check(&self, effects: &[Effect]) {
        let node = &self.node;
        let mut held = node.free.clone();
        node.groups.reserved().for_each(|bundle| held.give(&bundle.total));
        let leases = node.leases.values().map(|lease| (lease.stock, lease.holds()));
        let holders: Vec<(Stock, Resources)> =
            leases.chain(node.pool.workers.values().map(|worker| (worker.stock, worker.holds()))).collect();
        let own = |stock: &Stock| node.groups.bundle(*stock).is_none();
        holders.iter().filter(|(stock, _)| own(stock)).for_each(|(_, holds)| held.give(holds));
        for (stock, _) in holders.iter().filter(|(stock, _)| !own(stock)) {
            let Some(bundle) = node.groups.bundle(*stock) else { continue };
            let mut held = bundle.free.clone();
            holders.iter().filter(|(other, _)| other == stock).for_each(|(_, holds)| held.give(holds));
            let mut expected = bundle.total.clone();
            expected.cpus.0 += bundle.debt.0;
            assert_eq!(held, expected, "RES-1: in a bundle too, free and held make the total and the debt");
        }
        for group in node.groups.all.keys() {
            let (placed, wanted) = (node.groups.bundles(*group, None).count(), node.groups.wanted(*group));
            assert!(placed == 0 || Some(placed) == wanted.map(<[_]>::len), "GROUP-1: a group is whole or absent");
        }
        let mut expected = node.config.total.clone();
        expected.cpus.0 += node.debt.0;
        assert_eq!(held, expected, "RES-1: free and held make the total and the debt");
        assert!(node.debt.0 == 0 || node.free.cpus.0 == 0, "RES-1: nothing is free while in debt");
        self.check_lending();
        assert!(node.pool.workers.len() <= node.config.processes_max as usize);
        for effect in effects {
            let Effect::Send { message: FromNode::Granted { lease, worker, .. }, to } = effect else { continue };
            let alone = node.pool.in_use.len() >= node.config.processes_max as usize;
            assert!(worker != to || alone, "GRANT-1: nobody gets a lease on itself while there may be another process");
            if let Some(lease) = node.leases.get(lease) {
                assert!(node.live.contains(&lease.worker), "GRANT-1: {worker} lives");
                assert!(node.pool.workers[worker].ended.is_none(), "GRANT-1: {worker} is not being ended");
            }
        }
        for (process, worker) in &node.pool.workers {
            let announced = node.leases.iter().filter(|(_, l)| l.announced && l.worker == *process).count();
            assert_eq!(worker.leases.len(), announced, "{process} hosts what it was given");
            assert!(announced == 0 || worker.state == WorkerState::Leased, "{process} is {:?}", worker.state);
        }
    }
}

impl Fixture {
    /// A debt is being collected.
    fn check_lending(&self) {
        let node = &self.node;
        let own = |stock: &Stock| node.groups.bundle(*stock).is_none();
        let pays = |lease: &&Lease| own(&lease.stock) && !lease.blocked && lease.resources.cpus.0 > 0;
        let (asked, others): (Vec<_>, Vec<_>) = node.leases.values().filter(pays).partition(|lease| lease.reclaimed);
        let asked: u64 = asked.iter().map(|lease| lease.resources.cpus.0).sum();
        // What ran in a group that was removed is being ended.
        let spare = others.iter().any(|lease| lease.stock == Stock::Machine && node.live.contains(&lease.owner));
        assert!(asked >= node.debt.0 || !spare, "RES-1: leases are asked for until they cover the debt");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_events_never_oversubscribe_and_grants_go_only_to_live_workers(
        actions in proptest::collection::vec(any_action(), 1..120)
    ) {
        let mut config = NodeConfig::for_machine(cpus(2.0));
        (config.prestart, config.processes_max, config.threads_per_process_max) = (1, SLOTS, 3);
        let mut f = Fixture::with(config);
        f.step(Event::Started);
        for action in actions {
            let effects = f.act(action);
            f.check(&effects);
        }
        // Afterwards everything ends and nothing is left behind.
        f.node.config.prestart = 0;
        for n in 0..4 {
            f.act(Action::KillActor { n, restart: false });
        }
        for (who, pool) in (0..=SLOTS).flat_map(|who| (0..3).map(move |pool| (who, pool))) {
            f.act(Action::Want { who, pool, count: 0, tenths: 0, depth: 0 });
        }
        for n in 0..3 {
            f.act(Action::RemoveGroup { n });
        }
        for _ in 0..=SLOTS {
            for process in (0..SLOTS).filter_map(|slot| f.in_slot(slot)).collect::<Vec<_>>() {
                f.exit(process);
                f.act(Action::Settle);
            }
        }
        prop_assert!(f.node.pool.workers.is_empty() && f.node.leases.is_empty());
        prop_assert_eq!(&f.node.free, &f.node.config.total, "all is given back");
        prop_assert_eq!(f.node.debt, Amount(0));
    }
}
