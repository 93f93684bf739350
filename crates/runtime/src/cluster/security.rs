//! The lock of a node: its certificate, what its door shows, and how it dials.
//!
//! A head makes the cluster's authority at its first start, a certificate for itself, and a token for others in a file. One
//! that joins shows the certificate that it saved, or gets one for a token. Nothing is ever done without TLS because
//! something about TLS did not work.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bireme_net::door::{
    DialError, DialSecurity, Enrolment, LoopbackKey, Security, Timeouts, TlsSecurity, dial, enrol, renew,
};
use bireme_net::hello::Hello;
use bireme_net::secret::{self, random_u128};
use bireme_net::tls::{
    Authority, ClientTls, Connections, Credentials, Fingerprint, PeerIdentity, Role, SecurityError, ServerTls,
};
use bireme_net::token::{Stay, Token, TokenBook, TokenError, TokenState, TokenTerms};
use bireme_net::wire::{Wire, delayed};

use super::choice::{ClusterChoice, SecurityChoice, TlsChoice};
use super::gate::NotReached;
use super::keys;
use crate::clock::seconds_since_1970 as today;
use crate::error::Error;
use crate::settings::Surroundings;
use crate::tokens::BOOK;

#[cfg(test)]
mod tests;

/// How long the token is good that a head writes into a file.
const FIRST_TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "{head} is joined with a certificate, and there is none for it here: give a token with --token-file or BIREME_TOKEN (`bireme token create` makes one on the machine of the head)"
    )]
    NoToken { head: SocketAddr },
    #[error(
        "the certificate in {path} has expired: give a new token with --token-file or BIREME_TOKEN (`bireme token create` makes one on the machine of the head)"
    )]
    Expired { path: PathBuf },
    #[error("a head needs an address to listen on")]
    NoAddress,
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

impl From<secret::SecretError> for LockError {
    fn from(error: secret::SecretError) -> Self {
        Self::Security(error.into())
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        Self::System { what: "becoming a node of a cluster", reason: error.to_string() }
    }
}

/// How this node dials others, also after its certificate was renewed.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<Dialling>);

struct Dialling {
    identity: Identity,
    bulk_encryption: bool,
    link_delay: Duration,
}

/// What this node shows when it dials.
enum Identity {
    /// On one machine: the user's key.
    Loopback(LoopbackKey),
    /// A certificate, and all connections with others' certificates.
    Tls(RwLock<ClientTls>, Arc<Connections>),
}

impl Dialer {
    fn new(identity: Identity, bulk_encryption: bool, link_delay: Duration) -> Self {
        Self(Arc::new(Dialling { identity, bulk_encryption, link_delay }))
    }

    /// For tests: with a key of their own.
    #[cfg(test)]
    pub(crate) fn on_loopback(key: LoopbackKey) -> Self {
        Self::new(Identity::Loopback(key), false, Duration::ZERO)
    }

    /// Dials a node for a control link or a bulk stream: what comes on it is delayed as this node was told.
    pub(crate) fn link(
        &self,
        address: SocketAddr,
        security: &DialSecurity,
        hello: &Hello,
    ) -> Result<Box<dyn Wire>, NotReached> {
        let failed = |reason| NotReached { reason, for_good: false };
        let (_, wire) = dial(address, security, hello, Timeouts::default()).map_err(|error| NotReached {
            reason: error.to_string(),
            for_good: matches!(error, DialError::Dismissed { .. }),
        })?;
        delayed(wire, self.0.link_delay)
            .map_err(|error| failed(format!("the link to {address} cannot be delayed: {error}")))
    }

    /// Only the node with this number in its certificate is believed; with 0 any
    /// node of the cluster.
    pub(crate) fn to(&self, identity: u128) -> DialSecurity {
        match &self.0.identity {
            Identity::Loopback(key) => DialSecurity::Loopback(key.clone()),
            Identity::Tls(tls, _) => {
                let tls = tls.read().unwrap_or_else(PoisonError::into_inner);
                DialSecurity::Tls(if identity == 0 { tls.clone() } else { tls.only(identity) })
            }
        }
    }

    /// What the head and its members have to agree on; none without TLS.
    pub(crate) fn bulk_encryption(&self) -> Option<bool> {
        match &self.0.identity {
            Identity::Tls(..) => Some(self.0.bulk_encryption),
            Identity::Loopback(_) => None,
        }
    }

