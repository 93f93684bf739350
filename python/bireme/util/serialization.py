"""The user's own way to send instances of a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["deregister_serializer", "register_serializer"]


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Sends instances of `cls` as `serializer(instance)` and makes them again with `deserializer`, which must itself be
    picklable.

    >>> import threading
    >>> import bireme
    >>> from bireme.util import register_serializer
    >>> class Guarded:
    ...     def __init__(self, value):
    ...         self.value, self.lock = value, threading.Lock()
    >>> register_serializer(Guarded, serializer=lambda guarded: guarded.value, deserializer=Guarded)
    >>> bireme.get(bireme.put(Guarded(3))).value
    3
    >>> bireme.shutdown()
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer takes a class, not {cls!r}")
    for name, function in (("serializer", serializer), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(f"register_serializer needs a function as {name}, not {function!r}")
    from bireme import _serialize

    _serialize.register(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Forgets what `register_serializer` was told about `cls`; nothing happens when it was told nothing."""
    from bireme import _serialize

    _serialize.deregister(cls)
