//! Who is who between machines: the cluster's own authority, the certificates that it issues, and TLS 1.3 with both.
//!
//! The first start of a cluster makes an [`Authority`]. Every node and every client gets a certificate from it, of
//! limited life, with its role and its uid as names inside ([`PeerIdentity`]). Both sides of a connection show theirs
//! and check the other's against this one authority; no other is ever trusted, and no name of a host matters.
//!
//! A peer without a certificate knows the authority by the SHA-256 of its certificate, from a token
//! ([`ClientTls::pinned`]), and may enrol: see `door`.
//!
//! | file | what |
//! |---|---|
//! | `authority`, `credentials` | certificates and keys |
//! | `authorities` | the authority that is and the one that replaces it |
//! | `client`, `server` | what each side shows and whom it believes |
//! | `connections` | those that are open, to be cut when an authority is not trusted any more |
//! | `wire`, `buffer` | a connection of the library, and what is between it and its socket |
//! | `authenticated` | bulk streams without encryption, whose bytes nobody can change all the same |
//!
//! The crypto provider is passed by hand everywhere: a process-wide default is a panic when a dependency brings a
//! second one.

mod authenticated;
mod authorities;
mod authority;
mod buffer;
mod client;
mod connections;
mod credentials;
mod server;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider_of_choice};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError};
use serde::{Deserialize, Serialize};

pub use bireme_core::message::Role;

pub use authorities::Authorities;
pub use authority::{Authority, CERTIFICATE_LIFE};
pub use client::ClientTls;
pub use connections::Connections;
pub use credentials::Credentials;
pub use server::ServerTls;
pub use wire::TlsWire;

pub(crate) use authenticated::Side;
pub(crate) use authorities::{Endorsed, check_endorsed};
pub(crate) use credentials::{Key, Trust};
pub(crate) use wire::tls_error;

use crate::secret::SecretError;

/// Who the verified certificate of a peer says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// What it may be.
    pub role: Role,
    /// The number that it was given when it enrolled; a renewed certificate keeps it.
    pub uid: u128,
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:032x}", self.role, self.uid)
    }
}

/// The name in the certificates of all nodes, which whoever dials one asks for: a client's certificate has it not, so
/// no client can stand in for a node.
const NODE_NAME: &str = "node.bireme";
const CLIENT_NAME: &str = "client.bireme";

impl PeerIdentity {
    /// A new one, never used before.
    pub fn random(role: Role) -> Self {
        Self { role, uid: u128::from_le_bytes(crate::secret::random()) }
    }

    /// Its name inside a certificate.
    fn name(&self) -> String {
        let suffix = match self.role {
            Role::Node => NODE_NAME,
            Role::Client => CLIENT_NAME,
        };
        format!("{:032x}.{suffix}", self.uid)
    }

    /// The names inside its certificate.
    fn names(&self) -> Vec<String> {
        let common = (self.role == Role::Node).then(|| NODE_NAME.to_owned());
        common.into_iter().chain([self.name()]).collect()
    }

    /// Who a certificate is for. Only meaningful when the certificate has been verified.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        parsed.valid_dns_names().find_map(Self::parse)
    }

    fn parse(name: &str) -> Option<Self> {
        let (uid, suffix) = name.split_once('.')?;
        let role = match suffix {
            NODE_NAME => Role::Node,
            CLIENT_NAME => Role::Client,
            _ => return None,
        };
        let digits = uid.len() == 32 && uid.bytes().all(|digit| digit.is_ascii_hexdigit());
        let uid = u128::from_str_radix(uid, 16).ok().filter(|_| digits)?;
        Some(Self { role, uid })
    }
}

/// The SHA-256 of an authority's certificate: enough to know it by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        Self(sha256(&[certificate]))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<u8> =
            digits?.chunks(2).map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | *digit as u8)).collect();
        (text.len() == 64).then(|| bytes.try_into().ok().map(Self)).flatten()
    }

    /// Enough of it to choose among the authorities of one cluster.
    fn hint(&self) -> Vec<u8> {
        self.to_string().into_bytes()[..16].to_vec()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({self})")
    }
}

/// The SHA-256 of all parts, one after the other.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

/// Why there is no authority, certificate or TLS.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file of keys or certificates.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Issue(#[from] rcgen::Error),
    /// TLS does not take what it was given.
    #[error("the certificate or key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// A certificate that is none of a cluster.
    #[error("the certificate is for no node or client of bireme: enrol again with a new token")]
    Nameless,
    /// The files are not those that the book speaks of.
    #[error(
        "the authority in {folder} is not the one that the book of tokens beside it names: put both files of one backup there"
    )]
    OtherAuthority {
        /// The folder of the cluster.
        folder: std::path::PathBuf,
    },
    /// An authority that no trusted one vouches for.
    #[error("it sent an authority that none of those vouches for that are trusted here")]
    NotEndorsed,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(provider_of_choice::default_provider())
}

/// Whether the peer's certificate is of an authority that is not trusted here.
pub(crate) fn is_of_another_authority(error: &rustls::Error) -> bool {
    use rustls::Error::InvalidCertificate;
    matches!(error, InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature))
}

/// What a failed handshake means for the people on both sides, and what they can do.
pub fn explain(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let text = match error {
        InvalidMessage(_) => "the peer does not speak TLS 1.3: is it a node of this cluster, and of this version?",
        InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the peer's certificate has expired: it has to enrol again with a new token"
        }
        InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the peer's certificate is not valid yet: compare the clocks of both machines"
        }
        error if is_of_another_authority(error) => {
            "the peer's certificate is not of this cluster's authority: it belongs to another cluster, or the authority was replaced \
             (`bireme token rotate`) while one of the two was away, which then has to join again with a new token (`bireme token create` \
             on the machine of the head)"
        }
        InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
            "the peer is not the node that was asked for"
        }
        AlertReceived(AlertDescription::CertificateExpired) => {
            "the peer says that our certificate has expired: enrol again with a new token"
        }
        AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown,
        ) => {
            "the peer does not accept our certificate: it is of another cluster, or of an authority that was replaced (`bireme token \
             rotate`) while we were away; join with a new token of this one (`bireme token create` on the machine of the head)"
        }
        other => return format!("the TLS handshake failed: {other}"),
    };
    format!("{text} ({error})")
}
