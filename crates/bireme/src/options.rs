//! What a user can choose for a task or an actor, at the function and at the call.
//!
//! The defaults of a function are made once; a call without options shares them. Bad amounts are kept as an error until
//! the call is submitted, so that a chain of options needs no `?`.

use std::sync::Arc;

use bireme_runtime::core::resources::{Amount, CUSTOM_RESOURCES_MAX, Resources};
use bireme_runtime::core::spec::{ActorOptions, RETRIES_DEFAULT, Strategy, TaskOptions};
use bireme_runtime::core::stream::Stream;

use crate::{Error, Result};

/// What the attribute of a function, constructor or method says.
#[derive(Clone, Copy)]
pub struct Defaults {
    /// Name for people.
    pub name: &'static str,
    /// CPU cores.
    pub cpus: f64,
    /// GPUs.
    pub gpus: f64,
    /// Bytes of memory.
    pub memory: u64,
    /// Named amounts.
    pub resources: &'static [(&'static str, f64)],
    /// Runs again after a worker's death.
    pub retries: u32,
    /// Errors that are tried again.
    pub retry_on: &'static [&'static str],
    /// Limits, when the results come one by one.
    pub stream: Option<Stream>,
    /// Runs after which a process ends; 0 for no limit.
    pub calls_max: u32,
    /// Tasks in one process; 0 for as many as the node allows.
    pub threads_per_worker: u32,
    /// Where it may run, if that was said.
    pub strategy: Option<Strategy>,
}

impl Defaults {
    /// A task: one CPU.
    pub const TASK: Self = Self {
        name: "",
        cpus: 1.0,
        gpus: 0.0,
        memory: 0,
        resources: &[],
        retries: RETRIES_DEFAULT,
        retry_on: &[],
        stream: None,
        calls_max: 0,
        threads_per_worker: 0,
        strategy: None,
    };
    /// An actor: no CPU, so that idle actors hold nothing back.
    pub const ACTOR: Self = Self { cpus: 0.0, ..Self::TASK };
    /// A call of an actor: uses what the actor has, and is not run twice unless the user says so.
    pub const CALL: Self = Self { cpus: 0.0, retries: 0, ..Self::TASK };
}

/// Options of one call, being chosen.
pub struct Options {
    task: TaskOptions,
    actor: ActorOptions,
    pending_max: usize,
    call_retries: u32,
    stream: Option<Stream>,
    /// No place was chosen: it follows its parent into a placement group that captures.
    inherits: bool,
    error: Option<Error>,
}

impl Options {
    /// The choices of the attribute.
    pub fn of(defaults: &Defaults) -> Self {
        let task = TaskOptions {
            name: defaults.name.to_owned(),
            resources: Resources { memory_bytes: defaults.memory, ..Resources::default() },
            retries_max: defaults.retries,
            retry_on: defaults.retry_on.iter().map(|error| (*error).to_owned()).collect(),
            calls_max: defaults.calls_max,
            threads_per_worker: defaults.threads_per_worker,
            strategy: defaults.strategy.unwrap_or_default(),
            ..TaskOptions::default()
        };
        // A method has `&mut self`: one call at a time.
        let actor = ActorOptions::default();
        let (pending_max, stream) = (usize::MAX, defaults.stream);
        let inherits = defaults.strategy.is_none();
        let options = Self { task, actor, pending_max, call_retries: 0, stream, inherits, error: None };
        let options = options.cpus(defaults.cpus).gpus(defaults.gpus);
        defaults.resources.iter().fold(options, |options, (name, amount)| options.resource(name, *amount))
    }

    /// Name of a task for people.
    pub fn name(mut self, name: &str) -> Self {
        self.task.name = name.to_owned();
        self
    }

    /// Name under which an actor is found.
    pub fn actor_name(mut self, name: &str) -> Self {
        if name.is_empty() {
            self.error.get_or_insert(Error::BadArgument("an actor's name cannot be empty; leave it out".to_owned()));
        }
        self.actor.name = Some(name.to_owned());
        self
    }

