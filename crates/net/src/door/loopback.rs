//! Proof that both ends of a loopback connection belong to one user.
//!
//! Loopback keeps other machines out, not other users of this one, and a TCP port proves nothing about who is behind it. So
//! both sides show that they can read one file, which only the user can, before anything else is said:
//!
//! ```text
//! dialler  -> listener   CHALLENGE  nonce of the dialler
//! listener -> dialler    PROOF      nonce of the listener, MAC(key, "listener", ends, both nonces)
//! dialler  -> listener   PROOF      MAC(key, "dialler", ends, both nonces)
//! ```
//!
//! The key itself is never sent, so a program that squats the port learns nothing. The MAC covers the addresses of both ends of
//! the connection: a program that passes the messages on between two connections has other ends on each of them, and fails on
//! both. The dialler speaks only after the listener has proved itself.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::hmac;

use crate::frame::{FrameKind, ReadError, read_frame, write_frame};
use crate::hello::{HELLO_BYTES_MAX, decode_reason};
use crate::secret::{self, SecretError};
use crate::wire::Wire;

const FILE: &str = "loopback.key";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;

/// The secret that all nodes and programs of one user on one machine share.
#[derive(Clone, PartialEq, Eq)]
pub struct LoopbackKey(Arc<[u8; KEY_BYTES]>);

impl LoopbackKey {
    /// The key in a folder, which is made if it is missing, and so is the key. A folder or file that another user owns or can read
    /// is refused.
    pub fn open(folder: &Path) -> Result<Self, SecretError> {
        secret::ensure_folder(folder)?;
        match Self::load(folder) {
            Err(error) if error.is_missing() => {}
            other => return other,
        }
        let bytes: [u8; KEY_BYTES] = secret::random();
        match secret::create(&folder.join(FILE), &bytes) {
            // Another process was faster; all use the one key.
            Err(SecretError::Exists { .. }) => Self::load(folder),
            other => other.map(|()| Self(Arc::new(bytes))),
        }
    }

    fn load(folder: &Path) -> Result<Self, SecretError> {
        let path = folder.join(FILE);
        let bytes = secret::read(&path)?;
        match bytes.try_into() {
            Ok(bytes) => Ok(Self(Arc::new(bytes))),
            Err(_) => Err(SecretError::Malformed { path, problem: "does not hold a key of 32 bytes" }),
        }
    }

    /// The MAC of one side. It covers the name of the side, so that no side's MAC is good for the other.
    fn mac(&self, side: Side, ends: &Ends, nonces: &Nonces) -> Mac {
        Mac {
            key: hmac::Key::new(hmac::HMAC_SHA256, &self.0[..]),
            message: [side.label(), &ends.bytes(), &nonces.dialler, &nonces.listener].concat(),
        }
    }
}

impl fmt::Debug for LoopbackKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LoopbackKey(..)")
    }
}

#[derive(Clone, Copy)]
enum Side {
    Listener,
    Dialler,
}

impl Side {
    /// Both have the same length, so that what follows begins at one place.
    fn label(self) -> &'static [u8] {
        match self {
            Side::Listener => b"bireme loopback 1 listener",
            Side::Dialler => b"bireme loopback 1 dialler.",
        }
    }
}

/// The two ends of one connection; each side sees the same two.
pub(super) struct Ends {
    pub(super) listener: SocketAddr,
    pub(super) dialler: SocketAddr,
}

impl Ends {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for end in [self.listener, self.dialler] {
            let ip = match end.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend_from_slice(&ip.octets());
            bytes.extend_from_slice(&end.port().to_be_bytes());
        }
        bytes
    }
}

struct Nonces {
    dialler: [u8; NONCE_BYTES],
    listener: [u8; NONCE_BYTES],
}

struct Mac {
    key: hmac::Key,
    message: Vec<u8>,
}

impl Mac {
    fn sign(&self) -> [u8; MAC_BYTES] {
        let mut bytes = [0; MAC_BYTES];
        bytes.copy_from_slice(hmac::sign(&self.key, &self.message).as_ref());
        bytes
    }

    /// In constant time.
    fn verify(&self, theirs: &[u8]) -> Result<(), ProofError> {
        hmac::verify(&self.key, &self.message, theirs).map_err(|_| ProofError::Wrong)
    }
}

/// The reason why the other side counts as another user.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProofError {
    /// The MAC is not that of our key.
    #[error(
        "the peer does not know the secret of user {}: without TLS a cluster is for one user of one machine, who has one home \
         directory; start the cluster with --host and give others a token",
        rustix::process::geteuid().as_raw()
    )]
    Wrong,
    /// A frame that does not belong here.
    #[error("a frame of kind {} and {bytes} bytes where the proof of a loopback peer belongs: is it the same version of bireme?", kind.0)]
    Unexpected {
        /// Its kind.
        kind: FrameKind,
        /// Bytes of its body.
        bytes: usize,
    },
    /// The other side says no.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<std::io::Error> for ProofError {
    fn from(error: std::io::Error) -> Self {
        Self::Read(error.into())
    }
}

