//! The verbs of a group, for the actor that calls them as one of its members.

use super::{Group, Op, Work};
use crate::{Array, Result};

/// The verbs, on a group for the calling actor.
impl Group {
    /// The rank of the calling actor.
    pub fn rank(&self) -> Result<usize> {
        Ok(self.member()?.rank())
    }

    /// As [`Member::broadcast`](crate::collective::Member::broadcast).
    pub fn broadcast(&self, array: &Array, root: usize) -> Result<Array> {
        self.member()?.broadcast(array, root)
    }

    /// As [`Member::broadcast_later`](crate::collective::Member::broadcast_later).
    pub fn broadcast_later(&self, array: &Array, root: usize) -> Result<Work> {
        self.member()?.broadcast_later(array, root)
    }

    /// As [`Member::reduce`](crate::collective::Member::reduce).
    pub fn reduce(&self, array: &Array, op: Op, root: usize) -> Result<Option<Array>> {
        self.member()?.reduce(array, op, root)
    }

    /// As [`Member::reduce_later`](crate::collective::Member::reduce_later).
    pub fn reduce_later(&self, array: &Array, op: Op, root: usize) -> Result<Work<Option<Array>>> {
        self.member()?.reduce_later(array, op, root)
    }

    /// As [`Member::all_reduce`](crate::collective::Member::all_reduce).
    pub fn all_reduce(&self, array: &Array, op: Op) -> Result<Array> {
        self.member()?.all_reduce(array, op)
    }

    /// As [`Member::all_reduce_later`](crate::collective::Member::all_reduce_later).
    pub fn all_reduce_later(&self, array: &Array, op: Op) -> Result<Work> {
        self.member()?.all_reduce_later(array, op)
    }

    /// As [`Member::gather`](crate::collective::Member::gather).
    pub fn gather(&self, array: &Array, root: usize) -> Result<Option<Vec<Array>>> {
        self.member()?.gather(array, root)
    }

    /// As [`Member::gather_later`](crate::collective::Member::gather_later).
    pub fn gather_later(&self, array: &Array, root: usize) -> Result<Work<Option<Vec<Array>>>> {
        self.member()?.gather_later(array, root)
    }

    /// As [`Member::all_gather`](crate::collective::Member::all_gather).
    pub fn all_gather(&self, array: &Array) -> Result<Vec<Array>> {
        self.member()?.all_gather(array)
    }

    /// As [`Member::all_gather_later`](crate::collective::Member::all_gather_later).
    pub fn all_gather_later(&self, array: &Array) -> Result<Work<Vec<Array>>> {
        self.member()?.all_gather_later(array)
    }

    /// As [`Member::scatter`](crate::collective::Member::scatter).
    pub fn scatter(&self, arrays: Option<&[Array]>, root: usize) -> Result<Array> {
        self.member()?.scatter(arrays, root)
    }

    /// As [`Member::scatter_later`](crate::collective::Member::scatter_later).
    pub fn scatter_later(&self, arrays: Option<&[Array]>, root: usize) -> Result<Work> {
        self.member()?.scatter_later(arrays, root)
    }

    /// As [`Member::reduce_scatter`](crate::collective::Member::reduce_scatter).
    pub fn reduce_scatter(&self, array: &Array, op: Op) -> Result<Array> {
        self.member()?.reduce_scatter(array, op)
    }

    /// As [`Member::reduce_scatter_later`](crate::collective::Member::reduce_scatter_later).
    pub fn reduce_scatter_later(&self, array: &Array, op: Op) -> Result<Work> {
        self.member()?.reduce_scatter_later(array, op)
    }

    /// As [`Member::all_to_all`](crate::collective::Member::all_to_all).
    pub fn all_to_all(&self, arrays: &[Array]) -> Result<Vec<Array>> {
        self.member()?.all_to_all(arrays)
    }

    /// As [`Member::all_to_all_later`](crate::collective::Member::all_to_all_later).
    pub fn all_to_all_later(&self, arrays: &[Array]) -> Result<Work<Vec<Array>>> {
        self.member()?.all_to_all_later(arrays)
    }

    /// As [`Member::barrier`](crate::collective::Member::barrier).
    pub fn barrier(&self) -> Result<()> {
        self.member()?.barrier()
    }

    /// As [`Member::barrier_later`](crate::collective::Member::barrier_later).
    pub fn barrier_later(&self) -> Result<Work<()>> {
        self.member()?.barrier_later()
    }

    /// As [`Member::send`](crate::collective::Member::send).
    pub fn send(&self, array: &Array, to: usize, tag: u32) -> Result<()> {
        self.member()?.send(array, to, tag)
    }

    /// As [`Member::send_later`](crate::collective::Member::send_later).
    pub fn send_later(&self, array: &Array, to: usize, tag: u32) -> Result<Work<()>> {
        self.member()?.send_later(array, to, tag)
    }

    /// As [`Member::recv`](crate::collective::Member::recv).
    pub fn recv(&self, from: usize, tag: u32) -> Result<Array> {
        self.member()?.recv(from, tag)
    }

    /// As [`Member::recv_later`](crate::collective::Member::recv_later).
    pub fn recv_later(&self, from: usize, tag: u32) -> Result<Work> {
        self.member()?.recv_later(from, tag)
    }
}
