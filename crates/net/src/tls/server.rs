//! TLS of the side that is dialled.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use super::connections::{Connections, verifier_of};
use super::{Credentials, Fingerprint, SecurityError, provider};

/// What the door shows and whom it knows. The certificate can be renewed while connections come in.
#[derive(Debug)]
pub struct ServerTls {
    config: RwLock<Arc<ServerConfig>>,
    connections: Arc<Connections>,
}

impl ServerTls {
    /// Of a node's credentials.
    pub fn new(credentials: &Credentials) -> Result<Self, SecurityError> {
        Self::watched_by(Connections::new(credentials)?, credentials)
    }

    /// The same, with connections that are watched together with others.
    pub fn watched_by(connections: Arc<Connections>, credentials: &Credentials) -> Result<Self, SecurityError> {
        Ok(Self { config: RwLock::new(config_of(credentials)?), connections })
    }

    /// From the next connection on, shows a new certificate. Connections that are there stay; [`Connections::trust_only`] cuts those
    /// of authorities that are not trusted any more.
    pub fn renew(&self, credentials: &Credentials) -> Result<(), SecurityError> {
        let config = config_of(credentials)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }
}

fn config_of(credentials: &Credentials) -> Result<Arc<ServerConfig>, SecurityError> {
    // A newcomer has no certificate yet. What it may do without one is the door's to say; one that is shown and is
    // not of these authorities, or has expired, ends the handshake.
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier_of(credentials)?)
        .with_cert_resolver(Arc::new(Shown::of(credentials)?));
    // Connections live long: resuming would keep secrets in memory to save a millisecond.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The certificates of a door: one, and while an authority is being replaced one of the other authority for those who say that they
/// know only that.
#[derive(Debug)]
struct Shown {
    usual: Certificate,
    other: Option<Certificate>,
}

#[derive(Debug)]
struct Certificate {
    /// How somebody says that it knows this authority.
    hint: Vec<u8>,
    key: Arc<CertifiedKey>,
}

impl Shown {
    fn of(credentials: &Credentials) -> Result<Self, SecurityError> {
        let certificate = |own: &_, authority: &rustls::pki_types::CertificateDer<'static>| {
            // The authority's certificate is sent along: a newcomer knows it by its fingerprint alone.
            let chain = vec![Clone::clone(own), authority.clone()];
            let key = CertifiedKey::from_der(chain, credentials.key(), &provider())?;
            Ok::<_, SecurityError>(Certificate { hint: Fingerprint::of(authority).hint(), key: Arc::new(key) })
        };
        let usual = certificate(credentials.certificate(), credentials.authority())?;
        let other = credentials.alternate().map(|(own, authority)| certificate(own, authority)).transpose()?;
        Ok(Self { usual, other })
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let knows = |hint: &[u8]| hello.alpn().is_some_and(|mut names| names.any(|name| name == hint));
        let shown = match &self.other {
            Some(other) if knows(&other.hint) && !knows(&self.usual.hint) => other,
            _ => &self.usual,
        };
        Some(Arc::clone(&shown.key))
    }
}
