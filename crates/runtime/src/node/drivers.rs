//! Drivers that attach to the node and leave it, as the node's thread sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bireme_core::failure::{Death, DeathCause};
use bireme_core::id::{DRIVERS_MAX, JobId, ProcessId, digest};
use bireme_core::node::Event;
use bireme_net::SlotId;

use super::Shell;
use super::keepers::Kept;
use super::voices::Voice;
use crate::attach::door::{DriverLine, Knock};
use crate::attach::message::Welcome;
use crate::clock;

/// The drivers that are attached, and those that have left and wait for the last word.
#[derive(Default)]
pub(super) struct Drivers {
    all: BTreeMap<ProcessId, Attached>,
    /// Jobs of which nothing is left but detached actors.
    ended: Vec<JobId>,
    /// Jobs so far.
    jobs: u64,
}

struct Attached {
    job: JobId,
    line: Arc<DriverLine>,
    left: bool,
}

impl Drivers {
    /// Ends a driver's connection: its end follows from that.
    pub(super) fn dismiss(&self, process: ProcessId) {
        if let Some(driver) = self.all.get(&process) {
            driver.line.finish("the node ended the connection, because what this program wrote made no sense");
        }
    }

    /// All that had to end with this job is gone.
    pub(super) fn job_ended(&mut self, job: JobId) {
        self.ended.push(job);
    }

    /// Nothing of the job is left: its driver hears the last word when its keeper is gone too.
    pub(super) fn job_closed(&mut self, job: JobId) {
        self.ended.retain(|ended| *ended != job);
        self.all.retain(|_, driver| driver.job != job || !driver.left);
    }

    /// Says the last word to drivers that leave detached actors behind.
    pub(super) fn finish_ended(&mut self) {
        for job in std::mem::take(&mut self.ended) {
            self.all.retain(|_, driver| {
                let over = driver.job == job && driver.left;
                if over {
                    driver.line.finish("its job is over");
                }
                !over
            });
        }
    }

    /// The node ends, or its part in its cluster does.
    pub(super) fn finish_all(&mut self, reason: &str) {
        for driver in std::mem::take(&mut self.all).into_values() {
            driver.line.finish(reason);
        }
    }

    /// How many are attached.
    pub(super) fn count(&self) -> usize {
        self.all.values().filter(|driver| !driver.left).count()
    }
}

impl Shell {
    /// A driver wants to attach.
    pub(super) fn knocked(&mut self, knock: Knock) {
        let answer = knock.answer.clone();
        let welcome = self.admit(knock);
        if let Err(reason) = &welcome {
            eprintln!("bireme: a program was refused: {reason}");
        }
        // Whoever does not wait any more has closed the connection.
        let _ = answer.send(welcome);
    }

    fn admit(&mut self, knock: Knock) -> Result<Welcome, String> {
        if self.node.is_draining() {
            return Err(format!("{} is being drained; attach to another node of the cluster", self.id));
        }
        let next = self.node.next_driver();
        let process = next.ok_or_else(|| format!("the node serves {DRIVERS_MAX} programs already; end one of them"))?;
        let slot = u16::try_from(process.slot).ok().and_then(SlotId::new).ok_or("there is no slot for it")?;
        self.drivers.jobs += 1;
        let job = JobId::new(self.id, job_number(self.drivers.jobs));
        let (to_node, from_node) = self.links.admit(process)?;
        let Knock { pid, settings, line, start, keeper, executable, program, .. } = knock;
        let kept = Kept { start, settings, voice: Voice::line(Arc::clone(&line)), executable, program: Some(program) };
        if let Err(error) = self.keepers.add(job, keeper, kept) {
            self.links.close(process);
            return Err(error.to_string());
        }
        self.fabric.claim_slot(slot, pid);
        self.objects.admit(process);
        self.drivers.all.insert(process, Attached { job, line, left: false });
        self.step(Event::DriverAttached { process, pid, job });
        Ok(Welcome { me: process, job, to_node: to_node.offset(), from_node: from_node.offset() })
    }

    /// A driver has detached, or is gone: what it wrote is read first.
    pub(super) fn driver_left(&mut self, process: ProcessId, how: String) {
        let Some(driver) = self.drivers.all.get_mut(&process) else { return };
        if std::mem::replace(&mut driver.left, true) {
            return;
        }
        self.read_last_words(process);
        self.step(Event::DriverGone(Death {
            process,
            pid: 0,
            cause: DeathCause::Left(how),
            stderr_tail: String::new(),
            memory_peak_bytes: 0,
            culprit: None,
        }));
    }
}

/// A number that no other job of this node has.
fn job_number(count: u64) -> u64 {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&clock::now().0.to_le_bytes());
    key[8..].copy_from_slice(&count.to_le_bytes());
    digest(&key)
}
