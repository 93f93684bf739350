//! The driver: the user's program, with a node inside or attached to one.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bireme_core::id::{JobId, NodeId, ProcessId, digest};
use bireme_core::names::Namespace;
use bireme_core::node::NodeConfig;
use bireme_core::owner::OwnerConfig;
use bireme_net::{Fabric, SlotId};
use bireme_store::{Arena, ProcessSlot, StoreClient, Table};

use crate::attach::{self, Attachment, Found};
use crate::clock;
use crate::cluster::{self, Timing};
use crate::config::Config;
use crate::error::Error;
use crate::names;
use crate::node::{Embedded, Ending, KeeperStart, NodeStart, NodeThread};
use crate::output::{Outputs, Throttle};
use crate::process::{self, Process, Start, count_as_running};

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// What this program is to its node.
enum Running {
    /// The node is a thread of this program.
    Embedded(NodeThread),
    /// The node is a process of its own.
    Attached(Attachment),
}

/// Starting and ending a runtime.
pub(crate) struct Driver;

impl Driver {
    pub(crate) fn start(config: Config) -> Result<Arc<Process>, Error> {
        crate::forked::check_forked()?;
        crate::function::Function::check_all()?;
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        match process::current() {
            Some(process) if process.is_worker() => return Err(Error::InWorker),
            current if current.is_some() || running.is_some() => return Err(Error::AlreadyRunning),
            _ => {}
        }
        crate::keeper::open_standard_descriptors()
            .map_err(|e| Error::System { what: "opening /dev/null", reason: e.to_string() })?;
        crate::entry::ensure_linked();
        if config.worker_program.is_none() && config.program.is_none() && !crate::entry::is_in_program() {
            let program = std::env::current_exe().map_or_else(|_| "it".to_owned(), |path| path.display().to_string());
            return Err(Error::InSharedLibrary { program });
        }
        let namespace = config.job_namespace()?;
        let (process, started) = match &config.address {
            Some(address) => {
                config.check_attached()?;
                match attach::find(address)? {
                    Found::Here(socket) => {
                        let (process, attachment) = attach::attach(&socket, &config, &namespace)?;
                        (process, Running::Attached(attachment))
                    }
                    Found::Elsewhere(address) => {
                        let (process, node) = Self::embed(config.of_driver_at(&address)?, namespace)?;
                        (process, Running::Embedded(node))
                    }
                }
            }
            None => {
                let (process, node) = Self::embed(config, namespace)?;
                (process, Running::Embedded(node))
            }
        };
        process::set_current(Some(Arc::clone(&process)));
        count_as_running(&process);
        *running = Some(started);
        Ok(process)
    }

    /// A node inside this program.
    fn embed(config: Config, namespace: Namespace) -> Result<(Arc<Process>, NodeThread), Error> {
        let system =
            |what: &'static str, error: &dyn std::fmt::Display| Error::System { what, reason: error.to_string() };
        let total = config.total()?;
        let spill = config.spill_options()?;
        let memory = config.memory_thresholds()?;
        let cluster =
            config.cluster.as_ref().map(|choice| cluster::prepare(choice, &total, Timing::default())).transpose()?;
        let id = cluster.as_ref().map_or(NodeId::ALONE, |start| start.node);
        // Nodes that run workers of this program ask for it.
        let program = cluster.as_ref().map(|_| attach::own_program(&config, &namespace));
        let me = ProcessId::first_driver(id);
        let mut fabric = Fabric::create().map_err(|e| system("making the fabric", &e))?;
        if cluster.is_some() {
            fabric = fabric.with_new_bell().map_err(|e| system("making the node's bell", &e))?;
        }
        let arena = Arena::create(config.arena_bytes()?).map_err(|e| system("making the arena", &e))?;
        let overflow = spill.make_overflow(arena.capacity()).map_err(|e| system("making the overflow file", &e))?;
        let arena = Arc::new(arena.with_overflow(overflow));
        let table = Arc::new(Table::create().map_err(|e| system("making the object table", &e))?);
        let cancel_grace_us = config.cancel_grace_ms.saturating_mul(1_000);
        let job = JobId::new(id, job_number());
        let slot = SlotId::new(me.slot as u16).expect("the driver's slot is in range");
        fabric.claim_slot(slot, std::process::id());
        let outputs = Arc::new(Outputs::new(Throttle::new(config.output_dedup, config.output_rate_max)));
        let hearer: Arc<OnceLock<Weak<Process>>> = Arc::default();
        let told = Arc::clone(&hearer);
        let node = NodeThread::start(NodeStart {
            config: NodeConfig {
                job: Some(job),
                driver_pid: std::process::id(),
                processes_max: config.processes_max()?,
                threads_per_process_max: config.threads_per_worker_max,
                idle_worker_us: config.idle_worker_ms.saturating_mul(1_000),
                id,
                memory,
                ..NodeConfig::for_machine(total)
            },
            embedded: Some(Embedded {
                job,
                settings: config.worker_settings(),
                keeper: KeeperStart {
                    program: config.worker_program.clone(),
                    environment: vec![names::for_workers(&namespace)],
                    scratch: config.scratch_directory.clone(),
                    output: config.output,
                },
                outputs: Arc::clone(&outputs),
                program,
            }),
            programs: None,
            on_ending: Box::new(move |ending| lost_cluster(&told, ending)),
            cluster,
            spin: config.spin,
            memory_limit_bytes: config.memory_limit_bytes,
            fabric: fabric.clone(),
            arena: Arc::clone(&arena),
            table: Arc::clone(&table),
            spill,
        })?;
        let rings = node.rings.expect("an embedded node has rings for its driver");
        let store_slot = ProcessSlot::new(me.slot).expect("the driver's slot is in range");
        let process = Process::start(Start {
            me,
            job: job.0,
            namespace,
            fabric,
            store: StoreClient::new(arena, table, store_slot),
            to_node: rings.0,
            from_node: rings.1,
            spin: config.spin,
            owner: OwnerConfig { cancel_grace_us },
        })?;
        // It cannot be set already.
        let _ = hearer.set(Arc::downgrade(&process));
        process.take_outputs_from(outputs);
        Ok((process, node))
    }

    pub(crate) fn shutdown(process: &Arc<Process>) {
        if crate::forked::is_forked() {
            return;
        }
        let running = {
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            // One that has ended before is not the one that runs now.
            if !process::current().is_some_and(|current| Arc::ptr_eq(&current, process)) {
                return;
            }
            running.take()
        };
        let Some(running) = running else { return };
        process.end();
        process::set_current(None);
        match running {
            Running::Embedded(node) => node.stop(),
            Running::Attached(attachment) => attachment.detach(process),
        }
    }
}

/// The node of this program is in no cluster any more: what was to come from there never will. Another number would not help,
/// since everything that the program knows of is under this one.
fn lost_cluster(process: &OnceLock<Weak<Process>>, ending: Ending) {
    let Some(process) = process.get().and_then(Weak::upgrade) else { return };
    let reason = match ending {
        Ending::Drained => "it was drained".to_owned(),
        Ending::Expelled(reason) => format!("it has lost its cluster: {reason}"),
    };
    // Threads of the program may hold what this needs while they wait for the node's thread, which is this one.
    if let Err(error) = crate::thread::spawn("bireme-lost", move || process.lose_node(reason)) {
        eprintln!("bireme: {error}");
    }
}

/// A number that no other run of this program has.
fn job_number() -> u64 {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&clock::now().0.to_le_bytes());
    key[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    digest(&key)
}
