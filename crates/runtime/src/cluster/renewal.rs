//! Certificates expire, and the authority that made them may be replaced: a thread gets the next one in time, and sleeps until then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bireme_net::door::Door;

use super::gate::Gate;
use super::security::{Dialer, Keys, LockError};
use crate::clock::seconds_since_1970 as today;
use crate::error::Error;

/// The longest sleep: a machine that was suspended looks at the calendar again soon.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// The shortest pause after a renewal that failed.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause of a node that does not get the certificate of another epoch; they double.
const FOLLOW_PAUSE_MAX: Duration = Duration::from_secs(64);

/// The epoch of this node's keys, which follows that of the head (`bireme_core::rotation`).
#[derive(Default)]
pub(crate) struct KeyEpoch {
    own: AtomicU64,
    wanted: AtomicU64,
    renewal: Mutex<Option<Sender<Wake>>>,
}

/// For the thread.
enum Wake {
    /// There is another epoch.
    Follow,
    /// The node ends.
    End,
}

impl KeyEpoch {
    /// What it is when the node starts.
    pub(super) fn begin(&self, epoch: u64) {
        self.own.store(epoch, Ordering::Release);
        self.wanted.store(epoch, Ordering::Release);
    }

    /// What this node shows and whom it trusts is of this epoch.
    pub(crate) fn own(&self) -> u64 {
        self.own.load(Ordering::Acquire)
    }

    /// The head is there.
    pub(crate) fn follow(&self, epoch: u64) {
        if self.wanted.swap(epoch, Ordering::AcqRel) != epoch {
            self.wake(Wake::Follow);
        }
    }

    fn is_behind(&self) -> bool {
        self.own() != self.wanted.load(Ordering::Acquire)
    }

    fn wake(&self, wake: Wake) {
        if let Some(renewal) = &*self.renewal.lock().unwrap_or_else(PoisonError::into_inner) {
            // One that has ended has nothing to follow to.
            let _ = renewal.send(wake);
        }
    }
}

/// The thread. It ends when this is dropped.
pub(crate) struct Renewal {
    gate: Arc<Gate>,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.gate.keys.wake(Wake::End);
    }
}

impl Renewal {
    /// Keeps these keys fresh, for those who dial and for the door while it is open.
    pub(super) fn start(keys: Keys, dialer: Dialer, door: Weak<Door>, gate: &Arc<Gate>) -> Result<Self, Error> {
        let (wake, woken) = channel();
        *gate.keys.renewal.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        let renewing = Renewing { keys, dialer, door, gate: Arc::downgrade(gate) };
        crate::thread::spawn("bireme-renewal", move || renewing.run(&woken))?;
        Ok(Self { gate: Arc::clone(gate) })
    }
}

struct Renewing {
    keys: Keys,
    dialer: Dialer,
    door: Weak<Door>,
    gate: Weak<Gate>,
}

impl Renewing {
    fn run(mut self, woken: &Receiver<Wake>) {
        let mut due = due(self.keys.credentials.expires(), today());
        let (mut wait, mut follow_pause) = (Duration::ZERO, RETRY_MIN);
        loop {
            // What it is woken for is looked up.
            if let Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(wait) {
                return;
            }
            let Some(gate) = self.gate.upgrade() else { return };
            let is_due = today() >= due;
            if is_due || gate.keys.is_behind() {
                due = self.attempt(&gate, is_due);
            }
            let left = Duration::from_secs(due.saturating_sub(today())).min(SLEEP_MAX);
            let is_behind = gate.keys.is_behind();
            wait = if is_behind { follow_pause } else { left };
            follow_pause = if is_behind { (2 * follow_pause).min(FOLLOW_PAUSE_MAX) } else { RETRY_MIN };
        }
    }

    /// Renews, and says when to do so next.
    fn attempt(&mut self, gate: &Gate, is_due: bool) -> u64 {
        let before = self.keys.credentials.expires();
        match self.renew() {
            Ok(()) => {
                gate.keys.own.store(self.keys.credentials.epoch(), Ordering::Release);
                let expires = self.keys.credentials.expires();
                // The terms of the token may allow no longer stay, and to ask again would change nothing.
                if is_due && expires <= before { u64::MAX } else { due(expires, today()) }
            }
            Err(error) => {
                let left = before.saturating_sub(today());
                eprintln!("bireme: the certificate, good for {left} s more, could not be renewed: {error}");
                today() + pause(left).as_secs()
            }
        }
    }

    fn renew(&mut self) -> Result<(), LockError> {
        let epoch = self.keys.credentials.epoch();
        self.keys.renew()?;
        let credentials = &self.keys.credentials;
        self.dialer.renew(credentials)?;
        if let Some(tls) = self.door.upgrade().as_deref().and_then(Door::tls) {
            tls.renew(credentials)?;
        }
        if credentials.epoch() != epoch {
            let cut = self.dialer.cut_distrusted(credentials)?;
            let (epoch, authority) = (credentials.epoch(), credentials.fingerprint());
            eprintln!(
                "bireme: the certificate is renewed for epoch {epoch} of the cluster's keys, by authority {authority}"
            );
            if cut > 0 {
                eprintln!("bireme: connections that were made with certificates of the replaced authority end: {cut}");
            }
        }
        Ok(())
    }
}

/// When two thirds of what is left are over: there is time for failures.
fn due(expires: u64, now: u64) -> u64 {
    now + expires.saturating_sub(now) / 3 * 2
}

/// The more often, the nearer the end.
fn pause(left: u64) -> Duration {
    Duration::from_secs(left / 10).clamp(RETRY_MIN, SLEEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_before_it_expires() {
        assert_eq!(due(1_300, 1_000), 1_200);
        assert_eq!(due(900, 1_000), 1_000, "one that has expired is due at once");
    }

    #[test]
    fn failures_are_tried_again_within_bounds() {
        assert_eq!(pause(0), RETRY_MIN);
        assert_eq!(pause(600), Duration::from_secs(60));
        assert_eq!(pause(30 * 24 * 3600), SLEEP_MAX);
    }
}
