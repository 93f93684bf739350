//! The cluster's own authority: made at the first start, kept in one file, asked for every certificate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pem::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{Credentials, Fingerprint, PeerIdentity, Role, SecurityError, Trust};
use crate::hello::PUBLIC_KEY_BYTES;
use crate::secret::{self, SecretError};

/// How long a certificate of a node or client is good, unless somebody says otherwise. It is renewed before.
pub const CERTIFICATE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the authority itself is: longer than clusters live.
const AUTHORITY_LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// A certificate is good from a little before it was made: clocks differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

const FILE: &str = "authority.pem";
/// The one that takes its place.
const NEXT_FILE: &str = "authority.next.pem";
const KEY_TAG: &str = "PRIVATE KEY";
const CERTIFICATE_TAG: &str = "CERTIFICATE";

/// Issues the certificates of one cluster. Whoever has its file can be every node.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The authority of a folder: the one that is there, or a new one at the first start. Of several starts at once,
    /// one makes it.
    pub fn open(folder: &Path, now: u64) -> Result<Self, SecurityError> {
        match Self::load(folder) {
            Err(SecurityError::Secret(error)) if error.is_missing() => {}
            other => return other,
        }
        match Self::create(folder, now) {
            Err(SecurityError::Secret(SecretError::Exists { .. })) => Self::load(folder),
            other => other,
        }
    }

    /// Makes a new authority in a folder that has none, which it makes too.
    pub fn create(folder: &Path, now: u64) -> Result<Self, SecurityError> {
        secret::ensure_folder(folder)?;
        let (authority, text) = Self::make(now)?;
        secret::create(&Self::path(folder), text.as_bytes())?;
        Ok(authority)
    }

    /// Makes the authority that is to take the place of the folder's, beside it. One that was made before and never used goes.
    pub(crate) fn create_next(folder: &Path, now: u64) -> Result<Self, SecurityError> {
        let (authority, text) = Self::make(now)?;
        secret::replace(&folder.join(NEXT_FILE), text.as_bytes())?;
        Ok(authority)
    }

    fn make(now: u64) -> Result<(Self, String), SecurityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate = authority_params(now).self_signed(&key)?.der().clone();
        let text = pem::encode_many(&[
            Pem::new(KEY_TAG, key.serialize_der()),
            Pem::new(CERTIFICATE_TAG, certificate.as_ref().to_vec()),
        ]);
        Ok((Self { certificate, issuer: Issuer::new(authority_params(now), key) }, text))
    }

    /// Reads the authority of a folder.
    pub fn load(folder: &Path) -> Result<Self, SecurityError> {
        Self::load_file(folder, Self::path(folder))
    }

    /// Reads the one that is to take its place.
    pub(crate) fn load_next(folder: &Path) -> Result<Self, SecurityError> {
        Self::load_file(folder, folder.join(NEXT_FILE))
    }

    /// Puts that one into its place: the old one and its key are gone.
    pub(crate) fn promote_next(folder: &Path) -> Result<(), SecurityError> {
        Ok(secret::rename(&folder.join(NEXT_FILE), &Self::path(folder))?)
    }

    fn load_file(folder: &Path, path: PathBuf) -> Result<Self, SecurityError> {
        let bytes = secret::read(&path)?;
        secret::ensure_folder(folder)?;
        let malformed = |problem| SecretError::Malformed { path: path.clone(), problem };
        let parts = pem::parse_many(&bytes).map_err(|_| malformed("is no PEM"))?;
        let [key, certificate] = &parts[..] else { return Err(malformed("does not hold a key and a certificate"))? };
        if key.tag() != KEY_TAG || certificate.tag() != CERTIFICATE_TAG {
            return Err(malformed("does not hold a key and a certificate"))?;
        }
        let key = PrivatePkcs8KeyDer::from(key.contents().to_vec());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
        let certificate = CertificateDer::from(certificate.contents().to_vec());
        // Of these parameters only the name counts for what is issued, and it is always the same.
        Ok(Self { certificate, issuer: Issuer::new(authority_params(0), key) })
    }

    fn path(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// What tokens carry, so that a newcomer knows this authority.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for a key that its owner keeps.
    pub fn issue(
        &self,
        identity: PeerIdentity,
        public_key: &[u8; PUBLIC_KEY_BYTES],
        now: u64,
        life: Duration,
    ) -> Result<CertificateDer<'static>, SecurityError> {
        let mut params = CertificateParams::new(identity.names())?;
        params.distinguished_name = named(&format!("bireme {identity}"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if identity.role == Role::Node {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        limit(&mut params, now, life);
        Ok(params.signed_by(&PeerKey(*public_key), &self.issuer)?.der().clone())
    }

    /// Vouches for another authority: a certificate for nothing but its name, which has the other's fingerprint.
    pub(crate) fn endorse(
        &self,
        other: &Self,
        now: u64,
        life: Duration,
    ) -> Result<CertificateDer<'static>, SecurityError> {
        let name = other.fingerprint().endorsement_name();
        let mut params = CertificateParams::new(vec![name])?;
        params.distinguished_name = named("bireme endorsement");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        limit(&mut params, now, life);
        Ok(params.signed_by(other.issuer.key(), &self.issuer)?.der().clone())
    }

    /// A key and its certificate, for the node that holds the authority.
    pub fn credentials(
        &self,
        cluster: u128,
        identity: PeerIdentity,
        now: u64,
        life: Duration,
    ) -> Result<Credentials, SecurityError> {
        let key = super::credentials::Key::generate()?;
        let certificate = self.issue(identity, &key.public(), now, life)?;
        let trust = Trust { epoch: 0, authority: self.certificate.clone(), other: None };
        Credentials::new(cluster, key, certificate, trust, now.saturating_add(life.as_secs()))
    }
}

fn authority_params(now: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("bireme cluster authority");
    // It issues certificates of peers, and no other authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    limit(&mut params, now, AUTHORITY_LIFE);
    params
}

fn named(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn limit(params: &mut CertificateParams, now: u64, life: Duration) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(CLOCK_SKEW.as_secs()));
    params.not_after = epoch + Duration::from_secs(now) + life;
}

/// The public key of a peer, as the certificate has it.
struct PeerKey([u8; PUBLIC_KEY_BYTES]);

impl PublicKeyData for PeerKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}
