//! What a row is given: a folder for everything it makes, the end by a signal, and how much to measure.

use std::fs::{self, DirBuilder};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};

use super::super::Outcome;
use super::super::floor::Latencies;
use super::super::measure::Pair;
use super::lines::wait;

/// Pairs of (ours, floor) per row, as for the rows of one node.
const PAIRS: u32 = super::super::PAIRS;

/// What a row has measured.
pub(crate) struct Measured {
    /// What is judged.
    pub(crate) pairs: Vec<Pair>,
    /// What else was seen, by name.
    pub(crate) more: Map<String, Value>,
}

impl From<Vec<Pair>> for Measured {
    fn from(pairs: Vec<Pair>) -> Self {
        Self { pairs, more: Map::new() }
    }
}

impl Measured {
    /// With the round trips of the machine, which are not judged.
    pub(in crate::bench) fn and_latencies(mut self, latencies: Latencies) -> Self {
        latencies.beside(&mut self.more);
        self
    }

    /// With one more figure that is not judged.
    pub(in crate::bench) fn and(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

/// A run of the benchmark.
pub(crate) struct Stage {
    folder: PathBuf,
    folders: AtomicU32,
    stop: OwnedFd,
    quick: bool,
}

impl Stage {
    /// Makes the one folder that everything is in. `stop` is readable once this process has been asked to end.
    pub(in crate::bench) fn new(stop: OwnedFd, quick: bool) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("bireme-bench-{}", std::process::id()));
        // What a process with our id left that was killed.
        let _ = fs::remove_dir_all(&folder);
        make_private(&folder)?;
        Ok(Self { folder, folders: AtomicU32::new(0), stop, quick })
    }

    /// A new folder that only we may read. Short, since paths of sockets have to be.
    pub(in crate::bench) fn folder(&self) -> Outcome<PathBuf> {
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(number.to_string());
        make_private(&path)?;
        Ok(path)
    }

    /// How much to measure: the first number, or the second when it should be quick.
    pub(in crate::bench) fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Measures each pair, given its number.
    pub(in crate::bench) fn measure(&self, mut pair: impl FnMut(u32) -> Outcome<Pair>) -> Outcome<Vec<Pair>> {
        (0..self.size(PAIRS, 1))
            .map(|number| {
                self.check()?;
                pair(number)
            })
            .collect()
    }

    /// Fails when this process has been asked to end.
    pub(in crate::bench) fn check(&self) -> Outcome<()> {
        wait(self.stop(), None, Duration::ZERO).map(drop)
    }

    /// What every wait looks at.
    pub(in crate::bench) fn stop(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("bireme: {} cannot be removed: {error}", self.folder.display());
        }
    }
}

fn make_private(path: &Path) -> Outcome<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    Ok(made.map_err(|error| format!("{} cannot be made: {error}", path.display()))?)
}
