//! Which machines of a cluster do the work: `cargo run --example cluster -- HOST:PORT`, or without an address this one alone.

use std::collections::BTreeMap;

use bireme::{Array, Config, Strategy};

#[bireme::remote]
fn column(seed: u64) -> Array {
    Array::from(vec![seed; 1_000_000])
}

#[bireme::remote]
fn total(values: Array) -> bireme::Result<(String, u64)> {
    Ok((bireme::node_id()?.to_string(), values.as_slice::<u64>()?.iter().sum()))
}

fn main() -> bireme::Result<()> {
    run(std::env::args().nth(1).as_deref())
}

/// With the cluster at an address, or with this machine alone.
pub fn run(address: Option<&str>) -> bireme::Result<()> {
    let _context = match address {
        Some(address) => bireme::init_with(Config::default().address(address))?,
        None => bireme::init()?,
    };
    // A column stays where it was made, and its total is taken there.
    let columns: Vec<_> = (0..8).map(|seed| column::options().strategy(Strategy::Spread).remote(seed)).collect();
    let totals: Vec<_> = columns.iter().map(total::remote).collect();
    let mut taken = BTreeMap::new();
    for (seed, (node, value)) in (0..).zip(bireme::get_all(&totals)?) {
        assert_eq!(value, seed * 1_000_000);
        *taken.entry(node).or_insert(0) += 1;
    }
    for (node, count) in taken {
        println!("{node} took {count} of 8 totals");
    }
    Ok(())
}
