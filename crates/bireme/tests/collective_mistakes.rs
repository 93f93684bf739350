//! Reduces and groups with input that cannot be, or is very small or too large: typed errors, nobody waits for ever, and nothing is
//! left behind. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use bireme::collective::{Group, Op};
use bireme::{Array, Config, Context, Error, Failure, ObjectRef, ReduceOp};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const STORE: usize = 64 * MIB;
/// In a message, and in the store.
const LENGTHS: [usize; 2] = [100, 100_000];

/// A store from which nothing can be moved to disk, so that what is left behind shows.
fn start() -> Context {
    let config = Config::default().cpus(4.0).object_store_memory(STORE as u64).spill_limit(0);
    bireme::init_with(config).unwrap()
}

/// Waits until no object is left and the store has room for one that fills nearly all of it.
fn assert_nothing_is_left() {
    let deadline = Instant::now() + PATIENCE;
    // First no object, then room: one that fills the store would be an object that is left.
    loop {
        let objects = bireme::state().unwrap().objects;
        if objects.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{objects:?}");
        std::thread::yield_now();
    }
    while let Err(error) = bireme::put(vec![1_u8; STORE - 8 * MIB]) {
        assert!(Instant::now() < deadline, "{error}");
    }
}

fn failure_of(reference: &ObjectRef<Array>) -> String {
    match reference.get_timeout(PATIENCE) {
        Err(Error::Failed(failure)) if matches!(*failure, Failure::Reduce { .. }) => failure.to_string(),
        other => panic!("a reduce that fails: {other:?}"),
    }
}

#[test]
fn an_input_that_is_alone_is_looked_at_like_many() {
    let context = start();
    for len in LENGTHS {
        let bytes = bireme::put(vec![7_u8; len]).unwrap();
        let words = bireme::put(vec!["no array".to_owned(); len]).unwrap();
        for other in [bytes.cast(), words.cast()] {
            for op in [ReduceOp::Sum, ReduceOp::Mean] {
                for reduce in [bireme::reduce([&other], op), bireme::reduce([&other], op).fixed_order()] {
                    let text = failure_of(&reduce.start());
                    assert!(text.contains(&format!("input 0 ({})", other.id())), "{text}");
                }
            }
        }
        for count in [1, 2, 3] {
            let whole: Vec<_> = (0..count).map(|n| bireme::put(Array::from(vec![n as i64; len])).unwrap()).collect();
            let text = failure_of(&bireme::reduce(&whole, ReduceOp::Mean).start());
            assert!(text.contains("mean") && text.contains("input "), "{text}");
            let flags: Vec<_> = (0..count).map(|n| bireme::put(Array::from(vec![n as u16; len])).unwrap()).collect();
            let text = failure_of(&bireme::reduce(&flags, ReduceOp::Sum).start());
            assert!(text.contains("uint16") && text.contains("input "), "{text}");
        }
    }
    assert_nothing_is_left();
    drop(context);
}

#[test]
fn arrays_of_no_element_and_of_one_byte_are_reduced() {
    let context = start();
    for shape in [&[0][..], &[2, 0, 3], &[1], &[]] {
        let len = shape.iter().product();
        let inputs: Vec<_> =
            (1..=3).map(|n| bireme::put(Array::from_shape_vec(shape, vec![n as u8; len]).unwrap()).unwrap()).collect();
        for count in [1, 3] {
            let sum = bireme::reduce(&inputs[..count], ReduceOp::Sum).start().get_timeout(PATIENCE).unwrap();
            assert_eq!(sum.shape(), shape);
            let expected = (1..=count as u8).sum::<u8>();
            assert!(sum.as_slice::<u8>().unwrap().iter().all(|found| *found == expected));
        }
    }
    assert_nothing_is_left();
    drop(context);
}

#[test]
fn a_result_for_which_there_is_no_room_is_an_error() {
    let context = start();
    let larger = bireme::put(Array::from(vec![0_u8; 2 * STORE])).unwrap_err();
    assert!(matches!(larger, Error::StoreFull(_)), "{larger}");
    let inputs: Vec<_> = (0..2).map(|n| bireme::put(Array::from(vec![n as u8; 24 * MIB])).unwrap()).collect();
    let error = bireme::reduce(&inputs, ReduceOp::Sum).start().get_timeout(PATIENCE).unwrap_err();
    let Some(failure) = error.failure() else { panic!("{error}") };
    assert!(matches!(failure, Failure::Reduce { .. } | Failure::StoreFull { .. }), "{failure}");
    drop(inputs);
    assert_nothing_is_left();
    drop(context);
}

pub struct Member;

#[bireme::actor]
impl Member {
    pub fn new() -> Self {
        Member
    }

