//! Drivers that attach to a node of their user on the same machine, over its Unix socket.
//!
//! A driver says who it is and what its workers are; the node hands it the shared memory and a slot. From then on it is a
//! process of that node as a worker is. The socket stays open: its end is the driver's death to the node, and the node's
//! death to the driver. What workers print comes over it as well.
//!
//! | file | what |
//! |---|---|
//! | `message` | what both sides say |
//! | `socket` | packets and descriptors over a Unix socket |
//! | `attachment` | the driver's side |
//! | `door` | the node's side: a thread that accepts, and one for each driver |
//! | `program` | what a job's workers are, made ready on this machine |
//! | `elf` | whether an executable runs here |

mod attachment;
pub(crate) mod door;
mod elf;
pub(crate) mod message;
pub(crate) mod program;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(crate) use attachment::{Attachment, attach, own_program};
pub use message::Program;

use crate::error::Error;
use crate::settings::{Endpoint, discover};

/// The name of the socket in a node's folder.
pub const SOCKET: &str = "attach.sock";

/// The socket for what `init(address=..)` says: `auto`, `HOST:PORT`, or the folder of a node.
pub(crate) fn find(address: &str) -> Result<Found, Error> {
    if address.contains('/') {
        let path = Path::new(address);
        return Ok(Found::Here(if path.is_dir() { path.join(SOCKET) } else { path.to_owned() }));
    }
    Ok(match discover(address)? {
        Endpoint::Local { socket, .. } => Found::Here(socket.with_file_name(SOCKET)),
        Endpoint::Remote { address } => Found::Elsewhere(address),
    })
}

/// The node behind an address.
pub(crate) enum Found {
    /// A node of this user on this machine: its socket.
    Here(PathBuf),
    /// A node elsewhere: its address. The program joins its cluster as a node without resources.
    Elsewhere(String),
}
