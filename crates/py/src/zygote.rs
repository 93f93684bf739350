//! The process that workers are copies of: a Python that has imported the package and what the user asked for.
//!
//! It becomes the node's keeper while it has a single thread. A worker is a fork of it, which tells the interpreter so,
//! prepares itself, leaves the interpreter's lock and begins to serve.

use bireme_runtime::keeper::{self, WorkerStart};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::{gil, hooks, interrupt, worker};

/// Exit code of a worker that could not prepare itself.
const EXIT_CODE_BROKEN: i32 = 70;

/// Becomes the keeper. Returns only by ending the process.
#[pyfunction]
fn keep() {
    keeper::enter_from(begin)
}

fn begin(start: WorkerStart) -> ! {
    if start.forked {
        // SAFETY: the keeper held the interpreter's lock when it forked, so this thread holds it in the copy.
        unsafe { ffi::PyOS_AfterFork_Child() };
    }
    gil::attach(|py| {
        let prepared = hooks::PREPARE_WORKER.get(py).and_then(|prepare| prepare.call0());
        if let Err(error) = prepared {
            error.print(py);
            std::process::exit(EXIT_CODE_BROKEN);
        }
        worker::begin();
        interrupt::install_in_worker();
        gil::detach(py, move || {
            let _guard = bireme_runtime::interruptible();
            bireme_runtime::worker::run(start)
        })
    })
}

pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(keep, module)?)
}
