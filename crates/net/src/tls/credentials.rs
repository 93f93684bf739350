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
    authority: CertificateDer<'static>,
}

impl Credentials {
    pub(crate) fn new(
        cluster: u128,
        key: Key,
        certificate: CertificateDer<'static>,
        authority: CertificateDer<'static>,
        expires: u64,
    ) -> Result<Self, SecurityError> {
        let identity = PeerIdentity::of(&certificate).ok_or(SecurityError::Nameless)?;
        Ok(Self { cluster, identity, expires, key, certificate, authority })
    }

    /// Writes them over what is there, in a folder that only its user can look into.
    pub fn save(&self, path: &Path) -> Result<(), SecurityError> {
        if let Some(folder) = path.parent() {
            secret::ensure_folder(folder)?;
        }
        let parts = pem::encode_many(&[
            Pem::new(KEY_TAG, self.key.der.clone()),
            Pem::new(CERTIFICATE_TAG, self.certificate.as_ref().to_vec()),
            Pem::new(CERTIFICATE_TAG, self.authority.as_ref().to_vec()),
        ]);
        let text = format!("cluster {:032x}\nexpires {}\n{parts}", self.cluster, self.expires);
        Ok(secret::replace(path, text.as_bytes())?)
    }

    /// Reads them back.
    pub fn load(path: &Path) -> Result<Self, SecurityError> {
        let bytes = secret::read(path)?;
        let malformed = || SecretError::Malformed { path: path.to_owned(), problem: "does not hold credentials" };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).ok_or_else(malformed);
        let cluster = u128::from_str_radix(field("cluster ")?, 16).map_err(|_| malformed())?;
        let expires = field("expires ")?.parse().map_err(|_| malformed())?;
        let parts = pem::parse_many(text).map_err(|_| malformed())?;
        let [key, certificate, authority] = &parts[..] else { return Err(malformed())? };
        let der = |part: &Pem| CertificateDer::from(part.contents().to_vec());
        Self::new(cluster, Key::parse(key.contents())?, der(certificate), der(authority), expires)
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

    /// What the authority is known by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.authority)
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
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
        fields.finish_non_exhaustive()
    }
}
