//! Certificates expire; a thread gets the next one before, and sleeps until then.

use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bireme_net::door::Door;

use super::security::{Dialer, Keys, LockError};
use crate::clock::seconds_since_1970 as today;
use crate::error::Error;

/// The longest sleep: a machine that was suspended looks at the calendar again soon.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// The shortest pause after a renewal that failed.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
pub(crate) struct Renewal {
    _running: Sender<()>,
}

impl Renewal {
    /// Keeps these keys fresh, for those who dial and for the door while it is open.
    pub(super) fn start(keys: Keys, dialer: Dialer, door: Weak<Door>) -> Result<Self, Error> {
        let (running, ended) = channel();
        crate::thread::spawn("bireme-renewal", move || run(keys, &dialer, &door, &ended))?;
        Ok(Self { _running: running })
    }
}

fn run(mut keys: Keys, dialer: &Dialer, door: &Weak<Door>, ended: &Receiver<()>) {
    let mut due = due(keys.credentials.expires(), today());
    loop {
        let left = Duration::from_secs(due.saturating_sub(today()));
        if let Ok(()) | Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(left.min(SLEEP_MAX)) {
            return;
        }
        if today() < due {
            continue;
        }
        let before = keys.credentials.expires();
        due = match renew(&mut keys, dialer, door) {
            // The terms of the token allow no longer stay, and to ask again would change nothing.
            Ok(()) if keys.credentials.expires() <= before => u64::MAX,
            Ok(()) => self::due(keys.credentials.expires(), today()),
            Err(error) => {
                let expires = keys.credentials.expires();
                let left = expires.saturating_sub(today());
                eprintln!("bireme: the certificate, good for {left} s more, could not be renewed: {error}");
                today() + pause(left).as_secs()
            }
        };
    }
}

fn renew(keys: &mut Keys, dialer: &Dialer, door: &Weak<Door>) -> Result<(), LockError> {
    keys.renew()?;
    dialer.renew(&keys.credentials)?;
    if let Some(tls) = door.upgrade().as_deref().and_then(Door::tls) {
        tls.renew(&keys.credentials)?;
    }
    Ok(())
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
