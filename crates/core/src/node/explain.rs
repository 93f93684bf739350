//! Why does a task not finish? The answer in words, from the tables.

use std::fmt::Write as _;

use super::leases::Lease;
use super::pool::Worker;
use super::queue::{Ask, Waiting};
use super::stock::Stock;
use super::{ActorState, Node, WorkerState};
use crate::id::{ActorId, GroupId, ProcessId, TaskId};
use crate::ledger::tables::{TaskEntry, TaskState};
use crate::resources::Resources;
use crate::spec::{Strategy, TaskKind, TaskSpec};
use crate::time::Tick;
use crate::waits::Graph;

/// Maximum number of holders to name; the rest is counted.
const HOLDERS_NAMED_MAX: usize = 5;

impl Node {
    /// Explains why a task does not finish.
    pub fn explain(&self, task: TaskId, now: Tick) -> String {
        if let Some(text) = self.explain_group(GroupId(task), now) {
            return text;
        }
        let Some(entry) = self.ledger.task(task) else {
            return format!("{task} is not known to the node: it is over and nobody can ask for it, or never was");
        };
        let name = format!("{task} ({})", entry.name());
        match &entry.state {
            TaskState::Finished { .. } => format!("{name} is done"),
            TaskState::Running { worker, since } if self.live.contains(worker) => {
                let why = self.explain_run(task, *worker, &self.wait_graph());
                format!("{} has been running {name} for {}{why}", self.process_name(*worker), seconds(now, *since))
            }
            TaskState::Running { worker, .. } => {
                format!("{name} was running on {worker}, which is dead; {} has to run it again", entry.owner)
            }
            TaskState::Submitted => match &entry.spec {
                Some(spec) => {
                    let graph = self.wait_graph();
                    // Only the node of its worker knows that it runs.
                    if let Some(run) = graph.run(task) {
                        let (process, node) = (run.process, run.process.node);
                        return format!("{process} on {node} runs {name}{}", self.explain_run(task, process, &graph));
                    }
                    self.explain_submitted(&name, (spec, entry), &graph, now)
                }
                None => format!("{name} is on its way"),
            },
        }
    }

    /// Explains why a running task does not go on, as far as that is known.
    fn explain_run(&self, task: TaskId, process: ProcessId, graph: &Graph) -> String {
        let why = self.explain_memory(task, process).or_else(|| Self::explain_cycle(task, graph));
        why.map_or(String::new(), |text| format!("; {text}"))
    }

    fn explain_submitted(
        &self,
        name: &str,
        (spec, entry): (&TaskSpec, &TaskEntry),
        graph: &Graph,
        now: Tick,
    ) -> String {
        match &spec.kind {
            TaskKind::Create(_) => self.explain_actor(name, ActorId(spec.id), now),
            TaskKind::Call { actor, .. } => {
                let call = format!("{name} is a call of {actor}");
                let cycle = Self::explain_cycle(spec.id, graph).map_or(String::new(), |text| format!("; {text}"));
                match self.actors.all.get(actor).map(|a| &a.state) {
                    None if self.is_clustered() => format!("{call}, which another node manages{cycle}"),
                    Some(ActorState::Alive { process }) => {
                        format!("{call}, queued behind other calls; {}{cycle}", self.what_runs_on(*process, now))
                    }
                    _ => self.explain_actor(&call, *actor, now),
                }
            }
            TaskKind::Plain => self.explain_plain(name, spec, entry, now),
        }
    }

