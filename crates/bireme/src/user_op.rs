//! Ops of the user: functions that combine arrays, run by the tasks of a reduce.
//!
//! A node does not have the user's code, so such a reduce is not streamed between nodes: it is a task that leads, without a CPU, and
//! tasks near the inputs that combine two arrays each. All of them run the one function that `#[bireme::op]` registers; their
//! first argument, the [`Duty`], says what they do. The leader combines the last two arrays itself, and all small ones.

use std::fmt;
use std::time::Duration;

use bireme_runtime::core::collective::dtype_name;
use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::id::{ObjectId, TaskId};
use bireme_runtime::{Glance, Identity, Invocation, Ref, Runtime};
use serde::{Deserialize, Serialize};

use crate::argument::{Arguments, Inputs};
use crate::call::{Site, broken, give};
use crate::collective::described;
use crate::options::Defaults;
use crate::{Array, Element, Error, ObjectRef, Result, codec, context};

/// A leader that waits looks so often whether it was cancelled.
const LOOK: Duration = Duration::from_millis(200);

/// An op that a user wrote: what `#[bireme::op]` makes of a function.
#[derive(Clone, Copy)]
pub struct UserOp(fn() -> &'static OpSite);

/// The tasks of one op at the caller's side.
pub struct OpSite {
    name: &'static str,
    lead: Site,
    combine: Site,
}

/// What a task of a reduce does.
#[derive(Serialize, Deserialize)]
enum Duty {
    /// Waits for inputs, has them combined, and gives the result.
    Lead { inputs: Vec<ObjectRef<Array>>, count: u32, fixed: bool },
    /// Combines two arrays, which are its next arguments.
    Combine { target: ObjectId, inputs: [Input; 2] },
}

/// An input of a reduce; also the first of those that were combined.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Input {
    index: u32,
    object: ObjectId,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input {} ({})", self.index, self.object)
    }
}

impl OpSite {
    /// What the macro knows of an op.
    pub const fn new(identity: Identity, name: &'static str) -> Self {
        // The leader waits most of the time: with a CPU it would take the place of those for whom it waits.
        let lead = Site::new(identity, 2, Defaults { name, cpus: 0.0, ..Defaults::TASK });
        Self { name, lead, combine: Site::new(identity, 1, Defaults { name, ..Defaults::TASK }) }
    }
}

impl UserOp {
    /// The op with these tasks. For generated code.
    #[doc(hidden)]
    pub const fn new(site: fn() -> &'static OpSite) -> Self {
        Self(site)
    }

    /// Begins a reduce by this op.
    pub(crate) fn start(self, inputs: Vec<Ref>, count: Option<usize>, fixed: bool) -> Result<ObjectRef<Array>> {
        let count = context::runtime()?.check_reduce(&inputs, count)?;
        let duty = Duty::Lead { inputs: inputs.into_iter().map(ObjectRef::live).collect(), count, fixed };
        let mut results = (self.0)().lead.submit(None, Arguments::default().with::<Duty>(duty))?.into_iter();
        match (results.next(), results.next()) {
            (Some(result), Some(used)) => Ok(ObjectRef::reduced(result, used)),
            _ => Err(Error::BadArgument("the runtime gave fewer results than asked".to_owned())),
        }
    }
}

impl fmt::Debug for UserOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserOp({})", (self.0)().name)
    }
}

/// Runs a task of a reduce. For generated code.
pub fn run_op<T: Element>(
    call: &mut Invocation<'_>,
    site: &'static OpSite,
    function: fn(&mut [T], &[T]),
) -> Result<(), Failure> {
    let mut arguments = Inputs::of(call);
    let duty = arguments.take::<Duty>().map_err(|error| broken(call, error))?;
    match duty {
        Duty::Combine { target, inputs } => {
            let op = Op { target, name: site.name, function };
            let mut arrays = Vec::with_capacity(inputs.len());
            for input in inputs {
                arrays.push((input, arguments.take::<Array>().map_err(|error| op.about(input, &error))?));
            }
            let combined = op.combine(&arrays)?;
            give(call, combined)
        }
        Duty::Lead { inputs, count, fixed } => {
            let runtime = Runtime::current().map_err(|error| broken(call, error))?;
            let op = Op { target: ObjectId::result(call.task, 0), name: site.name, function };
            let (reduced, used) = Lead::new(op, site, runtime, inputs).run(call.task, count as usize, fixed)?;
            give(call, reduced)?;
            give(call, used)
        }
    }
}

