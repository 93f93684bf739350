"""The event loop of an async actor.

Calls arrive on the worker's executor thread, which decodes them and hands them over in order; each becomes a task of the
loop, and ends through its ticket. Results of calls that end in the same turn of the loop leave together.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from . import _futures, _native

current_ticket: contextvars.ContextVar[_native.Ticket | None] = contextvars.ContextVar("bireme_ticket", default=None)

_loop: asyncio.AbstractEventLoop | None = None
# The process that the loop belongs to, and not a fork of it.
_process = 0
_running: dict[str, asyncio.Task[Any]] = {}
_ended: list[tuple[_native.Ticket, Any, BaseException | None]] = []
_Call = tuple[_native.Ticket, Any, tuple[Any, ...], dict[str, Any] | None, bool]
_arrived: list[_Call] = []
_arrived_lock = threading.Lock()


def start() -> None:
    """Starts the loop on a thread of its own."""
    global _loop, _process
    _process = os.getpid()
    ready = threading.Event()

    def run() -> None:
        global _loop
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
        ready.set()
        while True:
            try:
                _loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                # A task that the user started wanted to end the program. It is the loop of all calls, which go on.
                traceback.print_exc()

    threading.Thread(target=run, name="bireme-loop", daemon=True).start()
    ready.wait()


def run_here(coroutine: Any) -> Any:
    """Runs a coroutine on the loop and waits for it, from another thread."""
    assert _loop is not None
    return asyncio.run_coroutine_threadsafe(coroutine, _loop).result()


def finish(awaitable: Awaitable[Any]) -> Any:
    """Waits for what a plain function has begun: on the loop, or on one for this alone when there is none."""

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait()) if _loop is None else run_here(wait())


def submit(
    ticket: _native.Ticket, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, cancelled: bool
) -> None:
    """Hands a call over to the loop; one that was cancelled before is cancelled there."""
    assert _loop is not None
    with _arrived_lock:
        _arrived.append((ticket, method, args, kwargs, cancelled))
        first = len(_arrived) == 1
    if first:
        _loop.call_soon_threadsafe(_begin_arrived)


def _begin_arrived() -> None:
    assert _loop is not None
    with _arrived_lock:
        arrived = _arrived[:]
        _arrived.clear()
    for ticket, method, args, kwargs, cancelled in arrived:
        task = _running[ticket.task_id] = _loop.create_task(_run(ticket, method, args, kwargs))
        # Not at the end of the coroutine: a task that is cancelled before its first step never gets there.
        task.add_done_callback(functools.partial(_note_end, ticket))
        if cancelled:
            task.cancel()


class _Escaped:
    """An exception that would end the loop if a task of it raised it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _run(ticket: _native.Ticket, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    current_ticket.set(ticket)
    try:
        result = method(*args, **(kwargs or {}))
        if ticket.streams:
            return await _stream(ticket, result)
        result = await result if inspect.isawaitable(result) else result
        _leave_fork(None)
        return result
    except BaseException as error:
        _leave_fork(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return _Escaped(error)
        raise


def _leave_fork(error: BaseException | None) -> None:
    """Ends a copy of the process that a call has made and that came to its end."""
    if os.getpid() != _process:
        from ._worker import end_fork

        end_fork(error)


def _note_end(ticket: _native.Ticket, task: asyncio.Task[Any]) -> None:
    _running.pop(ticket.task_id, None)
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    result: Any = None if error is not None else task.result()
    if type(result) is _Escaped:
        result, error = None, result.error
    _ended.append((ticket, result, error))
    if len(_ended) == 1:
        assert _loop is not None
        _loop.call_soon(_finish_ended)


async def _stream(ticket: _native.Ticket, items: Any) -> None:
    if isinstance(items, AsyncIterator):
        async for item in items:
            await _yield(ticket, item)
        return
    for item in items:
        await _yield(ticket, item)


async def _yield(ticket: _native.Ticket, item: Any) -> None:
    _leave_fork(None)
    must_pause = ticket.yield_item(item)
    while must_pause:
        # The reader is behind: other calls go on meanwhile.
        await _futures.room(ticket)
        must_pause = not ticket.may_yield()


def _finish_ended() -> None:
    ended = _ended[:]
    _ended.clear()
    _native.finish_calls(ended)


def cancel(task_ids: list[str]) -> None:
    """Cancels calls that run on the loop; called from the signal handler."""
    assert _loop is not None
    _loop.call_soon_threadsafe(_cancel_here, task_ids)


def _cancel_here(task_ids: list[str]) -> None:
    for task_id in task_ids:
        task = _running.get(task_id)
        if task is not None:
            task.cancel()
