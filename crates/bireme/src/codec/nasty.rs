//! Types that a format without names and kinds would change on the way.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::tests::stored;
use super::*;

/// The value after its way, and how it went.
fn sent<T: Value + Clone>(value: &T) -> (Result<T>, Encoding) {
    let packed = pack(value.clone()).unwrap();
    let encoding = if packed.encoded.head[0] == TAG_PLAIN { Encoding::Plain } else { Encoding::Described };
    (unpack(&stored(packed)), encoding)
}

#[track_caller]
fn survives<T: Value + Clone + PartialEq + Debug>(value: T) -> Encoding {
    let (came, encoding) = sent(&value);
    assert_eq!(came.unwrap(), value);
    encoding
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
struct Skips {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    a: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    b: Option<(u8, u8)>,
    c: u8,
}

#[test]
fn a_field_that_is_left_out_does_not_move_the_others() {
    survives(Skips { a: None, b: Some((7, 0)), c: 9 });
    survives(vec![Skips { a: Some(1), b: None, c: 9 }, Skips::default()]);
    survives((Skips { a: Some(1), b: Some((2, 3)), c: 4 }, "after".to_owned()));
}

proptest! {
    #[test]
    fn whatever_is_left_out_all_values_survive(all: Vec<(Option<u8>, Option<(u8, u8)>, u8)>) {
        let all: Vec<Skips> = all.into_iter().map(|(a, b, c)| Skips { a, b, c }).collect();
        prop_assert_eq!(sent(&all).0.unwrap(), all);
    }

    #[test]
    fn nested_options_and_units_survive_in_both_encodings(
        plain: Vec<Option<Option<Option<()>>>>, text: Option<String>, number: i128, float: f32, letter: char,
    ) {
        let value = (plain, text, number, (!float.is_nan()).then_some(float), letter);
        prop_assert_eq!(sent(&value).0.unwrap(), value.clone());
        let described = Tagged { kind: Skips::default(), value };
        prop_assert_eq!(sent(&described).0.unwrap(), described);
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Tagged<T> {
    kind: Skips,
    value: T,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged)]
enum Untagged {
    Number(u64),
    Text(String),
    Pair { x: i32, y: Option<i32> },
    Plain(Plain),
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Plain {
    Unit,
    One(u8),
    Two(u8, String),
    Named { a: bool, b: Vec<Plain> },
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "kind")]
enum Internal {
    Empty,
    Circle { radius: f64 },
    Whole(Point),
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Point {
    x: i64,
    #[serde(alias = "why", alias = "z")]
    y: i64,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Unit,
    One(u16),
    Two(u16, u16),
    Named { x: u16 },
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Flat {
    id: u32,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[test]
fn enums_that_are_known_by_their_contents_survive() {
    use Untagged::{Number, Pair, Text};
    let all = vec![Number(7), Text("seven".into()), Pair { x: -1, y: None }, Pair { x: 1, y: Some(2) }];
    assert_eq!(survives(all), Encoding::Described);
    survives(vec![Untagged::Plain(Plain::Unit), Untagged::Plain(Plain::Named { a: true, b: vec![Plain::One(1)] })]);
    assert_eq!(survives(Vec::<Untagged>::new()), Encoding::Described, "the type decides, not its first value");
    assert_eq!(survives(Internal::Empty), Encoding::Described);
    survives(vec![Internal::Circle { radius: 0.1 }, Internal::Whole(Point { x: 1, y: 2 })]);
    survives(vec![Adjacent::Unit, Adjacent::One(1), Adjacent::Two(1, 2), Adjacent::Named { x: 3 }]);
    survives((Adjacent::Unit, 7_u8, Adjacent::Unit, "end".to_owned()));
}

#[test]
fn flattened_fields_and_values_of_any_type_survive() {
    let rest = [("deep".to_owned(), json!({ "list": [1, -2, 3.5, null, "text", { "a": [] }] }))].into();
    let flat = Flat { id: 7, point: Point { x: 1, y: 2 }, rest };
    assert_eq!(survives(flat.clone()), Encoding::Described);
    survives(HashMap::from([(3_u8, vec![flat])]));
    assert_eq!(survives(json!({ "x": [true, null] })), Encoding::Described);
    survives(Some(vec![json!(1), json!("one")]));
}

#[test]
fn ordinary_types_stay_plain() {
    assert_eq!(survives((7_i64, "seven".to_owned(), vec![1.5_f64], Some('x'))), Encoding::Plain);
    assert_eq!(survives(Plain::Named { a: true, b: vec![Plain::Unit, Plain::Two(1, "b".into())] }), Encoding::Plain);
    assert_eq!(survives(Point { x: 1, y: 2 }), Encoding::Plain, "also with aliases");
    assert_eq!(survives(HashMap::from([(1_u32, Duration::from_millis(1_500))])), Encoding::Plain);
    assert_eq!(survives(NonZeroU8::MAX), Encoding::Plain);
    assert_eq!(survives(IpAddr::from([127, 0, 0, 1])), Encoding::Plain);
    assert_eq!(survives(Tree { value: 1, children: vec![Tree { value: 2, children: vec![] }] }), Encoding::Plain);
    assert_eq!(survives(vec![Ok::<u8, String>(1), Err("no".into())]), Encoding::Plain);
    assert_eq!(survives((1_u8, Array::from(vec![1.0_f32]))), Encoding::Plain);
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Tree {
    value: u8,
    children: Vec<Tree>,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Aliased {
    #[serde(alias = "First")]
    One,
    #[serde(alias = "Another")]
    Two(u8),
    Three,
}

#[test]
fn variants_with_other_names_survive() {
    assert_eq!(survives(vec![Aliased::One, Aliased::Two(2), Aliased::Three]), Encoding::Described);
}

/// Its length is not known before its end.
#[derive(Clone, Debug, PartialEq)]
struct Endless(Vec<u16>);

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq as _;
        let mut seq = serializer.serialize_seq(None)?;
        self.0.iter().try_for_each(|element| seq.serialize_element(element))?;
        seq.end()
    }
}

impl<'de> Deserialize<'de> for Endless {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self)
    }
}

/// It says another length than it has.
#[derive(Clone, Debug, PartialEq)]
struct Liar(Vec<u16>);

impl Serialize for Liar {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq as _;
        let mut seq = serializer.serialize_seq(Some(1))?;
        self.0.iter().try_for_each(|element| seq.serialize_element(element))?;
        seq.end()
    }
}

impl<'de> Deserialize<'de> for Liar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self)
    }
}

