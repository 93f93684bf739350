//! Who came in with which token, and until when it may stay.
//!
//! A certificate names its holder by a number that renewals keep. The book has a line for each of them, so that a renewal is
//! bounded by the terms of the token, and so that a revoked token or an expelled member ends what it had been given.

use std::time::Duration;

use bireme_core::rotation::Rotation;
use serde::{Deserialize, Serialize};

use super::{TokenEntry, TokenError, TokenId, TokenState};
use crate::tls::Fingerprint;

/// How long those may stay who came in with a token. Their certificates never live longer, renewed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stay {
    /// Until the token itself expires.
    WithToken,
    /// For so long after they came.
    For(Duration),
    /// Until they are expelled, or the token is revoked.
    Unbounded,
}

impl Stay {
    pub(super) fn until(self, token_expires: u64, now: u64) -> Option<u64> {
        match self {
            Stay::WithToken => Some(token_expires),
            Stay::For(time) => Some(now.saturating_add(time.as_secs())),
            Stay::Unbounded => None,
        }
    }
}

/// What the book has of a holder of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberEntry {
    /// The number in its certificates.
    pub(super) uid: u128,
    /// What it came in with; none for one of whom nothing is known but that it was expelled.
    pub(super) token: Option<TokenId>,
    /// Until when it may stay.
    pub(super) until: Option<u64>,
    /// Until when its newest certificate is good.
    pub(super) certified: u64,
    /// The epoch of the cluster's keys in which that was made.
    pub(super) epoch: u64,
    /// The authority of its certificate was replaced, and it did not renew.
    pub(super) outdated: bool,
    pub(super) expelled: bool,
}

impl MemberEntry {
    /// Whether it may stay; if not, why.
    fn check(&self, tokens: &[TokenEntry], now: u64) -> Result<(), TokenError> {
        let revoked = |id: &TokenId| tokens.iter().any(|token| token.id == *id && token.revoked);
        if self.expelled {
            return Err(TokenError::Expelled);
        }
        if let Some(id) = self.token.filter(revoked) {
            return Err(TokenError::MemberRevoked { id });
        }
        if self.until.is_some_and(|until| now >= until) {
            return Err(TokenError::StayOver);
        }
        if self.outdated {
            return Err(TokenError::MemberOutdated);
        }
        if now >= self.certified { Err(TokenError::CertificateExpired) } else { Ok(()) }
    }

    /// When a certificate that is made now and lives so long ends.
    pub(super) fn certify(&mut self, epoch: u64, now: u64, life: Duration) -> u64 {
        let expires = now.saturating_add(life.as_secs());
        self.epoch = epoch;
        self.certified = self.until.map_or(expires, |until| expires.min(until));
        self.certified
    }
}

/// All that a book has, as it was when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub(super) tokens: Vec<TokenEntry>,
    pub(super) members: Vec<MemberEntry>,
    /// Whether the authority is being replaced, and how far that is.
    pub(super) rotation: Rotation,
    /// The newest authority, when there ever was another.
    pub(super) authority: Option<Fingerprint>,
}

impl Contents {
    /// Whether the holder of certificates with this number may stay; if not, why. One that the book does not know has its certificate
    /// from whoever has the authority, and is good until that expires.
    pub fn standing(&self, uid: u128, now: u64) -> Result<(), TokenError> {
        let member = self.members.iter().find(|member| member.uid == uid);
        member.map_or(Ok(()), |member| member.check(&self.tokens, now))
    }

    /// Whether the authority is being replaced, and how far that is.
    pub fn rotation(&self) -> &Rotation {
        &self.rotation
    }

    /// Certificates and tokens of the authority that is being replaced, which could still be used.
    pub(super) fn old_left(&self, now: u64) -> usize {
        let (Some(of_tokens), Some(of_certificates)) = (self.rotation.token_epoch(), self.rotation.certificate_epoch())
        else {
            return 0;
        };
        let tokens = self.tokens.iter();
        let tokens = tokens.filter(|token| token.epoch < of_tokens && token.state(now) == TokenState::Good);
        let members = self.members.iter();
        let members =
            members.filter(|member| member.epoch < of_certificates && member.check(&self.tokens, now).is_ok());
        tokens.count() + members.count()
    }

    /// The old authority goes: what it made is worth nothing any more.
    pub(super) fn retire(&mut self, of_tokens: u64, of_certificates: u64) {
        for token in self.tokens.iter_mut().filter(|token| token.epoch < of_tokens) {
            token.outdated = true;
        }
        for member in self.members.iter_mut().filter(|member| member.epoch < of_certificates) {
            member.outdated = true;
        }
    }

    pub(super) fn member(&mut self, uid: u128, now: u64) -> Result<&mut MemberEntry, TokenError> {
        self.standing(uid, now)?;
        self.members.iter_mut().find(|member| member.uid == uid).ok_or(TokenError::NoMember)
    }

    /// Makes room for one more: those whose certificates have expired cannot come back without a token.
    pub(super) fn forget_expired(&mut self, members_max: usize, now: u64) -> Result<(), TokenError> {
        if self.members.len() >= members_max {
            self.members.retain(|member| member.certified > now);
        }
        if self.members.len() >= members_max { Err(TokenError::MembersFull) } else { Ok(()) }
    }
}
