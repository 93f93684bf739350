//! Programs of jobs whose drivers are on other nodes: asked for when the first worker is needed, given to who asks.
//!
//! The node of a driver has its program: an executable, or what makes an interpreter one of its workers. Another node that is
//! to run a worker of the job asks it, makes the program ready on a thread of its own, and starts a keeper for the job. An
//! executable is known by the hash of its bytes; where it is not there yet, it is fetched in pieces, one at a time, so that
//! neither node ever has much of it in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_core::message::Between;
use serde::{Deserialize, Serialize};

use super::Shell;
use super::keepers::Kept;
use super::mail::{Mail, Word};
use super::voices::Voice;
use crate::attach::Program;
use crate::attach::program::{Fingerprint, Programs};
use crate::keeper::{Keeper, Report};

/// A program on its way to another node.
#[derive(Serialize, Deserialize)]
struct Parcel {
    program: Program,
    /// For its workers, as in the driver's hello.
    settings: u64,
    /// Which executable, when it is one.
    executable: Option<Fingerprint>,
}

/// Bytes of an executable that are fetched at a time.
const PIECE_BYTES: usize = 1 << 20;
/// A node that does not send a piece in this time has lost its program.
const PIECE_WAIT: Duration = Duration::from_secs(60);

/// The thread that makes a program ready waits here for the pieces of its executable.
struct Pieces {
    job: JobId,
    mail: Mail,
    arriving: Receiver<(u64, Vec<u8>)>,
}

impl Pieces {
    fn next(&self, from: u64) -> Result<Vec<u8>, String> {
        self.mail.put(Word::PieceWanted { job: self.job, from });
        match self.arriving.recv_timeout(PIECE_WAIT) {
            Ok((at, bytes)) if at == from => Ok(bytes),
            Ok(_) => Err("the pieces of its executable came in disorder".to_owned()),
            Err(_) => Err(format!("its executable did not come: {} is gone or does not answer", self.job.node())),
        }
    }
}

/// Workers that wait for their job's program.
pub(super) struct Awaited {
    /// Where programs are made ready; a node that is embedded in a program runs no other.
    programs: Option<Arc<Programs>>,
    waiting: BTreeMap<JobId, Vec<Waiting>>,
    /// The ways to the threads that make programs ready.
    making: BTreeMap<JobId, Sender<(u64, Vec<u8>)>>,
}

/// A worker and where its rings are.
type Waiting = (ProcessId, (u64, u64));

impl Awaited {
    pub(super) fn new(programs: Option<Arc<Programs>>) -> Self {
        Self { programs, waiting: BTreeMap::new(), making: BTreeMap::new() }
    }

    /// Nothing more comes from a node.
    pub(super) fn node_died(&mut self, node: NodeId) {
        self.making.retain(|job, _| job.node() != node);
    }
}

impl Shell {
    /// Asks for the program of a job that is not known here. Says whether it did: the worker waits for it.
    pub(super) fn awaits_program(&mut self, job: JobId, process: ProcessId, rings: (u64, u64)) -> bool {
        let from = job.node();
        let Some(abroad) = &mut self.abroad else { return false };
        if self.keepers.knows(job) || self.awaited.programs.is_none() || from == self.id || !abroad.peers.knows(from) {
            return false;
        }
        let waiting = self.awaited.waiting.entry(job).or_default();
        if waiting.is_empty() {
            abroad.peers.tell(from, Between::WantProgram { job });
        }
        waiting.push((process, rings));
        true
    }

    /// A worker that waits for its program is not wanted any more. Says whether there is one.
    pub(super) fn stops_waiting(&mut self, process: ProcessId) -> bool {
        let mut found = false;
        self.awaited.waiting.retain(|_, waiting| {
            let before = waiting.len();
            waiting.retain(|(waits, _)| *waits != process);
            found |= waiting.len() < before;
            !waiting.is_empty()
        });
        if found {
            self.spawn_failed(process, "it was ended before it was started".to_owned());
        }
        found
    }

