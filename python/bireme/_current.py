"""What the calling code belongs to: the task of its thread, or the call of its coroutine."""

from __future__ import annotations

import sys

from . import _native

Current = tuple[str, str, str | None, int]


def current() -> Current | None:
    """Task id, name, actor id and attempt; None outside of tasks."""
    loop = sys.modules.get("bireme._loop")
    if loop is not None:
        ticket = loop.current_ticket.get()
        if ticket is not None:
            found: Current = ticket.current()
            return found
    return _native.current_task()


def label() -> str:
    """The name for output: of the actor's class, or of the task; empty outside of tasks."""
    found = current()
    if found is None:
        return ""
    return found[1] if found[2] is None else found[1].partition(".")[0]
