//! What all nodes have told, as one picture of the cluster.

use std::collections::BTreeMap;

use bireme_core::id::{JobId, NodeId};
use bireme_core::ledger::snapshot::{GroupRow, GroupStage, NodeRow};
use bireme_core::names;
use bireme_core::node::{ActorOverview, JobOverview, Overview};
use bireme_core::resources::{Amount, Resources};

use super::{ActorStatus, ClusterStatus, GroupStatus, JobStatus, NodeState, NodeStatus, WaitingStatus};
use crate::node::status::{Gathered, Part};

/// Rows of each table; more are counted.
pub const STATUS_ROWS_MAX: usize = 1_000;

/// Fills the tables of a status.
pub(crate) fn compose(gathered: Gathered, status: &mut ClusterStatus) {
    let parts: BTreeMap<NodeId, Part> = gathered.parts.into_iter().collect();
    status.rows_left_out = parts.values().map(|part| part.overview.rows_left_out).sum();
    let nodes = gathered.nodes.iter().map(|(row, queued)| {
        let silent = gathered.silent.contains(&row.node);
        node(row, *queued, parts.get(&row.node), gathered.left.contains(&row.node), silent)
    });
    let overviews = || parts.iter().map(|(node, part)| (*node, &part.overview));
    let mut groups: BTreeMap<_, &GroupRow> = BTreeMap::new();
    for row in overviews().flat_map(|(_, overview)| &overview.groups) {
        groups.insert(row.group, row);
    }
    let actors = overviews().flat_map(|(_, overview)| overview.actors.iter().map(actor));
    let left_out = &mut status.rows_left_out;
    status.nodes = first(nodes, left_out);
    status.jobs = first(jobs(overviews()).into_iter(), left_out);
    status.actors = first(actors, left_out);
    status.groups = first(groups.into_values().map(group), left_out);
    status.waiting = first(waiting(overviews()).into_iter(), left_out);
}

fn first<T>(rows: impl Iterator<Item = T>, left_out: &mut u64) -> Vec<T> {
    let mut rows: Vec<T> = rows.collect();
    *left_out += rows.len().saturating_sub(STATUS_ROWS_MAX) as u64;
    rows.truncate(STATUS_ROWS_MAX);
    rows
}

fn node(row: &NodeRow, queued: u64, part: Option<&Part>, left: bool, silent: bool) -> NodeStatus {
    let overview = part.map(|part| &part.overview);
    let total = overview.map_or(&row.total, |overview| &overview.total);
    let free = overview.map_or(&row.free, |overview| &overview.free);
    let state = match (row.alive, left) {
        (true, _) if row.draining || overview.is_some_and(|overview| overview.draining) => NodeState::Draining,
        (true, _) => NodeState::Alive,
        (false, true) => NodeState::Left,
        (false, false) => NodeState::Dead,
    };
    let used =
        |total: Amount, free: Amount| if row.alive { Amount(total.0.saturating_sub(free.0)).as_f64() } else { 0.0 };
    let custom = total.custom.iter().map(|(name, amount)| {
        let free = free.custom.get(name).copied().unwrap_or_default();
        (name.clone(), (used(*amount, free), amount.as_f64()))
    });
    let note = match &row.reason {
        Some(reason) => reason.clone(),
        None if silent => "did not answer".to_owned(),
        None => String::new(),
    };
    NodeStatus {
        node: row.node,
        address: row.address.clone(),
        head: row.node == NodeId::HEAD,
        driver_only: row.role == "driver",
        state,
        cpus_used: used(total.cpus, free.cpus),
        cpus_total: total.cpus.as_f64(),
        gpus_used: used(total.gpus, free.gpus),
        gpus_total: total.gpus.as_f64(),
        memory_used_bytes: if row.alive { total.memory_bytes.saturating_sub(free.memory_bytes) } else { 0 },
        memory_total_bytes: total.memory_bytes,
        resources: custom.collect(),
        labels: row.labels.clone(),
        objects: part.map_or(0, |part| part.objects),
        object_bytes: part.map_or(0, |part| part.object_bytes),
        object_store_bytes: part.map_or(0, |part| part.object_store_bytes),
        queued: overview.map_or(queued, |overview| overview.queued),
        workers: overview.map_or(0, |overview| overview.workers),
        note,
    }
}

/// Each job once: its driver's node knows the driver, every node knows its workers.
fn jobs<'a>(overviews: impl Iterator<Item = (NodeId, &'a Overview)>) -> Vec<JobStatus> {
    let mut all: BTreeMap<JobId, JobStatus> = BTreeMap::new();
    for (_, overview) in overviews {
        for JobOverview { row, tasks_open } in &overview.jobs {
            let job = all.entry(row.job).or_insert_with(|| JobStatus {
                job: row.job.to_string(),
                node: row.job.node(),
                process: 0,
                over: false,
                workers: 0,
                tasks_open: 0,
            });
            job.process = job.process.max(row.pid);
            job.over |= row.over;
            job.workers += row.workers;
            job.tasks_open += tasks_open;
        }
    }
    all.into_values().collect()
}

