//! Values arrive as they were sent, whatever their `serde` attributes leave out.
// expect: S { a: None, b: Some((7, 0)), c: 9 }
// expect: Circle { radius: 3 }
// expect: Flat { id: 1, rest: {"x": 2, "y": 3} }

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct S {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<(i32, i32)>,
    c: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Shape {
    Circle { radius: i32 },
    Square { side: i32 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    id: i32,
    #[serde(flatten)]
    rest: BTreeMap<String, i32>,
}

#[bireme::remote]
fn echo(value: S) -> S {
    value
}

#[bireme::remote]
fn shape(value: Shape) -> Shape {
    match value {
        Shape::Square { side } => Shape::Circle { radius: side },
        Shape::Circle { radius } => Shape::Square { side: radius },
    }
}

#[bireme::remote]
fn flat(value: Flat) -> Flat {
    value
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    println!("{:?}", echo::remote(S { a: None, b: Some((7, 0)), c: 9 }).get()?);
    println!("{:?}", shape::remote(Shape::Square { side: 3 }).get()?);
    let rest = BTreeMap::from([("x".to_owned(), 2), ("y".to_owned(), 3)]);
    println!("{:?}", flat::remote(Flat { id: 1, rest }).get()?);
    Ok(())
}
