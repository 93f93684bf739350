//! Tasks as users write them: values, references, several results, errors, options. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bireme::{Context, Error, Failure, ObjectRef};
use serde::{Deserialize, Serialize};

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0).resource("oar", 4.0)).unwrap()
}

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

#[bireme::remote]
fn join(words: Vec<String>, mut with: String) -> String {
    with.push(' ');
    words.join(&with)
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
struct Point {
    x: f64,
    tags: BTreeMap<String, Option<u8>>,
}

#[bireme::remote]
fn shift(point: Point, by: f64) -> Point {
    Point { x: point.x + by, ..point }
}

#[test]
fn a_remote_function_runs_elsewhere_and_can_still_be_called_here() {
    let _context = start();
    assert_eq!(square(3), 9);
    assert_eq!(square::remote(4).get().unwrap(), 16);
    let point = Point { x: 1.0, tags: [("a".to_owned(), Some(1)), ("b".to_owned(), None)].into() };
    let moved = shift::remote(point.clone(), 0.5).get().unwrap();
    assert_eq!(moved, Point { x: 1.5, ..point });
}

#[test]
fn references_are_arguments_by_value_and_by_borrow() {
    let _context = start();
    let x = bireme::put(3).unwrap();
    let once = square::remote(&x);
    let twice = square::remote(&once);
    let thrice = square::remote(twice.clone());
    assert_eq!((once.get().unwrap(), twice.get().unwrap(), thrice.get().unwrap()), (9, 81, 6561));
    let words = bireme::put(vec!["row".to_owned(), "row".to_owned()]).unwrap();
    assert_eq!(join::remote(words, ",").get().unwrap(), "row, row");
}

#[bireme::remote]
fn sum(parts: Vec<ObjectRef<i64>>) -> bireme::Result<i64> {
    Ok(bireme::get_all(&parts)?.iter().sum())
}

#[bireme::remote]
fn spread(n: i64) -> Vec<ObjectRef<i64>> {
    (0..n).map(square::remote).collect()
}

#[test]
fn references_inside_values_travel_as_references_both_ways() {
    let _context = start();
    let parts: Vec<_> = (1..=3).map(square::remote).collect();
    assert_eq!(sum::remote(parts).get().unwrap(), 14);
    let inner = spread::remote(4).get().unwrap();
    assert_eq!(bireme::get_all(&inner).unwrap(), [0, 1, 4, 9]);
    assert_eq!(sum::remote(spread::remote(5)).get().unwrap(), 30);
}

#[bireme::remote]
fn depth(n: u32) -> bireme::Result<u32> {
    if n == 0 { Ok(0) } else { Ok(depth::remote(n - 1).get()? + 1) }
}

#[test]
fn tasks_nest_deeper_than_there_are_cpus() {
    let _context = start();
    assert_eq!(depth::remote(20).get().unwrap(), 20);
}

#[bireme::remote(returns = 2)]
fn divide(a: i64, b: i64) -> Result<(i64, i64), String> {
    if b == 0 { Err("divided by zero".to_owned()) } else { Ok((a / b, a % b)) }
}

#[bireme::remote(returns = 3, name = "triple")]
fn triple(x: u8) -> (u8, String, Vec<u8>) {
    (x, x.to_string(), vec![x])
}

#[test]
fn several_results_are_several_objects() {
    let _context = start();
    let (quotient, rest) = divide::remote(17, 5);
    assert_eq!((quotient.get().unwrap(), rest.get().unwrap()), (3, 2));
    let (a, b, c) = triple::remote(7);
    assert_eq!((a.get().unwrap(), b.get().unwrap(), c.get().unwrap()), (7, "7".to_owned(), vec![7]));
    let (quotient, rest) = divide::options().retries(0).remote(1, 0);
    for error in [quotient.get().unwrap_err(), rest.get().unwrap_err()] {
        assert!(error.to_string().contains("divided by zero"), "{error}");
    }
}

#[derive(Debug)]
struct TooCold(i32);

impl fmt::Display for TooCold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} degrees is too cold", self.0)
    }
}

#[bireme::remote]
fn sail(degrees: i32) -> Result<i32, TooCold> {
    if degrees < 0 { Err(TooCold(degrees)) } else { Ok(degrees) }
}

#[test]
fn an_error_of_a_function_arrives_with_type_text_and_task() {
    let _context = start();
    assert_eq!(sail::remote(5).get().unwrap(), 5);
    let voyage = sail::remote(-3);
    let error = voyage.get().unwrap_err();
    let Some(Failure::Returned { task, name, type_name, message }) = error.failure() else { panic!("{error:?}") };
    assert_eq!(*task, voyage.id().task());
    assert_eq!((name.as_str(), message.as_str()), ("sail", "-3 degrees is too cold"));
    assert!(type_name.ends_with("TooCold"), "{type_name}");
}

#[test]
fn an_error_reaches_everything_that_depends_on_it() {
    let _context = start();
    let error = square::remote(square::remote(divide::remote(1, 0).0)).get().unwrap_err();
    assert!(error.to_string().contains("divided by zero"), "{error}");
}

#[bireme::remote]
fn overboard(who: String) -> u8 {
    panic!("{who} fell overboard")
}

