#![allow(clippy::unwrap_used)]

use super::*;
use crate::fabric::SlotId;

fn fabric_and_slot() -> (Fabric, SlotId) {
    let fabric = Fabric::create().unwrap();
    let slot = SlotId::new(0).unwrap();
    fabric.claim_slot(slot, 1);
    (fabric, slot)
}

#[test]
fn what_is_ready_needs_no_spin_and_never_means_never() {
    let (fabric, _) = fabric_and_slot();
    let mut policy = SpinPolicy::new(SpinMode::Never);
    assert_eq!(policy.spin(&fabric, || true), SpinOutcome::Ready);
    let mut polls = 0;
    let outcome = policy.spin(&fabric, || {
        polls += 1;
        false
    });
    assert_eq!((outcome, polls), (SpinOutcome::GaveUp, 1));
}

#[test]
fn nobody_spins_while_every_core_runs_user_code() {
    let (fabric, slot) = fabric_and_slot();
    // Ourselves and one for each core.
    for _ in 0..=fabric.ncpus() {
        fabric.enter_running(slot);
    }
    let mut policy = SpinPolicy::new(SpinMode::Adaptive);
    let mut polls = 0;
    let outcome = policy.spin(&fabric, || {
        polls += 1;
        false
    });
    assert_eq!((outcome, polls), (SpinOutcome::NoSpareCore, 1));
}

#[test]
fn who_passes_on_what_others_say_leaves_a_core_to_each_of_them() {
    let (fabric, slot) = fabric_and_slot();
    // Ourselves and as many as leave one core.
    for _ in 0..fabric.ncpus() - 1 {
        fabric.enter_running(slot);
    }
    // So early no census is due.
    assert_eq!(SpinPolicy::new(SpinMode::Adaptive).refuse(&fabric, 1), None);
    let refused = SpinPolicy::between_two(SpinMode::Adaptive).refuse(&fabric, 1);
    assert_eq!(refused, Some(SpinOutcome::NoSpareCore));
}

#[test]
fn who_passes_on_without_a_spare_core_gives_way_unless_its_waits_are_long() {
    let (fabric, slot) = fabric_and_slot();
    for _ in 0..fabric.ncpus() {
        fabric.enter_running(slot);
    }
    let mut policy = SpinPolicy::between_two(SpinMode::Adaptive);
    let mut polls = 0;
    let outcome = policy.spin(&fabric, || {
        polls += 1;
        polls == GIVING_WAY_POLLS
    });
    assert_eq!(outcome, SpinOutcome::Ready);
    for _ in 0..50 {
        policy.waited(Duration::from_millis(3));
    }
    assert_eq!(policy.spin(&fabric, || false), SpinOutcome::NoSpareCore);
}

#[test]
fn a_spin_ends_when_somebody_needs_the_core() {
    let (fabric, slot) = fabric_and_slot();
    let mut policy = SpinPolicy::new(SpinMode::Adaptive);
    let mut polls = 0;
    let outcome = policy.poll(&fabric, now_ns(), || {
        polls += 1;
        if polls == 2 {
            (0..=fabric.ncpus()).for_each(|_| fabric.enter_running(slot));
        }
        false
    });
    assert_eq!(outcome, SpinOutcome::NoSpareCore);
}

#[test]
fn long_waits_are_slept_through_but_probed_now_and_then() {
    let (fabric, _) = fabric_and_slot();
    let mut policy = SpinPolicy::new(SpinMode::Adaptive);
    for _ in 0..50 {
        policy.waited(Duration::from_millis(3));
    }
    // So early no census is due.
    let refusals = (0..2 * PROBE_EVERY).filter(|_| policy.refuse(&fabric, 1).is_some()).count();
    assert_eq!(refusals as u32, 2 * PROBE_EVERY - 2);
    for _ in 0..30 {
        policy.waited(Duration::from_micros(1));
    }
    assert_eq!(policy.refuse(&fabric, 1), None);
}

#[test]
fn a_preempted_spinner_stays_away_for_longer_each_time() {
    let mut policy = SpinPolicy::new(SpinMode::Adaptive);
    let (fabric, _) = fabric_and_slot();
    policy.back_off(PEACE_NS + 1);
    let first = policy.resume_at_ns;
    assert_eq!(policy.refuse(&fabric, first - 1), Some(SpinOutcome::NoSpareCore));
    policy.back_off(first);
    assert_eq!(policy.resume_at_ns, first + 2 * BACKOFF_MIN_NS);
    for _ in 0..20 {
        policy.back_off(policy.resume_at_ns);
    }
    assert_eq!(policy.backoff_ns, BACKOFF_MAX_NS);
}