fn name(full: Option<&str>) -> Option<String> {
    full.map(|full| names::split(full).1.to_owned())
}

fn namespace(full: Option<&str>) -> Option<String> {
    names::split(full?).0.map(str::to_owned)
}

fn actor(actor: &ActorOverview) -> ActorStatus {
    ActorStatus {
        actor: actor.row.actor.to_string(),
        name: name(actor.row.name.as_deref()),
        namespace: namespace(actor.row.name.as_deref()),
        class: actor.row.class.clone(),
        state: actor.row.state.clone(),
        node: actor.host,
        detached: actor.detached,
    }
}

fn group(row: &GroupRow) -> GroupStatus {
    let bundle = |(resources, node): &(Resources, Option<NodeId>)| match node {
        Some(node) => format!("{resources} on {node}"),
        None => format!("{resources} nowhere yet"),
    };
    GroupStatus {
        group: row.group.to_string(),
        name: name(row.name.as_deref()),
        namespace: namespace(row.name.as_deref()),
        strategy: row.strategy.name().to_owned(),
        state: match &row.stage {
            GroupStage::Waiting(_) => "waiting",
            GroupStage::Placed => "placed",
            GroupStage::Rescheduling(_) => "rescheduling",
            GroupStage::Failed(_) => "failed",
            GroupStage::Removed => "removed",
        }
        .to_owned(),
        bundles: row.bundles.iter().map(bundle).collect(),
    }
}

/// What waits, node by node.
fn waiting<'a>(overviews: impl Iterator<Item = (NodeId, &'a Overview)>) -> Vec<WaitingStatus> {
    let rows = overviews.flat_map(|(node, overview)| {
        let waiting = overview.waiting.iter().map(move |row| WaitingStatus {
            node,
            what: row.what.clone(),
            count: row.count,
            why: row.why.clone(),
        });
        waiting.chain(overview.groups.iter().filter_map(move |row| match &row.stage {
            GroupStage::Waiting(why) | GroupStage::Rescheduling(why) => {
                Some(WaitingStatus { node, what: format!("placement {}", row.group), count: 1, why: why.clone() })
            }
            GroupStage::Placed | GroupStage::Failed(_) | GroupStage::Removed => None,
        }))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use bireme_core::ledger::snapshot::JobRow;
    use bireme_core::node::WaitingRow;

    use super::*;

    fn row(node: u32, alive: bool) -> NodeRow {
        NodeRow {
            node: NodeId(node),
            address: format!("127.0.0.1:{node}"),
            hostname: String::new(),
            role: "worker".to_owned(),
            alive,
            draining: false,
            reason: (!alive).then(|| "it left the cluster".to_owned()),
            total: Resources::cpus(Amount::whole(4)),
            free: Resources::cpus(Amount::whole(3)),
            labels: BTreeMap::new(),
        }
    }

    fn part(workers: u64) -> Part {
        let (job, driver) = (JobId::new(NodeId(1), 7), None);
        let row = JobRow { job, driver, over: false, pid: 0, workers };
        let waiting = WaitingRow { what: "tasks".to_owned(), count: 2, why: "busy".to_owned() };
        let overview = Overview {
            total: Resources::cpus(Amount::whole(4)),
            free: Resources::cpus(Amount::whole(1)),
            queued: 9,
            jobs: vec![JobOverview { row, tasks_open: 3 }],
            waiting: vec![waiting],
            rows_left_out: 1,
            ..Overview::default()
        };
        Part { overview, objects: 5, ..Part::default() }
    }

    #[test]
    fn an_answer_counts_more_than_a_load_and_a_job_is_one_row() {
        let gathered = Gathered {
            nodes: vec![
                (row(1, true), 4),
                (row(2, true), 4),
                (row(3, true), 4),
                (row(4, false), 0),
                (row(5, false), 0),
            ],
            left: BTreeSet::from([NodeId(4)]),
            parts: vec![(NodeId(1), part(2)), (NodeId(2), part(1))],
            silent: BTreeSet::from([NodeId(3)]),
        };
        let mut status = ClusterStatus::default();
        compose(gathered, &mut status);
        let shown: Vec<_> =
            status.nodes.iter().map(|node| (node.cpus_used, node.queued, node.state, node.note.as_str())).collect();
        assert_eq!(
            shown,
            [
                (3.0, 9, NodeState::Alive, ""),
                (3.0, 9, NodeState::Alive, ""),
                (1.0, 4, NodeState::Alive, "did not answer"),
                (0.0, 0, NodeState::Left, "it left the cluster"),
                (0.0, 0, NodeState::Dead, "it left the cluster"),
            ]
        );
        assert_eq!((status.jobs.len(), status.jobs[0].workers, status.jobs[0].tasks_open), (1, 3, 6));
        assert_eq!((status.waiting.len(), status.waiting[1].node), (2, NodeId(2)));
        assert_eq!(status.rows_left_out, 2);
    }
}
