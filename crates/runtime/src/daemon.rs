//! The node as a process of its own: what `bireme start` runs after it has made a folder and a log for it.
//!
//! It has no driver at first. Programs attach over the socket [`attach::SOCKET`](crate::attach::SOCKET) in its folder and
//! are its drivers until they leave; their executables and the scratch folders of their workers are in that folder too.
//! Called by the command line alone. [`run`] returns when the node has been asked to end, by a signal ([`stop_signals`]) or
//! by [`AdminRequest::Stop`], was drained, or cannot go on. One that loses its cluster joins it again, as another node
//! (`life`). The folder is the caller's: it removes it afterwards.

#[allow(unsafe_code)]
pub(crate) mod allocator;
mod life;
#[allow(unsafe_code)]
mod signals;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bireme_core::id::NodeId;
use bireme_core::node::NodeConfig;
use bireme_net::Fabric;
use bireme_store::{Arena, Table};

use crate::admin::compose::compose;
use crate::admin::{AdminReply, AdminRequest, AdminServer, ClusterStatus, Security};
use crate::attach::program::Programs;
use crate::clock::seconds_since_1970;
use crate::cluster::{self, ClusterChoice, ClusterStart};
use crate::error::Error;
use crate::local::{NodeFile, StateDirectory};
use crate::node::{Ending, Mail, NodeStart, NodeThread, OnEnding, Word, status};
use crate::settings::Settings;
use crate::tokens::{Tokens, rotation_text};
use life::{Life, Over};
pub use signals::stop_signals;

/// How long the head may take to say whether a node can be drained: less than a command waits.
const DRAIN_ANSWER_WAIT: Duration = Duration::from_millis(1_500);

/// What a node is started with.
pub struct DaemonOptions {
    /// What the user chose.
    pub settings: Settings,
    /// Where keys and tokens of clusters are.
    pub state: StateDirectory,
    /// The node's own folder. Its socket goes there, as [`NodeFile::SOCKET`].
    pub directory: PathBuf,
    /// Called when the node can be used, and again when it has joined its cluster again. An error ends the node.
    pub ready: Box<dyn FnMut(Ready) -> Result<(), Error> + Send>,
    /// Readable when the node is to end.
    pub stop: OwnedFd,
}

/// What a node knows of itself when it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number that the cluster gave it.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: String,
    /// Where it listens for other nodes.
    pub address: String,
    /// Where the node listens that has the controller; itself for a head.
    pub head: String,
    /// A file with a token for others to join with, if they need one.
    pub token_file: Option<PathBuf>,
}

/// Runs a node in this process until it is asked to end, is drained, or cannot go on.
pub fn run(options: DaemonOptions) -> Result<(), Error> {
    allocator::keep_little();
    let DaemonOptions { settings, state, directory, mut ready, stop } = options;
    let failed = |what| move |error: std::io::Error| Error::System { what, reason: error.to_string() };
    // Before anybody hears of this node.
    settings.config().spill_options()?;
    let choice = ClusterChoice::of_node(&settings, &state)?;
    let mut place = cluster::prepare(&choice, &settings.config().total()?, life::timing(&settings))?;
    let socket = UnixListener::bind(directory.join(NodeFile::SOCKET)).map_err(failed("listening for commands"))?;
    let programs = Programs::new(&directory, &settings.python);
    let asked = Arc::new(life::event()?);
    let present: Arc<Mutex<Option<Present>>> = Arc::default();
    let (asked_there, there) = (Arc::clone(&asked), Arc::clone(&present));
    let server = AdminServer::start(socket, move |request| answer(&request, &there, &asked_there))?;
    loop {
        let life = Life::start(&settings, &choice, place, &directory, &programs)?;
        let (mail, told, security) = (life.mail(), life.told.clone(), choice.security.status());
        let is_head = told.node == NodeId::HEAD && security.mutual_tls;
        let keys = if is_head { Some(state.cluster(&told.cluster)?) } else { None };
        *present.lock().unwrap_or_else(PoisonError::into_inner) = Some(Present { mail, told, security, keys });
        let said = ready(life.told.clone());
        let over = if said.is_ok() { life.wait([&stop, &asked]) } else { Over::Asked };
        let node = life.told.node;
        *present.lock().unwrap_or_else(PoisonError::into_inner) = None;
        life.stop();
        match over {
            Over::Asked => {
                drop(server);
                return said;
            }
            Over::Ended(Ending::Drained) => {
                eprintln!("bireme: {node} was drained and has left its cluster");
                drop(server);
                return Ok(());
            }
            Over::Ended(Ending::Expelled(_)) => match life::rejoin(&settings, &choice, [&stop, &asked])? {
                Some(again) => place = again,
                None => return Ok(()),
            },
        }
        eprintln!("bireme: what was {node} is {} now", place.node);
    }
}