    fn explain_plain(&self, name: &str, spec: &TaskSpec, entry: &TaskEntry, now: Tick) -> String {
        let (resources, environment) = (&spec.options.resources, spec.options.environment);
        let wish = self.queue.in_order().map(|(_, waiting)| waiting).find(|waiting| {
            let own = matches!(waiting.ask, Ask::Leases { owner, .. } if owner == entry.owner);
            let alike = waiting.resources == *resources && waiting.strategy == spec.options.strategy;
            own && alike && waiting.environment == environment
        });
        let group = spec.options.strategy.group();
        let shape = |l: &&Lease| l.resources == *resources && l.environment == environment && l.stock.group() == group;
        let mut leases = self.leases.values().filter(|l| l.owner == entry.owner).filter(shape).peekable();
        if leases.peek().is_none()
            && let Some(waiting) = wish
        {
            return self.explain_waiting(name, waiting, now);
        }
        if leases.peek().is_none() {
            return match spec.dependencies.is_empty() {
                true => format!("{name} is with its owner {}, which has not asked for a worker yet", entry.owner),
                false => format!("{name} is with its owner {}, which waits for its arguments", entry.owner),
            };
        }
        let mut text = match spec.dependencies.is_empty() {
            true => format!("{name} is queued behind other tasks at {}: ", entry.owner),
            false => format!("{name} waits for its arguments at {}, or is queued behind other tasks: ", entry.owner),
        };
        let lines: Vec<String> = leases
            .take(HOLDERS_NAMED_MAX)
            .map(|lease| {
                let starting = if lease.announced { "" } else { " (still starting)" };
                format!("{}{starting}", self.what_runs_on(lease.worker, now))
            })
            .collect();
        text.push_str(&lines.join("; "));
        if let Some(waiting) = wish {
            let _ = write!(text, "; more workers: {}", self.explain_waiting("the shape", waiting, now));
        }
        text
    }

    fn explain_actor(&self, name: &str, id: ActorId, now: Tick) -> String {
        let Some(actor) = self.actors.all.get(&id) else {
            return format!("{name}: the node has not been asked to start {id} yet");
        };
        match &actor.state {
            ActorState::Queued => match self.queue.actor(id).and_then(|place| self.queue.get(place)) {
                Some(waiting) => self.explain_waiting(name, waiting, now),
                None => format!("{name} is about to be placed"),
            },
            ActorState::Starting { process } => format!("{name}: {id} starts on {}", self.process_name(*process)),
            ActorState::Alive { process } => format!("{name}: {id} lives on {}", self.process_name(*process)),
            ActorState::Retiring { process } => format!("{name}: {id} is ending on {}", self.process_name(*process)),
            ActorState::Ending { process, reason, .. } => {
                format!("{name}: {id} is being ended on {}: {reason}", self.process_name(*process))
            }
            ActorState::Dead { reason } => format!("{name}: {id} is dead: {reason}"),
        }
    }

