"""Reduces: many arrays become one, where they are and as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from . import _native
from ._native import ObjectRef
from ._timeouts import check_timeout

Op = Literal["sum", "mean", "product", "min", "max"]

_OPS = ("sum", "mean", "product", "min", "max")
_PLANS = ("model", "paper", "chain", "two_level", "star")


def reduce(
    refs: Sequence[ObjectRef[Any]],
    op: Op = "sum",
    count: int | None = None,
    order: Literal["fixed"] | None = None,
    *,
    plan: str | tuple[str, int] = "model",
) -> ObjectRef[Any]:
    """Reduces arrays of one dtype and shape to one, element by element, and gives its reference at once.

    The inputs may not exist yet: they are combined in the order in which they arrive, on the nodes where they are, while
    bytes travel. ``count=k`` takes the first `k` that are ready, and `reduced_from` tells which. ``order="fixed"`` combines
    from the first of the list to the last whatever arrives when: equal inputs give equal bits. `plan` chooses who sends to
    whom between nodes: "model" (the cheapest), "paper", "chain", "two_level", "star", or ("tree", 3).

    An operation of your own is a task: ``combine.remote(*refs)``; nodes have no interpreter that could run it on the way.

    What is wrong with the values (shapes or dtypes that differ, no arrays, a mean of integers, an input that failed) is a
    `ReduceError` of the result that names the inputs.

    >>> import bireme, numpy
    >>> parts = [bireme.put(numpy.full(3, n, dtype="f4")) for n in (1, 2, 3)]
    >>> bireme.get(bireme.reduce(parts)).tolist()
    [6.0, 6.0, 6.0]
    >>> bireme.get(bireme.reduce(parts, "mean")).tolist()
    [2.0, 2.0, 2.0]
    """
    if isinstance(refs, ObjectRef) or not isinstance(refs, Sequence) or isinstance(refs, (str, bytes)):
        raise TypeError(f"reduce takes a list of references, not a {type(refs).__name__}")
    for at, ref in enumerate(refs):
        if type(ref) is not ObjectRef:
            raise TypeError(f"reduce takes references, and input {at} is a {type(ref).__name__}; put it first")
    if callable(op):
        raise TypeError(
            f"op is one of {', '.join(_OPS)}, not a function: nodes combine arrays without an interpreter; call a task with the "
            "references for an operation of your own, such as combine.remote(*refs)"
        )
    if op not in _OPS:
        raise ValueError(f"op is one of {', '.join(_OPS)}, not {op!r}")
    if order not in (None, "fixed"):
        raise ValueError(f"order is 'fixed' or None, not {order!r}")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(refs)):
        raise ValueError(f"count is how many of the {len(refs)} inputs to take, 1 to {len(refs)}, not {count!r}")
    return _native.reduce(list(refs), op, count, order == "fixed", _check_plan(plan))


def reduced_from(ref: ObjectRef[Any], *, timeout: float | None = None) -> list[int]:
    """Which inputs the result of a `reduce` of this process is made of, by their places in the list. Waits for it.

    >>> import bireme, numpy
    >>> parts = [bireme.put(numpy.ones(2)) for _ in range(3)]
    >>> bireme.reduced_from(bireme.reduce(parts, count=2))
    [0, 1]
    """
    if type(ref) is not ObjectRef:
        raise TypeError(f"reduced_from takes the reference that reduce gave, not a {type(ref).__name__}")
    check_timeout("reduced_from", timeout)
    return _native.used_inputs(ref, timeout)


def _check_plan(plan: str | tuple[str, int]) -> tuple[str, int]:
    match plan:
        case str(name) if name in _PLANS:
            return name, 2
        case ("tree", int(degree)) if 1 <= degree < 2**32 and not isinstance(degree, bool):
            return "tree", degree
    raise ValueError(f"plan is model, paper, chain, two_level, star, or ('tree', degree), not {plan!r}")
