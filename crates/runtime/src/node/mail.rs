//! What other threads bring to the node's own: reports of keepers, drivers that come and go.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_net::Doorbell;

use super::keepers::Kept;
use super::status::StatusWord;
use crate::attach::door::Knock;
use crate::keeper::{Keeper, Report};

/// Something for the node's thread.
pub(crate) enum Word {
    /// A keeper's word of a worker.
    Report(Report),
    /// The keeper of a job is gone, and its workers with it.
    KeeperLost {
        /// Whose.
        job: JobId,
        /// How it ended.
        reason: String,
    },
    /// The program of a job of ours, for another node.
    ProgramRead {
        /// Which.
        to: NodeId,
        /// Whose.
        job: JobId,
        /// The program, packed.
        parcel: Vec<u8>,
    },
    /// A piece of the executable of a job of ours, for another node.
    PieceRead {
        /// Which.
        to: NodeId,
        /// Whose.
        job: JobId,
        /// Where it begins.
        from: u64,
        /// Empty when there is none.
        bytes: Vec<u8>,
    },
    /// The thread that makes the program of a job ready needs a piece of its executable.
    PieceWanted {
        /// Whose.
        job: JobId,
        /// Where it begins.
        from: u64,
    },
    /// The program of a job of another node is ready here, with a keeper, or cannot be.
    ProgramReady {
        /// Whose.
        job: JobId,
        /// The keeper, or why there is none.
        made: Box<Result<(Keeper, Kept), String>>,
    },
    /// Somebody wants to know what the cluster looks like.
    StatusAsked(Sender<StatusWord>),
    /// A driver wants to attach.
    Knocked(Box<Knock>),
    /// A node of the cluster is to be drained.
    Drain {
        /// Which.
        node: NodeId,
        /// It leaves after this time in any case.
        grace_us: u64,
        /// Where the controller's answer goes.
        reply: Sender<Result<(), String>>,
    },
    /// A node of the cluster is to be expelled.
    Expel {
        /// Which.
        node: NodeId,
        /// Whether it was, and why not.
        reply: Sender<Result<(), String>>,
    },
    /// A driver has detached or is gone.
    DriverLeft {
        /// Which.
        process: ProcessId,
        /// How, for people.
        how: String,
    },
}

/// The way to the node's thread.
#[derive(Clone)]
pub(crate) struct Mail {
    words: Arc<Mutex<VecDeque<Word>>>,
    doorbell: Doorbell,
}

impl Mail {
    pub(super) fn new(doorbell: Doorbell) -> Self {
        Self { words: Arc::default(), doorbell }
    }

    /// Brings something and wakes the node.
    pub(crate) fn put(&self, word: Word) {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).push_back(word);
        self.doorbell.ring_self();
    }

    /// All that came, in order.
    pub(super) fn take(&self) -> VecDeque<Word> {
        std::mem::take(&mut *self.words.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
