"""Results in the order in which they come.

Every loop here waits for at least one result and then takes all that are there, so that a slow consumer asks rarely and
a fast one never waits for a batch to fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import bireme
from bireme.exceptions import GetTimeoutError

__all__ = ["as_completed", "map_unordered"]

# As in Ray: the most results that are taken at once, and the calls of `map_unordered` in flight.
CHUNK_SIZE_DEFAULT = 10
BACKPRESSURE_SIZE_DEFAULT = 100


def as_completed(
    refs: Sequence[Any],
    *,
    chunk_size: int = CHUNK_SIZE_DEFAULT,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> Iterator[Any]:
    """Yields the results of `refs`, or with `yield_obj_refs` the refs themselves, as they become ready.

    At most `chunk_size` are taken from the engine at once. When none becomes ready for `timeout` seconds,
    `GetTimeoutError` is raised.

    >>> import bireme
    >>> from bireme.util import as_completed
    >>> @bireme.remote
    ... def square(x):
    ...     return x * x
    >>> sorted(as_completed([square.remote(n) for n in range(4)]))
    [0, 1, 4, 9]
    >>> bireme.shutdown()
    """
    _check_positive("chunk_size", chunk_size)
    return _completions(list(refs), chunk_size, yield_obj_refs, timeout, fetch_local)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = BACKPRESSURE_SIZE_DEFAULT,
    chunk_size: int = CHUNK_SIZE_DEFAULT,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> Iterator[Any]:
    """Yields `fn` of each item as the results come, with at most `backpressure_size` calls in flight (None: no bound).

    `fn` is a remote function or a method of an actor. Items are taken from `items` only when there is room for another
    call.

    >>> import bireme
    >>> from bireme.util import map_unordered
    >>> @bireme.remote
    ... def square(x):
    ...     return x * x
    >>> sorted(map_unordered(square, range(4), backpressure_size=2))
    [0, 1, 4, 9]
    >>> bireme.shutdown()
    """
    if not hasattr(fn, "remote"):
        raise TypeError(f"map_unordered takes a remote function, not {fn!r}; decorate it with @bireme.remote")
    if backpressure_size is not None:
        _check_positive("backpressure_size", backpressure_size)
    _check_positive("chunk_size", chunk_size)
    return _mapped(fn, iter(items), backpressure_size, chunk_size, yield_obj_refs, timeout, fetch_local)


def _mapped(
    fn: Any,
    items: Iterator[Any],
    backpressure_size: int | None,
    chunk_size: int,
    yield_obj_refs: bool,
    timeout: float | None,
    fetch_local: bool,
) -> Iterator[Any]:
    pending: list[Any] = []
    for item in items:
        pending.append(fn.remote(item))
        if backpressure_size is not None and len(pending) >= backpressure_size:
            ready, pending = _take(pending, chunk_size, timeout, fetch_local)
            yield from _values(ready, yield_obj_refs)
    yield from _completions(pending, chunk_size, yield_obj_refs, timeout, fetch_local)


def _completions(
    pending: list[Any], chunk_size: int, yield_obj_refs: bool, timeout: float | None, fetch_local: bool
) -> Iterator[Any]:
    while pending:
        ready, pending = _take(pending, chunk_size, timeout, fetch_local)
        yield from _values(ready, yield_obj_refs)


def _take(pending: list[Any], chunk_size: int, timeout: float | None, fetch_local: bool) -> tuple[list[Any], list[Any]]:
    ready, pending = bireme.wait(pending, num_returns=1, timeout=timeout, fetch_local=fetch_local)
    if not ready:
        raise GetTimeoutError(f"none of {len(pending)} results was there after {timeout} seconds")
    more = min(chunk_size - 1, len(pending))
    if more > 0:
        others, pending = bireme.wait(pending, num_returns=more, timeout=0, fetch_local=fetch_local)
        ready = ready + others
    return ready, pending


def _values(ready: list[Any], yield_obj_refs: bool) -> Iterator[Any]:
    # One by one: an error of one result must not swallow those before it.
    for ref in ready:
        yield ref if yield_obj_refs else bireme.get(ref)


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value!r}")
