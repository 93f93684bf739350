//! Stages and flows: a node's part in reduces and in the calls of groups, as planned by `core` (`core::flow`).
//!
//! The node's thread decides nothing here and never waits: it asks the store for room, finds the inputs, and hands each
//! incoming stream to a thread. What a stage offers is found by the threads that serve other nodes ([`Registry`]); a byte can
//! be sent on as soon as the intakes that a flow follows have dealt with what it is made of (`progress`). So arithmetic,
//! sending and receiving of one stage go on at the same time, and nothing is allocated per block.
//!
//! A stage that fails ends its flows with the reason, so that it reaches every stage downstream; who asks later is told too.
//!
//! In each pass of the node: `objects.progress()`, then [`Stages::progress`].

mod flow;
mod intake;
mod progress;
mod registry;
mod running;
mod starting;
mod taker;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::flow::{StageId, StageSpec};
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::time::Tick;
use bireme_core::value::Location;
use bireme_net::Doorbell;
use bireme_net::bulk::{Break, BulkOptions, Finished, Job, Pool, PoolFull, ReceiveError, Sink};
use bireme_net::wire::Wire;
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use super::objects::Objects;
use super::pace::Measured;
use super::transfers::{Arriving, BulkKey};
use crate::clock;
use crate::objects::from_store;
use intake::{Intake, blame, peer};
use progress::{News, Progress};
use running::Running;
use starting::Starting;

pub(super) use registry::{Registry, Wanted};
pub(crate) use taker::{differ, header_of};

/// Stages of a node at a time; more are refused.
const STAGES_MAX: usize = 4096;
/// Streams from other nodes at a time, each with a thread; a stage that needs more fails.
const INTAKES_MAX: usize = 256;
/// A stream that breaks so often without a new byte fails its stage.
const TRIES_MAX: u32 = 3;
/// What nobody takes is kept this much longer than the stage's patience.
const LINGER_US: u64 = 60_000_000;

/// What the node is told about its stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StageEvent {
    /// Its outputs have their place and grow.
    Placed {
        /// Which.
        id: StageId,
        /// Where, in the order of its areas.
        at: Vec<Location>,
    },
    /// Its outputs are complete; or, without any, its flows were taken.
    Done {
        /// Which.
        id: StageId,
        /// Where, in the order of its areas.
        at: Vec<Location>,
    },
    /// There will be no output.
    Failed {
        /// Which.
        id: StageId,
        /// Why.
        reason: String,
        /// The node whose stream broke, if that is why.
        peer: Option<NodeId>,
    },
}

/// How far a stage is.
enum Phase {
    /// It waits for room or inputs.
    Starting(Box<Starting>),
    Running(Arc<Running>),
}

struct Stage {
    phase: Phase,
    progress: Arc<Progress>,
    /// Its end was told.
    told: bool,
    /// When something last happened.
    since: Tick,
}

type Ends = Arc<Mutex<VecDeque<Finished<NodeId, Intake>>>>;

/// The stages of a node.
pub(super) struct Stages {
    node: NodeId,
    client: StoreClient,
    registry: Arc<Registry>,
    arriving: Arriving,
    news: Arc<News>,
    pool: Pool<NodeId, Intake>,
    ends: Ends,
    /// Streams within this node that have a thread.
    locals: Arc<AtomicUsize>,
    stages: BTreeMap<StageId, Stage>,
    /// What was asked of the store: for which stage, and which of its areas (first) or inputs.
    asked: BTreeMap<u64, (StageId, bool, usize)>,
    next_number: u64,
    events: Vec<StageEvent>,
    measured: Vec<Measured>,
}

/// What stages share with transfers: what serving threads find.
#[derive(Clone, Default)]
pub(super) struct Offered {
    pub(super) registry: Arc<Registry>,
    pub(super) arriving: Arriving,
}

