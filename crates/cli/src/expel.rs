//! `bireme expel NODE`: the node is out at once, and its certificate is worth nothing any more.

use std::process::ExitCode;

use bireme_runtime::admin::{AdminReply, AdminRequest, ask};
use bireme_runtime::core::id::NodeId;
use clap::Args;

use crate::Outcome;
use crate::choose::Choice;
use crate::{drain, status};

/// The command line of `bireme expel`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Which node or client, as `bireme status` shows it: node-3, or 3.
    #[arg(value_name = "NODE", value_parser = drain::node)]
    node: NodeId,
    #[command(flatten)]
    choice: Choice,
}

/// Has the head, which runs on this machine, put a node out.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let head = arguments.choice.one_of_cluster()?;
    match ask(&head.socket, &AdminRequest::Expel { node: arguments.node }, status::WAIT)? {
        AdminReply::Accepted => println!("{} is expelled", arguments.node),
        AdminReply::Refused(reason) => return Err(format!("{} cannot be expelled: {reason}", arguments.node).into()),
        other => return Err(format!("the node answered something else: {other:?}").into()),
    }
    Ok(ExitCode::SUCCESS)
}
