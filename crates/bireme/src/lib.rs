//! Bireme turns functions and types into a cluster: remote tasks, actors and shared objects.
//!
//! ```
//! #[bireme::remote]
//! fn square(x: i64) -> i64 {
//!     x * x
//! }
//!
//! struct Counter {
//!     total: i64,
//! }
//!
//! #[bireme::actor]
//! impl Counter {
//!     pub fn new(start: i64) -> Self {
//!         Counter { total: start }
//!     }
//!
//!     pub fn add(&mut self, n: i64) -> i64 {
//!         self.total += n;
//!         self.total
//!     }
//! }
//!
//! let _context = bireme::init()?;
//! let squares: Vec<_> = (1..=4).map(square::remote).collect();
//! let counter = Counter::remote(0);
//! let totals: Vec<_> = squares.iter().map(|square| counter.add(square)).collect();
//! assert_eq!(bireme::get_all(&totals)?, [1, 5, 14, 30]);
//! # Ok::<(), bireme::Error>(())
//! ```
//!
//! - [`macro@remote`] makes a function callable as a task, [`macro@actor`] a type startable as an actor; both can still
//!   be used directly.
//! - [`ObjectRef`] stands for a value that is there or will be; [`put`], [`get`], [`wait`], `.await`.
//! - [`ObjectRefStream`] gives results one by one, while the task still runs.
//! - [`Bytes`] and [`Array`] are read in shared memory without a copy.
//! - [`collective::Group`] lets actors or tasks exchange arrays all together.
//! - [`PlacementGroup`] reserves resources together; [`Strategy`] says where a task or actor may run; [`nodes`] lists the
//!   machines.
//! - Workers are this same executable, started again before `main`; there is nothing to install or to start.
#![forbid(unsafe_code)]

mod actor;
mod any;
mod argument;
mod array;
mod bytes;
mod call;
mod codec;
pub mod collective;
mod config;
mod context;
mod future;
mod names;
mod object;
mod options;
mod placement;
#[doc(hidden)]
pub mod private;
mod reduce;
mod scope;
mod stream;
mod user_op;
mod verbs;

