//! Streams as users write them: functions and methods whose results come one by one.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

#[path = "../../../tests/support.rs"]
mod support;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use bireme::{Error, Failure, ObjectRef, ObjectRefStream};
use support::{Gate, Journal, Scratch, eventually, note, pass, start, two_cpus};

#[bireme::remote(stream)]
fn count(n: u64) -> impl Iterator<Item = u64> {
    0..n
}

#[bireme::remote(stream)]
fn gated(n: u64, at: u64, gate: PathBuf) -> Box<dyn Iterator<Item = u64>> {
    Box::new((0..n).inspect(move |i| {
        if *i == at {
            pass(&gate)
        }
    }))
}

#[bireme::remote(stream, retries = 0)]
fn failing(good: u64) -> impl Iterator<Item = Result<String, String>> {
    (0..).map(move |i| if i < good { Ok(format!("plank {i}")) } else { Err("out of planks".to_owned()) })
}

#[bireme::remote(stream, retries = 0)]
fn panicking() -> impl Iterator<Item = u64> {
    (0..3).inspect(|i| assert!(*i < 1, "one is enough"))
}

/// Notes what it makes, and its end.
struct Noting(PathBuf, u64);

impl Iterator for Noting {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        note(&self.0, format!("item {}", self.1));
        self.1 += 1;
        Some(vec![0; 1_000])
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        note(&self.0, "dropped");
    }
}

#[bireme::remote(stream(max_buffered_items = 3))]
fn endless(journal: PathBuf) -> impl Iterator<Item = Vec<u8>> {
    Noting(journal, 0)
}

#[bireme::remote]
fn total(numbers: ObjectRefStream<u64>) -> bireme::Result<u64> {
    numbers.map(|number| number.get()).sum()
}

#[bireme::remote(stream)]
fn doubled(numbers: ObjectRefStream<u64>) -> impl Iterator<Item = bireme::Result<u64>> {
    numbers.map(|number| Ok(number.get()? * 2))
}

struct Shelf(Vec<String>);

#[bireme::actor]
impl Shelf {
    pub fn new() -> Self {
        Shelf(vec!["log".to_owned(), "chart".to_owned(), "rope".to_owned()])
    }

    #[bireme::stream(max_buffered_items = 1)]
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = String> {
        let most = most.min(self.0.len());
        self.0.drain(..most)
    }

    #[bireme::stream]
    pub fn inspect(&self) -> impl Iterator<Item = Result<usize, String>> {
        self.0.iter().map(|book| if book == "rope" { panic!("no book") } else { Ok(book.len()) })
    }

    pub fn left(&self) -> usize {
        self.0.len()
    }
}

fn values<T: bireme::Value>(stream: impl Iterator<Item = ObjectRef<T>>) -> Vec<T> {
    stream.map(|item| item.get().unwrap()).collect()
}

fn failure(reference: &ObjectRef<impl bireme::Value>) -> Failure {
    match reference.get().err().unwrap() {
        Error::Failed(failure) => (*failure).clone(),
        error => panic!("{error}"),
    }
}

#[test]
fn items_are_there_while_the_task_still_runs() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("rust-stream");
    let gate = Gate::closed(&scratch, "gate");
    let mut numbers = gated::remote(3, 2, gate.path.clone());
    assert_eq!(values(numbers.by_ref().take(2)), [0, 1]);
    // The task stands before its gate.
    assert!(matches!(numbers.next_timeout(Duration::ZERO), Err(Error::Timeout { .. })));
    gate.open();
    assert_eq!(numbers.next_timeout(support::PATIENCE).unwrap().unwrap().get().unwrap(), 2);
    assert!(numbers.next_timeout(support::PATIENCE).unwrap().is_none());
    assert!(numbers.next().is_none());
    assert_eq!(values(count::remote(0)), [0u64; 0]);
    // The function is still one.
    assert_eq!(count(3).sum::<u64>(), 3);
}

#[test]
fn items_outlive_their_stream_and_are_arguments() {
    let _turn = start(two_cpus());
    let mut numbers = count::remote(100);
    let kept: Vec<_> = numbers.by_ref().take(3).collect();
    drop(numbers);
    assert_eq!(values(count::remote(&kept[2])), [0, 1]);
    assert_eq!(values(kept.into_iter()), [0, 1, 2]);
}

