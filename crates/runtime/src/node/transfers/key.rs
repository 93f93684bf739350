//! What a bulk request asks for: the key that a receiver sends and a serving thread reads.

use bireme_core::flow::FlowKey;
use bireme_core::id::ObjectId;
use bireme_core::value::Location;
use serde::{Deserialize, Serialize};

/// What is asked for. Encoded it has at most [`bireme_net::bulk::KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::node) enum BulkKey {
    /// An object, and where it lies with the sender.
    ObjectAt(ObjectId, Location),
    /// An object that the sender itself fetches or has fetched, by the place under which it asked for it. The sender need not
    /// have a byte of it yet.
    Arriving(ObjectId, Location),
    /// What one stage offers to another, by name: the sender's need not have begun.
    Flow {
        /// The stream.
        key: FlowKey,
        /// What the receiver takes the operation to be.
        digest: u64,
        /// How long it may take to begin.
        patience_ms: u32,
    },
}

impl BulkKey {
    /// As it travels.
    pub(in crate::node) fn encode(&self) -> Vec<u8> {
        // Plain data: the only error that there can be would be met by the sender, which refuses an empty key.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// As it was sent.
    pub(in crate::node) fn decode(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes)
            .map_err(|_| "the request names nothing that can be sent: the receiver is broken".to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bireme_core::id::{NodeId, TaskId};

    use super::*;

    #[test]
    fn the_longest_keys_fit_and_are_read_back() {
        let longest = Location { node: NodeId(u32::MAX), entry: !0, generation: !0, offset: !0, len: !0 };
        let object = ObjectId::from_raw(TaskId::from_raw(u128::MAX), u64::MAX);
        let flow = FlowKey { id: !0, epoch: !0, from: !0, to: !0 };
        let flow = BulkKey::Flow { key: flow, digest: !0, patience_ms: !0 };
        for key in [BulkKey::ObjectAt(object, longest), BulkKey::Arriving(object, longest), flow] {
            let bytes = key.encode();
            assert!(bytes.len() <= bireme_net::bulk::KEY_BYTES_MAX, "{} bytes", bytes.len());
            assert_eq!(BulkKey::decode(&bytes).unwrap(), key);
        }
        assert!(BulkKey::decode(&[]).is_err() && BulkKey::decode(&[200, 1]).is_err());
    }
}
