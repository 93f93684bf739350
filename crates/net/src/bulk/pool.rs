//! The receiving threads of a node and the connections that it keeps for the next request.
//!
//! Threads start when there is work and end when there has been none for a while; a connection is given back after each
//! object and taken up again by the next transfer from the same peer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::line::{Break, Line};
use super::receive::{ReceiveError, receive};
use super::{BulkOptions, Sink};
use crate::wire::Wire;

/// How long a stop waits for the threads to see it.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Starts a named thread.
pub type Spawn = fn(&str, Box<dyn FnOnce() + Send>) -> Result<(), String>;
type Dial<P> = dyn Fn(&P) -> Result<Box<dyn Wire>, String> + Send + Sync;
type Done<P, S> = dyn Fn(Finished<P, S>) + Send + Sync;

/// One transfer to be carried out.
#[derive(Debug)]
pub struct Job<P, S> {
    /// Who has the object.
    pub peer: P,
    /// Its name there.
    pub key: Vec<u8>,
    /// Where it goes.
    pub sink: S,
    /// Ends the transfer when it becomes true.
    pub cancel: Arc<AtomicBool>,
}

/// A transfer that has ended, well or not.
#[derive(Debug)]
pub struct Finished<P, S> {
    /// Who was asked.
    pub peer: P,
    /// The object's place, with what came of it.
    pub sink: S,
    /// How it went.
    pub result: Result<(), ReceiveError>,
}

/// As many transfers as there may be threads are under way already; here is the one that was too much.
#[derive(Debug)]
pub struct PoolFull<P, S>(pub Job<P, S>);

/// The receiving threads. A clone is the same pool.
pub struct Pool<P, S> {
    shared: Arc<Shared<P, S>>,
}

impl<P, S> Clone for Pool<P, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<P, S> {
    options: BulkOptions,
    threads_max: usize,
    spawn: Spawn,
    dial: Box<Dial<P>>,
    done: Box<Done<P, S>>,
    state: Mutex<State<P, S>>,
    changed: Condvar,
    stop: AtomicBool,
}

struct State<P, S> {
    jobs: VecDeque<Job<P, S>>,
    /// Transfers that were started and have not ended.
    in_hand: usize,
    threads: usize,
    sleeping: usize,
    kept: Vec<Kept<P>>,
}

/// A connection that waits for the next request.
struct Kept<P> {
    peer: P,
    line: Line,
    since: Instant,
}

impl<P, S> Pool<P, S>
where
    P: PartialEq + Clone + Send + 'static,
    S: Sink + 'static,
{
    /// A pool without threads yet. `dial` opens a connection on which bulk requests may be made; `done` is called on a
    /// thread of the pool.
    pub fn new(
        options: BulkOptions,
        threads_max: usize,
        spawn: Spawn,
        dial: impl Fn(&P) -> Result<Box<dyn Wire>, String> + Send + Sync + 'static,
        done: impl Fn(Finished<P, S>) + Send + Sync + 'static,
    ) -> Self {
        let state = State { jobs: VecDeque::new(), in_hand: 0, threads: 0, sleeping: 0, kept: Vec::new() };
        let shared = Shared {
            options,
            threads_max,
            spawn,
            dial: Box::new(dial),
            done: Box::new(done),
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts a transfer. `done` is called for it once, whatever happens.
    pub fn start(&self, job: Job<P, S>) -> Result<(), PoolFull<P, S>> {
        let mut state = self.shared.lock();
        if state.in_hand >= self.shared.threads_max {
            return Err(PoolFull(job));
        }
        state.in_hand += 1;
        state.jobs.push_back(job);
        if state.sleeping >= state.jobs.len() {
            drop(state);
            self.shared.changed.notify_all();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        if let Err(why) = (self.shared.spawn)("bireme-bulk", Box::new(move || shared.work())) {
            let mut state = self.shared.lock();
            state.threads -= 1;
            // Other threads will come to it; without any, nobody would.
            let orphan = if state.threads == 0 { state.jobs.pop_back() } else { None };
            drop(state);
            if let Some(job) = orphan {
                self.shared.finish(job, Err(Break::Failed(format!("no thread for a transfer: {why}"))));
            }
        }
        Ok(())
    }

    /// Closes what is kept for a peer, for example because it is dead.
    pub fn forget(&self, peer: &P) {
        self.shared.lock().kept.retain(|kept| kept.peer != *peer);
    }

    /// Ends all transfers as broken and all threads, and waits for them.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        let deadline = Instant::now() + STOP_WAIT;
        let mut state = self.shared.lock();
        state.kept.clear();
        while state.threads > 0 && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<P, S> Shared<P, S>
where
    P: PartialEq + Clone + Send + 'static,
    S: Sink + 'static,
{
    fn lock(&self) -> MutexGuard<'_, State<P, S>> {
        // The state is whole between the statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of the pool.
    fn work(&self) {
        while let Some(job) = self.next() {
            self.run(job);
        }
        self.lock().threads -= 1;
        self.changed.notify_all();
    }

    /// The next transfer; none when the thread should end.
    fn next(&self) -> Option<Job<P, S>> {
        // The server keeps its end a little longer, so that it is seldom closed just when it is taken up again.
        let keep = self.options.idle / 2;
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            state.sleeping += 1;
            let (back, slept) = self.changed.wait_timeout(state, keep).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.sleeping -= 1;
            state.kept.retain(|kept| kept.since.elapsed() < keep);
            // The last thread stays for the connections, to close them in time.
            if slept.timed_out() && state.jobs.is_empty() && (state.kept.is_empty() || state.sleeping > 0) {
                return None;
            }
        }
    }

    fn run(&self, mut job: Job<P, S>) {
        let kept = {
            let mut state = self.lock();
            let at = state.kept.iter().rposition(|kept| kept.peer == job.peer);
            at.map(|at| state.kept.swap_remove(at).line)
        };
        if let Some(line) = kept {
            let before = job.sink.watermark();
            match self.receive(&mut job, line) {
                // The peer had closed it meanwhile: that says nothing about the peer.
                Err(ReceiveError::Broken { watermark, why: Break::Closed { .. } | Break::Failed(_) })
                    if watermark == before => {}
                result => return self.tell(job, result),
            }
        }
        let dialled = (self.dial)(&job.peer).and_then(|wire| {
            Line::new(wire, self.options.clone()).map_err(|error| format!("the connection cannot be used: {error}"))
        });
        match dialled {
            Ok(line) => {
                let result = self.receive(&mut job, line);
                self.tell(job, result);
            }
            Err(why) => self.finish(job, Err(Break::Failed(why))),
        }
    }

    fn receive(&self, job: &mut Job<P, S>, mut line: Line) -> Result<(), ReceiveError> {
        let cancel = Arc::clone(&job.cancel);
        let stop = || self.stop.load(Ordering::Relaxed) || cancel.load(Ordering::Relaxed);
        let result = receive(&mut line, &job.key, &mut job.sink, &stop);
        if result.as_ref().map_or_else(ReceiveError::leaves_line_usable, |()| true) {
            let kept = Kept { peer: job.peer.clone(), line, since: Instant::now() };
            self.lock().kept.push(kept);
        }
        result
    }

    fn finish(&self, job: Job<P, S>, result: Result<(), Break>) {
        let watermark = job.sink.watermark();
        self.tell(job, result.map_err(|why| ReceiveError::Broken { watermark, why }));
    }

    fn tell(&self, job: Job<P, S>, result: Result<(), ReceiveError>) {
        self.lock().in_hand -= 1;
        (self.done)(Finished { peer: job.peer, sink: job.sink, result });
    }
}
