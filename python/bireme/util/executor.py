"""`concurrent.futures.Executor` on tasks."""

from __future__ import annotations

import concurrent.futures
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import bireme

__all__ = ["Executor"]

T = TypeVar("T")

# Functions whose remote form an executor keeps; beyond it the oldest is made again when it comes.
REMOTE_FUNCTIONS_KEPT_MAX = 256


class Executor(concurrent.futures.Executor):
    """Runs functions as tasks, for code that is written for `concurrent.futures`.

    `max_workers` bounds the tasks that are submitted and not done (None: the resources of the machine decide). The rest
    are options of the tasks, such as `num_cpus`. It uses the runtime of the program and does not end it.

    >>> import bireme
    >>> from bireme.util import Executor
    >>> with Executor() as executor:
    ...     list(executor.map(pow, [2, 3], [3, 2])), executor.submit(max, 4, 5).result()
    ([8, 9], 5)
    >>> bireme.shutdown()
    """

    def __init__(self, max_workers: int | None = None, **options: Any) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers must be 1 or more, not {max_workers!r}")
        self._max_workers = max_workers
        self._options = options
        self._lock = threading.RLock()
        self._is_shut_down = False
        self._outstanding: set[concurrent.futures.Future[Any]] = set()
        self._waiting: deque[tuple[concurrent.futures.Future[Any], Callable[[], Any]]] = deque()
        self._started = 0
        self._functions: dict[Any, Any] = {}

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        """Runs `fn(*args, **kwargs)` as a task. Cancelling the future cancels the task."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            start = self._call(fn, args, kwargs)
            future = self._start_now(start) if self._max_workers is None else self._start_in_turn(start)
            self._outstanding.add(future)
        future.add_done_callback(self._forget)
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """`fn` of the items in their order, `chunksize` of them per task. `TimeoutError` is raised when a result is not
        there `timeout` seconds after the call of `map`.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize must be 1 or more, not {chunksize!r}")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        return chain.from_iterable(super().map(partial(_run_chunk, fn), chunks, timeout=timeout))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no further work; waits for what runs, or with `cancel_futures` cancels it."""
        with self._lock:
            self._is_shut_down = True
            outstanding = list(self._outstanding)
        if cancel_futures:
            for future in outstanding:
                future.cancel()
        if wait:
            concurrent.futures.wait(outstanding)

    def _call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        if hasattr(fn, "remote"):
            return partial(fn.remote, *args, **kwargs)
        if inspect.isfunction(fn):
            return partial(self._remote(fn).remote, *args, **kwargs)
        # Builtins, partials, methods and objects that can be called are not functions that can be made remote: they
        # travel as an argument.
        return partial(self._remote(_call).remote, fn, *args, **kwargs)

    def _remote(self, fn: Any) -> Any:
        remote = self._functions.get(fn)
        if remote is None:
            remote = bireme.remote(**self._options)(fn) if self._options else bireme.remote(fn)
            if len(self._functions) >= REMOTE_FUNCTIONS_KEPT_MAX:
                del self._functions[next(iter(self._functions))]
            self._functions[fn] = remote
        return remote

    def _start_now(self, start: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        ref = start()
        future: concurrent.futures.Future[Any] = ref.future()
        future.add_done_callback(partial(_cancel_task, ref))
        return future

    def _start_in_turn(self, start: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._waiting.append((future, start))
        self._start_waiting()
        return future

    def _start_waiting(self) -> None:
        with self._lock:
            while self._waiting and self._max_workers is not None and self._started < self._max_workers:
                future, start = self._waiting.popleft()
                if future.cancelled():
                    continue
                self._started += 1
                try:
                    task = self._start_now(start)
                except BaseException as error:
                    self._started -= 1
                    future.set_exception(error)
                    continue
                future.add_done_callback(partial(_cancel_too, task))
                task.add_done_callback(partial(self._end_turn, future))

    def _end_turn(self, future: concurrent.futures.Future[Any], task: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._started -= 1
        _copy_outcome(task, future)
        self._start_waiting()

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._outstanding.discard(future)


def _copy_outcome(task: concurrent.futures.Future[Any], future: concurrent.futures.Future[Any]) -> None:
    if task.cancelled():
        future.cancel()
        future.set_running_or_notify_cancel()
    elif future.set_running_or_notify_cancel():
        error = task.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


def _cancel_task(ref: Any, future: concurrent.futures.Future[Any]) -> None:
    if future.cancelled():
        bireme.cancel(ref)


def _cancel_too(task: concurrent.futures.Future[Any], future: concurrent.futures.Future[Any]) -> None:
    if future.cancelled():
        task.cancel()


def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def _run_chunk(fn: Callable[..., Any], chunk: list[tuple[Any, ...]]) -> list[Any]:
    return [fn(*arguments) for arguments in chunk]


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(islice(items, size)):
        yield chunk
