//! Steps of rotations.

use super::*;

const HEAD: NodeId = NodeId::HEAD;
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const DAY: u64 = 86_400;

#[derive(Default)]
struct Fixture {
    rotation: Rotation,
    now: u64,
}

impl Fixture {
    fn begun() -> Self {
        let mut fixture = Self { now: 1_000, ..Self::default() };
        assert_eq!(fixture.step(Event::Asked { overlap_s: DAY }), [Effect::EpochBegan]);
        fixture
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.rotation.step(event, self.now, &mut effects);
        effects
    }

    fn look(&mut self, members: &[(NodeId, u64)], old_left: usize) -> Vec<Effect> {
        self.step(Event::Looked { members: members.to_vec(), old_left })
    }

    fn stage(&self) -> Option<Stage> {
        self.rotation.under_way().map(|under_way| under_way.stage)
    }

    fn behind(&self) -> &[NodeId] {
        self.rotation.under_way().map_or(&[], |under_way| &under_way.behind)
    }
}

const DONE: [Effect; 2] = [Effect::Retire, Effect::EpochBegan];

#[test]
fn nothing_happens_without_a_rotation() {
    let mut fixture = Fixture::default();
    assert!(fixture.look(&[(HEAD, 0)], 0).is_empty() && fixture.step(Event::Started).is_empty());
    assert_eq!((fixture.rotation.epoch(), fixture.rotation.token_epoch()), (0, None));
    let refused = fixture.step(Event::FinishAsked { force: true });
    assert_eq!(refused, [Effect::Refuse(Refusal::NotUnderWay)]);
}

#[test]
fn nobody_shows_a_new_certificate_before_all_that_are_there_trust_it() {
    let mut fixture = Fixture::begun();
    assert_eq!((fixture.rotation.epoch(), fixture.stage()), (1, Some(Stage::Announced)));
    assert!(fixture.look(&[(HEAD, 1), (N2, 0), (N3, 1)], 2).is_empty());
    assert_eq!(fixture.behind(), [N2]);
    // The head has to trust it too.
    assert!(fixture.look(&[(HEAD, 0), (N2, 1), (N3, 1)], 2).is_empty());
    assert_eq!(fixture.look(&[(HEAD, 1), (N2, 1), (N3, 1)], 2), [Effect::EpochBegan]);
    assert_eq!((fixture.rotation.epoch(), fixture.stage()), (2, Some(Stage::Issued)));
    assert_eq!(fixture.behind(), [HEAD, N2, N3]);
}

#[test]
fn the_old_authority_goes_when_nothing_of_it_is_left() {
    let mut fixture = Fixture::begun();
    fixture.look(&[(HEAD, 1), (N2, 1)], 1);
    assert!(fixture.look(&[(HEAD, 2), (N2, 1)], 0).is_empty(), "one that is there has not followed");
    assert!(fixture.look(&[(HEAD, 2), (N2, 2)], 1).is_empty(), "one that is away has a certificate");
    assert_eq!(fixture.look(&[(HEAD, 2), (N2, 2)], 0), DONE);
    assert_eq!((fixture.rotation.epoch(), fixture.stage()), (3, None));
    assert!(fixture.look(&[(HEAD, 2), (N2, 2)], 0).is_empty(), "once");
}

#[test]
fn the_old_authority_goes_when_the_overlap_is_over_and_who_has_not_followed_is_expelled() {
    let mut fixture = Fixture::begun();
    fixture.look(&[(HEAD, 1), (N2, 1), (N3, 1)], 3);
    fixture.now += DAY - 1;
    assert!(fixture.look(&[(HEAD, 2), (N2, 2), (N3, 1)], 3).is_empty());
    fixture.now += 1;
    assert!(fixture.look(&[(HEAD, 1), (N2, 2), (N3, 1)], 3).is_empty(), "not before the head itself");
    let effects = fixture.look(&[(HEAD, 2), (N2, 2), (N3, 1)], 3);
    assert_eq!(effects, [Effect::Retire, Effect::Expel { node: N3 }, Effect::EpochBegan]);
}

#[test]
fn a_member_that_does_not_follow_keeps_the_others_for_half_of_the_overlap_at_most() {
    let mut fixture = Fixture::begun();
    fixture.now += DAY / 2 - 1;
    assert!(fixture.look(&[(HEAD, 1), (N2, 0)], 1).is_empty());
    fixture.now += 1;
    assert_eq!(fixture.look(&[(HEAD, 1), (N2, 0)], 1), [Effect::EpochBegan]);
}

