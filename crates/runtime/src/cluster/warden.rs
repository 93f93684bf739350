//! With a head that gives certificates: a thread that sees to it that nobody stays longer than it may.
//!
//! Connections live long, and TLS looks at a certificate once, when they are made. The warden looks at the book every second: whose
//! token was revoked, whose time is over or whose certificate has expired without being renewed is reported to the node's thread,
//! which has the controller expel it. All nodes then close their connections with it, and let it in no more.
//!
//! While the authority is being replaced, the same thread tells the book how far all have followed, and this node which epoch of its keys
//! is wanted; `bireme_core::rotation` decides.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bireme_core::id::NodeId;
use bireme_net::token::{Contents, TokenBook, TokenError};

use super::gate::{Arrived, Gate};
use crate::clock::seconds_since_1970 as today;
use crate::error::Error;

/// The interval between its looks.
const ROUND: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
pub(crate) struct Warden {
    _running: Sender<()>,
}

impl Warden {
    pub(super) fn start(book: TokenBook, gate: &Arc<Gate>) -> Result<Self, Error> {
        let (running, ended) = channel();
        let gate = Arc::downgrade(gate);
        crate::thread::spawn("bireme-warden", move || run(&book, &gate, &ended))?;
        Ok(Self { _running: running })
    }
}

fn run(book: &TokenBook, gate: &Weak<Gate>, ended: &Receiver<()>) {
    let mut readable = true;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(ROUND) {
        let Some(gate) = gate.upgrade() else { return };
        match look(book, &gate) {
            Ok(contents) => {
                readable = true;
                for (node, identity) in gate.register.members() {
                    if node == NodeId::HEAD || identity == 0 {
                        continue;
                    }
                    if let Err(error) = contents.standing(identity, today()) {
                        gate.push(Arrived::Unwanted { node, reason: error.to_string() });
                    }
                }
            }
            Err(error) => {
                if readable {
                    eprintln!("bireme: nobody is expelled as long as the book of tokens cannot be used: {error}");
                }
                readable = false;
            }
        }
    }
}

/// Lets a rotation go on, and reads what the book has then.
fn look(book: &TokenBook, gate: &Gate) -> Result<Contents, TokenError> {
    let members = gate.register.epochs().into_iter().filter(|(node, _)| *node != NodeId::HEAD);
    let looked = book.look([(NodeId::HEAD, gate.keys.own())].into_iter().chain(members).collect(), today())?;
    gate.keys.follow(looked.epoch);
    for node in looked.expelled {
        gate.push(Arrived::Unwanted { node, reason: TokenError::MemberOutdated.to_string() });
    }
    book.read_now()
}
