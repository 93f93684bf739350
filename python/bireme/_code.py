"""Functions and classes as code that workers load, pickled once."""

from __future__ import annotations

import pickle
import threading
from typing import Any

from . import _serialize

_FUNCTION = b"F"
_CLASS = b"C"


class _Thread(threading.local):
    """What a thread is at."""

    def __init__(self) -> None:
        # The functions that are being pickled, the innermost last.
        self.pickling: list[FunctionCode] = []
        # The code that is being loaded.
        self.loading: bytes | None = None


_thread = _Thread()


class FunctionCode:
    """A function that is pickled when it is first needed: by then what it refers to is defined."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._pickled: bytes | None = None
        self._lock = threading.RLock()

    def pickled(self) -> bytes:
        """The code."""
        with self._lock:
            if self._pickled is None:
                _thread.pickling.append(self)
                try:
                    self._pickled = _FUNCTION + _serialize.dump_code(self.function)
                finally:
                    _thread.pickling.pop()
            return self._pickled

    def __reduce__(self) -> tuple[Any, ...]:
        if self not in _thread.pickling:
            return (_restore, (self.pickled(),))
        # A function that refers to itself: the pickle meets itself and closes the circle.
        made = _OwnCode if _thread.pickling[-1] is self else _EmptyCode
        return (made, (), self.function, None, None, _fill)


def _fill(code: FunctionCode, function: Any) -> None:
    code.function = function


class _EmptyCode(FunctionCode):
    """A circle that is being closed."""

    def __init__(self) -> None:
        super().__init__(None)


class _OwnCode(_EmptyCode):
    """A circle of one: the code is the one that is being loaded, so that every process knows the function by one key."""

    def __init__(self) -> None:
        super().__init__()
        self._pickled = _thread.loading


class _PickledCode(FunctionCode):
    """A function that came in a pickle: most are only passed on."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(None)
        self._pickled = pickled

    def __getattribute__(self, name: str) -> Any:
        if name == "function":
            found = object.__getattribute__(self, "__dict__")
            if found.get("function") is None:
                found["function"] = load(found["_pickled"])
            return found["function"]
        return object.__getattribute__(self, name)


def _restore(pickled: bytes) -> FunctionCode:
    return _PickledCode(pickled)


def pack_class(cls: type, description: Any) -> bytes:
    """A class as code, behind a description that can be read without loading the class."""
    described = pickle.dumps(description, protocol=5)
    return _CLASS + len(described).to_bytes(4, "little") + described + _serialize.dump_code(cls)


def describe_class(code: bytes) -> Any:
    """The description before a class."""
    length = int.from_bytes(code[1:5], "little")
    return pickle.loads(code[5 : 5 + length])


def load(code: bytes) -> Any:
    """The function or class behind code."""
    if code[:1] == _FUNCTION:
        outer, _thread.loading = _thread.loading, code
        try:
            return _serialize.load_code(code[1:])
        finally:
            _thread.loading = outer
    length = int.from_bytes(code[1:5], "little")
    return _serialize.load_code(code[5 + length :])
