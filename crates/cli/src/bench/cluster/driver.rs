//! A program that attaches to a node and does what it is told: this executable started again with `bench-driver`.
//!
//! Each order is a line of JSON on its standard input, each answer one on its output. It ends with its input.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::super::Outcome;
use super::super::collectives::seats::{Seats, Task};
use super::lines::Lines;
use super::nodes::Nodes;
use super::stage::Stage;
use super::{latency, life, load, locality};

/// How long an answer may take. Slow machines and debug builds take seconds.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// The command line of `bench-driver`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of the node to attach to; a node of its own without one.
    #[arg(long)]
    node: Option<PathBuf>,
}

/// What a driver is told to do. The answer is a few numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run a task on each of these nodes: then program and workers are there.
    Visit {
        /// Numbers of the nodes.
        nodes: Vec<u32>,
    },
    /// Call an empty task and get its result, one after the other: the median in microseconds.
    Sync {
        /// So often.
        count: usize,
    },
    /// Submit empty tasks, then get all.
    Burst {
        /// So many.
        count: usize,
    },
    /// Run a task that tells its node to who listens at this socket and waits; when nobody listens it ends at once with the
    /// number of its node.
    Doomed {
        /// Where somebody listens.
        meeting: PathBuf,
    },
    /// Make inputs on one node and run tasks with them: milliseconds of one that is bound to that node, how many others ran
    /// elsewhere, milliseconds of those for each size.
    Placed(locality::Inputs),
    /// The same once for each input, on another node: milliseconds for each.
    Forced(locality::Inputs),
    /// Move objects: what comes back depends on what is asked for.
    Collective(Task),
    /// Tasks of various lengths: how long all took and how long each, in milliseconds.
    Uneven {
        /// So many.
        tasks: usize,
    },
}

/// Is the driver.
pub(crate) fn serve(arguments: &Arguments) -> Outcome<()> {
    let config = match &arguments.node {
        Some(folder) => bireme::Config::default().address(folder.to_str().ok_or("a path that is no text")?),
        None => bireme::Config::default().cpus(1.0),
    };
    let _context = bireme::init_with(config)?;
    say(&Ok(Vec::new()))?;
    let mut seats = Seats::default();
    for line in std::io::stdin().lock().lines() {
        say(&act(&mut seats, serde_json::from_str(&line?)?).map_err(|error| error.to_string()))?;
    }
    Ok(())
}

fn say(answer: &Result<Vec<f64>, String>) -> Outcome<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(answer)?)?;
    Ok(stdout.flush()?)
}

fn act(seats: &mut Seats, order: Order) -> Outcome<Vec<f64>> {
    match order {
        Order::Collective(task) => seats.act(&task),
        Order::Visit { nodes } => latency::visit(&nodes),
        Order::Sync { count } => latency::sync(count),
        Order::Burst { count } => load::burst(count),
        Order::Doomed { meeting } => life::doomed(&meeting),
        Order::Placed(inputs) => locality::placed(&inputs),
        Order::Forced(inputs) => locality::forced(&inputs),
        Order::Uneven { tasks } => load::run_uneven(tasks),
    }
}

/// A driver. Ends with this value.
pub(in crate::bench) struct Driver<'a> {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    stage: &'a Stage,
}

impl<'a> Driver<'a> {
    /// One on the host of a node, attached to it.
    pub(in crate::bench) fn attach(stage: &'a Stage, nodes: &'a Nodes, host: usize) -> Outcome<Self> {
        let mut command = nodes.place().command(host, &["bench-driver"])?;
        let folder = nodes.node(host)?.socket.parent().ok_or("a socket without a folder")?;
        command.arg("--node").arg(folder);
        Self::start(stage, command, nodes.folder())
    }

    /// One with a node of its own.
    pub(in crate::bench) fn alone(stage: &'a Stage, nodes: &'a Nodes) -> Outcome<Self> {
        Self::start(stage, nodes.place().command(0, &["bench-driver"])?, nodes.folder())
    }

    fn start(stage: &'a Stage, mut command: Command, folder: &Path) -> Outcome<Self> {
        let mut child = command.env("TMPDIR", folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let lines = Lines::of(child.stdout.take().ok_or("a driver has no output")?);
        let mut driver = Self { child, input, lines, stage };
        driver.hear()?;
        Ok(driver)
    }

    /// Its process.
    pub(in crate::bench) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Tells it what to do.
    pub(in crate::bench) fn tell(&mut self, order: &Order) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("a driver has no input")?;
        Ok(writeln!(input, "{}", serde_json::to_string(order)?)?)
    }

    /// Its answer.
    pub(in crate::bench) fn hear(&mut self) -> Outcome<Vec<f64>> {
        let line = self.lines.next(self.stage.stop(), ANSWER_WAIT)?;
        let answer: Result<Vec<f64>, String> =
            serde_json::from_str(&line).map_err(|error| format!("a driver said {line:?}: {error}"))?;
        Ok(answer?)
    }

    /// Both.
    pub(in crate::bench) fn ask(&mut self, order: &Order) -> Outcome<Vec<f64>> {
        self.tell(order)?;
        self.hear()
    }

    /// Both, where the answer is one number.
    pub(in crate::bench) fn number(&mut self, order: &Order) -> Outcome<f64> {
        Ok(*self.ask(order)?.first().ok_or("a driver answered nothing")?)
    }

    /// Lets it end by itself.
    pub(in crate::bench) fn end(mut self) -> Outcome<()> {
        drop(self.input.take());
        self.lines.end(self.stage.stop(), ANSWER_WAIT)?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a driver ended with {status}").into()) }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // One that ended well is gone already, and one that did not is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
