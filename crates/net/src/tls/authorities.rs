//! The authorities of a cluster: one, or two while one replaces the other.
//!
//! Each vouches for the other with an endorsement: an ordinary certificate whose only name is the fingerprint of the other. So whoever
//! trusts one authority can learn to trust both from any node that it talks to, and no node can make it trust a third.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bireme_core::rotation::{Rotation, Stage};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{Error, RootCertStore};

use super::{Authority, Credentials, Fingerprint, Key, PeerIdentity, SecurityError, Trust, provider};
use crate::hello::PUBLIC_KEY_BYTES;

/// The end of an endorsement's name. No peer has one.
const ENDORSEMENT_NAME: &str = "authority.bireme";
/// An overlap may end a moment later than it was to.
const ENDORSEMENT_LIFE_MIN: Duration = Duration::from_secs(60);

impl Fingerprint {
    /// The name of an endorsement. A label of a name has at most 63 characters.
    pub(super) fn endorsement_name(&self) -> String {
        let digits = self.to_string();
        format!("{}.{}.{ENDORSEMENT_NAME}", &digits[..32], &digits[32..])
    }
}

/// The authorities of a cluster, with their keys.
pub struct Authorities {
    epoch: u64,
    /// Makes certificates.
    issuing: Authority,
    /// Is trusted as well.
    other: Option<Other>,
}

struct Other {
    authority: Authority,
    /// Until when each vouches for the other.
    until: u64,
    /// Whether it is the one that replaces.
    is_newer: bool,
}

/// An authority and by which another one vouches for it.
pub(crate) struct Endorsed {
    pub(crate) certificate: CertificateDer<'static>,
    /// One by each of the two.
    pub(crate) endorsements: [CertificateDer<'static>; 2],
}

impl Authorities {
    /// Those of a cluster's folder, as its book says. `current` is the newest one, when there ever was another.
    ///
    /// The book is written first when the old authority goes, so the files may be behind it after a crash: then they follow now.
    pub(crate) fn load(
        folder: &Path,
        rotation: &Rotation,
        current: Option<Fingerprint>,
    ) -> Result<Self, SecurityError> {
        let (epoch, first) = (rotation.epoch(), Authority::load(folder)?);
        let is_current = |authority: &Authority| current.is_none_or(|current| authority.fingerprint() == current);
        let Some(under_way) = rotation.under_way() else {
            if is_current(&first) {
                return Ok(Self { epoch, issuing: first, other: None });
            }
            let next = Authority::load_next(folder).ok().filter(is_current);
            let issuing = next.ok_or_else(|| SecurityError::OtherAuthority { folder: folder.to_owned() })?;
            Authority::promote_next(folder)?;
            return Ok(Self { epoch, issuing, other: None });
        };
        let next = Authority::load_next(folder)?;
        if !is_current(&next) {
            return Err(SecurityError::OtherAuthority { folder: folder.to_owned() });
        }
        let (issuing, authority, is_newer) = match under_way.stage {
            Stage::Announced => (first, next, true),
            Stage::Issued => (next, first, false),
        };
        Ok(Self { epoch, issuing, other: Some(Other { authority, until: under_way.until, is_newer }) })
    }

    /// The authority that new tokens carry.
    pub fn newest(&self) -> Fingerprint {
        match &self.other {
            Some(other) if other.is_newer => other.authority.fingerprint(),
            _ => self.issuing.fingerprint(),
        }
    }

    /// The authorities that members trust.
    pub(crate) fn trust(&self) -> Trust {
        let other = self.other.as_ref().map(|other| other.authority.certificate().clone());
        Trust { epoch: self.epoch, authority: self.issuing.certificate().clone(), other }
    }

    /// The other authority, as a member is told of it.
    pub(crate) fn endorsed(&self, now: u64) -> Result<Option<Endorsed>, SecurityError> {
        let Some(Other { authority, until, .. }) = &self.other else { return Ok(None) };
        let life = Duration::from_secs(until.saturating_sub(now)).max(ENDORSEMENT_LIFE_MIN);
        let endorsements = [self.issuing.endorse(authority, now, life)?, authority.endorse(&self.issuing, now, life)?];
        Ok(Some(Endorsed { certificate: authority.certificate().clone(), endorsements }))
    }

    /// A certificate for a key that its owner keeps.
    pub(crate) fn issue(
        &self,
        identity: PeerIdentity,
        public_key: &[u8; PUBLIC_KEY_BYTES],
        now: u64,
        life: Duration,
    ) -> Result<CertificateDer<'static>, SecurityError> {
        self.issuing.issue(identity, public_key, now, life)
    }

    /// A key and its certificates, for the node that holds the authorities.
    pub fn credentials(
        &self,
        cluster: u128,
        identity: PeerIdentity,
        now: u64,
        life: Duration,
    ) -> Result<Credentials, SecurityError> {
        let key = Key::generate()?;
        let certificate = self.issue(identity, &key.public(), now, life)?;
        let other = self.other.as_ref().map(|other| other.authority.issue(identity, &key.public(), now, life));
        let credentials =
            Credentials::new(cluster, key, certificate, self.trust(), now.saturating_add(life.as_secs()))?;
        Ok(match other.transpose()? {
            Some(alternate) => credentials.with_alternate(alternate),
            None => credentials,
        })
    }
}

/// Whether an authority is one of these, or one of these vouches for it.
pub(crate) fn check_endorsed(
    authority: &CertificateDer<'_>,
    endorsements: &[CertificateDer<'_>],
    trusted: &[CertificateDer<'static>],
) -> Result<(), SecurityError> {
    if trusted.iter().any(|known| known == authority) {
        return Ok(());
    }
    if trusted.is_empty() || endorsements.is_empty() {
        return Err(SecurityError::NotEndorsed);
    }
    let mut roots = RootCertStore::empty();
    for known in trusted {
        roots.add(known.clone())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
    let name = ServerName::try_from(Fingerprint::of(authority).endorsement_name());
    let name = name.expect("a fingerprint in hexadecimal digits makes a name");
    let vouches = |endorsement| verifier.verify_server_cert(endorsement, &[], &name, &[], UnixTime::now()).is_ok();
    if endorsements.iter().any(vouches) { Ok(()) } else { Err(SecurityError::NotEndorsed) }
}
