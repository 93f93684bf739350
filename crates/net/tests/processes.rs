//! Rings and doorbells between real processes, and their deaths.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use bireme_net::{
    Connection, Consumer, Doorbell, End, Fabric, Poller, PushError, RING_CAPACITY_MIN, RingSpace, RingSpan, Sleeper,
    SlotId, Woken,
};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// A forked child, killed and reaped when dropped.
struct Child(libc::pid_t);

impl Child {
    /// Runs `body` in a fork. It must not allocate: the test process has other
    /// threads, and one of them may hold the allocator's lock.
    fn fork(body: impl FnOnce()) -> Self {
        // SAFETY: the child only runs `body`, which keeps to the rule above, and
        // leaves without running anything of the parent's.
        match unsafe { libc::fork() } {
            0 => {
                let bomb = ExitOnUnwind;
                body();
                std::mem::forget(bomb);
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) }
            }
            pid => Self(pid),
        }
    }

    /// Waits for its end and returns the wait status.
    fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        std::mem::forget(self);
        status
    }

    fn kill(self) {
        // SAFETY: our own child, not yet reaped, so the number is still its.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: as in `kill`.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Keeps a failed child from running on as a second test process.
struct ExitOnUnwind;

impl Drop for ExitOnUnwind {
    fn drop(&mut self) {
        // SAFETY: ends this process.
        unsafe { libc::_exit(101) }
    }
}

struct Machine {
    fabric: Fabric,
    space: RingSpace,
}

impl Machine {
    fn new() -> Self {
        let fabric = Fabric::create().unwrap().with_new_bell().unwrap();
        for index in 0..4 {
            fabric.claim_slot(SlotId::new(index).unwrap(), 1);
        }
        Self { fabric, space: RingSpace::new() }
    }

    fn ring(&mut self) -> RingSpan {
        let span = self.space.alloc(RING_CAPACITY_MIN).unwrap();
        self.fabric.init_ring(span).unwrap();
        span
    }
}

fn slot(index: u16) -> SlotId {
    SlotId::new(index).unwrap()
}

fn connection(index: u16) -> Connection {
    Connection::new(index).unwrap()
}

/// Pops one number, sleeping until there is one.
fn receive(doorbell: &Doorbell, consumer: &mut Consumer) -> u64 {
    loop {
        let found = consumer.pop(|body| u64::from_le_bytes(body.try_into().unwrap()));
        if let Some(number) = found.unwrap() {
            return number;
        }
        if doorbell.take_ready(|_| ()) == 0 && doorbell.prepare_sleep(Sleeper::Pump) {
            let woken = doorbell.sleep(Sleeper::Pump, PATIENCE);
            assert_eq!(woken, Woken::Rung, "a wake-up was lost");
        }
    }
}

#[test]
fn two_processes_play_ping_pong_asleep() {
    let mut machine = Machine::new();
    let (there, back) = (machine.ring(), machine.ring());
    let fabric = &machine.fabric;
    let child = Child::fork(|| {
        let mut consumer = fabric.consumer(there).unwrap();
        let mut producer = fabric.producer(back).unwrap();
        let (doorbell, mut bell) = (fabric.doorbell(slot(1)), fabric.bell(slot(0), connection(0)));
        for _ in 0..2000 {
            let number = receive(&doorbell, &mut consumer);
            producer.try_push(&[&(number + 1).to_le_bytes()]).unwrap();
            bell.ring();
        }
    });
    let mut producer = fabric.producer(there).unwrap();
    let mut consumer = fabric.consumer(back).unwrap();
    let (doorbell, mut bell) = (fabric.doorbell(slot(0)), fabric.bell(slot(1), connection(0)));
    let mut number = 0u64;
    for _ in 0..2000 {
        producer.try_push(&[&number.to_le_bytes()]).unwrap();
        bell.ring();
        number = receive(&doorbell, &mut consumer);
    }
    assert_eq!(number, 2000);
    assert_eq!(child.wait(), 0);
}

#[test]
fn a_killed_producer_blocks_nobody_and_a_successor_continues() {
    let mut machine = Machine::new();
    let (mortal, other) = (machine.ring(), machine.ring());
    let fabric = machine.fabric.clone();
    let (doorbell, mut from_mortal) = (fabric.doorbell(slot(0)), fabric.consumer(mortal).unwrap());
    let mut from_other = fabric.consumer(other).unwrap();
    let mut expected = 0u64;
    for life in 0..60u64 {
        let child = Child::fork(|| {
            let mut producer = fabric.producer(mortal).unwrap();
            let mut bell = fabric.bell(slot(0), connection(1));
            let mut number = expected;
            loop {
                match producer.try_push(&[&number.to_le_bytes(), &[0; 40]]) {
                    Ok(()) => number += 1,
                    Err(PushError::Full) => std::hint::spin_loop(),
                    // SAFETY: ends this process.
                    Err(_) => unsafe { libc::_exit(1) },
                }
                bell.ring();
            }
        });
        // It dies at another point of its loop each time.
        let deadline = Instant::now() + Duration::from_micros(200 + life * 37);
        let read =
            |consumer: &mut Consumer| consumer.pop(|body| u64::from_le_bytes(body[..8].try_into().unwrap())).unwrap();
        while Instant::now() < deadline || expected == 0 {
            doorbell.take_ready(|_| ());
            while let Some(number) = read(&mut from_mortal) {
                assert_eq!(number, expected);
                expected += 1;
            }
        }
        child.kill();
        // Everything that it published is there, whole.
        while let Some(number) = read(&mut from_mortal) {
            assert_eq!(number, expected);
            expected += 1;
        }
        fabric.break_claim(mortal, End::Producer);

        // Others still wake this process.
        let neighbour = Child::fork(|| {
            let mut producer = fabric.producer(other).unwrap();
            let mut bell = fabric.bell(slot(0), connection(2));
            producer.try_push(&[&life.to_le_bytes()]).unwrap();
            bell.ring();
        });
        assert_eq!(receive(&doorbell, &mut from_other), life);
        assert_eq!(neighbour.wait(), 0);
    }
    assert!(expected > 0);
}

#[test]
fn a_killed_consumer_does_not_hold_its_producer() {
    let mut machine = Machine::new();
    let span = machine.ring();
    let fabric = machine.fabric.clone();
    let child = Child::fork(|| {
        let _consumer = fabric.consumer(span).unwrap();
        let doorbell = fabric.doorbell(slot(1));
        loop {
            if doorbell.prepare_sleep(Sleeper::Pump) {
                doorbell.sleep(Sleeper::Pump, None);
            }
        }
    });
    child.kill();
    let mut producer = fabric.producer(span).unwrap();
    let mut bell = fabric.bell(slot(1), connection(0));
    let mut pushed = 0u64;
    let end = loop {
        match producer.try_push(&[&pushed.to_le_bytes()]) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
        bell.ring();
    };
    assert_eq!(end, PushError::Full, "a bound, not a hang");

    // The node reads what the dead one left.
    fabric.release_slot(slot(1));
    fabric.break_claim(span, End::Consumer);
    let mut heir = fabric.consumer(span).unwrap();
    for number in 0..pushed {
        assert_eq!(heir.pop(<[u8]>::to_vec).unwrap().unwrap(), number.to_le_bytes());
    }
    assert_eq!(heir.pop(|_| ()), Ok(None));
}

#[test]
fn processes_that_are_killed_while_they_ring_leave_no_node_asleep_in_its_poller() {
    let mut machine = Machine::new();
    let (mortal, other) = (machine.ring(), machine.ring());
    let fabric = machine.fabric.clone();
    let doorbell = fabric.doorbell(slot(0));
    let mut poller = Poller::new(doorbell.clone()).unwrap();
    let mut from_mortal = fabric.consumer(mortal).unwrap();
    let mut from_other = fabric.consumer(other).unwrap();
    let mut received = 0u64;
    for life in 0..60u64 {
        let child = Child::fork(|| {
            let mut producer = fabric.producer(mortal).unwrap();
            let mut bell = fabric.bell(slot(0), connection(1));
            loop {
                // When the ring is full, ringing is all there is to do.
                let _ = producer.try_push(&[&[0; 40]]);
                bell.ring();
            }
        });
        // It dies at another point of its loop each time; until then it is what wakes this thread.
        let deadline = Instant::now() + Duration::from_micros(200 + life * 37);
        let (before, began) = (received, Instant::now());
        while Instant::now() < deadline || received == before {
            assert_eq!(poller.wait(None, PATIENCE, || false), Woken::Rung, "a wake-up was lost");
            assert!(began.elapsed() < PATIENCE.unwrap());
            doorbell.take_ready(|_| ());
            while from_mortal.pop(|_| ()).unwrap().is_some() {
                received += 1;
            }
        }
        child.kill();
        fabric.break_claim(mortal, End::Producer);

        // Whatever the dead one left in the words, the next one is heard.
        let neighbour = Child::fork(|| {
            let mut producer = fabric.producer(other).unwrap();
            let mut bell = fabric.bell(slot(0), connection(2));
            producer.try_push(&[&life.to_le_bytes()]).unwrap();
            bell.ring();
        });
        let number = loop {
            if let Some(number) = from_other.pop(|body| u64::from_le_bytes(body.try_into().unwrap())).unwrap() {
                break number;
            }
            if doorbell.take_ready(|_| ()) == 0 {
                assert_eq!(poller.wait(None, PATIENCE, || false), Woken::Rung, "a wake-up was lost");
            }
        };
        assert_eq!((number, neighbour.wait()), (life, 0));
    }
}
