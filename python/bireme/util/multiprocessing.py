"""`multiprocessing.Pool` on actors: the same calls and answers, on every node of the cluster.

>>> import bireme
>>> from bireme.util.multiprocessing import Pool
>>> with Pool(2) as pool:
...     pool.map(abs, [-1, 2, -3]), pool.apply(pow, (2, 5))
([1, 2, 3], 32)
>>> bireme.shutdown()
"""

from __future__ import annotations

import builtins
import multiprocessing
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NoReturn, TypeVar

import bireme
from bireme.util._pool_engine import Engine, PoolProcess, Work, pack, terminated

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]

S = TypeVar("S")
T = TypeVar("T")

# Chunks of `imap` that wait for each process: enough to keep it busy, and an iterable without end is not read ahead.
POOL_CHUNKS_AHEAD_MAX = 4


class TimeoutError(multiprocessing.TimeoutError, builtins.TimeoutError):  # noqa: A001 - the name in multiprocessing
    """A result was not there in time: that of `multiprocessing`, and Python's own too."""


class Pool:
    """A pool of processes, which are actors, with the interface of `multiprocessing.Pool`.

    `processes` is how many there are, by default the CPUs of the cluster. Each calls `initializer(*initargs)` when it starts and
    is replaced after `maxtasksperchild` pieces of work. `ray_remote_args` are options of the actors, which hold no CPU by
    default, so that a pool may have more processes than there are CPUs. `context` is taken and means nothing.

    >>> import bireme
    >>> from bireme.util.multiprocessing import Pool
    >>> with Pool(processes=2) as pool:
    ...     result = pool.starmap_async(pow, [(2, 3), (3, 2)])
    ...     list(pool.imap(str, range(3))), result.get(timeout=60)
    (['0', '1', '2'], [8, 9])
    >>> bireme.shutdown()
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
    ) -> None:
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild < 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if not bireme.is_initialized():
            bireme.init(address=ray_address)
        self._processes = processes or max(1, int(bireme.cluster_resources().get("CPU", 1)))
        options = {"num_cpus": 0, **(ray_remote_args or {})}
        actors: Any = bireme.remote(**options)(PoolProcess)
        packed = None if initializer is None else pack(initializer)
        arguments = tuple(initargs)
        self._engine = Engine(self._processes, lambda: actors.remote(packed, arguments), maxtasksperchild)
        # A pool that nobody holds ends its processes, as at the end of the program.
        self._end = weakref.finalize(self, self._engine.terminate)

    def apply(self, func: Callable[..., T], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None) -> T:
        """`func(*args, **kwds)` in a process of the pool."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callable[[T], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[T]:
        """The same without waiting. Callbacks are called on a thread of the pool and should be short."""
        self._check_running()
        result: AsyncResult[T] = AsyncResult(self, 1, lambda parts: parts[0], callback, error_callback)
        self._submit(Work(result, 0, "apply", pack(func), tuple(args), dict(kwds or {})))
        return result

    def map(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int | None = None) -> list[T]:
        """`func` of each item, in their order. A process gets `chunksize` items at a time."""
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[S], T],
        iterable: Iterable[S],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """The same without waiting."""
        return self._map("map", func, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., T], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[T]:
        """`func(*item)` of each item, in their order."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[list[T]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[list[T]]:
        """The same without waiting."""
        return self._map("starmap", func, iterable, chunksize, callback, error_callback)

    def imap(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int = 1) -> IMapIterator[T]:
        """Yields `func` of each item in their order, while later items are at work. The iterable is read as processes become
        free. An exception comes in the place of its chunk, and the next item after it.
        """
        return self._imap(func, iterable, chunksize, is_ordered=True)

    def imap_unordered(self, func: Callable[[S], T], iterable: Iterable[S], chunksize: int = 1) -> IMapIterator[T]:
        """The same in the order in which results come."""
        return self._imap(func, iterable, chunksize, is_ordered=False)

    def close(self) -> None:
        """Takes no further work. The processes end when what there is is done."""
        self._engine.close()

    def terminate(self) -> None:
        """Ends the processes at once. Work that is not done fails."""
        self._engine.terminate()

    def join(self) -> None:
        """Waits until the pool has ended, after `close` or `terminate`."""
        if self._engine.state == "RUN":
            raise ValueError("Pool is still running")
        self._engine.join()
        self._end.detach()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *unused: object) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._engine.state} pool_size={self._processes}>"

    def _check_running(self) -> None:
        if self._engine.state != "RUN":
            raise ValueError("Pool not running")

    def _submit(self, work: Work) -> None:
        if not self._engine.submit(work):
            work.result._set(work.number, False, terminated())

    def _map(
        self, kind: str, func: Any, iterable: Iterable[Any], chunksize: int | None, callback: Any, error_callback: Any
    ) -> AsyncResult[list[Any]]:
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            # As multiprocessing: four chunks for each process.
            chunksize = max(1, -(-len(items) // (self._processes * 4)))
        chunks = list(_chunks(iter(items), chunksize))
        result: AsyncResult[list[Any]] = AsyncResult(self, max(1, len(chunks)), _joined, callback, error_callback)
        packed = pack(func)
        for index, chunk in enumerate(chunks):
            self._submit(Work(result, index, kind, packed, chunk, None))
        if not chunks:
            self._engine.finish(Work(result, 0, kind, None, None, None), [])
        return result

    def _imap(self, func: Any, iterable: Iterable[Any], chunksize: int, is_ordered: bool) -> IMapIterator[Any]:
        self._check_running()
        packed, engine = pack(func), self._engine
        chunks = _chunks(iter(iterable), chunksize)
        room = threading.Semaphore(self._processes * POOL_CHUNKS_AHEAD_MAX)
        result: IMapIterator[Any] = IMapIterator(self, is_ordered, room.release)

        def feed() -> None:
            submitted = 0
            try:
                for chunk in chunks:
                    room.acquire()
                    if not engine.submit(Work(result, submitted, "map", packed, chunk, None)):
                        raise terminated()
                    submitted += 1
            except BaseException as error:  # noqa: BLE001 - the iterable's own, in the place of its next item
                result._set(submitted, False, error)
                submitted += 1
            result._set_length(submitted)

        engine.feed(feed)
        return result


class AsyncResult(Generic[T]):
    """The result of `apply_async`, `map_async` and `starmap_async`."""

    def __init__(
        self,
        pool: Pool,
        parts: int,
        combine: Callable[[list[Any]], T],
        callback: Callable[[T], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> None:
        # Until it is there, the result keeps the pool.
        self._pool: Pool | None = pool
        self._lock = threading.Lock()
        self._parts: list[Any] = [None] * parts
        self._left = parts
        self._combine = combine
        self._callback = callback
        self._error_callback = error_callback
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_there = threading.Event()

    def get(self, timeout: float | None = None) -> T:
        """The value, or the exception of the function; `TimeoutError` when it is not there in time."""
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError(f"the result was not there after {timeout} seconds")
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the result is there, or for so many seconds."""
        self._is_there.wait(timeout)

    def ready(self) -> bool:
        """Whether the result is there."""
        return self._is_there.is_set()

    def successful(self) -> bool:
        """Whether no call has raised; a `ValueError` as long as the result is not there."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def _set(self, index: int, success: bool, value: Any) -> None:
        # By the thread of the pool, and by one that submits to a pool that is being terminated.
        with self._lock:
            if success:
                self._parts[index] = value
            elif self._error is None:
                self._error = value
            self._left -= 1
            if self._left:
                return
        if self._error is None:
            self._value = self._combine(self._parts)
            _call_back(self._callback, self._value)
        else:
            _call_back(self._error_callback, self._error)
        self._parts, self._pool = [], None
        self._is_there.set()


class IMapIterator(Generic[T]):
    """The results of `imap` and `imap_unordered`, as they come."""

    def __init__(self, pool: Pool, is_ordered: bool, note_end: Callable[[], None]) -> None:
        self._pool: Pool | None = pool
        self._is_ordered = is_ordered
        self._note_end = note_end
        self._changed = threading.Condition()
        # By number of the chunk, or by the order of arrival.
        self._arrived: dict[int, tuple[bool, Any]] = {}
        self._arrivals = 0
        self._next = 0
        self._items: deque[T] = deque()
        self._length: int | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """The next result; `TimeoutError` when it is not there in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._items:
                if self._next in self._arrived:
                    success, value = self._arrived.pop(self._next)
                    self._next += 1
                    if not success:
                        raise value
                    self._items.extend(value)
                elif self._next == self._length:
                    self._pool = None
                    raise StopIteration
                elif not self._changed.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"the next result was not there after {timeout} seconds")
            return self._items.popleft()

    def _set(self, index: int, success: bool, value: Any) -> None:
        with self._changed:
            self._arrived[index if self._is_ordered else self._arrivals] = (success, value)
            self._arrivals += 1
            self._changed.notify_all()
        self._note_end()

    def _set_length(self, length: int) -> None:
        with self._changed:
            self._length = length
            self._changed.notify_all()


def _chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    if size < 1:
        raise ValueError(f"Chunksize must be 1+, not {size}")
    return iter(lambda: list(islice(items, size)), [])


def _joined(parts: list[list[T]]) -> list[T]:
    return [value for part in parts for value in part]


def _call_back(callback: Callable[[Any], object] | None, value: Any) -> None:
    if callback is None:
        return
    try:
        callback(value)
    except Exception:  # noqa: BLE001 - a mistake there must not end the thread that all results come through
        traceback.print_exc()
