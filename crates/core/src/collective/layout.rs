//! Where input and result of a call lie in a member's buffer.
//!
//! The buffer is worked on in place: what a member brings is written into its input range, and when the call is over the
//! result range has what it gets. A call that combines destroys what was there.

use std::ops::Range;

use super::{Call, Kind, Trouble};

/// The ranges of a member's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How large the buffer is.
    pub bytes: u64,
    /// Where the input goes: one range for each of the member's arrays.
    pub inputs: Vec<Range<u64>>,
    /// Where the result is when the call is over: one range for each array.
    pub results: Vec<Range<u64>>,
    /// A part of the input that is also part of the result, and where it is copied to before the call.
    pub own: Option<(Range<u64>, Range<u64>)>,
}

impl Layout {
    /// The ranges for a call of one member.
    pub fn of(call: &Call, rank: u32, size: u32) -> Result<Self, Trouble> {
        let (block, n, me) = (call.block_bytes(), u64::from(size), u64::from(rank));
        if block.checked_mul(2 * n).is_none_or(|all| all > i64::MAX as u64) {
            let text = format!("{call} by {size} members needs more memory than there can be");
            return Err(Trouble::Misuse(text));
        }
        let at = |index: u64| index * block..(index + 1) * block;
        let all = || (0..n).map(at).collect::<Vec<_>>();
        let is_root = call.root == Some(rank);
        let layout = |bytes, inputs, results| Self { bytes, inputs, results, own: None };
        Ok(match call.kind {
            Kind::Barrier => layout(0, Vec::new(), Vec::new()),
            Kind::Broadcast | Kind::AllReduce | Kind::Send => layout(block, vec![at(0)], vec![at(0)]),
            Kind::Reduce if is_root => layout(block, vec![at(0)], vec![at(0)]),
            Kind::Reduce => layout(block, vec![at(0)], Vec::new()),
            Kind::Gather if is_root => layout(n * block, vec![at(me)], all()),
            Kind::Gather => layout(block, vec![at(0)], Vec::new()),
            Kind::AllGather => layout(n * block, vec![at(me)], all()),
            Kind::Scatter if is_root => layout(n * block, all(), vec![at(me)]),
            Kind::Scatter => layout(block, Vec::new(), vec![at(0)]),
            Kind::ReduceScatter => {
                let shape = call.array.as_ref().map(|array| array.shape.clone()).unwrap_or_default();
                if shape.first().is_none_or(|first| first % n != 0) {
                    let text = format!(
                        "reduce_scatter splits the first axis among the {size} members, and an array of shape {shape:?} cannot \
                         be split so; pad it to a multiple"
                    );
                    return Err(Trouble::Misuse(text));
                }
                let part = block / n;
                let own = me * part..(me + 1) * part;
                layout(block, vec![at(0)], vec![own])
            }
            Kind::AllToAll => {
                let results = (0..n).map(|from| at(n + from)).collect();
                Self { bytes: 2 * n * block, inputs: all(), results, own: Some((at(me), at(n + me))) }
            }
        })
    }
}
