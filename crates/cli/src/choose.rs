//! Which of the user's nodes on this machine a command is about.

use bireme_runtime::local::{NodeFile, StateDirectory};
use clap::Args;

use crate::Outcome;
use crate::flags::StateFlag;

/// The flags that choose.
#[derive(Args)]
pub(crate) struct Choice {
    /// The node that listens at this address.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "cluster")]
    pub(crate) address: Option<String>,
    /// Nodes of the cluster whose id begins like this.
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) state: StateFlag,
}

impl Choice {
    /// Whether anything was chosen.
    pub(crate) fn is_made(&self) -> bool {
        self.address.is_some() || self.cluster.is_some()
    }

    /// The state directory and the chosen nodes that run. A choice that fits none is an error.
    pub(crate) fn nodes(&self) -> Outcome<(Option<StateDirectory>, Vec<NodeFile>)> {
        let state = self.state.open()?;
        let running = state.as_ref().map_or_else(Vec::new, StateDirectory::running);
        let fits = |node: &NodeFile| {
            self.address.as_ref().is_none_or(|address| *address == node.address)
                && self.cluster.as_ref().is_none_or(|cluster| node.cluster.starts_with(cluster))
        };
        let chosen: Vec<NodeFile> = running.iter().filter(|node| fits(node)).cloned().collect();
        if chosen.is_empty() && self.is_made() {
            let others = if running.is_empty() { "none".to_owned() } else { names(&running) };
            return Err(format!("you have no such node on this machine; there is: {others}").into());
        }
        Ok((state, chosen))
    }

    /// A node of the one cluster that was meant, one with the controller if there is one.
    pub(crate) fn one_of_cluster(&self) -> Outcome<NodeFile> {
        let (_, mut nodes) = self.nodes()?;
        if nodes.iter().any(|node| node.cluster != nodes[0].cluster) {
            return Err(format!("you have several clusters here: {}; choose with --cluster", names(&nodes)).into());
        }
        let head = nodes.iter().position(|node| node.address == node.head).unwrap_or(0);
        if nodes.is_empty() {
            return Err("you have no node running on this machine; start one with `bireme start`".into());
        }
        Ok(nodes.swap_remove(head))
    }
}

/// Nodes for people.
pub(crate) fn names(nodes: &[NodeFile]) -> String {
    let each = nodes.iter().map(|node| format!("{} at {} (cluster {})", node.node, node.address, node.cluster));
    each.collect::<Vec<_>>().join(", ")
}
