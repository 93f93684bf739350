//! What a job's workers are, made ready on this machine: an executable in the node's folder, or an interpreter that fits.
//!
//! An executable is copied once, under the hash of its bytes, from the driver's own process: what is at its path may be
//! another one by now. The last ones that no job uses are kept for the next driver. An interpreter is the node's; it is
//! asked for its versions once, since pickles of another version are not understood or, worse, misunderstood.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::elf::Needs;
use super::message::Program;
use crate::node::KeeperStart;
use crate::output::Output;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// Executables that no job uses and that are kept all the same; the one that was used longest ago goes first.
pub const EXECUTABLES_UNUSED_MAX: usize = 2;
/// Answers of the interpreter that are remembered; beyond, all are forgotten and it is asked again.
const ANSWERS_MAX: usize = 64;

/// Where programs of jobs are kept, and what is known of the node's interpreter.
pub(crate) struct Programs {
    /// The node's folder.
    folder: PathBuf,
    /// The setting: a name or a path.
    python: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that were copied, and the hashes of their bytes.
    known: BTreeMap<Identity, u128>,
    /// Jobs that use an executable, by its hash.
    users: BTreeMap<u128, usize>,
    /// Executables that nobody uses, the last one last.
    unused: VecDeque<u128>,
    /// What the interpreter said, by what it was asked.
    probed: BTreeMap<Question, Versions>,
    /// Scratch folders so far.
    scratches: u64,
}

/// An interpreter's version, and that of its cloudpickle.
type Versions = (String, String);

/// The arguments and variables that make an interpreter tell them.
type Question = (Vec<String>, Vec<(String, String)>);

/// A file that has not changed: device, number, size, and when its bytes and its entry last changed.
type Identity = (u64, u64, u64, (i64, i64), (i64, i64));

fn identity(file: &File) -> io::Result<Identity> {
    let found = file.metadata()?;
    let (bytes, entry) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Ok((found.dev(), found.ino(), found.size(), bytes, entry))
}

/// An executable that a job uses.
pub(crate) struct Executable {
    programs: Arc<Programs>,
    hash: u128,
}

/// Which bytes an executable has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    hash: u128,
    length: u64,
}

impl Fingerprint {
    /// That of the executable at a path.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut length = 0;
        let hash = hash_of(&mut File::open(path)?, |bytes| {
            length += bytes.len() as u64;
            Ok(())
        })?;
        Ok(Self { hash, length })
    }
}

/// What a job's keeper is started with.
pub(crate) struct Prepared {
    pub(crate) start: KeeperStart,
    pub(crate) executable: Option<Executable>,
}

