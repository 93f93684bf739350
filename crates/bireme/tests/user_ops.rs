//! Reduces by ops of the user: small arrays and large ones, late inputs, counts, orders and mistakes.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme::{Array, Context, Error, Failure, ObjectRef, ReduceOp, ReducePlan};

const PATIENCE: Duration = Duration::from_secs(60);
/// In a message, and in the store.
const LENGTHS: [usize; 2] = [1_000, 100_000];

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0).object_store_memory(256 << 20)).unwrap()
}

/// Of each pair the number that is farther from zero.
#[bireme::op]
fn farthest(into: &mut [f32], from: &[f32]) {
    for (into, from) in into.iter_mut().zip(from) {
        if from.abs() > into.abs() {
            *into = *from;
        }
    }
}

/// Depends on the order in which numbers come.
#[bireme::op]
fn digits(into: &mut [u64], from: &[u64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = *into * 10 + from);
}

#[bireme::op]
fn explosive(into: &mut [i32], from: &[i32]) {
    assert!(into.len() > from.len(), "this op never works");
}

#[bireme::remote]
fn full(len: usize, number: f32) -> Array {
    Array::from(vec![number; len])
}

/// Waits until the other side is closed.
#[bireme::remote]
fn full_after(len: usize, number: f32, port: u16) -> Array {
    let mut gate = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // An error is an end too.
    let _ = gate.read(&mut [0]);
    Array::from(vec![number; len])
}

#[bireme::remote]
fn fails() -> Result<Array, String> {
    Err("no array today".to_owned())
}

fn fulls(len: usize, numbers: &[f32]) -> Vec<ObjectRef<Array>> {
    numbers.iter().map(|number| full::remote(len, *number)).collect()
}

fn assert_full(reduced: &ObjectRef<Array>, len: usize, number: f32) {
    let array = reduced.get_timeout(PATIENCE).unwrap();
    assert_eq!(array.shape(), [len]);
    assert!(array.as_slice::<f32>().unwrap().iter().all(|found| *found == number));
}

fn failure_of(reference: &ObjectRef<Array>) -> String {
    match reference.get_timeout(PATIENCE) {
        Err(Error::Failed(failure)) if matches!(*failure, Failure::Reduce { .. }) => failure.to_string(),
        other => panic!("a reduce that fails: {other:?}"),
    }
}

#[test]
fn arrays_are_reduced_by_an_op_of_the_user() {
    let _context = start();
    for len in LENGTHS {
        for numbers in [&[3.0][..], &[1.0, -2.0], &[1.0, -7.0, 5.0], &[1.0, 2.0, 3.0, -9.0, 5.0, 6.0, 7.0]] {
            let reduced = bireme::reduce(&fulls(len, numbers), farthest::OP).start();
            let farthest =
                numbers.iter().copied().fold(0.0, |far: f32, next| if next.abs() > far.abs() { next } else { far });
            assert_full(&reduced, len, farthest);
            assert_eq!(reduced.used_inputs().unwrap(), (0..numbers.len()).collect::<Vec<_>>());
        }
    }
    let mut numbers = [1.0, -3.0];
    farthest(&mut numbers, &[-2.0, 1.0]);
    assert_eq!(numbers, [-2.0, -3.0], "the function is still one");
}

#[test]
fn reduces_by_ops_of_the_user_feed_other_reduces() {
    let _context = start();
    for len in LENGTHS {
        let first = bireme::reduce(&fulls(len, &[1.0, -4.0]), farthest::OP).start();
        let second = bireme::reduce(&fulls(len, &[2.0, 3.0]), ReduceOp::Sum).start();
        assert_full(&bireme::reduce([&first, &second], farthest::OP).start(), len, 5.0);
        assert_full(&bireme::reduce([&first, &second], ReduceOp::Sum).start(), len, 1.0);
    }
}

#[test]
fn inputs_may_come_later_and_a_count_takes_the_first_that_are_there() {
    let _context = start();
    for len in LENGTHS {
        let gate = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let late = full_after::remote(len, -9.0, gate.local_addr().unwrap().port());
        let inputs = [full::remote(len, 1.0), late, full::remote(len, 4.0)];
        let whole = bireme::reduce(&inputs, farthest::OP).start();
        let two = bireme::reduce(&inputs, farthest::OP).count(2).start();
        assert_full(&two, len, 4.0);
        assert_eq!(two.used_inputs_timeout(PATIENCE).unwrap(), [0, 2]);
        assert!(!whole.is_ready().unwrap());
        drop(gate.accept().unwrap());
        assert_full(&whole, len, -9.0);
    }
}

#[test]
fn a_fixed_order_is_that_of_the_list() {
    let _context = start();
    for len in LENGTHS {
        let inputs: Vec<_> = (1..=6).map(|n| bireme::put(Array::from(vec![n as u64; len])).unwrap()).collect();
        let reduced = bireme::reduce(&inputs, digits::OP).fixed_order().start().get_timeout(PATIENCE).unwrap();
        assert!(reduced.as_slice::<u64>().unwrap().iter().all(|found| *found == 123_456));
    }
}

