//! The driver: the user's program with a node inside.

use std::sync::{Arc, Mutex, PoisonError};

use bireme_core::id::{ProcessId, digest};
use bireme_core::node::NodeConfig;
use bireme_core::owner::OwnerConfig;
use bireme_net::{Fabric, SlotId};
use bireme_store::{Arena, ProcessSlot, SpillOptions, StoreClient, Table};

use crate::clock;
use crate::config::Config;
use crate::error::Error;
use crate::node::{NodeStart, NodeThread};
use crate::output::{Outputs, Throttle};
use crate::process::{self, Process, Start, count_as_running};

static NODE: Mutex<Option<NodeThread>> = Mutex::new(None);

/// Starting and ending an embedded runtime.
pub(crate) struct Driver;

impl Driver {
    pub(crate) fn start(config: Config) -> Result<Arc<Process>, Error> {
        crate::forked::check_forked()?;
        let mut running = NODE.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() || process::current().is_some() {
            return Err(Error::AlreadyRunning);
        }
        crate::entry::ensure_linked();
        let system =
            |what: &'static str, error: &dyn std::fmt::Display| Error::System { what, reason: error.to_string() };
        let total = config.total()?;
        let fabric = Fabric::create().map_err(|e| system("making the fabric", &e))?;
        let arena = Arc::new(Arena::create(config.arena_bytes()?).map_err(|e| system("making the arena", &e))?);
        let table = Arc::new(Table::create().map_err(|e| system("making the object table", &e))?);
        let cancel_grace_us = config.cancel_grace_ms.saturating_mul(1_000);
        let job = job_number();
        let slot = SlotId::new(ProcessId::DRIVER.slot as u16).expect("the driver's slot is in range");
        fabric.claim_slot(slot, std::process::id());
        let outputs = Arc::new(Outputs::new(Throttle::new(config.output_dedup, config.output_rate_max)));
        let node = NodeThread::start(NodeStart {
            config: NodeConfig {
                processes_max: config.workers_max,
                threads_per_process_max: config.threads_per_worker_max,
                idle_worker_us: config.idle_worker_ms.saturating_mul(1_000),
                ..NodeConfig::for_machine(total)
            },
            job,
            settings: cancel_grace_us << 1 | u64::from(config.spin),
            fabric: fabric.clone(),
            arena: Arc::clone(&arena),
            table: Arc::clone(&table),
            output: config.output,
            outputs: Arc::clone(&outputs),
            program: config.worker_program.clone(),
            scratch: config.scratch_directory.clone(),
            spill: SpillOptions {
                directory: config.spill_directory.clone().unwrap_or_else(std::env::temp_dir),
                spill_bytes_max: config.spill_bytes_max,
            },
        })?;
        let store_slot = ProcessSlot::new(ProcessId::DRIVER.slot).expect("the driver's slot is in range");
        let process = Process::start(Start {
            me: ProcessId::DRIVER,
            job,
            fabric,
            store: StoreClient::new(arena, table, store_slot),
            to_node: node.rings.0,
            from_node: node.rings.1,
            spin: config.spin,
            owner: OwnerConfig { cancel_grace_us },
        })?;
        process.take_outputs_from(outputs);
        process::set_current(Some(Arc::clone(&process)));
        count_as_running(&process);
        *running = Some(node);
        Ok(process)
    }

    pub(crate) fn shutdown(process: &Arc<Process>) {
        if crate::forked::is_forked() {
            return;
        }
        let node = NODE.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(node) = node else { return };
        process.end();
        process::set_current(None);
        node.stop();
    }
}

/// A number that no other run of this program has.
fn job_number() -> u64 {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&clock::now().0.to_le_bytes());
    key[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    digest(&key)
}
