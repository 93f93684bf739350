//! The stages of all ranks of a call, carried out in memory by a tiny engine that moves one byte range at a time, in any order.

use super::*;
use crate::flow::{Action, AreaSpec, Origin, Part, StageSpec};
use crate::value::Location;

struct Stage {
    spec: StageSpec,
    input: Vec<u8>,
    areas: Vec<Vec<u8>>,
    /// Bytes that each intake has dealt with.
    taken: Vec<u64>,
}

impl Stage {
    fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Area(area) => &self.areas[area as usize],
            Part::Input(_) => &self.input,
        }
    }

    /// The bytes of a flow that can be pulled.
    fn offered(&self, to: u32) -> Vec<u8> {
        let Some(flow) = self.spec.flows.iter().find(|flow| flow.to == to) else { return Vec::new() };
        let total: u64 = flow.slices.iter().map(|slice| slice.len).sum();
        let followed = flow.follows.iter().map(|intake| flow.lead + self.taken[*intake as usize]).min();
        let ready = followed.unwrap_or(total).min(total) as usize;
        let bytes = flow
            .slices
            .iter()
            .flat_map(|slice| self.part(slice.part)[slice.start as usize..(slice.start + slice.len) as usize].to_vec());
        bytes.take(ready).collect()
    }

    /// Deals with one more byte of an intake.
    fn take(&mut self, intake: usize, byte: u8) {
        let mut at = self.taken[intake];
        self.taken[intake] += 1;
        for piece in self.spec.intakes[intake].pieces.clone() {
            if at >= piece.len {
                at -= piece.len;
                continue;
            }
            let place = (piece.start + at) as usize;
            let put = match piece.action {
                Action::Store => byte,
                Action::Numbers(_, combine) => {
                    assert_eq!(combine.divisor, 1, "a sum is not divided");
                    byte.wrapping_add(self.part(combine.with)[(combine.start + at) as usize])
                }
                other => panic!("no plan does {other:?}"),
            };
            self.areas[piece.area as usize][place] = put;
            return;
        }
        panic!("more bytes than pieces");
    }

    fn length(&self, intake: usize) -> u64 {
        self.spec.intakes[intake].pieces.iter().map(|piece| piece.len).sum()
    }

    fn is_done(&self) -> bool {
        (0..self.taken.len()).all(|intake| self.taken[intake] == self.length(intake))
    }
}

/// With inputs as they were given, or in the order in which they are used.
fn stages(call: &Call, order: &[u32], is_in_order: bool) -> Vec<Stage> {
    let size = order.len() as u32;
    let seats: Vec<(NodeId, String)> = (0..size).map(|rank| (NodeId(rank), format!("actor-{rank}"))).collect();
    let made = (0..size).map(|rank| {
        let mut input = brings(call, rank, size);
        let uses = uses(call, rank, order);
        if is_in_order && !uses.is_empty() {
            input = uses.iter().flat_map(|range| input[indices(range)].to_vec()).collect();
        }
        // Who is only told brings nothing.
        let at = Location { node: NodeId(rank), entry: 0, generation: 1, offset: 0, len: input.len() as u64 };
        let bare = call.kind == Kind::Broadcast && call.root != Some(rank) || input.is_empty();
        let given = (!bare).then_some(at);
        let ground = Ground { id: 7, rank, order, seats: &seats, input: given, is_in_order, patience_us: 1 };
        let spec = stage(call, &ground);
        spec.check().unwrap_or_else(|problem| panic!("{call} rank {rank} of {size}: {problem}"));
        let areas = spec.areas.iter().map(|area| vec![0xEE; area.len() as usize]).collect();
        let taken = vec![0; spec.intakes.len()];
        Stage { spec, input, areas, taken }
    });
    made.collect()
}

/// Runs all stages to their end; `pick` chooses which intake goes on, and by how much.
fn run(stages: &mut [Stage], mut pick: impl FnMut(usize) -> usize) {
    loop {
        let mut able = Vec::new();
        for (rank, stage) in stages.iter().enumerate() {
            for (index, intake) in stage.spec.intakes.iter().enumerate() {
                let from = match &intake.origin {
                    Origin::Flow { key, node } => {
                        assert_eq!((key.to, node.0), (rank as u32, key.from), "the stream is pulled from where it is");
                        stages[key.from as usize].offered(rank as u32)
                    }
                    Origin::Local { part, start } => stage.part(*part)[*start as usize..].to_vec(),
                };
                let at = stage.taken[index] as usize;
                let until = from.len().min(stage.length(index) as usize);
                if at < until {
                    able.push((rank, index, from[at..until].to_vec()));
                }
            }
        }
        if able.is_empty() {
            return;
        }
        let (rank, index, bytes) = able.swap_remove(pick(able.len()));
        let some = 1 + pick(bytes.len());
        bytes[..some].iter().for_each(|byte| stages[rank].take(index, *byte));
    }
}

/// What a rank has when its stage is over.
fn result(call: &Call, rank: u32, stage: &Stage) -> Vec<u8> {
    let is_output = |area: &AreaSpec| matches!(area, AreaSpec::Output { .. });
    match stage.spec.areas.iter().position(is_output) {
        Some(area) => stage.areas[area].clone(),
        // The root keeps what it brought.
        None if call.root == Some(rank) && call.kind == Kind::Broadcast => stage.input.clone(),
        None if call.root == Some(rank) && call.kind == Kind::Scatter => {
            let block = call.block_bytes() as usize;
            stage.input[rank as usize * block..(rank as usize + 1) * block].to_vec()
        }
        None => Vec::new(),
    }
}

