//! What the user's programs do. A seed draws some of these; each runs on a thread of the driver.

pub mod actors;
pub mod groups;
pub mod reduces;
pub mod references;
pub mod streams;
pub mod tasks;

use crate::program::Program;
use crate::random::Random;

/// Adds the drawn workloads to a program.
pub fn draw(random: &mut Random) -> Program {
    let mut program = Program::default();
    let all: [fn(&mut Program, &mut Random); 23] = [
        tasks::fan_out,
        tasks::chain,
        tasks::braid,
        tasks::nested,
        tasks::cancelled,
        tasks::environments,
        tasks::gpus,
        tasks::limited,
        tasks::flaky,
        references::handed_back,
        references::lent,
        references::puts,
        references::handed_deep,
        actors::counter,
        actors::shared,
        actors::concurrent,
        streams::streamed,
        streams::handed_on,
        streams::returned,
        streams::by_an_actor,
        groups::grouped,
        reduces::reduced,
        reduces::reduced_by_tasks,
    ];
    let count = random.within(1, 4);
    for _ in 0..count {
        let chosen = all[random.below(all.len() as u64) as usize];
        chosen(&mut program, random);
    }
    program
}
