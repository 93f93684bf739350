//! What the user's code does, as data: a job is a list of operations on registers that hold references.
//!
//! A value is a number that is drawn anew in every run of a task, so a task that runs twice gives two values, and an
//! observer that sees both has found a bug.

use bireme_core::flow;
use bireme_core::id::NodeId;
use bireme_core::reduce;
use bireme_core::spec::{GroupStrategy, Strategy};
use bireme_core::stream::Stream;

use crate::random::Random;

/// A register of the running job. A register is empty when what should fill it failed.
pub type Register = usize;

/// A job's number in its program; it travels as the task's function key.
pub type JobId = usize;

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Takes about so long.
    Work(u64),
    /// Submits a task; fills the next register.
    Submit {
        /// What.
        job: JobId,
        /// Arguments by reference.
        dependencies: Vec<Register>,
        /// References inside arguments.
        nested: Vec<Register>,
        /// Whether a repeated run submits something else under the same id.
        fickle: bool,
    },
    /// Creates an actor; fills the next register.
    Create {
        /// Its constructor.
        job: JobId,
        /// How often it may be started again.
        restarts_max: u32,
        /// References inside arguments.
        nested: Vec<Register>,
    },
    /// Calls an actor; fills the next register.
    Call {
        /// Which.
        actor: Register,
        /// The method.
        job: JobId,
        /// Arguments by reference.
        dependencies: Vec<Register>,
        /// References inside arguments.
        nested: Vec<Register>,
    },
    /// Puts a value that contains these; fills the next register.
    Put(Vec<Register>),
    /// Waits for a value.
    Get(Register),
    /// Waits for a value and takes the first reference inside; fills the next register.
    Open(Register),
    /// Drops a reference.
    Drop(Register),
    /// Yields an item that contains these.
    Yield(Vec<Register>),
    /// Waits for the next item of a stream, and takes it; keeps it in the next register or drops it.
    Next {
        /// The end of the stream.
        stream: Register,
        /// Whether it fills a register.
        keep: bool,
    },
    /// Goes on with this item of a stream: those before were taken elsewhere.
    Skip {
        /// The end of the stream.
        stream: Register,
        /// How many.
        items: u32,
    },
    /// Cancels the task that makes an object.
    Cancel {
        /// Which.
        object: Register,
        /// At once.
        force: bool,
    },
    /// Reduces these to one object; fills the next register. They are all small or all large.
    Reduce {
        /// What.
        inputs: Vec<Register>,
        /// So many of them are taken, the first that are there.
        count: usize,
        /// How two become one.
        op: flow::Op,
        /// How it is done.
        options: reduce::Options,
    },
    /// Has the object brought to all nodes, while it is made when it is the result of a reduce.
    Broadcast(Register),
    /// Counts one call on the actor that this code belongs to.
    Apply,
    /// The actor keeps the reference.
    Keep(Register),
    /// Asks for a placement group, which everything that the thread makes from then on goes into.
    Group {
        /// How its bundles lie.
        packing: GroupStrategy,
        /// Tenths of a CPU of each bundle.
        tenths: Vec<u64>,
    },
    /// Gives the group up.
    Ungroup,
    /// Ends with an error.
    Fail,
    /// Ends with an error in the first attempt; the job is tried again for that.
    Flake,
    /// Ends with a value that contains these.
    Return(Vec<Register>),
}

/// How large the results of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Drawn in each run.
    Any,
    /// They travel inside of messages.
    Small,
    /// They lie in stores.
    Large,
}

/// A function, constructor or method.
#[derive(Clone, Debug)]
pub struct Job {
    /// For people.
    pub name: &'static str,
    /// What it does.
    pub ops: Vec<Op>,
    /// Retries after the death of its worker.
    pub retries_max: u32,
    /// Tenths of a CPU.
    pub cpu_tenths: u64,
    /// Tenths of a GPU.
    pub gpu_tenths: u64,
    /// How many results it has.
    pub returns: u32,
    /// How large they are.
    pub size: Size,
    /// What its process must look like; 0 for the usual.
    pub environment: u64,
    /// Calls at once, for the constructor of an actor.
    pub concurrency_max: u32,
    /// Runs after which its process ends; 0 for no limit.
    pub calls_max: u32,
    /// Tasks that may be in its process at a time; 0 for as many as there may be.
    pub threads_per_worker: u32,
    /// Its items come one by one.
    pub stream: Option<Stream>,
    /// On which node.
    pub strategy: Strategy,
}

