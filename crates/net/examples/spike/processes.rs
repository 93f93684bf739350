//! What both spikes need: forked processes and a process's end of its links.

use std::time::Duration;

use bireme_net::{
    Bell, Connection, Consumer, Doorbell, Fabric, Producer, RingSpace, RingSpan, Sleeper, SlotId, SpinMode, SpinPolicy,
};

/// A forked child, killed and reaped when dropped.
pub struct Child(libc::pid_t);

impl Child {
    /// Runs `body` in a fork. The parent may have threads, so `body` must not
    /// allocate.
    pub fn fork(body: impl FnOnce()) -> Self {
        // SAFETY: the child runs `body` under the rule above and then ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no memory is involved; the child dies with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            body();
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        Self(pid)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet reaped, so the number is still its.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// The rings of one machine.
pub struct Machine {
    pub fabric: Fabric,
    space: RingSpace,
}

impl Machine {
    pub fn new() -> Self {
        let fabric = Fabric::create().expect("a spike has memory");
        for index in 0..32 {
            fabric.claim_slot(slot(index), 1);
        }
        Self { fabric, space: RingSpace::new() }
    }

    pub fn ring(&mut self, capacity: u32) -> RingSpan {
        let span = self.space.alloc(capacity).expect("a few rings fit");
        self.fabric.init_ring(span).expect("a hole can be punched");
        span
    }

    pub fn free(&mut self, span: RingSpan) {
        self.fabric.drop_ring(span).expect("a hole can be punched");
        self.space.free(span);
    }
}

pub fn slot(index: u16) -> SlotId {
    SlotId::new(index).expect("a spike has few processes")
}

pub fn connection(index: u16) -> Connection {
    Connection::new(index).expect("a spike has few connections")
}

/// One direction of a link, seen from its sender.
pub struct Sender {
    pub ring: Producer,
    bell: Bell,
}

impl Sender {
    pub fn new(fabric: &Fabric, span: RingSpan, to: SlotId, number: u16) -> Self {
        Self { ring: fabric.producer(span).expect("the end is free"), bell: fabric.bell(to, connection(number)) }
    }

    /// Stages a frame, waiting for space if there is none.
    pub fn stage(&mut self, parts: &[&[u8]]) {
        while self.ring.try_stage(parts).is_err() {
            self.flush();
            std::thread::yield_now();
        }
    }

    pub fn flush(&mut self) {
        self.ring.publish();
        self.bell.ring();
    }
}

/// One direction of a link, seen from its receiver.
pub fn receiver(fabric: &Fabric, span: RingSpan) -> Consumer {
    fabric.consumer(span).expect("the end is free")
}

/// The one thread of a process, which waits as its policy says.
pub struct Waiter {
    doorbell: Doorbell,
    policy: SpinPolicy,
}

impl Waiter {
    pub fn new(fabric: &Fabric, slot: SlotId, mode: SpinMode) -> Self {
        fabric.enter_running(slot);
        Self { doorbell: fabric.doorbell(slot), policy: SpinPolicy::new(mode) }
    }

    /// Waits until a connection is ready, and takes the ready ones.
    pub fn wait(&mut self) {
        let patience = Some(Duration::from_millis(100));
        self.doorbell.wait(Sleeper::Pump, &mut self.policy, patience);
        self.doorbell.take_ready(|_| ());
    }
}

/// Waits until nothing else runs on the machine, for ten seconds at most: figures
/// taken beside a compiler say little. Returns whether it became quiet.
pub fn await_quiet() -> bool {
    let mut calm = 0;
    for _ in 0..2_000 {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let alone = text.split_whitespace().nth(3).is_some_and(|n| n.starts_with("1/"));
        calm = if alone { calm + 1 } else { 0 };
        if calm == 10 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The middle one of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
