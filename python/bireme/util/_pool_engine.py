"""The processes of a pool and the work that waits for them; `bireme.util.multiprocessing` is what users see of it.

A process is an actor that has one piece of work at a time, so that what waits goes to whichever is free first. A thread of
the pool takes what has ended: it starts the next piece, then completes the result and calls the user's callbacks. The engine
does not hold the pool: a pool that nobody holds any more is terminated.
"""

from __future__ import annotations

import inspect
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import bireme
from bireme._code import FunctionCode
from bireme._task_error import TaskError, UnserializableException, cause_of, facts_of
from bireme.exceptions import ActorError

# Functions that a process keeps loaded; beyond it the oldest is loaded again when it comes.
POOL_FUNCTIONS_KEPT_MAX = 256


class PoolProcess:
    """Runs the work of a pool in a process of its own."""

    def __init__(self, initializer: Any, initargs: tuple[Any, ...]) -> None:
        self._loaded: dict[bytes, Any] = {}
        # By module, the globals that the initializer has set.
        self._set: dict[str, dict[str, Any]] = {}
        if initializer is None:
            return
        function = self._load(initializer)
        variables = _own_globals(function)
        before = {} if variables is None else dict(variables)
        function(*initargs)
        if variables is not None:
            missing = object()
            changed = {name: value for name, value in variables.items() if before.get(name, missing) is not value}
            self._set[function.__module__] = changed

    def run(self, kind: str, packed: Any, arguments: Any, named: dict[str, Any] | None) -> Any:
        """One piece of work: a call, or the calls of a chunk."""
        function = self._load(packed)
        if kind == "apply":
            return function(*arguments, **(named or {}))
        if kind == "starmap":
            return [function(*each) for each in arguments]
        return [function(each) for each in arguments]

    def _load(self, packed: Any) -> Any:
        if not isinstance(packed, FunctionCode):
            return packed
        code = packed.pickled()
        function = self._loaded.get(code)
        if function is None:
            function = packed.function
            variables = _own_globals(function)
            if variables is not None:
                variables.update(self._set.get(function.__module__, {}))
            if len(self._loaded) >= POOL_FUNCTIONS_KEPT_MAX:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[code] = function
        return function


def pack(function: Callable[..., Any]) -> Any:
    """A function as it is sent to processes: plain ones are pickled once, and keep their globals there from call to call."""
    return FunctionCode(function) if inspect.isfunction(function) else function


def _own_globals(function: Any) -> dict[str, Any] | None:
    """The globals of a function that was sent with them, since its module (the program itself) cannot be imported. Functions
    that come one by one do not share them, so what an initializer sets there has to be passed on.
    """
    if not isinstance(function, types.FunctionType):
        return None
    module = sys.modules.get(function.__module__)
    return None if module is not None and vars(module) is function.__globals__ else function.__globals__


class Result(Protocol):
    """Takes the outcomes of pieces of work by their number."""

    def _set(self, index: int, success: bool, value: Any) -> None: ...


class Work(NamedTuple):
    """A piece of work for one process."""

    result: Result
    number: int
    kind: str
    function: Any
    arguments: Any
    named: dict[str, Any] | None