/// The listener's part: returns when the dialler has proved that it is of the same user.
pub(super) fn accept(wire: &mut dyn Wire, key: &LoopbackKey, ends: &Ends) -> Result<(), ProofError> {
    let dialler = read_exactly(wire, FrameKind::CHALLENGE)?;
    let nonces = Nonces { dialler, listener: secret::random() };
    let proof = [nonces.listener, key.mac(Side::Listener, ends, &nonces).sign()].concat();
    write_frame(wire, FrameKind::PROOF, &proof)?;
    let theirs: [u8; MAC_BYTES] = read_exactly(wire, FrameKind::PROOF)?;
    key.mac(Side::Dialler, ends, &nonces).verify(&theirs)
}

/// The dialler's part: returns when the listener has proved that it is of the same user, and has been sent our proof.
pub(super) fn connect(wire: &mut dyn Wire, key: &LoopbackKey, ends: &Ends) -> Result<(), ProofError> {
    let dialler: [u8; NONCE_BYTES] = secret::random();
    let said = write_frame(wire, FrameKind::CHALLENGE, &dialler);
    // A side that closed before we had spoken may have said why, so the answer is looked for in any case.
    let proof: [u8; NONCE_BYTES + MAC_BYTES] = match read_exactly(wire, FrameKind::PROOF) {
        Err(ProofError::Read(error)) => return Err(said.err().map_or(ProofError::Read(error), ProofError::from)),
        other => other?,
    };
    let (listener, mac) = proof.split_at(NONCE_BYTES);
    let nonces = Nonces { dialler, listener: listener.try_into().expect("split at its length") };
    key.mac(Side::Listener, ends, &nonces).verify(mac)?;
    Ok(write_frame(wire, FrameKind::PROOF, &key.mac(Side::Dialler, ends, &nonces).sign())?)
}

fn read_exactly<const N: usize>(wire: &mut dyn Wire, wanted: FrameKind) -> Result<[u8; N], ProofError> {
    // A refusal in words may be longer than a proof.
    let (kind, body) = read_frame(wire, HELLO_BYTES_MAX)?;
    if kind == FrameKind::REFUSED {
        return Err(ProofError::Refused(decode_reason(&body)));
    }
    let unexpected = ProofError::Unexpected { kind, bytes: body.len() };
    <[u8; N]>::try_from(body).ok().filter(|_| kind == wanted).ok_or(unexpected)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::secret::tests::Folder;

    fn ends() -> Ends {
        Ends { listener: "127.0.0.1:6400".parse().unwrap(), dialler: "127.0.0.1:50000".parse().unwrap() }
    }

    fn nonces() -> Nonces {
        Nonces { dialler: [1; NONCE_BYTES], listener: [2; NONCE_BYTES] }
    }

    #[test]
    fn the_key_is_made_once_and_refused_when_others_can_read_it() {
        let folder = Folder::new();
        let key = LoopbackKey::open(&folder.0).unwrap();
        assert!(LoopbackKey::open(&folder.0).unwrap() == key);
        let path = folder.0.join(FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(LoopbackKey::open(&folder.0), Err(SecretError::Exposed { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(LoopbackKey::open(&folder.0).unwrap() != key);
        assert_eq!(format!("{key:?}"), "LoopbackKey(..)");
    }

    #[test]
    fn a_mac_is_good_for_one_side_one_connection_and_one_pair_of_nonces() {
        let key = LoopbackKey(Arc::new([7; KEY_BYTES]));
        let mac = key.mac(Side::Listener, &ends(), &nonces()).sign();
        let check = |key: &LoopbackKey, side, ends: &Ends, nonces: &Nonces| key.mac(side, ends, nonces).verify(&mac);
        assert!(check(&key, Side::Listener, &ends(), &nonces()).is_ok());
        assert!(check(&key, Side::Dialler, &ends(), &nonces()).is_err(), "reflected");
        let other = LoopbackKey(Arc::new([8; KEY_BYTES]));
        assert!(check(&other, Side::Listener, &ends(), &nonces()).is_err(), "another user's key");
        for relayed in [
            Ends { listener: "127.0.0.1:6401".parse().unwrap(), ..ends() },
            Ends { dialler: "127.0.0.1:50001".parse().unwrap(), ..ends() },
            Ends { listener: "127.0.0.2:6400".parse().unwrap(), ..ends() },
            Ends { listener: ends().dialler, dialler: ends().listener },
        ] {
            assert!(check(&key, Side::Listener, &relayed, &nonces()).is_err(), "on another connection");
        }
        for replayed in [Nonces { dialler: [3; 32], ..nonces() }, Nonces { listener: [3; 32], ..nonces() }] {
            assert!(check(&key, Side::Listener, &ends(), &replayed).is_err(), "for other nonces");
        }
    }
}