fn check(call: &Call, order: &[u32], mut pick: impl FnMut(usize) -> usize) {
    for is_in_order in [false, true] {
        check_with(stages(call, order, is_in_order), call, order, &mut pick);
    }
}

fn check_with(mut stages: Vec<Stage>, call: &Call, order: &[u32], pick: impl FnMut(usize) -> usize) {
    run(&mut stages, pick);
    let size = order.len() as u32;
    for (rank, stage) in stages.iter().enumerate() {
        assert!(stage.is_done(), "{call}: rank {rank} of {size} in order {order:?} waits forever");
        assert_eq!(result(call, rank as u32, stage), gets(call, rank as u32, size), "{call}: rank {rank} of {size}");
    }
    for stage in &stages {
        for flow in &stage.spec.flows {
            let asked = |other: &&Stage| other.spec.id.slot == flow.to;
            let taker = stages.iter().find(asked).unwrap();
            let pulls = |origin: &Origin| matches!(origin, Origin::Flow { key, .. } if key.from == stage.spec.id.slot);
            let taken: u64 =
                (0..taker.taken.len()).filter(|i| pulls(&taker.spec.intakes[*i].origin)).map(|i| taker.length(i)).sum();
            assert_eq!(
                taken,
                flow.slices.iter().map(|slice| slice.len).sum::<u64>(),
                "every byte that is offered is taken"
            );
        }
    }
}

#[test]
fn stages_of_all_verbs_sizes_and_roots_do_what_the_verb_says() {
    for size in 2..=9 {
        let order: Vec<u32> = (0..size).collect();
        for kind in COLLECTIVE {
            let roots = if kind.has_root() { 0..size } else { 0..1 };
            for root in roots {
                // What has no bytes is small.
                for shape in shapes(kind, size).into_iter().filter(|shape| !shape.contains(&0)) {
                    let call = call(kind, root, &shape);
                    let mut turn = 0usize;
                    check(&call, &order, |most| {
                        turn += 7;
                        turn % most
                    });
                }
            }
        }
    }
}

#[test]
fn two_members_need_no_memory_beside_the_result_to_reduce() {
    for (size, areas) in [(2u32, 1), (3, 2)] {
        let order: Vec<u32> = (0..size).collect();
        let stages = stages(&call(Kind::AllReduce, 0, &[12]), &order, false);
        stages.iter().for_each(|stage| assert_eq!(stage.spec.areas.len(), areas, "of {size}"));
    }
}

#[test]
fn what_is_in_order_is_used_from_front_to_back() {
    for (kind, order) in [(Kind::AllReduce, [2, 0, 3, 1]), (Kind::ReduceScatter, [1, 3, 0, 2])] {
        let call = call(kind, 0, &[16]);
        for stage in stages(&call, &order, true) {
            let mut used = 0;
            let with = |piece: &crate::flow::Piece| match piece.action {
                Action::Numbers(_, combine) => Some((combine.start, piece.len)),
                _ => None,
            };
            let lead = stage.spec.flows[0].slices[0];
            let combined = stage.spec.intakes[0].pieces.iter().filter_map(with);
            for (start, len) in std::iter::once((lead.start, lead.len)).chain(combined) {
                assert_eq!(start, used, "{call}");
                used += len;
            }
            assert_eq!(used, 16, "{call}");
        }
    }
}

#[test]
fn a_mean_is_divided_once_for_every_element_that_is_kept() {
    for (kind, kept) in [(Kind::AllReduce, 12), (Kind::Reduce, 12), (Kind::ReduceScatter, 4)] {
        let mean = Call { op: Some(Op::Mean), ..call(kind, 0, &[12]) };
        let seats = vec![(NodeId(0), String::new()); 3];
        let at = Location { node: NodeId(0), entry: 0, generation: 1, offset: 0, len: 12 };
        let order = &[0, 1, 2];
        let ground =
            Ground { id: 7, rank: 0, order, seats: &seats, input: Some(at), is_in_order: true, patience_us: 1 };
        let spec = stage(&mean, &ground);
        let divided =
            |piece: &&crate::flow::Piece| matches!(piece.action, Action::Numbers(_, combine) if combine.divisor == 3);
        let pieces: Vec<_> = spec.intakes.iter().flat_map(|intake| &intake.pieces).filter(divided).collect();
        let bytes: u64 = pieces.iter().map(|piece| piece.len).sum();
        // Of a ring each rank divides the segment that is complete with it.
        assert_eq!(bytes, if kind == Kind::AllReduce { kept / 3 } else { kept }, "{mean}");
    }
}

proptest! {
    #[test]
    fn stages_work_in_any_order_of_ranks_and_bytes(
        kind in 0..COLLECTIVE.len(),
        order in (2u32..=9).prop_flat_map(|size| Just((0..size).collect::<Vec<u32>>()).prop_shuffle()),
        root in 0u32..9,
        length in 1u64..40,
        picks in proptest::collection::vec(any::<u16>(), 1..200),
    ) {
        let size = order.len() as u32;
        let kind = COLLECTIVE[kind];
        let length = if kind == Kind::ReduceScatter { length * u64::from(size) } else { length };
        let call = call(kind, root % size, &[length]);
        let mut turn = 0usize;
        check(&call, &order, |most| {
            turn += 1;
            usize::from(picks[turn % picks.len()]).wrapping_add(turn) % most
        });
    }
}
