//! What the driver has the seats do: an actor on each node. Times are of the machine's monotonic clock, which all hosts of a lab
//! share.

use std::time::Duration;

use bireme::collective::Group;
use bireme::{Array, Bytes, ObjectRef, ReduceOp, ReducePlan, Strategy};
use bireme_runtime::core::id::NodeId;
use serde::{Deserialize, Serialize};

use super::super::Outcome;
use super::super::machine::Moment;
use super::super::measure::{median_us, quantile, seconds};
use super::kill::{Kill, with_kill};
use super::seat::{Seat, SeatHandle, check, elements, now, sleep_until};

/// From the calls to the start: long enough that every seat waits for it.
const LEAD: Duration = Duration::from_millis(100);
/// What was freed has gone from the stores after this, so that the next pass has pages that were used before.
const SETTLE: Duration = Duration::from_millis(100);

/// What the driver is to do. Of what moves objects it tells milliseconds, and the seconds that all cores worked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Have a seat on each of these nodes; the first is the driver's own.
    Sit {
        /// Numbers of the nodes.
        nodes: Vec<u32>,
    },
    /// Put an array and have the other seats get it: milliseconds from the arrival of the last to the last end.
    Broadcast {
        /// Of the array.
        bytes: usize,
        /// How the seats come to it.
        arrival: Arrival,
        /// Who is killed meanwhile.
        kill: Option<Kill>,
    },
    /// Have each other seat make an array and get all of them: milliseconds.
    Gather {
        /// Of each array.
        bytes: usize,
    },
    /// Have every seat make an array and reduce all: milliseconds from the last arrival to the result with the driver.
    Reduce(Reduce),
    /// The same until every seat has the result.
    ObjectAllReduce {
        /// Of each array.
        bytes: usize,
    },
    /// Have the members of a group sum their arrays: milliseconds until every seat has the result.
    GroupAllReduce {
        /// Of each array.
        bytes: usize,
    },
    /// Send a value to the second seat and get it back: the median of microseconds.
    RoundTrip {
        /// Of the value.
        bytes: usize,
        /// So often.
        count: usize,
        /// With a pause before each, in milliseconds: then nobody spins any more.
        pause_ms: u64,
    },
}

/// When seats begin, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Arrival {
    /// All at once.
    Together,
    /// Evenly over so many milliseconds.
    Spread(f64),
    /// Each when the one before has all of it: nothing is sent on before it is whole, and nobody serves two.
    OneByOne,
    /// In rounds, in which each node that has all of it can serve one more.
    Rounds,
}

/// Who sends to whom in a reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// As a reduce chooses by itself.
    Own,
    /// One after the other.
    Chain,
    /// Chains of chains.
    TwoLevel,
    /// Each from up to so many.
    Tree(u32),
    /// All to one.
    Star,
}

impl Plan {
    fn forced(self) -> ReducePlan {
        match self {
            Plan::Own => ReducePlan::Model,
            Plan::Chain => ReducePlan::Chain,
            Plan::TwoLevel => ReducePlan::TwoLevel,
            Plan::Tree(degree) => ReducePlan::Tree(degree),
            Plan::Star => ReducePlan::Star,
        }
    }
}

/// How arrays are reduced.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Reduce {
    /// Of each array.
    pub(crate) bytes: usize,
    /// How the arrays come.
    pub(crate) arrival: Arrival,
    /// Who sends to whom.
    pub(crate) plan: Plan,
    /// How many arrays there are more than are wanted; the last ones may stay unused.
    pub(crate) spare: usize,
    /// Who is killed meanwhile.
    pub(crate) kill: Option<Kill>,
}

/// The driver's side.
#[derive(Default)]
pub(crate) struct Seats {
    seats: Vec<SeatHandle>,
    /// Whether all of them are members of a group.
    are_group: bool,
}

impl Seats {
    /// Does something; what comes back is said there.
    pub(crate) fn act(&mut self, task: &Task) -> Outcome<Vec<f64>> {
        let told = match *task {
            Task::Sit { ref nodes } => return self.sit(nodes),
            Task::Broadcast { bytes, arrival, kill } => self.broadcast(bytes, arrival, kill)?,
            Task::Gather { bytes } => self.gather(bytes)?,
            Task::Reduce(how) => self.reduce(how)?,
            Task::ObjectAllReduce { bytes } => self.all_reduce(bytes)?,
            Task::GroupAllReduce { bytes } => self.group_all_reduce(bytes)?,
            Task::RoundTrip { bytes, count, pause_ms } => return self.round_trips(bytes, count, pause_ms),
        };
        std::thread::sleep(SETTLE);
        Ok(told.to_vec())
    }

