//! What a node or client shows: its key, its certificate, and the authority that both sides trust.

use std::fmt;
use std::path::Path;

use pem::Pem;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{Fingerprint, PeerIdentity, SecurityError};
use crate::hello::PUBLIC_KEY_BYTES;
use crate::secret::{self, SecretError};

const KEY_TAG: &str = "PRIVATE KEY";
const CERTIFICATE_TAG: &str = "CERTIFICATE";
/// Authorities before this one by which credentials are still found: tokens name them.
const FORMER_MAX: usize = 16;

/// A private key, made here and never sent.
pub(crate) struct Key {
    der: Vec<u8>,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl Key {
    pub(crate) fn generate() -> Result<Self, SecurityError> {
        Self::of(&KeyPair::generate_for(&PKCS_ED25519)?)
    }

    fn parse(der: &[u8]) -> Result<Self, SecurityError> {
        let der = PrivatePkcs8KeyDer::from(der);
        Self::of(&KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
    }

    fn of(key: &KeyPair) -> Result<Self, SecurityError> {
        let public = key.der_bytes().try_into().map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        Ok(Self { der: key.serialize_der(), public })
    }

    /// The half that may be shown.
    pub(crate) fn public(&self) -> [u8; PUBLIC_KEY_BYTES] {
        self.public
    }
}

/// Everything that a peer needs to be let in, in one file that only its user can read.
pub struct Credentials {
    cluster: u128,
    identity: PeerIdentity,
    expires: u64,
    key: Key,
    certificate: CertificateDer<'static>,
    trust: Trust,
    /// With the head, while its authority is being replaced: a certificate of the other authority for the same key.
    alternate: Option<CertificateDer<'static>>,
    /// Authorities of earlier certificates, newest first.
    former: Vec<Fingerprint>,
}

/// The authorities of a cluster at one epoch of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The epoch.
    pub(crate) epoch: u64,
    /// Makes certificates.
    pub(crate) authority: CertificateDer<'static>,
    /// Is trusted as well, while one is being replaced by the other.
    pub(crate) other: Option<CertificateDer<'static>>,
}

impl Credentials {
    pub(crate) fn new(
        cluster: u128,
        key: Key,
        certificate: CertificateDer<'static>,
        trust: Trust,
        expires: u64,
    ) -> Result<Self, SecurityError> {
        let identity = PeerIdentity::of(&certificate).ok_or(SecurityError::Nameless)?;
        Ok(Self { cluster, identity, expires, key, certificate, trust, alternate: None, former: Vec::new() })
    }

    pub(super) fn with_alternate(self, certificate: CertificateDer<'static>) -> Self {
        Self { alternate: Some(certificate), ..self }
    }

    /// Takes the place of earlier ones: tokens that name their authorities still lead here.
    pub(crate) fn succeeding(mut self, earlier: &Self) -> Self {
        let all = [earlier.fingerprint()].into_iter().chain(earlier.former.iter().copied());
        self.former = all.filter(|former| *former != self.fingerprint()).take(FORMER_MAX).collect();
        self
    }

    /// Writes them over what is there, in a folder that only its user can look into.
    pub fn save(&self, path: &Path) -> Result<(), SecurityError> {
        if let Some(folder) = path.parent() {
            secret::ensure_folder(folder)?;
        }
        let certificates = [&self.certificate].into_iter().chain(self.authorities());
        let certificates = certificates.map(|part| Pem::new(CERTIFICATE_TAG, part.as_ref().to_vec()));
        let key = Pem::new(KEY_TAG, self.key.der.clone());
        let parts = pem::encode_many(&[key].into_iter().chain(certificates).collect::<Vec<_>>());
        let mut text = format!("cluster {:032x}\nexpires {}\nepoch {}\n", self.cluster, self.expires, self.trust.epoch);
        for former in &self.former {
            text += &format!("former {former}\n");
        }
        text += &parts;
        Ok(secret::replace(path, text.as_bytes())?)
    }

    /// Reads them back.
    pub fn load(path: &Path) -> Result<Self, SecurityError> {
        let bytes = secret::read(path)?;
        let malformed = || SecretError::Malformed { path: path.to_owned(), problem: "does not hold credentials" };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
        let fields = |name: &'static str| text.lines().filter_map(move |line| line.strip_prefix(name));
        let field = |name: &'static str| fields(name).next().ok_or_else(malformed);
        let cluster = u128::from_str_radix(field("cluster ")?, 16).map_err(|_| malformed())?;
        let expires = field("expires ")?.parse().map_err(|_| malformed())?;
        // One of a cluster whose authority has never been replaced may not say it.
        let epoch = fields("epoch ").next().map_or(Ok(0), str::parse).map_err(|_| malformed())?;
        let parts = pem::parse_many(text).map_err(|_| malformed())?;
        let [key, certificate, authority, others @ ..] = &parts[..] else { return Err(malformed())? };
        let der = |part: &Pem| CertificateDer::from(part.contents().to_vec());
        let other = match others {
            [] => None,
            [other] => Some(der(other)),
            _ => return Err(malformed())?,
        };
        let trust = Trust { epoch, authority: der(authority), other };
        let former: Option<Vec<Fingerprint>> = fields("former ").map(Fingerprint::parse).collect();
        let former = former.ok_or_else(malformed)?;
        Ok(Self { former, ..Self::new(cluster, Key::parse(key.contents())?, der(certificate), trust, expires)? })
    }

    /// The cluster that they are for.
    pub fn cluster(&self) -> u128 {
        self.cluster
    }

    /// Who they say that their holder is.
    pub fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// Until when the certificate is good, in seconds since 1970. To be renewed before.
    pub fn expires(&self) -> u64 {
        self.expires
    }

    /// The epoch of the cluster's keys that they are of.
    pub fn epoch(&self) -> u64 {
        self.trust.epoch
    }

    /// What the authority of the certificate is known by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.trust.authority)
    }

    /// Whether a token that names this authority is no newer than these: it is that of the certificate, or of an earlier one.
    pub fn are_of(&self, authority: Fingerprint) -> bool {
        self.fingerprint() == authority || self.former.contains(&authority)
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.trust.authority
    }

    /// All that are trusted, that of the certificate first.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        [&self.trust.authority].into_iter().chain(&self.trust.other)
    }

    /// A certificate of the other authority, and that.
    pub(super) fn alternate(&self) -> Option<(&CertificateDer<'static>, &CertificateDer<'static>)> {
        self.alternate.as_ref().zip(self.trust.other.as_ref())
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.der.clone()).into()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of every log.
        let mut fields = formatter.debug_struct("Credentials");
        fields.field("cluster", &self.cluster).field("identity", &self.identity).field("expires", &self.expires);
        fields.field("epoch", &self.trust.epoch);
        fields.finish_non_exhaustive()
    }
}
