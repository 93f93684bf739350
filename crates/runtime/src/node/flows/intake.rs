//! The incoming streams of a stage: from another node into a sink, or out of this node's own memory on a thread.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bireme_core::flow::{FlowKey, Origin, Slice};
use bireme_core::id::NodeId;
use bireme_net::bulk::{Sink, Source};
use bireme_store::AreaWrite;

use super::flow::FlowSource;
use super::registry::{Registry, Wanted};
use super::running::Running;
use super::taker::Taker;

/// What is read from the wire at a time when it has to be combined: it stays in the cache.
const SCRATCH_BYTES: usize = 256 << 10;
/// Streams within this node at a time, each with a thread.
pub(super) const LOCAL_STREAMS_MAX: usize = 256;

/// A stream from another node.
pub(super) struct Intake {
    pub(super) taker: Taker,
    /// For bytes that do not go straight to their place; made with the first that does not.
    scratch: Vec<u8>,
    /// The place of those that do.
    direct: Option<AreaWrite>,
    /// Tries that broke since the last byte came, and how many bytes that was.
    pub(super) tries: (u32, u64),
}

impl Intake {
    pub(super) fn new(running: &Arc<Running>, intake: usize) -> Self {
        let taker = Taker::new(Arc::clone(running), intake);
        Self { taker, scratch: Vec::new(), direct: None, tries: (0, 0) }
    }

    /// Tells the stage first: its reason is better than that of the connection.
    fn fail(&self, reason: String) -> io::Error {
        self.taker.running.progress.end(&reason, None);
        io::Error::other(reason)
    }
}

impl Sink for Intake {
    fn len(&self) -> u64 {
        self.taker.len()
    }

    fn watermark(&self) -> u64 {
        self.taker.received()
    }

    fn spare(&mut self, most: usize) -> io::Result<&mut [u8]> {
        // Given back before the next is asked for: they would overlap.
        self.direct = None;
        let step = self.taker.step().map_err(|reason| self.fail(reason))?;
        if self.taker.is_direct(&step) {
            let place = self.taker.place(&step, most as u64).map_err(|reason| self.fail(reason))?;
            return Ok(self.direct.insert(place).bytes_mut());
        }
        self.scratch.resize(SCRATCH_BYTES, 0);
        let most = most.min(SCRATCH_BYTES).min(step.left as usize);
        Ok(&mut self.scratch[..most])
    }

    fn advance(&mut self, len: u64) -> io::Result<()> {
        self.taker.running.pace.lock().unwrap_or_else(PoisonError::into_inner).came(len);
        if self.direct.take().is_some() {
            self.taker.placed(len);
            return Ok(());
        }
        let taken = self.taker.take(&self.scratch[..len as usize]);
        taken.map_err(|reason| self.fail(reason))
    }
}

/// Streams that do not leave the node and go together: one from another stage, or several out of this one's own memory.
pub(super) struct LocalStream {
    pub(super) running: Arc<Running>,
    pub(super) intakes: Range<usize>,
    pub(super) registry: Arc<Registry>,
    pub(super) count: Arc<AtomicUsize>,
}

impl LocalStream {
    /// Takes the stream in, on a thread of its own.
    pub(super) fn run(self) {
        if let Err(reason) = self.take_all() {
            self.running.progress.end(&reason, None);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Block by block, each of all streams in order: what they are combined in stays in the cache.
    fn take_all(&self) -> Result<(), String> {
        let mut streams = Vec::with_capacity(self.intakes.len());
        for intake in self.intakes.clone() {
            let taker = Taker::new(Arc::clone(&self.running), intake);
            let source = self.source(intake, taker.len())?;
            if source.len() != taker.len() {
                return Err(format!("a stream of {} bytes came for one of {}", source.len(), taker.len()));
            }
            streams.push((taker, source));
        }
        let longest = streams.iter().map(|(taker, _)| taker.len()).max().unwrap_or(0);
        let mut at = 0;
        while at < longest {
            let end = longest.min(at + SCRATCH_BYTES as u64);
            for (taker, source) in &mut streams {
                self.take_block(taker, &**source, at..end.min(source.len()))?;
            }
            at = end;
        }
        streams.iter().for_each(|(_, source)| source.taken());
        Ok(())
    }

    fn take_block(&self, taker: &mut Taker, source: &dyn Source, block: Range<u64>) -> Result<(), String> {
        let mut at = block.start;
        while at < block.end {
            let ready = source.wait_beyond(at, Duration::from_secs(1))?;
            if let Some(ended) = &self.running.progress.marks().ended {
                return Err(ended.reason.clone());
            }
            let end = ready.min(source.contiguous_until(at)).min(block.end);
            if end > at {
                let bytes = source.bytes(at..end);
                if bytes.len() as u64 != end - at {
                    return Err("a stream within this node has fewer bytes than it said".to_owned());
                }
                taker.take(bytes)?;
                at = end;
            }
        }
        Ok(())
    }

    fn source(&self, intake: usize, len: u64) -> Result<Box<dyn Source>, String> {
        let spec = &self.running.spec;
        match spec.intakes[intake].origin {
            Origin::Local { part, start } => {
                let slice = Slice { part, start, len };
                Ok(Box::new(FlowSource::local(&self.running, slice)))
            }
            Origin::Flow { key, .. } => {
                let wanted = wanted(&self.running, key);
                let waiting = &mut || match &self.running.progress.marks().ended {
                    Some(ended) => Err(ended.reason.clone()),
                    None => Ok(()),
                };
                self.registry.find(&wanted, waiting).map_err(|reason| blame(&self.running, intake, &reason))
            }
        }
    }
}

/// A request for a stream.
pub(super) fn wanted(running: &Running, key: FlowKey) -> Wanted {
    let patience = Duration::from_micros(running.spec.patience_us);
    Wanted { key, digest: running.spec.terms.digest, patience }
}

/// Why a stream did not come, with who should have sent it and what this side takes the operation to be.
pub(super) fn blame(running: &Running, intake: usize, reason: &str) -> String {
    let (spec, words) = (&running.spec.intakes[intake], &running.spec.terms.words);
    let who = match (&spec.origin, spec.who.is_empty()) {
        (_, false) => spec.who.clone(),
        (Origin::Flow { node, key }, true) => format!("slot {} on {node}", key.from),
        (Origin::Local { .. }, true) => "this node".to_owned(),
    };
    let this_side = if words.is_empty() { String::new() } else { format!(" (this side is in {words})") };
    format!("{who} sends nothing: {reason}{this_side}")
}

/// The other node of an intake; none when its stream stays here.
pub(super) fn peer(running: &Running, intake: usize, me: NodeId) -> Option<(NodeId, FlowKey)> {
    match running.spec.intakes[intake].origin {
        Origin::Flow { node, key } if node != me => Some((node, key)),
        _ => None,
    }
}
