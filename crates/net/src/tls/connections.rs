//! The open connections of a node, by the certificates that its peers have shown.
//!
//! TLS looks at a certificate once, when a connection is made. When an authority is not trusted any more, connections that were made
//! with its certificates are cut, whatever they are used for; who belongs to the cluster makes new ones.

use std::fmt;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, RootCertStore};

use super::{Credentials, SecurityError, provider};

/// All connections with certificates of one node, of its door and of those that it dialled.
pub struct Connections(Mutex<Watched>);

struct Watched {
    verifier: Arc<dyn ClientCertVerifier>,
    open: Vec<(Weak<TcpStream>, CertificateDer<'static>)>,
    /// When there are so many, those that have ended are forgotten.
    forget_at: usize,
}

/// There are always a few.
const FORGET_AT_MIN: usize = 64;

impl fmt::Debug for Connections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Connections")
    }
}

impl Connections {
    /// None yet, of a node that trusts the authorities of these credentials.
    pub fn new(credentials: &Credentials) -> Result<Arc<Self>, SecurityError> {
        let verifier = verifier_of(credentials)?;
        Ok(Arc::new(Self(Mutex::new(Watched { verifier, open: Vec::new(), forget_at: FORGET_AT_MIN }))))
    }

    /// From now on trusts the authorities of these credentials, and cuts the connections of others: how many.
    pub fn trust_only(&self, credentials: &Credentials) -> Result<usize, SecurityError> {
        let verifier = verifier_of(credentials)?;
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.verifier = Arc::clone(&verifier);
        let mut cut = 0;
        watched.open.retain(|(connection, certificate)| {
            let Some(connection) = connection.upgrade() else { return false };
            let trusted = verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok();
            if !trusted {
                cut += 1;
                // One that has ended meanwhile is what was wanted.
                let _ = connection.shutdown(Shutdown::Both);
            }
            trusted
        });
        Ok(cut)
    }

    /// One more, unless its peer's authority has lost all trust while hands were shaken.
    pub(super) fn watch(&self, connection: &Arc<TcpStream>, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.verifier.verify_client_cert(certificate, &[], UnixTime::now())?;
        if watched.open.len() >= watched.forget_at {
            watched.open.retain(|(connection, _)| connection.strong_count() > 0);
            watched.forget_at = (2 * watched.open.len()).max(FORGET_AT_MIN);
        }
        watched.open.push((Arc::downgrade(connection), certificate.clone().into_owned()));
        Ok(())
    }
}

/// Checks certificates of nodes and of clients: all may be shown by who dials, and a newcomer has none yet.
pub(super) fn verifier_of(credentials: &Credentials) -> Result<Arc<dyn ClientCertVerifier>, SecurityError> {
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots_of(credentials)?), provider())
        .allow_unauthenticated()
        .build();
    Ok(built.map_err(|error| Error::General(error.to_string()))?)
}

/// The authorities that are trusted.
pub(super) fn roots_of(credentials: &Credentials) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    for authority in credentials.authorities() {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}