#[test]
fn a_panic_arrives_with_text_location_and_task_and_the_worker_lives_on() {
    let _context = start();
    let reference = overboard::remote("the cook");
    let error = reference.get().unwrap_err();
    let Some(Failure::Panicked { task, message, location, .. }) = error.failure() else { panic!("{error:?}") };
    assert_eq!((*task, message.as_str()), (reference.id().task(), "the cook fell overboard"));
    assert!(location.contains("tests/tasks.rs"), "{location}");
    assert_eq!(square::remote(2).get().unwrap(), 4);
}

/// Fails until it was tried `good` times; attempts are counted in a file, since each may be in another process.
#[bireme::remote]
fn flaky(file: PathBuf, good: usize) -> Result<usize, TooCold> {
    let mut attempts = std::fs::read(&file).unwrap_or_default();
    attempts.push(b'x');
    std::fs::write(&file, &attempts).unwrap();
    if attempts.len() < good { Err(TooCold(-1)) } else { Ok(attempts.len()) }
}

fn scratch(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("bireme-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file
}

#[test]
fn chosen_errors_are_tried_again_and_others_are_not() {
    let _context = start();
    let file = scratch("flaky");
    let run = |errors: &[&str]| {
        let _ = std::fs::remove_file(&file);
        flaky::options().retries(5).retry_on(errors.iter().copied()).remote(file.clone(), 3).get()
    };
    assert_eq!(run(&["TooCold"]).unwrap(), 3);
    assert_eq!(run(&["too cold"]).unwrap(), 3);
    assert!(run(&["TooHot"]).is_err());
    assert_eq!(std::fs::read(&file).unwrap().len(), 1);
    let _ = std::fs::remove_file(&file);
}

#[bireme::remote(cpus = 0.5, resources(oar = 2), retries = 1)]
fn row() -> u8 {
    1
}

#[test]
fn options_of_the_attribute_and_of_the_call_are_accepted() {
    let _context = start();
    assert_eq!(row::remote().get().unwrap(), 1);
    let chosen = row::options().name("stroke").cpus(1.5).memory(1 << 20).resource("oar", 0.25).retries(0);
    assert_eq!(chosen.try_remote().unwrap().get().unwrap(), 1);
}

#[test]
fn large_arguments_and_results_go_through_the_store() {
    let _context = start();
    let words = vec!["galley".to_owned(); 50_000];
    let joined = join::remote(words.clone(), "").get().unwrap();
    assert_eq!(joined.len(), 50_000 * 7 - 1);
    assert_eq!(join::remote(vec![joined.clone(), joined.clone()], "").get().unwrap().len(), 2 * joined.len() + 1);
}

#[test]
fn the_first_use_starts_the_runtime_and_not_after_a_shutdown() {
    assert!(!bireme::is_initialized());
    assert_eq!(square::remote(5).get().unwrap(), 25);
    assert!(bireme::is_initialized());
    bireme::shutdown();
    let error = square::remote(5).get().unwrap_err();
    assert!(matches!(error, Error::NotRunning(_)), "{error}");
    let _context = bireme::init().unwrap();
    assert_eq!(square::remote(6).get_timeout(Duration::from_secs(30)).unwrap(), 36);
}

#[bireme::remote]
fn r#match(r#type: i32, call: i32, inputs: i32, _: i32) -> i32 {
    r#type + call + inputs
}

#[test]
fn raw_names_and_names_of_the_generated_code_are_no_trouble() {
    let _context = start();
    assert_eq!(r#match::remote(1, 2, 3, 4).get().unwrap(), 6);

    #[derive(Serialize, Deserialize)]
    struct Local(i32);
    #[bireme::remote]
    fn run(local: Local) -> Local {
        Local(local.0 + 1)
    }
    assert_eq!(run::remote(Local(1)).get().unwrap().0, 2);
}

mod elsewhere {
    type Result = std::result::Result<u8, String>;

    /// Functions of the same name and types in two bodies are two functions.
    pub(super) fn twins() -> (bireme::ObjectRef<u8>, bireme::ObjectRef<u8>) {
        let first = {
            #[bireme::remote]
            fn twin() -> Result {
                Ok(1)
            }
            twin::remote()
        };
        #[bireme::remote]
        fn twin() -> Result {
            Ok(2)
        }
        (first, twin::remote())
    }
}

#[test]
fn functions_of_the_same_name_in_two_bodies_are_told_apart() {
    let _context = start();
    let (first, second) = elsewhere::twins();
    assert_eq!((first.get().unwrap(), second.get().unwrap()), (1, 2));
}

#[bireme::remote]
fn call(inputs: i64) -> i64 {
    inputs + 1
}

#[test]
fn a_function_may_have_any_name_that_generated_code_might_use() -> bireme::Result<()> {
    let _context = bireme::init()?;
    assert_eq!(call::remote(1).get()?, 2);
    Ok(())
}

#[bireme::remote(max_calls = 1, threads_per_worker = 1, retries = 0)]
fn pid_once() -> u32 {
    std::process::id()
}

#[test]
fn an_attribute_bounds_the_runs_of_a_process() {
    let _context = start();
    let pids: std::collections::BTreeSet<_> = (0..3).map(|_| pid_once::remote().get().unwrap()).collect();
    assert_eq!(pids.len(), 3, "each run has a process of its own");
}
