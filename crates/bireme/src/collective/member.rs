//! The verbs of a member: each as a call that is waited for, and as one that goes on by itself.

use bireme_runtime::Part;
use bireme_runtime::core::collective::{Call, Kind};

use super::work::Finish;
use super::{Member, Op, Work, arrays, described, misuse, only, parts, rank_of};
use crate::{Array, Result};

/// A call that can be made: what it is, what it takes, and what becomes of what it gives.
struct Planned<T> {
    call: Call,
    inputs: Vec<Part>,
    finish: Finish<T>,
}

impl<T> Planned<T> {
    fn make(self, member: &Member) -> Result<T> {
        (self.finish)(&member.0.call(self.call, self.inputs)?)
    }

    fn begin(self, member: &Member) -> Result<Work<T>> {
        let work = member.0.begin(self.call, self.inputs)?;
        Ok(Work::new(work, self.finish))
    }
}

impl Member {
    /// Its rank.
    pub fn rank(&self) -> usize {
        self.0.rank() as usize
    }

    /// How many members the group has.
    pub fn size(&self) -> usize {
        self.0.size() as usize
    }

    /// The array of `root`, at every member. The others give an array of the same type and shape, whose elements do not matter.
    pub fn broadcast(&self, array: &Array, root: usize) -> Result<Array> {
        self.plan_broadcast(array, root)?.make(self)
    }

    /// As [`Member::broadcast`], while the caller does something else.
    pub fn broadcast_later(&self, array: &Array, root: usize) -> Result<Work> {
        self.plan_broadcast(array, root)?.begin(self)
    }

    /// The arrays of all members combined element by element, at `root`; nothing elsewhere.
    pub fn reduce(&self, array: &Array, op: Op, root: usize) -> Result<Option<Array>> {
        self.plan_reduce(array, op, root)?.make(self)
    }

    /// As [`Member::reduce`], while the caller does something else.
    pub fn reduce_later(&self, array: &Array, op: Op, root: usize) -> Result<Work<Option<Array>>> {
        self.plan_reduce(array, op, root)?.begin(self)
    }

    /// The arrays of all members combined element by element, at every member.
    pub fn all_reduce(&self, array: &Array, op: Op) -> Result<Array> {
        self.plan_one(Kind::AllReduce, array, op)?.make(self)
    }

    /// As [`Member::all_reduce`], while the caller does something else.
    pub fn all_reduce_later(&self, array: &Array, op: Op) -> Result<Work> {
        self.plan_one(Kind::AllReduce, array, op)?.begin(self)
    }

    /// The arrays of all members, at `root`; nothing elsewhere.
    pub fn gather(&self, array: &Array, root: usize) -> Result<Option<Vec<Array>>> {
        self.plan_gather(array, root)?.make(self)
    }

    /// As [`Member::gather`], while the caller does something else.
    pub fn gather_later(&self, array: &Array, root: usize) -> Result<Work<Option<Vec<Array>>>> {
        self.plan_gather(array, root)?.begin(self)
    }

    /// The arrays of all members, at every member.
    pub fn all_gather(&self, array: &Array) -> Result<Vec<Array>> {
        self.plan_many(Kind::AllGather, std::slice::from_ref(array))?.make(self)
    }

    /// As [`Member::all_gather`], while the caller does something else.
    pub fn all_gather_later(&self, array: &Array) -> Result<Work<Vec<Array>>> {
        self.plan_many(Kind::AllGather, std::slice::from_ref(array))?.begin(self)
    }

    /// One of the arrays that `root` gives, at each member: that of its rank. The others give none.
    pub fn scatter(&self, given: Option<&[Array]>, root: usize) -> Result<Array> {
        self.plan_scatter(given, root)?.make(self)
    }

    /// As [`Member::scatter`], while the caller does something else.
    pub fn scatter_later(&self, given: Option<&[Array]>, root: usize) -> Result<Work> {
        self.plan_scatter(given, root)?.begin(self)
    }

    /// The arrays of all members combined, and of that one part of the first axis at each member: that of its rank.
    pub fn reduce_scatter(&self, array: &Array, op: Op) -> Result<Array> {
        self.plan_one(Kind::ReduceScatter, array, op)?.make(self)
    }

    /// As [`Member::reduce_scatter`], while the caller does something else.
    pub fn reduce_scatter_later(&self, array: &Array, op: Op) -> Result<Work> {
        self.plan_one(Kind::ReduceScatter, array, op)?.begin(self)
    }

