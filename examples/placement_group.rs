//! Placement groups: resources that are reserved together, so that all of a gang run at the same time or none.

use std::time::Duration;

use bireme::{Bundle, Failure, GroupStrategy, PlacementGroup};

/// A member of a gang, which is of use only when the others run too.
struct Trainer {
    rank: usize,
}

#[bireme::actor]
impl Trainer {
    pub fn new(rank: usize) -> Self {
        Trainer { rank }
    }

    pub fn step(&mut self, weights: f64) -> f64 {
        weights + self.rank as f64
    }
}

#[bireme::remote]
fn evaluate(weights: f64) -> f64 {
    weights / 2.0
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init_with(bireme::Config::default().cpus(4.0))?;
    println!("nodes: {:?}", bireme::nodes()?.iter().map(|node| node.node.hex()).collect::<Vec<_>>());

    let bundles = [Bundle::cpus(1.0), Bundle::cpus(1.0), Bundle::cpus(1.0)];
    let group = PlacementGroup::builder().bundles(bundles).strategy(GroupStrategy::Pack).name("trainers").create()?;
    group.ready().get()?;
    println!("reserved; free: {} CPUs", bireme::resources()?.free.cpus);
    assert_eq!(bireme::resources()?.free.cpus.as_f64(), 1.0);

    let trainers = (0..3)
        .map(|rank| Ok(Trainer::options().cpus(1.0).strategy(group.bundle(rank)?).remote(rank)))
        .collect::<bireme::Result<Vec<_>>>()?;
    let steps: Vec<_> = trainers.iter().map(|trainer| trainer.step(1.0)).collect();
    assert_eq!(bireme::get_all(&steps)?, [1.0, 2.0, 3.0]);
    assert_eq!(evaluate::remote(3.0).get()?, 1.5);

    // What can never be placed is an error at once.
    let greedy = PlacementGroup::builder().bundle(Bundle::cpus(64.0)).create()?;
    let refused = greedy.wait(Duration::from_secs(20)).expect_err("there are not so many CPUs");
    println!("refused: {refused}");
    assert!(matches!(refused.failure(), Some(Failure::GroupUnplaceable { .. })));

    // What runs in a group is ended with it, and what is to run there fails.
    bireme::get_placement_group("trainers")?.remove()?;
    let inside = evaluate::options().strategy(group.any_bundle()).remote(3.0);
    println!("after the removal: {}", inside.get().expect_err("its group is gone"));
    Ok(())
}
