//! Chains and trees that form by themselves, what losses do to them, and that every want ends.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const SOURCE: NodeId = NodeId(1);

fn place(node: NodeId) -> Location {
    Location { node, entry: 7, generation: 1, offset: 0, len: 1 << 20 }
}

fn of() -> Location {
    place(SOURCE)
}

/// A directory for one object, whose first place is with [`SOURCE`].
#[derive(Default)]
struct Office {
    directory: Directory,
    answers: Vec<Answer>,
    source_is_gone: bool,
}

impl Office {
    fn want(&mut self, node: u32, lost: Option<LostSender>) -> Vec<(u32, Option<u32>)> {
        let want = Want { node: NodeId(node), number: u64::from(node), name: of(), lost };
        let source = (!self.source_is_gone).then_some((SOURCE, of()));
        self.directory.want(of(), source, want, &mut self.answers);
        self.take()
    }

    fn made(&mut self, node: u32) -> Vec<(u32, Option<u32>)> {
        self.directory.made(of(), NodeId(node), place(NodeId(node)), &mut self.answers);
        self.take()
    }

    fn died(&mut self, node: u32) -> Vec<(u32, Option<u32>)> {
        self.source_is_gone |= node == SOURCE.0;
        self.directory.node_died(NodeId(node), &mut self.answers);
        self.take()
    }

    /// Who was told to fetch from whom, or that there is nobody.
    fn take(&mut self) -> Vec<(u32, Option<u32>)> {
        let answers = std::mem::take(&mut self.answers).into_iter();
        answers.map(|answer| (answer.node.0, answer.from.ok().map(|source| source.node.0))).collect()
    }
}

fn broken(node: u32) -> Option<LostSender> {
    Some(LostSender { node: NodeId(node), is_useless: false })
}

fn useless(node: u32) -> Option<LostSender> {
    Some(LostSender { node: NodeId(node), is_useless: true })
}

#[test]
fn those_who_want_it_together_form_a_chain() {
    let mut office = Office::default();
    for node in 2..=16 {
        assert_eq!(office.want(node, None), [(node, Some(node - 1))]);
    }
    for node in 2..=16 {
        assert_eq!(office.made(node), []);
    }
    assert_eq!(office.directory.len(), 0, "nothing moves any more");
}

#[test]
fn complete_copies_that_are_free_are_preferred_and_named_by_their_place() {
    let mut office = Office::default();
    office.want(2, None);
    office.want(3, None);
    office.made(2);
    let want = Want { node: NodeId(4), number: 9, name: of(), lost: None };
    office.directory.want(of(), [(SOURCE, of())], want, &mut office.answers);
    let from = CopySource { node: SOURCE, at: of(), is_complete: true };
    assert_eq!(office.answers, [Answer { node: NodeId(4), number: 9, from: Ok(from) }]);
    office.answers.clear();
    // Both are busy with one each: the newest part is free.
    office.directory.want(of(), [], Want { node: NodeId(5), ..want }, &mut office.answers);
    let from = CopySource { node: NodeId(3), at: of(), is_complete: false };
    assert_eq!(office.answers[0].from, Ok(from));
}

#[test]
fn who_loses_its_sender_goes_on_with_another_above_it_and_keeps_those_below() {
    let mut office = Office::default();
    for node in 2..=5 {
        office.want(node, None);
    }
    // 2 is in doubt, so the source may be asked at once, and nobody below 3 is.
    assert_eq!(office.want(3, broken(2)), [(3, Some(1))]);
    assert_eq!(office.died(2), []);
    assert_eq!(office.want(6, None), [(6, Some(5))]);
}

