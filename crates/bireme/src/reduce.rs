//! Reduces: many arrays become one, where they are and as they arrive.

use std::time::Duration;

use bireme_runtime::core::flow::Op;
use bireme_runtime::core::reduce::{Choice, Options, Order, Shape};
use bireme_runtime::{NewReduce, Ref, Runtime};

use crate::{Array, Error, ObjectRef, Result, UserOp, codec, context, names};

/// What a [`reduce`] does with two elements at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Their sum; of integers, it wraps.
    Sum,
    /// The sum of all, divided by how many there are; not for integers.
    Mean,
    /// Their product; of integers, it wraps.
    Product,
    /// The smaller one; NaN when either is.
    Min,
    /// The larger one; NaN when either is.
    Max,
}

impl ReduceOp {
    fn op(self) -> Op {
        match self {
            ReduceOp::Sum => Op::Sum,
            ReduceOp::Mean => Op::Mean,
            ReduceOp::Product => Op::Product,
            ReduceOp::Min => Op::Min,
            ReduceOp::Max => Op::Max,
        }
    }
}

/// How a [`reduce`] makes one array of two: a [`ReduceOp`], or an op of yours (see [`op`](macro@crate::op)).
#[derive(Clone, Copy, Debug)]
pub struct ReduceBy(By);

#[derive(Clone, Copy, Debug)]
enum By {
    Known(ReduceOp),
    User(UserOp),
}

impl From<ReduceOp> for ReduceBy {
    fn from(op: ReduceOp) -> Self {
        Self(By::Known(op))
    }
}

impl From<UserOp> for ReduceBy {
    fn from(op: UserOp) -> Self {
        Self(By::User(op))
    }
}

/// Who sends to whom in a reduce over several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReducePlan {
    /// The cheapest by what is known of the network.
    Model,
    /// Two levels of chains when n · bandwidth · latency is more than the bytes of an object, else one chain.
    Paper,
    /// One after the other.
    Chain,
    /// About √n chains, whose ends are a chain.
    TwoLevel,
    /// Each takes from up to so many.
    Tree(u32),
    /// All send to the caller's node.
    Star,
}

impl ReducePlan {
    fn choice(self) -> Choice {
        match self {
            ReducePlan::Model => Choice::Model,
            ReducePlan::Paper => Choice::Paper,
            ReducePlan::Chain => Choice::Forced(Shape::Chain),
            ReducePlan::TwoLevel => Choice::Forced(Shape::TwoLevel),
            ReducePlan::Tree(degree) => Choice::Forced(Shape::Tree(degree)),
            ReducePlan::Star => Choice::Forced(Shape::Star),
        }
    }
}

/// A reduce being chosen; made by [`reduce`].
#[must_use = "nothing is reduced until `start` is called"]
pub struct Reduce {
    inputs: Result<Vec<Ref>>,
    op: By,
    count: Option<usize>,
    options: Options,
    is_planned: bool,
}

/// Reduces arrays of one type and shape, which may not exist yet, to one: element by element, on the nodes where they are, in
/// the order in which they arrive. Call [`start`](Reduce::start).
///
/// ```
/// use bireme::{Array, ReduceOp};
///
/// #[bireme::remote]
/// fn gradient(seed: u32) -> Array {
///     Array::from(ndarray::Array1::from_elem(4, seed as f32))
/// }
///
/// let _context = bireme::init()?;
/// let gradients: Vec<_> = (1..=3).map(gradient::remote).collect();
/// let sum = bireme::reduce(&gradients, ReduceOp::Sum).start().get()?;
/// assert_eq!(sum.view::<f32>()?[[0]], 6.0);
/// let first_two = bireme::reduce(&gradients, ReduceOp::Mean).count(2).start();
/// assert_eq!(first_two.used_inputs()?.len(), 2);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn reduce<'a>(inputs: impl IntoIterator<Item = &'a ObjectRef<Array>>, op: impl Into<ReduceBy>) -> Reduce {
    let inputs = inputs.into_iter().map(|input| input.reference().cloned()).collect();
    Reduce { inputs, op: op.into().0, count: None, options: Options::default(), is_planned: false }
}

impl Reduce {
    /// Takes the first so many that are ready; [`ObjectRef::used_inputs`] tells which.
    pub fn count(mut self, count: usize) -> Self {
        self.count = Some(count);
        self
    }

    /// Combines from the first of the list to the last, whatever arrives when and where: equal inputs give equal bits.
    pub fn fixed_order(mut self) -> Self {
        self.options.order = Order::Fixed;
        self
    }

    /// Chooses who sends to whom. A fixed order is always a chain; an op of yours has no plan, and is refused with one.
    pub fn plan(mut self, plan: ReducePlan) -> Self {
        self.options.choice = plan.choice();
        self.is_planned = true;
        self
    }

    /// The result, at once: it has a value when the inputs have been reduced, or the reason why not.
    pub fn start(self) -> ObjectRef<Array> {
        match self.try_start() {
            Ok(reference) => reference,
            Err(error) => ObjectRef::refused(error),
        }
    }

    /// The same, with what is wrong with the list of inputs as an error at once.
    pub fn try_start(self) -> Result<ObjectRef<Array>> {
        let Reduce { inputs, op, count, options, is_planned } = self;
        let inputs = inputs?;
        match op {
            By::Known(op) => {
                let wanted = NewReduce { inputs, op: op.op(), count, options };
                context::runtime()?.reduce(wanted).map(ObjectRef::live)
            }
            By::User(op) if is_planned => {
                let text = format!("{op:?} runs in tasks near the inputs, so there is no plan to choose; leave it out");
                Err(Error::BadArgument(text))
            }
            By::User(op) => op.start(inputs, count, options.order == Order::Fixed),
        }
    }
}

impl ObjectRef<Array> {
    /// Which inputs a [`reduce`] of this process has taken, by their places in the list, in order. Waits for the result.
    pub fn used_inputs(&self) -> Result<Vec<usize>> {
        self.used_within(None)
    }

    /// The same, at most so long.
    pub fn used_inputs_timeout(&self, timeout: Duration) -> Result<Vec<usize>> {
        self.used_within(Some(timeout))
    }

    fn used_within(&self, timeout: Option<Duration>) -> Result<Vec<usize>, Error> {
        let runtime = Runtime::current()?;
        let used: Vec<u32> = match self.used() {
            Some(used) => codec::unpack(&runtime.get(used, timeout).map_err(names::complete)?)?,
            None => runtime.used_inputs(self.reference()?, timeout)?,
        };
        Ok(used.into_iter().map(|index| index as usize).collect())
    }
}
