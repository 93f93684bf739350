//! What the stages of a node offer, for threads that serve other nodes' requests.
//!
//! Names come before things: a request for a stage that is not here yet waits until it is, or until the patience of who asks is
//! at its end. A stage that is over leaves its reason for a while, so that who comes late is told at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bireme_core::flow::{FlowKey, StageId, Terms};
use bireme_net::bulk::Source;

use super::flow::FlowSource;
use super::progress::Progress;
use super::running::Running;

/// Stages that are over and whose reason is kept; the oldest is forgotten first.
pub(super) const REASONS_KEPT_MAX: usize = 4096;
/// How often who waits says that it does.
const WAITING_EVERY: Duration = Duration::from_secs(1);

/// A stage that is here.
struct Offer {
    terms: Terms,
    progress: Arc<Progress>,
    /// None while it waits for its memory.
    running: Option<Arc<Running>>,
}

#[derive(Default)]
struct State {
    offers: BTreeMap<StageId, Offer>,
    reasons: BTreeMap<StageId, String>,
    order: VecDeque<StageId>,
}

/// What the stages of a node offer.
#[derive(Default)]
pub(in crate::node) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
}

/// What a request for a flow says.
pub(in crate::node) struct Wanted {
    pub(in crate::node) key: FlowKey,
    /// What the receiver takes the operation to be.
    pub(in crate::node) digest: u64,
    pub(in crate::node) patience: Duration,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between the statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stage begins. False when there is one of that name.
    pub(super) fn begin(&self, id: StageId, terms: Terms, progress: Arc<Progress>) -> bool {
        let mut state = self.lock();
        if state.offers.contains_key(&id) {
            return false;
        }
        state.reasons.remove(&id);
        state.order.retain(|kept| *kept != id);
        state.offers.insert(id, Offer { terms, progress, running: None });
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Its memory is there.
    pub(super) fn open(&self, id: StageId, running: &Arc<Running>) {
        if let Some(offer) = self.lock().offers.get_mut(&id) {
            offer.running = Some(Arc::clone(running));
        }
        self.changed.notify_all();
    }

    /// It is over; who asks for it later is told why.
    pub(super) fn close(&self, id: StageId, reason: &str) {
        let mut state = self.lock();
        state.offers.remove(&id);
        if state.reasons.insert(id, reason.to_owned()).is_none() {
            state.order.push_back(id);
        }
        if state.order.len() > REASONS_KEPT_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.reasons.remove(&oldest);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Finds what is asked for, or says why it is not there. Calls `waiting` about once a second; its error ends the search.
    pub(in crate::node) fn find(
        &self,
        wanted: &Wanted,
        waiting: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Box<dyn Source>, String> {
        let deadline = Instant::now() + wanted.patience;
        loop {
            let state = self.lock();
            if let Some(found) = look(&state, wanted) {
                drop(state);
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let begun = state.offers.contains_key(&wanted.key.sender());
                let seconds = wanted.patience.as_secs_f32();
                let sender = wanted.key.sender();
                return Err(match begun {
                    true => format!("{sender} has waited {seconds:.1} s for room or for its inputs"),
                    false => format!("{sender} has not begun within {seconds:.1} s: its member is missing or late"),
                });
            }
            let slice = left.min(WAITING_EVERY);
            let (back, slept) = self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner);
            drop(back);
            if slept.timed_out() {
                waiting()?;
            }
        }
    }
}

/// What there is to say about a request now.
fn look(state: &State, wanted: &Wanted) -> Option<Result<Box<dyn Source>, String>> {
    let sender = wanted.key.sender();
    let Some(offer) = state.offers.get(&sender) else {
        return state.reasons.get(&sender).map(|reason| Err(reason.clone()));
    };
    if offer.terms.digest != wanted.digest {
        // Both sides fail: here with what little is known of the other, there with the words of both.
        let to = wanted.key.to;
        let here = format!("{}, which slot {to} sees otherwise: all members have to call the same", offer.terms.words);
        offer.progress.end(&here, None);
        return Some(Err(format!("the other side is in {}", offer.terms.words)));
    }
    let running = offer.running.as_ref()?;
    let number = running.spec.flows.iter().position(|flow| flow.to == wanted.key.to);
    let found = number.ok_or_else(|| format!("{sender} has nothing for slot {}", wanted.key.to));
    Some(found.map(|number| Box::new(FlowSource::new(running, number)) as Box<dyn Source>))
}