#[test]
fn a_sender_without_it_is_asked_again_only_when_it_has_all() {
    let mut office = Office::default();
    office.want(2, None);
    office.want(3, None);
    // Another one is not made to wait for it, but the source is the only one left.
    assert_eq!(office.want(3, useless(2)), [(3, Some(1))]);
    assert_eq!(office.want(3, useless(1)), [(3, None)]);
    assert_eq!(office.want(3, useless(1)), [(3, Some(2))], "a want anew has no memory of the last one");
    assert_eq!(office.made(2), []);
}

#[test]
fn all_who_wait_are_told_when_the_last_complete_copy_is_gone() {
    let mut office = Office::default();
    for node in 2..=4 {
        office.want(node, None);
    }
    // They have parts of it, and say themselves that they get no more.
    assert_eq!(office.died(1), []);
    assert_eq!(office.want(2, broken(1)), [(2, None)]);
    // What was below it may have all of it, until it says otherwise.
    assert_eq!(office.want(4, broken(3)), [(4, Some(3))]);
    assert_eq!(office.want(3, useless(2)), [(3, None)]);
    assert_eq!(office.want(4, useless(3)), [(4, None)]);
    assert_eq!(office.directory.len(), 0);
}

#[test]
fn the_last_who_got_it_from_a_dead_node_serves_the_others() {
    let mut office = Office::default();
    office.want(2, None);
    office.want(3, None);
    assert_eq!(office.died(1), []);
    assert_eq!(office.made(2), []);
    assert_eq!(office.want(3, broken(2)), [(3, Some(2))]);
}

#[test]
fn what_is_freed_ends_for_all_who_were_getting_it() {
    let mut office = Office::default();
    office.want(2, None);
    office.want(3, None);
    office.directory.freed(of(), &mut office.answers);
    assert_eq!(office.take(), [(2, None), (3, None)]);
    assert_eq!(office.directory.len(), 0);
}

#[test]
fn who_was_getting_it_goes_on_when_it_moves_to_another_node() {
    let mut office = Office::default();
    office.want(2, None);
    office.want(3, None);
    office.made(2);
    office.died(1);
    let at = place(NodeId(2));
    office.directory.moved(of(), at, &mut office.answers);
    let want = Want { node: NodeId(4), number: 4, name: at, lost: None };
    office.directory.want(at, [], want, &mut office.answers);
    assert_eq!(office.take(), [(4, Some(3))], "the one who gets it from 2 is known at the new place");
    office.directory.made(at, NodeId(3), place(NodeId(3)), &mut office.answers);
    office.directory.dropped(at, NodeId(4), &mut office.answers);
    assert_eq!(office.directory.len(), 0);
}

/// What a node of the property test is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Asking,
    Getting(u32),
    Having,
    Dead,
}

/// Nodes that behave as real ones do towards the directory.
struct World {
    office: Office,
    doing: Vec<Doing>,
    numbers: Vec<u64>,
}

impl World {
    fn new(nodes: usize) -> Self {
        let mut doing = vec![Doing::Nothing; nodes + 1];
        (doing[0], doing[1]) = (Doing::Dead, Doing::Having);
        Self { office: Office::default(), doing, numbers: vec![0; nodes + 1] }
    }

    fn want(&mut self, node: u32, lost: Option<LostSender>) {
        let complete = self.doing.iter().enumerate().filter(|(_, doing)| **doing == Doing::Having);
        let complete: Vec<_> = complete.map(|(at, _)| (NodeId(at as u32), place(NodeId(at as u32)))).collect();
        if lost.is_none() {
            self.numbers[node as usize] += 1;
        }
        self.doing[node as usize] = Doing::Asking;
        let want = Want { node: NodeId(node), number: self.numbers[node as usize], name: of(), lost };
        self.office.directory.want(of(), complete, want, &mut self.office.answers);
        self.hear();
    }

