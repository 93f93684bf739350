#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const NOW: Tick = Tick(1_000);

fn limits() -> SessionLimits {
    SessionLimits {
        window_bytes: 4 * (MESSAGE_OVERHEAD_BYTES + 1),
        message_bytes: 5_000,
        ack_after_messages: 3,
        ack_after_bytes: 100,
        ack_after_us: 50,
    }
}

fn fresh() -> Session {
    let mut session = Session::new(A, B, limits());
    assert_eq!(session.connected(1), Resumed::Resending(0));
    session
}

fn from_peer(sequence: u64, acknowledged: u64) -> Stamp {
    Stamp { from: B, to: A, sequence, acknowledged }
}

#[test]
fn a_stamp_survives_the_wire_and_a_short_one_is_none() {
    let stamp = from_peer(7, u64::MAX);
    let mut bytes = stamp.to_bytes().to_vec();
    bytes.push(9);
    assert_eq!(Stamp::split_from(&bytes), Some((stamp, [9].as_slice())));
    assert_eq!(Stamp::split_from(&bytes[..Stamp::BYTES - 1]), None);
}

#[test]
fn messages_go_out_under_their_numbers_and_stay_until_they_are_acknowledged() {
    let mut session = fresh();
    assert_eq!(session.send(vec![1]), Sent::Queued);
    assert_eq!(session.send(vec![2]), Sent::Queued);
    assert_eq!(session.hand_over(), Some(Stamp { from: A, to: B, sequence: 1, acknowledged: 0 }));
    assert_eq!(session.hand_over().unwrap().sequence, 2);
    assert_eq!(session.hand_over(), None);
    assert_eq!(session.message(2), Some(&vec![2].into()));
    assert_eq!(session.received(from_peer(0, 1), 0, NOW), Receipt::Nothing);
    assert_eq!((session.message(1), session.message(2)), (None, Some(&vec![2].into())));
    assert_eq!(session.kept_messages(), 1);
}

#[test]
fn a_full_window_stalls_and_no_message_is_left_out_however_many_wait() {
    let mut session = fresh();
    for n in 0..4 {
        assert_eq!(session.send(vec![n]), Sent::Queued);
        assert!(session.hand_over().is_some());
    }
    for n in 4..200 {
        assert_eq!(session.send(vec![n]), Sent::Stalled);
    }
    assert_eq!(session.hand_over(), None);
    for acknowledged in 1..=196 {
        assert_eq!(session.received(from_peer(0, acknowledged), 0, NOW), Receipt::Nothing);
        assert!(session.has_outgoing());
        let sequence = session.hand_over().unwrap().sequence;
        assert_eq!(sequence, acknowledged + 4);
        assert_eq!(session.message(sequence), Some(&vec![sequence as u8 - 1].into()));
    }
    assert_eq!((session.hand_over(), session.kept_messages()), (None, 4));
}

#[test]
fn one_message_may_be_larger_than_the_window() {
    let mut session = fresh();
    assert!(matches!(session.send(vec![0; 5_001]), Sent::TooLong(_)));
    assert_eq!(session.send(vec![0; 5_000]), Sent::Queued);
    assert_eq!(session.waiting_bytes(), session.kept_bytes());
    assert!(session.hand_over().is_some());
    assert_eq!(session.waiting_bytes(), 0);
    assert_eq!(session.send(vec![1]), Sent::Stalled);
    assert_eq!(session.received(from_peer(0, 1), 0, NOW), Receipt::Nothing);
    assert_eq!(session.send(vec![2]), Sent::Queued);
}

#[test]
fn nothing_goes_out_without_a_connection() {
    let mut session = Session::new(A, B, limits());
    assert_eq!(session.send(vec![1]), Sent::Stalled);
    assert_eq!(session.hand_over(), None);
    assert_eq!(session.connected(1), Resumed::Resending(0));
    assert!(session.hand_over().is_some());
    session.disconnected();
    assert_eq!(session.send(vec![2]), Sent::Stalled);
    assert_eq!(session.hand_over(), None);
}

