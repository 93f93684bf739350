//! The `bireme` command.
//!
//! `bireme bench` measures the engine against the floors of the machine (`bench`). Two hidden commands are the same
//! executable started again by a measurement: `bench-probe` measures one row in a process of its own, `bench-floor` is
//! the other side of a floor. Exit codes: 0 all well, 1 a row failed or its bar does not hold, 2 a wrong command line.

#![deny(unsafe_code)]

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks, actors and shared objects: the command line.
#[derive(Parser)]
#[command(name = "bireme", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the engine on this machine, each row beside its floor.
    Bench(bench::Arguments),
    /// Measure one row, in this process.
    #[command(hide = true)]
    BenchProbe(bench::probe::Arguments),
    /// Be a floor, or the other side of one.
    #[command(hide = true)]
    BenchFloor(bench::floor::Arguments),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchProbe(arguments) => bench::probe::serve(&arguments).map(|()| ExitCode::SUCCESS),
        Command::BenchFloor(arguments) => bench::floor::serve(&arguments).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("bireme: {error}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
