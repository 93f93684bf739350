//! GPU-1: which GPUs a lease or an actor has.

use super::*;

fn machine(gpus: u64) -> Fixture {
    let mut total = Resources::cpus(Amount::whole(8));
    total.gpus = Amount::whole(gpus);
    Fixture::with(NodeConfig { prestart: 0, processes_max: 8, ..NodeConfig::for_machine(total) })
}

fn gpus(n: f64) -> Resources {
    Resources { gpus: Amount::from_f64("gpus", n).unwrap(), ..cpus(1.0) }
}

/// Wants one lease and greets the process for it; tells the lease and its GPUs.
fn lease(f: &mut Fixture, pool: u32, n: f64) -> Option<(LeaseId, Vec<u32>)> {
    let mut effects = f.want_at(DRIVER, pool, 1, gpus(n), 0);
    for process in spawned(&effects) {
        effects.extend(f.hello(process));
    }
    opened(&effects)
}

fn opened(effects: &[Effect]) -> Option<(LeaseId, Vec<u32>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { message: FromNode::LeaseOpened { lease, gpus, .. }, .. } => Some((*lease, gpus.clone())),
        _ => None,
    })
}

#[test]
fn whole_gpus_are_distinct_and_fractions_share_one_gpu_1() {
    let mut f = machine(3);
    assert_eq!(lease(&mut f, 0, 0.5), Some((LeaseId(1), vec![0])));
    assert_eq!(lease(&mut f, 1, 0.5), Some((LeaseId(2), vec![0])));
    assert_eq!(lease(&mut f, 2, 2.0), Some((LeaseId(3), vec![1, 2])));
    assert_eq!(lease(&mut f, 3, 0.1), None);
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(2) });
    assert_eq!(opened(&effects), Some((LeaseId(4), vec![0])));
}

#[test]
fn halves_of_two_are_not_one() {
    let mut f = machine(2);
    for pool in 0..4 {
        assert!(lease(&mut f, pool, 0.5).is_some());
    }
    // One half of each comes back: one GPU in sum, none in one piece.
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(1) });
    f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(3) });
    assert_eq!(lease(&mut f, 4, 1.0), None);
    let spec = spec(root(DRIVER), 1, TaskKind::Plain, gpus(1.0));
    f.submit(DRIVER, &spec);
    let text = f.node.explain(spec.id, f.now);
    assert!(text.contains("1 GPUs are free, but not on as few"), "{text}");
    let effects = f.ask(DRIVER, ToNode::ReturnLease { lease: LeaseId(4) });
    assert_eq!(opened(&effects), Some((LeaseId(5), vec![1])));
}

#[test]
fn an_actor_keeps_its_gpus_until_its_process_is_gone() {
    let mut f = machine(1);
    let options = ActorOptions { restarts_max: 1, ..ActorOptions::default() };
    let spec = spec(root(DRIVER), 1, TaskKind::Create(options), gpus(1.0));
    f.ask(DRIVER, ToNode::CreateActor { spec: spec.clone(), resolved: Vec::new() });
    let effects = f.hello(W2);
    let [Effect::Send { to: W2, message: FromNode::Construct { gpus, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(gpus, &[0]);
    assert_eq!(lease(&mut f, 0, 1.0), None);
    f.ask(DRIVER, ToNode::KillActor { actor: actor_of(&spec), manager: crate::id::NodeId::ALONE, restart: false });
    let effects = f.exit(W2);
    let mut effects = spawned(&effects).into_iter().flat_map(|process| f.hello(process)).collect::<Vec<_>>();
    effects.extend(f.settle(DRIVER, W2));
    assert_eq!(opened(&effects), Some((LeaseId(1), vec![0])));
}

#[test]
fn a_dead_worker_gives_its_gpus_back() {
    let mut f = machine(1);
    assert!(lease(&mut f, 0, 1.0).is_some());
    f.exit(W2);
    f.settle(DRIVER, W2);
    assert_eq!(lease(&mut f, 1, 1.0).map(|(_, gpus)| gpus), Some(vec![0]));
}

#[test]
fn one_and_a_half_gpus_are_refused_with_the_reason() {
    let mut f = machine(4);
    let effects = f.want(DRIVER, 1, gpus(1.5));
    let [Effect::Send { to: DRIVER, message: FromNode::Infeasible { asked, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(asked.contains("1.5 GPUs (above 1, GPUs are whole numbers)"), "{asked}");
    let spec = spec(root(DRIVER), 1, TaskKind::Create(ActorOptions::default()), gpus(2.5));
    let effects = f.ask(DRIVER, ToNode::CreateActor { spec, resolved: Vec::new() });
    let [Effect::Send { to: DRIVER, message: FromNode::ActorCreated { value, .. } }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(value.failure().unwrap().to_string().contains("whole numbers"), "{value:?}");
}