#[bireme::remote]
fn inside(len: usize) -> bireme::Result<f32> {
    let reduced = bireme::reduce(&fulls(len, &[1.0, -2.0, 1.5]), farthest::OP).start();
    Ok(reduced.get()?.as_slice::<f32>()?[0])
}

#[test]
fn one_cpu_is_enough_for_tasks_that_reduce() {
    let _context = bireme::init_with(bireme::Config::default().cpus(1.0).object_store_memory(64 << 20)).unwrap();
    let tasks: Vec<_> = LENGTHS.map(inside::remote).into();
    for task in tasks {
        assert_eq!(task.get_timeout(PATIENCE).unwrap(), -2.0);
    }
}

#[test]
fn what_is_wrong_with_the_list_is_an_error_at_once() {
    let _context = start();
    let inputs = fulls(10, &[1.0, 2.0]);
    let refused = |reduce: bireme::Reduce| match reduce.try_start() {
        Err(Error::BadArgument(text)) => text,
        other => panic!("refused: {other:?}"),
    };
    assert!(refused(bireme::reduce([], farthest::OP)).contains("no objects"));
    let twice = refused(bireme::reduce([&inputs[0], &inputs[1], &inputs[0]], farthest::OP));
    assert!(twice.contains("input 0 and input 2") && twice.contains(&inputs[0].id().to_string()), "{twice}");
    for count in [0, 3] {
        assert!(refused(bireme::reduce(&inputs, farthest::OP).count(count)).contains("give 1 to 2"));
    }
    let planned = refused(bireme::reduce(&inputs, farthest::OP).plan(ReducePlan::Chain));
    assert!(planned.contains("farthest") && planned.contains("no plan"), "{planned}");
}

#[test]
fn what_is_wrong_with_the_values_names_the_inputs() {
    let _context = start();
    for len in LENGTHS {
        let floats = full::remote(len, 1.0);
        let others = [
            bireme::put(Array::from(vec![1.0_f64; len / 2])).unwrap(),
            bireme::put(Array::from_shape_vec(&[len / 2, 2], vec![1.0_f32; len]).unwrap()).unwrap(),
            bireme::put(Array::from(vec![1.0_f32; len + 64])).unwrap(),
            bireme::put(vec![7_u8; 4 * len]).unwrap().cast(),
        ];
        for other in &others {
            let text = failure_of(&bireme::reduce([&floats, other], farthest::OP).start());
            assert!(text.contains(&format!("input 1 ({})", other.id())), "{text}");
            // Between others, in a task of its own.
            let text = failure_of(&bireme::reduce([&floats, other, &full::remote(len, 2.0)], farthest::OP).start());
            assert!(text.contains("input 1 "), "{text}");
        }
        for reduce in [bireme::reduce([&others[0]], farthest::OP), bireme::reduce([&others[3]], farthest::OP)] {
            let text = failure_of(&reduce.start());
            assert!(text.contains("input 0 "), "an input alone is looked at too: {text}");
        }
        let text = failure_of(&bireme::reduce([&floats, &full::remote(len, 1.0)], digits::OP).start());
        assert!(text.contains("op digits combines arrays of uint64") && text.contains("float32"), "{text}");
        let failed = fails::remote();
        let text = failure_of(&bireme::reduce([&floats, &failed], farthest::OP).start());
        assert!(text.contains(&failed.id().to_string()) && text.contains("no array today"), "{text}");
        let enough = bireme::reduce([&failed, &floats], farthest::OP).count(1).start();
        assert_eq!(enough.used_inputs_timeout(PATIENCE).unwrap(), [1], "what failed is not taken");
        let inputs: Vec<_> = (0..3).map(|n| bireme::put(Array::from(vec![n; len])).unwrap()).collect();
        match bireme::reduce(&inputs, explosive::OP).start().get_timeout(PATIENCE) {
            Err(Error::Failed(failure)) => assert!(failure.to_string().contains("this op never works"), "{failure}"),
            other => panic!("the op panics: {other:?}"),
        }
    }
}

#[test]
fn a_cancelled_reduce_says_so_and_nothing_is_left() {
    let _context = start();
    let used = || bireme::state().unwrap().objects.len();
    let before = used();
    for len in LENGTHS {
        let gate = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let late = full_after::remote(len, -9.0, gate.local_addr().unwrap().port());
        let waiting = bireme::reduce([&late, &full::remote(len, 1.0)], farthest::OP).start();
        waiting.cancel().unwrap();
        match waiting.get_timeout(PATIENCE) {
            Err(Error::Failed(failure)) => assert!(matches!(*failure, Failure::Cancelled { .. }), "{failure}"),
            other => panic!("it was cancelled: {other:?}"),
        }
        drop(gate.accept().unwrap());
        late.get_timeout(PATIENCE).unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while used() > before {
        assert!(Instant::now() < deadline, "{:?}", bireme::state().unwrap().objects);
        std::thread::yield_now();
    }
}
