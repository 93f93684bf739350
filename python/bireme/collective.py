"""Collective groups: actors or tasks that exchange arrays all together, as in MPI and `torch.distributed`.

All members make the same calls in the same order. Small arrays go in messages between the members, large ones are streamed between
their nodes while they are combined. Results are numpy arrays in shared memory, read-only like everything there: `copy()`
one to change it. Tensors of torch give tensors, on the same device, which may be changed.

>>> import bireme, numpy
>>> @bireme.remote(num_cpus=0.5)
... class Member:
...     def sum(self, group, value):
...         return group.all_reduce(numpy.full(3, value)).tolist()
>>> context = bireme.init(num_cpus=2)
>>> members = [Member.remote() for _ in range(2)]
>>> group = bireme.collective.Group(members)
>>> bireme.get([member.sum.remote(group, 10.0 * (1 + rank)) for rank, member in enumerate(members)])
[[30.0, 30.0, 30.0], [30.0, 30.0, 30.0]]
>>> bireme.shutdown()
"""

from __future__ import annotations

import asyncio
import math
import operator
import sys
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native, _reducers
from ._timeouts import check_timeout
from .actor import ActorHandle
from .exceptions import CollectiveUsageError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

__all__ = ["Group", "Work"]

# The element types by their numbers in array objects, from 1.
_DTYPES = (
    "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 bool"
).split()

_OPS = ("sum", "mean", "product", "min", "max")

Described = tuple[int, list[int]]


class Work:
    """A call that was begun with `async_op=True` and goes on by itself. It can be awaited."""

    def __init__(self, work: _native.CollectiveWork, finish: Callable[[Any], Any]) -> None:
        self._work = work
        self._finish = finish

    def done(self) -> bool:
        """Whether the call is over, with a result or an error."""
        return self._work.done()

    def wait(self, timeout: float | None = None) -> Any:
        """The result of the call, as soon as it is over; its error is raised. A `TimeoutError` after `timeout` seconds changes
        nothing: the call goes on.
        """
        check_timeout("wait", timeout)
        return self._finish(self._work.wait(timeout))

    result = wait

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.get_running_loop().run_in_executor(None, self.wait).__await__()


