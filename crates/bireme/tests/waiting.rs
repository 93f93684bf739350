//! Waiting: timeouts that explain themselves, `wait`, `.await`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bireme::{AnyRef, Context, Error, Failure, ObjectRef};

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0).cancel_grace(Duration::from_millis(100))).unwrap()
}

/// A file whose appearance lets a task end.
struct Gate(PathBuf);

impl Gate {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("bireme-{name}-{}", std::process::id())))
    }

    fn open(&self) {
        std::fs::write(&self.0, "open").unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[bireme::remote]
fn pass(gate: PathBuf, value: u32) -> u32 {
    while !Path::new(&gate).exists() {
        std::thread::yield_now();
    }
    value
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
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

#[test]
fn a_timeout_names_the_object_and_says_what_it_waits_for() {
    let _context = start();
    let gate = Gate::new("timeout");
    let reference = pass::remote(gate.0.clone(), 1);
    let error = reference.get_timeout(Duration::from_millis(50)).unwrap_err();
    let Error::Timeout { object, waited, waiting_for } = &error else { panic!("{error}") };
    assert!(*object == reference.id() && *waited >= Duration::from_millis(50), "{error}");
    assert!(!waiting_for.is_empty() && error.to_string().contains(&reference.id().to_string()), "{error}");
    assert!(!reference.explain().unwrap().is_empty());
    assert!(!reference.is_ready().unwrap());
    gate.open();
    assert_eq!(reference.get_timeout(Duration::from_secs(30)).unwrap(), 1);
    assert!(reference.is_ready().unwrap());
}

#[test]
fn wait_gives_the_ready_ones_and_the_rest_in_the_order_given() {
    let _context = start();
    let gate = Gate::new("wait");
    let slow = pass::remote(gate.0.clone(), 0);
    let refs = [slow.clone(), bireme::put(1).unwrap(), bireme::put(2).unwrap()];
    let (ready, rest) = bireme::wait(&refs, 2, None).unwrap();
    assert_eq!((ready, rest), (vec![refs[1].clone(), refs[2].clone()], vec![slow.clone()]));
    let (ready, rest) = bireme::wait(&refs, 1, None).unwrap();
    assert_eq!((ready, rest), (vec![refs[1].clone()], vec![slow.clone(), refs[2].clone()]));
    let began = Instant::now();
    let (ready, rest) = bireme::wait(&refs, 3, Some(Duration::from_millis(50))).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!((ready.len(), rest), (2, vec![slow]));
    gate.open();
    let (ready, rest) = bireme::wait(&refs, 3, None).unwrap();
    assert_eq!((ready, rest), (refs.to_vec(), vec![]));
}

#[test]
fn references_of_different_types_are_waited_for_together() {
    let _context = start();
    let gate = Gate::new("types");
    let (slow, word) = (pass::remote(gate.0.clone(), 7), bireme::put("oar".to_owned()).unwrap());
    let refs = [AnyRef::from(&slow), word.untyped()];
    let (ready, rest) = bireme::wait(&refs, 1, None).unwrap();
    assert_eq!((&ready, &rest), (&vec![refs[1].clone()], &vec![slow.untyped()]));
    assert!(ready[0].is_ready().unwrap() && !rest[0].is_ready().unwrap());
    assert_eq!((ready[0].id(), ready[0].typed::<String>().get().unwrap()), (word.id(), "oar".to_owned()));
    assert!(matches!(ready[0].typed::<u32>().get(), Err(Error::TypeMismatch { .. })));
    gate.open();
    // Borrows will do, and a value can hold one that a task gives its type again.
    assert_eq!(bireme::wait(&[&rest[0]], 1, None).unwrap().0, [&rest[0]]);
    assert_eq!(typed_again::remote(rest).get().unwrap(), 7);
    let refused = pass::options().cpus(-1.0).remote(gate.0.clone(), 1).untyped();
    assert_eq!(bireme::wait(&[refs[0].clone(), refused.clone()], 2, None).unwrap().0[1], refused);
}

#[bireme::remote]
fn typed_again(refs: Vec<AnyRef>) -> bireme::Result<u32> {
    refs[0].typed().get()
}

#[test]
fn a_failed_task_and_a_refused_one_are_ready() {
    let _context = start();
    #[bireme::remote]
    fn fail() -> Result<u32, String> {
        Err("no".to_owned())
    }
    let refs = [fail::remote(), fail::options().cpus(-1.0).remote()];
    let (ready, rest) = bireme::wait(&refs, 2, None).unwrap();
    assert_eq!((ready, rest), (refs.to_vec(), vec![]));
}

#[bireme::remote]
fn sink(gate: PathBuf) -> Result<u32, String> {
    while !Path::new(&gate).exists() {
        std::thread::yield_now();
    }
    Err("a leak".to_owned())
}

#[bireme::remote]
fn get_both(both: (ObjectRef<u32>, ObjectRef<u32>)) -> String {
    bireme::get_all(&[both.0, both.1]).unwrap_err().to_string()
}

#[test]
fn get_all_ends_with_the_first_error_although_others_still_run() {
    let _context = start();
    let (never, leak) = (Gate::new("never"), Gate::new("leak"));
    let refs = [pass::remote(never.0.clone(), 1), sink::remote(leak.0.clone())];
    // One of the threads reads what comes, the other one is woken by it.
    let waiters = [refs.clone(), refs.clone()].map(|refs| std::thread::spawn(move || bireme::get_all(&refs)));
    let inside = get_both::options().cpus(0.0).remote((refs[0].clone(), refs[1].clone()));
    leak.open();
    for waiter in waiters {
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error.failure(), Some(Failure::Returned { message, .. }) if message == "a leak"), "{error}");
    }
    // Likewise in a task that owns none of them, and when all is known before the wait.
    assert!(inside.get().unwrap().contains("a leak"));
    assert!(bireme::get_all(&refs).unwrap_err().to_string().contains("a leak"));
    let refused = [refs[0].clone(), pass::options().cpus(-1.0).remote(never.0.clone(), 1)];
    assert!(matches!(bireme::get_all(&refused), Err(Error::BadAmount(_))));
    assert!(!refs[0].is_ready().unwrap());
    never.open();
    assert_eq!(refs[0].get().unwrap(), 1);
}

