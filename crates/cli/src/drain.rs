//! `bireme drain NODE`: objects and actors move to other nodes, then the node leaves.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bireme_runtime::admin::{AdminReply, AdminRequest, NodeState, ask};
use bireme_runtime::core::id::NodeId;
use bireme_runtime::local::NodeFile;
use clap::Args;

use crate::Outcome;
use crate::choose::Choice;
use crate::flags::time;
use crate::status;

/// How often a draining node is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// What a node may take after its deadline to be gone.
const SLACK: Duration = Duration::from_secs(10);

/// The command line of `bireme drain`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Which node, as `bireme status` shows it: node-3, or 3.
    #[arg(value_name = "NODE", value_parser = node)]
    node: NodeId,
    /// When it leaves whatever is still there.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    deadline: Duration,
    /// Do not wait until it has left.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    choice: Choice,
}

pub(crate) fn node(text: &str) -> Result<NodeId, String> {
    let number = text.strip_prefix("node-").unwrap_or(text);
    let found = number.parse().ok().filter(|number| *number > 0).map(NodeId);
    found.ok_or_else(|| "a node is written node-3 or 3; `bireme status` shows them".to_owned())
}

/// Asks the cluster to drain a node, and waits until it has left.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let asked = arguments.choice.one_of_cluster()?;
    let deadline_ms = u64::try_from(arguments.deadline.as_millis())?;
    let request = AdminRequest::Drain { node: arguments.node, deadline_ms };
    match ask(&asked.socket, &request, status::WAIT)? {
        AdminReply::Accepted => {}
        AdminReply::Refused(reason) => return Err(format!("{} cannot be drained: {reason}", arguments.node).into()),
        other => return Err(format!("the node answered something else: {other:?}").into()),
    }
    println!("{} is draining", arguments.node);
    if !arguments.no_wait {
        wait(arguments.node, &asked, arguments.deadline + SLACK)?;
        println!("{} has left", arguments.node);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns when the node has left.
fn wait(node: NodeId, asked: &NodeFile, longest: Duration) -> Outcome<()> {
    let latest = Instant::now() + longest;
    while Instant::now() < latest {
        std::thread::sleep(LOOK);
        let left = match status::of(asked) {
            Ok(status) => {
                let found = status.nodes.iter().find(|one| one.node == node);
                found.is_none_or(|one| matches!(one.state, NodeState::Left | NodeState::Dead))
            }
            // The node that we ask may be the one that leaves.
            Err(error) if asked.process.is_running() => return Err(error),
            Err(_) => true,
        };
        if left {
            return Ok(());
        }
    }
    Err(format!("{node} has not left in time; `bireme status` shows what holds it").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_written_with_or_without_its_prefix() {
        assert_eq!(node("3"), Ok(NodeId(3)));
        assert_eq!(node("node-3"), Ok(NodeId(3)));
        for wrong in ["", "0", "node-", "node-x", "-1", "3.1"] {
            assert!(node(wrong).is_err(), "{wrong}");
        }
    }
}
