//! The folders of keys: one for each cluster that a user is in, by the cluster's number.
//!
//! ```text
//! KEYS/CLUSTER/        only the user can look into it
//!   authority.pem      with the head's user: makes certificates
//!   authority.next.pem the one that takes its place, while it is being replaced
//!   tokens             with the head's user: the book of tokens
//!   node.token         with the head's user: a token for nodes to join with
//!   head.pem           key and certificate of the head
//!   node.pem           of nodes that joined
//!   client.pem         of drivers that joined
//!   address            where the head is: by it the folder is found again
//! ```

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bireme_net::secret;
use bireme_net::tls::{Credentials, Fingerprint, Role, SecurityError};

const AUTHORITY: &str = "authority.pem";
const HEAD: &str = "head.pem";
const TOKEN: &str = "node.token";
const ADDRESS: &str = "address";

/// A cluster as it is written in names of folders, files and reports.
pub fn cluster_name(cluster: u128) -> String {
    format!("{cluster:032x}")
}

/// The folder of a cluster.
pub(super) fn folder(keys: &Path, cluster: u128) -> PathBuf {
    keys.join(cluster_name(cluster))
}

/// Where a head writes a token for nodes.
pub(super) fn token_file(keys: &Path, cluster: u128) -> PathBuf {
    folder(keys, cluster).join(TOKEN)
}

/// The credentials of a head in its cluster's folder.
pub(super) fn head_file(folder: &Path) -> PathBuf {
    folder.join(HEAD)
}

/// The credentials of one that joined.
pub(super) fn member_file(folder: &Path, role: Role) -> PathBuf {
    folder.join(format!("{role}.pem"))
}

/// Every cluster with a folder here.
fn clusters(keys: &Path) -> impl Iterator<Item = (u128, PathBuf)> {
    // Before the first cluster there is no folder.
    let entries = fs::read_dir(keys).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let cluster = u128::from_str_radix(entry.file_name().to_str()?, 16).ok()?;
        Some((cluster, entry.path()))
    })
}

fn is_at(folder: &Path, address: SocketAddr) -> bool {
    secret::read(&folder.join(ADDRESS)).is_ok_and(|text| text == address.to_string().as_bytes())
}

/// Remembers where the cluster's head is.
pub(super) fn remember(folder: &Path, address: SocketAddr) -> Result<(), SecurityError> {
    Ok(secret::replace(&folder.join(ADDRESS), address.to_string().as_bytes())?)
}

/// The cluster of which this user had the head at this address: started there again, it goes on with its keys. One that
/// asked for any port has no address to come back to.
pub(super) fn of_head(keys: &Path, bind: SocketAddr) -> Option<u128> {
    let found = |folder: &Path| folder.join(AUTHORITY).exists() && is_at(folder, bind);
    clusters(keys).find(|(_, folder)| bind.port() != 0 && found(folder)).map(|(cluster, _)| cluster)
}

/// What this user has to show to a head: credentials of the authority that the token names, or of one that replaced it; without a
/// token, those that were used at this address.
pub(super) fn saved(
    keys: &Path,
    role: Role,
    head: SocketAddr,
    authority: Option<Fingerprint>,
) -> Result<Option<(Credentials, PathBuf)>, SecurityError> {
    for (_, folder) in clusters(keys) {
        if authority.is_none() && !is_at(&folder, head) {
            continue;
        }
        let path = member_file(&folder, role);
        match Credentials::load(&path) {
            Ok(found) if authority.is_none_or(|wanted| found.are_of(wanted)) => {
                return Ok(Some((found, path)));
            }
            Ok(_) => {}
            Err(SecurityError::Secret(error)) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
