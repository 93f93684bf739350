//! `bireme-sim SEED` repeats one seed; `bireme-sim --seeds N [--start S]` runs many, with `--jobs J` in so many processes,
//! `--soak HOURS` as many as it takes until so much time has gone by in all of them.

use std::process::{Command, ExitCode, Stdio};

use bireme_sim::planted::Planted;
use bireme_sim::run::{Outcome, run, tell};

const USAGE: &str = "usage: bireme-sim SEED | (--seeds N [--jobs J] | --soak HOURS) [--start S]; with each: --planted NAME; --story prints all of it";
const SEEDS_DEFAULT: u64 = 200;
const HOUR_US: u64 = 3_600_000_000;

struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    start: u64,
    jobs: u64,
    planted: Option<Planted>,
    story: bool,
    soak_hours: Option<u64>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seed: None,
        seeds: SEEDS_DEFAULT,
        start: 1,
        jobs: 1,
        planted: None,
        story: false,
        soak_hours: None,
    };
    let number = |word: Option<String>| {
        let word = word.ok_or("a number is missing")?;
        word.parse::<u64>().map_err(|_| format!("{word:?} is not a seed or a number of seeds"))
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => arguments.seeds = number(words.next())?,
            "--start" => arguments.start = number(words.next())?,
            "--jobs" => arguments.jobs = number(words.next())?,
            "--soak" => arguments.soak_hours = Some(number(words.next())?),
            "--story" => arguments.story = true,
            "--planted" => {
                let name = words.next().unwrap_or_default();
                let known = Planted::ALL.map(Planted::name).join(", ");
                arguments.planted = Some(Planted::named(&name).ok_or(format!("{name:?} is not one of {known}"))?);
            }
            _ => arguments.seed = Some(number(Some(word))?),
        }
    }
    if arguments.jobs == 0 || arguments.jobs > 1 && (arguments.seed.is_some() || arguments.soak_hours.is_some()) {
        return Err("--jobs is one or more, and several share the seeds of --seeds".to_owned());
    }
    Ok(arguments)
}

/// Runs the seeds in several processes, each with its share, and says what they said.
fn run_jobs(arguments: &Arguments) -> Result<ExitCode, std::io::Error> {
    let Arguments { seeds, start, jobs, planted, story, .. } = *arguments;
    let mut running = Vec::new();
    for job in 0..jobs {
        let (from, to) = (seeds * job / jobs, seeds * (job + 1) / jobs);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--seeds", &(to - from).to_string(), "--start", &(start + from).to_string()]);
        command.args(planted.map(|planted| ["--planted", planted.name()]).into_iter().flatten());
        command.args(story.then_some("--story"));
        running.push(command.stdout(Stdio::piped()).spawn()?);
    }
    let (mut passed, mut failed, mut all_ended) = (0, 0, true);
    for job in running {
        let output = job.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (said, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        said.lines().for_each(|line| println!("{line}"));
        match last.strip_suffix(" failed").and_then(|counts| counts.split_once(" seeds passed, ")) {
            Some((yes, no)) => {
                passed += yes.parse().unwrap_or(0);
                failed += no.parse().unwrap_or(0);
            }
            None => println!("{last}"),
        }
        all_ended &= output.status.success();
    }
    Ok(verdict(passed, failed, all_ended && passed + failed == seeds))
}

fn verdict(passed: u64, failed: u64, is_whole: bool) -> ExitCode {
    println!("{passed} seeds passed, {failed} failed");
    if failed == 0 && is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(outcome: &Outcome, planted: Option<Planted>) {
    let Some((violation, story)) = &outcome.failure else { return };
    println!("seed {}: broken: {}", outcome.seed, violation.invariant);
    println!("{}", violation.text);
    println!("faults: {:?}", outcome.faults);
    println!("the story of what it concerns:");
    for line in story {
        println!("  {line}");
    }
    let planted = planted.map_or_else(String::new, |planted| format!(" --planted {}", planted.name()));
    println!("repeat with: cargo xtask sim {}{planted}\n", outcome.seed);
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.jobs > 1 {
        return run_jobs(&arguments).unwrap_or_else(|error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        });
    }
    let (start, count) = match (arguments.seed, arguments.soak_hours) {
        (Some(seed), _) => (seed, 1),
        (None, Some(_)) => (arguments.start, u64::MAX - arguments.start),
        (None, None) => (arguments.start, arguments.seeds),
    };
    let enough_us = arguments.soak_hours.map_or(u64::MAX, |hours| hours.saturating_mul(HOUR_US));
    // A panic of a machine is reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut passed, mut failed, mut simulated_us) = (0u64, 0u64, 0u64);
    for seed in start..start + count {
        let outcome = run(seed, arguments.planted);
        if arguments.story {
            tell(seed, arguments.planted).iter().for_each(|line| println!("{line}"));
        }
        if arguments.seed.is_some() {
            println!("seed {seed}: {} happenings, trace {:016x}", outcome.happened, outcome.hash);
        }
        simulated_us += outcome.simulated_us;
        match outcome.failure {
            None => passed += 1,
            Some(_) => {
                failed += 1;
                report(&outcome, arguments.planted);
            }
        }
        if simulated_us >= enough_us {
            break;
        }
    }
    if arguments.soak_hours.is_some() {
        println!("{} s went by in these runs", simulated_us / 1_000_000);
    }
    verdict(passed, failed, true)
}
