//! What front ends call about reduces, and the arithmetic on small inputs, which are combined in the process that asks.

use std::collections::BTreeMap;
use std::time::Duration;

use bireme_core::flow::Op;
use bireme_core::id::{ObjectId, digest};
use bireme_core::owner::Event;
use bireme_core::reduce::{INPUTS_MAX, Options};
use bireme_core::shared::Shared;
use bireme_core::value::Body;

use crate::client::{Put, Runtime};
use crate::error::Error;
use crate::node::{array_differs, array_of};
use crate::process::{Interest, Waited};
use crate::reference::Ref;

/// A reduce on its way in.
pub struct NewReduce {
    /// What is reduced: arrays of one type and shape, which may not exist yet.
    pub inputs: Vec<Ref>,
    /// How two become one.
    pub op: Op,
    /// So many of the inputs are taken, the first that are ready; all when none.
    pub count: Option<usize>,
    /// How it is done.
    pub options: Options,
}

impl Runtime {
    /// Reduces objects to one and gives its handle at once. What is wrong with the list is an error here; what is wrong with
    /// the values is one of the result.
    pub fn reduce(&self, wanted: NewReduce) -> Result<Ref, Error> {
        self.check_running()?;
        let NewReduce { inputs, op, count, options } = wanted;
        let count = check(&inputs, count)?;
        self.check_refs(&inputs)?;
        let mut name: Vec<u8> = Vec::with_capacity(inputs.len() * 24 + 8);
        for input in &inputs {
            name.extend_from_slice(&input.id().task().raw().to_le_bytes());
            name.extend_from_slice(&input.id().index().to_le_bytes());
        }
        name.extend_from_slice(&count.to_le_bytes());
        name.push(op as u8);
        let digest = digest(&name);
        let target = match self.name_put(digest)? {
            Put::Adopted(adopted) => return Ok(adopted),
            Put::New(object) => object,
        };
        let specs = inputs.iter().map(Ref::spec).collect();
        self.process.own(Event::Reduce { target, digest, inputs: specs, op, count, options });
        self.process.doorbell.ring_self();
        Ok(Ref::counted(&self.process, target))
    }

    /// What is wrong with a list of inputs whatever their values are. Gives how many of them are taken.
    pub fn check_reduce(&self, inputs: &[Ref], count: Option<usize>) -> Result<u32, Error> {
        self.check_refs(inputs)?;
        check(inputs, count)
    }

    /// Which inputs the result of a reduce of this process is made of, by their places in the list. Waits for the result.
    pub fn used_inputs(&self, r: &Ref, timeout: Option<Duration>) -> Result<Vec<u32>, Error> {
        self.check_refs([r])?;
        let (object, process) = (r.id(), r.process());
        let deadline = timeout.and_then(crate::clock::deadline);
        let mut asked = false;
        let waited = process.wait_for(deadline, &Interest::Objects(&[object]), |inner| {
            if let Some(value) = inner.owner.value(&object) {
                return Some((value.clone(), inner.owner.used_inputs(&object).map(<[u32]>::to_vec)));
            }
            if !std::mem::replace(&mut asked, true) {
                process.want(inner, object);
            }
            None
        });
        match waited {
            Waited::Got((value, used)) => match (value.body, used) {
                (Body::Failed(failure), _) => Err(Error::Failed(failure)),
                (_, Some(used)) => Ok(used),
                (_, None) => {
                    let text = format!("{object} is not the result of a reduce that this process asked for");
                    Err(Error::BadArgument(text))
                }
            },
            Waited::Over => Err(process.over_error()),
            Waited::Interrupted => Err(Error::Interrupted),
            Waited::TimedOut => {
                let waiting_for = self.explain(r).unwrap_or_else(|error| error.to_string());
                Err(Error::Timeout { object, waited: timeout.unwrap_or_default(), waiting_for })
            }
        }
    }
}

/// What is wrong with a list whatever its values are.
fn check(inputs: &[Ref], count: Option<usize>) -> Result<u32, Error> {
    let total = inputs.len();
    if total == 0 {
        return Err(Error::BadArgument("a reduce of no objects has no result; give at least one reference".into()));
    }
    if total > INPUTS_MAX {
        let text = format!("{total} inputs of one reduce are more than {INPUTS_MAX}; reduce parts of them first");
        return Err(Error::BadArgument(text));
    }
    let mut seen = BTreeMap::new();
    for (at, input) in inputs.iter().enumerate() {
        if let Some(first) = seen.insert(input.id(), at) {
            let text = format!("{} is input {first} and input {at} of one reduce; give each object once", input.id());
            return Err(Error::BadArgument(text));
        }
    }
    match count.unwrap_or(total) {
        count if (1..=total).contains(&count) => Ok(count as u32),
        count => Err(Error::BadArgument(format!("a reduce of {total} objects cannot take {count}; give 1 to {total}"))),
    }
}

/// Combines arrays in order.
pub(crate) fn combine(op: Op, inputs: &[(u32, ObjectId, Shared)]) -> Result<Shared, String> {
    let named = |index: u32, object: ObjectId, reason: String| format!("input {index} ({object}): {reason}");
    let Some(((index, object, first), rest)) = inputs.split_first() else {
        return Err("there is nothing to combine".to_owned());
    };
    let (header, number) = array_of(first, first.len() as u64).map_err(|reason| named(*index, *object, reason))?;
    op.check(number).map_err(|error| named(*index, *object, error.to_string()))?;
    let mut all = first.to_vec();
    let (front, whole) = (header.payload_offset(), header.object_bytes().map_err(|error| error.to_string())? as usize);
    let (head, elements) = all[..whole].split_at_mut(front);
    for (other, other_object, bytes) in rest {
        let fits = bytes.len() == first.len() && bytes[..front] == *head;
        if !fits {
            let reason = array_differs(bytes, first);
            return Err(format!("input {index} ({object}) and input {other} ({other_object}): {reason}"));
        }
        bireme_arith::combine(op, number, elements, &bytes[front..whole]).map_err(|error| error.to_string())?;
    }
    if op == Op::Mean {
        let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        bireme_arith::divide(number, elements, count).map_err(|error| error.to_string())?;
    }
    Ok(all.into())
}
