//! What processes record goes into the ledger, and whoever waits for it hears.

use super::{Effect, Node};
use crate::id::ProcessId;
use crate::record::Record;
use crate::time::Tick;

impl Node {
    pub(super) fn recorded(&mut self, process: ProcessId, record: Record, now: Tick, effects: &mut Vec<Effect>) {
        if !self.freed_unseen.is_empty() {
            self.freed_unseen.remove(&process);
        }
        if let Record::Freed { object } = &record
            && !process.is_driver()
        {
            self.linger(*object);
        }
        if self.is_clustered() {
            if self.guest_recorded(&record, now, effects) {
                return;
            }
            self.note_duration(&record);
        }
        if let Record::Put { object, .. } = &record {
            self.reduce_recorded(*object);
        }
        // The hot path: while nobody has died, nobody is told about records.
        let quiet = self.adopters.is_empty()
            && self.resolving.is_empty()
            && self.orphans.is_empty()
            && self.claims.is_empty()
            && self.inside.is_empty()
            && self.lingering.is_empty();
        match record {
            Record::Yielded { task, attempt, index, value } => {
                self.yielded(task, attempt, index, value, effects);
                return;
            }
            Record::Freed { object } if self.ledger.is_item(object) => {
                self.item_freed(object, effects);
                return;
            }
            _ => {}
        }
        if quiet {
            self.ledger.apply(process, record);
            return;
        }
        match &record {
            Record::Finished { task, values, .. }
                if values.first().is_some_and(crate::ledger::stopped) && self.ledger.is_stream(*task) =>
            {
                let task = *task;
                self.ledger.apply(process, record);
                self.stream_stopped(task, now, effects);
            }
            Record::Finished { task, .. } | Record::Settled { task, .. } => {
                let task = *task;
                self.ledger.apply(process, record);
                self.task_ended(task, now, effects);
            }
            Record::Put { object, .. } => {
                let object = *object;
                self.ledger.apply(process, record);
                self.hold_again(object);
                self.answer_resolvers(object, effects);
            }
            Record::Freed { object } => {
                if self.is_asked_for(*object) && self.ledger.value(*object).is_none() {
                    self.freed_unseen.insert(process);
                }
                self.note_freed(*object);
                self.ledger.apply(process, record);
            }
            Record::Submitted { .. } | Record::Started { .. } | Record::Yielded { .. } => {
                self.ledger.apply(process, record);
            }
        }
    }
}
