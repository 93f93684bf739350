//! Errors: what a function returns, a panic, a bad request, a wait that takes too long.

use std::fmt;
use std::time::Duration;

use bireme::{Error, Failure};

#[derive(Debug)]
struct NoWind;

impl fmt::Display for NoWind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no wind; row")
    }
}

#[bireme::remote]
fn sail(wind: u32) -> Result<u32, NoWind> {
    if wind == 0 { Err(NoWind) } else { Ok(wind * 2) }
}

#[bireme::remote]
fn capsize(reason: String) {
    panic!("capsized: {reason}");
}

#[bireme::remote]
fn drift() {
    loop {
        std::thread::yield_now();
    }
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;

    let error = sail::remote(0).get().expect_err("no wind");
    println!("an error of the function: {error}");
    assert!(matches!(error.failure(), Some(Failure::Returned { type_name, .. }) if type_name.ends_with("NoWind")));

    let error = capsize::remote("too much sail").get().expect_err("it panics");
    println!("a panic: {error}");
    assert!(matches!(error.failure(), Some(Failure::Panicked { location, .. }) if location.contains("errors.rs")));

    let error = sail::options().cpus(-1.0).try_remote(1).expect_err("a negative amount");
    println!("a bad request: {error}");
    assert!(matches!(error, Error::BadAmount(_)));

    let error = sail::options().cpus(100_000.0).remote(1).get().expect_err("no machine has so many");
    println!("a task that can never run: {error}");

    let drifting = drift::remote();
    let error = drifting.get_timeout(Duration::from_millis(100)).expect_err("it drifts on");
    println!("a wait that took too long: {error}");
    assert!(matches!(error, Error::Timeout { .. }));
    bireme::cancel(&drifting, true)?;
    let error = drifting.get().expect_err("it was cancelled");
    println!("a cancelled task: {error}");
    assert!(matches!(error.failure(), Some(Failure::Cancelled { .. })));
    Ok(())
}