    fn round_trips(&self, bytes: usize, count: usize, pause_ms: u64) -> Outcome<Vec<f64>> {
        let (seat, value) = (self.seats.get(1).ok_or("nobody sits")?, Bytes::from(vec![1; bytes]));
        let call = || match seat.echo(value.clone()).get()?.len() == bytes {
            true => Ok(()),
            false => Err("another value came back".into()),
        };
        if pause_ms == 0 {
            return Ok(vec![median_us(count, call)?]);
        }
        let mut took = Vec::new();
        for _ in 0..count {
            std::thread::sleep(Duration::from_millis(pause_ms));
            let (seconds, called) = seconds(call);
            called?;
            took.push(seconds * 1e6);
        }
        Ok(vec![quantile(&took, 0.5).ok_or("a median of no calls")?])
    }

    fn sit(&mut self, nodes: &[u32]) -> Outcome<Vec<f64>> {
        let strategy = |node: &u32| Strategy::Node { node: NodeId(*node), soft: false };
        self.are_group = false;
        self.seats = nodes.iter().map(|node| Seat::options().strategy(strategy(node)).remote()).collect();
        for seat in &self.seats {
            seat.echo(Bytes::from(Vec::new())).get()?;
        }
        Ok(Vec::new())
    }

    fn broadcast(&self, bytes: usize, arrival: Arrival, kill: Option<Kill>) -> Outcome<Told> {
        let object = bireme::put(elements(bytes, 1.0)?)?;
        let before = Moment::now()?;
        let others = self.seats.get(1..).unwrap_or_default();
        let start = now() + LEAD.as_nanos() as u64;
        let take = |seat: &SeatHandle, at| seat.take(at, vec![object.clone()], 1.0);
        let last = match arrival {
            Arrival::OneByOne => {
                sleep_until(start);
                others.iter().map(|seat| take(seat, 0).get()).try_fold(0, |_, end| end)?
            }
            Arrival::Rounds => {
                sleep_until(start);
                let (mut left, mut holders, mut last) = (others, 1, 0);
                while !left.is_empty() {
                    let (now, later) = left.split_at(holders.min(left.len()));
                    let calls: Vec<ObjectRef<u64>> = now.iter().map(|seat| take(seat, 0)).collect();
                    last = bireme::get_all(&calls)?.into_iter().max().unwrap_or(last);
                    (left, holders) = (later, holders * 2);
                }
                last
            }
            Arrival::Together | Arrival::Spread(_) => {
                let times = starts(start, others.len(), arrival);
                let calls: Vec<ObjectRef<u64>> = others.iter().zip(&times).map(|(seat, at)| take(seat, *at)).collect();
                let ends = with_kill(kill, || ends(&calls, kill.map(|kill| kill.seat - 1)))?;
                return told(&before, times.last().copied().unwrap_or(start), ends);
            }
        };
        told(&before, start, last)
    }

    fn gather(&self, bytes: usize) -> Outcome<Told> {
        let others = self.seats.get(1..).unwrap_or_default();
        let arrays = made(others, bytes, &vec![0; others.len()])?;
        bireme::wait(&arrays, arrays.len(), None)?;
        let (before, start) = (Moment::now()?, now());
        let got = bireme::get_all(&arrays)?;
        let told = told(&before, start, now())?;
        for (at, array) in got.iter().enumerate() {
            check(array, value_of(at))?;
        }
        Ok(told)
    }

    fn reduce(&self, how: Reduce) -> Outcome<Told> {
        let Reduce { bytes, arrival, plan, spare, kill } = how;
        let start = now() + LEAD.as_nanos() as u64;
        let times = match arrival {
            Arrival::Spread(_) => starts(start, self.seats.len(), arrival),
            _ => vec![0; self.seats.len()],
        };
        let arrays = made(&self.seats, bytes, &times)?;
        if arrival == Arrival::Together {
            bireme::wait(&arrays, arrays.len(), None)?;
        }
        let (before, begun) = (Moment::now()?, now());
        let (sum, reduced) = with_kill(kill, || {
            let reduce = bireme::reduce(&arrays, ReduceOp::Sum).plan(plan.forced());
            let reduced = if spare > 0 { reduce.count(arrays.len() - spare) } else { reduce }.start();
            Ok((reduced.get()?, reduced))
        })?;
        let told = told(&before, times.last().copied().filter(|at| *at > 0).unwrap_or(begun), now())?;
        let used = reduced.used_inputs()?;
        if used.len() + spare != arrays.len() {
            return Err(format!(
                "{} of {} arrays were reduced, of which {spare} were too many",
                used.len(),
                arrays.len()
            )
            .into());
        }
        if kill.is_some_and(|kill| used.contains(&kill.seat)) {
            return Err("the array of who was killed is part of the result".into());
        }
        check(&sum, used.iter().map(|seat| value_of(*seat)).sum())?;
        Ok(told)
    }