/// The user's function, for one reduce.
struct Op<T> {
    target: ObjectId,
    name: &'static str,
    function: fn(&mut [T], &[T]),
}

impl<T: Element> Op<T> {
    fn failure(&self, reason: String) -> Failure {
        Failure::Reduce { object: self.target, reason }
    }

    fn about(&self, input: Input, error: &Error) -> Failure {
        self.failure(format!("{input}: {error}"))
    }

    /// The elements of an array of the op's type.
    fn elements<'a>(&self, input: Input, array: &'a Array) -> Result<&'a [T], Failure> {
        if array.dtype() != T::DTYPE {
            let (own, found) = (dtype_name(T::DTYPE as u8), described(array));
            return Err(self.failure(format!("op {} combines arrays of {own}, and {input} is {found}", self.name)));
        }
        array.as_slice::<T>().map_err(|error| self.about(input, &error))
    }

    /// Combines arrays from the first to the last.
    fn combine(&self, arrays: &[(Input, Array)]) -> Result<Array, Failure> {
        let Some(((first, array), rest)) = arrays.split_first() else {
            return Err(self.failure("there is nothing to combine".to_owned()));
        };
        let mut all = self.elements(*first, array)?.to_vec();
        for (input, other) in rest {
            if described(other) != described(array) {
                let (one, two) = (described(array), described(other));
                let text = format!("inputs are not of one type and shape: {first} is {one}, and {input} is {two}");
                return Err(self.failure(text));
            }
            (self.function)(&mut all, self.elements(*input, other)?);
        }
        Array::from_shape_vec(array.shape(), all).map_err(|error| self.about(*first, &error))
    }
}

/// An array that is there, or is being made.
struct Part {
    first: Input,
    reference: ObjectRef<Array>,
    /// An input of the reduce; else what a task makes of some.
    is_input: bool,
}

/// One reduce under way, in the task that leads it.
struct Lead<T> {
    op: Op<T>,
    site: &'static OpSite,
    runtime: Runtime,
    /// The list of the caller.
    inputs: Vec<Input>,
    /// Inputs, and what tasks combine, that have no value yet.
    waiting: Vec<Part>,
    /// Large arrays that can be combined.
    large: Vec<Part>,
    small: Vec<(Input, Array)>,
    used: Vec<u32>,
    failed: usize,
}

impl<T: Element> Lead<T> {
    fn new(op: Op<T>, site: &'static OpSite, runtime: Runtime, inputs: Vec<ObjectRef<Array>>) -> Self {
        let part = |(index, reference): (u32, ObjectRef<Array>)| Part {
            first: Input { index, object: reference.id() },
            reference,
            is_input: true,
        };
        let waiting: Vec<Part> = (0..).zip(inputs).map(part).collect();
        let inputs = waiting.iter().map(|part| part.first).collect();
        Self { op, site, runtime, inputs, waiting, large: Vec::new(), small: Vec::new(), used: Vec::new(), failed: 0 }
    }

    /// The result, and which inputs it is made of.
    fn run(mut self, task: TaskId, count: usize, fixed: bool) -> Result<(Array, Vec<u32>), Failure> {
        let spare = self.waiting.len() - count;
        loop {
            for part in self.take_ready(task)? {
                self.look_at(part, count, spare)?;
            }
            let complete = self.used.len() == count;
            if complete {
                self.waiting.retain(|part| !part.is_input);
            }
            if fixed && complete {
                self.chain()?;
            } else if !fixed {
                self.pair(complete)?;
            }
            if complete && self.waiting.is_empty() {
                let reduced = self.finish()?;
                self.used.sort_unstable();
                return Ok((reduced, self.used));
            }
        }
    }

    /// Those that have a value now, or a failure. Waits until there are any.
    fn take_ready(&mut self, task: TaskId) -> Result<Vec<Part>, Failure> {
        loop {
            let references = self.waiting.iter().map(|part| part.reference.reference());
            let references: Vec<&Ref> = references.collect::<Result<_>>().map_err(|error| self.other(&error))?;
            let waited = self.runtime.wait(&references, 1, Some(LOOK)).and_then(|flags| {
                let any = flags.contains(&true);
                // The wait ends with the first: what else is there, too?
                if any { self.runtime.wait(&references, references.len(), Some(Duration::ZERO)) } else { Ok(flags) }
            });
            let flags = waited.map_err(|error| self.other(&error))?;
            if self.runtime.is_cancelled() {
                return Err(Failure::Cancelled { task });
            }
            if flags.contains(&true) {
                let mut flags = flags.into_iter();
                let is_ready = |_: &mut Part| flags.next().unwrap_or(false);
                return Ok(self.waiting.extract_if(.., is_ready).collect());
            }
        }
    }

