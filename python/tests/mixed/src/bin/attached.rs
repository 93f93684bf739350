//! A Rust program that attaches to the node whose folder it is given: beside a Python program, in the tests.

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

fn main() -> bireme::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "auto".to_owned());
    let _context = bireme::init_with(bireme::Config::default().address(&address))?;
    let squares: Vec<_> = (0..10).map(square::remote).collect();
    println!("{}", bireme::get_all(&squares)?.iter().sum::<i64>());
    Ok(())
}
