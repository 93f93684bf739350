//! The runtime of this process: started by `init`, by the first use, or there already inside a worker.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bireme_runtime::{Runtime, check_forked, is_forked};

use crate::{Config, Error, Result};

/// Whether the first use may start the runtime: not after somebody shut it down.
static WAS_SHUT_DOWN: Mutex<bool> = Mutex::new(false);

fn was_shut_down() -> MutexGuard<'static, bool> {
    WAS_SHUT_DOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the runtime running; shuts it down when dropped, unless that has ended before: a later one is not its own.
#[derive(Debug)]
#[must_use = "dropping the context shuts the runtime down: bind it with `let _context = ...`"]
pub struct Context {
    job: u64,
}

impl Context {
    /// Shuts the runtime down and waits until all its processes are gone.
    pub fn shutdown(self) {}
}

impl Drop for Context {
    fn drop(&mut self) {
        end(|runtime| runtime.job() == self.job);
    }
}

/// Starts the runtime with defaults: all CPUs of this machine, no daemon, no port, no file left behind.
///
/// ```
/// let _context = bireme::init()?;
/// assert!(bireme::is_initialized());
/// assert!(bireme::init().is_err());
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn init() -> Result<Context> {
    init_with(Config::default())
}

/// Starts the runtime.
///
/// ```
/// let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn init_with(config: Config) -> Result<Context> {
    let config = config.finish()?;
    // Before the lock: in a fork it may be held by a thread that is not there.
    check_forked()?;
    let mut was_shut_down = was_shut_down();
    let runtime = Runtime::start(config)?;
    *was_shut_down = false;
    Ok(Context { job: runtime.job() })
}

/// Shuts the runtime down and waits until all its processes are gone. References that are left give
/// [`Error::NotRunning`]. Does nothing when there is no runtime, and nothing inside a worker's task.
pub fn shutdown() {
    end(|_| true);
}

/// Ends the runtime if it is the one that is meant.
fn end(is_meant: impl FnOnce(&Runtime) -> bool) {
    if is_forked() {
        return;
    }
    let mut was_shut_down = was_shut_down();
    if let Ok(runtime) = Runtime::current()
        && is_meant(&runtime)
    {
        runtime.shutdown();
        *was_shut_down = true;
    }
}

/// Whether there is a runtime: in a driver after `init` or first use, and in every worker.
pub fn is_initialized() -> bool {
    Runtime::current().is_ok()
}

/// The runtime of this process; started with defaults at its first use.
pub(crate) fn runtime() -> Result<Runtime> {
    match Runtime::current() {
        Err(Error::NotRunning(_)) => start_at_first_use(),
        other => other,
    }
}

fn start_at_first_use() -> Result<Runtime> {
    let was_shut_down = was_shut_down();
    match Runtime::current() {
        // Another thread was first.
        Ok(runtime) => Ok(runtime),
        Err(Error::NotRunning(_)) if !*was_shut_down => Runtime::start(Config::default().finish()?),
        Err(error) => Err(error),
    }
}
