"""Which member of a value cannot be pickled.

Called when a value could not be sent, to name the member to blame, and by `inspect_serializability`. The search pickles
part after part and goes down into the first that fails, through containers, attributes, closures and classes, in the
order in which pickle would. It is bounded in depth and in the number of trials.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["Finding", "find_unserializable", "path_to_unserializable", "trouble_with"]

# Beyond these the search ends where it is: the path is right, but may not reach the last member.
SEARCH_DEPTH_MAX = 24
SEARCH_TRIALS_MAX = 5_000


class Place(NamedTuple):
    """Where a part is: `argument 'model'` + `.cache['lock']` + `<function f>`."""

    head: str
    suffix: str = ""
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.head}{self.suffix}" + (f" of {self.owner}" if self.owner else "")

    def below(self, suffix: str) -> Place:
        return self._replace(suffix=self.suffix + suffix)

    def inside(self, head: str, owner: str, is_root: bool) -> Place:
        """A place that is named by its owner, such as a closure variable; where the owner is comes after."""
        return Place(head, "", owner if is_root else f"{owner}, which is {self}")


class Finding(NamedTuple):
    """The member to blame."""

    place: str
    member: Any
    parent: Any
    names: tuple[str, ...]
    trouble: str


def path_to_unserializable(value: object, name: str = "value") -> tuple[str, object] | None:
    """The place of the member of `value` that cannot be pickled, and the member; None when all of it can.

    >>> import threading
    >>> class Model:
    ...     def __init__(self):
    ...         self.cache = {"lock": threading.Lock()}
    >>> path_to_unserializable(Model(), "argument 'model'")[0]
    "argument 'model'.cache['lock']"
    >>> lock = threading.Lock()
    >>> path_to_unserializable([1, {"a": lock}])[0]
    "value[1]['a']"
    """
    found = find_unserializable(value, name)
    return None if found is None else (found.place, found.member)


def find_unserializable(value: object, name: str = "value", depth_max: int = SEARCH_DEPTH_MAX) -> Finding | None:
    """The same with all that is known of it."""
    trouble = trouble_with(value)
    if trouble is None:
        return None
    place, names, member = Place(name), [name], value
    parent: object = None
    seen, trials = {id(value)}, 0
    for _ in range(depth_max):
        found = None
        for part_name, part_place, part in _parts(member, place, is_root=parent is None and member is value):
            if id(part) in seen or type(part) in _HARMLESS:
                continue
            trials += 1
            if trials > SEARCH_TRIALS_MAX:
                break
            part_trouble = trouble_with(part)
            if part_trouble is not None:
                found = (part_name, part_place, part, part_trouble)
                break
        if found is None:
            break
        parent = member
        part_name, place, member, trouble = found
        names.append(part_name)
        seen.add(id(member))
    return Finding(str(place), member, parent, tuple(names), trouble)


# Nothing can be wrong with these, and values have many of them.
_HARMLESS = frozenset({int, float, bool, str, bytes, bytearray, complex, type(None)})


def trouble_with(value: object) -> str | None:
    """Why a value cannot be pickled, None when it can."""
    try:
        _pickler_class()(io.BytesIO(), protocol=5, buffer_callback=_drop).dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as trouble:
        return f"{type(trouble).__name__}: {trouble}"
    finally:
        _forget_refs()
    return None


def _drop(_buffer: object) -> None:
    """Large buffers are not looked at: they always travel."""


def _pickler_class() -> Any:
    try:
        from bireme._serialize import _ThoroughPickler
    except ImportError:
        import cloudpickle  # type: ignore[import-untyped]

        return cloudpickle.Pickler
    return _ThoroughPickler


def _forget_refs() -> None:
    # Pickling a value notes the refs in it for the call to come, and there is none.
    try:
        from bireme._native import forget_collected
    except ImportError:
        return
    forget_collected()


Parts = Iterator[tuple[str, Place, Any]]


def _parts(value: Any, place: Place, is_root: bool) -> Parts:
    """The parts of a value in the order in which pickle meets them."""
    if isinstance(value, dict):
        yield from _dict_parts(value, place)
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None) if isinstance(value, tuple) else None
        for number, part in enumerate(value):
            label = f".{names[number]}" if names else f"[{number}]"
            yield label.lstrip("."), place.below(label), part
    elif isinstance(value, (set, frozenset)):
        for part in value:
            yield "member", place.inside("a member", f"the set {place}", is_root=True), part
    elif inspect.isfunction(value):
        yield from _function_parts(value, place, is_root)
    elif inspect.ismethod(value):
        yield "__self__", place.below(".__self__"), value.__self__
        yield "__func__", place.below(".__func__"), value.__func__
    elif isinstance(value, functools.partial):
        yield "func", place.below(".func"), value.func
        yield "args", place.below(".args"), value.args
        yield "keywords", place.below(".keywords"), value.keywords
    elif isinstance(value, type):
        yield from _class_parts(value, place, is_root)
    elif isinstance(value, (staticmethod, classmethod)):
        yield "__func__", place, value.__func__
    elif isinstance(value, property):
        for accessor in (value.fget, value.fset, value.fdel):
            if accessor is not None:
                yield accessor.__name__, place, accessor
    else:
        yield from _object_parts(value, place)


def _dict_parts(value: dict[Any, Any], place: Place) -> Parts:
    for key, part in list(value.items()):
        label = f"[{_short(key)}]"
        yield label, place.below(label), part
    for key in list(value):
        if type(key) not in _HARMLESS:
            yield "key", place.inside(f"the key {_short(key)}", str(place), is_root=True), key


def _function_parts(function: Any, place: Place, is_root: bool) -> Parts:
    owner = f"<function {function.__qualname__}>"
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            part = cell.cell_contents
        except ValueError:
            continue  # Not assigned yet.
        yield name, place.inside(f"closure variable {name!r}", owner, is_root), part
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, place.inside(f"global variable {name!r}", owner, is_root), function.__globals__[name]
    for number, part in enumerate(function.__defaults__ or ()):
        yield f"default {number}", place.inside(f"default value {number}", owner, is_root), part
    for name, part in (function.__kwdefaults__ or {}).items():
        yield name, place.inside(f"default value of {name!r}", owner, is_root), part
    for name, part in vars(function).items():
        yield name, place.inside(f"attribute {name!r}", owner, is_root), part


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _class_parts(cls: type, place: Place, is_root: bool) -> Parts:
    owner = f"<class {cls.__qualname__}>"
    for name, part in list(vars(cls).items()):
        if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"):
            yield name, place.inside(f"class attribute {name!r}", owner, is_root), part
    for base in cls.__bases__:
        yield base.__name__, place.inside(f"base class {base.__name__!r}", owner, is_root), base


def _object_parts(value: Any, place: Place) -> Parts:
    """What the object's own `__reduce_ex__` gives to pickle. When that raises, the object itself is to blame."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return
    state = reduced[2] if len(reduced) > 2 else None
    if (
        isinstance(state, tuple)
        and len(state) == 2
        and isinstance(state[1], dict)
        and isinstance(state[0], (dict, type(None)))
    ):
        state = {**(state[0] or {}), **state[1]}  # Attributes in a dictionary, and in slots.
    if isinstance(state, dict):
        for name, part in state.items():
            label = f".{name}" if isinstance(name, str) else f"[{_short(name)}]"
            yield str(name), place.below(label), part
    elif state is not None:
        yield "state", place.below(".__getstate__()"), state
    for part in reduced[1] if isinstance(reduced[1], tuple) else ():
        # The class comes first in the arguments, and by name.
        if part is not type(value):
            yield "argument", place.below(".__reduce__()"), part
    if len(reduced) > 3 and reduced[3] is not None:
        for number, part in enumerate(reduced[3]):
            yield f"[{number}]", place.below(f"[{number}]"), part
    if len(reduced) > 4 and reduced[4] is not None:
        for key, part in reduced[4]:
            yield f"[{_short(key)}]", place.below(f"[{_short(key)}]"), part


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."
