//! The node that a program connects to, from what `init(address=..)` says.

use std::path::PathBuf;

use super::error::SettingsError;
use super::resolve::{Entry, Flags, resolve};
use super::surroundings::Surroundings;
use super::value::{Value, address as checked};
use crate::error::Error;
use crate::local::{NodeFile, StateDirectory};

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A node of this user on this machine, over its socket.
    Local {
        /// The socket.
        socket: PathBuf,
        /// Whose it is.
        node: Box<NodeFile>,
    },
    /// A node elsewhere: this program joins the cluster as a node without resources.
    Remote {
        /// `HOST:PORT`.
        address: String,
    },
}

/// The node for an address. `auto` is the one in `BIREME_ADDRESS` (or the configuration file), else the one that this user
/// has running on this machine; several are an error that names them. Of an address in whose cluster this user has a node
/// on this machine, it is that node.
pub fn discover(address: &str) -> Result<Endpoint, Error> {
    discover_in(address, &Surroundings::of_this_process())
}

pub(super) fn discover_in(address: &str, surroundings: &Surroundings) -> Result<Endpoint, Error> {
    let entries = resolve(&Flags::new(), surroundings)?;
    let running = running(&entries)?;
    let wanted = match address {
        "auto" => match value(&entries, "address") {
            Some(Value::Text(address)) => address.clone(),
            _ => return only_one(running),
        },
        given => {
            let wrong = |reason| Error::BadArgument(format!("the address {given:?} {reason}; or give \"auto\""));
            checked(given).map_err(wrong)?
        }
    };
    let near = running.into_iter().find(|node| node.address == wanted || node.head == wanted);
    Ok(near.map_or(Endpoint::Remote { address: wanted }, local))
}

fn value<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Value> {
    entries.iter().find(|entry| entry.setting.name == name)?.value.as_ref()
}

/// A folder that is not there has no nodes and need not be made.
fn running(entries: &[Entry]) -> Result<Vec<NodeFile>, Error> {
    match value(entries, "state_directory") {
        Some(Value::Path(path)) if path.exists() => Ok(StateDirectory::open(path)?.running()),
        _ => Ok(Vec::new()),
    }
}

fn only_one(mut running: Vec<NodeFile>) -> Result<Endpoint, Error> {
    if running.len() > 1 {
        let names: Vec<String> =
            running.iter().map(|node| format!("{} (cluster {})", node.address, node.cluster)).collect();
        let message = format!(
            "you have {} nodes running on this machine: {}; say which with address=\"HOST:PORT\" or BIREME_ADDRESS",
            names.len(),
            names.join(", ")
        );
        return Err(SettingsError::NoNode(message).into());
    }
    running.pop().map(local).ok_or_else(|| {
        let message = "you have no node running on this machine; start one with `bireme start`, or give \
                       address=\"HOST:PORT\" of another";
        SettingsError::NoNode(message.to_owned()).into()
    })
}

fn local(node: NodeFile) -> Endpoint {
    Endpoint::Local { socket: node.socket.clone(), node: Box::new(node) }
}
