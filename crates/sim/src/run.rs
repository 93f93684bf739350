//! One seed: draw, run twice, compare, and tell the story of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::broadcasts;
use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::invariants::Violation;
use crate::planted::Planted;
use crate::program::Program;
use crate::random::Random;
use crate::workload;

/// Lines of the story that are printed, at most.
pub const STORY_LINES_MAX: usize = 200;

/// How a seed went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The faults that it drew.
    pub faults: Faults,
    /// The hash of everything that happened.
    pub hash: u64,
    /// How much happened.
    pub happened: u64,
    /// How much time went by in the run.
    pub simulated_us: u64,
    /// When the drivers had all they waited for.
    pub done_us: u64,
    /// When they could have had it at the earliest: no CPU ever idle.
    pub ideal_us: u64,
    /// What went wrong, and the story of what it concerns.
    pub failure: Option<(Violation, Vec<String>)>,
}

/// What a seed draws.
pub fn draw(seed: u64) -> (Program, Faults) {
    let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let faults = Faults::draw(&mut random);
    let mut program = workload::draw(&mut random);
    if faults.repeat_one_in.is_some() {
        // Replies of earlier attempts are what has to be told apart.
        workload::tasks::flaky(&mut program, &mut random);
    }
    program.place(faults.nodes.count, &mut random);
    if random.one_in(4) {
        // So that deaths use them up.
        program.jobs.iter_mut().for_each(|job| job.retries_max = random.below(2) as u32);
    }
    if random.one_in(4) {
        // A process of their own, which they share only when every other one waits.
        program.jobs.iter_mut().for_each(|job| job.threads_per_worker = random.below(3) as u32);
    }
    (program, faults)
}

/// One seed in so many is run twice.
const TWICE_ONE_IN: u64 = 8;
/// One seed in so many is of a broadcast too.
const BROADCAST_ONE_IN: u64 = 8;

/// Runs a seed; some seeds twice, to compare the two.
pub fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let (program, faults) = draw(seed);
    let mut outcome = run_program(seed, &program, &faults, planted);
    if seed % BROADCAST_ONE_IN == 1 && outcome.failure.is_none() {
        let broadcast = broadcasts::run(seed, planted);
        outcome.hash ^= broadcast.hash;
        outcome.failure = broadcast.failure.map(|violation| (violation, vec![]));
    }
    if !seed.is_multiple_of(TWICE_ONE_IN) {
        return outcome;
    }
    let again = once(seed, &program, &faults, planted, false);
    if outcome.hash != again.0.hash() {
        let text = format!("the same seed gave {:x} and {:x}", outcome.hash, again.0.hash());
        let violation = Violation { invariant: "equal seeds, equal runs", text, concerns: vec![] };
        outcome.failure = Some((violation, vec![]));
    }
    outcome
}

/// Runs a given program under given faults; on failure once more, for its story.
pub fn run_program(seed: u64, program: &Program, faults: &Faults, planted: Option<Planted>) -> Outcome {
    let (cluster, result) = once(seed, program, faults, planted, false);
    let failure = result.err().map(|violation| {
        let (told, _) = once(seed, program, faults, planted, true);
        let story = story_of(&violation, told.story());
        (violation, story)
    });
    Outcome {
        seed,
        faults: faults.clone(),
        hash: cluster.hash(),
        happened: cluster.happened(),
        simulated_us: cluster.now.0,
        done_us: cluster.done_us(),
        ideal_us: cluster.ideal_us(),
        failure,
    }
}

/// The whole story of a seed.
pub fn tell(seed: u64, planted: Option<Planted>) -> Vec<String> {
    let (program, faults) = draw(seed);
    once(seed, &program, &faults, planted, true).0.story().to_vec()
}

fn once(
    seed: u64,
    program: &Program,
    faults: &Faults,
    planted: Option<Planted>,
    story: bool,
) -> (Cluster, Result<(), Violation>) {
    let mut cluster = Cluster::new(seed, program.clone(), faults.clone(), planted, story);
    // An assertion of a machine is a broken invariant like any other.
    let result = catch_unwind(AssertUnwindSafe(|| cluster.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "a machine panicked".into());
        Err(Violation { invariant: "no machine panics", text, concerns: vec![] })
    });
    (cluster, result)
}

/// The lines that concern the violation, with all deaths; the last ones when there are too many.
fn story_of(violation: &Violation, story: &[String]) -> Vec<String> {
    // Ids print the same tail in tasks, objects and actors.
    let tails: Vec<&str> = violation.concerns.iter().filter_map(|id| id.split('-').next_back()).collect();
    let concerns =
        |line: &&String| tails.is_empty() || tails.iter().any(|tail| line.contains(tail)) || line.contains(" dies:");
    let mut lines: Vec<String> = story.iter().filter(concerns).cloned().collect();
    let skipped = lines.len().saturating_sub(STORY_LINES_MAX);
    lines.drain(..skipped);
    lines
}