    fn hear(&mut self) {
        for answer in std::mem::take(&mut self.office.answers) {
            let node = answer.node.0 as usize;
            if self.doing[node] != Doing::Asking || self.numbers[node] != answer.number {
                continue;
            }
            self.doing[node] = match answer.from {
                Ok(source) if source.node == answer.node => Doing::Having,
                Ok(source) => Doing::Getting(source.node.0),
                Err(_) => Doing::Nothing,
            };
            if self.doing[node] == Doing::Nothing {
                self.office.directory.dropped(of(), answer.node, &mut self.office.answers);
            }
        }
        if !self.office.answers.is_empty() {
            self.hear();
        }
    }

    /// A transfer gets a little further. Says whether anything changed.
    fn progress(&mut self, node: u32) -> bool {
        let Doing::Getting(from) = self.doing[node as usize] else { return false };
        match self.doing[from as usize] {
            Doing::Having => {
                self.doing[node as usize] = Doing::Having;
                self.office.directory.made(of(), NodeId(node), place(NodeId(node)), &mut self.office.answers);
                self.hear();
            }
            Doing::Dead => self.want(node, broken(from)),
            Doing::Nothing => self.want(node, useless(from)),
            Doing::Asking | Doing::Getting(_) => return false,
        }
        true
    }

    fn act(&mut self, what: u8, node: u32) {
        match (what, self.doing[node as usize]) {
            (0..=3, Doing::Nothing) => self.want(node, None),
            (4..=6, Doing::Getting(_)) => drop(self.progress(node)),
            (7, Doing::Getting(from)) => self.want(node, broken(from)),
            // It had waited too long for it to begin.
            (8, Doing::Getting(from)) => self.want(node, useless(from)),
            (9, Doing::Getting(_) | Doing::Having | Doing::Asking) if node != 1 => {
                self.doing[node as usize] = Doing::Nothing;
                self.office.directory.dropped(of(), NodeId(node), &mut self.office.answers);
                self.hear();
            }
            (10, Doing::Dead) => {}
            (10, _) => {
                self.doing[node as usize] = Doing::Dead;
                self.office.directory.node_died(NodeId(node), &mut self.office.answers);
                self.hear();
            }
            _ => {}
        }
    }

    /// Nobody gets it from itself, through whomever.
    fn has_circle(&self) -> bool {
        (1..self.doing.len()).any(|start| {
            let mut at = start;
            for _ in 0..self.doing.len() {
                match self.doing[at] {
                    Doing::Getting(from) => at = from as usize,
                    _ => return false,
                }
            }
            true
        })
    }
}

proptest! {
    #[test]
    fn every_want_ends_and_nobody_waits_in_a_circle(
        steps in prop::collection::vec((0u8..11, 1u32..9), 1..120),
    ) {
        let mut world = World::new(8);
        for (what, node) in steps {
            world.act(what, node);
            prop_assert!(!world.has_circle(), "{:?}", world.doing);
        }
        while (1..=8).any(|node| world.progress(node)) {
            prop_assert!(!world.has_circle(), "{:?}", world.doing);
        }
        let ended = |doing: &Doing| matches!(doing, Doing::Nothing | Doing::Having | Doing::Dead);
        prop_assert!(world.doing.iter().all(ended), "{:?} in {:?}", world.doing, world.office.directory);
        prop_assert_eq!(world.office.directory.len(), 0);
    }

    #[test]
    fn without_losses_every_node_sends_to_one_at_a_time(order in Just((2u32..40).collect::<Vec<_>>()).prop_shuffle()) {
        let mut world = World::new(40);
        for (at, node) in order.iter().enumerate() {
            world.want(*node, None);
            if at % 3 == 0 {
                world.progress(order[at / 2]);
            }
            let getting = world.doing.iter().filter_map(|doing| match doing {
                Doing::Getting(from) => Some(*from),
                _ => None,
            });
            let (all, distinct): (Vec<u32>, BTreeSet<u32>) = (getting.clone().collect(), getting.collect());
            prop_assert_eq!(all.len(), distinct.len());
            prop_assert!(!world.doing.contains(&Doing::Asking), "nobody has to wait");
        }
    }
}
