//! Specs that make sense pass, and each kind of nonsense is named.

use super::*;

fn stage() -> StageSpec {
    let id = StageId { id: 7, epoch: 0, slot: 1 };
    let input = Location { node: NodeId(1), entry: 0, generation: 0, offset: 0, len: 100 };
    let combine = Combine { with: Part::Input(0), start: 0, op: Op::Sum, divisor: 1 };
    let piece = Piece { area: 0, start: 0, len: 100, action: Action::Numbers(Number::F32, combine) };
    let key = FlowKey { id: 7, epoch: 0, from: 0, to: 1 };
    let origin = Origin::Flow { node: NodeId(2), key };
    let slice = Slice { part: Part::Area(0), start: 0, len: 100 };
    StageSpec {
        inputs: vec![input],
        areas: vec![AreaSpec::Output { len: 100, head: Vec::new() }],
        intakes: vec![IntakeSpec { origin, pieces: vec![piece], after: None, who: String::new() }],
        flows: vec![FlowSpec { to: 2, slices: vec![slice], lead: 0, follows: vec![0] }],
        ..StageSpec::new(id)
    }
}

#[test]
fn a_stage_that_makes_sense_passes_and_is_read_back() {
    let stage = stage();
    assert_eq!(stage.check(), Ok(()));
    let bytes = postcard::to_allocvec(&stage).unwrap();
    assert_eq!(postcard::from_bytes::<StageSpec>(&bytes).unwrap(), stage);
    assert_eq!(stage.flow_key(2).sender(), stage.id);
}

/// How to spoil a stage.
type Spoil = fn(&mut StageSpec);

#[test]
fn each_kind_of_nonsense_is_named() {
    let spoilt: [(&str, Spoil); 13] = [
        ("beyond the 100", |stage| stage.intakes[0].pieces[0].start = 4),
        ("beyond the 100", |stage| stage.flows[0].slices[0].start = u64::MAX),
        ("not a whole number", |stage| stage.intakes[0].pieces[0].len = 99),
        ("is not there", |stage| stage.intakes[0].pieces[0].area = 1),
        ("not there", |stage| stage.flows[0].follows = vec![1]),
        ("wait forever", |stage| {
            let piece = stage.intakes[0].pieces[0];
            stage.intakes[0].pieces.clear();
            let origin = Origin::Local { part: Part::Input(0), start: 0 };
            stage.intakes.push(IntakeSpec { origin, pieces: vec![piece], after: None, who: String::new() });
        }),
        ("only 40 of the 100", |stage| stage.intakes[0].pieces[0].len = 40),
        ("written twice", |stage| {
            let twice = stage.intakes[0].clone();
            stage.intakes.push(twice);
        }),
        ("other places", |stage| {
            let later = IntakeSpec { after: Some(0), pieces: Vec::new(), ..stage.intakes[0].clone() };
            stage.intakes.push(later);
        }),
        ("not before it", |stage| stage.intakes[0].after = Some(0)),
        ("two flows", |stage| {
            let twice = stage.flows[0].clone();
            stage.flows.push(twice);
        }),
        ("another operation", |stage| stage.id.slot = 5),
        ("shorter than its first bytes", |stage| stage.areas[0] = AreaSpec::Output { len: 100, head: vec![0; 102] }),
    ];
    for (expected, spoil) in spoilt {
        let mut stage = stage();
        spoil(&mut stage);
        let error = stage.check().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_area_is_empty_when_it_has_no_bytes() {
    assert!(AreaSpec::Scratch { len: 0 }.is_empty());
    assert!(!AreaSpec::Scratch { len: 1 }.is_empty());
}