#[test]
fn a_new_connection_goes_on_where_the_peer_is() {
    let mut session = fresh();
    for n in 0..3 {
        let _ = session.send(vec![n]);
        session.hand_over().unwrap();
    }
    session.disconnected();
    assert_eq!(session.connected(2), Resumed::Resending(2));
    assert_eq!(session.hand_over().unwrap().sequence, 2);
    assert_eq!(session.hand_over().unwrap().sequence, 3);
    assert_eq!(session.kept_messages(), 2);
    // It had the first one, and never had a fifth.
    assert_eq!(session.connected(1), Resumed::Impossible);
    assert_eq!(session.connected(5), Resumed::Impossible);
    assert_eq!(session.connected(0), Resumed::Impossible);
}

#[test]
fn each_message_is_delivered_once_and_in_its_turn() {
    let mut session = fresh();
    assert_eq!(session.received(from_peer(2, 0), 1, NOW), Receipt::Gap);
    assert_eq!(session.received(from_peer(1, 0), 1, NOW), Receipt::Deliver);
    assert_eq!(session.received(from_peer(1, 0), 1, NOW), Receipt::Nothing);
    assert_eq!(session.received(from_peer(2, 0), 1, NOW), Receipt::Deliver);
    assert_eq!(session.next_expected(), 3);
}

#[test]
fn frames_of_another_pair_are_refused() {
    let mut session = fresh();
    let reborn = Stamp { from: NodeId(3), ..from_peer(1, 0) };
    assert_eq!(session.received(reborn, 1, NOW), Receipt::Foreign);
    let not_for_me = Stamp { to: NodeId(3), ..from_peer(1, 0) };
    assert_eq!(session.received(not_for_me, 1, NOW), Receipt::Foreign);
    assert_eq!(session.received(from_peer(1, 1), 1, NOW), Receipt::Foreign, "nothing was sent that it could have");
    assert_eq!(session.next_expected(), 1);
}

#[test]
fn an_acknowledgement_goes_alone_after_some_messages_some_bytes_or_some_time() {
    let mut session = fresh();
    assert_eq!(session.acknowledgement(Tick(u64::MAX)), None);
    let _ = session.received(from_peer(1, 0), 1, NOW);
    assert_eq!((session.acknowledgement(NOW), session.deadline()), (None, Some(Tick(1_050))));
    let late = session.acknowledgement(Tick(1_050)).unwrap();
    assert_eq!((late.sequence, late.acknowledged), (0, 1));
    assert_eq!(session.acknowledgement(Tick(9_999)), None);
    for sequence in 2..=4 {
        assert_eq!(session.acknowledgement(NOW), None);
        let _ = session.received(from_peer(sequence, 0), 1, NOW);
    }
    assert_eq!(session.acknowledgement(NOW).unwrap().acknowledged, 4);
    let _ = session.received(from_peer(5, 0), 100, NOW);
    assert_eq!(session.acknowledgement(NOW).unwrap().acknowledged, 5);
}

#[test]
fn a_message_carries_the_acknowledgement_so_that_none_goes_alone() {
    let mut session = fresh();
    let _ = session.received(from_peer(1, 0), 100, NOW);
    let _ = session.send(vec![1]);
    assert_eq!(session.hand_over().unwrap().acknowledged, 1);
    assert_eq!((session.acknowledgement(NOW), session.deadline()), (None, None));
}

/// Two sides and what is under way to each.
struct Pair {
    sides: [Session; 2],
    wires: [Vec<(Stamp, Vec<u8>)>; 2],
    sent: [u32; 2],
    delivered: [u32; 2],
    now: Tick,
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    HandOver(usize),
    Acknowledge(usize),
    /// The n-th frame on its way to a side arrives, whatever is before it.
    Arrive(usize, prop::sample::Index),
    Duplicate(usize, prop::sample::Index),
    Lose(usize, prop::sample::Index),
    Pass(u64),
    Cut(usize),
    /// A new connection; the frames of the old one come late, or never.
    Reconnect {
        late: bool,
    },
}

fn a_step() -> impl Strategy<Value = Step> {
    let side = || 0..2usize;
    prop_oneof![
        4 => side().prop_map(Step::Send),
        6 => side().prop_map(Step::HandOver),
        2 => side().prop_map(Step::Acknowledge),
        6 => (side(), any::<prop::sample::Index>()).prop_map(|(side, index)| Step::Arrive(side, index)),
        1 => (side(), any::<prop::sample::Index>()).prop_map(|(side, index)| Step::Duplicate(side, index)),
        1 => (side(), any::<prop::sample::Index>()).prop_map(|(side, index)| Step::Lose(side, index)),
        1 => (0..200u64).prop_map(Step::Pass),
        1 => side().prop_map(Step::Cut),
        2 => any::<bool>().prop_map(|late| Step::Reconnect { late }),
    ]
}