    /// What each member has for this one; `given` is what this one has for each.
    pub fn all_to_all(&self, given: &[Array]) -> Result<Vec<Array>> {
        self.plan_many(Kind::AllToAll, given)?.make(self)
    }

    /// As [`Member::all_to_all`], while the caller does something else.
    pub fn all_to_all_later(&self, given: &[Array]) -> Result<Work<Vec<Array>>> {
        self.plan_many(Kind::AllToAll, given)?.begin(self)
    }

    /// Returns when all members have called it.
    pub fn barrier(&self) -> Result<()> {
        plan(Kind::Barrier, None, None, &[], |_| Ok(()))?.make(self)
    }

    /// As [`Member::barrier`], while the caller does something else.
    pub fn barrier_later(&self) -> Result<Work<()>> {
        plan(Kind::Barrier, None, None, &[], |_| Ok(()))?.begin(self)
    }

    /// Sends an array to another member, which takes it by [`Member::recv`] with the same tag. A small one is on its way when this
    /// returns; a large one has been taken.
    pub fn send(&self, array: &Array, to: usize, tag: u32) -> Result<()> {
        self.0.send(rank_of(to), tag, described(array), part(array))
    }

    /// As [`Member::send`], while the caller does something else.
    pub fn send_later(&self, array: &Array, to: usize, tag: u32) -> Result<Work<()>> {
        let work = self.0.begin_send(rank_of(to), tag, described(array), part(array))?;
        Ok(Work::new(work, Box::new(|_| Ok(()))))
    }

    /// The next array that another member sent with this tag.
    pub fn recv(&self, from: usize, tag: u32) -> Result<Array> {
        only(&self.0.receive(rank_of(from), tag)?)
    }

    /// As [`Member::recv`], while the caller does something else.
    pub fn recv_later(&self, from: usize, tag: u32) -> Result<Work> {
        let work = self.0.begin_receive(rank_of(from), tag)?;
        Ok(Work::new(work, Box::new(only)))
    }

    fn plan_broadcast(&self, array: &Array, root: usize) -> Result<Planned<Array>> {
        let own = array.clone();
        plan(Kind::Broadcast, None, Some(root), std::slice::from_ref(array), move |made| {
            if made.own { Ok(own.clone()) } else { only(made) }
        })
    }

    fn plan_reduce(&self, array: &Array, op: Op, root: usize) -> Result<Planned<Option<Array>>> {
        let given = std::slice::from_ref(array);
        plan(Kind::Reduce, Some(op), Some(root), given, |made| Ok(arrays(made)?.pop()))
    }

    fn plan_one(&self, kind: Kind, array: &Array, op: Op) -> Result<Planned<Array>> {
        plan(kind, Some(op), None, std::slice::from_ref(array), only)
    }

    fn plan_gather(&self, array: &Array, root: usize) -> Result<Planned<Option<Vec<Array>>>> {
        let is_root = self.rank() == root;
        plan(Kind::Gather, None, Some(root), std::slice::from_ref(array), move |made| {
            let made = arrays(made)?;
            Ok(is_root.then_some(made))
        })
    }

    fn plan_many(&self, kind: Kind, given: &[Array]) -> Result<Planned<Vec<Array>>> {
        plan(kind, None, None, given, arrays)
    }

    fn plan_scatter(&self, given: Option<&[Array]>, root: usize) -> Result<Planned<Array>> {
        if given.is_some() != (self.rank() == root) {
            return Err(misuse(&format!("rank {root}, the root, gives the arrays to scatter, and only that")));
        }
        let given = given.unwrap_or_default();
        let own = given.get(root).cloned();
        plan(Kind::Scatter, None, Some(root), given, move |made| match own.as_ref().filter(|_| made.own) {
            Some(own) => Ok(own.clone()),
            None => only(made),
        })
    }
}

fn plan<T>(
    kind: Kind,
    op: Option<Op>,
    root: Option<usize>,
    given: &[Array],
    finish: impl Fn(&bireme_runtime::collective::Outcome) -> Result<T> + Send + Sync + 'static,
) -> Result<Planned<T>> {
    let first = given.first().map(described);
    if let Some(other) = given.iter().map(described).find(|other| Some(other) != first.as_ref()) {
        let first = first.map(|first| first.to_string()).unwrap_or_default();
        let text = format!("{} takes arrays of one type and shape, not {first} and {other}", kind.name());
        return Err(misuse(&text));
    }
    let call = Call { kind, op, root: root.map(rank_of), array: first };
    Ok(Planned { call, inputs: parts(given), finish: Box::new(finish) })
}

fn part(array: &Array) -> Part {
    Box::new(array.bytes().clone())
}
