//! An alias of `Result` is a `Result`: its error arrives as an error.
// expect: half of 8 is 4
// expect: the error arrived: 7 is odd

type Res<T> = Result<T, String>;

#[bireme::remote]
fn half(n: u32) -> Res<u32> {
    if n.is_multiple_of(2) { Ok(n / 2) } else { Err(format!("{n} is odd")) }
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let four: u32 = half::remote(8_u32).get()?;
    println!("half of 8 is {four}");
    let error = half::remote(7_u32).get().expect_err("7 is odd").to_string();
    assert!(error.contains("7 is odd"), "{error}");
    println!("the error arrived: 7 is odd");
    Ok(())
}
