"""A pool of actors that share a stream of work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import bireme
import bireme.exceptions

__all__ = ["ActorPool"]

V = TypeVar("V")

_TIMED_OUT = "the next result was not there in time"


class ActorPool:
    """Gives each piece of work to an actor that is idle; what finds none waits its turn.

    >>> import bireme
    >>> from bireme.util import ActorPool
    >>> @bireme.remote
    ... class Doubler:
    ...     def double(self, value):
    ...         return 2 * value
    >>> pool = ActorPool([Doubler.remote(), Doubler.remote()])
    >>> list(pool.map(lambda actor, value: actor.double.remote(value), [1, 2, 3, 4]))
    [2, 4, 6, 8]
    >>> bireme.shutdown()
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle: list[Any] = list(actors)
        # By number of the submission, in that order: what runs, and where.
        self._running: dict[int, tuple[Any, Any]] = {}
        self._waiting: deque[tuple[Callable[[Any, Any], Any], Any]] = deque()
        self._submitted = 0

    def map(self, fn: Callable[[Any, V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Yields the results of `fn(actor, value)` in the order of the values. Earlier submissions are forgotten."""
        self._start_anew(fn, values)
        return self._results(self.get_next)

    def map_unordered(self, fn: Callable[[Any, V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Yields the results of `fn(actor, value)` as they come. Earlier submissions are forgotten."""
        self._start_anew(fn, values)
        return self._results(self.get_next_unordered)

    def submit(self, fn: Callable[[Any, V], Any], value: V) -> None:
        """Calls `fn(actor, value)`, which returns the ref of a result, with an idle actor, now or when there is one."""
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        try:
            future = fn(actor, value)
        except BaseException:
            self._idle.append(actor)
            raise
        self._running[self._submitted] = (future, actor)
        self._submitted += 1

    def has_next(self) -> bool:
        """Whether a result is due."""
        return bool(self._running)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of submission.

        `TimeoutError` is raised when it is not there after `timeout` seconds. The result stays due, unless
        `ignore_if_timedout` is set: then it is dropped and its actor gets other work.
        """
        self._check_has_next()
        number = next(iter(self._running))
        if timeout is not None and not _is_ready(self._running[number][0], timeout):
            self._time_out(number, ignore_if_timedout)
        return self._take(number)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result to be there, whichever it is; see `get_next` for the parameters. When all time out, the
        oldest is ignored.
        """
        self._check_has_next()
        numbers = {_first_ref(future): number for number, (future, _) in self._running.items()}
        ready, _ = bireme.wait(list(numbers), num_returns=1, timeout=timeout)
        if not ready:
            self._time_out(next(iter(self._running)), ignore_if_timedout)
        return self._take(numbers[ready[0]])

    def has_free(self) -> bool:
        """Whether an actor is idle and no work waits for it."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any:
        """Takes an idle actor out of the pool; None when there is none."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor to the pool."""
        if actor in self._idle or any(actor == busy for _, busy in self._running.values()):
            raise ValueError("this actor is in the pool already")
        self._give_back(actor)

    def _start_anew(self, fn: Callable[[Any, V], Any], values: Iterable[V]) -> None:
        self._waiting.clear()
        for _, actor in self._running.values():
            self._idle.append(actor)
        self._running.clear()
        for value in values:
            self.submit(fn, value)

    def _results(self, get_next: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield get_next()

    def _check_has_next(self) -> None:
        if not self._running:
            # Ray's choice. Inside of a generator Python turns it into a RuntimeError, so ask `has_next` there.
            raise StopIteration("no result is due; ask has_next() first")

    def _time_out(self, number: int, ignore: bool) -> None:
        if not ignore:
            raise TimeoutError(_TIMED_OUT)
        _, actor = self._running.pop(number)
        self._give_back(actor)
        raise TimeoutError(f"{_TIMED_OUT}; it is ignored from now on")

    def _take(self, number: int) -> Any:
        future, actor = self._running.pop(number)
        try:
            result = bireme.get(future)
        except bireme.exceptions.ActorDiedError:
            # A dead actor does not come back: idle again it would take all the work and fail it.
            self._start_waiting()
            raise
        except BaseException:
            self._give_back(actor)
            raise
        self._give_back(actor)
        return result

    def _give_back(self, actor: Any) -> None:
        self._idle.append(actor)
        self._start_waiting()

    def _start_waiting(self) -> None:
        if self._waiting and self._idle:
            self.submit(*self._waiting.popleft())


def _is_ready(future: Any, timeout: float) -> bool:
    refs = list(future) if isinstance(future, (list, tuple)) else [future]
    ready, _ = bireme.wait(refs, num_returns=len(refs), timeout=timeout)
    return len(ready) == len(refs)


def _first_ref(future: Any) -> Any:
    # A call with several results is over when any of them is there.
    return future[0] if isinstance(future, (list, tuple)) else future