    /// Gathers arrays of so many bytes; how long the results are, or what is wrong.
    pub fn gather(&self, group: Group, len: usize) -> Result<Vec<usize>, String> {
        let made = group.all_gather(&Array::from(vec![group.rank().unwrap() as u8; len]));
        Ok(made.map_err(|error| error.to_string())?.iter().map(|array| array.bytes().len()).collect())
    }

    pub fn sum(&self, group: Group, shape: Vec<usize>) -> Result<Vec<u8>, String> {
        let len = shape.iter().product();
        let own = Array::from_shape_vec(&shape, vec![1_u8; len]).unwrap();
        let made = group.all_reduce(&own, Op::Sum).map_err(|error| error.to_string())?;
        assert_eq!(made.shape(), shape);
        Ok(made.as_slice::<u8>().unwrap().to_vec())
    }

    pub fn wrong_root(&self, group: Group, len: usize) -> String {
        let own = Array::from(vec![1_u8; len]);
        let errors = [
            group.broadcast(&own, 2).unwrap_err(),
            group.reduce(&own, Op::Sum, 2).unwrap_err(),
            group.gather(&own, usize::MAX).unwrap_err(),
            group.broadcast_later(&own, 2).unwrap_err(),
            group.send(&own, 2, 0).unwrap_err(),
            group.recv(2, 0).unwrap_err(),
        ];
        errors.map(|error| error.to_string()).join("\n")
    }

    /// Calls while another thread is in a call: why that is refused, and what became of the other call.
    pub fn twice(&self, group: Group) -> String {
        let member = group.member().unwrap();
        // Another handle on the same member, whose timeout is its own.
        let _patient = group.clone().timeout(PATIENCE * 10).member().unwrap();
        let other = member.clone();
        let first = std::thread::spawn(move || other.barrier());
        let deadline = Instant::now() + PATIENCE;
        let refused = loop {
            match member.barrier_later().map(|work| work.wait()) {
                Err(error) => break error.to_string(),
                Ok(_) => assert!(Instant::now() < deadline, "two at once were never refused"),
            }
        };
        let first = first.join().unwrap().unwrap_err();
        format!("{refused}\n{first}")
    }
}

fn members(count: usize) -> (Vec<MemberHandle>, Group) {
    let members: Vec<_> = (0..count).map(|_| Member::options().cpus(0.2).remote()).collect();
    // Longer than a node waits for room in its store: what is short of room says so, before others say that it is not there.
    let group = Group::of(members.iter().map(MemberHandle::id)).unwrap().timeout(Duration::from_secs(20));
    (members, group)
}

#[test]
fn groups_exchange_arrays_of_no_element_and_of_one_byte() {
    let context = start();
    let (members, group) = members(3);
    for shape in [vec![0], vec![2, 0, 3], vec![1], vec![]] {
        let calls: Vec<_> = members.iter().map(|member| member.sum(group.clone(), shape.clone())).collect();
        for call in calls {
            assert_eq!(call.get_timeout(PATIENCE).unwrap(), vec![3_u8; shape.iter().product()]);
        }
    }
    drop((members, group));
    assert_nothing_is_left();
    drop(context);
}

#[test]
fn a_call_for_which_there_is_no_room_fails_and_the_group_goes_on() {
    let context = start();
    let (members, group) = members(2);
    for len in [2 * STORE, 20 * MIB] {
        let calls: Vec<_> = members.iter().map(|member| member.gather(group.clone(), len)).collect();
        let errors: Vec<String> =
            calls.iter().map(|call| call.get_timeout(PATIENCE).unwrap_err().to_string()).collect();
        assert!(errors.iter().any(|text| text.contains("bytes")), "{errors:?}");
        let calls: Vec<_> = members.iter().map(|member| member.gather(group.clone(), MIB)).collect();
        let ends: Vec<_> =
            calls.iter().map(|call| call.get_timeout(PATIENCE).map_err(|error| error.to_string())).collect();
        let whole = vec![MIB, MIB];
        assert_eq!(ends, [Ok(whole.clone()), Ok(whole)], "after {errors:?}");
    }
    drop((members, group));
    assert_nothing_is_left();
    drop(context);
}

#[test]
fn wrong_roots_and_two_calls_at_once_are_refused_and_leave_nothing() {
    let context = start();
    let (members, group) = members(2);
    for len in [10, MIB] {
        let text = members[0].wrong_root(group.clone(), len).get_timeout(PATIENCE).unwrap();
        assert_eq!(text.matches("no rank").count(), 6, "{text}");
    }
    // The other member never comes, so that the call waits for the whole timeout: that of this handle, also in a process
    // that is a member by another one already.
    let brief = group.clone().timeout(Duration::from_secs(1));
    let text = members[0].twice(brief).get_timeout(PATIENCE).unwrap();
    assert!(text.contains("rank 0 is in barrier") && text.contains("from another thread"), "{text}");
    assert!(text.contains("waited 1 s for rank 1"), "{text}");
    drop((members, group));
    assert_nothing_is_left();
    drop(context);
}
