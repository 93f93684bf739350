//! Reduces: each used input is combined once and nothing else is (RED-1), in the order that was asked for, and divided once; what is
//! told of which inputs were used is true; and a reduce that fails has an input that failed.

use std::collections::{BTreeMap, BTreeSet};

use bireme_core::failure::Failure;
use bireme_core::flow::Op;
use bireme_core::id::ObjectId;
use bireme_core::reduce::Order;
use bireme_core::value::{Body, Value};

use super::Violation;

/// What a value is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// What lay in the places that were combined, in order.
    pub parts: Vec<u64>,
    /// What everything was divided by.
    pub divided: Vec<u32>,
}

impl Folded {
    /// Combines another one with this.
    pub fn append(&mut self, mut other: Self) {
        self.parts.append(&mut other.parts);
        self.divided.append(&mut other.divided);
    }
}

#[derive(Clone, Debug)]
struct Asked {
    inputs: Vec<ObjectId>,
    count: u32,
    op: Op,
    order: Order,
}

/// All reduces of a run.
#[derive(Debug, Default)]
pub struct Reduces {
    asked: BTreeMap<ObjectId, Asked>,
    /// What is in results, by their content.
    folded: BTreeMap<u64, Folded>,
    /// Which object a content is the value of.
    objects: BTreeMap<u64, ObjectId>,
    /// Small inputs that a process has combined.
    combined: BTreeMap<ObjectId, Vec<ObjectId>>,
    /// Results that were recorded.
    released: BTreeSet<ObjectId>,
}

impl Reduces {
    /// A process asks for a reduce.
    pub fn asked(&mut self, target: ObjectId, inputs: Vec<ObjectId>, count: u32, op: Op, order: Order) {
        self.asked.insert(target, Asked { inputs, count, op, order });
    }

    /// Something is the value of an object.
    pub fn recorded(&mut self, object: ObjectId, content: u64) {
        self.objects.insert(content, object);
    }

    /// A stage has made something.
    pub fn folded(&mut self, content: u64, folded: Folded) {
        self.folded.insert(content, folded);
    }

    /// A process has combined small inputs.
    pub fn combined(&mut self, target: ObjectId, inputs: Vec<ObjectId>) {
        self.combined.insert(target, inputs);
    }

    /// Whether this is the loss of a result that was never recorded: the process that made it died before, and the task that asked
    /// for it asks again when it is repeated.
    pub fn went_with_its_owner(&self, object: ObjectId, value: &Value) -> bool {
        let is_lost = matches!(value.failure(), Some(Failure::ObjectLost { object: lost, .. }) if *lost == object);
        is_lost && self.asked.contains_key(&object) && !self.released.contains(&object)
    }

    /// A process gives an object this value, with this content in a store, and says which inputs it is made of.
    pub fn released(
        &mut self,
        target: ObjectId,
        value: &Value,
        content: Option<u64>,
        used: Option<&[u32]>,
    ) -> Result<(), Violation> {
        let Some(asked) = self.asked.get(&target) else { return Ok(()) };
        self.released.insert(target);
        let wrong = |text: String| {
            let text = format!("{target}, the reduce of {} of {:?}: {text}", asked.count, asked.inputs);
            let concerns = vec![target.task().to_string()];
            Err(Violation { invariant: "each used input is combined once (RED-1)", text, concerns })
        };
        if let Some(failure) = value.failure() {
            return match failure {
                Failure::Reduce { reason, .. } if !reason.contains(" failed: ") => {
                    wrong(format!("it fails and no input has failed: {reason}"))
                }
                _ => Ok(()),
            };
        }
        let made_of: Option<Vec<ObjectId>> = match (&value.body, content.and_then(|content| self.folded.get(&content)))
        {
            (Body::Stored(_), Some(folded)) => {
                let divided = if asked.op == Op::Mean && asked.count > 1 { vec![asked.count] } else { Vec::new() };
                if folded.divided != divided {
                    return wrong(format!("it is divided by {:?}", folded.divided));
                }
                folded.parts.iter().map(|part| self.objects.get(part).copied()).collect()
            }
            (Body::Inline(_), _) => self.combined.get(&target).cloned(),
            _ => None,
        };
        let Some(mut made_of) = made_of else { return wrong(format!("nobody knows what {} is made of", value.body)) };
        // Dropped in the same step: nobody can ask.
        let Some(used) = used else { return Ok(()) };
        let mut told: Vec<ObjectId> =
            used.iter().filter_map(|index| asked.inputs.get(*index as usize).copied()).collect();
        if told.len() != asked.count as usize || !used.is_sorted() {
            return wrong(format!("{used:?} are said to be used"));
        }
        if asked.order == Order::Arrival {
            made_of.sort_unstable();
            told.sort_unstable();
        }
        if made_of != told {
            return wrong(format!("it is made of {made_of:?}, and said to be made of {told:?}"));
        }
        Ok(())
    }
}
