//! How a transfer goes on and ends: it gets room, runs, and is complete, asks for another sender, or is given up.

use std::sync::Arc;

use bireme_core::id::NodeId;
use bireme_core::value::Location;
use bireme_net::bulk::{Break, Finished, Job, PoolFull, ReceiveError, Sink};
use bireme_store::UnsealedLocation;

use super::key::BulkKey;
use super::place::{Arrival, Growth};
use super::{Copy, Objects, Phase, Transfer, TransferError, TransferEvent, Transfers};
use crate::clock;
use crate::objects::to_store;

/// So many senders may be lost one after another without a byte. Before that a sender that is dead is declared so.
const LOSSES_MAX: u32 = 100;

impl Transfers {
    /// What came of transfers that wait for another sender goes when somebody waits for the room.
    pub(super) fn make_room(&mut self, objects: &mut Objects) {
        if !objects.is_short_of_room() {
            return;
        }
        let mut parts = Vec::new();
        for (number, transfer) in &mut self.transfers {
            if let Phase::Asking(arrival) | Phase::Pausing(arrival, _) = &mut transfer.phase
                && let Some(arrival) = arrival.take()
            {
                self.shared.names.set(transfer.object.object, *number, transfer.of, None);
                parts.push(arrival);
            }
        }
        for arrival in parts {
            self.give_back(objects, arrival, "its room was needed");
        }
    }

    /// Those who were to wait a little before they ask the same sender again.
    pub(super) fn try_again(&mut self, objects: &mut Objects) {
        let now = clock::now();
        let due = |(number, transfer): (&u64, &Transfer)| match transfer.phase {
            Phase::Pausing(_, until) if until <= now => Some(*number),
            _ => None,
        };
        let due: Vec<u64> = self.transfers.iter().filter_map(due).collect();
        for number in due {
            let Some(transfer) = self.transfers.get_mut(&number) else { continue };
            if let Phase::Pausing(arrival, _) = &mut transfer.phase {
                transfer.phase = Phase::Queued(arrival.take());
            }
            self.enqueue(objects, number);
        }
    }

