//! Tickets: the right to open one bulk stream, given out over a control link.
//!
//! A ticket is 32 random bytes, good once and for a short time. Its first 8 bytes find it, the others are compared in
//! constant time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::hello::Ticket;
use crate::secret;

/// Tickets that nobody has redeemed and whose time is not over. At the bound no more are issued.
pub const TICKETS_MAX: usize = 65_536;

/// Why a ticket is not issued or not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Never issued, or redeemed already.
    #[error("the ticket is unknown, or has been used: ask for another over the control link")]
    Unknown,
    /// Its time is over.
    #[error("the ticket has expired: ask for another over the control link")]
    Expired,
    /// There are too many.
    #[error("{TICKETS_MAX} tickets have not been used yet: wait until some are, or expire")]
    Full,
}

/// The tickets that were issued, each for a purpose of type `P`.
#[derive(Debug)]
pub struct Tickets<P> {
    open: BTreeMap<u64, Entry<P>>,
}

#[derive(Debug)]
struct Entry<P> {
    ticket: Ticket,
    expires: Instant,
    purpose: P,
}

impl<P> Default for Tickets<P> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<P> Tickets<P> {
    /// A ticket for a purpose, good for a while.
    pub fn issue(&mut self, purpose: P, now: Instant, life: Duration) -> Result<Ticket, TicketError> {
        if self.open.len() >= TICKETS_MAX {
            self.open.retain(|_, entry| entry.expires > now);
        }
        if self.open.len() >= TICKETS_MAX {
            return Err(TicketError::Full);
        }
        let ticket = loop {
            let ticket = Ticket(secret::random());
            if !self.open.contains_key(&number_of(&ticket)) {
                break ticket;
            }
        };
        self.open.insert(number_of(&ticket), Entry { ticket, expires: now + life, purpose });
        Ok(ticket)
    }

    /// Takes a ticket, once: what it was issued for.
    pub fn redeem(&mut self, ticket: &Ticket, now: Instant) -> Result<P, TicketError> {
        let number = number_of(ticket);
        let entry = self.open.get(&number).ok_or(TicketError::Unknown)?;
        if !bool::from(entry.ticket.0.ct_eq(&ticket.0)) {
            return Err(TicketError::Unknown);
        }
        let entry = self.open.remove(&number).ok_or(TicketError::Unknown)?;
        if entry.expires <= now { Err(TicketError::Expired) } else { Ok(entry.purpose) }
    }

    /// Forgets what nobody will redeem any more: what a caller that is gone had been issued.
    pub fn retain(&mut self, mut keep: impl FnMut(&P) -> bool) {
        self.open.retain(|_, entry| keep(&entry.purpose));
    }

    /// Tickets that can still be redeemed, or have expired unnoticed.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

fn number_of(ticket: &Ticket) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = ticket.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(10);

    #[test]
    fn a_ticket_is_good_once_and_for_its_purpose() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let (first, second) = (tickets.issue("a", now, LIFE).unwrap(), tickets.issue("b", now, LIFE).unwrap());
        assert_eq!(tickets.redeem(&second, now), Ok("b"));
        assert_eq!(tickets.redeem(&second, now), Err(TicketError::Unknown));
        assert_eq!(tickets.redeem(&first, now), Ok("a"));
        assert!(tickets.is_empty());
    }

    #[test]
    fn a_ticket_with_a_wrong_secret_is_unknown_and_spends_nothing() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let ticket = tickets.issue((), now, LIFE).unwrap();
        for byte in 0..ticket.0.len() {
            let mut forged = ticket;
            forged.0[byte] ^= 1;
            assert_eq!(tickets.redeem(&forged, now), Err(TicketError::Unknown));
        }
        assert_eq!(tickets.redeem(&ticket, now), Ok(()));
    }

    #[test]
    fn a_ticket_expires() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        let ticket = tickets.issue((), now, LIFE).unwrap();
        assert_eq!(tickets.redeem(&ticket, now + LIFE), Err(TicketError::Expired));
        assert_eq!(tickets.redeem(&ticket, now), Err(TicketError::Unknown));
    }

    #[test]
    fn tickets_are_bounded_and_expired_ones_make_room() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        for _ in 0..TICKETS_MAX {
            tickets.issue(0, now, LIFE).unwrap();
        }
        assert_eq!(tickets.issue(1, now, LIFE), Err(TicketError::Full));
        tickets.issue(1, now + LIFE, LIFE).unwrap();
        assert_eq!(tickets.len(), 1);
        tickets.retain(|purpose| *purpose == 0);
        assert!(tickets.is_empty());
    }

    #[test]
    fn a_ticket_is_never_printed() {
        assert_eq!(format!("{:?}", Ticket([7; 32])), "Ticket(..)");
    }
}
