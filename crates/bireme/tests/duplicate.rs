//! A program in which two remote functions cannot be told apart does not start.
#![allow(clippy::unwrap_used, missing_docs)]

use std::any::TypeId;

use bireme::Error;
use bireme::private::{Failure, Function, Identity, Invocation, inventory};

enum Item {}

const SIGNATURE: &str = "duplicate::same() -> i64";

fn run(_: &mut Invocation<'_>) -> Result<(), Failure> {
    Ok(())
}

const fn function(place: &'static str) -> Function {
    let identity = Identity::new(SIGNATURE, TypeId::of::<Item>());
    Function { identity, signature: SIGNATURE, place, name: "same", run }
}

inventory::submit! { function("here.rs:1:1") }
inventory::submit! { function("there.rs:2:2") }

#[test]
fn two_functions_with_one_key_are_refused_at_the_start() {
    let Err(error) = bireme::init() else { panic!("it started") };
    let text = error.to_string();
    assert!(matches!(error, Error::DuplicateFunction { .. }), "{text}");
    assert!(text.contains("same() -> i64 at here.rs:1:1") && text.contains("there.rs:2:2"), "{text}");
}
