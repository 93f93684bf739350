//! Python functions of the package that the extension calls, looked up once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A function of a module of the package, remembered after the first use.
pub struct Hook {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Hook {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, found: PyOnceLock::new() }
    }

    /// The function.
    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let found =
            self.found.get_or_try_init(py, || PyResult::Ok(py.import(self.module)?.getattr(self.name)?.unbind()))?;
        Ok(found.bind(py))
    }
}

/// `dumps(value) -> (pickle, buffers)`.
pub static DUMPS: Hook = Hook::new("bireme._serialize", "dumps");
/// `loads(pickle, buffers) -> value`.
pub static LOADS: Hook = Hook::new("bireme._serialize", "loads");
/// `make_array(view, element type, shape) -> array`.
pub static MAKE_ARRAY: Hook = Hook::new("bireme._serialize", "make_array");
/// `tensor_array(tensor) -> (buffer, number of the element type, shape) | None`.
pub static TENSOR_ARRAY: Hook = Hook::new("bireme._reducers", "tensor_array");
/// `make_tensor(buffer, element type, shape) -> tensor`.
pub static MAKE_TENSOR: Hook = Hook::new("bireme._reducers", "make_tensor");
/// `load_code(code) -> function or class`.
pub static LOAD_CODE: Hook = Hook::new("bireme._code", "load");
/// `check_arguments(target, args, kwargs)`: raises when they do not fit.
pub static CHECK_ARGUMENTS: Hook = Hook::new("bireme._signature", "check");
/// `describe(exception) -> (type names, message, traceback, bytes)`.
pub static DESCRIBE_EXCEPTION: Hook = Hook::new("bireme.exceptions", "describe_exception");
/// `make(kind, message, fields) -> exception`.
pub static MAKE_EXCEPTION: Hook = Hook::new("bireme.exceptions", "make_exception");
/// `wait_for(reference) -> iterator`, for `await`.
pub static AWAIT: Hook = Hook::new("bireme._futures", "awaiting");
/// `future(reference) -> concurrent.futures.Future`.
pub static FUTURE: Hook = Hook::new("bireme._futures", "future");
/// The generator that reads a stream, made from its end.
pub static GENERATOR: Hook = Hook::new("bireme.generator", "ObjectRefGenerator");
/// `cancelled(reference) -> bool`, and the next four: what makes a reference future enough for `asyncio.wait`.
pub static CANCELLED: Hook = Hook::new("bireme._futures", "cancelled");
/// `result(reference) -> value`.
pub static RESULT: Hook = Hook::new("bireme._futures", "result");
/// `exception(reference) -> exception | None`.
pub static EXCEPTION: Hook = Hook::new("bireme._futures", "exception");
/// `add_done_callback(reference, callback, context)`.
pub static ADD_DONE_CALLBACK: Hook = Hook::new("bireme._futures", "add_done_callback");
/// `remove_done_callback(reference, callback) -> int`.
pub static REMOVE_DONE_CALLBACK: Hook = Hook::new("bireme._futures", "remove_done_callback");
/// Starts the runtime with the defaults.
pub static AUTO_INIT: Hook = Hook::new("bireme.context", "auto_init");
/// `environment_for(chosen) -> (key, contents to publish) | None`.
pub static ENVIRONMENT: Hook = Hook::new("bireme.context", "environment_for");
/// `enter_environment(contents)`: makes this worker run in an environment.
pub static ENTER_ENVIRONMENT: Hook = Hook::new("bireme._worker", "enter_environment");
/// `begin_work(name, cpus)`: before a task or actor that is another than the last one in this process.
pub static BEGIN_WORK: Hook = Hook::new("bireme._worker", "begin_work");
/// Prepares a new worker process.
pub static PREPARE_WORKER: Hook = Hook::new("bireme._worker", "prepare");
/// `construct(class, args, kwargs) -> (actor, whether its calls run on an event loop)`.
pub static CONSTRUCT: Hook = Hook::new("bireme._worker", "construct");
/// `submit(ticket, method, args, kwargs)`: hands a call over to the actor's event loop.
pub static SUBMIT_TO_LOOP: Hook = Hook::new("bireme._loop", "submit");
/// The exception that unwinds a method which ends its actor.
pub static ACTOR_EXIT: Hook = Hook::new("bireme._worker", "ActorExit");
/// `before_exit(actor)`: what an actor may still do.
pub static BEFORE_EXIT: Hook = Hook::new("bireme._worker", "before_exit");
/// `end_fork(exception)`: ends a copy of a worker that came to the end of the task which made it.
pub static END_FORK: Hook = Hook::new("bireme._worker", "end_fork");
/// Passes on unfinished lines of output.
pub static FLUSH: Hook = Hook::new("bireme._logs", "flush");
/// The exception of a cancelled coroutine.
pub static CANCELLED_ERROR: Hook = Hook::new("asyncio", "CancelledError");
/// `call_special(actor, method, args, kwargs) -> value`, for methods that every actor has.
pub static CALL_SPECIAL: Hook = Hook::new("bireme._worker", "call_special");
/// `show_gpus(indices)`: makes the GPUs of a task or actor those that CUDA sees.
pub static SHOW_GPUS: Hook = Hook::new("bireme._worker", "show_gpus");
/// `hide_gpus()`: undoes that.
pub static HIDE_GPUS: Hook = Hook::new("bireme._worker", "hide_gpus");
