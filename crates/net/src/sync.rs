//! The atomics, the futex and the eventfd of this crate, or loom's in their place.
//!
//! Everything that takes part in a lock-free protocol uses these names, so that
//! `--cfg loom` replaces all of it at once. Loom gives no total order to
//! `SeqCst` accesses, only to fences; the protocols are therefore written with
//! explicit `fence(SeqCst)`, which is what the hardware executes anyway.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::time::Duration;

/// A full fence directly after an atomic read-modify-write.
#[inline]
pub(crate) fn fence_after_rmw() {
    // On x86 the locked instruction was a full fence already; a second one
    // would only cost time, so it is the compiler alone that must keep order.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// A 32-bit word that one thread of one process sleeps on.
///
/// It lies in memory shared between processes, so the futex calls do not carry
/// the private flag.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct Futex {
    pub(crate) word: AtomicU32,
}

#[cfg(not(loom))]
impl Futex {
    /// Sleeps while the word equals `expected`. Returns `false` on a timeout
    /// and `true` on everything else (a wake, another value, a signal).
    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) -> bool {
        use rustix::io::Errno;
        use rustix::thread::futex;

        // A time too long for the kernel's type is as good as for ever.
        let limit = timeout.and_then(|t| futex::Timespec::try_from(t).ok());
        let end = futex::wait(&self.word, futex::Flags::empty(), expected, limit.as_ref());
        end != Err(Errno::TIMEDOUT)
    }

    /// Clears `bits` in the word and wakes its sleeper, in one system call.
    ///
    /// One call, because a process killed between a store and a separate wake
    /// would leave a word that says "awake" over a thread that sleeps, and
    /// every later peer would believe the word.
    #[cold]
    pub(crate) fn clear_and_wake(&self, bits: u16) {
        use rustix::thread::futex::{Flags, WakeOp, WakeOpCmp, wake_op};

        // The comparison decides about a second wake, on the second address,
        // which is the same one here: compare with a value it never has.
        let nothing = (0, WakeOpCmp::Eq, 0xfff);
        let woken = wake_op(
            &self.word,
            Flags::empty(),
            i32::MAX as u32,
            nothing.0,
            &self.word,
            WakeOp::AndN,
            nothing.1,
            bits,
            nothing.2,
        );
        debug_assert!(woken.is_ok(), "waking a mapped, aligned word: {woken:?}");
    }
}

/// The model of a futex: the kernel's bucket lock is a mutex, its queue a
/// condition variable.
#[cfg(loom)]
pub(crate) struct Futex {
    pub(crate) word: AtomicU32,
    bucket: loom::sync::Mutex<()>,
    queue: loom::sync::Condvar,
}

#[cfg(loom)]
impl Futex {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), bucket: loom::sync::Mutex::new(()), queue: loom::sync::Condvar::new() }
    }

    pub(crate) fn wait(&self, expected: u32, _timeout: Option<Duration>) -> bool {
        let guard = self.bucket.lock().expect("no model thread panics");
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.queue.wait(guard).expect("no model thread panics"));
        }
        true
    }

    pub(crate) fn clear_and_wake(&self, bits: u16) {
        let _guard = self.bucket.lock().expect("no model thread panics");
        self.word.fetch_and(!u32::from(bits), Ordering::SeqCst);
        self.queue.notify_all();
    }
}

/// The eventfd by which a thread that sleeps in the poller is woken; empty in a node that never does.
///
/// Nobody reads it: the poller watches for its edges, and each write makes one.
#[cfg(not(loom))]
#[derive(Default)]
pub(crate) struct Knocker(std::sync::OnceLock<std::os::fd::OwnedFd>);

#[cfg(not(loom))]
impl Knocker {
    /// Takes the descriptor, unless there is one already.
    pub(crate) fn set(&self, fd: std::os::fd::OwnedFd) {
        // The first one stays: peers may have it.
        let _ = self.0.set(fd);
    }

    pub(crate) fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.get().map(std::os::fd::AsFd::as_fd)
    }

    /// Wakes the poller, or its next sleep.
    pub(crate) fn knock(&self) {
        let Some(fd) = self.fd() else {
            debug_assert!(false, "the node sleeps in its poller and this process was not given the bell");
            return;
        };
        // Refused only when it is full, and then it was written to before.
        let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
    }
}

/// The model of an eventfd that is watched for its edges: what was written wakes one sleep, this one or the next.
#[cfg(loom)]
pub(crate) struct Knocker {
    edge: loom::sync::Mutex<bool>,
    queue: loom::sync::Condvar,
}

#[cfg(loom)]
impl Knocker {
    pub(crate) fn new() -> Self {
        Self { edge: loom::sync::Mutex::new(false), queue: loom::sync::Condvar::new() }
    }

    pub(crate) fn knock(&self) {
        *self.edge.lock().expect("no model thread panics") = true;
        self.queue.notify_all();
    }

    /// Sleeps as `epoll_wait` does.
    pub(crate) fn wait(&self) {
        let mut edge = self.edge.lock().expect("no model thread panics");
        while !*edge {
            edge = self.queue.wait(edge).expect("no model thread panics");
        }
        *edge = false;
    }
}
