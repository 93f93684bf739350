//! Giving out certificates: for a token once, or for the certificate that is to be renewed.

use std::time::Duration;

use crate::hello::{Enrolled, OtherAuthority, PUBLIC_KEY_BYTES};
use crate::tls::{Endorsed, PeerIdentity, Role, SecurityError};
use crate::token::{Token, TokenBook, TokenError};

/// What the node has that enrols others.
pub struct Enrolment {
    /// Knows the tokens, and the authorities beside it, which make the certificates.
    pub book: TokenBook,
    /// How long a certificate is good at most.
    pub life: Duration,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnrolError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("to enrol, show a token: make one with `bireme token create` on the machine that started the cluster")]
    NoToken,
    #[error("a {found} asks for the certificate of a {wanted}: enrol with a token for that")]
    OtherRole { found: Role, wanted: Role },
    #[error("the certificate could not be made: {0}")]
    Security(#[from] SecurityError),
}

/// What a newcomer asks for.
pub(super) struct Request<'a> {
    pub(super) token: &'a str,
    pub(super) role: Role,
    pub(super) public_key: &'a [u8; PUBLIC_KEY_BYTES],
    /// Who it is by the certificate that it has shown.
    pub(super) identity: Option<PeerIdentity>,
}

impl Enrolment {
    pub(super) fn serve(
        &self,
        cluster: u128,
        request: &Request<'_>,
        now: u64,
    ) -> Result<(Enrolled, PeerIdentity), EnrolError> {
        // One that is replaced in this moment makes an older certificate than the book says, which is then renewed once more.
        let authorities = self.book.authorities()?;
        let (identity, expires) = self.identity(request, now)?;
        let life = Duration::from_secs(expires.saturating_sub(now));
        let certificate = authorities.issue(identity, request.public_key, now, life)?;
        let trust = authorities.trust();
        let other = authorities.endorsed(now)?.map(|Endorsed { certificate, endorsements }| OtherAuthority {
            authority: certificate.to_vec(),
            endorsements: endorsements.map(|endorsement| endorsement.to_vec()),
        });
        let enrolled = Enrolled {
            cluster,
            certificate: certificate.to_vec(),
            authority: trust.authority.to_vec(),
            expires,
            epoch: trust.epoch,
            other,
        };
        Ok((enrolled, identity))
    }

    /// Who it is from now on, and when its certificate expires: never later than the terms of its token allow.
    fn identity(&self, request: &Request<'_>, now: u64) -> Result<(PeerIdentity, u64), EnrolError> {
        if !request.token.is_empty() {
            let token = Token::parse(request.token)?;
            let identity = PeerIdentity::random(request.role);
            return Ok((identity, self.book.enrol(&token, identity, now, self.life)?));
        }
        match request.identity {
            None => Err(EnrolError::NoToken),
            Some(identity) if identity.role != request.role => {
                Err(EnrolError::OtherRole { found: identity.role, wanted: request.role })
            }
            Some(identity) => Ok((identity, self.book.renew(identity, now, self.life)?)),
        }
    }
}
