//! The longest waits and the largest sizes that a type can hold are no mistakes.
// modes: embedded
// expect: 42 within the longest time

use std::time::Duration;

#[bireme::remote]
fn answer() -> u32 {
    42
}

fn main() -> bireme::Result<()> {
    let too_large = bireme::init_with(bireme::Config::default().object_store_memory(u64::MAX));
    assert!(too_large.is_err(), "no machine has that much memory");
    let _context = bireme::init()?;
    println!("{} within the longest time", answer::remote().get_timeout(Duration::MAX)?);
    Ok(())
}
