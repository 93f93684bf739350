//! Doorbells: one per process, rung by its peers.
//!
//! [`Doorbell`] is the receiver's end (which connections are ready, sleep until
//! one is), [`Bell`] a producer's end for one connection. The protocol between
//! them and its argument are in [`words`].
//!
//! A receiver's loop, for the pump:
//!
//! ```text
//! loop {
//!     doorbell.take_ready(|c| drain ring c until it is empty);
//!     doorbell.wait(Sleeper::Pump, &mut policy, None);
//! }
//! ```
//!
//! and for a caller: `enter_caller`, the same loop with `Sleeper::Caller` until
//! its reply is there, `leave_caller`. Only one thread of a process drains at a
//! time; which one is the process's own affair (a lock).
//!
//! A pump that waits for sockets too sleeps in a [`Poller`](crate::Poller) instead; who rings it
//! need not know.

pub(crate) mod words;

#[cfg(all(test, loom))]
mod loom_doorbell;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use handles::{Bell, Doorbell};

#[cfg(not(loom))]
mod handles {
    use std::time::Duration;

    use super::words::{Connection, Sleeper, Woken, Words};
    use crate::fabric::{Fabric, SlotId};
    use crate::spin::{SpinOutcome, SpinPolicy, now_ns};

    /// The receiver's end of a process's doorbell.
    #[derive(Clone)]
    pub struct Doorbell {
        fabric: Fabric,
        slot: SlotId,
    }

    impl Doorbell {
        pub(crate) fn new(fabric: Fabric, slot: SlotId) -> Self {
            Self { fabric, slot }
        }

        #[inline]
        fn words(&self) -> &Words {
            self.fabric.words(self.slot)
        }

        /// The slot it belongs to.
        pub fn slot(&self) -> SlotId {
            self.slot
        }

        /// Whether any connection is ready: one load, for spinning.
        #[inline]
        pub fn is_ready(&self) -> bool {
            self.words().is_ready()
        }

        /// Takes the ready connections, passes each to `found` and returns how
        /// many there were. A connection that was passed on has to be drained
        /// until it is empty (or remembered): it becomes ready again only by a
        /// later publication. [`Connection::SELF`] stands for `ring_self`.
        #[inline]
        pub fn take_ready(&self, found: impl FnMut(Connection)) -> usize {
            self.words().take_ready(found)
        }

        /// A user thread takes over from the pump: peers wake it, or nobody.
        pub fn enter_caller(&self) {
            self.words().enter_caller();
        }

        /// The caller goes, after a last drain. What arrived since is handed to
        /// the pump, which is woken; returns whether there was anything.
        pub fn leave_caller(&self) -> bool {
            self.words().leave_caller(self.fabric.knocker())
        }

        /// Whether a caller drains at present.
        #[inline]
        pub fn caller_is_present(&self) -> bool {
            self.words().caller_is_present()
        }

        /// Announces a sleep. `true`: nothing is ready, go to [`sleep`]. `false`:
        /// something is, drain first.
        ///
        /// [`sleep`]: Doorbell::sleep
        #[must_use]
        pub fn prepare_sleep(&self, who: Sleeper) -> bool {
            self.words().prepare_sleep(who)
        }

        /// Sleeps after a [`prepare_sleep`] that said `true`, until rung or until
        /// the timeout has passed. May end early for no reason.
        ///
        /// [`prepare_sleep`]: Doorbell::prepare_sleep
        pub fn sleep(&self, who: Sleeper, timeout: Option<Duration>) -> Woken {
            self.words().sleep(who, timeout)
        }

        /// Announces that the pump will sleep in its poller; see [`Words::prepare_poll`].
        #[must_use]
        pub(crate) fn prepare_poll(&self, sleep: u32) -> bool {
            self.words().prepare_poll(sleep)
        }

        pub(crate) fn fabric(&self) -> &Fabric {
            &self.fabric
        }

        /// Takes an announced sleep back.
        pub fn set_awake(&self, who: Sleeper) {
            self.words().set_awake(who);
        }

        /// Waits until something is ready: spins if the policy finds that
        /// sensible, then sleeps. The calling thread must be counted as running
        /// ([`Fabric::enter_running`], once, when it starts); it is not counted
        /// while it sleeps. May end early for no reason. What is ready while a
        /// caller drains is not the pump's: it sleeps on.
        #[inline]
        pub fn wait(&self, who: Sleeper, policy: &mut SpinPolicy, timeout: Option<Duration>) -> Woken {
            let words = self.words();
            let is_theirs = || who == Sleeper::Pump && words.caller_is_present();
            let is_ready = || words.is_ready() && !is_theirs();
            if is_ready() {
                return Woken::Rung;
            }
            let start = now_ns();
            let mut woken = Woken::Rung;
            let spun = if is_theirs() { SpinOutcome::GaveUp } else { policy.spin(&self.fabric, is_ready) };
            if spun != SpinOutcome::Ready && self.prepare_sleep(who) {
                self.fabric.leave_running(self.slot);
                woken = self.sleep(who, timeout);
                self.fabric.enter_running(self.slot);
            }
            policy.waited_ns(now_ns() - start);
            woken
        }

        /// Makes whoever drains this process look: [`Connection::SELF`] becomes
        /// ready. For the threads of the same process, all of them.
        pub fn ring_self(&self) {
            // Forced: several threads share this connection, so a set bit does
            // not mean that the wake-up was given.
            self.words().ring(Connection::SELF, true, self.fabric.knocker());
        }
    }

    /// A producer's end: rings one connection of one process.
    pub struct Bell {
        fabric: Fabric,
        slot: SlotId,
        connection: Connection,
        fresh: bool,
    }

    impl Bell {
        pub(crate) fn new(fabric: Fabric, slot: SlotId, connection: Connection) -> Self {
            Self { fabric, slot, connection, fresh: true }
        }

        /// Tells the process that there is something to read; call it after
        /// publishing. No system call unless the process sleeps.
        #[inline]
        pub fn ring(&mut self) {
            // The first ring is forced: a predecessor on this connection may
            // have died halfway through its own (BELL-4).
            let force = std::mem::take(&mut self.fresh);
            self.fabric.words(self.slot).ring(self.connection, force, self.fabric.knocker());
        }

        /// The process that it rings.
        pub fn slot(&self) -> SlotId {
            self.slot
        }

        /// The connection that it marks.
        pub fn connection(&self) -> Connection {
            self.connection
        }
    }
}
