//! A machine of the cluster: its node and what the node's shell keeps.

use std::collections::{BTreeMap, VecDeque};

use bireme_core::controller::Tenure;
use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_core::node::{self, Node, NodeConfig};
use bireme_core::resources::{Amount, Resources, UNITS_PER_WHOLE};
use bireme_core::throttle::Throttle;
use bireme_core::time::Tick;

use super::links::Link;
use super::stages::Stages;
use super::stores::Store;
use super::{Cluster, Happening};
use crate::planted::Planted;

/// The job of the driver that lives, and of the one that is killed, when there are two at one node.
const JOBS: [JobId; 2] = [JobId(1), DOOMED_JOB];
/// The job whose driver is killed.
pub(super) const DOOMED_JOB: JobId = JobId(2);

/// A machine.
pub struct Host {
    pub(crate) node: Node,
    /// The rings that the node has still to read in this pass.
    pub(super) pass: Option<VecDeque<ProcessId>>,
    pub(super) tick: Option<Tick>,
    /// Which rings are read while others wait for a node that is slow to take messages.
    pub(super) throttle: Throttle,
    pub(super) links: BTreeMap<NodeId, Link>,
    pub(super) slowness: u64,
    /// Until when it may run work, unless the controller says more.
    pub(super) tenure: Tenure,
    /// It has ended its processes and is about to go.
    pub(super) leaving: bool,
    /// Heartbeats so far.
    pub(super) beats: u64,
    /// What lies in its store.
    pub(crate) store: Store,
    /// Its parts in reduces.
    pub(crate) stages: Stages,
}

impl Cluster {
    /// The machines that are there from the beginning.
    pub(super) fn found(&mut self) {
        if self.faults.nodes.count <= 1 {
            let config = self.config();
            self.add_host(config, Tenure::new(self.now, 0));
            return;
        }
        for _ in 0..self.faults.nodes.count {
            self.join();
        }
        let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
        let roots = self.program.roots.len();
        self.root_nodes = match self.faults.nodes.drain {
            Some(_) => vec![NodeId::HEAD; roots],
            None => (0..roots).map(|_| nodes[self.random.below(nodes.len() as u64) as usize]).collect(),
        };
    }

    /// A machine with a node and its driver.
    pub(super) fn add_host(&mut self, mut config: NodeConfig, tenure: Tenure) {
        let id = config.id;
        self.watch.machine(id, config.total.cpus);
        if self.planted == Some(Planted::OneCpuTooMany) {
            config.total.cpus.0 += UNITS_PER_WHOLE;
        }
        let has_driver = self.faults.nodes.drain.is_none() || id == NodeId::HEAD;
        config.job = config.job.filter(|_| has_driver).map(|_| JobId::new(id, 1));
        let slowness = match self.faults.nodes.slow {
            Some((one_in, factor)) if self.random.one_in(one_in) => factor,
            _ => 1,
        };
        let host = Host {
            node: Node::new(config),
            pass: None,
            tick: None,
            throttle: Throttle::new(self.faults.nodes.queue_bytes),
            links: BTreeMap::new(),
            slowness,
            tenure,
            leaving: false,
            beats: 0,
            store: Store::default(),
            stages: Stages::default(),
        };
        self.hosts.insert(id, host);
        let Some(dies_us) = self.second_driver_dies_us() else {
            if has_driver {
                self.make_process(ProcessId::first_driver(id));
            }
            self.step_node(id, node::Event::Started);
            return;
        };
        self.step_node(id, node::Event::Started);
        for job in JOBS {
            let driver = self.attach(job);
            if job == DOOMED_JOB {
                self.after(dies_us, Happening::Killed(driver));
            }
        }
    }

    fn second_driver_dies_us(&self) -> Option<u64> {
        self.faults.second_driver_dies_us.filter(|_| self.faults.nodes.count <= 1)
    }

    /// A driver attaches to the one node.
    fn attach(&mut self, job: JobId) -> ProcessId {
        let next = self.hosts.get(&NodeId::ALONE).and_then(|host| host.node.next_driver());
        let process = next.expect("the node has room for two drivers");
        self.step_node(NodeId::ALONE, node::Event::DriverAttached { process, pid: process.slot, job });
        self.make_process(process);
        process
    }

    /// The drivers begin their own code.
    pub(super) fn start_roots(&mut self) {
        for lane in 0..self.program.roots.len() {
            if self.second_driver_dies_us().is_none() {
                self.start_root(self.driver_of(lane), lane);
                continue;
            }
            let drivers: Vec<ProcessId> = self.processes.keys().copied().filter(|p| p.is_driver()).collect();
            for driver in drivers {
                self.start_root(driver, lane);
            }
        }
    }

    /// The machine is gone with all its processes; what it had not sent is lost.
    pub(super) fn remove_host(&mut self, id: NodeId) {
        let peers: Vec<NodeId> =
            self.hosts.get(&id).map(|host| host.links.keys().copied().collect()).unwrap_or_default();
        for peer in peers {
            self.break_connection(id, peer);
        }
        self.hosts.remove(&id);
        self.end_processes(id);
        self.network.drop_reader(ProcessId::of_node(id));
        self.open_links.retain(|(a, _)| a.node != id);
        self.watch.node_lost(id);
        (self.torn_loan, self.node_lost) = (true, true);
    }

    /// All processes of a machine end at once.
    pub(super) fn end_processes(&mut self, id: NodeId) {
        let all = ProcessId::of_node(id)..ProcessId::of_node(NodeId(id.0 + 1));
        let processes: Vec<ProcessId> = self.processes.range(all).map(|(process, _)| *process).collect();
        for process in processes {
            self.processes.remove(&process);
            self.network.drop_reader(process);
            self.watch.died(process);
        }
        self.unborn.retain(|process| process.node != id);
        self.unreported.retain(|process| process.node != id);
    }

    /// The driver that runs a root of the program.
    pub(super) fn driver_of(&self, lane: usize) -> ProcessId {
        ProcessId::first_driver(self.root_nodes.get(lane).copied().unwrap_or(NodeId::ALONE))
    }

    /// A machine as it comes.
    pub(super) fn config(&mut self) -> NodeConfig {
        let two = self.second_driver_dies_us().is_some();
        let (drivers, several) = (if two { 2 } else { 1 }, two || self.faults.nodes.count > 1);
        let random = &mut self.random;
        // Actors hold what they hold: beside them there is room for any task.
        let cpus = Amount(Amount::whole(random.within(1, 4)).0 + drivers * self.program.actors_cpu_tenths() * 1_000);
        let gpus = Amount::whole(2 + drivers * self.program.gpu_actors());
        let mut config = NodeConfig::for_machine(Resources { gpus, ..Resources::cpus(cpus) });
        // Fewer seats than blocked tasks would be a real deadlock, and actors that only serve keep theirs.
        let few = (drivers * self.program.actors() + random.within(1, 2)) as u32;
        (config.processes_max, config.threads_per_process_max) =
            [(8, 64), (16, 64), (64, 4), (few, 64)][random.below(4) as usize];
        if self.program.keeps_processes() {
            // A blocked task lends its process only to tasks of its own environment and placement group, and not when it was the
            // last that its process may run.
            config.processes_max = config.processes_max.max(16);
        }
        if several {
            // The same for jobs.
            config.processes_max = config.processes_max.max(32);
        }
        config.job = (!two).then(JobId::default);
        config.idle_worker_us = 2_000_000;
        config
    }
}
