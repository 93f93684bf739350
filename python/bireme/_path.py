"""`sys.path` of the program, for its workers.

They begin with the path that it has at `init`. What is changed later travels with the next function, class or value that is
pickled: a path that is another than the one at the beginning is adopted by the worker before it loads what comes with it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from . import _native

# The path at the beginning, as it was last seen, and all of it when something has come to it.
_begun: list[str] | None = None
_seen: list[str] = []
_news: tuple[str, ...] = ()


def begin() -> list[str]:
    """From now on changes are news; the path as workers find it, wherever they run."""
    global _begun, _seen, _news
    _begun, _seen, _news = list(sys.path), list(sys.path), ()
    return [_resolved(entry) for entry in sys.path]


def news() -> tuple[str, ...]:
    """The whole path if something has come to it since the beginning, else nothing."""
    global _seen, _news
    if _begun is not None and sys.path != _seen:
        _seen = list(sys.path)
        # Entries of a runtime environment belong to that environment.
        scratch = os.environ.get("BIREME_SCRATCH")
        entries = [entry for entry in _seen if isinstance(entry, str) and not (scratch and entry.startswith(scratch))]
        has_news = any(entry not in _begun for entry in entries)
        _news = tuple(_resolved(entry) for entry in entries) if has_news else ()
    return _news


def adopt(path: tuple[str, ...]) -> None:
    """In a worker: finds modules where the program that sent this does. Its own entries stay, those of an environment first."""
    if not _native.is_worker() or all(entry in sys.path for entry in path):
        return
    scratch = os.environ.get("BIREME_SCRATCH")
    first = [entry for entry in sys.path if scratch and entry.startswith(scratch)]
    told = [entry for entry in path if entry not in first]
    sys.path[:] = first + told + [entry for entry in sys.path if entry not in told and entry not in first]
    importlib.invalidate_caches()


class Carried:
    """A value that is pickled behind a path."""

    def __init__(self, path: tuple[str, ...], value: Any) -> None:
        self.path = path
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return (_second, (_Adopted(self.path), self.value))


class _Adopted:
    """Adopts a path while it is unpickled."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (adopt, (self.path,))


def _second(first: object, second: Any) -> Any:
    return second


def _resolved(entry: str) -> str:
    """A folder of modules as workers find it; as it is when the working directory was deleted."""
    try:
        return os.path.abspath(entry)
    except FileNotFoundError:
        return entry
