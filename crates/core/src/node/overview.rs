//! What people see of a node and its cluster: the rows of `bireme status` and `bireme.nodes()`.
//!
//! A node knows itself fully ([`Node::overview`]); of the others it knows who they are and what their last load said
//! ([`Node::node_rows`]). What others know of their own jobs, actors and waits, the shell asks them for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::queue::{Ask, Waiting, conflict};
use super::stock::Stock;
use super::{ActorState, Node};
use crate::controller::{Departure, MemberRow};
use crate::id::{ActorId, GroupId, JobId, NodeId, ProcessId};
use crate::ledger::snapshot::{ActorRow, GroupRow, GroupStage, JobRow, NodeRow};
use crate::resources::{Amount, Resources};
use crate::schedule::Load;
use crate::spec::Strategy;
use crate::time::Tick;

/// Rows of each kind that one node tells; the others are counted.
pub const OVERVIEW_ROWS_MAX: usize = 1_000;

/// What a node tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// All that it can grant.
    pub total: Resources,
    /// What nobody holds.
    pub free: Resources,
    /// Who waits there.
    pub queued: u64,
    /// Its worker processes.
    pub workers: u32,
    /// It takes nothing more and will leave.
    pub draining: bool,
    /// What is there of jobs.
    pub jobs: Vec<JobOverview>,
    /// The actors that it manages and that are not dead.
    pub actors: Vec<ActorOverview>,
    /// Placement groups that are not gone: filled where the controller is ([`Overview::with_groups`]).
    pub groups: Vec<GroupRow>,
    /// What waits, and why.
    pub waiting: Vec<WaitingRow>,
    /// Rows that were left out.
    pub rows_left_out: u64,
}

/// What a node has of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobOverview {
    /// The job.
    pub row: JobRow,
    /// Tasks of owners on this node that have not ended.
    pub tasks_open: u64,
}

/// An actor that a node manages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorOverview {
    /// The actor.
    pub row: ActorRow,
    /// The node that hosts it, when that is known.
    pub host: Option<NodeId>,
    /// Whether it outlives its driver.
    pub detached: bool,
}

/// What waits on a node, and why: everybody of one kind together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingRow {
    /// What.
    pub what: String,
    /// How many.
    pub count: u64,
    /// For what.
    pub why: String,
}

impl Overview {
    /// Half of the rows go, so that it becomes a shorter message. False when there was none.
    pub fn shorten(&mut self) -> bool {
        let mut out = 0;
        halve(&mut self.jobs, &mut out);
        halve(&mut self.actors, &mut out);
        halve(&mut self.groups, &mut out);
        halve(&mut self.waiting, &mut out);
        self.rows_left_out += out;
        out > 0
    }
}

fn halve<T>(rows: &mut Vec<T>, out: &mut u64) {
    let kept = rows.len() / 2;
    *out += (rows.len() - kept) as u64;
    rows.truncate(kept);
}

/// The first rows, and how many are left out.
fn first<T>(rows: impl Iterator<Item = T>, left_out: &mut u64) -> Vec<T> {
    let mut kept = Vec::new();
    for row in rows {
        if kept.len() < OVERVIEW_ROWS_MAX {
            kept.push(row);
        } else {
            *left_out += 1;
        }
    }
    kept
}

/// Who waits with the same wish.
struct Kind<'a> {
    what: String,
    count: u64,
    first: &'a Waiting,
    /// Those before the first who want some of the same.
    before: u64,
}

impl Overview {
    /// With the placement groups of the cluster.
    pub fn with_groups(mut self, groups: Vec<GroupRow>) -> Self {
        let there = |row: &GroupRow| !matches!(row.stage, GroupStage::Removed | GroupStage::Failed(_));
        self.groups = first(groups.into_iter().filter(there), &mut self.rows_left_out);
        self
    }
}

impl Node {
    /// All that people ask about this node.
    pub fn overview(&self, now: Tick) -> Overview {
        let mut left_out = 0;
        let load = self.load();
        let open = self.ledger.open_by_owner();
        let mut by_job: BTreeMap<JobId, u64> = BTreeMap::new();
        for (owner, count) in open {
            *by_job.entry(self.job_of(owner).unwrap_or_default()).or_default() += count;
        }
        let jobs = self.job_rows().into_iter().map(|row| {
            let tasks_open = by_job.get(&row.job).copied().unwrap_or(0);
            JobOverview { row, tasks_open }
        });
        Overview {
            jobs: first(jobs, &mut left_out),
            actors: first(self.actor_overviews(), &mut left_out),
            groups: Vec::new(),
            waiting: first(self.waiting_rows(now).into_iter(), &mut left_out),
            rows_left_out: left_out,
            queued: load.queued.iter().map(|queued| u64::from(queued.count)).sum(),
            workers: u32::try_from(self.pool.workers.len()).unwrap_or(u32::MAX),
            draining: load.draining,
            total: load.total,
            free: self.unused().0,
        }
    }

