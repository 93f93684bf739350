//! How far a stage is: a watch that its streams advance, and that those wait on who send what has come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bireme_core::flow::StageId;
use bireme_core::id::NodeId;
use bireme_net::Doorbell;

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
    marks: Mutex<Marks>,
    changed: Condvar,
    /// Ends the streams of the stage.
    pub(super) cancel: Arc<AtomicBool>,
    news: Arc<News>,
}

impl Progress {
    pub(super) fn new(id: StageId, intakes: usize, inputs: usize, flows: usize, news: Arc<News>) -> Self {
        let marks = Marks { done: vec![0; intakes], grown: vec![0; inputs], taken: vec![false; flows], ended: None };
        Self { id, marks: Mutex::new(marks), changed: Condvar::new(), cancel: Arc::default(), news }
    }

    pub(super) fn marks(&self) -> MutexGuard<'_, Marks> {
        // The marks are whole between the statements that change them.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the marks and wakes who waits for that.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Marks) -> R) -> R {
        let result = change(&mut self.marks());
        self.changed.notify_all();
        result
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
        let deadline = Instant::now() + patience;
        let mut marks = self.marks();
        loop {
            if let Some(ended) = &marks.ended {
                return Err(ended.reason.clone());
            }
            if let Some(found) = look(&marks) {
                return Ok(Some(found));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            marks = self.changed.wait_timeout(marks, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits as long as it takes, which ends at the latest with the stage.
    pub(super) fn wait_for(&self, mut look: impl FnMut(&Marks) -> bool) -> Result<(), String> {
        while self.wait(Duration::from_secs(60), |marks| look(marks).then_some(()))?.is_none() {}
        Ok(())
    }
}
