//! What a node is to be in a cluster, and what protects it there: plain values, made from settings or by hand.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use bireme_core::throttle::QUEUED_BYTES_MAX;
use bireme_net::bulk::HostMark;
use bireme_net::tls::CERTIFICATE_LIFE;

use super::keys;
use crate::admin::Security;
use crate::error::Error;
use crate::local::StateDirectory;
use crate::settings::{Secret, Settings};

/// What a node is to be in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChoice {
    /// The head to join; none to be one.
    pub head: Option<SocketAddr>,
    /// Where other nodes reach this one; none for a driver's node, which only dials out.
    pub bind: Option<SocketAddr>,
    /// What the user says of the machine.
    pub labels: BTreeMap<String, String>,
    /// What protects its door and its connections.
    pub security: SecurityChoice,
    /// How much later than it came something on a control link or a bulk stream arrives: for tests and benchmarks.
    pub link_delay: Duration,
    /// Bytes of objects go over connections between nodes of one machine too; also with a delay.
    pub copies_on_wire: bool,
    /// Bytes of messages that wait for one other node, beyond which processes that have more for it wait.
    pub link_queue_bytes: usize,
}

impl Default for ClusterChoice {
    fn default() -> Self {
        Self {
            head: None,
            bind: None,
            labels: BTreeMap::new(),
            security: SecurityChoice::default(),
            link_delay: Duration::ZERO,
            copies_on_wire: false,
            link_queue_bytes: QUEUED_BYTES_MAX,
        }
    }
}

/// What protects a node's door and its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecurityChoice {
    /// Plain TCP, for one user on one machine: an address that others could reach is refused.
    #[default]
    Loopback,
    /// TLS with certificates on both sides.
    Tls(TlsChoice),
}

/// How a node gets its certificate, and what it is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsChoice {
    /// Where keys are kept: a folder for each cluster, which only the user can look into.
    pub keys: PathBuf,
    /// What a newcomer shows to get a certificate. Whoever has one already does not need it.
    pub token: Option<Secret>,
    /// Whether the bytes of objects are encrypted too. All nodes of a cluster have to say the same.
    pub bulk_encryption: bool,
    /// With the head: how long the certificates are good that it gives. They are renewed before.
    pub certificate_life: Duration,
}

impl TlsChoice {
    /// Everything encrypted, with keys in this folder.
    pub fn new(keys: PathBuf) -> Self {
        Self { keys, token: None, bulk_encryption: true, certificate_life: CERTIFICATE_LIFE }
    }

    /// Where a head writes a token for nodes to join with, when its cluster is this one.
    pub fn token_file(&self, cluster: u128) -> PathBuf {
        keys::token_file(&self.keys, cluster)
    }
}

impl SecurityChoice {
    /// What `bireme status` says of it.
    pub fn status(&self) -> Security {
        match self {
            Self::Loopback => Security::default(),
            Self::Tls(choice) => {
                Security { mutual_tls: true, bulk_encryption: choice.bulk_encryption, ..Security::default() }
            }
        }
    }

    fn of(settings: &Settings, state: &StateDirectory) -> Result<Self, Error> {
        let keys = state.keys()?;
        let (token, bulk_encryption) = (settings.token.clone(), settings.bulk_encryption);
        Ok(Self::Tls(TlsChoice { token, bulk_encryption, ..TlsChoice::new(keys) }))
    }
}

impl ClusterChoice {
    /// The file with a token for others to join with: a head's, when they need one.
    pub fn token_file(&self, cluster: u128) -> Option<PathBuf> {
        match &self.security {
            SecurityChoice::Tls(choice) if self.head.is_none() => Some(choice.token_file(cluster)),
            SecurityChoice::Tls(_) | SecurityChoice::Loopback => None,
        }
    }

    /// What the node of a daemon is to be: a head, or one more node of the cluster at `settings.address`.
    ///
    /// Without TLS only when nobody but this machine is concerned. A node that joins a cluster elsewhere is reached at the
    /// address by which this machine reaches the head, unless another one is chosen.
    pub fn of_node(settings: &Settings, state: &StateDirectory) -> Result<Self, Error> {
        let head = settings.address.as_deref().map(resolve).transpose()?;
        let local = settings.host.is_loopback() && head.is_none_or(|head| head.ip().is_loopback());
        let security = match local && settings.token.is_none() {
            true => SecurityChoice::Loopback,
            false => SecurityChoice::of(settings, state)?,
        };
        let host = match head {
            Some(head) if settings.host.is_loopback() && !head.ip().is_loopback() => {
                towards(head).ok_or_else(|| {
                    Error::BadArgument(format!("no address of this machine leads to {head}: choose one with --host"))
                })?
            }
            _ => settings.host,
        };
        let bind = Some(SocketAddr::new(host, settings.port));
        Ok(Self { head, bind, security, ..Self::of_links(settings) })
    }

    /// What the node of a driver is to be that has no node on its machine: it dials out, and takes no work.
    pub fn of_driver(address: &str, settings: &Settings, state: &StateDirectory) -> Result<Self, Error> {
        let head = resolve(address)?;
        let security = match head.ip().is_loopback() && settings.token.is_none() {
            true => SecurityChoice::Loopback,
            false => SecurityChoice::of(settings, state)?,
        };
        Ok(Self { head: Some(head), security, ..Self::of_links(settings) })
    }

    /// What the settings say of links, whoever they lead to.
    fn of_links(settings: &Settings) -> Self {
        Self {
            link_delay: settings.link_delay,
            copies_on_wire: !settings.local_copies,
            link_queue_bytes: usize::try_from(settings.link_queue_bytes).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// The mark of those whose memory this node reads, and who read its own.
    pub(super) fn host(&self) -> Option<HostMark> {
        if self.copies_on_wire || !self.link_delay.is_zero() { None } else { HostMark::of_this_process() }
    }
}

/// The address behind `HOST:PORT`.
fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let failed = |reason: String| Error::BadArgument(format!("the address {address} cannot be looked up: {reason}"));
    let mut found = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("it has no numbers".to_owned()))
}

/// The address of this machine on the way to another one. Nothing is sent.
pub(super) fn towards(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(address).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|own| !own.is_unspecified())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Flags;

    fn choice(flags: &[(&'static str, &str)]) -> ClusterChoice {
        let number = bireme_net::secret::random_u128();
        let folder = std::env::temp_dir().join(format!("bireme-choice-{number:032x}"));
        let state = StateDirectory::open(&folder).unwrap();
        let flags: Flags = flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let choice = ClusterChoice::of_node(&Settings::load(&flags).unwrap(), &state).unwrap();
        std::fs::remove_dir(folder).unwrap();
        choice
    }

    #[test]
    fn only_what_stays_on_this_machine_is_plain() {
        let plain = |flags| matches!(choice(flags).security, SecurityChoice::Loopback);
        assert!(plain(&[]));
        assert!(plain(&[("address", "127.0.0.1:9")]));
        assert!(!plain(&[("host", "0.0.0.0")]));
        assert!(!plain(&[("host", "0.0.0.0"), ("address", "127.0.0.1:9")]));
        assert!(choice(&[("host", "0.0.0.0")]).security.status().mutual_tls);
    }

    #[test]
    fn bulk_encryption_is_off_by_name_alone() {
        let bulk = |flags| choice(flags).security.status().bulk_encryption;
        assert!(bulk(&[("host", "0.0.0.0")]));
        assert!(!bulk(&[("host", "0.0.0.0"), ("bulk_encryption", "off")]));
        assert!(!bulk(&[]), "on loopback nothing is encrypted");
    }
}