pub use actor::{Actor, CallOptions, get_actor, kill};
pub use any::{AnyRef, Reference, wait};
pub use argument::{Arg, IntoArg};
pub use array::{Array, Element};
/// Makes a type startable as an actor: a worker that holds the state and runs one call at a time.
///
/// On the `impl` with the constructor `new` (or one marked `#[bireme::constructor]`). The type stays as it is. There are
/// - `Type::remote(args...)`: starts an actor and gives its handle at once; `Type::try_remote`, `Type::options()`
///   (`name`, `detached`, `restarts`, `max_pending_calls`, `call_retries`, `cpus`, `gpus`, `memory`, `resource`,
///   `environment`, `strategy`, `capture_child_tasks`); the attribute takes `cpus`, `gpus`, `memory`, `resources` and `strategy`;
/// - `TypeHandle` (another name with `#[bireme::actor(handle = Name)]`): a method for each public method, which gives
///   a reference to the result; `with_options(...)` for choices of calls ([`CallOptions`]), `ready()`, `id()` and `kill()`. Handles can be cloned and sent to tasks and actors; the
///   actor ends when the last one is dropped.
///
/// A method marked `#[bireme::stream]`, or `#[bireme::stream(max_buffered_items = 4)]`, returns an iterator and gives an
/// [`ObjectRefStream`]; other calls wait until it is through.
///
/// The actor is dropped in its process when it ends: after the last handle, after `kill`, at shutdown. Its `Drop` may use the
/// runtime, and has five seconds. It does not run when the process is killed: by a signal, or because a call did not end.
///
/// Calls of one caller run in their order. Private methods and functions without `self` stay plain.
///
/// ```
/// pub struct Log(Vec<String>);
///
/// #[bireme::actor]
/// impl Log {
///     pub fn new() -> Self {
///         Log(Vec::new())
///     }
///
///     pub fn write(&mut self, line: String) -> usize {
///         self.0.push(line);
///         self.0.len()
///     }
/// }
///
/// #[bireme::remote]
/// fn report(log: LogHandle) -> bireme::Result<usize> {
///     log.write("from a task").get()
/// }
///
/// let _context = bireme::init()?;
/// let log = Log::remote();
/// log.write("from the driver").get()?;
/// assert_eq!(report::remote(log.clone()).get()?, 2);
/// # Ok::<(), bireme::Error>(())
/// ```
pub use bireme_macros::actor;
/// Makes a function an op of [`reduce`]: how two arrays become one.
///
/// On a function `fn name(into: &mut [T], from: &[T])`, where `T` is an [`Element`]. Both are the elements of arrays of one
/// shape, in row-major order; it combines `from` into `into`. It stays as it is, and `name::OP` is the op. Except with
/// [`fixed_order`](Reduce::fixed_order) it must not matter in which order and in which pairs arrays are combined.
///
/// Nodes do not have your code, so it runs in tasks: one that leads and needs no CPU, and near the inputs one with a CPU for two arrays
/// each. They are not streamed: an array is combined when all of it is there. For n large arrays on n nodes
/// that takes about log2 n times what one array takes over the network, where a [`ReduceOp`] takes it once.
///
/// ```
/// use bireme::Array;
///
/// /// Of each pair the number that is farther from zero.
/// #[bireme::op]
/// fn farthest(into: &mut [f32], from: &[f32]) {
///     for (into, from) in into.iter_mut().zip(from) {
///         if from.abs() > into.abs() {
///             *into = *from;
///         }
///     }
/// }
///
/// let _context = bireme::init()?;
/// let arrays = [vec![1.0_f32, -5.0], vec![-2.0, 4.0]].map(|numbers| bireme::put(Array::from(numbers)));
/// let arrays: Vec<_> = arrays.into_iter().collect::<bireme::Result<_>>()?;
/// let far = bireme::reduce(&arrays, farthest::OP).start().get()?;
/// assert_eq!(far.as_slice::<f32>()?, [-2.0, -5.0]);
/// # Ok::<(), bireme::Error>(())
/// ```
pub use bireme_macros::op;
/// Makes a function callable as a task.
///
/// The function stays as it is. Beside it, under the same name, there are
/// - `name::remote(args...)`: submits a task and gives a reference to its result at once. Each argument is a value, a
///   reference to one, or a borrowed reference. When the submission is refused, the reference has the error;
/// - `name::try_remote(args...)`: the same, with that error at once;
/// - `name::options()`: choices for one call (`name`, `cpus`, `gpus`, `memory`, `resource`, `environment`, `retries`,
///   `retry_on`, `max_calls`, `threads_per_worker`, `strategy`, `capture_child_tasks`), then `remote` or `try_remote`.
///
/// The attribute takes the same choices for all calls: `#[bireme::remote(cpus = 2, retries = 0, name = "x",
/// resources(camera = 0.5), retry_on = ["TimedOut"], max_calls = 100, threads_per_worker = 1, strategy = Strategy::Spread)]`; and `returns = N` for a function that returns a tuple of `N`
/// values, which become `N` objects. A function that returns `Result<T, E>` makes an object of type `T`; its errors
/// arrive at whoever reads it.
///
/// With `stream`, or `stream(max_buffered_items = 4, max_buffered_bytes = 1000)`, the function returns
/// `impl Iterator<Item = T>`, and `remote` gives an [`ObjectRefStream`]: each item is an object as soon as it is made. An
/// item `Result<T, E>` makes an object of type `T`; the first error ends the stream. The limits, which are options too,
/// hold the task back while so much is made and not taken.
///
/// Where the crate has another name (`galley = { package = "bireme" }`), the attributes are told:
/// `#[galley::remote(crate = "galley")]`, and likewise [`macro@actor`] and [`macro@op`].
///
/// Arguments and results are owned serde types; generic, `async` and `unsafe` functions are refused.
///
/// ```
/// #[bireme::remote]
/// fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// #[bireme::remote(returns = 2)]
/// fn divide(a: i64, b: i64) -> Result<(i64, i64), String> {
///     if b == 0 { Err("divided by zero".to_owned()) } else { Ok((a / b, a % b)) }
/// }
///
/// let _context = bireme::init()?;
/// let sum = add::remote(3, 4);
/// let (quotient, rest) = divide::options().name("halves").remote(&sum, 2);
/// assert_eq!((quotient.get()?, rest.get()?), (3, 1));
/// assert_eq!(add(3, 4), 7);
/// # Ok::<(), bireme::Error>(())
/// ```
pub use bireme_macros::remote;
pub use bireme_runtime::Error;
pub use bireme_runtime::array::Dtype;
pub use bireme_runtime::cluster::{ClusterChoice, SecurityChoice, TlsChoice};
pub use bireme_runtime::core::failure::{Death, DeathCause, Failure};
pub use bireme_runtime::core::id::{ActorId, GroupId, NodeId, ObjectId, TaskId};
pub use bireme_runtime::core::ledger::Snapshot;
pub use bireme_runtime::core::ledger::snapshot::{GroupRow, GroupStage, NodeRow, ResourcesRow};
pub use bireme_runtime::core::spec::{GroupStrategy, Strategy};
pub use bytes::Bytes;
pub use codec::Value;
pub use config::Config;
pub use context::{Context, init, init_with, is_initialized, shutdown};
pub use future::ObjectFuture;
/// The library of [`Array`]'s views, in the version that this crate has.
pub use ndarray;
pub use object::ObjectRef;
pub use placement::{
    Bundle, PlacementGroup, PlacementGroupBuilder, current_placement_group, get_placement_group, node_id, nodes,
    placement_groups,
};
pub use reduce::{Reduce, ReduceBy, ReduceOp, ReducePlan, reduce};
pub use stream::ObjectRefStream;
pub use user_op::UserOp;
pub use verbs::{
    broadcast, cancel, current_task, explain, get, get_all, get_all_timeout, gpu_indices, is_cancelled, named_actors,
    put, resources, state,
};

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
