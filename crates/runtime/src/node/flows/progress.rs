//! How far a stage is: a watch that its streams advance, and that those wait on who send what has come.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bireme_core::flow::StageId;
use bireme_core::id::NodeId;
use bireme_net::Doorbell;

use crate::node::watched::Watched;

/// Stages that the node's thread has to look at.
pub(super) struct News {
    stages: Mutex<VecDeque<StageId>>,
    doorbell: Doorbell,
}

impl News {
    pub(super) fn new(doorbell: Doorbell) -> Self {
        Self { stages: Mutex::default(), doorbell }
    }

    pub(super) fn tell(&self, stage: StageId) {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner).push_back(stage);
        self.doorbell.ring_self();
    }

    pub(super) fn take(&self) -> VecDeque<StageId> {
        std::mem::take(&mut *self.stages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a stage is over before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) reason: String,
    /// The node whose stream broke, if that is why.
    pub(super) peer: Option<NodeId>,
}

/// The marks of a stage.
#[derive(Debug)]
pub(super) struct Marks {
    /// Bytes that each intake has dealt with.
    pub(super) done: Vec<u64>,
    /// Bytes that are there of each input.
    pub(super) grown: Vec<u64>,
    /// Flows that were taken to their last byte.
    pub(super) taken: Vec<bool>,
    pub(super) ended: Option<Ended>,
}

/// How far a stage is.
pub(super) struct Progress {
    id: StageId,
    marks: Watched<Marks>,
    /// Ends the streams of the stage.
    pub(super) cancel: Arc<AtomicBool>,
    news: Arc<News>,
}

impl Progress {
    pub(super) fn new(id: StageId, intakes: usize, inputs: usize, flows: usize, news: Arc<News>) -> Self {
        let marks = Marks { done: vec![0; intakes], grown: vec![0; inputs], taken: vec![false; flows], ended: None };
        Self { id, marks: Watched::new(marks), cancel: Arc::default(), news }
    }

    pub(super) fn marks(&self) -> impl Deref<Target = Marks> + '_ {
        self.marks.now()
    }

    /// Changes the marks and wakes who waits for that.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Marks) -> R) -> R {
        self.marks.change(change)
    }

    /// The stage is over before its end. The first reason counts.
    pub(super) fn end(&self, reason: &str, peer: Option<NodeId>) {
        self.change(|marks| marks.ended.get_or_insert_with(|| Ended { reason: reason.to_owned(), peer }).peer);
        self.cancel.store(true, Ordering::Relaxed);
        self.tell();
    }

    /// Lets the node's thread look at the stage.
    pub(super) fn tell(&self) {
        self.news.tell(self.id);
    }

    /// Waits until the marks have something, for at most `patience`; an error when the stage is over.
    pub(super) fn wait<R>(
        &self,
        patience: Duration,
        mut look: impl FnMut(&Marks) -> Option<R>,
    ) -> Result<Option<R>, String> {
        let found = self.marks.wait(patience, |marks| match &marks.ended {
            Some(ended) => Some(Err(ended.reason.clone())),
            None => look(marks).map(Ok),
        });
        found.transpose()
    }

    /// Waits as long as it takes, which ends at the latest with the stage.
    pub(super) fn wait_for(&self, mut look: impl FnMut(&Marks) -> bool) -> Result<(), String> {
        while self.wait(Duration::from_secs(60), |marks| look(marks).then_some(()))?.is_none() {}
        Ok(())
    }
}