#[test]
fn a_user_who_wants_it_finished_waits_for_those_that_are_there_alone() {
    let mut fixture = Fixture::begun();
    fixture.look(&[(HEAD, 1), (N2, 1)], 5);
    assert!(fixture.step(Event::FinishAsked { force: false }).is_empty());
    assert!(fixture.look(&[(HEAD, 2), (N2, 1)], 5).is_empty());
    assert_eq!(fixture.behind(), [N2]);
    assert_eq!(fixture.look(&[(HEAD, 2), (N2, 2)], 5), DONE);
}

#[test]
fn by_force_those_that_are_there_have_a_moment_for_each_step() {
    let mut fixture = Fixture::begun();
    assert!(fixture.step(Event::FinishAsked { force: true }).is_empty());
    assert!(fixture.look(&[(HEAD, 1), (N2, 0)], 1).is_empty());
    fixture.now += FORCED_S / 2;
    assert_eq!(fixture.look(&[(HEAD, 1), (N2, 0)], 1), [Effect::EpochBegan]);
    fixture.now += FORCED_S / 2 - 1;
    assert!(fixture.look(&[(HEAD, 2), (N2, 0)], 1).is_empty());
    fixture.now += 1;
    let effects = fixture.look(&[(HEAD, 2), (N2, 0)], 1);
    assert_eq!(effects, [Effect::Retire, Effect::Expel { node: N2 }, Effect::EpochBegan]);
}

#[test]
fn one_rotation_at_a_time() {
    let mut fixture = Fixture::begun();
    let before = fixture.rotation.clone();
    assert_eq!(fixture.step(Event::Asked { overlap_s: 5 }), [Effect::Refuse(Refusal::UnderWay)]);
    assert_eq!(fixture.rotation, before);
    fixture.look(&[(HEAD, 1)], 0);
    assert_eq!(fixture.look(&[(HEAD, 2)], 0), DONE);
    assert_eq!(fixture.step(Event::Asked { overlap_s: DAY }), [Effect::EpochBegan]);
    assert_eq!(fixture.rotation.epoch(), 4);
}

#[test]
fn a_head_that_was_away_longer_than_the_overlap_gives_members_time_to_come_back() {
    let mut fixture = Fixture::begun();
    fixture.now += 2 * DAY;
    fixture.step(Event::Started);
    assert_eq!(fixture.look(&[(HEAD, 1)], 2), [Effect::EpochBegan], "whoever comes now renews before it joins");
    assert!(fixture.look(&[(HEAD, 2)], 0).is_empty(), "nor because nobody is there yet");
    fixture.now += RETURN_S - 1;
    assert!(fixture.look(&[(HEAD, 2), (N2, 2)], 1).is_empty());
    fixture.now += 1;
    assert_eq!(fixture.look(&[(HEAD, 2), (N2, 2)], 1), DONE);
}

#[test]
fn a_step_that_came_late_leaves_time_for_the_next_one() {
    let mut fixture = Fixture::begun();
    fixture.now += 2 * DAY;
    assert_eq!(fixture.look(&[(HEAD, 1), (N2, 1)], 1), [Effect::EpochBegan]);
    assert!(fixture.look(&[(HEAD, 2), (N2, 1)], 1).is_empty());
    fixture.now += FORCED_S / 2;
    assert_eq!(fixture.look(&[(HEAD, 2), (N2, 2)], 1), DONE);
}

#[test]
fn an_overlap_is_never_too_short_to_follow() {
    let mut fixture = Fixture { now: 50, ..Fixture::default() };
    fixture.step(Event::Asked { overlap_s: 0 });
    assert!(fixture.look(&[(HEAD, 1), (N2, 0)], 1).is_empty());
    assert_eq!(fixture.rotation.under_way().map(|under_way| under_way.until), Some(50 + OVERLAP_MIN_S));
}

#[test]
fn what_is_old_is_told_by_its_epoch() {
    let mut fixture = Fixture::begun();
    assert_eq!((fixture.rotation.token_epoch(), fixture.rotation.certificate_epoch()), (Some(1), Some(2)));
    fixture.look(&[(HEAD, 1)], 1);
    assert_eq!((fixture.rotation.token_epoch(), fixture.rotation.certificate_epoch()), (Some(1), Some(2)));
}