#[test]
fn an_error_is_the_last_reference() {
    let _turn = start(two_cpus());
    let mut planks = failing::remote(2);
    assert_eq!(values(planks.by_ref().take(2)), ["plank 0", "plank 1"]);
    let last = failure(&planks.next().unwrap());
    assert!(matches!(&last, Failure::Returned { message, .. } if message == "out of planks"), "{last}");
    assert!(planks.next().is_none());

    let mut numbers = panicking::remote();
    assert_eq!(numbers.next().unwrap().get().unwrap(), 0);
    assert!(failure(&numbers.next().unwrap()).to_string().contains("one is enough"));
    assert!(numbers.next().is_none());
}

#[test]
fn a_refused_stream_gives_its_error_once() {
    let _turn = start(two_cpus());
    let mut refused = count::options().max_buffered_items(0).remote(1);
    assert!(matches!(refused.next().unwrap().get(), Err(Error::BadArgument(_))));
    assert!(refused.next().is_none());
    assert!(count::options().max_buffered_bytes(0).try_remote(1).is_err());
    assert!(count::options().cpus(-1.0).remote(1).submitted().is_err());
}

#[test]
fn a_task_is_as_far_ahead_as_it_may_and_ends_when_its_stream_is_dropped() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("rust-stream-ahead");
    let mut journal = Journal::new(&scratch, "journal");
    let blocked = || bireme::state().unwrap().leases.iter().filter(|lease| lease.blocked).count() == 1;
    for by_bytes in [false, true] {
        // Three items, by number and by bytes.
        let path = journal.path.clone();
        let mut items = match by_bytes {
            false => endless::remote(path),
            true => endless::options().max_buffered_items(u32::MAX).max_buffered_bytes(2_500).remote(path),
        };
        assert_eq!(journal.take(3), ["item 0", "item 1", "item 2"]);
        for index in 3..10 {
            eventually("the task waits", blocked);
            assert!(journal.rest().is_empty());
            assert_eq!(items.next().unwrap().get().unwrap().len(), 1_000);
            assert_eq!(journal.next(), format!("item {index}"));
        }
        drop(items);
        assert_eq!(journal.next(), "dropped");
        eventually("everything is freed", || bireme::state().unwrap().objects.is_empty());
    }
}

#[test]
fn a_cancelled_stream_ends_with_that() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("rust-stream-cancel");
    let journal = Journal::new(&scratch, "journal");
    let mut items = endless::remote(journal.path.clone());
    assert!(items.next().unwrap().get().is_ok());
    items.cancel().unwrap();
    let last = items.by_ref().last().unwrap();
    assert!(matches!(failure(&last), Failure::Cancelled { .. }));
    assert!(items.next().is_none());
}

#[test]
fn another_task_reads_on_where_the_stream_stands() {
    let _turn = start(two_cpus());
    let mut numbers = count::options().max_buffered_items(2).remote(100);
    assert_eq!(values(numbers.by_ref().take(3)), [0, 1, 2]);
    assert_eq!(total::remote(numbers).get().unwrap(), 4950 - 3);
    // Three tasks in a row, all at work at once.
    assert_eq!(total::remote(doubled::remote(count::remote(10))).get().unwrap(), 90);
}

#[test]
fn methods_stream_and_the_actor_lives_on() {
    let _turn = start(two_cpus());
    let shelf = Shelf::remote();
    let mut lengths = shelf.inspect();
    assert_eq!(values(lengths.by_ref().take(2)), [3, 5]);
    assert!(failure(&lengths.next().unwrap()).to_string().contains("no book"));
    assert!(lengths.next().is_none());
    assert_eq!(values(shelf.take(2)), ["log", "chart"]);
    assert_eq!(shelf.left().get().unwrap(), 1);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn items_can_be_awaited() {
    let _turn = start(two_cpus());
    let sum = async {
        let (mut numbers, mut sum) = (count::options().max_buffered_items(1).remote(10), 0);
        while let Some(number) = numbers.next_async().await {
            sum += number.await.unwrap();
        }
        sum
    };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut sum = pin!(sum);
    let sum = loop {
        match sum.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(sum) => break sum,
            Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(sum, 45);
}
