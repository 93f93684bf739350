//! The README's program: tasks, an actor, references between them.

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn new(start: i64) -> Self {
        Counter(start)
    }

    pub fn add(&mut self, n: i64) -> i64 {
        self.0 += n;
        self.0
    }
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let squares: Vec<_> = (1..=10).map(square::remote).collect();
    let counter = Counter::remote(0);
    let totals: Vec<_> = squares.iter().map(|square| counter.add(square)).collect();
    let totals = bireme::get_all(&totals)?;
    println!("the running totals of ten squares: {totals:?}");
    assert_eq!(totals.last(), Some(&385));
    Ok(())
}
