//! TLS of the side that is dialled.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::{Credentials, SecurityError, provider};

/// What the door shows and whom it knows. The certificate can be renewed while connections come in.
#[derive(Debug)]
pub struct ServerTls {
    config: RwLock<Arc<ServerConfig>>,
}

impl ServerTls {
    /// Of a node's credentials.
    pub fn new(credentials: &Credentials) -> Result<Self, SecurityError> {
        Ok(Self { config: RwLock::new(config_of(credentials)?) })
    }

    /// From the next connection on, shows a new certificate. Connections that are there stay.
    pub fn renew(&self, credentials: &Credentials) -> Result<(), SecurityError> {
        let config = config_of(credentials)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn config_of(credentials: &Credentials) -> Result<Arc<ServerConfig>, SecurityError> {
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority().clone())?;
    // A newcomer has no certificate yet. What it may do without one is the door's to say; one that is shown and is
    // not of this authority, or has expired, ends the handshake.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    // The authority's certificate is sent along: a newcomer knows it by its fingerprint alone.
    let chain = vec![credentials.certificate().clone(), credentials.authority().clone()];
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, credentials.key())?;
    // Connections live long: resuming would keep secrets in memory to save a millisecond.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
