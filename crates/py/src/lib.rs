//! The Python extension `bireme._native`: conversion between Python and the runtime, and nothing else.
//!
//! | file | what |
//! |---|---|
//! | `gil` | the one door into and out of the interpreter's lock |
//! | `error` | the one map from the runtime's errors to Python's exceptions |
//! | `hooks` | Python functions of the package that the extension calls |
//! | `value` | objects as bytes and back |
//! | `view` | bytes of an object as a Python buffer |
//! | `argument` | the arguments of a task as bytes and back |
//! | `reference` | `ObjectRef` |
//! | `stream` | results that come one by one |
//! | `submit` | remote functions, actor classes and methods as the caller holds them |
//! | `rust_function` | functions of Rust, called by Python |
//! | `verbs` | `get`, `put`, `wait`, `cancel`, `kill`, ... |
//! | `driver` | starting and ending the runtime |
//! | `state` | the node's tables |
//! | `groups` | nodes and placement groups |
//! | `collective` | collective groups |
//! | `completions` | readiness for event loops and futures |
//! | `interrupt` | signals and cancellation |
//! | `current` | what code can ask about its task or actor |
//! | `worker` | running tasks, constructors and calls |
//! | `ticket` | calls that run on an event loop |
//! | `zygote` | the process that workers are copies of |

mod argument;
mod collective;
mod completions;
mod current;
mod driver;
mod error;
mod gil;
mod groups;
mod hooks;
mod interrupt;
mod reduces;
mod reference;
mod rust_function;
mod state;
mod stream;
mod submit;
mod ticket;
mod value;
mod verbs;
mod view;
mod worker;
mod zygote;

use pyo3::prelude::*;

/// Fills the module; a user's own extension with Rust tasks calls this too.
pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<reference::ObjectRef>()?;
    module.add_class::<submit::Function>()?;
    module.add_class::<submit::Actor>()?;
    module.add_class::<submit::Method>()?;
    module.add_class::<rust_function::RustFunction>()?;
    module.add_class::<view::View>()?;
    module.add_class::<ticket::Ticket>()?;
    module.add_class::<completions::Completions>()?;
    module.add_class::<driver::WorkerOutput>()?;
    driver::fill(module)?;
    groups::fill(module)?;
    state::fill(module)?;
    reduces::fill(module)?;
    collective::fill(module)?;
    verbs::fill(module)?;
    worker::fill(module)?;
    current::fill(module)?;
    zygote::fill(module)?;
    interrupt::fill(module)?;
    ticket::fill(module)?;
    stream::fill(module)?;
    gil::fill(module)
}

#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fill(module)
}