impl Stages {
    /// No stages yet. `dial` opens a bulk connection to a node; it runs on threads of the pool and may wait.
    pub(super) fn new(
        node: NodeId,
        client: StoreClient,
        doorbell: &Doorbell,
        offered: Offered,
        options: BulkOptions,
        dial: impl Fn(NodeId) -> Result<Box<dyn Wire>, String> + Send + Sync + 'static,
    ) -> Self {
        let ends = Ends::default();
        let (told, bell) = (Arc::clone(&ends), doorbell.clone());
        let spawn = |name: &str, body| {
            crate::thread::spawn(name, body).map(|_| ()).map_err(|error: crate::error::Error| error.to_string())
        };
        let done = move |finished| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push_back(finished);
            bell.ring_self();
        };
        // A piece of a stream is not of one place, as a block with a checksum would have to be.
        let options = BulkOptions { checksum: false, ..options };
        Self {
            node,
            client,
            registry: offered.registry,
            arriving: offered.arriving,
            news: Arc::new(News::new(doorbell.clone())),
            pool: Pool::new(options, INTAKES_MAX, spawn, move |peer| dial(*peer), done),
            ends,
            locals: Arc::default(),
            stages: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_number: super::objects::STAGE_NUMBERS,
            events: Vec::new(),
            measured: Vec::new(),
        }
    }

    /// For a node without others: its stages only meet one another.
    pub(super) fn alone(
        node: NodeId,
        objects: &mut Objects,
        (arena, table): (Arc<Arena>, Arc<Table>),
        doorbell: &Doorbell,
    ) -> Self {
        objects.admit(ProcessId::of_node(node));
        let slot = ProcessSlot::new(ProcessId::of_node(node).slot).expect("the node has the first slot");
        let client = StoreClient::new(arena, table, slot);
        let dial = |node: NodeId| Err(format!("{node} cannot be reached: this node is alone"));
        Self::new(node, client, doorbell, Offered::default(), BulkOptions::default(), dial)
    }

    /// Starts a stage. What comes of it is told by [`Stages::progress`].
    pub(super) fn start(&mut self, objects: &mut Objects, spec: StageSpec) {
        let id = spec.id;
        let full = || format!("{STAGES_MAX} stages run already, which is the limit: call again when some have ended");
        let fits = if self.stages.len() < STAGES_MAX { spec.check() } else { Err(full()) };
        let (intakes, inputs, flows) = (spec.intakes.len(), spec.inputs.len(), spec.flows.len());
        let progress = Arc::new(Progress::new(id, intakes, inputs, flows, Arc::clone(&self.news)));
        let begun = fits.and_then(|()| {
            let begun = self.registry.begin(id, spec.terms.clone(), Arc::clone(&progress));
            if begun {
                Ok(())
            } else {
                Err(format!("{id} runs already on this node: a member takes part once in a call"))
            }
        });
        if let Err(reason) = begun {
            self.events.push(StageEvent::Failed { id, reason, peer: None });
            progress.tell();
            return;
        }
        let starting = Starting::new(spec);
        let stage = Stage { phase: Phase::Starting(Box::new(starting)), progress, told: false, since: clock::now() };
        self.stages.insert(id, stage);
        self.gather(objects, id);
        self.launch_if_ready(objects, id);
    }

    /// The process that runs a stage has written more of its inputs.
    pub(super) fn grow(&self, id: StageId) {
        // One that has not begun looks at them when it does.
        if let Some(Stage { phase: Phase::Running(running), .. }) = self.stages.get(&id) {
            running.look_at_inputs();
        }
    }

    /// Nobody wants a stage any more: it and its flows end, and nothing is told of it.
    pub(super) fn end(&mut self, objects: &mut Objects, id: StageId, reason: &str) {
        match self.stages.get(&id) {
            Some(stage) => {
                stage.progress.end(reason, None);
                self.drop_stage(objects, id, reason);
            }
            // It has not come yet, or is over: who asks for it is told in any case.
            None => self.registry.close(id, reason),
        }
    }

    /// A node is dead: what should have come from it fails.
    pub(super) fn node_died(&mut self, node: NodeId) {
        self.pool.forget(&node);
        for stage in self.stages.values() {
            let Phase::Running(running) = &stage.phase else { continue };
            for intake in 0..running.spec.intakes.len() {
                let open = running.progress.marks().done[intake] < running.stream_len(intake);
                if open && peer(running, intake, self.node).is_some_and(|(from, _)| from == node) {
                    let reason = blame(running, intake, &format!("{node} is dead"));
                    running.progress.end(&reason, Some(node));
                }
            }
        }
    }

    /// Ends every stage and waits for the threads.
    pub(super) fn stop(&mut self) {
        for stage in self.stages.values() {
            stage.progress.end("the node stops", None);
        }
        self.pool.stop();
    }

    /// Takes in what has happened since the last pass, and says what the node has to know.
    pub(super) fn progress(&mut self, objects: &mut Objects) -> Vec<StageEvent> {
        self.take_answers(objects);
        let ends = std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner));
        for finished in ends {
            self.finished(finished);
        }
        for id in self.news.take() {
            self.review(objects, id);
        }
        self.expire(objects);
        std::mem::take(&mut self.events)
    }

    /// How fast the streams were of stages that are done since the last time.
    pub(super) fn take_measured(&mut self) -> Vec<Measured> {
        std::mem::take(&mut self.measured)
    }

    /// Hands a stream to a thread.
    fn pull(&mut self, sink: Intake) {
        let (running, intake) = (Arc::clone(&sink.taker.running), sink.taker.intake);
        let Some((peer, key)) = peer(&running, intake, self.node) else { return };
        let patience_ms = u32::try_from(running.spec.patience_us / 1000).unwrap_or(u32::MAX);
        let key = BulkKey::Flow { key, digest: running.spec.terms.digest, patience_ms }.encode();
        let cancel = Arc::clone(&running.progress.cancel);
        if let Err(PoolFull(_)) = self.pool.start(Job { peer, key, sink, cancel }) {
            let why = format!("{INTAKES_MAX} streams come in already, which is the limit");
            running.progress.end(&blame(&running, intake, &why), None);
        }
    }

    /// A stream has ended, well or not.
    fn finished(&mut self, finished: Finished<NodeId, Intake>) {
        let Finished { peer: from, mut sink, result } = finished;
        let (running, intake) = (Arc::clone(&sink.taker.running), sink.taker.intake);
        let reason = match result {
            Ok(()) => return,
            // As the sender says it: it may have come a long way.
            Err(ReceiveError::Ended { reason, .. }) => return running.progress.end(&reason, None),
            Err(ReceiveError::Gone { reason }) => return running.progress.end(&blame(&running, intake, &reason), None),
            Err(ReceiveError::Broken { why: Break::Stopped, .. }) => {
                return running.progress.end("it was told to stop", None);
            }
            Err(ReceiveError::Broken { why: why @ (Break::NoPlace(_) | Break::Nonsense(_)), .. }) => why.to_string(),
            Err(ReceiveError::Broken { why, .. }) => {
                let watermark = sink.watermark();
                sink.tries = if watermark > sink.tries.1 { (1, watermark) } else { (sink.tries.0 + 1, watermark) };
                if sink.tries.0 < TRIES_MAX {
                    return self.pull(sink);
                }
                why.to_string()
            }
        };
        running.progress.end(&blame(&running, intake, &reason), Some(from));
    }

    /// Looks at a stage of which there is news.
    fn review(&mut self, objects: &mut Objects, id: StageId) {
        let Some(stage) = self.stages.get_mut(&id) else { return };
        stage.since = clock::now();
        let ended = stage.progress.marks().ended.clone();
        if let Some(ended) = ended {
            return self.fail(objects, id, ended.reason, ended.peer);
        }
        let Phase::Running(running) = &stage.phase else { return };
        let running = Arc::clone(running);
        if !running.is_filled() || running.spec.until_ended {
            return;
        }
        let outputs = (0..running.areas.len()).filter(|area| running.is_output(*area)).count();
        let taken = running.is_taken();
        let tell = !stage.told && (taken || outputs > 0 && !running.spec.await_flows);
        if tell {
            stage.told = true;
            self.measured.extend(running.pace.lock().unwrap_or_else(PoisonError::into_inner).measured());
            match self.seal(&running) {
                Ok(at) => self.events.push(StageEvent::Done { id, at }),
                Err(reason) => return self.fail(objects, id, reason, None),
            }
        }
        if taken {
            self.drop_stage(objects, id, &format!("{id} is over: everything that it offered was taken"));
        }
    }

    /// Makes the outputs complete.
    fn seal(&self, running: &Running) -> Result<Vec<Location>, String> {
        let mut sealed = Vec::new();
        for (index, place) in running.areas.iter().enumerate() {
            let Some(growth) = &place.growth else { continue };
            debug_assert!(running.is_output(index));
            place.area.publish(place.area.len());
            let result = place.area.seal().map_err(|error| error.to_string());
            growth.grown();
            let at = from_store(self.node, result?.0);
            self.lock_arriving().remove(&(at.entry, at.generation));
            sealed.push(at);
        }
        Ok(sealed)
    }

    fn fail(&mut self, objects: &mut Objects, id: StageId, reason: String, peer: Option<NodeId>) {
        let told = self.stages.get(&id).is_some_and(|stage| stage.told);
        self.drop_stage(objects, id, &reason);
        if !told {
            self.events.push(StageEvent::Failed { id, reason, peer });
        }
    }

    /// Forgets a stage. Outputs that are not sealed are given up, and room that was lent goes back.
    fn drop_stage(&mut self, objects: &mut Objects, id: StageId, reason: &str) {
        let Some(stage) = self.stages.remove(&id) else { return };
        self.registry.close(id, reason);
        match stage.phase {
            Phase::Starting(starting) => {
                for place in starting.into_places() {
                    objects.abort(from_store(self.node, place.area.location().0));
                }
            }
            Phase::Running(running) => {
                for (index, place) in running.areas.iter().enumerate() {
                    let at = from_store(self.node, place.area.location().0);
                    let unfinished = self.lock_arriving().remove(&(at.entry, at.generation)).is_some();
                    if let Some(growth) = place.growth.as_ref().filter(|_| unfinished) {
                        growth.end(reason);
                    }
                    if unfinished || !running.is_output(index) {
                        objects.abort(at);
                    }
                }
            }
        }
    }

    /// Ends what nobody takes.
    fn expire(&mut self, objects: &mut Objects) {
        let now = clock::now();
        let late = |(id, stage): (&StageId, &Stage)| {
            let Phase::Running(running) = &stage.phase else { return None };
            let idle = running.serving.load(Ordering::Relaxed) == 0 && now.since_us(stage.since) > LINGER_US;
            let late = idle && now.since_us(stage.since) > LINGER_US.saturating_add(running.spec.patience_us);
            (late && running.is_filled()).then_some(*id)
        };
        let late: Vec<StageId> = self.stages.iter().filter_map(late).collect();
        for id in late {
            self.fail(objects, id, format!("{id} has waited too long for others to take what it offers"), None);
        }
    }

    fn lock_arriving(&self) -> std::sync::MutexGuard<'_, super::transfers::ArrivingMap> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