    /// The nodes: the members that the shell knows, this one among them, and those that went lately. A node alone has no
    /// members.
    pub fn node_rows(&self, members: &[MemberRow], departed: &[(MemberRow, Departure)]) -> Vec<NodeRow> {
        if !self.is_clustered() {
            return vec![self.node_row()];
        }
        let own = Load { free: self.unused().0, ..self.load() };
        let loads: BTreeMap<NodeId, &Load> = self.cluster.passing.digest.loads().collect();
        let living = members.iter().map(|member| {
            let load = if member.node == self.config.id { Some(&own) } else { loads.get(&member.node).copied() };
            member_row(member, load)
        });
        let gone = departed.iter().map(|(member, departure)| {
            let free = Resources::default();
            let (alive, reason) = (false, Some(departure.to_string()));
            NodeRow { free, alive, reason, ..member_row(member, None) }
        });
        living.chain(gone).collect()
    }

    /// Who waits with another node, by its last load.
    pub fn queued_at(&self, node: NodeId) -> u64 {
        let load = self.cluster.passing.digest.loads().find(|(of, _)| *of == node).map(|(_, load)| load);
        load.map_or(0, |load| load.queued.iter().map(|queued| u64::from(queued.count)).sum())
    }

    fn actor_overviews(&self) -> impl Iterator<Item = ActorOverview> {
        let managed: BTreeSet<ActorId> = self
            .actors
            .all
            .iter()
            .filter(|(_, actor)| actor.manager.is_none() && !actor.is_dead())
            .map(|(id, _)| *id)
            .collect();
        let rows = self.actor_rows().into_iter().filter(move |row| managed.contains(&row.actor));
        rows.map(|row| {
            let actor = self.actors.all.get(&row.actor);
            let at = row.process.map(|process: ProcessId| process.node);
            let host = at.or_else(|| actor.and_then(|actor| actor.host));
            let detached = actor.is_some_and(super::actors::Actor::is_detached);
            ActorOverview { row, host, detached }
        })
    }

    /// Everybody who waits here, in the order in which they are served, those with the same wish together.
    fn waiting_rows(&self, now: Tick) -> Vec<WaitingRow> {
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        for (_, waiting) in self.queue.in_order() {
            let count = u64::from(self.waits_here(waiting));
            if count == 0 {
                continue;
            }
            let what = self.what_waits(waiting);
            if let Some(kind) = kinds.iter_mut().find(|kind| kind.what == what) {
                kind.count += count;
                continue;
            }
            if kinds.len() > OVERVIEW_ROWS_MAX {
                continue;
            }
            let rivals = kinds.iter().filter(|kind| competes(kind.first, waiting));
            let before = rivals.map(|kind| kind.count).sum();
            kinds.push(Kind { what, count, first: waiting, before });
        }
        let mut rows: Vec<WaitingRow> = kinds
            .into_iter()
            .map(|kind| {
                let mut why = self.why_it_waits(kind.first, now);
                if kind.before > 0 {
                    why += &format!("; {} before it", kind.before);
                }
                WaitingRow { what: kind.what, count: kind.count, why }
            })
            .collect();
        rows.extend(self.unplaced_rows());
        rows
    }

    /// Actors that no node can have as far as its load is known.
    fn unplaced_rows(&self) -> Vec<WaitingRow> {
        let mut rows: Vec<WaitingRow> = Vec::new();
        let unplaced = self.cluster.unplaced.iter().filter_map(|id| self.actors.all.get(id));
        for actor in unplaced.filter(|actor| actor.state == ActorState::Queued) {
            let (options, asked) = (&actor.spec.options, &actor.spec.options.resources);
            let what = format!("actors `{}` that want {asked}{}", options.name, placed(options.strategy));
            match rows.iter_mut().find(|row| row.what == what) {
                Some(row) => row.count += 1,
                None => rows.push(WaitingRow { what, count: 1, why: self.nearest_in_words(asked) }),
            }
        }
        rows
    }

