//! Everything that processes say to each other and to the ledger survives its own encoding.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/arbitrary.rs"]
mod arbitrary;

use arbitrary::Draw;
use bireme_core::codec::{Malformed, Reader};
use bireme_core::message::{FromNode, NodeBound, Peer};
use bireme_core::record::Record;
use bireme_core::spec::TaskSpec;
use bireme_core::value::Value;
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