impl Pair {
    fn new() -> Self {
        let sides = [Session::new(A, B, limits()), Session::new(B, A, limits())];
        let mut pair = Self { sides, wires: Default::default(), sent: [0; 2], delivered: [0; 2], now: NOW };
        pair.reconnect();
        pair
    }

    fn reconnect(&mut self) {
        let expected = [self.sides[0].next_expected(), self.sides[1].next_expected()];
        for side in 0..2 {
            assert!(matches!(self.sides[side].connected(expected[1 - side]), Resumed::Resending(_)));
        }
    }

    fn hand_over(&mut self, side: usize) -> bool {
        let Some(stamp) = self.sides[side].hand_over() else { return false };
        let bytes = self.sides[side].message(stamp.sequence).unwrap().to_vec();
        self.wires[1 - side].push((stamp, bytes));
        true
    }

    fn acknowledge(&mut self, side: usize) -> bool {
        let Some(stamp) = self.sides[side].acknowledgement(self.now) else { return false };
        self.wires[1 - side].push((stamp, Vec::new()));
        true
    }

    fn arrive(&mut self, side: usize, (stamp, bytes): (Stamp, Vec<u8>)) {
        let receipt = self.sides[side].received(stamp, bytes.len(), self.now);
        assert_ne!(receipt, Receipt::Foreign);
        if receipt == Receipt::Deliver {
            // SES-1: the next one, and none of them twice.
            assert_eq!(bytes, self.delivered[side].to_le_bytes());
            self.delivered[side] += 1;
            assert!(self.delivered[side] <= self.sent[1 - side]);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(side) => {
                let bytes = self.sent[side].to_le_bytes().to_vec();
                assert!(matches!(self.sides[side].send(bytes), Sent::Queued | Sent::Stalled));
                self.sent[side] += 1;
            }
            Step::HandOver(side) => drop(self.hand_over(side)),
            Step::Acknowledge(side) => drop(self.acknowledge(side)),
            Step::Arrive(side, index) if !self.wires[side].is_empty() => {
                let frame = self.wires[side].remove(index.index(self.wires[side].len()));
                self.arrive(side, frame);
            }
            Step::Duplicate(side, index) if !self.wires[side].is_empty() => {
                let frame = self.wires[side][index.index(self.wires[side].len())].clone();
                self.wires[side].push(frame);
            }
            Step::Lose(side, index) if !self.wires[side].is_empty() => {
                self.wires[side].remove(index.index(self.wires[side].len()));
            }
            Step::Arrive(..) | Step::Duplicate(..) | Step::Lose(..) => {}
            Step::Pass(us) => self.now = self.now.plus_us(us),
            Step::Cut(side) => self.sides[side].disconnected(),
            Step::Reconnect { late } => {
                if !late {
                    self.wires = Default::default();
                }
                self.reconnect();
            }
        }
    }

    /// A connection that loses nothing carries everything.
    fn settle(&mut self) {
        self.wires = Default::default();
        self.reconnect();
        loop {
            self.now = self.now.plus_us(limits().ack_after_us);
            let mut moved = false;
            for side in 0..2 {
                while self.hand_over(side) {
                    moved = true;
                }
                moved |= self.acknowledge(side);
                for frame in std::mem::take(&mut self.wires[1 - side]) {
                    self.arrive(1 - side, frame);
                }
            }
            if !moved {
                return;
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_connections_do_all_is_delivered_once_and_in_order(steps in prop::collection::vec(a_step(), 0..400)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.settle();
        // SES-2: all of it, and both sides know.
        prop_assert_eq!(pair.delivered, [pair.sent[1], pair.sent[0]]);
        for side in &pair.sides {
            prop_assert_eq!((side.kept_messages(), side.kept_bytes()), (0, 0));
        }
    }
}

#[test]
fn a_message_is_empty_when_it_says_nothing() {
    assert!(Message::default().is_empty());
    assert!(!Message::from(vec![1]).is_empty());
}