impl Programs {
    pub(crate) fn new(folder: &Path, python: &str) -> Arc<Self> {
        Arc::new(Self { folder: folder.to_owned(), python: python.to_owned(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts and answers are changed whole, so a poisoned lock protects nothing worse than before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the program of a driver ready; the error is for the user of that driver.
    pub(crate) fn prepare(self: &Arc<Self>, program: &Program, driver: i32, lines: bool) -> Result<Prepared, String> {
        let output = if lines { Output::Lines } else { Output::Silent };
        match program {
            Program::Rust { environment, .. } => {
                let executable = self.executable(Path::new(&format!("/proc/{driver}/exe")))?;
                let program = Some(vec![self.path_of(executable.hash).into_os_string()]);
                let start = KeeperStart { program, environment: environment.clone(), scratch: None, output };
                Ok(Prepared { start, executable: Some(executable) })
            }
            Program::Python { python, cloudpickle, executable, arguments, probe, environment } => {
                let interpreter = self.interpreter()?;
                let same = fs::canonicalize(executable).ok() == fs::canonicalize(&interpreter).ok();
                if !same {
                    let found = self.versions(&interpreter, probe, environment)?;
                    compare((python, cloudpickle), &found, &interpreter)?;
                }
                let arguments = arguments.iter().map(OsString::from);
                let program = Some([interpreter.into_os_string()].into_iter().chain(arguments).collect());
                let mut state = self.lock();
                state.scratches += 1;
                let scratch = Some(self.folder.join(format!("scratch-{}", state.scratches)));
                Ok(Prepared {
                    start: KeeperStart { program, environment: environment.clone(), scratch, output },
                    executable: None,
                })
            }
        }
    }

    /// Makes the program of a driver on another node ready, with its executable if it is one.
    pub(crate) fn prepare_given(
        self: &Arc<Self>,
        program: &Program,
        executable: Option<Executable>,
    ) -> Result<Prepared, String> {
        let Some(executable) = executable else { return self.prepare(program, 0, true) };
        let (Program::Rust { environment, .. } | Program::Python { environment, .. }) = program;
        let environment = environment.clone();
        let program = Some(vec![self.path_of(executable.hash).into_os_string()]);
        let start = KeeperStart { program, environment, scratch: None, output: Output::Lines };
        Ok(Prepared { start, executable: Some(executable) })
    }

    /// The executable with this hash: the one that is here, or what `next` gives, piece by piece from a place on.
    pub(crate) fn obtain(
        self: &Arc<Self>,
        about: &Fingerprint,
        mut next: impl FnMut(u64) -> Result<Vec<u8>, String>,
    ) -> Result<Executable, String> {
        if let Some(executable) = self.held(about.hash) {
            return Ok(executable);
        }
        let failed = |error: io::Error| format!("its executable cannot be written here: {error}");
        let number = {
            let mut state = self.lock();
            state.scratches += 1;
            state.scratches
        };
        let given = self.folder.join(format!("given-{number}"));
        let mut received = || -> Result<Executable, String> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&given).map_err(failed)?;
            let mut length = 0;
            while length < about.length {
                let piece = next(length)?;
                length += piece.len() as u64;
                if piece.is_empty() || length > about.length {
                    return Err("its executable changed while it was fetched; start the program again".to_owned());
                }
                file.write_all(&piece).map_err(failed)?;
            }
            drop(file);
            if Fingerprint::of(&given).map_err(failed)? != *about {
                return Err("its executable came damaged; start the program again".to_owned());
            }
            self.executable(&given)
        };
        let executable = received();
        // It was copied under its own name, or refused.
        let _ = fs::remove_file(&given);
        executable
    }

    /// An executable that is here already.
    fn held(self: &Arc<Self>, hash: u128) -> Option<Executable> {
        let mut state = self.lock();
        if !state.users.contains_key(&hash) && !state.unused.contains(&hash) {
            return None;
        }
        *state.users.entry(hash).or_default() += 1;
        state.unused.retain(|unused| *unused != hash);
        Some(Executable { programs: Arc::clone(self), hash })
    }

    fn path_of(&self, hash: u128) -> PathBuf {
        self.folder.join(format!("program-{hash:032x}"))
    }

    /// A copy of the executable at `from`, made now when there is none.
    pub(super) fn executable(self: &Arc<Self>, from: &Path) -> Result<Executable, String> {
        let failed = |error: io::Error| format!("its executable cannot be copied: {error}");
        let mut source = File::open(from).map_err(failed)?;
        let identity = identity(&source).map_err(failed)?;
        let mut state = self.lock();
        let hash = match state.known.get(&identity) {
            Some(hash) => *hash,
            None => self.copy(&mut source)?,
        };
        state.known.insert(identity, hash);
        *state.users.entry(hash).or_default() += 1;
        state.unused.retain(|unused| *unused != hash);
        Ok(Executable { programs: Arc::clone(self), hash })
    }

    /// Copies an executable that runs on this machine under the hash of its bytes.
    fn copy(&self, source: &mut File) -> Result<u128, String> {
        let unfinished = self.folder.join("program.new");
        let failed = |error: io::Error| format!("its executable cannot be copied to {}: {error}", unfinished.display());
        let mut copied = || {
            let mut options = OpenOptions::new();
            let mut target =
                options.write(true).create(true).truncate(true).mode(0o700).open(&unfinished).map_err(failed)?;
            let hash = hash_of(source, |bytes| target.write_all(bytes)).map_err(failed)?;
            drop(target);
            Needs::of(&unfinished)?.lacking_here()?;
            fs::rename(&unfinished, self.path_of(hash)).map_err(failed)?;
            Ok(hash)
        };
        copied().inspect_err(|_: &String| {
            // What is not finished is nobody's.
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// The path of the node's interpreter.
    fn interpreter(&self) -> Result<PathBuf, String> {
        if self.python.contains('/') {
            return Ok(PathBuf::from(&self.python));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(&self.python)).find(|file| file.is_file());
        found.ok_or_else(|| {
            format!(
                "the node has no interpreter {:?}; start it with `bireme start --python PATH` or BIREME_PYTHON",
                self.python
            )
        })
    }

    fn versions(
        &self,
        interpreter: &Path,
        probe: &[String],
        environment: &[(String, String)],
    ) -> Result<Versions, String> {
        let key = (probe.to_vec(), environment.to_vec());
        if let Some(known) = self.lock().probed.get(&key) {
            return Ok(known.clone());
        }
        let mut command = Command::new(interpreter);
        command.args(probe).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| !crate::keeper::is_for_workers(name)) {
            command.env_remove(name);
        }
        command.envs(environment.iter().cloned());
        let said = command
            .output()
            .map_err(|error| format!("the node's interpreter {} does not run: {error}", interpreter.display()))?;
        let text = String::from_utf8_lossy(&said.stdout);
        let mut lines = text.lines().map(str::to_owned);
        let (Some(python), Some(cloudpickle)) = (lines.next(), lines.next()) else {
            let error = String::from_utf8_lossy(&said.stderr);
            let last = error.lines().last().unwrap_or("it said nothing").to_owned();
            return Err(format!("the node's interpreter {} has no bireme: {last}", interpreter.display()));
        };
        let mut state = self.lock();
        if state.probed.len() >= ANSWERS_MAX {
            state.probed.clear();
        }
        state.probed.insert(key, (python.clone(), cloudpickle.clone()));
        Ok((python, cloudpickle))
    }
}

/// Pickles of one version are for interpreters of the same.
fn compare((python, cloudpickle): (&str, &str), found: &Versions, interpreter: &Path) -> Result<(), String> {
    if (python, cloudpickle) == (found.0.as_str(), found.1.as_str()) {
        return Ok(());
    }
    Err(format!(
        "the program runs Python {python} with cloudpickle {cloudpickle}, but the node's interpreter {} is Python {} with \
         cloudpickle {}; use the same, or start the node with `bireme start --python PATH`",
        interpreter.display(),
        found.0,
        found.1
    ))
}

impl Drop for Executable {
    fn drop(&mut self) {
        let mut state = self.programs.lock();
        let Some(users) = state.users.get_mut(&self.hash) else { return };
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        state.users.remove(&self.hash);
        state.unused.push_back(self.hash);
        while state.unused.len() > EXECUTABLES_UNUSED_MAX {
            let Some(oldest) = state.unused.pop_front() else { return };
            state.known.retain(|_, hash| *hash != oldest);
            // The node's folder goes as a whole in the end.
            let _ = fs::remove_file(self.programs.path_of(oldest));
        }
    }
}

fn hash_of(source: &mut impl Read, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<u128> {
    let (mut hash, mut bytes) = (Xxh3::new(), vec![0; COPY_BYTES]);
    loop {
        match source.read(&mut bytes) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(length) => {
                hash.update(&bytes[..length]);
                each(&bytes[..length])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What this process's executable was compiled for.
pub(crate) fn own_target() -> String {
    std::env::consts::ARCH.to_owned()
}
