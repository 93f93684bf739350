//! The runtime of this process: started by `init`, by the first use, or there already inside a worker.
//!
//! A process has one at a time. Those who call `init` while it runs share it, if they want it to be as it is, and it ends with
//! the last of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bireme_runtime::{Runtime, check_forked, is_forked};

use crate::{Config, Error, Result};

/// Held while a runtime is started or ended, so that whoever comes in between waits and finds it whole, or gone.
static STATE: Mutex<State> = Mutex::new(State::Never);

/// The runtime that this front end has started, if any.
enum State {
    /// Nothing yet: the first use may start a runtime.
    Never,
    /// A runtime, which may have ended since by itself.
    Started(Box<Started>),
    /// Somebody shut it down: the first use starts none.
    ShutDown,
}

struct Started {
    job: u64,
    config: Config,
    /// The first use, which never ends, counts as one.
    contexts: usize,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the runtime running. It is shut down when the last context of it is dropped; those of a runtime that has ended before
/// do nothing to a later one.
#[derive(Debug)]
#[must_use = "dropping the last context shuts the runtime down: bind it with `let _context = ...`"]
pub struct Context {
    job: u64,
}

impl Context {
    /// Drops this context. The last one shuts the runtime down and waits until all its processes are gone; the function
    /// [`shutdown`] does that whoever else has a context.
    pub fn shutdown(self) {}
}

impl Drop for Context {
    fn drop(&mut self) {
        // Before the lock: in a fork it may be held by a thread that is not there.
        if is_forked() {
            return;
        }
        let mut state = state();
        if let State::Started(started) = &mut *state
            && started.job == self.job
        {
            started.contexts -= 1;
            let is_last = started.contexts == 0;
            if is_last && Runtime::current().is_ok_and(|runtime| runtime.job() == self.job) {
                end(&mut state);
            }
        }
    }
}

/// Starts the runtime with defaults: all CPUs of this machine, no daemon, no port, no file left behind.
///
/// When it runs already, with the same configuration, this is another context of it: see [`init_with`].
///
/// ```
/// let _context = bireme::init()?;
/// assert!(bireme::is_initialized());
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn init() -> Result<Context> {
    init_with(Config::default())
}

/// Starts the runtime.
///
/// A process has one runtime at a time. When it runs already, as in another test of the same binary, and its configuration is equal,
/// this is another [`Context`] of it, and it ends with the last one. Another configuration is [`Error::OtherConfig`], which says what
/// differs. A runtime that the first use started has the defaults, and does not end before [`shutdown`].
///
/// ```
/// use bireme::Config;
/// let first = bireme::init_with(Config::default().cpus(2.0))?;
/// let second = bireme::init_with(Config::default().cpus(2.0))?;
/// drop(first);
/// assert!(bireme::is_initialized());
/// assert!(bireme::init_with(Config::default().cpus(3.0)).is_err());
/// drop(second);
/// assert!(!bireme::is_initialized());
/// # Ok::<(), bireme::Error>(())
/// ```
///
/// ```
/// let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn init_with(config: Config) -> Result<Context> {
    let wanted = config.clone().finish()?;
    check_forked()?;
    let mut state = state();
    if let State::Started(started) = &mut *state
        && let Ok(runtime) = Runtime::current()
        && runtime.job() == started.job
    {
        // Its node may be gone, of which a new context must not hear later.
        runtime.check_running()?;
        if let Some(differences) = started.config.differences(&config) {
            return Err(Error::OtherConfig(differences));
        }
        started.contexts += 1;
        return Ok(Context { job: started.job });
    }
    let job = Runtime::start(wanted)?.job();
    *state = State::Started(Box::new(Started { job, config, contexts: 1 }));
    Ok(Context { job })
}

/// Shuts the runtime down, also when others have a [`Context`] of it, and waits until all its processes are gone. References that are
/// left give [`Error::NotRunning`]. Does nothing when there is no runtime, and nothing inside a worker's task.
pub fn shutdown() {
    if !is_forked() {
        end(&mut state());
    }
}

fn end(state: &mut State) {
    if let Ok(runtime) = Runtime::current() {
        runtime.shutdown();
        *state = State::ShutDown;
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
    let mut state = state();
    match Runtime::current() {
        // Another thread was first.
        Ok(runtime) => Ok(runtime),
        Err(Error::NotRunning(_)) if !matches!(*state, State::ShutDown) => {
            let config = Config::default();
            let runtime = Runtime::start(config.clone().finish()?)?;
            *state = State::Started(Box::new(Started { job: runtime.job(), config, contexts: 1 }));
            Ok(runtime)
        }
        Err(error) => Err(error),
    }
}
