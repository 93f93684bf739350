//! Nested tasks finish when one process is left for tasks.
// modes: embedded
// expect: depth 50 with one worker
// expect: depth 20 beside two actors

struct Idle;

#[bireme::actor]
impl Idle {
    pub fn new() -> Self {
        Idle
    }

    pub fn ping(&self) -> u32 {
        1
    }
}

#[bireme::remote]
fn descend(depth: u32) -> bireme::Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(1 + descend::remote(depth - 1).get()?) }
}

fn main() -> bireme::Result<()> {
    {
        let _context = bireme::init_with(bireme::Config::default().workers_max(1))?;
        println!("depth {} with one worker", descend::remote(50_u32).get()?);
    }
    let _context = bireme::init_with(bireme::Config::default().workers_max(3))?;
    let actors = [Idle::remote(), Idle::remote()];
    assert_eq!(actors[0].ping().get()? + actors[1].ping().get()?, 2);
    println!("depth {} beside two actors", descend::remote(20_u32).get()?);
    Ok(())
}
