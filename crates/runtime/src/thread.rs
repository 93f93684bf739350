//! Threads of the runtime: named, with small stacks where that suffices, and with all signals blocked, so that the
//! user's handlers run on the user's threads.

use std::cell::Cell;
use std::thread::{Builder, JoinHandle};

use crate::error::Error;
use crate::keeper::with_signals_blocked;

/// Stack of a thread that runs no user code.
const STACK_BYTES: usize = 512 << 10;

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current thread belongs to the runtime and must never run the user's code or wait for it.
pub fn is_runtime_thread() -> bool {
    OURS.get()
}

/// Starts a thread that runs no user code.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let builder = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    let body = move || {
        OURS.set(true);
        body();
    };
    with_signals_blocked(|| builder.spawn(body))
        .map_err(|error| Error::System { what: "starting a thread", reason: error.to_string() })
}

/// Lets short sleeps of this thread end on time: by default the kernel may add 50 microseconds.
pub fn nap_exactly() {
    // Without it naps are longer, nothing worse.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// Whether another thread of this process has a core now, or wants one.
pub(crate) fn others_run() -> bool {
    let me = rustix::thread::gettid().as_raw_pid().to_string();
    // The state stands behind the name, which may contain anything.
    let state = |stat: &str| stat.rsplit_once(')').and_then(|(_, fields)| fields.trim_start().chars().next());
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads
        .flatten()
        .filter(|thread| thread.file_name().to_str() != Some(&me))
        .any(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| state(&stat) == Some('R')))
}