#[test]
fn get_all_with_a_timeout_waits_so_long_for_all_together() {
    let _context = start();
    let gate = Gate::new("all");
    let refs = [bireme::put(1).unwrap(), pass::remote(gate.0.clone(), 2), pass::remote(gate.0.clone(), 3)];
    let began = Instant::now();
    let error = bireme::get_all_timeout(&refs, Duration::from_millis(50)).unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(50));
    let Error::Timeout { object, waited, waiting_for } = &error else { panic!("{error}") };
    assert_eq!((*object, *waited), (refs[1].id(), Duration::from_millis(50)));
    assert!(!waiting_for.is_empty());
    gate.open();
    assert_eq!(bireme::get_all_timeout(&refs, Duration::from_secs(60)).unwrap(), [1, 2, 3]);
    assert!(bireme::get_all_timeout::<u32>(&[], Duration::ZERO).unwrap().is_empty());
}

#[test]
fn references_can_be_awaited_by_value_and_by_borrow() {
    let _context = start();
    let gate = Gate::new("await");
    let first = pass::remote(gate.0.clone(), 4);
    let second = pass::remote(gate.0.clone(), 5);
    let opener = std::thread::spawn({
        let gate = gate.0.clone();
        move || std::fs::write(gate, "open").unwrap()
    });
    let sum = block_on(Box::pin(async { Ok::<_, Error>((&first).await? + second.await?) }));
    assert_eq!(sum.unwrap(), 9);
    assert_eq!(block_on(&first).unwrap(), 4);
    opener.join().unwrap();
}

#[bireme::remote]
fn stubborn() {
    loop {
        std::thread::yield_now();
    }
}

#[test]
fn a_task_that_does_not_stop_when_asked_is_ended_and_cancelled() {
    let _context = start();
    for force in [false, true] {
        let reference = stubborn::remote();
        bireme::cancel(&reference, force).unwrap();
        let error = reference.get_timeout(Duration::from_secs(30)).unwrap_err();
        assert!(matches!(error.failure(), Some(Failure::Cancelled { .. })), "{error}");
    }
}

/// Says that it runs by making a file, then goes on until it is asked to stop.
#[bireme::remote]
fn polite(running: PathBuf) -> u32 {
    std::fs::write(running, "running").unwrap();
    while !bireme::is_cancelled() {
        std::thread::yield_now();
    }
    7
}

#[test]
fn a_task_that_stops_when_asked_keeps_its_result() {
    let context = bireme::init_with(bireme::Config::default().cpus(2.0).cancel_grace(Duration::from_secs(60)));
    let _context = context.unwrap();
    let running = Gate::new("polite");
    let reference = polite::remote(running.0.clone());
    while !running.0.exists() {
        std::thread::yield_now();
    }
    reference.cancel().unwrap();
    assert_eq!(reference.get_timeout(Duration::from_secs(30)).unwrap(), 7);
}
