//! `bireme status`: the cluster as one of its nodes knows it.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use bireme_runtime::admin::{AdminReply, AdminRequest, ClusterStatus, NodeStatus, ask};
use bireme_runtime::local::NodeFile;
use clap::Args;

use crate::Outcome;
use crate::choose::Choice;

/// How long a node may take to answer.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// Cells of a node; of what can be used up, what is in use and all.
const NODE_COLUMNS: [&str; 9] = ["node", "address", "state", "cpus", "memory", "objects", "workers", "queued", "more"];

/// The command line of `bireme status`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    choice: Choice,
}

/// Asks a node and prints what it says.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let status = of(&arguments.choice.one_of_cluster()?)?;
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&status)?),
        false => print!("{}", text(&status)),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a node knows.
pub(crate) fn of(node: &NodeFile) -> Outcome<ClusterStatus> {
    match ask(&node.socket, &AdminRequest::Status, WAIT)? {
        AdminReply::Status(status) => Ok(*status),
        AdminReply::Refused(reason) => Err(reason.into()),
        other => Err(format!("the node answered something else: {other:?}").into()),
    }
}

fn text(status: &ClusterStatus) -> String {
    let mut out = format!("cluster {}, as {} knows it (version {})\n", status.cluster, status.asked, status.version);
    let links = if status.security.mutual_tls { "mutual TLS" } else { "plain, on this machine alone" };
    let bulk = if status.security.bulk_encryption { "" } else { "; bulk encryption off" };
    // Writing into a text cannot fail.
    let _ = writeln!(out, "links: {links}{bulk}");
    if !status.security.rotation.is_empty() {
        let _ = writeln!(out, "keys: {}", status.security.rotation);
    }
    out += &table("nodes", &NODE_COLUMNS, nodes(status));
    let jobs = status.jobs.iter().map(|job| {
        let driver = match job.over {
            true => format!("was on {}, gone", job.node),
            // Its node has not answered.
            false if job.process == 0 => job.node.to_string(),
            false => format!("{} pid {}", job.node, job.process),
        };
        vec![job.job.clone(), driver, job.workers.to_string(), job.tasks_open.to_string()]
    });
    out += &table("jobs", &["job", "driver", "workers", "open tasks"], jobs.collect());
    let actors = status.actors.iter().map(|actor| {
        let name = named(actor.name.as_deref(), actor.namespace.as_deref());
        let node = actor.node.map_or_else(String::new, |node| node.to_string());
        let detached = if actor.detached { "detached" } else { "" };
        vec![actor.actor.clone(), name, actor.class.clone(), actor.state.clone(), node, detached.to_owned()]
    });
    out += &table("actors", &["actor", "name", "class", "state", "node", ""], actors.collect());
    let groups = status.groups.iter().map(|group| {
        let name = named(group.name.as_deref(), group.namespace.as_deref());
        vec![group.group.clone(), name, group.strategy.clone(), group.state.clone(), group.bundles.join("; ")]
    });
    out += &table("placement groups", &["group", "name", "strategy", "state", "bundles"], groups.collect());
    let waiting = status
        .waiting
        .iter()
        .map(|one| vec![one.count.to_string(), one.what.clone(), one.node.to_string(), one.why.clone()]);
    out += &table("waiting", &["count", "what", "at", "why"], waiting.collect());
    if status.rows_left_out > 0 {
        let _ = writeln!(out, "\n{} more rows are not shown", status.rows_left_out);
    }
    out
}

/// A name and where it is looked up.
fn named(name: Option<&str>, namespace: Option<&str>) -> String {
    match (name, namespace) {
        (Some(name), Some(namespace)) => format!("{name} (namespace {namespace})"),
        (Some(name), None) => name.to_owned(),
        (None, _) => String::new(),
    }
}

fn nodes(status: &ClusterStatus) -> Vec<Vec<String>> {
    status.nodes.iter().map(node).collect()
}

fn node(node: &NodeStatus) -> Vec<String> {
    let mut more: Vec<String> = Vec::new();
    if node.gpus_total > 0.0 {
        more.push(format!("gpus {}/{}", node.gpus_used, node.gpus_total));
    }
    more.extend(node.resources.iter().map(|(name, (used, total))| format!("{name} {used}/{total}")));
    more.extend(node.labels.iter().map(|(name, value)| format!("{name}={value}")));
    more.extend(node.head.then(|| "head".to_owned()));
    more.extend(node.driver_only.then(|| "driver".to_owned()));
    more.extend((!node.note.is_empty()).then(|| node.note.clone()));
    vec![
        node.node.to_string(),
        node.address.clone(),
        node.state.to_string(),
        format!("{}/{}", node.cpus_used, node.cpus_total),
        format!("{}/{}", bytes(node.memory_used_bytes), bytes(node.memory_total_bytes)),
        format!("{} ({}/{})", node.objects, bytes(node.object_bytes), bytes(node.object_store_bytes)),
        node.workers.to_string(),
        node.queued.to_string(),
        more.join(", "),
    ]
}

