"""The verbs of objects: get, put, wait, broadcast, cancel, explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from . import _native
from ._native import ObjectRef
from ._timeouts import check_timeout

T = TypeVar("T")


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None, copy: bool = False) -> T: ...
@overload
def get(refs: Sequence[ObjectRef[T]], *, timeout: float | None = None, copy: bool = False) -> list[T]: ...
def get(refs: Any, *, timeout: float | None = None, copy: bool = False) -> Any:
    """The value of an object, or the values of a list of objects, waiting until they are there.

    Arrays are read-only views of shared memory; ``copy=True`` gives private ones that can be changed. After `timeout`
    seconds a `GetTimeoutError` says what the object waits for. An error of the task is raised here.

    >>> import bireme
    >>> bireme.get([bireme.put(1), bireme.put("two")])
    [1, 'two']
    """
    check_timeout("get", timeout)
    if type(refs) is ObjectRef:
        return _native.get(refs, timeout, copy)
    if isinstance(refs, (list, tuple)):
        return _native.get_many(list(refs), timeout, copy)
    hint = "; iterate over it for its references" if type(refs).__name__ == "ObjectRefGenerator" else ""
    raise ValueError(f"get takes a reference or a list of references, not a {type(refs).__name__}{hint}")


def put(value: T) -> ObjectRef[T]:
    """Makes an object of a value.

    >>> import bireme
    >>> bireme.get(bireme.put([1, 2, 3]))
    [1, 2, 3]
    """
    if isinstance(value, ObjectRef):
        raise TypeError("put takes a value, not a reference: the object is there already; put a list with it inside if you must")
    return _native.put(value)


def wait(
    refs: list[T],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[T], list[T]]:
    """Waits until `num_returns` of the objects are there: those, and the others, each in the given order.

    Generators may be among them: one is ready when its next reference is. After `timeout` seconds fewer may be ready.

    >>> import bireme
    >>> ready, others = bireme.wait([bireme.put(1), bireme.put(2)], num_returns=2)
    >>> len(ready), len(others)
    (2, 0)
    """
    if not isinstance(refs, list):
        hint = "; put it into a list" if isinstance(refs, ObjectRef) else ""
        raise TypeError(f"wait takes a list of references, not a {type(refs).__name__}{hint}")
    check_timeout("wait", timeout)
    if isinstance(num_returns, bool) or not isinstance(num_returns, int) or num_returns < 1:
        raise ValueError(f"num_returns is how many references to wait for, at least 1, not {num_returns!r}")
    if not refs:
        return [], []
    if num_returns > len(refs):
        raise ValueError(f"num_returns={num_returns} is more than the {len(refs)} references to wait for")
    try:
        return _native.wait(refs, num_returns, timeout)
    except TypeError:
        # Rare, and looking at every reference first would cost more than the wait.
        if not any(type(ref).__name__ == "ObjectRefGenerator" for ref in refs):
            raise
    return _wait_with_generators(refs, num_returns, timeout)


def _wait_with_generators(
    refs: list[Any], num_returns: int, timeout: float | None
) -> tuple[list[Any], list[Any]]:
    """The same where a generator stands for its next item."""
    from .generator import ObjectRefGenerator

    items = [ref._next_item() if isinstance(ref, ObjectRefGenerator) else ref for ref in refs]
    ready_items, _ = _native.wait(items, num_returns, timeout)
    # By identity: the extension gives back the very references that it got.
    ready_ids = {id(item) for item in ready_items}
    pairs = list(zip(refs, items, strict=True))
    return (
        [ref for ref, item in pairs if id(item) in ready_ids],
        [ref for ref, item in pairs if id(item) not in ready_ids],
    )


def broadcast(ref: ObjectRef[Any], nodes: Sequence[str] | None = None) -> None:
    """Sends a value ahead to nodes, so that whoever reads it there finds it. Returns at once.

    `nodes` are ids as ``bireme.nodes()`` tells them (``"NodeID"``); without them all nodes that run tasks are meant. It is
    never needed: nodes that want the same value at the same time pass it on to each other anyway. A value of 64 KiB or less
    travels inside messages and is not sent ahead. A node that is not there is a `ValueError`.

    >>> import bireme
    >>> bireme.broadcast(bireme.put(bytes(1 << 20)))
    """
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"broadcast takes the reference of a value, not a {type(ref).__name__}")
    if nodes is None:
        _native.broadcast(ref)
        return
    if isinstance(nodes, str) or not all(isinstance(node, str) for node in nodes):
        raise TypeError("the nodes of broadcast are a list of node ids, which are text")
    _native.broadcast(ref, list(nodes))


def cancel(ref: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Stops the task that makes an object, and with `recursive` the tasks that it has started.

    A task that has not started never will. A running one gets a KeyboardInterrupt, an async call is cancelled on its
    loop; ``force=True`` ends the worker at once. Whoever asks for the result gets a `TaskCancelledError`.
    """
    end = getattr(ref, "_end", ref)
    if not isinstance(end, ObjectRef):
        hint = "; use kill for an actor" if type(ref).__name__ == "ActorHandle" else ""
        raise TypeError(f"cancel takes the reference of a task's result, not a {type(ref).__name__}{hint}")
    _native.cancel(end, force, recursive)


def explain(ref: Any) -> str:
    """What an object waits for, in words; the error of a `get` that times out says the same.

    >>> import bireme
    >>> @bireme.remote
    ... def square(x):
    ...     return x * x
    >>> ref = square.remote(3)
    >>> bireme.get(ref), type(bireme.explain(ref))
    (9, <class 'str'>)
    >>> bireme.shutdown()
    """
    end = getattr(ref, "_end", ref)
    if not isinstance(end, ObjectRef):
        raise TypeError(f"explain takes the reference of an object, not a {type(ref).__name__}")
    return _native.explain(end)
