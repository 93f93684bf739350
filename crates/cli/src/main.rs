//! The `bireme` command.
//!
//! One file per command: `start` a node, `stop`, `status` and `drain` for nodes of this user on this machine, `expel`, `token` for who
//! may join, `config` for the settings, `bench` measures the engine against the floors of the machine. Three hidden commands are the same
//! executable started again by a measurement: `bench-probe` measures one row in a process of its own, `bench-driver` is a program
//! that uses a cluster, `bench-floor` is the other side of a floor. Exit codes: 0 all well, 1 it failed (of `bench`: or a bar does not hold), 2 a wrong command line.

#![deny(unsafe_code)]

/// In place of the standard library's, which panics when the reader of a pipe has gone, as `head` does.
macro_rules! print {
    ($($text:tt)*) => { crate::print::print(format_args!($($text)*)) };
}

/// A line of [`print!`].
macro_rules! println {
    ($($text:tt)*) => { crate::print::print_line(format_args!($($text)*)) };
}

mod bench;
mod choose;
mod config;
mod drain;
mod expel;
mod flags;
mod print;
mod start;
mod status;
mod stop;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What went wrong, for people.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Tasks, actors and shared objects: the command line.
#[derive(Parser)]
#[command(name = "bireme", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a node: the first of a cluster, or one more with --address.
    Start(start::Arguments),
    /// End nodes of yours on this machine.
    Stop(stop::Arguments),
    /// Show nodes, jobs, actors, groups and what waits.
    Status(status::Arguments),
    /// Move everything off a node and let it leave.
    Drain(drain::Arguments),
    /// Put a node or client out at once, with its certificate.
    Expel(expel::Arguments),
    /// Make, list and revoke tokens with which others join.
    Token(token::Arguments),
    /// Show every setting and where its value comes from.
    Config(config::Arguments),
    /// Measure the engine on this machine, each row beside its floor.
    Bench(bench::Arguments),
    /// Measure one row, in this process.
    #[command(hide = true)]
    BenchProbe(bench::probe::Arguments),
    /// Use a cluster as told.
    #[command(hide = true)]
    BenchDriver(bench::cluster::driver::Arguments),
    /// Be a floor, or the other side of one.
    #[command(hide = true)]
    BenchFloor(bench::floor::Arguments),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Start(arguments) => start::run(&arguments),
        Command::Stop(arguments) => stop::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Drain(arguments) => drain::run(&arguments),
        Command::Expel(arguments) => expel::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchProbe(arguments) => bench::probe::serve(&arguments).map(|()| ExitCode::SUCCESS),
        Command::BenchDriver(arguments) => bench::cluster::driver::serve(&arguments).map(|()| ExitCode::SUCCESS),
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