class Group:
    """A collective group of known members.

    Made of actor handles, in the order of their ranks: `Group(actors)`. Pass it to them, in a call or to their constructors; what
    they call on it they call as members. Or with `world_size`, for tasks or programs that take their ranks themselves:
    `with group.join(rank) as member: ...`; all of a program that use the same `name` mean the same group.

    A call waits at most `timeout` seconds for a member that is not there, and names it.
    """

    def __init__(
        self,
        members: Sequence[ActorHandle[Any]] | None = None,
        *,
        world_size: int | None = None,
        name: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        if (members is None) == (world_size is None):
            raise CollectiveUsageError("a group is made of `members`, a list of actor handles, or of a `world_size`")
        if members is not None:
            members = list(members)
            for member in members:
                if not isinstance(member, ActorHandle):
                    raise TypeError(f"members are actor handles, not {type(member).__name__}")
            if len(set(members)) != len(members):
                raise CollectiveUsageError("an actor is in the list of members twice; a member has one rank")
            self._members: list[tuple[str, str]] | None = [
                (member._native.hex(), member._description.class_name) for member in members
            ]
            size = len(members)
        else:
            self._members = None
            size = operator.index(world_size)  # type: ignore[arg-type]
        if size < 1:
            raise CollectiveUsageError("a group has at least one member")
        timeout = float(timeout)
        if not (timeout > 0 and math.isfinite(timeout)):
            raise CollectiveUsageError(f"the timeout of a group is a positive number of seconds, not {timeout}")
        self._size = size
        self._timeout = timeout
        self._id = _native.create_collective(name)
        self._member: tuple[int, _native.Member] | None = None
        self._joined = False

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_id": self._id,
            "_size": self._size,
            "_timeout": self._timeout,
            "_members": self._members,
            "_member": None,
            "_joined": False,
        }

    def __repr__(self) -> str:
        return f"Group({self._size} members, {self._id[8:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def world_size(self) -> int:
        """How many members there are."""
        return self._size

    @property
    def rank(self) -> int:
        """The rank of the member that asks."""
        return self._own()[0]

    def join(self, rank: int) -> Group:
        """The group, for the caller as its member with this rank: for tasks and programs, which have no rank of their own. To be
        used as a context manager, or left by `leave`.
        """
        rank = operator.index(rank)
        if self._members is not None:
            raise CollectiveUsageError("this group is made of actors, which are its members without joining")
        if not 0 <= rank < self._size:
            raise CollectiveUsageError(f"there is no rank {rank}: the ranks are 0 to {self._size - 1}")
        joined = Group.__new__(Group)
        joined.__dict__.update(self.__getstate__())
        joined._member = (rank, _native.Member(self._id, (rank, self._size), _native.process_id(), [], self._timeout))
        joined._joined = True
        return joined

    def leave(self) -> None:
        """Ends the membership of the caller: it makes no other call, and others that need it for one hear so."""
        if self._member is not None:
            self._member[1].leave()
            self._member = None
            self._joined = False

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __del__(self) -> None:
        # A task that ends without a word is no member any more; an actor is one as long as it lives.
        if self.__dict__.get("_joined"):
            self.leave()

    def _own(self) -> tuple[int, _native.Member]:
        if self._member is None:
            if self._members is None:
                raise CollectiveUsageError("this is no member of the group yet; use `group.join(rank)`")
            own = _native.own_actor_id()
            rank = next((rank for rank, (actor, _) in enumerate(self._members) if actor == own), None)
            if rank is None:
                who = "this program" if own is None else f"actor {own}"
                raise CollectiveUsageError(f"{who} is no member of the group; only its {self._size} actors can call it")
            actor, name = self._members[rank]
            label = f"actor {name} {actor}"
            actors = [actor for actor, _ in self._members]
            self._member = (rank, _native.Member(self._id, (rank, self._size), label, actors, self._timeout))
        return self._member

    def _call(
        self,
        kind: str,
        arrays: list[Any] | None,
        finish: Callable[[Any], Any],
        async_op: bool,
        op: str | None = None,
        root: int | None = None,
    ) -> Any:
        member = self._own()[1]
        described: Described | None = None
        buffers: list[Any] = []
        if arrays is not None:
            described, buffers = _describe(kind, arrays)
        if op is not None and op not in _OPS:
            raise CollectiveUsageError(f"there is no op {op!r}; {', '.join(_OPS)} are there")
        if root is not None:
            root = operator.index(root)
            if not 0 <= root < self._size:
                raise CollectiveUsageError(f"{kind} has no root {root}: the ranks are 0 to {self._size - 1}")
        made = member.call((kind, op), root, described, buffers, async_op)
        return Work(made, finish) if async_op else finish(made)

    def broadcast(self, array: Array, root: int = 0, *, async_op: bool = False) -> Any:
        """The array of `root`, at every member. The others give an array of the same type and shape, whose elements do not matter."""
        return self._call("broadcast", [array], _one(array), async_op, root=root)

    def reduce(self, array: Array, op: str = "sum", root: int = 0, *, async_op: bool = False) -> Any:
        """The arrays of all members combined element by element, at `root`; None elsewhere."""
        return self._call("reduce", [array], _one(array), async_op, op, root)

    def all_reduce(self, array: Array, op: str = "sum", *, async_op: bool = False) -> Any:
        """The arrays of all members combined element by element, at every member."""
        return self._call("all_reduce", [array], _one(array), async_op, op)

    def gather(self, array: Array, root: int = 0, *, async_op: bool = False) -> Any:
        """The list of the arrays of all members, at `root`; None elsewhere."""
        return self._call("gather", [array], _many(array), async_op, root=root)

    def all_gather(self, array: Array, *, async_op: bool = False) -> Any:
        """The list of the arrays of all members, at every member."""
        return self._call("all_gather", [array], _many(array), async_op)

    def scatter(
        self, arrays: Sequence[Array] | None = None, root: int = 0, *, like: Any = None, async_op: bool = False
    ) -> Any:
        """One array of the list that `root` gives, at each member: that of its rank. The others give nothing, or `like`, a
        tensor of torch, to get a tensor.
        """
        if self.rank != root:
            if arrays is not None:
                raise CollectiveUsageError(f"only rank {root}, the root, gives arrays to scatter")
            return self._call("scatter", None, _one(like), async_op, root=root)
        given = self._list("scatter", arrays)
        return self._call("scatter", given, _one(given[root]), async_op, root=root)

    def reduce_scatter(self, array: Array, op: str = "sum", *, async_op: bool = False) -> Any:
        """The arrays of all members combined, and of that one part of the first axis at each member: that of its rank."""
        return self._call("reduce_scatter", [array], _one(array), async_op, op)

    def all_to_all(self, arrays: Sequence[Array], *, async_op: bool = False) -> Any:
        """The list of what each member has for this one; `arrays` is what this one has for each."""
        given = self._list("all_to_all", arrays)
        return self._call("all_to_all", given, _many(given[0]), async_op)

    def barrier(self, *, async_op: bool = False) -> Any:
        """Returns when all members have called it."""
        return self._call("barrier", None, lambda _made: None, async_op)

    def send(self, array: Array, to: int, tag: int = 0, *, async_op: bool = False) -> Any:
        """Sends an array to another member, which takes it by `recv` with the same tag. A small one is on its way when this returns;
        a large one has been taken.
        """
        member = self._own()[1]
        described, buffers = _describe("send", [array])
        work = member.send(self._rank_of(to), _tag(tag), described, buffers[0], async_op)
        return None if work is None else Work(work, lambda _made: None)

    def recv(self, from_: int, tag: int = 0, *, like: Any = None, async_op: bool = False) -> Any:
        """The next array that another member sent with this tag; as a tensor when `like` is a tensor of torch."""
        member = self._own()[1]
        made = member.receive(self._rank_of(from_), _tag(tag), async_op)
        return Work(made, _one(like)) if async_op else _one(like)(made)

    def _rank_of(self, rank: int) -> int:
        rank = operator.index(rank)
        if not 0 <= rank < self._size:
            raise CollectiveUsageError(f"there is no rank {rank}: the ranks are 0 to {self._size - 1}")
        return rank

    def _list(self, kind: str, arrays: Sequence[Array] | None) -> list[Any]:
        given = [] if arrays is None else list(arrays)
        if len(given) != self._size:
            raise CollectiveUsageError(f"{kind} takes a list of {self._size} arrays, one for each rank, not {len(given)}")
        return given


