//! Values and errors on their way to a task and back.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use bireme::{Error, Failure, ObjectRef};
use serde::{Deserialize, Serialize};
use serde_json::json;

fn start() -> bireme::Context {
    bireme::init_with(bireme::Config::default().cpus(2.0)).unwrap()
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Skips {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    a: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    b: Option<(u8, u8)>,
    c: u8,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged)]
enum Anything {
    Number(i64),
    Words(Vec<String>),
}

#[bireme::remote]
fn pass_on(
    skips: Skips,
    between: i64,
    anything: Vec<Anything>,
    json: serde_json::Value,
) -> (Skips, i64, Vec<Anything>, serde_json::Value) {
    (skips, between, anything, json)
}

#[bireme::remote]
fn keep(skips: Skips) -> Skips {
    skips
}

/// A reference in a value that is written with names.
#[derive(Serialize, Deserialize, Clone)]
struct Holds {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    nothing: Option<u8>,
    reference: ObjectRef<String>,
}

#[bireme::remote]
fn read_inside(holds: Holds) -> bireme::Result<String> {
    holds.reference.get()
}

#[test]
fn values_that_leave_fields_out_arrive_as_they_were() {
    let _context = start();
    let skips = Skips { a: None, b: Some((7, 0)), c: 9 };
    assert_eq!(keep::remote(skips.clone()).get().unwrap(), skips);
    let put = bireme::put(skips.clone()).unwrap();
    assert_eq!(keep::remote(&put).get().unwrap(), skips);
    assert_eq!(put.get().unwrap(), skips);
    let anything = vec![Anything::Words(vec!["a".into()]), Anything::Number(-1)];
    let json = json!({ "deep": [1, null, { "x": 0.5 }], "long": "y".repeat(100_000) });
    let sent = (skips, 5, anything, json);
    let (a, b, c, d) = sent.clone();
    assert_eq!(pass_on::remote(a, b, c, d).get().unwrap(), sent);
}

#[test]
fn references_inside_such_values_stay_valid() {
    let _context = start();
    let holds = Holds { nothing: None, reference: bireme::put("ahoy".to_owned()).unwrap() };
    assert_eq!(read_inside::remote(holds.clone()).get().unwrap(), "ahoy");
    let outer = bireme::put(holds).unwrap();
    assert_eq!(read_inside::remote(outer.clone()).get().unwrap(), "ahoy");
    assert_eq!(outer.get().unwrap().reference.get().unwrap(), "ahoy");
}

type Res<T> = Result<T, String>;
type Odd = std::result::Result<u8, std::fmt::Error>;
type Pairs<T> = Result<Vec<(T, T)>, String>;

/// Called so, and none.
mod own {
    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    pub enum Result<T> {
        Good(T),
        Bad,
    }
}

#[bireme::remote(retries = 0)]
fn check(n: i64) -> Res<i64> {
    if n < 0 { Err(format!("{n} is below zero")) } else { Ok(n) }
}

#[bireme::remote(retries = 0)]
fn odd() -> Odd {
    Err(std::fmt::Error)
}

#[bireme::remote]
fn pairs() -> Pairs<i64> {
    Ok(vec![(1, 2)])
}

#[bireme::remote]
fn own_result(good: bool) -> own::Result<i64> {
    if good { own::Result::Good(1) } else { own::Result::Bad }
}

#[bireme::remote(stream)]
fn count(until: i64) -> impl Iterator<Item = Res<i64>> {
    (0..).map(move |n| if n < until { Ok(n) } else { Err("too far".to_owned()) })
}

pub struct Bank(i64);

type Made = Result<Bank, String>;

#[bireme::actor]
impl Bank {
    pub fn new(start: i64) -> Made {
        if start < 0 { Err("no debts".to_owned()) } else { Ok(Bank(start)) }
    }

    pub fn take(&mut self, n: i64) -> Res<i64> {
        self.0 = self.0.checked_sub(n).filter(|left| *left >= 0).ok_or("too much")?;
        Ok(self.0)
    }
}

#[track_caller]
fn fails_with<T: std::fmt::Debug>(result: bireme::Result<T>, text: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::Returned { .. })), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn a_result_under_another_name_is_a_result() {
    let _context = start();
    let good: ObjectRef<i64> = check::remote(3);
    assert_eq!(good.get().unwrap(), 3);
    fails_with(check::remote(-3).get(), "-3 is below zero");
    fails_with(odd::remote().get(), "an error occurred");
    let pairs: ObjectRef<Vec<(i64, i64)>> = pairs::remote();
    assert_eq!(pairs.get().unwrap(), [(1, 2)]);
    let own: ObjectRef<own::Result<i64>> = own_result::remote(false);
    assert_eq!(own.get().unwrap(), own::Result::Bad);
    assert_eq!(own_result::remote(true).get().unwrap(), own::Result::Good(1));
    let mut stream = count::remote(2);
    assert_eq!(stream.next().unwrap().get().unwrap(), 0);
    assert_eq!(stream.next().unwrap().get().unwrap(), 1);
    fails_with(stream.next().unwrap().get(), "too far");
}

#[test]
fn actors_may_name_their_results_too() {
    let _context = start();
    let bank = Bank::remote(5);
    assert_eq!(bank.take(3).get().unwrap(), 2);
    fails_with(bank.take(3).get(), "too much");
    let error = Bank::remote(-1).take(1).get().unwrap_err();
    assert!(error.to_string().contains("no debts"), "{error}");
}

#[test]
fn the_longest_timeout_is_for_ever() {
    let _context = start();
    assert_eq!(keep_number::remote(1).get_timeout(Duration::MAX).unwrap(), 1);
    let both = [keep_number::remote(1), keep_number::remote(2)];
    let (ready, _) = bireme::wait(&both, 2, Some(Duration::MAX)).unwrap();
    assert_eq!(ready.len(), 2);
}

#[bireme::remote]
fn keep_number(n: i64) -> i64 {
    n
}

#[test]
fn an_object_store_beyond_all_machines_is_refused() {
    for bytes in [u64::MAX, u64::MAX - 4096, 1 << 60] {
        let Err(error) = bireme::init_with(bireme::Config::default().object_store_memory(bytes)) else {
            panic!("it started")
        };
        assert!(matches!(error, Error::BadArgument(_)), "{error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
    }
}
