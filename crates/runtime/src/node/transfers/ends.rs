//! How a transfer goes on and ends: it gets room, runs, and is complete, kept for another try, or given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bireme_core::id::NodeId;
use bireme_core::time::Tick;
use bireme_core::value::Location;
use bireme_net::bulk::{Break, Finished, Job, PoolFull, ReceiveError, Sink};
use bireme_store::UnsealedLocation;

use super::place::{Arrival, Growth};
use super::serving::key_of;
use super::{Measured, Objects, Phase, Transfer, TransferError, TransferEvent, Transfers};
use crate::clock;
use crate::objects::to_store;

/// What came of a broken transfer is kept this long for another try.
const RESUME_WAIT_US: u64 = 30_000_000;

impl Transfers {
    /// Gives up what nobody has resumed in time, or before that when somebody waits for the room.
    pub(super) fn expire(&mut self, objects: &mut Objects) {
        let (now, short) = (clock::now(), objects.is_short_of_room());
        let late = |(number, transfer): (&u64, &Transfer)| match transfer.phase {
            Phase::Paused(_, until) if short || until <= now => Some(*number),
            _ => None,
        };
        let late: Vec<u64> = self.transfers.iter().filter_map(late).collect();
        for number in late {
            let reason = if short { "its room was needed" } else { "nobody fetched the rest in time" };
            self.give_up(objects, number, reason);
        }
    }

    pub(super) fn got_room(&mut self, objects: &mut Objects, number: u64, room: Result<Location, String>) {
        let Some(transfer) = self.transfers.get(&number) else { return };
        let (object, peer) = (transfer.object, transfer.source.node);
        let given_up = transfer.cancel.load(Ordering::Relaxed);
        let claimed = match room {
            Ok(at) if given_up => {
                objects.abort(at);
                let why = "the node is dead".to_owned();
                Err(TransferError::Interrupted { from: peer, watermark: 0, why })
            }
            _ if transfer.cancelled => Err(TransferError::Cancelled),
            Ok(at) => match self.client.writer(UnsealedLocation(to_store(at))) {
                Ok(writer) => Ok((at, writer)),
                Err(error) => {
                    objects.abort(at);
                    Err(TransferError::NoRoom(error.to_string()))
                }
            },
            Err(reason) => Err(TransferError::NoRoom(reason)),
        };
        match claimed {
            Ok((at, writer)) => {
                let growth = Arc::new(Growth::default());
                self.lock_arriving().insert((at.entry, at.generation), Arc::clone(&growth));
                self.events.push(TransferEvent::Started { object, at });
                self.run(objects, number, Arrival::new(number, at, writer, growth));
            }
            Err(error) => {
                self.turns.ended(&peer);
                self.fail(objects, number, error);
            }
        }
    }

    /// Hands a transfer that has its turn and room to a thread.
    pub(super) fn run(&mut self, objects: &mut Objects, number: u64, sink: Arrival) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        transfer.phase = Phase::Running;
        transfer.began = (clock::now(), sink.watermark());
        let (peer, key) = (transfer.source.node, key_of(transfer.object, transfer.source));
        let job = Job { peer, key, sink, cancel: Arc::clone(&transfer.cancel) };
        if let Err(PoolFull(job)) = self.pool.start(job) {
            let why = Break::Failed("every thread for transfers is taken".to_owned());
            let result = Err(ReceiveError::Broken { watermark: job.sink.watermark(), why });
            self.finished(objects, Finished { peer, sink: job.sink, result });
        }
    }

    pub(super) fn finished(&mut self, objects: &mut Objects, finished: Finished<NodeId, Arrival>) {
        let Finished { peer: from, sink, result } = finished;
        self.turns.ended(&from);
        let (number, watermark) = (sink.number, sink.watermark());
        let Some(transfer) = self.transfers.get_mut(&number) else { return objects.abort(sink.at) };
        let error = match result {
            _ if transfer.cancelled => TransferError::Cancelled,
            Ok(()) => return self.complete(objects, number, sink),
            Err(error) => TransferError::of(error, from, watermark),
        };
        transfer.phase = Phase::Paused(sink, resume_until());
        self.fail(objects, number, error);
    }

    fn complete(&mut self, objects: &mut Objects, number: u64, sink: Arrival) {
        let at = sink.at;
        let sealed = sink.seal();
        let Some(Transfer { object, waiters, began, .. }) = self.transfers.remove(&number) else { return };
        let (bytes, took_us) = (at.len.saturating_sub(began.1), clock::now().since_us(began.0));
        self.measured.push(Measured { bytes, took_us });
        self.numbers.remove(&object);
        self.lock_arriving().remove(&(at.entry, at.generation));
        let result = match sealed {
            Ok(_) => {
                objects.set_secondary(at, true);
                self.copies.insert(object, at);
                self.objects_at.insert((at.entry, at.generation), object);
                Ok(at)
            }
            // It was freed while it came.
            Err(error) => {
                self.events.push(TransferEvent::Dropped { object, at });
                Err(TransferError::NoRoom(error.to_string()))
            }
        };
        self.events.push(TransferEvent::Ended { object, waiters, result });
    }

    /// Ends a transfer without a copy. What has come is kept, unless it is nothing or nobody wants it.
    pub(super) fn fail(&mut self, objects: &mut Objects, number: u64, error: TransferError) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let (object, waiters) = (transfer.object, std::mem::take(&mut transfer.waiters));
        transfer.phase = match std::mem::replace(&mut transfer.phase, Phase::Running) {
            Phase::Queued(Some(arrival)) => Phase::Paused(arrival, resume_until()),
            other => other,
        };
        let came = matches!(&transfer.phase, Phase::Paused(arrival, _) if arrival.watermark() > 0);
        let kept = came && !matches!(error, TransferError::Cancelled | TransferError::NoRoom(_));
        if !kept {
            self.give_up(objects, number, &error.to_string());
        }
        self.end_now(object, waiters, Err(error));
    }

    /// Forgets a transfer and gives its room back.
    pub(super) fn give_up(&mut self, objects: &mut Objects, number: u64, reason: &str) {
        let Some(Transfer { object, phase, .. }) = self.transfers.remove(&number) else { return };
        if self.numbers.get(&object) == Some(&number) {
            self.numbers.remove(&object);
        }
        let (Phase::Queued(Some(arrival)) | Phase::Paused(arrival, _)) = phase else { return };
        let at = arrival.at;
        self.lock_arriving().remove(&(at.entry, at.generation));
        arrival.give_up(reason);
        objects.abort(at);
        self.events.push(TransferEvent::Dropped { object, at });
    }
}

/// Until when what came of a broken transfer is kept.
fn resume_until() -> Tick {
    clock::now().plus_us(RESUME_WAIT_US)
}
