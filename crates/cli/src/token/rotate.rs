//! `bireme token rotate`: another authority for a cluster that goes on running.

use std::thread;
use std::time::{Duration, Instant};

use bireme_runtime::clock::seconds_since_1970;
use bireme_runtime::tokens::{Stage, UnderWay, rotation_text};
use clap::Args;

use super::tokens;
use crate::Outcome;
use crate::choose::Choice;
use crate::flags::time;

/// The command line of `bireme token rotate`.
#[derive(Args)]
pub(super) struct Arguments {
    /// How long the old authority is trusted at most: certificates and tokens of it are good until then.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1d", conflicts_with = "finish")]
    overlap: Duration,
    /// Have the old authority go as soon as all nodes and clients have renewed that are there; who is away needs a new token.
    #[arg(long)]
    finish: bool,
    /// With --finish: expel those that have not renewed within ten seconds.
    #[arg(long, requires = "finish")]
    force: bool,
    #[command(flatten)]
    choice: Choice,
}

/// How long the command stays to see what comes of it. The head goes on without it.
const WAIT: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(100);

/// Begins or finishes a rotation of the cluster whose head is on this machine.
pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let tokens = tokens(&arguments.choice)?;
    let wait_until = |over: fn(&UnderWay) -> bool| -> Outcome<Option<UnderWay>> {
        let since = Instant::now();
        loop {
            match tokens.rotation()? {
                Some(rotation) if !over(&rotation) && since.elapsed() < WAIT => thread::sleep(LOOK),
                rotation => return Ok(rotation),
            }
        }
    };
    let rotation = if arguments.finish {
        tokens.finish_rotation(arguments.force)?;
        wait_until(|_| false)?
    } else {
        tokens.rotate(arguments.overlap)?;
        println!("the new authority is {}", tokens.fingerprint()?);
        wait_until(|rotation| rotation.stage == Stage::Issued && rotation.behind.is_empty())?
    };
    match rotation {
        Some(rotation) => println!("{}", rotation_text(&rotation, seconds_since_1970())),
        None => println!("the authority is replaced, and the old one is not trusted any more"),
    }
    if !arguments.finish {
        println!(
            "Tokens that were made before stop working when the old one goes: `bireme token create` makes new ones."
        );
    }
    Ok(())
}