    pub(super) fn renew(&self, credentials: &Credentials) -> Result<(), SecurityError> {
        if let Identity::Tls(tls, connections) = &self.0.identity {
            let new = ClientTls::new(credentials)?.watched_by(Arc::clone(connections));
            *tls.write().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(())
    }

    /// Cuts the connections with certificates of authorities that these credentials do not trust, also those of the door: how many.
    pub(super) fn cut_distrusted(&self, credentials: &Credentials) -> Result<usize, SecurityError> {
        match &self.0.identity {
            Identity::Tls(_, connections) => connections.trust_only(credentials),
            Identity::Loopback(_) => Ok(0),
        }
    }
}

/// A node's key and certificate, and where the next ones come from.
pub(super) struct Keys {
    pub(super) credentials: Credentials,
    path: PathBuf,
    source: Source,
}

enum Source {
    /// The authorities beside this book.
    Own(Own),
    /// The head.
    Head(SocketAddr),
}

/// What a head makes its own certificates with.
struct Own {
    book: TokenBook,
    life: Duration,
    /// Where it leaves a token for nodes.
    token_file: PathBuf,
}

impl Keys {
    /// Gets a new certificate for the same identity and saves it.
    pub(super) fn renew(&mut self) -> Result<(), LockError> {
        let old = &self.credentials;
        self.credentials = match &self.source {
            Source::Own(Own { book, life, token_file }) => {
                let authorities = book.authorities()?;
                write_token(book, authorities.newest(), token_file)?;
                authorities.credentials(old.cluster(), old.identity(), today(), *life)?
            }
            Source::Head(head) => renew(*head, old, Timeouts::default())?,
        };
        Ok(self.credentials.save(&self.path)?)
    }
}

/// What a node has before it opens its door.
pub(super) struct Lock {
    pub(super) dialer: Dialer,
    pub(super) keys: Option<Keys>,
    enrolment: Option<Enrolment>,
}

impl Lock {
    /// Gets everything that the choice needs: keys that are there, or new ones.
    pub(super) fn prepare(choice: &ClusterChoice) -> Result<Self, LockError> {
        let SecurityChoice::Tls(tls) = &choice.security else {
            let key = Identity::Loopback(loopback_key()?);
            return Ok(Self { dialer: Dialer::new(key, false, choice.link_delay), keys: None, enrolment: None });
        };
        let (keys, enrolment) = match choice.head {
            None => {
                let (keys, enrolment) = found(tls, choice.bind.ok_or(LockError::NoAddress)?)?;
                (keys, Some(enrolment))
            }
            Some(head) => (admitted(tls, head, choice.bind.is_some())?, None),
        };
        let connections = Connections::new(&keys.credentials)?;
        let shown = ClientTls::new(&keys.credentials)?.watched_by(Arc::clone(&connections));
        let dialer = Dialer::new(Identity::Tls(shown.into(), connections), tls.bulk_encryption, choice.link_delay);
        Ok(Self { dialer, keys: Some(keys), enrolment })
    }

    /// The cluster, where the certificate says it.
    pub(super) fn cluster(&self) -> Option<u128> {
        self.keys.as_ref().map(|keys| keys.credentials.cluster())
    }

    /// The epoch of its keys.
    pub(super) fn epoch(&self) -> u64 {
        self.keys.as_ref().map_or(0, |keys| keys.credentials.epoch())
    }

    /// Gets a new certificate before the door is open.
    pub(super) fn renew(&mut self) -> Result<(), LockError> {
        let Some(keys) = &mut self.keys else { return Ok(()) };
        keys.renew()?;
        self.dialer.renew(&keys.credentials)?;
        self.dialer.cut_distrusted(&keys.credentials)?;
        Ok(())
    }

    /// With the head: the book of tokens and of those who came in with them.
    pub(super) fn book(&self) -> Option<TokenBook> {
        self.enrolment.as_ref().map(|enrolment| enrolment.book.clone())
    }

    /// The number in this node's certificate.
    pub(super) fn identity(&self) -> u128 {
        self.keys.as_ref().map_or(0, |keys| keys.credentials.identity().uid)
    }

