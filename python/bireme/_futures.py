"""Objects as futures: of asyncio and of concurrent.futures.

The extension tells which objects became ready through a queue behind one descriptor (`_native.Completions`). An event
loop has one queue, which it reads in batches; futures outside of loops share one that a thread of Python reads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

from . import _native
from ._native import ObjectRef


_Callback = Callable[[ObjectRef[Any]], object]


class _LoopCompletions:
    """The objects that one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._completions = _native.Completions()
        # Without a reference the future only tells that it is time.
        self._waiting: dict[int, tuple[ObjectRef[Any] | None, asyncio.Future[Any]]] = {}
        self._callbacks: dict[int, tuple[ObjectRef[Any], _Callback, contextvars.Context]] = {}
        self._callbacks_of: dict[ObjectRef[Any], list[int]] = {}
        self._numbers = itertools.count()
        loop.add_reader(self._completions.fileno(), self._drain)

    def future(self, ref: ObjectRef[Any], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        number = next(self._numbers)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = (ref, future)
        self._completions.watch(ref, number)
        return future

    def ready(self, ref: ObjectRef[Any], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        number = next(self._numbers)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[number] = (None, future)
        self._completions.watch(ref, number)
        return future

    def room(self, ticket: _native.Ticket, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        number = next(self._numbers)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[number] = (None, future)
        self._completions.watch_room(ticket, number)
        return future

    def add_callback(
        self, ref: ObjectRef[Any], callback: _Callback, context: contextvars.Context | None
    ) -> None:
        number = next(self._numbers)
        self._callbacks[number] = (ref, callback, context or contextvars.copy_context())
        self._callbacks_of.setdefault(ref, []).append(number)
        self._completions.watch(ref, number)

    def remove_callback(self, ref: ObjectRef[Any], callback: _Callback) -> int:
        added = [number for number in self._callbacks_of.get(ref, ()) if self._callbacks[number][1] == callback]
        for number in added:
            self._take_callback(number)
        return len(added)

    def _take_callback(self, number: int) -> tuple[ObjectRef[Any], _Callback, contextvars.Context]:
        taken = self._callbacks.pop(number)
        others = self._callbacks_of[taken[0]]
        others.remove(number)
        if not others:
            del self._callbacks_of[taken[0]]
        return taken

    def _drain(self) -> None:
        for number in self._completions.drain():
            if number in self._callbacks:
                asked, callback, context = self._take_callback(number)
                asyncio.get_running_loop().call_soon(callback, asked, context=context)
                continue
            waited = self._waiting.pop(number, None)
            if waited is None:
                continue
            ref, future = waited
            if future.done():  # cancelled meanwhile
                continue
            if ref is None:
                future.set_result(None)
                continue
            try:
                value = _native.get(ref, None)
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits
                future.set_exception(_raisable(error))
            else:
                future.set_result(value)


def _raisable(error: BaseException) -> BaseException:
    """Futures refuse StopIteration, which would end a coroutine silently."""
    if not isinstance(error, StopIteration):
        return error
    plain = RuntimeError(f"a task raised {type(error).__name__}: {error}")
    plain.__cause__ = error
    return plain


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCompletions] = weakref.WeakKeyDictionary()


def asyncio_future(ref: ObjectRef[Any]) -> "asyncio.Future[Any]":
    """A future of the running loop for an object."""
    loop = asyncio.get_running_loop()
    return _of(loop).future(ref, loop)


def ready(ref: ObjectRef[Any]) -> "asyncio.Future[None]":
    """A future of the running loop that is done when the object has a value or an error."""
    loop = asyncio.get_running_loop()
    return _of(loop).ready(ref, loop)


def room(ticket: _native.Ticket) -> "asyncio.Future[None]":
    """A future of the running loop that is done when a generator may yield its next item."""
    loop = asyncio.get_running_loop()
    return _of(loop).room(ticket, loop)


def _of(loop: asyncio.AbstractEventLoop) -> _LoopCompletions:
    completions = _loops.get(loop)
    if completions is None:
        completions = _loops[loop] = _LoopCompletions(loop)
    return completions


def add_done_callback(
    ref: ObjectRef[Any], callback: _Callback, context: contextvars.Context | None = None
) -> None:
    """Has the running loop call `callback(ref)` when the object is there."""
    _of(asyncio.get_running_loop()).add_callback(ref, callback, context)


def remove_done_callback(ref: ObjectRef[Any], callback: _Callback) -> int:
    """Forgets a callback of the running loop; how often it had been added."""
    return _of(asyncio.get_running_loop()).remove_callback(ref, callback)


def result(ref: ObjectRef[Any]) -> Any:
    """The value of an object that is there."""
    if not ref.done():
        raise asyncio.InvalidStateError(f"{ref!r} has no value yet")
    return _native.get(ref, None)


def exception(ref: ObjectRef[Any]) -> BaseException | None:
    """The error of an object that is there."""
    try:
        result(ref)
    except asyncio.InvalidStateError:
        raise
    except Exception as error:  # noqa: BLE001 - it is what was asked for
        return error
    return None


def cancelled(ref: ObjectRef[Any]) -> bool:
    """Whether the task that makes the object was cancelled."""
    from .exceptions import TaskCancelledError

    return ref.done() and isinstance(exception(ref), TaskCancelledError)


def awaiting(ref: ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What ``await ref`` does."""
    return asyncio_future(ref).__await__()


# The number that ends the thread below.
_END = 0


class _Outside:
    """Futures outside of event loops, completed by one thread of Python that lives as long as the runtime."""

    def __init__(self) -> None:
        self._completions = _native.Completions()
        self._waiting: dict[int, tuple[ObjectRef[Any], concurrent.futures.Future[Any]]] = {}
        self._numbers = itertools.count(_END + 1)
        self._thread = threading.Thread(target=self._serve, name="bireme-futures", daemon=True)
        self._thread.start()

    def future(self, ref: ObjectRef[Any]) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        number = next(self._numbers)
        self._waiting[number] = (ref, future)
        self._completions.watch(ref, number)
        return future

    def end(self) -> None:
        self._completions.push(_END)
        # A callback of a future may be what shuts the runtime down.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        numbers: list[int] = []
        while _END not in numbers:
            numbers = self._completions.wait()
            for number in numbers:
                if number in self._waiting:
                    _complete(*self._waiting.pop(number))
        # The runtime is over: what is left gets the error that says so.
        while self._waiting:
            _complete(*self._waiting.popitem()[1])


def _complete(ref: ObjectRef[Any], future: "concurrent.futures.Future[Any]") -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = _native.get(ref, None)
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(value)


_outside: _Outside | None = None
_outside_lock = threading.Lock()


def future(ref: ObjectRef[Any]) -> "concurrent.futures.Future[Any]":
    """A future of concurrent.futures for an object."""
    global _outside
    with _outside_lock:
        if _outside is None:
            _outside = _Outside()
        return _outside.future(ref)


def end() -> None:
    """After the runtime has ended: completes what is left and ends the thread."""
    global _outside
    with _outside_lock:
        outside, _outside = _outside, None
    if outside is not None:
        outside.end()


def _forget() -> None:
    """In a forked child: the threads and loops of the parent are not there."""
    global _outside, _outside_lock
    _outside, _outside_lock = None, threading.Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_forget)
