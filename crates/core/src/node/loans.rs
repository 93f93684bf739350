//! Claims that one process makes for another: on their way until the holder says that the reference has come.
//!
//! LOAN-1: when a lender is dead and everybody has settled that, the holders have read all that it sent, and what they
//! said of it is here. A claim that is still on its way then was never sent, and is void.

use super::Node;
use crate::id::{ObjectId, ProcessId};
use crate::time::Tick;

impl Node {
    pub(super) fn claim_for(&mut self, lender: ProcessId, object: ObjectId, holder: ProcessId, now: Tick) {
        if self.live.contains(&holder) {
            self.claim(holder, object, 1, now);
            self.move_loan(lender, object, holder, 1);
        }
    }

    /// The holder's word may be read before the lender's.
    pub(super) fn claim_arrived(&mut self, holder: ProcessId, object: ObjectId, lender: ProcessId) {
        let heard = self.live.contains(&lender)
            || self.settling.contains_key(&lender)
            || self.cluster.voiding.contains_key(&lender);
        if heard {
            self.move_loan(lender, object, holder, -1);
        }
    }

    fn move_loan(&mut self, lender: ProcessId, object: ObjectId, holder: ProcessId, by: i64) {
        let loans = self.loans.entry(lender).or_default();
        let count = loans.entry((object, holder)).or_insert(0);
        *count += by;
        if *count == 0 {
            loans.remove(&(object, holder));
        }
        if loans.is_empty() {
            self.loans.remove(&lender);
        }
    }

    /// Everybody has settled this death: what it claimed for others and did not send is void.
    pub(super) fn void_loans(&mut self, dead: ProcessId, now: Tick) {
        for loans in self.loans.values_mut() {
            loans.retain(|(_, holder), _| *holder != dead);
        }
        for ((object, holder), count) in self.loans.remove(&dead).unwrap_or_default() {
            if self.live.contains(&holder) {
                self.claim(holder, object, -count, now);
            }
        }
        self.loans.retain(|_, loans| !loans.is_empty());
    }
}