#[test]
fn lists_of_unknown_or_wrong_length_survive() {
    for elements in [vec![], vec![1], vec![1, 2, 300]] {
        survives(Endless(elements.clone()));
        survives((Liar(elements), 7_u8));
    }
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
struct WritesLess {
    #[serde(skip_serializing, default)]
    a: u8,
    b: u8,
    c: u8,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
struct ReadsLess {
    #[serde(skip_deserializing)]
    a: u8,
    b: u8,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
struct ReadsOthers {
    #[serde(skip_deserializing)]
    a: u8,
    b: u8,
    #[serde(skip_serializing, default)]
    c: u8,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum SkipsVariant {
    One,
    #[serde(skip_deserializing)]
    Two,
    Three,
    Four,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(into = "u32", from = "u64")]
struct Asymmetric(u32);

impl From<Asymmetric> for u32 {
    fn from(value: Asymmetric) -> u32 {
        value.0
    }
}

impl From<u64> for Asymmetric {
    fn from(value: u64) -> Self {
        Self(value as u32)
    }
}

/// Comes back as it went, or as an error that names the type; never as another value.
#[track_caller]
fn is_never_another<T: Value + Clone + PartialEq + Debug>(values: &[T]) {
    for value in values {
        match sent(value).0 {
            Ok(came) => assert_eq!(came, *value),
            Err(error) => assert!(error.to_string().contains(type_name::<T>()), "{error}"),
        }
        let following = (value.clone(), 1_u8, vec![2_u8, 3]);
        if let Ok(came) = sent(&following).0 {
            assert_eq!(came, following);
        }
    }
}

#[test]
fn types_that_write_something_else_than_they_read_are_refused_by_name() {
    is_never_another(&[WritesLess { a: 0, b: 1, c: 2 }, WritesLess::default()]);
    is_never_another(&[ReadsLess { a: 1, b: 0 }, ReadsLess { a: 1, b: 2 }]);
    is_never_another(&[ReadsOthers { a: 1, b: 2, c: 0 }, ReadsOthers { a: 0, b: 0, c: 0 }]);
    is_never_another(&[SkipsVariant::One, SkipsVariant::Two, SkipsVariant::Three, SkipsVariant::Four]);
    is_never_another(&[Asymmetric(7), Asymmetric(70_000)]);
    let error = sent(&ReadsLess { a: 1, b: 2 }).0.unwrap_err().to_string();
    assert!(error.contains("ReadsLess") && error.contains("skip fields and variants in both directions"), "{error}");
}
