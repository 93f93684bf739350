//! The verbs of the front end as free functions: put, get, wait, cancel, and questions to the runtime.

use std::time::Duration;

use bireme_runtime::Runtime;
use bireme_runtime::core::id::{NodeId, TaskId};
use bireme_runtime::core::ledger::Snapshot;
use bireme_runtime::core::ledger::snapshot::ResourcesRow;

use crate::{ObjectRef, Result, Value, codec, context, names};

/// Puts a value into the store, for as long as there are references to it.
///
/// [`Bytes`](crate::Bytes), [`Array`](crate::Array) and `Vec<u8>` are copied once, straight into shared memory; anything
/// else is serialised.
///
/// ```
/// let _context = bireme::init()?;
/// let numbers = bireme::put(vec![1, 2, 3])?;
/// assert_eq!(bireme::get(&numbers)?, [1, 2, 3]);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn put<T: Value>(value: T) -> Result<ObjectRef<T>> {
    let packed = codec::pack(value)?;
    // The references inside live until the object holds them.
    let reference = context::runtime()?.put(packed.encoded);
    drop(packed.keep);
    reference.map(ObjectRef::live)
}

/// Waits for a value. The same as [`ObjectRef::get`].
pub fn get<T: Value>(reference: &ObjectRef<T>) -> Result<T> {
    reference.get()
}

/// Waits for the values of all references. The first that fails ends the wait with its error; the others run on. Of several that
/// have failed already, the first in the order given is the error.
///
/// For those that another process owns this holds for 1,024 at a time.
///
/// ```
/// #[bireme::remote]
/// fn square(x: i64) -> i64 {
///     x * x
/// }
///
/// let _context = bireme::init()?;
/// let squares: Vec<_> = (0..4).map(square::remote).collect();
/// assert_eq!(bireme::get_all(&squares)?, [0, 1, 4, 9]);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn get_all<T: Value>(references: &[ObjectRef<T>]) -> Result<Vec<T>> {
    get_together(references, None)
}

/// Waits for the values of all references as [`get_all`], at most so long for all of them; the error says what the first one that is
/// missing waits for.
///
/// ```
/// use std::time::Duration;
/// let _context = bireme::init()?;
/// let numbers = [bireme::put(1)?, bireme::put(2)?];
/// assert_eq!(bireme::get_all_timeout(&numbers, Duration::from_secs(60))?, [1, 2]);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn get_all_timeout<T: Value>(references: &[ObjectRef<T>], timeout: Duration) -> Result<Vec<T>> {
    get_together(references, Some(timeout))
}

fn get_together<T: Value>(references: &[ObjectRef<T>], timeout: Option<Duration>) -> Result<Vec<T>> {
    let runtime = Runtime::current()?;
    // A reference that was refused has failed already.
    let handles = references.iter().map(ObjectRef::reference).collect::<Result<Vec<_>>>()?;
    let mut together = runtime.get_together(&handles, timeout)?;
    let mut values = Vec::with_capacity(references.len());
    while let Some(fetched) = together.next_value() {
        values.push(codec::unpack(&fetched.map_err(names::complete)?)?);
    }
    Ok(values)
}

/// Sends a value ahead to these nodes, or to all that run tasks, so that whoever reads it there finds it. Returns at once, also
/// when there is no value yet.
///
/// It is never needed: nodes that want the same value at the same time pass it on to each other anyway. A value of
/// 64 KiB or less travels inside messages and is not sent ahead. A node that is not there is an error.
///
/// ```
/// let _context = bireme::init()?;
/// let weights = bireme::put(vec![0u8; 1 << 20])?;
/// bireme::broadcast(&weights, None)?;
/// bireme::broadcast(&weights, Some(&[bireme::node_id()?]))?;
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn broadcast<T>(reference: &ObjectRef<T>, nodes: Option<&[NodeId]>) -> Result<()> {
    Runtime::current()?.broadcast(reference.reference()?, nodes)
}

/// Asks the task that makes this object to stop.
///
/// A task that waits is taken out of its queue and fails with [`Failure::Cancelled`](crate::Failure::Cancelled). A
/// running one can see the request ([`is_cancelled`]) and return, and keeps its result; with `force`, or after the
/// grace period, its worker is ended and it fails likewise. A task that is done stays done.
pub fn cancel<T>(reference: &ObjectRef<T>, force: bool) -> Result<()> {
    Runtime::current()?.cancel(reference.reference()?, force, true)
}

/// What the object waits for, for people. The same as [`ObjectRef::explain`].
pub fn explain<T>(reference: &ObjectRef<T>) -> Result<String> {
    reference.explain()
}

/// The tasks, objects, actors and workers that the node knows of.
///
/// ```
/// let _context = bireme::init()?;
/// println!("{:?}", bireme::state()?);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn state() -> Result<Snapshot> {
    Runtime::current()?.state()
}

/// The resources of the machine and those that nobody uses. A worker that is kept for the next task counts as free.
///
/// ```
/// let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
/// assert_eq!(bireme::resources()?.total.cpus.as_f64(), 2.0);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn resources() -> Result<ResourcesRow> {
    Runtime::current()?.resources_row()
}

/// The names that actors have in the namespace of this program, in order.
///
/// ```
/// let _context = bireme::init()?;
/// assert!(bireme::named_actors()?.is_empty());
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn named_actors() -> Result<Vec<String>> {
    Ok(Runtime::current()?.named_actors(false)?.into_iter().map(|(_, name)| name).collect())
}

/// The task that this code runs in; outside any task, the driver's own id.
pub fn current_task() -> Result<TaskId> {
    Ok(Runtime::current()?.current_task())
}

/// Which GPUs the task or actor that this code runs in has, by index: as many as it asked for, rounded up.
///
/// ```
/// #[bireme::remote(gpus = 2)]
/// fn train() -> Vec<u32> {
///     bireme::gpu_indices()
/// }
///
/// let _context = bireme::init_with(bireme::Config::default().gpus(2.0))?;
/// assert_eq!(train::remote().get()?, [0, 1]);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn gpu_indices() -> Vec<u32> {
    Runtime::current().map(|runtime| runtime.gpu_indices()).unwrap_or_default()
}

/// Whether the task that this code runs in was asked to stop.
///
/// ```
/// #[bireme::remote]
/// fn search() -> u64 {
///     let mut tried = 0;
///     while tried < 1_000 && !bireme::is_cancelled() {
///         tried += 1;
///     }
///     tried
/// }
/// # assert_eq!(search(), 1_000);
/// ```
pub fn is_cancelled() -> bool {
    Runtime::current().is_ok_and(|runtime| runtime.is_cancelled())
}
