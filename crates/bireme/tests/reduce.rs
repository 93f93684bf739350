//! Reduces as users write them, on one node: small arrays and large ones, late inputs, counts, orders and mistakes.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use bireme::{Array, Context, Error, Failure, ObjectRef, ReduceOp, ReducePlan};

const PATIENCE: Duration = Duration::from_secs(60);
/// In a message, and in the store.
const LENGTHS: [usize; 2] = [1_000, 300_000];

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0).object_store_memory(256 << 20)).unwrap()
}

#[bireme::remote]
fn ramp(len: usize, by: f32) -> Array {
    Array::from((0..len).map(|at| (at % 100) as f32 * by).collect::<Vec<f32>>())
}

#[bireme::remote]
fn fails() -> Result<Array, String> {
    Err("no array today".to_owned())
}

fn ramps(len: usize, factors: &[f32]) -> Vec<ObjectRef<Array>> {
    factors.iter().map(|by| ramp::remote(len, *by)).collect()
}

/// The array is the ramp with this factor.
fn assert_ramp(array: &Array, len: usize, by: f32) {
    let found = array.view::<f32>().unwrap();
    assert_eq!(found.len(), len);
    let wrong = found.iter().enumerate().find(|(at, found)| **found != (*at % 100) as f32 * by);
    assert_eq!(wrong, None);
}

fn failure_of(reference: &ObjectRef<Array>) -> String {
    match reference.get_timeout(PATIENCE) {
        Err(Error::Failed(failure)) if matches!(*failure, Failure::Reduce { .. }) => failure.to_string(),
        other => panic!("a reduce that fails: {other:?}"),
    }
}

#[test]
fn arrays_are_reduced_by_every_operation() {
    let _context = start();
    for len in LENGTHS {
        let inputs = ramps(len, &[1.0, 2.0, 4.0, 1.0]);
        let reduced = |op| bireme::reduce(&inputs, op).start().get_timeout(PATIENCE).unwrap();
        assert_ramp(&reduced(ReduceOp::Sum), len, 8.0);
        assert_ramp(&reduced(ReduceOp::Mean), len, 2.0);
        assert_ramp(&reduced(ReduceOp::Min), len, 1.0);
        assert_ramp(&reduced(ReduceOp::Max), len, 4.0);
        let product = reduced(ReduceOp::Product);
        assert_eq!(product.view::<f32>().unwrap()[[2]], 2.0 * 4.0 * 8.0 * 2.0);
    }
}

#[test]
fn one_input_is_its_own_reduce() {
    let _context = start();
    for len in LENGTHS {
        let inputs = ramps(len, &[3.0]);
        let reduced = bireme::reduce(&inputs, ReduceOp::Mean).start();
        assert_ramp(&reduced.get_timeout(PATIENCE).unwrap(), len, 3.0);
        assert_eq!(reduced.used_inputs().unwrap(), [0]);
    }
}

#[test]
fn reduces_feed_reduces_and_outlive_their_inputs() {
    let _context = start();
    for len in LENGTHS {
        let first = bireme::reduce(&ramps(len, &[1.0, 2.0]), ReduceOp::Sum).start();
        let second = bireme::reduce(&ramps(len, &[4.0, 8.0]), ReduceOp::Sum).plan(ReducePlan::Star).start();
        let all = bireme::reduce([&first, &second], ReduceOp::Max).start();
        assert_ramp(&all.get_timeout(PATIENCE).unwrap(), len, 12.0);
    }
}

#[test]
fn more_inputs_than_one_stage_takes_are_reduced_too() {
    let _context = start();
    let factors: Vec<f32> = (0..70).map(|n| n as f32).collect();
    let inputs = ramps(40_000, &factors);
    for reduce in [bireme::reduce(&inputs, ReduceOp::Sum), bireme::reduce(&inputs, ReduceOp::Sum).fixed_order()] {
        assert_ramp(&reduce.start().get_timeout(PATIENCE).unwrap(), 40_000, 69.0 * 35.0);
    }
}

#[test]
fn a_count_takes_the_first_that_are_ready() {
    let _context = start();
    for len in LENGTHS {
        let inputs = ramps(len, &[1.0, 1.0, 1.0]);
        bireme::wait(&inputs, 3, Some(PATIENCE)).unwrap();
        let two = bireme::reduce(&inputs, ReduceOp::Sum).count(2).start();
        assert_ramp(&two.get_timeout(PATIENCE).unwrap(), len, 2.0);
        assert_eq!(two.used_inputs().unwrap(), [0, 1]);
        let mut with_failed = vec![fails::remote()];
        bireme::wait(&with_failed, 1, Some(PATIENCE)).unwrap();
        with_failed.extend(inputs);
        let three = bireme::reduce(&with_failed, ReduceOp::Sum).count(3).start();
        assert_eq!(three.used_inputs().unwrap(), [1, 2, 3], "what failed is not taken");
    }
}