    /// What protects the door.
    pub(super) fn door(&mut self) -> Result<Security, LockError> {
        let (connections, keys) = match (&self.dialer.0.identity, &self.keys) {
            (Identity::Loopback(key), _) => return Ok(Security::Loopback(key.clone())),
            (Identity::Tls(_, connections), keys) => {
                (Arc::clone(connections), keys.as_ref().expect("a node with a certificate has its keys"))
            }
        };
        let (tls, enrolment) = (ServerTls::watched_by(connections, &keys.credentials)?, self.enrolment.take());
        let bulk_encryption = self.dialer.bulk_encryption() != Some(false);
        Ok(Security::Tls(Box::new(TlsSecurity { tls, enrolment, bulk_encryption })))
    }
}

/// The key that all nodes and programs of this user on this machine share, whatever their settings. It is in the user's own folder,
/// or where there is none (no home, or one that cannot be written) in the one for what runs.
fn loopback_key() -> Result<LoopbackKey, secret::SecretError> {
    let surroundings = Surroundings::of_this_process();
    let own = surroundings.key_directory().map(|folder| LoopbackKey::open(&folder));
    match own {
        Some(Err(secret::SecretError::System { .. } | secret::SecretError::Foreign { .. })) | None => {
            LoopbackKey::open(Path::new(&surroundings.state_directory()))
        }
        Some(opened) => opened,
    }
}

/// The keys of a head: of its cluster, when it was here before, else of a new one.
fn found(choice: &TlsChoice, bind: SocketAddr) -> Result<(Keys, Enrolment), LockError> {
    let cluster = keys::of_head(&choice.keys, bind).unwrap_or_else(random_u128);
    let (folder, life) = (keys::folder(&choice.keys, cluster), choice.certificate_life);
    Authority::open(&folder, today())?;
    let (book, path) = (TokenBook::open(&folder.join(BOOK))?, keys::head_file(&folder));
    book.head_started(today())?;
    let authorities = book.authorities()?;
    let identity = match Credentials::load(&path) {
        Ok(saved) => saved.identity(),
        Err(SecurityError::Secret(error)) if error.is_missing() => PeerIdentity::random(Role::Node),
        Err(error) => return Err(error.into()),
    };
    let credentials = authorities.credentials(cluster, identity, today(), life)?;
    credentials.save(&path)?;
    keys::remember(&folder, bind)?;
    let token_file = choice.token_file(cluster);
    write_token(&book, authorities.newest(), &token_file)?;
    let source = Source::Own(Own { book: book.clone(), life, token_file });
    Ok((Keys { credentials, path, source }, Enrolment { book, life }))
}

/// A token for nodes, in a file that only the user can read. One that is there, names this authority and can still be used stays.
fn write_token(book: &TokenBook, authority: Fingerprint, path: &Path) -> Result<(), LockError> {
    let now = today();
    let there = secret::read(path).ok().and_then(|text| Token::parse(&String::from_utf8(text).ok()?).ok());
    let good = |token: &Token| {
        let listed = book.list().unwrap_or_default();
        listed.iter().any(|entry| entry.id == token.id && entry.state(now) == TokenState::Good)
    };
    if there.as_ref().is_some_and(|token| token.fingerprint == authority && good(token)) {
        return Ok(());
    }
    let terms = TokenTerms { role: Role::Node, life: FIRST_TOKEN_LIFE, uses: None, stay: Stay::Unbounded };
    let token = book.create(terms, authority, now)?;
    Ok(secret::replace(path, format!("{}\n", token.to_text()).as_bytes())?)
}

/// The keys of one that joins: saved ones, or those that a token buys.
fn admitted(choice: &TlsChoice, head: SocketAddr, is_node: bool) -> Result<Keys, LockError> {
    let token = choice.token.as_ref().map(|token| Token::parse(token.reveal())).transpose()?;
    // A driver may be what its token says; who is dialled has to be a node.
    let role = match &token {
        _ if is_node => Role::Node,
        Some(token) => token.role,
        None => Role::Client,
    };
    let saved = keys::saved(&choice.keys, role, head, token.as_ref().map(|token| token.fingerprint))?;
    let (credentials, path) = match (saved, &token) {
        (Some((credentials, path)), _) if credentials.expires() > today() => (credentials, path),
        (Some((_, path)), None) => return Err(LockError::Expired { path }),
        (None, None) => return Err(LockError::NoToken { head }),
        (_, Some(token)) => {
            let credentials = enrol(head, token, role, Timeouts::default())?;
            let path = keys::member_file(&keys::folder(&choice.keys, credentials.cluster()), role);
            credentials.save(&path)?;
            (credentials, path)
        }
    };
    keys::remember(&keys::folder(&choice.keys, credentials.cluster()), head)?;
    Ok(Keys { credentials, path, source: Source::Head(head) })
}