/// What commands need of the node as long as it is in its cluster.
struct Present {
    mail: Mail,
    told: Ready,
    security: Security,
    /// With a head that has an authority: the cluster's folder.
    keys: Option<PathBuf>,
}

/// Answers a command.
fn answer(request: &AdminRequest, present: &Mutex<Option<Present>>, asked: &OwnedFd) -> AdminReply {
    let present = present.lock().unwrap_or_else(PoisonError::into_inner);
    match (request, present.as_ref()) {
        (AdminRequest::Stop, _) => match rustix::io::write(asked, &1_u64.to_ne_bytes()) {
            Ok(_) => AdminReply::Accepted,
            Err(error) => AdminReply::Refused(error.to_string()),
        },
        (_, None) => AdminReply::Refused("the node has lost its cluster and joins it again; try later".to_owned()),
        (AdminRequest::Status, Some(Present { mail, told, security, keys })) => {
            let (mail, told, mut security, keys) = (mail.clone(), told.clone(), security.clone(), keys.clone());
            drop(present);
            security.rotation = keys.map_or(String::new(), |keys| rotation(&keys));
            answer_status(&mail, &told, security)
        }
        (AdminRequest::Drain { node, deadline_ms }, Some(Present { mail, .. })) => {
            let mail = mail.clone();
            drop(present);
            drain(&mail, *node, deadline_ms.saturating_mul(1_000))
        }
        (AdminRequest::Expel { node }, Some(Present { mail, .. })) => {
            let mail = mail.clone();
            drop(present);
            expel(&mail, *node)
        }
    }
}

/// How far the authority is replaced; empty when it is not.
fn rotation(keys: &Path) -> String {
    match Tokens::of(keys).and_then(|tokens| tokens.rotation()) {
        Ok(Some(rotation)) => rotation_text(&rotation, seconds_since_1970()),
        Ok(None) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Puts a node out.
fn expel(mail: &Mail, node: NodeId) -> AdminReply {
    let (reply, answer) = channel();
    mail.put(Word::Expel { node, reply });
    match answer.recv_timeout(DRAIN_ANSWER_WAIT) {
        Ok(Ok(())) => AdminReply::Accepted,
        Ok(Err(reason)) => AdminReply::Refused(reason),
        Err(_) => AdminReply::Refused(format!("the node did not answer within {DRAIN_ANSWER_WAIT:?}; try again")),
    }
}

/// Has the controller drain a node.
fn drain(mail: &Mail, node: NodeId, grace_us: u64) -> AdminReply {
    let (reply, answer) = channel();
    mail.put(Word::Drain { node, grace_us, reply });
    match answer.recv_timeout(DRAIN_ANSWER_WAIT) {
        Ok(Ok(())) => AdminReply::Accepted,
        Ok(Err(reason)) => AdminReply::Refused(reason),
        Err(_) => AdminReply::Refused(format!("the head did not answer within {DRAIN_ANSWER_WAIT:?}; try again")),
    }
}

/// The node's thread, with no driver yet.
fn start_node(
    settings: &Settings,
    place: ClusterStart,
    programs: Arc<Programs>,
    on_ending: OnEnding,
) -> Result<NodeThread, Error> {
    let system = |what: &'static str, error: &dyn std::fmt::Display| Error::System { what, reason: error.to_string() };
    let config = settings.config();
    let fabric = Fabric::create().and_then(Fabric::with_new_bell).map_err(|e| system("making the fabric", &e))?;
    let spill = config.spill_options()?;
    let arena = Arena::create(config.arena_bytes()?).map_err(|e| system("making the arena", &e))?;
    let overflow = spill.make_overflow(arena.capacity()).map_err(|e| system("making the overflow file", &e))?;
    let arena = Arc::new(arena.with_overflow(overflow));
    let table = Arc::new(Table::create().map_err(|e| system("making the object table", &e))?);
    NodeThread::start(NodeStart {
        config: NodeConfig {
            id: place.node,
            job: None,
            driver_pid: 0,
            processes_max: config.processes_max()?,
            threads_per_process_max: config.threads_per_worker_max,
            idle_worker_us: config.idle_worker_ms.saturating_mul(1_000),
            memory: config.memory_thresholds()?,
            ..NodeConfig::for_machine(config.total()?)
        },
        spin: config.spin,
        memory_limit_bytes: config.memory_limit_bytes,
        fabric,
        arena,
        table,
        spill,
        embedded: None,
        cluster: Some(place),
        programs: Some(programs),
        on_ending,
    })
}

/// The cluster as this node knows it and the others tell.
fn answer_status(mail: &Mail, told: &Ready, security: Security) -> AdminReply {
    let gathered = match status::gather(mail) {
        Ok(gathered) => gathered,
        Err(reason) => return AdminReply::Refused(reason),
    };
    let mut status = ClusterStatus {
        cluster: told.cluster.clone(),
        asked: told.node,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        security,
        ..ClusterStatus::default()
    };
    compose(gathered, &mut status);
    AdminReply::Status(Box::new(status))
}
