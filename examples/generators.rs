//! Streams: results that come one by one, held back when their reader is slow, ended when it has enough.

use bireme::ObjectRefStream;

#[bireme::remote(stream)]
fn primes(limit: u64) -> impl Iterator<Item = u64> {
    let mut found: Vec<u64> = Vec::new();
    (2..limit).filter(move |n| {
        let is_prime = found.iter().all(|prime| n % prime != 0);
        if is_prime {
            found.push(*n);
        }
        is_prime
    })
}

/// Never ends: it is at most two items ahead of its reader.
#[bireme::remote(stream(max_buffered_items = 2))]
fn tide() -> impl Iterator<Item = String> {
    ["high", "low"].into_iter().cycle().map(str::to_owned)
}

#[bireme::remote(stream, retries = 0)]
fn leaky(planks: u32) -> impl Iterator<Item = Result<String, String>> {
    let laid = (0..planks).map(|plank| Ok(format!("plank {plank}")));
    laid.chain([Err("out of planks".to_owned())])
}

/// A stream can be passed on: this task reads while the other one writes.
#[bireme::remote]
fn total(numbers: ObjectRefStream<u64>) -> bireme::Result<u64> {
    numbers.map(|number| number.get()).sum()
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let found: Vec<u64> = primes::remote(20).map(|prime| prime.get()).collect::<bireme::Result<_>>()?;
    println!("primes: {found:?}");
    let sum = total::remote(primes::remote(20)).get()?;
    println!("their sum, made by another task: {sum}");
    assert_eq!(sum, found.iter().sum::<u64>());

    // The task ends when its stream is dropped, after four items.
    let seen: Vec<String> = tide::remote().take(4).map(|tide| tide.get()).collect::<bireme::Result<_>>()?;
    println!("four tides of many: {seen:?}");
    assert_eq!(seen, ["high", "low", "high", "low"]);

    let mut laid = Vec::new();
    for plank in leaky::remote(2) {
        match plank.get() {
            Ok(plank) => laid.push(plank),
            Err(error) => println!("after {laid:?} came: {error}"),
        }
    }
    assert_eq!(laid, ["plank 0", "plank 1"]);
    Ok(())
}