    /// Another node asks for the program of a job of ours.
    pub(super) fn program_wanted(&mut self, to: NodeId, job: JobId) {
        let kept = self.keepers.program(job);
        if let Some((voice, _)) = self.keepers.voice(job) {
            voice.add_guest(to);
        }
        let mail = self.mail.clone();
        let read = move || {
            let packed = || -> Result<Parcel, String> {
                let (program, settings, path) = kept.ok_or_else(|| format!("{job} has ended"))?;
                let executable = matches!(program, Program::Rust { .. }).then(|| Fingerprint::of(&path)).transpose();
                let executable = executable.map_err(|error| format!("its executable cannot be read: {error}"))?;
                Ok(Parcel { program, settings, executable })
            };
            mail.put(Word::ProgramRead { to, job, parcel: postcard::to_allocvec(&packed()).unwrap_or_default() });
        };
        if let Err(error) = crate::thread::spawn("bireme-program", read) {
            eprintln!("bireme: {to} does not get the program of {job}: {error}");
        }
    }

    /// Another node asks for a piece of the executable of a job of ours.
    pub(super) fn piece_wanted(&mut self, to: NodeId, job: JobId, from: u64) {
        let path = self.keepers.program(job).map(|(_, _, path)| path);
        let mail = self.mail.clone();
        let read = move || {
            let mut bytes = vec![0; PIECE_BYTES];
            let read = path.and_then(|path| File::open(path).and_then(|file| file.read_at(&mut bytes, from)).ok());
            bytes.truncate(read.unwrap_or(0));
            mail.put(Word::PieceRead { to, job, from, bytes });
        };
        if let Err(error) = crate::thread::spawn("bireme-program", read) {
            eprintln!("bireme: {to} does not get the program of {job}: {error}");
        }
    }

    /// A piece of an executable has come.
    pub(super) fn piece_came(&mut self, job: JobId, from: u64, bytes: Vec<u8>) {
        if let Some(thread) = self.awaited.making.get(&job) {
            // A thread that has given up needs no more of it.
            let _ = thread.send((from, bytes));
        }
    }

    /// The program of a job has come from the node of its driver.
    pub(super) fn program_came(&mut self, job: JobId, parcel: Vec<u8>) {
        let Some(programs) = self.awaited.programs.clone() else { return };
        let (mail, memory) = (self.mail.clone(), self.keepers.memory());
        let (thread, arriving) = channel();
        self.awaited.making.insert(job, thread);
        let pieces = Pieces { job, mail: mail.clone(), arriving };
        let voice = Voice::away(job, Arc::clone(&self.away));
        let make = move || {
            let made = || -> Result<(Keeper, Kept), String> {
                let parcel: Result<Parcel, String> =
                    postcard::from_bytes(&parcel).map_err(|_| "its program cannot be read".to_owned())?;
                let Parcel { program, settings, executable } = parcel?;
                let executable =
                    executable.map(|about| programs.obtain(&about, |from| pieces.next(from))).transpose()?;
                let prepared = programs.prepare_given(&program, executable)?;
                let keeper = prepared.start.start(&memory).map_err(|error| error.to_string())?;
                let (start, executable) = (prepared.start, prepared.executable);
                Ok((keeper, Kept { start, settings, voice, executable, program: Some(program) }))
            };
            mail.put(Word::ProgramReady { job, made: Box::new(made()) });
        };
        if let Err(error) = crate::thread::spawn("bireme-program", make) {
            self.program_ready(job, Err(error.to_string()));
        }
    }

    /// The program of a job is ready, with a keeper, or cannot be.
    pub(super) fn program_ready(&mut self, job: JobId, made: Result<(Keeper, Kept), String>) {
        self.awaited.making.remove(&job);
        let waiting = self.awaited.waiting.remove(&job).unwrap_or_default();
        let added = made.and_then(|(keeper, kept)| {
            if waiting.is_empty() {
                // Nobody is left who needs it.
                keeper.shutdown();
                return Ok(());
            }
            self.keepers.add(job, keeper, kept).map_err(|error| error.to_string())
        });
        for (process, rings) in waiting {
            let spawned = added.clone().and_then(|()| self.keepers.spawn(job, process, rings));
            if let Err(reason) = spawned {
                self.spawn_failed(process, reason);
            }
        }
    }

    pub(super) fn spawn_failed(&mut self, process: ProcessId, reason: String) {
        let (slot, incarnation) = (process.slot, process.incarnation);
        self.mail.put(Word::Report(Report::SpawnFailed { slot, incarnation, reason }));
    }
}

/// Where the executable of a keeper's program is; this one's when it has none.
pub(super) fn executable_of(program: Option<&[std::ffi::OsString]>) -> PathBuf {
    program.and_then(|words| words.first()).map_or_else(|| PathBuf::from("/proc/self/exe"), PathBuf::from)
}
