"""Values as pickles with out-of-band buffers, and back.

The extension encodes numbers, text, bytes and plain arrays itself; everything else comes here. The fast pickler of the
standard library is tried first; what it cannot do, and whatever belongs to the program's own ``__main__`` (which a worker
could not import), goes through cloudpickle.
"""

from __future__ import annotations

import copyreg
import importlib
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from . import _native, _path, _reducers
from ._reducers import Reducer

_PROTOCOL = 5
# Reducers of the user by exact type; they go before all others.
_chosen: dict[type, Reducer] = {}
# What other processes need to do the same, by class, and what this one has learnt from them.
_registrations: dict[type, bytes] = {}
_adopted: set[bytes] = set()
# Libraries that the program has not imported so far.
_awaited = _reducers.names()
# Reducers for their values.
_known: dict[type, Reducer] = {}
# The standard library's, as they were when the tables were made.
_standard: dict[Any, Any] = {}


class _FastPickler(pickle.Pickler):
    """The pickler of the standard library with our reducers: no Python code is run for a value without one."""

    dispatch_table: dict[type, Reducer] = {}


class _ThoroughPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        reducer = _chosen.get(type(obj)) or _known.get(type(obj))
        if reducer is not None:
            return reducer(obj)
        reduced = super().reducer_override(obj)
        if type(obj) is types.FunctionType and isinstance(reduced, tuple) and len(reduced) > 2:
            # cloudpickle looks for `package.module` in the function itself, and not in functions and lambdas inside of it.
            slots = reduced[2][1]
            slots["_cloudpickle_submodules"].extend(_inner_submodules(obj.__code__, slots["__globals__"]))
        return reduced


def _inner_submodules(code: types.CodeType, variables: dict[str, Any]) -> list[types.ModuleType]:
    """Imported submodules of the packages in `variables` that code nested in `code` mentions."""
    names: set[str] = set()
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    while inner:
        current = inner.pop()
        names.update(current.co_names)
        inner.extend(constant for constant in current.co_consts if isinstance(constant, types.CodeType))
    packages = [value for value in variables.values() if isinstance(value, types.ModuleType) and hasattr(value, "__path__")]
    if not names or not packages:
        return []
    prefixes = tuple(package.__name__ + "." for package in packages)
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(prefixes)
        and isinstance(module, types.ModuleType)
        and any(names.issuperset(name[len(prefix) :].split(".")) for prefix in prefixes if name.startswith(prefix))
    ]


def _refresh() -> None:
    """Makes the tables of reducers anew when something was registered or imported since."""
    global _standard
    for name in [name for name in _awaited if name in sys.modules]:
        found = _reducers.install(name, sys.modules[name])
        if found is not None:
            _awaited.discard(name)
            _known.update(found)
    _standard = dict(copyreg.dispatch_table)
    _FastPickler.dispatch_table = {**_standard, **_known, **_chosen}


def _is_stale() -> bool:
    return not _awaited.isdisjoint(sys.modules) or _standard != copyreg.dispatch_table


def dumps(value: Any) -> tuple[bytes, list[memoryview] | None]:
    """The pickle of a value and its buffers (none: None)."""
    if _is_stale():
        _refresh()
    try:
        pickled, buffers = _dump(_FastPickler, value)
        if b"__main__" not in pickled:
            return pickled, buffers
    except Exception:  # noqa: BLE001 - whatever it was, cloudpickle says it better or can do it
        pass
    _native.forget_collected()
    try:
        return _dump(_ThoroughPickler, value)
    except Exception as error:
        raise _explain(value, error) from error


def _dump(pickler: type[pickle.Pickler], value: Any) -> tuple[bytes, list[memoryview] | None]:
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    if path := _path.news():
        value = _path.Carried(path, value)
    pickler(file, _PROTOCOL, buffer_callback=buffers.append).dump(value)
    if not buffers:
        return file.getvalue(), None
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def _explain(value: Any, error: Exception) -> Exception:
    """An error that names the member which cannot be pickled."""
    from .util._inspect import path_to_unserializable

    try:
        found = path_to_unserializable(value)
    except Exception:  # noqa: BLE001 - the search must not hide the error itself
        found = None
    where = "" if found is None else f"; the reason is {found[0]}, a {type(found[1]).__name__}"
    text = f"a {type(value).__name__} cannot be sent to another process: {error}{where}"
    hint = "make it inside the task or actor instead, or register a serializer (bireme.util.register_serializer)"
    return TypeError(f"{text}; {hint}")


def loads(pickled: Any, buffers: list[Any] | None) -> Any:
    """The value behind a pickle and its buffers."""
    if buffers is None:
        return pickle.loads(pickled)
    return pickle.loads(pickled, buffers=buffers)


def dump_code(target: Any) -> bytes:
    """A function or class as bytes. They are kept and sent again, so references inside live as long as this process."""
    return _native.apart(_dump_code, target)


def _dump_code(target: Any) -> bytes:
    if _is_stale():
        _refresh()
    file = io.BytesIO()
    pickle.dump((_path.news(), tuple(_registrations.values())), file, _PROTOCOL)
    try:
        _ThoroughPickler(file, _PROTOCOL).dump(target)
    except Exception as error:
        raise _explain(target, error) from error
    return file.getvalue()


def load_code(code: bytes) -> Any:
    """The function or class behind bytes."""
    file = io.BytesIO(code)
    path, registrations = pickle.load(file)
    _path.adopt(path)
    for registration in registrations:
        _adopt(registration)
    return pickle.load(file)


def make_array(view: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """An array over the bytes of an object: numpy's, or a memoryview where there is no numpy."""
    try:
        import numpy
    except ImportError:
        if dtype == "bfloat16":
            raise TypeError("reading an array of bfloat16 needs numpy and ml_dtypes") from None
        letters = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "f4": "f",
                   "f8": "d", "f2": "e", "?": "?"}
        letter: Any = letters[dtype.lstrip("=><")]
        return memoryview(view).cast(letter, shape)
    if dtype == "bfloat16":
        # By name: type checkers need not find it.
        ml_dtypes = importlib.import_module("ml_dtypes")
        return numpy.frombuffer(view, dtype=ml_dtypes.bfloat16).reshape(shape)
    return numpy.frombuffer(view, dtype=dtype).reshape(shape)


def register(cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Sends instances of exactly this class as ``serializer(instance)``, here and in every process that meets one."""
    try:
        registration: bytes | None = cloudpickle.dumps((cls, serializer, deserializer), _PROTOCOL)
    except Exception:  # noqa: BLE001 - what cannot travel is known here only
        registration = None

    def reduce(value: Any) -> tuple[Any, tuple[Any, ...]]:
        return _rebuild, (deserializer, serializer(value), registration)

    _chosen[cls] = reduce
    if registration is not None:
        _registrations[cls] = registration
    _refresh()


def deregister(cls: type) -> None:
    """Forgets what `register` was told."""
    _chosen.pop(cls, None)
    _registrations.pop(cls, None)
    _refresh()


def _adopt(registration: bytes) -> None:
    """Makes the choice of another process the one of this process, unless it has its own."""
    if registration in _adopted:
        return
    _adopted.add(registration)
    cls, serializer, deserializer = pickle.loads(registration)
    if cls not in _chosen:
        register(cls, serializer, deserializer)


def _rebuild(deserializer: Callable[[Any], Any], state: Any, registration: bytes | None) -> Any:
    if registration is not None:
        _adopt(registration)
    return deserializer(state)
