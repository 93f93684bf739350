//! TLS of the side that dials.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, SignatureScheme,
    version,
};

use super::connections::{Connections, roots_of};
use super::{Credentials, Fingerprint, NODE_NAME, PeerIdentity, Role, SecurityError, provider};

/// What a dialler shows and whom it believes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// The same, but it says whom it believes. Only for those who were shown a certificate of another authority: everybody on the way can
    /// read it.
    telling: Arc<ClientConfig>,
    /// The node that has to answer; any node of the cluster, when it does not matter.
    server: Option<u128>,
    /// Where its connections are watched.
    connections: Option<Arc<Connections>>,
}

impl ClientTls {
    /// Of somebody who has enrolled.
    pub fn new(credentials: &Credentials) -> Result<Self, SecurityError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots_of(credentials)?)
            .with_client_auth_cert(vec![credentials.certificate().clone()], credentials.key())?;
        let believed = credentials.authorities().map(|authority| Fingerprint::of(authority));
        Ok(Self::of(config, believed.collect()))
    }

    /// Of a newcomer: no certificate, and an authority that is known by its fingerprint alone.
    pub fn pinned(fingerprint: Fingerprint) -> Result<Self, SecurityError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint, provider: provider() }))
            .with_no_client_auth();
        Ok(Self::of(config, vec![fingerprint]))
    }

    fn of(mut config: ClientConfig, believed: Vec<Fingerprint>) -> Self {
        config.resumption = Resumption::disabled();
        // The name is the same for all nodes and would tell a listener what this is.
        config.enable_sni = false;
        let mut telling = config.clone();
        telling.alpn_protocols = believed.iter().map(Fingerprint::hint).collect();
        Self { config: Arc::new(config), telling: Arc::new(telling), server: None, connections: None }
    }

    /// The same; connections are cut when their peers are not trusted any more.
    #[must_use]
    pub fn watched_by(self, connections: Arc<Connections>) -> Self {
        Self { connections: Some(connections), ..self }
    }

    /// The same, but it says whom it believes: the other side may have a certificate of that authority too.
    pub(crate) fn telling(&self) -> Self {
        Self { config: Arc::clone(&self.telling), ..self.clone() }
    }

    /// The same, but only this node is believed.
    pub fn only(&self, node_uid: u128) -> Self {
        Self { server: Some(node_uid), ..self.clone() }
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    pub(super) fn connections(&self) -> Option<&Connections> {
        self.connections.as_deref()
    }

    /// The name that the certificate of the other side must have.
    pub(super) fn server_name(&self) -> ServerName<'static> {
        let name = match self.server {
            Some(uid) => PeerIdentity { role: Role::Node, uid }.name(),
            None => NODE_NAME.to_owned(),
        };
        ServerName::try_from(name).expect("a uid in hexadecimal digits makes a name")
    }
}

/// Believes whoever has a certificate of one authority, which comes along and has the right fingerprint.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned = intermediates.iter().find(|certificate| Fingerprint::of(certificate) == self.fingerprint);
        let authority = pinned.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
