//! Threads of the program, all of which call tasks and one actor.
// expect: 8 threads, 400 calls

struct Total(u64);

#[bireme::actor]
impl Total {
    pub fn new() -> Self {
        Total(0)
    }

    pub fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }
}

#[bireme::remote]
fn double(n: u64) -> u64 {
    2 * n
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let total = Total::remote();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let total = total.clone();
            scope.spawn(move || {
                for number in 0..50 {
                    assert_eq!(
                        double::remote(thread * 100 + number).get().expect("it runs"),
                        2 * (thread * 100 + number)
                    );
                    // The last call of all tells the total.
                    let _ = total.add(1_u64);
                }
            });
        }
    });
    println!("8 threads, {} calls", total.add(0_u64).get()?);
    Ok(())
}
