//! How many choices of a node one core makes in a second: `cargo run --release -p bireme-core --example decisions`.

// The measure is what needs the clock; the machine that it measures does not.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use bireme_core::schedule::trial::{Mix, Trial};

const ASKS: u64 = 2_000_000;

fn main() {
    for nodes in [10, 100, 1_000, 10_000] {
        for mix in [Mix::Plain, Mix::Shapes, Mix::Inputs, Mix::Spread] {
            let mut trial = Trial::new(nodes);
            let start = Instant::now();
            let outcome = trial.run(ASKS, mix);
            let rate = ASKS as f64 / start.elapsed().as_secs_f64();
            println!("{nodes:>6} nodes {:<8} {:>6.2} M decisions/s  {outcome:?}", format!("{mix:?}"), rate / 1e6);
        }
    }
}