/// All code of a run: the executable that every process has.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The jobs that the driver runs itself, each on a thread of its own.
    pub roots: Vec<JobId>,
}

impl Program {
    /// Adds a job that takes one CPU and may be tried again three times.
    pub fn job(&mut self, name: &'static str, ops: Vec<Op>) -> JobId {
        self.jobs.push(Job {
            name,
            ops,
            retries_max: 3,
            cpu_tenths: 10,
            gpu_tenths: 0,
            returns: 1,
            size: Size::Any,
            environment: 0,
            concurrency_max: 1,
            calls_max: 0,
            threads_per_worker: 0,
            stream: None,
            strategy: Strategy::Default,
        });
        self.jobs.len() - 1
    }

    /// What all actors that the roots create hold together.
    pub fn actors_cpu_tenths(&self) -> u64 {
        let ops = self.roots.iter().flat_map(|root| &self.jobs[*root].ops);
        let created = ops.filter_map(|op| if let Op::Create { job, .. } = op { Some(*job) } else { None });
        created.map(|job| self.jobs[job].cpu_tenths).sum()
    }

    /// How many actors the roots create.
    pub fn actors(&self) -> u64 {
        let ops = self.roots.iter().flat_map(|root| &self.jobs[*root].ops);
        ops.filter(|op| matches!(op, Op::Create { .. })).count() as u64
    }

    /// How many actors that the roots create hold a GPU or a part of one.
    pub fn gpu_actors(&self) -> u64 {
        let ops = self.roots.iter().flat_map(|root| &self.jobs[*root].ops);
        ops.filter(|op| matches!(op, Op::Create { job, .. } if self.jobs[*job].gpu_tenths > 0)).count() as u64
    }

    /// Draws on which of so many nodes each job runs: the more it is left open, the less they have to do with each other.
    pub fn place(&mut self, nodes: u32, random: &mut Random) {
        let mixed = random.below(4);
        // Those that have to be spread for what they are to show are.
        let open = |job: &&mut Job| nodes > 1 && job.strategy == Strategy::Default;
        for job in self.jobs.iter_mut().filter(open) {
            let node = NodeId(random.within(1, nodes.into()) as u32);
            job.strategy = match random.below(3 + mixed) {
                0..=2 => Strategy::Default,
                3 | 4 => Strategy::Spread,
                // The head is never lost, so what has to be there can be.
                _ => Strategy::Node { node, soft: node != NodeId::HEAD || random.one_in(2) },
            };
        }
    }

    /// Whether some of it keeps processes for itself while it waits: by its environment, its placement group, or a bound on
    /// how many tasks a process runs.
    pub fn keeps_processes(&self) -> bool {
        let groups = |job: &Job| job.ops.iter().any(|op| matches!(op, Op::Group { .. }));
        self.jobs.iter().any(|job| job.environment != 0 || job.calls_max > 0 || groups(job))
    }

    /// Adds a thread of the driver.
    pub fn root(&mut self, ops: Vec<Op>) {
        let root = self.job("main", ops);
        self.roots.push(root);
    }
}

/// A submit without references.
pub fn submit(job: JobId) -> Op {
    Op::Submit { job, dependencies: vec![], nested: vec![], fickle: false }
}

/// A submit with dependencies.
pub fn submit_after(job: JobId, dependencies: Vec<Register>) -> Op {
    Op::Submit { job, dependencies, nested: vec![], fickle: false }
}

/// A submit with references inside its arguments.
pub fn submit_with(job: JobId, nested: Vec<Register>) -> Op {
    Op::Submit { job, dependencies: vec![], nested, fickle: false }
}

/// A call without other references.
pub fn call(actor: Register, job: JobId) -> Op {
    Op::Call { actor, job, dependencies: vec![], nested: vec![] }
}