    /// CPU cores.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.task.resources.cpus = self.amount("cpus", cpus);
        self
    }

    /// GPUs.
    pub fn gpus(mut self, gpus: f64) -> Self {
        self.task.resources.gpus = self.amount("gpus", gpus);
        self
    }

    /// Bytes of memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.task.resources.memory_bytes = bytes;
        self
    }

    /// A named amount.
    pub fn resource(mut self, name: &str, amount: f64) -> Self {
        let amount = self.amount(name, amount);
        self.task.resources.custom.insert(name.to_owned(), amount);
        if self.task.resources.custom.len() > CUSTOM_RESOURCES_MAX {
            let text = format!("a task asks for at most {CUSTOM_RESOURCES_MAX} named resources");
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self
    }

    /// What its process must look like; 0 is the job's own environment.
    pub fn environment(mut self, environment: u64) -> Self {
        self.task.environment = environment;
        self
    }

    /// Where it may run.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.task.strategy = strategy;
        self.inherits = false;
        self
    }

    /// Whether what it submits goes into its placement group too.
    pub fn capture_child_tasks(mut self, captures: bool) -> Self {
        self.task.captures = captures;
        self
    }

    /// An actor ends only when it is killed.
    pub fn detached(mut self) -> Self {
        self.actor.detached = true;
        self
    }

    /// Runs again after a worker's death, at most so often.
    pub fn retries(mut self, retries: u32) -> Self {
        self.task.retries_max = retries;
        self
    }

    /// Runs after which a process ends in good order.
    pub fn max_calls(mut self, calls: u32) -> Self {
        if calls == 0 {
            let text = "max_calls(0) would allow no run; give at least 1, or leave it out".to_owned();
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self.task.calls_max = calls;
        self
    }

    /// Tasks that may be in its process at a time.
    pub fn threads_per_worker(mut self, threads: u32) -> Self {
        if threads == 0 {
            let text =
                "threads_per_worker(0) would leave no room for the task; give at least 1, or leave it out".to_owned();
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self.task.threads_per_worker = threads;
        self
    }

    /// Errors that are tried again too.
    pub fn retry_on<S: Into<String>>(mut self, errors: impl IntoIterator<Item = S>) -> Self {
        self.task.retry_on = errors.into_iter().map(Into::into).collect();
        self
    }

    /// How often an actor is started again.
    pub fn restarts(mut self, restarts: u32) -> Self {
        self.actor.restarts_max = restarts;
        self
    }

    /// Calls that may wait at once.
    pub fn max_pending_calls(mut self, calls: usize) -> Self {
        if calls == 0 {
            let text = "max_pending_calls(0) would refuse every call; give at least 1".to_owned();
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self.pending_max = calls;
        self
    }

    /// Retries of each call.
    pub fn call_retries(mut self, retries: u32) -> Self {
        self.call_retries = retries;
        self
    }

    /// Items that a stream may be ahead of its reader.
    pub fn max_buffered_items(mut self, items: u32) -> Self {
        self.at_least_one("max_buffered_items", u64::from(items));
        self.stream.get_or_insert_default().items_max = items;
        self
    }

    /// Bytes that a stream may be ahead of its reader.
    pub fn max_buffered_bytes(mut self, bytes: u64) -> Self {
        self.at_least_one("max_buffered_bytes", bytes);
        self.stream.get_or_insert_default().bytes_max = bytes;
        self
    }

    fn at_least_one(&mut self, choice: &str, given: u64) {
        if given == 0 {
            let text = format!("{choice}(0) would let nothing pass; give at least 1, or leave it out");
            self.error.get_or_insert(Error::BadArgument(text));
        }
    }

    fn amount(&mut self, resource: &str, given: f64) -> Amount {
        Amount::from_f64(resource, given).unwrap_or_else(|error| {
            self.error.get_or_insert(error.into());
            Amount::default()
        })
    }

    /// The choices, when all make sense.
    pub(crate) fn finish(self) -> Result<Chosen> {
        if self.task.captures && self.task.strategy.group().is_none() {
            let text = "capture_child_tasks needs the strategy of a placement group, to which children could go";
            return Err(Error::BadArgument(text.to_owned()));
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(Chosen {
                task: Arc::new(self.task),
                actor: self.actor,
                pending_max: self.pending_max,
                call_retries: self.call_retries,
                stream: self.stream,
                inherits: self.inherits,
            }),
        }
    }
}

/// Options that were checked.
#[derive(Clone)]
pub(crate) struct Chosen {
    pub(crate) task: Arc<TaskOptions>,
    pub(crate) actor: ActorOptions,
    pub(crate) pending_max: usize,
    pub(crate) call_retries: u32,
    pub(crate) stream: Option<Stream>,
    pub(crate) inherits: bool,
}