class _Place:
    """A process of the pool, whichever actor it is now."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.calls = 0


class _Value(NamedTuple):
    """An outcome that needed no process."""

    value: Any


_Outcome = tuple[_Place | None, Work, Any]


class Engine:
    """Processes, work that waits, and the thread that takes what has ended."""

    def __init__(self, processes: int, start: Callable[[], Any], calls_max: int | None) -> None:
        self._start = start
        self._calls_max = calls_max
        # Also taken by the end of a pool that is collected, on whichever thread that happens.
        self._lock = threading.RLock()
        self._places = [_Place(start()) for _ in range(processes)]
        self._idle = deque(self._places)
        self._waiting: deque[Work] = deque()
        # Pieces that are not complete, and threads that will submit more.
        self._open = 0
        self._feeders = 0
        self.state = "RUN"
        self._ended: SimpleQueue[_Outcome | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="bireme-pool", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> bool:
        """Runs a piece of work when a process is free; whether it was taken, which a terminated pool does not."""
        with self._lock:
            if self.state == "TERMINATE":
                return False
            self._open += 1
            self._waiting.append(work)
            self._start_waiting()
        return True

    def finish(self, work: Work, value: Any) -> None:
        """Completes work that needs no process."""
        with self._lock:
            self._open += 1
        self._ended.put((None, work, _Value(value)))

    def feed(self, body: Callable[[], None]) -> None:
        """Has a thread submit work: the pool is not done before that has ended."""
        with self._lock:
            self._feeders += 1

        def run() -> None:
            try:
                body()
            finally:
                with self._lock:
                    self._feeders -= 1
                self._ended.put(None)

        threading.Thread(target=run, name="bireme-pool-feeder", daemon=True).start()

    def close(self) -> None:
        """Takes nothing more; the processes end when all is done."""
        with self._lock:
            if self.state == "RUN":
                self.state = "CLOSE"
        self._ended.put(None)

    def terminate(self) -> None:
        """Ends the processes now; whatever is not done fails."""
        with self._lock:
            self.state = "TERMINATE"
            dropped, self._waiting = self._waiting, deque()
            for place in self._places:
                _end(place.actor)
        for work in dropped:
            self._ended.put((None, work, None))
        self._ended.put(None)

    def join(self) -> None:
        """Waits until everything is done."""
        self._thread.join()

    def _start_waiting(self) -> None:
        while self._waiting and self._idle:
            place, work = self._idle.popleft(), self._waiting.popleft()
            try:
                ref = place.actor.run.remote(work.kind, work.function, work.arguments, work.named)
                ref.future().add_done_callback(partial(self._note, place, work))
                place.calls += 1
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asks for the result
                self._idle.appendleft(place)
                self._ended.put((None, work, error))

    def _note(self, place: _Place, work: Work, future: Any) -> None:
        self._ended.put((place, work, future))

    def _serve(self) -> None:
        while True:
            ended = self._ended.get()
            if ended is not None:
                place, work, outcome = ended
                success, value = _read(outcome)
                if place is not None:
                    self._give_back(place, value if not success else None)
                if not success:
                    value = self._failure(value)
                work.result._set(work.number, success, value)
                # Not while it waits for the next: they keep the pool, or large values.
                del ended, place, work, outcome, value
                with self._lock:
                    self._open -= 1
            with self._lock:
                if self.state != "RUN" and not self._open and not self._feeders:
                    self._places.clear()
                    self._idle.clear()
                    return

    def _give_back(self, place: _Place, error: BaseException | None) -> None:
        with self._lock:
            if self.state == "TERMINATE":
                return
            is_dead = isinstance(error, ActorError) and not isinstance(error, TaskError)
            if is_dead or place.calls == self._calls_max:
                try:
                    place.actor, place.calls = self._start(), 0
                except Exception:  # noqa: BLE001 - the runtime is over; the next piece of work says so
                    pass
            self._idle.append(place)
            self._start_waiting()

    def _failure(self, error: BaseException | None) -> BaseException:
        if error is None or (self.state == "TERMINATE" and isinstance(error, ActorError)):
            return terminated()
        return as_raised(error)


def as_raised(error: BaseException) -> BaseException:
    """The exception of the user's function itself, with the place where it was raised as its cause."""
    if not isinstance(error, TaskError):
        return error
    cause = cause_of(error)
    if cause is None or isinstance(cause, UnserializableException):
        return error
    if cause.__cause__ is None:
        cause.__cause__ = RemoteTraceback(f'\n"""\n{facts_of(error)["traceback_text"]}"""')
    return cause


def terminated() -> RuntimeError:
    """The error of work that a terminated pool has not done."""
    return RuntimeError("the pool was terminated before this was done")


def _read(outcome: Any) -> tuple[bool, Any]:
    if isinstance(outcome, _Value):
        return True, outcome.value
    if outcome is None or isinstance(outcome, BaseException):
        return False, outcome
    try:
        return True, outcome.result()
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
        return False, error


def _end(actor: Any) -> None:
    try:
        bireme.kill(actor)
    except Exception:  # noqa: BLE001 - it is gone already, or the runtime is
        pass
