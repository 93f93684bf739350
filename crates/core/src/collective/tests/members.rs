//! All members of a group in memory: words between them arrive in any order that keeps the order of each pair.

use super::*;
use crate::id::ProcessId;

fn process(rank: u32) -> ProcessId {
    ProcessId { node: NodeId(1 + rank / 2), slot: 2 + rank, incarnation: 1 }
}

fn group() -> CollectiveId {
    CollectiveId::named(NodeId(1), "test")
}

/// One call of one member.
struct Running {
    number: u64,
    call: Call,
    exchange: Exchange,
    buffer: Vec<u8>,
    ended: Option<Result<Vec<u8>, Trouble>>,
}

/// A group whose members are all there.
struct Group {
    members: Vec<Member>,
    running: Vec<Option<Running>>,
    /// Packets under way, by pair.
    links: BTreeMap<(u32, u32), VecDeque<Packet>>,
}

use std::collections::{BTreeMap, VecDeque};

impl Group {
    fn new(size: u32) -> Self {
        let peers: Peers = (0..size).map(|rank| (process(rank), format!("actor-{rank}"))).collect();
        let members = (0..size).map(|rank| {
            let mut member = Member::new(group(), rank, size);
            member.formed(3, peers.clone());
            member
        });
        let running = (0..size).map(|_| None).collect();
        Self { members: members.collect(), running, links: BTreeMap::new() }
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn post(&mut self, packets: Vec<Packet>) {
        for packet in packets {
            self.links.entry((packet.from, packet.to)).or_default().push_back(packet);
        }
    }

    fn begin(&mut self, rank: u32, call: &Call) {
        let size = self.size();
        let member = &mut self.members[rank as usize];
        let number = member.begin(call.clone());
        let exchange = Exchange::new(number, call, rank, size);
        let layout = Layout::of(call, rank, size).unwrap();
        let mut buffer = vec![0; layout.bytes as usize];
        let (input, mut at) = (brings(call, rank, size), 0);
        for range in layout.inputs {
            let len = (range.end - range.start) as usize;
            buffer[indices(&range)].copy_from_slice(&input[at..at + len]);
            at += len;
        }
        if let Some((from, to)) = layout.own {
            buffer.copy_within(indices(&from), to.start as usize);
        }
        let next = (rank + 1) % size;
        let note = (size > 1 && !exchange.sends_to(next)).then(|| Word::Note { number, call: call.clone() });
        let note: Vec<Packet> = note.and_then(|note| member.packet(next, note, Vec::new())).into_iter().collect();
        self.running[rank as usize] = Some(Running { number, call: call.clone(), exchange, buffer, ended: None });
        self.post(note);
        self.go_on(rank);
    }

    fn go_on(&mut self, rank: u32) {
        let size = self.size();
        let member = &mut self.members[rank as usize];
        let mut packets = Vec::new();
        if let Some(running) = self.running[rank as usize].as_mut().filter(|running| running.ended.is_none()) {
            if let Some(trouble) = member.failure(running.number) {
                running.ended = Some(Err(trouble));
            } else {
                let progress = running.exchange.advance(member, &mut running.buffer, &mut |into, from| add(into, from));
                let part = Word::Part { number: running.number, call: running.call.clone() };
                let sends = progress.sends.into_iter();
                packets.extend(sends.filter_map(|(to, bytes)| member.packet(to, part.clone(), bytes)));
                if progress.done {
                    let layout = Layout::of(&running.call, rank, size).unwrap();
                    let result = layout.results.iter().flat_map(|range| running.buffer[indices(range)].to_vec());
                    running.ended = Some(Ok(result.collect()));
                }
            }
            if running.ended.is_some() {
                member.end(running.number);
            }
        }
        packets.extend(member.take_answers());
        self.post(packets);
    }

    /// The pairs that have words under way.
    fn open(&self) -> Vec<(u32, u32)> {
        self.links.iter().filter(|(_, queue)| !queue.is_empty()).map(|(link, _)| *link).collect()
    }

    fn deliver(&mut self, link: (u32, u32)) {
        if let Some(packet) = self.links.get_mut(&link).and_then(VecDeque::pop_front) {
            self.members[link.1 as usize].heard(packet);
            self.go_on(link.1);
        }
    }

    /// Delivers words until none is under way.
    fn settle(&mut self, mut pick: impl FnMut(usize) -> usize) {
        loop {
            let open = self.open();
            if open.is_empty() {
                return;
            }
            self.deliver(open[pick(open.len())]);
        }
    }

    fn die(&mut self, rank: u32) {
        self.links.retain(|(from, to), _| *from != rank && *to != rank);
        for other in (0..self.size()).filter(|other| *other != rank) {
            self.members[other as usize].process_died(|dead| dead == process(rank), "was killed by signal 9");
            self.go_on(other);
        }
    }

    fn ended(&self, rank: u32) -> Option<&Result<Vec<u8>, Trouble>> {
        self.running[rank as usize].as_ref().and_then(|running| running.ended.as_ref())
    }
}

#[test]
fn small_calls_of_all_verbs_sizes_and_roots_do_what_the_verb_says() {
    for size in 1..=9 {
        for kind in COLLECTIVE {
            for root in if kind.has_root() { 0..size } else { 0..1 } {
                for shape in shapes(kind, size) {
                    let call = call(kind, root, &shape);
                    let mut group = Group::new(size);
                    (0..size).for_each(|rank| group.begin(rank, &call));
                    let mut turn = 0usize;
                    group.settle(|most| {
                        turn += 5;
                        turn % most
                    });
                    for rank in 0..size {
                        assert_eq!(
                            group.ended(rank),
                            Some(&Ok(gets(&call, rank, size))),
                            "{call}: rank {rank} of {size}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn who_is_told_what_comes_learns_it_from_the_root() {
    let mut group = Group::new(2);
    let told = Call { array: None, ..call(Kind::Scatter, 0, &[]) };
    let member = &mut group.members[1];
    member.begin(told);
    let said = Word::Note { number: 1, call: call(Kind::Scatter, 0, &[5]) };
    let packet = group.members[0].packet(1, said, Vec::new()).unwrap();
    group.members[1].heard(packet);
    assert_eq!(group.members[1].current(), Some(&call(Kind::Scatter, 0, &[5])));
}

#[test]
fn a_member_that_does_not_come_is_named_by_all_who_asked_around() {
    let mut group = Group::new(4);
    let call = call(Kind::AllReduce, 0, &[4]);
    [0, 1, 3].into_iter().for_each(|rank| group.begin(rank, &call));
    group.settle(|_| 0);
    for rank in [0, 1, 3] {
        assert_eq!(group.ended(rank), None, "rank {rank}");
        group.members[rank as usize].ask_around(1);
        group.go_on(rank);
    }
    group.settle(|_| 0);
    for rank in [0, 1, 3] {
        let missing = group.members[rank as usize].missing(1);
        assert_eq!(missing, [Seat { rank: 2, label: "actor-2".into() }], "rank {rank}");
    }
}

#[test]
fn a_mismatch_that_nobody_waits_for_fails_the_next_call() {
    let mut group = Group::new(2);
    group.begin(0, &call(Kind::Broadcast, 0, &[2]));
    group.begin(1, &call(Kind::Gather, 0, &[2]));
    group.settle(|_| 0);
    let errors = (0..2).filter(|rank| matches!(group.ended(*rank), Some(Err(Trouble::Mismatch { .. })))).count();
    if errors < 2 {
        (0..2).for_each(|rank| group.begin(rank, &call(Kind::Barrier, 0, &[])));
        group.settle(|_| 0);
        for rank in 0..2 {
            assert!(
                matches!(group.ended(rank), Some(Err(Trouble::Mismatch { call: 1, .. }))),
                "{:?}",
                group.ended(rank)
            );
        }
    }
}

#[test]
fn a_late_word_about_a_call_that_failed_does_not_fail_the_next_one() {
    let mut group = Group::new(3);
    [0, 1].into_iter().for_each(|rank| group.begin(rank, &call(Kind::AllReduce, 0, &[2])));
    group.begin(2, &call(Kind::AllGather, 0, &[2]));
    // The words of the odd one to rank 0 stay under way until all others have been heard.
    while let Some(link) = group.open().into_iter().find(|link| *link != (2, 0)) {
        group.deliver(link);
    }
    assert!(group.open().contains(&(2, 0)));
    (0..3).for_each(|rank| assert!(matches!(group.ended(rank), Some(Err(Trouble::Mismatch { .. }))), "rank {rank}"));
    group.settle(|_| 0);
    let barrier = call(Kind::Barrier, 0, &[]);
    (0..3).for_each(|rank| group.begin(rank, &barrier));
    group.settle(|_| 0);
    (0..3).for_each(|rank| assert_eq!(group.ended(rank), Some(&Ok(Vec::new())), "rank {rank}"));
}

#[test]
fn whoever_left_is_named_by_calls_that_need_it_and_not_by_those_before() {
    let mut group = Group::new(2);
    let barrier = call(Kind::Barrier, 0, &[]);
    (0..2).for_each(|rank| group.begin(rank, &barrier));
    group.settle(|_| 0);
    group.members[1].left(0, 1);
    group.begin(1, &barrier);
    let left = Trouble::Left { member: Seat { rank: 0, label: "actor-0".into() }, calls: 1 };
    assert_eq!(group.ended(1), Some(&Err(left)));
}

#[test]
fn a_late_failure_of_a_call_that_is_over_changes_nothing() {
    let mut group = Group::new(2);
    let barrier = call(Kind::Barrier, 0, &[]);
    (0..2).for_each(|rank| group.begin(rank, &barrier));
    group.settle(|_| 0);
    assert_eq!(group.ended(1), Some(&Ok(Vec::new())));
    let failed = |number| Word::Failed { number, trouble: Trouble::Misuse("it is too late".into()) };
    for number in [1, 2] {
        let packet = group.members[0].packet(1, failed(number), Vec::new()).unwrap();
        group.members[1].heard(packet);
        assert_eq!(group.members[1].failed(number).is_some(), number == 2, "call {number}");
    }
}

#[test]
fn a_member_that_left_after_a_call_has_not_failed_that_call() {
    let mut group = Group::new(2);
    let barrier = call(Kind::Barrier, 0, &[]);
    (0..2).for_each(|rank| group.begin(rank, &barrier));
    group.members[1].left(0, 1);
    assert_eq!(group.members[1].failure(1), None, "its part of the first call may still come");
    assert!(matches!(group.members[1].failure(2), Some(Trouble::Left { calls: 1, .. })));
}

#[test]
fn what_was_sent_before_its_sender_left_can_still_come() {
    let mut group = Group::new(2);
    let number = group.members[0].number_sent(1, 5);
    let word = Word::Sent { tag: 5, number, call: call(Kind::Send, 0, &[1]), streamed: false };
    let packet = group.members[0].packet(1, word, vec![7]).unwrap();
    group.members[0].say_farewell();
    let farewell = group.members[0].take_answers();
    group.post(vec![packet]);
    group.post(farewell);
    // The nodes are faster than the members.
    group.members[1].left(0, 0);
    assert_eq!(group.members[1].failure_with(0), None);
    group.settle(|_| 0);
    assert_eq!(group.members[1].take_sent(0, 5).map(|came| came.bytes), Some(vec![7]));
    assert!(matches!(group.members[1].failure_with(0), Some(Trouble::Left { .. })));
}

#[test]
fn arrays_between_two_keep_their_order_by_tag_and_are_bounded() {
    let mut group = Group::new(2);
    let array = call(Kind::Send, 0, &[1]);
    for (tag, byte) in [(5, 1u8), (6, 2), (5, 3)] {
        let number = group.members[0].number_sent(1, tag);
        let word = Word::Sent { tag, number, call: array.clone(), streamed: false };
        let packet = group.members[0].packet(1, word, vec![byte]).unwrap();
        group.post(vec![packet]);
    }
    group.settle(|_| 0);
    let mut take = |tag| group.members[1].take_sent(0, tag).map(|came| came.bytes[0]);
    assert_eq!([take(6), take(5), take(5), take(5)], [Some(2), Some(1), Some(3), None]);
    while !group.members[0].is_full(1) {
        group.members[0].number_sent(1, 9);
    }
    group.go_on(1);
    group.settle(|_| 0);
    assert!(!group.members[0].is_full(1), "what was taken makes room");
}

proptest! {
    #[test]
    fn several_calls_in_a_row_end_in_any_order_of_words(
        size in 1u32..=7,
        kinds in proptest::collection::vec((0..COLLECTIVE.len(), 0u32..7, 0u64..5), 1..6),
        picks in proptest::collection::vec(any::<u16>(), 1..100),
    ) {
        let mut group = Group::new(size);
        let mut turn = 0usize;
        for (kind, root, length) in kinds {
            let kind = COLLECTIVE[kind];
            let length = if kind == Kind::ReduceScatter { length * u64::from(size) } else { length };
            let call = call(kind, root % size, &[length]);
            for rank in 0..size {
                group.begin(rank, &call);
            }
            group.settle(|most| {
                turn += 1;
                usize::from(picks[turn % picks.len()]).wrapping_add(turn) % most
            });
            for rank in 0..size {
                prop_assert_eq!(group.ended(rank), Some(&Ok(gets(&call, rank, size))));
            }
        }
    }

    /// COLL-1.
    #[test]
    fn a_member_that_dies_at_any_time_ends_the_calls_of_all_others_with_its_name(
        size in 2u32..=7,
        kind in 0..COLLECTIVE.len(),
        dead in 0u32..7,
        after in 0usize..40,
        begun in any::<bool>(),
    ) {
        let (dead, kind) = (dead % size, COLLECTIVE[kind]);
        let call = call(kind, (dead + 1) % size, &[u64::from(size)]);
        let mut group = Group::new(size);
        for rank in (0..size).filter(|rank| begun || *rank != dead) {
            group.begin(rank, &call);
        }
        let mut turn = 0;
        loop {
            let open = group.open();
            if turn == after || open.is_empty() {
                group.die(dead);
            }
            if open.is_empty() {
                break;
            }
            let link = open[(turn * 3) % open.len()];
            turn += 1;
            group.deliver(link);
        }
        for rank in (0..size).filter(|rank| *rank != dead) {
            match group.ended(rank) {
                Some(Ok(result)) => prop_assert_eq!(result, &gets(&call, rank, size)),
                Some(Err(Trouble::Lost { member, .. })) => prop_assert_eq!(member.rank, dead),
                other => prop_assert!(false, "rank {} ended with {:?}", rank, other),
            }
            // And so does every later call.
            group.begin(rank, &call);
            let again = matches!(group.ended(rank), Some(Err(Trouble::Lost { .. })));
            prop_assert!(again, "rank {} went on", rank);
        }
    }

    #[test]
    fn one_who_calls_something_else_is_found_out_and_both_sides_are_named(
        size in 2u32..=7,
        odd in 0u32..7,
        kinds in (0..COLLECTIVE.len(), 0..COLLECTIVE.len()),
        picks in proptest::collection::vec(any::<u16>(), 1..50),
    ) {
        let odd = odd % size;
        let (one, other) = (COLLECTIVE[kinds.0], COLLECTIVE[kinds.1]);
        prop_assume!(one != other);
        let (one, other) = (call(one, 0, &[u64::from(size)]), call(other, 0, &[u64::from(size)]));
        let mut group = Group::new(size);
        let mut turn = 0usize;
        let mut mismatches = 0;
        let mut all_heard = false;
        // What was found too late shows in the next call.
        for _ in 0..2 {
            let before = mismatches;
            (0..size).for_each(|rank| group.begin(rank, if rank == odd { &other } else { &one }));
            group.settle(|most| {
                turn += 1;
                usize::from(picks[turn % picks.len()]).wrapping_add(turn) % most
            });
            for rank in 0..size {
                match group.ended(rank) {
                    Some(Err(Trouble::Mismatch { ours, theirs, .. })) => {
                        mismatches += 1;
                        prop_assert!(ours.0.rank == odd || theirs.0.rank == odd);
                        prop_assert_ne!(&ours.1, &theirs.1);
                    }
                    Some(Ok(_)) => {}
                    ended => prop_assert!(false, "rank {} ended with {:?}", rank, ended),
                }
            }
            all_heard = mismatches - before == size;
        }
        prop_assert!(mismatches > 0, "nobody found out");
        if all_heard {
            let barrier = call(Kind::Barrier, 0, &[]);
            (0..size).for_each(|rank| group.begin(rank, &barrier));
            group.settle(|most| most - 1);
            for rank in 0..size {
                prop_assert_eq!(group.ended(rank), Some(&Ok(Vec::new())), "rank {} after all had heard", rank);
            }
        }
    }
}