    /// Takes what has a value now, as long as one is needed.
    fn look_at(&mut self, part: Part, count: usize, spare: usize) -> Result<(), Failure> {
        let (first, is_input) = (part.first, part.is_input);
        if is_input && self.used.len() == count {
            return Ok(());
        }
        let reference = part.reference.reference().map_err(|error| self.other(&error))?;
        match self.runtime.glance(reference).map_err(|error| self.other(&error))? {
            None => {
                self.waiting.push(part);
                return Ok(());
            }
            Some(Glance::Failed(failure)) if !is_input => return Err(self.of_task(&failure)),
            Some(Glance::Failed(failure)) => {
                self.failed += 1;
                if self.failed > spare {
                    return Err(self.op.failure(format!("{first} failed: {failure}")));
                }
                return Ok(());
            }
            Some(Glance::Small(bytes)) => {
                let array = codec::unpack::<Array>(&bytes).map_err(|error| self.op.about(first, &error))?;
                self.small.push((first, array));
            }
            Some(Glance::Stored) => self.large.push(part),
        }
        if is_input {
            self.used.push(first.index);
        }
        match (self.small.first(), self.large.first()) {
            (Some((small, _)), Some(large)) => Err(self.op.failure(format!(
                "inputs are not of one type and shape: {small} and {} have different lengths",
                large.first
            ))),
            _ => Ok(()),
        }
    }

    /// Has large arrays combined in the order in which they came, but for the last two.
    fn pair(&mut self, complete: bool) -> Result<(), Failure> {
        while self.large.len() > 2 || self.large.len() == 2 && !(complete && self.waiting.is_empty()) {
            let rest = self.large.split_off(2);
            let both = std::mem::replace(&mut self.large, rest);
            let made = self.combine(both)?;
            self.waiting.push(made);
        }
        Ok(())
    }

    /// Has large arrays combined from the first of the list to the last, but for the last.
    fn chain(&mut self) -> Result<(), Failure> {
        self.large.sort_by_key(|part| part.first.index);
        while self.large.len() > 2 {
            let rest = self.large.split_off(2);
            let both = std::mem::replace(&mut self.large, rest);
            // It need not be there to be combined with the next one: that task waits for it.
            let made = self.combine(both)?;
            self.large.insert(0, made);
        }
        Ok(())
    }

    fn combine(&self, both: Vec<Part>) -> Result<Part, Failure> {
        let [one, two] = <[Part; 2]>::try_from(both).map_err(|_| self.op.failure("no two arrays".to_owned()))?;
        let duty = Duty::Combine { target: self.op.target, inputs: [one.first, two.first] };
        let arguments = Arguments::default().with::<Duty>(duty);
        let arguments = arguments.with::<Array>(one.reference).with::<Array>(two.reference);
        let mut made = self.site.combine.submit(None, arguments).map_err(|error| self.other(&error))?;
        let made = made.pop().ok_or_else(|| self.op.failure("a task has no result".to_owned()))?;
        Ok(Part { first: one.first, reference: ObjectRef::live(made), is_input: false })
    }

    /// Combines what is left, here.
    fn finish(&mut self) -> Result<Array, Failure> {
        self.small.sort_by_key(|(input, _)| input.index);
        let mut arrays = std::mem::take(&mut self.small);
        for part in std::mem::take(&mut self.large) {
            let array = part.reference.get().map_err(|error| match (&error, part.is_input) {
                (Error::Failed(failure), false) => self.of_task(failure),
                _ => self.op.about(part.first, &error),
            })?;
            arrays.push((part.first, array));
        }
        self.op.combine(&arrays)
    }

    /// Why a task that combines failed: it may have lost an input on the way.
    fn of_task(&self, failure: &Failure) -> Failure {
        match failure {
            Failure::ObjectLost { object, .. } => match self.inputs.iter().find(|input| input.object == *object) {
                Some(input) => self.op.failure(format!("{input} failed: {failure}")),
                None => failure.clone(),
            },
            other => other.clone(),
        }
    }

    fn other(&self, error: &Error) -> Failure {
        error.failure().cloned().unwrap_or_else(|| self.op.failure(error.to_string()))
    }
}
