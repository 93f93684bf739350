//! Who may come in as which node: by the number in its certificate, and only while it is a member.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::id::NodeId;

/// Connections of one certificate that have a thread or wait for the node's: several nodes of a user can share one.
const VISITS_MAX: u32 = 256;

/// The members and their certificates, as the node's thread knows them.
#[derive(Default)]
pub(crate) struct Register(Mutex<Books>);

#[derive(Default)]
struct Books {
    members: BTreeMap<NodeId, Known>,
    /// The highest number that was ever a member's.
    newest: u32,
    visits: BTreeMap<u128, u32>,
}

#[derive(Default)]
struct Known {
    /// The number in its certificate; 0 for none.
    identity: u128,
    /// The epoch of the cluster's keys that it has followed to, as it says.
    epoch: u64,
}

/// A connection that counts. Gone when it is dropped.
pub(crate) struct Visit {
    register: Arc<Register>,
    identity: u128,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut books = self.register.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = books.visits.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                books.visits.remove(&self.identity);
            }
        }
    }
}

/// The reason why somebody is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum No {
    /// It may be let in another time.
    Now(String),
    /// It never will.
    Ever(String),
}

impl Register {
    /// A node joined, with this number in its certificate; 0 for none.
    pub(crate) fn admit(&self, node: NodeId, identity: u128) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.newest = books.newest.max(node.0);
        books.members.entry(node).or_default().identity = identity;
    }

    /// A node is dead or has left.
    pub(crate) fn dismiss(&self, node: NodeId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).members.remove(&node);
    }

    /// The members with the numbers in their certificates.
    pub(crate) fn members(&self) -> Vec<(NodeId, u128)> {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.members.iter().map(|(node, known)| (*node, known.identity)).collect()
    }

    /// With the head: a member says which epoch of the cluster's keys it has followed to.
    pub(crate) fn note_epoch(&self, node: NodeId, epoch: u64) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = books.members.get_mut(&node) {
            known.epoch = epoch;
        }
    }

    /// With the head: which epoch each member has followed to.
    pub(crate) fn epochs(&self) -> Vec<(NodeId, u64)> {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.members.iter().map(|(node, known)| (*node, known.epoch)).collect()
    }

    /// Whether this was a member and is none any more.
    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        node.0 <= books.newest && !books.members.contains_key(&node)
    }

    /// Whether somebody with this certificate can be that node; if not, why.
    pub(crate) fn check(&self, node: NodeId, identity: u128) -> Result<(), No> {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match books.members.get(&node) {
            Some(known) if known.identity == identity => Ok(()),
            Some(_) => {
                Err(No::Ever(format!("the certificate is not that of {node}: nobody comes in under another's number")))
            }
            None if node.0 <= books.newest => {
                let reason =
                    format!("{node} was declared dead or has left: it has to join again, and gets a new number");
                Err(No::Ever(reason))
            }
            None => Err(No::Now(format!("{node} is not known here yet: try again"))),
        }
    }

    /// One more connection with this certificate, unless there are too many.
    pub(crate) fn visit(self: &Arc<Self>, identity: u128) -> Result<Visit, No> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = books.visits.entry(identity).or_default();
        if *count >= VISITS_MAX {
            return Err(No::Now(format!(
                "there are {VISITS_MAX} connections with this certificate: close some, then try again"
            )));
        }
        *count += 1;
        Ok(Visit { register: Arc::clone(self), identity })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_node_comes_in_with_its_own_certificate_while_it_is_a_member() {
        let register = Register::default();
        let now = |said: &'static str| move |no: No| matches!(no, No::Now(reason) if reason.contains(said));
        let ever = |said: &'static str| move |no: No| matches!(no, No::Ever(reason) if reason.contains(said));
        assert!(register.check(NodeId(2), 7).is_err_and(now("try again")));
        register.admit(NodeId(2), 7);
        register.admit(NodeId(3), 8);
        assert_eq!(register.check(NodeId(2), 7), Ok(()));
        assert!(register.check(NodeId(2), 8).is_err_and(ever("another's number")));
        assert!(register.check(NodeId(2), 0).is_err(), "no certificate is none of its own");
        register.dismiss(NodeId(2));
        assert!(register.check(NodeId(2), 7).is_err_and(ever("declared dead")));
        assert!(register.check(NodeId(4), 7).is_err_and(now("not known")));
        register.note_epoch(NodeId(2), 5);
        register.note_epoch(NodeId(3), 6);
        assert_eq!(register.epochs(), [(NodeId(3), 6)], "who has left is not waited for");
        assert!(register.is_gone(NodeId(2)) && !register.is_gone(NodeId(3)) && !register.is_gone(NodeId(4)));
    }

    #[test]
    fn the_connections_of_one_certificate_are_bounded_and_those_of_others_are_not_concerned() {
        let register = Arc::new(Register::default());
        let mut visits: Vec<Visit> = (0..VISITS_MAX).map(|_| register.visit(1).unwrap()).collect();
        assert!(register.visit(1).is_err());
        assert!(register.visit(2).is_ok());
        visits.pop();
        visits.push(register.visit(1).unwrap());
        drop(visits);
        assert!(register.0.lock().unwrap().visits.is_empty());
    }
}
