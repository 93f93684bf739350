"""Exceptions as text: what a reader in another process sees of them.

Called by `bireme._raised` when an exception leaves its process. Frames of this package at the top of a traceback are
left out, and the cause of a `TaskError` is not repeated: its text has it already.
"""

from __future__ import annotations

import os
import traceback

__all__ = ["message_of", "own_traceback", "remote_traceback", "type_name_of"]

# A text longer than this loses its middle.
TRACEBACK_CHARACTERS_MAX = 64 * 1024

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def type_name_of(kind: type) -> str:
    """The full name of a type, without `builtins.`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def message_of(exception: BaseException | None) -> str:
    """The text of an exception, also of one whose `__str__` raises."""
    if exception is None:
        return ""
    try:
        return str(exception)
    except Exception as trouble:
        return f"<no text: its __str__ raised {type(trouble).__name__}>"


def remote_traceback(exception: BaseException) -> str:
    """The traceback with the whole chain, as it would be printed where the exception was raised."""
    return _format(exception, chain=True)


def own_traceback(exception: BaseException) -> str:
    """The traceback of this exception alone."""
    return _format(exception, chain=False)


def _format(exception: BaseException, chain: bool) -> str:
    try:
        formatted = traceback.TracebackException.from_exception(exception, compact=True)
        _tidy(formatted, set())
        text = "".join(formatted.format(chain=chain)).rstrip("\n")
    except Exception:
        text = f"{type_name_of(type(exception))}: {message_of(exception)}"
    if len(text) > TRACEBACK_CHARACTERS_MAX:
        half = TRACEBACK_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _tidy(formatted: traceback.TracebackException, seen: set[int]) -> None:
    from bireme._task_error import TaskError

    if id(formatted) in seen:
        return
    seen.add(id(formatted))
    while formatted.stack and formatted.stack[0].filename.startswith(_PACKAGE):
        del formatted.stack[0]
    if formatted.exc_type is not None and issubclass(formatted.exc_type, TaskError):
        formatted.__cause__ = None
        formatted.__context__ = None
    for other in (formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())):
        if other is not None:
            _tidy(other, seen)