def _tag(tag: int) -> int:
    tag = operator.index(tag)
    if not 0 <= tag < 2**32:
        raise CollectiveUsageError(f"a tag is a number from 0 to 2**32 - 1, not {tag}")
    return tag


def _describe(kind: str, arrays: list[Any]) -> tuple[Described, list[Any]]:
    """Element type and shape that all the arrays have, and their bytes."""
    if all(map(_is_tensor, arrays)):
        return _describe_tensors(kind, arrays)
    import numpy

    ready = []
    for each in arrays:
        array = numpy.asarray(each)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        ready.append(array if array.flags.c_contiguous else array.copy("C"))
    dtype, shape = ready[0].dtype, ready[0].shape
    for index, array in enumerate(ready):
        if array.dtype != dtype or array.shape != shape:
            raise CollectiveUsageError(
                f"{kind} takes arrays of one type and shape, and array 0 is {dtype}{list(shape)} but array {index} is "
                f"{array.dtype}{list(array.shape)}"
            )
    if dtype.name not in _DTYPES:
        raise CollectiveUsageError(f"{kind} cannot take arrays of {dtype}; {', '.join(_DTYPES)} can be exchanged")
    described = (_DTYPES.index(dtype.name) + 1, list(shape))
    return described, [array.reshape(-1).view(numpy.uint8) for array in ready]


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _describe_tensors(kind: str, tensors: list[Any]) -> tuple[Described, list[Any]]:
    """The same for tensors of torch; what lies on another device is copied from there."""
    found = [_reducers.tensor_array(tensor.detach().cpu()) for tensor in tensors]
    first, buffers = tensors[0], []
    for index, (tensor, array) in enumerate(zip(tensors, found, strict=True)):
        if tensor.dtype != first.dtype or tensor.shape != first.shape:
            raise CollectiveUsageError(
                f"{kind} takes tensors of one type and shape, and tensor 0 is {first.dtype}{list(first.shape)} but tensor "
                f"{index} is {tensor.dtype}{list(tensor.shape)}"
            )
        if array is None:
            raise CollectiveUsageError(
                f"{kind} takes dense tensors of {', '.join(_DTYPES)}, not a {tensor.layout} tensor of {tensor.dtype}"
            )
        buffers.append(array[0].raw())
    return (_DTYPES.index(str(first.dtype).removeprefix("torch.")) + 1, list(first.shape)), buffers


def _dtype(number: int, like: Any) -> Any:
    import numpy

    name = _DTYPES[number - 1]
    known = getattr(like, "dtype", None)
    if known is not None and known.name == name:
        return known.newbyteorder("=")
    if name == "bfloat16":
        # The package that knows the type; without it nobody can use such an array.
        import ml_dtypes

        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(name)


def _arrays(made: Any, like: Any) -> list[Any]:
    _own, number, shape, views = made
    if _is_tensor(like):
        name = _DTYPES[number - 1]
        return [_reducers.make_tensor(view, name, tuple(shape)).to(like.device) for view in views]
    import numpy

    return [numpy.ndarray(tuple(shape), _dtype(number, like), view) for view in views]


def _one(like: Any) -> Callable[[Any], Any]:
    def finish(made: Any) -> Any:
        if made[0]:
            if _is_tensor(like):
                return like
            import numpy

            return numpy.asarray(like)
        arrays = _arrays(made, like)
        return arrays[0] if arrays else None

    return finish


def _many(like: Any) -> Callable[[Any], Any]:
    def finish(made: Any) -> Any:
        return _arrays(made, like) or None

    return finish