    pub(super) fn explain_waiting(&self, name: &str, waiting: &Waiting, now: Tick) -> String {
        let asked = &waiting.resources;
        let mut text = format!("{name} is queued for {asked} (waiting {}): ", seconds(now, waiting.since));
        if self.fits(waiting) && self.is_paused() {
            let _ = write!(text, "they are free, but {}", self.explain_pressure());
            return text;
        }
        if self.fits(waiting) {
            let _ = write!(text, "they are free, but {}", self.explain_no_process(waiting));
            return text;
        }
        match waiting.strategy {
            Strategy::Group { group, bundle } => self.explain_bundles(group, bundle, waiting, &mut text, now),
            Strategy::Default | Strategy::Spread | Strategy::Node { .. } => {
                if let Some(lent) = self.explain_lent(waiting, Stock::Machine) {
                    text.push_str(&lent);
                } else if self.free.covers(asked) {
                    let _ = write!(text, "{} GPUs are free, but not on as few of them as it needs", self.free.gpus);
                }
                text.push_str(&lacking(asked, &self.free, &self.config.total));
                let reserved = self.groups.reserved().count();
                if reserved > 0 {
                    let _ = write!(text, " ({reserved} bundles of placement groups are reserved)");
                }
                if self.debt.0 > 0 {
                    let _ = write!(text, " ({} CPUs beyond the total are used by tasks that resumed)", self.debt);
                }
            }
        }
        let holders = self.holders(waiting, now);
        if !holders.is_empty() {
            let named = holders.iter().take(HOLDERS_NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
            let _ = write!(text, "; held by: {named}");
            if holders.len() > HOLDERS_NAMED_MAX {
                let _ = write!(text, "; and {} more", holders.len() - HOLDERS_NAMED_MAX);
            }
        }
        text
    }

    /// What is missing in the bundles that something may use.
    pub(super) fn explain_bundles(
        &self,
        id: GroupId,
        only: Option<u32>,
        waiting: &Waiting,
        text: &mut String,
        now: Tick,
    ) {
        let asked = &waiting.resources;
        let mut bundles = self.groups.bundles(id, only).peekable();
        if bundles.peek().is_none() {
            let group = self.explain_group(id, now).unwrap_or_else(|| format!("{id} is not known yet"));
            text.push_str(&group);
            return;
        }
        let lines = bundles.take(HOLDERS_NAMED_MAX).map(|(index, bundle)| {
            let missing = lacking(asked, &bundle.free, &bundle.total);
            let stock = Stock::Bundle { group: id, life: bundle.life, index };
            let missing = match self.explain_lent(waiting, stock) {
                Some(lent) => lent,
                None if missing.is_empty() => "its free GPUs are not in one piece".to_owned(),
                None => missing,
            };
            format!("bundle {index} of {id}: {missing}")
        });
        text.push_str(&lines.collect::<Vec<_>>().join("; "));
    }

    /// That an actor or a placement group waits for CPUs which are free only because blocked tasks lend them.
    pub(super) fn explain_lent(&self, waiting: &Waiting, stock: Stock) -> Option<String> {
        let free = self.groups.bundle(stock).map_or(&self.free, |bundle| &bundle.free);
        let lent = self.lent_cpus(stock);
        if !waiting.ask.is_lasting() || lent.0 == 0 || free.cpus < waiting.resources.cpus {
            return None;
        }
        let free = free.cpus;
        let who = if matches!(waiting.ask, Ask::Group { .. }) { "a placement group" } else { "an actor" };
        Some(format!("{free} CPUs are free, but blocked tasks want {lent} back, and {who} would keep them for life"))
    }

    /// Who holds some of what was asked for, by process.
    fn holders(&self, waiting: &Waiting, now: Tick) -> Vec<String> {
        let leased = |process: &ProcessId| {
            let here = |l: &&Lease| l.worker == *process;
            self.leases.values().filter(here).any(|l| waiting.competes(l.stock.group(), &l.holds()))
        };
        let hosts = |worker: &Worker| waiting.competes(worker.stock.group(), &worker.holds());
        let holding = self.pool.workers.iter().filter(|(p, w)| leased(p) || hosts(w));
        holding.map(|(process, _)| self.what_runs_on(*process, now)).collect()
    }

    fn what_runs_on(&self, process: ProcessId, now: Tick) -> String {
        let all = self.ledger.running(Some(process));
        let more = all.len().saturating_sub(HOLDERS_NAMED_MAX);
        let mut running: Vec<String> = all
            .into_iter()
            .take(HOLDERS_NAMED_MAX)
            .filter_map(|task| self.ledger.task(task))
            .filter_map(|entry| match entry.state {
                TaskState::Running { since, .. } => Some(format!("`{}` for {}", entry.name(), seconds(now, since))),
                TaskState::Submitted | TaskState::Finished { .. } => None,
            })
            .collect();
        if more > 0 {
            running.push(format!("and {more} more"));
        }
        let state = self.pool.workers.get(&process).map(|worker| worker.state);
        let name = self.process_name(process);
        match state {
            _ if !running.is_empty() => format!("{name} running {}", running.join(", ")),
            Some(WorkerState::Hosting(actor)) => format!("{name} hosting {actor}"),
            Some(WorkerState::Starting(_)) => format!("{name} starting"),
            None if process.node != self.config.id => format!("{name} on {}", process.node),
            _ => format!("{name} leased and idle"),
        }
    }

    fn process_name(&self, process: ProcessId) -> String {
        match self.pool.workers.get(&process) {
            Some(worker) if worker.pid > 0 => format!("{process} (pid {})", worker.pid),
            _ => process.to_string(),
        }
    }
}

/// What is missing of an ask, as "0.5 of 2 CPUs are free".
fn lacking(asked: &Resources, free: &Resources, total: &Resources) -> String {
    let mut parts = Vec::new();
    if free.cpus < asked.cpus {
        parts.push(format!("{} of {} CPUs are free", free.cpus, total.cpus));
    }
    if free.gpus < asked.gpus {
        parts.push(format!("{} of {} GPUs are free", free.gpus, total.gpus));
    }
    if free.memory_bytes < asked.memory_bytes {
        parts.push(format!("{} of {} bytes of memory are free", free.memory_bytes, total.memory_bytes));
    }
    for (name, amount) in &asked.custom {
        let have = free.custom.get(name).copied().unwrap_or_default();
        if have < *amount {
            let all = total.custom.get(name).copied().unwrap_or_default();
            parts.push(format!("{have} of {all} {name} are free"));
        }
    }
    parts.join(", ")
}

fn seconds(now: Tick, since: Tick) -> String {
    format!("{:.1} s", now.since_us(since) as f64 / 1e6)
}