    /// Grants that are wished of this node; the others' part of a wish waits there.
    fn waits_here(&self, waiting: &Waiting) -> u32 {
        match waiting.ask {
            Ask::Leases { owner, pool, .. } => {
                waiting.ask.wanted().saturating_sub(self.cluster.passing.total((owner, pool)))
            }
            Ask::Actor { .. } | Ask::Group { .. } => 1,
        }
    }

    fn what_waits(&self, waiting: &Waiting) -> String {
        let (asked, place) = (&waiting.resources, placed(waiting.strategy));
        match waiting.ask {
            Ask::Leases { .. } => format!("tasks that want {asked}{place}"),
            Ask::Actor { actor, .. } => {
                let class = self.actors.all.get(&actor).map_or("?", |actor| actor.spec.options.name.as_str());
                format!("actors `{class}` that want {asked}{place}")
            }
            Ask::Group { group, .. } => format!("placement group {group}, {asked} in all"),
        }
    }

    fn why_it_waits(&self, waiting: &Waiting, now: Tick) -> String {
        if self.fits(waiting) && self.is_paused() {
            return format!("it is free, but {}", self.explain_pressure());
        }
        if self.fits(waiting) {
            return format!("it is free, but {}", self.explain_no_process(waiting));
        }
        match waiting.strategy {
            Strategy::Group { group, bundle } => {
                let mut text = String::new();
                self.explain_bundles(group, bundle, waiting, &mut text, now);
                text
            }
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => {
                let lent = self.explain_lent(waiting, Stock::Machine);
                lent.unwrap_or_else(|| self.nearest_in_words(&waiting.resources))
            }
        }
    }

    /// Which node comes nearest to what is asked.
    fn nearest_in_words(&self, asked: &Resources) -> String {
        let (me, own) = (self.config.id, self.load());
        let others = self.cluster.passing.digest.loads().filter(|(node, _)| *node != me);
        let takers: Vec<(NodeId, &Load)> =
            others.chain([(me, &own)]).filter(|(_, load)| !load.driver_only && !load.draining).collect();
        let can = takers.iter().filter(|(_, load)| load.total.covers(asked));
        if let Some((node, load)) = can.min_by_key(|(node, load)| (load.free.shortage(asked), *node)) {
            return format!("{asked} asked, {node} comes nearest with {} free", only(&load.free, asked));
        }
        match takers.iter().min_by_key(|(node, load)| (load.total.shortage(asked), *node)) {
            Some((node, load)) => {
                format!("{asked} asked, and no node has that: {node} comes nearest with {}", only(&load.total, asked))
            }
            None => format!("{asked} asked, and no node takes work"),
        }
    }
}

/// Of these, the kinds that are asked for.
fn only(have: &Resources, asked: &Resources) -> Resources {
    let custom = asked.custom.keys().map(|name| (name.clone(), have.custom.get(name).copied().unwrap_or_default()));
    Resources {
        cpus: have.cpus,
        gpus: if asked.gpus.0 > 0 { have.gpus } else { Amount(0) },
        memory_bytes: if asked.memory_bytes > 0 { have.memory_bytes } else { 0 },
        custom: custom.collect(),
    }
}

/// Whether two who wait want some of the same.
fn competes(one: &Waiting, other: &Waiting) -> bool {
    one.strategy.group() == other.strategy.group() && conflict(&one.resources, &other.resources)
}

fn placed(strategy: Strategy) -> String {
    let bundle_of = |group: GroupId, bundle: Option<u32>| match bundle {
        Some(index) => format!(" in bundle {index} of {group}"),
        None => format!(" in {group}"),
    };
    match strategy {
        Strategy::Default => String::new(),
        Strategy::Spread => ", spread".to_owned(),
        Strategy::Node { node, soft: false } => format!(" on {node}"),
        Strategy::Node { node, soft: true } => format!(", on {node} if possible"),
        Strategy::Group { group, bundle } => bundle_of(group, bundle),
    }
}

fn member_row(member: &MemberRow, load: Option<&Load>) -> NodeRow {
    let role = match member.node {
        NodeId::HEAD => "head",
        _ if member.driver_only => "driver",
        _ => "worker",
    };
    NodeRow {
        node: member.node,
        address: member.address.clone(),
        hostname: String::new(),
        role: role.to_owned(),
        alive: true,
        draining: member.draining || load.is_some_and(|load| load.draining),
        reason: None,
        total: load.map_or_else(|| member.total.clone(), |load| load.total.clone()),
        free: load.map_or_else(|| member.total.clone(), |load| load.free.clone()),
        labels: member.labels.clone(),
    }
}
