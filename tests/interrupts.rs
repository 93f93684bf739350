//! Signals and cancellation that end a wait: only of threads that asked for it, and only the wait.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use bireme::{Error, ObjectRef};
use bireme_runtime::core::id::TaskId;
use bireme_runtime::{interruptible, set_cancel_hook, set_interrupt_check, wake_executors};
use support::{Gate, Journal, Scratch, note, pass, start, two_cpus};

/// What a front end's signal handler would leave behind for its check.
static SIGNALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(_signal: libc::c_int) {
    SIGNALLED.store(true, Ordering::SeqCst);
}

fn was_signalled() -> bool {
    SIGNALLED.load(Ordering::SeqCst)
}

/// Handler and check, as a front end installs them; no signal has come.
fn prepare() {
    SIGNALLED.store(false, Ordering::SeqCst);
    set_interrupt_check(was_signalled);
    // SAFETY: zero is a valid `sigaction`; the handler only stores to an atomic. No SA_RESTART: sleeps end with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// A thread of a test that waits, and can be signalled.
struct Waiter<T> {
    thread: std::thread::JoinHandle<T>,
    id: libc::pthread_t,
}

impl<T: Send + 'static> Waiter<T> {
    fn new(opted_in: bool, body: impl FnOnce() -> T + Send + 'static) -> Self {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _guard = opted_in.then(interruptible);
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            body()
        });
        Self { thread, id: told.recv().unwrap() }
    }

    fn signal(&self) {
        // SAFETY: the thread is not joined, so its id is valid.
        assert_eq!(unsafe { libc::pthread_kill(self.id, libc::SIGUSR1) }, 0);
    }

    fn join(self) -> T {
        self.thread.join().unwrap()
    }
}

#[bireme::remote]
fn when_open(gate: PathBuf, value: i64) -> i64 {
    pass(&gate);
    value
}

#[test]
fn a_signal_ends_the_waits_of_threads_that_can_be_interrupted_and_of_no_others() {
    let _turn = start(two_cpus());
    prepare();
    let scratch = Scratch::new("interrupts");
    let gate = Gate::closed(&scratch, "gate");
    let slow: Vec<ObjectRef<i64>> = (0..2).map(|n| when_open::remote(gate.path.clone(), n)).collect();
    let get = |opted_in: bool, at: usize| {
        let object = slow[at].clone();
        Waiter::new(opted_in, move || object.get())
    };
    // One of them leads, the others are parked.
    let (steady, first, second) = (get(false, 0), get(true, 0), get(true, 1));
    let all = slow.clone();
    let waits = Waiter::new(true, move || bireme::wait(&all, 2, None).map(drop));
    let all = slow.clone();
    let bounded = Waiter::new(true, move || bireme::wait(&all, 2, Some(Duration::from_secs(600))).map(drop));
    // Without a signal for the others, since all of them ask the same flag.
    steady.signal();
    for waiter in [first, second] {
        waiter.signal();
        assert!(matches!(waiter.join(), Err(Error::Interrupted)));
    }
    for waiter in [waits, bounded] {
        waiter.signal();
        assert!(matches!(waiter.join(), Err(Error::Interrupted)));
    }
    // A flag that is still set interrupts every later wait, but never a value that is there.
    assert!(matches!(get(true, 1).join(), Err(Error::Interrupted)));
    assert!(was_signalled());
    gate.open();
    assert_eq!(steady.join().unwrap(), 0);
    assert_eq!(get(false, 1).join().unwrap(), 1);
    assert_eq!(get(true, 1).join().unwrap(), 1);
}

#[test]
fn a_check_that_says_no_lets_the_wait_go_on() {
    let _turn = start(two_cpus());
    prepare();
    let scratch = Scratch::new("no-interrupt");
    let gate = Gate::closed(&scratch, "gate");
    let object = when_open::remote(gate.path.clone(), 7);
    let waiter = Waiter::new(true, {
        let object = object.clone();
        move || object.get()
    });
    // SAFETY: ignoring installs no handler, so the check goes on saying no.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    waiter.signal();
    gate.open();
    assert_eq!(waiter.join().unwrap(), 7);
}

static CANCELLED: OnceLock<TaskId> = OnceLock::new();

/// Waits for another task until it is asked to stop.
#[bireme::remote]
fn waits_for_another(journal: PathBuf, others: Vec<ObjectRef<i64>>) -> i64 {
    set_cancel_hook(|task| {
        let _ = CANCELLED.set(task);
    });
    set_interrupt_check(|| CANCELLED.get().is_some());
    let _guard = interruptible();
    note(&journal, "waiting");
    let got = others[0].get();
    let me = bireme_runtime::Runtime::current().unwrap().current_task();
    note(&journal, format!("{} {}", matches!(got, Err(Error::Interrupted)), CANCELLED.get() == Some(&me)));
    0
}

#[test]
fn a_cancelled_task_that_waits_is_told_through_the_hook_and_leaves_its_wait() {
    let _turn = start(two_cpus().cancel_grace(Duration::from_secs(600)));
    let scratch = Scratch::new("cancel-hook");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    let other = when_open::remote(gate.path.clone(), 1);
    let task = waits_for_another::remote(journal.path.clone(), vec![other]);
    assert_eq!(journal.next(), "waiting");
    bireme::cancel(&task, false).unwrap();
    assert_eq!(journal.next(), "true true");
    gate.open();
}

static JOURNAL: OnceLock<PathBuf> = OnceLock::new();

/// Leaves a thread behind that wakes the executors when the gate opens.
#[bireme::remote]
fn has_executors_woken(journal: PathBuf, gate: PathBuf) {
    std::mem::forget(interruptible());
    set_interrupt_check(|| {
        if let Some(journal) = JOURNAL.get() {
            note(journal, "asked");
        }
        true
    });
    std::thread::spawn(move || {
        pass(&gate);
        JOURNAL.set(journal).unwrap();
        wake_executors();
    });
}

#[test]
fn an_idle_executor_asks_its_check_when_it_is_woken_and_works_on() {
    let _turn = start(two_cpus().cpus(1.0));
    let scratch = Scratch::new("wake-executors");
    let mut journal = Journal::new(&scratch, "journal");
    let gate = Gate::closed(&scratch, "gate");
    has_executors_woken::remote(journal.path.clone(), gate.path.clone()).get().unwrap();
    gate.open();
    assert_eq!(journal.next(), "asked");
    assert_eq!(when_open::remote(gate.path.clone(), 6).get().unwrap(), 6);
}