/// A size with three digits.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || size >= 99.95 { 0 } else { 1 };
    format!("{size:.digits$} {}", UNITS[unit])
}

/// Columns as wide as they have to be; nothing when there are no rows.
pub(crate) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut out = format!("\n{title}\n");
    let width = |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in [&head].into_iter().chain(&rows) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        out += &format!("  {}", cells.join("  "));
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bireme_runtime::admin::{ActorStatus, GroupStatus, JobStatus, NodeState, Security, WaitingStatus};
    use bireme_runtime::core::id::NodeId;

    use super::*;

    fn one_node() -> NodeStatus {
        NodeStatus {
            node: NodeId(2),
            address: "10.0.0.2:7".to_owned(),
            head: true,
            driver_only: false,
            state: NodeState::Draining,
            cpus_used: 1.5,
            cpus_total: 4.0,
            gpus_used: 0.0,
            gpus_total: 1.0,
            memory_used_bytes: 1 << 30,
            memory_total_bytes: 16 << 30,
            resources: BTreeMap::from([("disk".to_owned(), (1.0, 2.0))]),
            labels: BTreeMap::from([("rack".to_owned(), "7".to_owned())]),
            objects: 3,
            object_bytes: 500,
            object_store_bytes: 100 << 20,
            queued: 12,
            workers: 4,
            note: "did not answer".to_owned(),
        }
    }

    #[test]
    fn the_text_has_a_line_for_everything_and_says_what_is_not_encrypted() {
        let text = text(&ClusterStatus {
            cluster: "c1".to_owned(),
            asked: NodeId(1),
            version: "9".to_owned(),
            security: Security { mutual_tls: true, bulk_encryption: false, rotation: "half done".to_owned() },
            nodes: vec![one_node()],
            jobs: vec![JobStatus {
                job: "job-1".to_owned(),
                node: NodeId(2),
                process: 77,
                over: false,
                workers: 3,
                tasks_open: 5,
            }],
            actors: vec![ActorStatus {
                actor: "actor-1".to_owned(),
                name: Some("counter".to_owned()),
                namespace: Some("team".to_owned()),
                class: "Counter".to_owned(),
                state: "alive".to_owned(),
                node: Some(NodeId(2)),
                detached: true,
            }],
            groups: vec![GroupStatus {
                group: "group-1".to_owned(),
                name: None,
                namespace: None,
                strategy: "spread".to_owned(),
                state: "waiting".to_owned(),
                bundles: vec!["1 cpu on node-2".to_owned(), "1 cpu nowhere".to_owned()],
            }],
            waiting: vec![WaitingStatus {
                node: NodeId(2),
                what: "tasks that want 8 cpus".to_owned(),
                count: 3,
                why: "no node has so many".to_owned(),
            }],
            rows_left_out: 2,
        });
        let expected = "\
cluster c1, as node-1 knows it (version 9)
links: mutual TLS; bulk encryption off
keys: half done

nodes
  node    address     state     cpus   memory            objects            workers  queued  more
  node-2  10.0.0.2:7  draining  1.5/4  1.0 GiB/16.0 GiB  3 (500 B/100 MiB)  4        12      gpus 0/1, disk 1/2, rack=7, head, did not answer

jobs
  job    driver         workers  open tasks
  job-1  node-2 pid 77  3        5

actors
  actor    name                      class    state  node
  actor-1  counter (namespace team)  Counter  alive  node-2  detached

placement groups
  group    name  strategy  state    bundles
  group-1        spread    waiting  1 cpu on node-2; 1 cpu nowhere

waiting
  count  what                    at      why
  3      tasks that want 8 cpus  node-2  no node has so many

2 more rows are not shown
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn what_is_not_there_has_no_table_and_encryption_is_not_mentioned_when_on() {
        let security = Security { bulk_encryption: true, ..Security::default() };
        let text = text(&ClusterStatus { security, ..ClusterStatus::default() });
        assert!(!text.contains("jobs") && !text.contains("waiting") && !text.contains("encryption"), "{text}");
    }

    #[test]
    fn sizes_have_three_digits() {
        for (count, shown) in [(0, "0 B"), (999, "999 B"), (1_000, "1.0 KiB"), (150 << 20, "150 MiB")] {
            assert_eq!(bytes(count), shown);
        }
    }
}
