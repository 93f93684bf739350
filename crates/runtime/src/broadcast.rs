//! Values that are sent ahead to nodes before anybody there asks for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use bireme_core::id::NodeId;
use bireme_core::message::ToNode;
use bireme_core::owner::Event;
use bireme_core::value::{Body, INLINE_BYTES_MAX, Value};

use crate::client::Runtime;
use crate::error::Error;
use crate::process::{Interest, Waited};
use crate::reference::Ref;

/// Broadcasts of values that are not there yet, each with a thread that waits.
const WAITING_MAX: usize = 64;

static WAITING: AtomicUsize = AtomicUsize::new(0);

impl Runtime {
    /// Has copies of a value brought to these nodes, or to all that run tasks, as soon as there is one. Returns at once; what
    /// becomes of it shows when somebody reads the value there. Values of up to [`INLINE_BYTES_MAX`] bytes travel in messages
    /// anyway and are left alone.
    pub fn broadcast(&self, r: &Ref, nodes: Option<&[NodeId]>) -> Result<(), Error> {
        self.check_refs([r])?;
        let there: Vec<_> = self.nodes()?.into_iter().filter(|row| row.alive).collect();
        let nodes: Vec<NodeId> = match nodes {
            Some(nodes) => match nodes.iter().find(|node| !there.iter().any(|row| row.node == **node)) {
                Some(missing) => {
                    let text = format!(
                        "{missing} cannot be sent {}: it is not in the cluster; the list of nodes has those that are",
                        r.id()
                    );
                    return Err(Error::BadArgument(text));
                }
                None => nodes.to_vec(),
            },
            None => there.iter().filter(|row| row.role != "driver").map(|row| row.node).collect(),
        };
        if let Some(value) = r.process().value_now(r.id()) {
            send_ahead(r, &value, nodes);
            return Ok(());
        }
        if WAITING.fetch_add(1, Ordering::AcqRel) >= WAITING_MAX {
            WAITING.fetch_sub(1, Ordering::AcqRel);
            let text = format!("{WAITING_MAX} broadcasts wait for their values already; wait for some of them first");
            return Err(Error::BadArgument(text));
        }
        // The result of a reduce goes while it is made.
        r.process().own(Event::ReadEarly { object: r.id(), nodes: nodes.clone() });
        let waiting = r.clone();
        let started = crate::thread::spawn("bireme-ahead", move || {
            wait_and_send(&waiting, nodes);
            WAITING.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).inspect_err(|_| {
            WAITING.fetch_sub(1, Ordering::AcqRel);
        })
    }
}

fn wait_and_send(r: &Ref, nodes: Vec<NodeId>) {
    let object = r.id();
    let mut asked = false;
    let waited = r.process().wait_for(None, &Interest::Objects(&[object]), |inner| {
        if let Some(value) = inner.owner.value(&object) {
            return Some(value.clone());
        }
        if !std::mem::replace(&mut asked, true) {
            r.process().want(inner, object);
        }
        None
    });
    // Otherwise the runtime is over.
    if let Waited::Got(value) = waited {
        send_ahead(r, &value, nodes);
    }
}

/// Small values and failures travel in messages.
fn send_ahead(r: &Ref, value: &Value, nodes: Vec<NodeId>) {
    if let Body::Stored(at) = value.body {
        debug_assert!(at.len > INLINE_BYTES_MAX as u64, "small values are not stored");
        r.process().tell(&ToNode::Broadcast { object: r.spec(), at, nodes });
    }
}
