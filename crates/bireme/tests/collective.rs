//! Collective groups as users write them: members on one node. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use bireme::collective::{Group, Op, Trouble, Work};
use bireme::{Array, Config, Context, Dtype, Error, ObjectRef};

/// In messages between members; streamed by the node, with segments of different lengths.
const LENGTHS: [usize; 2] = [5, 40_003];

const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> Context {
    bireme::init_with(Config::default().cpus(4.0).object_store_memory(128 << 20)).unwrap()
}

pub struct Member;

/// How a call ended: its numbers, or what is wrong.
type End = Result<Vec<Vec<f64>>, String>;

fn ended(made: bireme::Result<Vec<Array>>) -> End {
    let made = made.map_err(|error| error.to_string())?;
    Ok(made.iter().map(|array| array.as_slice::<f64>().unwrap().to_vec()).collect())
}

fn ramp(len: usize, from: usize) -> Vec<f64> {
    (0..len).map(|at| (at % 13 + from) as f64).collect()
}

#[bireme::actor]
impl Member {
    pub fn new() -> Self {
        Member
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    pub fn rank(&self, group: Group) -> Result<usize, String> {
        group.rank().map_err(|error| error.to_string())
    }

    pub fn verb(&self, group: Group, verb: String, len: usize, root: usize) -> Result<Vec<Vec<f64>>, String> {
        let rank = group.rank().map_err(|error| error.to_string())?;
        let own = Array::from(ramp(len, rank));
        let size = group.size();
        let lists = || (0..size).map(|to| Array::from(ramp(len, 10 * rank + to))).collect::<Vec<_>>();
        ended(match verb.as_str() {
            "all_reduce" => group.all_reduce(&own, Op::Sum).map(|made| vec![made]),
            "mean" => group.all_reduce(&own, Op::Mean).map(|made| vec![made]),
            "broadcast" => group.broadcast(&own, root).map(|made| vec![made]),
            "reduce" => group.reduce(&own, Op::Max, root).map(|made| made.into_iter().collect()),
            "gather" => group.gather(&own, root).map(Option::unwrap_or_default),
            "all_gather" => group.all_gather(&own),
            "scatter" => group.scatter((rank == root).then(lists).as_deref(), root).map(|made| vec![made]),
            "reduce_scatter" => {
                group.reduce_scatter(&Array::from(ramp(len * size, rank)), Op::Sum).map(|made| vec![made])
            }
            "all_to_all" => group.all_to_all(&lists()),
            "barrier" => group.barrier().map(|()| Vec::new()),
            _ => group.recv(root, 3).map(|made| vec![made]),
        })
    }

    pub fn send(&self, group: Group, len: usize, to: usize) -> Result<(), String> {
        group.send(&Array::from(ramp(len, 7)), to, 3).map_err(|error| error.to_string())
    }

    /// The same verbs as calls that go on by themselves: waited for by even ranks, awaited by odd ones.
    pub fn verb_later(&self, group: Group, verb: String, len: usize, root: usize) -> Result<Vec<Vec<f64>>, String> {
        let rank = group.rank().map_err(|error| error.to_string())?;
        let own = Array::from(ramp(len, rank));
        let size = group.size();
        let lists = || (0..size).map(|to| Array::from(ramp(len, 10 * rank + to))).collect::<Vec<_>>();
        ended(match verb.as_str() {
            "all_reduce" => through(group.all_reduce_later(&own, Op::Sum), rank).map(|made| vec![made]),
            "broadcast" => through(group.broadcast_later(&own, root), rank).map(|made| vec![made]),
            "reduce" => through(group.reduce_later(&own, Op::Max, root), rank).map(|made| made.into_iter().collect()),
            "gather" => through(group.gather_later(&own, root), rank).map(Option::unwrap_or_default),
            "all_gather" => through(group.all_gather_later(&own), rank),
            "scatter" => {
                let given = (rank == root).then(lists);
                through(group.scatter_later(given.as_deref(), root), rank).map(|made| vec![made])
            }
            "reduce_scatter" => {
                let own = Array::from(ramp(len * size, rank));
                through(group.reduce_scatter_later(&own, Op::Sum), rank).map(|made| vec![made])
            }
            "all_to_all" => through(group.all_to_all_later(&lists()), rank),
            "barrier" => through(group.barrier_later(), rank).map(|()| Vec::new()),
            _ => {
                let sent = group.send_later(&own, (rank + 1) % size, 5);
                let made = through(group.recv_later((rank + size - 1) % size, 5), rank);
                through(sent, rank).and(made).map(|made| vec![made])
            }
        })
    }

    /// A call for which one member is missing: over only when that one comes.
    pub fn unfinished(&self, group: Group) -> Result<bool, String> {
        let work = group.barrier_later().map_err(|error| error.to_string())?;
        let early = work.done() || work.wait_for(Duration::from_millis(1)).is_some();
        group.send(&Array::from(vec![1.0]), 1, 0).map_err(|error| error.to_string())?;
        work.wait().map_err(|error| error.to_string())?;
        Ok(!early && work.done())
    }

    pub fn comes(&self, group: Group) -> Result<(), String> {
        group.recv(0, 0).and_then(|_| group.barrier()).map_err(|error| error.to_string())
    }

    pub fn later(&self, group: Group, count: usize, len: usize) -> Result<Vec<f64>, String> {
        let member = group.member().map_err(|error| error.to_string())?;
        let begin = |n: usize| member.all_reduce_later(&Array::from(vec![n as f64; len]), Op::Sum).unwrap();
        let works: Vec<_> = (0..count).map(begin).collect();
        let ends = works.iter().map(|work| work.wait().map(|made| made.as_slice::<f64>().unwrap()[0]));
        ends.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }
}

/// The end of a call that goes on by itself, in one of the two ways to learn of it.
fn through<T>(work: bireme::Result<Work<T>>, rank: usize) -> bireme::Result<T> {
    let work = work?;
    if rank.is_multiple_of(2) { work.wait() } else { block_on(work) }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn members(count: usize) -> (Vec<MemberHandle>, Group) {
    let members: Vec<_> = (0..count).map(|_| Member::options().cpus(0.2).remote()).collect();
    let group = Group::of(members.iter().map(MemberHandle::id)).unwrap();
    (members, group)
}

fn all(members: &[MemberHandle], group: &Group, verb: &str, len: usize, root: usize) -> Vec<End> {
    let call = |member: &MemberHandle| member.verb(group.clone(), verb.to_owned(), len, root);
    let calls: Vec<ObjectRef<_>> = members.iter().map(call).collect();
    calls.iter().map(|call| call.get().map_err(|error| error.to_string())).collect()
}

fn sum(len: usize, size: usize) -> Vec<f64> {
    (0..len).map(|at| (0..size).map(|rank| (at % 13 + rank) as f64).sum()).collect()
}

#[test]
fn every_verb_does_what_it_says() {
    let _context = start();
    for size in [1, 2, 4] {
        let (members, group) = members(size);
        for len in LENGTHS {
            for made in all(&members, &group, "all_reduce", len, 0) {
                assert_eq!(made.unwrap(), [sum(len, size)]);
            }
            for made in all(&members, &group, "mean", len, 0) {
                let mean: Vec<f64> = sum(len, size).iter().map(|sum| sum / size as f64).collect();
                assert_eq!(made.unwrap(), [mean]);
            }
            for root in 0..size {
                for (rank, made) in all(&members, &group, "reduce", len, root).into_iter().enumerate() {
                    let expected = if rank == root { vec![ramp(len, size - 1)] } else { Vec::new() };
                    assert_eq!(made.unwrap(), expected);
                }
                for made in all(&members, &group, "broadcast", len, root) {
                    assert_eq!(made.unwrap(), [ramp(len, root)]);
                }
                for (rank, made) in all(&members, &group, "gather", len, root).into_iter().enumerate() {
                    let count = if rank == root { size } else { 0 };
                    assert_eq!(made.unwrap(), (0..count).map(|rank| ramp(len, rank)).collect::<Vec<_>>());
                }
                for (rank, made) in all(&members, &group, "scatter", len, root).into_iter().enumerate() {
                    assert_eq!(made.unwrap(), [ramp(len, 10 * root + rank)]);
                }
            }
            for made in all(&members, &group, "all_gather", len, 0) {
                assert_eq!(made.unwrap(), (0..size).map(|rank| ramp(len, rank)).collect::<Vec<_>>());
            }
            for (rank, made) in all(&members, &group, "reduce_scatter", len, 0).into_iter().enumerate() {
                assert_eq!(made.unwrap(), [sum(len * size, size)[rank * len..(rank + 1) * len].to_vec()]);
            }
            for (rank, made) in all(&members, &group, "all_to_all", len, 0).into_iter().enumerate() {
                assert_eq!(made.unwrap(), (0..size).map(|from| ramp(len, 10 * from + rank)).collect::<Vec<_>>());
            }
            assert!(all(&members, &group, "barrier", len, 0).into_iter().all(|made| made.is_ok()));
        }
    }
}

#[test]
fn arrays_go_from_one_member_to_another() {
    let _context = start();
    let (members, group) = members(2);
    for len in LENGTHS {
        let got = members[1].verb(group.clone(), "recv".to_owned(), 0, 0);
        members[0].send(group.clone(), len, 1).get().unwrap();
        assert_eq!(got.get().unwrap(), [ramp(len, 7)]);
    }
}

#[test]
fn every_verb_has_a_form_that_goes_on_by_itself() {
    let _context = start();
    let (members, group) = members(3);
    for len in LENGTHS {
        for verb in [
            "all_reduce",
            "broadcast",
            "reduce",
            "gather",
            "all_gather",
            "scatter",
            "reduce_scatter",
            "all_to_all",
            "barrier",
        ] {
            let call = |member: &MemberHandle| member.verb_later(group.clone(), verb.to_owned(), len, 1);
            let later: Vec<_> = members.iter().map(call).collect();
            let later: Vec<End> = later.iter().map(|call| call.get().map_err(|error| error.to_string())).collect();
            assert!(later.iter().all(Result::is_ok), "{verb}: {later:?}");
            assert_eq!(later, all(&members, &group, verb, len, 1), "{verb}");
        }
        let call = |member: &MemberHandle| member.verb_later(group.clone(), "ring".to_owned(), len, 0);
        let later: Vec<_> = members.iter().map(call).collect();
        for (rank, call) in later.iter().enumerate() {
            assert_eq!(call.get().unwrap(), [ramp(len, (rank + 2) % 3)]);
        }
    }
}

#[test]
fn a_call_that_goes_on_by_itself_says_when_it_is_over() {
    let _context = start();
    let (members, group) = members(2);
    let (first, second) = (members[0].unfinished(group.clone()), members[1].comes(group));
    assert!(first.get().unwrap());
    second.get().unwrap();
}

#[test]
fn calls_that_go_on_by_themselves_keep_their_order() {
    let _context = start();
    let (members, group) = members(3);
    for len in LENGTHS {
        let calls: Vec<_> = members.iter().map(|member| member.later(group.clone(), 40, len)).collect();
        for call in calls {
            assert_eq!(call.get().unwrap(), (0..40).map(|n| 3.0 * n as f64).collect::<Vec<_>>());
        }
    }
}

#[bireme::remote]
fn task(group: Group, rank: usize) -> bireme::Result<i32> {
    let member = group.join(rank)?;
    assert_eq!((member.rank(), member.size()), (rank, group.size()));
    let made = member.all_reduce(&Array::from(vec![rank as i32 + 1]), Op::Sum)?;
    assert_eq!(made.dtype(), Dtype::I32);
    Ok(made.as_slice::<i32>()?[0])
}

#[test]
fn tasks_join_with_the_ranks_that_they_are_given() {
    let _context = start();
    for _ in 0..2 {
        let group = Group::named("tasks", 3).unwrap();
        let tasks: Vec<_> = (0..3).map(|rank| task::remote(group.clone(), rank)).collect();
        assert_eq!(bireme::get_all(&tasks).unwrap(), [6, 6, 6]);
    }
}

/// Joins and goes without a call.
#[bireme::remote(retries = 0)]
fn goes(group: Group, how: String) -> bireme::Result<()> {
    let _member = group.join(1)?;
    match how.as_str() {
        "panics" => panic!("no"),
        "dies" => std::process::abort(),
        _ => Ok(()),
    }
}

#[test]
fn a_member_that_goes_before_all_have_joined_is_named_to_those_who_wait_and_who_come() {
    let context = start();
    for how in ["panics", "dies", "leaves"] {
        for waits in [false, true] {
            // Longer than the patience: nobody waits for its end.
            let group = Group::new(3).unwrap().timeout(10 * PATIENCE);
            let mut others: Vec<_> = waits.then(|| task::remote(group.clone(), 0)).into_iter().collect();
            let lost = goes::remote(group.clone(), how.to_owned());
            assert_eq!(lost.get_timeout(PATIENCE).is_ok(), how == "leaves");
            others.extend((others.len()..2).map(|at| task::remote(group.clone(), 2 * at)));
            for other in &others {
                let text = other.get_timeout(PATIENCE).unwrap_err().to_string();
                let word = if how == "dies" { "is dead: " } else { "has left the group before its first call" };
                assert!(text.contains("rank 1 (") && text.contains(word), "{how}: {text}");
            }
        }
    }
    drop(context);
}

#[test]
fn members_that_disagree_are_told_both_sides() {
    let _context = start();
    let (members, group) = members(3);
    for len in LENGTHS {
        let mut calls: Vec<_> =
            members[..2].iter().map(|m| m.verb(group.clone(), "all_reduce".to_owned(), len, 0)).collect();
        calls.push(members[2].verb(group.clone(), "all_gather".to_owned(), len, 0));
        for call in calls {
            let words = call.get().unwrap_err().to_string();
            assert!(words.contains("rank 2") && words.contains("all_reduce(op=sum) of float64"), "{words}");
            assert!(words.contains("all_gather() of float64"), "{words}");
        }
        // And they agree again.
        for made in all(&members, &group, "barrier", 0, 0) {
            made.expect("those who agree are not bothered by what was before");
        }
    }
}

#[test]
fn whoever_does_not_come_is_named_after_the_timeout() {
    let _context = start();
    let (members, group) = members(3);
    let group = group.timeout(Duration::from_secs(1));
    assert!(all(&members, &group, "barrier", 0, 0).into_iter().all(|made| made.is_ok()));
    for len in LENGTHS {
        for made in all(&members[1..], &group, "all_reduce", len, 0) {
            let words = made.unwrap_err();
            assert!(words.contains("waited 1 s for rank 0 ("), "{words}");
        }
        let words = members[0].verb(group.clone(), "all_reduce".to_owned(), len, 0).get().unwrap_err().to_string();
        assert!(words.contains("for rank 0"), "who comes too late hears it: {words}");
    }
}

#[test]
fn a_member_that_is_killed_is_named_to_all_others() {
    let _context = start();
    for len in LENGTHS {
        let (members, group) = members(3);
        assert!(all(&members, &group, "barrier", 0, 0).into_iter().all(|made| made.is_ok()));
        let calls: Vec<_> =
            members[1..].iter().map(|m| m.verb(group.clone(), "all_reduce".to_owned(), len, 0)).collect();
        members[0].kill().unwrap();
        for call in calls {
            let words = call.get().unwrap_err().to_string();
            assert!(words.contains("rank 0 (actor-") && words.contains("is dead"), "{words}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_trouble() {
    let _context = start();
    let misuse = |error: Error| match &error {
        Error::Collective(trouble) if matches!(**trouble, Trouble::Misuse(_) | Trouble::NotMember(_)) => {
            error.to_string()
        }
        other => panic!("{other}"),
    };
    assert!(misuse(Group::new(0).unwrap_err()).contains("1 to 128 members"));
    let (members, group) = members(2);
    assert!(misuse(group.barrier().unwrap_err()).contains("this program is no member"));
    assert!(misuse(group.join(0).unwrap_err()).contains("made of actors"));
    let twice = Group::of([members[0].id(), members[0].id()]).unwrap_err();
    assert!(misuse(twice).contains("twice"));
    let stranger = Member::options().cpus(0.2).remote();
    assert!(stranger.rank(group.clone()).get().unwrap_err().to_string().contains("is no member of the group"));
    let words = members[0].verb(group, "broadcast".to_owned(), 3, 2).get().unwrap_err().to_string();
    assert!(words.contains("no rank 2"), "{words}");
    let alone = Group::new(1).unwrap();
    let member = alone.join(0).unwrap();
    let uneven = alone.join(1).unwrap_err();
    assert!(misuse(uneven).contains("rank 1 of 1"));
    assert!(misuse(member.all_reduce(&Array::from(vec![1_u16]), Op::Sum).unwrap_err()).contains("uint16"));
    assert!(misuse(member.all_reduce(&Array::from(vec![1_i32]), Op::Mean).unwrap_err()).contains("mean"));
    let pair = [Array::from(vec![1_i32]), Array::from(vec![1_i64])];
    assert!(misuse(member.all_to_all(&pair).unwrap_err()).contains("one type and shape"));
}