    pub(super) fn got_room(&mut self, objects: &mut Objects, number: u64, room: Result<Location, String>) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let Some(source) = transfer.source else { return };
        let (object, of, refused) = (transfer.object.object, transfer.of, transfer.refused.take());
        let claimed = match room {
            Ok(at) => match self.client.writer(UnsealedLocation(to_store(at))) {
                Ok(writer) if refused.is_none() => Ok((at, writer)),
                Ok(_) => {
                    objects.abort(at);
                    Err(None)
                }
                Err(error) => {
                    objects.abort(at);
                    Err(Some(error.to_string()))
                }
            },
            Err(reason) => Err(Some(reason)),
        };
        match (claimed, refused) {
            (Ok((at, writer)), _) => {
                let growth = Arc::new(Growth::default());
                self.lock_arriving().insert((at.entry, at.generation), Arc::clone(&growth));
                self.shared.names.set(object, number, of, Some(at));
                self.run(objects, number, Arrival::new(number, at, writer, growth));
            }
            (Err(_), Some(why)) => {
                self.turns.ended(&source.node);
                self.fail_nowhere(objects, number, why);
            }
            (Err(why), None) => {
                self.turns.ended(&source.node);
                self.fail(objects, number, TransferError::NoRoom(why.unwrap_or_default()));
            }
        }
    }

    /// Hands a transfer that has its turn and room to a thread.
    pub(super) fn run(&mut self, objects: &mut Objects, number: u64, mut sink: Arrival) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let Some(source) = transfer.source else { return };
        transfer.phase = Phase::Running;
        transfer.cancel = Arc::default();
        sink.begins_again();
        transfer.began = sink.watermark();
        let object = transfer.object.object;
        let key = if source.is_complete {
            BulkKey::ObjectAt(object, source.at)
        } else {
            BulkKey::Arriving(object, source.at)
        };
        let job = Job { peer: source.node, key: key.encode(), sink, cancel: Arc::clone(&transfer.cancel) };
        if let Err(PoolFull(job)) = self.pool.start(job) {
            let why = Break::Failed("every thread for transfers is taken".to_owned());
            let result = Err(ReceiveError::Broken { watermark: job.sink.watermark(), why });
            self.finished(objects, Finished { peer: source.node, sink: job.sink, result });
        }
    }

    pub(super) fn finished(&mut self, objects: &mut Objects, finished: Finished<NodeId, Arrival>) {
        let Finished { peer: from, sink, result } = finished;
        self.turns.ended(&from);
        let (number, watermark) = (sink.number, sink.watermark());
        let Some(transfer) = self.transfers.get_mut(&number) else { return objects.abort(sink.at) };
        match result {
            _ if transfer.refused.is_some() => {
                transfer.phase = Phase::Asking(Some(sink));
                let why = transfer.refused.take().unwrap_or_default();
                self.fail_nowhere(objects, number, why);
            }
            Ok(()) => self.complete(objects, number, sink),
            Err(error) => {
                transfer.phase = Phase::Asking(Some(sink));
                self.lost(objects, number, TransferError::of(error, from, watermark));
            }
        }
    }

    /// A sender is lost: another one is asked for, as long as that makes sense.
    fn lost(&mut self, objects: &mut Objects, number: u64, error: TransferError) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let watermark = match &transfer.phase {
            Phase::Asking(Some(arrival)) => arrival.watermark(),
            _ => 0,
        };
        let before = if watermark > transfer.began { 0 } else { transfer.losses.0 };
        let (lost, object, of) = (error.lost(), transfer.object, transfer.of);
        transfer.losses = (before + 1, Some(error.clone()));
        match lost {
            Some(_) if before < LOSSES_MAX => {
                self.events.push(TransferEvent::Wanted { number, object, of, lost });
            }
            _ => self.fail(objects, number, error),
        }
    }

    fn complete(&mut self, objects: &mut Objects, number: u64, sink: Arrival) {
        let at = sink.at;
        self.measured.extend(sink.measured());
        let sealed = sink.seal();
        let Some(Transfer { object, of, waiters, .. }) = self.transfers.remove(&number) else { return };
        self.numbers.remove(&object.object);
        self.lock_arriving().remove(&(at.entry, at.generation));
        let result = match sealed {
            Ok(_) => {
                objects.set_secondary(at, true);
                self.copies.insert(object.object, Copy { number, object, of, at });
                self.objects_at.insert((at.entry, at.generation), object.object);
                Ok(at)
            }
            // It was freed while it came.
            Err(error) => {
                self.shared.names.remove(object.object, number);
                Err(TransferError::NoRoom(error.to_string()))
            }
        };
        self.events.push(TransferEvent::Ended { object, of, waiters, result });
    }

    /// Ends a transfer that nobody can or need send to.
    pub(super) fn fail_nowhere(&mut self, objects: &mut Objects, number: u64, why: String) {
        let last = self.transfers.get_mut(&number).and_then(|transfer| transfer.losses.1.take()).map(Box::new);
        self.fail(objects, number, TransferError::Nowhere { why, last });
    }

    /// Ends a transfer without a copy.
    pub(super) fn fail(&mut self, objects: &mut Objects, number: u64, error: TransferError) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let (object, of, waiters) = (transfer.object, transfer.of, std::mem::take(&mut transfer.waiters));
        self.give_up(objects, number, &error.to_string());
        self.end_now((object, of), waiters, Err(error));
    }

    /// Forgets a transfer and gives its room back.
    pub(super) fn give_up(&mut self, objects: &mut Objects, number: u64, reason: &str) {
        let Some(Transfer { object, phase, .. }) = self.transfers.remove(&number) else { return };
        if self.numbers.get(&object.object) == Some(&number) {
            self.numbers.remove(&object.object);
        }
        self.shared.names.remove(object.object, number);
        if let Phase::Queued(Some(arrival)) | Phase::Asking(Some(arrival)) | Phase::Pausing(Some(arrival), _) = phase {
            self.give_back(objects, arrival, reason);
        }
    }

    /// Gives up what came of an object, with the reason for those who were sending it on.
    fn give_back(&mut self, objects: &mut Objects, arrival: Arrival, reason: &str) {
        let at = arrival.at;
        self.lock_arriving().remove(&(at.entry, at.generation));
        arrival.give_up(reason);
        objects.abort(at);
    }
}