    fn all_reduce(&self, bytes: usize) -> Outcome<Told> {
        let arrays = made(&self.seats, bytes, &vec![0; self.seats.len()])?;
        bireme::wait(&arrays, arrays.len(), None)?;
        let (before, start) = (Moment::now()?, now());
        let sum = bireme::reduce(&arrays, ReduceOp::Sum).start();
        let value = sum_of(self.seats.len());
        let calls: Vec<_> = self.seats.iter().map(|seat| seat.take(0, vec![sum.clone()], value)).collect();
        told(&before, start, ends(&calls, None)?)
    }

    fn group_all_reduce(&mut self, bytes: usize) -> Outcome<Told> {
        if !self.are_group {
            let group = Group::of(self.seats.iter().map(SeatHandle::id))?;
            let entered: Vec<ObjectRef<()>> = self.seats.iter().map(|seat| seat.enter(group.clone())).collect();
            bireme::get_all(&entered)?;
            self.are_group = true;
        }
        prepare(&self.seats, bytes)?;
        let before = Moment::now()?;
        let (at, value) = (now() + LEAD.as_nanos() as u64, sum_of(self.seats.len()));
        let calls: Vec<_> = self.seats.iter().map(|seat| seat.all_reduce(at, value)).collect();
        told(&before, at, ends(&calls, None)?)
    }
}

/// Has each seat make an array of its number, counted from 1.
fn prepare(seats: &[SeatHandle], bytes: usize) -> Outcome<()> {
    let prepared: Vec<ObjectRef<()>> =
        seats.iter().enumerate().map(|(at, seat)| seat.prepare(bytes, value_of(at))).collect();
    bireme::get_all(&prepared)?;
    Ok(())
}

/// The same, and give it at its time.
fn made(seats: &[SeatHandle], bytes: usize, times: &[u64]) -> Outcome<Vec<ObjectRef<Array>>> {
    prepare(seats, bytes)?;
    Ok(seats.iter().zip(times).map(|(seat, at)| seat.give(*at)).collect())
}

/// What every element of the array of a seat is.
fn value_of(seat: usize) -> f32 {
    (seat + 1) as f32
}

/// What the sum of all arrays has everywhere.
fn sum_of(seats: usize) -> f32 {
    (seats * (seats + 1) / 2) as f32
}

/// When each of so many begins.
fn starts(start: u64, count: usize, arrival: Arrival) -> Vec<u64> {
    let spread_ms = match arrival {
        Arrival::Spread(milliseconds) => milliseconds,
        Arrival::Together | Arrival::OneByOne | Arrival::Rounds => 0.0,
    };
    let step = spread_ms * 1e6 / (count.max(2) - 1) as f64;
    (0..count).map(|at| start + (step * at as f64) as u64).collect()
}

/// The latest of all ends. The one that was to be killed may fail, and must.
fn ends(calls: &[ObjectRef<u64>], killed: Option<usize>) -> Outcome<u64> {
    let mut last = 0;
    for (at, call) in calls.iter().enumerate() {
        match call.get() {
            Ok(end) if Some(at) != killed => last = last.max(end),
            Ok(_) => return Err("who was to be killed had got everything before".into()),
            Err(_) if Some(at) == killed => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(last)
}

/// What is told of a pass: milliseconds, and the seconds that all cores together worked since a moment shortly before, when all
/// arrays were made.
type Told = [f64; 2];

fn told(before: &Moment, from: u64, to: u64) -> Outcome<Told> {
    Ok([to.saturating_sub(from) as f64 / 1e6, before.busy_since()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_spread_from_the_first_to_the_last() {
        assert_eq!(starts(100, 3, Arrival::Spread(1e-3)), [100, 600, 1_100]);
        assert_eq!(starts(100, 2, Arrival::Together), [100, 100]);
        assert_eq!(starts(100, 1, Arrival::Spread(1.0)), [100]);
    }

    #[test]
    fn the_sum_of_all_arrays_is_that_of_their_values() {
        assert_eq!(sum_of(4), (0..4).map(value_of).sum::<f32>());
    }
}
