//! Everything that processes say to each other and to the ledger survives its own encoding.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/arbitrary.rs"]
mod arbitrary;

use arbitrary::Draw;
use bireme_core::codec::{Count, Fill, Malformed, Reader};
use bireme_core::id::{NodeId, ProcessId};
use bireme_core::message::{Between, FromNode, NodeBound, Peer, longest_value};
use bireme_core::record::Record;
use bireme_core::session::Message;
use bireme_core::spec::TaskSpec;
use bireme_core::time::Tick;
use bireme_core::value::{Body, Value};
use proptest::prelude::*;

proptest! {
    #[test]
    fn messages_between_processes_come_back_as_they_were(seed in any::<u64>()) {
        let message = Draw(seed).peer();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(Peer::decode(&bytes), Ok(message));
    }

    #[test]
    fn the_longest_value_of_a_message_is_found_in_its_bytes(seed in any::<u64>()) {
        let message = Draw(seed).peer();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let inline = |values: &[Value]| -> Vec<Vec<u8>> {
            let bytes = |value: &Value| match &value.body {
                Body::Inline(bytes) => Some(bytes.to_vec()),
                _ => None,
            };
            values.iter().filter_map(bytes).collect()
        };
        let values = match &message {
            Peer::Run { spec, resolved, .. }
            | Peer::Call { spec, resolved, .. }
            | Peer::RunAfter { spec, resolved, .. } => {
                [vec![spec.payload.to_vec()], inline(resolved)].concat()
            }
            Peer::Reply { values, .. } => inline(values),
            Peer::Item { value, .. } => inline(std::slice::from_ref(value)),
            Peer::Collective(packet) => vec![packet.bytes.clone()],
            _ => Vec::new(),
        };
        // The first of several that are equally long.
        let longest = values.iter().rev().max_by_key(|value| value.len()).cloned().unwrap_or_default();
        prop_assert_eq!(&bytes[longest_value(&bytes)], &longest[..]);
        // Cut anywhere, it is bytes of what is there.
        let cut = (seed as usize) % (bytes.len() + 1);
        prop_assert!(longest_value(&bytes[..cut]).end <= cut);
    }

    #[test]
    fn requests_come_back_as_they_were(seed in any::<u64>()) {
        let request = Draw(seed).request();
        let mut bytes = Vec::new();
        NodeBound::encode_request(&request, &mut bytes);
        prop_assert_eq!(NodeBound::decode(&bytes), Ok(NodeBound::Request(request)));
    }

    #[test]
    fn records_come_back_as_they_were(seed in any::<u64>()) {
        let record = Draw(seed).record();
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(Record::decode(&bytes), Ok(record.clone()));
        prop_assert_eq!(NodeBound::decode(&bytes), Ok(NodeBound::Record(record)));
    }

    #[test]
    fn a_message_for_another_node_is_a_record_too_when_it_says_so(seed in any::<u64>(), is_recorded in any::<bool>()) {
        let message = Draw(seed).peer();
        let (to, recorded) = (ProcessId::first_driver(NodeId(3)), is_recorded.then_some(Tick(seed >> 1)));
        let mut said = Vec::new();
        message.encode(&mut said);
        // As it is written into a ring: counted, then in its place.
        let mut count = Count::default();
        NodeBound::begin_relay(to, recorded, &mut count);
        message.encode(&mut count);
        let mut bytes = vec![0; count.0];
        let mut fill = Fill(&mut bytes);
        NodeBound::begin_relay(to, recorded, &mut fill);
        message.encode(&mut fill);
        prop_assert!(fill.0.is_empty());
        match recorded.map(|at| Record::said_by(message, at)).transpose() {
            Ok(record) => prop_assert_eq!(NodeBound::decode(&bytes), Ok(NodeBound::Relay { record, to, bytes: said.into() })),
            Err(malformed) => prop_assert_eq!(NodeBound::decode(&bytes), Err(malformed)),
        }
    }

    #[test]
    fn what_nodes_pass_on_comes_back_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..100), slot in any::<u32>()) {
        let from = ProcessId { node: NodeId(2), slot, incarnation: 1 };
        let message = Between::Relay { from, to: ProcessId::first_driver(NodeId(3)), bytes: bytes.into() };
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        prop_assert_eq!(Between::decode(&encoded), Ok(message.clone()));
        prop_assert_eq!(Message::from(message).to_vec(), encoded);
    }

    #[test]
    fn words_of_the_node_come_back_as_they_were(seed in any::<u64>()) {
        let message = Draw(seed).word();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(FromNode::decode(&bytes), Ok(message));
    }

    #[test]
    fn specs_and_values_come_back_as_they_were(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let (spec, value) = (draw.spec(), draw.value());
        let mut bytes = Vec::new();
        spec.encode(&mut bytes);
        value.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(TaskSpec::decode(&mut reader), Ok(spec));
        prop_assert_eq!(Value::decode(&mut reader), Ok(value));
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_message_that_is_cut_short_or_too_long_is_refused(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        Draw(seed).peer().encode(&mut bytes);
        prop_assert!(Peer::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(Peer::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Peer::decode(&bytes);
        let _ = NodeBound::decode(&bytes);
        let _ = FromNode::decode(&bytes);
        let _ = Record::decode(&bytes);
        let _ = TaskSpec::decode(&mut Reader::new(&bytes));
        let _ = Value::decode(&mut Reader::new(&bytes));
    }
}

#[test]
fn nothing_at_all_is_too_short() {
    assert_eq!(Peer::decode(&[]), Err(Malformed::Short));
    assert_eq!(NodeBound::decode(&[]), Err(Malformed::Short));
    assert_eq!(FromNode::decode(&[]), Err(Malformed::Short));
    assert_eq!(Record::decode(&[]), Err(Malformed::Short));
}