#[test]
fn a_fixed_order_gives_equal_bits() {
    let _context = start();
    let inputs = ramps(100_000, &[1e-3, 1e7, -1e7, 0.1, 3.3]);
    let bits = || {
        let sum = bireme::reduce(&inputs, ReduceOp::Sum).fixed_order().start().get_timeout(PATIENCE).unwrap();
        sum.view::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
    };
    let first = bits();
    let folded = ((((7.0 * 1e-3_f32) + 7.0 * 1e7) + 7.0 * -1e7) + 7.0 * 0.1) + 7.0 * 3.3;
    assert_eq!(first[7], folded.to_bits());
    assert_eq!(first, bits());
}

#[test]
fn what_is_wrong_with_the_list_is_an_error_at_once() {
    let _context = start();
    let inputs = ramps(10, &[1.0, 2.0]);
    let refused = |inputs: &[&ObjectRef<Array>], count| {
        let reduce = bireme::reduce(inputs.iter().copied(), ReduceOp::Sum);
        reduce.count(count).try_start().unwrap_err().to_string()
    };
    assert!(refused(&[], 1).contains("no objects"));
    let twice = refused(&[&inputs[0], &inputs[1], &inputs[0]], 1);
    assert!(twice.contains("input 0 and input 2") && twice.contains(&inputs[0].id().to_string()), "{twice}");
    for count in [0, 3] {
        assert!(refused(&[&inputs[0], &inputs[1]], count).contains("give 1 to 2"));
    }
}

#[test]
fn what_is_wrong_with_the_values_names_the_inputs() {
    let _context = start();
    for len in LENGTHS {
        let floats = ramp::remote(len, 1.0);
        let others = [
            bireme::put(Array::from(vec![1.0_f64; len / 2])).unwrap(),
            bireme::put(Array::from_shape_vec(&[len / 2, 2], vec![1.0_f32; len]).unwrap()).unwrap(),
            bireme::put(Array::from(vec![1_u32; len])).unwrap(),
            bireme::put(Array::from(vec![1.0_f32; len + 64])).unwrap(),
            bireme::put(vec![7_u8; 4 * len]).unwrap().cast(),
        ];
        for other in &others {
            let text = failure_of(&bireme::reduce([&floats, other], ReduceOp::Sum).start());
            assert!(text.contains("input 0") || text.contains("input 1"), "{text}");
        }
        let whole = [1_i64, 2].map(|n| bireme::put(Array::from(vec![n; len])).unwrap());
        let text = failure_of(&bireme::reduce(&whole, ReduceOp::Mean).start());
        assert!(text.contains("mean"), "{text}");
        let failed = fails::remote();
        let text = failure_of(&bireme::reduce([&floats, &failed], ReduceOp::Sum).start());
        assert!(text.contains(&failed.id().to_string()) && text.contains("no array today"), "{text}");
    }
}

#[test]
fn a_result_that_nobody_wants_any_more_leaves_nothing() {
    let _context = start();
    let used = || bireme::state().unwrap().objects.len();
    let before = used();
    for len in LENGTHS {
        let inputs = ramps(len, &[1.0, 2.0]);
        drop(bireme::reduce(&inputs, ReduceOp::Sum).start());
        let reduced = bireme::reduce(&inputs, ReduceOp::Sum).start();
        reduced.get_timeout(PATIENCE).unwrap();
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    while used() > before {
        assert!(std::time::Instant::now() < deadline, "{:?}", bireme::state().unwrap().objects);
        std::thread::yield_now();
    }
}

#[test]
fn a_reduce_that_waits_can_be_explained_and_cancelled() {
    let _context = start();
    let ready = ramp::remote(10, 1.0);
    ready.get_timeout(PATIENCE).unwrap();
    // It needs more than there is and waits in vain, until it is cancelled.
    let waiting = bireme::reduce([&ready, &ramp::options().resource("nowhere", 1.0).remote(10, 1.0)], ReduceOp::Sum);
    let waiting = waiting.start();
    match waiting.get_timeout(Duration::from_millis(10)) {
        Err(Error::Timeout { waiting_for, .. }) => assert!(waiting_for.contains("waits for 1 more"), "{waiting_for}"),
        Err(Error::Failed(failure)) => assert!(failure.to_string().contains("input 1"), "{failure}"),
        other => panic!("it has no value: {other:?}"),
    }
    waiting.cancel().unwrap();
    assert!(waiting.get_timeout(PATIENCE).is_err());
}
