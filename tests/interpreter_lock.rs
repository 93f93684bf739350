//! A front end with one lock around its language, as an interpreter has: nobody waits inside the runtime with it held, and a
//! thread that wants it holds nobody up.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, mpsc};

use bireme_runtime::{interruptible, set_interrupt_check, set_wait_scope, wake_executors};
use support::{Gate, Scratch, pass, start, two_cpus};

/// The interpreter's lock.
static TAKEN: Mutex<bool> = Mutex::new(false);
static FREED: Condvar = Condvar::new();

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

fn acquire() {
    let mut taken = FREED.wait_while(TAKEN.lock().unwrap(), |taken| *taken).unwrap();
    *taken = true;
    HELD.set(true);
}

fn release() {
    HELD.set(false);
    *TAKEN.lock().unwrap() = false;
    FREED.notify_one();
}

/// What a front end runs the waits of the runtime in.
fn leave_lock(wait: &mut dyn FnMut()) {
    let held = HELD.get();
    if held {
        release();
    }
    wait();
    if held {
        acquire();
    }
}

/// Told by each thread that is about to take the lock for its check.
static ASKING: Mutex<Option<mpsc::Sender<()>>> = Mutex::new(None);

/// A check that needs the lock, as one that runs signal handlers does. It never interrupts.
fn ask_interpreter() -> bool {
    if let Some(asking) = ASKING.lock().unwrap().as_ref() {
        // Nobody listens once the test is over.
        let _ = asking.send(());
    }
    acquire();
    release();
    false
}

#[bireme::remote]
fn when_open(gate: PathBuf) -> i64 {
    pass(&gate);
    7
}

#[test]
fn a_thread_whose_check_waits_for_the_lock_does_not_keep_answers_from_others() {
    let _turn = start(two_cpus());
    let (tell, told) = mpsc::channel();
    *ASKING.lock().unwrap() = Some(tell);
    set_interrupt_check(ask_interpreter);
    let scratch = Scratch::new("check-waits");
    let gate = Gate::closed(&scratch, "gate");
    let slow = when_open::remote(gate.path.clone());
    acquire();
    let waiter = std::thread::spawn({
        let slow = slow.clone();
        move || {
            let _guard = interruptible();
            slow.get()
        }
    });
    wake_executors();
    told.recv().unwrap();
    // The only thread that waits stands before the lock, which this one keeps.
    for _ in 0..20 {
        let large = bireme::put(vec![1u8; 1 << 20]).unwrap();
        assert_eq!(large.get().unwrap().len(), 1 << 20);
    }
    release();
    gate.open();
    assert_eq!(waiter.join().unwrap().unwrap(), 7);
}

#[test]
fn a_wait_leaves_the_lock_that_its_thread_holds() {
    let _turn = start(two_cpus());
    set_wait_scope(leave_lock);
    let scratch = Scratch::new("leaves-lock");
    let gets = |slow: &bireme::ObjectRef<i64>| slow.get().map(|value| assert_eq!(value, 7));
    let waits = |slow: &bireme::ObjectRef<i64>| bireme::wait(std::slice::from_ref(slow), 1, None).map(drop);
    for wait in [gets, waits] {
        let gate = Gate::closed(&scratch, "gate");
        let slow = when_open::remote(gate.path.clone());
        acquire();
        // Who opens the gate needs the lock first.
        let opener = std::thread::spawn(move || {
            acquire();
            gate.open();
            release();
        });
        wait(&slow).unwrap();
        assert!(HELD.get(), "the wait has taken the lock again");
        release();
        opener.join().unwrap();
    }
}
