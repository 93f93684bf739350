//! Random events never break RES-1 and GRANT-1.

use proptest::prelude::*;

use super::*;

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
        3 => Just(Action::Settle),
        1 => (0u64..100_000_000).prop_map(|us| Action::Tick { us }),
    ]
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
                self.want_at(owner, pool, count, Resources::cpus(Amount(tenths * 1_000)), depth)
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
            Action::KillActor { n, restart } => {
                self.ask(DRIVER, ToNode::KillActor { actor: actor_of(&actor_spec(n, None, 0)), restart })
            }
            Action::ReleaseActor { n } => {
                self.ask(DRIVER, ToNode::ReleaseActor { actor: actor_of(&actor_spec(n, None, 0)) })
            }
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
        let leases = node.leases.values().map(super::super::leases::Lease::holds);
        leases.chain(node.pool.held_by_actors().map(|(held, _)| held)).for_each(|holds| held.give(&holds));
        let mut expected = node.config.total.clone();
        expected.cpus.0 += node.debt.0;
        assert_eq!(held, expected, "RES-1: free and held make the total and the debt");
        assert!(node.debt.0 == 0 || node.free.cpus.0 == 0, "RES-1: nothing is free while in debt");
        assert!(node.pool.workers.len() <= node.config.processes_max as usize);
        for effect in effects {
            let Effect::Send { message: FromNode::Granted { lease, worker, .. }, to } = effect else { continue };
            assert_ne!(worker, to, "GRANT-1: nobody gets a lease on itself");
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
