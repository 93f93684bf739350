//! `bireme stop`: ends nodes of this user on this machine, and nothing else.

use std::process::ExitCode;
use std::time::Duration;

use bireme_runtime::Error;
use bireme_runtime::local::{Ended, NodeFile};
use clap::Args;

use crate::Outcome;
use crate::choose::{Choice, names};
use crate::flags::time;

/// The command line of `bireme stop`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Every node of yours on this machine.
    #[arg(long, conflicts_with_all = ["address", "cluster"])]
    all: bool,
    /// How long a node may take to end before it is killed.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    grace: Duration,
    #[command(flatten)]
    choice: Choice,
}

/// Ends the chosen nodes, all at once, and takes away what they left.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let (state, nodes) = arguments.choice.nodes()?;
    if nodes.len() > 1 && !arguments.all && arguments.choice.cluster.is_none() {
        let names = names(&nodes);
        return Err(format!("you have several nodes here: {names}; choose with --address, --cluster or --all").into());
    }
    if nodes.is_empty() {
        println!("you have no node running on this machine");
    }
    let grace = arguments.grace;
    let ended: Vec<Result<Ended, Error>> = std::thread::scope(|scope| {
        let each: Vec<_> = nodes.iter().map(|node| scope.spawn(move || node.process.end(grace))).collect();
        let stuck = |_| Err(Error::System { what: "ending a node", reason: "its thread panicked".to_owned() });
        each.into_iter().map(|thread| thread.join().unwrap_or_else(stuck)).collect()
    });
    // Each is reported, also after one that did not end.
    let stuck = nodes.iter().zip(ended).filter_map(|(node, ended)| (!report(node, ended)).then_some(node)).count();
    if let Some(state) = state {
        state.sweep();
    }
    Ok(if stuck == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says how a node ended. False when it did not.
fn report(node: &NodeFile, ended: Result<Ended, Error>) -> bool {
    let NodeFile { node: id, address, process, .. } = node;
    match ended {
        Ok(Ended::Before | Ended::Asked) => println!("{id} at {address} has ended"),
        Ok(Ended::Killed) => println!("{id} at {address} did not end in time and was killed"),
        Ok(Ended::Stuck) => {
            eprintln!("bireme: {id} at {address} (process {}) cannot be killed: it waits for the system", process.id);
            return false;
        }
        Err(error) => {
            eprintln!("bireme: {id} at {address} (process {}): {error}", process.id);
            return false;
        }
    }
    true
}
